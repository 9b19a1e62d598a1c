"""Reconstruction from marginals: each query from one of them, or all of them by least squares.

*From one marginal*, measured by a strategy for all of its cells. With y = (⊗B_i) x_B + z and
factors of full column rank, x̂_B = (⊗B_i⁺) y is the least squares estimate; with fewer rows it still
is one of all queries in their span. Then q(x̂_B) has

    variance = Var(z) ‖q (⊗B_i⁺)‖² ,

which is what residual spaces have too, if references are 0: then everything is kept, and nothing
dropped. So a `ResidualReconstruction` with such references does the work for each marginal.

*From all marginals*, whose cells are measured directly, by least squares.
A marginal over B, of which each cell is measured with noise of variance v_B, tells of the residual
space A ⊆ B what is left of its cells when the axes of B∖A are added up and those of A centered: an
estimate with noise v_B · ∏_{i∈B∖A} n_i in each direction. These projections of all marginals share
their eigenspaces, which are the residual spaces (HDMM, JPC 2023, 7), so that least squares
is done for each A apart: estimates are averaged with weights

    w_B ∝ p_B = 1 / (v_B · ∏_{i∈B∖A} n_i) ,

and the average has noise 1/Σ p_B. From there on all is as if A had been measured by nI − J on each
axis with noise of variance ∏_{i∈A} n_i² / Σ p_B.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Exchangeable
from dpsql.linalg.sets import subsets
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IntegerFactor
from dpsql.measurement.narrow import Kept
from dpsql.planner.reconstruction.base import Aligned, Missing, Reconstruction, touched_by
from dpsql.planner.reconstruction.measured import MeasuredFactor, Noisy, Space, Values
from dpsql.planner.reconstruction.residual import ResidualReconstruction
from dpsql.planner.reconstruction.sources import Reading
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Block, Family, Workload
from dpsql.workload.factors import Total
from dpsql.workload.workload import by_attributes


@dataclass(frozen=True, eq=False)
class Place:
    """One measured marginal."""

    space: Space
    """Its factors have independent columns, or at least independent rows."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Attribute → number of cells."""
        shapes = {
            axis: n for f in self.space.factors for axis, n in zip(f.axes, f.shape, strict=True)
        }
        return {name: shapes[axis] for axis, name in enumerate(self.space.attributes)}

    @cached_property
    def reconstruction(self) -> ResidualReconstruction:
        """The reconstruction of queries over all of its attributes."""
        return ResidualReconstruction(
            [self.space], {a: Reference.nothing(n) for a, n in self.sizes.items()}
        )

    @cached_property
    def full(self) -> bool:
        """Whether every query over its attributes follows."""
        return all(f.measurements >= math.prod(f.shape) for f in self.space.factors)

    def answers(self, attributes: frozenset[str]) -> bool:
        """Whether queries over some attributes follow: all, or only those that were measured."""
        return attributes <= set(self.sizes) if self.full else attributes == set(self.sizes)

    def spans(self, family: Family) -> bool:
        """Whether the queries of a family follow."""
        if self.full or not self.answers(family.attributes):
            return self.full and self.answers(family.attributes)
        factors = {self.space.of(f): f for f in self.space.factors}
        return all(
            b.attributes in factors and _spans(factors[b.attributes], b.queries.matrix)
            for b in family.blocks
        )

    def whole(self, family: Family) -> Family:
        """Return the family over all of the attributes: the others are summed over."""
        more = tuple(
            Block((name,), (n,), Total().bind(n))
            for name, n in self.sizes.items()
            if name not in family.attributes
        )
        return replace(family, blocks=(*family.blocks, *more))

    def others(self, family: Family) -> int:
        """Count the attributes that are summed over."""
        return len(self.sizes) - len(family.attributes)

    def mean_variance(self, attributes: frozenset[str]) -> float:
        """Return the mean variance of the cells of a marginal inside this one."""
        factors = self.space.factors
        return self.space.noise * math.prod(
            _mean_square(f, self.space.of(f), attributes) for f in factors
        )


def _spans_all(families: Sequence[Family], place: Place) -> bool:
    return all(place.spans(family) for family in families)


def _spans(factor: MeasuredFactor, queries: Array) -> bool:
    """Whether queries over the axes of a factor lie in the span of its rows."""
    left = queries - (queries @ factor.real.pinv(factor.shape)) @ factor.real
    return bool((np.abs(left) <= 1e-9 * max(1.0, float(np.abs(queries).max(initial=0.0)))).all())


