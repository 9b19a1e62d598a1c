"""Write answers to tables of a database: all of them in one transaction, and over nothing else.

Nothing is read but the names of tables and their comments. A table whose comment begins with a mark
was written by this module, and only such a one is ever replaced. A table is not written
where statements that name another one without its schema would find it instead: that could be the
private table from which the answers were counted.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from dpsql.engines.answers import WrittenTable, WrittenTables
from dpsql.errors import ReleaseFormatError, printable
from dpsql.hints import Hint, option
from dpsql.schema.names import folded, quoted_name, quoted_text

TEMPORARY = "temp"
MAX_SCHEMA = 200
_RELATIONS = """
    SELECT database_name, schema_name, table_name, coalesce(comment, '')
    FROM system.main.duckdb_tables()
    UNION ALL
    SELECT database_name, schema_name, view_name, coalesce(comment, '')
    FROM system.main.duckdb_views() WHERE NOT internal
"""
_TXID = "SELECT system.main.txid_current()"


@dataclass(frozen=True, slots=True)
class _Place:
    """The place to which tables are written."""

    database: str
    schema: str
    temporary: bool
    on_path: bool
    """Whether statements find a table there without its schema."""

    def named(self, table: str) -> str:
        return ".".join(map(quoted_name, (self.database, self.schema, table)))


def write_answers(
    con: duckdb.DuckDBPyConnection,
    tables: WrittenTables,
    schema: str | None,
    *,
    overwrite: bool,
) -> dict[str, str]:
    """Write tables, all or none; in the caller's transaction, if one is open.

    Args:
        con: the caller's connection.
        tables: what is written.
        schema: where to, as `results` or `database.results`, which is made if there is none;
            `temp` for tables that go with the connection; None for the schema in use.
        overwrite: whether tables are replaced that were written here before.

    Returns:
        Name of each table, and how SQL finds it wherever it is.

    Raises:
        ReleaseFormatError: a name is taken, or DuckDB can't write there.
    """
    try:
        begun = _begin(con)
        try:
            place = _place(con, schema)
            _check_names(con, place, tables, overwrite=overwrite)
            written = {table.name: _write(con, place, table) for table in tables.made}
            if begun:
                con.commit()
        except BaseException:
            if begun:
                with suppress(duckdb.Error):
                    con.rollback()
            raise
    except (duckdb.Error, pl.exceptions.PolarsError) as error:
        why = printable(str(error).split("\n")[0][:300])
    else:
        return written
    raise ReleaseFormatError(
        f"The answers can't be written to the database: {why}",
        hint='write to one that you may change: duckdb.connect("answers.duckdb").',
    )


def write_database(path: Path, tables: WrittenTables) -> dict[str, str]:
    """Write tables to a database, which is made if there is none, and over those written so before.

    Raises:
        ReleaseFormatError: it can't be written.
    """
    try:
        con = duckdb.connect(path)
    except duckdb.Error as error:
        why = printable(str(error).split("\n")[0][:300])
    else:
        with con:
            return write_answers(con, tables, None, overwrite=True)
    raise ReleaseFormatError(
        f"The database can't be written: {why}", hint="check the free space and the path."
    )


def _begin(con: duckdb.DuckDBPyConnection) -> bool:
    """Begin a transaction, unless the caller has one; see `DuckDBEngine.snapshot`."""
    first, second = (con.execute(_TXID).fetchall() for _ in range(2))
    if first == second:
        return False
    con.begin()
    return True


def _place(con: duckdb.DuckDBPyConnection, schema: str | None) -> _Place:
    sql = "SELECT current_database(), current_schema(), current_schemas(true)"
    ((database, current, path),) = con.execute(sql).fetchall()
    if schema is None:
        return _Place(database, current, database == TEMPORARY, on_path=True)
    parts = schema.split(".") if isinstance(schema, str) else []
    if not 1 <= len(parts) <= 2 or not all(map(_can_be, parts)):
        raise ReleaseFormatError(
            f"schema names no place: {printable(repr(schema)[:60])}.",
            hint='for example schema="results", or of an attached database schema="answers.main".',
        )
    if [folded(part) for part in parts] == [TEMPORARY]:
        return _Place(TEMPORARY, "main", temporary=True, on_path=True)
    named, name = parts if len(parts) == 2 else (database, parts[0])
    made = ".".join(map(quoted_name, (named, name)))
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {made}").fetchall()
    temporary = folded(named) == TEMPORARY
    searched = folded(named) == folded(database) and folded(name) in {folded(p) for p in path}
    return _Place(named, name, temporary, on_path=temporary or searched)


def _check_names(
    con: duckdb.DuckDBPyConnection, place: _Place, tables: WrittenTables, *, overwrite: bool
) -> None:
    """Refuse names that are taken, there or where another table would not be found any more."""
    wanted = {folded(name): name for name in tables.names}
    here = folded(place.database), folded(place.schema)
    for database, schema, table, comment in con.execute(_RELATIONS).fetchall():
        name = wanted.get(folded(table))
        if name is None:
            continue
        if (folded(database), folded(schema)) == here:
            ours = comment.startswith(tables.mark)
            if overwrite and ours:
                continue
            hint = "pass " + option("overwrite", True) + " if it may be replaced."
            raise _taken(name, hint if ours else _elsewhere())
        if place.on_path and not comment.startswith(tables.mark):
            raise _taken(name, _elsewhere())


def _elsewhere() -> Hint:
    return Hint('write to a schema of its own, schema="results".', "name another file.")


def _taken(name: str, hint: str) -> ReleaseFormatError:
    return ReleaseFormatError(f"There is a table {printable(name[:60])} already.", hint=hint)


def _write(con: duckdb.DuckDBPyConnection, place: _Place, table: WrittenTable) -> str:
    """Write one table."""
    name = place.named(table.name)
    kind = "TEMP TABLE" if place.temporary else "TABLE"
    columns = ", ".join(f"{quoted_name(column)} {type_}" for column, type_, _ in table.columns)
    con.execute(f"CREATE OR REPLACE {kind} {name} ({columns})").fetchall()
    for piece in table.rows:
        given = f"__dpsql_{uuid.uuid4().hex}"
        con.register(given, piece.select(_plain(piece[column]) for column in piece.columns))
        try:
            con.execute(f"INSERT INTO {name} SELECT * FROM {given}").fetchall()
        finally:
            con.unregister(given)
    con.execute(f"COMMENT ON TABLE {name} IS {quoted_text(table.comment)}").fetchall()
    for column, _, comment in table.columns:
        about = f"{name}.{quoted_name(column)}"
        con.execute(f"COMMENT ON COLUMN {about} IS {quoted_text(comment)}").fetchall()
    return name


def _plain(column: pl.Series) -> pl.Series:
    """Give a column a form in which DuckDB reads it; the table has its type."""
    return column.cast(pl.String) if column.dtype == pl.Int128 else column


def _can_be(name: str) -> bool:
    return 0 < len(name) <= MAX_SCHEMA and name.isprintable()
