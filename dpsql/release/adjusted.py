"""Columns of adjusted answers beside the unbiased ones: not negative, whole numbers, or both.

All of them follow from one table that fits the measurements of the release, so that they agree
with each other. They are biased: what can't be negative is too large on average where there is
little, and too small elsewhere, since the total stays the unbiased one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from dpsql.errors import SqlError, UnsupportedSqlError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array, Ints
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.sources import Ground, Source, entries
from dpsql.planner.reconstruction.tables import counts_of
from dpsql.release.adjust import FittedTable, Observation, components_of, fit_table
from dpsql.release.frames import DESCRIBED, AnsweredFrames, slices
from dpsql.release.marginals import Marginal
from dpsql.release.tables import about
from dpsql.sql.compiled import Script, Statement

REASON = "biased: of a table that fits all measurements"


class Fit:
    """The table that fits the measurements; it is made when it is first needed."""

    def __init__(
        self,
        sources: Sequence[Source],
        sizes: Mapping[str, int],
        merged: Mapping[str, Ints],
        *,
        nonnegative: bool,
        integers: bool,
    ) -> None:
        self._sources, self._ground = sources, Ground.of(sources, sizes, merged)
        self._nonnegative, self._integers = nonnegative, integers

    @cached_property
    def _table(self) -> FittedTable:
        observations = [
            Observation(
                e.space.attributes,
                e.space.factors,
                e.space.noise,
                e.space.read(s.values[e.attributes]),
            )
            for i, s in enumerate(self._sources)
            if s.values is not None
            for e in entries(i, s, self._ground)
        ]
        return fit_table(
            observations,
            self._ground.sizes,
            nonnegative=self._nonnegative,
            integers=self._integers,
        )

    @property
    def marginal(self) -> Marginal:
        """Makes marginals of the table."""
        return lambda names: self._table.marginal(names)


def fitted(
    script: Script, sources: Sequence[Source], *, nonnegative: bool, integers: bool
) -> Marginal:
    """Return what makes marginals of the table that fits the measurements, or of several tables.

    Args:
        script: what is asked.
        sources: what was measured; of several tables, for each of them.
        nonnegative: whether no cell is negative.
        integers: whether all cells are whole numbers.
    """
    if not script.apart:
        sizes, merged = script.workload.domain, script.merged
        return Fit(sources, sizes, merged, nonnegative=nonnegative, integers=integers).marginal
    fits = {
        of: fitted(
            own,
            about(script, own, sources),
            nonnegative=nonnegative,
            integers=integers,
        )
        for of, own in script.apart
    }

    def marginal(names: tuple[str, ...]) -> Array:
        (of,) = (table for table in fits if table.name in names)
        own = (of.own(name) for name in names)
        found = fits[of](tuple(name for name in own if name is not None))
        return np.expand_dims(found, names.index(of.name))

    return marginal


def adjusted_name(name: str) -> str:
    """Return the name of the column with the adjusted values of another."""
    return f"{name}_adjusted"


def check_adjusted(
    script: Script, blocks: Sequence[BlockStrategy], sources: Sequence[Source]
) -> None:
    """Check that adjusted answers can be made, before anything is charged for them.

    Args:
        script: what is asked.
        blocks: what will be measured.
        sources: what was measured before and will be used.

    Raises:
        UnsupportedSqlError: something is added up row by row.
        SqlError: a statement's own columns have names that adjusted ones need.
        ResourceLimitError: the columns that measurements connect have too many joint cells.
    """
    _check_counted(script)
    _check_names(script)
    for table, own in script.apart:
        _check_connected(own, counts_of(blocks, table), about(script, own, sources))
    if not script.apart:
        _check_connected(script, blocks, sources)


def _check_connected(
    script: Script, blocks: Sequence[BlockStrategy], sources: Sequence[Source]
) -> None:
    ground = Ground.of(sources, script.workload.domain, script.merged)
    measured = [b for s in sources for b in s.blocks] + list(blocks)
    components_of([names for b in measured for names in b.spaces if names], ground.sizes)


def _check_counted(script: Script) -> None:
    """Refuse sums that are no counts of cells: a table of counts says nothing of them."""
    for statement in script.statements:
        if any(map(script.adds_up, statement.families)):
            what = "adds up values row by row"
            if any(map(script.counts_units, statement.families)):
                what = "counts units, of which one may be in several groups"
            error = UnsupportedSqlError(
                f"Adjusted columns follow from a table of counts, and this {what}.",
                hint="leave "
                + option("nonnegative")
                + " and "
                + option("integers")
                + " out, or release the counts by themselves.",
            )
            error.statement = printable(statement.name)
            raise error


def _check_names(script: Script) -> None:
    for statement in script.statements:
        names = {output.name.lower() for output in statement.outputs}
        for name in sorted(names):
            if adjusted_name(name) in names:
                error = SqlError(
                    f"The columns {printable(name)} and {printable(adjusted_name(name))} can't "
                    "both be asked for: the second is the name of the adjusted values.",
                    hint="give one of them another name with AS.",
                )
                error.statement = printable(statement.name)
                raise error


class AdjustedFrames:
    """Frames with adjusted columns beside the unbiased ones."""

    def __init__(
        self, statements: Sequence[Statement], plain: AnsweredFrames, adjusted: AnsweredFrames
    ) -> None:
        self._direct = {s.name for s in statements if s.post is None}
        self._plain, self._adjusted = plain, adjusted

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement.

        A statement that computes on its answers (HAVING, LIMIT, …) may choose other rows of
        adjusted answers. Rows are then found by their keys, and are null where there is none;
        without keys that tell rows apart there are no adjusted columns.
        """
        keys, values = self._roles(name)
        plain, other = self._plain.frame(name), self._adjusted.frame(name)
        if name in self._direct or (not keys and plain.height == other.height == 1):
            return _beside(plain, other, values)
        found = other.select(*keys, *values).rename({v: adjusted_name(v) for v in values})
        if not keys or any(frame.select(keys).is_duplicated().any() for frame in (plain, found)):
            return plain
        joined = plain.join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return joined.select(_order(plain.columns, values))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield the frame in pieces of at most `rows` rows."""
        if name not in self._direct:
            yield from slices(self.frame(name), rows)
            return
        _, values = self._roles(name)
        pairs = zip(
            self._plain.batches(name, rows), self._adjusted.batches(name, rows), strict=True
        )
        for plain, other in pairs:
            yield _beside(plain, other, values)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame; see `Release.columns`."""
        described = self._plain.columns(name)
        _, values = self._roles(name)
        if name not in self._direct:
            values = [v for v in values if adjusted_name(v) in self.frame(name).columns]
        rows = [(adjusted_name(v), "adjusted", "none", REASON) for v in values]
        schema = dict.fromkeys(DESCRIBED, pl.String)
        return pl.concat([described, pl.DataFrame(rows, schema=schema, orient="row")])

    def _roles(self, name: str) -> tuple[list[str], list[str]]:
        """Return the names of the key columns, and of the value columns."""
        described = self._plain.columns(name)
        keys = described.filter(pl.col("role") == "key")["column"].to_list()
        return keys, described.filter(pl.col("role") == "value")["column"].to_list()


def _beside(plain: pl.DataFrame, other: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
    """Put adjusted columns beside those of the same rows in the same order."""
    adjusted = [other[value].alias(adjusted_name(value)) for value in values]
    return plain.hstack(adjusted).select(_order(plain.columns, values))


def _order(columns: Sequence[str], values: Sequence[str]) -> list[str]:
    """Put each adjusted column behind what belongs to its value."""
    order = list(columns)
    for value in values:
        own = [f"{value}{end}" for end in ("", "_variance", "_lower", "_upper")]
        last = max(order.index(column) for column in own if column in order)
        order.insert(last + 1, adjusted_name(value))
    return order
