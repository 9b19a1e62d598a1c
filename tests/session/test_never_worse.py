"""A plan that loses accuracy that it need not says so, and is not charged unless that is meant."""

from __future__ import annotations

import math
from dataclasses import replace

import duckdb
import pytest

import dpsql
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.registry import plan as plan_by
from dpsql.planner.strategies import rounding
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Workload

BUDGET = Budget(rho=0.5)
TABLE = """
    CREATE TABLE t (
        a SMALLINT NOT NULL CHECK (a BETWEEN 0 AND 21),
        b SMALLINT NOT NULL CHECK (b BETWEEN 0 AND 9));
    INSERT INTO t SELECT i % 22, i % 7 FROM range(3000) AS r(i);
"""
SCRIPT = "SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY b ORDER BY a) AS n FROM t GROUP BY a, b"
WORKLOAD = Workload({"a": 30, "b": 30}).add(["a", "b"], [Prefix(), Prefix()])


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(TABLE).fetchall()
    return con


@pytest.fixture
def coarse(monkeypatch):
    """As before, when factors could be left with next to no bits."""
    monkeypatch.setattr(rounding.Rounding, "_wide", lambda *_: None)
    monkeypatch.setattr(rounding, "_bits", lambda cost: 1)
    monkeypatch.setattr(querysmasher, "MODERATE_WORK", 0)


def test_a_good_plan_says_nothing():
    planned = querysmasher.plan(WORKLOAD, BUDGET)
    assert planned.avoidable < 1e-4
    assert planned.warning is None
    assert "WARNING" not in planned.explain()
    assert planned.real == pytest.approx(planned.rmse**2 * WORKLOAD.count, rel=1e-4)


@pytest.mark.parametrize("mechanism", ["hdmm", "gaussian", "residualplanner+", "fourier"])
def test_no_bound_is_no_loss(mechanism):
    """A gap that is infinite or loose, because no good bound is known, never locks."""
    planned = plan_by(WORKLOAD, BUDGET, mechanism, Options())
    assert planned.gap > 1e-3
    assert planned.avoidable < 0.05
    planned.check_accuracy(accept_gap=False)


def test_more_than_five_percent_is_said_loudly():
    planned = querysmasher.plan(WORKLOAD, BUDGET)
    worse = replace(planned, tried={"something else": planned.rmse / math.sqrt(1.06)})
    assert worse.avoidable == pytest.approx(0.06, rel=1e-3)
    assert worse.warning is not None
    assert "6% above" in worse.warning
    assert "with something else" in worse.warning
    assert f"WARNING: {worse.warning}" in worse.explain()
    worse.check_accuracy(accept_gap=False)
    nearly = replace(planned, tried={"something else": planned.rmse / math.sqrt(1.04)})
    assert nearly.warning is None


def test_twice_the_variance_is_locked(con, coarse):
    session = dpsql.Session(con)
    planned = session.plan(SCRIPT, budget=BUDGET)
    assert planned.avoidable > 1
    with pytest.raises(dpsql.AccuracyError, match="Nothing was charged") as raised:
        session.release({"s": SCRIPT}, budget=BUDGET)
    assert "accept_gap=True" in raised.value.hint
    assert not len(session.history)
    with pytest.raises(dpsql.AccuracyError):
        session.query(SCRIPT, budget=BUDGET)
    with pytest.raises(dpsql.AccuracyError):
        dpsql.query(con, SCRIPT, budget=BUDGET)
    assert not len(session.history)


def test_the_hint_works_when_typed(con, coarse, tmp_path):
    session = dpsql.Session(con)
    release = session.release({"s": SCRIPT}, budget=BUDGET, accept_gap=True)
    assert len(session.history) == 1
    assert "WARNING" in release.summary()
    release.save(tmp_path / "release")
    assert dpsql.Release.load(tmp_path / "release").facts.warning == release.facts.warning
    assert release.facts.warning is not None
    assert len(session.query(SCRIPT, budget=BUDGET, accept_gap=True)) == 22 * 10


def test_the_plan_with_the_best_integers_is_taken(monkeypatch):
    """Weighted spaces that would lose by rounding give way to uniform ones."""
    monkeypatch.setattr(querysmasher, "closed_form", lambda *_: None)
    monkeypatch.setattr(querysmasher, "MODERATE_WORK", 0)
    workload = Workload({"a": 30, "b": 20})
    workload.add(["a"], [Prefix()]).add(["a", "b"], [Prefix(), Identity()])
    usual = querysmasher.plan(workload, BUDGET)
    uniform = querysmasher.plan(workload, BUDGET, residuals="uniform")
    assert usual.rmse < uniform.rmse
    assert any(not r.uniform for r in usual.references.values())
    stitch = querysmasher.stitch

    def spoilt(of, cost, divided):
        planned = stitch(of, cost, divided)
        if all(r.uniform for r in divided.references.values()):
            return planned
        blocks = tuple(replace(block, error=block.error * 2) for block in planned.planned)
        return replace(planned, planned=blocks)

    monkeypatch.setattr(querysmasher, "stitch", spoilt)
    chosen = querysmasher.plan(workload, BUDGET)
    assert chosen.rmse == pytest.approx(uniform.rmse)
    assert chosen.tried["weighted residual spaces"] == pytest.approx(usual.rmse * math.sqrt(2))
    assert chosen.warning is None


@pytest.mark.parametrize("residuals", ["weighted", "uniform"])
def test_shares_that_rest_on_earlier_measurements_are_no_loss(con, residuals):
    """Little is measured of what is known: more than a plan for the whole of it would leave."""
    session = dpsql.Session(con)
    session.release("SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b", budget=BUDGET)
    script = {
        "sums": "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "some": "SELECT a, COUNT(*) AS n FROM t WHERE b < 9 GROUP BY a",
        "others": "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
    }
    planned = session.plan(script, budget=BUDGET, residuals=residuals)
    assert planned.given is not None
    assert planned.warning is None
