"""Read a table's public description from DuckDB's catalog; rows are never read.

Estimated sizes and statistics are private although the catalog offers them, so each query below
names the few catalog columns that it needs. Functions are named with their schema, so that no
macro of the database can take their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.errors import SchemaError, StaleSchemaError, printable
from dpsql.schema.checks import collated, values_from_checks
from dpsql.schema.declared import checked_bounds, enum_labels, from_declaration
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.fetching import Row
from dpsql.schema.fetching import fetch as fetch
from dpsql.schema.names import apart, unknown
from dpsql.schema.references import resolve_unit
from dpsql.schema.sequences import DecimalRange
from dpsql.schema.table import COLLATED, Schema, Table, as_sql, closest
from dpsql.schema.units import EachRow, ResolvedUnit, Unit, of_comment

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TABLES = """
    SELECT database_name, schema_name, table_name, temporary OR internal
    FROM system.main.duckdb_tables()
    WHERE system.main.lower(table_name) = system.main.lower(?)
"""
_VIEWS = """
    SELECT database_name, schema_name, view_name
    FROM system.main.duckdb_views()
    WHERE system.main.lower(view_name) = system.main.lower(?) AND NOT internal
"""
_CURRENT = "SELECT system.main.current_database(), system.main.current_schema()"
_NAMES = """
    SELECT schema_name, table_name FROM system.main.duckdb_tables()
    WHERE database_name = system.main.current_database() AND NOT internal AND NOT temporary
    ORDER BY schema_name <> system.main.current_schema(), schema_name, table_name
"""
_VIEW_COLUMNS = """
    SELECT column_name FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index
"""
_TABLE = """
    SELECT comment, sql, system.main.current_setting('default_collation')
    FROM system.main.duckdb_tables()
    WHERE database_name = ? AND schema_name = ? AND table_name = ?
"""
_COLUMNS = """
    SELECT column_name, data_type, is_nullable, is_generated FROM system.main.duckdb_columns()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? ORDER BY column_index
"""
_CHECKS = """
    SELECT expression FROM system.main.duckdb_constraints()
    WHERE database_name = ? AND schema_name = ? AND table_name = ? AND constraint_type = 'CHECK'
    ORDER BY constraint_index
