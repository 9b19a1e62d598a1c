"""Core → matrices: the groups of each grouping set, and the factors of each statistic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

import polars as pl
from sqlglot import exp

from dpsql.errors import SqlError, UnsupportedSqlError
from dpsql.hints import instead, remedies_of
from dpsql.linalg.matrices import Intervals, StructuredMatrix
from dpsql.schema import Table
from dpsql.schema.domain import Merging
from dpsql.sql.binding.core import Core, Linear, Quantile, Statistic, present
from dpsql.sql.binding.expressions import BoundExpr, column, render
from dpsql.sql.lowering.components import CoupledColumns, components
from dpsql.sql.lowering.evaluate import Evaluator, StoredAxis, WeighedEntries
from dpsql.sql.lowering.matrices import LoweredBlock
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.quantiles import cumulative
from dpsql.sql.lowering.weights import AddedUp
from dpsql.sql.lowering.windows import over_window

S = TypeVar("S")


_COUNT = Linear("COUNT(*)")


@dataclass(frozen=True, slots=True, eq=False)
class LoweredStatistic:
    """The blocks whose Kronecker product answers a statistic for every group."""

    statistic: Statistic
    blocks: tuple[LoweredBlock, ...]
    scale: float = 1.0
    """The largest absolute value that one row can add."""
    center: float = 0.0
    """What was taken off the weight of each row."""
    values: pl.Series | None = None
    """For a quantile: the values in their order, along one more axis after those of the groups."""
    value_type: str | None = None
    """For a quantile: the DuckDB type of its result."""
    ends: tuple[pl.Series, pl.Series] | None = None
    """For a quantile: between what the stored values lie that count as each of its values."""
    added_up: AddedUp | None = None
    """What is added up row by row; its block is the last."""
    present: tuple[LoweredBlock, ...] | None = None
    """Where its center is put back for some of the rows: the blocks that count these. Those along
    axes are the statistic's."""


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
    unit = table.whole.unit
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
        return GroupsOf(axes, statistics)

    def _add(self, component: CoupledColumns) -> None:
        """Evaluate the groups of one component."""
        entries: StructuredMatrix
        if not component.keys:
            entries = self._evaluator.total(component)
            if self._keys and not entries.squares().any():
                self._check_groups()
                self.possible = False
            self._note(component, entries, ())
            return
        plain = self._plain(component)
        if plain is not None:
            axis = self._evaluator.plain(component.keys[0], plain)
            entries = Intervals.of_cells(axis.rows)
        else:
            axis, entries = self._evaluator.groups(self._core, component)
        if not axis.rows:
            self._check_groups()
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

    def _check_groups(self) -> None:
        """Refuse a statement that has no groups."""
        if self._core.summed:
            return
        raise self._source.error(
            self._core.where,
            "No possible row meets the conditions, so there is no group to return.",
            "are the conditions contradictory, beyond the columns' domains, or do they "
            "compare with NULL? That is written IS NULL.",
        )

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
            self._lowered[linear] = self._new(linear)
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
        except SqlError as error:
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
        own = component.weighted or any(f in component.conjuncts for f in of.filters)
        if same is not None and not own:
            return same, None
        axes = self._inside(component)
        weighed = self._evaluator.weighed(component, self._with_keys(axes), of, centers)
        return LoweredBlock(component.attributes, weighed.entries, axes), weighed

    def _quantile(self, quantile: Quantile) -> LoweredStatistic:
        """Count the rows up to each value: one more axis, of the values in their order."""
        found: list[LoweredBlock] = []
        values, type_, ends = None, "DOUBLE", None
        extra, key = len(self._axes), len(self._core.keys)
        count = replace(_COUNT, filters=tuple(f for f in quantile.filters if not f.by_row))
        for component in self._components(count.filters, (quantile.value,)):
            if not component.weighted:
                found.append(self._counted(component, count)[0])
                continue
            axes = self._inside(component)
            axis = self._evaluator.values(
                component, quantile.value, key, discrete=not quantile.continuous
            )
            if not axis.rows:
                raise self._no_value(quantile.value)
            values, type_ = (
                self._evaluator.frame(axis).to_series(),
                self._evaluator.types(axis)[key],
            )
            ends = self._ends(quantile.value, values)
            numeric = values.dtype.is_numeric()
            if quantile.continuous and not numeric:
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
        found = [self._axes[i] for i in axes]
        return [(axis, {k: self._core.keys[k] for k in axis.keys}) for axis in found]


def _day(end: object) -> object:
    return end.date() if isinstance(end, datetime) else end


def _without_totals(blocks: Sequence[LoweredBlock]) -> tuple[LoweredBlock, ...]:
    """Leave out columns on which nothing depends, and groups by what is the same in all rows."""
    told = (
        block for block in blocks if not block.rows.is_total or (block.axes and block.attributes)
    )
    return tuple(told)
