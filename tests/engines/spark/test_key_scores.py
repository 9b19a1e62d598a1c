"""Scores of keys in Spark: the same as in DuckDB, whatever the keys are."""

from __future__ import annotations

import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.engines.spark.engine import SparkEngine
from dpsql.privacy.keys import weights
from dpsql.rows.expression import RowColumn
from dpsql.rows.found import FoundExpression
from tests.engines.spark.conftest import ManyFiles
from tests.engines.test_key_scores import VALUES, filled, stored
from tests.rows.tools import parse

COLUMN = RowColumn("k")
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]


def scored(engine, table, most, known, key=COLUMN):
    scores, found = engine.key_scores(table, key, weights(most)), {}
    scores.check()
    for piece in scores.run(known):
        keys = piece.pick(np.arange(len(piece.units)))
        rows = zip(keys, piece.units.tolist(), piece.scores.tolist(), strict=True)
        found |= {key: (units, score) for key, units, score in rows}
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("type_", ["VARCHAR", "BIGINT", "DATE"])
def test_scores_are_those_of_duckdb(spark, tmp_path, type_):
    values = [v for v in VALUES[type_] if "infinity" not in str(v)]
    rows = [(i * i % 7, values[i * 5 % len(values)]) for i in range(60)] + [(None, values[0])]
    con = filled(stored(type_, rows))
    engines = [DuckDBEngine(con), SparkEngine(ManyFiles(spark, con, tmp_path))]
    for unit, most in (
        (dpsql.Unit("u", max_rows=3), 3),
        (dpsql.Unit("u", max_rows=1), 1),
        (None, 1),
    ):
        table = DuckDBSource(con).describe(("t",), None, unit)
        for known in (frozenset(), frozenset({b"a", b"7", b"2020-01-03"})):
            here, there = (scored(engine, table, most, known) for engine in engines)
            assert here == there
            assert len(here) > 1


COMPUTED = {
    "VARCHAR": ["upper(k)", "substr(k, 1, 2)", "k || u::VARCHAR"],
    "BIGINT": ["CAST(k + u AS BIGINT)", "CAST(k AS VARCHAR)"],
    "DATE": ["CAST(date_trunc('week', k) AS DATE)"],
}


@pytest.mark.parametrize("type_", COMPUTED)
def test_scores_of_what_is_computed_are_those_of_duckdb(spark, tmp_path, type_):
    values = [v for v in VALUES[type_] if "infinity" not in str(v)]
    rows = [(i * i % 7, values[i * 5 % len(values)]) for i in range(60)]
    con = filled(stored(type_, rows))
    engines = [DuckDBEngine(con), SparkEngine(ManyFiles(spark, con, tmp_path))]
    table = DuckDBSource(con).describe(("t",), None, dpsql.Unit("u", max_rows=3))
    types = {"k": type_, "u": "INTEGER"}
    parts = [FoundExpression.of(RowColumn(n), types, frozenset(), part=True) for n in types]
    pairs = FoundExpression.together(parts, types).expression
    for key in (*(parse(con, sql) for sql in COMPUTED[type_]), pairs):
        here, there = (scored(engine, table, 3, frozenset(), key) for engine in engines)
        assert here == there
        assert len(here) > 1
