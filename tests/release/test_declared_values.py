"""Values outside of declared domains: in rows that are made of rows they are what SQL sees of them.

Where a value outside is NULL, a statement has the answers that DuckDB gives once it is NULL that is
stored. Where the row is left out, it has those without the rows that have none.
"""

from __future__ import annotations

import re

import duckdb
import pytest

import dpsql
from dpsql import Domain
from tests.helpers.random_queries import BOUNDS, PUBLIC, TABLES, RandomQueries, filled, seeded
from tests.release.test_rows_made_of_rows import EXACT, answers

CASES = 200
LOOSE = re.sub(r" ?CHECK \((?:[^()]|\([^()]*\))*\)", "", TABLES)
LOOSE = re.sub(r"\b(letter|birth INTEGER|day DATE|n INTEGER) NOT NULL", r"\1", LOOSE)
LOOSE = LOOSE.replace("region letter", "region VARCHAR").replace("status letter", "status VARCHAR")
LOOSE = LOOSE.replace("kind letter", "kind VARCHAR")
"""The tables without a rule that the database enforces."""
ENDS = {
    "customers": {"birth": (1950, 1969)},
    "orders": {"price": (0, 15), "day": ("2024-01-01", "2024-03-30")},
    "items": {"n": (1, 7)},
    "visits": {"shop": (1, 3), "day": ("2024-01-10", "2024-02-20")},
}
LABELS = {"customers": {"region": "ABC"}, "orders": {"status": "AB"}, "items": {"kind": "AC"}}


def declared():
    found = {}
    for table, columns in ENDS.items():
        for name, (low, high) in columns.items():
            kind = Domain.dates if isinstance(low, str) else Domain.integers
            found.setdefault(table, {})[name] = kind(low, high, nullable=True)
    for table, columns in LABELS.items():
        for name, labels in columns.items():
            found[table][name] = Domain.labels(list(labels), nullable=True)
    return dpsql.Schema(found)


def make_null(con):
    """Store NULL where a value is outside of its domain."""
    for table, columns in ENDS.items():
        for name, ends in columns.items():
            inside = f"{name} BETWEEN {ends[0]!r} AND {ends[1]!r}"
            con.execute(f"UPDATE {table} SET {name} = NULL WHERE NOT ({inside})")
    for table, columns in LABELS.items():
        for name, labels in columns.items():
            con.execute(f"UPDATE {table} SET {name} = NULL WHERE {name} NOT IN {(*labels,)}")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(CASES))
def test_random_queries_see_null_in_place_of_values_outside(seed):
    rng = seeded(seed)
    con = filled(rng, tables=LOOSE)
    con.execute("UPDATE customers SET birth = birth + 100 WHERE id % 5 = 0")
    con.execute("UPDATE orders SET price = 900 WHERE id % 7 = 3")
    con.execute("UPDATE orders SET day = day + 400 WHERE id % 6 = 2")
    sql, unit = RandomQueries(rng).statement(), dpsql.Unit("customers", max_rows=BOUNDS)
    try:
        frame = dpsql.query(
            con, sql, budget=EXACT, unit=unit, public=PUBLIC, schema=declared(), accept_schema=True
        )
    except dpsql.DpsqlError:
        return
    make_null(con)
    exact = con.execute(sql)
    names = [column[0] for column in exact.description]
    assert answers(frame.select(names).rows()) == answers(exact.fetchall()), sql


# ── Statement by statement, by each rule ─────────────────────────────────────────────────────────

