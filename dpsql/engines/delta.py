"""Versions of Delta tables, by the log that is in their folder.

Trusted.

Guarantees:
    Those of `lakes.py`.

    *Proof.* 1 is what the format promises: a version is a file of the log that is never written
    again, and so are the files that it names, which are only removed; then reading fails. 2: what a
    version says beside its files is refused: rows deleted by vectors, columns that are stored under
    other names, features that aren't known here, and partitions, whose values only the log has. 3:
    the account is that of the folder in which the log is, by its path without links. ∎
"""

from __future__ import annotations

import os
from typing import Any

from dpsql.engines.frozen import root_of
from dpsql.engines.lakes import LakeVersion, missing, on_machine, shown
from dpsql.errors import SchemaError, printable

LOG = "_delta_log"
"""The folder that tells the versions of a table, in that of the table."""
_READABLE = frozenset(
    {"timestampNtz", "timestampNtz-preview", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of tables that say nothing of which rows there are, or of their values."""


def version_of(place: str, version: str | None) -> LakeVersion:
    """Return a version of a Delta table, the last one if none is named; reads no row.

    Raises:
        SchemaError: there is none, or its rows are not those of its files.
    """
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise missing("deltalake") from None
    table: Any = None
    try:
        table = DeltaTable(place, version=None if version is None else int(version))
        columns, paths = str(table.schema().to_json()), list(table.file_uris())
        protocol, metadata = table.protocol(), table.metadata()
    except Exception:
        table = None
    if table is None:
        raise SchemaError(
            f"There is no such version of a Delta table in {shown(place)}.",
            hint="is it there, and was the version vacuumed?",
        )
    features = set(protocol.reader_features or ())
    mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    if mapped or protocol.min_reader_version == 2 or not features <= _READABLE:
        named = ", ".join(sorted(features - _READABLE)) or "columnMapping"
        raise SchemaError(
            f"The Delta table has features that files don't tell: {printable(named)[:200]}.",
            hint="copy it to a table without them: CREATE TABLE … USING delta AS SELECT …;",
        )
    if metadata.partition_columns:
        raise SchemaError(
            "Partitioned Delta tables can't be counted yet.",
            hint="copy it to a table that isn't: CREATE TABLE … USING delta AS SELECT …;",
        )
    files = tuple(sorted(set(paths)))
    folder = on_machine(place)
    roots = (root_of(os.path.join(os.path.realpath(folder), LOG)),) if folder else ()
    return LakeVersion(files, columns, str(table.version()), str(metadata.id), roots)
