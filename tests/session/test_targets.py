"""Targets: which can be read as they are meant, and what meeting them may cost."""

from __future__ import annotations

import math

import duckdb
import pytest

import dpsql
from dpsql.errors import BudgetError, ResourceLimitError, WorkloadError
from dpsql.session import planning
from dpsql.workload import Identity, Workload
from tests.session.tools import AGES, BUDGET, BY_SEX, create

MEAN = "SELECT sex, AVG(income) AS m FROM people GROUP BY sex"
SUMS = "SELECT sex, COUNT(*) AS n, SUM(income) AS s FROM people GROUP BY sex"
MOST = dpsql.Budget(rho=5)


@pytest.fixture
def open_session():
    """A session without a total."""
    with create() as con:
        yield dpsql.Session(con)


@pytest.mark.parametrize(
    "sql",
    [
        MEAN,
        "SELECT sex, COUNT(*) AS n, AVG(income) AS m FROM people GROUP BY sex",
        "SELECT sex, MEDIAN(age) AS m FROM people GROUP BY sex",
        "SELECT sex, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM people GROUP BY sex",
        "SELECT STDDEV(income) AS s FROM people",
        "SELECT sqrt(COUNT(*)) AS s FROM people",
    ],
)
def test_a_target_for_what_depends_on_the_rows_is_refused(open_session, sql):
    for targets in ({"a": 0.5}, {"a": 0.5, "b": 10}):
        script = {"a": sql, "b": BY_SEX}
        with pytest.raises(WorkloadError, match="The target of a can't bound") as error:
            open_session.release(script, targets=targets, at_most=MOST)
        assert "counts and sums" in str(error.value)
        with pytest.raises(WorkloadError, match="The target of a can't bound"):
            open_session.plan(script, targets=targets)
    assert open_session.ledger.spent == 0
    family = next(n for n in open_session.plan(sql, budget=BUDGET).expected_error()["statement"])
    with pytest.raises(WorkloadError, match="can't bound"):
        open_session.plan(sql, targets={family: 5})


IN_UNITS = {
    "mean": ("SELECT sex, AVG(income) AS m FROM people GROUP BY sex", 50.0),
    "share": (
        "SELECT sex, COUNT(*) FILTER (age > 5) / COUNT(*) AS m FROM people GROUP BY sex",
        0.02,
    ),
    "percent": (
        "SELECT 100.0 * AVG(CASE WHEN age > 5 THEN 1 ELSE 0 END) + 1 AS m FROM people",
        2.0,
    ),
    "quotient": ("SELECT sex, SUM(income) / COUNT(*) AS m FROM people GROUP BY sex", 50.0),
}


@pytest.mark.parametrize("name", IN_UNITS)
def test_rows_assumed_give_targets_in_units_of_the_average(open_session, name):
    sql, target = IN_UNITS[name]
    with pytest.raises(WorkloadError, match="can't bound") as refused:
        open_session.plan({name: sql}, targets={name: target})
    assert f'add assume={{"{name}": 1000}}' in refused.value.hint
    asked = {"targets": {name: target}, "assume": {name: 1000}}
    plan = open_session.plan({name: sql}, **asked)
    shown = plan.expected_answers["largest_standard_error"].item()
    assert target / 3 < shown <= target
    assert plan.binding == (name,)
    assert plan.gap == math.inf
    # Errors fall as 1 / rows, so ten times as many need a hundredth of the budget.
    many = open_session.plan({name: sql}, targets={name: target}, assume={name: 10_000})
    assert float(plan.budget.rho / many.budget.rho) == pytest.approx(100, rel=0.05)


