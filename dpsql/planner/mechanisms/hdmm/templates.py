"""Strategies over several attributes, put together from those over each: OPT_⊗ and OPT_+.

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
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.mechanisms.hdmm.grams import Gram, Products, weighted_sum
from dpsql.planner.mechanisms.hdmm.strategies import EvenStrategy, Noise, Oracle, Strategy
from dpsql.workload import Family, Workload

ROUNDS = 30
PROGRESS = 1e-5
"""Relative gain of a round below which the search ends."""
SMALLEST = 1e-100


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
        columns = [_errors(self.asked, i, factor) for i, factor in enumerate(self.factors)]
        return float(self.asked.weights @ np.prod(columns, axis=0)) if columns else self._total

    @property
    def _total(self) -> float:
        """Without attributes there is one cell, which is measured."""
        return float(self.asked.weights.sum())


def best_product(asked: Products, oracle: Oracle) -> ProductStrategy:
    """Let the attributes take turns."""
    factors: list[Strategy] = [EvenStrategy(n, 1.0, 0.0) for n in asked.sizes]
    errors = np.ones((len(asked.weights), len(factors)))
    for i, factor in enumerate(factors):
        errors[:, i] = _errors(asked, i, factor)
    best = math.inf
    for turn in range(ROUNDS):
        for i, n in enumerate(asked.sizes):
            gram = weighted_sum(n, _surrogate(asked, i, errors))
            # The first turn of each attribute starts afresh; later ones go on from what was found.
            factors[i] = oracle.solve(gram, factors[i] if turn else None)
            errors[:, i] = _errors(asked, i, factors[i])
        error = float(asked.weights @ errors.prod(axis=1))
        if min(errors.shape) <= 1 or error > best * (1 - PROGRESS):
            break
        best = error
    return ProductStrategy(asked, tuple(factors))


def _errors(asked: Products, i: int, factor: Strategy) -> Array:
    """Return e_ij of one attribute, for every family: shape (k,)."""
    of_role = np.array([factor.error(gram) for gram in asked.grams[i]])
    return np.asarray(of_role[asked.roles[:, i]])


def _surrogate(asked: Products, i: int, errors: Array) -> list[tuple[float, Gram]]:
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
    apart = groups(workload)
    together = joined(workload, apart)
    found = [_solve(apart, oracle)]
    if len(together) < len(apart):
        found.append(_solve(together, oracle))
    return min(found, key=lambda union: union.error)


def _solve(given: list[Workload], oracle: Oracle) -> UnionStrategy:
    products = tuple(best_product(Products.of(group), oracle) for group in given)
    shares, error = share([product.error for product in products], oracle.noise)
    return UnionStrategy(products, shares, error)


def groups(workload: Workload) -> list[Workload]:
    """Return the families over each set of attributes, in the order of their first ones."""
    found: dict[frozenset[str], list[Family]] = {}
    for family in workload.families:
        if family.count:
            found.setdefault(family.attributes, []).append(family)
    return [Workload.of(workload.domain, families) for families in found.values()]


def joined(workload: Workload, apart: list[Workload]) -> list[Workload]:
    """Let groups whose attributes another one has join the smallest such that joins none."""
    sets = [frozenset(group.families[0].attributes) for group in apart]
    cells = [math.prod(workload.domain[a] for a in s) for s in sets]
    order = sorted(range(len(sets)), key=lambda i: (-len(sets[i]), cells[i]))
    members: dict[int, list[Family]] = {}
    for i in order:
        above = [j for j in members if sets[i] < sets[j]]
        place = min(above, key=cells.__getitem__) if above else i
        members.setdefault(place, []).extend(apart[i].families)
    return [Workload.of(workload.domain, families) for families in members.values()]


def share(errors: list[float], noise: Noise) -> tuple[tuple[float, ...], float]:
    """Return the shares of what is spent, and the sum of the errors with them."""
    power = 1 / 3 if noise == "laplace" else 1 / 2
    roots = np.power(errors, power)
    # Queries that are 0, or count for next to nothing, are measured too.
    roots = np.maximum(roots, LEAST * roots.max()) if roots.any() else np.ones(len(roots))
    found = roots / roots.sum()
    return tuple(found.tolist()), float((errors / found ** (1 / power - 1)).sum())
