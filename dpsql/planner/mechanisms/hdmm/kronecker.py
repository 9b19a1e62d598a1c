"""OPT_⊗: one Kronecker product of strategies, for a union of products (HDMM, 6, Definition 18).

The error of A = A_1 ⊗ … ⊗ A_d is a sum over the families of products over the attributes,

    E = Σ_j w_j Π_i e_ij ,   e_ij = tr((A_iᵀA_i)⁺ G_i^(j))      (equation 6.1)

so that with all strategies but one fixed, the last one is best for one surrogate Gram matrix,
Σ_j w_j Π_{i'≠i} e_i'j · G_i^(j) (equation 6.2). The attributes take turns until nothing is gained.
For a single family one turn each is enough, and is optimal where the oracle is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.mechanisms.hdmm.grams import Gram, weighted_sum
from dpsql.planner.mechanisms.hdmm.oracle import Oracle
from dpsql.planner.mechanisms.hdmm.products import Products
from dpsql.planner.mechanisms.hdmm.strategies import Even, Strategy

Array = NDArray[np.float64]

ROUNDS = 30
PROGRESS = 1e-5
"""Relative gain of a round below which the search ends."""
SMALLEST = 1e-100


@dataclass(frozen=True, slots=True, eq=False)
class Product:
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


def optimise(asked: Products, oracle: Oracle) -> Product:
    """Let the attributes take turns."""
    factors: list[Strategy] = [Even(n, 1.0, 0.0) for n in asked.sizes]
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
    return Product(asked, tuple(factors))


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
