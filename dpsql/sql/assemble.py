"""Assemble lowered statements to one workload over merged cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
import polars as pl
from sqlglot import exp

from dpsql.errors import ResourceLimitError, printable
from dpsql.hints import first_that_works, never, option
from dpsql.linalg.arrays import Ints
from dpsql.linalg.matrices import Dense, Intervals, of_entries
from dpsql.rel.distinct import DistinctValues, ReadValue
from dpsql.rel.ranked import RankedValues, ValueLine
from dpsql.rows.key import RowKey
from dpsql.schema import Table
from dpsql.schema.table import MovedValues, moved_values
from dpsql.sql.binding.core import Linear, Quantile, base_of, counts, measured_columns
from dpsql.sql.compiled import (
    AnswerTable,
    GroupingSet,
    Importance,
    Script,
    Statement,
    StatisticColumn,
    naming,
)
from dpsql.sql.computing.postprocess import (
    DirectOutput,
    Note,
    check_names,
    computes_on_groups,
    direct_outputs,
    moved_notes,
    notes,
    prepare,
)
from dpsql.sql.computing.worth import Worth, around_half
from dpsql.sql.lowering.alike import Classes
from dpsql.sql.lowering.drawn import DrawnQuantile, ends_of, probability_of, values_at
from dpsql.sql.lowering.lower import GroupsOf, LoweredCore, LoweredSet, LoweredStatistic
from dpsql.sql.lowering.matrices import AddedUp, LoweredBlock
from dpsql.sql.outline import Outlined
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.edits import swapped
from dpsql.sql.text.parse import Parsed
from dpsql.workload import Family, Identity, Measure, Workload
from dpsql.workload.unit_groups import GroupedCells, UnitGroups, grouped_cells, groups_of
from dpsql.workload.workload import Block

HALF = 0.5
"""The most that a row is from the middle, of what is 0 or 1."""
LEAST_COUNTED = 1e-2
"""The worth of the number of rows that a quantile is drawn of, beside what is shown."""
LEAST_WORTH = 1e-6
"""By which at least a weight is multiplied: what follows from others has to be answered as well."""
MAX_SCRIPT_ENTRIES = 2**24
"""Coefficients of all statements together that are written out: they take memory and time."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredStatement:
    """The queries of a statement about one table: its cores over that, as matrices."""

    name: str
    cores: tuple[LoweredCore, ...]
    importance: Importance
    """The importance of all statements."""
    worths: Mapping[str, Worth]
    """Table of answers of a core → what its statistics are worth."""

    def over(self, table: Table) -> LoweredStatement:
        """Return it over all cells into which the table is counted."""
        return replace(self, cores=tuple(with_outside(core, table) for core in self.cores))

    def weight(self, group: LoweredSet) -> float:
        """Return what each answer of one of its grouping sets is worth."""
        return self.importance.each(self.name, group.rows)

    @property
    def blocks(self) -> list[LoweredBlock]:
        """All of its matrices."""
        sets = [group for core in self.cores for group in core.sets]
        statistics = [s for group in sets for s in group.columns]
        return [b for s in statistics for b in (*s.blocks, *(s.present or ()))]

    @property
    def added_up(self) -> list[AddedUp]:
        """The measures that it adds up row by row."""
        sums = (s.added_up for core in self.cores for group in core.sets for s in group.columns)
        return [added for added in sums if added is not None]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The queries of statements about tables, without what is computed on the answers."""

    script: Script
    """The script, still without its statements, which may be over further tables."""
    parts: tuple[AskedPart, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AskedPart:
    """The queries of one statement about one table."""

    name: str
    """The name of the statement."""
    table: str
    """The name of the table."""
    cores: tuple[LoweredCore, ...]
    answers: tuple[AnswerTable, ...]
    """The answers of its cores."""
    guards: frozenset[str]
    """See `Statement.guards`."""
    moved: tuple[MovedValues, ...]
    """Values that it shows or adds up by cells that stand for more than their value."""


def assemble(
    table: Table,
    lowered: Sequence[LoweredStatement],
    split: Mapping[str, Ints] = MappingProxyType({}),
    keys: Mapping[str, RowKey] = MappingProxyType({}),
) -> Asked:
    """Add all statistics to one workload, over classes of cells.

    The classes are at least as fine as those that `split` gives of a column's cells.

    Raises:
        ResourceLimitError: the matrices are too large together.
    """
    lowered = [item.over(table) for item in lowered]
    blocks = [block for item in lowered for block in item.blocks]
    _check_entries(sum(len(b.rows.entries().cell) for b in blocks if b.rows.is_written))
    used = {name for block in blocks for name in block.attributes}
    sizes = {name: table.cells(name) for name in table.columns if name in used}
    added_up = [added for item in lowered for added in item.added_up]
    measures = {added.name: added.row for added in added_up}
    sizes |= dict.fromkeys(measures, 1)
    split = {name: of for name, of in split.items() if name in sizes}
    builder = _Builder(Classes.of_blocks(blocks, sizes, split), sizes, table)
    parts = tuple(map(builder.part, lowered))
    scale = scale_of(builder.workload.families, builder.weights)
    workload = _normalized(builder.workload, builder.weights, scale)
    if not workload.families:  # all that is returned is public
        workload = Workload.of({}, [_nothing(lowered[0].name)])
    labels = _labels((added.name, added.label) for added in added_up)
    labels |= {name: f"({key.label})" for name, key in keys.items()} | builder.labels
    merged, units, drawn = builder.classes.of, builder.units, builder.drawn
    instead = {added.name: added.instead for added in added_up if added.instead}
    script = Script(
        (table,), (), workload, merged, measures, keys, labels, scale, units, drawn, instead=instead
    )
    return Asked(script, parts)


def answered(
    asked: Asked, outlined: Sequence[tuple[str, Parsed, Outlined]], sandbox: Sandbox
) -> Script:
    """Return the script with its statements: how their answers follow from those of their cores.

    Cores may be over different tables: what is measured of each is put into a table of answers, and
    what a statement computes on these is computed as if all were of one.

    Raises:
        SqlError: two columns of an answer would have one name, or DuckDB refuses what is
            computed on the answers.
    """
    parts: dict[str, list[AskedPart]] = {name: [] for name, _, _ in outlined}
    for part in asked.parts:
        parts[part.name].append(part)
    several = len(outlined) > 1
    statements = (
        naming(name, several, _statement, name, parsed, outline, parts[name], sandbox)
        for name, parsed, outline in outlined
    )
    return replace(asked.script, statements=tuple(statements))


def _statement(
    name: str, parsed: Parsed, outline: Outlined, parts: Sequence[AskedPart], sandbox: Sandbox
) -> Statement:
    """Say how a statement's answer follows from what it asks of each table."""
    pairs = {
        core.core.table: (core, answer)
        for part in parts
        for core, answer in zip(part.cores, part.answers, strict=True)
    }
    cores = [pairs[core.table][0] for core in outline.cores]
    tables = tuple(pairs[core.table][1] for core in outline.cores)
    source, query = parsed.source, outline.query
    direct = direct_outputs(query, cores)
    post = None
    if direct is None:
        post = prepare(query, cores, sandbox, source)
    known = (
        *notes(query, cores, post),
        *_bounded_notes(tables, direct),
        *moved_notes(m for part in parts for m in part.moved),
    )
    statement = Statement(name, source.sql, tables, direct, post, _guards(parts), known)
    check_names(statement.outputs, source, _items(parsed, len(statement.outputs)))
    computed = statement.families or computes_on_groups(query)
    if cores and not statement.depends_on_rows and computed:
        raise source.unsupported(
            source.whole(),
            "Nothing that the statement returns depends on the rows: groups are there whether "
            "they have rows or not.",
            first_that_works(
                swapped(source, source.whole(), r"COUNT\(\*\)\s+OVER", "SUM(COUNT(*)) OVER"),
                never(
                    "all possible groups are in the answer, so that their number is known. Select "
                    "what is counted in them too, for example SUM(n) where n is COUNT(*) of each "
                    "group."
                ),
            ),
        )
    return statement


