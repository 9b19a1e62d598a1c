"""Ask solvers for the best strategy of each component."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import Kronecker
from dpsql.linalg.roots import independent_root
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product, analyze
from dpsql.planner.strategies.base import Conquered, Solution, Solver, Strategy, StrategyFamily
from dpsql.planner.strategies.dual import MAX_RANK, WORK, DualSolver
from dpsql.planner.strategies.identity import IdentitySolver
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
        hint="use a coarser domain, or a coarser value of each row, as "
        "MAX(date_trunc('month', day)) is of days; or ask for fewer different ranges. Counts of "
        "single values have no such limit.",
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
            solution = solver.solve(component, tolerance, min(WORK, self._left), start)
            self._left = max(0.0, self._left - solution.work)
            best = solution if best is None else best.or_better(solution)
            if best.is_within(tolerance):
                break
        if best is None:
            raise refusal(" x ".join(map(str, component.shape)) + " cells")
        return best


def named(solved: tuple[tuple[Component, Solution], ...], space: tuple[str, ...]) -> str:
    """Name the solvers of some factors for `explain`, each with its attributes."""
    names = [f"{s.solver} on {' x '.join(space[axis] for axis in c.axes)}" for c, s in solved]
    return " (x) ".join(names) or "closed form"


# ── A product strategy for sums that are too large to solve as they are: honest, not optimal ─────


def solve_product(
    terms: Sequence[Product], solve: Callable[[Component], Solution]
) -> tuple[tuple[tuple[Component, Solution], ...], float, float]:
    """Find one strategy per axis and measure their Kronecker product.

    Each axis's strategy is optimal for the workload that the queries leave on it when the other
    axes' coefficients are taken as further queries. The product spans the whole
    residual space, so every query can be answered.

    Returns:
        The solved components, and an upper and a lower bound on the error at cost 1. The lower
        bound adds up one bound per term (the least error is superadditive in the Gram matrix),
        so it is valid but may be loose: the gap of such a plan says so.
    """
    axes = sorted(axis for p in terms[0].pieces for axis in p.axes)
    components = tuple(_shadow(terms, axis) for axis in axes)
    solved = tuple((c, solve(c)) for c in components)
    upper = product_error(terms, {c.axes[0]: s.strategy for c, s in solved})
    return solved, upper, least_error(terms)


def product_error(terms: Sequence[Product], strategies: Mapping[int, Strategy]) -> float:
    """Return the error of the Kronecker product of some strategies, one for each axis."""
    inverses = {axis: strategy.inverse() for axis, strategy in strategies.items()}

    def error(p: Component) -> float:
        """Return Σ over the piece's queries of ‖q (⊗B_i)⁺‖²."""
        if len(p.axes) == 1:
            return float(inverses[p.axes[0]].image_squares(p.queries).sum())
        return float(np.square(p.rows @ Kronecker(inverses[axis] for axis in p.axes)).sum())

    return math.fsum(t.weight * math.prod(error(p) for p in t.pieces) for t in terms)


def least_error(terms: Sequence[Product]) -> float:
    """Bound the least error of a sum of products from below: one bound for each term, added up."""
    return math.fsum(t.weight * math.prod(least_error_of(p.rows) for p in t.pieces) for t in terms)


def _shadow(terms: Sequence[Product], axis: int) -> Component:
    """Collect what the terms ask along one axis."""
    parts: list[Array] = []
    for term in terms:
        p = next(p for p in term.pieces if axis in p.axes)
        at = p.axes.index(axis)
        reference = p.references[at]
        along = np.moveaxis(p.rows.reshape(-1, *p.shape), at + 1, -1).reshape(-1, p.shape[at])
        root, _ = independent_root(along.T @ along, 1e-12)
        parts.append(math.sqrt(term.weight / np.square(along).sum()) * root)
    rows = np.vstack(parts)
    return Component((axis,), (reference,), hashlib.sha256(rows.tobytes()).digest(), rows)


def least_error_of(rows: Array) -> float:
    """Bound the least error of some queries from below, without a factorization.

    At uniform δ the dual gives (tr G^{1/2})² / N, and by Hölder's inequality
    tr G^{1/2} >= (tr G)^{3/2} / (tr G²)^{1/2}.
    """
    m, n = rows.shape
    gram = rows @ rows.T if m < n else rows.T @ rows
    trace, squared = float(np.trace(gram)), float(np.square(gram).sum())
    return float(trace**3 / squared / n)


def describe(components: Sequence[Component]) -> str:
    """Name the solver for `explain`."""
    return f"product of {len(components)} one-attribute strategies (not optimal; see the gap)"
