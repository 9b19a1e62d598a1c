"""The variance of values that are computed from noisy answers.

`propagate` gives every value a list of pairs (statistic, coefficient). Its variance is cᵀΣc with
the covariance Σ of the statistics: from the covariances of one group's statistics where the list
stays within a group, and otherwise from the combined query itself.

Sums are taken in an order of their own: lists come in any order, and so do groups of a frame, but
the same measurements shall give the same variances to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError, ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.reconstruction.base import Aligned
from dpsql.release.answers import Answers
from dpsql.release.marginals import in_group_order
from dpsql.sql.compiled import AnswerTable, GroupingSet, Statement
from dpsql.sql.computing.pairs import ROWS

_KEY = ["value", "set", "column", "row"]
_STEPS = np.arange(1.0, 9.0)
"""How far noise of variance 1 moves what is rounded to whole numbers; farther in 1 of 10^13."""
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
            placed = placed_pairs(flat, self._places)
            for _, part in placed.group_by("table", maintain_order=True):
                total += self._of_table(part, values)
            if (common := self._in_common(placed, values)).any():
                total = np.maximum(total + common, 0.0)
        return np.where(np.isfinite(total), total, np.nan)

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
            found = self._reconstruction.covariances(one, two, group.shape)
            self._known[key] = np.asarray(found).ravel()
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
            own = np.arange(group.rows)  # the places in the family's own order
            order = in_group_order(own, column.axes, group.shape)
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
        found = np.where(variances < 1, few.sum(-1), variances + (nearest - values) ** 2 + 1 / 12)
    return np.where(variances > 0, found, variances)


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
    """Which of several tables it is about."""

    def holds(self, statistic: Ints, row: Ints) -> NDArray[np.bool_]:
        """Tell which pairs of numbers mean something in it."""
        mine = (statistic >= self.statistic) & (row >= self.row)
        mine &= statistic < self.statistic + len(self.group.columns)
        return np.asarray(mine & (row < self.row + self.group.rows))


def numbered(tables: Sequence[AnswerTable]) -> list[NumberedSet]:
    """Give the grouping sets of a statement the numbers by which lists of pairs name them."""
    found, statistic = [], 0
    for table in tables:
        row = 0
        for group in table.sets:
            found.append(NumberedSet(group, statistic, row, table.table))
            row += group.rows
        statistic += len(table.sets[0].columns)
    return found


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
    found = flat.select("value", "c").with_columns(
        pl.Series("set", sets), pl.Series("column", column), pl.Series("row", local)
    )
    tables = pl.Series("table", [place.table for place in places])
    # A list may name a statistic several times: its coefficients are added up, in ascending
    # order, so that sums don't depend on the order of the list.
    found = found.sort(*_KEY, "c")
    new = found.select(pl.struct(_KEY).rle_id().alias("run"))["run"].to_numpy()
    starts = np.flatnonzero(np.diff(new, prepend=-1))
    sums = np.add.reduceat(found["c"].to_numpy(), starts)
    return found[starts].with_columns(tables.gather(found[starts]["set"]), pl.Series("c", sums))
