"""DuckDB's SQL for the rows that count where each privacy unit may contribute at most k of them.

Trusted: adding or removing a unit with all of its rows must change what is kept by at most k
rows, all of them its own. So which rows of a unit are kept depends on nothing but that unit's
rows:

- rows are numbered within the unit, in an order that is made of the row alone, and the first k
  are kept;
- two rows that the order can't tell apart agree in every column that has a domain and, if others
  are read, in all of these that can be, so that no answer can tell which one was kept;
- ids and texts are compared as bytes. A collation, also one that is set for the connection,
  would take two units for one, and then removing one of them could let rows of the other in.

The order is by a hash of the unit, the row's columns and a number for copies of the same row: a
sample of the unit's rows without regard to what they say, and the same one in every release. All
columns with a domain take part in it, whether or not a statement uses them. Of rows that agree in
these, which one is which copy is told by all other columns that expressions of rows can read: so
the same rows are kept whatever a statement reads, and what several releases measured is of the same
rows. Where nothing of the other columns is read, rows of the same copies give the same answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress

from dpsql.engines.columns import call, clock, source_of
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.types import row_type
from dpsql.schema import Table
from dpsql.schema.names import quoted_name

KEPT = "kept"
"""The name under which the rows are made available. A name with fewer than three parts means it
before it means a table."""


def kept_rows(table: Table, columns: Iterable[str]) -> str:
    """Return a query for `columns` of the rows that count.

    Raises:
        InternalError: the table has no privacy unit.
    """
    unit = table.unit
    if unit is None:
        raise InternalError("a table without a unit has no bound on its rows")
    names = list(columns)
    rest = _readable(table) if any(name not in table.columns for name in names) else []
    own = unused([*table.columns, *table.undeclared])
    shown = "".join(f"{quoted_name(name)}, " for name in names)
    chosen = "".join(f"t0.{quoted_name(name)}, " for name in names)
    holder = f"t{len(unit.joins)}"
    id_column = f"{holder}.{quoted_name(unit.column)}"
    shows = (clock(f"t0.{quoted_name(n)}", domain) for n, domain in table.columns.items())
    text = call("concat", "''", *map(_text, shows))
    others = call("concat", "''", *(_text(f"t0.{quoted_name(name)}") for name in rest))
    other = f", {others} AS {own}rest" if rest else ""
    # Three steps: the unit and the text of each row; a number for each copy of a row; the order.
    rows = (
        f"SELECT {chosen}{_id(id_column, unit.type)} AS {own}id, "
        f"{id_column}::VARCHAR AS {own}name, {text} AS {own}text{other} "
        f"FROM {_source(table)} WHERE {id_column} IS NOT NULL"
    )
    row_text, number = call("encode", f"{own}text"), call("row_number")
    apart = f" ORDER BY {call('encode', f'{own}rest')} ASC" if rest else ""
    copies = (
        f"SELECT *, {number} OVER (PARTITION BY {own}id, {row_text}{apart}) AS {own}copy "
        f"FROM ({rows})"
    )
    hashed = call("concat", f"{own}name", "'|'", f"{own}copy", "'|'", f"{own}text")
    # Nothing here is NULL, and ASC is written: a setting could turn the order round.
    order = f"{call('encode', call('md5', hashed))} ASC, {row_text} ASC, {own}copy ASC"
    placed = (
        f"SELECT {shown}{number} OVER (PARTITION BY {own}id ORDER BY {order}) AS {own}place "
        f"FROM ({copies})"
    )
    return f"SELECT {shown}{own}place FROM ({placed}) WHERE {own}place <= {unit.max_rows}"


def _readable(table: Table) -> list[str]:
    """Name the columns without a domain that expressions of rows can read."""
    found = []
    for name, declared in table.undeclared.items():
        with suppress(UnsupportedSqlError):
            row_type(declared)
            found.append(name)
    return found


def _source(table: Table) -> str:
    """Join the tables on the way to the unit, each of which has one row at most for a row."""
    source = f"{source_of(table)} AS t0"
    for i, join in enumerate(table.unit.joins if table.unit is not None else ()):
        parent = ".".join(quoted_name(part) for part in join.path)
        child = _id(f"t{i}.{quoted_name(join.column)}", join.type)
        key = _id(f"t{i + 1}.{quoted_name(join.key)}", join.type)
        source += f" JOIN {parent} AS t{i + 1} ON {child} = {key}"
    return source


def _id(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def _text(column: str) -> str:
    """Write a value so that no two rows of different values have the same text together."""
    text = f"{column}::VARCHAR"
    written = call("concat", call("strlen", text), "':'", text)
    return f"CASE WHEN {column} IS NULL THEN '-' ELSE {written} END"


def unused(columns: Collection[str]) -> str:
    """Return a beginning that no column has."""
    prefix = "u_"
    while any(name.lower().startswith(prefix) for name in columns):
        prefix = "u" + prefix
    return prefix
