"""Plan all touched attributes at once, given what is known about their joint cells.

With the precision P of what is known and that of new measurements, X, the total error is

    tr G (P + X)⁻¹ ,   to be minimized over X ⪰ 0 with diag(X) <= c.

Let Y = P + X. Without the condition Y ⪰ P, what is left is the problem of `strategies.dual`, with
the bound c + P_ii for each cell in place of 1:  minimize tr G Y⁻¹ subject to Y_ii <= d_i. With G
and Y scaled by D^{1/2} on both sides it is the same problem. So

- its lower bound holds for every X;
- if Y ⪰ P then X = Y − P is optimal: the closed form of the conditional ResidualPlanner
  ("AIM+GReM", Theorem D.1), for strategies of any kind;
- otherwise some directions are known better than they need be. X = VᵀV is then searched for with
  columns of norm √c, by L-BFGS from the positive part of Y − P.

A closer bound holds for any M and any diagonal Δ ⪰ M ⪰ 0. Every X ⪰ 0 with diag(X) <= c has

    tr MY = tr MP + tr MX <= tr MP + tr ΔX <= tr MP + c·tr Δ = B ,

and by the inequality of Cauchy and Schwarz, with ‖·‖_* the sum of singular values,

    A = tr (QMQᵀ)^{1/2} = ‖QM^{1/2}‖_* <= ‖QY^{-1/2}‖_F · ‖Y^{1/2}M^{1/2}‖_F = √(tr GY⁻¹ · tr MY) ,

so that tr GY⁻¹ >= A²/B. (It is the Lagrangian dual, with a multiplier for Y ⪰ P besides Δ.) At the
optimum M = Y⁻¹GY⁻¹ and (Δ − M)X = 0; near it these M and Δ give a bound that is nearly met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.iterations import descend
from dpsql.linalg.roots import regular_root, root_of
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.plans.plan import PlannedBlock
from dpsql.planner.reconstruction.combine import (
    JOINT_CELLS,
    NEGLIGIBLE,
    Combination,
    Gathered,
    are_few,
    precision,
    written_out,
)
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference
from dpsql.planner.strategies.base import Solution, Triangular
from dpsql.planner.strategies.dual import Dual, maximize
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import Rounding
from dpsql.planner.strategies.whole import integer_basis
from dpsql.workload import Workload
from dpsql.workload.workload import gram, touched

QUICK_CELLS = 400
"""Joint cells up to which all that is known of them is put together."""
SEARCHED_CELLS = 128
"""Cells up to which there is a search; beyond, the positive part has to do."""
STEPS = 90
PROGRESS = 1e-9
"""Relative gain of a step with which a search ends."""
FEASIBLE = 1e-7
"""Negative eigenvalues of Y − P, relative to the largest, that are rounding errors."""
ROUNDING = 1e-6
"""Part by which a bound is lowered: it is computed in floats, some directions nearly unknown."""
LEAST = 1e-12
"""Precision, relative to the best known cell, below which directions are numerically unknown."""
RIDGE = 1e-9
"""Precision, relative to c, in directions of which nothing is known and nothing is asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """New measurements, and bounds on the total error with them and what was known."""

    root: Array
    """R with RᵀR = X, so that no column is longer than √c."""
    lower: float
    closed: bool
    """Whether the closed form is feasible."""


def measure_given(
    rows: Array, shape: tuple[int, ...], known: Array, cost: float, tolerance: float
) -> Conditional:
    """Find new measurements.

    Args:
        rows: Q with QᵀQ = G.
        shape: the number of cells along each axis.
        known: P, of shape (cells, cells).
        cost: c.
        tolerance: the relative gap to aim for.
    """
    bound = cost + np.maximum(np.diag(known), 0.0)
    best = maximize(Dual.of(rows / np.sqrt(bound), shape), tolerance)
    scaled = best.root / math.sqrt(float(np.square(best.root).sum(axis=0).max()))
    together = scaled * np.sqrt(bound)
    values, vectors = np.linalg.eigh(together.T @ together - known)
    closed = bool(values[0] >= -FEASIBLE * values[-1])
    # Of all roots the symmetric one, which doesn't depend on the choice of eigenvectors.
    root = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)
    root = _to_the_bound(root, cost)
    lower = best.lower * (1 - ROUNDING)
    if not closed and len(known) <= SEARCHED_CELLS:
        root = _search(rows, known, root, cost)
        lower = max(lower, bound_near(rows, known, root, cost))
    return Conditional(root, lower, closed)


