"""Conditions over too many joint cells to look at: one value stands for all that are alike."""

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.sql.lowering import evaluate
from tests.sql import reference

D = dpsql.Domain
SCHEMA = {
    "t": {
        "a": D.integers(0, 2999, nullable=True),
        "b": D.integers(0, 999),
        "c": D.decimals("0", "49.99", "0.01"),
        "d": D.labels([f"l{i}" for i in range(300)], nullable=True),
        "k": D.integers(0, 2499),
        "m": D.integers(0, 4999),
    }
}
ANSWERED = {
    "three": "SELECT COUNT(*) AS n FROM t "
    "WHERE (a < 50 AND b > 500 AND c < 10) OR (a > 2000 AND b = 3) OR (c > 40 AND m < 100)",
    "null": "SELECT COUNT(*) AS n, SUM(b) AS s FROM t "
    "WHERE (a < 500 AND b > 500 AND c < 10) OR (a IS NULL AND m > 4000) OR d = 'l3'",
    "grouped": "SELECT b < 100 AS low, COUNT(*) AS n, "
    "SUM(CASE WHEN a < 100 OR m > 900 THEN b END) AS s FROM t "
    "WHERE a < 2500 OR b > 500 OR c < 10 OR d LIKE 'l1%' GROUP BY low",
    "chosen": "SELECT CASE WHEN a < 100 AND b < 100 AND c < 30 THEN 1 "
    "WHEN m > 100 AND a > 5 THEN 2 END AS w, COUNT(*) AS n FROM t GROUP BY w",
    "never true": "SELECT COUNT(*) AS n FROM t WHERE a // 1000 + m // 1000 > 100 OR b + 0 * k < 0",
    "looked up": "SELECT COUNT(*) AS n, AVG(b) AS mean FROM t, p WHERE "
    "(pk = k AND size = 3 AND a < 1000 AND c < 30) "
    "OR (k = pk AND size > 5 AND kind = 'k1' AND m < 1000 AND a > 1000)",
    "grouped by what is looked up": "SELECT kind, COUNT(*) AS n FROM t JOIN p ON pk = k "
    "WHERE size = 3 AND a < 1000 AND c < 10 OR size > 5 AND m < 1000 AND a > 1000 GROUP BY kind",
    "with a table whose rows are met twice": "SELECT COUNT(*) AS n FROM t "
    "JOIN twice ON x = b // 500 WHERE (y = 1 AND a < 1000) OR (y = 2 AND m < 1000) OR c < 1",
}


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (a INTEGER, b INTEGER, c DECIMAL(6, 2), d VARCHAR, k INTEGER, m INTEGER);
        INSERT INTO t SELECT
            CASE WHEN i % 17 <> 0 THEN i * 37 % 3000 END, i * 7 % 1000, (i * 31 % 5000) * 0.01,
            CASE WHEN i % 13 <> 0 THEN 'l' || i % 300 END, i % 2500, i * 11 % 5000
        FROM range(20000) r(i);
        CREATE TABLE p AS SELECT i::INTEGER AS pk, i % 10 AS size, 'k' || i % 7 AS kind
        FROM range(2200) r(i);
        CREATE TABLE twice AS SELECT i % 2 AS x, i // 2 AS y FROM range(6) r(i);
    """)
    return con


def session(con):
    return dpsql.Session(con, schema=dpsql.Schema(SCHEMA), public=["p", "twice"])


@pytest.mark.parametrize("sql", ANSWERED.values(), ids=ANSWERED)
def test_equals_duckdb(con, sql):
    assert reference.differences(con, sql, session(con)) == []


def test_rows_outside_of_a_domain_are_left_out_as_elsewhere(con):
    con.execute("CREATE OR REPLACE TABLE u AS FROM t; UPDATE u SET m = 7000 WHERE b < 10")
    known = dpsql.Session(con, schema=dpsql.Schema({"u": SCHEMA["t"]}))
    where = "(a < 500 AND b < 500 AND c < 10) OR (m < 100 AND c < 30)"
    found = known.release(f"SELECT COUNT(*) AS n FROM u WHERE {where}", budget=reference.PRECISE)
    exact = con.execute(f"SELECT count(*) FROM u WHERE ({where}) AND m < 5000").fetchone()
    assert found["query"]["n"][0] == pytest.approx(exact[0], abs=0.01)


def test_values_that_are_told_apart_are_refused_with_their_number(con):
    sql = "SELECT COUNT(*) AS n FROM t WHERE k + a < (SELECT 300) OR b < 5"
    with pytest.raises(dpsql.ResourceLimitError, match="7,502,500,000 cells"):
        session(con).plan(sql, budget=dpsql.Budget(rho=1))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM people "
        "WHERE (age < 20 AND hours > 5) OR (age > 30 AND years = 2)",
        "SELECT sex, SUM(hours) AS h FROM people "
        "WHERE age < 20 OR years > 1 AND hours < 6 GROUP BY sex",
        "SELECT age, COUNT(*) AS n FROM people WHERE age % 3 = 0 OR hours > 3 GROUP BY age",
        "SELECT COUNT(*) AS n FROM people WHERE age IS NULL OR hours * hours > 20",
        "SELECT level, COUNT(*) AS n FROM people JOIN regions USING (edu) "
        "WHERE cost > 1.7 OR age < 30 GROUP BY level",
    ],
)
def test_the_workload_is_the_same_as_over_all_cells(sql, monkeypatch):
    people = reference.connect()
    all_cells = reference.compile_one(people, sql)
    monkeypatch.setattr(evaluate, "MAX_JOINT_CELLS", 120)
    fewer = reference.compile_one(people, sql)
    assert dict(fewer.workload.domain) == dict(all_cells.workload.domain)
    for one, other in zip(fewer.workload.families, all_cells.workload.families, strict=True):
        for ours, theirs in zip(one.blocks, other.blocks, strict=True):
            np.testing.assert_array_equal(ours.queries.matrix, theirs.queries.matrix)
    assert fewer.merged.keys() == all_cells.merged.keys()
    for name, classes in fewer.merged.items():
        np.testing.assert_array_equal(classes, all_cells.merged[name])


def test_what_was_measured_answers_later_statements(con):
    known = session(con)
    first = known.release(ANSWERED["three"], budget=dpsql.Budget(rho=1))
    again = first.query(ANSWERED["three"])
    assert again["n"][0] == pytest.approx(first["query"]["n"][0])
    known.release("SELECT a < 50 AS x, COUNT(*) AS n FROM t GROUP BY x", budget=dpsql.Budget(rho=1))
    later = known.release(ANSWERED["three"], budget=dpsql.Budget(rho=1))["query"]
    assert later["n_variance"][0] < 0.26 < first["query"]["n_variance"][0]
