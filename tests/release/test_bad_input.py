"""Bad input at the front door: typed errors with hints, nothing charged, nothing released."""

from __future__ import annotations

import gc
import sqlite3
import traceback
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBCounting
from dpsql.errors import SqlParseError, UnsupportedSqlError
from dpsql.session import planning

BUDGET = dpsql.Budget(rho=Fraction(1, 10))
SQL = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
SECRET = 4111


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(tmp_path / "people.duckdb")
    con.execute(
        "CREATE TYPE sex AS ENUM ('F', 'M');"
        "CREATE TABLE people ("
        "  sex sex NOT NULL, age INTEGER CHECK (age BETWEEN 0 AND 99), name VARCHAR,"
        "  one INTEGER NOT NULL CHECK (one BETWEEN 5 AND 5),"
        "  a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 9999),"
        "  b INTEGER NOT NULL CHECK (b BETWEEN 0 AND 9999))"
    ).fetchall()
    con.executemany(
        "INSERT INTO people VALUES (?, ?, ?, 5, 0, 0)",
        [("F", 30, f"secret-{SECRET}"), ("M", None, "x"), ("M", 41, "y")],
    )
    yield con
    con.close()


@pytest.fixture
def session(con):
    return dpsql.Session(con, budget=dpsql.Budget(rho=1))


BAD_BUDGETS = [
    {"rho": 0},
    {"rho": -1},
    {"rho": float("nan")},
    {"mu": float("inf")},
    {"rho": "1"},
    {"rho": True},
    {"rho": 1, "mu": 1},
    {"epsilon": 1},
    {"epsilon": 1, "delta": 1},
    {"epsilon": 1e-320, "delta": 1e-9},
    {},
]


@pytest.mark.parametrize("form", BAD_BUDGETS, ids=str)
def test_budgets(form):
    with pytest.raises(dpsql.BudgetError) as error:
        dpsql.Budget(**form)
    assert error.value.hint


@pytest.mark.parametrize("budget", [1, 0.5, "1", None, {"rho": 1}])
def test_a_budget_must_be_a_budget(session, budget):
    said = "There is no budget" if budget is None else r"must be a dpsql\.Budget"
    with pytest.raises(dpsql.BudgetError, match=said):
        session.query(SQL, budget=budget)
    with pytest.raises(dpsql.BudgetError, match=said):
        session.plan(SQL, budget=budget)


REFUSED = {
    "unknown table": ("SELECT COUNT(*) FROM peple", dpsql.SchemaError),
    "unknown column": ("SELECT agee, COUNT(*) FROM people GROUP BY agee", dpsql.DpsqlError),
    "no domain": ("SELECT name, COUNT(*) FROM people GROUP BY name", dpsql.DpsqlError),
    "two statements": (f"{SQL}; {SQL}", dpsql.SqlError),
    "empty": ("", SqlParseError),
    "ddl": ("DROP TABLE people", UnsupportedSqlError),
    "dml": ("DELETE FROM people", UnsupportedSqlError),
    "dml in a CTE": (
        "WITH x AS (DELETE FROM people RETURNING *) SELECT COUNT(*) FROM x",
        UnsupportedSqlError,
    ),
    "too large": ("SELECT a, b, COUNT(*) AS n FROM people GROUP BY a, b", dpsql.ResourceLimitError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_charge_and_touch_nothing(con, session, name):
    sql, kind = REFUSED[name]
    with pytest.raises(kind) as error:
        session.query(sql, budget=BUDGET)
    assert error.value.hint
    assert session.ledger.spent == 0
    assert con.execute("SELECT count(*) FROM people").fetchall() == [(3,)]


def test_the_error_for_a_column_without_a_domain_shows_the_declaration(session):
    with pytest.raises(dpsql.DpsqlError, match="no public domain") as error:
        session.query("SELECT name, COUNT(*) FROM people GROUP BY name", budget=BUDGET)
    assert "ENUM" in str(error.value)


def test_no_statements(session):
    for nothing in ([], {}):
        with pytest.raises(dpsql.SqlError, match="no statements"):
            session.release(nothing, budget=BUDGET)
    with pytest.raises(dpsql.SqlError, match="SQL texts"):
        session.release([1], budget=BUDGET)
    with pytest.raises(dpsql.SqlError, match="one SQL text"):
        session.query([SQL], budget=BUDGET)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, float("nan"), "0.9", True])
def test_confidence(session, confidence):
    with pytest.raises(dpsql.SqlError, match="not a probability"):
        session.query(SQL, budget=BUDGET, confidence=confidence)
    assert session.ledger.spent == 0


def test_an_empty_table_is_answered(con, session):
    con.execute("DELETE FROM people").fetchall()
    frame = session.query(SQL, budget=dpsql.Budget(rho=Fraction(1, 2)))
    assert frame.height == 2


def test_a_domain_of_one_value_is_answered(session):
    frame = session.query("SELECT one, COUNT(*) AS n FROM people GROUP BY one", budget=BUDGET)
    assert frame["one"].to_list() == [5]
    assert frame["n_variance"][0] > 0


