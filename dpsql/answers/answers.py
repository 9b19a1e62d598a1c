"""Answers of statistics for groups, and their errors, in the order of the groups.

Statements are rehearsed on invented ones, before anything is charged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError, SqlError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.base import Aligned, Reconstruction
from dpsql.planner.reconstruction.measured import Values
from dpsql.sql.binding.core import FLOOR_ROLES, ROW, Quantile, Role
from dpsql.sql.compiled import AnswerTable, GroupingSet, Script, Statement, StatisticColumn
from dpsql.sql.computing.postprocess import Postprocessing
from dpsql.sql.lowering.drawn import values_at
from dpsql.workload import Family, Workload
from dpsql.workload.workload import boxes

Marginal = Callable[[tuple[str, ...]], Array]
"""Makes the noisy marginal over some attributes, of shape (cells of the first one, …)."""


class NoisyMarginals:
    """Answers from marginals that are linear functions of the same measurements.

    So the answers of all families are consistent: groups add up to totals within and across
    statements. They are unbiased if the marginals are.
    """

    def __init__(self, marginal: Marginal) -> None:
        self._make = marginal
        self._last: tuple[tuple[str, ...], Array] | None = None

    def answers(self, family: Family) -> Array:
        """Return the answers of a family, in its shape.

        Raises:
            ResourceLimitError: they are too many to be held at once.
        """
        family.check_held()
        if not family.count:
            return np.zeros(family.shape)
        marginal = self._answers(family)
        if not family.center:
            return marginal
        return marginal + family.center * self._answers(family.restored).reshape(family.shape)

    def _answers(self, family: Family) -> Array:
        cells = self._marginal(family.names).ravel()
        return (family.queries @ cells).reshape(family.shape)

    def _marginal(self, attributes: tuple[str, ...]) -> Array:
        """Make the noisy marginal, or take the last one again: several families may use it."""
        if self._last is None or self._last[0] != attributes:
            made = self._make(attributes)
            made.setflags(write=False)
            self._last = attributes, made
        return self._last[1]


def reconstruct(plan: Plan, measured: NoisyMeasurements, family: Family) -> Array:
    """Return the unbiased answers of one family, in its shape."""
    values = plan.values(measured.values)
    return NoisyMarginals(lambda names: plan.reconstruction.marginal(names, values)).answers(family)


def in_group_order(
    array: NDArray[Any], axes: Sequence[Sequence[int]], shape: Sequence[int]
) -> NDArray[Any]:
    """Bring an array from the order of a family's blocks to that of the groups, and flatten it.

    Args:
        array: one value per answer, in the family's own order.
        axes: the axes of each block.
        shape: the number of groups along each axis.
    """
    placed = [axis for block in axes for axis in block]
    tensor = array.reshape([shape[axis] for axis in placed])
    return np.ascontiguousarray(tensor.transpose(np.argsort(placed))).ravel()


# ── Quantiles, read off noisy cumulative counts ──────────────────────────────────────────────────
#
# For values v_0 < v_1 < …, F(v) is the noisy count of rows up to v, and N that of all rows. The
# k-th smallest value (from 0) is the first v with F(v) >= k + 1. The discrete p-quantile is the
# first v with F(v) >= pN; the continuous one lies between the values number ⌊(N−1)p⌋ and the next
# one.
#
# An interval holds every value that a test of "this is the quantile" doesn't exclude (Woodruff,
# "Confidence intervals for medians and other position measures", JASA 1952). Let d(v) = F(v) − pN,
# which is a linear query, d⁻(v) its value just before v, and c so many standard deviations of each.
# Counts are whole and p = a/b, so that both are multiples of 1/b. A value v is the discrete
# quantile if and only if d⁻(v) <= −1/b and d(v) >= 0. So v is excluded if the noisy d(v) < −c, or
# the noisy d⁻(v) > c − 1/b. Each of the two happens to the true quantile with at most half of the
# probability that is allowed for, so it is excluded with no more than all of it. That other values
# are tested too takes nothing away from that. But values that are not excluded need not be
# adjacent, and the interval reaches from the first to the last of them, so that it covers somewhat
# more often than is asked for where the noise is large.
#
# The least value is the discrete quantile for p = 0: the first v with F(v) >= 1, so that d(v) is
# F(v) − 1 there, of which the same tests hold. But it is not where noise first reaches one row,
# which among many values without rows it soon does by itself. It is read off from the rows
# outwards: the last v before which the noisy count is at most 2σ(v), as the largest value is the
# first v after which it is. Without noise that is the same. With noise, the rows beyond what is
# found are a few σ, and seldom is it beyond all rows: at the true value, noise exceeds 2σ in 2 % of
# cases. As no test excludes that a single row lies further out, the interval reaches to that end of
# the domain.
#
# For the continuous quantile, (N−1)p = k + r with a whole k and r from 0 to 1 − 1/b. At its lower
# neighbor, which value number k is, d >= 1/b − p; at its upper one, where r > 0 and it counts,
# d⁻ <= 1 − p − 1/b. The lower bound excludes by the first, the upper one by the second.
#
# Where stored values count as the nearest of a grid, or are known by ranges, the value that is read
# off is that of a cell. They are in the same order as their cells, so the interval reaches from the
# least to the largest for which its first and its last cell stand.
#
# A group of which noise excludes that it has a row has no quantile.
#
# Beyond the noise all this says nothing about a larger population that the rows may be a sample of.


Axes = Sequence[Sequence[int]]
Compute = Callable[[Family], Array]

OUTERMOST = 2.0
"""Standard deviations of counts beyond the least and the largest value that are taken for none."""
SLACK = 0.25
"""Counts are whole: a step is taken at up to a quarter of a row before it, and less if the noise
is smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantileValues:
    """A quantile for every group, and its interval."""

    values: pl.Series
    lower: pl.Series
    upper: pl.Series
    rows: pl.Series
    """The noisy number of rows that each is of."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The counts of rows up to each value, for every group, and their noise.

    Both are of shape (groups, values).
    """

    counts: Array
    """F(v); the last one is N."""
    spread: Array
    """The standard deviations of F(v) − pN."""
    sized: Array
    """The standard deviations of N, for every group."""

    def are_none(self, reach: float) -> NDArray[np.bool_]:
        """Whether noise of so many standard deviations excludes that a group has a row.

        Counts are whole: less than half a row is none, if the noise is smaller.
        """
        return np.asarray(self.counts[:, -1] + np.maximum(reach * self.sized, 0.5) < 1)


