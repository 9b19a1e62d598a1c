"""The dual problem of a component, solved with a certificate.

Notation: Q (r × N) are the query rows with weights folded in, G = QᵀQ, D = diag(δ).

    minimise tr(G X⁺) subject to diag(X) <= 1        (primal: N² unknowns)
    maximise f(δ)²,  f = tr (Q D Qᵀ)^{1/2},  δ >= 0, Σδ = 1    (dual: N unknowns)

For any δ, with M = Q D Qᵀ and X = Qᵀ M^{-1/2} Q: f² is a lower bound on the best error, and X
divided by its largest diagonal entry is feasible with error f·max diag(X), an upper bound. At
the optimum diag(X) = f wherever δ > 0. The gradient of f is diag(X)/2.

This is the dual of the semidefinite program of the matrix mechanism (Yuan et al., "Convex
optimization for linear query processing under approximate differential privacy", KDD 2016) in
low-rank form: nothing here is N × N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpsql.planner.basis import axis_basis, residual_basis, row_basis
from dpsql.planner.component import Component
from dpsql.planner.solvers.base import Solution, Solver, Triangular

Vector = NDArray[np.float64]

MAX_RANK = 1200
"""Ranks above this go to the product strategy: one evaluation would take seconds."""
WORK = 3e11
"""Multiplications that one component may cost. Counted, not timed: plans are reproducible."""
OVERHEAD = 500
"""What a cell costs beside the multiplications, in as many of them."""
WIDE = 10**5
"""Cells from which L-BFGS remembers fewer steps: each takes memory and time in the cells."""
CHECK = 8
PATIENCE = 25
"""Every `CHECK` fixed-point steps: does the rate promise an end within `PATIENCE` more?"""
WIDEST_ROW = 2**24
"""Rows with larger integers would leave too few bits for the strategy's own coefficients."""
SPARE = 2.0**-7
SMALL = 300
"""Factorisations up to this size run faster on one BLAS thread than on several."""


class DualSolver(Solver):
    """Any component of moderate rank, over any number of cells."""

    name = "dual"

    def accepts(self, component: Component) -> bool:
        """Whether the rank can't exceed `MAX_RANK`."""
        return component.dimension <= MAX_RANK or len(component.rows) <= MAX_RANK

    def solve(self, component: Component, tolerance: float) -> Solution:
        """Solve the dual, then express the strategy over an integer basis."""
        q = compress(component.rows)
        with threadpool_limits(1 if len(q) <= SMALL else None):
            best = maximise(q, tolerance)
            basis = _integer_basis(component, len(q))
            coefficients = _over_basis(best.root, basis, component)
        low_rank = len(basis) < component.dimension
        name = f"dual ({'low rank' if low_rank else 'dense'}, rank {len(basis)})"
        return Solution(Triangular(coefficients, basis), best.upper, best.lower, name)


@dataclass(frozen=True, slots=True, eq=False)
class DualPoint:
    """One evaluation of the dual."""

    delta: Vector
    f: float
    root: NDArray[np.float64]
    """R of shape (r, N) with RᵀR = X."""
    diagonal: Vector

    @property
    def lower(self) -> float:
        """No strategy has a smaller error."""
        return self.f**2

    @property
    def upper(self) -> float:
        """The error of X divided by its largest diagonal entry."""
        return self.f * float(self.diagonal.max())

    @property
    def gap(self) -> float:
        """Relative distance of the bounds."""
        return self.upper / self.lower - 1.0


