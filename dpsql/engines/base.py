"""The interface of an engine: exact counts of a table, from one database.

An engine places stored values in cells. What SQL means is not its concern: expressions are
evaluated over cells elsewhere, by DuckDB whatever the engine, so types of domains and columns
have DuckDB's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.key_scores import KeyScores
from dpsql.engines.ranked import Ranking
from dpsql.errors import InternalError
from dpsql.rel.ranked import RankedValues
from dpsql.rows.expression import RowExpression
from dpsql.rows.key import RowKey
from dpsql.rows.measure import RowMeasure
from dpsql.schema import Table
from dpsql.workload.spread import SpreadRows, spreads_of
from dpsql.workload.unit_groups import UnitGroups

if TYPE_CHECKING:
    from dpsql.rel.support import Support

Marginal = tuple[str, ...]
Counts = NDArray[np.int64]
Words = tuple[Counts, Counts]
"""Whole numbers that may not fit 64 bits, in two words: 2^28·high + low, with 0 <= low < 2^28."""
LOW_BITS = 28
Merged = Mapping[str, NDArray[np.int64]]
"""Column → the class of each of its `table.cells`; classes are numbered from 0 without a gap."""
Step = Callable[[int, int], None]
"""Called after each scan with the number of scans done and to do."""


Measures = Mapping[str, RowMeasure]
"""Measure → what is added up of each row. In a marginal it is an axis with one cell."""
Keys = Mapping[str, RowKey]
"""Attribute that is computed of each row → how."""
Units = Mapping[str, UnitGroups]
"""Attribute of one cell → in which groups units are counted in a marginal that has it, and not
rows. The other attribute of that has the groups for cells."""


RULE = "stretches"
"""The name that measurements have for the rule by which rows of units are kept, that of
`duckdb/bounded.py`. Those of before it have no name for theirs, by which the first k rows were kept
in the order of an MD5 of their texts. Rows that are kept by different rules are not the same rows,
so whoever changes the rule changes its name."""


def rule_of(table: Table) -> str:
    """Name the rule by which rows of a table are kept; empty if all of them are."""
    return "" if table.unit is None else RULE


class Counted(Mapping[Marginal, Counts]):
    """Exact counts by marginal, which are private, and how many rows of one unit they hold.

    All marginals of a table are of the same rows; or of units, where these are counted. A row is in
    one cell of an attribute at most, and in the same one in all marginals that have it; attributes
    of several tables have different names.

    Args:
        marginals: attributes → counts as int64, of shape (cells of the first one, …).
        contributions: the most rows of one privacy unit that may be among those counted.
        bounds: measure → the largest magnitude of what a row adds in a marginal that has it among
            its attributes; in all others a row counts as one. Of several tables, what all rows add
            that a unit has in the one table, with all their magnitudes added up; then
            `contributions` is 1, as a unit is one record, and each marginal has a measure.
        units: attribute of one cell → in how many cells a unit counts at most, once in each, in a
            marginal that has it among its attributes: there units are counted, and not rows. If it
            is among the `bounds`, too, a unit adds from 0 to as much to each cell, and no more
            than that times the number of cells to all of them: values of units are counted there.
        spreads: how far apart the rows of a unit are that may be among those counted: in cells of
            attributes of which none are counted together.
        totals: of several tables, the axis of the counts of each → how many rows of one unit its
            total holds at most; and no marginal with this axis holds more rows of a unit than the
            total does.
        rows: of several tables, measure → how many rows of one unit its sums hold at most.
        supports: in which cells of an attribute rows may add something to sums of a measure.
        above: of sums that may not fit 64 bits, marginal → their higher words: such a sum is
            2^28·above + (what stands in the marginal, modulo 2^28). All others are as they stand.
    """

    def __init__(
        self,
        marginals: Mapping[Marginal, Counts],
        contributions: int,
        bounds: Mapping[str, int] = MappingProxyType({}),
        units: Mapping[str, int] = MappingProxyType({}),
        spreads: Sequence[SpreadRows] = (),
        totals: Mapping[str, int] = MappingProxyType({}),
        above: Mapping[Marginal, Counts] = MappingProxyType({}),
        rows: Mapping[str, int] = MappingProxyType({}),
        supports: Sequence[Support] = (),
    ) -> None:
        self._marginals, self._contributions = dict(marginals), contributions
        self.bounds = MappingProxyType(dict(bounds))
        """Measure → the largest magnitude of what a row adds."""
        self.units = MappingProxyType(dict(units))
        """Attributes of groups of units → in how many of their cells a unit counts at most, once in
        each."""
        self.spreads = tuple(spreads)
        """Distances between the rows of one unit that may be among those counted."""
        self.totals = MappingProxyType(dict(totals))
        """Axis of the counts of a table → how many rows of one unit its total holds at most."""
        self.rows = MappingProxyType({**totals, **rows})
        """Measures of several tables → how many rows of one unit their sums hold at most."""
        self.supports = tuple(supports)
        """In which cells of an attribute rows may add something to sums of a measure."""
        self.above = MappingProxyType(dict(above))
        """Marginal of sums that may not fit 64 bits → their higher words."""

    @property
    def contributions(self) -> int:
        """The most rows of one privacy unit that may be among those counted."""
        return self._contributions

    def __getitem__(self, marginal: Marginal) -> Counts:
        return self._marginals[marginal]

    def __iter__(self) -> Iterator[Marginal]:
        return iter(self._marginals)

    def __len__(self) -> int:
        return len(self._marginals)

    def __repr__(self) -> str:
        return f"<Counted: {len(self)} marginals>"  # never what was counted


@dataclass(frozen=True, slots=True)
class Wanted:
    """Marginals of a table that are to be counted; see `Engine.prepared`."""

    table: Table
    marginals: tuple[Marginal, ...]
    merged: Merged
    measures: Measures
    keys: Keys
    units: Units
    total_apart: bool
    spreads: tuple[SpreadRows, ...]
    """Limits on the rows of a unit that agree in some columns."""

    @property
    def supports(self) -> tuple[Support, ...]:
        """The cells of attributes in which rows may add something to sums."""
        if not self.measures or not self.keys:
            return ()
        from dpsql.rel.support import supports_of  # which few statements have

        return supports_of(self.table, self.measures, self.keys, self.merged)

    @property
    def of_units(self) -> tuple[Marginal, ...]:
        """The blocks in which units are counted."""
        return tuple(m for m in self.marginals if not self.units.keys().isdisjoint(m))

    @property
    def of_rows(self) -> tuple[Marginal, ...]:
        """The blocks in which rows are counted.

        Raises:
            InternalError: a unit may have any number of them.
        """
        marginals = tuple(m for m in self.marginals if self.units.keys().isdisjoint(m))
        if marginals and not self.table.is_bounded:
            raise InternalError("nothing bounds the rows of units in this table")
        return marginals

    @property
    def measured(self) -> tuple[Marginal, ...]:
        """The blocks of sums."""
        return tuple(m for m in self.marginals if not self.measures.keys().isdisjoint(m))

    @property
    def sizes(self) -> dict[str, int]:
        """Attribute → into how many cells, or classes of them, it is counted."""
        return {name: cells_counted(self.table, name, self.merged) for name in self.table.columns}

    def check_measures(self) -> None:
        """Make sure that it is known what is added up.

        Raises:
            InternalError: it can't be told.
        """
        if any(sum(name in self.measures for name in marginal) > 1 for marginal in self.of_rows):
            raise InternalError("a marginal is of one measure")
        if not self.measures.keys().isdisjoint(self.table.columns):
            raise InternalError("a measure has the name of a column")

    def counted(
        self, marginals: Mapping[Marginal, Counts], above: Mapping[Marginal, Counts]
    ) -> Counted:
        """Return what was counted, with what is known of a row and of a unit."""
        return Counted(
            marginals,
            self.table.contributions,
            {
                **{name: value.bound for name, value in self.measures.items()},
                **{name: of.each for name, of in self.units.items() if of.each > 1},
            },
            {name: groups.most for name, groups in self.units.items()},
            self.spreads,
            above=above,
            supports=self.supports,
        )


class Counting(Protocol):
    """Statements that count some marginals of a table: the same are checked and run."""

    def check(self) -> None:
        """Make sure that `run` can count this, as far as no row is needed to know.

        Whether it fails depends on the schema and the catalog alone, and so does what it says.
        It opens a snapshot itself if none is open, as `run` does.

        Raises:
            InternalError: the database would refuse the counting statements. It is raised outside
                the handler of the database's error, whose text may quote parameters.
        """

    def run(self) -> Counted:
        """Count the rows of the table in every cell of every wanted marginal.

        A column has `table.cells` of them, in this order:

        1. one for each of `domain.values`;
        2. one for NULL, if the domain is nullable;
        3. one for rows that have no other cell, if `table.leaves_out(column)`: those that
           `Domain` leaves out of a release, which are counted all the same.

        Which value has which cell, `Domain` says. Texts are the same only if their bytes are,
        whatever the column's collation. How decimals in DOUBLE and FLOAT columns are rounded, the
        docstring and code of `_float_grid` in `codes.py` say.

        Cells of a column in `merged` are counted together where they have the same class there.
        Axes of an array are in the order of its marginal, which is that of `wanted`.

        All counts are of one snapshot and over the same rows, all that the table has: which
        columns are counted by decides in which cell a row is, and not whether it counts. Where
        `table.unit` is set, they are at most `table.contributions` rows of each unit, chosen by
        the rule in `duckdb/bounded.py`.

        Numbers of rows are integers of 64 bits at every step, and never floats, which have 53.
        Sums that more rows than 2^31 may have are two words of them, see `Counted`.

        It may fail with any exception whatever, and the text of that may quote values. The
        session, which knows what was charged, replaces it by an `ExecutionError`.
        """


class Engine(Protocol):
    """Counts rows. What it returns is private and goes to `dpsql/measurement/` only.

    An engine is made of a connection and a `Step`.
    """

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read inside see the same tables and rows.

        A session holds one from the last look at the catalog until the release is made; the
        charge is in between. A transaction that the caller has open is used and stays open; one
        of the engine's own is ended whatever happens. No changed setting is left behind. Snapshots
        may be nested. Nothing that is counted inside is printed or logged.

        Raises:
            SchemaError: the connection is closed or busy.
            ResourceLimitError: the database would print counts.
        """

    def counting(self, wanted: Wanted) -> Counting:
        """Say how marginals are counted; see `prepared`."""

    def key_scores(self, table: Table, key: RowExpression, weights: Sequence[int]) -> KeyScores:
        """Say how keys are scored: see `key_scores.py`; reads nothing.

        It is called before the charge, so it may still refuse.

        Args:
            table: whose rows they are of.
            key: a column, or what is computed of some, of one of `drafts.KEY_TYPES`.
            weights: what a unit with 1, 2, … keys adds to the score of each; as many count at most.

        Raises:
            UnsupportedSqlError: the engine can't.
        """

    def ranking(
        self, table: Table, values: RankedValues, merged: Merged, measures: Measures, keys: Keys
    ) -> Ranking:
        """Say how rows are put in order by a value: see `ranked.py`; reads nothing.

        It is called before the charge, so it may still refuse. Arguments are those of `prepared`.

        Raises:
            UnsupportedSqlError: the engine can't.
        """

    def prepared(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
        measures: Measures = MappingProxyType({}),
        keys: Keys = MappingProxyType({}),
        units: Units = MappingProxyType({}),
        *,
        total_apart: bool = False,
    ) -> Counting:
        """Say how the wanted marginals of a table are counted; reads nothing.

        A marginal that has a measure among its names is of sums of that in place of counts. The
        table has a domain for each of the keys, too. One that has an attribute of `units` is of
        units in place of rows: of all that the table has, one adds 1 at most to each cell, and to
        as many as its `most` says. With `total_apart` the total is of all rows that count, be they
        in a cell of other marginals or not; else it may be summed from these.

        It is called before the charge, so it may still refuse.

        Raises:
            SchemaError: the engine can't count such a table, one with a unit for example.
        """
        marginals, spreads = tuple(wanted), spreads_of(table, merged)
        return self.counting(
            Wanted(table, marginals, merged, measures, keys, units, total_apart, spreads)
        )

    def marginals(self, *table_and_wanted: Any, **given: Any) -> Counted:
        """Count what would be `prepared`, at once: tests compare it with other ways to count."""
        return self.prepared(*table_and_wanted, **given).run()


def columns_read(
    table: Table, names: Iterable[str], measures: Iterable[RowMeasure], keys: Keys
) -> list[str]:
    """List the columns of a table that attributes, keys and measures are made of."""
    columns = {m for measure in measures for m in measure.columns}
    for name in names:
        columns |= keys[name].columns if name in keys else {name}
    return [n for n in (*table.columns, *table.undeclared) if n in columns]


def cells_counted(table: Table, column: str, merged: Merged) -> int:
    """Return into how many cells a column is counted, or into how many classes of them."""
    if column in merged:
        return int(merged[column].max(initial=-1)) + 1
    return table.cells(column)
