"""What no row can make fail, no folder can count twice, and no setting of others can change."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.spark.sessions import PINNED, own_session
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema, Unit
from tests.engines.spark.test_sources import COLUMNS, ROWS, counted, described, folder

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning")]

COARSE = pa.table(
    {
        "sex": ["F", "M"],
        "ms": pa.array([0, 2**63 - 1], pa.timestamp("ms")),
        "us": pa.array([0, 2**63 - 1], pa.timestamp("us")),
        "wide": pa.array([1, 2], pa.decimal128(20, 2)),
    }
)
DAYS = Domain.dates("1970-01-01", "1970-12-31", "month")
REFUSED = {
    "ms": (DAYS, "in milliseconds"),
    "wide": (Domain.decimals("0.00", "9.99", "0.01"), "of 20 digits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_columns_of_which_a_value_could_fail_have_no_domains(spark, tmp_path, name):
    path = folder(tmp_path / "rows", COARSE)
    domain, reason = REFUSED[name]
    with pytest.raises(SchemaError, match=reason):
        described(
            SparkSource(spark),
            "parquet",
            str(path),
            schema=Schema({f"parquet.{path}": {name: domain}}),
        )


def test_they_do_not_keep_others_from_being_counted(spark, tmp_path):
    path = str(folder(tmp_path / "rows", COARSE))
    domains = {"sex": COLUMNS["sex"], "us": DAYS}
    source = SparkSource(spark)
    table = described(source, "parquet", path, schema=Schema({f"parquet.{path}": domains}))
    counts = counted(source, table, [("sex",), ("us",)])
    assert counts["sex",].tolist() == [1, 1, 0]
    assert counts["us",].tolist() == [1, *[0] * 11, 1]


def test_a_decimal_beyond_its_type_is_null_and_nobodys(spark, tmp_path):
    """Arrow writes what it is given: these numbers have more digits than the type."""
    units = [100, 2, 10**17, 7 * 10**17, 2]
    raw = np.array([(v, 0) for v in units], dtype=np.int64).tobytes()
    decimals = pa.Array.from_buffers(pa.decimal128(5, 2), 5, [None, pa.py_buffer(raw)])
    rows = pa.table({"sex": ["F", "M", "F", "F", "M"], "d": decimals, "u": decimals})
    path = str(folder(tmp_path / "rows", rows))
    domains = {"sex": COLUMNS["sex"], "d": Domain.decimals("0.00", "9.99", "0.01", nullable=True)}
    schema = Schema({f"parquet.{path}": domains})
    source = SparkSource(spark)
    for unit, total in ((None, 5), (Unit("u", 1), 2)):
        table = source.describe(("parquet", path), schema, unit)
        counts = counted(source, table, [("sex",), ("d",), ()])
        assert counts[()] == total
        assert counts["d",].sum() == total
        assert counts["d",][1000] == (2 if unit is None else 0)


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie", "metadata"])
@pytest.mark.parametrize("inside", ["", "sex=F"])
def test_a_folder_of_a_table_with_versions_is_not_all_its_files(spark, tmp_path, log, inside):
    root = tmp_path / "rows"
    path = folder(root, ROWS) if not inside else folder(root / "sex=F", ROWS)
    (root / log).mkdir()
    (root / log / "v1.metadata.json").write_text("{}")
    with pytest.raises(SchemaError):
        described(SparkSource(spark), "parquet", str(path))


def test_a_file_that_is_there_twice_by_a_link_is_refused(spark, tmp_path):
    path = folder(tmp_path / "rows", ROWS)
    os.link(path / "0.parquet", path / "1.parquet")
    with pytest.raises(SchemaError, match="twice") as caught:
        described(SparkSource(spark), "parquet", str(path))
    assert caught.value.hint


def test_a_file_that_is_written_with_its_time_and_size_is_noticed(spark, tmp_path):
    path = folder(tmp_path / "rows", ROWS)
    source = SparkSource(spark)
    table = described(source, "parquet", str(path))
    before = os.stat(path / "0.parquet")
    engine = source.engine()
    with engine.snapshot():
        counting = engine.prepared(table, [("sex",)])
        counting.check()
        content = (path / "0.parquet").read_bytes()
        (path / "0.parquet").write_bytes(content)
        os.utime(path / "0.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(StaleSchemaError):
            counting.run()


def test_a_name_is_no_variable(spark, tmp_path):
    spark.conf.set("spark.hostile", "age")
    names = ["${spark.hostile}", "a`b", "c0", "key", "U_ID0", "x.y"]
    rows = pa.table({**{name: ["F", "M"] for name in names}, "age": pa.array([1, 2], pa.int32())})
    path = str(folder(tmp_path / "rows", rows))
    schema = Schema({f"parquet.{path}": dict.fromkeys(names, COLUMNS["sex"])})
    source = SparkSource(spark)
    table = source.describe(("parquet", path), schema, Unit("age", 1))
    counts = counted(source, table, [(name,) for name in names])
    assert all(counts[name,].tolist() == [1, 1, 0] for name in names)


def test_settings_of_the_caller_change_nothing(spark, tmp_path):
    hostile = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Pacific/Kiritimati",
        "spark.sql.caseSensitive": "true",
        "spark.sql.parser.quotedRegexColumnNames": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.sources.useV1SourceList": "",
    }
    for name, value in hostile.items():
        spark.conf.set(name, value)
    try:
        session = own_session(spark)
        assert {name: session.conf.get(name) for name in PINNED} == PINNED
        path = folder(tmp_path / "rows", ROWS)
        source = SparkSource(spark)
        counts = counted(source, described(source, "parquet", str(path)))
        assert counts["sex",].tolist() == [10, 5, 5]
        assert all(spark.conf.get(name) == value for name, value in hostile.items())
    finally:
        for name in hostile:
            spark.conf.unset(name)


def test_settings_that_spark_was_started_with_change_nothing(spark):
    """Sessions begin with these: so VARCHAR(n) was a type that nothing could be done with."""
    hostile = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.preserveCharVarcharTypeInfo": "true",
        "spark.sql.optimizer.metadataOnly": "true",
        "spark.sql.parquet.filterPushdown": "true",
    }
    started = spark.sparkContext._jsc.sc().conf()
    spark.sql("CREATE TABLE bounded (id VARCHAR(9), g INT) USING parquet")
    spark.sql("INSERT INTO bounded VALUES ('a', 0), ('A', 0), ('a', 0), (NULL, 1)")
    for name, value in hostile.items():
        started.set(name, value)
    try:
        plain = spark.newSession()
        assert all(plain.conf.get(name) == value for name, value in hostile.items())
        session = own_session(spark)
        assert {name: session.conf.get(name) for name in PINNED} == PINNED
        source = SparkSource(spark)
        schema = Schema({"bounded": {"g": Domain.integers(0, 1)}})
        table = source.describe(("bounded",), schema, Unit("id", 1))
        assert counted(source, table, [("g",)])["g",].tolist() == [2, 0, 0]
    finally:
        for name in hostile:
            started.remove(name)
        spark.sql("DROP TABLE bounded")


def test_a_setting_that_cannot_be_changed_is_refused(spark, monkeypatch):
    monkeypatch.setitem(PINNED, "spark.sql.warehouse.dir", "elsewhere")
    with pytest.raises(SchemaError, match="warehouse") as caught:
        SparkSource(spark)
    assert "unset" in caught.value.hint


def test_what_was_cached_is_not_taken_for_the_files(spark, tmp_path):
    path = folder(tmp_path / "rows", ROWS)
    cached = spark.read.parquet(str(path)).cache()
    assert cached.count() == 20
    try:
        pq.write_table(ROWS, path / "late.parquet")
        source = SparkSource(spark)
        assert counted(source, described(source, "parquet", str(path)))[()] == 40
    finally:
        cached.unpersist()
