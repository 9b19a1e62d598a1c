"""Statements that stop to be about single units, each made of a good one by one change of its SQL.

An equality of ids is taken away, widened or of other columns; a window or a group forgets the
unit; a LIMIT chooses among rows of all; rows of the other side are kept. Each is refused before the
charge, where it stands in the SQL, with a hint.
"""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest
import sqlglot
from sqlglot import exp

import dpsql
from dpsql.errors import SqlError

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
TABLES = """
    CREATE TABLE c (id INTEGER PRIMARY KEY, r VARCHAR NOT NULL CHECK (r IN ('n', 's')),
        j INTEGER NOT NULL CHECK (j BETWEEN 0 AND 3));
    CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
        d DATE NOT NULL CHECK (d BETWEEN DATE '2024-01-01' AND DATE '2024-01-20'),
        x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 5));
    CREATE TABLE v (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
        d DATE NOT NULL CHECK (d BETWEEN DATE '2024-01-01' AND DATE '2024-01-20'),
        x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 5));
    CREATE TABLE p AS SELECT x, x % 2 AS y FROM range(6) t (x);
    INSERT INTO c SELECT i, 'n', i % 4 FROM range(9) t (i);
    INSERT INTO o SELECT i, i % 9, DATE '2024-01-01' + (i % 20)::INT, i % 6
        FROM range(40) t (i);
    INSERT INTO v SELECT i, i % 7, DATE '2024-01-01' + (i % 20)::INT, i % 6
        FROM range(40) t (i);
"""
UNIT = dpsql.Unit("c", max_rows={"c": 1, "o": 6, "v": 8, "o, v": 20, "o, o": 20})
GOOD = {
    "join": "SELECT o.x, COUNT(*) AS n FROM o JOIN v ON o.cid = v.cid GROUP BY o.x",
    "left": "SELECT v.x, COUNT(*) AS n FROM o LEFT JOIN v ON o.cid = v.cid GROUP BY v.x",
    "asof": "SELECT v.x, COUNT(*) AS n FROM o ASOF JOIN v ON o.cid = v.cid AND o.d >= v.d "
    "GROUP BY v.x",
    "semi": "SELECT o.x, COUNT(*) AS n FROM o SEMI JOIN v ON o.cid = v.cid GROUP BY o.x",
    "anti": "SELECT o.x, COUNT(*) AS n FROM o ANTI JOIN v ON o.cid = v.cid AND v.x > 2 "
    "GROUP BY o.x",
    "exists": "SELECT COUNT(*) AS n FROM o WHERE EXISTS (SELECT 1 FROM v WHERE v.cid = o.cid "
    "AND v.x > o.x)",
    "in": "SELECT COUNT(*) AS n FROM o WHERE x IN (SELECT v.x FROM v WHERE v.cid = o.cid)",
    "scalar": "SELECT r, COUNT(*) AS n FROM c WHERE (SELECT MAX(o.x) FROM o WHERE o.cid = c.id) "
    "> 3 GROUP BY r",
    "window": "SELECT COUNT(*) AS n FROM (SELECT x, row_number() OVER (PARTITION BY cid ORDER BY "
    "d) AS k FROM o) WHERE k = 1",
    "qualify": "SELECT COUNT(*) AS n FROM (SELECT x FROM o QUALIFY lag(x) OVER (PARTITION BY cid "
    "ORDER BY d) > 2)",
    "groups": "SELECT n, COUNT(*) AS m FROM (SELECT cid, LEAST(COUNT(*), 4) AS n FROM o GROUP BY "
    "cid) GROUP BY n",
    "group join": "SELECT n, COUNT(*) AS m FROM (SELECT c.id, LEAST(COUNT(o.id), 4) AS n FROM c "
    "LEFT JOIN o ON o.cid = c.id GROUP BY c.id) GROUP BY n",
    "rows and groups": "SELECT o.x, COUNT(*) AS m FROM o JOIN (SELECT cid, MAX(d) AS d FROM o "
    "GROUP BY cid) l ON l.cid = o.cid AND l.d = o.d GROUP BY o.x",
    "unit": "SELECT x, COUNT(DISTINCT cid) AS n FROM (SELECT o.cid, o.x FROM o JOIN v "
    "ON o.cid = v.cid) GROUP BY x",
    "public": "SELECT y, COUNT(*) AS n FROM (SELECT o.cid, p.y FROM o JOIN p ON o.x = p.x) "
    "GROUP BY y",
    "union": "SELECT x, COUNT(*) AS n FROM (SELECT cid, x FROM o UNION ALL SELECT cid, x FROM v) "
    "GROUP BY x",
    "cte": "WITH a AS (SELECT cid, x FROM o), b AS (SELECT cid, MAX(x) AS x FROM v GROUP BY cid) "
    "SELECT a.x, COUNT(*) AS n FROM a JOIN b ON a.cid = b.cid AND a.x = b.x GROUP BY a.x",
}


