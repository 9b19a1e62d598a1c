"""Spark's catalogs, as the facts that descriptions of tables are made of.

Of a table it tells names, types and comments. That a column is never NULL isn't enforced where
files come from elsewhere, and keys aren't at all: so neither is told.

A folder or a table that no catalog has is known by its kind and its place: delta."/data/people".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zoneinfo import available_timezones

from dpsql.engines.spark.files import KINDS, PinnedFiles, of_table, pinned
from dpsql.engines.spark.sessions import own_session, quiet
from dpsql.engines.spark.sql.text import call, constant, quoted, type_of
from dpsql.errors import DpsqlError, SchemaError
from dpsql.schema import Schema, Unit
from dpsql.schema.facts import (
    Database,
    HeldCatalog,
    NamedTable,
    SchemaPath,
    StoredColumn,
    StoredKeys,
    StoredTable,
    StoredView,
    TableComment,
    TablePath,
)
from dpsql.schema.names import capitals, folded
from dpsql.schema.units import DeclaredUnit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField

T = TypeVar("T")
_TABLES = frozenset({"MANAGED", "EXTERNAL"})
_MOST_SCHEMAS = 200
_GENERATED = "delta.generationExpression"


class SparkTable(NamedTuple):
    """The facts that are known of a stored table."""

    columns: tuple[StructField, ...]
    types: Mapping[str, str]
    comment: str | None = None
    files: PinnedFiles | None = None
    """The files that it is made of; None if it can't be read."""
    kind: str = ""
    """The format of one that can't be read."""


