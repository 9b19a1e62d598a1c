"""Columns of adjusted answers beside the unbiased ones: not negative, whole numbers, or both.

All of them follow from one table that fits the measurements of the release, so that they agree
with each other; or, where that would be too large, from tables of single marginals, which agree in
part (see `by_marginal`). They are biased: what can't be negative is too large on average where
there is little, and too small elsewhere, since the total stays the unbiased one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from dpsql.errors import InternalError, SqlError, UnsupportedSqlError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.planner.reconstruction.cellwise import Unbiased
from dpsql.planner.reconstruction.sources import Ground, Source, entries
from dpsql.planner.reconstruction.tables import counts_of
from dpsql.release.adjust import (
    FittedTable,
    Observation,
    components_of,
    fit_table,
    fits_jointly,
)
from dpsql.release.answers import Answers
from dpsql.release.by_marginal import REASON as BY_MARGINAL
from dpsql.release.by_marginal import (
    AskedMarginals,
    MarginalTables,
    asked_of,
    by_table,
    unbiased_tables,
)
from dpsql.release.frames import DESCRIBED, AnsweredFrames, slices
from dpsql.release.marginals import Marginal
from dpsql.release.support import Support
from dpsql.release.tables import about
from dpsql.schema.names import folded
from dpsql.sql.compiled import Script, Statement
from dpsql.workload.workload import UnitTable

REASON = "biased: of a table that fits all measurements"


class Fit:
    """The table that fits the measurements, or those of single marginals; made when first needed.

    Args:
        own: what is asked of one table.
        sources: what was measured of it.
        unbiased: what is known of its cells without bias.
        nonnegative: whether no cell is negative.
        integers: whether all cells are whole numbers.
    """

    def __init__(
        self,
        own: Script,
        sources: Sequence[Source],
        unbiased: Unbiased,
        *,
        nonnegative: bool,
        integers: bool,
    ) -> None:
        self._sources = sources
        self._ground = Ground.of(sources, own.workload.domain, own.merged)
        self._nonnegative, self._integers = nonnegative, integers
        blocks = [block for source in sources for block in source.blocks]
        self._asked = _asked(own, blocks, unbiased)
        spaces = [names for block in blocks for names in block.spaces if names]
        self.joint = integers or fits_jointly(spaces, self._ground.sizes)

    @cached_property
    def marginal(self) -> Marginal:
        """Makes marginals."""
        if self.joint:
            return lambda names: self._table.marginal(names)
        return MarginalTables(self._asked, self._observations).marginal

    @cached_property
    def _table(self) -> FittedTable:
        return fit_table(
            self._observations(),
            self._ground.sizes,
            nonnegative=self._nonnegative,
            integers=self._integers,
        )

    def _observations(self) -> list[Observation]:
        return [
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


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits to the measurements, which make marginals: one, or one for each of the tables."""

    of_tables: tuple[tuple[UnitTable | None, Fit], ...]

    @classmethod
    def of(
        cls,
        script: Script,
        sources: Sequence[Source],
        answers: Answers,
        *,
        nonnegative: bool,
        integers: bool,
    ) -> Fits:
        """Fit tables to measurements.

        Args:
            script: what is asked.
            sources: what was measured; of several tables, of each of them.
            answers: the unbiased answers that follow.
            nonnegative: whether no cell is negative.
            integers: whether all cells are whole numbers.
        """
        if answers.reconstruction is None:
            raise InternalError("biased answers can't be adjusted")
        wishes = {"nonnegative": nonnegative, "integers": integers}
        tables = unbiased_tables(script, answers.reconstruction, answers.marginal)
        return cls(
            tuple(
                (of, Fit(own, about(script, own, sources), unbiased, **wishes))
                for of, own, unbiased in tables
            )
        )

    @property
    def reason(self) -> str:
        """The note on the columns: how they came about, and what agrees."""
        return REASON if all(fit.joint for _, fit in self.of_tables) else BY_MARGINAL

    @cached_property
    def marginal(self) -> Marginal:
        """Makes marginals over attributes of one table; of several, with its axis."""
        return by_table([(of, fit.marginal) for of, fit in self.of_tables])


def _asked(own: Script, blocks: Sequence[BlockStrategy], unbiased: Unbiased) -> AskedMarginals:
    known = own.workload.domain.keys()
    spaces = [names for block in blocks for names in block.spaces if known >= set(names)]
    return AskedMarginals.of(asked_of(own), unbiased, spaces)


def adjusted_name(name: str) -> str:
    """Return the name of the column with the adjusted values of another."""
    return f"{name}_adjusted"


def check_adjusted(
    script: Script,
    blocks: Sequence[BlockStrategy],
    sources: Sequence[Source],
    reconstruction: Reconstruction,
    *,
    integers: bool,
) -> None:
    """Check that adjusted answers can be made, before anything is charged for them.

    Args:
        script: what is asked.
        blocks: what will be measured.
        sources: what was measured before and will be used.
        reconstruction: how unbiased answers will follow.
        integers: whether they shall be whole numbers.

    Raises:
        UnsupportedSqlError: something is added up row by row.
        SqlError: a statement's own columns have names that adjusted ones need.
        ResourceLimitError: the columns that measurements connect have too many joint cells, or
            those of a statement.
    """
    _check_counted(script)
    _check_names(script)
    for of, own, unbiased in unbiased_tables(script, reconstruction, _nothing_yet):
        before = about(script, own, sources)
        will = list(blocks) if of is None else counts_of(blocks, of)
        measured = [*(block for source in before for block in source.blocks), *will]
        ground = Ground.of(before, own.workload.domain, own.merged)
        spaces = [names for block in measured for names in block.spaces if names]
        if integers or fits_jointly(spaces, ground.sizes):
            components_of(spaces, ground.sizes)
        else:
            _asked(own, measured, unbiased).check()


def _nothing_yet(_: tuple[str, ...]) -> Array:
    raise InternalError("what will be measured is not known before")


def _check_counted(script: Script) -> None:
    """Refuse sums that are no counts of cells: a table of counts says nothing of them."""
    for statement in script.statements:
        if any(map(script.adds_up, statement.families)):
            what = "adds up values row by row"
            if any(map(script.counts_units, statement.families)):
                what = "counts units, of which one may be in several groups"
            error = UnsupportedSqlError(
                f"Adjusted columns need a table of counts, and this {what}.",
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
        names = {folded(output.name) for output in statement.outputs}
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
        self,
        statements: Sequence[Statement],
        plain: AnsweredFrames,
        adjusted: AnsweredFrames,
        reason: str = REASON,
    ) -> None:
        self._direct = {s.name for s in statements if s.post is None}
        self._plain, self._adjusted, self._reason = plain, adjusted, reason

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

    def supported(self, name: str) -> tuple[pl.DataFrame, Support]:
        """Return the frame of a statement, and what its unbiased values rest on."""
        return self.frame(name), self._plain.supported(name)[1]

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Support]]:
        """Yield the frame in pieces, each with what its unbiased values rest on."""
        known = (support for _, support in self._plain.supported_batches(name, rows))
        yield from zip(self.batches(name, rows), known, strict=True)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame; see `Release.columns`."""
        described = self._plain.columns(name)
        _, values = self._roles(name)
        if name not in self._direct:
            values = [v for v in values if adjusted_name(v) in self.frame(name).columns]
        rows = [(adjusted_name(v), "adjusted", "none", self._reason) for v in values]
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
