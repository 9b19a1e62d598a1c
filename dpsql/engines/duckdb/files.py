"""Parquet files as DuckDB reads them: which a pattern means, of what types, and by what call.

Guarantees:
    1. What is scanned are the files of a list (`frozen.py`), by their literal paths: no file that
       comes later is read.
    2. Each row of a file is one row of the scan, whatever it holds; its values are of the types of
       the columns, or NULL, and depend on the row alone: see `guarded`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpsql.engines.duckdb.definitions import ReadFiles
from dpsql.engines.duckdb.footers import PROTOCOL
from dpsql.engines.frozen import FrozenFiles, check_partitions, frozen_files, partitions_of
from dpsql.engines.source import RefusedViewError
from dpsql.errors import SchemaError
from dpsql.rows.types import RowType, row_type
from dpsql.schema.domain import UNREAD, ZONED
from dpsql.schema.names import folded, quoted_name, quoted_text

Fetch = Callable[[str], Sequence[tuple[object, ...]]]
"""Runs a statement that reads no rows of files."""

_LOGICAL = {False: "false", True: "true"}
PARQUET = frozenset({"read_parquet", "parquet_scan"})
"""Functions that read Parquet files."""
READERS = {
    "parquet": "read_parquet",
    "parq": "read_parquet",
    "csv": "read_csv",
    "tsv": "read_csv",
    "json": "read_json",
    "jsonl": "read_json",
    "ndjson": "read_json",
}
"""The end of a name → by which function DuckDB reads a file that stands in the place of a table."""
_LINES = dict.fromkeys(
    ["read_csv", "read_csv_auto", "sniff_csv"],
    ": of CSV, one row can make DuckDB fail for all, or take others out of the table",
)
_VERSIONS = {
    "delta_scan": "make it of the files of one version, as deltalake names them: CREATE VIEW … AS "
    "FROM read_parquet([…]), with deltalake.DeltaTable('…', version=…).file_uris() in brackets.",
    "iceberg_scan": "make it of the files of one snapshot, as pyiceberg names them: CREATE VIEW … "
    "AS FROM read_parquet([…]), with task.file.file_path.removeprefix('file://') of each task in "
    "table.scan(snapshot_id=…).plan_files().",
}
"""Functions that read versions of tables → how to read one."""
_SWITCHES = {
    "hive_partitioning": {"true", "false"},
    "hive_types_autocast": {"true", "false"},
    "union_by_name": {"true", "false"},
    "filename": {"false"},
    "file_row_number": {"false"},
}
"""Options that a definition may have. Names and types of columns are the same in all files."""
_ENDS = {
    "DATE": ("5877642-06-25 (BC)", "5881580-07-10"),
    "TIMESTAMP": ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"),
    ZONED: (
        "290309-12-22 (BC) 00:00:00+00",
        "294247-01-10 04:00:54.775806+00",
    ),
}
"""Type → the least and the largest value that is neither infinite nor none at all."""
_IN_MILLIS = " in milliseconds"
_TICKS = {_IN_MILLIS: 1_000_000, "": 1_000, "_NS": 1}
"""Unit of stored times, as their types say it → its nanoseconds."""
_MILLIS = (-9_223_372_022_400_000, 9_223_372_036_854_775)
"""The least and the largest millisecond within `_ENDS`."""
_DAY = 86_400_000_000_000
_MIDNIGHT = "CAST('00:00:00' AS TIME)"
_NUMBERS = {"INTEGER", "BIGINT"}
"""The types of times that are read as numbers."""
_NESTED = re.compile(r"STRUCT\(|MAP\(|UNION\(|VARIANT|GEOMETRY|.*\]$", re.DOTALL)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def list_files(fetch: Fetch, patterns: Sequence[str], *, partitioned: bool) -> FrozenFiles:
    """List what patterns mean now, as DuckDB reads them.

    Args:
        fetch: see `Fetch`.
        patterns: the paths of a definition.
        partitioned: whether DuckDB may make columns of folders' names.

    Raises:
        RefusedViewError: there is no file, or something that isn't a file of this machine, or
            one of them twice.
    """
    paths: list[str] = []
    for pattern in patterns:
        if "://" in pattern or not pattern:
            raise RefusedViewError(
                "it reads from another machine, where one state of all files can't be had",
                hint="copy the files to a folder here, and make the view of that.",
            )
        try:
            listed = fetch(f"SELECT file FROM system.main.glob({quoted_text(pattern)})")
        except SchemaError:
            raise RefusedViewError(
                "the connection can't look for its files",
                hint="files are read where enable_external_access is true.",
            ) from None
        if not listed:
            raise RefusedViewError(
                "it reads no file now by one of its paths",
                hint="was it removed, or does its path begin elsewhere than where this process "
                "runs?",
            )
        paths += [str(row[0]) for row in listed]
    frozen = frozen_files(paths)
    if partitioned:
        check_partitions(paths, frozen)
    return frozen


# ── how they are read ──────────────────────────────────────────────────────────────────────


def check_options(read: ReadFiles) -> None:
    """Check the function and the options of a definition.

    Raises:
        RefusedViewError: they may be read, but not here.
    """
    if read.function not in PARQUET:
        why = f"it reads what {read.function} gives{_LINES.get(read.function, '')}"
        raise RefusedViewError(why, hint=_VERSIONS.get(read.function))
    for name, value in read.options.items():
        if value not in _SWITCHES.get(name, ()):
            raise RefusedViewError(
                f"it reads files with {name[:40]} = {value[:40]}",
                hint=f"leave {name[:40]} out" + _allowed(name) + ".",
            )


def _allowed(name: str) -> str:
    """Say what an option may be; or which ones there are."""
    values = _SWITCHES.get(name, ())
    if values:
        return f", or write {name} = {' or '.join(values)}"
    return f"; {', '.join(_SWITCHES)} can be read"


def partition_types(fetch: Fetch, frozen: FrozenFiles) -> dict[str, RowType]:
    """Return the types other than text that DuckDB gives to partitions, by their folders' names."""
    described = fetch(f"DESCRIBE SELECT * FROM {scan_of(frozen, hive=True, autocast=True)}")
    keys = set(map(folded, partitions_of(frozen)))
    types = {str(name): str(type_) for name, type_, *_ in described if folded(str(name)) in keys}
    return {name: row_type(type_) for name, type_ in types.items() if type_ != "VARCHAR"}


