"""OPT_+: a product strategy for each set of attributes (HDMM, 6.2, Definition 19).

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

from dpsql.planner.mechanisms.hdmm import kronecker
from dpsql.planner.mechanisms.hdmm.kronecker import Product
from dpsql.planner.mechanisms.hdmm.oracle import Oracle
from dpsql.planner.mechanisms.hdmm.products import Products
from dpsql.planner.mechanisms.hdmm.strategies import Noise
from dpsql.workload import Family, Workload

LEAST = 1e-6
"""The least share of a group, relative to the largest."""


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """Products over different sets of attributes, with their shares of the sensitivity."""

    products: tuple[Product, ...]
    shares: tuple[float, ...]
    """Of what is spent: c_g² with Gaussian noise, c_g with Laplace noise; they sum to 1."""
    error: float
    """Σ weight·variance at unit noise and sensitivity 1."""


def optimise(workload: Workload, oracle: Oracle) -> Union:
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


def _solve(given: list[Workload], oracle: Oracle) -> Union:
    products = tuple(kronecker.optimise(Products.of(group), oracle) for group in given)
    shares, error = share([product.error for product in products], oracle.noise)
    return Union(products, shares, error)


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