def distribution(
    column: StatisticColumn,
    family: Family,
    shape: tuple[int, ...],
    answers: Compute,
    variances: Compute,
) -> Distribution:
    """Return the cumulative counts of every group, and their noise.

    Args:
        column: the quantile.
        family: its cumulative counts.
        shape: the number of groups along each axis.
        answers: computes the answers of a family.
        variances: computes their variances.
    """
    quantile, values = _parts(column)
    grid = (*shape, values.len())
    counts = in_group_order(answers(family), column.axes, grid).reshape(-1, values.len())

    def noise(change: Callable[[Array], Array], columns: int) -> Array:
        moved = _moved(family, column.axes, values.len(), change)
        found = in_group_order(variances(moved), column.axes, (*shape, columns))
        return np.asarray(np.sqrt(found).reshape(-1, columns))

    p = quantile.probability
    away = noise(lambda of: of - p * of[:, -1:], values.len())
    return Distribution(counts, away, noise(lambda of: of[:, -1:], 1)[:, 0])


def quantiles(column: StatisticColumn, found: Distribution, reach: float) -> QuantileValues:
    """Read a quantile off the cumulative counts of every group.

    Args:
        column: the quantile.
        found: its cumulative counts.
        reach: how many standard deviations the interval reaches to each side.
    """
    quantile, values = _parts(column)
    low, high = column.ends or (values, values)
    counts, spread = found.counts, found.spread
    rows = pl.Series(counts[:, -1])
    slack = np.minimum(4 * spread, SLACK)
    least = quantile.probability == 0 and not quantile.continuous
    away = counts - quantile.probability * counts[:, -1:] - least
    margin = reach * spread + slack
    step = 1 / Fraction(str(quantile.probability)).denominator
    if not quantile.continuous:
        none = OUTERMOST * spread + slack
        if least:
            first = _last(counts <= none)
        else:
            first = _first(away >= -(none if quantile.probability == 1 else slack))
        lower, upper = _first(away >= -margin), _last(away <= margin - step)
        ends = np.minimum(lower, first), np.maximum(upper, first)
        read = QuantileValues(values.gather(first), low.gather(ends[0]), high.gather(ends[1]), rows)
        return _of_rows(read, found.are_none(reach), low, high)
    numbers = values.cast(pl.Float64).to_numpy()
    between = _between(counts, quantile.probability, numbers, slack)
    lows, highs = (of.cast(pl.Float64).to_numpy() for of in (low, high))
    below = lows[_first(away >= step - quantile.probability - margin)]
    above = highs[_last(away <= 1 - quantile.probability - step + margin)]
    # Noisy counts aren't whole, so what is read off them may be up to one row away.
    bounds = np.minimum(below, between), np.maximum(above, between)
    read = QuantileValues(pl.Series(between), pl.Series(bounds[0]), pl.Series(bounds[1]), rows)
    return _of_rows(read, found.are_none(reach), pl.Series(lows), pl.Series(highs))