def ids(node):
    """Return whether a condition equates ids of units."""
    sides = (node.this, node.expression)
    return all(isinstance(side, exp.Column) and side.name in {"cid", "id"} for side in sides)


def equalities(tree):
    return [node for node in tree.find_all(exp.EQ) if ids(node)]


def each(found, change):
    """Yield a copy of a tree for each of some nodes, changed there."""

    def mutate(tree):
        for place in range(len(list(found(tree)))):
            copy = tree.copy()
            node = list(found(copy))[place]
            change(node)
            yield copy

    return mutate


def replaced(make):
    return lambda node: node.replace(make(node.copy()))


def of_others(node):
    """Equate an id with another column of the same table as the other side's."""
    node.expression.set("this", exp.to_identifier("x"))


def wider(node):
    """Let a window be of rows of all units."""
    node.set("partition_by", [])


def other_part(node):
    node.set("partition_by", [exp.column("x")])


def inner(tree):
    """Find the queries inside, but for those of EXISTS, which doesn't ask for how many."""
    found = (node for node in tree.find_all(exp.Select) if node.parent is not None)
    return (node for node in found if not isinstance(node.parent, (exp.Exists, exp.Union)))


def groups(tree):
    return (node for node in inner(tree) if node.args.get("group") is not None)


def limited(node):
    node.set("limit", exp.Limit(expression=exp.Literal.number(5)))


def offset(node):
    node.set("offset", exp.Offset(expression=exp.Literal.number(2)))


def by_others(node):
    """Group inner rows by a column that tells no unit."""
    for column in list(node.find_all(exp.Column)):
        if column.name in {"cid", "id"} and column.find_ancestor(exp.AggFunc) is None:
            column.set("this", exp.to_identifier("x"))


def kept(side, kind=""):
    def change(node):
        node.set("side", side)
        node.set("kind", kind)

    return change


def joins(tree):
    return (
        node for node in tree.find_all(exp.Join) if node.args.get("kind") not in {"SEMI", "ANTI"}
    )


MUTATIONS = {
    "no equality": each(equalities, replaced(lambda node: exp.true())),
    "an order in its place": each(equalities, replaced(lambda n: exp.LT(**n.args))),
    "an inequality": each(equalities, replaced(lambda n: exp.NEQ(**n.args))),
    "or something else": each(equalities, replaced(lambda n: exp.paren(exp.or_(n, "1 = 1")))),
    "not": each(equalities, replaced(lambda n: exp.Not(this=exp.paren(n)))),
    "other columns": each(equalities, of_others),
    "computed ids": each(equalities, replaced(lambda n: exp.EQ(
        this=exp.Add(this=n.this, expression=exp.Literal.number(0)), expression=n.expression))),
    "window of all": each(lambda t: t.find_all(exp.Window), wider),
    "window by others": each(lambda t: t.find_all(exp.Window), other_part),
    "limit": each(inner, limited),
    "offset": each(inner, offset),
    "groups by others": each(groups, by_others),
    "right join": each(joins, kept("RIGHT")),
    "full join": each(joins, kept("FULL")),
}  # fmt: skip


def mutants():
    for name, sql in GOOD.items():
        tree = sqlglot.parse_one(sql, dialect="duckdb")
        for how, mutate in MUTATIONS.items():
            for place, found in enumerate(mutate(tree)):
                yield f"{name}: {how} {place}", found.sql(dialect="duckdb")


MUTANTS = dict(mutants())
FINE = (
    "join: right join 0",
    "left: right join 0",
    "rows and groups: right join 0",
    "cte: right join 0",  # the sides are exchanged
    "unit: right join 0",  # where ids are values, that need not be those of the rows' units
    *(f"{name}: full join 0" for name in ("join", "left", "rows and groups", "cte", "unit")),
    "groups: groups by others 0",  # these are noisy answers, which are counted in the end
    "scalar: no equality 0",  # a value of all rows, which is released first
)
"""Changes after which a statement is about single units as before."""


@pytest.fixture(scope="module")
def session():
    con = duckdb.connect()
    con.execute(TABLES)
    return dpsql.Session(con, unit=UNIT, public=["p"])


@pytest.mark.parametrize("sql", GOOD.values(), ids=GOOD)
def test_the_good_ones_are_answered(session, sql):
    assert session.plan(sql, budget=BUDGET).expected_error().height


@pytest.mark.parametrize("what", FINE)
def test_some_changes_leave_rows_of_single_units(session, what):
    sql = MUTANTS[what]
    assert session.plan(sql, budget=BUDGET).expected_error().height


@pytest.mark.parametrize(
    "sql", [pytest.param(sql, id=what) for what, sql in MUTANTS.items() if what not in FINE]
)
def test_it_is_refused_before_the_charge_and_says_where(session, sql):
    before = session.history.height
    with pytest.raises(SqlError) as caught:
        session.query(sql, budget=BUDGET)
    error = caught.value
    assert error.hint
    assert error.span is not None
    start, end = error.span
    assert 0 <= start < end <= len(sql)
    assert session.history.height == before
