"""Core → matrices: the groups of each grouping set, and the factors of each statistic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Generic, TypeVar

import numpy as np
import polars as pl
from sqlglot import exp

from dpsql.errors import ResourceLimitError, SqlError, UnsupportedSqlError
from dpsql.hints import Hint, first_that_works, instead, never, remedies_of
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Intervals, Runs, StructuredMatrix, compact
from dpsql.rel.distinct import ReadValue
from dpsql.rel.ranked import ValueLine
from dpsql.schema import Table
from dpsql.schema.domain import Merging
from dpsql.schema.names import capitals
from dpsql.sql.binding.core import (
    Core,
    Linear,
    Quantile,
    Statistic,
    Windowed,
    counts_units,
    present,
)
from dpsql.sql.binding.expressions import BoundExpr, column, render
from dpsql.sql.lowering.drawn import counted_of, ends_of, ranked_of
from dpsql.sql.lowering.evaluate import MAX_JOINT_CELLS, Evaluator, StoredAxis, WeighedEntries
from dpsql.sql.lowering.matrices import (
    AddedUp,
    CoupledColumns,
    LoweredBlock,
    check_entries,
    components,
)
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.text.edits import swapped

S = TypeVar("S")


_COUNT = Linear("COUNT(*)")
MOST_TOLD_APART = 2_500
"""Values up to which a quantile is read off running totals; it is drawn among more of them."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredStatistic:
    """The blocks whose Kronecker product answers a statistic for every group."""

    statistic: Statistic
    blocks: tuple[LoweredBlock, ...]
    scale: float = 1.0
    """The largest absolute value that one row can add."""
    center: float = 0.0
    """The number that was taken off the weight of each row."""
    values: pl.Series | None = None
    """For a quantile: the values in their order, along one more axis after those of the groups."""
    value_type: str | None = None
    """For a quantile: the DuckDB type of its result."""
    ends: tuple[pl.Series, pl.Series] | None = None
    """For a quantile: between what the stored values lie that count as each of its values."""
    added_up: AddedUp | None = None
    """The sum that is made row by row; its block is the last."""
    values_of: ReadValue | None = None
    """The expression whose distinct values are counted, if they are."""
    ranked: tuple[ReadValue, ValueLine] | None = None
    """For a quantile that is drawn: of what, and on which line its values lie. Its blocks count the
    rows that have one."""
    present: tuple[LoweredBlock, ...] | None = None
    """The blocks that count rows whose center is put back, where that isn't so of all. Those along
    axes are the statistic's."""

    @property
    def is_quantile(self) -> bool:
        """Whether it is a quantile, read off or drawn."""
        return self.values is not None or self.ranked is not None

    @property
    def range(self) -> pl.Series | None:
        """All that a quantile may be, in order: all of its values, or the least and the largest."""
        if self.ranked is None or not isinstance(self.statistic, Quantile):
            return self.values
        _, line = self.ranked
        return ends_of(line, continuous=self.statistic.continuous)


@dataclass(frozen=True, slots=True, eq=False)
class GroupAxis:
    """Groups that differ in some keys only."""

    keys: pl.DataFrame
    """A column for each of the keys; one row per group."""
    numbers: tuple[int, ...]
    """The numbers of these keys."""

    @property
    def rows(self) -> int:
        """The number of groups."""
        return self.keys.height


@dataclass(frozen=True, slots=True, eq=False)
class GroupsOf(Generic[S]):
    """One grouping set: its groups are the product of the axes, in C order."""

    axes: tuple[GroupAxis, ...]
    columns: tuple[S, ...]
    """Its statistics."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups along each axis."""
        return tuple(axis.rows for axis in self.axes)

    @property
    def rows(self) -> int:
        """The number of groups."""
        return math.prod(self.shape)


LoweredSet = GroupsOf[LoweredStatistic]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredCore:
    """A core's grouping sets, one below the other."""

    core: Core
    sets: tuple[LoweredSet, ...]
    types: dict[int, str]
    """Key → its DuckDB type."""
    whole_units: bool = False
    """Whether a unit is counted in each group that it is in, and left out of none."""
    whole: tuple[bool, ...] = ()
    """For each statistic whether it is an integer in SQL, where that matters."""


