"""Noise of values: variances of what is computed, rows that values rest on, intervals.

`propagate` gives every value a list of pairs (statistic, coefficient). Its variance is cᵀΣc with
the covariance Σ of the statistics: from the covariances of one group's statistics where the list
stays within a group, and otherwise from the combined query itself.

Sums are taken in an order of their own: lists come in any order, and so do groups of a frame, but
the same measurements shall give the same variances to the last bit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.answers.answers import Answers, GroupBox, in_group_order, whole
from dpsql.errors import InternalError, ResourceLimitError, SqlError
from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.reconstruction.base import Aligned
from dpsql.sql.compiled import AnswerTable, GroupingSet, Statement, StatisticColumn
from dpsql.sql.computing.fractions import Step
from dpsql.sql.computing.propagate import ROWS

_KEY = ["value", "set", "column", "row"]
_STEPS = np.arange(1.0, 9.0)
"""Distances by which noise of variance 1 moves what is rounded; farther in 1 of 10^13."""
MAX_COMBINED = 20_000
"""Values whose variance is computed from combined queries; beyond, it is left out."""


class Noise:
    """The variances of one statement's values."""

    def __init__(self, statement: Statement, answers: Answers) -> None:
        if answers.reconstruction is None:
            raise InternalError("biased answers have no variances")
        self._answers, self._all = answers, answers.reconstruction
        self._reconstruction = self._all.by_table
        self._places = numbered(statement.tables)
        self._known: dict[tuple[int, int, int], Array] = {}
        self._leans: dict[tuple[int, int], dict[str, Array]] = {}
        self._slopes: Array | None = None
        if len(self._places) == 1 and len(self._places[0].group.columns) == 1:
            (column,) = self._places[0].group.columns
            self._slopes = answers.slopes(column, whole(self._places[0].group))

    def variances(self, pairs: pl.Series) -> pl.Series:
        """Return the variance of every value, given its list; null where that isn't known.

        That of roundings on the way is left out, see `Steps`.
        """
        total = self._variances(flat_pairs(pairs), pairs.len())
        total[pairs.is_null().to_numpy()] = np.nan
        return pl.Series(total).fill_nan(None)

    def joint(self, first: pl.Series, second: pl.Series) -> tuple[Array, Array, Array]:
        """Return variances and covariance of two values at a time, given their lists.

        Var(a + sb) − Var(a − sb) = 4s Cov(a, b), with an s that makes both alike in size.

        Returns:
            Var(a), Var(b) and Cov(a, b), each of shape (values,); NaN where it isn't known.
        """
        a, b = (self.variances(pairs).cast(pl.Float64).to_numpy() for pairs in (first, second))
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.sqrt(a / b)
        scale = np.where(np.isfinite(alike) & (alike > 0), alike, 1.0)
        one, other = flat_pairs(first), flat_pairs(second)
        by = pl.Series(scale).gather(other["value"])
        plus, minus = (
            self._variances(pl.concat([one, other.with_columns(c=sign * by * other["c"])]), len(a))
            for sign in (1.0, -1.0)
        )
        return a, b, (plus - minus) / (4 * scale)

    def _variances(self, flat: pl.DataFrame, values: int) -> Array:
        """Return the variance of every value, given all pairs; NaN where that isn't known."""
        total = np.zeros(values)
        if flat.height:
            placed, own = self._with_slopes(placed_pairs(flat, self._places), values)
            total += own
            for _, part in placed.group_by("table", maintain_order=True):
                total += self._of_table(part, values)
            if (common := self._in_common(placed, values)).any():
                total = np.maximum(total + common, 0.0)
        return np.where(np.isfinite(total), total, np.nan)

    def _with_slopes(self, placed: pl.DataFrame, values: int) -> tuple[pl.DataFrame, Array]:
        """Return how values depend on what was measured, and what they vary by besides.

        Where answers take scores along, each is g times what was measured, of variance σ², and
        something independent of variance g (1 − g) σ²; see `answers/scored.py`.
        """
        own = np.zeros(values)
        if self._slopes is None:
            return placed, own
        at = placed["row"].to_numpy()
        slopes, terms = self._slopes[at], placed["c"].to_numpy()
        besides = slopes * (1 - slopes) * self._covariance(0, 0, 0)[at]
        np.add.at(own, placed["value"].to_numpy(), terms**2 * besides)
        return placed.with_columns(c=pl.Series(slopes * terms)), own

    def _in_common(self, placed: pl.DataFrame, values: int) -> Array:
        """Return what the variance of every value has of totals of tables that were compared."""
        leans: dict[str, Array] = {}
        for (number, j), part in placed.group_by("set", "column", maintain_order=True):
            at, terms = part["value"].to_numpy(), part["c"].to_numpy()
            for table, by in self._leaning(int(str(number)), int(str(j))).items():
                own = leans.setdefault(table, np.zeros(values))
                with np.errstate(over="ignore", invalid="ignore"):
                    np.add.at(own, at, terms * by[part["row"].to_numpy()])
        with np.errstate(over="ignore", invalid="ignore"):
            return self._all.in_common(leans)

    def _leaning(self, number: int, j: int) -> dict[str, Array]:
        """Return by how much a statistic moves with totals, for each group in their order."""
        if (number, j) not in self._leans:
            group = self._places[number].group
            column = group.columns[j]
            self._leans[number, j] = {
                table: in_group_order(lean.ravel(), column.axes, group.shape)
                for table, lean in self._all.leans(self._answers.family(column)).items()
            }
        return self._leans[number, j]

    def _of_table(self, flat: pl.DataFrame, values: int) -> Array:
        """Return what the noise in the answers about one table adds to the variance of every value.

        But for its total each table is measured by itself. So of values that join groups of several
        each group of each table stands by itself, and covariances of groups are only needed within
        a table.
        """
        total = np.zeros(values)
        apart = flat.group_by("value").agg(pl.struct("set", "row").n_unique().alias("groups"))
        one = flat.join(apart.filter(pl.col("groups") == 1), on="value", how="semi")
        many = flat.join(apart.filter(pl.col("groups") > 1), on="value", how="semi")
        one, many = one.sort(_KEY), many.sort(_KEY)
        with np.errstate(over="ignore", invalid="ignore"):
            self._within(one, total)
            self._across(many, total)
        return total

    def _within(self, flat: pl.DataFrame, total: Array) -> None:
        """Add up coefficients times covariances within each group.

        Of Var(Σ c_a s_a) = Σ c_a c_b Cov(s_a, s_b), each pair (a, b) of statistics is a table of
        covariances over all groups, from which those of the groups that are asked for are taken.
        """
        pairs = flat.join(flat, on=["value", "set", "row"], suffix="_other")
        kinds = ["set", "column", "column_other"]
        for (number, a, b), part in pairs.sort(*kinds, "value").group_by(
            kinds, maintain_order=True
        ):
            try:
                cov = self._covariance(int(str(number)), int(str(a)), int(str(b)))
            except ResourceLimitError:
                total[part["value"].to_numpy()] = np.nan
                continue
            at = part["row"].to_numpy()
            terms = part["c"].to_numpy() * part["c_other"].to_numpy() * cov[at]
            np.add.at(total, part["value"].to_numpy(), terms)
        # Rounding may leave a variance of nearly nothing below zero.
        values = flat["value"].unique().to_numpy()
        total[values] = np.maximum(total[values], 0.0)

    def _covariance(self, number: int, a: int, b: int) -> Array:
        first, second = min(a, b), max(a, b)
        key = (number, first, second)
        if key not in self._known:
            group = self._places[number].group
            one, two = (self._aligned(group, j) for j in (first, second))
            covariances = self._reconstruction.covariances(one, two, group.shape)
            self._known[key] = np.asarray(covariances).ravel()
        return self._known[key]

    def _aligned(self, group: GroupingSet, j: int) -> Aligned:
        column = group.columns[j]
        return Aligned(self._answers.family(column), column.axes)

    def _across(self, flat: pl.DataFrame, total: Array) -> None:
        """Combine the queries of several groups: each value is one query, a sum of answers.

        For each statistic, row v of `coefficients` has what value v takes of each of its answers,
        in the order of the statistic's family.
        """
        if not flat.height:
            return
        values = flat["value"].unique(maintain_order=True).to_numpy()
        if len(values) > MAX_COMBINED:
            total[values] = np.nan
            return
        place = {value: i for i, value in enumerate(values.tolist())}
        terms = []
        for (number, j), part in flat.group_by("set", "column", maintain_order=True):
            group = self._places[int(str(number))].group
            column = group.columns[int(str(j))]
            family = self._answers.family(column)
            rows_in_order = np.arange(group.rows)  # the places in the family's own order
            order = in_group_order(rows_in_order, column.axes, group.shape)
            at = [place[value] for value in part["value"].to_list()]
            coefficients = np.zeros((len(values), family.count))
            np.add.at(coefficients, (at, order[part["row"].to_numpy()]), part["c"].to_numpy())
            terms.append((family, coefficients))
        try:
            domain = self._answers.workload.domain
            total[values] = self._reconstruction.combined_variances(terms, domain)
        except ResourceLimitError:
            total[values] = np.nan