def test_a_target_holds_wherever_the_average_is():
    """The error is the largest where all values are at an end of the domain, and not above it."""
    schema = dpsql.Schema({"t": {"x": dpsql.Domain.integers(0, 100)}})
    asked = {"targets": {"q": 0.5}, "assume": {"q": 400}, "at_most": MOST}
    for value in (0, 50, 100):
        con = duckdb.connect()
        con.execute(f"CREATE TABLE t AS SELECT {value} AS x FROM range(400)").fetchall()
        session = dpsql.Session(con, schema=schema)
        release = session.release({"q": "SELECT AVG(x) AS m FROM t"}, **asked)
        error = math.sqrt(release["q"]["m_variance"].item())
        # The noise of the count that is divided by changes it by some percent.
        most = 0.5 / math.sqrt(2) if value == 50 else 0.5
        assert error == pytest.approx(most, rel=0.1)


def test_targets_of_both_kinds_and_a_past(open_session):
    script = {"a": MEAN, "b": BY_SEX}
    asked = {"targets": {"a": 50, "b": 9}, "assume": {"rows": 2000}}
    plan = open_session.plan(script, **asked)
    errors = dict(plan.expected_error().select("statement", "worst_standard_error").rows())
    assert errors["b"] <= 9 * (1 + 1e-9)
    at_most = plan.expected_answers["largest_standard_error"].to_list()
    assert at_most[0] <= 50
    with pytest.raises(BudgetError, match="more than the most"):
        open_session.release(script, **asked, at_most=dpsql.Budget(rho=plan.budget.rho / 2))
    assert open_session.ledger.spent == 0
    release = open_session.release(script, **asked, at_most=plan.budget)
    assert release.charged == plan.budget
    again = open_session.plan(script, **asked)
    assert again.budget.mu_squared < plan.budget.mu_squared / 10


def test_counts_and_averages_have_no_target_in_common(open_session):
    for sql in (
        "SELECT sex, COUNT(*) AS n, AVG(income) AS m FROM people GROUP BY sex",
        "SELECT sex, AVG(income) AS m, MEDIAN(age) AS q FROM people GROUP BY sex",
        "SELECT SUM(income) / SUM(age) AS m FROM people",
        "SELECT age, AVG(income) AS m FROM people GROUP BY age ORDER BY m LIMIT 3",
    ):
        with pytest.raises(WorkloadError, match="averages, shares and deviations alone"):
            open_session.plan({"a": sql}, targets={"a": 0.5}, assume={"rows": 1000})
    with pytest.raises(WorkloadError, match="can't bound"):
        open_session.plan({"a": MEAN, "b": BY_SEX}, targets={"a": 5}, assume={"b": 1000})
    with pytest.raises(WorkloadError, match="is not a standard error"):
        open_session.plan({"a": MEAN}, targets={"a": -1}, assume={"a": 1000})
    with pytest.raises(BudgetError, match="without targets"):
        open_session.release({"a": MEAN}, budget=BUDGET, assume={"a": 1000})


def test_counts_beside_it_may_have_a_target(open_session):
    script = {"a": MEAN, "b": BY_SEX}
    plan = open_session.plan(script, targets={"b": 9})
    worst = dict(plan.expected_error().select("statement", "worst_standard_error").rows())
    assert worst["b"] == pytest.approx(9, rel=1e-3)


def test_each_sum_has_a_target_of_its_own(open_session):
    with pytest.raises(WorkloadError, match="The column s of sums has no target") as error:
        open_session.plan({"sums": SUMS}, targets={"sums": 9})
    assert 'targets={"sums": 1, "sums: SUM(income)": 1}' in error.value.hint
    targets = {"sums": 9, "sums: SUM(income)": 500}
    release = open_session.release({"sums": SUMS}, targets=targets, at_most=MOST)
    found = release["sums"]
    assert found["n_variance"].max() <= 81 * (1 + 1e-9)
    assert found["s_variance"].max() <= 250_000 * (1 + 1e-9)


def test_a_sum_alone_has_its_own_name(open_session):
    sql = "SELECT sex, SUM(income) AS s FROM people GROUP BY sex"
    with pytest.raises(WorkloadError, match="The column s of q has no target") as error:
        open_session.plan({"q": sql}, targets={"q": 9})
    assert error.value.hint == 'for example targets={"q: SUM(income)": 1}.'
    assert open_session.plan({"q": sql}, targets={"q: SUM(income)": 500}).budget.mu > 0


