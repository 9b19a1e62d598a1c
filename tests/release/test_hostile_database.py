"""A database that is against us: macros, views, profiling, other databases, odd rows.

Whatever it does, adding one row moves each count by at most one, in one cell, and nothing but
noisy answers comes out.
"""

from __future__ import annotations

import threading
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import InternalError, StaleSchemaError
from dpsql.session import planning
from tests.helpers.changes import change_while_planning
from tests.helpers.counting import COUNTERS
from tests.helpers.described import read_table
from tests.helpers.inserted import insert

BUDGET = dpsql.Budget(rho=Fraction(1, 10))
HUGE = dpsql.Budget(rho=10**12)

COLUMNS = {
    "e": "e NOT NULL",
    "e_null": "e",
    "b": "BOOLEAN NOT NULL",
    "b_null": "BOOLEAN",
    "r": "INTEGER NOT NULL CHECK (r BETWEEN -3 AND 3)",
    "r_null": "INTEGER CHECK (r_null BETWEEN -3 AND 3)",
    "l": "UTINYINT NOT NULL CHECK (l IN (7, 9))",
    "l_null": "UTINYINT CHECK (l_null IN (7, 9))",
    "s": "VARCHAR COLLATE NOCASE",
    "wide": "UBIGINT CHECK (wide IN (1, 18446744073709551615))",
}
SCHEMA = dpsql.Schema({"t": {"s": dpsql.Domain.labels(["bob", "ann"])}})
ROWS = [
    ("x", "x", True, True, -3, -3, 7, 7, "bob", 1),
    ("y", None, False, None, 3, None, 9, None, "BOB", None),
    ("z", "z", True, False, 0, 0, 9, 9, "nobody", 2**64 - 1),
    ("x", "y", True, True, 1, 2, 7, 7, None, 1),
]
MACROS = [
    "CREATE MACRO enum_code(x) AS 0",
    "CREATE MACRO encode(x) AS 'same'::BLOB",
    "CREATE MACRO list_position(x, y) AS 1",
    "CREATE MACRO count() AS 1000",
    "CREATE MACRO lower(x) AS 'same'",
    "CREATE MACRO current_setting(x) AS NULL",
    "CREATE MACRO txid_current() AS 0",
    "CREATE MACRO duckdb_columns() AS TABLE SELECT 1",
]


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(tmp_path / "people.duckdb")
    con.execute("CREATE TYPE e AS ENUM ('x', 'y', 'z')").fetchall()
    con.execute(f"CREATE TABLE t ({', '.join(map(' '.join, COLUMNS.items()))})").fetchall()
    insert(con, "t", ROWS)
    yield con
    con.close()


def marginal(con, column):
    table = read_table(con, ("t",), SCHEMA)
    return DuckDBEngine(con).marginals(table, [(column,)])[column,]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "macros"])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_row_moves_one_count_by_one(con, column, hostile):
    before = marginal(con, column)
    if hostile:
        for macro in MACROS:
            con.execute(macro).fetchall()
    np.testing.assert_array_equal(marginal(con, column), before)
    for row in ROWS:
        con.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row).fetchall()
        after = marginal(con, column)
        assert np.abs(after - before).sum() == 1  # what is outside has a cell of its own
        assert before.sum() + 1 == after.sum()
        outside = column == "s" and row[list(COLUMNS).index("s")] not in {"bob", "ann"}
        assert after[-1] - before[-1] == outside or column != "s"
        before = after


def test_every_domain_kind_is_released_with_hostile_macros(con):
    for macro in MACROS:
        con.execute(macro).fetchall()
    statements = {c: f"SELECT {c}, COUNT(*) AS n FROM t GROUP BY {c}" for c in COLUMNS if c != "s"}
    release = dpsql.query(con, statements, budget=HUGE)
    for column, frame in release.items():
        exact = {row[list(COLUMNS).index(column)]: 0 for row in ROWS}
        for row in ROWS:
            exact[row[list(COLUMNS).index(column)]] += 1
        found = {key: round(n) for key, n, _ in frame.rows() if round(n)}
        assert found == exact


