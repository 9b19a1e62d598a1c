"""Groups of a LEFT JOIN by a key of its left side: rows of that, as DuckDB groups them."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.rel.related import related_rows
from dpsql.request import Request, named
from tests.release.test_random_databases import kept

HUGE, BUDGET = dpsql.Budget(rho=10**9), dpsql.Budget(rho=Fraction(1, 2))
TABLES = """
    CREATE TABLE c (id INTEGER PRIMARY KEY, r VARCHAR NOT NULL CHECK (r IN ('n', 's')),
        j INTEGER CHECK (j BETWEEN 0 AND 3));
    CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER REFERENCES c (id),
        s VARCHAR CHECK (s IN ('P', 'O')), x INTEGER CHECK (x BETWEEN 0 AND 5),
        w DOUBLE CHECK (w BETWEEN 0 AND 4));
    CREATE TABLE i (id INTEGER PRIMARY KEY, oid INTEGER NOT NULL REFERENCES o (id),
        k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3));
"""
UNIT = dpsql.Unit("c", max_rows={"c": 1, "o": 8, "i": 16})
JOINED = "c LEFT JOIN o ON c.id = o.cid"
AGGREGATES = {
    "COUNT(o.id)": True,
    "COUNT(o.x)": True,
    "COUNT(DISTINCT o.x)": True,
    "MIN(o.x)": True,
    "SUM(o.x)": True,
    "BOOL_OR(o.x > 2)": True,
    "COUNT(CASE WHEN o.s = 'P' THEN 1 END)": True,
    "COUNT(*) FILTER (WHERE o.s = 'P')": True,
    "SUM(o.x + c.j) FILTER (WHERE c.r = 'n')": True,
    "COUNT(*)": False,
    "SUM(CASE WHEN o.s = 'P' THEN 1 ELSE 0 END)": False,
    "COUNT(COALESCE(o.x, 1))": False,
    "COUNT(*) FILTER (WHERE o.x IS NULL)": False,
    "BOOL_OR(o.x > 2 OR c.j > 1)": False,
    "SUM(c.j)": False,
}
"""Aggregates → whether each skips the row of NULLs that a customer without orders meets."""
ROWS = {
    "": True,
    "WHERE c.r = 'n'": True,
    "WHERE c.r = 'n' AND c.j + 1 > 1": True,
    "WHERE o.x > 1": False,
    "WHERE o.id IS NULL": False,
    "WHERE EXISTS (SELECT 1 FROM o p WHERE p.cid = c.id AND p.x = 2)": False,
}
"""Conditions before groups → whether they leave the rule its join."""
AFTER = [
    "",
    "HAVING COUNT(o.id) > 1",
    "HAVING c.id > 3 AND MAX(o.x) IS NOT NULL",
    "QUALIFY row_number() OVER (PARTITION BY c.id ORDER BY COUNT(o.x)) = 1",
]


def filled(seed, without=None):
    """Fill the tables; one customer may be left out with all of its orders."""
    rng, con = random.Random(seed), duckdb.connect()  # noqa: S311
    con.execute(TABLES)

    def maybe(value):
        return None if rng.random() < 0.2 else value

    customers = [(n, rng.choice("ns"), maybe(rng.randrange(4))) for n in range(14)]
    orders = [
        (n, maybe(rng.randrange(10)), maybe(rng.choice("PO")), maybe(rng.randrange(6)),
         maybe(rng.randrange(17) / 4))
        for n in range(40)
    ]  # fmt: skip
    items = [(n, rng.randrange(40), rng.randrange(4)) for n in range(60)]
    gone = {row[0] for row in orders if without is not None and row[1] == without}
    for row in customers:
        if row[0] != without:
            con.execute("INSERT INTO c VALUES (?, ?, ?)", row)
    for row in orders:
        if row[0] not in gone:
            con.execute("INSERT INTO o VALUES (?, ?, ?, ?, ?)", row)
    for row in items:
        if row[1] not in gone:
            con.execute("INSERT INTO i VALUES (?, ?, ?)", row)
    return con


def counted(con, sql):
    """Return the tables whose rows a statement counts."""
    declared = dpsql.Session(con, unit=UNIT)._data.declared
    return declared.compile(Request(named(sql), BUDGET)).tables


def check(con, sql):
    """Compare answers with DuckDB's, where there is hardly any noise."""
    session = dpsql.Session(con, unit=UNIT)
    frame = session.query(sql, budget=HUGE)
    found = {row[:-1]: round(row[-1]) for row in frame.select("r", "v", "n").rows()}
    true = {row[:-1]: row[-1] for row in con.execute(sql).fetchall()}
    assert {key: n for key, n in found.items() if n} == true