ROWS = """
CREATE TABLE u (id INTEGER PRIMARY KEY);
INSERT INTO u SELECT range FROM range(30);
CREATE TABLE a (u INTEGER NOT NULL REFERENCES u(id), x INTEGER, d DOUBLE, t VARCHAR);
INSERT INTO a SELECT i, CASE WHEN i < 4 THEN 1000 WHEN i < 10 THEN 9 WHEN i = 11 THEN NULL ELSE 3
    END, i / 2, 'a' || (i % 3) FROM range(20) t(i);
INSERT INTO a SELECT i, CASE WHEN i < 4 THEN 1001 WHEN i < 10 THEN 8 ELSE 2 END, i / 2,
    'a' || (i % 4) FROM range(12) t(i);
CREATE TABLE b (u INTEGER NOT NULL REFERENCES u(id), x INTEGER, d DOUBLE, t VARCHAR);
INSERT INTO b SELECT i, CASE WHEN i % 5 = 4 THEN NULL WHEN i < 8 THEN 9 ELSE i % 5 END, i / 2,
    'a' || (i % 5) FROM range(2, 30) t(i);
CREATE TABLE pub AS SELECT range::INTEGER AS x, range % 3 AS g FROM range(12)
"""
COUNTS = {
    "a join": "SELECT COUNT(*) AS n FROM a JOIN b ON a.u = b.u AND a.x = b.x",
    "USING": "SELECT COUNT(*) AS n FROM a JOIN b USING (u, x)",
    "a LEFT JOIN": "SELECT COUNT(*) AS n FROM a LEFT JOIN b ON a.u = b.u AND a.x = b.x"
    " WHERE b.u IS NULL",
    "EXISTS": "SELECT COUNT(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.u = b.u"
    " AND a.x = b.x)",
    "IN": "SELECT COUNT(*) AS n FROM a WHERE (u, x) IN (SELECT u, x FROM b)",
    "a SEMI JOIN": "SELECT COUNT(*) AS n FROM a SEMI JOIN b ON a.u = b.u AND a.x = b.x",
    "a public table": "SELECT g, COUNT(*) AS n FROM (SELECT DISTINCT u, g FROM a JOIN pub USING"
    " (x)) GROUP BY g",
    "DISTINCT": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT u, x FROM a)",
    "labels": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT u, t FROM a)",
    "groups": "SELECT k, COUNT(*) AS n FROM (SELECT u, x, COUNT(*) AS k FROM a GROUP BY u, x)"
    " GROUP BY k",
    "groups of a LEFT JOIN": "SELECT k, COUNT(*) AS n FROM (SELECT c.id, a.x, COUNT(b.x) AS k FROM"
    " u c JOIN a ON c.id = a.u LEFT JOIN b ON b.u = a.u AND b.x = a.x GROUP BY c.id, a.x)"
    " GROUP BY k",
}
BY_VALUE = {
    "groups": "SELECT x, COUNT(*) AS n FROM (SELECT DISTINCT u, x FROM a) GROUP BY x",
    "UNION ALL": "SELECT x, COUNT(*) AS n FROM (SELECT u, x FROM a UNION ALL SELECT u, x FROM b)"
    " GROUP BY x",
    "UNION": "SELECT x, COUNT(*) AS n FROM (SELECT u, x FROM a UNION SELECT u, x FROM b)"
    " GROUP BY x",
    "FULL JOIN": "SELECT x, COUNT(*) AS n FROM a FULL JOIN b USING (u, x) GROUP BY x",
    "rows of both, numbered": "SELECT x, COUNT(*) AS n FROM (SELECT *, row_number() OVER"
    " (PARTITION BY u ORDER BY d, x NULLS LAST) AS p FROM (SELECT u, d, x FROM a UNION ALL SELECT"
    " u, d, x FROM b)) WHERE p <= 2 GROUP BY x",
    "a first row": "SELECT x, COUNT(*) AS n FROM (SELECT u, x, arg_min(d, d) AS d FROM a"
    " GROUP BY u, x) GROUP BY x",
}


def found_and_exact(sql, rules=("null", "null"), high=(5, 9)):
    """Return what dpsql answers, and DuckDB once values outside are NULL."""
    con = duckdb.connect()
    con.execute(ROWS)
    columns = {}
    for name, rule, most in zip("ab", rules, high, strict=True):
        where = "drop" if rule.startswith("drop") else rule
        whole = Domain.integers(0, most, outside=where, nullable=rule != "drop")
        columns[name] = {"x": whole, "t": Domain.labels(["a0", "a1"], nullable=True)}
    unit = dpsql.Unit("id", {"a": 2, "b": 2, "a, b": 8})
    units = {"u": unit, **{name: dpsql.Unit("u", dict(unit.max_rows)) for name in "ab"}}
    session = dpsql.Session(con, schema=dpsql.Schema(columns, units=units), public=["pub"])
    frame = session.query(sql, budget=EXACT)
    for name, most in zip("ab", high, strict=True):
        con.execute(f"UPDATE {name} SET x = NULL WHERE x > {most}")
        con.execute(f"UPDATE {name} SET t = NULL WHERE t NOT IN ('a0', 'a1')")
    exact = con.execute(sql)
    names = [column[0] for column in exact.description]
    return answers(frame.select(names).rows()), answers(exact.fetchall())


@pytest.mark.parametrize("rules", [("null", "null"), ("drop", "drop"), ("drop", "null")])
@pytest.mark.parametrize("sql", COUNTS.values(), ids=COUNTS)
def test_values_outside_are_equal_to_none_and_alike(sql, rules):
    found, exact = found_and_exact(sql, rules)
    assert found == exact


@pytest.mark.parametrize("high", [(5, 9), (9, 5), (5, 5)])
@pytest.mark.parametrize("sql", BY_VALUE.values(), ids=BY_VALUE)
def test_what_several_columns_become_is_what_each_is(sql, high):
    found, exact = found_and_exact(sql, high=high)
    assert found == exact


