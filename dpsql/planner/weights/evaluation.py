"""The error that references need, and its derivatives: the objective of `search`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.decompose import Subworkload
from dpsql.planner.residuals.pieces import Component, Piece, Splitter, reorder
from dpsql.planner.residuals.structure import analyze, products
from dpsql.planner.strategies.dual import Dual, maximize
from dpsql.planner.strategies.dual_solver import DualSolver
from dpsql.planner.strategies.identity import identity_error
from dpsql.planner.weights import gradient
from dpsql.planner.weights.gradient import Slopes, covariance_root

WORK = 3e11
"""Multiplications that the search may cost, roughly; what was found until then is used."""
STEPS = 10
"""How many evaluations of a dual are reckoned for a solution before it is known."""
TOLERANCE = 2e-3
"""Gap to which subworkloads are solved on the way; their lower bounds are far closer."""
MIXED = 1e-4
"""How much of the uniform δ is mixed in when a dual is solved anew: no δ may start at zero."""


class TooMuchError(Exception):
    """The search would take too long, or the dual doesn't take what is asked."""


@dataclass(slots=True)
class Spent:
    """What a search has taken so far, and what it may."""

    work: float = 0.0
    """Multiplications, roughly."""
    limit: float = WORK


@dataclass(slots=True)
class _SolvedComponent:
    """A component's least error, and the root H of its covariance."""

    error: float
    root: Array | None
    """None where the uniform references are known to be best."""


class Evaluation:
    """The errors of subworkloads for given references. Equal parts are computed once.

    A Kronecker product of components i with terms t of weights w_t has the least error

        E = Σ_t w_t Π_i e_ti ,   e_ti = tr(C_i G_ti) ,

    where C_i is the covariance of the best strategy for component i, and G_ti the Gram matrix of
    what t asks there. By the envelope theorem (see `gradient`) C_i is held fixed: `_part` gives
    e_ti and its slopes. w_t is a sum of products of squares of pieces that the space drops:
    `_add_dropped` gives their slopes.
    """

    def __init__(
        self,
        splitter: Splitter,
        weights: list[Array],
        deltas: dict[tuple[int, int], Array],
        spent: Spent,
    ) -> None:
        self._splitter, self._weights, self._deltas = splitter, weights, deltas
        self._spent = spent
        self._solved: dict[bytes, _SolvedComponent] = {}
        self._parts: dict[object, tuple[float, Slopes]] = {}

    def error(self, number: int, asked: Subworkload, final: bool) -> tuple[float, Slopes] | None:
        """Return E and its derivatives; None if the dual doesn't take the subworkload."""
        terms = products(asked, self._splitter)
        structure = analyze(terms)
        taken = (c.identity is not None or DualSolver().accepts(c) for c in structure.components)
        if structure.rest or not all(taken):
            return None
        if final and not all(c.squares for c in structure.components):
            return 0.0, {}
        solved = [(c, self._solve((number, i), c)) for i, c in enumerate(structure.components)]
        total, slopes = 0.0, dict[int, Array]()
        for term, numbers in zip(asked.terms, terms, strict=True):
            found = [self._part(c, s, term.layout) for c, s in solved]
            value = math.prod(v for v, _ in found)
            total += numbers.weight * value
            for part, its in found:
                if part:
                    gradient.add(slopes, its, numbers.weight * value / part)
            for share, dropped in term.shares:
                self._add_dropped(slopes, dropped, share * value)
        return total, slopes

    def _add_dropped(self, slopes: Slopes, dropped: tuple[Piece, ...], factor: float) -> None:
        """Add the derivatives of factor · ∏ squares of dropped pieces."""
        squares = [self._splitter.squares(p) for p in dropped]
        for i, piece in enumerate(dropped):
            others = math.prod(squares[:i] + squares[i + 1 :])
            gradient.add(slopes, self._dropped(piece)[1], factor * others)

    def _dropped(self, piece: Piece) -> tuple[float, Slopes]:
        if piece not in self._parts:
            self._parts[piece] = gradient.of_piece(piece, self._weights, np.ones((1, 1)))
        return self._parts[piece]

    def _solve(self, place: tuple[int, int], component: Component) -> _SolvedComponent:
        if not component.squares:  # the search went so far astray that the queries vanish there
            raise TooMuchError
        if component.identity is not None:
            return _SolvedComponent(identity_error(component), None)
        if component.content not in self._solved:
            dual = Dual.of(component.rows, component.shape)
            self._spent.work += 2.0 * component.rows.size * min(component.rows.shape)
            if not dual.rank or self._spent.work + STEPS * dual.work > self._spent.limit:
                raise TooMuchError
            point = maximize(dual, TOLERANCE, self._deltas.get(place))
            self._spent.work += point.evaluations * dual.work
            if point.evaluations > 1:  # else it started well enough, and would only drift off
                n = len(point.delta)
                self._deltas[place] = (1 - MIXED) * point.delta + MIXED / n
            self._solved[component.content] = _SolvedComponent(point.lower, covariance_root(point))
        return self._solved[component.content]

    def _part(
        self,
        component: Component,
        solved: _SolvedComponent,
        layout: Sequence[tuple[Piece, tuple[int, ...]]],
    ) -> tuple[float, Slopes]:
        """Return what a component gives to the error of a term's pieces, and its derivatives."""
        inside = tuple((p, axes) for p, axes in layout if set(axes) <= set(component.axes))
        if solved.root is None:
            (alone,) = (self._splitter.component(p, axes) for p, axes in inside)
            return solved.error * alone.squares / component.squares, {}
        key = component.content, component.axes, inside
        if key not in self._parts:
            slopes: Slopes = {}
            value = 0.0
            for i, (piece, axes) in enumerate(inside):
                others = [self._splitter.component(*placed) for placed in inside]
                root = gradient.contracted(solved.root, component, others[:i] + others[i + 1 :])
                shape = others[i].shape
                root = reorder(root, shape, [sorted(axes).index(axis) for axis in axes])
                value, its = gradient.of_piece(piece, self._weights, root)
                gradient.add(slopes, its)
            self._parts[key] = value, slopes
        return self._parts[key]
