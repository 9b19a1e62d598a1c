"""Codes of every kind of domain, type and rule in Spark: those of DuckDB, whatever rows hold."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest

from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark.engine import SparkEngine
from dpsql.schema import Domain, Schema
from dpsql.schema.catalog import read_table
from tests.engines.spark.conftest import OneFile
from tests.engines.test_codes import KINDS, RULES, rows

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

TEXTS = [
    "F", "M", "f", "F ", " F", "", "F\0", "É", "E\u0301", "x" * 99, "'; DROP TABLE", "c7", "c07",
    "c199", "C7", "rest", "\U0001f600", "'", '"', "\\", "`",
]  # fmt: skip
LABELS = {
    "few labels": Domain.labels(["F", "M"]),
    "few labels or NULL": Domain.labels(["M", "F"], nullable=True),
    "few labels, others dropped": Domain.labels(["M", "F"], nullable=True, outside="drop"),
    "other labels": Domain.labels(["F", "rest", "M"], other="rest"),
    "hostile labels": Domain.labels(TEXTS[:4] + TEXTS[8:11] + TEXTS[-5:], nullable=True),
    "many labels": Domain.labels([f"c{i}" for i in (*range(99, 300), *range(99))], nullable=True),
    "many others": Domain.labels([f"c{i}" for i in range(300)] + ["rest"], other="rest"),
}
UNKNOWN = {"UBIGINT"}
"""Types that Spark reads as others."""


def cases():
    """Name every domain, with its type and values."""
    found = {}
    for kind, (domain, types) in KINDS.items():
        for type_ in types:
            values = [text for text, _ in rows(type_)] if type_ not in UNKNOWN else []
            for nullable, outside in RULES if values else ():
                name = f"{kind}, {type_}, {nullable}, {outside}"
                found[name] = (replace(domain, nullable=nullable, outside=outside), type_, values)
    texts = [f"decode('{''.join(f'{b:02X}' for b in t.encode())}'.unhex())" for t in TEXTS]
    found |= {name: (domain, "VARCHAR", texts) for name, domain in LABELS.items()}
    for nullable in (False, True):
        domain = Domain.boolean(nullable=nullable)
        found[f"boolean, {nullable}"] = (domain, "BOOLEAN", ["true", "false"])
    return found


CASES = cases()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A table with a column for each case, in DuckDB, and as a file.

    Columns of all types have their values one below the other, as often as there is room; NULL is
    the last.
    """
    con, path = duckdb.connect(), tmp_path_factory.mktemp("hostile") / "t.parquet"
    columns = {f"x{i}": of for i, of in enumerate(CASES.values())}
    count = max(len(values) for _, _, values in columns.values()) + 1
    by_type = {type_: values for _, type_, values in columns.values()}
    named = {type_: f"v{i}" for i, type_ in enumerate(by_type)}
    listed = [
        ", ".join(f"{values[row] if row < len(values) else 'NULL'}" for values in by_type.values())
        for row in range(count)
    ]
    con.execute(f"CREATE TABLE v ({', '.join(f'{n} {t}' for t, n in named.items())}, i INTEGER)")
    for i, row in enumerate(listed):
        con.execute(f"INSERT INTO v VALUES ({row}, {i})").fetchall()
    shown = [f"{named[type_]} AS {name}" for name, (_, type_, _) in columns.items()]
    con.execute(f"CREATE TABLE t AS SELECT i, {', '.join(shown)} FROM v").fetchall()
    con.execute(f"COPY t TO '{path}'").fetchall()
    domains = {name: domain for name, (domain, _, _) in columns.items()}
    schema = Schema({"t": {"i": Domain.integers(0, count - 1), **domains}})
    table = replace(read_table(DuckDBCatalog(con), ("t",), schema), enforced=frozenset())
    wanted = [(name, "i") for name in columns]
    return path, table, wanted, DuckDBEngine(con).marginals(table, wanted)


@pytest.mark.parametrize("ansi", ["false", pytest.param("true", marks=pytest.mark.long)])
def test_every_value_has_the_cell_that_it_has_in_duckdb(spark, hostile, ansi):
    path, table, wanted, expected = hostile
    tables = OneFile(spark, path)
    tables.session.conf.set("spark.sql.ansi.enabled", ansi)
    counting = SparkEngine(tables, partials="workers").prepared(table, wanted)
    counting.check()
    counted = counting.run()
    for (name, case), marginal in zip(CASES.items(), wanted, strict=True):
        np.testing.assert_array_equal(
            counted[marginal], expected[marginal], err_msg=f"{name} {case[0]}"
        )


FIRST = range(len(CASES) // 10 * 10, -1, -10)  # so that labels, the last, are in the sample


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", FIRST)
def test_sql_counts_what_workers_count(spark, hostile, first):
    path, table, wanted, expected = hostile
    some = wanted[first : first + 10]
    merged = {name: np.arange(table.cells(name)) % 3 for name, _ in some[::2]}
    counts = {
        way: SparkEngine(OneFile(spark, path), partials=way).marginals(table, some, merged)
        for way in ("sql", "workers")
    }
    for name, i in some:
        np.testing.assert_array_equal(counts["sql"][name, i], counts["workers"][name, i])
        if name not in merged:
            np.testing.assert_array_equal(counts["sql"][name, i], expected[name, i])
