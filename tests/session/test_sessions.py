"""Sessions: the account, refusals, interrupts by phase, many processes and threads."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ReleaseFormatError
from dpsql.present import disk
from dpsql.release import folder
from tests.session.tools import AGES, BUDGET, BY_AGE, BY_SEX, RHO, TOTAL, create, key


@pytest.fixture
def con(file):
    with duckdb.connect(file) as con:
        yield con


@pytest.fixture
def session(con):
    return dpsql.Session(con, budget=TOTAL)


# ── the account ────────────────────────────────────────────────────────────────────────────


def test_history_and_what_is_left(con, session):
    assert session.remaining == 1
    assert session.history.height == 0
    first = session.release({"a": BY_SEX}, budget=BUDGET)
    second = session.release({"a": AGES}, budget=dpsql.Budget(epsilon=1, delta=1e-9))
    session.query(BY_SEX, budget=0)
    history = session.history
    assert dict(history.schema) == {
        "entry": pl.Int64, "time": pl.String, "state": pl.String, "rho": pl.Float64,
        "delta": pl.Float64, "measurements": pl.Boolean, "request": pl.String,
    }  # fmt: skip
    assert history["entry"].to_list() == [first.receipt.seq, second.receipt.seq]
    assert history["request"].to_list() == [first.receipt.request, second.receipt.request]
    assert history["state"].to_list() == ["delivered", "delivered"]
    assert history["measurements"].to_list() == [True, True]
    assert history["rho"].to_list() == pytest.approx([0.01, float(second.charged.rho)])
    assert history["time"].str.to_datetime(time_zone="UTC").is_sorted()
    assert session.remaining == 1 - RHO - second.charged.rho
    assert_frame_equal(dpsql.Session(con).history, history)
    with create() as other:
        assert_frame_equal(dpsql.Session(other).history, history.clear())


def test_without_a_total_spending_is_recorded_and_not_limited():
    with create() as con:
        session = dpsql.Session(con)
        assert session.remaining is None
        session.query(BY_SEX, budget=dpsql.Budget(rho=10**6))
        assert session.remaining is None
        assert session.history["rho"].to_list() == [1e6]


def test_an_in_memory_database_has_an_account_of_its_own_for_each_session():
    with create() as con:
        first = dpsql.Session(con, budget=TOTAL)
        first.query(BY_SEX, budget=BUDGET)
        assert dpsql.Session(con).history.height == 0
        assert first.ledger.path is None


SPELLED = {
    "rho": (dpsql.Budget(rho=Fraction(3, 10)), "0.3"),
    "mu": (dpsql.Budget(mu=Fraction(3, 4)), "0.75"),
    "epsilon": (dpsql.Budget(epsilon=3, delta=1e-9), "3"),
}


@pytest.mark.parametrize("form", SPELLED)
def test_an_exhausted_budget_is_worded_in_the_units_of_who_asks(form):
    """Asked, left and short by; and what the hint offers can be had."""
    budget, amount = SPELLED[form]
    with create() as con:
        session = dpsql.Session(con, budget=dpsql.Budget(rho=budget.rho * Fraction(3, 2)))
        session.query(BY_SEX, budget=budget)
        spent = session.ledger.spent
        with pytest.raises(dpsql.BudgetError) as caught:
            session.query(AGES, budget=budget)
        assert session.ledger.spent == spent
        sign = {"rho": "ρ", "mu": "μ", "epsilon": "ε"}[form]
        assert re.search(rf"asked {sign} = {re.escape(amount)}\b", caught.value.message)
        assert re.search(rf"left {sign} = ", caught.value.message)
        assert "short by " in caught.value.message
        (offer,) = re.findall(r"at most dpsql\.(Budget\(.*\))\.", caught.value.hint)
        call = ast.parse(offer, mode="eval").body
        affordable = dpsql.Budget(**{k.arg: ast.literal_eval(k.value) for k in call.keywords})
        assert affordable.form == form
        session.query(AGES, budget=affordable)
        assert 0 <= session.remaining < budget.rho / 100


def test_nothing_left_says_so():
    with create() as con:
        session = dpsql.Session(con, budget=BUDGET)
        session.query(BY_SEX, budget=BUDGET)
        with pytest.raises(dpsql.BudgetError, match="only the data owner"):
            session.query(AGES, budget=BUDGET)
        session.query(BY_SEX, budget=0)  # which is still free


@pytest.mark.parametrize("budget", [False, 0.0, Fraction(0), "0", -1, 1])
def test_only_a_plain_zero_is_free(session, budget):
    session.query(BY_SEX, budget=BUDGET)
    with pytest.raises(dpsql.BudgetError, match=r"must be a dpsql\.Budget"):
        session.query(BY_SEX, budget=budget)
    assert session.history.height == 1


@pytest.mark.parametrize("vintage", [5, None, "a\nb", "x" * 201, b"2026"])
def test_vintages_that_are_no_names(con, vintage):
    with pytest.raises(dpsql.SchemaError, match="vintage"):
        dpsql.Session(con, vintage=vintage)


# ── where the account is ───────────────────────────────────────────────────────────────────


def test_two_ledgers_for_one_data_set_are_refused(file, tmp_path):
    with duckdb.connect(file) as con:
        dpsql.query(con, BY_SEX, budget=BUDGET)
        with pytest.raises(dpsql.LedgerError, match="has its ledger in") as caught:
            dpsql.Session(con, ledger=tmp_path / "second.ledger")
        assert caught.value.hint
        assert not (tmp_path / "second.ledger").exists()
        assert dpsql.Session(con).history.height == 1


def test_a_ledger_elsewhere_is_found_again(file, tmp_path):
    (tmp_path / "accounts").mkdir()
    with duckdb.connect(file) as con:
        elsewhere = tmp_path / "accounts" / "people.ledger"
        dpsql.query(con, BY_SEX, budget=BUDGET, ledger=elsewhere)
        assert dpsql.Session(con).ledger.path == elsewhere
        with pytest.raises(dpsql.LedgerError, match="has its ledger in"):
            dpsql.Session(con, ledger=tmp_path / "third.ledger")


def test_the_connection_may_not_move_to_another_database(file, tmp_path):
    create(tmp_path / "other.duckdb").close()
    with duckdb.connect(file) as con:
        session = dpsql.Session(con)
        con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other; USE other").fetchall()
        with pytest.raises(dpsql.StaleSchemaError, match="another database"):
            session.query(BY_SEX, budget=BUDGET)
        assert session.ledger.entries() == ()
        con.execute("USE people").fetchall()
        session.query(BY_SEX, budget=BUDGET)


def test_what_was_measured_does_not_answer_for_the_tables_of_another_database(file, tmp_path):
    create(tmp_path / "other.duckdb").close()
    with duckdb.connect(file) as con:
        session = dpsql.Session(con)
        session.query(BY_SEX, budget=BUDGET)
        con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other; USE other").fetchall()
        for ask in (
            lambda: session.query(BY_SEX, budget=0),
            lambda: session.release(BY_SEX, budget=0),
            lambda: session.plan(BY_SEX, budget=BUDGET),
            lambda: session.compare(BY_SEX, budget=BUDGET, mechanisms=["gaussian"]),
        ):
            with pytest.raises(dpsql.StaleSchemaError, match="another database"):
                ask()
        con.execute("USE people").fetchall()
        assert session.query(BY_SEX, budget=0).height == 2


# ── public tables ──────────────────────────────────────────────────────────────────────────

JOINED = """
    SELECT region, COUNT(*) AS n FROM people JOIN towns ON people.town = towns.town
    GROUP BY region