def _of_rows(
    read: QuantileValues, none: NDArray[np.bool_], low: pl.Series, high: pl.Series
) -> QuantileValues:
    """Return quantiles, NULL where there are no rows, as in SQL: of these nothing is known."""
    if not none.any():
        return read
    there, size = pl.Series(~none), none.size
    values = read.values.zip_with(there, read.values.clear(size))
    lower = read.lower.zip_with(there, low.gather([0] * size))
    upper = read.upper.zip_with(there, high.gather([high.len() - 1] * size))
    return QuantileValues(values, lower, upper, read.rows)


def drawn_quantiles(column: StatisticColumn, part: GroupBox, rows: Array) -> QuantileValues:
    """Return quantiles that were drawn, which have no interval.

    In few rows, nothing but chance decides what is drawn: there it is NULL, and the interval is the
    whole line.

    Args:
        column: the quantile.
        part: the groups.
        rows: the noisy number of rows of each.
    """
    if column.quantile is None or column.line is None or column.found is None:
        raise InternalError("a quantile wasn't drawn")
    places = np.arange(part.group.rows).reshape(part.group.shape)[part.box].reshape(-1)
    p, of = column.quantile.probability, pl.Series(rows)
    known = of * (min(p, 1 - p) or 1.0) >= column.found.rows
    nothing = column.line.clear(part.rows)
    low, high = (nothing.zip_with(known, column.line.gather([end] * part.rows)) for end in (0, 1))
    line, continuous = column.found.line, column.quantile.continuous
    drawn = values_at(line, [column.found.places[p] for p in places], continuous=continuous)
    return QuantileValues(drawn.zip_with(known, nothing), low, high, of)


def _parts(column: StatisticColumn) -> tuple[Quantile, pl.Series]:
    if column.quantile is None or column.values is None:
        raise InternalError("the column is not a quantile")
    return column.quantile, column.values


