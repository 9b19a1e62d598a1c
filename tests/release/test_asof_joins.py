"""ASOF joins of rows of a unit: each row meets the nearest one, as DuckDB says, of its own unit."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from dpsql.request import Request, named
from tests.release.test_random_databases import kept

HUGE, BUDGET = dpsql.Budget(rho=10**9), dpsql.Budget(rho=Fraction(1, 2))
DAYS = "DATE CHECK (d BETWEEN DATE '2024-01-01' AND DATE '2024-01-20')"
TABLES = f"""
    CREATE TABLE c (id INTEGER PRIMARY KEY);
    CREATE TABLE v (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id), d {DAYS},
        k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3));
    CREATE TABLE l (id INTEGER PRIMARY KEY, cid INTEGER REFERENCES c (id), d {DAYS},
        k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3), x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 5));
    CREATE TABLE days AS SELECT DATE '2024-01-10' AS d;
"""
UNIT = dpsql.Unit("c", max_rows={"c": 1, "v": 6, "l": 9})
TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
FORMS = list(itertools.product(TURNED, ("ASOF JOIN", "ASOF LEFT JOIN"), ("", " AND v.k = l.k")))


def statements(sign, kind, further):
    """Write a join of a table, and one of a query, in which sides of the comparison are turned."""
    yield (
        f"SELECT l.x, COUNT(*) AS n FROM v {kind} l ON v.cid = l.cid{further} AND v.d {sign} l.d "
        "GROUP BY l.x"
    )
    yield (
        f"SELECT x, COUNT(*) AS n FROM (SELECT v.k, l.x FROM v {kind} (SELECT * FROM l WHERE x > "
        f"1) AS l ON v.cid = l.cid{further} AND l.d {TURNED[sign]} v.d) GROUP BY x"
    )


def filled(seed, *, without=None, keys=True):
    """Fill the tables; which of several rows of one day is the nearest is left open in SQL."""
    rng, con = random.Random(seed), duckdb.connect()  # noqa: S311
    tables = TABLES if keys else TABLES.replace("REFERENCES c (id)", "").replace("PRIMARY KEY", "")
    con.execute(tables)

    def day():
        return None if rng.random() < 0.1 else f"2024-01-{rng.randint(1, 20):02}"

    visits = [(i, rng.randrange(12), day(), rng.randrange(4)) for i in range(40)]
    found = {(rng.randrange(12) if i else None, day()): i for i in range(60)}
    labs = [(i, c, d, rng.randrange(4), rng.randrange(6)) for (c, d), i in found.items()]
    con.execute("INSERT INTO c SELECT i FROM range(12) t(i) WHERE i IS DISTINCT FROM ?", [without])
    for table, rows in (("v", visits), ("l", labs)):
        for row in rows:
            if without is None or row[1] != without:
                con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return con


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("sign", "kind", "further"), FORMS)
def test_each_row_meets_the_nearest_one(sign, kind, further):
    con = filled(len(sign + kind + further))
    unit = dpsql.Unit("c", max_rows={"c": 1, "v": 40, "l": 60})
    session = dpsql.Session(con, unit=unit)
    for sql in statements(sign, kind, further):
        true = {x: n for x, n in con.execute(sql).fetchall() if n}
        frame = session.query(sql, budget=HUGE).select("x", "n")
        assert {x: round(n) for x, n in frame.rows() if round(n)} == true


@pytest.mark.parametrize("gone", range(0, 12, 3))
def test_a_unit_takes_its_own_rows_with_it_and_changes_no_others(gone):
    rows = []
    for without in (None, gone):
        con = filled(5, without=without, keys=False)
        references = {"v.cid": "c.id", "l.cid": "c.id"}
        unit = dpsql.Unit("c", max_rows=UNIT.max_rows, references=references)
        sql = next(iter(statements(">=", "ASOF LEFT JOIN", "")))
        declared = dpsql.Session(con, unit=unit)._data.declared
        (table,) = declared.compile(Request(named(sql), BUDGET)).tables
        assert table.unit_rows == UNIT.max_rows["v"]
        rows.append(kept(con, table, list(table.columns)))
    before, after = rows
    assert after <= before
    assert (before - after).total() <= UNIT.max_rows["v"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM v ASOF JOIN l ON v.d >= l.d", "both rows are of one unit"),
        *(
            (f"SELECT COUNT(*) FROM v ASOF {kind} JOIN l ON v.cid = l.cid AND v.d >= l.d",
             "ASOF join is not supported")
            for kind in ("RIGHT", "FULL", "SEMI", "ANTI")
        ),
        ("SELECT COUNT(*) FROM v ASOF JOIN l ON v.cid = l.cid", "compares a value"),
        ("SELECT COUNT(*) FROM v ASOF JOIN l ON v.cid = l.cid AND v.d >= l.d AND v.k > l.k",
         "compares a value"),
        ("SELECT COUNT(*) FROM v ASOF JOIN l ON v.cid = l.cid AND l.x >= l.k", "compares a value"),
        ("SELECT COUNT(*) FROM v ASOF JOIN days ON v.d >= days.d", "ASOF join is not supported"),
        ("SELECT COUNT(*) FROM days ASOF JOIN v ON days.d >= v.d", "ASOF join is not supported"),
        ("SELECT COUNT(*) FROM v WHERE d IN (SELECT a.d FROM days a ASOF JOIN days b "
         "ON a.d >= b.d)",
         "ASOF join is not supported"),
    ],
)  # fmt: skip
def test_others_are_refused_before_the_charge(sql, said):
    session = dpsql.Session(filled(1), unit=UNIT, public=["days"])
    with pytest.raises(SqlError, match=said) as caught:
        session.query(sql, budget=BUDGET)
    assert caught.value.hint
    assert not session.history.height
