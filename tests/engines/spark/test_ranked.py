"""Rows in order of a value in Spark: as DuckDB puts them, whatever the values are."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.ranked import RankWindow
from dpsql.engines.spark.engine import SparkEngine
from dpsql.request import Request, named
from tests.engines.spark.conftest import ManyFiles

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

ROWS = """
    SELECT (hash(range) % 80)::BIGINT AS id, (1 + hash(range + 5) % 4)::INTEGER AS m,
        ['0', '-0', 'nan', 'inf', '-0.25', '1.5', '1e300', NULL][1 + (range * 11 % 8)]::DOUBLE AS d,
        ((hash(range + 2) % 300)::BIGINT - 150) AS nr,
        ((range % 97 - 48) / 4)::DECIMAL(9, 2) AS price,
        ((range % 9 - 4) * 123456789012345678)::DECIMAL(38, 2) AS wide,
        (['99999999999999999999999999999999999', '-5'][1 + range % 2])::HUGEINT AS huge,
        DATE '1969-12-29' + (hash(range + 9) % 9)::INTEGER AS day
    FROM range(1500)
"""
NARROW = {"nr": dpsql.Domain.number(-60, 20), "d": dpsql.Domain.number("-0.1", 100_000)}
SCHEMAS = [dpsql.Schema({"t": {"m": dpsql.Domain.integers(1, 4), **of}}) for of in ({}, NARROW)]
VALUES = ["nr", "d", "price", "wide", "huge", "day", "nr * 2 + m", "CASE WHEN nr > 0 THEN nr END"]
UNITS = [None, dpsql.Unit("id", max_rows=4)]


def ranked(engine, script, windows):
    (of,) = script.drawn.values()
    ranking = engine.ranking(of.table, of.values, script.merged, script.measures, script.keys)
    ranking.check()
    assert ranking.contributions == of.table.contributions
    found = ranking.run(windows)
    found.check(of.values.count, of.values.line, len(windows))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("reach", [40, 10**9])
@pytest.mark.parametrize("schema", SCHEMAS, ids=["all", "ends"])
def test_rows_are_in_the_order_of_duckdb(spark, tmp_path, value, unit, reach, schema):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT * FROM ({ROWS})").fetchall()
    session = dpsql.Session(con, schema=schema, unit=unit)
    asked, late = f"QUANTILE_DISC({value}, 0.3) AS q", "day > DATE '1969-12-29'"
    sql = f"SELECT m, {asked} FROM t WHERE {late} GROUP BY m"
    script = session._data.declared.compile(Request(named(sql), dpsql.Budget(rho=1)))
    windows = [RankWindow(Fraction(p), reach) for p in ("0.3", "0.9")]
    engines = DuckDBEngine(con), SparkEngine(ManyFiles(spark, con, tmp_path))
    for near in (windows, windows[:1]):
        expected, found = (ranked(engine, script, near) for engine in engines)
        for name in ("groups", "places", "below", "upto", "sizes"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert len(found.groups) > 3


def test_times_are_refused_before_the_charge(spark, tmp_path):
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT TIMESTAMP '2020-01-01' AS at").fetchall()
    session = dpsql.Session(con)
    sql = "SELECT QUANTILE_DISC(t.at, 0.5) AS q FROM t"
    script = session._data.declared.compile(Request(named(sql), dpsql.Budget(rho=1)))
    with pytest.raises(dpsql.SqlError, match="times"):
        ranked(
            SparkEngine(ManyFiles(spark, con, tmp_path)), script, [RankWindow(Fraction(1, 2), 9)]
        )