def _mean_square(factor: MeasuredFactor, names: tuple[str, ...], kept: frozenset[str]) -> float:
    """Return the mean of ‖e B⁺‖² over the cells of some axes, the others summed over."""
    inverse = factor.real.pinv(factor.shape)
    if len(names) == 1:
        cells = Exchangeable(inverse.rows) if names[0] in kept else Total().bind(inverse.rows)
        return float(inverse.image_squares(cells).mean())
    table = LabeledArray((*names, ""), inverse.matrix.reshape(*factor.shape, -1))
    left = table.project([*(a for a in names if a in kept), ""]).reshape(-1, inverse.cells)
    return float(np.square(left).sum()) / len(left)


class MarginalReconstruction(Reconstruction):
    """The reconstruction of answers from marginals. Each query is answered from one of them.

    That is the marginal which gives the cells over the query's attributes the least variance, so
    that answers over the same attributes agree. One of which only some queries were measured, and
    not all cells, is taken if all queries that are asked over its attributes follow from it.
    """

    reading = "marginals"

    def __init__(self, spaces: Iterable[Space], families: Iterable[Family] = ()) -> None:
        self.places = tuple(Place(space) for space in spaces)
        self._chosen: dict[frozenset[str], Place] = {}
        for attributes, of_marginal in by_attributes(families).items():
            self._choose(attributes, partial(_spans_all, of_marginal))

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces."""
        return tuple(place.space for place in self.places)

    def errors_by_marginal(self, workload: Workload) -> dict[frozenset[str], float]:
        """Return the weighted sum of the variances of what is answered from each marginal."""
        errors: dict[frozenset[str], float] = defaultdict(float)
        for family in workload.families:
            if family.count:
                measured = self.place(family.attributes).space.attributes
                total, _ = self.extent(family, workload.domain)
                errors[frozenset(measured)] += family.weight * total
        return errors

    def place(self, attributes: frozenset[str]) -> Place:
        """Return the marginal that answers queries over some attributes."""
        if attributes not in self._chosen:
            self._choose(attributes, lambda place: place.full)
        if attributes not in self._chosen:
            self._choose(attributes, lambda place: place.answers(attributes))
        if attributes not in self._chosen:
            raise InternalError("no marginal was measured that answers a query")
        return self._chosen[attributes]

    def _choose(self, attributes: frozenset[str], able: Callable[[Place], bool]) -> None:
        able_places = [p for p in self.places if p.answers(attributes) and able(p)]
        if able_places:
            self._chosen[attributes] = min(able_places, key=lambda p: p.mean_variance(attributes))

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        place = self.place(frozenset(attributes))
        names = place.space.attributes
        table = LabeledArray(names, place.reconstruction.marginal(names, values))
        return table.project(attributes)

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        place = self.place(family.attributes)
        return place.reconstruction.variances(place.whole(family)).reshape(family.shape)

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Take both exactly: one marginal's variances are outer products of short tables."""
        place = self.place(family.attributes)
        tables = place.reconstruction.inverses().tables(place.whole(family).blocks, place.space)
        noise = place.space.noise
        total = noise * math.prod(float(t.sum()) for t in tables)
        return total, noise * math.prod(float(t.max(initial=0.0)) for t in tables)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Answers from different marginals are independent."""
        ours, theirs = (self.place(side.family.attributes) for side in (first, second))
        if ours is not theirs:
            return np.zeros(sizes)
        one, two = (
            Aligned(ours.whole(side.family), (*side.axes, *[()] * ours.others(side.family)))
            for side in (first, second)
        )
        return ours.reconstruction.covariances(one, two, sizes)

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Add up over the marginals, see `Reconstruction.combined_variances`."""
        total = np.zeros(len(terms[0][1]))
        for place in self.places:
            of_place = [(place.whole(f), c) for f, c in terms if self.place(f.attributes) is place]
            if of_place:
                total += place.reconstruction.combined_variances(of_place, domain)
        return total

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the family's attributes, if no marginal answers all of it."""
        if not family.count:
            return ()
        able = any(place.answers(family.attributes) for place in self.places)
        if able and self.place(family.attributes).spans(family):
            return ()
        return (touched_by(family, domain),)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """One marginal whose cells were measured directly."""

    attributes: tuple[str, ...]
    sizes: Mapping[str, int]
    scale: float
    """The factor by which the count of each cell was multiplied."""
    variance: float
    """The variance of one cell's estimate."""

    @classmethod
    def of(cls, space: Space) -> _Cells:
        scale, sizes = 1.0, dict[str, int]()
        for factor in space.factors:
            each = factor.real.cell_squares()
            if each is None or (factor.real.is_written and factor.measurements > 1):
                raise InternalError("only cells that are measured directly can be pooled")
            scale *= math.sqrt(each[0])
            sizes |= dict(zip(space.of(factor), factor.shape, strict=True))
        return cls(space.attributes, sizes, scale, space.noise / scale**2)

    def precision(self, attributes: frozenset[str]) -> float:
        """Return p_B for a residual space inside."""
        others = math.prod(n for name, n in self.sizes.items() if name not in attributes)
        return 1 / (self.variance * others)


