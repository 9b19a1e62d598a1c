"""What a name means in DuckDB's catalog: which table or view, and what is declared for it.

Functions are named with their schema, so that no macro of the database can take their place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dpsql.errors import SchemaError, printable
from dpsql.schema.fetching import fetch
from dpsql.schema.names import as_sql, closest, nearest, unknown
from dpsql.schema.table import Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
_VIEW_NAMES = """
    SELECT schema_name, view_name FROM system.main.duckdb_views()
    WHERE database_name = system.main.current_database() AND NOT internal AND NOT temporary
    ORDER BY schema_name <> system.main.current_schema(), schema_name, view_name
"""
_CURRENT = "SELECT system.main.current_database(), system.main.current_schema()"
_NAMES = """
    SELECT schema_name, table_name FROM system.main.duckdb_tables()
    WHERE database_name = system.main.current_database() AND NOT internal AND NOT temporary
    ORDER BY schema_name <> system.main.current_schema(), schema_name, table_name
"""
_COLUMNS = """
    SELECT column_name, data_type, is_nullable, is_generated, comment
    FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index
"""
_DATABASE = "SELECT path, type FROM system.main.duckdb_databases() WHERE database_name = ?"
_MAX_PARTS = 3
_MAIN = "main"
"""The schema of an attached database that a name means which has none."""
_TEMPORARY = "temp"
"""The database of what is temporary."""
_SHOWN = 8
T = TypeVar("T")


class StoredColumn(NamedTuple):
    """A column of a table or a view, as the catalog has it."""

    name: str
    type: str
    nullable: bool
    generated: bool
    comment: str | None


class StoredView(NamedTuple):
    """A view of the current database, as the catalog has it."""

    path: tuple[str, str, str]
    sql: str
    """Its definition, written by DuckDB: CREATE VIEW …"""
    comment: str | None


def columns_of(con: DuckDBPyConnection, path: Sequence[str]) -> list[StoredColumn]:
    """List the columns of a table or a view; none if there is neither at this path.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return [StoredColumn(*row) for row in fetch(con, _COLUMNS, list(path))]


def _current(con: DuckDBPyConnection) -> tuple[str, str]:
    """Return the names of the current database and schema."""
    ((database, schema),) = fetch(con, _CURRENT)
    return str(database), str(schema)


def current_database(con: DuckDBPyConnection) -> tuple[str, Path | None]:
    """Return the name of the current database and its file; None if it is in memory.

    Raises:
        SchemaError: the catalog can't be read, or the database is another system's: what DuckDB
            calls its path is then no file, and may hold a password.
    """
    name, _ = _current(con)
    found = fetch(con, _DATABASE, [name])
    if len(found) != 1 or str(found[0][1]).lower() != "duckdb":
        raise SchemaError(
            f"The current database {printable(name)} is not DuckDB's own, so no account can be "
            "kept beside it.",
            hint="copy the table into a DuckDB database, and USE that.",
        )
    path = found[0][0]
    return name, Path(path) if path else None


def attached_file(
    con: DuckDBPyConnection, path: Sequence[str], current: str | None = None
) -> Path | None:
    """Return the file that a table or view of an attached database is in; None in the current one.

    The file is what its rows are known by: their account is beside it, whatever the database is
    called on this connection. So it has to be one, and DuckDB's, of which a transaction sees one
    state. The current database may be given.

    Raises:
        SchemaError: the database is another system's, in memory, or on another machine.
    """
    database = path[0]
    if database.lower() == (current or _current(con)[0]).lower():
        return None
    found = fetch(con, _DATABASE, [database])
    if len(found) != 1 or str(found[0][1]).lower() != "duckdb":
        raise _other_system(database, path)
    file = found[0][0]
    if not file:
        raise SchemaError(
            f"{printable(path[-1])} is in another database in memory, {printable(database)}: "
            "nothing tells its account from that of the next one of this name.",
            hint=f"USE {as_sql(database)}; and make a new session.",
        )
    if not os.path.isfile(file):
        raise SchemaError(
            f"The database {printable(database)} is no file of this machine, so no account can be "
            "kept beside it.",
            hint=_stored(path),
        )
    return Path(file)


def _other_system(database: str, path: Sequence[str]) -> SchemaError:
    return SchemaError(
        f"The database {printable(database)} is not DuckDB's own: what one snapshot of it is, and "
        "which account is for it, isn't known here.",
        hint=f"store the rows in DuckDB: {_stored(path)}",
    )


def _stored(path: Sequence[str]) -> str:
    name = as_sql(f"{path[-1]}_stored")
    return f"CREATE TABLE {name} AS FROM {'.'.join(map(as_sql, path))};"


