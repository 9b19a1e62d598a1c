"""Values that leave a row out, where joins give rows NULL: they leave it out all the same."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql import Domain, Schema, Unit

PRECISE = dpsql.Budget(rho=10**12)
LEFT_OUT = "left out"  # what the model of a rule has in place of values that leave a row out
SHAPES = {
    "left": "SELECT k AS g, COUNT(*) AS n FROM p LEFT JOIN v ON v.pid = p.id GROUP BY k",
    "right": "SELECT k AS g, COUNT(*) AS n FROM v RIGHT JOIN p ON v.pid = p.id GROUP BY k",
    "full": "SELECT k AS g, COUNT(*) AS n FROM v FULL JOIN p ON v.pid = p.id GROUP BY k",
    "full, other side": "SELECT s AS g, COUNT(*) AS n FROM v FULL JOIN p ON v.pid = p.id "
    "GROUP BY s",
    "first side": "SELECT s AS g, COUNT(*) AS n FROM v LEFT JOIN p ON v.pid = p.id GROUP BY s",
    "inner": "SELECT k AS g, COUNT(*) AS n FROM e JOIN v ON e.vid = v.id GROUP BY k",
    "inner by two": "SELECT k AS g, COUNT(*) AS n FROM e JOIN v ON e.vid = v.id AND e.pid = v.pid "
    "GROUP BY k",
    "lookup": "SELECT k AS g, COUNT(*) AS n FROM e LEFT JOIN v ON e.vid = v.id GROUP BY k",
    "lookup by two": "SELECT k AS g, COUNT(*) AS n FROM e LEFT JOIN v ON e.vid = v.id "
    "AND e.pid = v.pid GROUP BY k",
    "lookup of a lookup": "SELECT s AS g, COUNT(*) AS n FROM e LEFT JOIN v ON e.vid = v.id "
    "LEFT JOIN p ON v.pid = p.id GROUP BY s",
    "below": "SELECT g, COUNT(*) AS n FROM (SELECT k AS g FROM p LEFT JOIN v ON v.pid = p.id) "
    "GROUP BY g",
    "grouped below": "SELECT g, COUNT(*) AS n FROM (SELECT p.id, k AS g FROM p "
    "LEFT JOIN v ON v.pid = p.id GROUP BY p.id, k) GROUP BY g",
    "distinct": "SELECT g, COUNT(*) AS n FROM (SELECT DISTINCT pid, k AS g FROM v) GROUP BY g",
    "union": "SELECT g, COUNT(*) AS n FROM (SELECT k AS g FROM v UNION ALL SELECT s FROM p) "
    "GROUP BY g",
    "missing": "SELECT k AS g, COUNT(*) AS n FROM p LEFT JOIN v ON v.pid = p.id WHERE k IS NULL "
    "GROUP BY k",
}
RULES = {
    "drop": {},
    "null": {"nullable": True},
    "drop beside NULL": {"nullable": True, "outside": "drop"},
}
LABELS = {"k": ["x", "y"], "s": ["a", "b"]}


def modelled(column: str, rule: str) -> str:
    """Write a column as SQL sees it: NULL, its value, or that its row is left out."""
    missing = f"'{LEFT_OUT}'" if rule == "drop" else "NULL"
    outside = "NULL" if rule == "null" else f"'{LEFT_OUT}'"
    values = ", ".join(f"'{label}'" for label in LABELS[column])
    return (
        f"CASE WHEN {column} IS NULL THEN {missing} WHEN {column} IN ({values}) THEN {column} "
        f"ELSE {outside} END AS {column}"
    )


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE p (id INTEGER PRIMARY KEY, s VARCHAR);
        CREATE TABLE v (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL REFERENCES p, k VARCHAR);
        CREATE TABLE e (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL REFERENCES p,
                        vid INTEGER REFERENCES v);
        INSERT INTO p SELECT i, CASE WHEN i % 9 = 0 THEN NULL WHEN i % 13 = 0 THEN 'other'
            ELSE ['a', 'b'][1 + i % 2] END FROM range(100) t(i);
        INSERT INTO v SELECT i, i % 80, CASE WHEN i % 5 = 0 THEN NULL WHEN i % 7 = 0 THEN 'other'
            ELSE ['x', 'y'][1 + i % 2] END FROM range(160) t(i);
        INSERT INTO e SELECT i, i % 80, CASE WHEN i % 4 > 0 THEN i % 80 + 80 * (i % 2) END
            FROM range(240) t(i);
    """)
    for rule in RULES:
        con.execute(f"""
            CREATE SCHEMA "{rule}";
            CREATE VIEW "{rule}".p AS SELECT id, {modelled("s", rule)} FROM main.p;
            CREATE VIEW "{rule}".v AS SELECT id, pid, {modelled("k", rule)} FROM main.v;
            CREATE VIEW "{rule}".e AS FROM main.e
        """)
    return con


def expected(con: duckdb.DuckDBPyConnection, sql: str, rule: str) -> dict[str | None, int]:
    """Answer a statement over the model of a rule, without the groups of rows that are left out."""
    con.execute(f'USE "{rule}"')
    rows = con.execute(sql).fetchall()
    con.execute("USE main")
    return {group: count for group, count in rows if group != LEFT_OUT}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_left_out_by_their_own_values_alone(con, shape, rule):
    domains = {name: Domain.labels(labels, **RULES[rule]) for name, labels in LABELS.items()}
    schema = Schema({"p": {"s": domains["s"]}, "v": {"k": domains["k"]}})
    most = {"p": 1, "v": 2, "e": 3, "p, v": 3, "e, v": 3}
    found = dpsql.query(
        con, SHAPES[shape], budget=PRECISE, schema=schema, unit=Unit("p", max_rows=most)
    )
    rows = {group: round(count) for group, count in found.select("g", "n").rows()}
    assert {group: n for group, n in rows.items() if n} == expected(con, SHAPES[shape], rule)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k AS g, COUNT(*) AS n FROM v GROUP BY k",
        "SELECT g, COUNT(*) AS n FROM (SELECT DISTINCT pid, k AS g FROM v) GROUP BY g",
        "SELECT g, COUNT(*) AS n FROM (SELECT pid, k AS g FROM v GROUP BY pid, k) GROUP BY g",
    ],
)
def test_null_is_no_other_label(con, sql):
    schema = Schema({"p": {}, "v": {"k": Domain.labels(["x", "y"], other="y")}})
    unit = Unit("p", max_rows={"p": 1, "v": 2})
    found = dpsql.query(con, sql, budget=PRECISE, schema=schema, unit=unit)
    rows = {group: round(count) for group, count in found.select("g", "n").rows()}
    own = sql.replace("FROM v", "FROM (SELECT pid, CASE k WHEN 'x' THEN 'x' ELSE 'y' END AS k "
                      "FROM v WHERE k IS NOT NULL)")  # fmt: skip
    assert rows == dict(con.execute(own).fetchall())
