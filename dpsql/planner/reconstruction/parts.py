"""Reconstruction of counts and measures, each of which is measured by itself.

A measure is a data vector of its own: what the counts of the same cells are says nothing of its
sums. So measurements of different ones are independent. An answer rests on one of them; if the
values have a center, on the counts of the rows that have a value, too: unit·Σv + center·N. What is
computed of several answers has the sum of the variances that it has from each part.

Where several tables are planned together, the counts of each are a measure as well, to which every
row adds 1. All that is measured of two tables at once are differences of their counts. These move
the answers of either table with its count, and give those of two a covariance (see below).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.measurement.differences import Condition, Difference
from dpsql.measurement.narrow import Kept
from dpsql.planner.reconstruction.base import LARGE, Aligned, Axes, Missing, Reconstruction, placed
from dpsql.planner.reconstruction.measured import Noisy, Space, Values
from dpsql.planner.reconstruction.sources import without_axis
from dpsql.workload import Family, Workload
from dpsql.workload.workload import UnitTable

Measure = str | None
"""The axis of a measure; None for counts of the only table."""


class PartedReconstruction(Reconstruction):
    """The reconstruction of answers where counts and each measure are planned apart.

    Args:
        parts: measure → how its answers follow. They don't know of its axis, which has one cell.
        differences: what is measured of the counts of two tables.
    """

    def __init__(
        self, parts: Mapping[Measure, Reconstruction], differences: Sequence[Difference] = ()
    ) -> None:
        self._parts = dict(parts)
        self._measures = frozenset(name for name in parts if name is not None)
        self.differences = tuple(differences)
        """Measured differences between the totals of two tables."""
        named = {name: part for name, part in parts.items() if name is not None}
        self._totals = Totals(named if differences else {}, differences)
        self._moves = {name: Space((name,), (), 0.0) for name in self._totals.counts}
        """Stand for how much counts move answers, among what these are made of."""

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces, part by part."""
        return tuple(space for part in self._parts.values() for space in part.spaces)

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of: of each part, without the axis of its measure."""
        values: dict[Space, Array] = {}
        for measure, part in self._parts.items():
            values |= part.values(without_axis(noisy, measure, self._measures))
        return self.moved(values, [noisy[difference.space] for difference in self.differences])

    def moved(self, values: Values, measured: Sequence[Kept]) -> Values:
        """Add to what answers are made of how much the measured differences move totals."""
        moves = self._totals.moves(values, measured)
        return {**values, **{self._moves[name]: np.array(by) for name, by in moves.items()}}

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes, one of which may be a measure."""
        measure = self._of(attributes)
        if measure is None:
            return self._parts[None].marginal(attributes, values)
        rest = [name for name in attributes if name != measure]
        answers = self._parts[measure].marginal(rest, values)
        for count in self._totals.of(measure):
            answers = answers + values[self._moves[count]] * self._totals.covariance(count, rest)
        return np.expand_dims(answers, list(attributes).index(measure))

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        variances = np.zeros(family.shape)
        for part, factor, counts in self._terms(family):
            of_part = self._parts[part].variances(counts)
            variances += of_part.reshape(family.shape) * factor**2
        leans = self.leans(family)
        return np.asarray(variances + self._totals.products(leans, leans))

    def saved(self, workload: Workload) -> float:
        """Return by how much the sum of weight·variance is less for the differences of totals.

        Or a little less than that: of families with very many answers nothing is known.
        """
        if not self._moves:
            return 0.0
        leans = ((f, self.leans(f)) for f in workload.families if 0 < f.count <= LARGE)
        return -math.fsum(
            family.weight * float(np.sum(self._totals.products(lean, lean)))
            for family, lean in leans
        )

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        total = largest = 0.0
        for part, factor, counts in self._terms(family):
            of_part = self._parts[part].extent(counts, self._keys(domain))
            total, largest = total + of_part[0] * factor**2, largest + of_part[1] * factor**2
        # An upper bound, where the largest are at different answers, or differences of totals help.
        return total, largest

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Return the sum of those within parts, and what they have of totals that were compared."""
        covariances = np.zeros(sizes)
        others = self._aligned(second)
        for part, (factor, ours) in self._aligned(first).items():
            if part in others:
                times, theirs = others[part]
                of_part = self._parts[part].covariances(ours, theirs, sizes)
                covariances += of_part * (factor * times)
        leans, those = (self._placed_leans(side, sizes) for side in (first, second))
        return np.asarray(covariances + self._totals.products(leans, those))

    @property
    def by_table(self) -> PartedReconstruction:
        """The reconstruction from what was measured of each part by itself."""
        return PartedReconstruction(self._parts) if self._moves else self

    def in_common(self, leans: Mapping[str, Array]) -> Array:
        """Return what differences of totals add to the variance of values that lean so."""
        return self._totals.products(leans, leans)

    def leans(self, family: Family) -> dict[str, Array]:
        """Return covariances of answers with counts that are compared, in the family's shape."""
        leans: dict[str, Array] = {}
        for part, factor, counts in self._terms(family):
            for count in () if part is None else self._totals.of(part):
                lean = self._totals.lean(count, counts).reshape(family.shape) * factor
                leans[count] = leans[count] + lean if count in leans else lean
        return leans

    def _placed_leans(self, aligned: Aligned, sizes: tuple[int, ...]) -> dict[str, Array]:
        """Return the same, laid along base axes."""
        leans: dict[str, Array] = {}
        for part, (factor, part_family) in self._aligned(aligned).items():
            for count in () if part is None else self._totals.of(part):
                lean = self._totals.lean(count, part_family.family) * factor
                leans[count] = placed(lean, [a for axes in part_family.axes for a in axes], sizes)
        return leans

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Return the variance of each combination: the sum of those of its parts."""
        by_part: dict[Measure, list[tuple[Family, Array]]] = {}
        leans: dict[str, Array] = {}
        for family, coefficients in terms:
            for part, factor, counts in self._terms(family):
                by_part.setdefault(part, []).append((counts, coefficients * factor))
            for count, lean in self.leans(family).items():
                flat = np.asarray(coefficients).reshape(-1, family.count)
                leans[count] = leans.get(count, np.zeros(len(flat))) + flat @ lean.ravel()
        if not by_part:
            raise InternalError("a combination has no terms")
        variances = [
            self._parts[m].combined_variances(of_part, self._keys(domain))
            for m, of_part in by_part.items()
        ]
        return np.asarray(np.sum(variances, axis=0) + self._totals.products(leans, leans))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the attribute sets of which too little was measured to answer a family."""
        lacking_: dict[tuple[str, ...], None] = {}
        for part, _, counts in self._terms(family):
            lacking = self._parts[part].missing(counts, self._keys(domain))
            axis = () if part is None else (part,)
            lacking_ |= dict.fromkeys((*names, *axis) for names in lacking)
        return tuple(lacking_)

    def _of(self, names: Sequence[str]) -> Measure:
        """Return the measure that is among some attributes."""
        return next((name for name in names if name in self._parts), None)

    def _keys(self, domain: Mapping[str, int]) -> Mapping[str, int]:
        """Return the attributes that are not measures."""
        return {name: n for name, n in domain.items() if name not in self._measures}

    def _terms(self, family: Family) -> list[tuple[Measure, float, Family]]:
        """Return on which parts a family rests, with the factor and the counts of each."""
        factors = family.unit, family.center
        pairs = zip(family.rests_on, factors, strict=False)
        return [(self._of(family.names), factor, family.counted) for family, factor in pairs]

    def _aligned(self, aligned: Aligned) -> dict[Measure, tuple[float, Aligned]]:
        """Return part → by what its answers are multiplied, and what is asked of it, aligned."""
        (measure, unit, counts), *more = self._terms(aligned.family)
        aligned_parts = {measure: (unit, Aligned(counts, _counted_axes(aligned)))}
        return aligned_parts | {
            part: (factor, Aligned(restored, _restored_axes(aligned)))
            for part, factor, restored in more
        }