def test_columns_may_be_called_as_the_library_calls_its_own(tmp_path):
    con = duckdb.connect()
    names = ["k1", "k0", "n", "key", "count"]
    declared = ", ".join(f'"{c}" UTINYINT NOT NULL CHECK ("{c}" <= 1)' for c in names)
    con.execute(f"CREATE TABLE t ({declared})").fetchall()
    con.execute("INSERT INTO t VALUES (0, 1, 1, 1, 1), (0, 0, 1, 1, 1), (0, 1, 0, 1, 1)").fetchall()
    statements = {c: f'SELECT "{c}", COUNT(*) AS rows FROM t GROUP BY "{c}"' for c in names}
    release = dpsql.query(con, statements, budget=HUGE)
    found = [[round(v) for v in frame["rows"]] for frame in release.values()]
    assert found == [[3, 0], [1, 2], [1, 2], [0, 3], [0, 3]]


CONDITIONS = {
    "a key of one value": "SELECT v, COUNT(*) AS n FROM p GROUP BY v",
    "a condition that is always true": "SELECT COUNT(*) AS n FROM p WHERE v IN ('x')",
    "a condition that cancels": "SELECT COUNT(*) AS n FROM p WHERE w >= 0",
}


@pytest.mark.parametrize("sql", CONDITIONS.values(), ids=CONDITIONS)
def test_rows_outside_a_named_columns_domain_are_not_counted(sql):
    """Also where the plan doesn't need the column to answer."""
    con = duckdb.connect()
    con.execute("CREATE TABLE p (v VARCHAR, w INTEGER)").fetchall()
    con.execute("INSERT INTO p VALUES ('x', 1), ('x', 0), ('other', -5), (NULL, NULL)").fetchall()
    domains = {"v": dpsql.Domain.labels(["x"]), "w": dpsql.Domain.integers(0, 1)}
    frame = dpsql.query(con, sql, budget=HUGE, schema=dpsql.Schema({"p": domains}))
    assert [round(n) for n in frame["n"]] == [2]


def test_profiling_prints_no_counts_and_is_put_back(con, capfd):
    con.execute("PRAGMA enable_profiling = 'query_tree'").fetchall()
    capfd.readouterr()
    con.execute("SELECT 'seen' FROM t").fetchall()
    assert "seen" in "".join(capfd.readouterr())
    dpsql.query(con, "SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    printed = "".join(capfd.readouterr())
    assert "list_position" not in printed
    assert "BEGIN" not in printed  # profiling is off from before the snapshot opens
    setting = "SELECT current_setting('enable_profiling')"
    assert con.execute(setting).fetchall() == [("query_tree",)]


def test_profiling_under_a_locked_configuration_is_refused_before_the_charge(con):
    session = dpsql.Session(con)
    con.execute("PRAGMA enable_profiling = 'json'").fetchall()
    con.execute("SET lock_configuration = true").fetchall()
    with pytest.raises(dpsql.ResourceLimitError, match="Profiling"):
        session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    assert session.ledger.spent == 0


def test_another_database_is_not_charged_to_this_ledger(con, tmp_path):
    session = dpsql.Session(con)
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other").fetchall()
    con.execute("USE other").fetchall()
    con.execute("CREATE TABLE t (l UTINYINT NOT NULL CHECK (l IN (7, 9)))").fetchall()
    sql = "SELECT l, COUNT(*) AS n FROM t GROUP BY l"
    with pytest.raises(StaleSchemaError, match="another database") as error:
        session.query(sql, budget=BUDGET)
    assert error.value.hint
    assert session.ledger.spent == 0
    con.execute("USE people").fetchall()
    assert session.query(sql, budget=BUDGET).height == 2


def test_a_table_that_changes_after_planning_is_not_read(con, monkeypatch):
    """A view takes the table's place between the plan and the charge."""
    session = dpsql.Session(con)
    swap = "ALTER TABLE t RENAME TO hidden; CREATE VIEW t AS FROM hidden, range(1000)"
    change_while_planning(monkeypatch, lambda: con.execute(swap).fetchall())
    with pytest.raises(StaleSchemaError):
        session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    assert session.ledger.spent == 0
    assert session.ledger.entries() == ()


def test_a_swap_by_another_connection_after_the_check_is_not_seen(con, monkeypatch):
    """What is counted is what was checked: both happen in one snapshot."""
    session = dpsql.Session(con)
    real, other = session.ledger.charge, con.cursor()

    def swap_and_charge(*args, **kwargs):
        other.execute("UPDATE t SET l = 9").fetchall()
        return real(*args, **kwargs)

    monkeypatch.setattr(session.ledger, "charge", swap_and_charge)
    frame = session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=HUGE)
    assert [round(n) for n in frame["n"]] == [2, 2]


