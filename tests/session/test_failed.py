"""Charges whose counting failed: they pay for the next equal request, once."""

from __future__ import annotations

import contextlib
import signal
import threading
from unittest.mock import patch

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.engine import CountingScan
from dpsql.planner.mechanisms import aim_rounds
from dpsql.session import planning
from tests.helpers.counting import counted
from tests.session.tools import BUDGET, BY_AGE, BY_SEX, TOTAL

SCRIPT = {"by_sex": BY_SEX, "by_age": BY_AGE}


@pytest.fixture
def con(file):
    with duckdb.connect(file) as con:
        yield con


@pytest.fixture
def session(con):
    return dpsql.Session(con, budget=TOTAL)


def failing(*_: object) -> None:
    raise RuntimeError("600 rows")


def test_what_could_not_be_counted_is_free_once(con):
    """Also where nothing else is left."""
    session = dpsql.Session(con, budget=BUDGET)
    with counted(failing), pytest.raises(dpsql.ExecutionError) as caught:
        session.release(SCRIPT, budget=BUDGET)
    assert "counting failed for the first time" in caught.value.hint
    for other in ({"by_sex": BY_SEX}, {**SCRIPT, "more": BY_SEX}):
        with pytest.raises(dpsql.BudgetError):
            session.release(other, budget=BUDGET)
    release = session.release(SCRIPT, budget=BUDGET)
    assert release.receipt.request == session.ledger.entries()[0].request
    assert session.ledger.remaining == 0
    with pytest.raises(dpsql.BudgetError):
        session.release(SCRIPT, budget=BUDGET)


def test_what_fails_twice_is_charged_anew(session):
    for states in (["failed"], ["retried"], ["retried", "failed"], ["retried", "retried"]):
        with counted(failing), pytest.raises(dpsql.ExecutionError):
            session.release(SCRIPT, budget=BUDGET)
        assert session.history["state"].to_list() == states
    session.release(SCRIPT, budget=BUDGET)
    assert session.history["state"].to_list() == ["retried", "retried", "delivered"]
    assert session.ledger.spent == 3 * BUDGET.mu_squared


def test_a_failure_that_can_not_be_noted_is_charged_anew(session, monkeypatch):
    def refuse(receipt: dpsql.Receipt) -> None:
        raise dpsql.LedgerError("disk full", hint="none")

    monkeypatch.setattr(session.ledger, "fail", refuse)
    with counted(failing), pytest.raises(dpsql.ExecutionError) as caught:
        session.release(SCRIPT, budget=BUDGET)
    assert caught.value.__context__ is None
    assert session.history["state"].to_list() == ["charged"]
    session.release(SCRIPT, budget=BUDGET)
    assert session.ledger.spent == 2 * BUDGET.mu_squared


def ctrl_c(*_: object) -> None:
    """Do as DuckDB does if it finds the signal itself: the error of the handler is lost."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise RuntimeError("Query interrupted")


def ctrl_c_wrapped(*_: object) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise RuntimeError("600 rows")


@pytest.mark.parametrize("by", [ctrl_c, ctrl_c_wrapped])
def test_an_interrupt_that_became_an_error_is_no_failure(session, by):
    with counted(by), pytest.raises(KeyboardInterrupt):
        session.release(SCRIPT, budget=BUDGET)
    assert session.history["state"].to_list() == ["charged"]


@pytest.mark.parametrize("error", [duckdb.InterruptException("600"), OSError("INTERRUPT: 600")])
def test_a_count_that_somebody_has_ended_is_no_failure(session, error):
    """Whoever holds the connection chooses the moment. (Arrow has one error for all.)"""

    def end(*_: object) -> None:
        raise error

    for spent in (1, 2):
        with patch.object(CountingScan, "run", end), pytest.raises(dpsql.ExecutionError) as caught:
            session.release(SCRIPT, budget=BUDGET)
        assert caught.value.__context__ is None
        assert "600" not in str(caught.value)
        assert session.history["state"].to_list() == ["charged"] * spent
        assert session.ledger.spent == spent * BUDGET.mu_squared


def test_interrupting_the_connection_is_no_failure():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 2 = 0 AS a, repeat('ab', 60) || i AS s FROM "
                "range(400000) x(i)")  # fmt: skip
    session, done = dpsql.Session(con, budget=TOTAL), threading.Event()

    def interrupt():
        while not done.wait(0.01):
            if session.ledger.entries():
                con.interrupt()

    sql = "SELECT a, COUNT(*) AS n FROM t WHERE regexp_matches(s, '(a|b)*z') GROUP BY a"
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(dpsql.ExecutionError):
            session.query(sql, budget=BUDGET)
    finally:
        done.set()
        thread.join()
    assert session.history["state"].to_list() == ["charged"]


def test_what_the_ledger_says_that_failed_is_not_handed_out(session):
    """As where a process was forked while it counted, and the other one failed: one tries again."""

    def fail(phase: str, done: int, _: int) -> None:
        if (phase, done) == ("measuring", 0):
            (entry,) = session.ledger.entries()
            receipt = session.ledger._receipt(entry)
            session.ledger.fail(receipt)

    with pytest.raises(dpsql.ExecutionError):
        session.release(SCRIPT, budget=BUDGET, progress=fail)
    session.release(SCRIPT, budget=BUDGET)
    assert session.history["state"].to_list() == ["delivered"]
    assert session.ledger.spent == BUDGET.mu_squared


@pytest.mark.parametrize("most", [None, 100])
def test_what_another_has_measured_for_the_charge_is_not_handed_out(session, monkeypatch, most):
    """Also where neither is kept, as they are too long."""
    if most is not None:
        monkeypatch.setattr(type(session.ledger.store), "most", most)

    def release(phase: str, done: int, _: int) -> None:
        if (phase, done) == ("measuring", 0):
            (entry,) = session.ledger.entries()
            session.ledger.release(session.ledger._receipt(entry), b"1" * 101)

    with pytest.raises(dpsql.ExecutionError):
        session.release(SCRIPT, budget=BUDGET, progress=release)
    assert session.history["state"].to_list() == ["released"]


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_nothing_that_was_measured_is_measured_again(session, mechanism, monkeypatch):
    """A round of AIM that was drawn may have been told of, so its charge is never taken over."""
    target = (aim_rounds._Run, "_round") if mechanism == "aim" else (planning, "measure")
    monkeypatch.setattr(*target, failing)
    with pytest.raises(dpsql.ExecutionError):
        session.release(SCRIPT, budget=BUDGET, mechanism=mechanism)
    assert session.history["state"].to_list() == ["charged"]
    monkeypatch.undo()
    session.release(SCRIPT, budget=BUDGET, mechanism=mechanism)
    assert session.history["state"].to_list() == ["charged", "delivered"]
