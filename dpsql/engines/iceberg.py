"""Snapshots of Iceberg tables, by the metadata that their catalog names.

Trusted.

A table is named by one of its files of metadata, by its folder, or by the catalog that has it, as
PyIceberg's own configuration names that: "catalog://default/hr.people".

Guarantees:
    Those of `lakes.py`.

    *Proof.* 1: a snapshot is a list of files by the format, which are never written again, and has
    the id of its schema, which is never altered. So its columns are those of its own schema, not of
    the table's last one; only their comments, which say nothing of rows, are the table's. A file of
    another size than the snapshot says is refused, and so is one that is there twice. 2: what a
    snapshot says beside its files is refused: manifests of deletes (positions, keys, vectors),
    whether they delete anything or not, files that are encrypted or aren't Parquet. Spark and
    others find columns of a file by their names, without regard to case; Iceberg finds them by
    ids. So the footer of each file is read: a column must have its name, its id and its type, and
    no other column of the file its name. A column that a file has by neither is NULL to both,
    unless the table says other values: defaults, or those of a partition, which are refused. An
    INTEGER that became a BIGINT and a FLOAT that became a DOUBLE are read without loss; times in
    milliseconds and numbers of 16 bits, for which Spark's reader may fail, are other types. 3: the
    account is that of the folder that the metadata calls the table's location, and of the folders
    of its files. ∎

    Before its first snapshot a table has no rows, and the format calls that state -1.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.engines.frozen import root_of
from dpsql.engines.lakes import LakeVersion, folded_by_spark, missing, shown
from dpsql.errors import SchemaError, printable

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import NestedField

METADATA = "*.metadata.json"
"""Files that tell the snapshots of a table, in the folder `metadata` of that of the table."""
_NONE = -1
_CATALOG = "catalog://"
_NUMBER = re.compile(r"v?(\d+)")
_FILE = re.compile(r"file:(?://[^/]*)?", re.IGNORECASE)
_TYPES = {
    "boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double",
    "string": "string", "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp",
    "binary": "binary",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_WIDENED = {("int", "long"), ("float", "double")}
_NAMED = "version='1234567890'"
_COPY = "copy its rows to a table without: CREATE TABLE … AS SELECT …;"
_REWRITE = "rewrite its files: CALL system.rewrite_data_files(table => '…', …);"


def version_of(place: str, version: str | None) -> LakeVersion:
    """Return a snapshot of an Iceberg table, the last one if none is named; reads no row.

    Raises:
        SchemaError: there is none, or its rows are not those of its files.
    """
    table = _table(place, version)
    snapshot = _snapshot(table, place, version)
    schema = _schema(table, snapshot, place, named=version is not None)
    _check_names(schema)
    files = [] if snapshot is None else _files(table, snapshot, place)
    unread = {f.name: str(f.field_type) for f in schema.fields if _written(f) == ""}
    for file in files:
        _check_file(table, file, [f for f in schema.fields if f.name not in unread])
    paths = tuple(sorted(_plain(file.file_path) for file in files))
    if len(set(paths)) < len(paths):
        raise SchemaError(f"A file is in the table in {shown(place)} twice.", hint=_COPY)
    return LakeVersion(
        paths,
        _columns(schema, table.schema()),
        str(_NONE if snapshot is None else snapshot.snapshot_id),
        str(table.metadata.table_uuid),
        _roots(table.location(), paths),
        unread,
        looked_into=True,
    )


# ── Which state ──────────────────────────────────────────────────────────────────────────────


def _table(place: str, version: str | None) -> Table:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
    except ImportError:
        raise missing("pyiceberg") from None
    named = place if place.startswith(_CATALOG) else _metadata_of(place, guess=version is not None)
    with suppress(Exception):
        if named.startswith(_CATALOG):
            catalog, _, name = named.removeprefix(_CATALOG).partition("/")
            return load_catalog(catalog).load_table(name)
        return StaticTable.from_metadata(named)
    raise SchemaError(
        f"There is no Iceberg table in {shown(place)}.",
        hint='name it by its file of metadata, FROM iceberg."/…/metadata/….metadata.json", or by '
        f'its catalog, FROM iceberg."{_CATALOG}default/hr.people".',
    )


def _metadata_of(place: str, *, guess: bool) -> str:
    """Return what PyIceberg reads: a file of metadata, or a folder that names one.

    Where a folder names none, the file with the largest number has the snapshots that there are,
    whose ids tell them. Which of these is the last one only the catalog knows.
    """
    folder = Path(_plain(place)) / "metadata"
    if place.endswith(METADATA[1:]) or "://" in _plain(place):
        return place
    if (folder / "version-hint.text").exists():
        return _plain(place)
    numbered = {path: _NUMBER.match(path.name) for path in folder.glob(METADATA)}
    versions = sorted((int(n[1]), path.name) for path, n in numbered.items() if n is not None)
    if versions and not guess:
        raise SchemaError(
            f"Nothing in {shown(place)} says which state of the table is the latest: only its "
            "catalog knows.",
            hint="name the snapshot, "
            + _NAMED
            + f', or the catalog: FROM iceberg."{_CATALOG}default/hr.people".',
        )
    return str(folder / versions[-1][1]) if versions else place


def _snapshot(table: Table, place: str, version: str | None) -> Snapshot | None:
    """Return a snapshot; None before the first one."""
    snapshot = None
    if version is None:
        snapshot = table.current_snapshot()
        wanted = _NONE if snapshot is None else snapshot.snapshot_id
    else:
        wanted = int(version) if re.fullmatch(r"-1|\d{1,19}", version, re.ASCII) else -2
        snapshot = table.snapshot_by_id(wanted)
    if snapshot is None and wanted != _NONE:
        raise SchemaError(
            f"The Iceberg table in {shown(place)} has no such snapshot.",
            hint="versions are ids of snapshots, and these may have expired: name one of "
            "table.snapshots().",
        )
    return snapshot


def _schema(table: Table, snapshot: Snapshot | None, place: str, *, named: bool) -> Schema:
    """Return the schema of a snapshot.

    Raises:
        SchemaError: none says it, or the table's is another one by now and no snapshot is `named`.
    """
    if snapshot is None:
        return table.schema()
    schema = None if snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    if schema is None:
        raise SchemaError(
            f"The last snapshot of the table in {shown(place)} doesn't say its columns.",
            hint="write to the table once more.",
        )
    if not named and _told(schema) != _told(table.schema()):
        raise SchemaError(
            f"The columns of the table in {shown(place)} were altered after its last snapshot.",
            hint="ask for its columns as they were, "
            + f"version='{snapshot.snapshot_id}'"
            + ", or write to the table once more.",
        )
    return schema


def _told(schema: Schema) -> list[tuple[int, str, str]]:
    return [(f.field_id, f.name, str(f.field_type)) for f in schema.fields]


def _files(table: Table, snapshot: Snapshot, place: str) -> list[DataFile]:
    """List the files of a snapshot."""
    from pyiceberg.manifest import FileFormat, ManifestContent

    tasks: list[Any] | None = None
    deletes = False
    try:
        for manifest in snapshot.manifests(table.io):
            if manifest.content == ManifestContent.DELETES:
                deletes = deletes or bool(manifest.fetch_manifest_entry(table.io))
        if not deletes:
            tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
    except Exception:
        tasks = None
    if deletes or any(task.delete_files for task in tasks or ()):
        raise SchemaError(
            f"Rows of the Iceberg table in {shown(place)} are deleted by files beside its rows "
            "(merge-on-read).",
            hint=_REWRITE,
        )
    if tasks is None:
        raise SchemaError(
            f"The files of a snapshot in {shown(place)} can't be listed.",
            hint="did it expire? Name another one of table.snapshots().",
        )
    files = [task.file for task in tasks]
    for file in files:
        if file.file_format != FileFormat.PARQUET or file.key_metadata is not None:
            how = "encrypted" if file.key_metadata is not None else str(file.file_format.value)
            raise SchemaError(
                f"Files of the Iceberg table in {shown(place)} are {printable(how)}, not Parquet "
                "alone.",
                hint=_COPY,
            )
    return files


# ── What stands in its files ─────────────────────────────────────────────────────────────────


def _check_names(schema: Schema) -> None:
    names = [folded_by_spark(field.name) for field in schema.fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(
            f"The Iceberg table has two columns {printable(twice[0])}, in capitals and in small "
            "letters.",
            hint="rename one of them, and write the table anew.",
        )


def _check_file(table: Table, file: DataFile, fields: list[NestedField]) -> None:
    """Check that the columns of a file are found by their names.

    Raises:
        SchemaError: they aren't, or it isn't the file of the snapshot.
    """
    stored: list[Any] | None = None
    source = table.io.new_input(file.file_path)
    try:
        if len(source) == file.file_size_in_bytes:
            stored = list(_footer(source))
    except Exception:
        stored = None
    if stored is None:
        raise SchemaError(
            f"The file {shown(file.file_path)} is not as the Iceberg table says.",
            hint="was it removed or written again? Name another snapshot, " + _NAMED + ".",
        )
    parted = {part.source_id for part in table.specs()[file.spec_id].fields}
    for field in fields:
        reason = _unlike(field, stored, parted)
        if reason:
            raise SchemaError(
                f"The column {printable(field.name)} of the Iceberg table {reason} in files of it.",
                hint=_COPY,
            )


def _footer(source: Any) -> Iterator[tuple[str, int | None, str]]:
    """Name the columns of a file, with their ids and types."""
    import pyarrow as pa
    from pyarrow import parquet
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    with source.open() as opened, parquet.ParquetFile(opened) as file:
        fields = list(file.schema_arrow)
    for field in fields:
        field_id = (field.metadata or {}).get(b"PARQUET:field_id")
        type_ = ""
        if field_id is not None and not _is_other(pa.types, field.type):
            try:
                type_ = str(pyarrow_to_schema(pa.schema([field])).fields[0].field_type)
            except Exception:
                type_ = ""
        yield field.name, None if field_id is None else int(field_id), type_


def _is_other(types: Any, type_: Any) -> bool:
    """Whether PyIceberg would take a type for one that is stored otherwise in Iceberg's files."""
    if types.is_timestamp(type_):
        return str(type_.unit) != "us"
    return bool(types.is_unsigned_integer(type_) or types.is_float16(type_))