def scan_of(
    frozen: FrozenFiles, *, hive: bool, autocast: bool = False, numbers: bool = False
) -> str:
    """Write the call that reads files of a list.

    What isn't UTF-8 in a text is replaced: DuckDB would fail, for one byte of one row.

    Args:
        frozen: the files.
        hive: whether the names of folders are columns.
        autocast: whether these may have another type than text.
        numbers: whether times are the numbers that they are stored as; see `numbered.py`.
    """
    return (
        f"system.main.read_parquet({_listed(frozen, numbers=numbers)}, "
        f"hive_partitioning := {_LOGICAL[hive]}, "
        f"hive_types_autocast := {_LOGICAL[autocast]}, "
        "union_by_name := false, utf8_validation := 'replace', filename := false, "
        "file_row_number := false)"
    )


def _listed(frozen: FrozenFiles, *, numbers: bool = False) -> str:
    before = f"{PROTOCOL}://" if numbers else ""
    paths = ", ".join(quoted_text(before + path) for path in frozen.paths)
    return f"system.main.list_value({paths})"


# ── their columns ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of files, which are the same in each."""

    types: Mapping[str, str]
    """Their types; one with which nothing can be done is marked, see `UNREAD`."""
    ticks: Mapping[str, int] = field(default_factory=dict)
    """Times that are read as numbers → how many nanoseconds one more is."""

    @property
    def named_by(self) -> dict[str, str]:
        """The columns as accounts know them: times that are numbers weren't read at first."""
        return {name: self._first(name, type_) for name, type_ in self.types.items()}

    def _first(self, name: str, type_: str) -> str:
        ticks = self.ticks.get(name)
        (unit,) = (unit for unit, tick in _TICKS.items() if tick == ticks) if ticks else ("",)
        return f"{type_}{unit}{UNREAD}" if ticks else type_