def _guards(parts: Sequence[AskedPart]) -> frozenset[str]:
    """Return the columns in which rows need a value; of several tables, with the table's name."""
    if len(parts) == 1:
        return parts[0].guards
    return frozenset(f"{part.table}.{name}" for part in parts for name in part.guards)


def _bounded_notes(
    tables: Sequence[AnswerTable], direct: Sequence[DirectOutput] | None
) -> Iterator[Note]:
    """Say which values are lower bounds."""
    found = {
        column.bounded: number
        for table in tables
        for group in table.sets
        for number, column in enumerate(group.columns)
        if column.bounded
    }
    for said, number in found.items():
        about = {i for i, of in enumerate(direct or ()) if of.statistic == number}
        yield Note(said, frozenset(about) if about else None, avoidable=True)


def _moved(cores: Iterable[LoweredCore], table: Table) -> tuple[MovedValues, ...]:
    """Return which values are moved of the columns whose cells are keys, added up or ordered.

    Conditions are no such use: those that cells don't tell are evaluated row by row.
    """
    shown = set[str]()
    for core in cores:
        weights = [w for s in core.core.statistics for w in base_of(s).weights]
        used = [part.attributes - part.by_row for part in (*core.core.keys, *weights)]
        shown |= frozenset[str]().union(*used)
    return tuple(m for n in table.columns if n in shown for m in moved_values(table, n))