def least_conditional_error(
    rows: Array, shape: tuple[int, ...], known: Array, cost: float, tolerance: float
) -> float:
    """Bound the total error from below, whatever is measured at this cost."""
    bound = cost + np.maximum(np.diag(known), 0.0)
    return maximize(Dual.of(rows / np.sqrt(bound), shape), tolerance).lower * (1 - ROUNDING)


def bound_near(rows: Array, known: Array, root: Array, cost: float) -> float:
    """Bound the total error from below, closely if the measurements R are nearly the best."""
    new = root.T @ root  # X
    factor = scipy.linalg.cho_factor(known + new + _ridge(known, cost))
    solved = scipy.linalg.cho_solve(factor, rows.T)  # Y⁻¹Qᵀ
    m = solved @ solved.T  # M = Y⁻¹GY⁻¹, as at the optimum
    # (Δ − M)X = 0 there gives Δ_ii = (MX)_ii/X_ii. Cells that X hardly measures may have any Δ_ii
    # that is large enough: Δ ⪰ M needs M_ii at least.
    both, alone = (m * new).sum(axis=0), np.maximum(np.diag(new), 1e-12 * cost)
    delta = np.maximum(both / alone, np.maximum(np.diag(m), 1e-300))
    # Away from the optimum Δ ⪰ M need not hold, but Δ ⪰ M/t does, with t the largest eigenvalue of
    # Δ^{-1/2} M Δ^{-1/2}. M/t in place of M divides A² and tr MP by t.
    scale = 1 / np.sqrt(delta)
    t = max(1.0, float(np.linalg.eigvalsh(m * scale * scale[:, None])[-1]) * (1 + 1e-12))
    # QMQᵀ = (QY⁻¹Qᵀ)(QY⁻¹Qᵀ)ᵀ, so that the trace of its root is a sum of singular values.
    trace_of_root = float(np.linalg.svd(rows @ solved, compute_uv=False).sum()) / math.sqrt(t)
    most = float((m * known).sum()) / t + cost * float(delta.sum())
    return trace_of_root**2 / most * (1 - ROUNDING)


def error(rows: Array, known: Array, root: Array, cost: float) -> float:
    """Return tr G (P + RᵀR)⁻¹."""
    factor = scipy.linalg.cho_factor(known + root.T @ root + _ridge(known, cost))
    return float((rows * scipy.linalg.cho_solve(factor, rows.T).T).sum())


def _ridge(known: Array, cost: float) -> Array:
    """Return a little precision in all directions, so that what is added up can be inverted."""
    largest = float(np.diag(known).max(initial=0.0))
    return np.asarray((RIDGE * cost + LEAST * largest) * np.eye(len(known)))


def _to_the_bound(root: Array, cost: float) -> Array:
    """Scale so that the longest column has the norm √c."""
    largest = float(np.square(root).sum(axis=0).max())
    return np.asarray(root * math.sqrt(cost / largest)) if largest > 0 else root


