"""Mechanisms side by side on workloads, and the bounds that stand beside them."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import duckdb
import numpy as np
import psutil
import pytest

import dpsql
from dpsql.errors import InternalError, MechanismError, WorkloadError
from dpsql.planner import registry
from dpsql.planner.comparison import peak_memory
from dpsql.planner.mechanisms.base import DEFAULT
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.registry import able, reason_unsupported
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Workload

UNBIASED = [name for name, traits in MECHANISMS.items() if not traits.is_biased]
GAUSSIAN, PURE = Budget(rho=0.5), Budget(epsilon=1, delta=0)


def mixed() -> Workload:
    found = Workload({"age": 20, "sex": 2, "town": 5})
    found.add(["age"], [Prefix()], weight=3.0)
    found.add(["age", "sex"], [AllRange(), Identity()])
    return found.add(["town", "sex"], [Identity(), Identity()])


def test_columns_and_order() -> None:
    found = dpsql.compare(mixed(), budget=GAUSSIAN)
    assert found.frame.columns == [
        "mechanism", "rmse", "worst_standard_error", "lower_bound", "bound", "seconds", "peak_mb",
        "note",
    ]  # fmt: skip
    known = found.frame.drop_nulls("rmse")
    assert known["rmse"].round_sig_figs(6).is_sorted()
    own = known.filter(mechanism="querysmasher")["rmse"].item()
    assert own <= 1.001 * known["rmse"][0]
    assert (known["seconds"] > 0).all()
    assert (known["peak_mb"] >= 0).all()
    assert (known["worst_standard_error"] > 0).all()


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=str)
def test_bounds_hold(budget: Budget) -> None:
    """No mechanism is better than a bound for all of them, or than its own certificate."""
    frame = dpsql.compare(mixed(), budget=budget).frame.drop_nulls("rmse")
    assert frame.height >= 2
    assert (frame["lower_bound"] <= frame["rmse"] * (1 + 1e-9)).all()
    general = frame.filter(frame["bound"].str.contains("SVD"))
    assert general.height
    assert general["lower_bound"].max() <= frame["rmse"].min() * (1 + 1e-9)


def test_every_mechanism_is_there_and_those_that_refuse_say_why() -> None:
    frame = dpsql.compare(mixed(), budget=GAUSSIAN).frame
    assert set(frame["mechanism"]) == {*MECHANISMS, "querysmasher (uniform)"}
    notes = dict(zip(frame["mechanism"], frame["note"], strict=True))
    assert "pure" in notes["laplace"]
    assert "marginals" in notes["residualplanner"]
    assert "by the data" in notes["aim"]
    assert able(mixed(), GAUSSIAN) == tuple(
        name for name in MECHANISMS if MECHANISMS[name].is_biased or notes[name] is None
    )


def test_some_of_them() -> None:
    found = dpsql.compare(mixed(), budget=PURE, mechanisms=["laplace", "hdmm", "laplace"])
    assert sorted(found.frame["mechanism"]) == ["hdmm", "laplace"]


def test_it_is_printed_side_by_side() -> None:
    text = repr(dpsql.compare(mixed(), budget=GAUSSIAN))
    first, empty, header, *rows = text.splitlines()
    assert first == f"{mixed().count:,} queries in 3 families, ρ = 0.5"
    assert empty == ""
    assert header.split()[:2] == ["mechanism", "rmse"]
    assert len(rows) == len(MECHANISMS) + 1
    assert all(len(row) == len(row.rstrip()) for row in rows)
    ends = {row.index(" ", len("querysmasher (uniform)")) for row in rows}
    assert ends, "names are padded to the longest"


def test_it_is_shown_in_notebooks_with_everything_escaped() -> None:
    comparison = dpsql.compare(mixed(), budget=GAUSSIAN)
    html = comparison._repr_html_()
    shown = comparison.plot().to_dict()
    best = comparison.frame["mechanism"][0]
    bars = {row["key"] for layer in shown["layer"] for row in layer["data"]["values"]}
    assert bars == set(comparison.frame.drop_nulls("rmse")["mechanism"])
    assert f"{best} has the least" in html
    assert "querysmasher" in html
    assert "<table" in html


def test_joint_queries_over_many_cells_are_no_job_for_fourier() -> None:
    sizes = {"a": 100, "b": 100}
    joint = np.tri(199, 100)[:, :1] * np.ones((199, 1)) * np.ones((1, 10_000))
    joint *= np.add.outer(np.arange(100), np.arange(100)).ravel() <= np.arange(199)[:, None]
    affine = Workload(sizes).add([("a", "b")], Matrix(joint))
    reason = reason_unsupported("fourier", affine, GAUSSIAN)
    assert reason is not None
    assert "10,000 cells" in reason
    with pytest.raises(MechanismError, match="too large") as caught:
        dpsql.plan(affine, budget=GAUSSIAN, mechanism="fourier")
    assert "gaussian" in str(caught.value.hint)
    assert "fourier" not in str(caught.value.hint)


@pytest.mark.parametrize("name", UNBIASED)
def test_joint_queries_of_which_none_is_left(name: str) -> None:
    """As groups by the values of a public table that no private row can meet."""
    workload = Workload({"a": 3, "b": 4, "c": 2}).add(["c", "a"], [Identity(), Prefix()])
    workload.add([("a", "b"), "c"], [Matrix(np.zeros((0, 12))), Identity()])
    budget = PURE if name == "laplace" else GAUSSIAN
    if reason_unsupported(name, workload, budget) is None:
        planned = registry.plan(workload, budget, name)
        assert planned.expected_error()["rows"].to_list() == [6, 0]
        assert planned.variances[1].shape == (0, 2)


@pytest.mark.parametrize("name", sorted({*UNBIASED} - {"laplace", "residualplanner"}))
def test_statements_without_groups_are_released_beside_others(name: str) -> None:
    con = duckdb.connect()
    columns = (f"{c} SMALLINT NOT NULL CHECK ({c} BETWEEN 0 AND 3)" for c in "ab")
    con.execute(f"CREATE TABLE t ({', '.join(columns)})").fetchall()
    script = {
        "some": "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "none": "SELECT q, COUNT(*) AS n FROM t JOIN range(0, 9) AS r(q) ON a - b >= q "
        "WHERE a < b GROUP BY q",
    }
    release = dpsql.Session(con).release(script, budget=GAUSSIAN, mechanism=name)
    assert (release["some"].height, release["none"].height) == (4, 0)


def test_bad_input() -> None:
    with pytest.raises(WorkloadError):
        dpsql.compare(Workload({"a": 2}), budget=GAUSSIAN)
    with pytest.raises(MechanismError):
        dpsql.compare(mixed(), budget=GAUSSIAN, mechanisms=["best"])
    with pytest.raises(dpsql.BudgetError):
        dpsql.compare(mixed(), budget=0.5)  # type: ignore[arg-type]
    with pytest.raises(dpsql.SqlError):
        dpsql.compare(mixed(), "SELECT 1", budget=GAUSSIAN)


@pytest.mark.parametrize("name", UNBIASED)
def test_workloads_are_planned_by_name(name: str) -> None:
    marginals = Workload({"a": 4, "b": 3}).add(["a", "b"], [Identity(), Identity()])
    budget = PURE if name == "laplace" else GAUSSIAN
    plan = dpsql.plan(marginals, budget=budget, mechanism=name)
    assert plan.mechanism == name
    assert plan.explain().startswith(f"{MECHANISMS[name].title} plan:")
    assert plan.privacy_cost <= budget.mu_squared
    assert f"plan({marginals.count}" in repr(plan).lower()


@pytest.mark.parametrize("name", UNBIASED)
def test_the_budget_is_spent(name: str) -> None:
    """Noise has whole numbers as parameters: entries that are not scaled would waste most of it."""
    marginals = Workload({"a": 4, "b": 3}).add(["a", "b"], [Identity(), Identity()])
    budget = Budget(epsilon=7, delta=0) if name == "laplace" else Budget(mu=7)
    plan = dpsql.plan(marginals.add(["b"], [Identity()]), budget=budget, mechanism=name)
    assert 0.999 * budget.mu_squared <= plan.privacy_cost <= budget.mu_squared


@pytest.mark.parametrize(("name", "measured"), [("hdmm", "marginals"), ("fourier", "residual")])
def test_traits_that_say_something_else_than_is_measured(
    monkeypatch: pytest.MonkeyPatch, name: str, measured: str
) -> None:
    """Only what is found when it is planned costs nothing: a release would be kept unreadable."""
    traits = MECHANISMS[name]
    other = replace(traits, measures_marginals=not traits.measures_marginals)
    monkeypatch.setattr(registry, "MECHANISMS", {**MECHANISMS, name: other})
    with pytest.raises(InternalError, match=f"'{name}' measures {measured}"):
        dpsql.plan(mixed(), budget=GAUSSIAN, mechanism=name)


def test_a_name_without_a_mechanism_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MECHANISMS", {**MECHANISMS, "novel": MECHANISMS["hdmm"]})
    with pytest.raises(InternalError, match=r"'novel' has no case in `mechanism_of`"):
        registry.planned(mixed(), GAUSSIAN, "novel", DEFAULT)


def test_the_largest_variance_is_for_two_of_them() -> None:
    marginals = Workload({"a": 4, "b": 3, "c": 2})
    marginals.add(["a", "b"], [Identity(), Identity()]).add(["c"], [Identity()])
    best = {
        name: dpsql.plan(marginals, budget=GAUSSIAN, mechanism=name, objective="largest")
        .expected_error()["worst_standard_error"]
        .max()
        for name in ("querysmasher", "residualplanner")
    }
    assert best["querysmasher"] == pytest.approx(best["residualplanner"], rel=5e-3)
    for name in ("fourier", "hdmm", "gaussian", "residualplanner+"):
        with pytest.raises(MechanismError, match="nothing else"):
            dpsql.plan(marginals, budget=GAUSSIAN, mechanism=name, objective="largest")


def test_a_basis_and_a_loss_are_for_one_each() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    asked = Workload({"a": 8, "b": 3, "unused": 5}).add(["a", "b"], [Identity(), Identity()])
    cells = dpsql.plan(asked, budget=GAUSSIAN, mechanism="residualplanner+")
    prefix = dpsql.plan(asked, budget=GAUSSIAN, mechanism="residualplanner+", bases={"a": "prefix"})
    assert prefix.rmse > cells.rmse * 1.05, "a basis for other queries is worse for these"
    one = dpsql.plan(asked, budget=GAUSSIAN, mechanism="residualplanner", loss=cvxpy.sum)
    assert one.rmse == pytest.approx(cells.rmse, rel=1e-4)
    with pytest.raises(MechanismError, match="takes no bases"):
        dpsql.plan(asked, budget=GAUSSIAN, bases={"a": "prefix"})
    with pytest.raises(MechanismError, match="takes no loss"):
        dpsql.plan(asked, budget=GAUSSIAN, mechanism="hdmm", loss=cvxpy.sum)
    with pytest.raises(WorkloadError, match="no basis"):
        dpsql.plan(asked, budget=GAUSSIAN, mechanism="residualplanner+", bases={"a": "tree"})


@pytest.mark.parametrize("name", UNBIASED)
def test_attributes_that_nothing_touches(name: str) -> None:
    asked = Workload({"a": 4, "unused": 5, "b": 3, "one": 1})
    asked.add(["b", "a"], [Identity(), Identity()]).add(["a"], [Identity()])
    plan = dpsql.plan(asked, budget=PURE if name == "laplace" else GAUSSIAN, mechanism=name)
    errors = plan.expected_error()
    assert dict(plan.workload.domain) == dict(asked.domain)
    total = float((errors["rmse"] ** 2 * errors["rows"]).sum())
    assert (total / asked.count) ** 0.5 == pytest.approx(plan.rmse, rel=1e-9)


def test_names_in_other_forms() -> None:
    one = dpsql.compare(mixed(), budget=GAUSSIAN, mechanisms="gaussian")  # type: ignore[arg-type]
    assert one.frame["mechanism"].to_list() == ["gaussian"]
    for wrong in ([], [["hdmm"]], "best"):
        with pytest.raises(MechanismError):
            dpsql.compare(mixed(), budget=GAUSSIAN, mechanisms=wrong)  # type: ignore[arg-type]


def test_one_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.planner.mechanisms import fourier

    def fail(*arguments: object, **more: object) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(fourier.Fourier, "plan", fail)
    frame = dpsql.compare(mixed(), budget=GAUSSIAN).frame
    notes = dict(zip(frame["mechanism"], frame["note"], strict=True))
    assert "too far apart" in notes["fourier"]
    assert notes["gaussian"] is None


@pytest.mark.parametrize("weights", [(1.0, 1e7), (1e9, 1.0), (1e-9, 1e9)])
def test_weights_far_apart(weights: tuple[float, float]) -> None:
    asked = Workload({"x": 30, "y": 3})
    asked.add(["x"], [Identity()], weight=weights[0]).add(["x"], [AllRange()], weight=weights[1])
    asked.add(["y"], [Prefix()], weight=weights[1])
    frame = dpsql.compare(asked, budget=Budget(mu=1)).frame
    for name in ("hdmm", "gaussian", "querysmasher"):
        (row,) = frame.filter(frame["mechanism"] == name).to_dicts()
        assert row["rmse"] > 0, row["note"]
        assert row["lower_bound"] <= row["rmse"] * (1 + 1e-9)


def test_sums_of_pooled_marginals_in_another_order_than_the_domain() -> None:
    """The marginals of HDMM may have attributes in any order; joint queries count by cells."""
    rng = np.random.default_rng(3)
    for trial in range(12):
        sizes = {"a": 5, "b": 4, "c": 2}
        asked = Workload(sizes)
        asked.add([("b", "a")], Matrix(rng.integers(0, 3, (3, 20)).astype(float)))
        asked.add(["c", "b"], [Identity(), Identity()]).add(["a", "c"], [Prefix(), Identity()])
        asked.add([("c", "a")], Matrix(rng.integers(0, 3, (2, 10)).astype(float)))
        plan = dpsql.plan(asked, budget=GAUSSIAN, mechanism="hdmm")
        total = sum(f.weight * v.sum() for f, v in zip(asked.families, plan.variances, strict=True))
        assert plan.rmse == pytest.approx((total / asked.count) ** 0.5, rel=1e-9), trial


def test_adaptive_releases_that_would_take_too_long_are_refused() -> None:
    names = [f"x{i}" for i in range(14)]
    wide = Workload(dict.fromkeys(names, 2)).add(names, [Identity()] * 14)
    large = Workload({"a": 7000, "b": 7000, "c": 7000})
    large.add(["a", "b"], [Identity()] * 2).add(["b", "c"], [Identity()] * 2)
    assert "attributes" in str(reason_unsupported("aim", wide, GAUSSIAN))
    assert "98,000,000 cells" in str(reason_unsupported("aim", large, GAUSSIAN))


def test_the_memory_of_a_moment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    used, seen = [100], threading.Event()

    def memory_info(process: psutil.Process) -> SimpleNamespace:
        now = used[0]
        if now == 300:
            seen.set()
        return SimpleNamespace(rss=now * 2**20)

    monkeypatch.setattr(psutil.Process, "memory_info", memory_info)
    with peak_memory() as peak_mb:
        used[0] = 300
        assert seen.wait(timeout=60)
        used[0] = 120
    assert peak_mb() == 200


def test_memory_that_is_held_is_measured() -> None:
    script = """
import numpy as np
from dpsql.planner.comparison import peak_memory
with peak_memory() as peak_mb:
    held = np.ones(2**24)
    print(peak_mb())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(run.stdout) > 100