def rounded(values: Array, variances: Array) -> Array:
    """Return by how much values that are rounded to whole numbers are off, as mean squares.

    Noise is added before, and moves a value by whole steps or not at all: mostly not at all where
    it lies in the middle of its step, and by a whole step in every other case at the edge of one.
    Of a noisy value z with variance s², what was there before the noise is taken to lie around z
    as z lies around it. It is rounded to another number than R, by at least j, where it lies
    beyond R ± (j − 1/2), so that with j² = 1 + 3 + … + (2j − 1) the mean square is

        Σ_j (2j − 1) · (P(beyond R + j − 1/2) + P(beyond R − j + 1/2)).

    Of much noise it is s² + (R − z)² + 1/12, as by the Euler-Maclaurin formula; from s = 1 on the
    difference is below 1e-7. Averaged over z, little noise makes √(2/π)·s, and much s² + 1/6.

    Args:
        values: before they are rounded, with noise.
        variances: of these.
    """
    from scipy.special import ndtr  # slow to import, and few statements round

    nearest, deviations = np.round(values), np.sqrt(variances)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = (nearest - values)[..., None] / deviations[..., None]
        edges = (_STEPS - 0.5) / deviations[..., None]
        beyond = ndtr(-(edges + off)) + ndtr(-(edges - off))
        few = (2 * _STEPS - 1) * beyond
        squares = np.where(variances < 1, few.sum(-1), variances + (nearest - values) ** 2 + 1 / 12)
    return np.where(variances > 0, squares, variances)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of roundings besides noise, of shape (values,); NaN where they have no bound."""

    most: Array
    """By how much they move each value at most."""
    squares: Array
    """As mean squares. What is rounded with noise, and what is without, lie anywhere in their
    steps, independently, as far as anyone knows: width²/12 for each. Little noise seldom changes
    a step; averaged over where it lies in it that is less, see `rounded`."""

    @classmethod
    def of(cls, pairs: pl.Series) -> Steps:
        """Add up what the lists of values say of roundings."""
        flat = _flat(pairs).filter(pl.col("i") < 0)
        at, sizes = flat["value"].to_numpy(), flat["c"].fill_null(np.nan).abs().to_numpy()
        most, squares = np.zeros(pairs.len()), np.zeros(pairs.len())
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(most, at, sizes)
            np.add.at(squares, at, sizes**2 / 6)
        bounded = np.isfinite(squares)
        return cls(np.where(bounded, most, np.nan), np.where(bounded, squares, np.nan))


def flat_pairs(pairs: pl.Series) -> pl.DataFrame:
    """Return one row for each statistic in a list, with the number of the value it belongs to."""
    return _flat(pairs).filter(pl.col("i") >= 0)


def _flat(pairs: pl.Series) -> pl.DataFrame:
    return (
        pl.DataFrame({"value": np.arange(pairs.len()), "pair": pairs})
        .explode("pair")
        .drop_nulls("pair")
        .unnest("pair")
    )


@dataclass(frozen=True, slots=True)
class NumberedSet:
    """A grouping set, and how its statistics and groups are numbered."""

    group: GroupingSet
    statistic: int
    row: int
    table: str
    """The one of several tables that it is about."""

    def holds(self, statistic: Ints, row: Ints) -> NDArray[np.bool_]:
        """Tell which pairs of numbers mean something in it."""
        mine = (statistic >= self.statistic) & (row >= self.row)
        mine &= statistic < self.statistic + len(self.group.columns)
        return np.asarray(mine & (row < self.row + self.group.rows))


def numbered(tables: Sequence[AnswerTable]) -> list[NumberedSet]:
    """Give the grouping sets of a statement the numbers by which lists of pairs name them."""
    numbered_columns, statistic = [], 0
    for table in tables:
        row = 0
        for group in table.sets:
            numbered_columns.append(NumberedSet(group, statistic, row, table.table))
            row += group.rows
        statistic += len(table.sets[0].columns)
    return numbered_columns


def placed_pairs(flat: pl.DataFrame, places: Sequence[NumberedSet]) -> pl.DataFrame:
    """Say for each pair which statistic of which grouping set it means, and which group."""
    statistic = flat["i"].to_numpy() // ROWS
    row = flat["i"].to_numpy() % ROWS
    sets = np.zeros(len(row), dtype=np.int64)
    column = np.zeros(len(row), dtype=np.int64)
    local = row.copy()
    for number, place in enumerate(places):  # numbers begin anew in each grouping set
        held = place.holds(statistic, row)
        sets[held], column[held] = number, statistic[held] - place.statistic
        local[held] = row[held] - place.row
    placed = flat.select("value", "c").with_columns(
        pl.Series("set", sets), pl.Series("column", column), pl.Series("row", local)
    )
    tables = pl.Series("table", [place.table for place in places])
    # A list may name a statistic several times: its coefficients are added up, in ascending
    # order, so that sums don't depend on the order of the list.
    placed = placed.sort(*_KEY, "c")
    new = placed.select(pl.struct(_KEY).rle_id().alias("run"))["run"].to_numpy()
    starts = np.flatnonzero(np.diff(new, prepend=-1))
    sums = np.add.reduceat(placed["c"].to_numpy(), starts)
    return placed[starts].with_columns(tables.gather(placed[starts]["set"]), pl.Series("c", sums))


# ── Rows that values rest on, and quotients that are divided by what may be noise alone ──────────
#
# A count rests on as many rows as it says, and so does a sum of counts. An average, a share or a
# quantile rests on those of its group: the most that any of its counts says. A sum has no count,
# and rests on the most that other values in its row do. All of these are noisy numbers of the
# release, so that to decide by them costs nothing.


FOUNDED = 3.0
"""Standard errors from zero of what is divided by; nearer, it may be noise alone. Then the quotient
is marked and has no variance: one of first order would be wrong by any factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Footing:
    """The footing of the values of a frame: what they rest on, row by row."""

    rows: Mapping[str, pl.Series]
    """Value → on how many rows, by their noisy number; NULL where no count is known."""
    unfounded: Mapping[str, pl.Series]
    """Quotient → whether what it is divided by may be noise alone."""
    ranges: Mapping[str, pl.Series]
    """Quantile → all values of its domain, in order, of which it is one."""

    @classmethod
    def of(
        cls,
        found: Mapping[str, Array],
        rows: int,
        unfounded: Mapping[str, pl.Series] | None = None,
        ranges: Mapping[str, pl.Series] | None = None,
    ) -> Footing:
        """Return what is known, with what others in a row say where nothing is known of a value.

        Args:
            found: value → on how many rows; NaN where nothing is known.
            rows: of the frame.
            unfounded: see the class.
            ranges: see the class.
        """
        most = np.full(rows, -np.inf)
        for each in found.values():
            most = np.fmax(most, each)
        filled = {name: np.where(np.isnan(each), most, each) for name, each in found.items()}
        known = {
            name: pl.Series(name, np.where(np.isfinite(each), each, np.nan)).fill_nan(None)
            for name, each in filled.items()
        }
        return cls(known, unfounded or {}, ranges or {})

    def part(self, start: int, rows: int) -> Footing:
        """Return the same of a slice of the frame."""
        return Footing(
            {name: each.slice(start, rows) for name, each in self.rows.items()},
            {name: each.slice(start, rows) for name, each in self.unfounded.items()},
            self.ranges,
        )


