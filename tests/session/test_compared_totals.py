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
from dpsql.measurement.measure import (
    NoisyMeasurements,
    _measure_difference,
    _measure_space,
)
from dpsql.release.build import from_plan
from dpsql.release.measurements import decode, encode
from dpsql.release.tables import lifted
from dpsql.session import tasks
from tests.helpers.seeded import SeededBits

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


def captured(session, script):
    """Release a script; return what the last step works on, and the exact counts."""
    found = {}
    measure = tasks.measure

    def keep(*given):
        found["given"] = given
        return from_plan(*given)

    def look(charged, counted):
        found["counts"] = {name: np.array(counted[name]) for name in counted}
        return measure(charged, counted)

    with patch.object(tasks, "from_plan", keep), patch.object(tasks, "measure", look):
        session.release(script, budget=BUDGET)
    return found["given"], found["counts"]


@pytest.mark.statistical
def test_what_is_computed_of_several_totals_varies_as_stated(session):
    """Differences, sums over UNION ALL, quotients, and groups beside totals; 150 releases."""
    (script, plan, facts, _, sources), counts = captured(session, TOTALS | MORE)
    certified, bits = plan.certified, SeededBits(3)
    assert len(certified.differences) == 3
    drawn, stated = {}, {}
    for _ in range(150):
        values = {
            frozenset(space): _measure_space(block, space, counts, bits)
            for block in certified.blocks
            for space in block.spaces
        }
        values |= {d.space: _measure_difference(d, counts, bits) for d in certified.differences}
        release = from_plan(script, plan, facts, NoisyMeasurements(certified, values), sources)
        for name in (*TOTALS, *MORE):
            drawn.setdefault(name, []).append(release[name]["n"].to_numpy())
            stated.setdefault(name, []).append(release[name]["n_variance"].to_numpy())
    for name, found in drawn.items():
        claimed = np.mean(stated[name], axis=0)
        np.testing.assert_allclose(np.var(found, axis=0), claimed, rtol=0.35, err_msg=name)
    exact = {"difference": 600, "all": 2700, "orders": 1500, "visits": 900, "customers": 300}
    for name, truth in exact.items():
        error = (np.mean(drawn[name]) - truth) / np.sqrt(np.mean(stated[name]) / 150)
        assert abs(error) < 5, name


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
    (compiled, *_), _ = captured(session, script)
    return compiled


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
