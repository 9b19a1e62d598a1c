"""References: the averaging weights ℓ that say what the mean of a query over an attribute is.

For any ℓ with Σℓ = 1 a query q over one attribute is (q − (q·ℓ)·1) + (q·ℓ)·1: what is kept, and
what is dropped to a constant. QuerySmasher (arXiv 2604.00868) and ResidualPlanner use ℓ = 1/n.
Other references are as good for privacy, and for many workloads better for accuracy.

*Integer bases of residual spaces and of row spaces.* A strategy is rounded in coefficients over
such a basis, never in its own entries: whatever the integers L of full rank, the rows of L·basis
span exactly what the rows of the basis span, so that reconstruction stays exactly unbiased.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import flint
import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A weight vector ℓ over the n cells of an attribute. It sums to 1, but for `nothing`."""

    weights: Array
    """ℓ, of shape (n,)."""
    numerators: Ints | None
    """Integers p with ℓ = p/Σp. None while ℓ is only searched for: nothing can be measured."""
    key: bytes
    """Equal references have equal keys."""
    uniform: bool = False

    @staticmethod
    def of_cells(cells: int) -> Reference:
        """Return the uniform reference, the mean of all cells."""
        ones = np.broadcast_to(np.int64(1), cells)  # takes no memory, also for millions of cells
        weights = np.broadcast_to(np.float64(1 / cells), cells)
        return Reference(weights, ones, b"uniform %d" % cells, uniform=True)

    @staticmethod
    def of_integers(numerators: Ints) -> Reference:
        """Return ℓ = p/Σp for integers p of positive sum."""
        p = numerators // np.gcd.reduce(numerators)
        if (p == p[0]).all():
            return Reference.of_cells(len(p))
        return Reference(p / p.sum(), p, hashlib.sha256(p.tobytes()).digest())

    @staticmethod
    def of_reals(weights: Array) -> Reference:
        """Return any ℓ, for planning with only."""
        return Reference(weights, None, hashlib.sha256(weights.tobytes()).digest())

    @staticmethod
    def nothing(cells: int) -> Reference:
        """Return ℓ = 0, by which all is kept: for marginals that are measured as they are."""
        weights = np.broadcast_to(np.float64(0.0), cells)
        return Reference(weights, None, b"nothing %d" % cells)

    @property
    def total(self) -> int:
        """Return Σp; 0 if p is not known."""
        if self.uniform:
            return len(self.weights)
        return 0 if self.numerators is None else int(self.numerators.sum())


def rounded(weights: Array, denominator: int) -> Reference:
    """Return the reference p/denominator that is nearest to ℓ: largest remainders go up."""
    scaled = np.round(weights * denominator, _DIGITS)
    p = np.floor(scaled).astype(np.int64)
    order = np.argsort(np.round(p - scaled, _DIGITS), kind="stable")
    p[order[: denominator - int(p.sum())]] += 1
    return Reference.of_integers(p)


_DIGITS = 4
"""After the point, of a numerator: remainders that differ less are equal."""
_PRIME = (1 << 61) - 1
"""A Mersenne prime that fits a machine word. A rank modulo a prime never exceeds the true rank."""
SAMPLE = 4
"""Cells for each row over which dependence is looked for first; and how much wider rows must be."""


def residual_basis(references: Sequence[Reference]) -> Ints:
    """Return the integer basis ⊗S_i of a residual space: short vectors that ℓ_i makes zero.

    Shape: (∏(n_i − 1), ∏ n_i).
    """
    basis = np.ones((1, 1), dtype=np.int64)
    for reference in references:
        basis = np.kron(basis, axis_basis(reference))
    return basis


def axis_basis(reference: Reference) -> Ints:
    """Return n − 1 independent integer vectors v with v·p = 0, for ℓ = p/P.

    For the uniform reference they are e_j − e_0. Else cells of equal p are compared with each
    other, and one cell for each value of p with the others by short vectors of the lattice
    {v : v·p = 0}, found by the algorithm of Lenstra, Lenstra and Lovász: e_i·p_j − e_j·p_i would
    do, but its large entries leave fewer bits for the strategy's own coefficients.
    """
    n = len(reference.weights)
    values, first, which = _classes(reference)
    equal = np.eye(n, dtype=np.int64)
    equal[np.arange(n), first[which]] -= 1
    short = np.zeros((len(values) - 1, n), dtype=np.int64)
    short[:, first] = _short_vectors(tuple(values.tolist()))
    return np.vstack([equal[np.arange(n) != first[which]], short])


def over_axis_basis(vectors: Array, reference: Reference) -> Array:
    """Return the coefficients over `axis_basis` of vectors that ℓ makes zero.

    The vector of a cell that is compared with another of equal p is the only one that has that
    cell, so its coefficient is what stands there. Without them, what is left of each p is the sum
    of its cells, in the first of them, and short vectors are there alone.

    Args:
        vectors: of shape (any, cells).
        reference: ℓ.

    Returns:
        Shape (any, cells − 1).
    """
    values, first, which = _classes(reference)
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(values)))
    left = np.add.reduceat(vectors[:, order], starts, axis=1)
    short = _short_vectors(tuple(values.tolist())).astype(np.float64)
    compared = np.arange(vectors.shape[1]) != first[which]
    return np.hstack([vectors[:, compared], left @ np.linalg.pinv(short)])