def unfounded(divisors: pl.Series, variances: pl.Series, *, positive: bool) -> pl.Series:
    """Say of each divisor whether it may be noise alone; in doubt it may not.

    Args:
        divisors: what is divided by.
        variances: of these.
        positive: whether nothing but noise makes them negative.
    """
    values, error = divisors.cast(pl.Float64), variances.cast(pl.Float64).sqrt()
    size = values if positive else values.abs()
    return ((error > 0) & (size < FOUNDED * error)).fill_null(value=False)


def of_statistic(answers: Answers, column: StatisticColumn, part: GroupBox) -> Array:
    """Return on how many rows a statistic rests, for every group of a part; NaN if not known."""
    if column.quantile is not None:
        return answers.distributed(column, part)
    if column.counts:
        return answers.values(column, part)
    return np.full(part.rows, np.nan)


class PairSupport:
    """On how many rows the values of a statement rest that computes on its answers."""

    def __init__(self, statement: Statement, answers: Answers) -> None:
        self._answers = answers
        self._places: Sequence[NumberedSet] = numbered(statement.tables)

    def of_values(self, pairs: pl.Series) -> Array:
        """Return on how many rows every value rests, given its list; NaN where none is known.

        A sum of counts says so itself; of all else, the largest count that it depends on.
        """
        total = np.full(pairs.len(), np.nan)
        flat = flat_pairs(pairs)
        if not flat.height:
            return total
        parts = []
        placed = placed_pairs(flat, self._places)
        for (number, j), part in placed.group_by("set", "column", maintain_order=True):
            group = self._places[int(str(number))].group
            column = group.columns[int(str(j))]
            known = of_statistic(self._answers, column, whole(group))
            at = known[part["row"].to_numpy()]
            counts = np.isfinite(at) & (column.quantile is None) & (part["c"].to_numpy() == 1.0)
            parts.append(part.select("value").with_columns(n=pl.Series(at), counts=counts))
        found = (
            pl.concat(parts)
            .group_by("value")
            .agg(
                pl.col("n").sum().alias("sum"),
                pl.col("n").fill_nan(None).max().alias("most"),
                pl.col("counts").all(),
            )
        )
        rows = found.select(pl.when("counts").then("sum").otherwise("most").alias("rows"))["rows"]
        total[found["value"].to_numpy()] = rows.cast(pl.Float64).fill_null(np.nan).to_numpy()
        return total