def _labels(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what readers call measures; those with other bounds or steps have another number."""
    labels: dict[str, str] = {}
    for name, label in named:
        if name not in labels:
            same = sum(other.partition(" [")[0] == label for other in labels.values())
            labels[name] = f"{label} [{same + 1}]" if same else label
    return labels


def _check_entries(entries: int) -> None:
    if entries > MAX_SCRIPT_ENTRIES:
        raise ResourceLimitError(
            f"The conditions that join columns have more than {MAX_SCRIPT_ENTRIES:,} coefficients "
            "together.",
            hint="release fewer statements at a time, or compare columns with fewer values.",
        )


def scale_of(families: Sequence[Family], weights: Sequence[float]) -> float:
    """Return the factor by which the weights of counts add up to the number of their queries.

    The plan is the same for it, and its RMSE is then a weighted mean whatever the weights are: of
    rows or of units, beside which a sum counts in units of what one row can add. If all is added
    up, it is that of the sums.
    """
    pairs = list(zip(families, weights, strict=True))
    counted = [
        (family, weight)
        for family, weight in pairs
        if family.measure is None or family.measure.of_units
    ] or pairs
    total = math.fsum(weight * family.count for family, weight in counted)
    return sum(family.count for family, _ in counted) / total if total else 1.0


def _normalized(workload: Workload, weights: Sequence[float], scale: float) -> Workload:
    """Scale all weights alike.

    Sums over cells are planned together with counts, whose weights must not be too far apart.
    """
    pairs = list(zip(workload.families, weights, strict=True))
    if not any(weight * family.count for family, weight in pairs):
        return workload
    families = [
        replace(f, weight=min(max(w * scale, 1e-9), 1e9) if f.measure is None else w * scale)
        for f, w in pairs
    ]
    return Workload.of(workload.domain, families)


def _nothing(name: str) -> Family:
    """Return a family without queries: a plan has one, and nothing is measured for it."""
    return Family(name, (Block((), (), Dense(np.zeros((0, 1)))),), 1.0)


def _items(parsed: Parsed, width: int) -> list[exp.Expr]:
    """Return what the columns of a statement's answer are in its tree."""
    items = parsed.query.expressions if isinstance(parsed.query, exp.Select) else []
    return list(items) if len(items) == width else [parsed.query] * width


def _family_name(name: str, lowered: LoweredStatistic) -> str:
    """Name counts by their statement; what is measured in other units has a name of its own."""
    statistic = lowered.statistic
    base = base_of(statistic)
    if lowered.ranked is not None:
        return f"{name}: rows of {statistic.label}"
    return name if isinstance(base, Linear) and base.counts else f"{name}: {statistic.label}"


class _Builder:
    """Adds the families of statements to the workload of a script."""

    def __init__(self, classes: Classes, sizes: Mapping[str, int], table: Table) -> None:
        self.workload = Workload(classes.sizes)
        self.classes = classes
        self._table = table
        self._sizes = sizes
        self._entries = 0
        self.weights: list[float] = []
        """Weights of the families, as they are asked for."""
        self.units: dict[str, UnitGroups] = {}
        """Attributes where units are counted, and not rows → in which groups a unit is."""
        self._counted: list[tuple[str, str]] = []
        self.drawn: dict[str, DrawnQuantile] = {}
        """The quantiles that are drawn."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that readers see for the attributes of units."""
        labels = _labels(self._counted)
        return labels | {groups_of(name): "groups" for name in labels}

    def part(self, item: LoweredStatement) -> AskedPart:
        """Add what a statement asks of the table."""
        answers = tuple(
            AnswerTable(
                len(core.core.keys),
                tuple(self._grouping_set(group, item, core) for group in core.sets),
                core.core.floor.statistic if core.core.floor is not None else None,
            )
            for core in item.cores
        )
        named = frozenset().union(*(core.core.named for core in item.cores))
        moved = _moved(item.cores, self._table)
        guards = self._table.guards(named)
        return AskedPart(item.name, self._table.name, item.cores, answers, guards, moved)

    def _grouping_set(
        self, group: LoweredSet, item: LoweredStatement, core: LoweredCore
    ) -> GroupingSet:
        worth = item.worths.get(core.core.table, Worth())
        columns = tuple(
            replace(
                self._column(group, s, item, worth.of.get(number, 1.0)),
                over=measured_columns(s.statistic, core.core.conjuncts),
            )
            for number, s in enumerate(group.columns)
        )
        for above, below in worth.shares:
            self._share(columns[above], columns[below], item.weight(group) / HALF**2)
        return GroupsOf(group.axes, columns)

    def _column(
        self, group: LoweredSet, lowered: LoweredStatistic, item: LoweredStatement, worth: float
    ) -> StatisticColumn:
        """Add the family of one statistic to the workload.

        Weights are such that statistics count alike, whatever their units: the variance of a sum
        is divided by the square of what one row can add, and the points of a distribution count
        as one. What is shown in quotients only is worth less, see `computing.worth`.
        """
        if isinstance(lowered.statistic, Linear) and lowered.statistic.of_units:
            return self._units(group, lowered, item, max(lowered.statistic.part**2, LEAST_WORTH))
        quantile = lowered.statistic if isinstance(lowered.statistic, Quantile) else None
        drawn, line, small = "", None, None
        if lowered.ranked is not None and quantile is not None:
            drawn, line, small = self._drawn(group, lowered, quantile, lowered.ranked)
        blocks = self._merged(lowered.blocks)
        share = max(worth, LEAST_WORTH) * item.weight(group) / lowered.scale**2
        if quantile is not None and lowered.values is not None:
            share /= lowered.values.len()
        if drawn:  # that only says whether there are enough rows
            share *= LEAST_COUNTED
        name = _family_name(item.name, lowered)
        present = None
        if lowered.present is not None:
            counted = Workload(self.workload.domain)
            (present,) = _added(counted, self._merged(lowered.present), name).families
        _added(self.workload, blocks, name, present)
        self.weights.append(share)
        return StatisticColumn(
            len(self.workload.families) - 1,
            tuple(block.axes for block in blocks),
            lowered.center,
            quantile,
            lowered.values,
            counts(lowered.statistic),
            lowered.ends,
            drawn=drawn,
            line=line,
            small=small,
        )

    def _drawn(
        self,
        group: LoweredSet,
        lowered: LoweredStatistic,
        quantile: Quantile,
        ranked: tuple[ReadValue, ValueLine],
    ) -> tuple[str, pl.Series, pl.Series]:
        """Note what a quantile is drawn of; return its name, the ends of its line, and a value."""
        value, line = ranked
        condition = "" if lowered.added_up is None else lowered.added_up.name

        def over(blocks: Sequence[LoweredBlock], sizes: Mapping[str, int]) -> RankedValues:
            groups = unit_groups(blocks, group.shape, sizes, self._table, condition)
            return RankedValues(
                groups.blocks,
                groups.count,
                min(_groups_of_a_row(groups.blocks), groups.count),
                condition,
                value=value,
                line=line,
                probability=probability_of(quantile),
            )

        merged = [self.classes.merge(block, self._sizes) for block in lowered.blocks]
        values = over(merged, self.classes.sizes)
        # The same groups have one name, whatever cells the statements around count together.
        of = over(lowered.blocks, self._sizes)
        own, rows = (
            each.name({}, self._table.derived)
            for each in (of, replace(of, probability=Fraction(0)))
        )
        name = ".".join([own, *self._table.path, self._table.name])
        label, continuous = quantile.label, quantile.continuous
        drawn = DrawnQuantile(label, self._table, values, continuous, own, rows)
        self.drawn.setdefault(name, drawn)
        small = values_at(line, [min(max(0, line.low), line.high)], continuous=continuous)
        return name, ends_of(line, continuous=continuous), small

    def _share(self, part: StatisticColumn, whole: StatisticColumn, weight: float) -> None:
        """Let a share be planned as the average that it is: of A − N/2, to which a row adds ±1/2.

        Nothing else is asked of that. What is shown follows from A and N, as it would without.
        """
        families = self.workload.families
        counts, all_ = ((families[of.family], of.axes) for of in (part, whole))
        around = around_half(counts, all_, self.workload.domain)
        if around is not None:
            self.workload = Workload.of(self.workload.domain, [*families, around])
            self.weights.append(weight)

    def _units(
        self, group: LoweredSet, lowered: LoweredStatistic, item: LoweredStatement, worth: float
    ) -> StatisticColumn:
        """Add the family of units by groups, which are its cells.

        What a unit can add to a count of rows is k, and here it is 1, or as many values as it
        covers. Errors are divided by that, as those of several tables are, see `workload.workload`.
        """
        merged = [self.classes.merge(block, self._sizes) for block in lowered.blocks]
        condition = "" if lowered.added_up is None else lowered.added_up.name
        sizes = self.classes.sizes
        units = unit_groups(merged, group.shape, sizes, self._table, condition)
        if lowered.values_of is not None:
            units = distinct_values(units, lowered.values_of, self._table)
        name = units.name(self.classes.of, self._table.derived)
        if name not in self.units:
            self.units[name] = units
            self._counted.append((name, lowered.statistic.label))
            domain = {**self.workload.domain, groups_of(name): units.count, name: 1}
            self.workload = Workload.of(domain, self.workload.families)
        counts = Measure(units.each, rows=units.most, of_units=True)
        self.workload.add([groups_of(name), name], [Identity(), counts], name=item.name)
        share = worth * item.weight(group)
        self.weights.append(share * (self._table.contributions / units.each) ** 2)
        axes = (tuple(range(len(group.axes))), ())
        number = len(self.workload.families) - 1
        column = StatisticColumn(number, axes, 0.0, None, None, counts=True)
        if not isinstance(units, DistinctValues):
            return column
        said = _said_of_values(lowered.statistic.label, units, self._table)
        return replace(column, distinct=True, bounded=said)

    def _merged(self, blocks: Sequence[LoweredBlock]) -> list[LoweredBlock]:
        """Return blocks over classes of cells, in the order of their groups."""
        merged = [
            completed(self.classes.merge(block, self._sizes), self._table) for block in blocks
        ]
        written_out = [b.rows for b in merged if b.rows.is_written]
        self._entries += sum(rows.rows * rows.cells for rows in written_out)
        _check_entries(self._entries)
        return sorted(merged, key=lambda b: (not b.axes, min(b.axes, default=0)))


def _added(
    workload: Workload, blocks: Sequence[LoweredBlock], name: str, present: Family | None = None
) -> Workload:
    """Add the family of some blocks."""
    return workload.add(
        [block.attributes for block in blocks],
        [block.factor for block in blocks],
        name=name,
        hidden=[i for i, block in enumerate(blocks) if block.hidden],
        present=present,
    )


# ── The cell of rows that have no value of a column's domain ─────────────────────────────────────
#
# A SELECT counts the rows that have a value of the domain in every column that it names. Rows
# without one are not left out of what is measured, or two statements that name different columns
# would be about different rows, and nothing that was measured for one could be used for the other.
# They have a cell of their own, after those of the domain. No query of an answer counts it:
#
# - matrices over columns that are named have zeros there;
# - a column that is named, and on which a statistic doesn't depend otherwise, gets a row of ones
#   for its domain and a zero;
# - a column that is not named, and stands in a matrix only because that needs cells, has the same
#   coefficient there as in every other cell.
#
# Where groups are the cells of a column, or all its cells are counted together, the last cell is
# asked for as well, in a row that is not shown. That costs no accuracy: a record lies in that cell
# or in one that is shown, and noise has to hide one of them only. With it, what was measured of
# several columns can be added up to what fewer of them say.


def with_outside(core: LoweredCore, table: Table) -> LoweredCore:
    """Give every column of which rows may be left out its last cell."""
    if not any(table.leaves_out(name) for name in table.columns):
        return core
    counting = _OutsideCells(table, table.guards(core.core.named))
    return replace(core, sets=tuple(counting.set(group) for group in core.sets))


def completed(block: LoweredBlock, table: Table) -> LoweredBlock:
    """Ask for the last cell too, in a hidden row, where the rows are all other cells in order."""
    if block.bound is not None:
        return block
    runs, cells = block.runs, block.rows.cells
    alone = len(block.attributes) == 1 and table.leaves_out(block.attributes[0])
    if not (alone and block.axes and runs is not None and block.rows.rows == cells - 1):
        return block
    at = np.arange(cells - 1)
    if not (np.array_equal(runs[0], at) and np.array_equal(runs[1], at + 1)):
        return block
    return replace(block, rows=Intervals.of_cells(cells), hidden=True)


class _OutsideCells:
    """The last cells of the columns of one SELECT, for rows outside of their domains."""

    def __init__(self, table: Table, guards: frozenset[str]) -> None:
        self._table, self._guards = table, guards
        self._done: dict[int, LoweredBlock] = {}

    def set(self, group: LoweredSet) -> LoweredSet:
        return replace(group, columns=tuple(map(self._statistic, group.columns)))

    def _statistic(self, lowered: LoweredStatistic) -> LoweredStatistic:
        statistic = lowered.statistic
        counts = lowered.ranked is not None or (isinstance(statistic, Linear) and statistic.counts)
        present = None if lowered.present is None else self._blocks(lowered.present, counts)
        return replace(lowered, blocks=self._blocks(lowered.blocks, counts), present=present)

    def _blocks(self, blocks: Sequence[LoweredBlock], counts: bool) -> tuple[LoweredBlock, ...]:
        touched = {name for block in blocks for name in block.attributes}
        inside = [self._inside(name, counts) for name in sorted(self._guards - touched)]
        return (*map(self._block, blocks), *inside)

    def _inside(self, name: str, counts: bool) -> LoweredBlock:
        """Count all cells of the domain; and, for counts, what is left."""
        cells = self._table.cells(name)
        low, high = np.array([0, cells - 1]), np.array([cells - 1, cells])
        rows = Intervals(cells, low[: 1 + counts], high[: 1 + counts])
        return LoweredBlock((name,), rows, (), hidden=counts)

    def _block(self, block: LoweredBlock) -> LoweredBlock:
        if id(block) not in self._done:  # statistics share blocks
            self._done[id(block)] = self._extended(block)
        return self._done[id(block)]

    def _extended(self, block: LoweredBlock) -> LoweredBlock:
        names, runs = block.attributes, block.runs
        if block.bound is not None or not any(map(self._table.leaves_out, names)):
            return block
        named = all(name in self._guards for name in names if self._table.leaves_out(name))
        if runs is not None and len(names) == 1 and named and (runs[1] <= block.rows.cells).all():
            return block.with_rows(Intervals(self._table.cells(names[0]), *runs))
        entries = block.entries()
        cells = list(np.unravel_index(entries.cell, list(self._sizes(names))))
        row, weight = entries.row, entries.weight
        for axis, name in enumerate(names):
            if self._table.leaves_out(name) and name not in self._guards:
                again = cells[axis] == 0
                cells = [np.concatenate([at, at[again]]) for at in cells]
                cells[axis][len(row) :] = self._table.columns[name].size
                row, weight = (np.concatenate([of, of[again]]) for of in (row, weight))
        shape = [self._table.cells(name) for name in names]
        cell = np.ravel_multi_index(cells, shape)
        count = int(np.prod(shape, dtype=object))
        return block.with_rows(of_entries(entries.rows, count, row, cell, weight))

    def _sizes(self, names: Iterable[str]) -> Iterable[int]:
        return (self._table.columns[name].size for name in names)


# ── Units by groups, as the queries of COUNT(*) by the same groups tell them ─────────────────────
#
# A group counts the rows of the cells that have a coefficient in its query; whatever that is, a
# unit with a row in one of them is in the group. So the places of coefficients say it all: those of
# a public join that has a row several times, too.


def unit_groups(
    blocks: Sequence[LoweredBlock],
    groups: Sequence[int],
    sizes: Mapping[str, int],
    table: Table,
    condition: str,
) -> UnitGroups:
    """Return in which groups units are counted.

    Args:
        blocks: queries that count rows by groups, over classes of cells; without what is added up.
        groups: the number of groups along each axis.
        sizes: the number of classes of each column.
        table: the table whose units they are.
        condition: the measure that is 1 in rows that count; empty if all do that have cells.

    Raises:
        ResourceLimitError: there are too many coefficients.
    """
    count = int(np.prod(groups, dtype=object))
    grouped = tuple(_grouped(block, groups, sizes) for block in blocks if block.bound is None)
    unit = table.unit
    most = 1 if unit is None else unit.max_groups or count
    if unit is not None and unit.max_groups is None and unit.max_rows is not None:
        most = unit.max_rows * _groups_of_a_row(grouped)
    return UnitGroups(grouped, count, min(most, count), condition)


def distinct_values(groups: UnitGroups, value: ReadValue, table: Table) -> DistinctValues:
    """Return which values are counted, and how many of them one unit covers.

    By `max_values` in each group, and then in as many groups as a unit counts in. Without that, as
    many as it has rows that count: that is for all groups together, so that no more noise is needed
    for several of them than for one.
    """
    unit, count, times = table.unit, groups.count, _groups_of_a_row(groups.blocks)
    made = partial(DistinctValues, groups.blocks, count, condition=groups.condition, value=value)
    if unit is None:
        return made(most=min(times, count), per_group=1, of_rows=True)
    if unit.max_values is not None:
        return made(most=groups.most, per_group=unit.max_values)
    rows = unit.max_rows or 1
    if count == 1:
        return made(most=1, per_group=rows)
    return made(most=1, per_group=rows * times, kept_of_all=True)


def _said_of_values(label: str, values: DistinctValues, table: Table) -> str:
    """Say of a number of values why it is a lower bound, or what protects those who have them."""
    unit, value = table.unit, values.value.value
    if unit is None:
        if value.operation != "column" or value.text not in table.undeclared:
            return ""
        return (
            f"{label} is of rows that are each protected alone: without unit=, each row is hidden, "
            "and not each person who has several. If the values are those of persons, pass "
            f"{option('unit', value.text)}"
        )
    most = f"{values.per_group:,} value{'s' * (values.per_group != 1)}"
    if values.kept_of_all:
        where = " in all groups together"
    else:
        where = " in each group" * (values.count > 1)
        if values.most < values.count:
            where += f", and in at most {values.most:,} group{'s' * (values.most != 1)}"
    return f"{label} is a lower bound: one {printable(unit.name)} counts for at most {most}{where}"


def _groups_of_a_row(blocks: Sequence[GroupedCells]) -> int:
    """Return in how many groups a row is at most: in several if public rows make it many."""
    times = (int(np.unique_counts(block.cells).counts.max(initial=1)) for block in blocks)
    return math.prod(times)


def _grouped(block: LoweredBlock, groups: Sequence[int], sizes: Mapping[str, int]) -> GroupedCells:
    entries = block.entries()
    shown = entries.row < entries.rows - block.hidden
    row, cell = entries.row[shown], entries.cell[shown]
    shape = tuple(sizes[name] for name in block.attributes)
    return grouped_cells(block.attributes, shape, (row, cell), block.axes, groups)
