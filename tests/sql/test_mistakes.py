"""Everyday mistakes: each is told at its place, and what the hint says works when it is typed."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import dpsql

BUDGET = dpsql.Budget(rho=1)
DELAY = dpsql.Domain.integers(-10, 20, nullable=True, outside="clamp")
SCHEMA = dpsql.Schema({"flights": {"delay": DELAY, "carrier": dpsql.Domain.labels(["9E", "AA"])}})


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE flights (year INTEGER NOT NULL CHECK (year IN (2023, 2024)), month INTEGER "
        "NOT NULL CHECK (month BETWEEN 1 AND 12), day INTEGER NOT NULL CHECK (day BETWEEN 1 AND 31)"
        ", carrier VARCHAR, delay INTEGER, dest ENUM('ATL', 'BOS') NOT NULL)"
    ).fetchall()
    con.execute("CREATE TABLE airports (faa VARCHAR, state VARCHAR)").fetchall()
    con.execute("INSERT INTO airports VALUES ('ATL', 'GA'), ('BOS', 'MA')").fetchall()
    return con


def refused(con, sql: str) -> dpsql.SqlError:
    with pytest.raises(dpsql.SqlError) as error:
        dpsql.plan(con, sql, budget=BUDGET, schema=SCHEMA, public="airports")
    return error.value


def marked(error: dpsql.SqlError) -> str:
    assert error.sql is not None
    assert error.span is not None
    return error.sql[error.span.start : error.span.end]


COUNTED = "SELECT COUNT(*) AS n FROM flights f WHERE "
MISTAKES = {
    "an EXISTS over a misspelled column": (
        COUNTED + "EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dst)",
        "There is no column dst in flights", "f.dst", "dest",
        COUNTED + "EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest)",
    ),
    "a value for a misspelled table": (
        COUNTED + "1 < (SELECT COUNT(*) FROM airports WHERE faa = flight.dest)",
        "flight is not a table after FROM", "flight.dest", "f",
        COUNTED + "1 > (SELECT COUNT(*) FROM airports WHERE faa = f.dest)",
    ),
    "a window over rows": (
        "SELECT carrier, delay, LAG(delay) OVER (ORDER BY day) FROM flights",
        "A window over single rows", "LAG(delay) OVER (ORDER BY day)",
        "SUM(COUNT(*)) OVER (ORDER BY day) AS so_far … GROUP BY day",
        "SELECT day, LAG(COUNT(*)) OVER (ORDER BY day) AS n FROM flights GROUP BY day",
    ),
    "an aggregate over rows": (
        "SELECT carrier, AVG(delay) OVER (PARTITION BY carrier) FROM flights",
        "A window over single rows", "AVG(delay) OVER (PARTITION BY carrier)",
        "SUM(COUNT(*)) OVER (ORDER BY carrier)",
        "SELECT day, SUM(COUNT(*)) OVER (ORDER BY day) AS n FROM flights GROUP BY day",
    ),
    "a number for a label": (
        COUNTED + "carrier = 9", "9 is not a value of carrier", "9", "did you mean '9E'?",
        COUNTED + "carrier = '9E'",
    ),
    "a word for a number": (
        COUNTED + "month IN (1, 'Feb')", "'Feb' is not a value of month", "'Feb'", "{1..12}",
        COUNTED + "month IN (1, '2')",
    ),
    "several quantiles": (
        "SELECT QUANTILE_CONT(delay, [0.25, 0.5]) AS q FROM flights", "A list in brackets", "[",
        "QUANTILE_CONT(delay, 0.25), QUANTILE_CONT(delay, 0.5)",
        "SELECT QUANTILE_CONT(delay, 0.25) AS a, QUANTILE_CONT(delay, 0.5) AS b FROM flights",
    ),
    "the time": (
        COUNTED + "make_date(year, 1, 1) < now()", "The function NOW", "now()", "write its value",
        COUNTED + "make_date(year, 1, 1) < DATE '2024-06-01'",
    ),
    "backticks": (
        "SELECT `dest`, COUNT(*) AS n FROM flights GROUP BY 1", "Backticks", "`dest`", '"dest"',
        'SELECT "dest", COUNT(*) AS n FROM flights GROUP BY 1',
    ),
    "TOP": (
        "SELECT TOP 5 dest, COUNT(*) AS n FROM flights GROUP BY dest", "TOP", "TOP 5", "LIMIT 5",
        "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest LIMIT 5",
    ),
    "a template": (
        "SELECT COUNT(*) AS n FROM {{ ref('flights') }} WHERE day = 1", "A template is not SQL",
        "{{ ref('flights') }}", "such as flights",
        "SELECT COUNT(*) AS n FROM flights WHERE day = 1",
    ),
    "parentheses in an aggregate": (
        "SELECT BOOL_OR((delay) > day) AS late FROM flights", "The aggregate BOOL_OR is",
        "BOOL_OR((delay) > day)", "100.0 * COUNT_IF((delay) > day) / COUNT(*)",
        "SELECT 100.0 * COUNT_IF((delay) > day) / COUNT(*) AS late FROM flights",
    ),
    "dates that don't exist": (
        "SELECT make_date(year, month, day) AS d, COUNT(*) AS n FROM flights GROUP BY d",
        "out of range", "make_date(year, month, day)", "TRY(make_date(year, month, day))",
        "SELECT TRY(make_date(year, month, day)) AS d, COUNT(*) AS n FROM flights GROUP BY d",
    ),
    "the number of groups": (
        "SELECT COUNT(*) AS n FROM (SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest) AS q",
        "groups are there whether", "SELECT COUNT(*) AS n FROM (SELECT dest, COUNT(*) AS n FROM "
        "flights GROUP BY dest) AS q", "SUM(n)",
        "SELECT SUM(n) AS n FROM (SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest) AS q",
    ),
    "nothing counted": (
        "SELECT dest FROM flights", "not grouped by", "dest",
        "SELECT dest, COUNT(*) AS n … GROUP BY dest",
        "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest",
    ),
    "a histogram": (
        "SELECT histogram(day) FROM flights", "The function HISTOGRAM", "histogram(day)",
        "SELECT day, COUNT(*)", "SELECT day, COUNT(*) AS n FROM flights GROUP BY day",
    ),
    "a misspelt function": (
        "SELECT dest, COUNT(*) AS n FROM flights WHERE substrng(dest, 1, 1) = 'A' GROUP BY dest",
        "The function SUBSTRNG", "substrng(dest, 1, 1)", "did you mean SUBSTRING?",
        "SELECT dest, COUNT(*) AS n FROM flights WHERE substring(dest, 1, 1) = 'A' GROUP BY dest",
    ),
    "columns by a list": (
        "SELECT AVG(COLUMNS(['delay'])) FROM flights", "A list in brackets", "[",
        "name the columns", "SELECT AVG(delay) FROM flights",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_at_its_place_and_the_hint_works(con, mistake):
    sql, message, place, hint, typed = MISTAKES[mistake]
    error = refused(con, sql)
    assert message in error.message
    assert marked(error) == place
    assert hint in error.hint
    plan = dpsql.plan(con, typed, budget=BUDGET, schema=SCHEMA, public="airports")
    assert plan.workload.count > 0


def test_columns_from_outside_of_a_noisy_subquery_are_told(con):
    error = refused(
        con,
        "SELECT faa FROM airports WHERE 10 < (SELECT COUNT(*) FROM flights WHERE dest > state)",
    )
    assert error.message == "There is no column state in flights."
    assert error.hint.startswith("a subquery can use columns of its own tables only")


def test_try_gives_null_for_values_that_cannot_be_computed(con):
    sql = "SELECT TRY(make_date(year, month, day)) AS d, COUNT(*) AS n FROM flights GROUP BY d"
    session = dpsql.Session(con, schema=SCHEMA)
    frame = session.query(sql, budget=BUDGET)
    days = pl.date_range(pl.date(2023, 1, 1), pl.date(2024, 12, 31), "1d", eager=True)
    assert frame["d"].drop_nulls().sort().to_list() == days.to_list()
    assert frame["d"].null_count() == 1  # 30 February and the like: cells that no row can be in


def test_a_frame_takes_a_schema_with_and_without_its_name():
    frame = pl.DataFrame({"delay": [1, 2, None]})
    for schema in ({"delay": DELAY}, {"self": {"delay": DELAY}}):
        found = frame.dp.sql("SELECT delay, COUNT(*) FROM self GROUP BY 1", budget=BUDGET,
                             schema=schema)  # fmt: skip
        assert found.height == 32


def test_a_lookup_by_many_columns_looks_at_few_pairs():
    """A join of 44,640 cells with 44,640 rows: 2e9 pairs, of which 44,640 are equal."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE flights (month INTEGER NOT NULL CHECK (month BETWEEN 1 AND 60), "
        "day INTEGER NOT NULL CHECK (day BETWEEN 1 AND 31), "
        "hour INTEGER NOT NULL CHECK (hour BETWEEN 0 AND 23))"
    ).fetchall()
    con.execute(
        "CREATE TABLE weather AS SELECT m AS month, d AS day, h AS hour, (m + d + h) % 5 = 0 AS "
        "rain FROM range(1, 61) a(m), range(1, 32) b(d), range(24) c(h)"
    ).fetchall()
    con.execute(
        "INSERT INTO flights SELECT 1 + i % 60, 1 + i % 31, i % 24 FROM range(9999) t(i)"
    ).fetchall()
    session = dpsql.Session(con, public="weather")
    exact = (
        "SELECT rain, COUNT(*) AS n FROM flights JOIN weather USING (month, day, hour) GROUP BY 1"
    )
    frame = session.query(exact, budget=dpsql.Budget(rho=10**9)).sort("rain")
    expected = con.sql(f"{exact} ORDER BY rain").fetchall()
    assert [(rain, round(n)) for rain, n in frame.select("rain", "n").rows()] == expected
    left = exact.replace("JOIN", "LEFT JOIN")
    assert session.plan(left, budget=BUDGET).workload.count >= 2
    apart = " AND ".join(f"flights.{c} < weather.{c}" for c in ("month", "day", "hour"))
    with pytest.raises(dpsql.ResourceLimitError, match="pairs to look at"):
        session.plan(exact.replace("USING (month, day, hour)", f"ON {apart}"), budget=BUDGET)
