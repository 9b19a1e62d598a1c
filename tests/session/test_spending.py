"""Many threads and processes that ask at once."""

from __future__ import annotations

import os
import sys
import threading
from fractions import Fraction
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.privacy import Ledger
from tests.privacy.ledger_tools import python
from tests.session.tools import BUDGET, BY_SEX, RHO, forked, warm_up


def test_threads_may_share_a_session(session):
    frames: list[pl.DataFrame] = []

    def work() -> None:
        frames.append(session.query(BY_SEX, budget=BUDGET, reuse=False))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(frame["n"]) for frame in frames}) == 6
    assert session.ledger.spent == 6 * BUDGET.mu_squared
    assert session.history["state"].to_list() == ["delivered"] * 6


def spend(file: str, each: str) -> None:
    """Ask the same again and again; print each answer."""
    with duckdb.connect(file, read_only=True) as con:
        session = dpsql.Session(con)
        for _ in range(int(each)):
            try:
                frame = session.query(BY_SEX, budget=BUDGET, reuse=False)
            except dpsql.BudgetError as error:
                os.write(1, f"refused {'short by' in str(error)}\n".encode())
            else:
                os.write(1, f"answered {frame['n'].to_list()}\n".encode())


def spend_in_processes(file: str, processes: str, each: str) -> None:
    """Fork before any thread or database is there."""
    warm_up()
    children = [forked(lambda: spend(file, each)) for _ in range(int(processes))]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


def check_processes(file: Path, processes: int, each: int, rho: Fraction) -> None:
    with duckdb.connect(file) as con:
        dpsql.Session(con, budget=dpsql.Budget(rho=rho))
    code = (
        "import sys; from tests.session.test_spending import *; spend_in_processes(*sys.argv[1:])"
    )
    child = python(code, file, processes, each)
    out, err = child.communicate(timeout=580)
    assert child.returncode == 0, err
    lines = out.splitlines()
    answers = [line for line in lines if line.startswith("answered")]
    fit = rho // RHO
    assert fit < processes * each
    assert len(answers) == len(set(answers)) == fit
    assert lines.count("refused True") == processes * each - fit
    ledger = Ledger.existing(f"{file}.ledger")
    entries = ledger.entries()
    assert len(entries) == fit
    assert {entry.state for entry in entries} == {"delivered"}
    assert ledger.spent == sum(entry.mu_squared for entry in entries) == fit * BUDGET.mu_squared
    assert ledger.remaining == 2 * (rho - fit * RHO) > 0
    assert ledger.audit().contents == fit


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_spend_at_once(file):
    check_processes(file, 4, 5, Fraction(125, 1000))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_spend_ten_times_each(file):
    check_processes(file, 4, 10, Fraction(235, 1000))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_eight_processes_that_spend_100_times_each(file):
    check_processes(file, 8, 100, Fraction(2855, 1000))


def test_marginals_too_large_together_are_refused_before_the_charge(monkeypatch):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 9))")
    session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
    sql = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    monkeypatch.setenv("DPSQL_MAX_CELLS", "9")
    with pytest.raises(dpsql.ResourceLimitError, match="have 10 cells together; the limit is 9"):
        session.query(sql, budget=dpsql.Budget(rho=1))
    monkeypatch.setenv("DPSQL_MAX_CELLS", "10")
    assert session.query(sql, budget=dpsql.Budget(rho=1)).height == 10  # nothing was spent before