def _between(counts: Array, probability: float, values: Array, slack: Array) -> Array:
    """Interpolate between two adjacent order statistics."""
    at = np.maximum((counts[:, -1] - 1) * probability, 0.0)
    below = np.floor(at)
    first, second = below[:, None] + 1 - slack, below[:, None] + 2 - slack
    share = at - below
    # Where the place is a value's own, but for noise, the next one is of no account.
    second = np.where(share[:, None] < slack, first, second)
    left, right = values[_first(counts >= first)], values[_first(counts >= second)]
    return np.asarray(left + share * (np.maximum(right, left) - left))


def _first(reached: NDArray[np.bool_]) -> Ints:
    """Return the first place along the last axis that is reached; the last one if none is."""
    first = np.argmax(reached, axis=-1)
    return np.asarray(np.where(reached.any(axis=-1), first, reached.shape[-1] - 1))


def _last(before: NDArray[np.bool_]) -> Ints:
    """Return the last place before which it isn't too much; the first has nothing before it."""
    first = np.ones((*before.shape[:-1], 1), dtype=np.bool_)
    held = np.concatenate([first, before[..., :-1]], axis=-1)
    return np.asarray(before.shape[-1] - 1 - np.argmax(held[..., ::-1], axis=-1))


def _moved(family: Family, axes: Axes, values: int, change: Callable[[Array], Array]) -> Family:
    """Return other queries in place of F(v), of which each group has one for each value."""
    extra = max(axis for block in axes for axis in block)
    at = next(i for i, block in enumerate(axes) if extra in block)
    block = family.blocks[at]
    matrix = change(block.queries.matrix.reshape(-1, values, block.queries.cells))
    queries = Dense(matrix.reshape(-1, block.queries.cells))
    blocks = list(family.blocks)
    blocks[at] = replace(block, queries=queries)
    return replace(family, blocks=tuple(blocks))


# ── Answers of statistics for groups, and their errors, in the order of the groups ───────────────


@dataclass(frozen=True, slots=True)
class GroupBox:
    """Some of the groups of a grouping set: a box of its axes."""

    group: GroupingSet
    box: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups along each axis."""
        return tuple(chosen.stop - chosen.start for chosen in self.box)

    @property
    def rows(self) -> int:
        """The number of groups."""
        return math.prod(self.shape)


def whole(group: GroupingSet) -> GroupBox:
    """Return all groups of a grouping set."""
    return GroupBox(group, tuple(slice(0, n) for n in group.shape))


def parts(group: GroupingSet, rows: int) -> Iterator[GroupBox]:
    """Yield a grouping set in parts of at most so many groups, in C order."""
    for box in boxes(group.shape, rows):
        yield GroupBox(group, box)


class Answering(Protocol):
    """Gives answers of statistics."""

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return a statistic for every group of a part, in C order."""

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variance of a statistic for every group of a part."""

    def in_common(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return by how much less it varies for totals of tables compared, for every group."""

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> QuantileValues:
        """Return a quantile for every group of a part."""


