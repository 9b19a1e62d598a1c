"""Expected errors at other budgets: those of plans made for these budgets."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.planner.plans.tradeoff import MOST_CURVES, error_by_budget, tradeoff_figure

SCRIPT = {
    "ages": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS up_to FROM people GROUP BY age",
    "both": "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age",
}


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as found:
        found.execute("""
            CREATE TABLE people (
                sex ENUM('female', 'male') NOT NULL,
                age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 9)
            )
        """).fetchall()
        yield found


@pytest.mark.parametrize(
    ("budget", "mechanism"),
    [
        (dpsql.Budget(rho=0.1), "querysmasher"),
        (dpsql.Budget(mu=0.3), "hdmm"),
        (dpsql.Budget(epsilon=1, delta=1e-9), "querysmasher"),
        (dpsql.Budget(epsilon=1, delta=0), "laplace"),
    ],
)
def test_errors_are_those_of_plans_at_these_budgets(con, budget, mechanism):
    found = dpsql.plan(con, SCRIPT, budget=budget, mechanism=mechanism).error_by_budget()
    assert found["times"].to_list() == [0.25, 0.5, 1, 2, 4]
    assert found["errors"][2] == 1
    for times, rmse in found.select("times", "rmse").rows():
        stated = {budget.form: Fraction(times) * budget.amount}
        stated |= {} if budget.delta is None else {"delta": budget.delta}
        plan = dpsql.plan(con, SCRIPT, budget=dpsql.Budget(**stated), mechanism=mechanism)
        assert rmse == pytest.approx(plan.rmse, rel=0.02)  # noise is rounded to whole numbers
        assert str(plan.budget) in found["budget"].to_list()


def test_multiples_that_are_no_budget_are_left_out():
    assert error_by_budget(dpsql.Budget(mu=1e-6), 1.0)["times"].to_list() == [1, 2, 4]


def test_earlier_measurements_make_errors_change_unlike(con):
    session = dpsql.Session(con)
    session.release(SCRIPT, budget=dpsql.Budget(rho=0.1))
    plan = session.plan(SCRIPT, budget=dpsql.Budget(rho=0.1))
    with pytest.raises(dpsql.AccuracyError, match="don't change alike") as caught:
        plan.plot()
    assert "reuse=False" in (caught.value.hint or "")
    assert session.plan(SCRIPT, budget=dpsql.Budget(rho=0.1), reuse=False).plot() is not None


def test_of_many_statements_those_with_the_largest_errors_are_drawn(con):
    script = {f"to_{i}": f"SELECT COUNT(*) AS n FROM people WHERE age <= {i}" for i in range(9)}
    plan = dpsql.plan(con, script, budget=dpsql.Budget(rho=0.1))
    errors = plan.expected_error()
    found = tradeoff_figure(plan.budget, errors)
    assert found is not None
    assert found.notes == ("the 6 of 9 statements with the largest errors",)
    drawn = {row["of"] for row in found.spec["data"]["values"]}
    assert drawn == set(errors.top_k(MOST_CURVES, by="rmse")["statement"])
    assert plan.plot().to_dict()["title"]["subtitle"] == [*found.notes]


def test_exact_answers_have_nothing_to_draw():
    plan_errors = error_by_budget(dpsql.Budget(rho=1), 0.0)
    assert plan_errors["rmse"].to_list() == [0.0] * 5
    errors = plan_errors.select(statement="budget", rows="times", rmse="rmse")
    assert tradeoff_figure(dpsql.Budget(rho=1), errors) is None