def _search(rows: Array, known: Array, start: Array, cost: float) -> Array:
    """Improve V by L-BFGS; all of its columns have the norm √c."""
    n = len(known)
    ridge = _ridge(known, cost)

    def normalized(flat: Array) -> tuple[Array, Array]:
        free = flat.reshape(n, n)
        lengths = np.linalg.norm(free, axis=0)
        return free / lengths, lengths

    def value(flat: Array) -> tuple[float, Array]:
        unit, lengths = normalized(flat)
        v = math.sqrt(cost) * unit
        factor = scipy.linalg.cho_factor(known + v.T @ v + ridge)
        solved = scipy.linalg.cho_solve(factor, rows.T)  # Y⁻¹Qᵀ
        # d tr GY⁻¹ = −tr Y⁻¹GY⁻¹ dY and Y = P + VᵀV; what lengthens a column is projected out.
        slope = -2 * math.sqrt(cost) * (v @ solved) @ solved.T
        slope = (slope - unit * (unit * slope).sum(axis=0)) / lengths
        return float((rows.T * solved).sum()), slope.ravel()

    # No column may be zero at the start: its direction would be undefined.
    begin = _to_the_bound(start, cost) + 0.05 * math.sqrt(cost) * np.eye(n)
    end = descend(value, begin.ravel(), evaluations=STEPS, progress=PROGRESS)
    best = math.sqrt(cost) * normalized(end)[0]
    better = error(rows, known, best, cost) < error(rows, known, start, cost)
    return best if better else start


BOUND_TOLERANCE = 1e-3
FLOOR = 1e-3
"""Norms of rows, relative to the longest: what is hardly measured is so to this extent, so that
strategies in integers have full rank."""


def plan_joint_cells(
    workload: Workload, cost: Cost, tolerance: float, past: Gathered
) -> PlannedBlock | None:
    """Plan one block over all joint cells; None if they are too many."""
    names, sizes = touched(workload), past.ground.sizes
    shape = tuple(sizes[name] for name in names)
    if not names or math.prod(shape) > JOINT_CELLS:
        return None
    known = known_precision(past, names)
    if known is None:
        return None
    asked = gram(workload, names)
    budget = float(cost.per_record)
    best = measure_given(root_of(asked), shape, known, budget, tolerance / 4)
    if not best.root.any():  # all is known so well that the budget would not tell
        return None
    strategy = _strategy(workload, best.root)
    component = Component(
        tuple(range(len(names))),
        tuple(Reference.of_cells(n) for n in shape),
        b"whole",
        root_of(asked),
    )
    kind = "closed form" if best.closed else "search"
    solver = f"dual over the whole domain, given earlier measurements ({kind})"
    solution = Solution(strategy, 0.0, best.lower, solver)
    rounding, lower = Rounding(cost.bound, cost.spreads), best.lower
    block = rounding.block((names,), ((component, solution),), cost.per_record)
    if cost.spreads:  # it may be worth more than it would be if all rows agreed
        at_best = float(cost.at_best)
        lower = least_conditional_error(component.rows, shape, known, at_best, BOUND_TOLERANCE)
    return PlannedBlock(block, 0.0, lower, solver)


def least_joint_error(
    workload: Workload, combination: Combination, new: int, cost: Fraction
) -> float:
    """Bound the error of what is asked of the joint cells of a combination; 0 if there are many.

    Args:
        workload: what is asked.
        combination: of old and new measurements.
        new: the number of the new source: whatever it measures.
        cost: what that may cost.
    """
    reconstruction = combination.reconstruction
    joint = reconstruction.joint
    if joint is None:
        return 0.0
    families = tuple(reconstruction.joint_part(family) for family in workload.families)
    (factor,) = joint.factors
    cells = math.prod(factor.shape)
    if cells > QUICK_CELLS:
        return 0.0
    (part,) = (part for part in combination.parts if part.space is joint)
    sizes = dict(zip(joint.attributes, factor.shape, strict=True))
    old = [(e, e.indices(joint.attributes, sizes)) for e in part.counted if e.source != new]
    known = precision(old, cells)
    # Some of the joint cells' attributes may be known only from the old measurements.
    asked = gram(Workload.of({**workload.domain, **sizes}, families), joint.attributes)
    if not asked.any():
        return 0.0
    rows, budget = root_of(asked), float(cost)
    fresh = [(e, e.indices(joint.attributes, sizes)) for e in part.counted if e.source == new]
    root = root_of(precision(fresh, cells))
    near = bound_near(rows, known, root, budget) if root.any() else 0.0
    return max(near, least_conditional_error(rows, factor.shape, known, budget, BOUND_TOLERANCE))


