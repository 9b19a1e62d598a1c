"""The files that a table is made of, pinned: each is read once, and none that came later.

Trusted.

Guarantees:
    1. The rows that are counted are those of one state of the table, each once.
    2. No value of a row makes reading them fail.
    3. `check_no_log` lets no folder pass in which, above which, or between which and whose files
       is a log that can be seen.

    *Proof.* The files are listed once. Of a table of a lake they are those of one version, which
    `lakes.py` promises to be its rows. Of any other table they are those of the folder. On this
    machine `frozen.py` tells whether they are still the same, and that none is there twice, by
    a link; elsewhere their sizes and times do. (A log that is read on this machine is of the table
    that Spark reads if its files are there, too, with their sizes and times; executors on other
    machines, which tell these, must find the same.) After the rows were read those of a folder are
    listed again, and if any came, went or was written, nothing is returned; those of a version are
    never written again, by the format. Spark gets these files by their full names, each once:
    without a pattern among them, and without a name that it leaves out, it reads these.
    It reads each row group in one task, whose rows count once, however often the task is begun. A
    folder in which such a log is, or above which one is, is refused where that can be seen: it has
    files, too, that are no more of its table. For 2 see `hazards`: columns that it names are not
    read, and a DECIMAL beyond its type is NULL before anything is done with it. ∎

    In a folder a compaction may have written its new file, and not removed the old ones, at the
    first and at the last look: then rows count twice. Nothing tells that from rows that are there
    twice, so nobody may rewrite files of a folder meanwhile. A table with versions has no such
    time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from dpsql.engines import delta, iceberg
from dpsql.engines.frozen import FrozenFiles, frozen_files
from dpsql.engines.lakes import LakeVersion, VersionOf, folded_by_spark, on_machine, shown
from dpsql.engines.source import RefusedViewError
from dpsql.engines.spark.sessions import (
    LOCAL,
    SeenFile,
    are_here,
    is_connected,
    is_here_alone,
    own_session,
    path_of,
    quiet,
)
from dpsql.engines.spark.sql.text import call, constant, quoted, type_of
from dpsql.errors import SchemaError, StaleSchemaError, printable
from dpsql.schema.names import capitals

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnSchema
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_LOGS = {"delta": delta.LOG, "": ".hoodie", "iceberg": f"metadata/{iceberg.METADATA}"}
"""Kind of a table (none if it can't be asked) → what in its folder says which files are of it."""


def check_no_log(
    session: SparkSession, place: str, files: Sequence[SeenFile], frozen: FrozenFiles | None
) -> None:
    """Refuse a folder of which something else says which of its files are of a table.

    Args:
        session: one of our own.
        place: the folder.
        files: what it has.
        frozen: the same, if they are on this machine.

    Raises:
        SchemaError: a log is in it, above it, or between it and one of its files.
    """
    if frozen is not None:
        folders = {above for path in frozen.paths for above in Path(path).parents}
        logged = {kind: str(folder) for folder in folders for kind in _logs(folder)}
    else:
        logged = dict(_logs_elsewhere(session, _folders(place, files)))
    for kind, folder in logged.items():
        raise SchemaError(
            f"{shown(place)} is a part of a table with versions, of which not all files there are.",
            hint=f'name that table: FROM {kind}."{shown(folder)}".'
            if kind
            else "copy its rows to a table in Parquet.",
        )


def _logs(folder: Path) -> list[str]:
    """Name the kinds of tables whose folder it is."""
    return [kind for kind, log in _LOGS.items() if any(folder.glob(log))]


def _logs_elsewhere(session: SparkSession, folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name kinds of tables, with the folders that have their logs."""
    names = {log.partition("/")[0]: kind for kind, log in _LOGS.items()}
    for folder in folders:
        with quiet(), suppress(Exception):  # where nothing is, Spark fails
            files = session.read.format("binaryFile").load(
                f"{folder}/{{{','.join(_LOGS.values())}}}"
            )
            for (path,) in files.select("path").limit(1).collect():
                table, name = path.rsplit("/", 2)[:2]
                yield names[name], path_of(table)


def _folders(place: str, files: Sequence[SeenFile]) -> list[str]:
    """Name a folder elsewhere, those above it, and by patterns those between it and its files."""
    root, names = _steps(place)
    above = ["/".join([root, *names[:i]]) for i in range(len(names) + 1)]
    deepest = max(len(_steps(file.path)[1]) for file in files) - len(names)
    return [*above, *(above[-1] + "/*" * i for i in range(1, deepest))]


def _steps(place: str) -> tuple[str, list[str]]:
    """Return where a place is, such as s3://bucket, and the names on the way to it from there."""
    root = re.match(r"(\w[\w+.-]*:(//[^/]*)?)?", place)
    start = root.end() if root else 0
    return place[:start], [name for name in place[start:].split("/") if name]


LAKES: Mapping[str, VersionOf] = {"delta": delta.version_of, "iceberg": iceberg.version_of}
"""Kinds of tables with versions."""
KINDS = ("parquet", *LAKES)
_PATTERN = re.compile(r"[*?{}\[\]\\]")
_LEFT_OUT = re.compile(r"[_.][^/]*|[^/]*:[^/]*|[^/]*\._COPYING_")
"""Names of files that Spark doesn't read, or fails for, also where it is told to read them."""
_WRITTEN = call("unix_millis", "modificationTime")


@dataclass(frozen=True, slots=True)
class PinnedFiles:
    """The files of one state of a table.

    Args:
        files: all of them.
        schema: the columns of the table.
        version: what the state is called; empty of a folder.
        base: the folder whose folders' names tell columns; empty if they tell none.
        unread: the columns that are not read, with what their types are called for that.
        frozen: of files on this machine, what tells whether they are the same.
        uid: the table's own name for itself.
        roots: the folders on this machine whose account they are in.
    """

    files: tuple[SeenFile, ...]
    schema: StructType
    version: str = ""
    base: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    frozen: FrozenFiles | None = None
    uid: str = ""
    roots: tuple[Path, ...] = ()

    @property
    def state(self) -> str:
        """A hash of which files there are, and when they were written."""
        if self.frozen is not None:
            return self.frozen.state
        return hashlib.sha256(repr(self.files).encode()).hexdigest()

    @property
    def types(self) -> dict[str, str]:
        """Column → its type; that of one that isn't read is none that anything can be done with."""
        return {of.name: self.unread.get(of.name, type_of(of)) for of in self.schema.fields}

    def rows(self, session: SparkSession) -> DataFrame:
        """Return all rows; reads none."""
        types, schema = self.types, _nullable(self.schema)
        shown = [_within(name, types[name]) for name in types if name not in self.unread]
        if not self.files:
            return session.createDataFrame([], schema).selectExpr(*shown)
        # No other plan has this option, so nothing that somebody cached is taken for the files.
        reader = session.read.schema(schema).option("dpsql", str(uuid4()))
        if self.base:
            reader = reader.option("basePath", self.base)
        return reader.parquet(*(file.path for file in self.files)).selectExpr(*shown)

    def check_unchanged(self, now: PinnedFiles) -> None:
        """Check that the files are as they were.

        Args:
            now: what is there now.

        Raises:
            StaleSchemaError: they aren't.
        """
        if self.frozen is not None:
            self.frozen.check()
        if (now.uid, now.version, now.files) != (self.uid, self.version, self.files):
            raise StaleSchemaError(
                "Files of the table were added, removed or written since they were listed.",
                hint="ask again when nobody is writing to them.",
            )


def _nullable(schema: StructType) -> StructType:
    """Return the columns as they may be: nothing sees to it that a file has no NULL."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in schema.fields])


def _within(name: str, type_: str) -> str:
    """Write a column, of which a DECIMAL is NULL where it has more digits than its type."""
    column, digits = quoted(name), digits_of(type_)
    if digits is None:
        return column
    width, scale = digits
    most = f"{'9' * (width - scale) or '0'}.{'9' * scale}" if scale else "9" * width
    ends = (constant(end, type_) for end in (f"-{most}", most))
    return f"CASE WHEN {column} BETWEEN {' AND '.join(ends)} THEN {column} END AS {column}"


def pinned(session: SparkSession, kind: str, place: str, version: str | None = None) -> PinnedFiles:
    """List the files of a folder, or of a version of a table.

    Args:
        session: lists and reads files.
        kind: one of `KINDS`.
        place: the folder.
        version: the version of a table of a lake; the last one if there is none.

    Raises:
        SchemaError: it can't be read, or not from its files alone.
    """
    if kind in LAKES:
        return _of_lake(session, LAKES[kind](place, version), place)
    if version is not None:
        raise SchemaError("A folder has no versions.", hint="leave version out.")
    files, frozen = _listed(session, [place])
    check_no_log(session, place, files, frozen)
    schema: StructType | None = None
    with quiet():
        try:
            reader = session.read.option("mergeSchema", "true")
            schema = reader.parquet(*(file.path for file in files)).schema
        except Exception:
            schema = None
    if schema is None:
        raise _unreadable(place)
    unread = _unread(schema, None if frozen is None else frozen.paths, place)
    return PinnedFiles(files, schema, unread=unread, frozen=frozen, roots=_roots(frozen))


def _of_lake(session: SparkSession, lake: LakeVersion, place: str) -> PinnedFiles:
    """Take the files of a version: those on this machine are looked at again, as any others."""
    _check_names(lake.files)
    schema = _schema(lake.columns)
    here = [path for path in map(on_machine, lake.files) if path]
    if here and not is_here_alone(session) and _listed(session, here)[1] is None:
        raise _others(place)
    known = lake.looked_into or len(here) == len(lake.files)
    unread = _unread(schema, here if known else None, place)
    files, frozen = tuple(map(SeenFile, lake.files)), None
    if here and len(here) == len(files):
        frozen = _frozen(here, place)
        files = tuple(SeenFile(LOCAL + path) for path in frozen.paths)
    _check_read(files)
    return PinnedFiles(
        files,
        schema,
        lake.version,
        unread={**unread, **lake.unread},
        frozen=frozen,
        uid=lake.uid,
        roots=lake.roots,
    )


def of_table(
    session: SparkSession, name: str, location: str, schema: StructType, partitioned: bool
) -> PinnedFiles:
    """List the files of a catalog's table that is stored as Parquet.

    A session keeps what it once found of a table, so a new one is asked.

    Raises:
        SchemaError: it can't be read.
    """
    location = unquote(location)
    paths: list[str] | None = None
    with quiet():
        try:
            # What somebody cached has no files, and no plan with this option.
            reader = own_session(session).read.option("dpsql", str(uuid4()))
            paths = [unquote(path) for path in reader.table(name).inputFiles()]
        except Exception:
            paths = None
    if paths is None:
        raise _unreadable(name)
    if not paths:
        return PinnedFiles((), schema)
    files, frozen = _listed(session, paths)
    check_no_log(session, location, files, frozen)
    base = LOCAL + os.path.realpath(path_of(location)) if frozen is not None else location
    if partitioned and not all(_plain(f.path).startswith(_plain(base) + "/") for f in files):
        raise SchemaError("Partitions of the table are not in its folder.", hint="copy them there.")
    unread = _unread(schema, None if frozen is None else frozen.paths, name)
    named = base if partitioned else ""
    return PinnedFiles(files, schema, "", named, unread, frozen, roots=_roots(frozen))


def _schema(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def _roots(frozen: FrozenFiles | None) -> tuple[Path, ...]:
    return () if frozen is None else frozen.roots


def _listed(
    session: SparkSession, places: Sequence[str]
) -> tuple[tuple[SeenFile, ...], FrozenFiles | None]:
    """List files, or those of folders, with what tells whether they change; reads none of them.

    Raises:
        SchemaError: they can't be listed, or a name in it is a pattern.
    """
    _check_names(places)
    collected: list[Any] | None = None
    with quiet():
        try:
            reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
            files = reader.load(list(places)).selectExpr("path", "length", _WRITTEN)
            collected = files.collect()
        except Exception:
            collected = None
    if not collected:
        raise _unreadable(places[0])
    listed = sorted({SeenFile(*row) for row in collected})
    _check_names([file.path for file in listed])
    if not all(file.path.startswith(LOCAL) for file in listed):
        return tuple(listed), None
    here = [file._replace(path=path_of(file.path)) for file in listed]
    if not are_here(session, here):
        if not is_connected(session):  # whose names were listed here, and which are read elsewhere
            raise _others(places[0])
        return tuple(listed), None
    frozen = _frozen([file.path for file in here], places[0])
    by_path = zip(frozen.paths, listed, strict=True)
    found_here = tuple(file._replace(path=LOCAL + path) for path, file in by_path)
    _check_read(found_here)  # links may lead to such names
    return found_here, frozen


def _frozen(paths: Sequence[str], place: str) -> FrozenFiles:
    refused: RefusedViewError | None = None
    try:
        return frozen_files(paths)
    except RefusedViewError as error:
        refused = error
    raise SchemaError(
        f"{shown(place)} can't be released from: {refused.message}.",
        hint=refused.hint or "are its files there?",
    )


def _unread(schema: StructType, paths: Sequence[str] | None, place: str) -> dict[str, str]:
    """Name the columns that can't be read whatever a row holds."""
    try:
        return hazards(schema, paths)
    except (OSError, ValueError):
        raise _unreadable(place) from None


def _check_names(paths: Sequence[str]) -> None:
    if any(_PATTERN.search(path) for path in paths):
        raise SchemaError(
            "A file's or folder's name has one of * ? { } [ ] \\ in it, which Spark takes for a "
            "pattern.",
            hint="rename it.",
        )


def _check_read(files: Sequence[SeenFile]) -> None:
    """Refuse files that Spark would leave out: their rows wouldn't count."""
    names = (file.path.rpartition("/")[2] for file in files)
    left_out = next(filter(_LEFT_OUT.fullmatch, names), None)
    if left_out is not None:
        raise SchemaError(
            f"Spark doesn't read files of a name such as {printable(left_out)[:200]}.",
            hint="copy its rows to another table: CREATE TABLE … AS SELECT …;",
        )


def _unreadable(place: str) -> SchemaError:
    return SchemaError(
        f"The files of {shown(place)} can't be listed.",
        hint="are they there, on each machine of Spark's, and are they Parquet with the same "
        "columns?",
    )


def _others(place: str) -> SchemaError:
    return SchemaError(
        f"{shown(place)} is another table here than where Spark runs.",
        hint="name it as every machine finds it: s3://….",
    )


def _plain(place: str) -> str:
    """Return a place as other spellings of it have it, too."""
    parts = urlsplit(place)
    scheme = "" if parts.scheme == "file" else parts.scheme
    return f"{scheme}:{parts.netloc}:{parts.path.rstrip('/')}"


# ── Columns of Parquet files that Spark reads whatever a row holds, told from how they are stored
#
# Guarantees:
#     Reading a column that `hazards` doesn't name fails for no value of a row.
#
#     *Proof.* Spark's vectorized reader, which `sessions.py` pins, copies integers, floats,
#     booleans, texts and days as they are, or to a wider type, and makes microseconds of the two
#     numbers of an INT96 by arithmetic that wraps. Days and times that old versions wrote by
#     another calendar are moved by fewer days than they lie before 1582. It fails for times in
#     milliseconds and for days that are too many microseconds, for a DECIMAL of more than 18 digits
#     that holds more than its type has, and for any value that is stored as what it can't make the
#     column's type of, as a file may have it that a catalog says another type of: all but NULL, so
#     that rows would decide. Such columns are named here: what isn't known to be read is. Of up to
#     18 digits it takes the number as it is, and that with more digits after the point in
#     arithmetic that wraps; `PinnedFiles.rows` makes NULL of what is beyond the type. ∎
#
#     Of files that aren't on this machine nothing tells how times are stored, so all are named.
#     That their other columns are stored as their types are must be so, then.


MOST_DIGITS = 18
"""Digits of a DECIMAL that Spark has in one long number."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TIMES = "TIMESTAMP"
_MICROS, _MILLIS = "microseconds", "milliseconds"
_NUMBERS = frozenset({"INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"})
"""Types that DECIMALs are read from. From BYTE_ARRAY Spark reads none of up to 18 digits."""
_COPIED = {
    "BOOLEAN": {"BOOLEAN"}, "TINYINT": {"INT32"}, "SMALLINT": {"INT32"}, "INTEGER": {"INT32"},
    "BIGINT": {"INT32", "INT64"}, "FLOAT": {"FLOAT"}, "DOUBLE": {"INT32", "FLOAT", "DOUBLE"},
    "VARCHAR": {"BYTE_ARRAY"}, "BLOB": {"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}, "DATE": {"INT32"},
}  # fmt: skip
"""Type → what its values are read from, whatever that stands for, but for `_UNSIGNED`."""
_INT_DIGITS = 10
_UNSIGNED, _LONG = "UNSIGNED", 32
"""Integers that have no room in their own type, with so many bits or more."""


class Stored(NamedTuple):
    """The stored type of a column of a file."""

    physical: str
    """The type of Parquet; empty of one that has columns in it, or several values."""
    kind: str = ""
    """The kind of values that this stands for."""
    unit: str = ""
    """The unit in which times are counted."""
    digits: tuple[int, int] | None = None
    """The digits of a DECIMAL: all, and those after the point."""

    @property
    def shown(self) -> str:
        """Name it for people."""
        if not self.physical:
            return "several values"
        return " ".join(filter(None, (self.physical, self.kind)))


def digits_of(type_: str) -> tuple[int, int] | None:
    """Return the digits of a DECIMAL, and how many are after the point."""
    decimal = _DECIMAL.fullmatch(type_)
    return None if decimal is None else (int(decimal[1]), int(decimal[2]))


def hazards(schema: StructType, files: Sequence[str] | None) -> dict[str, str]:
    """Name the columns that must not be read, each with what its type is called for that.

    Args:
        schema: the columns.
        files: the paths on this machine; None if they are elsewhere.

    Raises:
        OSError, ValueError: a file can't be read as Parquet.
    """
    names = {folded_by_spark(field.name) for field in schema.fields}
    stored = None if files is None else _stored(files, names)
    kinds = {field.name: _hazard(field, stored) for field in schema.fields}
    return {name: kind for name, kind in kinds.items() if kind}


def _hazard(field: StructField, stored: dict[str, set[Stored]] | None) -> str:
    type_ = type_of(field)
    digits = digits_of(type_)
    if digits is not None and digits[0] > MOST_DIGITS:
        return f"DECIMAL of {digits[0]} digits"
    if stored is None:
        return f"{type_} of a file elsewhere" if type_.startswith(_TIMES) else ""
    other = [
        copy for copy in sorted(stored[folded_by_spark(field.name)]) if not _is_copied(type_, copy)
    ]
    if type_.startswith(_TIMES) and any(copy.unit == _MILLIS for copy in other):
        return f"{type_} in milliseconds"
    # Without its digits: a DECIMAL could be read.
    return f"{type_.partition('(')[0]} stored as {other[0].shown}" if other else ""


def _is_copied(type_: str, stored: Stored) -> bool:
    """Whether each value of a column is read, of what a file has it as."""
    if type_.startswith(_TIMES):
        return stored.physical == "INT96" or stored[:3] == ("INT64", _TIMES, _MICROS)
    digits = digits_of(type_)
    if digits is not None:
        return stored.physical in _NUMBERS and _has_room(digits, stored)
    if type_ not in _COPIED:  # of which none are read
        return True
    if stored.kind == _UNSIGNED:
        return (type_, stored.physical) == ("BIGINT", "INT32")
    return stored.physical in _COPIED[type_]


def _has_room(digits: tuple[int, int], stored: Stored) -> bool:
    """Whether a DECIMAL has all digits of what is read as one."""
    (width, scale), kind = digits, stored.kind
    if stored.digits is not None:
        further = scale - stored.digits[1]
        return 0 <= further <= width - stored.digits[0]
    whole = stored.physical == "INT32" and kind in {"", "INT"}
    return whole and width - scale >= _INT_DIGITS


def _stored(files: Sequence[str], names: set[str]) -> dict[str, set[Stored]]:
    """Tell of columns, named in small letters, how files have them."""
    from pyarrow import parquet

    by_column: dict[str, set[Stored]] = {name: set() for name in names}
    for path in files:
        with parquet.ParquetFile(path) as file:
            schema = file.schema
            columns = [schema.column(i) for i in range(len(schema))]
        for column in columns:
            within = folded_by_spark(column.path)
            if column.path == column.name:
                by_column.get(within, set()).add(_how(column))
            else:  # of a column within another one the path is longer
                for name in [name for name in names if within.startswith(f"{name}.")]:
                    by_column[name].add(Stored(""))
    return by_column


def _how(column: ColumnSchema) -> Stored:
    if column.max_repetition_level:
        return Stored("")
    told = json.loads(column.logical_type.to_json())
    kind = capitals(str(told["Type"]))
    if kind == "INT" and not told["isSigned"]:
        kind = _UNSIGNED if told["bitWidth"] >= _LONG else "UINT"
    digits = (int(told["precision"]), int(told["scale"])) if kind == "DECIMAL" else None
    kind = "" if kind == "NONE" else kind
    return Stored(column.physical_type, kind, str(told.get("timeUnit", "")), digits)
