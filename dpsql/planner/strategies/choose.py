"""Ask solvers for the best strategy of each component."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product, analyze
from dpsql.planner.strategies.base import Conquered, Solution, Solver, StrategyFamily
from dpsql.planner.strategies.dual import MAX_RANK, WORK, DualSolver
from dpsql.planner.strategies.identity import IdentitySolver
from dpsql.planner.strategies.product import describe, solve_product
from dpsql.workload import Workload

LARGE = 1000
"""Dimensions from which every step takes long."""

PLAN_WORK = 1e13
"""Multiplications that one plan may cost, roughly: a few minutes. Then what is large and not yet
solved gets a product of one-attribute strategies, whose gap says what that costs."""

SOLVERS: tuple[Solver, ...] = (IdentitySolver(), DualSolver())
"""Special ones stand before general ones, which are asked where a gap is left."""


def accepting(component: Component) -> Iterator[Solver]:
    """Yield the solvers that accept the component, in the order in which they are asked.

    They are asked where residual spaces are planned; few joint cells are planned at once by the
    dual (see `whole`). Components are what `residuals.structure` leaves: a subworkload that is a
    Kronecker product is solved factor by factor, and a sum of products that is small enough is one
    component. Then:

    1. Single cells of one attribute: closed form.
    2. Rank up to 2,500: the dual, split by symmetries, over the queries' own rows where they are
       fewer than the residual space's dimension (low rank), else over the whole residual space
       (dense).
    3. Anything else: none, and the subworkload gets a product of one-attribute strategies.
    """
    return (solver for solver in SOLVERS if solver.accepts(component))


def is_accepted(component: Component) -> bool:
    """Whether a solver accepts the component."""
    return any(True for _ in accepting(component))


def refuse_unsolvable(workload: Workload) -> None:
    """Refuse queries that no solver may accept, before it takes minutes to split them.

    Few queries, and queries over few cells, are split in no time.

    Raises:
        ResourceLimitError: there are some.
    """
    for block in (block for family in workload.families for block in family.blocks):
        queries = block.queries
        many = min(queries.rows, queries.cells) > MAX_RANK
        if many and not any(solver.may_accept(queries) for solver in SOLVERS):
            raise refusal(" x ".join(block.attributes))


def refusal(where: str) -> ResourceLimitError:
    """Say that no solver takes the queries over something."""
    return ResourceLimitError(
        f"What is asked over {where} adds up its cells in more than {MAX_RANK:,} ways, as running "
        "totals, ranges and quantiles of so many ordered values do. No strategy is found for that.",
        hint="use a coarser domain, or ask for fewer different ranges; counts of its single values "
        "have no such limit.",
    )


class Solutions(StrategyFamily):
    """All strategies: the best ones of one plan. Components of equal content are solved once.

    Every component gets an eighth of the plan's tolerance: gaps of up to three factors multiply,
    and rounding needs room. Large ones, which are seldom factors of others, get a quarter. Where
    the first solver that accepts a component leaves a larger gap, so that its strategy may be a
    poor one, the next is asked as well, and the better strategy is used.
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
        return any(solver.work(component) <= self._left for solver in accepting(component))

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
        structure = analyze(terms)
        hard = structure.rest or not all(self.can_solve(c) for c in structure.components)
        if hard and len(spaces[0]) == 1 and not all(map(is_accepted, structure.components)):
            raise refusal(spaces[0][0])
        if hard and len(spaces[0]) > 1:
            solved, upper, lower = solve_product(terms, self.of)
            return Conquered(spaces, terms, solved, upper, lower, describe([c for c, _ in solved]))
        solved = tuple((c, self.of(c)) for c in structure.components)
        upper = structure.weight * math.prod(s.upper for _, s in solved)
        lower = structure.weight * math.prod(s.lower for _, s in solved)
        asked = (Product(structure.weight, structure.components),)
        return Conquered(spaces, asked, solved, upper, lower, named(solved, spaces[0]))

    def _solve(self, component: Component) -> Solution:
        tolerance = self._tolerance / (8 if component.dimension < LARGE else 4)
        alone = component.references[0].key if len(component.references) == 1 else b""
        start = self._starts.get(alone)
        best: Solution | None = None
        for solver in accepting(component):
            if best is not None and solver.work(component) > self._left:
                continue
            found = solver.solve(component, tolerance, min(WORK, self._left), start)
            self._left = max(0.0, self._left - found.work)
            best = found if best is None else best.or_better(found)
            if best.is_within(tolerance):
                break
        if best is None:
            raise refusal(" x ".join(map(str, component.shape)) + " cells")
        return best


def named(solved: tuple[tuple[Component, Solution], ...], space: tuple[str, ...]) -> str:
    """Name the solvers of some factors for `explain`, each with its attributes."""
    names = [f"{s.solver} on {' x '.join(space[axis] for axis in c.axes)}" for c, s in solved]
    return " (x) ".join(names) or "closed form"
