"""Releases from views: one account and one unit for a table, by whatever name it is asked."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from tests.helpers.changes import change_while_planning
from tests.helpers.counting import recorded_statements
from tests.session.tools import BUDGET, BY_SEX, TOTAL

HUGE = dpsql.Budget(rho=1e8)
VIEWS = """
    CREATE VIEW grown AS SELECT person AS who, sex, age, income * 2 AS double_income FROM people
        WHERE age >= 4;
    CREATE VIEW same AS FROM people;
    CREATE VIEW above AS SELECT sex, age FROM same;
"""


@pytest.fixture
def con(con):
    con.execute(VIEWS).fetchall()
    return con


def by_sex(view):
    return BY_SEX.replace("people", view)


def test_answers_are_those_of_duckdb(con):
    schema = dpsql.Schema({"grown": {"double_income": dpsql.Domain.number(0, 200)}})
    sql = "SELECT sex, COUNT(*) AS n, AVG(double_income) AS a FROM grown GROUP BY sex ORDER BY sex"
    answer = dpsql.query(con, sql, budget=HUGE, schema=schema)
    for ours, theirs in zip(answer.select("n", "a").rows(), con.sql(sql).fetchall(), strict=True):
        assert ours == pytest.approx(theirs[1:], rel=1e-3)


def test_a_table_is_charged_for_under_all_of_its_names(file):
    with duckdb.connect(file) as con:
        con.execute(VIEWS).fetchall()
        session = dpsql.Session(con, budget=dpsql.Budget(rho=Fraction(4, 100)))
        for name in ("people", "grown", "main.same", "above"):
            session.query(by_sex(name), budget=BUDGET)
        assert len({entry.table for entry in session.ledger.entries()}) == 1
        con.execute("CREATE VIEW fresh AS SELECT sex FROM people").fetchall()
        for name in ("people", "fresh", "same"):
            with pytest.raises(dpsql.BudgetError):
                dpsql.Session(con).query(by_sex(name), budget=BUDGET)
        con.execute("ALTER VIEW same RENAME TO other").fetchall()
        with pytest.raises(dpsql.BudgetError):
            dpsql.Session(con).query(by_sex("other"), budget=BUDGET)


def test_one_unit_is_protected_under_all_names(con):
    session = dpsql.Session(con, budget=TOTAL, unit=dpsql.Unit("person", 2))
    session.query(by_sex("people"), budget=BUDGET)
    for other in ({"unit": dpsql.EACH_ROW}, {}, {"unit": "age", "max_rows": 2}):
        with pytest.raises(dpsql.LedgerError):
            session.redeclared(**other).query(by_sex("above"), budget=BUDGET)
    renamed = session.redeclared(unit="who", max_rows=2)
    assert renamed.query(by_sex("grown"), budget=BUDGET).height == 2
    assert session.ledger.protected.units == 1
    with pytest.raises(dpsql.SchemaError, match="no column person"):
        session.query(by_sex("above"), budget=BUDGET)


def test_what_was_measured_of_a_view_is_for_that_view(con):
    """Each of them has other rows, or other columns under the same names."""
    session = dpsql.Session(con)
    session.query(by_sex("grown"), budget=BUDGET)
    assert session.query(by_sex("grown"), budget=0).height == 2
    for name in ("people", "same", "above"):
        with pytest.raises(dpsql.UndeterminedError):
            session.query(by_sex(name), budget=0)
    con.execute("CREATE OR REPLACE VIEW grown AS SELECT sex FROM people WHERE age > 7").fetchall()
    with pytest.raises(dpsql.UndeterminedError):
        session.query(by_sex("grown"), budget=0)
    assert session.ledger.spent == 2 * BUDGET.rho


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE VIEW grown AS SELECT sex FROM people",
        "DROP VIEW grown",
        "ALTER TABLE people ADD COLUMN more INTEGER",
    ],
)
def test_a_view_that_changes_after_planning_is_not_read(con, monkeypatch, change):
    session = dpsql.Session(con)
    change_while_planning(monkeypatch, lambda: con.execute(change).fetchall())
    with pytest.raises(dpsql.StaleSchemaError) as caught:
        session.query(by_sex("grown"), budget=BUDGET)
    assert caught.value.hint
    assert session.ledger.spent == 0


def test_the_view_itself_is_never_named_to_the_private_connection(con):
    with recorded_statements() as ran:
        dpsql.query(con, by_sex("above"), budget=BUDGET)
    assert ran
    assert all('"above"' not in sql and '"same"' not in sql for sql, _ in ran)


def test_saved_releases_of_views_are_read_again(con, tmp_path):
    session = dpsql.Session(con)
    release = session.release({"n": by_sex("grown")}, budget=BUDGET)
    release.save(tmp_path / "r")
    assert dpsql.Release.load(tmp_path / "r")["n"].equals(release["n"])


def test_a_declared_view_is_checked_as_a_table_is(con):
    for declared in ({"grown": {"agee": dpsql.Domain.integers(0, 9)}}, {"growm": {}}):
        with pytest.raises(dpsql.SchemaError) as caught:
            dpsql.plan(con, BY_SEX, budget=BUDGET, schema=dpsql.Schema(declared))
        assert caught.value.hint
