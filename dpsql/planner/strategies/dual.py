"""The dual problem of some queries, solved with a certificate.

Notation: Q (r × N) are the query rows with weights folded in, G = QᵀQ, D = diag(δ).

    minimize tr(G X⁺) subject to diag(X) <= 1        (primal: N² unknowns)
    maximize f(δ)²,  f = tr (Q D Qᵀ)^{1/2},  δ >= 0, Σδ = 1    (dual: N unknowns)

For any δ, with M = Q D Qᵀ and X = Qᵀ M^{-1/2} Q: f² is a lower bound on the best error, and X
divided by its largest diagonal entry is feasible with error f·max diag(X), an upper bound. At
the optimum diag(X) = f wherever δ > 0. The gradient of f is diag(X)/2.

Where G has symmetries, it is split into parts that are factorized apart (see `linalg.symmetry`).
Rows over nested sets are factorized in quadratic time (see `linalg.nested`).

This is the dual of the semidefinite program of the matrix mechanism (Yuan et al., "Convex
optimization for linear query processing under approximate differential privacy", KDD 2016) in
low-rank form: nothing here is N × N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.coordinates import Narrow, narrow
from dpsql.linalg.digits import AS_GOOD, far_apart, few
from dpsql.linalg.hull import hull
from dpsql.linalg.iterations import Accelerated, descend
from dpsql.linalg.matrices import least_rank
from dpsql.linalg.nested import Nested
from dpsql.linalg.roots import compressed, eigen_of, singular_of
from dpsql.linalg.symmetry import Permutation, Subspace, averaged, blocks, symmetries
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.strategies.base import Solution, Solver
from dpsql.planner.strategies.express import over_integers
from dpsql.workload import Queries

MAX_RANK = 2500
"""Ranks above this go to the product strategy: one evaluation would take seconds."""
WORK = 2e12
"""Multiplications that one component may cost. Counted, not timed: plans are reproducible."""
QUADRATIC = 100
"""Multiplications for each entry of rows over nested sets."""
OVERHEAD = 500
"""Cost of a cell beside the multiplications, in multiplications."""
WIDE = 10**5
"""Cells from which L-BFGS remembers fewer steps: each takes memory and time in the cells."""
STRETCH = 1.7
"""Fixed-point steps are made longer by this power; from 2 on they would overshoot."""
SMALLEST_RATIO = 1e-12
ASTRAY = 3
"""Gap, relative to the best one, from which the fixed point goes on without acceleration."""
CHECK = 8
PATIENCE = 25
"""Every `CHECK` fixed-point steps: does the rate promise an end within `PATIENCE` more?"""
MANY = 4
"""The cells for each of r(r + 1)/2 from which on a choice among them is worth it."""
MANY_JOINT = 100
"""The same of joint cells. Where queries are a few dozen, thousands of these matter, and steps over
all of them take less time than to choose."""
LEAST = 3
"""Evaluations that are made at any rate."""
MOST_STEPS = 600
WORTHWHILE = 8
"""Ranks from which structure is looked for."""
SPARSE = 4
"""Cells for each one with a weight, from which on the others are left out of a product."""
NEGLIGIBLE = 1e-15
"""Eigenvalues are at least that large, relative to the largest."""
ROUNDING = 1e-13
"""Length relative to all rows, up to which rows in a subspace are there by rounding alone."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryPart:
    """The queries in one invariant subspace of the cells; all of them if there is only one."""

    q: Array
    """Rows of full rank, of shape (r, dimension)."""
    block: Subspace | None
    """The subspace; None for all cells."""
    nested: Nested | None = None
    """The rows as those over nested sets, if they are."""

    @property
    def work(self) -> float:
        """Multiplications that one factorization takes, roughly."""
        r, m = self.q.shape
        return float(QUADRATIC * r * m if self.nested else 2 * r * r * m + 10 * r**3)

    def decompose(self, delta: Array) -> tuple[Array, Array]:
        """Return the eigenvalues of Q D Qᵀ, and R with RᵀR = X."""
        decomposed = None if self.nested is None else self.nested.decompose(delta)
        if decomposed is not None:
            values, turned = decomposed
            return values, values[:, None] ** -0.25 * turned
        values, vectors = eigen(self.q, delta)
        return values, (vectors * values**-0.25).T @ self.q

    def exact_root(self, delta: Array) -> Array | None:
        """Return R with RᵀR = X by singular values of Q D^{1/2}; None for rows over nested sets.

        Their noise is some 1e-14 of R, while that of eigenvalues of Q D Qᵀ is 1e-11: its condition
        is squared. Of 180,000 coefficients that are rounded to 22 bits, one would follow the
        processor in every 25th plan (see `linalg.digits`).
        """
        if self.nested is not None:
            return None
        vectors, lengths = singular_of(self.q * np.sqrt(delta))
        values = np.maximum(np.square(lengths), lengths[0] ** 2 * NEGLIGIBLE)
        return np.asarray((vectors * values**-0.25).T @ self.q)


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """The problem, split by the symmetries of its Gram matrix."""

    cells: int
    parts: tuple[QueryPart, ...]
    permutations: tuple[Permutation, ...] = ()

    @staticmethod
    def of(
        rows: Array,
        shape: tuple[int, ...],
        moved: Callable[[Permutation], Permutation | None] = lambda permutation: permutation,
    ) -> Dual:
        """Look for structure and compress the rows.

        Args:
            rows: the queries over cells, or over classes of cells.
            shape: the number of cells along each axis.
            moved: what a permutation of the cells is over the classes; None if it parts some.
        """
        if len(rows) >= WORTHWHILE and (nested := Nested.of(rows)) is not None:
            return Dual(rows.shape[1], (QueryPart(rows, None, nested),))
        permutations = symmetries(rows, shape, moved) if min(rows.shape) >= WORTHWHILE else []
        n = rows.shape[1]
        if not permutations:
            return Dual(n, (QueryPart(compressed(rows), None),))
        least = (ROUNDING * float(np.linalg.norm(rows))) ** 2
        parts = [QueryPart(compressed(rows @ b.vectors, least), b) for b in blocks(permutations, n)]
        return Dual(n, tuple(p for p in parts if len(p.q)), tuple(permutations))

    @property
    def rank(self) -> int:
        """The rank of the Gram matrix."""
        return sum(len(p.q) for p in self.parts)

    @property
    def work(self) -> float:
        """Multiplications that one evaluation takes, roughly."""
        return sum(p.work for p in self.parts) + OVERHEAD * self.cells