# ── Intervals: their reach for a confidence, and those of quotients ──────────────────────────────
#
# An interval of x/y holds the values v that a test of x − v·y = 0 doesn't exclude (Fieller, "Some
# problems in interval estimation", JRSS B 1954): those with
#
#     (x − v·y)² <= r² Var(x − v·y)    that is    A v² − 2B v + C <= 0,
#     A = y² − r² Var(y),  B = xy − r² Cov(x, y),  C = x² − r² Var(x).
#
# If x and y are Gaussian the test is exact, and so is the probability that the true value is held,
# however near to 0 the true y may be. For A > 0, where y is significantly different from 0, the
# values lie between the roots. Otherwise they don't: either all are held, or all but those
# between the roots, and it takes what is possible at all to tell on which side.
#
# x/y itself passes its own test, so an interval holds its value, unless the value is impossible:
# then it is cut off with all else that is. What rounding in floats takes off is put back
# (`holding`); and what it adds, as to a variance that is 0 whatever the noise is, is allowed for
# (`ROUNDING`).


CONFIDENCE = 0.95
"""The probability of a quantile's interval, if no other is asked for."""
ROUNDING = 1e-13
"""Share of the largest magnitude that is possible: more than floats lose in sums and products."""

_UNEQUAL = 1e6
"""The largest ratio of steps to noise, or of noise to steps, that is told from a larger one."""