def compress(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of full rank with the same Gram matrix."""
    m, n = rows.shape
    if m > n:
        values, vectors = scipy.linalg.eigh(rows.T @ rows)
        keep = values > values[-1] * 1e-13 * n
        return np.ascontiguousarray(np.sqrt(values[keep])[:, None] * vectors[:, keep].T)
    values, vectors = scipy.linalg.eigh(rows @ rows.T)
    keep = values > values[-1] * 1e-13 * m
    return np.ascontiguousarray(vectors[:, keep].T @ rows)


def evaluate(q: NDArray[np.float64], delta: Vector) -> DualPoint:
    """Evaluate f, its gradient (half the diagonal) and the root of X at δ."""
    values, vectors = scipy.linalg.eigh((q * delta) @ q.T)
    values = np.maximum(values, values[-1] * 1e-15)
    root = values[:, None] ** -0.25 * (vectors.T @ q)
    diagonal = np.einsum("ij,ij->j", root, root)
    return DualPoint(delta, float(np.sqrt(values).sum()), root, diagonal)


def maximise(q: NDArray[np.float64], tolerance: float, start: Vector | None = None) -> DualPoint:
    """Maximise the dual until the gap is at most `tolerance` or the work is used up.

    Full-rank problems converge by the fixed point δ ← δ·diag(X)/f in a few dozen steps; where
    some δ tend to zero it slows down, and L-BFGS on δ = z²/Σz² takes over.
    """
    r, n = q.shape
    steps = max(3, int(min(600, WORK / (2 * r * r * n + 10 * r**3 + OVERHEAD * n))))
    if r == 1:  # one query: all weight on its largest coefficients is optimal, E = max q²
        largest = np.abs(q[0]) == np.abs(q[0]).max()
        return evaluate(q, largest / largest.sum())
    best = point = evaluate(q, np.full(n, 1.0 / n) if start is None else start)
    gaps = [point.gap]
    while best.gap > tolerance and len(gaps) < steps:
        if len(gaps) % CHECK == 0 and _steps_left(gaps, tolerance) > PATIENCE:
            return _quasi_newton(q, best, tolerance, steps - len(gaps))
        point = evaluate(q, _normalise(point.delta * point.diagonal))
        best = min(best, point, key=lambda p: p.gap)
        gaps.append(point.gap)
    return best


def _steps_left(gaps: list[float], tolerance: float) -> float:
    """Extrapolate how many more fixed-point steps it takes to reach the tolerance."""
    rate = math.log(gaps[-CHECK] / gaps[-1]) / (CHECK - 1) if gaps[-1] > 0 else math.inf
    return math.log(gaps[-1] / tolerance) / rate if rate > 0 else math.inf


def _quasi_newton(
    q: NDArray[np.float64], start: DualPoint, tolerance: float, steps: int
) -> DualPoint:
    """Minimise −log f over z, δ = z²/Σz²; keep the best certificate seen on the way."""
    from scipy.optimize import minimize  # half a second to import, and not every plan needs it

    best = start

    def objective(z: Vector) -> tuple[float, Vector]:
        nonlocal best
        scale = float(z @ z)
        point = evaluate(q, z * z / scale)
        if point.gap < best.gap:
            best = point
        return -math.log(point.f), -(z / scale) * (point.diagonal / point.f - 1.0)

    def stop_when_certified(_: Vector) -> None:
        if best.gap <= tolerance:
            raise StopIteration

    minimize(  # type: ignore[call-overload]
        objective,
        np.sqrt(start.delta),
        jac=True,
        method="L-BFGS-B",
        callback=stop_when_certified,
        options={
            "maxfun": steps,
            "maxiter": steps,
            "maxcor": 30 if len(start.delta) <= WIDE else 8,
            "ftol": 0.0,
            "gtol": 0.0,
        },
    )
    return best


def _normalise(delta: Vector) -> Vector:
    return np.asarray(delta / delta.sum())


def _integer_basis(component: Component, rank: int) -> NDArray[np.int64]:
    """Take the queries' own integer rows where they span less than the residual space."""
    if rank < component.dimension and component.numerators is not None:
        rows = row_basis(component.numerators)
        if len(rows) < component.dimension and int(np.abs(rows).max()) < WIDEST_ROW:
            return rows
    return residual_basis(component.references)


def _over_basis(
    root: NDArray[np.float64], basis: NDArray[np.int64], component: Component
) -> NDArray[np.float64]:
    """Return upper triangular L of full rank with X = basisᵀ LᵀL basis, diag(X) <= 1.

    Queries that are not integers may span less than the basis does. The directions that they
    don't need are then measured too, at `SPARE` of the precision: it costs SPARE² and keeps the
    rounding error of the other directions answerable.
    """
    scaled = root / math.sqrt(float(np.square(root).sum(axis=0).max()))
    if len(scaled) < len(basis):
        scaled = np.vstack([scaled, SPARE * _complement(scaled, basis)])
    if len(basis) == component.dimension:
        inner = _inner(scaled, component)
    else:
        inner = scaled @ scipy.linalg.pinv(basis.astype(np.float64))
    upper = np.asarray(scipy.linalg.qr(inner, mode="r")[0])[: len(basis)]
    return np.asarray(upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None], dtype=np.float64)


def _complement(rows: NDArray[np.float64], basis: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return orthonormal rows in the span of the basis that are orthogonal to some of its rows."""
    spanning = scipy.linalg.qr(basis.T.astype(np.float64), mode="economic")[0].T
    return np.asarray(scipy.linalg.null_space(rows @ spanning.T).T @ spanning)


def _inner(root: NDArray[np.float64], component: Component) -> NDArray[np.float64]:
    """Return the coefficients of rows over the basis ⊗S_i of the residual space, axis by axis."""
    tensor: NDArray[np.float64] = root.reshape(-1, *component.shape)
    for axis, reference in enumerate(component.references):
        inverse = scipy.linalg.pinv(axis_basis(reference).astype(np.float64))
        tensor = np.moveaxis(np.tensordot(tensor, inverse, (axis + 1, 0)), -1, axis + 1)
    return np.asarray(tensor.reshape(len(root), -1))
