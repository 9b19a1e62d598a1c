"""Sessions on DuckDB and on Spark, and on neighboring tables in Spark: recorded, and replayed.

The same script over the same rows must have the same plan and the same exact integers in both. Of
tables that differ by a unit the plan must be the same, and the integers differ by what that unit
has where it is alone.
"""

from __future__ import annotations

import random
from contextlib import contextmanager

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import DpsqlError
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.helpers.random_scripts import script as random_script
from tests.release.test_sums_of_neighbors import (
    charged,
    check_equal_counts,
    check_same_frames,
    recorded_in,
    spent,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.5)


def connect():
    """Make a database with the current catalog and schema of the other: names are made of them."""
    con = duckdb.connect()
    con.execute("ATTACH ':memory:' AS spark_catalog")
    con.execute("CREATE SCHEMA spark_catalog.neighbors")
    con.execute("USE spark_catalog.neighbors")
    return con


@contextmanager
def stored(spark, con, folder):
    """Store the tables of a database in a schema of Spark's, which is the current one meanwhile."""
    folder.mkdir()
    spark.sql("CREATE SCHEMA neighbors").collect()
    spark.catalog.setCurrentDatabase("neighbors")
    try:
        for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            (folder / name).mkdir()
            con.execute(f"COPY {name} TO '{folder}/{name}/0.parquet'").fetchall()
            spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{folder}/{name}'").collect()
        yield
    finally:
        spark.catalog.setCurrentDatabase("default")
        spark.sql("DROP SCHEMA neighbors CASCADE").collect()


def of_spark(spark, con, folder, schema, script, **how):
    """Release a script of the rows of a database in Spark, and record it."""
    with stored(spark, con, folder):
        session = dpsql.Session(spark, schema=schema, ledger=folder / "a.ledger", **how)
        return recorded_in(session, script, budget=BUDGET)


def check_same_plan(one, other):
    """Check that all is the same which isn't an exact answer, but for what DuckDB is asked."""
    assert one.seen == other.seen
    check_same_frames(one, other)


def check_neighbors(whole, fewer, alone):
    """Check that of a unit that goes just what it has itself is gone, and no more than is paid."""
    for other in (fewer, alone):
        check_same_plan(whole, other)
    for marginal, counts in whole.counts.items():
        np.testing.assert_array_equal(counts - fewer.counts[marginal], alone.counts[marginal])
    assert spent(whole, fewer) <= charged(whole)


# ── Several tables ───────────────────────────────────────────────────────────────────────────


def asked(seed):
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    return database, RandomQuestions(rng, database.kinds).script()


SEEDS = [n for n in range(150) if not RandomDatabase.traits(random.Random(n))[3]]  # noqa: S311


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_databases(spark, tmp_path, seed):
    database, script = asked(seed)
    schema, cons = database.bare_schema, [connect() for _ in range(3)]
    for con, of in zip(
        cons, ({}, {"without": database.apart}, {"alone": database.apart}), strict=True
    ):
        database.bare(con, **of)
    con, *others = cons
    try:
        whole = of_spark(spark, con, tmp_path / "whole", schema, script)
    except DpsqlError:
        return  # what Spark doesn't count is refused; see test_several_tables.py
    session = dpsql.Session(con, schema=schema)
    there = recorded_in(session, script, budget=BUDGET)
    check_same_plan(whole, there)
    check_equal_counts(whole, there)
    changed = [
        of_spark(spark, other, tmp_path / f"{i}", schema, script) for i, other in enumerate(others)
    ]
    check_neighbors(whole, *changed)


# ── One table ────────────────────────────────────────────────────────────────────────────────

