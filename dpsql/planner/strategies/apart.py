"""Groups apart: a strategy for each group of a limit on rows, where no joint strategy is as good.

Let at most k rows of a unit count, and at most s_g·k of them lie in the class g of a limit's cells
(`workload.spread`). What is measured of two classes together costs as much as if all k rows agreed;
what is measured of each class alone costs less: with columns of squared norm at most x_g in the
class g, it is k² times

    top(s·x) = max Σ_g z_g s_g x_g  over  0 <= z_g <= s_g, Σ z_g <= 1 ,

by the bound by pairs of classes, of which none but those of a class with itself are left. Queries
over several classes are added up from these. So with Q_g the columns of all queries in the class g,
and E_g the least error of Q_g alone at the norm 1, the error is Σ_g E_g/x_g.

*The best norms.* The error is convex in x, and top(s·x) a maximum of functions linear in x. So the
least product of the two is, by the minimax theorem,

    max over z of (Σ_g √(E_g s_g z_g))² ,     x_g in proportion to √(E_g / (s_g z_g)) :

for given z, Cauchy and Schwarz say how large x_g are best. The sum is concave in z, and at its
largest z_g = min(s_g, λ·E_g s_g), with λ such that they sum to 1; or z = s, if these sum to less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.strategies.base import Solution, Triangular
from dpsql.planner.strategies.dual import Dual, DualPoint, maximize
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.merged import MergedCells
from dpsql.planner.strategies.whole import asked_of_all, basis_of
from dpsql.workload import Workload
from dpsql.workload.spread import Apart

SOLVER = "duals of groups apart"
MOST_CELLS = 512
"""Joint cells up to which pairs of them are told apart when it is charged."""
ALIKE = 1e-9
"""Relative difference up to which two classes are asked the same."""
ORDERS = 256
"""Orders in which a random unit fills the classes."""
GOLDEN = (math.sqrt(5) - 1) / 2
PRESENT = 0.5, 0.75, 0.9, 1.0
"""Probabilities that a unit has rows in a class, of which the one with the best bound is taken."""
LEAST = 1e-9
"""Share of the rows that a class may have, which it is taken to have at least."""


@dataclass(frozen=True, slots=True, eq=False)
class _Class:
    """A class of the limit's cells, with the dual of what is asked in it."""

    share: float
    """s_g."""
    asked: Ints
    """The classes of joint cells in it of which anything is asked."""
    cells: Ints
    """For each joint cell the place of its class among these; -1 where it isn't in the group."""
    basis: Ints
    """Integer rows over these classes that span what is asked."""
    size: float
    """Squared norm of what is asked: the dual is of rows divided by its root."""
    point: DualPoint

    @property
    def error(self) -> float:
        """E_g."""
        return self.size * self.point.upper


def solve_apart(
    workload: Workload, limit: Apart, tolerance: float
) -> tuple[Component, Solution] | None:
    """Find the best strategy that measures each class of a limit alone; None if that can't be.

    The lower bound is for k = 1 and all mechanisms, as far as the limit lets rows be apart.

    Args:
        workload: what is asked.
        limit: how far apart rows of a unit are, along the axes of the attributes it touches.
        tolerance: the gap to aim for, of each class.
    """
    merged = MergedCells.of(workload)
    if merged is None or not merged.count or len(merged.classes) > MOST_CELLS:
        return None
    rows = merged.root(workload)
    groups = _groups(workload, merged, limit, rows, tolerance)
    if groups is None:
        return None
    errors = np.array([group.error for group in groups])
    shares = np.array([group.share for group in groups])
    z = _worst(errors, shares)
    norms = np.sqrt(errors / (shares * np.maximum(z, LEAST * shares)))
    norms /= norms.max()
    solved = [over_basis(group.point.root, group.basis) for group in groups]
    scaled = [
        math.sqrt(x) * solution.coefficients for x, solution in zip(norms, solved, strict=True)
    ]
    basis = [
        _spread(solution.basis, group.cells) for solution, group in zip(solved, groups, strict=True)
    ]
    strategy = Triangular(np.asarray(scipy.linalg.block_diag(*scaled)), np.vstack(basis))
    upper = float((errors / norms).sum())
    return asked_of_all(merged, rows), Solution(strategy, upper, _lower(rows, groups), SOLVER)