def statement(aggregate, where="", after="", joined=JOINED):
    value = aggregate if aggregate.startswith("BOOL") else f"LEAST({aggregate}, 9)"
    return (
        f"SELECT r, v, COUNT(*) AS n FROM (SELECT c.id, c.r, {value} AS v FROM {joined} {where} "
        f"GROUP BY c.id, c.r {after}) GROUP BY r, v"
    )


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("aggregate", "where"), list(itertools.product(AGGREGATES, ROWS)))
def test_answers_are_those_of_groups(aggregate, where):
    con = filled(len(aggregate) + len(where))
    for after in AFTER:
        check(con, statement(aggregate, where, after))
    (table,) = counted(con, statement(aggregate, where))
    theirs = AGGREGATES[aggregate] and ROWS[where]
    assert (related_rows(table) is None) == theirs


@pytest.mark.parametrize(
    ("joined", "aggregate"),
    [
        ("c JOIN o ON c.id = o.cid", "COUNT(o.id)"),
        ("c LEFT JOIN o ON c.id = o.cid LEFT JOIN i ON i.oid = o.id", "COUNT(DISTINCT o.id)"),
        ("c LEFT JOIN o ON c.id = o.cid JOIN (VALUES (0), (1)) t(j) ON t.j = c.j", "COUNT(o.id)"),
    ],
)
def test_groups_with_several_rows_of_the_left_side_stay_groups(joined, aggregate):
    con = filled(7)
    sql = statement(aggregate, joined=joined)
    check(con, sql)
    assert any(related_rows(table) is not None for table in counted(con, sql))


@pytest.mark.parametrize(
    "joined",
    [
        "c LEFT JOIN (SELECT * FROM o WHERE x > 1) AS o ON c.id = o.cid",
        "c LEFT JOIN (SELECT o.* FROM o JOIN i ON i.oid = o.id) AS o ON c.id = o.cid",
        "c LEFT JOIN (SELECT cid, COUNT(*) AS id FROM o GROUP BY cid) AS o ON c.id = o.cid",
        "(SELECT * FROM c WHERE r = 'n') AS c LEFT JOIN o ON c.id = o.cid AND o.x < 4",
        "c LEFT JOIN o ON c.id = o.cid AND o.x > c.j",
    ],
)
def test_they_are_counted_beside_all_else_of_the_left_side(joined):
    con = filled(11)
    of_groups = statement("COUNT(o.id)", joined=joined)
    check(con, of_groups)
    alone = "SELECT r, COUNT(*) AS n FROM c WHERE j > 1 GROUP BY r"
    script = {"groups": of_groups, "alone": alone}
    declared = dpsql.Session(con, unit=UNIT)._data.declared
    tables = declared.compile(Request(named(script), BUDGET)).tables
    assert {table.path for table in tables} == {counted(con, alone)[0].path}


@pytest.mark.parametrize("gone", range(0, 10, 3))
def test_a_unit_takes_its_own_row_with_it_and_changes_no_others(gone):
    found = []
    for without in (None, gone):
        con = filled(5, without)
        (table,) = counted(con, statement("COUNT(o.id)", "WHERE c.r = 'n'"))
        assert related_rows(table) is None
        found.append(kept(con, table, [*table.alone.columns, *table.computed]))
    before, after = found
    assert after <= before
    assert (before - after).total() <= 1
