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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import (
    Dense,
    Exchangeable,
    StructuredMatrix,
    across_and_along,
    independent_inverse,
    weighted_sum,
)
from dpsql.linalg.roots import root_of
from dpsql.planner.strategies.dual import Dual, maximize
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
    """The index in `grams` of each attribute that family j asks: shape (k, attributes)."""
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
    """Shares of the cost: c_g² with Gaussian noise, c_g with Laplace noise; they sum to 1."""
    error: float
    """Σ weight·variance at unit noise and sensitivity 1."""


def best_union(workload: Workload, oracle: Oracle) -> UnionStrategy:
    """Solve each group on its own and share out, for the better of two ways to group.

    The paper leaves it open which families to serve together. Here those over the same attributes
    are; or those over fewer attributes join the smallest other group that has all of theirs.
    """
    apart = by_attributes(workload.families)
    together = joined(apart, workload.domain)
    unions = [_solve(apart, workload, oracle)]
    if len(together) < len(apart):
        unions.append(_solve(together, workload, oracle))
    return min(unions, key=lambda union: union.error)


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
    shares = roots / roots.sum()
    return tuple(shares.tolist()), float((errors / shares ** (1 / power - 1)).sum())


# ── Strategies over one attribute, and the best of them that are found: OPT_0 (HDMM, 4) ──────────
#
# All have sensitivity 1 in the norm of the noise: with Gaussian noise the Euclidean norm of every
# column is at most 1 (𝒢 in the paper), with Laplace noise the sum of its magnitudes (ℒ).
#
# Gaussian noise: the convex program of Definition 12, solved by its dual, to the optimum over all
# strategies. Laplace noise: p-Identity. Where all cells are alike, the best p-Identity strategy
# and the best Gaussian one are of one parameter, which is found directly.
#
# *p-Identity strategies* (4.3, Definitions 13 and 14), of sensitivity 1 for Laplace noise:
#
#     A(Θ) = [I; Θ]·D,   D = diag(1 + 1ᵀΘ)⁻¹,   Θ >= 0 of shape (p, n),
#
# weighs the cells and p further queries so that every column sums to 1. With S = D⁻¹ = diag(s) and
# G the queries' Gram matrix, the error tr((AᵀA)⁻¹G) is
#
#     E(Θ) = tr(M·SGS),   M = (I + ΘᵀΘ)⁻¹ = I − ΘᵀKΘ,   K = (I_p + ΘΘᵀ)⁻¹
#
# by Woodbury's identity, and since ΘM = KΘ, its gradient in the row Θ_q is
#
#     ∂E/∂Θ_q = −2 (KΘ·SGS·M)_q + 2·diag(GSM) ,
#
# both in O(pn²). The search ends in local minima, and where it starts decides in which: it starts
# from several places, always the same ones, and goes on from the best.
#
# Searches with many local minima need starts without structure. Plans must not depend on chance, so
# the fractional parts of α·i² for irrational α take the place of random numbers: a deterministic
# sequence that is spread evenly over 0 to 1 (Weyl), of which adjacent numbers look unrelated.


Noise = Literal["gaussian", "laplace"]

NOTHING = 1e-9
"""Share of queries that is about differences between cells, up to which none counts as asked."""


@dataclass(frozen=True, slots=True)
class EvenStrategy:
    """x·I on top of y·1ᵀ: each cell and the total. Nothing else helps if all cells are alike."""

    cells: int
    each: float
    """x, what each cell is counted with."""
    total: float
    """y, what the total is counted with."""

    def error(self, gram: StructuredMatrix) -> float:
        """Return tr((AᵀA)⁺G): the sum of variances at unit noise, for queries that A answers.

        AᵀA is x² + ny² along the ones and x² across them.
        """
        across, along = across_and_along(gram)
        of_ones = along / (self.each**2 + self.cells * self.total**2)
        if not self.each:
            return of_ones if across <= NOTHING * (across + along) else math.inf
        return of_ones + max(0.0, across) / self.each**2