HUGE = dpsql.Budget(rho=10**12)


def test_null_has_a_group_of_its_own(con):
    frame = dpsql.query(con, "SELECT age, COUNT(*) AS n FROM people GROUP BY age", budget=HUGE)
    assert frame.height == 101
    assert frame["age"][-1] is None
    assert round(frame["n"][-1]) == 1
    assert round(frame["n"].sum()) == 3


def test_rows_outside_a_declared_domain_are_left_out_where_the_column_is_named(con):
    """A CHECK can't be violated, but a declared domain can: the rule is silent and uniform."""
    schema = dpsql.Schema({"people": {"name": dpsql.Domain.labels(["x", "y"])}})
    statements = {
        "by_name": "SELECT name, COUNT(*) AS n FROM people GROUP BY name",
        "total": "SELECT COUNT(*) AS n FROM people",
    }
    release = dpsql.query(con, statements, budget=HUGE, schema=schema)
    assert [round(v) for v in release["by_name"]["n"]] == [1, 1]
    assert round(release["total"]["n"][0]) == 3
    nullable = dpsql.Schema({"people": {"name": dpsql.Domain.labels(["x", "y"], nullable=True)}})
    with pytest.raises(dpsql.StaleSchemaError, match="changed since the release"):
        dpsql.query(con, statements, budget=HUGE, schema=nullable)
    release = dpsql.query(
        con, statements, budget=HUGE, schema=nullable, accept_schema=True, reuse=False
    )
    assert [round(v) for v in release["by_name"]["n"]] == [1, 1, 1]
    assert round(release["total"]["n"][0]) == 3


def test_what_is_known_without_data_is_free(con, session):
    frame = session.query("SELECT COUNT(*) AS n FROM people WHERE 1 = 2 AND age > 3", budget=BUDGET)
    assert frame.rows() == [(0.0, 0.0)]
    assert session.ledger.spent == 0
    assert session.ledger.entries() == ()


def test_more_than_is_left_is_refused_with_the_amounts(con, session):
    session.query(SQL, budget=dpsql.Budget(rho=Fraction(7, 10)))
    with pytest.raises(dpsql.BudgetError, match=r"0\.5.*0\.3.*0\.2"):
        session.query(SQL, budget=dpsql.Budget(rho=0.5))
    assert session.remaining == Fraction(3, 10)
    session.query(SQL, budget=dpsql.Budget(rho=0.3))
    assert session.remaining == 0


def test_the_total_survives_the_session(con, session):
    session.query(SQL, budget=BUDGET)
    assert dpsql.Session(con).remaining == Fraction(9, 10)
    dpsql.query(con, SQL, budget=BUDGET)
    assert dpsql.Session(con, budget=dpsql.Budget(rho=1)).remaining == Fraction(8, 10)
    with pytest.raises(dpsql.LedgerError):
        dpsql.Session(con, budget=dpsql.Budget(rho=2))


STEPS = ("engine", "noise", "memory")


@pytest.mark.parametrize("step", STEPS)
def test_failures_after_the_charge_say_nothing_and_keep_the_charge(session, step, monkeypatch):
    def fail(*_, **__):
        if step == "memory":
            raise MemoryError(f"secret-{SECRET}")
        raise ValueError(f"secret-{SECRET}")

    target = {
        "engine": (DuckDBCounting, "run"),
        "noise": (planning, "measure"),
        "memory": (DuckDBCounting, "run"),
    }[step]
    monkeypatch.setattr(*target, fail)
    with pytest.raises(dpsql.ExecutionError) as error:
        session.query(SQL, budget=BUDGET)
    text = "".join(traceback.format_exception(error.value))
    assert str(SECRET) not in text
    assert error.value.__context__ is None
    assert error.value.__cause__ is None
    assert session.ledger.spent == BUDGET.mu_squared
    drawn = step == "noise"
    assert [e.state for e in session.ledger.entries()] == ["charged" if drawn else "failed"]
    gc.collect()


def test_what_was_measured_before_a_failure_is_handed_out_later(session, monkeypatch):
    real, made = planning.from_plan, []

    def fail(*arguments, **named):
        made.append(real(*arguments, **named)["query"])
        raise ValueError(SECRET)

    monkeypatch.setattr(planning, "from_plan", fail)
    with pytest.raises(dpsql.ExecutionError):
        session.query(SQL, budget=BUDGET)
    assert [e.state for e in session.ledger.entries()] == ["released"]
    monkeypatch.undo()
    again = session.query(SQL, budget=BUDGET)
    assert again.equals(made[0])
    assert [e.state for e in session.ledger.entries()] == ["delivered"]
    assert not session.query(SQL, budget=BUDGET).equals(again)
    assert session.ledger.spent == 2 * BUDGET.mu_squared


def test_a_release_is_marked_as_delivered(session):
    session.query(SQL, budget=BUDGET)
    assert [e.state for e in session.ledger.entries()] == ["delivered"]


