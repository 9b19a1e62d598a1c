"""Distinct values in Spark: as many as in DuckDB, and what one unit changes."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark.engine import SparkEngine
from dpsql.errors import InternalError
from dpsql.request import Request, named
from tests.engines.spark.conftest import ManyFiles

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

BUDGET = dpsql.Budget(rho=1)
ROWS = """
    SELECT (hash(range) % 80)::BIGINT AS id, (1 + hash(range + 5) % 4)::INTEGER AS m,
        ['0', '-0', 'nan', 'inf', '0.25', '1.5', NULL][1 + (range * 11 % 7)]::DOUBLE AS d,
        ['é', 'e', 'E', '', NULL][1 + (range * 7 % 5)] || (hash(range + 1) % 40) AS code,
        (hash(range + 2) % 300)::INTEGER AS nr, (range % 97 / 4)::DECIMAL(9, 2) AS price,
        DATE '1999-12-31' + (hash(range + 9) % 9)::INTEGER AS day,
        TIMESTAMP '2020-01-01' + to_microseconds((hash(range + 4) % 50)::INTEGER) AS at
    FROM range(1500)
"""
SCHEMA = dpsql.Schema({"t": {"m": dpsql.Domain.integers(1, 4)}})
SQL = "SELECT m, {} AS n FROM t WHERE nr < 250 GROUP BY m"
VALUES = [
    "COUNT(DISTINCT nr), COUNT(DISTINCT code)", "COUNT(DISTINCT d), COUNT(DISTINCT price)",
    "COUNT(DISTINCT day), COUNT(DISTINCT at), COUNT(DISTINCT upper(code)), COUNT(DISTINCT nr % 50)",
]  # fmt: skip
UNITS = [
    None, dpsql.Unit("id", max_values=2), dpsql.Unit("id", max_values=3, max_groups=2),
    dpsql.Unit("id", max_rows=4), dpsql.Unit("id", max_values=200),
]  # fmt: skip


def filled(without=None):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT * FROM ({ROWS})").fetchall()
    con.execute("UPDATE t SET id = NULL WHERE nr = 7").fetchall()
    con.execute("DELETE FROM t WHERE id = ?", [without]).fetchall()
    return con


def compiled(con, sql, unit):
    session = dpsql.Session(con, schema=SCHEMA, unit=unit)
    return session._data.declared.compile(Request(named(sql), BUDGET))


def counted(engine, script):
    wanted = [tuple(family.names) for family in script.workload.families]
    table = replace(script.table, enforced=frozenset())
    given = script.merged, script.measures, script.keys, script.units
    counting = engine.prepared(table, wanted, *given)
    counting.check()
    found = counting.run()
    assert found.units == {name: of.most for name, of in script.units.items()}
    assert found.bounds == {name: of.each for name, of in script.units.items() if of.each > 1} | {
        name: of.bound for name, of in script.measures.items()
    }
    return {marginal: found[marginal] for marginal in wanted}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("called", VALUES)
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_as_many_are_counted_as_in_duckdb(spark, tmp_path, called, unit):
    con = filled()
    for i, one in enumerate(called.split(", ")):
        script = compiled(con, SQL.format(one), unit)
        expected = counted(DuckDBEngine(con), script)
        (folder := tmp_path / str(i)).mkdir()
        found = counted(SparkEngine(ManyFiles(spark, con, folder)), script)
        for marginal, array in expected.items():
            np.testing.assert_array_equal(found[marginal], array)
            assert array.sum() > 0


def test_a_unit_changes_as_little_as_is_charged(spark, tmp_path):
    unit, arrays = dpsql.Unit("id", max_values=2, max_groups=3), []
    for place, without in (("whole", None), ("fewer", 6)):
        con = filled(without)
        script = compiled(con, SQL.format("COUNT(DISTINCT nr)"), unit)
        (folder := tmp_path / place).mkdir()
        (found,) = counted(SparkEngine(ManyFiles(spark, con, folder)), script).values()
        arrays.append(found)
    change = arrays[0] - arrays[1]
    assert 0 <= change.min() <= change.max() <= 2
    assert 0 < change.sum() <= 6


def test_values_of_rows_without_units_are_not_those_of_units(spark, tmp_path):
    con = filled()
    script = compiled(con, SQL.format("COUNT(DISTINCT nr)"), dpsql.Unit("id", max_rows=4))
    wanted = [tuple(family.names) for family in script.workload.families]
    table = replace(script.table, unit=None, enforced=frozenset())
    given = wanted, script.merged, script.measures, script.keys, script.units
    for engine in (SparkEngine(ManyFiles(spark, con, tmp_path)), DuckDBEngine(con)):
        with pytest.raises(InternalError):
            engine.prepared(table, *given)
