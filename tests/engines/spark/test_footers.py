"""Columns that are stored as another type than their table says: read whatever they hold, or not.

Spark's reader makes of some what it needs, and fails for others as soon as a value isn't NULL.
"""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.spark.files import of_table
from dpsql.engines.spark.sessions import own_session
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LEAST, MOST = -(2**63), 2**63 - 1
DAYS = pa.array([-(2**31), 0, 2**31 - 1], pa.int32()).cast(pa.date32())
SMALL = [Decimal("-999.99"), Decimal("0.00"), Decimal("999.99")]
STORED = {
    "yes": pa.array([True, False]),
    "small": pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
    "byte": pa.array([-128, 127], pa.int8()),
    "unsigned_byte": pa.array([0, 255], pa.uint8()),
    "unsigned_small": pa.array([0, 2**16 - 1], pa.uint16()),
    "large": pa.array([LEAST, 0, MOST]),
    "unsigned": pa.array([0, 2**32 - 1], pa.uint32()),
    "unsigned_large": pa.array([0, 2**64 - 1], pa.uint64()),
    "float": pa.array([float("nan"), -0.0, 3e38], pa.float32()),
    "double": pa.array([float("nan"), float("-inf"), 1e308]),
    "text": pa.array(["", "7", "ü"]),
    "bytes": pa.array([b"", b"\xff" * 20]),
    "four": pa.array([b"\xff\x00\xff\x80"], pa.binary(4)),
    "sixteen": pa.array([b"\xff" * 16], pa.binary(16)),
    "days": DAYS,
    "us": pa.array([LEAST, 0, MOST], pa.timestamp("us")),
    "us_utc": pa.array([LEAST, 0, MOST], pa.timestamp("us", "UTC")),
    "ms": pa.array([LEAST, 0, MOST], pa.timestamp("ms")),
    "ns": pa.array([LEAST, 0, MOST], pa.timestamp("ns")),
    "hour": pa.array([0, 86_399_999_999], pa.time64("us")),
    "decimal": pa.array(SMALL, pa.decimal128(5, 2)),
    "longer": pa.array([*SMALL, Decimal("9" * 15 + ".99")], pa.decimal128(17, 2)),
    "list": pa.array([[1], []]),
    "struct": pa.array([{"x": 1}]),
    "none": pa.nulls(1),
}
"""Columns of Parquet files, with the ends of their types."""
TYPES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY",
    "DATE", "TIMESTAMP_NTZ", "TIMESTAMP", "DECIMAL(5,2)", "DECIMAL(7,2)", "DECIMAL(7,4)",
    "DECIMAL(5,4)", "DECIMAL(17,2)", "DECIMAL(18,2)", "DECIMAL(10,0)", "DECIMAL(12,2)",
    "DECIMAL(18,0)",
)  # fmt: skip


UNREAD = {"unsigned_large", "list", "struct"}
"""Those of which nothing is read, as whatever."""
NAMES = [f"x{i}" for i in range(len(TYPES))]
"""As many columns with the same values, each to be read as one of the types."""


def binary_decimals(spark, path):
    """Write DECIMALs of few digits as bytes, which Arrow doesn't."""
    parquet, columns = spark._jvm.org.apache.parquet, ""
    for name in NAMES:
        columns += f"optional binary {name} (DECIMAL(5,2)); "
    of = parquet.schema.MessageTypeParser.parseMessageType(f"message m {{ {columns} }}")
    file = spark._jvm.org.apache.hadoop.fs.Path(str(path))
    writer = parquet.hadoop.example.ExampleParquetWriter.builder(file).withType(of).build()
    for value in (b"\x01", None, b"\x7f" * 9):
        row = parquet.example.data.simple.SimpleGroup(of)
        for name in NAMES if value is not None else ():
            row.add(name, parquet.io.api.Binary.fromConstantByteArray(value))
        writer.write(row)
    writer.close()


def written(spark, path, name):
    if name == "as_bytes":
        return binary_decimals(spark, path)
    rows = pa.table(dict.fromkeys(NAMES, STORED["ns" if name == "int96" else name]))
    return pq.write_table(rows, path, use_deprecated_int96_timestamps=name == "int96")


@pytest.mark.parametrize("name", [*STORED, "int96", "as_bytes"])
def test_what_is_not_named_is_read_whatever_it_holds(spark, tmp_path, name):
    from pyspark.sql import functions

    path, session = tmp_path / "0.parquet", own_session(spark)
    written(spark, path, name)
    listed = ", ".join(f"{of} {type_}" for of, type_ in zip(NAMES, TYPES, strict=True))
    session.sql(f"CREATE TABLE held ({listed}) USING parquet LOCATION '{tmp_path}'")
    schema = session.table("held").schema
    files = of_table(session, "held", str(tmp_path), schema, partitioned=False)
    session.sql("DROP TABLE held")
    read = [of for of in NAMES if of not in files.unread]
    assert bool(read) != (name in UNREAD)
    rows = files.rows(session).select(*map(functions.hash, read), functions.lit(1))
    assert len(rows.collect()) == pq.read_metadata(path).num_rows


PLAIN = {
    "yes": "BOOLEAN", "small": "INT", "byte": "TINYINT", "large": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "text": "STRING", "bytes": "BINARY", "days": "DATE", "us": "TIMESTAMP_NTZ",
    "us_utc": "TIMESTAMP", "decimal": "DECIMAL(5,2)", "longer": "DECIMAL(17,2)",
}  # fmt: skip


def test_what_is_stored_as_it_is_said_is_read(spark, tmp_path):
    path = tmp_path / "0.parquet"
    columns = {name: pa.concat_arrays([STORED[name][:1], pa.nulls(1, STORED[name].type)])
               for name in PLAIN}  # fmt: skip
    pq.write_table(pa.table(columns), path)
    listed = ", ".join(f"{name} {PLAIN[name]}" for name in columns)
    session = own_session(spark)
    session.sql(f"CREATE TABLE plain ({listed}) USING parquet LOCATION '{tmp_path}'")
    schema = session.table("plain").schema
    files = of_table(session, "plain", str(tmp_path), schema, partitioned=False)
    session.sql("DROP TABLE plain")
    assert not files.unread
    assert files.rows(session).count() == 2


def test_a_day_that_is_too_many_microseconds_makes_nothing_fail(spark, tmp_path):
    """One row with a day in the year 300000 failed the release, and told that it is there."""
    con = duckdb.connect()
    con.execute(
        "COPY (SELECT DATE '300000-01-01' AS d, 1 AS g) TO $to", {"to": f"{tmp_path}/0.parquet"}
    )
    spark.sql(f"CREATE TABLE far (d TIMESTAMP_NTZ, g INT) USING parquet LOCATION '{tmp_path}'")
    try:
        days = Domain.dates("1970-01-01", "1970-12-31", "month")
        with pytest.raises(SchemaError, match="stored as INT32 DATE"):
            SparkSource(spark).describe(("far",), Schema({"far": {"d": days}}))
        table = SparkSource(spark).describe(("far",), Schema({"far": {"g": Domain.integers(0, 1)}}))
        counting = SparkSource(spark).engine().prepared(table, [("g",)])
        counting.check()
        assert counting.run()["g",].tolist() == [0, 1, 0]
    finally:
        spark.sql("DROP TABLE far")