@dataclass(frozen=True, eq=False)
class DualPoint:
    """One evaluation of the dual."""

    delta: Array
    f: float
    roots: tuple[Array, ...]
    """For each part, R with RᵀR = X in its subspace."""
    diagonal: Array
    """The diagonal of X: an entry for each cell."""
    parts: tuple[QueryPart, ...]
    evaluations: int = 1
    """Evaluations that it took to find this point."""

    @cached_property
    def root(self) -> Array:
        """R of shape (rank, cells) with RᵀR = X, as exact as floats allow: it will be rounded."""
        exact = []
        for root, part in zip(self.roots, self.parts, strict=True):
            here = self.delta if part.block is None else self.delta[part.block.cells]
            exact_root = part.exact_root(here)
            exact.append(root if exact_root is None else exact_root)
        return self._over_cells(exact)

    @property
    def quick_root(self) -> Array:
        """R as it was evaluated, for what needs some ten digits of it."""
        return self._over_cells(self.roots)

    def _over_cells(self, roots: Sequence[Array]) -> Array:
        spread = [
            root if part.block is None else root @ part.block.vectors.T
            for root, part in zip(roots, self.parts, strict=True)
        ]
        return spread[0] if len(spread) == 1 else np.vstack(spread)

    @property
    def lower(self) -> float:
        """No strategy has a smaller error."""
        return self.f**2

    @cached_property
    def upper(self) -> float:
        """The error of X divided by its largest diagonal entry."""
        return self.f * float(self.diagonal.max())

    @property
    def gap(self) -> float:
        """Relative distance of the bounds."""
        return self.upper / self.lower - 1.0


def evaluate(dual: Dual, delta: Array) -> DualPoint:
    """Evaluate f, its gradient (half the diagonal) and the root of X at δ."""
    delta = averaged(delta, dual.permutations)
    f, roots, diagonal = 0.0, [], np.zeros(dual.cells)
    for part in dual.parts:
        here = delta if part.block is None else delta[part.block.cells]
        values, root = part.decompose(here)
        squares = np.einsum("ij,ij->j", root, root)
        if part.block is not None:  # no two vectors share a cell
            squares = part.block.vectors.power(2) @ squares
        f += float(np.sqrt(values).sum())
        roots.append(root)
        diagonal += squares
    return DualPoint(delta, f, tuple(roots), diagonal, dual.parts)


