"""Tables of a lake: of which Parquet files the rows of a version are made, and names of columns.

Trusted.

A table of a lake has a log or metadata, which say of each of its versions which files are its rows.
Each format has a file beside this one, with a function `version_of`; an engine reads the files that
it names, and doesn't know the format.

Guarantees:
    1. A `LakeVersion` is the same at every look, whoever writes to the table, for a table's `uid`
       and a `version`.
    2. Its rows are those of its files, all of them, each once: nothing that the format says beside
       its files takes rows away, or gives a column of them another value.
    3. Whose account its rows are in depends on where the table and its files are, not on how the
       table was named.

    *Proof.* In the files beside this one, for each format. ∎
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dpsql.errors import SchemaError, printable


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """A version of a table.

    Args:
        files: where its files are, each once.
        columns: their names, types and comments, as Spark and Delta write a schema, in JSON.
        version: what it is called.
        uid: the table's own name for itself; one that is made anew in its place has another one.
        roots: the folders on this machine whose account its rows are in.
        unread: the columns that can't be read, with what their types are called.
        looked_into: whether all files were looked into, and have the columns as their types.
    """

    files: tuple[str, ...]
    columns: str
    version: str
    uid: str
    roots: tuple[Path, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    looked_into: bool = False


VersionOf = Callable[[str, str | None], LakeVersion]
"""Place of a table, what the version is called (the last one if it isn't said) → the version."""


def on_machine(place: str) -> str:
    """Return the path of a place that a table names; empty if it is on another machine."""
    parts = urlsplit(place)
    if parts.scheme.lower() == "file":
        return unquote(parts.path)
    return "" if "://" in place else place


def missing(package: str) -> SchemaError:
    """Return the error for a package that isn't installed."""
    return SchemaError(f"This needs the package {package}.", hint="pip install 'dpsql[spark]'.")


def shown(place: str) -> str:
    """Return a place as errors have it."""
    return printable(place)[:200]


def folded_by_spark(name: str) -> str:
    """Return the form by which Spark compares names, `toLowerCase(Locale.ROOT)` of Java.

    Unlike DuckDB, it ignores the case of all letters (`spark.sql.caseSensitive` is false in the
    sessions that count, see `spark/sessions.py`).
    """
    return name.lower()
