"""The planner and its bookkeeping against the dense oracle, on random small workloads."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget
from dpsql.workload import Identity, Matrix, Prefix, Workload
from tests.oracle import assert_best_and_as_stated, exact_cost
from tests.planner.random_workloads import some, workloads

SETTINGS = some(60)
pytestmark = pytest.mark.usefixtures("quick_cells")
RESIDUALS = st.sampled_from(["uniform", "weighted", "none"])


@SETTINGS
@given(workloads(), st.sampled_from([Fraction(1, 50), Fraction(1), Fraction(400)]), RESIDUALS)
def test_unbiased_with_the_stated_variances_at_the_stated_cost(workload, mu_squared, residuals):
    planned = plan(workload, Budget(rho=mu_squared / 2), residuals=residuals)
    blocks = planned.certified.blocks
    assert planned.privacy_cost <= mu_squared
    if not blocks:
        assert all(not v.any() for v in planned.variances)
        return
    assert_best_and_as_stated(planned)
    # Every cell of one residual space is in a worst position for some record, but one record
    # need not be worst for all spaces at once: the certified cost may exceed the exact one.
    assert exact_cost(blocks, workload.domain) <= planned.privacy_cost


@SETTINGS
@given(workloads(), RESIDUALS)
def test_total_is_within_the_certified_gap(workload, residuals):
    planned = plan(workload, Budget(mu=1), tolerance=1e-4, residuals=residuals)
    assert -1e-9 <= planned.gap <= 2e-3


@SETTINGS
@given(workloads(), RESIDUALS)
def test_the_privacy_cost_is_nearly_the_budget(workload, residuals):
    planned = plan(workload, Budget(mu=1), residuals=residuals)
    if planned.planned:
        assert 1 - 1e-4 <= planned.privacy_cost <= 1


def test_exact_cost_is_attained_where_columns_are_alike():
    """For identity workloads all cells are alike, so the certificate is tight."""
    workload = Workload({"a": 3, "b": 4}).add(["a", "b"], [Identity(), Identity()])
    planned = plan(workload, Budget(mu=1))
    cost = exact_cost(planned.certified.blocks, workload.domain)
    assert cost == pytest.approx(float(planned.privacy_cost), rel=1e-6)


def test_zero_queries_cost_nothing():
    planned = plan(Workload({"a": 3}).add(["a"], Matrix(np.zeros((2, 3)))), Budget(mu=1))
    assert planned.privacy_cost == 0
    assert planned.rmse == 0
    assert planned.gap == 0


def test_a_domain_of_size_one_needs_the_total_only():
    planned = plan(Workload({"a": 1}).add(["a"], [Prefix()]), Budget(mu=1))
    assert [b.spaces for b in planned.certified.blocks] == [((),)]
    assert planned.rmse == pytest.approx(1.0, rel=1e-6)


def test_nothing_has_the_size_of_the_full_domain():
    """The product of the sizes is 10^60: only marginals may be touched."""
    workload = Workload({f"x{i}": 10 for i in range(60)})
    workload.add(["x3", "x59"], [Prefix(), Identity()])
    assert plan(workload, Budget(mu=1)).rmse > 0


def test_plans_are_reproducible():
    workload = Workload({"a": 20, "b": 7}).add(["a", "b"], [Prefix(), Identity()])
    first, second = (plan(workload, Budget(mu=1)) for _ in range(2))
    assert first.certified.digest == second.certified.digest
