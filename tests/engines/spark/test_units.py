"""At most k rows of a unit in Spark: the same as in DuckDB, and no other unit's."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest

from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark import bounded
from dpsql.engines.spark.engine import SparkEngine
from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema, Unit
from dpsql.schema.catalog import read_table
from tests.engines.spark.conftest import OneFile

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

ROWS = """
    SELECT (hash(range) % 300)::BIGINT AS u,
        'é' || (range % 7) || chr((range % 90 + 33)::INTEGER) AS w,
        DATE '1999-12-31' + (hash(range + 9) % 9)::INTEGER AS v,
        (hash(range + 1) % 100)::INTEGER AS a, ['F', 'M', 'x', NULL][1 + (range * 7 % 4)] AS s,
        ['0', '-0', 'nan', 'inf', '0.25', '1.5', NULL][1 + (range * 11 % 7)]::DOUBLE AS d,
        TIMESTAMP '2020-01-01' + to_days((hash(range + 4) % 400)::INTEGER) AS t,
        ['b', 'B', 'ß', ''][1 + (range * 13 % 4)] AS undeclared
    FROM range(3000)
"""
SCHEMA = Schema(
    {
        "t": {
            "a": Domain.integers(5, 90),
            "s": Domain.labels(["M", "F"], nullable=True, outside="drop"),
            "d": Domain.bins([0, 0.5, 1.5]),
            "t": Domain.dates("2020-02-01", "2020-12-31", "month"),
        }
    }
)
WANTED = [("a", "s"), ("s", "d", "t"), ()]
UNITS = [
    Unit("u", 1), Unit("u", 5), Unit("w", 3), Unit("v", 100), Unit("u", 999),
    Unit("u", 8, max_rows_per={"s": 3}), Unit("v", 50, max_rows_per={"s": 20, "t, s": 3}),
]  # fmt: skip


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS {ROWS}").fetchall()
    con.execute("UPDATE t SET u = NULL, w = NULL, v = NULL WHERE a = 7").fetchall()
    return con


def described(con, unit):
    return replace(read_table(DuckDBCatalog(con), ("t",), SCHEMA, unit), enforced=frozenset())


def counted(spark, con, path, table, where="true", way="sql"):
    con.execute(f"COPY (SELECT * FROM t WHERE {where}) TO '{path}'").fetchall()
    return SparkEngine(OneFile(spark, path), partials=way).marginals(table, WANTED)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_rows_kept_are_those_that_duckdb_keeps(spark, con, tmp_path, unit):
    table = described(con, unit)
    expected = DuckDBEngine(con).marginals(table, WANTED)
    found = counted(spark, con, tmp_path / "t.parquet", table)
    assert 0 < found[()] < 3000
    assert found.contributions == unit.max_rows
    for marginal in WANTED:
        np.testing.assert_array_equal(found[marginal], expected[marginal])


@pytest.mark.parametrize("gone", [17, 201])
def test_a_unit_that_goes_takes_its_own_rows_along_and_no_others(spark, con, tmp_path, gone):
    table = described(con, Unit("u", 4))
    path = tmp_path / "t.parquet"
    all_rows = counted(spark, con, path, table)
    fewer = counted(spark, con, path, table, f"u <> {gone} OR u IS NULL")
    for marginal in WANTED:
        change = all_rows[marginal] - fewer[marginal]
        assert (change >= 0).all()
        assert change.sum() == 4


def test_the_same_rows_are_kept_in_any_order_of_files_and_partitions(spark, con, tmp_path):
    table = described(con, Unit("u", 4))
    first = counted(spark, con, tmp_path / "t.parquet", table)
    tables = OneFile(spark, tmp_path / "t.parquet")
    mixed = tables.session.read.parquet(tables.path).repartition(5).orderBy("a", "d")
    tables.rows = lambda _: mixed
    again = SparkEngine(tables, partials="workers").marginals(table, WANTED)
    for marginal in WANTED:
        np.testing.assert_array_equal(first[marginal], again[marginal])


def test_units_with_more_rows_than_spark_has_numbers_for_have_none(
    spark, con, tmp_path, monkeypatch
):
    """Numbers of rows are INTs: behind 2^31 - 1 others would have the same places."""
    ((type_,),) = spark.sql("SELECT typeof(row_number() OVER (ORDER BY 1))").collect()
    assert (type_, bounded._MOST_ROWS) == ("int", 2**31)
    rows = dict(con.execute("SELECT u, count(*) FROM t GROUP BY u HAVING u IS NOT NULL").fetchall())
    least = sorted(rows.values())[len(rows) // 2]
    monkeypatch.setattr(bounded, "_MOST_ROWS", least)
    found = counted(spark, con, tmp_path / "t.parquet", described(con, Unit("u", 4)))
    assert found[()] == sum(min(n, 4) for n in rows.values() if n < least or n <= 4)


def test_ids_that_spark_cannot_tell_apart_are_refused(spark, con, tmp_path):
    table = described(con, Unit("u", 4))
    floats = replace(table, unit=replace(table.unit, column="d", type="DOUBLE"))
    with pytest.raises(SchemaError, match="can't tell units apart") as caught:
        SparkEngine(OneFile(spark, tmp_path)).prepared(floats, WANTED)
    assert caught.value.hint