def _groups(
    workload: Workload, merged: MergedCells, limit: Apart, rows: Array, tolerance: float
) -> list[_Class] | None:
    """Solve what is asked in each class of the limit; None if one has no basis in integers."""
    shape = tuple(merged.shape[axis] for axis in limit.axes)
    places = np.indices(merged.shape).reshape(len(merged.shape), -1)[list(limit.axes)]
    which = np.ravel_multi_index([*places], shape)
    classes, known = list[_Class](), list[tuple[Array, DualPoint]]()
    for number, share in enumerate(limit.shares(shape)):
        here = (which == number) & (merged.classes >= 0)
        asked, inverse = np.unique(merged.classes[here], return_inverse=True)
        if not len(asked):
            continue
        cells = np.full(len(which), -1)
        cells[here] = inverse
        point, size = _solved(np.ascontiguousarray(rows[:, asked]), tolerance, known)
        basis = basis_of(workload, merged, sum(map(len, point.roots)), asked)
        if basis is None:
            return None
        classes.append(_Class(float(share), asked, cells, basis, size, point))
    return classes


def _solved(
    rows: Array, tolerance: float, known: list[tuple[Array, DualPoint]]
) -> tuple[DualPoint, float]:
    """Solve the dual of some rows, or take that of a multiple of them; and return how large."""
    product = rows.T @ rows
    size = float(np.trace(product))
    for other, point in known:
        if other.shape == product.shape and np.allclose(other, product / size, 0, ALIKE):
            return point, size
    scaled = rows / math.sqrt(size)
    point = maximize(Dual.of(scaled, (scaled.shape[1],)), tolerance)
    known.append((product / size, point))
    return point, size


def _worst(errors: Array, shares: Array) -> Array:
    """Return the z of the module, for E_g and s_g."""
    z, free = np.array(shares), np.ones(len(shares), dtype=np.bool_)
    while free.any():
        left = 1.0 - float(z[~free].sum())
        asked = errors * shares * free
        given = max(0.0, left) * asked / asked.sum()
        full = free & (given >= shares)
        if not full.any():
            return np.where(free, given, z)
        free &= ~full
    return z


def _lower(rows: Array, groups: Sequence[_Class]) -> float:
    """Bound the error of all mechanisms by a random unit.

    It goes through the classes in some order and has as many rows in each as it may, until there
    are no more, all of a class in one cell by the dual's δ of the class; or, with some probability
    and for each class by itself, none there. With h for what such a unit adds and M = E hhᵀ, no
    mechanism of the cost 1 has an error below (tr (QMQᵀ)^½)²: its error times the mean of its cost
    over such units is no less, by Cauchy and Schwarz for nuclear norms, as in `dual`.
    """
    shares = np.array([group.share for group in groups])
    # Parts of n²φ after the point are spread evenly over 0 to 1 (Weyl), and their order is mixed.
    places = np.multiply.outer(np.arange(1, ORDERS + 1), np.arange(1, len(groups) + 1) ** 2)
    orders = np.argsort(places * GOLDEN % 1.0, axis=1, kind="stable")
    until = np.minimum(np.cumsum(shares[orders], axis=1), 1.0)
    taken = np.zeros(orders.shape)
    np.put_along_axis(taken, orders, np.diff(until, axis=1, prepend=0.0), axis=1)
    pairs = taken.T @ taken / ORDERS
    cells = np.zeros((len(groups), rows.shape[1]))
    for delta, group in zip(cells, groups, strict=True):
        delta[group.asked] = group.point.delta
    alone = np.diag(np.diag(pairs) @ cells)
    others = cells.T @ (pairs - np.diag(np.diag(pairs))) @ cells
    bounds = []
    for often in PRESENT:
        values = np.linalg.eigvalsh(rows @ (often * alone + often**2 * others) @ rows.T)
        bounds.append(float(np.sqrt(np.maximum(values, 0.0)).sum()) ** 2)
    return max(bounds)


def _spread(rows: Ints, cells: Ints) -> Ints:
    """Return what rows over the classes of a group are over the joint cells."""
    spread_rows = np.hstack([rows, np.zeros((len(rows), 1), dtype=np.int64)])[:, cells]
    return np.ascontiguousarray(spread_rows)
