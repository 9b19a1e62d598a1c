"""Choose the solver for a component."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product, analyse
from dpsql.planner.strategies.base import Conquered, Solution, Solver, StrategyFamily
from dpsql.planner.strategies.dual import LEAST, MAX_RANK, WORK, DualSolver
from dpsql.planner.strategies.identity import IdentitySolver
from dpsql.planner.strategies.product import describe, solve_product

LARGE = 1000
"""Dimensions from which every step takes long."""

PLAN_WORK = 1e13
"""Multiplications that one plan may cost, roughly: a few minutes. Then what is large and not yet
solved gets a product of one-attribute strategies, whose gap says what that costs."""

SOLVERS: tuple[Solver, ...] = (IdentitySolver(), DualSolver())
"""The first that accepts a component is used: special ones stand before general ones."""


def choose(component: Component) -> Solver | None:
    """Return the first solver that accepts the component.

    It is asked where residual spaces are planned; few joint cells are planned at once without it
    (see `whole`). Components are what `residuals.structure` leaves: a subworkload that is a
    Kronecker product is solved factor by factor, and a sum of products that is small enough is one
    component. Then:

    1. Single cells of one attribute: closed form.
    2. Rank up to 2,500: the dual, split by symmetries, over the queries' own rows where they are
       fewer than the residual space's dimension (low rank), else over the whole residual space
       (dense).
    3. Anything else: None, and the subworkload gets a product of one-attribute strategies.
    """
    return next((solver for solver in SOLVERS if solver.accepts(component)), None)


class Solutions(StrategyFamily):
    """All strategies: the best ones of one plan. Components of equal content are solved once.

    Every component gets an eighth of the plan's tolerance: gaps of up to three factors multiply,
    and rounding needs room. Large ones, which are seldom factors of others, get a quarter.
    Those over one attribute may begin at a dual δ that is known for its reference, by the key.
    """

    def __init__(
        self, tolerance: float, starts: Mapping[bytes, Array] = MappingProxyType({})
    ) -> None:
        self._tolerance = tolerance
        self._starts = starts
        self._left = PLAN_WORK
        self._known: dict[tuple[tuple[int, ...], bytes], Solution] = {}

    def can_solve(self, component: Component) -> bool:
        """Whether a solver accepts a component, and the plan may still take that long."""
        if (component.shape, component.content) in self._known:
            return True
        rank = min(component.dimension, len(component.rows)) if component.given is not None else 0
        return choose(component) is not None and LEAST * 10 * rank**3 <= self._left

    def of(self, component: Component) -> Solution:
        """Solve one component, or remember it.

        Raises:
            ResourceLimitError: no solver accepts it.
        """
        content = (component.shape, component.content)
        if content not in self._known:
            self._known[content] = self._solve(component)
        return self._known[content]

    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Find the best strategy that can be found, for each factor on its own where that is best.

        Raises:
            ResourceLimitError: no solver can take it.
        """
        structure = analyse(terms)
        hard = structure.rest or not all(self.can_solve(c) for c in structure.components)
        if hard and len(spaces[0]) == 1 and any(choose(c) is None for c in structure.components):
            raise ResourceLimitError(
                f"The queries over {spaces[0][0]} have rank above {MAX_RANK:,} and no structure "
                "that a solver knows.",
                hint="use a coarser domain, or ask for fewer different ranges.",
            )
        if hard and len(spaces[0]) > 1:
            solved, upper, lower = solve_product(terms, self.of)
            return Conquered(spaces, terms, solved, upper, lower, describe([c for c, _ in solved]))
        solved = tuple((c, self.of(c)) for c in structure.components)
        upper = structure.weight * math.prod(s.upper for _, s in solved)
        lower = structure.weight * math.prod(s.lower for _, s in solved)
        asked = (Product(structure.weight, structure.components),)
        return Conquered(spaces, asked, solved, upper, lower, named(solved, spaces[0]))

    def _solve(self, component: Component) -> Solution:
        solver = choose(component)
        if solver is None:
            raise ResourceLimitError(
                f"Some queries over {' x '.join(map(str, component.shape))} cells have rank above "
                f"{MAX_RANK:,} and no structure that a solver knows.",
                hint="use a coarser domain, or ask for fewer different ranges.",
            )
        share = 8 if component.dimension < LARGE else 4
        alone = component.references[0].key if len(component.references) == 1 else b""
        work, start = min(WORK, self._left), self._starts.get(alone)
        solution = solver.solve(component, self._tolerance / share, work, start)
        self._left -= solution.work
        return solution


def named(solved: tuple[tuple[Component, Solution], ...], space: tuple[str, ...]) -> str:
    """Name the solvers of some factors for `explain`, each with its attributes."""
    names = [f"{s.solver} on {' x '.join(space[axis] for axis in c.axes)}" for c, s in solved]
    return " (x) ".join(names) or "closed form"
