"""Releases of counts and sums under conditions that exclude each other: one budget for each row."""

from __future__ import annotations

import itertools

import duckdb
import pytest

import dpsql
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

BUDGET = dpsql.Budget(mu=1)
SCRIPT = {
    "x": "SELECT SUM(x) AS s FROM r WHERE g = 0",
    "y": "SELECT f, SUM(y) AS s, COUNT(*) AS n FROM r WHERE g = 1 GROUP BY f",
    "n": "SELECT COUNT(*) AS n FROM r WHERE g = 2 OR f",
}
EXTREMES = [*itertools.product(range(3), (False, True), (0, 20), (-5, 5))]


def connect(rows, *, unit=None):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE r (p INTEGER NOT NULL, g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 2), "
        "f BOOLEAN NOT NULL, x INTEGER NOT NULL, y INTEGER NOT NULL)"
    ).fetchall()
    fill(con, rows)
    columns = {"x": dpsql.Domain.number(0, 20), "y": dpsql.Domain.number(-5, 5)}
    return con, dpsql.Schema({"r": columns}, units={"r": unit} if unit else {})


def fill(con, rows):
    con.execute("DELETE FROM r").fetchall()
    insert(con, "r", rows)


ROWS = [(1, 0, True, 3, 1), (2, 1, False, 20, -5), (3, 2, True, 0, 2), (4, 1, True, 7, 5)]


def worst(con, asked, units):
    """Return the most that a unit changes of what is charged, which is never more."""
    whole, most = recorded(con, asked, budget=BUDGET), 0
    assert whole.certified.privacy_cost == charged(whole)
    for rows in units:
        fill(con, [*ROWS, *rows])
        replayed = recorded(con, asked, budget=BUDGET)
        check_alike(whole, replayed)
        assert spent(whole, replayed) <= charged(whole)
        most = max(most, spent(whole, replayed))
    return float(most / charged(whole))


@pytest.mark.parametrize(
    "which", [slice(3, 24, 9), pytest.param(slice(None), marks=pytest.mark.long)]
)
def test_the_worst_row_is_what_is_charged(which):
    con, schema = connect(ROWS)
    units = [[(9, *row)] for row in EXTREMES]
    found = worst(con, {"script": SCRIPT, "schema": schema}, units[which])
    assert 0.99 < found <= 1


@pytest.mark.parametrize("which", [slice(7, 8), pytest.param(slice(None), marks=pytest.mark.long)])
def test_two_rows_of_a_unit_are_charged_as_the_worst_row_twice(which):
    con, schema = connect(ROWS, unit=dpsql.Unit("p", max_rows=2))
    units = [
        [(9, *row) for row in both] for both in itertools.combinations_with_replacement(EXTREMES, 2)
    ]
    chosen = [*units[which], [(9, 0, True, 20, 5)] * 2, [(9, 0, True, 20, 5), (9, 1, True, 0, 5)]]
    found = worst(con, {"script": SCRIPT, "schema": schema}, chosen)
    assert 0.99 < found <= 1


def test_each_statement_is_as_exact_as_alone():
    con, schema = connect(ROWS)
    plan = dpsql.plan(con, SCRIPT, budget=BUDGET, schema=schema)
    assert plan.shared
    assert plan.rmse < plan.added().rmse / 1.1


def released(session, script, **how):
    return session.release(script, budget=how.pop("budget", BUDGET), **how)


def test_later_releases_rest_on_what_was_measured_with_shared_budgets():
    con, schema = connect(ROWS)
    session = dpsql.Session(con, schema=schema)
    first = released(session, SCRIPT)
    again = released(session, SCRIPT)
    assert again.plan.given is not None
    assert again.plan.rmse < first.plan.rmse / 1.35
    assert again.plan.privacy_cost <= 1
    more = released(session, {**SCRIPT, "z": "SELECT SUM(y) AS s FROM r WHERE g = 0"})
    assert more.plan.privacy_cost <= 1


def test_what_is_known_of_one_part_never_makes_the_plan_worse():
    con, schema = connect(ROWS)
    session = dpsql.Session(con, schema=schema)
    released(session, {"x": SCRIPT["x"]}, budget=dpsql.Budget(mu=3))
    plan = session.plan(SCRIPT, budget=BUDGET)
    alone = dpsql.plan(con, SCRIPT, budget=BUDGET, schema=schema)
    assert plan.privacy_cost <= 1
    assert plan.rmse <= alone.rmse
