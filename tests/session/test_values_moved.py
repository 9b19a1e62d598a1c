"""Values that count as others, because it is declared so: what is said of them, and how many."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql import Domain
from dpsql.errors import SchemaError

HUGE = dpsql.Budget(rho=10**12)
ROWS = """
    CREATE TABLE t AS SELECT (i % 1000 / 100)::DECIMAL(5,2) AS d, (i % 1000 / 100)::DOUBLE AS x,
        i % 130 AS age, ['a', 'b', 'it''s'][1 + i % 3] AS s, (i % 500)::DOUBLE AS pay,
        DATE '2024-01-01' + (i % 400)::INTEGER AS day,
        TIMESTAMP '2024-01-01' + (i % 400) * INTERVAL 1 DAY + INTERVAL 7 HOUR AS ts
    FROM range(2000) AS r(i)
"""
SHOWN = "SELECT {0}, COUNT(*) AS n FROM t GROUP BY {0}"
GRID = "d BETWEEN 0 AND 9 AND d <> round(d)"
QUARTERS = "x BETWEEN 0.25 AND 9.75 AND (x - 0.25) % 0.5 <> 0"
BEYOND = "< DATE '2024-02-01' OR {0}::DATE > DATE '2024-12-31'"
# a declaration, a statement that rests on it, what is said of it, and which rows are meant
CASES = {
    "clamped integers": (
        {"age": Domain.integers(0, 99, outside="clamp")}, SHOWN.format("age"),
        {"age counts as at least 0 and at most 99": "age > 99"},
    ),
    "a clamped grid": (
        {"d": Domain.decimals(0, 9, 1, outside="clamp")}, SHOWN.format("d"),
        {
            "d counts as at least 0 and at most 9": "d < 0 OR d > 9",
            "d counts as the nearest multiple of 1": GRID,
        },
    ),
    "a grid of doubles": (
        {"x": Domain.decimals("0.25", "9.75", "0.5", outside="drop")}, SHOWN.format("x"),
        {"x counts as the nearest of 0.25, 0.75, …": QUARTERS},
    ),
    "other labels": (
        {"s": Domain.labels(["it's", "rest"], other="rest")}, SHOWN.format("s"),
        {"s counts as 'rest' where it isn't listed": "s NOT IN ('it''s', 'rest')"},
    ),
    "clamped months": (
        {"day": Domain.dates("2024-02-01", "2024-12-31", "month", outside="clamp")},
        SHOWN.format("day"),
        {"day counts as at least 2024-02-01 and at most 2024-12-31": f"day {BEYOND.format('day')}"},
    ),
    "clamped days of times": (
        {"ts": Domain.dates("2024-02-01", "2024-12-31", outside="clamp")},
        "SELECT ts::DATE AS day, COUNT(*) AS n FROM t GROUP BY ts::DATE",
        {"ts counts as at least 2024-02-01 and at most 2024-12-31": f"ts {BEYOND.format('ts')}"},
    ),
    "clamped bins": (
        {"x": Domain.bins([1, 5, 9], outside="clamp")}, SHOWN.format("x"),
        {"x counts as at least 1.0 and at most 9.0": "x < 1 OR x > 9"},
    ),
    "bounds": (
        {"pay": Domain.number(10, 300)}, "SELECT AVG(pay) AS n FROM t",
        {"values from 10 to 300": "pay < 10 OR pay > 300"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(ROWS)
    return con


def session(con, domains):
    return dpsql.Session(con, schema=dpsql.Schema({"t": domains}), accept_schema=True)


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_and_counted(con, case):
    domains, sql, moved = CASES[case]
    release = session(con, domains).release({"q": sql}, budget=HUGE, report_moved=True)
    text = " ".join(release.summary().split())
    assert all(said in text for said in moved)
    found = release["values_moved"]
    assert [round(n) for n in found["moved"]] == [
        con.execute(f"SELECT COUNT(*) FROM t WHERE {rows}").fetchall()[0][0]
        for rows in moved.values()
    ]
    assert min(found["moved"]) > 100
    assert set(found["column_name"]) == set(domains)


def test_conditions_tell_stored_values_and_need_no_word(con):
    domains = {"age": Domain.integers(0, 99, outside="clamp")}
    asked = {"q": "SELECT COUNT(*) AS n FROM t WHERE age >= 100"}
    release = session(con, domains).release(asked, budget=HUGE)
    assert round(release["q"]["n"][0]) == 450
    assert "counts as at least" not in release.summary()


def test_what_the_database_enforces_is_not_moved(con):
    con.execute("CREATE OR REPLACE TABLE kept (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 9))")
    asked = "SELECT a, COUNT(*) AS n FROM kept GROUP BY a"
    with pytest.raises(SchemaError, match="No values are moved into a domain") as refused:
        dpsql.Session(con).plan(asked, budget=HUGE, report_moved=True)
    assert refused.value.hint == "leave report_moved= out."


def test_it_goes_with_units_that_are_cut(con):
    con.execute("CREATE OR REPLACE TABLE v AS SELECT i % 50 AS u, i % 9 AS a FROM range(500) t(i)")
    schema = dpsql.Schema({"v": {"a": Domain.integers(0, 5, outside="clamp")}})
    both = dpsql.Session(con, schema=schema, unit="u", max_rows=4)
    asked = "SELECT a, COUNT(*) AS n FROM v GROUP BY a"
    release = both.release(asked, budget=HUGE, report_moved=True, report_cut=True)
    assert set(release) == {"query", "values_moved", "units_cut"}
    assert round(release["values_moved"]["all_values"][0]) == 200
    assert round(release["units_cut"]["units_cut"][0]) == 50
