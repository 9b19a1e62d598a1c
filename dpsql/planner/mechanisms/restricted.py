"""The common parts of the mechanisms that restrict the strategies of residual spaces."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np

from dpsql.linalg.roots import compressed
from dpsql.planner.mechanisms.base import (
    DEFAULT,
    Cost,
    Mechanism,
    Options,
    budget_of,
    reason_of_kind,
)
from dpsql.planner.mechanisms.querysmasher import Divided, stitch
from dpsql.planner.plans.plan import Plan
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product, analyze
from dpsql.planner.strategies.choose import Solutions, least_error, least_error_of
from dpsql.planner.strategies.dual import MAX_RANK, Dual, evaluate
from dpsql.planner.strategies.identity import IdentitySolver, identity_error
from dpsql.privacy import Budget
from dpsql.workload import Block, Workload

CLOSE = 1e-2
"""How close the optimum over all strategies is bounded, where that is quick."""
QUICK = 256
"""Ranks of queries over one attribute up to which it is."""

IDENTITY = IdentitySolver()


class RestrictedMechanism(Mechanism):
    """Measures residual spaces as QuerySmasher does, by strategies of a restricted form."""

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say why its noise or its strategies can't answer a workload."""
        return reason_of_kind(workload, budget) or self.reason_of_queries(workload)

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Share the budget among residual spaces so that the total error is least."""
        cost = Cost(budget_of(budget), options.contributions, options.bound, options.spreads)
        return stitch(workload, cost, self.divide(workload, options))

    @abstractmethod
    def reason_of_queries(self, workload: Workload) -> str | None:
        """Say which of the queries of a workload it can't answer; None if there are none."""

    @abstractmethod
    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Split a workload, with the mechanism's strategies for its residual spaces."""


def tells_apart(block: Block) -> bool:
    """Whether any query of a block says different things of different cells."""
    squares, sums = block.queries.squares(), block.queries.sums()
    return bool((squares * block.queries.cells > np.square(sums) * (1 + 1e-12)).any())


class Bounds:
    """Lower bounds on the error of any strategy for a residual space, at privacy cost 1.

    A family's own optimum is no bound for other strategies. Queries over one attribute are
    bounded by the dual (see `strategies.dual`), those over several by the dual at uniform δ, which
    is (tr G^{1/2})²/N: the singular value bound (Li and Miklau, "Lower bounds on the error of query
    sets under the differentially-private matrix mechanism", 2015) within the space. Bounds of
    Kronecker factors multiply.
    """

    def __init__(self) -> None:
        self._solutions = Solutions(CLOSE)
        self._known: dict[tuple[tuple[int, ...], bytes], float] = {}

    def of(self, terms: tuple[Product, ...]) -> float:
        """Bound the least weighted variance that answers some terms."""
        structure = analyze(terms)
        if structure.rest:
            return least_error(terms)
        return structure.weight * math.prod(map(self._of_component, structure.components))

    def _of_component(self, component: Component) -> float:
        key = component.shape, component.content
        if key not in self._known:
            self._known[key] = self._bound(component)
        return self._known[key]

    def _bound(self, component: Component) -> float:
        if component.identity is not None:
            return identity_error(component)
        rank = min(component.rows.shape)
        if len(component.axes) == 1 and rank <= QUICK:
            return self._solutions.of(component).lower
        if rank > MAX_RANK:
            return least_error_of(component.rows)
        dual = Dual.of(component.rows, component.shape)
        return evaluate(dual, np.full(dual.cells, 1 / dual.cells)).lower


class FewRows:
    """Writes queries with no more rows than cells; errors depend on their Gram matrices only."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], bytes], Component] = {}

    def of(self, terms: tuple[Product, ...]) -> tuple[Product, ...]:
        """Return terms with the same Gram matrices."""
        return tuple(Product(t.weight, tuple(map(self._of_piece, t.pieces))) for t in terms)

    def _of_piece(self, piece: Component) -> Component:
        if piece.given is None or len(piece.given) <= piece.given.shape[1]:
            return piece
        key = piece.shape, piece.content
        if key not in self._known:
            self._known[key] = replace(piece, given=compressed(piece.given), numerators=None)
        return replace(self._known[key], axes=piece.axes)
