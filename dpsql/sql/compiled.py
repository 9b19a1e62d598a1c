"""The result of compiling a script: a workload, and how each statement's answer follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import polars as pl

from dpsql.calls import MARGINAL
from dpsql.errors import InternalError, SqlError, printable, shown
from dpsql.hints import Hint, option
from dpsql.linalg.arrays import Ints
from dpsql.rel.related import ReadTable
from dpsql.rows.key import RowKey
from dpsql.rows.measure import RowMeasure
from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.binding.core import Quantile
from dpsql.sql.computing.postprocess import DirectOutput, Note, Postprocessing
from dpsql.sql.computing.propagate import Output
from dpsql.sql.lowering.drawn import DrawnQuantile, DrawnValues, Place
from dpsql.sql.lowering.lower import GroupsOf
from dpsql.workload import Workload
from dpsql.workload.spread import SpreadRows, spreads_of
from dpsql.workload.unit_groups import UnitGroups
from dpsql.workload.workload import Family, UnitTable

if TYPE_CHECKING:
    from dpsql.rel.support import Support

P = ParamSpec("P")
T = TypeVar("T")


def naming(name: str, several: bool, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take one step with one of several statements; an error says with which."""
    try:
        return step(*args, **kwargs)
    except SqlError as error:
        error.statement = printable(name) if several else None
        raise


# ── Weights ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Importance:
    """The weight of each answer of each statement: its variance is multiplied by that.

    Usually all answers count alike, so that a table of many groups has most of the error, and gets
    most of the budget. If each table counts alike, the weight of a statement is divided among the
    groups of each of its grouping sets, and the mean variance of a table counts.
    """

    weights: Mapping[str, float]
    """Statement → what is written, or given for it; 1 is usual."""
    by_table: bool = False
    wherever: bool = False
    """Whether averages are to be exact wherever they lie, and not on average of that."""

    @classmethod
    def of(
        cls, written: Mapping[str, float], given: Mapping[str, float] | str | None
    ) -> Importance:
        """Put what is given before what the statements say.

        Args:
            written: statement → the weight in its text.
            given: statement → weight; or `MARGINAL`, which leaves what is written.

        Raises:
            SqlError: a weight is given for an unknown statement, or is not a positive number.
        """
        if isinstance(given, str) and given == MARGINAL:
            return cls(dict(written), by_table=True)
        names = {folded(name): name for name in written}
        if given is not None and not isinstance(given, Mapping):
            of = shown(given) if isinstance(given, str) else f"a {type(given).__name__}"
            raise SqlError(
                f"Weights map statements to numbers, they can't be {of}.",
                hint="for example "
                + option("weights", {next(iter(written)): 5})
                + ", or "
                + Hint(f'weights="{MARGINAL}"', f"--weight {MARGINAL}")
                + ", with which each table of answers counts alike.",
            )
        weights = dict(written)
        for name, weight in (given or {}).items():
            good = isinstance(weight, (int, float)) and not isinstance(weight, bool)
            if not isinstance(name, str) or folded(name) not in names:
                raise SqlError(
                    f"There is no statement {printable(str(name))!r} to give a weight to.",
                    hint=f"the statements are {', '.join(list(names.values())[:10])}.",
                )
            if not good or not 1e-6 <= weight <= 1e6:
                raise SqlError(
                    f"The weight {weight!r} of {printable(name)} is not a positive number.",
                    hint="use numbers from 1e-6 to 1e6; 1 is usual.",
                )
            weights[names[folded(name)]] = float(weight)
        return cls(weights)

    def each(self, statement: str, groups: int) -> float:
        """Return the weight of one answer of a table with so many groups."""
        weight = self.weights[statement]
        return weight / max(1, groups) if self.by_table else weight