ONE = {
    "t": {
        "g": dpsql.Domain.labels([f"g{i}" for i in range(5)], nullable=True, outside="drop"),
        "a": dpsql.Domain.integers(0, 6, outside="drop"),
        "b": dpsql.Domain.integers(0, 4, nullable=True),
        "c": dpsql.Domain.boolean(nullable=True),
    }
}
ROWS = """
    CREATE TABLE t AS SELECT (hash(range, 1) % 60)::INTEGER AS u,
        ['g0', 'g1', 'g2', 'g3', 'G3', NULL, 'g4 '][1 + (hash(range, 2) % 7)::INTEGER] AS g,
        ((hash(range, 3) % 11)::INTEGER - 2)::SMALLINT AS a,
        CASE WHEN hash(range, 4) % 9 > 0 THEN (hash(range, 5) % 6)::SMALLINT END AS b,
        [true, false, NULL][1 + (hash(range, 6) % 3)::INTEGER] AS c
    FROM range(900)
"""
UNITS = {"rows": {}, "units": {"unit": "u", "max_rows": 3}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("unit", UNITS)
def test_random_scripts(spark, tmp_path, unit, seed):
    con = connect()
    con.execute(ROWS).fetchall()
    how, script = UNITS[unit], random_script(random.Random(seed))  # noqa: S311
    whole = of_spark(spark, con, tmp_path / "whole", ONE, script, **how)
    session = dpsql.Session(con, schema=ONE, **how)
    there = recorded_in(session, script, budget=BUDGET)
    check_same_plan(whole, there)
    check_equal_counts(whole, there)
    gone = "u = 17" if how else "rowid = 17"
    changed = []
    for name, condition in (("fewer", f"NOT ({gone})"), ("alone", gone)):
        other = connect()
        other.execute(ROWS).fetchall()
        other.execute(f"DELETE FROM t WHERE NOT ({condition})").fetchall()
        changed.append(of_spark(spark, other, tmp_path / name, ONE, script, **how))
    check_neighbors(whole, *changed)


# ── Sums of columns in which values are missing ──────────────────────────────────────────────

NUMBERS = {
    "x": ("DOUBLE", ["NULL", "'nan'", "'-nan'", "'inf'", "'-inf'", "0.0", "-0.0", "5e-324", "7.5"]),
    "f": ("FLOAT", ["NULL", "'nan'", "'inf'", "'-inf'", "3.25"]),
    "d": ("DECIMAL(9, 2)", ["NULL", "0", "-9999999.99", "9999999.99", "0.01"]),
    "n": ("BIGINT", ["NULL", "0", "-9223372036854775808", "9223372036854775807"]),
}


@pytest.mark.parametrize("column", NUMBERS)
def test_rows_without_a_value_add_nothing_to_its_sums(spark, tmp_path, column):
    """Each row is a group: in both engines, the sums of those outside of the support are 0."""
    type_, values = NUMBERS[column]
    con, rows = connect(), ", ".join(f"({i}, {value})" for i, value in enumerate(values))
    con.execute(f"CREATE TABLE t (g INTEGER, {column} {type_})").fetchall()
    con.execute(f"INSERT INTO t VALUES {rows}").fetchall()
    groups = dpsql.Domain.integers(0, len(values) - 1, outside="drop")
    schema = {"t": {"g": groups, column: dpsql.Domain.number(-10, 90)}}
    script = {
        "a": f"SELECT g, AVG({column}) AS m, COUNT(*) AS n FROM t GROUP BY g",
        "s": f"SELECT g, SUM({column}) AS s FROM t GROUP BY g",
    }
    whole = of_spark(spark, con, tmp_path / "whole", schema, script)
    check_equal_counts(whole, recorded_in(dpsql.Session(con, schema=schema), script, budget=BUDGET))
    (support,) = whole.certified.supports
    by, of = (
        next(names for names in whole.counts if {"g", name} == {*names})
        for name in (support.attribute, support.measure)
    )
    cells = np.moveaxis(whole.counts[by], by.index("g"), 0).argmax(axis=1)[: len(values)]
    sums = np.moveaxis(whole.counts[of], of.index("g"), 0)[:, 0]
    missing = [i for i, value in enumerate(values) if value == "NULL" or "nan" in value]
    assert [i for i, cell in enumerate(cells) if not support.cells[cell]] == missing
    assert not sums[missing].any()
    assert whole.counts[by].sum() == len(values)
