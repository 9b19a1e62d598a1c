"""Totals of several tables are compared: what is released, kept, and asked again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import duckdb
import numpy as np
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ReleaseFormatError
from dpsql.measurement.distributions import Gaussian
from dpsql.release.build import from_plan
from dpsql.release.measurements import decode, encode
from dpsql.release.tables import lifted
from dpsql.session import tasks
from tests.session.test_one_statement import moved

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
ROWS = {"customers": 1, "orders": 10, "visits": 5}
TOTALS = {name: f"SELECT COUNT(*) AS n FROM {name}" for name in ROWS}
MORE = {
    "difference": "SELECT (SELECT COUNT(*) FROM orders) - (SELECT COUNT(*) FROM visits) AS n",
    "all": """SELECT COUNT(*) AS n FROM (SELECT id FROM customers
        UNION ALL SELECT id FROM orders UNION ALL SELECT id FROM visits)""",
    "each": "SELECT (SELECT COUNT(*) FROM orders) / (SELECT COUNT(*) FROM customers) AS n",
    "status": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status",
    "without": """WITH o AS (SELECT status, COUNT(*) AS m FROM orders GROUP BY status)
        SELECT status, m - (SELECT COUNT(*) FROM visits) AS n FROM o ORDER BY status""",
}

LINEAR = ["difference", "all", "status", "without"]
HUGE = dpsql.Budget(rho=10**9)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2));
        CREATE TABLE visits (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id));
        INSERT INTO customers SELECT i FROM range(300) AS t(i);
        INSERT INTO orders SELECT i, i * 7 % 300, i % 3 FROM range(1500) AS t(i);
        INSERT INTO visits SELECT i, i * 11 % 300 FROM range(900) AS t(i);
    """)
    return con


@pytest.fixture
def session(con):
    return dpsql.Session(con, unit=dpsql.Unit("customers", max_rows=ROWS))


def variances(release):
    return {name: float(release[name]["n_variance"][0]) for name in TOTALS}


def test_totals_cost_what_the_formula_says_less(session):
    """9/5 in place of 3, in units of k²/μ²."""
    release = session.release(TOTALS, budget=BUDGET)
    for name, found in variances(release).items():
        assert found / ROWS[name] ** 2 == pytest.approx(9 / 5, rel=1e-6)
    assert release.receipt.mu_squared == BUDGET.mu_squared
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    assert "totals of tables are compared" in release.plan.explain()


def test_answers_are_those_of_the_database(session):
    release = session.release(TOTALS | MORE, budget=HUGE)
    exact = {"difference": 600, "all": 2700, "orders": 1500, "visits": 900, "customers": 300}
    for name, truth in exact.items():
        assert release[name]["n"][0] == pytest.approx(truth, abs=0.1)
    assert release["each"]["n"][0] == pytest.approx(5, abs=0.01)
    assert release["status"]["n"].to_list() == pytest.approx([500] * 3, abs=0.1)
    assert release["without"]["n"].to_list() == pytest.approx([-400] * 3, abs=0.1)


@pytest.mark.parametrize(("names", "budget"), [(LINEAR, BUDGET), (["each"], HUGE)])
def test_what_is_computed_of_several_totals_varies_as_stated(session, names, budget):
    """Differences, sums over UNION ALL, groups beside totals; quotients to first order.

    A value moves by d_i if the i-th noisy integer does by its standard deviation: Σ d_i² is the
    variance.
    """
    script = TOTALS | {name: MORE[name] for name in names}
    release, found = moved(session, script, budget)
    assert len(release.plan.certified.differences) == 3
    for name in script:
        moves = [other[name]["n"].to_numpy() - base[name]["n"].to_numpy() for base, other in found]
        claimed = release[name]["n_variance"].to_numpy()
        np.testing.assert_allclose(claimed, sum(d**2 for d in moves), rtol=1e-3, err_msg=name)


def test_no_answer_varies_more_than_without(session):
    script = TOTALS | MORE
    of = session.plan(script, budget=BUDGET).reconstruction
    for family in session.plan(script, budget=BUDGET).workload.families:
        assert (of.variances(family) < of.by_table.variances(family)).all()


