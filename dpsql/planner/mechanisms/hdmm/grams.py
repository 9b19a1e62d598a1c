"""A workload as HDMM sees it: a weighted sum of Kronecker products of Gram matrices.

    WᵀW = Σ_j w_j · G_1^(j) ⊗ … ⊗ G_d^(j)

with one factor for each attribute; where family j doesn't touch an attribute, it asks for the
total along it, J.

Counting every cell of an attribute has the Gram matrix I, and the total J. Any aI + bJ has two
eigenvalues, so that attributes of which only these are asked may have millions of cells.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.workload import Family, Queries, Workload

MAX_CELLS = 2500
"""Cells of an attribute up to which a Gram matrix is written out and factorised."""


@dataclass(frozen=True, eq=False)
class Gram:
    """QᵀQ of some weighted queries over n cells: aI + bJ, plus a matrix where that isn't all."""

    cells: int
    identity: float = 0.0
    """The coefficient a."""
    total: float = 0.0
    """The coefficient b."""
    rest: Array | None = None
    """Shape (n, n)."""

    @classmethod
    def of(cls, queries: Queries) -> Gram:
        """Return the Gram matrix of queries.

        Raises:
            ResourceLimitError: it would have to be written out, and is too large for that.
        """
        n = queries.cells
        even = queries.even_gram()
        if even is not None:
            across, along = even
            return cls(n, identity=across, total=(along - across) / n)
        _check(n)
        return cls(n, rest=queries.gram())

    @property
    def plain(self) -> bool:
        """Whether it is aI + bJ."""
        return self.rest is None

    @cached_property
    def matrix(self) -> Array:
        """All of it, written out.

        Raises:
            ResourceLimitError: it is too large.
        """
        _check(self.cells)
        plain = self.identity * np.eye(self.cells) + self.total
        return plain if self.rest is None else plain + self.rest

    @cached_property
    def trace(self) -> float:
        """The sum of the squared coefficients of the queries."""
        rest = 0.0 if self.rest is None else float(np.trace(self.rest))
        return self.cells * (self.identity + self.total) + rest

    @cached_property
    def along_ones(self) -> float:
        """uᵀGu for the unit vector u along the ones: what is asked of the total."""
        rest = 0.0 if self.rest is None else float(self.rest.sum()) / self.cells
        return self.identity + self.cells * self.total + rest

    @cached_property
    def key(self) -> bytes:
        """Equal matrices, written in the same way, have equal keys."""
        rest = b"" if self.rest is None else self.rest.tobytes()
        plain = repr((self.cells, self.identity, self.total)).encode()
        return hashlib.sha256(plain + rest).digest()


def weighted_sum(cells: int, terms: Iterable[tuple[float, Gram]]) -> Gram:
    """Return Σ weight · G."""
    identity = total = 0.0
    rest: Array | None = None
    for weight, gram in terms:
        identity, total = identity + weight * gram.identity, total + weight * gram.total
        if gram.rest is not None:
            rest = weight * gram.rest if rest is None else rest + weight * gram.rest
    return Gram(cells, identity, total, rest)


def _check(cells: int) -> None:
    if cells > MAX_CELLS:
        raise ResourceLimitError(
            f"HDMM can't factorise a matrix over {cells:,} cells; the limit is {MAX_CELLS:,}.",
            hint="use a coarser domain, or another mechanism.",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Σ_j w_j ⊗_i G_i^(j). Of each attribute only few different things are asked."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    weights: Array
    """w_j, of shape (k,)."""
    roles: Ints
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
