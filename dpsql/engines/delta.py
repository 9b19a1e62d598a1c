"""Versions of Delta tables, by the log that is in their folder.

Trusted.

Guarantees:
    Those of `lakes.py`.

    *Proof.* 1 is what the format promises: a version is a file of the log that is never written
    again, and so are the files that it names, which are only removed; then reading fails. 2: what a
    version says beside its files is refused: rows deleted by vectors, columns that are stored under
    other names, features that aren't known here, and partitions, whose values only the log has. Its
    files are in its folder, by the names that the log has for them: one that is named elsewhere, as
    in a shallow clone, is refused. (What reads the log decodes a folder's name once too often, so
    it would read that of "a b" for "a%20b": such a name is refused. And it codes folders in names
    of files, but not the files: so paths are made here.) 3: the account is that of the folder in
    which the log is, by its path without links, and of the folders that links among its files lead
    to. ∎
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dpsql.engines.frozen import root_of
from dpsql.engines.lakes import LakeVersion, missing, on_machine, shown
from dpsql.errors import SchemaError, printable

LOG = "_delta_log"
"""The folder that tells the versions of a table, in that of the table."""
_READABLE = frozenset(
    {"timestampNtz", "timestampNtz-preview", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of tables that say nothing of which rows there are, or of their values."""
_COPY = "copy it to a table without them: CREATE TABLE … USING delta AS SELECT …;"
_NO_STEPS = {"", ".", ".."}
_SCHEME = re.compile(r"[^/]*:")


def version_of(place: str, version: str | None) -> LakeVersion:
    """Return a version of a Delta table, the last one if none is named; reads no row.

    Raises:
        SchemaError: there is none, or its rows are not those of its files.
    """
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise missing("deltalake") from None
    folder = _folder(place)
    table: Any = None
    try:
        table = DeltaTable(folder or place, version=None if version is None else int(version))
        columns, paths = str(table.schema().to_json()), list(table.file_uris())
        named = list(table.get_add_actions(flatten=True).column("path").to_pylist())
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
        which = ", ".join(sorted(features - _READABLE)) or "columnMapping"
        raise SchemaError(
            f"The Delta table has features that files don't tell: {printable(which)[:200]}.",
            hint=_COPY,
        )
    if metadata.partition_columns:
        raise SchemaError(
            "Partitioned Delta tables can't be counted yet.",
            hint="copy it to a table that isn't: CREATE TABLE … USING delta AS SELECT …;",
        )
    if not all(map(_is_within, named)):
        raise SchemaError(
            f"The Delta table in {shown(place)} has files that aren't in its folder.", hint=_COPY
        )
    if folder:
        paths = [os.path.join(folder, unquote(path)) for path in named]
    files = tuple(sorted(set(paths)))
    roots = _roots(folder, files) if folder else ()
    return LakeVersion(files, columns, str(table.version()), str(metadata.id), roots)


def _folder(place: str) -> str:
    """Return the folder of a table on this machine, without links; empty if it is elsewhere.

    Raises:
        SchemaError: another one could be taken for it.
    """
    path = on_machine(place)
    folder = os.path.realpath(path) if path else ""
    if "%" in folder:
        raise SchemaError(
            f"The folder {shown(place)} has a % in its path, which would be decoded.",
            hint="rename it.",
        )
    return folder


def _is_within(path: str) -> bool:
    """Whether a log names a file in the folder of its table."""
    return not _SCHEME.match(path) and _NO_STEPS.isdisjoint(unquote(path).split("/"))


def _roots(folder: str, files: Iterable[str]) -> tuple[Path, ...]:
    """Return the folders in whose accounts a table is: its own, and those that links lead to."""
    real = [path for path in map(os.path.realpath, files) if Path(folder) not in Path(path).parents]
    return tuple(sorted({root_of(os.path.join(folder, LOG)), *map(root_of, real)}))
