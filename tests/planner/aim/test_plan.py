from __future__ import annotations

import dataclasses

import pytest

from dpsql.errors import InternalError
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Prefix, Workload
from dpsql.workload.factors import Measure
from dpsql.workload.workload import UnitTable, over_all
from tests.helpers.mechanisms import reason_of

SIZES = {"a": 3, "b": 5, "c": 4}


def workload():
    return Workload(SIZES).add(["b", "a"], [AllRange(), Identity()]).add(["c"], [Prefix()])


def test_any_queries_can_be_answered():
    assert reason_of("aim", workload(), Budget(rho=1)) is None
    planned = AdaptivePlan(workload(), Budget(rho=1), contributions=2, neighbours="add one person")
    assert set(planned.marginals) == {("a", "b"), ("c",)}
    assert planned.mechanism == "aim"
    assert planned.privacy_cost == planned.budget.mu_squared == 2
    assert "no variance" in planned.explain()
    assert "add one person" in planned.explain()


def test_what_cannot_be_answered_is_refused_with_the_reason():
    budget = Budget(rho=1)
    wide = Workload({f"x{i}": 2 for i in range(17)})
    wide.add(list(wide.domain), [Identity()] * 17)
    large = Workload({"x": 20_000, "y": 20_000, "z": 2})
    for name in ("x", "y"):
        large.add([name, "z"], [Identity()] * 2)
    for number in range(5):
        large = Workload({**large.domain, f"w{number}": 8_000})
    for number in range(1, 5):
        large.add(["w0", f"w{number}"], [Identity()] * 2)
    large.add(["w1", "w2"], [Identity()] * 2)
    for of, under, reason in (
        (workload(), Budget(epsilon=1, delta=0), "pure"),
        (Workload(SIZES), budget, "workload is empty"),
        (wide, budget, "attribute sets"),
        (large, budget, "320,000,000 cells"),
    ):
        assert reason in reason_of("aim", of, under)
        with pytest.raises(InternalError):
            AdaptivePlan(of, under)


def test_limits_are_for_all_tables_together():
    cells = Workload({f"w{i}": 6_000 for i in range(2)}).add(["w0", "w1"], [Identity()] * 2)
    wide = Workload({f"x{i}": 2 for i in range(15)})
    wide.add(list(wide.domain), [Identity()] * 15)
    for of, tables, reason in (
        (cells, 2, "72,000,000 cells"),
        (workload(), 3, None),
        (wide, 3, "attribute sets"),
    ):
        parts = [(UnitTable(f"t{i}", 1 + i), of) for i in range(tables)]
        together = over_all(parts, [[1.0] * len(of.families)] * tables)
        found = reason_of("aim", together, Budget(rho=1))
        assert found is None if reason is None else reason in found


def test_sums_of_values_and_units_are_refused():
    """Values may be negative even where their bound is that of counts."""
    sizes = {"a": 3, "v": 1}
    of_units = Workload(sizes).add(["a", "v"], [Identity(), Measure(1, rows=2, of_units=True)])
    for of in (Workload(sizes).add(["a", "v"], [Identity(), Measure(1)]), of_units):
        assert "neither sums" in reason_of("aim", of, Budget(rho=1))
        with pytest.raises(InternalError):
            AdaptivePlan(of, Budget(rho=1))


def test_a_digest_tells_plans_apart():
    planned = AdaptivePlan(workload(), Budget(rho=1))
    others = [
        AdaptivePlan(workload(), Budget(rho=2)),
        AdaptivePlan(workload(), Budget(rho=1), contributions=2),
        AdaptivePlan(workload().add(["a"], [Identity()]), Budget(rho=1)),
        AdaptivePlan(workload().weighted([1.0, 2.0]), Budget(rho=1)),
        AdaptivePlan(Workload({**SIZES, "a": 4}).add(["b", "a"], [Prefix()] * 2), Budget(rho=1)),
    ]
    digests = {p.digest for p in [planned, *others]}
    assert len(digests) == 6
    assert AdaptivePlan(workload(), Budget(rho=1)).digest == planned.digest
    with pytest.raises(InternalError):
        dataclasses.replace(planned, contributions=0)