def test_a_failed_transaction_is_refused_before_the_charge(con):
    session = dpsql.Session(con)
    con.begin()
    with pytest.raises(duckdb.Error):
        con.execute("SELECT error('no')").fetchall()
    with pytest.raises(dpsql.SchemaError, match="failed transaction") as error:
        session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    assert "failed transaction" in str(error.value)
    assert session.ledger.spent == 0


def test_the_release_comes_out_although_it_cannot_be_noted(con, monkeypatch):
    session = dpsql.Session(con)

    def fail(receipt, content):
        raise dpsql.LedgerError("disk full", hint="none")

    monkeypatch.setattr(session.ledger, "release", fail)
    assert session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET).height == 2
    assert session.ledger.spent == BUDGET.mu_squared
    assert [e.state for e in session.ledger.entries()] == ["charged"]


def test_a_confidence_next_to_one_is_bounded(con):
    frame = dpsql.query(
        con,
        "SELECT l, COUNT(*) AS n FROM t GROUP BY l",
        budget=BUDGET,
        confidence=np.nextafter(1, 0),
    )
    assert np.isfinite(frame["n_upper"].to_numpy()).all()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s, COUNT(*) AS n FROM t GROUP BY s",
        "SELECT l, COUNT(s) AS n FROM t GROUP BY l",
        "SELECT COUNT(*) AS n FROM t WHERE s IS NOT NULL",
        "SELECT COUNT(*) AS n FROM t WHERE s IN ('bob', 'rest') OR s NOT IN ('bob', 'ann')",
    ],
)
@pytest.mark.parametrize("mechanism", ["querysmasher", "gaussian"])
def test_labels_that_only_decide_which_rows_count_are_answered(con, sql, mechanism):
    other = dpsql.Domain.labels(["bob", "ann", "rest"], other="rest")
    session = dpsql.Session(con, schema=dpsql.Schema({"t": {"s": other}}))
    frame = session.query(sql, budget=HUGE, mechanism=mechanism)
    assert frame["n"].sum() == pytest.approx(3, abs=0.1)
    script = {"s": sql, "l": "SELECT l, r, COUNT(*) AS n FROM t GROUP BY l, r"}
    assert session.release(script, budget=HUGE, mechanism=mechanism)["l"]["n"].sum() > 2.9


def test_what_duckdb_refuses_to_bind_is_not_charged(con, monkeypatch):
    session = dpsql.Session(con)

    def refuse(*_):
        raise InternalError("DuckDB refuses a counting statement; nothing was charged")

    for counter in COUNTERS:
        monkeypatch.setattr(counter, "check", refuse)
    with pytest.raises(InternalError, match="nothing was charged"):
        session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    assert session.ledger.entries() == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_no_error_after_the_charge_carries_anything(con, monkeypatch, error):
    session = dpsql.Session(con)

    def fail(*_, **__):
        raise error("secret")

    monkeypatch.setattr(planning, "measure", fail)
    expected = error if error in {KeyboardInterrupt, SystemExit} else dpsql.ExecutionError
    with pytest.raises(expected) as raised:
        session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=BUDGET)
    assert "secret" not in str(raised.value)
    assert raised.value.__context__ is None
    assert session.ledger.spent == BUDGET.mu_squared


def test_threads_may_share_a_session(con):
    """They take turns; each is charged and each gets its answer."""
    session = dpsql.Session(con)
    frames, errors = [], []

    def ask():
        try:
            frames.append(session.query("SELECT l, COUNT(*) AS n FROM t GROUP BY l", budget=HUGE))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [[round(n) for n in frame["n"]] for frame in frames] == [[2, 2]] * 6
    assert session.ledger.spent == 6 * HUGE.mu_squared


def test_plans_and_releases_may_run_at_once(con):
    """One must not take the other's rows for its catalog."""
    session = dpsql.Session(con)
    sql = "SELECT l, COUNT(*) AS n FROM t GROUP BY l"
    errors = []

    def repeat(work):
        try:
            for _ in range(8):
                work(sql, budget=HUGE)
        except BaseException as error:
            errors.append(error)

    works = (session.query, session.plan, session.plan)
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert session.ledger.spent == 8 * HUGE.mu_squared
