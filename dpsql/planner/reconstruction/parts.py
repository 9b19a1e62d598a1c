"""Reconstruction of counts and measures, each of which is measured by itself.

A measure is a data vector of its own: what the counts of the same cells are says nothing of its
sums. So measurements of different ones are independent. An answer rests on one of them; if the
values have a center, on the counts of the rows that have a value, too: unit·Σv + center·N. What is
computed of several answers has the sum of the variances that it has from each part.

Where several tables are planned together, the counts of each are a measure as well, to which every
row adds 1. Nothing is measured of two tables at once, so that what is said of measures holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.planner.reconstruction.base import Aligned, Axes, Missing, Reconstruction
from dpsql.planner.reconstruction.measured import Noisy, Space, Values
from dpsql.planner.reconstruction.sources import without_axis
from dpsql.workload import Family

Measure = str | None
"""The axis of a measure; None for counts of the only table."""


class PartedReconstruction(Reconstruction):
    """How answers follow where counts and each measure are planned apart.

    Args:
        parts: measure → how its answers follow. They don't know of its axis, which has one cell.
    """

    def __init__(self, parts: Mapping[Measure, Reconstruction]) -> None:
        self._parts = dict(parts)
        self._measures = frozenset(name for name in parts if name is not None)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured, part by part."""
        return tuple(space for part in self._parts.values() for space in part.spaces)

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of: of each part, without the axis of its measure."""
        found: dict[Space, Array] = {}
        for measure, part in self._parts.items():
            found |= part.values(without_axis(noisy, measure, self._measures))
        return found

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes, one of which may be a measure."""
        measure = self._of(attributes)
        if measure is None:
            return self._parts[None].marginal(attributes, values)
        rest = [name for name in attributes if name != measure]
        found = self._parts[measure].marginal(rest, values)
        return np.expand_dims(found, list(attributes).index(measure))

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        found = np.zeros(family.shape)
        for part, factor, counts in self._terms(family):
            own = self._parts[part].variances(counts)
            found += own.reshape(family.shape) * factor**2
        return found

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        total = largest = 0.0
        for part, factor, counts in self._terms(family):
            own = self._parts[part].extent(counts, self._keys(domain))
            total, largest = total + own[0] * factor**2, largest + own[1] * factor**2
        return total, largest  # an upper bound, where the largest are at different answers

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Return the sum of those within parts; what is measured of two is independent."""
        found = np.zeros(sizes)
        others = self._aligned(second)
        for part, (factor, ours) in self._aligned(first).items():
            if part in others:
                times, theirs = others[part]
                own = self._parts[part].covariances(ours, theirs, sizes)
                found += own * (factor * times)
        return found

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Return the variance of each combination: the sum of those of its parts."""
        by_part: dict[Measure, list[tuple[Family, Array]]] = {}
        for family, coefficients in terms:
            for part, factor, counts in self._terms(family):
                by_part.setdefault(part, []).append((counts, coefficients * factor))
        if not by_part:
            raise InternalError("a combination has no terms")
        found = [
            self._parts[m].combined_variances(own, self._keys(domain)) for m, own in by_part.items()
        ]
        return np.asarray(np.sum(found, axis=0))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the attribute sets of which too little was measured to answer a family."""
        found: dict[tuple[str, ...], None] = {}
        for part, _, counts in self._terms(family):
            lacking = self._parts[part].missing(counts, self._keys(domain))
            axis = () if part is None else (part,)
            found |= dict.fromkeys((*names, *axis) for names in lacking)
        return tuple(found)

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
        return [(self._of(own.names), factor, own.counted) for own, factor in pairs]

    def _aligned(self, aligned: Aligned) -> dict[Measure, tuple[float, Aligned]]:
        """Return part → by what its answers are multiplied, and what is asked of it, aligned."""
        (measure, unit, counts), *more = self._terms(aligned.family)
        found = {measure: (unit, Aligned(counts, _counted_axes(aligned)))}
        return found | {
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
    own = (*axes, *[()] * len(present.blocks))[: len(present.blocks)]
    return _counted_axes(Aligned(present, own))


class Follows(Protocol):
    """What answers are made of, from the noisy integers of several sources."""

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
    """Of that source."""

    @property
    def used(self) -> frozenset[int]:
        """That source."""
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

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the sources of which anything counts."""
        return frozenset(
            numbers[i] for follows, numbers in self.apart.values() for i in follows.used
        )

    def values(self, given: Sequence[Noisy]) -> Values:
        """Return what the reconstruction needs, from the noisy integers of all sources."""
        measures = frozenset(name for name in self.apart if name is not None)
        found: dict[Space, Array] = {}
        for measure, (follows, numbers) in self.apart.items():
            found |= follows.values([without_axis(given[i], measure, measures) for i in numbers])
        return found
