"""DuckDB's catalog, as the facts that descriptions of tables are made of.

Estimated sizes and statistics are private although the catalog offers them, so each query below
names the few catalog columns that it needs. Functions are named with their schema, so that no
macro of the database can take their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from dpsql.errors import InternalError, SchemaError
from dpsql.schema.checks import collated
from dpsql.schema.facts import (
    Catalog,
    Database,
    NamedTable,
    SchemaPath,
    StoredColumn,
    StoredKey,
    StoredKeys,
    StoredTable,
    StoredView,
    TableComment,
)
from dpsql.schema.names import capitals, folded

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from dpsql.engines.frozen import FrozenFiles


# ── Run statements on the caller's connection that read DuckDB's catalog, with typed errors ──────


Row = tuple[Any, ...]


def fetch(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[str] = ()) -> list[Row]:
    """Run a statement that reads no rows of tables, with typed errors.

    It is run to its end, because an unread result would block the connection.

    Raises:
        SchemaError: it fails.
    """
    try:
        return con.execute(sql, list(parameters)).fetchall()
    except duckdb.Error as error:
        busy = isinstance(error, duckdb.ResourceInUseException)
    if busy:
        raise SchemaError(
            "The connection is busy with a result that was not read to its end.",
            hint="call fetchall() on it, or pass con.cursor().",
        )
    raise SchemaError(
        "DuckDB's catalog can't be read on this connection.",
        hint="is the connection closed, or in a failed transaction? "
        'Try con.sql("SELECT current_database()").',
    )


def check_bound(con: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any]) -> None:
    """Have DuckDB bind a statement that counts, and its parameters.

    DESCRIBE ends there: the statement is neither optimized nor run, so that no row and no
    statistic of the table is looked at, and all that it returns are names and types.

    Raises:
        InternalError: it can't be bound.
    """
    try:
        con.execute(f"DESCRIBE {sql}", list(parameters)).fetchall()
    except duckdb.Error:
        bound = False
    else:
        bound = True
    if not bound:  # outside the handler: a parameter may be a label that was only declared
        raise InternalError("DuckDB refuses a counting statement; nothing was charged")


_CURRENT = "SELECT system.main.current_database(), system.main.current_schema()"
_DATABASE = "SELECT path, type FROM system.main.duckdb_databases() WHERE database_name = ?"
_TABLES = """
    SELECT database_name, schema_name, table_name, temporary OR internal
    FROM system.main.duckdb_tables()
    WHERE system.main.lower(table_name) = system.main.lower(?)
"""
_VIEWS = """
    SELECT database_name, schema_name, view_name, sql, comment,
        system.main.map_contains(tags, 'duckdb_python_register')
    FROM system.main.duckdb_views()
    WHERE system.main.lower(view_name) = system.main.lower(?) AND NOT internal
"""
_TABLE_NAMES = """
    SELECT schema_name, table_name FROM system.main.duckdb_tables()
    WHERE database_name = system.main.current_database() AND NOT internal AND NOT temporary
    ORDER BY schema_name <> system.main.current_schema() ASC, schema_name ASC, table_name ASC
"""
_VIEW_NAMES = """
    SELECT schema_name, view_name FROM system.main.duckdb_views()
    WHERE database_name = system.main.current_database() AND NOT internal AND NOT temporary
    ORDER BY schema_name <> system.main.current_schema() ASC, schema_name ASC, view_name ASC
"""
_COLUMNS = """
    SELECT column_name, data_type, is_nullable, is_generated, comment
    FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index ASC
"""
_TABLE = """
    SELECT comment, sql, system.main.current_setting('default_collation')
    FROM system.main.duckdb_tables()
    WHERE database_name = ? AND schema_name = ? AND table_name = ?
"""
_CHECKS = """
    SELECT expression FROM system.main.duckdb_constraints()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? AND constraint_type = 'CHECK'
    ORDER BY constraint_index ASC
"""
_KEY_COLUMNS = """
    SELECT table_name, column_name, data_type, is_generated FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND NOT internal
    ORDER BY table_name ASC, column_index ASC
"""
_KEYS = """
    SELECT table_name, constraint_type, constraint_column_names, referenced_table,
        referenced_column_names
    FROM system.main.duckdb_constraints()
    WHERE database_name = ? AND schema_name = ?
        AND constraint_type IN ('FOREIGN KEY', 'PRIMARY KEY', 'UNIQUE')
    ORDER BY table_name ASC, constraint_index ASC
"""
_SCHEMAS = """
    SELECT DISTINCT database_name, schema_name FROM system.main.duckdb_columns() WHERE NOT internal
"""
_COMMENTS = """
    SELECT database_name, schema_name, table_name, comment FROM system.main.duckdb_tables()
    WHERE system.main.contains(comment, $1)
    UNION ALL
    SELECT database_name, schema_name, view_name, comment FROM system.main.duckdb_views()
    WHERE system.main.contains(comment, $1)
"""
_ZONES = "SELECT name FROM system.main.pg_timezone_names()"
_CLOCK = """
    SELECT system.main."timezone"(?, '2024-07-01 12:00:00+00'::TIMESTAMPTZ)::VARCHAR
