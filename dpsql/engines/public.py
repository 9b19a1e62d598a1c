"""Public tables: the ones that the data owner says hold no private row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import polars as pl

from dpsql.engines.source import DataSource
from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint
from dpsql.schema.grain import paths_read
from dpsql.schema.lookup import is_named, paths_of
from dpsql.schema.names import folded
from dpsql.schema.table import Table

MAX_ROWS = 1_000_000

PublicTables = str | Sequence[str] | Mapping[str, Any]
"""Names of tables or views of the database, or name → frame: of Polars, lazy ones too, or of any
other library that hands out Arrow data, as pandas and PyArrow do."""
_ARROW = "__arrow_c_stream__"
_INDEX = "__index_level_"
"""The beginning of the columns in which pandas hands out the labels of rows."""


class PublicReader:
    """Reads public tables by name.

    Args:
        source: the private data beside which they are.
        public: which tables are public.
        is_private: whether the owner declares of a stored table, by its path, that it has rows of
            units, or domains.

    Raises:
        SchemaError: it is neither a list of names nor name → frame, or a frame can't be read.
    """

    def __init__(
        self,
        source: DataSource,
        public: PublicTables | None,
        is_private: Callable[[tuple[str, ...]], bool] = lambda path: False,
    ) -> None:
        self._source, self._is_private = source, is_private
        self._frames: dict[str, pl.DataFrame] = {}
        self._tables: dict[str, str] = {}
        if public is None:
            return
        names = [public] if isinstance(public, str) else public
        if not isinstance(names, Mapping | Sequence):
            raise _malformed()
        for name in names:
            if not isinstance(name, str) or not name:
                raise _malformed()
            if isinstance(names, Mapping):
                self._frames[folded(name)] = polars_frame(name, names[name])
            else:
                self._tables[folded(name)] = name

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are declared public by their names."""
        return tuple(self._tables)

    def read(self, parts: tuple[str, ...]) -> pl.DataFrame | None:
        """Return the public table of a name; None if the name isn't one.

        Raises:
            SchemaError: it is declared public but can't be read, or is too large.
        """
        name = ".".join(folded(part) for part in parts)
        if name in self._frames:
            return self._frames[name]
        if name not in self._tables:
            return None
        named = tuple(self._tables[name].split("."))
        for path in self._below(name):
            if not paths_of(named, [path]) and self._is_private(path):
                raise _private_below(name, path)
        try:
            frame = self._source.public_rows(self._tables[name].split("."), MAX_ROWS)
        except SchemaError:
            raise self._unreadable(name) from None
        if frame is None:
            raise SchemaError(
                f"The public table {printable(name)} has more than {MAX_ROWS:,} rows.",
                hint="join a smaller one.",
            )
        return frame

    def check_private(self, table: Table) -> None:
        """Refuse a private table that is public by another name, with its schema for example.

        Raises:
            SchemaError: it is.
        """
        for name in self._tables.values():
            if is_named(self._source.catalog, tuple(name.split(".")), table):
                raise SchemaError(
                    f"The table {table.name} is private, and is also named as public, "
                    f"{printable(name)}.",
                    hint=f"write {printable(name)} in queries, or leave it out of "
                    + Hint("public=", "--public")
                    + ".",
                )
            for path in {*paths_read(table), table.stored.path}.intersection(
                self._below(folded(name))
            ):
                raise _private_below(name, path)

    def _below(self, name: str) -> Collection[tuple[str, ...]]:
        """Return the stored tables that are read by a public name.

        Raises:
            SchemaError: it can't be told.
        """
        try:
            return self._source.tables_below(self._tables[name].split("."))
        except SchemaError as error:
            raise SchemaError(
                f"Whether the public table {printable(name)} shows private rows can't be told.",
                hint=error.hint,
            ) from None

    def _unreadable(self, name: str) -> SchemaError:
        return SchemaError(
            f"The public table {printable(name)} can't be read.",
            hint="is it a table or view of this database? Pass a frame otherwise: "
            f'public={{"{printable(name)}": frame}}.',
        )


def _private_below(name: str, path: Sequence[str]) -> SchemaError:
    return SchemaError(
        f"The table {printable(path[-1])} is private, and {printable(name)} is public and reads "
        "it.",
        hint=f"leave {printable(name)} out of "
        + Hint("public=", "--public")
        + ", or make it a view of public tables alone.",
    )


def is_frame(value: object) -> bool:
    """Whether something can be taken as a table."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or (
        hasattr(value, _ARROW) and not isinstance(value, type | pl.Series)
    )


def polars_frame(name: str, given: Any) -> pl.DataFrame:
    """Read a frame of any library, for a table of some name.

    Raises:
        SchemaError: it is not a frame, or can't be read.
    """
    if isinstance(given, pl.DataFrame):
        return given
    if not is_frame(given):
        raise _malformed()
    try:
        if isinstance(given, pl.LazyFrame):
            return given.collect()
        frame = pl.DataFrame(given)
    except Exception:  # whatever another library raises
        frame = None
    if frame is None:
        raise SchemaError(
            f"The frame {printable(name)} can't be read.",
            hint="does it have plain columns? pl.from_pandas(frame) says what is wrong.",
        )
    return frame.drop([column for column in frame.columns if column.startswith(_INDEX)])


def _malformed() -> SchemaError:
    return SchemaError(
        "Public tables are a list of names, or names with frames.",
        hint='public=["regions"], or public={"bands": polars.DataFrame({"lo": [0], "hi": [9]})}.',
    )
