"""A product strategy for sums that are too large to solve as they are: honest, not optimal."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import Kronecker
from dpsql.linalg.roots import independent_root
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product
from dpsql.planner.strategies.base import Solution, Strategy


def solve_product(
    terms: Sequence[Product], solve: Callable[[Component], Solution]
) -> tuple[tuple[tuple[Component, Solution], ...], float, float]:
    """Find one strategy per axis and measure their Kronecker product.

    Each axis's strategy is optimal for the workload that the queries leave on it when the other
    axes' coefficients are taken as further queries. The product spans the whole
    residual space, so every query can be answered.

    Returns:
        The solved components, and an upper and a lower bound on the error at cost 1. The lower
        bound adds up one bound per term (the least error is superadditive in the Gram matrix),
        so it is valid but may be loose: the gap of such a plan says so.
    """
    axes = sorted(axis for p in terms[0].pieces for axis in p.axes)
    components = tuple(_shadow(terms, axis) for axis in axes)
    solved = tuple((c, solve(c)) for c in components)
    upper = product_error(terms, {c.axes[0]: s.strategy for c, s in solved})
    return solved, upper, least_error(terms)


def product_error(terms: Sequence[Product], strategies: Mapping[int, Strategy]) -> float:
    """Return the error of the Kronecker product of some strategies, one for each axis."""
    inverses = {axis: strategy.inverse() for axis, strategy in strategies.items()}

    def error(p: Component) -> float:
        """Return Σ over the piece's queries of ‖q (⊗B_i)⁺‖²."""
        if len(p.axes) == 1:
            return float(inverses[p.axes[0]].image_squares(p.queries).sum())
        return float(np.square(p.rows @ Kronecker(inverses[axis] for axis in p.axes)).sum())

    return math.fsum(t.weight * math.prod(error(p) for p in t.pieces) for t in terms)


def least_error(terms: Sequence[Product]) -> float:
    """Bound the least error of a sum of products from below: one bound for each term, added up."""
    return math.fsum(t.weight * math.prod(least_error_of(p.rows) for p in t.pieces) for t in terms)


def _shadow(terms: Sequence[Product], axis: int) -> Component:
    """Collect what the terms ask along one axis."""
    parts: list[Array] = []
    for term in terms:
        p = next(p for p in term.pieces if axis in p.axes)
        at = p.axes.index(axis)
        reference = p.references[at]
        along = np.moveaxis(p.rows.reshape(-1, *p.shape), at + 1, -1).reshape(-1, p.shape[at])
        root, _ = independent_root(along.T @ along, 1e-12)
        parts.append(math.sqrt(term.weight / np.square(along).sum()) * root)
    rows = np.vstack(parts)
    return Component((axis,), (reference,), hashlib.sha256(rows.tobytes()).digest(), rows)


def least_error_of(rows: Array) -> float:
    """Bound the least error of some queries from below, without a factorization.

    At uniform δ the dual gives (tr G^{1/2})² / N, and by Hölder's inequality
    tr G^{1/2} >= (tr G)^{3/2} / (tr G²)^{1/2}.
    """
    m, n = rows.shape
    gram = rows @ rows.T if m < n else rows.T @ rows
    trace, squared = float(np.trace(gram)), float(np.square(gram).sum())
    return float(trace**3 / squared / n)


def describe(components: Sequence[Component]) -> str:
    """Name the solver for `explain`."""
    return f"product of {len(components)} one-attribute strategies (not optimal; see the gap)"
