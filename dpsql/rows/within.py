"""What a row has of other rows of its unit: whether there are some, how many, sums and extremes.

    (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id AND o.price > 7)

is a column of a customer. It is computed of the rows of one unit: of those orders that refer to the
customer and are the customer's own.

Guarantees:
    The column of a row is a function of the rows of its unit, whatever order they are read in, in
    how many pieces, and whatever rows there are of other units. It never fails.

    *Proof.* `engines/duckdb/parents.py` puts rows of one unit into a group, and no others; a row
    meets the group of its own unit. Where a condition is on the row as well, each row has a group
    of its own: of the rows of its unit for which it is true. What is computed of a group is one of
    the functions below, each of which is a function of the multiset of what it is given: how many
    there are, or how many that differ; their sum, as exact integers or decimals, and what that is
    divided by how many; whether all are true, or one; the least or the largest of values of which
    equal ones are the same, texts by their bytes, labels as their ENUM has them. Not among them are
    those that look at an order which SQL leaves open (FIRST, ANY_VALUE, MODE, ARG_MIN, STRING_AGG),
    or that round as they go (SUM and AVG of DOUBLE): of these, rows of other units decide, by how a
    scan is cut into pieces.

    What they are given, and the condition on rows, are total functions of one row, or of that and
    the one that it is for (`write.py`). A sum can't overflow: of integers of at most 64 bits and of
    decimals of at most 18 digits, fewer than 2^63 rows add up to less than 2^127, and to less than
    10^38. ∎

    So adding or removing a unit changes no other unit's rows, and what it adds to a marginal is as
    many rows as without the column: their number is bounded before (`engines/duckdb/bounded.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
)
from dpsql.rows.typed import RowValue, call, whole
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    MOST_DIGITS,
    VARCHAR,
    RowType,
    decimal,
    is_enum,
)
from dpsql.rows.write import RowWriter
from dpsql.schema import Table
from dpsql.schema.computed import OUTSIDE
from dpsql.schema.names import quoted_name
from dpsql.schema.table import Within

AGGREGATES = (
    "exists", "count", "count_distinct", "sum", "avg", "min", "max", "bool_and", "bool_or",
)  # fmt: skip
"""What can be computed of rows of a unit."""
_MOST_ADDED = 18
"""Digits of the decimals that are added up."""
_TRUE, _FALSE = RowConstant("BOOLEAN", "true"), RowConstant("BOOLEAN", "false")
_ZERO = RowConstant("INTEGER", "0")


@dataclass(frozen=True, slots=True)
class RowsWithin:
    """A column that is computed of rows of the same unit.

    Args:
        name: what it is, in full.
        table: whose rows they are.
        pairs: column of the row that has it → column of those rows that is equal.
        type: its type.
        value: the SQL of the aggregate.
        empty: its SQL where there are no such rows.
        condition: the SQL of what is true of the rows; empty if all are looked at.
        columns: what is read of them.
        outside: what is read of the row that has it, with `OUTSIDE` before it in the SQL.
    """

    name: str
    table: Table
    pairs: tuple[tuple[str, str], ...]
    type: str
    value: str
    empty: str
    condition: str
    columns: frozenset[str]
    outside: tuple[str, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether it is a number of rows, and so never negative."""
        return self.type == BIGINT.name and self.filled

    @property
    def filled(self) -> bool:
        """Whether it is never NULL."""
        return self.empty != "NULL"


def rows_within(
    name: str,
    table: Table,
    pairs: tuple[tuple[str, str], ...],
    computed: tuple[str, RowExpression | None],
    holds: RowExpression | None,
    types: Mapping[str, str],
) -> RowsWithin:
    """Make a column that is computed of rows of the same unit.

    Args:
        name: what it is, in full.
        table: whose rows they are.
        pairs: column of the row that has it → column of those rows that is equal.
        computed: one of `AGGREGATES`, and what of each row; without that, the rows are counted.
        holds: what is true of the rows.
        types: the types of their columns, and of those of the row, with `OUTSIDE` before them.

    Raises:
        UnsupportedSqlError: it can't be written, or would not be exact.
    """
    writer, (function, argument) = RowWriter(types), computed
    made = aggregated(function, argument, writer)
    condition = ""
    if holds is not None:
        condition = writer.write(RowCase(((holds, _TRUE),), NOTHING)).sql
    read = frozenset().union(*(columns(part) for part in (argument, holds) if part is not None))
    outside = {column for column in read if column.startswith(OUTSIDE)}
    return RowsWithin(
        name,
        table,
        pairs,
        made.type.sql,
        "".join(made.value),
        made.empty,
        condition,
        read - outside,
        tuple(sorted(column.removeprefix(OUTSIDE) for column in outside)),
    )