def known_precision(past: Gathered, names: tuple[str, ...]) -> Array | None:
    """Return the precision with which earlier measurements tell the joint cells of some attributes.

    Sources that measured joint cells of further attributes tell something about these too, as far
    as the others can be summed over. None if they have too many joint cells.
    """
    entries_, sizes = [entry for entries in past.entries for entry in entries], past.ground.sizes
    others = {a for s in past.sources if s.whole for a in s.attributes} - set(names)
    rest = tuple(name for name in sizes if name in others)
    wide = (*names, *rest)
    cells = [math.prod(sizes[name] for name in group) for group in (names, rest)]
    if math.prod(cells) > JOINT_CELLS:
        return None
    placed = [(e, e.indices(wide, sizes)) for e in entries_ if e.attributes <= set(wide)]
    if not are_few(placed, math.prod(cells)):
        total = precision(placed, math.prod(cells))
        if cells[1] == 1:
            return total
        if (root := regular_root(total)) is not None:
            return _summed_over_all_known(root, *cells)
        return _summed_over(root_of(total), *cells)
    return _summed_over(written_out(placed, math.prod(cells)), *cells)


def _summed_over(rows: Array, cells: int, rest: int) -> Array:
    """Return the precision of sums over the last axis, of rows W over cells × rest joint cells.

    Cells are their sums s, divided among the rest evenly, and what is left, z, which adds up to
    zero. So Wx = Ms + Vz, with the means M of W along the rest and V = W − M. The least squares
    over all z leave of the rows what is orthogonal to the span of V: the precision of s is
    Mᵀ(1 − Π)M, with the projection Π on it.
    """
    tensor = rows.reshape(len(rows), cells, rest)
    means = tensor.mean(axis=2)
    others = (tensor - means[:, :, None]).reshape(len(rows), cells * rest)
    left, sizes, _ = np.linalg.svd(others, full_matrices=False)
    span = left[:, sizes > math.sqrt(NEGLIGIBLE) * float(np.linalg.norm(rows))]
    beyond = means - span @ (span.T @ means)
    return np.asarray(beyond.T @ beyond)


def _summed_over_all_known(root: Array, cells: int, rest: int) -> Array:
    """Return the same where P = RᵀR is regular: the inverse of the sums' covariances SP⁻¹Sᵀ."""
    sums = np.repeat(np.eye(cells), rest, axis=1)
    turned = scipy.linalg.solve_triangular(root, sums.T, trans="T")
    covariances = turned.T @ turned
    return np.asarray(np.linalg.inv(covariances))


def _strategy(workload: Workload, root: Array) -> Triangular:
    """Express rows over the queries' own, where these span them, or over all cells."""
    values, vectors = np.linalg.eigh(root.T @ root)
    rank = int((values > 1e-9 * values[-1]).sum())
    basis = integer_basis(workload, rank)
    if basis is not None and len(basis) == rank and _spans(basis, root):
        return over_basis(np.sqrt(np.maximum(values, 0.0))[-rank:, None] * vectors.T[-rank:], basis)
    scale = np.maximum(np.sqrt(np.maximum(values, 0.0)), FLOOR * math.sqrt(float(values[-1])))
    return over_basis(scale[:, None] * vectors.T, np.eye(root.shape[1], dtype=np.int64))


def _spans(basis: Ints, rows: Array) -> bool:
    rows = rows / max(float(np.abs(rows).max()), 1e-300)
    independent = basis.astype(np.float64)
    projected = rows @ np.linalg.pinv(independent) @ independent
    return bool((np.abs(projected - rows) < 1e-6).all())