def columns_of(fetch: Fetch, frozen: FrozenFiles, *, hive: bool) -> FileColumns:
    """Return the columns of files and their types, which are the same in each.

    Times in milliseconds may be beyond what DuckDB's have, and then it fails for one row, also
    where it looks at their statistics only; so it does for times of day that are beyond a day. So
    these are read as numbers; but times of day with a time zone can't be used anyway.

    Raises:
        RefusedViewError: they aren't the same, or a file isn't Parquet.
    """
    described = _described(fetch, scan_of(frozen, hive=hive))
    units = {
        column[0]: _IN_MILLIS if _is_in_millis(column) else ""
        for column in _top(_schema(fetch, frozen))
    }
    types, ticks = {}, {}
    for name, type_ in described.items():
        unit = units.get(name, "")
        if type_ in {"TIME", "TIME_NS"} or (type_ in {"TIMESTAMP", ZONED} and unit):
            types[name] = type_.removesuffix("_NS")
            ticks[name] = _TICKS["_NS" if type_ == "TIME_NS" else unit]
        else:
            unread = unit or type_.startswith("TIME WITH")
            types[name] = f"{type_}{unit}{UNREAD}" if unread else type_
    return FileColumns(types, ticks)


def check_numbers(fetch: Fetch, frozen: FrozenFiles, columns: FileColumns, *, hive: bool) -> None:
    """Check that of each file DuckDB reads times as numbers, and other columns as they are.

    Raises:
        RefusedViewError: it doesn't.
    """
    try:
        _schema(fetch, frozen, numbers=True)  # of all files the same
        described = _described(fetch, scan_of(frozen, hive=hive, numbers=True))
    except RefusedViewError:
        described = {}
    wanted = {name: _NUMBERS if name in columns.ticks else {t} for name, t in columns.types.items()}
    if list(described) != list(wanted) or not all(
        described[name] in wanted[name] for name, type_ in columns.types.items() if is_read(type_)
    ):
        raise RefusedViewError(
            "its files have times, and say so in another way than files usually do",
            hint="write it once more, as DuckDB does: COPY (FROM '…') TO '….parquet';",
        )


def _described(fetch: Fetch, scan: str) -> dict[str, str]:
    """Return the columns of a scan, and their types."""
    try:
        return {
            str(name): str(type_) for name, type_, *_ in fetch(f"DESCRIBE SELECT * FROM {scan}")
        }
    except SchemaError:
        raise RefusedViewError("DuckDB can't read its files as Parquet") from None


def _schema(
    fetch: Fetch, frozen: FrozenFiles, *, numbers: bool = False
) -> Sequence[tuple[Any, ...]]:
    """Return what each of the files says of its columns.

    Raises:
        RefusedViewError: they say several things, or one isn't Parquet.
    """
    try:
        rows = fetch(
            "SELECT file_name, name, type, type_length, num_children, converted_type, scale, "
            "precision, logical_type, duckdb_type "
            f"FROM system.main.parquet_schema({_listed(frozen, numbers=numbers)})"
        )
    except SchemaError:
        raise RefusedViewError("DuckDB can't read its files as Parquet") from None
    columns: dict[object, list[tuple[Any, ...]]] = {}
    for file, *column in rows:
        columns.setdefault(file, []).append(tuple(column))
    schemas = {repr(column[1:]) for column in columns.values()}  # the first is the file itself
    if len(schemas) != 1 or len(columns) != len(frozen.files):
        raise RefusedViewError(
            "its files don't have the same columns, in the same order and of the same types",
            hint="SELECT file_name, name, duckdb_type FROM parquet_schema('…'); shows them.",
        )
    return next(iter(columns.values()))[1:]