def lower(core: Core, table: Table, evaluator: Evaluator, reader: RowReader) -> LoweredCore:
    """Turn a core into matrices over the public domain.

    Raises:
        SqlError: no group is possible, or DuckDB can't compute an expression.
        ResourceLimitError: a joint domain or a matrix is too large.
    """
    evaluator.check_unmatched(core)
    for computed in core.derived:
        evaluator.check_determined(computed, core.relations)
    types: dict[int, str] = {}
    sets = []
    for keys in core.sets:
        found = _Set(core, keys, table, evaluator, reader)
        told = [core.keys[k] for k in keys if core.keys[k].nodes]
        if not found.possible and told:  # it is added to others, and has no groups itself
            never = replace(told[0], node=exp.false(), sql="false")
            none = replace(core, conjuncts=(*core.conjuncts, never))
            found = _Set(none, keys, table, evaluator, reader)
        sets.append(found.lowered(types))
    unit = table.unit
    most = None if unit is None else unit.max_groups or unit.max_rows
    whole_units = most is None or all(group.rows <= most for group in sets)
    return LoweredCore(core, tuple(sets), types, whole_units)


class _Set:
    """Lowers one grouping set."""

    def __init__(
        self,
        core: Core,
        keys: tuple[int, ...],
        table: Table,
        evaluator: Evaluator,
        reader: RowReader,
    ) -> None:
        self._core = core
        self._keys = keys
        self._table = table
        self._evaluator = evaluator
        self._reader = reader
        self._source = evaluator.source
        self._base = components(core, keys, table)
        self._axes: list[StoredAxis] = []
        self._lowered: dict[Linear, LoweredStatistic] = {}
        self._blocks: dict[frozenset[str | int], LoweredBlock] = {}
        self.possible = True
        """Whether a row can meet the conditions on what tells no groups."""
        for component in self._base:
            self._add(component)

    def lowered(self, types: dict[int, str]) -> LoweredSet:
        for axis in self._axes:
            types.update(self._evaluator.types(axis))
        statistics = tuple(self._statistic(s) for s in self._core.statistics)
        axes = tuple(GroupAxis(self._evaluator.frame(axis), axis.keys) for axis in self._axes)
        if not (self.possible and all(axis.rows for axis in axes)):
            self._check_none(statistics)
        return GroupsOf(axes, statistics)

    def _check_none(self, statistics: Sequence[LoweredStatistic]) -> None:
        """Refuse a statement without groups, if something in it is measured apart from counts."""
        apart = (s.ranked or s.values_of or counts_units(s.statistic) for s in statistics)
        if self._core.summed or not any(apart):
            return
        raise self._source.error(
            self._core.where,
            "No possible row meets the conditions, so there is no group to return.",
            "are the conditions contradictory, beyond the columns' domains, or do they "
            "compare with NULL? That is written IS NULL.",
        )

    def _add(self, component: CoupledColumns) -> None:
        """Evaluate the groups of one component."""
        entries: StructuredMatrix
        if not component.keys:
            entries = self._evaluator.total(component)
            if self._keys and not entries.squares().any():
                self.possible = False
            self._note(component, entries, ())
            return
        plain = self._plain(component)
        if plain is not None:
            axis = self._evaluator.plain(component.keys[0], plain)
            entries = Intervals.of_cells(axis.rows)
        else:
            axis, entries = self._evaluator.groups(self._core, component)
        self._axes.append(axis)
        self._note(component, entries, (len(self._axes) - 1,))

    def _note(
        self, component: CoupledColumns, entries: StructuredMatrix, axes: tuple[int, ...]
    ) -> None:
        self._blocks[component.nodes] = LoweredBlock(component.attributes, entries, axes)

    def _plain(self, component: CoupledColumns) -> str | None:
        """Return the column of a component that is grouped by it and nothing else."""
        if component.conjuncts or component.relations or len(component.keys) != 1:
            return None
        if len(component.attributes) != 1:
            return None
        (name,), key = component.attributes, self._core.keys[component.keys[0]]
        place = render(column(f"__a{list(self._table.columns).index(name)}"))
        return name if key.sql == place else None

    # ── statistics ─────────────────────────────────────────────────────────────────────────

    def _statistic(self, statistic: Statistic) -> LoweredStatistic:
        if isinstance(statistic, Linear):
            return self._linear(statistic)
        if isinstance(statistic, Quantile):
            return self._quantile(statistic)
        of = self._linear(statistic.of)

        def windows(blocks: Sequence[LoweredBlock]) -> tuple[LoweredBlock, ...]:
            return over_window(blocks, statistic, self._axes, self._core, self._evaluator)

        present = None if of.present is None else windows(of.present)
        blocks = windows(of.blocks)
        return LoweredStatistic(statistic, blocks, of.scale, added_up=of.added_up, present=present)

    def _linear(self, linear: Linear) -> LoweredStatistic:
        if linear not in self._lowered:
            found = self._new(linear)
            if linear.values is not None:
                found = replace(found, values_of=self._reader.read_value(linear.values))
            self._lowered[linear] = found
        return self._lowered[linear]

    def _new(self, linear: Linear) -> LoweredStatistic:
        """Lower over cells, unless something in it has none, or too many: see `summands`.

        If both are refused, the one is told of which the hint can be typed.
        """
        centers = self._centers(linear)
        parts = (*self._core.by_row, *linear.filters, *linear.weights)
        rows = frozenset[str]().union(*(part.by_row for part in parts))
        if not rows:
            return self._over_cells(linear, centers)
        if linear.factor is not None:
            return self._by_row(linear, centers)
        try:
            return self._by_row(linear, centers)
        except UnsupportedSqlError as error:
            if not rows <= self._table.columns.keys():
                raise
            of_rows = error
        try:
            return self._over_cells(linear, centers)
        except (SqlError, ResourceLimitError) as error:
            if remedies_of(of_rows.hint) and not remedies_of(error.hint):
                raise of_rows from None
            raise

    def _by_row(self, linear: Linear, centers: Sequence[float]) -> LoweredStatistic:
        filters = tuple(f for f in linear.filters if not f.by_row)
        by_row = [c for c in (*self._core.by_row, *linear.filters) if c.by_row]
        conditions = [c for c in by_row if not self._reader.always_holds(c)]
        if not conditions and not any(weight.by_row for weight in linear.weights):
            return self._over_cells(replace(linear, filters=filters), centers)
        cells = self._over_cells(replace(_COUNT, weight=linear.factor, filters=filters))
        counted, plain = cells.blocks, linear.factor is None and not conditions
        present = self._present(linear, counted) if plain else None
        holds = self._readable(conditions)
        added = self._reader.added_up(linear, holds, centers, counted=present is not None)
        center = 0.0 if added.restored else added.center
        return LoweredStatistic(
            linear,
            (*counted, added.block),
            added.scale * cells.scale,
            center,
            added_up=added,
            present=present,
        )

    def _present(
        self, linear: Linear, counted: Sequence[LoweredBlock]
    ) -> tuple[LoweredBlock, ...] | None:
        """Count the rows that have a weight, as an average does, for the same groups.

        None if that isn't known of cells, or if what tells it is coupled with groups, so that the
        blocks of counts and of sums differ in more than what they leave out.
        """
        if linear.present is None:
            return None
        found = self._linear(replace(_COUNT, filters=linear.present)).blocks
        ours, theirs = ([b.content for b in blocks if b.axes] for blocks in (counted, found))
        return found if ours == theirs else None

    def _readable(self, conditions: Sequence[BoundExpr]) -> Sequence[BoundExpr]:
        """Return conditions; what can't be evaluated in one of them is shown there."""
        for condition in conditions:
            self._reader.type_of(condition)
        return conditions

    def _centers(self, linear: Linear) -> tuple[float, ...]:
        """Return what is taken off each of two weights that are multiplied.

        That is what is taken off them where they are added up by themselves, over the rows in which
        the other one is present too: together these sums give a covariance, see `moments`.
        """
        if linear.weight is None or linear.times is None:
            return ()
        return tuple(self._center(linear, weight) for weight in (linear.weight, linear.times))

    def _center(self, linear: Linear, weight: BoundExpr) -> float:
        if weight.by_row:  # it follows from the bounds, whatever the conditions are
            with suppress(UnsupportedSqlError):
                return self._reader.center(weight, linear.within)
        others = tuple(present(other) for other in linear.weights if other != weight)
        filters = (*linear.filters, *others)
        alone = Linear(linear.label, weight, center=True, filters=filters, within=linear.within)
        return self._linear(alone).center

    def _over_cells(self, linear: Linear, centers: Sequence[float] = ()) -> LoweredStatistic:
        blocks, scale, center = [], 1.0, 0.0
        for component in self._components(linear.filters, linear.weights):
            block, weighed = self._counted(component, linear, centers)
            blocks.append(block)
            if component.weighted and weighed is not None:
                scale, center = weighed.scale, weighed.center
        return LoweredStatistic(linear, _without_totals(blocks), scale, center)

    def _counted(
        self, component: CoupledColumns, of: Linear, centers: Sequence[float] = ()
    ) -> tuple[LoweredBlock, WeighedEntries | None]:
        """Return the block of a component: that of the groups, if nothing in it is the statistic's.

        Else what it adds up comes with it.
        """
        same = self._blocks.get(component.nodes)
        is_met = component.weighted or any(f in component.conjuncts for f in of.filters)
        if same is not None and not is_met:
            return same, None
        axes = self._inside(component)
        weighed = self._evaluator.weighed(component, self._with_keys(axes), of, centers)
        return LoweredBlock(component.attributes, weighed.entries, axes), weighed

    def _quantile(self, quantile: Quantile) -> LoweredStatistic:
        """Count the rows up to each value: one more axis, of the values in their order."""
        if quantile.counted is not None:
            return self._ranked(quantile, quantile.counted)
        found: list[LoweredBlock] = []
        values, type_, ends = None, "DOUBLE", None
        extra, key = len(self._axes), len(self._core.keys)
        count = replace(_COUNT, filters=tuple(f for f in quantile.filters if not f.by_row))
        for component in self._components(count.filters, (quantile.value,)):
            if not component.weighted:
                found.append(self._counted(component, count)[0])
                continue
            axes = self._inside(component)
            drawn = counted_of(quantile, self._reader)
            sizes = (self._table.columns[name].size for name in component.attributes)
            if drawn is not None and math.prod(sizes) > MAX_JOINT_CELLS:
                return self._ranked(quantile, drawn)
            axis = self._values_of(quantile, component, key)
            if drawn is not None and axis.rows > MOST_TOLD_APART:
                return self._ranked(quantile, drawn)
            values = self._evaluator.frame(axis).to_series()
            type_ = self._evaluator.types(axis)[key]
            ends = self._ends(quantile.value, values)
            if quantile.continuous and not values.dtype.is_numeric():
                raise self._not_numeric(quantile)
            placed = [*self._with_keys(axes), (axis, {key: quantile.value})]
            counted = self._evaluator.weighed(replace(component, weighted=False), placed, count)
            block = LoweredBlock(component.attributes, counted.entries, (*axes, extra))
            found.append(cumulative(block, axis.rows))
        by_row = [*self._core.by_row, *(f for f in quantile.filters if f.by_row)]
        added = self._reader.added_up(_COUNT, self._readable(by_row)) if by_row else None
        blocks = (*_without_totals(found), *([] if added is None else [added.block]))
        result = "DOUBLE" if quantile.continuous else type_
        return LoweredStatistic(
            quantile, blocks, values=values, value_type=result, ends=ends, added_up=added
        )

    def _values_of(self, quantile: Quantile, component: CoupledColumns, key: int) -> StoredAxis:
        """Return the axis of the values of which a quantile is one, in their order."""
        value = quantile.value
        if quantile.all_rows and self._evaluator.may_be_null(component, value):
            raise self._without_value(value)
        axis = self._evaluator.values(component, value, key, discrete=not quantile.continuous)
        if not axis.rows:
            raise self._no_value(value)
        return axis

    def _ranked(self, quantile: Quantile, counted: Linear) -> LoweredStatistic:
        """Count the rows that have a value: the quantile is drawn by itself."""
        if quantile.stored is not None:
            quantile = replace(quantile, value=quantile.stored)
        read, line = ranked_of(quantile, self._reader)
        if quantile.continuous and not read.value.type.is_number:
            raise self._not_numeric(quantile)
        counts = self._linear(counted)
        weights = (block.entries().weight for block in counts.blocks if block.bound is None)
        if any((weight != 1).any() for weight in weights):
            raise self._repeated(quantile)
        type_ = "DOUBLE" if quantile.continuous else read.value.type.sql
        return replace(counts, statistic=quantile, value_type=type_, ranked=(read, line))

    def _repeated(self, quantile: Quantile) -> SqlError:
        return self._source.error(
            quantile.value.span,
            "One row is several here, as where public rows or UNION ALL repeat it, and a quantile "
            "that is drawn is of rows as they are.",
            never("join public tables in which each value that is looked up is there once."),
            UnsupportedSqlError,
        )

    def _ends(self, value: BoundExpr, values: pl.Series) -> tuple[pl.Series, pl.Series] | None:
        """Return between what the stored values lie that count as each value of a column.

        None if each counts as itself; what is beyond a domain that is clamped counts as its end.
        """
        (name, *others) = [*value.attributes, ""]
        if others != [""] or value.sql != render(
            column(f"__a{list(self._table.columns).index(name)}")
        ):
            return None
        if not self._table.merges(name) & {Merging.RANGE, Merging.NEAREST}:
            return None
        domain = replace(self._table.columns[name], outside=None, nullable=True)
        codes = {value: code for code, value in enumerate(domain.values)}
        stored = [domain.stands_for(codes[value]) for value in values]
        least, most = ([getattr(one, end) for one in stored] for end in ("least", "most"))
        if values.dtype == pl.Date:
            least, most = ([_day(end) for end in of] for of in (least, most))
        return pl.Series(least), pl.Series(most)

    def _not_numeric(self, quantile: Quantile) -> SqlError:
        return self._source.error(
            quantile.value.span,
            "Nothing can be interpolated between these values.",
            "use " + instead(self._one_of_them(quantile)) + ", which returns one of them.",
        )

    def _one_of_them(self, quantile: Quantile) -> str:
        """Write a quantile that is one of the values."""
        of = self._source.text(quantile.value.span)
        return f"QUANTILE_DISC({of}, {quantile.probability:g})"

    def _without_value(self, value: BoundExpr) -> SqlError:
        text = self._source.text(value.span)
        return self._source.error(
            value.span,
            "Rows without a value have places here, the last ones, but a quantile is of values.",
            f"leave them out where rows are numbered: WHERE {text} IS NOT NULL.",
            UnsupportedSqlError,
        )

    def _no_value(self, value: BoundExpr) -> SqlError:
        return self._source.error(
            value.span,
            "This has no value for any possible row.",
            "is it always NULL, or are the conditions contradictory?",
        )

    def _components(
        self, filters: Sequence[BoundExpr], weights: Sequence[BoundExpr]
    ) -> list[CoupledColumns]:
        """Divide again with a statistic's own conditions; base components stay whole."""
        whole = [component.nodes for component in self._base]
        return components(self._core, self._keys, self._table, filters, whole, weights)

    def _inside(self, component: CoupledColumns) -> tuple[int, ...]:
        """Return the axes of the base components that are parts of this one."""
        return tuple(i for i, a in enumerate(self._axes) if set(a.keys) <= set(component.keys))

    def _with_keys(self, axes: Sequence[int]) -> list[tuple[StoredAxis, dict[int, BoundExpr]]]:
        keyed = [self._axes[i] for i in axes]
        return [(axis, {k: self._core.keys[k] for k in axis.keys}) for axis in keyed]