def check_confidence(confidence: float | None) -> None:
    """Refuse a confidence that is not a probability.

    Raises:
        SqlError: it isn't a number between 0 and 1.
    """
    if confidence is None:
        return
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0 < confidence < 1:
        raise SqlError(
            f"A confidence of {confidence!r} is not a probability.", hint="for example 0.95."
        )


def reach(confidence: float, *, laplace: bool = False) -> float:
    """Return how many standard deviations an interval reaches to each side.

    Noise is Gaussian, or the sum of Laplace noises with any weights. One of these alone has the
    heaviest tails, P(|z| > tσ) = e^(−√2·t); of many the sum is nearly Gaussian. The wider interval
    of the two is taken.
    """
    # The lower tail, because 1/2 + c/2 would round to 1 for a c just below 1.
    gaussian = -statistics.NormalDist().inv_cdf((1 - confidence) / 2)
    return max(gaussian, -math.log1p(-confidence) / math.sqrt(2)) if laplace else gaussian


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The ends of intervals, of shape (values,); NaN where nothing is known."""

    lower: Array
    upper: Array

    def after(self, steps: Sequence[Step]) -> Interval:
        """Return intervals of monotone functions of the values."""
        interval = self
        for step in steps:
            ends = [_applied(step, end) for end in (interval.lower, interval.upper)]
            interval = Interval(np.minimum(*ends), np.maximum(*ends))
        return interval

    def holding(self, values: Array, possible: Interval) -> Interval:
        """Return intervals that reach to their values where these are possible.

        Args:
            values: NaN where there is none.
            possible: from the least to the largest value that is possible.
        """
        inside = (possible.lower <= values) & (values <= possible.upper)
        return Interval(
            np.where(inside, np.minimum(self.lower, values), self.lower),
            np.where(inside, np.maximum(self.upper, values), self.upper),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """Noisy x and y with what is known of their noise; x/y lies between two limits.

    All are of shape (values,). Limits are NaN where there are none.
    """

    top: Array
    bottom: Array
    variance_top: Array
    variance_bottom: Array
    covariance: Array
    least: Array
    largest: Array
    step_top: Array | float = 0.0
    """By how much roundings within x move it at most, besides noise."""
    step_bottom: Array | float = 0.0

    def largest_error(self) -> Array:
        """Return bounds on the standard errors of x/y for this y, whatever possible value it has.

        To first order that of x/y = v is sqrt(Var(x − v·y)) / |y|. The variance is a square in v
        whose leading coefficient Var(y) is not negative, so it is convex: between two limits it
        is largest at one of them.

        Returns:
            Shape (values,); NaN where there are no limits, or nothing is known.
        """
        ends = [
            self.variance_top - 2 * v * self.covariance + v * v * self.variance_bottom
            for v in (self.least, self.largest)
        ]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray(np.sqrt(np.maximum(np.maximum(*ends), 0.0)) / np.abs(self.bottom))

    @property
    def possible(self) -> Interval:
        """From the least to the largest value that is possible, whatever the noise is."""
        least = np.where(np.isnan(self.least), -np.inf, self.least)
        return Interval(least, np.where(np.isnan(self.largest), np.inf, self.largest))

    def _with_steps(self, reach: float) -> tuple[Array, Array, Array]:
        """Return variances of noise without roundings that excludes no v which both allow.

        With s² = Var(x − v·y), t = a + |v|·b for the steps a of x and b of y, and any k, w > 0

            (r·s + t)² <= (1 + k)·r²s² + (1 + 1/k)·t²,    t² <= a² + w·ab + v²·(b² + ab/w),

        which is a variance of the same form. Both are equal for w = |v| and k = t/rs: v is taken to
        be x/y, and s to be that of x/y or, if it is more, that of the ends by steps alone.
        """
        x, y, a, b = self.top, self.bottom, self.step_top, self.step_bottom
        v_x, v_y, v_xy = self.variance_top, self.variance_bottom, self.covariance
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            v = np.nan_to_num(x / y, nan=0.0, posinf=0.0, neginf=0.0)
            w = np.where(v == 0, 1.0, np.abs(v))
            t = a + np.abs(v) * b
            near = (v, v - t / np.abs(y), v + t / np.abs(y))
            squares = [v_x - 2 * u * v_xy + u * u * v_y for u in near]
            noise = reach * np.sqrt(np.maximum(reduce(np.fmax, squares), 0.0))
            k = np.nan_to_num(t / noise, nan=1.0)
            k = np.clip(k, 1 / _UNEQUAL, _UNEQUAL)
            share = (1 + 1 / k) / reach**2
            more = share * (a * a + w * a * b), share * (b * b + a * b / w)
        k = np.where(a + b == 0, 0.0, k)
        return v_x * (1 + k) + more[0], v_y * (1 + k) + more[1], v_xy * (1 + k)

    def interval(self, reach: float) -> Interval:
        """Return from the first to the last possible value that isn't excluded."""
        x, y, square = self.top, self.bottom, reach**2
        v_x, v_y, v_xy = self._with_steps(reach)
        possible = self.possible
        least, largest = possible.lower, possible.upper
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            a, b = y * y - square * v_y, x * y - square * v_xy
            # B² − AC, without the difference of two large numbers.
            inside = square * (v_x * y * y - 2 * v_xy * x * y + v_y * x * x)
            inside -= square**2 * (v_x * v_y - v_xy * v_xy)
            root = np.sqrt(np.maximum(inside, 0.0))
            ends = (b - root) / a, (b + root) / a
            size = np.maximum(np.abs(least), np.abs(largest))
            rounding = np.where(np.isfinite(size), ROUNDING * size, 0.0)
            low, high = np.minimum(*ends) - rounding, np.maximum(*ends) + rounding
        between = _within(low, high, least, largest)
        split = (a < 0) & (inside > 0)
        # Not between the roots: what is possible may lie on one side of them alone.
        above, below = split & (low < least), split & (high > largest)
        outside = Interval(
            np.where(above & ~below, np.maximum(high, least), least),
            np.where(below & ~above, np.minimum(low, largest), largest),
        )
        lower = np.where(a > 0, between.lower, outside.lower)
        upper = np.where(a > 0, between.upper, outside.upper)
        unknown = np.isnan(x + y + v_x + v_y + v_xy)
        # Noise may leave no root to divide by; what is possible is so all the same.
        rootless = np.isnan(y) & ~np.isnan(x)
        return Interval(
            np.where(unknown, np.where(rootless, self.least, np.nan), lower),
            np.where(unknown, np.where(rootless, self.largest, np.nan), upper),
        )


def _within(low: Array, high: Array, least: Array, largest: Array) -> Interval:
    """Cut intervals to what is possible.

    One of impossible values alone misses the truth. Rather than a point, which would look
    certain, it becomes as long an interval at the end of what is possible.
    """
    with np.errstate(invalid="ignore"):
        length = high - low
        low, high = (
            np.where(low > largest, largest - length, low),
            np.where(high < least, least + length, high),
        )
    return Interval(np.clip(low, least, largest), np.clip(high, least, largest))


def _applied(step: Step, end: Array) -> Array:
    """Apply a monotone function to ends of intervals."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        match step.name:
            case "plus":
                return np.asarray(end + step.number)
            case "times":
                return np.asarray(end * step.number)
            case "round":
                return np.asarray(np.round(end, int(step.number)))
            case "floor":
                return np.floor(end)
            case "ceil":
                return np.ceil(end)
            case "greatest":
                return np.maximum(end, step.number)
            case "least":
                return np.minimum(end, step.number)
            case "sqrt":
                return np.sqrt(np.maximum(end, 0.0))
            case "ln":
                return np.log(np.maximum(end, 0.0))
            case "exp":
                return np.exp(end)
    raise InternalError("an interval has no such step")
