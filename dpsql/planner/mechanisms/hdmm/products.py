"""A workload as HDMM sees it: a weighted sum of Kronecker products of Gram matrices.

    WᵀW = Σ_j w_j · G_1^(j) ⊗ … ⊗ G_d^(j)

with one factor for each attribute; where family j doesn't touch an attribute, it asks for the
total along it, J.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.mechanisms.hdmm.grams import Gram
from dpsql.workload import Family, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Σ_j w_j ⊗_i G_i^(j). Of each attribute only few different things are asked."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    weights: Array
    """w_j, of shape (k,)."""
    roles: NDArray[np.int64]
    """Which of `grams` of each attribute family j asks: shape (k, attributes)."""
    grams: tuple[tuple[Gram, ...], ...]
    """For each attribute, all that is asked of it."""

    @classmethod
    def of(cls, workload: Workload, names: Sequence[str] | None = None) -> Products:
        """Take a workload apart.

        Args:
            workload: families of which every block is over one attribute.
            names: the attributes; by default those that it touches, in domain order.

        Raises:
            ResourceLimitError: a Gram matrix is too large to be written out.
        """
        families = [f for f in workload.families if f.count]
        if names is None:
            used = frozenset().union(*(f.attributes for f in families))
            names = [name for name in workload.domain if name in used]
        known: list[dict[bytes, int]] = [{} for _ in names]
        grams: list[list[Gram]] = [[] for _ in names]
        roles = np.zeros((len(families), len(names)), dtype=np.int64)
        for j, family in enumerate(families):
            asked = {block.attributes[0]: block.queries for block in family.blocks}
            for i, name in enumerate(names):
                queries = asked.get(name)
                key = b"" if queries is None else queries.key
                if key not in known[i]:
                    known[i][key] = len(grams[i])
                    n = workload.domain[name]
                    grams[i].append(Gram(n, total=1.0) if queries is None else Gram.of(queries))
                roles[j, i] = known[i][key]
        weights = np.array([family.weight for family in families])
        sizes = tuple(workload.domain[name] for name in names)
        return cls(tuple(names), sizes, weights, roles, tuple(map(tuple, grams)))

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(self.sizes)


def jointly_asked(workload: Workload) -> Family | None:
    """Return a family that has queries over several attributes jointly, if there is one."""
    return next(
        (f for f in workload.families if any(len(b.attributes) > 1 for b in f.blocks)), None
    )