"""
_BYTES = frozenset({"BINARY", "C", "POSIX"})
"""Collations that tell all texts apart."""
_Told = dict[tuple[str, ...], list[Row]]
_TOLD: ContextVar[tuple[object, _Told] | None] = ContextVar("told", default=None)
"""A connection, and what its catalog has told; see `DuckDBCatalog.held`."""


@dataclass(frozen=True, eq=False)
class DuckDBCatalog(Catalog):
    """The catalog of DuckDB, read on a connection; see `Catalog`.

    Args:
        con: an open connection; only its catalog is read.
    """

    con: DuckDBPyConnection
    copies: Mapping[tuple[str, ...], FrozenFiles] = field(default_factory=dict)
    """Tables that are copies of files, by the names in definitions of views → these files."""
    by_path: bool = False
    """Whether views are dpsql's own, of files that are asked by their paths."""
    system = "DuckDB"

    def fetch(self, sql: str, parameters: Sequence[str] = ()) -> list[Row]:
        """Run a statement that reads no rows of tables; see `fetching.fetch`."""
        held = _TOLD.get()
        if held is None or held[0] is not self.con:
            return fetch(self.con, sql, parameters)
        told, statement = held[1], (sql, *parameters)
        if statement not in told:
            told[statement] = fetch(self.con, sql, parameters)
        return list(told[statement])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Run no statement twice, until this ends; see `Catalog`."""
        before = _TOLD.set((self.con, {}))
        try:
            yield
        finally:
            _TOLD.reset(before)

    def forget(self) -> None:
        """Forget what it has told, as tables are others now; see `held`."""
        held = _TOLD.get()
        if held is not None and held[0] is self.con:
            held[1].clear()

    def current(self) -> SchemaPath:
        """Return the current database and schema; see `Catalog`."""
        ((database, schema),) = self.fetch(_CURRENT)
        return SchemaPath(str(database), str(schema))

    def database(self, name: str) -> Database | None:
        """Return a database of DuckDB's own; see `Catalog`."""
        found = self.fetch(_DATABASE, [name])
        if len(found) != 1 or folded(str(found[0][1])) != "duckdb":
            return None
        path = found[0][0]
        return Database(name, Path(path) if path else None)

    def tables_named(self, name: str) -> list[NamedTable]:
        """List the tables of a name; see `Catalog`."""
        return [
            NamedTable((database, schema, table), hidden)
            for database, schema, table, hidden in self.fetch(_TABLES, [name])
            if folded(table) == folded(name)
        ]

    def views_named(self, name: str) -> list[StoredView]:
        """List the views of a name; see `Catalog`."""
        return [
            StoredView((database, schema, view), str(sql), comment, registered)
            for database, schema, view, sql, comment, registered in self.fetch(_VIEWS, [name])
            if folded(view) == folded(name)
        ]

    def table_names(self) -> list[tuple[str, str]]:
        """List schema and name of all stored tables; see `Catalog`."""
        return [(schema, table) for schema, table in self.fetch(_TABLE_NAMES)]

    def view_names(self) -> list[tuple[str, str]]:
        """List schema and name of all stored views; see `Catalog`."""
        return [(schema, view) for schema, view in self.fetch(_VIEW_NAMES)]

    def columns(self, path: Sequence[str]) -> list[StoredColumn]:
        """List the columns of a table or a view; see `Catalog`."""
        return [StoredColumn(*row) for row in self.fetch(_COLUMNS, list(path))]

    def table(self, path: Sequence[str]) -> StoredTable | None:
        """Return a table; see `Catalog`.

        A view has columns too: one that took the table's place must not pass for it.
        """
        columns = tuple(self.columns(path))
        found = self.fetch(_TABLE, list(path))
        if not columns or not found:
            return None
        ((comment, definition, collation),) = found
        checks = tuple(text for (text,) in self.fetch(_CHECKS, list(path)))
        apart = _collated(columns, definition or "", collation)
        return StoredTable(columns, comment, checks, apart)

    def keys(self, path: Sequence[str]) -> StoredKeys:
        """Return the keys of the tables of a schema; see `Catalog`."""
        columns: dict[str, dict[str, str]] = {}
        for table, column, type_, generated in self.fetch(_KEY_COLUMNS, path[:2]):
            columns.setdefault(str(table), {})[str(column)] = "" if generated else str(type_)
        return StoredKeys(columns, tuple(_key(*row) for row in self.fetch(_KEYS, path[:2])))

    def schemas(self) -> list[SchemaPath]:
        """List the schemas that have tables; see `Catalog`."""
        return [SchemaPath(str(database), str(schema)) for database, schema in self.fetch(_SCHEMAS)]

    def comments(self, text: str) -> list[TableComment]:
        """List the comments that have a text in them; see `Catalog`."""
        return [
            TableComment((d, s, name), comment)
            for d, s, name, comment in self.fetch(_COMMENTS, [text])
        ]

    def zones(self) -> list[str]:
        """List the time zones that are known; see `Catalog`."""
        return [name for (name,) in self.fetch(_ZONES)]

    def is_gregorian(self, zone: str) -> bool:
        """Whether times are shown in a zone by the Gregorian calendar; see `Catalog`.

        DuckDB tells the clock of a zone by the calendar of the session, which is a setting. Its
        own zone makes no difference.
        """
        ((clock,),) = self.fetch(_CLOCK, [zone])
        return str(clock).startswith(("2024-06-30", "2024-07-0"))

    def copying(self, relation: str, name: str) -> str:
        """Write the statement that stores a relation as a table; see `Catalog`."""
        return f"CREATE TABLE {name} AS FROM {relation};"


def _key(table: str, kind: Any, names: Any, parent: str | None, keys: Any) -> StoredKey:
    return StoredKey(str(table), kind, _listed(names), str(parent), _listed(keys))


def _listed(names: object) -> tuple[str, ...]:
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _collated(columns: Sequence[StoredColumn], definition: str, default: str) -> frozenset[str]:
    """Return the columns of texts whose CHECKs also let texts pass that they don't name."""
    texts = frozenset(column.name for column in columns if column.type == "VARCHAR")
    if default and capitals(default) not in _BYTES:
        return texts  # of this connection, and its CHECKs follow it
    return texts & collated(definition, [column.name for column in columns]) if texts else texts
