"""Several solvers for one component: the best strategy is used, and no more is done than needed."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dpsql.errors import ResourceLimitError
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.residuals.pieces import Component, split
from dpsql.planner.residuals.references import Reference, row_basis
from dpsql.planner.residuals.structure import multiply
from dpsql.planner.strategies import choose
from dpsql.planner.strategies.base import Solver
from dpsql.planner.strategies.choose import Solutions, refuse_unsolvable
from dpsql.planner.strategies.dual import DualSolver
from dpsql.planner.strategies.express import over_integers
from dpsql.planner.strategies.identity import IdentitySolver
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Workload

TOLERANCE = 1e-3


class GivenSolver(Solver):
    """Accepts everything; what it finds is given, and how often it was asked is counted."""

    name = "given"

    def __init__(self, solution, work=0.0):
        self.solution, self.least, self.asked = solution, work, 0

    def accepts(self, component):
        return True

    def work(self, component):
        return self.least

    def solve(self, component, tolerance, work, start=None):
        self.asked += 1
        return self.solution


class CellsSolver(Solver):
    """Measures every cell of one attribute: a strategy for all queries, and a poor one for most."""

    name = "single cells"

    def accepts(self, component):
        return len(component.shape) == 1 and component.given is not None

    def solve(self, component, tolerance, work, start=None):
        (n,) = component.shape
        root = np.eye(n) - np.outer(np.ones(n), component.references[0].weights)
        strategy = over_integers(root, component, n - 1)
        error = float(strategy.inverse().image_squares(component.queries).sum())
        found = DualSolver().solve(component, 1.0)
        return replace(found, strategy=strategy, upper=error, solver=self.name)


def component(factor, cells=9):
    return split(factor.bind(cells), [Reference.of_cells(cells)], (True,))


@pytest.fixture
def asked():
    return component(Prefix())


@pytest.fixture
def good(asked):
    return DualSolver().solve(asked, TOLERANCE / 100)


def use(monkeypatch, *solvers):
    monkeypatch.setattr(choose, "SOLVERS", solvers)


def test_the_next_solver_is_asked_where_a_gap_is_left(monkeypatch, asked, good):
    poor = GivenSolver(replace(good, upper=good.upper * 1.1, solver="poor"))
    better, never = GivenSolver(good), GivenSolver(good)
    use(monkeypatch, poor, better, never)
    assert Solutions(TOLERANCE).of(asked).strategy is good.strategy
    assert (poor.asked, better.asked, never.asked) == (1, 1, 0)


def test_the_best_strategy_and_the_best_bound_are_kept(monkeypatch, asked, good):
    narrow = replace(good, upper=good.upper * 1.2, solver="bound")
    near = replace(good, upper=good.upper * 1.1, lower=good.lower / 2, solver="strategy")
    far = replace(good, upper=good.upper * 1.3, lower=good.lower / 2, solver="neither")
    solvers = [GivenSolver(s) for s in (narrow, near, far)]
    use(monkeypatch, *solvers)
    found = Solutions(TOLERANCE).of(asked)
    assert (found.upper, found.lower) == (near.upper, narrow.lower)
    assert found.strategy is near.strategy
    assert found.solver == "strategy"
    assert [s.asked for s in solvers] == [1, 1, 1]


def test_a_solver_that_would_take_too_long_is_not_asked_for_more(monkeypatch, asked, good):
    poor = GivenSolver(replace(good, upper=good.upper * 1.1))
    slow = GivenSolver(good, work=1e20)
    use(monkeypatch, poor, slow)
    assert Solutions(TOLERANCE).can_solve(asked)
    assert Solutions(TOLERANCE).of(asked).upper == poor.solution.upper
    assert not slow.asked
    use(monkeypatch, slow)
    assert not Solutions(TOLERANCE).can_solve(asked)


def test_a_closed_form_takes_none_of_a_plans_work(monkeypatch, asked):
    monkeypatch.setattr(choose, "PLAN_WORK", 1.0)
    solutions = Solutions(TOLERANCE)
    assert not solutions.can_solve(asked)
    solutions.of(asked)
    assert solutions.can_solve(component(Identity()))
    assert not solutions.can_solve(component(Prefix(), 10))


@pytest.mark.parametrize("factor", [Identity(), Matrix(np.ones((1, 2600)))])
def test_what_a_solver_may_accept_is_not_refused(factor):
    refuse_unsolvable(Workload({"a": 2600}).add(["a"], [factor]))


def test_what_no_solver_may_accept_is_refused_unless_a_new_one_does(monkeypatch):
    workload = Workload({"a": 2600, "b": 3}).add(["b", "a"], [AllRange(), Prefix()])
    with pytest.raises(ResourceLimitError, match="over a adds up its cells in more than 2,500"):
        refuse_unsolvable(workload)
    use(monkeypatch, IdentitySolver(), CellsSolver(), DualSolver())
    with pytest.raises(ResourceLimitError, match="No strategy is found for that"):
        refuse_unsolvable(workload)
    monkeypatch.setattr(CellsSolver, "may_accept", lambda self, queries: queries.cells == 2600)
    refuse_unsolvable(workload)


@pytest.mark.parametrize(
    ("rank", "reason"),
    [(2, "not small whole numbers"), (2999, "need a strategy of 2,999 rows, more than can be")],
)
def test_a_strategy_that_is_too_large_to_be_written_out_is_refused(rank, reason):
    large = Component((0,), (Reference.of_cells(3000),), b"", np.full((2, 3000), np.pi))
    with pytest.raises(ResourceLimitError, match=reason) as error:
        over_integers(np.ones((2, 3000)), large, rank)
    assert error.value.hint


@pytest.mark.usefixtures("never_whole")
def test_a_poor_solver_makes_no_plan_worse(monkeypatch):
    workload = Workload({"a": 20, "b": 3}).add(["a", "b"], [Prefix(), Identity()])
    before = plan(workload, Budget(mu=1), residuals="uniform")
    use(monkeypatch, IdentitySolver(), CellsSolver())
    poor = plan(workload, Budget(mu=1), residuals="uniform")
    use(monkeypatch, IdentitySolver(), CellsSolver(), DualSolver())
    both = plan(workload, Budget(mu=1), residuals="uniform")
    assert poor.rmse > 1.1 * before.rmse
    assert "single cells" in poor.explain()
    assert "single cells" not in both.explain()
    assert both.rmse == before.rmse
    assert both.gap <= before.gap


CELLS = 12
ALONG = {
    "cells": Identity(),
    "running totals": Prefix(),
    "ranges": AllRange(),
    "a few": Matrix(np.tri(CELLS)[[2, 5, 6]]),
    "one": Matrix(np.tri(CELLS)[[4]]),
}
TIED = Matrix(np.array([(np.add.outer(range(5), range(4)) <= c).ravel() for c in range(4)], float))
LEANING = Reference.of_integers(np.arange(1, CELLS + 1))


@pytest.mark.parametrize("asked", ALONG.values(), ids=ALONG)
@pytest.mark.parametrize("reference", [Reference.of_cells(CELLS), LEANING], ids=["even", "leaning"])
def test_products_with_what_is_asked_along_an_axis_have_rows_of_whole_numbers(asked, reference):
    """Else a strategy for them needs a basis of all of the space, which may be too large."""
    sides = [Reference.of_cells(5), Reference.of_integers(np.array([1, 2, 3, 1]))]
    along = replace(split(asked.bind(CELLS), [reference], (True,)), axes=(2,))
    both = multiply((split(TIED.bind(20), sides, (True, True)), along))
    assert both.numerators is not None
    rank = np.linalg.matrix_rank(both.numerators.astype(float))
    assert np.linalg.matrix_rank(np.vstack([both.numerators, both.rows])) == rank
    assert rank == len(row_basis(both.numerators)) <= 4 * (CELLS - 1)


@pytest.mark.parametrize("both", [False, True])
def test_references_that_no_solver_can_take_leave_those_that_some_can(monkeypatch, both):
    domain = {f"c{i}": 5 for i in range(3)}
    workload = Workload(domain)
    for one, other in itertools.combinations(domain, 2):
        workload.add([one, other], [Prefix(), Identity()])
    for quick in ("_plan_whole", "_product", "choose_by_context"):
        monkeypatch.setattr(querysmasher, quick, lambda *_: None)
    best = plan(workload, Budget(mu=1))
    divide = querysmasher.divide_and_conquer

    def refused(workload, coloring, references, tolerance):
        if references is None and not both:
            return divide(workload, coloring, references, tolerance)
        raise ResourceLimitError("No solver takes these.", hint="take others.")

    monkeypatch.setattr(querysmasher, "divide_and_conquer", refused)
    if both:
        with pytest.raises(ResourceLimitError, match="No solver takes these"):
            plan(workload, Budget(mu=1))
    else:
        found = plan(workload, Budget(mu=1))
        assert found.rmse == plan(workload, Budget(mu=1), residuals="uniform").rmse > best.rmse