def eigen(q: Array, delta: Array) -> tuple[Array, Array]:
    """Return the eigenvalues and eigenvectors of Q D Qᵀ."""
    if SPARSE * np.count_nonzero(delta) < len(delta):
        at = np.flatnonzero(delta)
        q, delta = q[:, at], delta[at]
    scaled = q * np.sqrt(delta)
    values, vectors = eigen_of(scaled @ scaled.T)  # half of a product
    return np.maximum(values, values[-1] * NEGLIGIBLE), vectors


def maximize(
    dual: Dual,
    tolerance: float,
    start: Array | None = None,
    work: float = WORK,
    many: int = MANY,
) -> DualPoint:
    """Maximize the dual until the gap is at most `tolerance` or the work is used up.

    Full-rank problems converge by the fixed point δ ← δ·(diag(X)/f)^p, p < 2, in a few steps, of
    which the next is guessed from the last ones. So do few queries over many cells where these are
    alike, as groups are: equal weights of all are nearly best. Where some δ tend to zero it slows
    down, and L-BFGS on δ = z²/Σz² takes over; of few queries over the cells that matter.
    """
    steps = max(LEAST, int(min(MOST_STEPS, work / dual.work)))
    if dual.rank == 1:  # one query: all weight on its largest coefficients, E = max q²
        (part,) = dual.parts
        row = part.q[0] if part.block is None else part.block.vectors @ part.q[0]
        largest = np.abs(row) >= np.abs(row).max() * (1 - 1e-12)
        return evaluate(dual, largest / largest.sum())
    nested = dual.parts[0].nested
    if nested is not None and start is None:
        start = _nearly_best(nested, tolerance / 2)
    elif len(dual.parts) == 1 and is_worthwhile(dual.rank, dual.cells, many):
        tried = 0
        if start is None:
            even = _fixed_point(dual, tolerance, None, steps)
            if even.gap <= tolerance:
                return even
            tried = even.evaluations
        chosen = _over_few_cells(dual, tolerance, start)
        if chosen.gap <= tolerance:
            return replace(chosen, evaluations=chosen.evaluations + tried)
    return _over_all_cells(dual, tolerance, start, steps)


def _nearly_best(nested: Nested, tolerance: float) -> Array:
    """Go to the fixed point by diagonals alone, which take linear time but are not exact."""
    delta, acceleration = np.full(len(nested.levels), 1.0 / len(nested.levels)), Accelerated()
    for _ in range(MOST_STEPS):
        diagonal = nested.diagonal(delta)
        f = float(diagonal @ delta)
        if diagonal.max() <= f * (1 + tolerance):
            break
        ratio = np.maximum(diagonal / f, SMALLEST_RATIO)
        delta = _normalize(acceleration.next(delta, STRETCH * np.log(ratio)))
    return delta


def _over_few_cells(dual: Dual, tolerance: float, start: Array | None) -> DualPoint:
    """Solve the dual over the cells that matter; see `active`."""
    (part,) = dual.parts
    q = part.q if part.block is None else part.q @ part.block.vectors.T
    count = 1

    def solve(chosen: Cells, delta: Array | None) -> Tried:
        nonlocal count
        count += 1
        some = Dual(len(chosen), (QueryPart(np.ascontiguousarray(q[:, chosen]), None),))
        point = _over_all_cells(some, tolerance * SHARE, delta, MOST_STEPS)
        full = np.zeros(dual.cells)
        full[chosen] = point.delta
        seen = evaluate(dual, full)
        return Tried(seen.delta, seen.diagonal, seen.f)

    delta = over_few_cells(q, tolerance, start, solve)
    return replace(evaluate(dual, delta), evaluations=count)


def _over_all_cells(dual: Dual, tolerance: float, start: Array | None, steps: int) -> DualPoint:
    best = _fixed_point(dual, tolerance, start, steps)
    if best.gap <= tolerance or best.evaluations >= steps:
        return best
    point = _quasi_newton(dual, best, tolerance, steps - best.evaluations)
    return replace(point, evaluations=best.evaluations + point.evaluations)


