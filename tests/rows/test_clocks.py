"""What clocks show at instants, on rows made to hurt and whatever the session's zone is."""

import duckdb
import pytest

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import RowCall, RowColumn, RowConstant, columns, nodes
from dpsql.rows.times import with_clocks
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import ZONED
from tests.rows.tools import parse

ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Pacific/Apia")
TYPES = {"a": ZONED, "b": ZONED, "t": "TIMESTAMP", "n": "INTEGER"}
INSTANTS = [
    "NULL", "'infinity'", "'-infinity'", "'294247-01-10 04:00:54.775806+00'",
    "'290309-12-22 (BC) 00:00:00+00'", "'100000-06-01 00:00:00+00'", "'99999-06-01 00:00:00+00'",
    "'2023-03-26 00:59:59.999999+00'", "'2023-03-26 01:00:00+00'", "'2013-11-03 05:30:00+00'",
    "'2013-11-03 06:30:00+00'", "'1969-12-31 23:30:00+00'", "'1970-01-01 00:30:00+00'",
    "'2011-12-30 12:00:00+00'",
]  # fmt: skip


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("CREATE TABLE r (a TIMESTAMPTZ, b TIMESTAMPTZ, t TIMESTAMP, n INTEGER)").fetchall()
    for i, a in enumerate(INSTANTS):
        for b in INSTANTS:
            con.execute(f"INSERT INTO r VALUES ({a}, {b}, NULL, {i})").fetchall()
    return con


def written(con, text, zone=None):
    zones = {"a": zone, "b": zone}
    return RowWriter(TYPES).write(with_clocks(parse(con, text), zones)).sql


@pytest.mark.parametrize("session", ZONES)
@pytest.mark.parametrize("zone", ZONES)
def test_a_clock_shows_what_duckdb_says_it_does(con, zone, session):
    con.execute(f"SET TimeZone = '{session}'").fetchall()
    clock = RowCall("clock", (RowColumn("a"), RowConstant("VARCHAR", zone)))
    sql = RowWriter(TYPES).write(clock).sql
    near = "a BETWEEN '99999-01-01 (BC) 00:00:00+00' AND '99999-12-01 00:00:00+00'"
    wrong = con.execute(
        f"SELECT a FROM r WHERE {near} AND ({sql}) IS DISTINCT FROM timezone('{zone}', a)"
    ).fetchall()
    far = f"SELECT count(*) FROM r WHERE a > '100000-01-02 00:00:00+00' AND NOT isfinite({sql})"
    assert not wrong
    assert con.execute(far).fetchall()[0][0] == (14 if zone == "UTC" else 42)


@pytest.mark.parametrize("session", ZONES)
@pytest.mark.parametrize(
    "text",
    [
        "a < b", "a >= b", "a = b", "a IS DISTINCT FROM b", "a BETWEEN b AND a", "a IS NULL",
        "a IN (a, b)", "least(a, b) = a", "coalesce(a, b) > b", "isfinite(a)",
        "CASE WHEN n > 3 THEN a ELSE b END < b", "date_diff('minute', a, b)",
        "date_diff('second', b, a)", "date_diff('hour', a, b)",
    ],
)  # fmt: skip
def test_what_lies_between_instants_needs_no_zone(con, text, session):
    """Infinite instants have no distance; whole hours are those of zones that have whole ones."""
    con.execute(f"SET TimeZone = '{session}'").fetchall()
    if text == "isfinite(a)":
        with pytest.raises(UnsupportedSqlError, match="whose clock is read"):
            written(con, text)
        return
    if "hour" in text and session in {"Asia/Kolkata", "America/New_York"}:
        return  # one has half hours, and of the hour that New York has twice, DuckDB makes one
    # At the ends of the type, DuckDB has no hours.
    near = [f"abs(year({column})) < 200000" for column in "ab"]
    where = f"{' AND '.join(near)} AND isfinite(a) AND isfinite(b)"
    where = where if "date_diff" in text else "true"
    difference = f"SELECT a, b FROM r WHERE {where} AND ({written(con, text)}) IS DISTINCT FROM "
    assert not con.execute(f"{difference} TRY({text})").fetchall()
    con.execute(f"SELECT {written(con, text)} FROM r").fetchall()  # never fails


@pytest.mark.parametrize("text", ["date_diff('hour', a, b)", "date_diff('minute', a, b)"])
def test_hours_of_a_zone_that_has_no_whole_ones_are_its_own(con, text):
    utc = [RowConstant("VARCHAR", "UTC"), RowConstant("VARCHAR", "Asia/Kolkata")]
    found = with_clocks(parse(con, text), {"a": "Asia/Kolkata", "b": "Asia/Kolkata"})
    assert utc["hour" in text] in set(nodes(found))


@pytest.mark.parametrize(
    "text",
    ["hour(a)", "a > t", "date_diff('day', a, b)", "date_trunc('day', a) = b", "a + INTERVAL 1 DAY",
     "a = '2020-01-01'", "CAST(a AS DATE)", "date_diff('hour', a, t)"],
)  # fmt: skip
def test_what_needs_a_zone_is_refused_without_one_and_goes_by_the_one_that_is_declared(con, text):
    with pytest.raises(UnsupportedSqlError, match="whose clock is read") as error:
        written(con, text)
    assert 'zone="UTC"' in error.value.hint
    con.execute(f"SELECT {written(con, text, 'Europe/Berlin')} FROM r").fetchall()


def test_an_instant_is_read_by_a_clock_only(con):
    for text in ("a", "a < b"):
        with pytest.raises(UnsupportedSqlError, match="TIME ZONE"):
            RowWriter(TYPES).write(parse(con, text))
    for name, zone in (("a", "x'y"), ("a", "UTC' --"), ("a", ""), ("t", "UTC")):
        clock = RowCall("clock", (RowColumn(name), RowConstant("VARCHAR", zone)))
        with pytest.raises(UnsupportedSqlError):
            RowWriter(TYPES).write(clock)
    assert columns(with_clocks(parse(con, "a < b"), {"a": None, "b": None})) == {"a", "b"}