def _counted_axes(aligned: Aligned) -> tuple[Axes, ...]:
    """Leave the axis of a measure out, of which one cell is asked."""
    pairs = zip(aligned.family.blocks, aligned.axes, strict=True)
    return tuple(axes for block, axes in pairs if block.bound is None)


def _restored_axes(aligned: Aligned) -> tuple[Axes, ...]:
    """Return the same for the counts that go with sums, whose further blocks have one row."""
    present, axes = aligned.family.present, aligned.axes
    if present is None:
        return _counted_axes(aligned)
    axes_present = (*axes, *[()] * len(present.blocks))[: len(present.blocks)]
    return _counted_axes(Aligned(present, axes_present))


class Follows(Protocol):
    """The values that answers are made of, from the noisy integers of several sources."""

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the sources of which anything counts."""
        ...

    def values(self, given: Sequence[Noisy]) -> Values:
        """Return what the reconstruction needs."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LastAlone:
    """The last of some sources, without the others."""

    reconstruction: Reconstruction
    number: int
    """The number of that measurement within its source."""

    @property
    def used(self) -> frozenset[int]:
        """The number of that source."""
        return frozenset({self.number})

    def values(self, given: Sequence[Noisy]) -> Values:
        """Read it."""
        return self.reconstruction.values(given[self.number])


