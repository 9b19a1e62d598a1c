"""Footers by which times are numbers: which bytes change, and that DuckDB reads numbers then."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.duckdb.footers import times_in

DAY = 86_400_000
TIMES = {
    "ms": pa.timestamp("ms"),
    "ms_utc": pa.timestamp("ms", "UTC"),
    "clock_ms": pa.time32("ms"),
    "clock": pa.time64("us"),
    "clock_ns": pa.time64("ns"),
}
OTHERS = {
    "us": pa.timestamp("us"),
    "us_utc": pa.timestamp("us", "UTC"),
    "ns": pa.timestamp("ns"),
    "day": pa.date32(),
    "i": pa.int32(),
    "u": pa.uint16(),
    "big": pa.int64(),
    "x": pa.float64(),
    "s": pa.string(),
    "raw": pa.binary(),
    "d": pa.decimal128(25, 3),
    "b": pa.bool_(),
    "none": pa.null(),
    "struct": pa.struct([("t", pa.timestamp("ms")), ("i", pa.int32())]),
    "list": pa.list_(pa.time32("ms")),
    "map": pa.map_(pa.string(), pa.timestamp("ms")),
}
KINDS = TIMES | OTHERS
OLDER = {"TIME_MILLIS", "TIME_MICROS", "TIMESTAMP_MILLIS"}
WRITTEN = {"row_group_size": [1, 3, 100], "version": ["1.0", "2.4", "2.6"]} | {
    "data_page_version": ["1.0", "2.0"],
    "use_dictionary": [True, False],
    "write_statistics": [True, False],
    "write_page_index": [True, False],
    "store_schema": [True, False],
    "compression": ["none", "snappy", "zstd"],
}


def column(rng, kind, rows):
    values = [rng.choice([None, rng.randrange(DAY)]) for _ in range(rows)]
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if pa.types.is_nested(kind):
        empty = {} if pa.types.is_struct(kind) else []
        return pa.array([None if v is None else empty for v in values], kind)
    if pa.types.is_boolean(kind) or pa.types.is_uint16(kind) or pa.types.is_decimal(kind):
        return pa.array([None if v is None else v % 2 for v in values]).cast(kind)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pa.array([None if v is None else str(v) for v in values]).cast(kind)
    if pa.types.is_floating(kind):
        return pa.array([None if v is None else v / 2 for v in values], kind)
    whole = 1000 if kind in {pa.timestamp("ns"), pa.time64("ns")} else 1  # microseconds, then
    return pa.array([None if v is None else v * whole for v in values], kind)


def by_arrow(seed):
    """Write some of the kinds, in some order, in some way."""
    rng, file = random.Random(seed), io.BytesIO()  # noqa: S311
    names = rng.sample(list(KINDS), rng.randint(1, len(KINDS)))
    how = {option: rng.choice(values) for option, values in WRITTEN.items()}
    rows = rng.choice([0, 1, 7])
    fields = [
        pa.field(name, KINDS[name], nullable=True, metadata={"k": "v" * rng.choice([1, 200])})
        for name in names
    ]
    columns = [column(rng, KINDS[name], rows) for name in names]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), file, **how)
    return file.getvalue()


def footer_of(file):
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def changed(file):
    begin, content = len(file) - 8 - len(footer_of(file)), bytearray(file)
    for place, byte in times_in(footer_of(file)).items():
        content[begin + place] = byte
    return bytes(content)


def run(statement):
    with duckdb.connect() as con:
        return con.execute(statement).fetchall()


def schema_of(file, path):
    path.write_bytes(file)
    fields = "name, type, converted_type, logical_type, duckdb_type, num_children, repetition_type"
    found = run(f"SELECT {fields} FROM parquet_schema('{path}')")
    return [dict(zip(fields.split(", "), row, strict=True)) for row in found]


def is_changed(column):
    converted, logical = str(column["converted_type"]), str(column["logical_type"])
    return "TimeType" in logical or "MilliSeconds" in logical or converted in OLDER


def check_numbered(file, path):
    """Check what DuckDB says of a file before and after: times are numbers, others as before."""
    after = changed(file)
    places = [place for place in range(len(file)) if file[place] != after[place]]
    assert len(after) == len(file)
    assert len(places) == len(times_in(footer_of(file)))
    times = 0
    for one, other in zip(schema_of(file, path), schema_of(after, path), strict=True):
        if one["num_children"]:  # what is within has other types
            one, other = ({**found, "duckdb_type": None} for found in (one, other))
        if not is_changed(one):
            assert one == other
            continue
        times += 1
        stored = one["type"]
        assert other["duckdb_type"] == {"INT32": "INTEGER", "INT64": "BIGINT"}[stored]
        for same in ("name", "type", "num_children", "repetition_type"):
            assert one[same] == other[same]
    assert times <= len(places) <= 2 * times
    raw = file[: len(file) - len(footer_of(file)) - 8]
    assert after.startswith(raw)
    return times


@pytest.mark.parametrize("seed", range(40))
def test_times_of_any_file_of_arrow_are_numbers_and_all_else_is_as_before(tmp_path, seed):
    check_numbered(by_arrow(seed), tmp_path / "x.parquet")


@pytest.mark.parametrize("name", TIMES)
def test_each_kind_of_time_is_the_number_that_arrow_wrote(tmp_path, name):
    path, kind = tmp_path / "x.parquet", TIMES[name]
    stored = pa.int32() if kind == pa.time32("ms") else pa.int64()
    values = pa.array([0, None, 1_000, 86_399_000], stored)
    for version in ("1.0", "2.6"):
        file = io.BytesIO()
        pq.write_table(pa.table({"t": values.view(kind)}), file, version=version)
        assert check_numbered(file.getvalue(), path) == 1
        path.write_bytes(changed(file.getvalue()))
        found = run(f"SELECT t FROM read_parquet('{path}')")
        assert [row[0] for row in found] == values.to_pylist()


def test_files_of_duckdb_and_polars(tmp_path):
    path = tmp_path / "x.parquet"
    when = datetime(2024, 5, 1, 7, 30)
    items = "TIMESTAMP '2024-05-01' AS t, TIME '07:30' AS clock, 1 AS i"
    for more in ("", ", TIMESTAMP_MS '2024-05-01' AS ms, CAST('07:30:00+02' AS TIMETZ) AS tz"):
        run(f"COPY (SELECT {items}{more}) TO '{path}'")
        assert check_numbered(path.read_bytes(), path) >= 1
    frame = pl.DataFrame(
        {"t": [when], "clock": [when.time()]},
        schema={"t": pl.Datetime("ms"), "clock": pl.Time},
    ).with_columns(utc=pl.lit(when.replace(tzinfo=UTC)).dt.cast_time_unit("ms"))
    frame.write_parquet(path)
    assert check_numbered(path.read_bytes(), path) == 3


# ── footers that nobody writes ─────────────────────────────────────────────────────────────

# A column `t` of INT64 is (1: i32 2, 3: optional, 4: "t"), then what is said of it.
COLUMN = b"\x15\x04\x25\x02\x18\x01t"
ROOT = b"\x48\x01r\x15\x02\x00"
BEFORE = b"\x15\x02\x19\x2c" + ROOT + COLUMN
CONVERTED, LOGICAL = b"\x25", b"\x6c"
MILLIS = b"\x8c\x11\x1c\x1c\x00\x00\x00"
"""A timestamp (8), adjusted to UTC (1), whose unit (2) is milliseconds (1)."""


def test_the_columns_of_a_footer_written_by_hand():
    said = CONVERTED + b"\x12" + b"\x4c" + MILLIS
    assert len(times_in(BEFORE + said + b"\x00\x00")) == 2
    assert not times_in(BEFORE + CONVERTED + b"\x14\x00\x00")


UNUSUAL = {
    "converted in two bytes": CONVERTED + b"\x92\x00",
    "a kind in the long form": LOGICAL + b"\x0c\x10" + MILLIS[1:],
    "two kinds": LOGICAL + MILLIS[:-1] + MILLIS,
    "a long number": CONVERTED + b"\x80" * 10 + b"\x00",
    "very long numbers": CONVERTED + b"\x80" * 200_000,
    "a map": b"\x1b\x00",
    "an unknown kind": b"\x1d\x00",
    "deep lists": b"\x19" + b"\x19" * 100,
    "deep structs": b"\x1c" * 10_000,
    "a text beyond the end": b"\x18\xff\xff\xff\xff\x0f",
    "many texts": b"\x19\xf8" + b"\xff" * 8 + b"\x0f",
    "many switches": b"\x19\xf1" + b"\xff" * 8 + b"\x0f",
    "many numbers of 8 bytes": b"\x19\xf7" + b"\xff" * 8 + b"\x0f",
    "nothing more": b"",
}


@pytest.mark.parametrize("said", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_footers_are_refused_at_once(said):
    with pytest.raises(ValueError, match="footer"):
        times_in(BEFORE + said)


def test_what_only_looks_like_a_time_is_left_as_it_is():
    for said in (
        LOGICAL + b"\x75\x02\x00",  # a time that is a number, no struct
        LOGICAL + b"\x8c\x11\x15\x02\x00\x00",  # a unit that is a number
        LOGICAL + b"\x8c\x11\x1c\x2c\x00\x00\x00\x00",  # microseconds
        b"\x65\x12",  # a number where a struct is
        b"\xb5\x12",  # of a field that nobody knows
    ):
        assert not times_in(BEFORE + said + b"\x00\x00"), said


@pytest.mark.parametrize("seed", range(20))
def test_damaged_footers_are_read_or_refused(seed):
    """No other error, and no byte beyond the columns."""
    rng, footer = random.Random(seed), bytearray(footer_of(by_arrow(seed)))  # noqa: S311
    for _ in range(30):
        damaged = bytearray(footer)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(min(len(damaged), 400))] = rng.randrange(256)
        try:
            found = times_in(bytes(damaged[: rng.choice([len(damaged), rng.randrange(400)])]))
        except ValueError:
            continue
        assert all(0 <= place < len(damaged) for place in found)
        assert set(found.values()) <= {34, 36, 156}
