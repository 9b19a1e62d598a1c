"""Charges whose counting failed: they pay for the next equal request, once."""

from __future__ import annotations

import contextlib
import signal

import duckdb
import pytest

import dpsql
from dpsql.planner.mechanisms.aim import rounds
from dpsql.session import tasks
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


def test_what_another_has_measured_for_the_charge_is_not_measured_twice(session):
    def release(phase: str, done: int, _: int) -> None:
        if (phase, done) == ("measuring", 0):
            (entry,) = session.ledger.entries()
            session.ledger.release(session.ledger._receipt(entry), b"1")

    with pytest.raises(dpsql.ExecutionError):
        session.release(SCRIPT, budget=BUDGET, progress=release)
    assert session.history["state"].to_list() == ["released"]


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_nothing_that_was_measured_is_measured_again(session, mechanism, monkeypatch):
    """A round of AIM that was drawn may have been told of, so its charge is never taken over."""
    target = (rounds._Run, "_round") if mechanism == "aim" else (tasks, "measure")
    monkeypatch.setattr(*target, failing)
    with pytest.raises(dpsql.ExecutionError):
        session.release(SCRIPT, budget=BUDGET, mechanism=mechanism)
    assert session.history["state"].to_list() == ["charged"]
    monkeypatch.undo()
    session.release(SCRIPT, budget=BUDGET, mechanism=mechanism)
    assert session.history["state"].to_list() == ["charged", "delivered"]