@dataclass(frozen=True, slots=True, eq=False)
class StatisticColumn:
    """A statistic of every group: which family of the workload answers it, and how."""

    family: int
    axes: tuple[tuple[int, ...], ...]
    """For each block of the family, the axes of the groups along which its rows run."""
    center: float
    """The number that was taken off the weight of each row."""
    quantile: Quantile | None
    """If it is a quantile: its values run along one more axis, the last."""
    values: pl.Series | None
    """The values of a quantile's expression, in order."""
    counts: bool = False
    """Whether it is a number of rows, or of units."""
    ends: tuple[pl.Series, pl.Series] | None = None
    """The ends between which the stored values lie that count as each value of a quantile, where
    these are several."""
    over: frozenset[str] = frozenset()
    """The columns that it adds up or orders, and on which nothing else of it depends."""
    distinct: bool = False
    """Whether it is a number of distinct values."""
    bounded: str = ""
    """If it is a lower bound of what is asked for, words that say so."""
    drawn: str = ""
    """If it is a quantile that is drawn: the name of that, in `Script.drawn`. Its family counts the
    rows that it is of."""
    line: pl.Series | None = None
    """The least and the largest value that can be drawn."""
    found: DrawnValues | None = None
    """The values that were drawn."""
    small: pl.Series | None = None
    """A value near the middle of the line, which can be drawn."""

    @property
    def example(self) -> pl.Series | None:
        """Some values that a quantile may have."""
        return self.small if self.values is None else self.values

    @property
    def range(self) -> pl.Series | None:
        """All that a quantile may be, in order: all of its values, or the least and the largest."""
        return self.line if self.values is None else self.values