@pytest.mark.parametrize("high", [(5, 9), (9, 5), (5, 5)])
@pytest.mark.parametrize("sql", BY_VALUE.values(), ids=BY_VALUE)
def test_rows_are_left_out_where_what_a_value_became_is_named(sql, high):
    found, exact = found_and_exact(sql, ("drop", "drop"), high)
    exact.pop((None,), None)
    assert found == exact


def test_rows_that_are_left_out_are_told_from_null():
    sql = BY_VALUE["UNION ALL"]
    found, exact = found_and_exact(sql, ("drop or null", "null"))
    outside = 4 + 4 + 6 + 6  # of a
    exact[None,] -= outside
    assert found == exact


@pytest.mark.parametrize("condition", ["x IS NULL", "x > 2 OR d < 3", "COALESCE(x, 4) > 3"])
@pytest.mark.parametrize("rule", ["drop", "drop or null"])
def test_conditions_leave_out_rows_in_inner_queries_as_elsewhere(rule, condition):
    plain = f"SELECT COUNT(*) AS n FROM a WHERE {condition}"
    inner = f"SELECT SUM(k) AS n FROM (SELECT u, COUNT(*) AS k FROM a WHERE {condition} GROUP BY u)"
    (expected, _), (found, _) = (found_and_exact(sql, (rule, rule)) for sql in (plain, inner))
    assert found == expected


def test_groups_are_of_values_as_they_count():
    con = duckdb.connect()
    con.execute(ROWS)
    domains = {"x": Domain.integers(0, 5, outside="clamp"),
               "t": Domain.labels(["a0", "else"], other="else")}  # fmt: skip
    units = {"u": dpsql.Unit("id", {"a": 2}), "a": dpsql.Unit("u", {"a": 2})}
    session = dpsql.Session(con, schema=dpsql.Schema({"a": domains}, units=units))
    for column in ("x", "t"):
        sql = f"SELECT {column}, COUNT(*) AS n FROM (SELECT DISTINCT u, {column} FROM a)"
        found = session.query(f"{sql} GROUP BY {column}", budget=EXACT)
        counted = {"x": "least(x, 5)", "t": "CASE t WHEN 'a0' THEN t ELSE 'else' END"}[column]
        exact = con.execute(
            f"SELECT {counted} AS v, COUNT(DISTINCT u) FROM a WHERE {column} IS NOT NULL GROUP BY v"
        )
        assert answers(found.select(column, "n").rows()) == answers(exact.fetchall())


def test_keys_are_compared_as_they_are_stored():
    """The declared numbers of units are fewer than there are."""
    con = duckdb.connect()
    con.execute(ROWS)
    few = {"id": Domain.integers(0, 9)}
    units = {"u": dpsql.Unit("id", {"a": 2}), "a": dpsql.Unit("u", {"a": 2})}
    schema = dpsql.Schema({"u": few, "a": {"u": few["id"]}}, units=units)
    session = dpsql.Session(con, schema=schema)
    for sql in (
        "SELECT COUNT(*) AS n FROM a JOIN u ON a.u = u.id WHERE d > 3",
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT u FROM a)",
        "SELECT COUNT(*) AS n FROM u WHERE EXISTS (SELECT 1 FROM a WHERE a.u = u.id)",
    ):
        found = session.query(sql, budget=EXACT)["n"][0]
        assert round(found) == con.execute(sql).fetchone()[0], sql


def test_values_that_are_found_for_one_statement_change_no_other():
    con = duckdb.connect()
    con.execute(
        """CREATE TABLE u (id INTEGER PRIMARY KEY);
        INSERT INTO u SELECT range FROM range(3000);
        CREATE TABLE a (u INTEGER NOT NULL REFERENCES u(id), t VARCHAR);
        INSERT INTO a SELECT i % 3000, CASE WHEN i % 10 < 9 THEN 'k' || (i % 3) ELSE 'r' || i END
        FROM range(6000) t(i)"""
    )
    others = {
        "DISTINCT": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT u, t FROM a)",
        "a join": "SELECT COUNT(*) AS n FROM a x JOIN a y ON x.u = y.u AND x.t = y.t",
    }
    session = dpsql.Session(con, unit=dpsql.Unit("u", {"u": 1, "a": 2, "a, a": 4}))
    script = {"found": "SELECT t, COUNT(*) AS n FROM a GROUP BY t", **others}
    budget = dpsql.Budget(epsilon=1e5, delta=1e-6)
    release = session.release(script, budget=budget, keys=dpsql.Keys())
    assert 3 <= release["found"].height < 9
    for name, sql in others.items():
        assert round(release[name]["n"][0]) == con.execute(sql).fetchone()[0]
