"""DuckDB's catalog, as the facts that descriptions of tables are made of.

Estimated sizes and statistics are private although the catalog offers them, so each query below
names the few catalog columns that it needs. Functions are named with their schema, so that no
macro of the database can take their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from dpsql.errors import InternalError, SchemaError, printable
from dpsql.schema.checks import collated
from dpsql.schema.facts import (
    Database,
    HeldCatalog,
    NamedTable,
    SchemaPath,
    StoredColumn,
    StoredKey,
    StoredKeys,
    StoredTable,
    StoredView,
    TableComment,
    TablePath,
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


MEANING = {
    "integer_division": ("false",),
    "ieee_floating_point_ops": ("true",),
    "old_implicit_casting": ("false",),
    "default_order": ("ASC", "ASCENDING"),
    "default_null_order": ("NULLS_LAST",),
    "default_collation": ("BINARY", "", "C", "POSIX"),
    "dialect_compatibility_mode": ("NONE",),
    "current_dialect": ("NULL",),
    "active_grammar_extensions": ("[]",),
}
"""Settings that change what SQL means, and their values under which it means what it does here."""
_RESET = frozenset({"current_dialect", "active_grammar_extensions"})
"""Settings of which no value can be set that means the default."""
_READ = ("lock_configuration", *MEANING)
_SETTINGS = ", ".join(f"system.main.current_setting('{name}')" for name in _READ)
_HERE = f"""
    SELECT system.main.current_database(), system.main.current_schema(), database_name, path, type,
        {_SETTINGS}
    FROM system.main.duckdb_databases()
"""
_NAMED = """
    SELECT false, database_name, schema_name, table_name, temporary, internal, comment, false,
        system.main.contains(system.main.upper(sql), 'COLLATE')
    FROM system.main.duckdb_tables()
    UNION ALL
    SELECT true, database_name, schema_name, view_name, temporary, internal, comment,
        system.main.map_contains(tags, 'duckdb_python_register'), false
    FROM system.main.duckdb_views() WHERE NOT internal
"""
_DEFINITION = """
    SELECT sql FROM system.main.duckdb_tables()
    WHERE database_name = ? AND schema_name = ? AND table_name = ?
"""
_VIEW = """
    SELECT sql FROM system.main.duckdb_views()
    WHERE database_name = ? AND schema_name = ? AND view_name = ? AND NOT internal
"""
_COLUMNS = """
    SELECT column_index, column_name, data_type, is_nullable, is_generated, comment
    FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ?
"""
_KEY_COLUMNS = """
    SELECT table_name, column_index, column_name, data_type, is_generated
    FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND NOT internal
"""
_CONSTRAINTS = """
    SELECT table_name, constraint_index, constraint_type, constraint_column_names,
        referenced_table, referenced_column_names, expression
    FROM system.main.duckdb_constraints() WHERE database_name = ? AND schema_name = ?
"""
_KEYS = frozenset({"FOREIGN KEY", "PRIMARY KEY", "UNIQUE"})
_ZONES = "SELECT name FROM system.main.pg_timezone_names()"
_CLOCK = """
    SELECT system.main."timezone"(?, '2024-07-01 12:00:00+00'::TIMESTAMPTZ)::VARCHAR
