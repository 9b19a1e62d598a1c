"""Keys of one column on one axis: equal to DuckDB, of fewer cells, and together with the past."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import duckdb
import pytest

import dpsql
from dpsql.errors import ReleaseFormatError, UndeterminedError
from dpsql.release.measurements import decode, encode
from tests.release.saved import replace_file
from tests.rows.test_lines import OneColumn
from tests.rows.test_total import hostile_rows
from tests.rows.tools import benign, connect, create, written

HUGE, BUDGET = dpsql.Budget(rho=1e12), dpsql.Budget(rho=0.5)
SCHEMA = {"t": {"k": dpsql.Domain.integers(0, 3), "price": dpsql.Domain.number(0, 1000)}}
ROWS = """CREATE TABLE t AS SELECT i % 4 AS k, ((i * 7919 % 100001) / 100)::DECIMAL(9, 2) AS price,
CASE WHEN i % 9 > 0 THEN (i * 31 % 977) / 97.7 END AS x, ['Anna', 'Bob', 'Al'][1 + i % 3] AS s,
TIMESTAMP '2023-11-05' + INTERVAL (i * 3571 % 40000) MINUTE AS ts FROM range(3000) AS r(i)"""


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(tmp_path / "t.duckdb")
    con.execute(ROWS).fetchall()
    return con


def rows(found):
    def text(v):
        return f"{float(v):.1f}" if isinstance(v, float | Decimal) else str(v)

    return sorted(tuple(map(text, row)) for row in found)


def answer(con, asked, sql):
    """Groups with rows, of an answer without standard errors; and those of DuckDB."""
    names = [c for c, *_ in con.execute(sql).description]
    frame = asked.query(sql, budget=HUGE).select(names)
    counts = [c for c in names if c.startswith("n")]
    frame = frame.with_columns(frame[c].round().cast(int) for c in counts)
    return rows(r for r in frame.rows() if any(r[names.index(c)] for c in counts))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("sql", "cells"), [
    ("SELECT CASE WHEN price < 10 THEN 'cheap' WHEN price < 500 THEN 'mid' ELSE 'dear' END AS c, "
     "COUNT(*) AS n, COUNT(*) FILTER (price >= 50) AS n2 FROM t GROUP BY c", 5),
    ("SELECT COUNT(*) FILTER (price > 10) AS n1, COUNT(*) FILTER (price > 20) AS n2, "
     "COUNT(*) FILTER (price BETWEEN 15 AND 30) AS n3, COUNT(*) AS n FROM t", 6),
    ("SELECT x > 5 AS a, x IS NULL AS b, x > 7 AS c, COUNT(*) AS n FROM t GROUP BY ALL", 4),
    ("SELECT date_trunc('month', ts) AS m, COUNT(*) AS n FROM t WHERE ts >= '2023-11-10' AND "
     "ts < '2023-12-20' GROUP BY m", 5),
    ("SELECT year(ts) AS y, quarter(ts) AS q, month(ts) AS m, COUNT(*) AS n FROM t WHERE ts >= "
     "TIMESTAMP '2023-11-10' AND ts < TIMESTAMP '2024-03-01' AND s LIKE 'A%' GROUP BY ALL", 7),
    ("SELECT month(ts) AS m, quarter(ts) AS q, monthname(ts) AS e, COUNT(*) AS n FROM t "
     "GROUP BY ALL", 13),
    ("SELECT dayname(ts) AS d, isodow(ts) > 5 AS w, COUNT(*) AS n FROM t GROUP BY ALL", 8),
    ("SELECT hour(ts) AS h, CASE WHEN hour(ts) < 12 THEN 'am' ELSE 'pm' END AS p, COUNT(*) AS n "
     "FROM t GROUP BY ALL", 25),
    ("SELECT ts::DATE AS d, COUNT(*) AS n FROM t WHERE ts BETWEEN '2023-11-20' AND '2023-11-25' "
     "GROUP BY d", 8),
    ("SELECT strftime(ts, '%Y-%m') AS m, COUNT(*) AS n FROM t WHERE ts >= '2023-11-10' AND "
     "ts < '2023-12-20' AND s NOT LIKE '%!_%' ESCAPE '!' GROUP BY m", 5),
    ("SELECT strftime(ts, '%H') AS h, COUNT(*) AS n FROM t WHERE hour(ts) > 2 GROUP BY h", 25),
    ("SELECT k, COUNT(*) AS n, COUNT(*) FILTER (price > 10 AND s = 'Bob') AS n2 FROM t "
     "WHERE price > 5 GROUP BY k", 3),
    ("SELECT COUNT(*) AS n, AVG(price) FILTER (price > 10) AS a FROM t WHERE price > 5", 3),
    ("SELECT CASE WHEN price < 10 THEN DATE '2020-01-01' ELSE DATE '2021-01-01' END AS d, "
     "COUNT(*) AS n FROM t GROUP BY d HAVING COUNT(*) > 5", 2),
    ("SELECT price > 10 AS a, price > 20 AS b, COUNT(*) AS n, SUM(price) AS p FROM t "
     "GROUP BY GROUPING SETS ((a, b), (a), ())", 4),
    ("SELECT price AS p, COUNT(*) AS n FROM t WHERE price BETWEEN 10 AND 11 GROUP BY p", 103),
])  # fmt: skip
def test_answers_are_duckdbs_and_cells_are_few(con, sql, cells):
    asked = dpsql.Session(con, schema=SCHEMA)
    expected = con.execute(sql).fetchall()
    assert answer(con, asked, sql) == rows(r for r in expected)
    domain = asked.plan(sql, budget=BUDGET).workload.domain
    own = [n for name, n in domain.items() if name != "k" and not name.startswith("sum of")]
    assert max(own) <= cells


ENDS = """CREATE TABLE e AS SELECT * FROM (VALUES (1, DATE '9999-12-31', TIMESTAMP
'9999-12-31 23:59:59.999999'), (2, DATE '0001-01-01', TIMESTAMP '9999-12-31 22:00:00'),
(9, DATE '2024-02-29', TIMESTAMP '0001-01-01'), (7, DATE 'infinity', TIMESTAMP '-infinity'),
(8, NULL, NULL)) AS e(i, d, ts); ALTER TABLE e ALTER i SET NOT NULL"""


@pytest.mark.sampled(13)
@pytest.mark.parametrize("key", [
    "i IS NULL", "i > 99999999999", "CASE WHEN i > 5 THEN 'x' ELSE 'x' END", "i BETWEEN 5 AND 3",
    "CASE WHEN d > '2001-01-01' THEN 1 ELSE 1 END", "CASE WHEN hour(ts) < 30 THEN 2 ELSE 2 END",
    "CASE WHEN i > 5 THEN NULL::BOOLEAN END", "d = '9999-12-31'", "d <= '9999-12-31'",
    "d >= '0001-01-01'", "d BETWEEN '2024-01-01' AND '9999-12-31'",
    "ts <= '9999-12-31 23:59:59.999999'", "ts::DATE <= DATE '9999-12-31'",
])  # fmt: skip
@pytest.mark.parametrize("more", ["", ", COUNT(*) FILTER (i > 2 AND d < '2020-01-01') AS n2"])
def test_keys_without_cuts_are_ordinary_ones(con, key, more):
    """Of one value everywhere, and those that change where the calendar ends."""
    con.execute(ENDS)
    asked = dpsql.Session(con, schema={})
    sql = f"SELECT {key} AS v, COUNT(*) AS n{more} FROM e GROUP BY v ORDER BY v"
    assert answer(con, asked, sql) == rows(con.execute(sql).fetchall())


@pytest.mark.parametrize(("key", "where"), [
    ("date_trunc('week', d)", "d >= '9999-12-01' AND d < '9999-12-31'"),
    ("date_trunc('day', ts)", "ts >= '9999-12-30' AND ts < '9999-12-31 23:00:00'"),
    ("date_trunc('hour', ts)", "ts >= '9999-12-31' AND ts < '9999-12-31 23:30:00'"),
])  # fmt: skip
def test_periods_up_to_the_end_of_the_calendar(con, key, where):
    con.execute(ENDS)
    asked = dpsql.Session(con, schema={})
    sql = f"SELECT {key} AS m, COUNT(*) AS n FROM e WHERE {where} GROUP BY m"
    assert answer(con, asked, sql) == rows(con.execute(sql).fetchall())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(200))  # at distances of 25, so of all columns
def test_random_keys_of_one_column_on_hostile_rows(seed):
    con = connect()
    create(con, hostile_rows() + benign(100, seed=seed))
    made = OneColumn(seed, "xtibdpqa"[seed % 8])
    keys = [made.condition(seed % 3) for _ in range(2 + seed % 2)]
    listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
    asked = dpsql.Session(con, schema={"r": {"o": dpsql.Domain.boolean(nullable=True)}})
    sql = f"SELECT {listed}, COUNT(*) AS n FROM r GROUP BY ALL"
    exact = ", ".join(f"{written(con, key).sql} AS k{i}" for i, key in enumerate(keys))
    frame = asked.query(sql, budget=HUGE)
    found = {tuple(r[: len(keys)]): round(r[len(keys)]) for r in frame.rows()}
    query = f"SELECT {exact}, COUNT(*) AS n FROM r GROUP BY ALL"
    expected = {tuple(r[:-1]): r[-1] for r in con.execute(query).fetchall()}
    assert {group: n for group, n in found.items() if n} == expected


def test_what_was_measured_along_some_cuts_goes_with_other_cuts(con):
    asked = dpsql.Session(con, schema=SCHEMA)
    asked.query("SELECT COUNT(*) FILTER (price > 10) AS a, COUNT(*) FILTER (price > 20) AS b, "
                "COUNT(*) AS n FROM t", budget=BUDGET)  # fmt: skip
    free = "SELECT COUNT(*) FILTER (price > 10 AND price <= 20) AS a FROM t"
    first = asked.query(free, budget=0)
    with pytest.raises(UndeterminedError):
        asked.query("SELECT COUNT(*) FILTER (price > 15) AS a FROM t", budget=0)
    sql = "SELECT COUNT(*) FILTER (price > 10) AS a, COUNT(*) FILTER (price > 15) AS c FROM t"
    assert "measurements of 1 earlier release" in str(asked.plan(sql, budget=BUDGET).explain())
    asked.query(sql, budget=BUDGET)
    again = asked.query(free, budget=0)
    assert again[again.columns[1]][0] <= first[first.columns[1]][0] * 1.0001
    assert asked.query("SELECT COUNT(*) FILTER (price > 15) AS a FROM t", budget=0).height == 1
    assert asked.query("SELECT COUNT(*) AS n FROM t WHERE price > 15 AND price <= 20",
                       budget=0).height == 1  # fmt: skip


def test_a_forged_cut_after_the_end_of_the_calendar(con, tmp_path):
    sql = "SELECT COUNT(*) FILTER (ts < '2024-01-01') AS n FROM t"
    path, name = tmp_path / "forged", "release.measurements.parquet"
    dpsql.Session(con, schema=SCHEMA).release(sql, budget=BUDGET, out=path)
    (source,) = decode((path / name).read_bytes())
    described = {**source.described, 'line of "ts" TIMESTAMP': f"row:cut at {2**62}"}
    replace_file(path, name, encode([replace(source, described=described)]))
    with pytest.raises(ReleaseFormatError):
        dpsql.Release.load(path).query(sql)


def test_a_wide_check_is_cut_where_statements_ask_as_bounds_are():
    """Of 40,000,001 values the cells of three bands are counted, and no list of them is made."""
    con = duckdb.connect()
    wage = "wage INTEGER NOT NULL CHECK (wage BETWEEN 0 AND 40000000)"
    con.execute(f"CREATE TABLE pay ({wage}, open INTEGER NOT NULL)").fetchall()
    some = "SELECT i * 7919 % 9000000 AS v FROM range(5000) t(i)"
    con.execute(f"INSERT INTO pay SELECT v, v FROM ({some})").fetchall()
    schema = dpsql.Schema({"pay": {"open": dpsql.Domain.number(0, 40_000_000)}})
    for column in ("wage", "open"):
        sql = (
            f"SELECT CASE WHEN {column} < 1000000 THEN 'low' WHEN {column} < 5000000 THEN 'mid' "
            f"ELSE 'high' END AS band, COUNT(*) AS n FROM pay WHERE {column} >= 0 GROUP BY band"
        )
        plan = dpsql.plan(con, sql, budget=BUDGET, schema=schema)
        assert max(plan.workload.domain.values()) <= 4
        found = dpsql.query(con, sql, budget=HUGE, schema=schema).select("band", "n")
        assert rows(found.rows()) == rows((b, float(n)) for b, n in con.execute(sql).fetchall())
