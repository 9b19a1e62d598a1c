"""Targets and the least largest variance, against the least that any mechanism can reach."""

from __future__ import annotations

import random

import numpy as np
import pytest
import scipy.linalg

import dpsql
from dpsql.planner.strategies.minimax import weigh
from dpsql.workload import AllRange, Identity, Prefix, Workload
from tests.benchmarks.targets_bound import PLAIN, budget, largest, small

CLOSE = 1.0005
SHARE = 1.004
"""With statements without a target, which get a share of 0.3 percent."""


def check(workload: Workload, targets: dict[str, float]) -> None:
    found, most = budget(workload, targets), largest(workload)
    found.check()
    most.check()
    assert found.ratio <= (CLOSE if len(targets) == len(workload.families) else SHARE)
    assert most.ratio <= CLOSE


@pytest.mark.parametrize("name", ["running totals of 8 cells", "all ranges of 4 cells"])
def test_answers_of_one_statement_that_vary_unequally(name):
    cells, factor = PLAIN[name]
    check(Workload({"a": cells}).add(["a"], [factor], name="q"), {"q": 10.0})


@pytest.mark.parametrize("seed", [1, 4, 13, 28, 30])
def test_random_workloads(seed):
    check(*small(random.Random(seed)))  # noqa: S311


@pytest.mark.long
@pytest.mark.parametrize("seed", range(80, 160))
def test_bounds_of_many_random_workloads_hold(seed):
    workload, targets = small(random.Random(seed))  # noqa: S311
    budget(workload, targets).check()
    largest(workload).check()


@pytest.mark.parametrize("queries", [Prefix(), AllRange()])
def test_products_beyond_a_whole_domain(queries):
    """Single cells along a second axis cost nothing: γ₂ of a product is that of its factors."""
    alone = Workload({"a": 40}).add(["a"], [queries], name="q")
    both = Workload({"a": 40, "b": 12}).add(["a", "b"], [queries, Identity()], name="q")
    least, found = (dpsql.plan(workload, targets={"q": 10}) for workload in (alone, both))
    assert least.gap <= 1e-3
    assert not found.whole
    ratio = float(found.budget.mu_squared / least.budget.mu_squared)
    assert 1 - 1e-3 <= ratio <= (1 + found.gap) * (1 + 1e-3)
    assert found.gap <= 5e-3


def test_the_factorization_norm_of_hadamard_matrices_is_known():
    """γ₂(H)² of n × n entries ±1 with orthogonal rows is n."""
    found = weigh(scipy.linalg.hadamard(16).astype(float), 1e-6)
    assert found.lower <= 16 <= found.upper * (1 + 1e-9)
    assert found.gap <= 1e-6


def test_answers_and_cells_play_the_same_part():
    rows = np.tril(np.ones((9, 9)))[[0, 2, 3, 7]]
    one, other = weigh(rows, 1e-4), weigh(rows.T, 1e-4)
    assert one.lower == pytest.approx(other.lower, rel=2e-4)
    assert max(one.gap, other.gap) <= 1e-4


def test_bounds_hold_where_weights_tend_to_nothing():
    """Guesses that lose a direction here made an upper bound of 1, below the lower one."""
    ones = [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 1, 1], [0, 0, 1]]
    rows = np.array([*ones, [0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=float)
    found = weigh(rows, 1e-4)
    assert found.lower <= 1.8 * (1 + 1e-6) <= found.upper * (1 + 1e-5)
    assert 0 <= found.gap <= 1e-4


def test_answers_that_are_known_without_data_have_no_weight():
    rows = np.vstack([np.tril(np.ones((4, 4))), np.zeros((1, 4))])
    found = weigh(rows, 1e-4)
    assert found.weights[-1] == 0
    assert found.lower == pytest.approx(weigh(rows[:-1], 1e-4).lower, rel=2e-4)