"""
_BYTES = frozenset({"BINARY", "C", "POSIX"})
"""Collations that tell all texts apart."""


class _Databases(NamedTuple):
    """The place of names alone, the databases that there are, and settings of the connection."""

    current: SchemaPath
    databases: Mapping[str, tuple[str | None, str]]
    """Database → its file, if it is in one, and its kind."""
    settings: Mapping[str, str | None]
    """Settings that change what SQL means, and whether they are locked."""


class _Named(NamedTuple):
    """A table or a view that has a name."""

    is_view: bool
    database: str
    schema: str
    name: str
    temporary: bool
    internal: bool
    comment: str | None
    registered: bool
    collates: bool
    """Whether its definition has a collation in it."""

    @property
    def path(self) -> TablePath:
        return self.database, self.schema, self.name


@dataclass(frozen=True, eq=False)
class DuckDBCatalog(HeldCatalog):
    """The catalog of DuckDB, read on a connection; see `Catalog`.

    All names are read by one statement, so that a script is compiled by few statements, however
    many tables it names: a statement takes longer than what it tells.

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
        rows = self._once((sql, *parameters), lambda: fetch(self.con, sql, parameters))
        return list(rows)

    @property
    def _place(self) -> object:
        return self.con

    def _here(self) -> _Databases:
        rows = self.fetch(_HERE)
        current = SchemaPath(str(rows[0][0]), str(rows[0][1]))
        databases = {row[2]: (row[3], str(row[4])) for row in rows}
        settings = map(_spelled, rows[0][5:])  # a cast of each would take DuckDB longer
        return _Databases(current, databases, dict(zip(_READ, settings, strict=True)))

    def check_meaning(self) -> None:
        """Check that SQL means on the connection what it means by default.

        Raises:
            SchemaError: a setting changes that.
        """
        settings = self._here().settings
        for name, usual in MEANING.items():
            setting = settings[name]
            value = "NULL" if setting is None else setting
            if capitals(value) not in map(capitals, usual):
                raise _other_meaning(name, value, locked=settings["lock_configuration"] == "true")

    def _named(self) -> Mapping[str, Sequence[_Named]]:
        """Return the tables and views that there are, by their names in one case."""
        return self._once("named", self._named_now)

    def _named_now(self) -> Mapping[str, Sequence[_Named]]:
        named: dict[str, list[_Named]] = {}
        for row in self.fetch(_NAMED):
            table = _Named(*row)
            named.setdefault(folded(table.name), []).append(table)
        return named

    def current(self) -> SchemaPath:
        """Return the current database and schema; see `Catalog`."""
        return self._here().current

    def database(self, name: str) -> Database | None:
        """Return a database of DuckDB's own; see `Catalog`."""
        path, kind = self._here().databases.get(name, (None, ""))
        if folded(kind) != "duckdb":
            return None
        return Database(name, Path(path) if path else None)

    def tables_named(self, name: str) -> list[NamedTable]:
        """List the tables of a name; see `Catalog`."""
        return [
            NamedTable(table.path, table.temporary or table.internal)
            for table in self._named().get(folded(name), ())
            if not table.is_view
        ]

    def views_named(self, name: str) -> list[StoredView]:
        """List the views of a name; see `Catalog`."""
        return [
            StoredView(view.path, str(sql), view.comment, view.registered)
            for view in self._named().get(folded(name), ())
            if view.is_view
            for (sql,) in self.fetch(_VIEW, view.path)
        ]

    def table_names(self) -> list[tuple[str, str]]:
        """List schema and name of all stored tables; see `Catalog`."""
        return self._stored(views=False)

    def view_names(self) -> list[tuple[str, str]]:
        """List schema and name of all stored views; see `Catalog`."""
        return self._stored(views=True)

    def _stored(self, *, views: bool) -> list[tuple[str, str]]:
        here = self.current()
        stored = [
            (relation.schema, relation.name)
            for alike in self._named().values()
            for relation in alike
            if relation.is_view == views and relation.database == here.database
            if not (relation.internal or relation.temporary)
        ]
        return sorted(stored, key=lambda path: (path[0] != here.schema, path))

    def columns(self, path: Sequence[str]) -> list[StoredColumn]:
        """List the columns of a table or a view; see `Catalog`."""
        return [StoredColumn(*row[1:]) for row in _in_order(self.fetch(_COLUMNS, list(path)))]

    def table(self, path: Sequence[str]) -> StoredTable | None:
        """Return a table; see `Catalog`.

        A view has columns too: one that took the table's place must not pass for it.
        """
        alike = self._named().get(folded(path[2]), ())
        same = [table for table in alike if not table.is_view and table.path == tuple(path)]
        columns = tuple(self.columns(path)) if same else ()
        if not columns:
            return None
        (table,) = same
        checks = tuple(
            row[6] for row in self._constraints(path) if row[0] == table.name and row[2] == "CHECK"
        )
        rows = self.fetch(_DEFINITION, path) if table.collates else []
        definition = "".join(str(sql) for (sql,) in rows)
        apart = _collated(columns, definition, self._here().settings["default_collation"])
        return StoredTable(columns, table.comment, checks, apart)

    def keys(self, path: Sequence[str]) -> StoredKeys:
        """Return the keys of the tables of a schema; see `Catalog`."""
        columns: dict[str, dict[str, str]] = {}
        for table, _, column, type_, generated in _in_order(self.fetch(_KEY_COLUMNS, path[:2])):
            columns.setdefault(str(table), {})[str(column)] = "" if generated else str(type_)
        rows = self._constraints(path)
        keys = (_key(row[0], *row[2:6]) for row in rows if row[2] in _KEYS)
        return StoredKeys(columns, tuple(keys))

    def _constraints(self, path: Sequence[str]) -> list[Row]:
        """Return the constraints of the tables of a schema, those of each table in their order."""
        return _in_order(self.fetch(_CONSTRAINTS, path[:2]))

    def schemas(self) -> list[SchemaPath]:
        """List the schemas that have tables; see `Catalog`."""
        named = [table for alike in self._named().values() for table in alike if not table.internal]
        return [SchemaPath(*pair) for pair in dict.fromkeys((o.database, o.schema) for o in named)]

    def comments(self, text: str) -> list[TableComment]:
        """List the comments that have a text in them; see `Catalog`."""
        return [
            TableComment(table.path, table.comment)
            for alike in self._named().values()
            for table in alike
            if table.comment is not None and text in table.comment
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


def _spelled(value: object) -> str | None:
    """Write the value of a setting, which is a truth value, a name or a list of some."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _other_meaning(name: str, value: str, *, locked: bool) -> SchemaError:
    """Refuse a connection of which a setting changes what SQL means."""
    change = f"SET SESSION {name} = '{MEANING[name][0]}';"
    if name in _RESET:
        change = f"RESET {name};"
    return SchemaError(
        f"The connection has {name} = {printable(value)}, which changes what SQL means. "
        "Statements mean here what they mean by default.",
        hint=f"open it again without that: its configuration is locked, so {change} fails."
        if locked
        else change,
    )


def _in_order(rows: list[Row]) -> list[Row]:
    """Put rows in order that begin with names and numbers: DuckDB takes longer for the few."""
    return sorted(rows, key=lambda row: row[:2])


def _key(table: str, kind: Any, names: Any, parent: str | None, keys: Any) -> StoredKey:
    return StoredKey(str(table), kind, _listed(names), str(parent), _listed(keys))


def _listed(names: object) -> tuple[str, ...]:
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _collated(
    columns: Sequence[StoredColumn], definition: str, default: str | None
) -> frozenset[str]:
    """Return the columns of texts whose CHECKs also let texts pass that they don't name."""
    texts = frozenset(column.name for column in columns if column.type == "VARCHAR")
    if default and capitals(default) not in _BYTES:
        return texts  # of this connection, and its CHECKs follow it
    return texts & collated(definition, [column.name for column in columns]) if texts else texts