@dataclass(frozen=True, eq=False)
class SparkCatalog(HeldCatalog):
    """The catalogs of Spark, read in a session; see `Catalog`.

    Args:
        session: one of our own: no temporary view is in it.
        version: of what no catalog has, which version is meant.
    """

    session: SparkSession
    version: str | None = None
    places: dict[tuple[str, str], None] = field(default_factory=dict)
    """Kind and place of what no catalog has, as far as anybody named it."""
    system = "Spark"

    @property
    def _place(self) -> object:
        return self.session

    def know(self, name: Sequence[str], declared: Schema | None, unit: DeclaredUnit) -> None:
        """Keep the places that a name and declarations name: rows of these refer to each other."""
        names = [".".join(name), *(() if declared is None else (*declared, *declared.units))]
        units = [unit] if declared is None else [unit, *declared.units.values()]
        for said in units:
            if isinstance(said, Unit) and isinstance(said.max_rows, Mapping):
                names += (place for text in said.max_rows for place in _named_in(text))
        for kind, *place in map(self.parts, names):
            if kind in KINDS and place and "/" in place[0]:
                self.places[kind, place[0]] = None

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of a name: a place may have dots in it; see `Catalog`."""
        kind, _, place = name.partition(".")
        return (kind, place) if kind in KINDS and "/" in place else tuple(name.split("."))

    def current(self) -> SchemaPath:
        """Return the current catalog and schema; see `Catalog`."""
        catalog = self.session.catalog
        return self._once(
            ("current", ()),
            lambda: _asked(lambda: SchemaPath(catalog.currentCatalog(), catalog.currentDatabase())),
        )

    def database(self, name: str) -> Database | None:
        """Return a catalog: it has no file; see `Catalog`."""
        return Database(name, None)

    def tables_named(self, name: str) -> list[NamedTable]:
        """List the tables of a name; see `Catalog`.

        What looks like a place may be of any kind: so its kind is named before it.
        """
        current = self.current().database
        kinds = KINDS if "/" in name else ()
        views = [NamedTable((current, kind, name), hidden=False) for kind in kinds]
        stored = (path for path, kind in self._named(name) if kind in _TABLES)
        return views + [NamedTable(path, hidden=False) for path in stored]

    def views_named(self, name: str) -> list[StoredView]:
        """List the views of a name; see `Catalog`."""
        return [
            StoredView(path, "", None) for path, kind in self._named(name) if kind not in _TABLES
        ]

    def _named(self, name: str) -> list[tuple[TablePath, str]]:
        """List tables and views of a name with their kinds: first those of the current schema."""
        current = self.current()
        schemas = [current.schema, *(s for s in self._schemas() if s != current.schema)]
        return [
            ((current.database, schema, table), kind)
            for schema in schemas[:_MOST_SCHEMAS]
            for table, kind in self._listed(schema)
            if folded(table) == folded(name)
        ]

    def _schemas(self) -> list[str]:
        catalog = self.session.catalog
        return self._once(
            ("schemas", ()),
            lambda: _asked(lambda: [database.name for database in catalog.listDatabases()]),
        )

    def _listed(self, schema: str) -> list[tuple[str, str]]:
        return self._once(("tables", schema), lambda: self._tables(schema))

    def _tables(self, schema: str) -> list[tuple[str, str]]:
        named = f"{quoted(self.current().database)}.{quoted(schema)}"
        return _asked(
            lambda: [
                (table.name, table.tableType or "")
                for table in self.session.catalog.listTables(named)
                if not table.isTemporary
            ]
        )

    def table_names(self) -> list[tuple[str, str]]:
        """List schema and name of the tables of the current schema; see `Catalog`."""
        here = self.current().schema
        return [(here, name) for name, kind in self._listed(here) if kind in _TABLES]

    def view_names(self) -> list[tuple[str, str]]:
        """List schema and name of the views of the current schema; see `Catalog`."""
        here = self.current().schema
        return [(here, name) for name, kind in self._listed(here) if kind not in _TABLES]

    def columns(self, path: Sequence[str]) -> list[StoredColumn]:
        """List the columns of a table; see `Catalog`."""
        stored = self.stored(path)
        if stored is None:
            return []
        return [
            StoredColumn(
                field.name,
                stored.types[field.name],
                nullable=True,
                generated=_GENERATED in (field.metadata or {}),
                comment=(field.metadata or {}).get("comment"),
            )
            for field in stored.columns
        ]

    def table(self, path: Sequence[str]) -> StoredTable | None:
        """Return a table; see `Catalog`."""
        stored = self.stored(path)
        if stored is None:
            return None
        return StoredTable(tuple(self.columns(path)), stored.comment, (), frozenset())

    def stored(self, path: Sequence[str]) -> SparkTable | None:
        """Return what is known of a stored table; None if there is none, but a view, say.

        Raises:
            SchemaError: it can't be read.
        """
        return self._once(("table", tuple(path)), lambda: self.seen(path))

    def seen(self, path: Sequence[str]) -> SparkTable | None:
        """Look at a stored table, as it is now; see `stored`."""
        if len(path) == 3 and path[1] in KINDS and "/" in path[2]:
            files = pinned(self.session, path[1], path[2], self.version)
            return SparkTable(tuple(files.schema.fields), files.types, None, files)
        name = ".".join(map(quoted, path))
        told: dict[str, Any] = {}
        with quiet():
            try:
                fresh = own_session(self.session)  # one keeps what it once found of a table
                ((text,),) = fresh.sql(f"DESCRIBE TABLE EXTENDED {name} AS JSON").collect()
                schema, told = fresh.table(name).schema, json.loads(text)
            except DpsqlError:
                raise
            except Exception:
                return None
        if capitals(str(told.get("type", ""))) not in _TABLES:
            return None
        kind, comment = folded(str(told.get("provider", ""))), told.get("comment")
        if kind != "parquet":
            types = {field.name: type_of(field) for field in schema.fields}
            return SparkTable(tuple(schema.fields), types, comment, None, kind)
        place, parted = str(told.get("location", "")), bool(told.get("partition_columns"))
        files = of_table(self.session, name, place, schema, parted)
        return SparkTable(tuple(schema.fields), files.types, comment, files)

    def keys(self, path: Sequence[str]) -> StoredKeys:
        """Return the columns of the tables of a schema: no key is enforced; see `Catalog`."""
        (_, schema), named = path[:2], [name for name in path[2:] if name]
        if schema in KINDS:
            others = [place for kind, place in self.places if kind == schema]
        else:
            others = [name for name, kind in self._listed(schema) if kind in _TABLES]
        paths = {name: (*path[:2], name) for name in others if name not in named}
        columns = {
            name: self._once(("types", of), partial(self._types, of)) for name, of in paths.items()
        }
        for name in named:
            columns_there = self.columns((*path[:2], name))
            columns[name] = {c.name: "" if c.generated else c.type for c in columns_there}
        return StoredKeys(columns)

    def _types(self, path: tuple[str, ...]) -> dict[str, str]:
        """Return the columns of a table with their types; none if it can't be read."""
        if path[1] in KINDS:
            stored = self.stored(path)
            return {} if stored is None else dict(stored.types)
        with quiet(), suppress(Exception):
            fresh = own_session(self.session)
            schema = fresh.table(".".join(map(quoted, path))).schema
            return {
                of.name: "" if _GENERATED in (of.metadata or {}) else type_of(of)
                for of in schema.fields
            }
        return {}

    def schemas(self) -> list[SchemaPath]:
        """List the schemas, and the kinds of places that are known; see `Catalog`."""
        current = self.current().database
        kinds = dict.fromkeys(kind for kind, _ in self.places)
        return [SchemaPath(current, schema) for schema in (*self._schemas(), *kinds)]

    def comments(self, text: str) -> list[TableComment]:
        """List no comments: nobody says of tables here that are elsewhere; see `Catalog`."""
        return []

    def zones(self) -> list[str]:
        """List the time zones that are known; see `Catalog`."""
        return sorted(available_timezones())

    def is_gregorian(self, zone: str) -> bool:
        """Whether Spark shows times in a zone; its calendar is always the Gregorian one."""
        noon = constant("2024-07-01 12:00:00", "TIMESTAMP")
        shown = call("from_utc_timestamp", noon, constant(zone, "STRING"))
        rows = _asked(lambda: self.session.sql(f"SELECT CAST({shown} AS STRING)").collect())
        return str(rows[0][0]).startswith(("2024-06-30", "2024-07-0"))

    def copying(self, relation: str, name: str) -> str:
        """Write the statement that stores a relation as a table; see `Catalog`."""
        return f"CREATE TABLE {name} USING parquet AS SELECT * FROM {relation};"


def _named_in(text: str) -> list[str]:
    """Return the names that one of `max_rows` lists: "parquet./orders, parquet./visits"."""
    parts = [part.strip() for part in text.split(",")]
    return parts if all(part.split(".", 1)[0] in KINDS for part in parts) else [text]


def _asked(question: Callable[[], T]) -> T:
    """Ask a catalog; whatever it says of an error, it isn't handed on."""
    with quiet(), suppress(Exception):
        return question()
    raise SchemaError("Spark's catalog can't be read.", hint="is the session stopped, or busy?")
