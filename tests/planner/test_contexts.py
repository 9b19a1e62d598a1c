"""References that depend on what else is kept: unbiased, and as good as is claimed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.base import Cost
from dpsql.planner.mechanisms.querysmasher import divide_by, plan, stitch
from dpsql.planner.reconstruction import base
from dpsql.planner.residuals.spaces import References
from dpsql.planner.weights import contexts
from dpsql.planner.weights import search as search_module
from dpsql.planner.weights.search import ReferenceSearch
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


def several_torn() -> Workload:
    """Three columns of which families over other columns ask other things."""
    workload = Workload({"a": 6, "b": 5, "c": 7, "d": 4})
    workload.add(["a", "d"], [Prefix(), Identity()], 3.0)
    workload.add(["a", "b"], [Suffix(), Identity()])
    workload.add(["b", "c"], [Prefix(), Identity()], 2.0)
    return workload.add(["c", "d"], [Suffix(), Identity()])


def searched(workload: Workload, monkeypatch) -> tuple[dict[frozenset[int], float], ...]:
    """Return by how much Σ √E falls for each choice of colors, after a few steps and in the end."""
    tried, ended = dict[frozenset[int], float](), dict[frozenset[int], float]()
    search = contexts._ContextSearches.ended

    def noted(self, evaluations):
        found = search(self, evaluations)
        (tried if evaluations == contexts.FEW else ended)[self.colors] = found.gain
        return found

    monkeypatch.setattr(contexts._ContextSearches, "ended", noted)
    plan(workload, BUDGET)
    return tried, ended


def test_what_gains_most_in_a_few_steps_is_searched_to_the_end(monkeypatch, never_whole):
    tried, ended = searched(several_torn(), monkeypatch)
    assert len(tried) > 2
    assert list(ended) == [max(tried, key=tried.get)]
    assert ended[max(tried, key=tried.get)] >= max(tried.values())


def test_all_references_move_together_in_the_end(monkeypatch, never_whole):
    """The slopes of a sum over contexts, of which the pivots' references are in several."""
    found = list[contexts._Together]()
    monkeypatch.setattr(search_module, "POLISHING_TOLERANCE", 1e-9)
    polished = contexts._ContextSearches.polished

    def noted(self):
        found.append(contexts._Together.of(self))
        return polished(self)

    monkeypatch.setattr(contexts._ContextSearches, "polished", noted)
    plan(several_torn(), BUDGET)
    (together,) = found
    of_colors = len(together._places[frozenset()])
    assert len(together.start) > of_colors
    weights = [w + 0.02 * np.sin(np.arange(len(w))) for w in together.start]
    weights = [w / w.sum() for w in weights]
    value, slopes = together.objective(weights)
    for number in together._moved:
        step = np.zeros(len(weights[number]))
        step[:2] = 1e-6, -1e-6
        above, below = (
            together.objective([*weights[:number], weights[number] + s, *weights[number + 1 :]])[0]
            for s in (step, -step)
        )
        expected = (above - below) / 2e-6
        assert slopes[number][0] - slopes[number][1] == pytest.approx(
            expected, rel=1e-3, abs=1e-4 * value
        )


@pytest.mark.parametrize("left", [0.0, 1e5, 1e6])
def test_a_search_without_time_is_no_worse_than_common_references(left, monkeypatch, never_whole):
    with monkeypatch.context() as patch:
        patch.setattr(querysmasher, "choose_by_context", lambda *_: None)
        common = plan(several_torn(), BUDGET).rmse
    monkeypatch.setattr(ReferenceSearch, "work_left", left)
    assert plan(several_torn(), BUDGET).rmse <= common * (1 + 1e-4)