def _classes(reference: Reference) -> tuple[Ints, NDArray[np.intp], NDArray[np.intp]]:
    """Return the values of p, the first cell of each, and the number of each cell's value."""
    if reference.numerators is None:
        raise InternalError("only references in integers can be measured")
    classes = np.unique(reference.numerators, return_index=True, return_inverse=True)
    values, first, which = classes
    return values, first, which


@lru_cache(maxsize=64)  # a plan needs each of them several times
def _short_vectors(p: tuple[int, ...]) -> Ints:
    """Return short independent integer vectors v with v·p = 0: shape (len(p) − 1, len(p)).

    In the lattice of all (v, c·v·p) with a large c, vectors with v·p ≠ 0 are long, so a reduced
    basis has all of the others first.
    """
    large = 2 ** len(p) * max(1, *map(abs, p)) ** 2
    rows = [[int(i == j) for j in range(len(p))] + [large * v] for i, v in enumerate(p)]
    reduced = flint.fmpz_mat(rows).lll().tolist()
    vectors_ = [[int(x) for x in row[:-1]] for row in reduced if row[-1] == 0]
    if len(vectors_) != len(p) - 1:
        raise InternalError("the basis of a residual space was not found")
    vectors = np.array(vectors_, dtype=np.int64).reshape(len(p) - 1, len(p))
    vectors.setflags(write=False)
    return vectors


def row_basis(rows: Ints) -> Ints:
    """Select rows that span all rows, each divided by its greatest common divisor.

    The selected rows are independent for certain, because they are so modulo a prime. They span
    all rows unless the prime divides one of the elementary divisors, which are far smaller for
    the queries met here; the prime is fixed, so the outcome is reproducible.

    Returns:
        Shape (rank, cells).
    """
    divisors = np.gcd.reduce(rows, axis=1)
    reduced = _distinct(rows[divisors > 0] // divisors[divisors > 0, None])
    if len(reduced) < 2:
        return reduced
    return np.ascontiguousarray(reduced[_independent(reduced)])


def _independent(rows: Ints) -> list[int]:
    """Return independent rows that span the others, by looking at some of the cells.

    What is independent over some cells is so over all. If rows depend on each other there, the
    integer relations K between them are tried on all cells: where K·rows is 0 everywhere, the rank
    over all cells is no larger. Else cells where it isn't are looked at as well.
    """
    count, cells = rows.shape
    at = np.unique(np.linspace(0, cells - 1, SAMPLE * count).astype(np.int64))
    while SAMPLE * len(at) < cells:
        pivots = _pivots(rows[:, at])
        if len(pivots) == count:
            return pivots
        relations = _relations(rows[:, at])
        if len(relations) != count - len(pivots) or not _fit(relations, rows):
            break
        kept = np.array(relations, dtype=np.float64) @ rows.astype(np.float64) == 0
        broken = np.flatnonzero(~kept.all(axis=0))
        if not len(broken):
            return pivots
        at = np.union1d(at, broken[:: -(-len(broken) // count)])
    return _pivots(rows)


def _pivots(rows: Ints) -> list[int]:
    """Return the first rows that span the others modulo the prime.

    Column j of the transpose is row j: the pivots of its echelon form are the rows to keep.
    """
    table = flint.nmod_mat(rows.shape[1], rows.shape[0], rows.T.ravel().tolist(), _PRIME)
    echelon, rank = table.rref()
    return [_first_nonzero(echelon, i, rows.shape[0]) for i in range(rank)]


def _relations(rows: Ints) -> list[list[int]]:
    """Return independent integer rows K, as many as there can be, with K·rows = 0."""
    table = flint.fmpz_mat(rows.shape[1], rows.shape[0], rows.T.ravel().tolist())
    space, nullity = table.nullspace()
    relations = [[int(space[i, j]) for i in range(rows.shape[0])] for j in range(nullity)]
    return [[x // math.gcd(*relation) for x in relation] for relation in relations]


def _fit(relations: list[list[int]], rows: Ints) -> bool:
    """Whether all sums in the product of the two are exact in floats."""
    sums = max(sum(map(abs, relation)) for relation in relations)
    return sums * int(np.abs(rows).max()) < 1 << 53


def _distinct(rows: Ints) -> Ints:
    """Drop repeated rows, without sorting them as np.unique does: rows may be wide."""
    return np.stack(list({row.tobytes(): row for row in rows}.values()))


def _first_nonzero(table: flint.nmod_mat, row: int, columns: int) -> int:
    return next(j for j in range(columns) if int(table[row, j]))