@dataclass(frozen=True, slots=True, eq=False)
class PartedCombination:
    """Sources put together for counts, and for each measure."""

    reconstruction: PartedReconstruction
    apart: Mapping[Measure, tuple[Follows, tuple[int, ...]]]
    """With the numbers of the sources that may be put together for each."""
    compared: tuple[int, ...] = ()
    """The numbers of the sources that measured the differences of the reconstruction."""

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the sources of which anything counts."""
        return frozenset(
            numbers[i] for follows, numbers in self.apart.values() for i in follows.used
        )

    def values(self, given: Sequence[Noisy]) -> Values:
        """Return what the reconstruction needs, from the noisy integers of all sources."""
        measures = frozenset(name for name in self.apart if name is not None)
        values: dict[Space, Array] = {}
        for measure, (follows, numbers) in self.apart.items():
            values |= follows.values([without_axis(given[i], measure, measures) for i in numbers])
        compared = zip(self.reconstruction.differences, self.compared, strict=True)
        return self.reconstruction.moved(values, [given[i][d.space] for d, i in compared])


# ── Counts of several tables, of which differences were measured as well ─────────────────────────
#
# What is measured of each table by itself has independent noise. Let t be the estimates of the
# counts that are compared, of all rows of a table or of those that satisfy a condition, and V their
# covariance: those of different tables have none. Differences y = Gx + noise of variance N
# (`measurement.differences`) then move all estimates at once, by weighted least squares: any answer
# a, of whatever table, with the covariances γ_a with t, by
#
#     γ_aᵀ Gᵀ(G V Gᵀ + N)⁻¹ (y − Gt) .
#
# As y − Gt has the mean 0, it stays unbiased; and as it has the covariance G V Gᵀ + N, and −Gγ_a
# with a, answers have the covariances
#
#     Cov(a', b') = Cov(a, b) − γ_aᵀ S γ_b ,   S = Gᵀ(G V Gᵀ + N)⁻¹ G ,
#
# whatever weights the estimates have: less for every combination, as S has no negative eigenvalue.


Leans = Mapping[str, Array]
"""Count that is compared → γ, the covariance of each answer with it."""


class Totals:
    """The moves of the counts of tables by differences, and how much less variance they have.

    Args:
        parts: table → how answers follow from what was measured of it alone.
        differences: what was measured of the counts of two of them.
    """

    def __init__(
        self, parts: Mapping[str, Reconstruction], differences: Sequence[Difference]
    ) -> None:
        totals: dict[tuple[str, Condition | None], Values] = {}
        used = list[tuple[int, Difference]]()
        for number, difference in enumerate(differences):
            for table, condition in difference.sides:
                if (table, condition) not in totals and table in parts:
                    of = parts[table].with_count(table, condition)
                    totals |= {} if of is None else {(table, condition): of}
            if all(side in totals for side in difference.sides):
                used.append((number, difference))
        self.differences = tuple(used)
        """Those that say something of the parts, with their numbers."""
        sides = dict.fromkeys(side for _, difference in used for side in difference.sides)
        self._counts = {f"{i} {table}": (table, of) for i, (table, of) in enumerate(sides)}
        self._number = {side: i for i, side in enumerate(sides)}
        self._parts = {table: parts[table] for table, _ in sides}
        self._with = {name: totals[side] for name, side in self._counts.items()}
        self._covariances = np.array(
            [
                [self._count(side, self._with[name]) if side[0] == table else 0.0 for side in sides]
                for name, (table, _) in self._counts.items()
            ]
        ).reshape(len(sides), len(sides))
        rows = [self._row(difference) for _, difference in self.differences]
        self._rows = np.array(rows).reshape(len(rows), len(sides))
        inner = np.eye(len(rows)) + self._rows @ self._covariances @ self._rows.T
        self._gain = np.linalg.solve(inner, self._rows).T
        change = self._gain @ self._rows
        self.change = -(change + change.T) / 2
        """−S: what is added to covariances of answers that are the counts themselves over V."""

    def of(self, table: str) -> tuple[str, ...]:
        """Return the counts of a table that are compared."""
        return tuple(name for name, (of_table, _) in self._counts.items() if of_table == table)

    @property
    def counts(self) -> tuple[str, ...]:
        """All counts that are compared."""
        return tuple(self._counts)

    def _count(self, side: tuple[str, Condition | None], values: Values) -> float:
        """Return a count, of what answers about its table are made of."""
        table, condition = side
        if condition is None:
            return float(self._parts[table].marginal((), values))
        cells = self._parts[table].marginal(condition.named(table), values)
        return float(cells[condition.counted].sum())

    def _row(self, difference: Difference) -> list[float]:
        """Return a row of G, for noise of variance 1."""
        sd = math.sqrt(difference.law.variance)
        row = [0.0] * len(self._number)
        for side, times, sign in zip(difference.sides, difference.times, (1, -1), strict=True):
            row[self._number[side]] = sign * times / sd
        return row

    def moves(self, values: Values, measured: Sequence[Kept]) -> dict[str, float]:
        """Return by how much each count moves answers, for a covariance of 1 with it.

        Args:
            values: what answers of the parts are made of.
            measured: the noisy numbers of all differences.
        """
        counts = np.array([self._count(side, values) for side in self._number])
        totals = [
            float(measured[number].ravel()[0]) / math.sqrt(difference.law.variance)
            for number, difference in self.differences
        ]
        moved = self._gain @ (np.array(totals) - self._rows @ counts)
        return dict(zip(self._counts, moved, strict=True))

    def covariance(self, count: str, attributes: Sequence[str]) -> Array:
        """Return γ of each cell of a marginal of the table of a count."""
        table, _ = self._counts[count]
        return self._parts[table].marginal(attributes, self._with[count])

    def lean(self, count: str, family: Family) -> Array:
        """Return γ of each answer to a family of counts of the count's table, in its shape."""
        if not family.count:
            return np.zeros(family.shape)
        cells = self.covariance(count, family.names).ravel()
        return np.asarray((family.queries @ cells).reshape(family.shape))

    def products(self, first: Leans, second: Leans) -> Array:
        """Return −γᵀSγ': what is added to covariances of answers that lean so."""
        products: Array = np.zeros(())
        for count, ours in first.items():
            for other, theirs in second.items():
                change = self.change[self.counts.index(count), self.counts.index(other)]
                products = products + ours * theirs * change
        return products


