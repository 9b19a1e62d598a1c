"""Folders that have a log of a table with versions, which says which files are rows of it. Trusted.

Guarantees:
    `check_no_log` lets no folder pass in which, above which, or between which and whose files is a
    log that can be seen: such a folder has files, too, that are no more of its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.engines import delta, iceberg
from dpsql.engines.frozen import FrozenFiles
from dpsql.engines.lakes import shown
from dpsql.engines.spark.sessions import SeenFile, path_of, quiet
from dpsql.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
                found, name = path.rsplit("/", 2)[:2]
                yield names[name], path_of(found)


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
