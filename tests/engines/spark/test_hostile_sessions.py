"""Callers' settings, and rows made to hurt, with several tables: the same integers, and not a word.

Whatever the session that is passed is set to, and whatever rows hold, counts are those of DuckDB's
engine; and nothing of a row is on stderr, which Spark's Java and its workers write to, or in an
error.
"""

from __future__ import annotations

import os

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.spark import coding, engine
from dpsql.errors import ExecutionError
from tests.helpers.spark import STDERR
from tests.release.test_sums_of_neighbors import (
    check_equal_counts,
    check_same_frames,
    recorded_in,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.1)
TOLD = "Kassiopeia"
"""What rows hold that nobody else may read."""
ODD = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1e308, -1e308, 7.5, None]
BAD = [b"n", b"s", b"n\xff", b"\xc3", b"N", TOLD.encode() + b"\xfe", b"", b"n ", b"s\0"]


def texts(values):
    """Make texts of bytes, be they UTF-8 or not."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def rows(*, bad):
    """Make customers and their orders.

    Without `bad`, texts that are no UTF-8 are others, which stand at the same places in any order.
    """
    known = BAD if bad else [bytes(min(byte, ord("~")) for byte in text) for text in BAD]
    count = 60
    day = np.arange(count) * 7 % 400 - 30
    customers = {
        "id": pa.array([None if i % 11 == 5 else i // 2 * 2 for i in range(count)], pa.int32()),
        "region": texts([known[i % len(known)] for i in range(count)]),
        "balance": pa.array([ODD[i * 7 % len(ODD)] for i in range(count)], pa.float64()),
        "since": pa.array(np.datetime64("2023-12-31T23:30", "us") + day.astype("timedelta64[D]")),
    }
    orders = {
        "customer_id": pa.array([i * i % 70 if i % 13 else None for i in range(300)], pa.int32()),
        "kind": texts([known[i * 5 % len(known)] for i in range(300)]),
        "price": pa.array([ODD[i * 3 % len(ODD)] for i in range(300)], pa.float64()),
        "amount": pa.array([(i * 37 % 300) - 128 for i in range(300)], pa.int16()),
    }
    return {"customers": pa.table(customers), "orders": pa.table(orders)}


def schema(named):
    domain = dpsql.Domain
    c, o = named["customers"], named["orders"]
    regions = domain.labels(["n", "s", "n "], nullable=True)
    return dpsql.Schema(
        {
            c: {
                "region": regions,
                "balance": domain.bins([-1, 0, 1, 10], outside="clamp"),
                "since": domain.dates("2024-01-01", "2024-12-31", "month"),
            },
            o: {
                "kind": regions,
                "amount": domain.integers(0, 90, outside="clamp"),
            },
        },
        units={c: dpsql.Unit("id", 2), o: dpsql.Unit("customer_id", {o: 3, f"{o}, {o}": 9})},
        references={f"{o}.customer_id": f"{c}.id"},
    )


SCRIPT = {
    "one": "SELECT region, balance, month(since) AS m, COUNT(*) AS n FROM customers "
    "GROUP BY 1, 2, 3",
    "sums": "SELECT kind, SUM(amount) AS s, AVG(amount) AS a FROM orders GROUP BY 1",
    "joined": "SELECT c.region, o.price > 0 AS up, COUNT(*) AS n FROM orders o JOIN customers c "
    "ON o.customer_id = c.id WHERE o.price < o.amount OR o.kind = 'n' GROUP BY 1, 2",
    "most": "SELECT (SELECT MAX(o.amount) FROM orders o WHERE o.customer_id = c.id AND "
    "o.price > 0) > 70 AS k, COUNT(*) AS n FROM customers c GROUP BY 1",
    "first": "SELECT kind, COUNT(*) AS n FROM (SELECT * FROM orders QUALIFY row_number() OVER "
    "(PARTITION BY customer_id ORDER BY price DESC, amount) = 1) GROUP BY 1",
    "alike": "SELECT a.kind, b.price > a.price AS up, COUNT(*) AS n FROM orders a JOIN orders b "
    "ON a.customer_id = b.customer_id AND a.kind = b.kind GROUP BY 1, 2",
    "values": "SELECT LEAST(v, 5) AS v, LEAST(w, 5) AS w, COUNT(*) AS n FROM (SELECT "
    "COUNT(DISTINCT price) OVER (PARTITION BY customer_id) AS v, COUNT(DISTINCT kind) OVER "
    "(PARTITION BY customer_id, amount > 20) AS w FROM orders) GROUP BY 1, 2",
    "below": "SELECT k, COUNT(*) AS n FROM (SELECT kind AS k FROM orders WHERE price > 0 UNION ALL "
    "SELECT region FROM customers) GROUP BY 1",
    "same": "SELECT c.region, COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM orders o "
    "WHERE o.customer_id = c.id AND o.kind = c.region) GROUP BY 1",
}


def here(spark, tmp_path, *, bad=False):
    """Return a session, and the script, of rows in folders."""
    named = {}
    for name, table in rows(bad=bad).items():
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(table, folder / "0.parquet")
        named[name] = f"parquet.{folder}"
    session = dpsql.Session(spark, schema=schema(named), ledger=tmp_path / "a.ledger")
    return session, of(SCRIPT, tmp_path)


def of(script, folder):
    found = {}
    for name, sql in script.items():
        for table in ("customers", "orders"):
            for word in ("FROM", "JOIN"):
                sql = sql.replace(f"{word} {table}", f'{word} parquet."{folder}/{table}"')
        found[name] = sql
    return found


@pytest.fixture(scope="module")
def there():
    """What DuckDB counts of rows whose texts it can read."""
    con = duckdb.connect()
    for name, table in rows(bad=False).items():
        con.register("given", table)
        con.execute(f"CREATE TABLE {name} AS FROM given").fetchall()
    session = dpsql.Session(con, schema=schema({"customers": "customers", "orders": "orders"}))
    found = recorded_in(session, SCRIPT, budget=BUDGET)
    assert all(counts.any() for counts in found.counts.values())
    return found


HOSTILE = {
    "strict": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.storeAssignmentPolicy": "STRICT",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.shuffle.partitions": "1",
    },
    "lax": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Pacific/Kiritimati",
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.adaptive.enabled": "false",
    },
    "legacy": {
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        "spark.sql.legacy.integralDivide.returnBigint": "false",
        "spark.sql.legacy.charVarcharAsString": "true",
        "spark.sql.legacy.statisticalAggregate": "true",
        "spark.sql.legacy.followThreeValuedLogicInArrayExists": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.binaryAsString": "true",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    },
    "plain": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.parquet.enableVectorizedReader": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_settings_of_the_caller_change_no_integer(spark, tmp_path, there, name):
    before = {key: spark.conf.get(key, None) for key in HOSTILE[name]}
    for key, value in HOSTILE[name].items():
        spark.conf.set(key, value)
    try:
        session, script = here(spark, tmp_path)
        found = recorded_in(session, script, budget=BUDGET)
        assert {key: spark.conf.get(key) for key in HOSTILE[name]} == HOSTILE[name]
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    check_equal_counts(found, there)
    check_same_frames(found, there)


@pytest.mark.parametrize("how", [{}, {"unit": "u", "max_rows": 4}], ids=["rows", "units"])
def test_collations_merge_nothing(spark, tmp_path, how):
    """In a column in which Spark takes 'f' for 'F', they are two."""
    spark.sql("DROP TABLE IF EXISTS collated").collect()
    place = tmp_path / "collated"
    spark.sql(
        "CREATE TABLE collated (s STRING COLLATE UTF8_LCASE, u STRING COLLATE UNICODE_CI) "
        f"USING parquet LOCATION '{place}'"
    ).collect()
    try:
        values = ", ".join(f"('{'fF'[i % 5 < 2]}', '{'éÉe'[i % 3]}')" for i in range(30))
        spark.sql(f"INSERT INTO collated VALUES {values}").collect()
        assert spark.sql("SELECT count(*) FROM collated WHERE s = 'F'").first()[0] == 30
        session = dpsql.Session(
            spark,
            schema={"collated": {"s": dpsql.Domain.labels(["F", "f"])}},
            ledger=tmp_path / "a.ledger",
            **how,
        )
        sql = "SELECT s, COUNT(*) AS n FROM collated GROUP BY s ORDER BY s"
        found = recorded_in(session, {"q": sql}, budget=BUDGET).counts["s",]
        assert found.sum() == (12 if how else 30)  # of é, of É and of e
        assert how or found[:2].tolist() == [12, 18]
    finally:
        spark.sql("DROP TABLE collated").collect()


# ── Silence ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def said(spark, tmp_path_factory, capfd):
    """Return what is written to stderr and stdout, by this process and by Spark's, as it comes."""
    folder = spark.conf.get("spark.local.dir", "") or spark.sparkContext.getConf().get(
        "spark.local.dir"
    )
    path = os.path.join(folder, STDERR)
    assert os.path.samefile(path, stderr_of_java(spark))
    start = os.path.getsize(path)
    spark.sparkContext.setLogLevel("WARN")  # as it is for everybody who sets none
    capfd.readouterr()

    def read():
        with open(path, "rb") as file:
            file.seek(start)
            shown = capfd.readouterr()
            return file.read().decode(errors="replace") + shown.out + shown.err

    yield read
    spark.sparkContext.setLogLevel("OFF")


def stderr_of_java(spark):
    number = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    return os.readlink(f"/proc/{number}/fd/2")


def test_texts_that_are_no_utf8_fail_nothing_and_are_told_nobody(spark, tmp_path, there, said):
    """DuckDB can't read these texts, so it had others in their place that are in no cell either."""
    session, script = here(spark, tmp_path, bad=True)
    found = recorded_in(session, script, budget=BUDGET)
    check_equal_counts(found, there)
    assert TOLD not in said()


@pytest.mark.parametrize("way", ["sql", "workers"])
def test_what_fails_for_a_row_is_told_nobody(spark, tmp_path, monkeypatch, said, way):
    """Nothing that is written fails. If it did, Spark's Java would log it, unless told not to."""
    spark.sparkContext.setLogLevel("OFF")
    session, script = here(spark, tmp_path)
    failing = f"CAST(system.builtin.raise_error('{TOLD}') AS BIGINT)"
    monkeypatch.setattr(coding, "code_of", lambda *_, **__: failing)
    monkeypatch.setattr(engine, "FEW_BLOCKS", 7 if way == "sql" else 0)
    with pytest.raises(ExecutionError) as caught:
        session.query(script["one"], budget=BUDGET)
    assert TOLD not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert TOLD not in said()
