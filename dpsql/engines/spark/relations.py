"""Spark's queries for relations: what it says otherwise than the base writer. Trusted.

Guarantees:
    Those of `dpsql/engines/relations.py`, also where a part of the job runs again.

    *Proof.* That of the base writer, node by node, with what is written otherwise here:

    - Scans are those of `tables.py`, which gives each (row, u) once, without any key that the
      database would have to see to: Spark sees to none. So a scan that has columns along its way,
      or of which keys are said to be unique, is refused, and with it whatever would follow from
      that: that rows are met by one other row, or are alone of their unit.
    - A text is passed on by its bytes, without the collation that its column may have.
    - In a group join that compares rows, a row on the left has no number: it would be another one
      if a part of the job ran again. Instead there is a group for each combination of an id and of
      all that is looked at of the row, of which each row meets its own alone. In it a double is its
      text, which tells -0.0 from 0.0 and is read as the same double, and a text its bytes: so rows
      of one combination agree in all that is looked at.
    - Places in line and the rows that are kept are written by `bounded.py`, with its
      proofs. A place is an INT that begins again below zero behind 2^31 - 1: no two of fewer than
      2^32 rows have the same one.
    - By a window rows get further columns, no row comes or goes, and what a row gets follows from
      the rows with the same id of a unit: `rows/windows.py` has the proof that it is a function of
      these. PARTITION BY begins with the id, and windows whose rows must be told one by one have
      the places in the unit's line at the end of ORDER BY (`engines/relations.py`). The constant by
      which rows are sorted where nothing else is said tells none apart, so all are equal then, as
      without an order in DuckDB. The places were counted before, and parts of a job may run again,
      with rows that are alike in another order. Each run has the same multiset of rows with their
      places, and tasks get rows by their values: so it doesn't matter of which run they get them.
    - Nothing in a query is random, or depends on an order that Spark leaves open.
    - Parts of a query may be computed more than once, each time with other rows first of such as
      are alike. Each part is determined as a multiset of rows in all of its columns, so what is
      read of one time and of another one agrees. ∎

    What is computed of several rows is a function of the multiset of what it is given, or, over a
    window with a strict order, of that in its order; and it never fails.

    *Proof.* Functions are those of `rows/windows.py`, whose proofs say why they are. What is added
    up are integers of at most 64 bits, or DECIMALs of at most 18 digits: each is brought to a
    DECIMAL(28, s) that has it, which Spark adds up in a DECIMAL(38, s). Fewer than 2^63 rows add up
    to less than 10^38 last digits, so nothing overflows; and sums of DECIMALs are exact in whatever
    order. A divisor of zero is NULL before anything is divided. The least and the largest text are
    those of the bytes. Over a window, numbers of values are made of ranks by the value alone, and
    rows that agree in it have the same. Numbers that functions take are constants. ∎

An average is the quotient of two doubles, of which that of the sum is the nearest one. DuckDB's is,
too, where a sum has no more than 53 bits; beyond, its last digit may be another one.

Nothing else fails: values are written by `sql/expressions.py`, and the session is one of our own
(`sessions.py`). Stored rows are views of that session for as long as a query is
read, with names that PySpark makes; within the query they are named by its first parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dpsql.engines.relations import (
    TO_KEEP,
    UNIT,
    PlacedColumn,
    RelationWriter,
    RowsApart,
    WrittenNode,
)
from dpsql.engines.spark import tables
from dpsql.engines.spark.bounded import (
    among_those,
    check_units,
    is_kept,
    key_of,
    place_in_line,
    told_apart,
    value_of,
)
from dpsql.engines.spark.columns import code_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import call, identity, quoted, refused, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.errors import InternalError
from dpsql.rel.nodes import Scan
from dpsql.rows.typed import RowAggregate, RowValue
from dpsql.rows.types import BIGINT, VARCHAR
from dpsql.rows.windows import CHOSEN, MOST_ADDED, RANKS, SHARES, SHIFTED, RowsWindow
from dpsql.schema.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADDED_DIGITS = MOST_ADDED + 10


def aggregate_sql(aggregate: RowAggregate) -> tuple[str, ...]:
    """Write an aggregate in pieces: `FILTER (…)`, or `OVER (…)`, belongs between them.

    Raises:
        UnsupportedSqlError: Spark can't compute it, or not the same values.
    """
    function, given = aggregate.function, [spark_sql(argument) for argument in aggregate.arguments]
    if function == "exists":
        return ("true",)
    if function == "count_distinct":  # of a window: `distinct_over`
        return f"system.builtin.count(DISTINCT {_told(aggregate)})", ""
    if function == "count":
        return call("count", *(given or [whole(1)])), ""
    if function in {"sum", "avg"}:
        return _added(aggregate, given[0])
    if function in {*RANKS, *SHARES, *SHIFTED, *CHOSEN}:
        numbers = [whole(number, "INT") for number in aggregate.numbers]
        made = call(function, *given[:1], *numbers, *given[1:])
        return (f"CAST({made}", f" AS {BIGINT.sql})") if function in RANKS else (made, "")
    if aggregate.type == VARCHAR and aggregate.told is not None:
        return f"CAST({call(function, spark_sql(aggregate.told))}", " AS STRING)"
    return call(function, *given), ""


def distinct_over(aggregate: RowAggregate, agree: Sequence[str]) -> str:
    """Write how many values rows have that agree in something, NULL left aside.

    Spark has no DISTINCT over windows. If rows have d values, NULL among them or not, the dense
    rank of each from the least on is r, and that from the largest on d + 1 - r.
    """
    told, by = _told(aggregate), f"PARTITION BY {', '.join(agree)}"
    rank, none = call("dense_rank"), f"CASE WHEN {told} IS NULL THEN {whole(1)} ELSE {whole(0)} END"
    up = f"CAST({rank} OVER ({by} ORDER BY {told} ASC NULLS FIRST) AS BIGINT)"
    down = f"CAST({rank} OVER ({by} ORDER BY {told} DESC NULLS LAST) AS BIGINT)"
    return f"({up} + {down} - {whole(1)} - {call('max', none)} OVER ({by}))"


def _told(aggregate: RowAggregate) -> str:
    """Write what tells values apart that are counted."""
    return spark_sql(aggregate.arguments[0] if aggregate.told is None else aggregate.told)


def _added(aggregate: RowAggregate, value: str) -> tuple[str, ...]:
    scale = aggregate.added.scale
    summed = f"CAST({call('sum', f'CAST({value} AS DECIMAL({_ADDED_DIGITS},{scale}))')}"
    if aggregate.function == "sum":
        return summed, f" AS DECIMAL(38,{scale}))"
    # A call that begins in one piece, and ends in another.
    number = f"CAST(system.builtin.nullif({call('count', value)}"
    return f"({summed}", f" AS DOUBLE) / {number}", f", {whole(0)}) AS DOUBLE))"


_SORTED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""The functions that Spark computes of sorted rows alone."""


