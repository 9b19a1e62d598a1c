"""Random queries of private rows in one another, answered at a huge budget, against DuckDB."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from tests.sql import reference
from tests.sql.test_predicates import predicates
from tests.sql.test_queries import SETTINGS, check, con, one_of

__all__ = ["con"]

JOINS = {
    "": {},
    "JOIN p USING (a)": {"lo": "n", "hi": "n", "label": "s"},
    "LEFT JOIN p USING (a)": {"lo": "n", "hi": "n", "label": "s"},
    "SEMI JOIN p USING (a)": {},
    "ANTI JOIN p USING (a)": {},
    "JOIN (SELECT lo AS k, hi FROM p) q ON b BETWEEN k AND hi": {"k": "n", "hi": "n"},
    "LEFT JOIN (SELECT lo AS k, label FROM p) q ON b > k AND label = 'u'": {"k": "n", "label": "s"},
    "CROSS JOIN generate_series(-2, 4, 3) g(k)": {"k": "n"},
    ", unnest([1, 2]) u(k)": {"k": "n"},
}
KINDS = {"a": "n", "b": "n", "w": "n", "e": "s", "v": "s", "f": "b", "d": "d"}
COMPUTED = {
    "n": "{} + 1; {} * 2; abs({}); -{}; least({}, 2)",
    "s": "upper({}); left({}, 1); {} || 'x'; {}",
    "b": "NOT {}; {} IS TRUE; {}",
    "d": "{}",
}
HELD = {
    "n": "{} > 0; {} BETWEEN -1 AND 2; {} IS NOT NULL; {} <> 1",
    "s": "{} LIKE '%x%'; {} IS NULL; {} > 'a'",
    "b": "{}; {} IS NOT FALSE",
    "d": "{} >= DATE '2020-02-29'; month({}) = 2",
}


@st.composite
def conditions(draw, columns):
    name = draw(st.sampled_from(sorted(columns)))
    return draw(one_of(HELD[columns[name]])).format(name)


@st.composite
def row_queries(draw, columns, rows, joined):
    """A query of rows, its columns with their kinds, and whether anything is joined by now."""
    join = "" if joined or not {"a", "b"} <= set(columns) else draw(st.sampled_from(sorted(JOINS)))
    inside = columns | JOINS[join]
    items, found = [], {}
    if draw(st.booleans()) and set(columns).isdisjoint({"k", "lo", "hi", "label"}):
        items, found = ["*"], dict(inside)
    for place in range(draw(st.integers(not items, 3))):
        name = draw(st.sampled_from(sorted(inside)))
        kind = inside[name]
        # A new name may be that of another column, which it then shadows around.
        free = ["x", "y", "a", "b", "v"] if not items or items[0] != "*" else ["x", "y", "z"]
        new = draw(st.sampled_from([n for n in free if n not in found] or [f"c{place}"]))
        if new in inside and new != name:
            new = f"c{place}"
        items.append(f"{draw(one_of(COMPUTED[kind])).format(name)} AS {new}")
        found[new] = kind
    where = draw(st.lists(conditions(inside), max_size=2))
    sql = f"SELECT {', '.join(items)} FROM {rows} {join}"
    if where:
        sql += f" WHERE {' AND '.join(f'({c})' for c in where)}"
    return sql, found, bool(join) or joined


@st.composite
def statements(draw):
    columns, rows, joined, ctes = KINDS, "t", False, []
    parts = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    if parts:
        written = (f"SELECT * FROM t WHERE {draw(predicates)}" for _ in range(parts))
        rows = f"({' UNION ALL '.join(written)}) AS first"
    for level in range(draw(st.integers(1, 3))):
        sql, columns, joined = draw(row_queries(columns, rows, joined))
        if draw(st.booleans()):
            ctes.append(f"c{level} AS ({sql})")
            rows = draw(st.sampled_from([f"c{level}", f"c{level} AS r"]))
        else:
            rows = f"({sql}) {draw(st.sampled_from(['', 'AS s']))}"
    listed = sorted(columns)
    keys = draw(st.lists(st.sampled_from(listed), max_size=2, unique=True))
    numbers = [name for name in listed if columns[name] == "n"]
    values = ["COUNT(*) AS n0", f"COUNT({draw(st.sampled_from(listed))}) AS n1"]
    if numbers:
        values.append(f"SUM({draw(st.sampled_from(numbers))}) AS n2")
    where = draw(st.lists(conditions(columns), max_size=1))
    sql = f"SELECT {', '.join([*keys, *values])} FROM {rows}"
    sql += f" WHERE {where[0]}" if where else ""
    sql += f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"WITH {', '.join(ctes)} {sql}" if ctes else sql


@settings(max_examples=20, **SETTINGS)
@given(sql=statements())
def test_random_row_queries(con, sql):
    check(con, sql)


UNIONS = {
    "SELECT * FROM people UNION ALL SELECT * FROM people": 4,
    "SELECT age FROM people WHERE member UNION ALL SELECT hours FROM people WHERE NOT member": 1,
    "SELECT age FROM people UNION ALL SELECT age FROM people UNION ALL SELECT age FROM people": 9,
    "SELECT sex FROM people WHERE starts_with(name, 'A') UNION ALL SELECT sex FROM people": 4,
    "SELECT * FROM people UNION ALL SELECT * FROM (SELECT * FROM people UNION ALL "
    "(SELECT * FROM ((SELECT * FROM people UNION ALL SELECT * FROM people)) AS more))": 16,
}
"""Queries of rows → the square of how often the same row may be in them."""


@pytest.mark.parametrize("union", UNIONS)
def test_a_row_that_several_queries_return_costs_so_often(union):
    budget = dpsql.Budget(rho=1)
    once, often = (
        dpsql.query(reference.connect(), f"SELECT COUNT(*) AS n FROM {rows}", budget=budget)
        for rows in ("people", f"({union}) AS s")
    )
    variance = once["n_variance"].item() * UNIONS[union]
    assert often["n_variance"].item() == pytest.approx(variance, rel=0.02)


@pytest.mark.long
@settings(max_examples=1500, **SETTINGS)
@given(sql=statements())
def test_many_random_row_queries(con, sql):
    check(con, sql)


BY_PLACE = [
    "SELECT COUNT(*) AS n FROM (SELECT * FROM t) AS s(a, b, c, d) WHERE a > 4 AND c < 2",
    "SELECT b, COUNT(*) AS n FROM (SELECT * FROM t) AS s(a, b) GROUP BY b",
    "SELECT a, COUNT(*) AS n FROM (SELECT * FROM v) AS s(a, b) WHERE b > 1 GROUP BY a",
    "SELECT b, COUNT(*) AS n FROM (SELECT * FROM w) AS s(a, b) WHERE a > 1 GROUP BY b",
    "WITH s(a, b, c, d) AS (SELECT * FROM t) SELECT b, COUNT(*) AS n FROM s WHERE a > 3 GROUP BY b",
    "SELECT g, COUNT(*) AS n FROM (SELECT y, k, z, g FROM t UNION ALL SELECT * FROM t) "
    "WHERE y > 2 GROUP BY g",
    "SELECT c, COUNT(*) AS n FROM (SELECT 1, t.* FROM t) AS s(a, b, c) WHERE b > 2 GROUP BY c",
]
"""Queries in which a column is named by its place among those of `*`."""


def test_a_star_has_columns_as_they_are_stored(tmp_path):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (y INTEGER, k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 4), z INTEGER,"
        " g VARCHAR NOT NULL CHECK (g IN ('a', 'b')));"
        "INSERT INTO t SELECT i % 7, i % 5, i % 3, ['a', 'b'][1 + i % 2] FROM range(100) r(i);"
        "CREATE VIEW v AS SELECT g, z, k, y FROM t; CREATE VIEW w AS SELECT * FROM t WHERE k > 1"
    )
    session = dpsql.Session(con)
    assert not any(reference.differences(con, sql, session) for sql in BY_PLACE)
    release = session.release({"asked": BY_PLACE[4]}, budget=reference.PRECISE)
    release.save(tmp_path / "saved")
    assert dpsql.Release.load(tmp_path / "saved")["asked"].equals(release["asked"])