def _day(end: object) -> object:
    return end.date() if isinstance(end, datetime) else end


def _without_totals(blocks: Sequence[LoweredBlock]) -> tuple[LoweredBlock, ...]:
    """Leave out columns on which nothing depends, and groups by what is the same in all rows."""
    told = (
        block for block in blocks if not block.rows.is_total or (block.axes and block.attributes)
    )
    return tuple(told)


# ── Quantiles: from counts of values to cumulative counts ────────────────────────────────────────


def cumulative(counted: LoweredBlock, values: int) -> LoweredBlock:
    """Sum the rows of every group from the first value up to each.

    Args:
        counted: its rows are groups × values, in C order.
        values: the number of values.

    Returns:
        As many rows; row (g, v) counts the rows of group g with a value of at most v.
    """
    cells = counted.rows.cells
    if counted.runs is not None:
        low, high = (ends.reshape(-1, values) for ends in counted.runs)
        if np.array_equal(low[:, 1:], high[:, :-1]):  # each run goes on where the last one ends
            return counted.with_rows(Intervals(cells, np.repeat(low[:, 0], values), high.ravel()))
    summed = counted.dense().reshape(-1, values, cells).cumsum(axis=1)
    return counted.with_dense(summed.reshape(-1, cells))


# ── Windows over groups: sums of a statistic over those groups that a window frame holds ─────────
#
# An axis that the window is partitioned by stays as it is. Along an axis that neither partitions
# nor orders, all groups are added up. Along what orders them, each group's frame is a run of groups
# in that order, which DuckDB itself finds on the public groups.


