"""References that depend on what else is kept: unbiased, and as good as is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.querysmasher import divide_by, plan, stitch
from dpsql.planner.reconstruction import base
from dpsql.planner.residuals.spaces import References
from dpsql.planner.weights import contexts
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Suffix, Workload
from tests.helpers.overlapping import two_ends
from tests.oracle import assert_best_and_as_stated
from tests.planner.random_workloads import references, some, workloads

BUDGET = Budget(mu=1)


def stitched(workload: Workload, found: References):
    return stitch(workload, Cost(BUDGET), divide_by(workload, found, 1e-3))


@some(25)
@given(st.data(), workloads())
def test_unbiased_with_the_stated_variances(data, workload):
    planned = stitched(workload, data.draw(references(workload.domain)))
    if not planned.planned:
        return
    stated = assert_best_and_as_stated(planned)
    weights = np.repeat([f.weight for f in workload.families], [f.count for f in workload.families])
    assert planned.rmse**2 * workload.count == pytest.approx(float(weights @ stated), rel=1e-6)


@some(15)
@given(st.data(), workloads())
def test_totals_and_covariances_of_large_families(data, workload):
    """What is computed without all variances is the same."""
    planned = stitched(workload, data.draw(references(workload.domain)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "LARGE", -1)
        for family, variances in zip(workload.families, planned.variances, strict=True):
            if family.count:
                total, largest = planned.reconstruction.extent(family, workload.domain)
                assert total == pytest.approx(variances.sum(), rel=1e-7, abs=1e-9)
                assert largest >= variances.max() * (1 - 1e-9)
                every = np.eye(family.count)
                found = planned.reconstruction.combined_variances(
                    [(family, every)], workload.domain
                )
                np.testing.assert_allclose(found, variances.ravel(), rtol=1e-6, atol=1e-9)


def test_references_are_searched_for_each_context():
    """The sets of two families meet in one column, of which they ask from both ends."""
    planned = plan(two_ends(60, 16), BUDGET)
    found = References.of(planned.references)
    assert found.pivots == {"a", "c"}
    assert set(found.special) <= {("b", frozenset("a")), ("b", frozenset("c"))}
    assert found.special
    low, high = (found.within(frozenset(k))["b"].weights for k in "ac")
    assert low @ np.arange(16) != pytest.approx(high @ np.arange(16), rel=0.05)
    assert planned.gap < 1e-3
    assert planned.avoidable < 1e-3
    again = plan(two_ends(60, 16), BUDGET)
    assert again.certified.digest == planned.certified.digest


@pytest.mark.parametrize("objective", ["total", "largest"])
def test_every_objective_has_contexts(objective):
    workload = two_ends(40, 12)
    planned = plan(workload, BUDGET, objective=objective)
    assert References.of(planned.references).special
    assert planned.gap < 0.2


def test_targets_have_contexts():
    workload = Workload({"a": 40, "b": 12, "c": 40})
    workload.add(["a", "b"], [Identity(), Prefix()], name="low")
    workload.add(["b", "c"], [Suffix(), Identity()], name="high")
    planned = plan(workload, targets={"low": 5.0, "high": 5.0})
    largest = planned.expected_error()["worst_standard_error"].max()
    assert largest <= 5
    assert References.of(planned.references).special


def test_what_all_ask_alike_is_not_searched(monkeypatch):
    def searched(*_):
        pytest.fail("searched")

    monkeypatch.setattr(contexts._ContextSearch, "ended", searched)
    workload = Workload({"a": 60, "b": 16, "c": 60})
    workload.add(["a", "b"], [Identity(), Prefix()]).add(["b", "c"], [Prefix(), Identity()])
    assert not References.of(plan(workload, BUDGET).references).special