def test_what_was_measured_is_had_again_for_free(session, tmp_path):
    first = session.release(TOTALS | MORE, budget=BUDGET, out=tmp_path / "r")
    free = session.release(TOTALS | MORE, budget=0)
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    for name in (*TOTALS, *MORE):
        assert_frame_equal(free[name], first[name], rel_tol=1e-9)
        assert_frame_equal(loaded[name], first[name], rel_tol=1e-9)
    assert session.ledger.spent == BUDGET.mu_squared
    asked = "SELECT COUNT(*) AS n FROM customers UNION ALL SELECT COUNT(*) FROM orders"
    asked += " UNION ALL SELECT COUNT(*) FROM visits"
    again = loaded.query(asked)
    assert again["n"].to_list() == pytest.approx([first[name]["n"][0] for name in TOTALS])
    assert again["n_variance"].to_list() == pytest.approx(list(variances(first).values()))


def test_of_one_table_alone_less_is_known_and_said(session):
    """What its own measurements say: the others are not asked."""
    first = session.release(TOTALS, budget=BUDGET)
    for name, sql in TOTALS.items():
        alone = session.query(sql, budget=0)
        assert alone["n_variance"][0] == pytest.approx(3 * ROWS[name] ** 2, rel=1e-6)
        assert alone["n_variance"][0] > first[name]["n_variance"][0]
    two = session.release({n: TOTALS[n] for n in ("customers", "visits")}, budget=0)
    for name in ("customers", "visits"):
        known = two[name]["n_variance"][0]
        assert first[name]["n_variance"][0] < known < 3 * ROWS[name] ** 2


def test_a_second_release_has_half_of_the_variance(session):
    first = session.release(TOTALS, budget=BUDGET)
    second = session.release(TOTALS, budget=BUDGET)
    assert len(second.plan.certified.differences) == 3
    for name, found in variances(second).items():
        assert found == pytest.approx(variances(first)[name] / 2, rel=1e-6)
    free = session.release(TOTALS, budget=0)
    for name in TOTALS:
        assert_frame_equal(free[name], second[name], rel_tol=1e-9)


def test_tables_with_other_bounds_are_not_compared_with_what_was(con, session):
    session.release(TOTALS, budget=BUDGET)
    others = dpsql.Unit("customers", max_rows=ROWS | {"orders": 7})
    changed = session.redeclared(unit=others, accept_schema=True)
    plan = changed.plan(TOTALS, budget=BUDGET)
    used = plan.reconstruction.differences
    assert len(used) == 3 + 1  # its own, and what was known of customers and visits
    assert {one.rows for one in used if "orders" in one.tables} <= {(1, 7), (7, 5), (10, 7)}


def test_halves_that_do_not_fit_are_left_out(session):
    release = session.release(TOTALS, budget=BUDGET)
    sources = tuple(release.sources)
    assert all(len(source.differences) == 2 for source in sources)
    (first, *others) = sources
    (one, *rest) = first.differences
    moved = {**first.values, one.space: first.values[one.space] + 1}
    forged = replace(first, values=moved)
    asked = asked_of(session, TOTALS)
    for kept, count in (
        (sources, 3),
        ([forged, *others], 2),
        ([replace(first, differences=(*rest,)), *others], 2),
        (others, 1),
    ):
        found = lifted(asked, kept)
        assert sum(len(source.differences) for source in found) == count


def asked_of(session, script):
    """Compile a script."""
    found = []

    def keep(*given):
        found.append(given[0])
        return from_plan(*given)

    with patch.object(tasks, "from_plan", keep):
        session.release(script, budget=BUDGET)
    return found[0]


@pytest.mark.parametrize(
    "forge",
    [
        lambda d: replace(d, tables=("x" * 64, d.tables[1])),
        lambda d: replace(d, tables=("0" * 64, "1" * 64)),
    ],
)
def test_forged_differences_are_refused(session, forge):
    release = session.release(TOTALS, budget=BUDGET)
    (source, *_) = release.sources
    (one, *rest) = source.differences
    own = forge(one)
    values = {**source.values, own.space: source.values[one.space]}
    with pytest.raises(ReleaseFormatError):
        decode(encode([replace(source, differences=(own, *rest), values=values)]))


def test_differences_are_read_as_they_were_written(session):
    release = session.release(TOTALS, budget=BUDGET)
    for own, read in zip(release.sources, decode(encode(release.sources)), strict=True):
        assert own.differences == read.differences
        for one in own.differences:
            assert isinstance(one.law, Gaussian)
            assert (own.values[one.space] == read.values[one.space]).all()


def test_an_interrupted_release_is_made_again_with_them(con, session, monkeypatch):
    def end(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tasks.MeasuredPlan, "release", end)
        with pytest.raises(KeyboardInterrupt):
            session.release(TOTALS, budget=BUDGET)
    release = session.release(TOTALS, budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    for name, found in variances(release).items():
        assert found / ROWS[name] ** 2 == pytest.approx(9 / 5, rel=1e-6)
