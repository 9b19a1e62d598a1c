"""The marginals of a workload, those inside them, and how much each one matters.

The candidates of a round are all nonempty subsets of the workload's attribute sets (AIM, 4.1:
the downward closure). The candidate r has the weight

    w_r = Σ_s c_s |r ∩ s| = Σ_{i∈r} Σ_{s∋i} c_s

over the attribute sets s of the workload, with c_s the weight of the families over s: the more a
marginal shares with those that are asked for, the more its measurement improves (AIM, 4.2).
Attributes with one cell only say nothing and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations

from dpsql.workload import Workload

Attributes = tuple[str, ...]

_FINEST = 1 << 16
"""Weights are whole numbers up to this one."""


def subsets(attributes: Attributes) -> chain[Attributes]:
    """Return all subsets, the smallest first and the set itself last, each in the given order."""
    sizes = range(len(attributes) + 1)
    return chain.from_iterable(combinations(attributes, size) for size in sizes)


@dataclass(frozen=True)
class Targets:
    """The attribute sets of a workload, in domain order, without attributes of one cell."""

    sizes: Mapping[str, int]
    """Attribute → its number of cells, at least 2, in domain order."""
    weights: Mapping[Attributes, float]
    """Attribute set → the weight of the families over it."""

    @classmethod
    def of(cls, workload: Workload) -> Targets:
        """Collect the attribute sets of all families."""
        sizes = {name: n for name, n in workload.domain.items() if n > 1}
        weights: dict[Attributes, float] = {}
        for family in workload.families:
            inside = family.attributes
            attributes = tuple(name for name in sizes if name in inside)
            weights[attributes] = weights.get(attributes, 0.0) + family.weight
        return cls(sizes, weights)

    @cached_property
    def largest(self) -> tuple[Attributes, ...]:
        """The attribute sets that are inside no other."""
        inside: set[frozenset[str]] = set()
        found = []
        for attributes in sorted(self.weights, key=len, reverse=True):
            if frozenset(attributes) not in inside:
                found.append(attributes)
                inside.update(map(frozenset, subsets(attributes)))
        return tuple(found)

    @cached_property
    def closure(self) -> tuple[Attributes, ...]:
        """All subsets of the attribute sets, the smallest first, in domain order."""
        order = {name: place for place, name in enumerate(self.sizes)}
        every = {part for attributes in self.largest for part in subsets(attributes)}
        return tuple(sorted(every, key=lambda part: (len(part), [order[a] for a in part])))

    @property
    def closure_bound(self) -> int:
        """At most how many sets the closure has; cheap, where there may be too many."""
        return sum(1 << len(attributes) for attributes in self.weights)

    @cached_property
    def candidates(self) -> Mapping[Attributes, int]:
        """Candidate → w_r, as whole numbers from 1 to 65,536."""
        single = {
            name: math.fsum(weight for s, weight in self.weights.items() if name in s)
            for name in self.sizes
        }
        sums = {r: math.fsum(single[a] for a in r) for r in self.closure if r}
        unit = _FINEST / max(sums.values(), default=1.0)
        return {r: max(1, round(unit * weight)) for r, weight in sums.items()}

    def cells(self, attributes: Attributes) -> int:
        """Return the number of cells of a marginal."""
        return math.prod(self.sizes[a] for a in attributes)