@dataclass(frozen=True, slots=True, eq=False)
class DenseStrategy:
    """Any measurements, of full column rank or independent."""

    rows: Array
    """A: shape (measurements, cells)."""
    inverse_gram: Array = field(repr=False)
    """(AᵀA)⁺, of shape (cells, cells): what errors follow from."""

    @classmethod
    def of(cls, rows: Array) -> DenseStrategy:
        """Factorize the measurements: with A = QR is (AᵀA)⁺ = R⁻¹R⁻ᵀ, or A⁺A⁺ᵀ."""
        wide = len(rows) < len(rows.T)
        triangle = rows if wide else np.linalg.qr(rows, mode="r")
        inverse = independent_inverse(rows) if wide else np.linalg.inv(triangle)
        return cls(rows, inverse @ inverse.T)

    @property
    def cells(self) -> int:
        """The number of columns."""
        return int(self.rows.shape[1])

    def error(self, gram: StructuredMatrix) -> float:
        """Return tr((AᵀA)⁺G), as above; multiplied entry by entry, as both are symmetric."""
        if gram.even is not None:
            return float(np.trace(gram @ self.inverse_gram))
        return float(np.einsum("ij,ij->", self.inverse_gram, gram.matrix))


Strategy = EvenStrategy | DenseStrategy
"""Measurements over the cells of one attribute."""


RACE = 100
"""Steps after which the starts are compared."""
STEPS = 1500
"""Steps that the best of them may go on."""
PRECISION = 1e-9
"""Relative progress at which the search ends."""
LARGEST = 1e4
"""Entries of Θ at most: cells that nobody asks for alone keep a little weight, and A stays
well-conditioned."""


def queries_beside(cells: int) -> int:
    """Return the paper's p: one query for every 16 cells, rounded up."""
    return -(-cells // 16)


def matrix_of(theta: Array) -> Array:
    """Return A(Θ), of shape (n + p, n)."""
    return np.asarray(np.vstack([np.eye(theta.shape[1]), theta]) / (1.0 + theta.sum(axis=0)))


def error_of_theta(gram: Array) -> Callable[[Array], tuple[float, Array]]:
    """Return the function of Θ that gives the error and its gradient."""
    diagonal = np.diag(gram)

    def evaluate(theta: Array) -> tuple[float, Array]:
        scale = 1.0 + theta.sum(axis=0)
        kept = np.linalg.solve(np.eye(len(theta)) + theta @ theta.T, theta)  # KΘ
        seen = (theta * scale) @ gram  # ΘSG
        along = diagonal * scale - np.einsum("qj,qj->j", seen, kept)  # diag(GSM)
        turned = (kept * scale) @ gram * scale  # KΘ·SGS
        gradient = 2 * along - 2 * (turned - (turned @ theta.T) @ kept)
        return float(along @ scale), gradient

    return evaluate


def best_theta(gram: Array, p: int, start: Array | None = None) -> Array:
    """Search the Θ with the least error.

    Args:
        gram: the queries' Gram matrix, of shape (n, n).
        p: the number of queries beside the cells.
        start: where to start from; by default from several places.

    Returns:
        Θ, of shape (p, n).
    """
    mean = float(np.trace(gram)) / len(gram)
    evaluate = error_of_theta(gram / mean if mean > 0 else gram)
    starts = [start] if start is not None else list(_starts(gram, p))
    raced = [_descend_theta(evaluate, theta, RACE) for theta in starts]
    _, best = min(raced, key=lambda run: run[0])
    return _descend_theta(evaluate, best, STEPS)[1]


def _descend_theta(
    evaluate: Callable[[Array], tuple[float, Array]], start: Array, steps: int
) -> tuple[float, Array]:
    def flat(theta: Array) -> tuple[float, Array]:
        value, gradient = evaluate(theta.reshape(start.shape))
        return value, gradient.ravel()

    value, end = descend(flat, start.ravel(), steps, PRECISION, [(0.0, LARGEST)] * start.size)
    return value, np.clip(end, 0.0, LARGEST).reshape(start.shape)


def descend(
    evaluate: Callable[[Array], tuple[float, Array]],
    start: Array,
    steps: int,
    precision: float,
    bounds: list[tuple[float, float]] | None = None,
) -> tuple[float, Array]:
    """Search a local minimum by L-BFGS.

    Args:
        evaluate: the function, with its gradient.
        start: where the search begins.
        steps: how many it may take.
        precision: the relative progress at which it ends.
        bounds: of each argument.
    """
    from scipy.optimize import minimize  # half a second to import, and not every plan needs it

    minimum = minimize(
        evaluate,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": precision, "gtol": 0.0},
    )
    return float(minimum.fun), np.asarray(minimum.x)


def _starts(gram: Array, p: int) -> Iterator[Array]:
    """Yield irregular tables, and one that follows what is asked of cells together."""
    shape = (p, len(gram))
    tables = [irregular(math.prod(shape), number).reshape(shape) for number in (1, 2, 3)]
    yield tables[0]
    yield tables[1]
    yield np.square(np.cos(np.pi * tables[2]))
    yield _clusters(gram, p) + 0.1 * tables[0]


def _clusters(gram: Array, p: int) -> Array:
    """Divide the cells among p of them that have little to do with each other."""
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    alike = gram / np.outer(size, size)
    chosen = [int(np.argmax(size))]
    nearest = alike[chosen[0]].copy()
    while len(chosen) < p:
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, alike[chosen[-1]])
    mine = np.argmax(alike[chosen], axis=0)
    return np.asarray((np.arange(p)[:, None] == mine).astype(np.float64))