def over_window(
    blocks: Sequence[LoweredBlock],
    windowed: Windowed,
    axes: Sequence[StoredAxis],
    core: Core,
    evaluator: Evaluator,
) -> tuple[LoweredBlock, ...]:
    """Return the blocks of the sums, or means, over the windows of a linear statistic.

    Args:
        blocks: those of the statistic.
        windowed: the window.
        axes: the axes of the groups.
        core: what the keys of the window are keys of.
        evaluator: evaluates the order on the groups.

    Raises:
        SqlError: the frame counts rows, and the order doesn't tell all groups apart.
        ResourceLimitError: a matrix is too large.
    """
    return _Window(windowed, axes, core, evaluator).blocks(blocks)


class _Window:
    """One window, over groups along some axes.

    An axis is of one of three kinds: the window is partitioned by its keys alone, and they stay
    apart; it is *ordered* if another of its keys is one of the window's; all others are *free*.
    """

    def __init__(
        self, windowed: Windowed, axes: Sequence[StoredAxis], core: Core, evaluator: Evaluator
    ) -> None:
        place = {key: i for i, key in enumerate(core.keys)}
        self._mean = windowed.mean
        self._frame = windowed.frame
        self._axes = axes
        self._evaluator = evaluator
        self._partition = [place[key] for key in windowed.frame.partition]
        self._order = [place[o.key] for o in windowed.frame.order]
        self._sizes = [axis.rows for axis in axes]
        named = set(self._partition) | set(self._order)
        apart = {i for i, a in enumerate(axes) if set(a.keys) <= set(self._partition)}
        rest = [i for i in range(len(axes)) if i not in apart]
        self._ordered = [i for i in rest if named & set(axes[i].keys)]
        self._free = [i for i in rest if i not in self._ordered]

    def blocks(self, blocks: Sequence[LoweredBlock]) -> tuple[LoweredBlock, ...]:
        if self._frame.spec and (self._free or not self._ordered):
            self._check_told_apart(all(self._sizes[i] == 1 for i in self._free))
        merged = [b for b in blocks if set(b.axes) & set(self._ordered)]
        summed = [self._summed(b) for b in blocks if not set(b.axes) & set(self._ordered)]
        if merged:
            # A frame is a run of groups of all ordered axes together, so they need one block.
            summed.append(self._along_order(self._summed(reduce(_product, merged))))
        return tuple(summed)

    def _summed(self, block: LoweredBlock) -> LoweredBlock:
        """Add up along the free axes of a block, and repeat the sums."""
        free = [at for at, axis in enumerate(block.axes) if axis in self._free]
        if not free:
            return block
        count = math.prod(self._sizes[block.axes[at]] for at in free)
        if block.rows.is_identity and not self._mean:  # each sum is then that of all cells
            n = block.rows.cells
            return block.with_rows(Intervals(n, np.zeros(n, dtype=np.int64), np.full(n, n)))
        tensor = self._tensor(block)
        summed = tensor.sum(axis=tuple(free), keepdims=True) / (count if self._mean else 1)
        return self._from_tensor(block, np.broadcast_to(summed, tensor.shape))

    def _along_order(self, block: LoweredBlock) -> LoweredBlock:
        """Add up the groups of each frame along the ordered axes, which are all in this block."""
        position, low, high = self._frames()
        order = np.argsort(position)
        if block.runs is not None and len(block.axes) == 1 and not self._mean:
            joined = _joined(block.runs, order, low, high)
            if joined is not None:
                return block.with_rows(Intervals(block.rows.cells, *joined))
        # Bring the ordered axes to the front, and their groups into the window's order.
        at = [block.axes.index(axis) for axis in self._ordered]
        tensor = self._tensor(block)
        front = np.moveaxis(tensor, at, range(len(at)))
        flat = front.reshape(len(order), -1)[order]
        # The sum over positions low..high is the difference of two running totals.
        totals = np.concatenate([np.zeros((1, flat.shape[1])), flat.cumsum(axis=0)])
        frames = totals[high + 1] - totals[low]
        if self._mean:
            frames = frames / np.maximum(high + 1 - low, 1)[:, None]
        # Back again; what rounding leaves of differences of equal totals is zero.
        back = np.moveaxis(frames.reshape(front.shape), range(len(at)), at)
        return self._from_tensor(block, np.where(np.abs(back) < 1e-12, 0.0, back))

    def _frames(self) -> tuple[Ints, Ints, Ints]:
        """Return the position of each group in the order, and its frame's first and last one.

        Groups are those of the ordered axes, in C order. An empty frame ends before it begins.
        """
        row, tables = "0", []
        for i in self._ordered:
            row = f"({row}) * {self._sizes[i]} + x{i}.row"
            tables.append(f"{self._axes[i].table} x{i}")
        here = {k for i in self._ordered for k in self._axes[i].keys}
        partition = [f"k{k}" for k in self._partition if k in here]
        pairs = zip(self._order, self._frame.order, strict=True)
        order = [
            f"k{k} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
            for k, o in pairs
            if k in here
        ]
        by = f"PARTITION BY {', '.join(partition)}" if partition else ""
        ordering = f"ORDER BY {', '.join(order)}" if order else ""
        window = f"({by} {ordering} {self._frame.spec})"
        # Positions number the groups so that partitions and frames are runs of them. DuckDB then
        # says of each group which positions its own frame holds.
        every = ", ".join([*partition, *order, "row"])
        peers = ", ".join([*partition, *(f"k{k}" for k in self._order if k in here)]) or "row"
        found = self._evaluator.arrays(
            f"WITH g AS (SELECT ({row})::BIGINT AS row, * EXCLUDE (row) FROM {', '.join(tables)}), "
            f"o AS (SELECT *, row_number() OVER (ORDER BY {every}) - 1 AS pos FROM g) "
            f"SELECT pos, coalesce(min(pos) OVER {window}, 0) AS low, "
            f"coalesce(max(pos) OVER {window}, -1) AS high, "
            f"count(*) OVER (PARTITION BY {peers}) AS peers FROM o ORDER BY row",
            self._frame.span,
        )
        if self._frame.counts_rows:
            self._check_told_apart(bool((found["peers"] == 1).all()))
        return found["pos"], found["low"], found["high"]

    def _told_apart(self) -> list[Hint]:
        """Order by all that is grouped by."""
        source, span = self._evaluator.source, self._frame.span
        clause = source.clause("GROUP")
        listed = [] if clause is None else source.text(clause).split(None, 2)[2].split(",")
        ordered = capitals(source.text(span))
        more = ", ".join(key.strip() for key in listed if capitals(key.strip()) not in ordered)
        every = ", ".join(key.strip() for key in listed)
        return [
            *swapped(source, span, r"ORDER BY (.*?)\s+ROWS", rf"ORDER BY \1, {more} ROWS"),
            *swapped(source, span, r"\(ROWS", f"(ORDER BY {every} ROWS"),
        ]

    def _check_told_apart(self, well: bool) -> None:
        if not well:
            raise self._evaluator.source.error(
                self._frame.span,
                "A frame of rows needs an order that tells all groups apart.",
                first_that_works(
                    self._told_apart(),
                    "add the other columns of GROUP BY to PARTITION BY or ORDER BY, or write "
                    "RANGE in place of ROWS.",
                ),
            )

    def _tensor(self, block: LoweredBlock) -> Array:
        return block.dense().reshape(*(self._sizes[i] for i in block.axes), -1)

    def _from_tensor(self, block: LoweredBlock, tensor: Array) -> LoweredBlock:
        return block.with_dense(tensor.reshape(block.rows.rows, -1))


def _joined(runs: Runs, order: Ints, low: Ints, high: Ints) -> Runs | None:
    """Join adjacent runs to one per frame; None if they are not adjacent in this order."""
    if (high < low).any():
        return None
    start, stop = (ends[order] for ends in runs)
    if np.array_equal(start[1:], stop[:-1]):
        return start[low], stop[high]
    if np.array_equal(stop[1:], start[:-1]):
        return start[high], stop[low]
    return None


def _product(first: LoweredBlock, second: LoweredBlock) -> LoweredBlock:
    columns = (*first.attributes, *second.attributes)
    one, other = first.entries(), second.entries()
    check_entries(len(one.row) * len(other.row), 1, columns)
    return LoweredBlock(columns, compact(one.kron(other)), (*first.axes, *second.axes))