def table_names(con: DuckDBPyConnection, *, views: bool = False) -> list[tuple[str, ...]]:
    """List the tables of the current database, or its views; those of another schema with its name.

    Raises:
        SchemaError: the catalog can't be read.
    """
    _, current = _current(con)
    return [
        (table,) if schema == current else (schema, table)
        for schema, table in fetch(con, _VIEW_NAMES if views else _NAMES)
    ]


def meant(con: DuckDBPyConnection, name: str) -> tuple[str, ...]:
    """Return the parts of a declared table's name, which may itself have a dot in it.

    A name alone also means a table of another schema, if it is the only one of that name.
    """
    listed = [*table_names(con), *table_names(con, views=True)]
    known = {_folded(parts): parts for parts in listed}
    if (name.lower(),) in known:
        return (name,)
    others = [parts for folded, parts in known.items() if folded[-1] == name.lower()]
    if len(others) == 1:
        return others[0]
    parts = tuple(name.split("."))
    return parts if len(parts) <= _MAX_PARTS else (name,)


def find(
    con: DuckDBPyConnection, parts: tuple[str, ...], within: tuple[str, str] | None = None
) -> tuple[str, str, str]:
    """Resolve a name to the path of one base table, of the current or an attached database.

    Args:
        con: an open DuckDB connection.
        parts: the name.
        within: the database and the schema in which a name alone is looked up; if not given, the
            current ones, after what is temporary.

    Raises:
        SchemaError: there is none, or the name may mean several; or see `attached_file`.
    """
    shown = _checked(parts)
    here = _current(con)
    place = within or here
    tables = fetch(con, _TABLES, [parts[-1]])
    views = fetch(con, _VIEWS, [parts[-1]])
    wanted = _candidates(parts, *place)
    found = _one(shown, [row[:3] for row in tables if not row[3] and _folded(row[:3]) in wanted])
    if found is None:
        raise _not_found(shown, parts, tables, views, place, con)
    hidden = [row for row in tables if row[3]] + views
    if within is None and len(parts) == 1 and any(row[0].lower() == _TEMPORARY for row in hidden):
        raise _hidden(shown, found, "table")
    attached_file(con, found, here[0])
    return found


def is_table(con: DuckDBPyConnection, path: Sequence[str]) -> bool:
    """Whether there is a stored table at a path.

    Raises:
        SchemaError: the catalog can't be read.
    """
    found = fetch(con, _TABLES, [path[-1]])
    return any(_folded(row[:3]) == _folded(path) for row in found if not row[3])


def find_view(
    con: DuckDBPyConnection, parts: tuple[str, ...], within: tuple[str, str] | None = None
) -> StoredView | None:
    """Resolve a name to a view of the current or an attached database; None if it means none.

    For the arguments see `find`.

    Raises:
        SchemaError: it is no name, or may mean several; or see `attached_file`.
    """
    shown = _checked(parts)
    here = _current(con)
    wanted = _candidates(parts, *(within or here))
    views = {tuple(row[:3]): row for row in fetch(con, _VIEWS, [parts[-1]])}
    stored = [path for path in views if path[0].lower() != _TEMPORARY]
    found = _one(shown, [path for path in stored if _folded(path) in wanted])
    if found is None:
        return None
    others = [*views, *(row[:3] for row in fetch(con, _TABLES, [parts[-1]]))]
    hidden = any(row[0].lower() == _TEMPORARY for row in others)
    if within is None and len(parts) == 1 and hidden:
        raise _hidden(shown, found, "view")
    attached_file(con, found, here[0])
    return StoredView(found, str(views[found][3]), views[found][4])


def _checked(parts: tuple[str, ...]) -> str:
    """Return how a name is shown.

    Raises:
        SchemaError: it is none.
    """
    shown = printable(".".join(parts))
    if not 1 <= len(parts) <= _MAX_PARTS or not all(_encodable(part) and part for part in parts):
        raise SchemaError(
            f"{shown or 'An empty text'} is not a table name.", hint="for example people."
        )
    return shown


def _one(shown: str, found: Sequence[tuple[Any, ...]]) -> tuple[str, str, str] | None:
    if len(found) > 1:
        raise SchemaError(
            f"The name {shown} is ambiguous: it means {_listed(found)}.",
            hint="write database.schema.table.",
        )
    if not found:
        return None
    database, schema, name = found[0]
    return database, schema, name


def _hidden(shown: str, found: tuple[str, str, str], kind: str) -> SchemaError:
    return SchemaError(
        f"The name {shown} is ambiguous: a temporary table or view hides the stored {kind}.",
        hint=f"write {printable(found[1])}.{printable(found[2])}, or drop the temporary one.",
    )