def test_nothing_is_read_when_the_ledger_cannot_be_written(con, monkeypatch, tmp_path):
    touched = []
    monkeypatch.setattr(DuckDBCounting, "run", lambda *a: touched.append(a) or {})
    with pytest.raises(dpsql.LedgerError):
        dpsql.query(con, SQL, budget=BUDGET, ledger=tmp_path / "no" / "such" / "folder")
    assert not touched


class Recorder:
    """A connection that takes note of what it is asked."""

    def __init__(self, inner):
        self.inner, self.seen = inner, []

    def execute(self, sql, *args):
        self.seen.append(sql)
        return self.inner.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_statements_that_reach_the_connection_never_contain_the_analysts_text(con, tmp_path):
    """A recorder around the connection: only catalog reads and library-built counts pass."""
    recorder = Recorder(con)
    marked = "SELECT sex AS sneaky_alias, COUNT(*) AS n FROM people WHERE age <= 77 GROUP BY sex"
    dpsql.query(recorder, marked, budget=BUDGET)
    assert recorder.seen
    for sql in recorder.seen:
        assert "sneaky_alias" not in sql
        assert "77" not in sql


def test_wrong_workloads():
    from dpsql.workload import Identity, Matrix, Prefix, Workload

    w = Workload({"a": 3, "b": 2})
    cases = [
        lambda: Workload({"a": 0}),
        lambda: Workload({"a": 2.5}),
        lambda: w.add(["c"], [Identity()]),
        lambda: w.add(["a", "a"], [Identity(), Identity()]),
        lambda: w.add(["a", "b"], [Identity()]),
        lambda: w.add(["a"], Matrix([[1, 2]])),
        lambda: w.add(["a"], Matrix([[1, 2, np.nan]])),
        lambda: Matrix([1, 2, 3]),
        lambda: Matrix([["x"]]),
        lambda: w.add(["a"], [Prefix()], weight=-1),
        lambda: w.add(["a"], [Prefix()], weight=float("nan")),
        lambda: w.add(["a"], [Prefix()], weight=0),
        lambda: w.add(["a"], [Prefix()], weight="1"),
        lambda: w.add(["a"], "prefix"),
        lambda: dpsql.plan(Workload({"a": 3}), budget=BUDGET),
        lambda: dpsql.plan(w.add(["a"], [Prefix()]), budget=BUDGET, tolerance=0),
    ]
    for case in cases:
        with pytest.raises(dpsql.WorkloadError) as error:
            case()
        assert error.value.hint


class NotDuckDB:
    """Another system's connection, which takes statements, and has no result or another one."""

    def __init__(self, result):
        self._result = result

    def execute(self, *_):
        return self._result

    def fetchall(self):
        return self._result


@pytest.mark.parametrize("call", [dpsql.query, dpsql.plan, dpsql.compare, dpsql.Session])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (object, "'object'"),
        (lambda: sqlite3.connect(":memory:"), "'sqlite3.Connection'"),
        (lambda: sqlite3.connect(":memory:").cursor(), "'sqlite3.Cursor'"),
        (lambda: duckdb.connect().sql("SELECT 1"), "DuckDBPyRelation"),
        (lambda: NotDuckDB(None), "NotDuckDB'"),
        (lambda: NotDuckDB(NotDuckDB([])), "NotDuckDB'"),
        (lambda: NotDuckDB(NotDuckDB([(5,)])), "NotDuckDB'"),
    ],
)
def test_what_is_not_a_connection(call, make, name):
    more = {} if call is dpsql.Session else {"statements": SQL, "budget": BUDGET}
    with pytest.raises(dpsql.SchemaError, match=f"{name}.* is neither a path") as error:
        call(make(), **more)
    assert "people.csv" in str(error.value.hint)


@pytest.mark.parametrize("wrap", [lambda con: con, Recorder])
@pytest.mark.parametrize("call", [dpsql.query, dpsql.plan, dpsql.compare])
def test_a_closed_connection(call, wrap):
    closed = duckdb.connect()
    closed.close()
    with pytest.raises(dpsql.SchemaError, match="catalog can't be read"):
        call(wrap(closed), SQL, budget=BUDGET)


def test_a_cursor_is_a_connection(con):
    assert dpsql.plan(con.cursor(), SQL, budget=BUDGET).rmse > 0


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {"people": 5},
        {5: {}},
        {"people": {"age": 5}},
        {"peple": {"age": dpsql.Domain.integers(0, 9)}},
        {"people": {"agee": dpsql.Domain.integers(0, 9)}},
    ],
)
def test_schemas_with_mistakes(con, schema):
    with pytest.raises(dpsql.SchemaError) as error:
        dpsql.plan(con, SQL, budget=BUDGET, schema=schema)
    assert error.value.hint


def test_an_interrupt_after_the_charge_carries_nothing(session, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt(f"secret-{SECRET}")

    monkeypatch.setattr(DuckDBCounting, "run", interrupt)
    with pytest.raises(KeyboardInterrupt) as error:
        session.query(SQL, budget=BUDGET)
    assert str(SECRET) not in "".join(traceback.format_exception(error.value))
    assert error.value.__context__ is None
    assert session.ledger.spent == BUDGET.mu_squared