"""
_DATABASE = "SELECT path, type FROM system.main.duckdb_databases() WHERE database_name = ?"
_BYTES = frozenset({"BINARY", "C", "POSIX"})
"""Collations that tell all texts apart."""
_MAX_PARTS = 3
_SHOWN = 8
T = TypeVar("T")


def read_table(
    con: DuckDBPyConnection,
    name_parts: tuple[str, ...],
    declared: Schema | None = None,
    unit: Unit | EachRow | None = None,
) -> Table:
    """Describe a base table: its columns with their public domains.

    Args:
        con: an open DuckDB connection; only its catalog is read.
        name_parts: the table's name, optionally after its schema, or its database and schema.
        declared: domains and units that go before those of the catalog.
        unit: the table's privacy unit.

    Raises:
        SchemaError: no such base table, or an ambiguous name; a declared domain for a column
            that doesn't exist or can't hold it; a unit that can't be found, or is not the
            declared one; the catalog can't be read.
    """
    path = _find(con, tuple(name_parts))
    return _describe(con, path, declared, unit)


def current_database(con: DuckDBPyConnection) -> tuple[str, Path | None]:
    """Return the name of the current database and its file; None if it is in memory.

    Raises:
        SchemaError: the catalog can't be read, or the database is another system's: what DuckDB
            calls its path is then no file, and may hold a password.
    """
    ((name, _),) = fetch(con, _CURRENT)
    found = fetch(con, _DATABASE, [name])
    if len(found) != 1 or str(found[0][1]).lower() != "duckdb":
        raise SchemaError(
            f"The current database {printable(name)} is not DuckDB's own, so no account can be "
            "kept beside it.",
            hint="copy the table into a DuckDB database, and USE that.",
        )
    path = found[0][0]
    return name, Path(path) if path else None


def check_declared(con: DuckDBPyConnection, declared: Schema | None) -> None:
    """Check every declaration, also of tables that are not asked for: none may be misspelled.

    Raises:
        SchemaError: a declared table or column doesn't exist, or can't hold its domain.
    """
    for name in (
        dict.fromkeys([*declared, *declared.units, *declared.groups])
        if declared is not None
        else ()
    ):
        read_table(con, _meant(con, name), declared)


def table_names(con: DuckDBPyConnection) -> list[tuple[str, ...]]:
    """List the tables of the current database; those of another schema with its name.

    Raises:
        SchemaError: the catalog can't be read.
    """
    ((_, current),) = fetch(con, _CURRENT)
    return [
        (table,) if schema == current else (schema, table) for schema, table in fetch(con, _NAMES)
    ]


def _meant(con: DuckDBPyConnection, name: str) -> tuple[str, ...]:
    """Return the parts of a declared table's name, which may itself have a dot in it.

    A name alone also means a table of another schema, if it is the only one of that name.
    """
    known = {_folded(parts): parts for parts in table_names(con)}
    if (name.lower(),) in known:
        return (name,)
    others = [parts for folded, parts in known.items() if folded[-1] == name.lower()]
    if len(others) == 1:
        return others[0]
    parts = tuple(name.split("."))
    return parts if len(parts) <= _MAX_PARTS else (name,)


def verify_unchanged(
    con: DuckDBPyConnection,
    table: Table,
    declared: Schema | None = None,
    unit: Unit | EachRow | None = None,
) -> None:
    """Check that the catalog still describes `table`.

    Raises:
        StaleSchemaError: it was dropped or altered since it was read.
    """
    try:
        now = _describe(con, table.path, declared, unit)
    except SchemaError:
        now = None
    same = now is not None and now.fingerprint == table.fingerprint
    if now is None or not same or now.enforced != table.enforced:
        raise StaleSchemaError(
            f"The table {table.name} was altered or dropped since its schema was read.",
            hint="plan again: the new plan will read the new schema.",
        )


def _find(con: DuckDBPyConnection, parts: tuple[str, ...]) -> tuple[str, str, str]:
    """Resolve a name to the path of one base table of the current database."""
    shown = printable(".".join(parts))
    if not 1 <= len(parts) <= 3 or not all(_encodable(part) and part for part in parts):
        raise SchemaError(
            f"{shown or 'An empty text'} is not a table name.", hint="for example people."
        )
    ((database, schema),) = fetch(con, _CURRENT)
    tables = fetch(con, _TABLES, [parts[-1]])
    stored, hidden = ([row[:3] for row in tables if bool(row[3]) is is_] for is_ in (False, True))
    views = fetch(con, _VIEWS, [parts[-1]])
    wanted = _candidates(parts, database, schema)
    found = [row for row in stored if _folded(row) in wanted]
    if len(found) > 1:
        raise SchemaError(
            f"The name {shown} is ambiguous: it means {_listed(found)}.",
            hint="write database.schema.table.",
        )
    if len(parts) == 1 and found and any(row[0].lower() == "temp" for row in hidden + views):
        raise SchemaError(
            f"The name {shown} is ambiguous: a temporary table or view hides the stored table.",
            hint=f"write {schema}.{printable(found[0][2])}, or drop the temporary one.",
        )
    if found:
        return found[0]
    raise _not_found(shown, parts, stored + hidden, views, con)


def is_named(con: DuckDBPyConnection, parts: tuple[str, ...], table: Table) -> bool:
    """Whether a name, with or without its schema and database, means a table."""
    ((database, schema),) = fetch(con, _CURRENT)
    return _folded(table.path) in _candidates(parts, database, schema)


def _candidates(parts: tuple[str, ...], database: str, schema: str) -> set[tuple[str, ...]]:
    name = parts[-1]
    paths: list[tuple[str, ...]]
    if len(parts) == 1:
        paths = [(database, schema, name)]
    elif len(parts) == 2:  # the first is a schema or, as DuckDB allows, the database
        paths = [(database, parts[0], name)]
        paths += [(database, schema, name)] * (parts[0].lower() == database.lower())
    else:
        paths = [parts] * (parts[0].lower() == database.lower())
    return {_folded(path) for path in paths}


def _not_found(
    shown: str,
    parts: tuple[str, ...],
    tables: list[tuple[Any, ...]],
    views: list[tuple[Any, ...]],
    con: DuckDBPyConnection,
) -> SchemaError:
    name = parts[-1]
    seen = [view for view in views if view[2].lower() == name.lower()]
    if seen:
        columns = [row[0] for row in fetch(con, _VIEW_COLUMNS, list(seen[0]))]
        listed = ", ".join(map(as_sql, columns[:_SHOWN]))
        more = ", …" if len(columns) > _SHOWN else ""
        stored = f"CREATE TABLE {as_sql(f'{name}_stored')} AS FROM {'.'.join(map(as_sql, parts))};"
        return SchemaError(
            f"{shown} is a view, or a registered frame; only base tables can be released from.",
            hint=f"store its rows in a table, and declare domains of its columns {listed}{more}: "
            f"{stored}",
        )
    if any(row[0].lower() == "temp" for row in tables):
        return SchemaError(
            f"{shown} is a temporary table; only stored base tables can be released from.",
            hint="create it without TEMP.",
        )
    here, current = fetch(con, _CURRENT)[0]
    near = [row for row in tables if row[0] == here]
    if near:
        typed = " or ".join(f"{as_sql(row[1])}.{as_sql(row[2])}" for row in near)
        return unknown(
            f"There is no table {shown} in the schema {printable(current)}.", f"write {typed}."
        )
    if tables:
        return unknown(
            f"There is no table {shown} in the database {printable(here)}.",
            f"there is {_listed(tables)}: USE {as_sql(tables[0][0])}; first, since an account "
            "is for one database.",
        )
    known = [".".join(map(as_sql, parts)) for parts in table_names(con)[:1000]]
    hint = closest(".".join(parts), known) if known else (
        "the database has no table: CREATE TABLE … AS FROM 'file.parquet'; makes one."
    )  # fmt: skip
    return unknown(f"There is no table {shown}.", hint)


def _describe(
    con: DuckDBPyConnection,
    path: tuple[str, ...],
    schema: Schema | None,
    unit: Unit | EachRow | None,
) -> Table:
    declared = _of_table(con, schema if schema is not None else {}, path) or {}
    rows = fetch(con, _COLUMNS, list(path))
    found_tables = fetch(con, _TABLE, list(path))
    # A view has columns too: one that took the table's place must not pass for it.
    if not rows or not found_tables:
        raise unknown(f"There is no table {path[-1]}.", "was it dropped?")
    ((comment, definition, collation),) = found_tables
    checks = [row[0] for row in fetch(con, _CHECKS, list(path))]
    names = apart(path[-1], [row[0] for row in rows])
    for column in declared:
        if column.lower() not in names:
            raise SchemaError(
                f"The schema declares the column {printable(column)}, which {path[-1]} "
                "doesn't have.",
                hint=closest(column, names.values()),
            )
    unclear = _collated(rows, definition or "", collation)
    domains = {column.lower(): domain for column, domain in declared.items()}
    columns: dict[str, Domain] = {}
    undeclared: dict[str, str] = {}
    bounds: dict[str, NumberBounds] = {}
    for name, type_, nullable, generated in rows:
        # A generated column may call anything, random() too: it is not a fact about the row.
        says_nothing = generated or name in unclear
        found = None if says_nothing else _from_catalog(name, type_, nullable, checks)
        given = domains.get(name.lower())
        if isinstance(given, NumberBounds):
            found, bounds[name] = None, checked_bounds(name, type_, generated, given)
        elif given is not None:
            found = from_declaration(name, type_, generated, given)
        if found is None:
            shown = COLLATED if name in unclear else type_
            undeclared[name] = f"GENERATED {shown}" if generated else shown
        else:
            columns[name] = found
    resolved, each_row = _unit(con, path, schema, unit, comment)
    enforced = frozenset(name for name in columns if name.lower() not in domains)
    exist = (_of_table(con, schema.groups, path) if schema is not None else None) or ()
    groups = tuple(each.resolved(path[-1], columns) for each in exist)
    return Table(
        path[-1],
        columns,
        undeclared,
        tuple(path),
        resolved,
        enforced,
        groups,
        each_row,
        bounds,
        frozenset(name for name, _, nullable, generated in rows if not nullable and not generated),
    )


def _unit(
    con: DuckDBPyConnection,
    path: tuple[str, ...],
    schema: Schema | None,
    given: Unit | EachRow | None,
    comment: str | None,
) -> tuple[ResolvedUnit | None, bool]:
    """Find the table's privacy unit: as given, as declared, or as its comment says.

    Where there is none, tell whether the owner says so.
    """
    declared = _of_table(con, schema.units, path) if schema is not None else None
    if given is not None and declared is not None and given != declared:
        raise SchemaError(
            f"The schema declares another privacy unit for {path[-1]} than was passed.",
            hint=f"leave unit and max_rows out: the schema says {declared}.",
        )
    unit = of_comment(path[-1], comment, given or declared)
    if unit is None or isinstance(unit, EachRow):
        return None, unit is not None
    return resolve_unit(lambda sql, names: fetch(con, sql, names), tuple(path), unit), False


def _collated(columns: Sequence[Row], definition: str, default: str) -> frozenset[str]:
    """Return the columns of texts whose CHECKs also let texts pass that they don't name."""
    texts = frozenset(name for name, type_, *_ in columns if type_ == "VARCHAR")
    if default and default.upper() not in _BYTES:
        return texts  # of this connection, and its CHECKs follow it
    return texts & collated(definition, [name for name, *_ in columns]) if texts else texts