def _top(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Return the columns that aren't nested in others."""
    within = 0
    for row in rows:
        if not within:
            yield row
        within += (row[3] or 0) - (within > 0)


def _is_in_millis(column: tuple[Any, ...]) -> bool:
    *_, converted, _, _, logical, _ = column
    return "MILLI" in f"{converted}" or "MilliSeconds" in f"{logical}"


def is_read(type_: str) -> bool:
    """Whether a column of some type may stand in a scan.

    Those that nothing is ever done with may not, because DuckDB looks at what a file says of a
    column, and may fail there, also where the column is dropped again: neither times of day with a
    time zone, nor what may have a time in it.
    """
    return not type_.endswith(UNREAD) and not _NESTED.match(type_)


def guarded(scan: str, columns: FileColumns) -> str:
    """Write a relation whose values are of their columns' types.

    In a table they are, by way of DuckDB, but for some DECIMALs, see `rows/typed.py`; what stands
    in a file may be any bits. For a date or a
    time that there isn't, DuckDB's casts fail, and take the whole database along. Such a value is
    NULL here; so is a DECIMAL with more digits than its type has.

    Each column stands in a TRY, which changes no value: DuckDB takes what a file says of its
    columns' least and largest values for true, and decides by it which comparisons hold for all
    rows, and which parts of a file are read. Parquet leaves NaN out of these, which to SQL is the
    largest number. So without NaN rows moving, one other row more or fewer would decide in which
    cell all of them are; and where a file says what is not so, no clamp would hold. Of what stands
    in a TRY nothing is taken from there.
    """
    items = []
    for name, type_ in columns.types.items():
        if not is_read(type_):
            continue
        column, ends = f"TRY({quoted_name(name)})", _ends(type_)
        if name in columns.ticks:
            column = _time_of(column, type_, columns.ticks[name])
        elif ends is not None:
            low, high = (f"CAST({quoted_text(end)} AS {type_})" for end in ends)
            column = f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {column} END"
        items.append(f"{column} AS {quoted_name(name)}")
    return f"(SELECT {', '.join(items)} FROM {scan})"


def _time_of(number: str, type_: str, tick: int) -> str:
    """Write the time that a number stands for; NULL of any that is beyond the type.

    What is computed of it is of one within these bounds, and can't fail there. Nanoseconds are
    rounded, as a cast of DuckDB's does. The end of a day is a TIME, too, but no sum is.
    """
    low, high = (0, _DAY // tick) if type_ == "TIME" else _MILLIS
    within = f"CASE WHEN {number} BETWEEN {low} AND {high} THEN CAST({number} AS BIGINT) END"
    if type_ == "TIMESTAMP":
        return f"system.main.make_timestamp_ms({within})"
    micros = f"(({within}) + 500) // 1000" if tick == 1 else f"({within}) * {tick // 1000}"
    if type_ == ZONED:
        return f"system.main.make_timestamptz({micros})"
    last = _DAY // 1000
    return (
        f"CASE WHEN {micros} < {last} THEN {_MIDNIGHT} + system.main.to_microseconds({micros}) "
        f"WHEN {micros} = {last} THEN CAST('24:00:00' AS TIME) END"
    )


def _ends(type_: str) -> tuple[str, str] | None:
    decimal = _DECIMAL.fullmatch(type_)
    if decimal is None:
        return _ENDS.get(type_)
    width, scale = row_type(type_).width, int(decimal[2])
    digits = "9" * width
    largest = f"{digits[: width - scale] or '0'}.{digits[:scale]}" if scale else digits
    return f"-{largest}", largest