GroupingSet = GroupsOf[StatisticColumn]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """The answers of one core: its grouping sets, one below the other."""

    keys: int
    """The number of its keys."""
    sets: tuple[GroupingSet, ...]
    floor: int | None = None
    """The number of the count by whose standard error groups are left out, if any are."""
    table: str = ""
    """The one of several tables that it is about: its noise has nothing in common with that of the
    others, but what comparing totals gives it."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement, and how its answer follows from the workload's answers."""

    name: str
    sql: str
    tables: tuple[AnswerTable, ...]
    direct: tuple[DirectOutput, ...] | None
    """Its columns, if they are keys and statistics as they are."""
    post: Postprocessing | None
    """The computation on the answers, otherwise."""
    guards: frozenset[str] = frozenset()
    """The columns that it names in which rows may have no value of the domain: these rows don't
    count in the SELECT that names them."""
    notes: tuple[Note, ...] = ()
    """Notes on its values besides their errors."""

    @property
    def outputs(self) -> Sequence[DirectOutput | Output]:
        """The columns of its answer."""
        return self.post.outputs if self.post is not None else self.direct or ()

    @property
    def depends_on_rows(self) -> bool:
        """Whether noisy values are returned, or choose or sort rows; if not, all is public."""
        found = self.post.outputs if self.post is not None else ()
        return any(o.noisy for o in self.outputs) or any(o.chosen or o.ordered for o in found)

    @property
    def sets(self) -> list[GroupingSet]:
        """The grouping sets of all its tables."""
        return [group for table in self.tables for group in table.sets]

    @property
    def rows(self) -> int:
        """The number of groups in all of its grouping sets."""
        return sum(group.rows for group in self.sets)

    @property
    def families(self) -> list[int]:
        """The numbers of the families that answer it, in ascending order."""
        return sorted({column.family for group in self.sets for column in group.columns})


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """Statements over one table, or several, and the workload that answers them together."""

    tables: tuple[Table, ...]
    """The tables whose rows are counted: one, or several with rows of the same units."""
    statements: tuple[Statement, ...]
    workload: Workload
    merged: Mapping[str, Ints]
    """For columns of which the workload has fewer cells than the table: the class of each."""
    measures: Mapping[str, RowMeasure] = field(default_factory=dict)
    """Sums that are made row by row: measure, an attribute of the workload → what each row adds."""
    keys: Mapping[str, RowKey] = field(default_factory=dict)
    """Attributes that are no columns of the table → how they are computed of each row."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Measure, or key → what a reader calls it."""
    scale: float = 1.0
    """By what all weights were multiplied, see `assemble`."""
    units: Mapping[str, UnitGroups] = field(default_factory=dict)
    """Attributes of one cell where units are counted, and not rows → in which groups a unit is."""
    drawn: Mapping[str, DrawnQuantile] = field(default_factory=dict)
    """Quantiles that are drawn: name → of what."""
    apart: tuple[tuple[UnitTable, Script], ...] = ()
    """The scripts of several tables, each with what is asked of it, as if no others were."""
    read: tuple[ReadTable, ...] = ()
    """The stored tables that relations read."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Measures to which rows without a value add 0 → those to which they add nothing."""

    @property
    def table(self) -> Table:
        """The table whose rows are counted, where it is one.

        Raises:
            InternalError: they are several.
        """
        if len(self.tables) != 1:
            raise InternalError("several tables are asked, and passed for one")
        return self.tables[0]

    @property
    def each(self) -> tuple[Script, ...]:
        """The scripts over single tables: itself, or those of which it is put together."""
        return tuple(script for _, script in self.apart) or (self,)

    @property
    def drawn_at(self) -> Mapping[Place, str]:
        """The places of drawn quantiles → their names in `drawn`."""
        return {
            (statement.name, t, s, c): column.drawn
            for statement in self.statements
            for t, table in enumerate(statement.tables)
            for s, group in enumerate(table.sets)
            for c, column in enumerate(group.columns)
            if column.drawn
        }

    def with_drawn(self, found: Mapping[Place, DrawnValues]) -> Script:
        """Return the script with values that were drawn, at their places.

        The same statements have the same places, over whatever cells they are compiled.
        """
        if not found:
            return self

        def group(at: tuple[str, int, int], of: GroupingSet) -> GroupingSet:
            each = enumerate(of.columns)
            return replace(
                of, columns=tuple(replace(c, found=found.get((*at, i))) for i, c in each)
            )

        def table(at: tuple[str, int], of: AnswerTable) -> AnswerTable:
            return replace(of, sets=tuple(group((*at, i), s) for i, s in enumerate(of.sets)))

        statements = (
            replace(s, tables=tuple(table((s.name, i), t) for i, t in enumerate(s.tables)))
            for s in self.statements
        )
        return replace(self, statements=tuple(statements))

    @property
    def contributions(self) -> int:
        """The most records of one privacy unit that count; with several tables, it is one."""
        return 1 if self.apart else self.table.contributions

    @property
    def spreads(self) -> tuple[SpreadRows, ...]:
        """The limits on the share of a unit's counted rows that may agree in some attributes."""
        if not self.apart:
            return spreads_of(self.table, self.merged)
        return tuple(s.renamed(of.attribute) for of, own in self.apart for s in own.spreads)

    @property
    def supports(self) -> tuple[Support, ...]:
        """The cells of attributes in which rows may add something to sums."""
        if not self.apart:
            if not self.measures or not self.keys:
                return ()
            from dpsql.rel.support import supports_of  # which few statements have

            return supports_of(self.table, self.measures, self.keys, self.merged)
        return tuple(s.renamed(of.attribute) for of, own in self.apart for s in own.supports)

    def known_otherwise(self, known: Collection[str]) -> frozenset[str]:
        """Return those of some measures in place of which the script has others, that aren't."""
        pairs = self.instead.items()
        return frozenset(plain for full, plain in pairs if plain in known and full not in known)

    def owner(self, attribute: str) -> tuple[Script, str]:
        """Return the script over the one table that has an attribute, and its name there."""
        for table, script in self.apart:
            own = table.own(attribute)
            if own is not None:
                return script, own
        return self, attribute

    def adds_up(self, number: int) -> bool:
        """Whether a family adds values up row by row, and doesn't count rows."""
        measure = self.workload.families[number].measure
        counts = {table.name for table, _ in self.apart}
        return measure is not None and measure.attributes[0] not in counts

    def counts_units(self, number: int) -> bool:
        """Whether a family counts units, of which one may be in several groups."""
        measure = self.workload.families[number].measure
        return measure is not None and measure.of_units

    def told_by(self, family: Family) -> frozenset[str]:
        """Return the attributes of rows by which a family counts: those of the groups of units."""
        units = (self.units[name] for name in family.attributes if name in self.units)
        blocks = (block.attributes for groups in units for block in groups.blocks)
        return family.attributes.union(*blocks)

    @property
    def is_centered(self) -> bool:
        """Whether some values are added up around a middle that is put back with counts."""
        return any(family.center for family in self.workload.families)

    def sums(self, statement: Statement) -> tuple[str, ...]:
        """Say of what a statement adds up row by row how it is bounded and rounded."""
        families = (self.workload.families[number] for number in statement.families)
        names = [family.measure.attributes[0] for family in families if family.measure is not None]
        return tuple(
            f"{self.labels[name]} is of {self.measures[name].described}"
            for name in dict.fromkeys(names)
            if name in self.measures and self.measures[name].bound > 1
        )