def test_computed_counts_may_have_targets(open_session):
    sql = "SELECT age, COUNT(*) AS n FROM people GROUP BY age HAVING COUNT(*) > -1e9 ORDER BY n"
    plan = open_session.plan({"q": sql}, targets={"q": 9})
    assert plan.expected_error()["worst_standard_error"].max() == pytest.approx(9, rel=1e-3)


def test_a_workload_has_no_statements_to_look_at():
    workload = Workload({"a": 4}).add(["a"], Identity(), name="cells")
    assert dpsql.plan(workload, targets={"cells": 3}).budget.mu == pytest.approx(1 / 3, rel=1e-3)


def test_without_a_total_there_must_be_a_most(open_session):
    with pytest.raises(BudgetError, match="no total") as error:
        open_session.release({"ages": AGES}, targets={"ages": 9})
    assert error.value.hint == "add at_most=dpsql.Budget(rho=0.5), the most that may be charged."
    assert open_session.ledger.spent == 0
    most = dpsql.Budget(rho=0.5)
    release = open_session.release({"ages": AGES}, targets={"ages": 9}, at_most=most)
    assert release.charged.mu_squared < most.mu_squared
    with pytest.raises(BudgetError, match=r"The targets need ρ = 50(.0001)?, more than the most"):
        open_session.release({"ages": AGES}, targets={"ages": 0.1}, at_most=most)
    assert len(open_session.ledger.entries()) == 1


def test_a_total_limits_targets_too():
    with create() as con:
        session = dpsql.Session(con, budget=dpsql.Budget(rho=0.01))
        with pytest.raises(BudgetError, match="Not enough budget"):
            session.release({"ages": AGES}, targets={"ages": 1})
        assert session.release({"ages": AGES}, targets={"ages": 30}).charged is not None


def test_a_most_is_for_targets(open_session):
    with pytest.raises(BudgetError, match="Without targets"):
        open_session.release(AGES, budget=BUDGET, at_most=MOST)
    with pytest.raises(BudgetError, match="not a float"):
        open_session.release({"ages": AGES}, targets={"ages": 9}, at_most=0.5)


def test_a_plan_that_leaves_the_past_aside_claims_no_bound(monkeypatch):
    """Less may be possible here with what is known, and the plan alone has 50."""

    def too_large(*_, **__):
        raise ResourceLimitError("An earlier measurement is too large.", hint="none")

    monkeypatch.setattr(planning, "plan_given", too_large)
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (b BOOLEAN NOT NULL, h INTEGER NOT NULL CHECK (h BETWEEN 0 AND 4));
    """)
    session = dpsql.Session(con)
    some = "SELECT b, COUNT(*) AS n FROM t WHERE h >= 2 GROUP BY b"
    ranges = (
        "SELECT r.x, r.y, COUNT(*) AS n FROM t JOIN (VALUES (0, 2), (0, 3), (1, 2)) r(x, y) "
        "ON h BETWEEN r.x AND r.y GROUP BY r.x, r.y"
    )
    session.release({"some": some, "ranges": ranges}, budget=dpsql.Budget(rho=0.01))
    plan = session.plan("SELECT b, COUNT(*) AS n FROM t GROUP BY b", budget=dpsql.Budget(rho=0.02))
    total = plan.rmse**2 * plan.workload.count
    assert plan.given is None
    assert total == pytest.approx(50)
    assert plan.gap == math.inf
    assert "no certified gap" in plan.explain()


@pytest.mark.parametrize("objective", ["total", "largest"])
def test_gaps_with_a_past_are_about_the_past(open_session, objective):
    open_session.query(BY_SEX, budget=BUDGET)
    plan = open_session.plan(AGES, budget=BUDGET, objective=objective)
    assert plan.gap == (math.inf if objective == "largest" else pytest.approx(plan.gap))
    assert plan.gap > 0 or plan.given is not None