# ── Reconstruction of what one table is asked, from what is known of several together ────────────


class AmongOthers(Reconstruction):
    """The reconstruction of answers about one table from what was measured of several.

    Args:
        table: the one that is asked, in the names that it has among several.
        together: how answers about all of them follow.
        measures: the axes of what is added up of it, by these names.
    """

    def __init__(
        self, table: UnitTable, together: Reconstruction, measures: Collection[str | None]
    ) -> None:
        self._table, self._together = table, together
        self._sums = frozenset(measures) - {table.name}

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The spaces that are measured of all tables."""
        return self._together.spaces

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes of the table."""
        names = tuple(map(self._table.attribute, attributes))
        if not self._sums.isdisjoint(names):
            return self._together.marginal(names, values)
        return np.asarray(self._together.marginal((*names, self._table.name), values)[..., 0])

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        variances = self._together.variances(self._table.family(family))
        return variances.reshape(family.shape)

    def extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Return the sum of a family's variances, and the largest."""
        return self._together.extent(self._table.family(family), self._table.renamed(domain))

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        return self.extent(family, domain)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        return self._together.covariances(self._aligned(first), self._aligned(second), sizes)

    def _aligned(self, of_table: Aligned) -> Aligned:
        """Name what is asked as among several; counts get the axis of the table's counts."""
        axes = of_table.axes if of_table.family.measure is not None else (*of_table.axes, ())
        return Aligned(self._table.family(of_table.family), axes)

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Return the variance of each combination."""
        named = [(self._table.family(family), coefficients) for family, coefficients in terms]
        return self._together.combined_variances(named, self._table.renamed(domain))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the attribute sets of which too little was measured to answer a family."""
        lacking = self._together.missing(self._table.family(family), self._table.renamed(domain))
        named = (map(self._table.own, names) for names in lacking)
        return tuple(tuple(name for name in names if name is not None) for names in named)