"""
TOWNS = pl.DataFrame({"town": ["A", 'B\'s "x"', "C"], "region": ["north", "north", "south"]})


def test_public_tables_by_name(con):
    con.execute("CREATE TABLE towns AS SELECT * FROM (VALUES ('A', 'north')) AS t(town, region)")
    with pytest.raises(dpsql.DpsqlError):
        dpsql.Session(con).query(JOINED, budget=BUDGET)
    frame = dpsql.Session(con, public=["towns"]).query(JOINED, budget=BUDGET)
    assert frame["region"].to_list() == ["north"]
    with pytest.raises(dpsql.SchemaError):
        dpsql.Session(con, public=["nothing"]).query(JOINED.replace("towns", "nothing"), budget=0)


@pytest.mark.parametrize(
    ("public", "asked"),
    [("main.people", "people"), ("people", "main.people"), ("PEOPLE", "people")],
)
def test_no_table_is_private_and_public_at_once(con, public, asked):
    session = dpsql.Session(con, public=[public])
    sql = f"SELECT town, COUNT(*) AS n FROM {asked} GROUP BY town"
    with pytest.raises(dpsql.DpsqlError, match=r"is also named as public|private table") as caught:
        session.plan(sql, budget=BUDGET)
    if public.lower() != asked:
        assert caught.value.hint == f"write {public} in queries, or leave it out of public=."


def test_public_tables_as_frames_and_free_questions(con):
    session = dpsql.Session(con, public={"towns": TOWNS})
    release = session.release({"joined": JOINED}, budget=BUDGET)
    assert sorted(release["joined"]["region"]) == ["north", "south"]
    free = session.query(JOINED, budget=0)
    assert_frame_equal(free, release["joined"], rel_tol=1e-9)
    again = release.query(JOINED, public={"TOWNS": TOWNS})
    assert_frame_equal(again, release["joined"], rel_tol=1e-9)
    with pytest.raises(dpsql.SqlError, match="no table towns") as caught:
        release.query(JOINED)  # nothing says what is public
    assert 'public=["towns"]' in caught.value.hint
    assert session.history.height == 1


# ── interrupts by phase ────────────────────────────────────────────────────────────────────

SCRIPT = {"by_sex": BY_SEX, "by_age": BY_AGE}
PHASES = [
    ("planning", 0), ("planning", 1), ("counting", 1), ("measuring", 0), ("measuring", 1),
]  # fmt: skip


def test_progress_is_told(session):
    told = []
    session.release(SCRIPT, budget=BUDGET, progress=lambda *step: told.append(step))
    phases = [phase for phase, _, _ in told]
    assert list(dict.fromkeys(phases)) == ["planning", "counting", "measuring"]
    assert set(PHASES) <= {(phase, done) for phase, done, _ in told}
    assert all(0 <= done <= of for _, done, of in told)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("phase", "done"), PHASES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_interrupts_by_phase(session, tmp_path, phase, done, error):
    def stop(now: str, steps: int, _: int) -> None:
        if (now, steps) == (phase, done):
            raise error("stop")

    planning = phase == "planning"
    expected = dpsql.ExecutionError if error is RuntimeError and not planning else error
    with pytest.raises(expected):
        session.release(SCRIPT, budget=BUDGET, progress=stop, out=tmp_path / "out")
    states = [entry.state for entry in session.ledger.entries()]
    paid = (phase, done) == ("measuring", 1)
    failed = (phase, error) == ("counting", RuntimeError)
    left = "released" if paid else "failed" if failed else "charged"
    assert states == ([] if planning else [left])
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
    if paid or failed:
        stored = session.ledger.entries()[0].request
    release = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "out")
    assert session.history.height == (1 if planning or paid or failed else 2)
    if paid or failed:
        assert release.receipt.request == stored
        assert release.charged == BUDGET
        loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
        assert key(loaded["by_age"]) == key(release["by_age"])
    assert session.ledger.entries()[-1].state == "delivered"


def test_an_interrupt_while_saving(session, tmp_path, monkeypatch):
    def stop(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            session.release(SCRIPT, budget=BUDGET, out=tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["people.duckdb", "people.duckdb.ledger"]
    (entry,) = session.ledger.entries()
    assert entry.state == "released"
    release = session.release(SCRIPT, budget=BUDGET)
    assert release.receipt.request == entry.request
    assert session.history.height == 1


def test_what_is_handed_out_later_says_what_it_rests_on(session, tmp_path, monkeypatch):
    """A release that was measured before an interruption has the facts that it would have had."""
    first = session.release(BY_SEX, budget=BUDGET)
    release = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "usual")
    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_folder", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.release(SCRIPT, budget=BUDGET, out=tmp_path / "late")
    late = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "late")
    assert late.receipt == dpsql.Release.load(tmp_path / "late", ledger=session.ledger).receipt
    assert late.charged == BUDGET
    rests_on = [first.receipt.request, release.receipt.request]
    assert [e.request for e in late.facts.earlier] == rests_on
    assert [e.request for e in release.facts.earlier] == rests_on[:1]
    assert late.neighbours == release.neighbours
    assert late.facts.rmse < release.facts.rmse
    assert late.facts.privacy_cost <= BUDGET.mu_squared


def test_what_is_handed_out_later_may_be_adjusted(session, tmp_path, monkeypatch):
    made: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patched:
        patched.setattr(folder, "save", lambda *arguments: made.append(arguments) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.release(SCRIPT, budget=BUDGET, out=tmp_path / "out", nonnegative=True)
    lost = made[0][1]
    release = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "out", nonnegative=True)
    assert session.history.height == 1
    for name in SCRIPT:
        assert_frame_equal(release[name], lost.frame(name), rel_tol=1e-9, abs_tol=1e-9)
        assert release[name]["n_adjusted"].min() >= 0


CHANGED = {
    "script": {"statements": {"by_age": BY_AGE}},
    "names": {"statements": {"x": BY_SEX, "by_age": BY_AGE}},
    "budget": {"budget": dpsql.Budget(rho=Fraction(2, 100))},
    "weights": {"weights": {"by_age": 2.0}},
    "objective": {"objective": "largest"},
    "reuse": {"reuse": False},
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_question_is_not_handed_what_was_stored(session, monkeypatch, tmp_path, what):
    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_folder", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.release(SCRIPT, budget=BUDGET, out=tmp_path / "out")
    stored = session.ledger.entries()[0].request
    options = {"statements": SCRIPT, "budget": BUDGET} | CHANGED[what]
    assert session.release(**options).receipt.request != stored
    assert session.history["state"].to_list() == ["released", "delivered"]
    shown = session.release(SCRIPT, budget=BUDGET, confidence=0.9)  # how it is shown is no matter
    assert shown.receipt.request == stored
    assert "n_lower" in shown["by_sex"].columns


def test_a_target_that_exists_is_refused_for_free_answers_too(session, tmp_path):
    session.query(BY_SEX, budget=BUDGET)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ReleaseFormatError, match="exists already"):
        session.release(BY_SEX, budget=0, out=tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"
