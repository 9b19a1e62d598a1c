"""Strategies over several attributes, put together from those over each: OPT_⊗ and OPT_+.

A workload is seen as a weighted sum of Kronecker products of Gram matrices,

    WᵀW = Σ_j w_j · G_1^(j) ⊗ … ⊗ G_d^(j)

with one factor for each attribute; where family j doesn't touch an attribute, it asks for the
total along it, J. Counting every cell of an attribute has the Gram matrix I. Any aI + bJ has two
eigenvalues, so that attributes of which only these are asked may have millions of cells.

*OPT_⊗: one Kronecker product of strategies, for a union of products (HDMM, 6, Definition 18).*
The error of A = A_1 ⊗ … ⊗ A_d is a sum over the families of products over the attributes,

    E = Σ_j w_j Π_i e_ij ,   e_ij = tr((A_iᵀA_i)⁺ G_i^(j))      (equation 6.1)

so that with all strategies but one fixed, the last one is best for one surrogate Gram matrix,
Σ_j w_j Π_{i'≠i} e_i'j · G_i^(j) (equation 6.2). The attributes take turns until nothing is gained.
For a single family one turn each is enough, and is optimal where the oracle is.

*OPT_+: a product strategy for each set of attributes (HDMM, 6.2, Definition 19).*
Each group of families is served by one product and answered from its measurements only. With E_g
the error of group g at sensitivity 1 and c_g its share, E_g/c_g² is left of it, and the least sum
of these is

    Gaussian   Σ c_g² = 1    c_g² ∝ √E_g     (Σ √E_g)²
    Laplace    Σ c_g = 1     c_g ∝ ∛E_g      (Σ ∛E_g)³
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense, Exchangeable, StructuredMatrix, weighted_sum
from dpsql.planner.mechanisms.hdmm.strategies import EvenStrategy, Noise, Oracle, Strategy
from dpsql.workload import Queries, Total, Workload
from dpsql.workload.workload import Block, Groups, by_attributes, touched

MAX_CELLS = 2500
"""Cells of an attribute up to which a Gram matrix is written out and factorized."""
ROUNDS = 30
PROGRESS = 1e-5
"""Relative gain of a round below which the search ends."""
SMALLEST = 1e-100


def gram_of(queries: Queries) -> StructuredMatrix:
    """Return the Gram matrix of queries over one attribute.

    Raises:
        ResourceLimitError: it would have to be written out, and is too large for that.
    """
    even = queries.even_gram()
    if even is not None:
        return Exchangeable(queries.cells, *even)
    if queries.cells > MAX_CELLS:
        raise ResourceLimitError(
            f"HDMM can't factorize a matrix over {queries.cells:,} cells; the limit is "
            f"{MAX_CELLS:,}.",
            hint="use a coarser domain, or another mechanism.",
        )
    return Dense(queries.gram())


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Σ_j w_j ⊗_i G_i^(j). Of each attribute only few different things are asked."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    weights: Array
    """w_j, of shape (k,)."""
    roles: Ints
    """Which of `grams` of each attribute family j asks: shape (k, attributes)."""
    grams: tuple[tuple[StructuredMatrix, ...], ...]
    """For each attribute, all that is asked of it."""

    @classmethod
    def of(cls, workload: Workload) -> Products:
        """Take a workload apart, of which every block is over one attribute.

        Raises:
            ResourceLimitError: a Gram matrix is too large to be written out.
        """
        families = [f for f in workload.families if f.count]
        # What is 0 along an attribute needs nothing along the others: 0 times an infinite error.
        families = [f for f in families if all(map(_asks, f.blocks))] or families
        weights = np.array([family.weight for family in families])
        names = touched(workload)
        sizes = tuple(workload.domain[name] for name in names)
        roles = np.zeros((len(families), len(names)), dtype=np.int64)
        grams: list[tuple[StructuredMatrix, ...]] = []
        asked = [{b.attributes[0]: b.queries for b in family.blocks} for family in families]
        for i, (name, n) in enumerate(zip(names, sizes, strict=True)):
            total = Total().bind(n)
            queries = [blocks.get(name, total) for blocks in asked]
            distinct = {q.key: q for q in queries}
            places = {key: place for place, key in enumerate(distinct)}
            roles[:, i] = [places[q.key] for q in queries]
            grams.append(tuple(map(gram_of, distinct.values())))
        return cls(names, sizes, weights, roles, tuple(grams))

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class ProductStrategy:
    """One strategy for each attribute, for what is asked."""

    asked: Products
    factors: tuple[Strategy, ...]

    @property
    def error(self) -> float:
        """Σ weight·variance at unit noise; Laplace noise of scale 1 has twice that variance.

        The sensitivity is 1 if that of all factors is.
        """
        return float(self.asked.weights @ _all_errors(self.asked, self.factors).prod(axis=1))


def _asks(block: Block) -> bool:
    return bool(block.queries.squares().any())


def best_product(asked: Products, oracle: Oracle) -> ProductStrategy:
    """Let the attributes take turns."""
    factors: list[Strategy] = [EvenStrategy(n, 1.0, 0.0) for n in asked.sizes]
    errors = _all_errors(asked, factors)
    best = math.inf
    for turn in range(ROUNDS):
        for i in range(len(factors)):
            gram = weighted_sum(_surrogate(asked, i, errors))
            # The first turn of each attribute starts afresh; later ones go on from what was found.
            factors[i] = oracle.solve(gram, factors[i] if turn else None)
            errors[:, i] = _errors(asked, i, factors[i])
        error = float(asked.weights @ errors.prod(axis=1))
        if min(errors.shape) <= 1 or error > best * (1 - PROGRESS):
            break
        best = error
    return ProductStrategy(asked, tuple(factors))


def _all_errors(asked: Products, factors: Sequence[Strategy]) -> Array:
    """Return e_ij for every family and attribute: shape (k, attributes)."""
    errors = np.ones((len(asked.weights), len(factors)))
    for i, factor in enumerate(factors):
        errors[:, i] = _errors(asked, i, factor)
    return errors


def _errors(asked: Products, i: int, factor: Strategy) -> Array:
    """Return e_ij of one attribute, for every family: shape (k,)."""
    of_role = np.array([factor.error(gram) for gram in asked.grams[i]])
    return np.asarray(of_role[asked.roles[:, i]])


def _surrogate(asked: Products, i: int, errors: Array) -> list[tuple[float, StructuredMatrix]]:
    """Weigh what is asked of attribute i by the errors along the others; the scale is free."""
    positive = np.log(np.maximum(errors, SMALLEST))  # queries may be 0 along an attribute
    others = np.delete(positive, i, axis=1).sum(axis=1) + np.log(asked.weights)
    weights = np.exp(others - others.max())
    of_role = np.bincount(asked.roles[:, i], weights, len(asked.grams[i]))
    return list(zip((of_role / of_role.max()).tolist(), asked.grams[i], strict=True))


LEAST = 1e-6
"""The least share of a group, relative to the largest."""


@dataclass(frozen=True, slots=True, eq=False)
class UnionStrategy:
    """Products over different sets of attributes, with their shares of the sensitivity."""

    products: tuple[ProductStrategy, ...]
    shares: tuple[float, ...]
    """Of what is spent: c_g² with Gaussian noise, c_g with Laplace noise; they sum to 1."""
    error: float
    """Σ weight·variance at unit noise and sensitivity 1."""


def best_union(workload: Workload, oracle: Oracle) -> UnionStrategy:
    """Solve each group on its own and share out, for the better of two ways to group.

    The paper leaves it open which families to serve together. Here those over the same attributes
    are; or those over fewer attributes join the smallest other group that has all of theirs.
    """
    apart = by_attributes(workload.families)
    together = joined(apart, workload.domain)
    found = [_solve(apart, workload, oracle)]
    if len(together) < len(apart):
        found.append(_solve(together, workload, oracle))
    return min(found, key=lambda union: union.error)


def _solve(groups: Groups, workload: Workload, oracle: Oracle) -> UnionStrategy:
    parts = (Workload.of(workload.domain, families) for families in groups.values())
    products = tuple(best_product(Products.of(part), oracle) for part in parts)
    shares, error = share([product.error for product in products], oracle.noise)
    return UnionStrategy(products, shares, error)


def joined(apart: Groups, domain: Mapping[str, int]) -> Groups:
    """Let groups whose attributes another one has join the smallest such that joins none."""

    def cells(attributes: frozenset[str]) -> int:
        return math.prod(domain[a] for a in attributes)

    members: Groups = {}
    for attributes in sorted(apart, key=lambda s: (-len(s), cells(s))):
        above = [larger for larger in members if attributes < larger]
        place = min(above, key=cells) if above else attributes
        members.setdefault(place, []).extend(apart[attributes])
    return members


def share(errors: list[float], noise: Noise) -> tuple[tuple[float, ...], float]:
    """Return the shares of what is spent, and the sum of the errors with them."""
    power = 1 / 3 if noise == "laplace" else 1 / 2
    roots = np.power(errors, power)
    # Queries that are 0, or count for next to nothing, are measured too.
    roots = np.maximum(roots, LEAST * roots.max()) if roots.any() else np.ones(len(roots))
    found = roots / roots.sum()
    return tuple(found.tolist()), float((errors / found ** (1 / power - 1)).sum())
