from __future__ import annotations

from itertools import combinations

import pytest

from dpsql.linalg.subsets import subsets
from dpsql.planner.mechanisms.aim.plan import Targets
from dpsql.workload import Identity, Prefix, Total, Workload

SIZES = {"a": 3, "b": 2, "one": 1, "c": 4}


def targets():
    workload = Workload(SIZES)
    workload.add(["b", "a"], [Prefix(), Identity()], weight=2.0)
    workload.add(["a", "b", "one"], [Identity()] * 3)
    workload.add(["c"], [Total()], weight=0.5)
    return Targets.of(workload)


def test_families_over_the_same_attributes_are_one_target():
    assert dict(targets().weights) == {("a", "b"): 3.0, ("c",): 0.5}
    assert dict(targets().sizes) == {"a": 3, "b": 2, "c": 4}


def test_the_closure_is_every_subset_in_order():
    found = targets()
    assert found.closure == ((), ("a",), ("b",), ("c",), ("a", "b"))
    assert set(found.largest) == {("a", "b"), ("c",)}
    assert found.closure_bound >= len(found.closure)
    assert found.cells(("a", "b")) == 6


def test_subsets_keep_the_order():
    assert list(subsets(("x", "y"))) == [(), ("x",), ("y",), ("x", "y")]


def test_weights_are_what_candidates_share_with_the_targets():
    """w_r = Σ_s c_s |r ∩ s|, up to one factor."""
    weights = targets().candidates
    exact = {("a",): 3.0, ("b",): 3.0, ("c",): 0.5, ("a", "b"): 6.0}
    assert set(weights) == set(exact)
    assert max(weights.values()) == 1 << 16
    for candidate, weight in weights.items():
        assert weight == pytest.approx(exact[candidate] / 6 * (1 << 16), rel=1e-4)
        assert type(weight) is int


def test_light_candidates_still_count():
    workload = Workload({"a": 2, "b": 2})
    workload.add(["a"], [Identity()], weight=1e9).add(["b"], [Identity()], weight=1e-9)
    assert Targets.of(workload).candidates[("b",)] == 1


def test_many_three_way_marginals():
    names = [f"x{i}" for i in range(14)]
    workload = Workload(dict.fromkeys(names, 3))
    for triple in combinations(names, 3):
        workload.add(list(triple), [Identity()] * 3)
    found = Targets.of(workload)
    assert len(found.largest) == 364
    assert len(found.closure) == 1 + 14 + 91 + 364
    # C(13, 2) triples hold one attribute, twelve hold both of a pair.
    single, pair = found.candidates[("x0",)], found.candidates[("x0", "x1")]
    assert pair / single == pytest.approx(2, rel=1e-3)
