"""Recovery from marginals that are measured as they are, each by a strategy for all of its cells.

Every query is answered from one marginal. With y = (⊗B_i) x_B + z and factors of full column rank,
x̂_B = (⊗B_i⁺) y is the least squares estimate; with fewer rows it still is one of all queries in
their span. Then q(x̂_B) has

    variance = Var(z) ‖q (⊗B_i⁺)‖² ,

which is what residual spaces have too, if references are 0: then everything is kept, and nothing
dropped. So a `Recovery` with such references does the work for each marginal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.integer import IdentityFactor
from dpsql.planner.reconstruction.measured import (
    MeasuredFactor,
    Noisy,
    Space,
    Values,
    pseudo_inverse,
    read,
)
from dpsql.planner.reconstruction.residual import Recovery
from dpsql.planner.residuals.averaging import Reference
from dpsql.workload import Block, Family
from dpsql.workload.factors import Total

Array = NDArray[np.float64]


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
    def recovery(self) -> Recovery:
        """How queries over all of its attributes follow."""
        return Recovery([self.space], {a: Reference.nothing(n) for a, n in self.sizes.items()})

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
    left = queries - (queries @ pseudo_inverse(factor)) @ factor.matrix
    return bool((np.abs(left) <= 1e-9 * max(1.0, float(np.abs(queries).max(initial=0.0)))).all())


def _mean_square(factor: MeasuredFactor, names: tuple[str, ...], kept: frozenset[str]) -> float:
    """Return the mean of ‖e B⁺‖² over the cells of some axes, the others summed over."""
    if isinstance(factor, IdentityFactor):
        return (1 if names[0] in kept else factor.cells) / factor.scale**2
    tensor = pseudo_inverse(factor).reshape(*factor.shape, -1)
    gone = tuple(i for i, name in enumerate(names) if name not in kept)
    left = tensor.sum(axis=gone).reshape(-1, tensor.shape[-1])
    return float(np.square(left).sum()) / len(left)


class MarginalRecovery:
    """How answers and variances follow from marginals. Each query is answered from one of them.

    That is the marginal which gives the cells over the query's attributes the least variance, so
    that answers over the same attributes agree. One of which only some queries were measured, and
    not all cells, is taken if all queries that are asked over its attributes follow from it.
    """

    def __init__(self, spaces: Iterable[Space], families: Iterable[Family] = ()) -> None:
        self.places = tuple(Place(space) for space in spaces)
        self._chosen: dict[frozenset[str], Place] = {}
        asked: dict[frozenset[str], list[Family]] = {}
        for family in families:
            if family.count:
                asked.setdefault(family.attributes, []).append(family)
        for attributes, own in asked.items():
            self._choose(attributes, partial(_spans_all, own))

    @property
    def references(self) -> Mapping[str, Reference]:
        """None: there are no residual spaces."""
        return {}

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured."""
        return tuple(place.space for place in self.places)

    def determines(self, family: Family) -> bool:
        """Whether a family follows from what was measured."""
        able = any(place.answers(family.attributes) for place in self.places)
        return able and self.place(family.attributes).spans(family)

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
        found = [p for p in self.places if p.answers(attributes) and able(p)]
        if found:
            self._chosen[attributes] = min(found, key=lambda p: p.mean_variance(attributes))

    def by_place(
        self, terms: Sequence[tuple[Family, Array]]
    ) -> Iterator[tuple[Place, list[tuple[Family, Array]]]]:
        """Group terms by the marginal that answers them."""
        for place in self.places:
            own = [term for term in terms if self.place(term[0].attributes) is place]
            if own:
                yield place, own

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of, from the noisy integers of every marginal."""
        return read(self.spaces, noisy)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        place = self.place(frozenset(attributes))
        names = place.space.attributes
        tensor = place.recovery.marginal(names, values)
        tensor = tensor.sum(axis=tuple(i for i, a in enumerate(names) if a not in attributes))
        left = [a for a in names if a in attributes]
        return np.asarray(tensor.transpose([left.index(a) for a in attributes]))

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        place = self.place(family.attributes)
        return place.recovery.variances(place.whole(family)).reshape(family.shape)

    def extent(self, family: Family) -> tuple[float, float]:
        """Return the sum of a family's variances, and the largest, however many they are.

        One marginal's variances are outer products of short tables.
        """
        place = self.place(family.attributes)
        tables = place.recovery.tables(place.whole(family).blocks, place.space)
        noise = place.space.noise
        total = noise * math.prod(float(t.sum()) for t in tables)
        return total, noise * math.prod(float(t.max(initial=0.0)) for t in tables)