class Answers:
    """The answers to a workload, by statistic and group."""

    def __init__(
        self,
        workload: Workload,
        reconstruction: Reconstruction | None,
        marginal: Marginal,
        *,
        laplace: bool = False,
    ) -> None:
        self.workload = workload
        self.laplace = laplace
        """Whether noise has the heavier tails of the Laplace distribution."""
        self.reconstruction = reconstruction
        """Tells the variances of unbiased answers; None if there are none."""
        self.marginal = marginal
        """Makes the marginals of which answers are made."""
        self._marginals = NoisyMarginals(marginal)

    @classmethod
    def measured(
        cls,
        workload: Workload,
        reconstruction: Reconstruction,
        values: Values,
        *,
        laplace: bool = False,
    ) -> Answers:
        """Take the answers that follow from measured values."""

        def marginal(names: tuple[str, ...]) -> Array:
            return reconstruction.marginal(names, values)

        return cls(workload, reconstruction, marginal, laplace=laplace)

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return a statistic for every group of a part, in C order."""
        answers = self._marginals.answers(self._family(column, part))
        return in_group_order(answers, column.axes, part.shape)

    def counted(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the answers of a statistic's family for the groups of a part, in its shape."""
        return self._marginals.answers(self._family(column, part))

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variance of a statistic for every group of a part, in C order."""
        return in_group_order(self._spread(self._family(column, part)), column.axes, part.shape)

    def in_common(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return by how much less it varies for totals of tables compared, for every group.

        That is γᵀSγ of `planner/reconstruction/parts.py`. As S has no negative eigenvalue, two
        answers of different tables have no covariance larger than the root of the product.
        """
        family, by = self._family(column, part), self.reconstruction
        less = np.zeros(()) if by is None else -by.in_common(by.leans(family))
        spread = np.broadcast_to(np.maximum(less, 0.0), family.shape)
        return in_group_order(spread, column.axes, part.shape)

    def slopes(self, column: StatisticColumn, part: GroupBox) -> Array | None:
        """Return by how much answers move with what was measured; None if they are linear in it.

        See `answers/scored.py`, which has others.
        """
        return None

    @property
    def for_intervals(self) -> Answers:
        """The same answers, with the variances by which intervals reach."""
        return self

    @property
    def remark(self) -> str | None:
        """The remark that all who read them must know; None if there is none."""
        return None

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> QuantileValues:
        """Read a quantile off the noisy distribution of every group of a part.

        Args:
            column: a quantile.
            part: the groups.
            reach: how many standard deviations its interval reaches to each side.
        """
        if column.drawn:
            return drawn_quantiles(column, part, self.values(column, part))
        family = self._family(column, part)
        found = distribution(column, family, part.shape, self._marginals.answers, self._spread)
        return quantiles(column, found, reach)

    def distributed(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return of how many rows a quantile is, for every group of a part, in C order."""
        if column.drawn:
            return self.values(column, part)
        if column.values is None:
            raise InternalError("known only for quantiles")
        values = column.values.len()
        found = self._marginals.answers(self._family(column, part))
        counts = in_group_order(found, column.axes, (*part.shape, values))
        return np.asarray(counts.reshape(-1, values)[:, -1])

    def _spread(self, family: Family) -> Array:
        """Return the variances of a family; zeros if they are not known."""
        return (
            np.zeros(family.shape)
            if self.reconstruction is None
            else self.reconstruction.variances(family)
        )

    def family(self, column: StatisticColumn) -> Family:
        """Return the queries that answer a statistic."""
        return self.workload.families[column.family].shown

    def _family(self, column: StatisticColumn, part: GroupBox) -> Family:
        """Return the queries of a statistic for the groups of a part."""
        family, box, sizes = self.family(column), part.box, part.group.shape
        if column.values is not None:  # the values of a quantile run along one more axis
            box, sizes = (*box, slice(0, column.values.len())), (*sizes, column.values.len())
        if part.shape == part.group.shape:
            return family
        return Aligned(family, column.axes).cut(box, sizes).family


def keys(part: GroupBox) -> dict[int, pl.Series]:
    """Return every key of a part, row by row."""
    series: dict[int, pl.Series] = {}
    grid = np.indices(part.shape).reshape(len(part.shape), part.rows)
    for i, axis in enumerate(part.group.axes):
        at = grid[i] + part.box[i].start
        for number, key in zip(axis.numbers, axis.keys, strict=True):
            series[number] = key.gather(at)
    return series


def computed(
    statement: Statement, post: Postprocessing, answers: Answering, reach: float
) -> pl.DataFrame:
    """Run what a statement computes on answers; the last columns of the result are hidden ones.

    Intervals of quantiles reach so many standard deviations to each side.

    Raises:
        SqlError: it can't be computed for these answers.
    """
    return post.run(
        [
            _table_frame(table, answers, columns, reach)
            for table, (_, columns) in zip(statement.tables, post.tables, strict=True)
        ]
    )


def _table_frame(
    table: AnswerTable, answers: Answering, types: Sequence[tuple[str, str]], reach: float
) -> pl.DataFrame:
    """Return the whole table of a core's answers, with the columns that `postprocess` names."""
    frames, first = [], 0
    for group in table.sets:
        frames.append(_set_frame(table, group, answers, first, reach))
        first += group.rows
    return pl.concat(frames, how="diagonal_relaxed").select(name for name, _ in types)


def _set_frame(
    table: AnswerTable, group: GroupingSet, answers: Answering, first: int, reach: float
) -> pl.DataFrame:
    part = whole(group)
    here = keys(part)
    columns: list[pl.Series] = []
    for k in range(table.keys):
        key = here.get(k, pl.Series([None] * part.rows, dtype=pl.Null))
        columns.append(key.alias(Role.KEY.named(k)))
        rolled_up = [int(k not in here)] * part.rows
        columns.append(pl.Series(Role.ROLLED_UP.named(k), rolled_up, dtype=pl.Int32))
    for j, column in enumerate(group.columns):
        name, centers = Role.STATISTIC.named(j), [column.center] * part.rows
        columns.append(pl.Series(Role.CENTER.named(j), centers, dtype=pl.Float64))
        if column.quantile is None:
            columns.append(pl.Series(name, answers.values(column, part), nan_to_null=True))
        else:
            quantiles = answers.quantiles(column, part, reach)
            columns.append(quantiles.values.alias(name))
            columns.append(quantiles.lower.alias(Role.LOWER.named(j)))
            columns.append(quantiles.upper.alias(Role.UPPER.named(j)))
            columns.append(quantiles.rows.alias(Role.SIZE.named(j)))
        if j == table.floor:
            spreads = answers.variances(column, part), answers.in_common(column, part)
            for role, spread in zip(FLOOR_ROLES, spreads, strict=True):
                columns.append(pl.Series(role.named(j), np.sqrt(spread)))
    columns.append(pl.Series(ROW, np.arange(first, first + part.rows)))
    return pl.DataFrame(columns)


# ── Rehearse what statements compute on their answers, before anything is charged ────────────────
#
# Invented answers take the place of noisy ones. What fails for them would most likely fail for the
# real ones too, which would then have been paid for in vain.


MAX_ROWS = 200_000
"""Statements over more groups are not rehearsed: it would take as long as the answer."""


class _Invented:
    """Answers that look like noisy counts of a larger table."""

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return fractional numbers of several sizes."""
        return np.asarray(1_000.25 + 37.7 * (np.arange(part.rows) % 101))

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variances of small noise."""
        return np.ones(part.rows)

    def in_common(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return that tables have nothing in common."""
        return np.zeros(part.rows)

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> QuantileValues:
        """Return the first value of each quantile's expression; of one that is drawn, a small one.

        What is computed of it may fail for values of which nobody knows whether there are any.
        """
        known = column.example if column.example is not None else pl.Series([0.0])
        values = known.gather(np.zeros(part.rows, dtype=np.int64))
        if column.quantile is not None and column.quantile.continuous:
            values = values.cast(pl.Float64)
        return QuantileValues(values, values, values, pl.Series(np.full(part.rows, 1_000.25)))


def invented(statement: Statement) -> pl.DataFrame:
    """Return what a statement that computes on its answers returns for invented ones.

    Raises:
        SqlError: it fails; or it computes nothing.
    """
    if statement.post is None:
        raise InternalError("nothing is computed on answers")
    return computed(statement, statement.post, _Invented(), 0.0)


def rehearse(script: Script) -> None:
    """Run every statement that computes on its answers once, on invented ones.

    Raises:
        SqlError: one fails.
    """
    for statement in script.statements:
        if statement.post is None or statement.rows > MAX_ROWS:
            continue
        try:
            invented(statement)
        except SqlError as error:
            error.sql = statement.sql
            error.statement = statement.name if len(script.statements) > 1 else None
            raise