class PooledReconstruction(ResidualReconstruction):
    """The reconstruction of answers from marginals measured directly, all of them together."""

    reading = "pooled"

    def __init__(self, measured: Iterable[Space]) -> None:
        self._measured_cells = [_Cells.of(space) for space in measured]
        self._sizes = {a: n for m in self._measured_cells for a, n in m.sizes.items()}
        self._inside: dict[frozenset[str], list[_Cells]] = {}
        for cells in self._measured_cells:
            names = [a for a in cells.attributes if cells.sizes[a] > 1]
            for part in subsets(names):
                self._inside.setdefault(frozenset(part), []).append(cells)
        spaces = [self._space(part) for part in self._inside]
        super().__init__(spaces, {a: Reference.of_cells(n) for a, n in self._sizes.items()})

    def values(self, noisy: Noisy) -> Values:
        """Return the averaged residuals, scaled as if they had been measured by nI − J."""
        return {space: self._average(space.attributes, noisy) for space in self.spaces}

    def errors_by_marginal(self, workload: Workload) -> dict[frozenset[str], float]:
        """Return the weighted sum of variances that the noise in each marginal gives."""
        errors: dict[frozenset[str], float] = defaultdict(float)
        for space, error in self.errors(workload):
            for marginal, part in self._contributions(space):
                errors[marginal] += part * error
        return errors

    def _contributions(self, attributes: Sequence[str]) -> Iterator[tuple[frozenset[str], float]]:
        """Yield how much of the error in a residual space is due to each measured marginal."""
        inside = self._inside[frozenset(attributes)]
        precisions = [m.precision(frozenset(attributes)) for m in inside]
        for cells, precision in zip(inside, precisions, strict=True):
            yield frozenset(cells.attributes), precision / math.fsum(precisions)

    def _space(self, attributes: frozenset[str]) -> Space:
        names = tuple(a for a in self._sizes if a in attributes)
        factors: tuple[IntegerFactor, ...] = tuple(
            CenteredFactor((axis,), (self._sizes[a],), 1) for axis, a in enumerate(names)
        ) or (DenseFactor((), (), np.array([[1]], dtype=np.int64)),)
        precision = math.fsum(m.precision(attributes) for m in self._inside[attributes])
        squares = math.prod(self._sizes[a] for a in names) ** 2
        return Space(names, factors, squares / precision)

    def _average(self, names: Sequence[str], noisy: Noisy) -> Array:
        inside = self._inside[frozenset(names)]
        weights = np.array([m.precision(frozenset(names)) for m in inside])
        total: Array = np.zeros([self._sizes[a] for a in names] or [1])
        for cells, weight in zip(inside, weights / weights.sum(), strict=True):
            total += weight * _inside(cells, names, noisy[frozenset(cells.attributes)])
        for axis in range(len(names)):
            total = total.shape[axis] * (total - total.mean(axis=axis, keepdims=True))
        return total


def _inside(cells: _Cells, names: Sequence[str], noisy: Kept) -> Array:
    """Return the estimate of a marginal inside a measured one."""
    counts = LabeledArray.of(cells.attributes, cells.sizes, noisy.astype(np.float64) / cells.scale)
    return np.atleast_1d(counts.project(names))


def of_marginals(
    spaces: Sequence[Space], families: Iterable[Family], reading: Reading
) -> PooledReconstruction | MarginalReconstruction:
    """Return how families are answered from marginals: from all together, or each from one."""
    if reading == PooledReconstruction.reading:
        return PooledReconstruction(spaces)
    return MarginalReconstruction(spaces, families)