def is_named(con: DuckDBPyConnection, parts: tuple[str, ...], table: Table) -> bool:
    """Whether a name, with or without its schema and database, means a table."""
    return _folded(table.path) in _candidates(parts, *_current(con))


def _candidates(parts: tuple[str, ...], database: str, schema: str) -> set[tuple[str, ...]]:
    name = parts[-1]
    paths: list[tuple[str, ...]]
    if len(parts) == 1:
        paths = [(database, schema, name)]
    elif len(parts) == 2:  # the first is a schema or, as DuckDB allows, a database
        own = parts[0].lower() == database.lower()
        paths = [(database, parts[0], name), (parts[0], schema if own else _MAIN, name)]
    else:
        paths = [parts]
    return {_folded(path) for path in paths}


def storing(con: DuckDBPyConnection, parts: tuple[str, ...], view: tuple[str, str, str]) -> str:
    """Word how the rows of a view are stored in a table."""
    columns = [column.name for column in columns_of(con, view)]
    listed = ", ".join(map(as_sql, columns[:_SHOWN]))
    more = ", …" if len(columns) > _SHOWN else ""
    stored = f"CREATE TABLE {as_sql(f'{view[-1]}_stored')} AS FROM {'.'.join(map(as_sql, parts))};"
    return f"store its rows in a table, and declare domains of its columns {listed}{more}: {stored}"


def _not_found(
    shown: str,
    parts: tuple[str, ...],
    tables: list[tuple[Any, ...]],
    views: list[tuple[Any, ...]],
    place: tuple[str, str],
    con: DuckDBPyConnection,
) -> SchemaError:
    name = parts[-1]
    seen = [view for view in views if view[2].lower() == name.lower()]
    if any(view[5] for view in seen):
        return SchemaError(
            f"{shown} is a registered frame; only base tables and views of them can be released "
            "from, since what is registered may be replaced at any time.",
            hint=f"ask the frame itself, as the table self: polars.DataFrame({as_sql(name)})"
            ".dp.session(); or store its rows: "
            f"CREATE TABLE {as_sql(f'{name}_stored')} AS FROM {as_sql(name)};",
        )
    here, current = place
    wanted = {(_TEMPORARY, _MAIN, name.lower()), *_candidates(parts, here, current)}
    if any(_folded(view[:3]) in wanted for view in seen):
        return SchemaError(
            f"{shown} is a temporary view; only base tables and stored views of them can be "
            "released from.",
            hint="create it without TEMP.",
        )
    if any(row[0].lower() == _TEMPORARY for row in tables):
        return SchemaError(
            f"{shown} is a temporary table; only stored base tables can be released from.",
            hint="create it without TEMP.",
        )
    found = [row for row in tables if not row[3]] + seen
    near = [row for row in found if row[0] == here]
    if near:
        typed = " or ".join(f"{as_sql(row[1])}.{as_sql(row[2])}" for row in near)
        return unknown(
            f"There is no table {shown} in the schema {printable(current)}.", f"write {typed}."
        )
    for row in found:
        attached_file(con, row[:3])
    if found:
        typed = " or ".join(".".join(map(as_sql, row[:3])) for row in found)
        return unknown(
            f"There is no table {shown} in the database {printable(here)}.", f"write {typed}."
        )
    known = [".".join(map(as_sql, parts)) for parts in table_names(con)[:1000]]
    hint = closest(".".join(parts), known) if known else (
        "the database has no table: CREATE TABLE … AS FROM 'file.parquet'; makes one."
    )  # fmt: skip
    if len(parts) == 1 and nearest(name, known) is None:
        hint += (
            f" If it is a frame of Python, store it: CREATE TABLE {as_sql(f'{name}_stored')} AS "
            f"FROM {as_sql(name)}; or ask it as the table self, by its dp.session()."
        )
    return unknown(f"There is no table {shown}.", hint)


def of_table(con: DuckDBPyConnection, declared: Mapping[str, T], path: Sequence[str]) -> T | None:
    """Return what is declared for a table."""
    near = [
        key for key in declared if key.split(".")[-1].lower() == path[-1].split(".")[-1].lower()
    ]
    tables = [key for key in near if means(con, key, path)]
    if len(tables) > 1:
        raise SchemaError(
            f"The schema declares the table {path[-1]} twice.", hint="SQL ignores case: keep one."
        )
    return declared[tables[0]] if tables else None


def means(con: DuckDBPyConnection, name: str, path: Sequence[str]) -> bool:
    """Whether a declared name is that of the table at a path."""
    return _folded(path) in _candidates(meant(con, name), *_current(con))


def _encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def _listed(paths: Sequence[Sequence[str]]) -> str:
    return " and ".join(printable(".".join(path[:3])) for path in paths)
