"""Joins of private tables by equalities that follow from others: a = c and b = c say a = b."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError, UnsupportedSqlError
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=Fraction(10**13))
TABLES = """
    CREATE TABLE suppliers (id {0} PRIMARY KEY, big BOOLEAN NOT NULL);
    CREATE TABLE offers (
        supplier {0} NOT NULL REFERENCES suppliers (id),
        part INTEGER NOT NULL,
        cost INTEGER NOT NULL CHECK (cost BETWEEN 0 AND 20),
        PRIMARY KEY (supplier, part)
    );
    CREATE TABLE lines (
        supplier {0},
        part INTEGER,
        code {1},
        n INTEGER CHECK (n BETWEEN 0 AND 9),
        FOREIGN KEY (supplier, part) REFERENCES offers (supplier, part)
    );
"""
SUPPLIERS = 12
BOUNDS = {"suppliers": 1, "offers": 6, "lines": 40}
UNITS = dpsql.Schema({}, units={name: dpsql.Unit("suppliers", k) for name, k in BOUNDS.items()})


def of_type(ids="INTEGER", code="INTEGER", without=None):
    """Fill the tables: some lines have no supplier, some another code than their supplier's id."""
    con = duckdb.connect()
    con.execute(TABLES.format(ids, code))
    here = [i for i in range(SUPPLIERS) if i != without]
    insert(con, "suppliers", [(i, i % 3 == 0) for i in here])
    insert(con, "offers", [(i, p, (i * 7 + p) % 21) for i in here for p in range(i % 6)])
    lines = [(i, p, (i + (p > 3)), (i + p) % 10) for i in here for p in range(i % 6)]
    more = [(None, 1, 2, 3), (None, None, 0, 9)]
    insert(con, "lines", lines + lines[::2] + more)
    return con


def declared(con):
    return dpsql.Session(con, schema=UNITS)


JOINS = [
    "FROM suppliers s, offers o, lines l "
    "WHERE s.id = l.supplier AND o.supplier = l.supplier AND o.part = l.part",
    "FROM suppliers s, lines l, offers o "
    "WHERE s.id = l.supplier AND o.supplier = s.id AND o.part = l.part",
    "FROM lines l JOIN suppliers s ON s.id = l.supplier "
    "JOIN offers o ON s.id = o.supplier AND o.part = l.part",
    "FROM lines l JOIN offers o USING (supplier, part) JOIN suppliers s ON s.id = l.supplier",
    "FROM lines l, offers o, suppliers s WHERE l.code = s.id AND l.code = o.supplier "
    "AND l.code = l.supplier AND l.part = o.part AND l.supplier = o.supplier",
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("joined", JOINS)
@pytest.mark.parametrize("ids", ["INTEGER", "BIGINT", "VARCHAR"])
def test_it_is_what_duckdb_says(joined, ids):
    con = of_type(ids, ids)
    asked = "s.big, COUNT(*) AS k, SUM(o.cost) AS c, SUM(l.n * o.cost) AS p"
    sql = f"SELECT {asked} {joined} GROUP BY s.big ORDER BY s.big"
    found = declared(con).query(sql, budget=HUGE)
    exact = con.execute(sql).fetchall()
    assert sum(row[1] for row in exact) > 15
    assert found["k"].to_list() == pytest.approx([row[1] for row in exact], abs=0.01)
    assert found["c"].to_list() == pytest.approx([row[2] for row in exact], abs=0.1)
    assert found["p"].to_list() == pytest.approx([row[3] for row in exact], abs=0.5)


def test_it_is_the_same_plan_as_with_the_equality_itself():
    session = declared(of_type())
    found = [
        session.plan(f"SELECT COUNT(*) AS n {joined}", budget=HUGE).explain()
        for joined in JOINS[:4]
    ]
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("ids", "code", "joined"),
    [
        # '01' and '1' are the number 1, and two suppliers.
        ("VARCHAR", "INTEGER", "WHERE s.id = l.code AND o.supplier = l.code AND o.part = l.part"),
        ("VARCHAR", "VARCHAR COLLATE NOCASE", "WHERE s.id = l.code AND o.supplier = l.code"),
        # What a LEFT JOIN is joined by leaves no row out.
        ("INTEGER", "INTEGER", "LEFT"),
        ("INTEGER", "INTEGER", "WHERE s.id = l.supplier OR o.supplier = l.supplier"),
        ("INTEGER", "INTEGER", "WHERE s.id = l.supplier AND o.supplier = l.supplier + 0"),
        ("INTEGER", "INTEGER", "WHERE s.id = l.code AND o.supplier = l.code"),
    ],
)
def test_what_does_not_follow_is_refused(ids, code, joined):
    sql = f"SELECT COUNT(*) FROM suppliers s, offers o, lines l {joined}"
    if joined == "LEFT":
        sql = (
            "SELECT COUNT(*) FROM lines l LEFT JOIN suppliers s ON s.id = l.supplier "
            "JOIN offers o ON o.supplier = s.id AND o.part = l.part"
        )
    session = declared(of_type(ids, code))
    with pytest.raises(
        (UnsupportedSqlError, SchemaError), match=r"join|meet|collation|one type"
    ) as error:
        session.query(sql, budget=HUGE)
    assert error.value.hint
    assert session.ledger.spent == 0


@pytest.mark.parametrize("without", [5, 11])
def test_neighbors_differ_by_what_is_charged(without):
    sql = f"SELECT s.big, COUNT(*) AS k, SUM(o.cost) AS c {JOINS[0]} GROUP BY s.big"
    asked, budget = {"script": {"q": sql}, "schema": UNITS}, dpsql.Budget(rho=1)
    both = [recorded(of_type(without=gone), asked, budget=budget) for gone in (None, without)]
    check_alike(*both)
    assert spent(*both) <= charged(both[0])