def kept_rows(tables: SparkTables, table: Table, columns: Iterable[str]) -> DataFrame:
    """Return `columns` of the rows that count, and of other rows of their units; reads none.

    Args:
        tables: where rows come from.
        table: whose rows they are.
        columns: what is read of them.

    Raises:
        InternalError: the table has no privacy unit, or more rows of one would count.
    """
    writer = SparkRelations(tables)
    return writer.rows(writer.kept_rows(table, list(columns)))


def rows_of_units(
    tables: SparkTables, table: Table, columns: Iterable[str], unit: str
) -> DataFrame:
    """Return `columns` of all rows that belong to units, with the column `unit`; reads none."""
    writer = SparkRelations(tables)
    return writer.rows(writer.rows_of_units(table, list(columns), unit))


class SparkRelations(RelationWriter):
    """Writes the query for one relation as Spark reads it.

    Args:
        tables: where rows come from.
    """

    def __init__(self, tables: SparkTables) -> None:
        super().__init__()
        self._tables = tables
        self._stored: dict[str, DataFrame] = {}
        """Rows with their units, by their names in the query."""
        self._id: list[tuple[str, str]] = []
        """Parts of an id, with their types; the same in all tables of a relation."""

    def rows(self, sql: str) -> DataFrame:
        """Build the job of a query that was written here; reads nothing."""
        named = (f"{name} AS (SELECT * FROM {{{name}}})" for name in self._stored)
        written = sql.replace("{", "{{").replace("}", "}}")
        return self._tables.session.sql(
            f"WITH {', '.join(named)} SELECT * FROM ({written})", **self._stored
        )

    def rows_with_units(self, table: Table) -> tuple[str, str, str]:
        """Join the rows of a table with the ids of their units."""
        check_units(table)
        name = f"rows{len(self._stored)}"
        self._stored[name], id_ = tables.rows_of_units(self._tables, table)
        self._id = tables.parts_of_id(table, UNIT)
        return f"{name} AS t0", f"t0.{id_}", "true"

    def quoted(self, name: str) -> str:
        """Write the name of a column."""
        return quoted(name)

    def stored(self, row: str, column: str, type_: str) -> str:
        """Write a column of a stored row: a text by its bytes."""
        value = f"{row}.{quoted(column)}"
        return f"CAST(CAST({value} AS BINARY) AS STRING)" if type_ == "VARCHAR" else value

    def part(self, name: str, sql: str, *, once: bool) -> str:
        """Write a query of WITH, which may be computed more than once."""
        return f"{name} AS ({sql})"

    def spelled(self, value: RowValue) -> str:
        """Write a value of a row."""
        return spark_sql(value)

    def aggregate_parts(self, made: RowAggregate) -> tuple[str, ...]:
        """Write an aggregate in pieces."""
        return aggregate_sql(made)

    def call(self, function: str, *arguments: str) -> str:
        """Write a call of a built-in function; a star would stand for all columns.

        Any of values that are the same is the largest of them. Of `any_value` Spark thinks that it
        might be another one each time.
        """
        given = (whole(1) if argument == "*" else argument for argument in arguments)
        return call("max" if function == "any_value" else function, *given)

    def identity(self, column: str, type_: str) -> str:
        """Write the bytes of a text, and all else as it is."""
        return identity(column, type_)

    def told_apart(self, column: str, type_: str) -> Sequence[str]:
        """Write the bytes of a text, and of a zero its sign as well."""
        return tuple(told_apart(column, type_))

    def place(self, line: Sequence[str]) -> str:
        """Write the place of a row among those of its unit."""
        return place_in_line(line, [UNIT])

    def with_cells(self, of: WrittenNode, placed: Sequence[PlacedColumn]) -> str:
        """Code the columns by their domains."""
        cells = (
            f"{code_of(quoted(c.column), c.domain, leaves_out=c.leaves_out)} AS {c.cell}"
            for c in placed
        )
        return f"SELECT {', '.join([UNIT, *of.shown, *cells])} FROM {of.name}"

    def kept(
        self, of: WrittenNode, rows: int, line: Sequence[str], agree: Sequence[str] = ()
    ) -> str:
        """Write the rows that are kept, of all in their places."""
        id_ = [*self._id, *((column, "BIGINT") for column in agree)]
        lined = f"SELECT *, {', '.join(among_those(TO_KEEP, id_, line))} FROM {of.name}"
        shown = ", ".join([UNIT, *of.shown])
        return f"SELECT {shown} FROM ({lined}) WHERE {is_kept(TO_KEEP, id_, rows)}"

    def over(self, call: RowsWindow, agree: Sequence[str], order: Sequence[str]) -> str:
        """Write a window over the rows that agree in something, in an order.

        Raises:
            UnsupportedSqlError: it looks at no rows, which Spark refuses.
        """
        if call.value.function != "count_distinct":
            return f" OVER ({_looked_at(call, agree, order)})".join(aggregate_sql(call.value))
        if order or (call.frame is not None and not call.frame.is_whole):
            raise InternalError("values of some rows of a window are counted")
        return distinct_over(call.value, agree)

    def told_one_by_one(self, of: WrittenNode, looked: Sequence[str]) -> RowsApart:
        """Write what tells rows apart: the combination of an id and of what is looked at."""
        keys = {f"k{i}": key_of(name, self._types[name]) for i, name in enumerate(looked)}
        shown = ", ".join([UNIT, *(f"{key} AS {name}" for name, key in keys.items())])
        told = self._part(f"SELECT DISTINCT {shown} FROM {of.name}")
        pairs = zip(keys, looked, strict=True)
        values = (f"{value_of(key, self._types[name])} AS {name}" for key, name in pairs)
        met = self._part(f"SELECT {', '.join([UNIT, *keys, *values])} FROM {told}")
        same = (f"{key} <=> g.{name}" for name, key in keys.items())
        return RowsApart(of.name, met, (UNIT, *keys), (f"l.{UNIT} = g.{UNIT}", *same))

    # ── What a node is written by otherwise ─────────────────────────────────────────────────────

    def _scan(self, node: Scan) -> WrittenNode:
        if node.along or node.source.unique:
            raise InternalError("Spark sees to no key")
        return super()._scan(node)


def _looked_at(window: RowsWindow, agree: Sequence[str], order: Sequence[str]) -> str:
    frame = window.frame
    ends = () if frame is None else (frame.start, frame.end)
    first, *last = [end for end in ends if end is not None] or [0]
    if last and first > last[0]:
        raise refused("frames without rows", "let the frame begin before it ends.")
    sorted_by = ", ".join(order) or f"{whole(0)} ASC"
    bounds = "" if frame is None else f" {frame.sql}"
    if not order and frame is None and window.value.function not in _SORTED:
        return f"PARTITION BY {', '.join(agree)}"
    return f"PARTITION BY {', '.join(agree)} ORDER BY {sorted_by}{bounds}"
