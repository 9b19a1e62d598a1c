"""`weights="marginal"`: each table of answers counts alike, however many groups it has."""

from __future__ import annotations

import math

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from dpsql.request import Request

BUDGET = dpsql.Budget(rho=0.5)
SCRIPT = {
    "ages": "SELECT age, COUNT(*) AS n FROM people GROUP BY age",
    "sexes": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "both": "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex",
}


@pytest.fixture
def session():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (sex BOOLEAN NOT NULL, age INT NOT NULL CHECK (age BETWEEN 0 AND 99),"
        " load INT NOT NULL CHECK (load BETWEEN 0 AND 9))"
    )
    return dpsql.Session(con)


def shares(plan):
    """Return what all answers of each family are worth together, relative to the first one."""
    worth = [family.weight * family.count for family in plan.workload.families]
    return [each / worth[0] for each in worth]


def test_it_is_as_if_each_weight_were_divided_by_the_groups(session):
    alike = session.plan(SCRIPT, budget=BUDGET, weights="marginal")
    by_hand = {"ages": 1 / 100, "sexes": 1 / 2, "both": 1 / 200}
    assert (
        alike.certified.digest
        == session.plan(SCRIPT, budget=BUDGET, weights=by_hand).certified.digest
    )
    usual = session.plan(SCRIPT, budget=BUDGET)
    assert usual.certified.digest != alike.certified.digest
    errors, before = (dict(p.expected_error()["statement", "rmse"].rows()) for p in (alike, usual))
    assert errors["sexes"] < before["sexes"] / 1.5
    assert errors["both"] > before["both"]


def test_the_sum_of_mean_variances_is_least(session):
    plans = [session.plan(SCRIPT, budget=BUDGET, weights=w) for w in ("marginal", None)]
    alike, usual = (sum(float(v.mean()) for v in plan.variances) for plan in plans)
    assert alike < usual
    assert plans[0].rmse == pytest.approx(math.sqrt(alike / 3), rel=1e-6)


def test_each_grouping_set_is_a_table(session):
    cube = "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY CUBE (age, sex)"
    assert shares(session.plan(cube, budget=BUDGET, weights="marginal")) == pytest.approx([1] * 4)


def test_sums_and_quantiles_count_as_they_would_for_one_group(session):
    script = {
        "n": "SELECT age, COUNT(*) AS n FROM people GROUP BY age",
        "sum": "SELECT age, SUM(load) AS s FROM people GROUP BY age",
        "median": "SELECT sex, MEDIAN(load) AS m FROM people GROUP BY sex",
    }
    found = shares(session.plan(script, budget=BUDGET, weights="marginal"))
    assert found == pytest.approx([1, found[1], 1])
    assert found[1] == pytest.approx(shares(session.plan(script, budget=BUDGET))[1])


def test_weights_in_the_text_still_count(session):
    script = SCRIPT | {
        "sexes": "SELECT /*+ weight(5) */ sex, COUNT(*) AS n FROM people GROUP BY sex"
    }
    found = shares(session.plan(script, budget=BUDGET, weights="marginal"))
    assert found == pytest.approx([1, 5, 1])


def test_releases_take_it_and_are_found_again_by_it(session):
    release = session.release(SCRIPT, budget=BUDGET, weights="marginal")
    assert release["sexes"].height == 2
    usual, alike = (Request(budget=BUDGET, weights=w).digest for w in (None, "marginal"))
    assert usual != alike
    assert usual == Request(budget=BUDGET, weights={}).digest


def test_comparisons_and_single_queries_take_it(session):
    found = session.compare(SCRIPT, budget=BUDGET, mechanisms=["querysmasher"], weights="marginal")
    plan = session.plan(SCRIPT, budget=BUDGET, weights="marginal")
    assert found.frame["rmse"][0] == pytest.approx(plan.rmse, rel=1e-3)


@pytest.mark.parametrize("weights", ["Marginal", "equal", "", ["ages"], 3])
def test_other_words_are_refused_with_what_can_be_given(session, weights):
    with pytest.raises(SqlError, match="Weights map statements to numbers") as error:
        session.plan(SCRIPT, budget=BUDGET, weights=weights)
    assert 'weights="marginal"' in error.value.hint
    assert 'weights={"ages": 5}' in error.value.hint