def _fixed_point(dual: Dual, tolerance: float, start: Array | None, steps: int) -> DualPoint:
    """Go to the fixed point as long as it promises to be near; return the best on the way."""
    best = point = evaluate(dual, np.full(dual.cells, 1.0 / dual.cells) if start is None else start)
    gaps, acceleration = [point.gap], Accelerated()
    while best.gap > tolerance and len(gaps) < steps:
        if len(gaps) % CHECK == 0 and _steps_left(gaps, tolerance) > PATIENCE:
            break
        if point.gap > ASTRAY * best.gap:
            acceleration.forget()
        ratio = np.maximum(point.diagonal / point.f, SMALLEST_RATIO)
        point = evaluate(dual, _normalize(acceleration.next(point.delta, STRETCH * np.log(ratio))))
        best = min(best, point, key=lambda p: p.gap)
        gaps.append(point.gap)
    return replace(best, evaluations=len(gaps))


def _steps_left(gaps: list[float], tolerance: float) -> float:
    """Extrapolate how many more fixed-point steps it takes to reach the tolerance."""
    before, now = min(gaps[: 1 - CHECK]), min(gaps)
    rate = math.log(before / now) / (CHECK - 1) if now > 0 else math.inf
    return math.log(now / tolerance) / rate if rate > 0 else math.inf


def _quasi_newton(dual: Dual, start: DualPoint, tolerance: float, steps: int) -> DualPoint:
    """Minimize −log f over z, δ = z²/Σz²; keep the best certificate seen on the way."""
    best, count = start, 0

    def objective(z: Array) -> tuple[float, Array]:
        nonlocal best, count
        count += 1
        scale = float(z @ z)
        point = evaluate(dual, z * z / scale)
        if point.gap < best.gap:
            best = point
        return -math.log(point.f), -(z / scale) * (point.diagonal / point.f - 1.0)

    descend(
        objective,
        np.sqrt(start.delta),
        evaluations=steps,
        done=lambda: best.gap <= tolerance,
        kept=30 if len(start.delta) <= WIDE else 8,
    )
    return replace(best, evaluations=count)


def _normalize(delta: Array) -> Array:
    return np.asarray(delta / delta.sum())


# ── The dual of few queries over many cells: only few of the cells matter ────────────────────────
#
# At the optimum of the dual (see `dual`) δ is zero but where diag(X) is largest, and by
# Carathéodory's theorem some optimal δ differs from zero on at most r(r + 1)/2 cells: QDQᵀ is a
# convex combination of the matrices q_j q_jᵀ, for the columns q_j of Q, which lie in a space of
# that dimension. So the dual is solved over some cells, those are added at which diag(X) is too
# large, and so on. A sum, an average and a standard deviation have r <= 3.
#
# The certificate is that of all cells: δ that is zero elsewhere is as good for the lower bound as
# any other, and the upper bound has the largest diag(X) of all.


Cells = NDArray[np.intp]