def _from_catalog(name: str, type_: str, nullable: bool, checks: Sequence[str]) -> Domain | None:
    if type_ == "BOOLEAN":
        return Domain.boolean(nullable=nullable)
    labels = enum_labels(type_)
    if labels is not None:
        return Domain("ENUM", labels, nullable) if labels else None
    values = values_from_checks(name, type_, checks)
    if not values:
        return None
    if isinstance(values, DecimalRange):
        return Domain(values.type, values, nullable, column_type=type_)
    return Domain(type_, values, nullable, column_type=type_ if type_ == "DATE" else "")


def _of_table(con: DuckDBPyConnection, declared: Mapping[str, T], path: Sequence[str]) -> T | None:
    """Return what is declared for a table."""
    near = [
        key for key in declared if key.split(".")[-1].lower() == path[-1].split(".")[-1].lower()
    ]
    tables = [key for key in near if _means(con, key, path)]
    if len(tables) > 1:
        raise SchemaError(
            f"The schema declares the table {path[-1]} twice.", hint="SQL ignores case: keep one."
        )
    return declared[tables[0]] if tables else None


def _means(con: DuckDBPyConnection, name: str, path: Sequence[str]) -> bool:
    """Whether a declared name is that of the table at a path."""
    ((database, schema),) = fetch(con, _CURRENT)
    return _folded(path) in _candidates(_meant(con, name), database, schema)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def _listed(paths: Sequence[Sequence[str]]) -> str:
    return " and ".join(printable(".".join(path[:3])) for path in paths)
