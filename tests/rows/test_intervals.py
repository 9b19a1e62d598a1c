"""Constant intervals, as DuckDB takes them, and years of age: compared with DuckDB's own."""

from __future__ import annotations

import random
from datetime import date, datetime, time

import duckdb
import pytest

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.write import RowWriter
from tests.helpers.inserted import insert
from tests.rows.tools import parse

TYPES = {"d": "DATE", "e": "DATE", "t": "TIMESTAMP", "u": "TIMESTAMP"}
SPELLED = """
3 secs | 1 sec | -2 seconds | 90 mins | 5 min | 7m | 12 hrs | 12h | 1 hr | 2 d | 1 day 2 hours
1 mon | -13 mons | 1 yr | 2 yrs | 3 y | 1 week | 2 w | 1 quarter | 1 decade | 1.5 hours
02:30:00 | 02:30 | -02:30:00.25 | 1 day 02:30:00 | 25:00:01 | 3 ms | 10 us | 1.000001 seconds
""".replace("\n", " | ")
CASTS = [text.strip() for text in SPELLED.split(" | ") if text.strip()]
REFUSED = [
    "",
    "3",
    "3 fortnights",
    "1 day ago",
    "0.5 months",
    "0.25 days",
    "1.0000001 s",
    "1 day,",
    "x",
]


def days(rng):
    year, month = rng.choice([1, 1900, 1999, 2000, 2001, 2004, 2023]), rng.choice([1, 2, 2, 3, 12])
    return date(year, month, min(rng.choice([1, 2, 27, 28, 29, 30, 31]), 28 + (month != 2) * 3))


@pytest.fixture(scope="module")
def con():
    rng, con = random.Random(1), duckdb.connect()  # noqa: S311
    con.execute(f"CREATE TABLE r ({', '.join(map(' '.join, TYPES.items()))})").fetchall()
    times = (time(0), time(12), time(23, 59, 59, 999999), time(0, 0, 0, 1))
    rows = []
    for _ in range(1500):
        moments = [datetime.combine(days(rng), rng.choice(times)) for _ in "tu"]
        rows.append([v if rng.random() > 0.05 else None for v in (days(rng), days(rng), *moments)])
    rows += [[date(2000, 2, 29), date(2001, 2, 28), datetime(2000, 2, 29), datetime(2004, 2, 29)]]
    insert(con, "r", rows)
    con.execute("INSERT INTO r VALUES ('infinity', '-infinity', 'infinity', '-infinity')")
    return con


def check_equal(con, text):
    written = RowWriter(TYPES).write(parse(con, text)).sql
    rows = con.execute(f"SELECT TRY({text}), {written}, d, e, t, u FROM r").fetchall()
    assert [row for row in rows if row[0] != row[1]] == []


@pytest.mark.parametrize("spelled", CASTS)
def test_a_time_is_moved_as_far(con, spelled):
    for moved in (f"t + CAST('{spelled}' AS INTERVAL)", f"t - CAST('{spelled}' AS INTERVAL) * 3"):
        check_equal(con, moved)


@pytest.mark.parametrize("spelled", REFUSED)
def test_others_are_refused(con, spelled):
    with pytest.raises(UnsupportedSqlError):
        parse(con, f"t + CAST('{spelled}' AS INTERVAL)")


@pytest.mark.parametrize(
    "between", ["d, e", "t, u", "u, d", "t, DATE '2000-02-29'", "DATE '2023-08-15', e", "e, e"]
)
def test_years_of_age(con, between):
    for text in ("year(age({}))", "date_part('years', age({})) > 20"):
        check_equal(con, text.format(between))


@pytest.mark.parametrize("text", ["age(t, u)", "month(age(t, u))", "year(age(t))"])
def test_other_parts_of_an_age_are_refused(con, text):
    with pytest.raises(UnsupportedSqlError):
        parse(con, text)