ROUNDS = 60
ADDED = 4
"""Cells that a round adds, for each query and once more."""
NOTHING = 1e-9
BITS = 30
"""Bits of the largest diagonal entry, by which cells are compared."""
FIRST = 0.1
"""The weight of a cell that is left out, and that of all cells that are added."""
SHARE = 1 / 4
"""Share of the tolerance, to which the dual over some cells is solved."""
SPECK = 1e-2
"""Share of the mean weight: cells of no more don't matter where a solution starts."""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The result of the dual over some cells, seen from all cells."""

    delta: Array
    diagonal: Array
    """The diagonal of X: an entry for each cell."""
    f: float
    """The root of the lower bound."""

    @property
    def ratio(self) -> float:
        """The upper bound by the lower one."""
        return float(self.diagonal.max()) / self.f


def is_worthwhile(rank: int, cells: int, many: int = MANY) -> bool:
    """Whether there are far more cells than can matter."""
    return cells > many * max(8, rank * (rank + 1) // 2)


def over_few_cells(
    q: Array, tolerance: float, start: Array | None, solve: Callable[[Cells, Array | None], Tried]
) -> Array:
    """Return δ over all cells, zero on most of them, whose gap is at most `tolerance` if it can be.

    Args:
        q: the queries' rows, of full rank.
        tolerance: the gap to aim for.
        start: δ that was good for something similar.
        solve: solves the dual over some cells, from δ on these.
    """
    if start is None:
        first = far_apart(q, len(q), NOTHING)
        others = np.setdiff1d(np.arange(q.shape[1]), first)
        chosen: Cells = np.union1d(first, others[far_apart(q[:, others], len(q), NOTHING)])
        tried = best = solve(chosen, None)
    else:
        chosen = np.flatnonzero(start * start.size > SPECK)
        tried = best = solve(chosen, _normalize(start[chosen]))
    for _ in range(ROUNDS):
        if best.ratio <= 1 + tolerance:
            break
        order = np.argsort(-few(tried.diagonal, BITS), kind="stable")[: ADDED * (len(q) + 1)]
        above = tried.diagonal[order] > tried.f * (1 + AS_GOOD)
        added = np.setdiff1d(order[above], chosen)
        if not len(added):
            break
        # Cells without weight go, so that the problem stays small; new ones start with a little.
        weights = tried.delta[chosen]
        kept = weights > NOTHING
        joined = np.concatenate([chosen[kept], added])
        shares = np.concatenate([weights[kept], np.full(len(added), FIRST / len(added))])
        at = np.argsort(joined)
        chosen = joined[at]
        tried = solve(chosen, shares[at] / shares.sum())
        best = min(best, tried, key=lambda t: t.ratio)
    return best.delta


# ── The solver of what has no special structure: by the dual, over few cells where these decide ──


FEWER = 4
"""Cells for each one at a corner, from which on corners are solved alone."""


class DualSolver(Solver):
    """Any component of moderate rank, over any number of cells."""

    name = "dual"

    def accepts(self, component: Component) -> bool:
        """Whether no factorization can exceed `MAX_RANK`."""
        return component.most_rank <= MAX_RANK

    def may_accept(self, queries: Queries) -> bool:
        """Whether the rank isn't known to be above `MAX_RANK`, beside that of the total."""
        return least_rank(queries) <= MAX_RANK + 1

    def work(self, component: Component) -> float:
        """Return that of the evaluations that are made at any rate."""
        return LEAST * 10.0 * component.most_rank**3

    def solve(
        self,
        component: Component,
        tolerance: float,
        work: float = WORK,
        start: Array | None = None,
    ) -> Solution:
        """Solve the dual, then express the strategy over an integer basis."""
        dual, best = solve_dual(component, tolerance, work, start)
        strategy = over_integers(best.root, component, dual.rank)
        rank = len(strategy.basis)
        kind = "dense" if rank == component.dimension else "low rank"
        parts = f", {len(dual.parts)} symmetric parts" if len(dual.parts) > 1 else ""
        name = f"dual ({kind}, rank {rank}{parts})"
        spent = best.evaluations * dual.work
        return Solution(strategy, best.upper, best.lower, name, spent)


def solve_dual(
    component: Component, tolerance: float, work: float, start: Array | None
) -> tuple[Dual, DualPoint]:
    """Solve a component's dual, over its corners where these are few.

    Returns:
        The problem that was solved, and the best point for all cells.
    """
    rows, shape = component.rows, component.shape
    narrowed = narrow(rows, shape) if start is None else None
    solved = None if narrowed is None else _at_corners(narrowed, tolerance, work)
    if solved is not None:
        return solved
    dual = Dual.of(rows, shape)
    return dual, maximize(dual, tolerance, start, work)


def _at_corners(given: Narrow, tolerance: float, work: float) -> tuple[Dual, DualPoint] | None:
    """Solve the dual of rows in few coordinates, over the cells that decide.

    The column of a joint cell is linear in the coordinates that it has along each axis, so the
    diagonal of X is convex in them, and largest at a vertex of their convex hull. The certificate
    is that of all cells. None if most cells decide.
    """
    shape = tuple(len(v) for v in given.along)
    kept = [hull(v.T) if v.shape[1] < len(v) else np.arange(len(v)) for v in given.along]
    if FEWER * math.prod(map(len, kept)) > math.prod(shape):
        return None
    corners = np.ravel_multi_index(np.ix_(*kept), shape).ravel()
    q = compressed(given.small)
    spread = given.widen(q)
    here = np.ascontiguousarray(spread[:, corners])
    dual = Dual.of(here, tuple(map(len, kept)))
    best = maximize(dual, tolerance, None, work)
    values, vectors = eigen(here, best.delta)
    root = given.widen(values[:, None] ** -0.25 * (vectors.T @ q))
    delta = np.zeros(math.prod(shape))
    delta[corners] = best.delta
    diagonal = np.einsum("ij,ij->j", root, root)
    f = float(np.sqrt(values).sum())
    part = QueryPart(spread, None)
    return dual, DualPoint(delta, f, (root,), diagonal, (part,), best.evaluations)