def _unlike(field: NestedField, stored: list[tuple[str, int | None, str]], parted: set[int]) -> str:
    """Say why a file's column of this name is another one than the field; empty if it isn't."""
    by_name = [
        column for column in stored if folded_by_spark(column[0]) == folded_by_spark(field.name)
    ]
    by_id = [column for column in stored if column[1] == field.field_id]
    if not by_name and not by_id:
        if field.field_id in parted:
            return "is in names of partitions alone"
        return "" if field.initial_default is None else "has a default"
    if by_name != by_id or len(by_name) > 1:
        return "has another name or id"
    type_, wanted = by_name[0][2], str(field.field_type)
    return "" if type_ == wanted or (type_, wanted) in _WIDENED else "has another type"


# ── How it is told ───────────────────────────────────────────────────────────────────────────


def _written(field: NestedField) -> str:
    """Write a type as Spark does; empty if it isn't read from the field's files as it is."""
    type_ = str(field.field_type)
    decimal = _DECIMAL.fullmatch(type_)
    return _TYPES.get(type_, "") if decimal is None else f"decimal({decimal[1]},{decimal[2]})"


def _columns(schema: Schema, last: Schema) -> str:
    comments = {field.field_id: field.doc for field in last.fields}
    fields = []
    for field in schema.fields:
        comment = comments.get(field.field_id, field.doc)
        metadata = {"comment": comment} if comment else {}
        type_ = _written(field) or "binary"
        fields.append({"name": field.name, "type": type_, "nullable": True, "metadata": metadata})
    return json.dumps({"type": "struct", "fields": fields})


def _plain(place: str) -> str:
    """Return the path of a place on this machine: Iceberg's are no URLs, in which % is coded."""
    scheme = _FILE.match(place)
    return place if scheme is None else "/" + place[scheme.end() :].lstrip("/")


def _roots(location: str, paths: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the folders on this machine in whose accounts a table is: its own, its files'."""
    place = _plain(location)
    roots = {root_of(os.path.realpath(path)) for path in paths if "://" not in path}
    if "://" not in place:
        roots.add(Path(os.path.realpath(place)))
    return tuple(sorted(roots))