def seen(within: Within) -> RowExpression:
    """Return what SQL sees of a column, so that it says itself which values it can have."""
    found = RowColumn(within.name)
    if within.is_counted:  # which is never negative
        return RowCall("greatest", (found, _ZERO))
    if within.type == BOOLEAN.name:
        return RowCase(((found, _TRUE),), _FALSE) if within.filled else truth(found)
    return found


def truth(value: RowExpression) -> RowExpression:
    """Say of a truth value which ones there are."""
    return RowCase(((value, _TRUE), (RowCall("not", (value,)), _FALSE)), NOTHING)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The SQL of an aggregate."""

    type: RowType
    value: tuple[str, ...]
    """In pieces: `OVER (…)` belongs between them, if it is a window's."""
    empty: str
    """What it is of no rows."""


def aggregated(function: str, argument: RowExpression | None, writer: RowWriter) -> Aggregated:
    """Write an aggregate of rows.

    Args:
        function: one of `AGGREGATES`.
        argument: what of each row; without that, the rows are counted.
        writer: writes that.

    Raises:
        UnsupportedSqlError: it can't be written, or would not be exact.
    """
    if function not in AGGREGATES:
        raise InternalError("this is no function of rows in whatever order")
    if function == "exists":
        return Aggregated(BOOLEAN, ("true",), "false")
    if argument is None:
        return Aggregated(BIGINT, ("system.main.count(*)", ""), whole(0))
    written = writer.write(argument)
    if function == "count":
        return Aggregated(BIGINT, (call("count", written.sql), ""), whole(0))
    if function == "count_distinct":
        differing = f"system.main.count(DISTINCT {_in_order(argument, writer)})"
        return Aggregated(BIGINT, (differing, ""), whole(0))
    if function in {"sum", "avg"}:
        return _added(function, written)
    type_, plain = written.type, call(function, written.sql)
    if function in {"bool_and", "bool_or"}:
        if type_ != BOOLEAN:
            raise _unsupported(function.upper(), type_)
    elif type_ == VARCHAR:  # the text itself, of that which comes first or last
        plain = call(f"arg_{function}", written.sql, _in_order(argument, writer))
    elif not type_.is_exact and not type_.is_time:
        raise _unsupported(function.upper(), type_)
    return Aggregated(type_, (plain, ""), "NULL")


def _added(function: str, written: RowValue) -> Aggregated:
    """Write a sum, or what it is divided by how many there are."""
    type_ = written.type
    small = type_.is_integer and type_ != HUGEINT and type_.name != "UHUGEINT"
    if not small and not (type_.name == "DECIMAL" and type_.width <= _MOST_ADDED):
        raise _unsupported(function.upper(), type_)
    added = HUGEINT if small else decimal(MOST_DIGITS, type_.scale)
    before, after = f"CAST({call('sum', written.sql)}", f" AS {added.sql})"
    if function == "sum":
        return Aggregated(added, (before, after), "NULL")
    # The quotient of two doubles: a call that begins in one piece, and ends in another.
    divided = f'system.main."/"(CAST({before}'
    between = f"{after} AS DOUBLE), CAST({call('count', written.sql)}"
    return Aggregated(DOUBLE, (divided, between, " AS DOUBLE))"), "NULL")


def _in_order(value: RowExpression, writer: RowWriter) -> str:
    """Write what values are told apart and sorted by: bytes, or an ENUM as it is stored."""
    if isinstance(value, RowColumn) and is_enum(writer.types[value.name]):
        return quoted_name(value.name)
    written = writer.write(value)
    return call("encode", written.sql) if written.type == VARCHAR else written.sql


def _unsupported(function: str, type_: RowType) -> UnsupportedSqlError:
    why, hint = "it takes numbers, dates and times", "ask for a value with EXISTS (… AND x = 'a')."
    if function.startswith("BOOL"):
        why, hint = "it takes a condition", "write one, for example BOOL_OR(x > 3)."
    elif type_.is_number:
        hint = "use whole numbers or decimals, for example CAST(x AS DECIMAL(18, 2))."
        why = "it could be too large"
        if not type_.is_exact:
            why = "it must be the same in whatever order rows are read"
    return UnsupportedSqlError(
        f"{function} of {type_.sql} within a unit is not supported: {why}.", hint=hint
    )