TOLERANCE = 1e-4
"""The gap to which the dual is solved."""


class Oracle:
    """Solves Gram matrices for one kind of noise; equal ones once."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise
        self._known: dict[bytes, Strategy] = {}

    def solve(self, gram: StructuredMatrix, start: Strategy | None = None) -> Strategy:
        """Return a strategy of sensitivity 1.

        Args:
            gram: what is asked.
            start: a strategy that was good for something similar; the one that is returned is
                not worse.
        """
        if start is None:
            if gram.key not in self._known:
                self._known[gram.key] = self._solve(gram, None)
            return self._known[gram.key]
        solution = self._solve(gram, start)
        return min((start, solution), key=lambda strategy: strategy.error(gram))

    def _solve(self, gram: StructuredMatrix, start: Strategy | None) -> Strategy:
        if not sum(across_and_along(gram)):
            return EvenStrategy(gram.cells, 1.0, 0.0)
        if gram.even is not None:
            return even(gram, self.noise)
        if self.noise == "gaussian":
            return full(gram)
        return p_identity(gram, start)


def even(gram: StructuredMatrix, noise: Noise) -> EvenStrategy:
    """Return the best even strategy: one number t, x = 1 − t and y = t, or their roots.

    The error is (n − 1)a/x² + (a + nb)/(x² + ny²). Gaussian noise has x² + y² = 1, and it is
    convex in y²; for Laplace noise x + y = 1, and the best of a grid is refined.
    """
    n = gram.cells
    across, along = across_and_along(gram)
    if across <= NOTHING * (across + along):
        return EvenStrategy(n, 0.0, 1.0)
    power = 1.0 if noise == "laplace" else 0.5

    def at(t: float) -> EvenStrategy:
        return EvenStrategy(n, (1 - t) ** power, t**power)

    return at(_least(lambda t: at(t).error(gram)))


def _least(function: Callable[[float], float]) -> float:
    """Minimize over 0 <= t < 1: a grid that is fine near both ends, then Brent's method."""
    from scipy.optimize import minimize_scalar  # half a second to import, as `minimize` above

    fine = np.geomspace(1e-9, 0.5, 120)
    grid = np.unique(np.concatenate([[0.0], fine, 1 - fine]))
    at = int(np.argmin([function(t) for t in grid]))
    bounds = grid[max(0, at - 1)], grid[min(len(grid) - 1, at + 1)]
    minimum = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": 1e-13})
    return min((float(grid[at]), float(minimum.x)), key=function)


def full(gram: StructuredMatrix) -> DenseStrategy:
    """Return the best strategy of all for Gaussian noise."""
    dual = Dual.of(root_of(gram.matrix), (gram.cells,))
    rows = maximize(dual, TOLERANCE).root
    return DenseStrategy.of(rows / math.sqrt(float(np.square(rows).sum(axis=0).max())))


def p_identity(gram: StructuredMatrix, start: Strategy | None = None) -> DenseStrategy:
    """Return a p-Identity strategy with p = n/16, found from another one if that is given."""
    n, p = gram.cells, queries_beside(gram.cells)
    theta = None
    if isinstance(start, DenseStrategy) and start.rows.shape == (n + p, n):
        theta = start.rows[n:] / np.diag(start.rows[:n])
    return DenseStrategy.of(matrix_of(best_theta(gram.matrix, p, theta)))


def irregular(count: int, number: int) -> Array:
    """Return numbers from 0 to 1; other ones for each `number` from 1."""
    alpha = math.sqrt(number * number + 1)  # no square for number > 0
    return np.asarray(np.square(np.arange(1, count + 1, dtype=np.float64)) * alpha % 1.0)
