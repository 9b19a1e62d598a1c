"""Values of a row from other rows of its unit: whether there are any, how many, sums, extremes.

    (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id AND o.price > 7)

is a column of a customer. It is computed of the rows of one unit: of those orders that refer to the
customer and are the customer's own.

Guarantees:
    The column of a row is a function of the rows of its unit, whatever order they are read in, in
    how many pieces, and whatever rows there are of other units. It never fails.

    *Proof.* `engines/relations.py` puts rows of one unit into a group, and no others; a row
    meets the group of its own unit. Where a condition is on the row as well, each row has a group
    of its own: of the rows of its unit for which it is true. What is computed of a group is one of
    the functions below, each of which is a function of the multiset of what it is given: how many
    there are, or how many that differ; their sum, as exact integers or decimals, and what that is
    divided by how many; whether all are true, or one; the least or the largest of values of which
    equal ones are the same, texts by their bytes, labels as their ENUM has them, and of doubles one
    zero for two, and one NaN. Not among them are
    those that look at an order which SQL leaves open (FIRST, ANY_VALUE, MODE, ARG_MIN, STRING_AGG),
    or that round as they go (SUM and AVG of DOUBLE): of these, rows of other units decide, by how a
    scan is cut into pieces. In their place, whole numbers of steps are added up (`steps.py`).

    What they are given, and the condition on rows, are total functions of one row, or of that and
    the one that it is for (`write.py`). A sum can't overflow: of integers of at most 64 bits and of
    decimals of at most 18 digits, fewer than 2^63 rows add up to less than 2^127, and to less than
    10^38. ∎

    So adding or removing a unit changes no other unit's rows, and what it adds to a marginal is as
    many rows as without the column: their number is bounded before (`engines/duckdb/bounded.py`).
"""

from __future__ import annotations

from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.typed import RowAggregate, RowValue, as_stored, bytes_of
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
from dpsql.schema.names import capitals

AGGREGATES = (
    "exists", "count", "count_distinct", "sum", "avg", "min", "max", "bool_and", "bool_or",
)  # fmt: skip
"""What can be computed of rows of a unit."""
MOST_ADDED = 18
"""Digits of the decimals that are added up."""
_TRUE, _FALSE = RowConstant("BOOLEAN", "true"), RowConstant("BOOLEAN", "false")


def aggregated(function: str, argument: RowExpression | None, writer: RowWriter) -> RowAggregate:
    """Type an aggregate of rows.

    Args:
        function: one of `AGGREGATES`.
        argument: what of each row; without that, the rows are counted.
        writer: types that.

    Raises:
        UnsupportedSqlError: it can't be written, or would not be exact.
    """
    if function not in AGGREGATES:
        raise InternalError("this is no function of rows in whatever order")
    if function == "exists":
        return RowAggregate(function, BOOLEAN)
    if argument is None:
        return RowAggregate("count", BIGINT)
    written = writer.write(argument)
    if function in {"count", "count_distinct"}:
        told = _in_order(argument, written, writer) if function == "count_distinct" else None
        return RowAggregate(function, BIGINT, (written,), told)
    if function in {"sum", "avg"}:
        added = _added(function, written.type)
        return RowAggregate(
            function, added if function == "sum" else DOUBLE, (written,), added=added
        )
    type_, told = written.type, None
    if function in {"bool_and", "bool_or"}:
        if type_ != BOOLEAN:
            raise _unsupported(capitals(function), type_)
    elif type_ == VARCHAR:  # the text itself, of that which comes first or last
        told = _in_order(argument, written, writer)
    elif type_.is_float:
        written = writer.write(_canonical(argument, type_))
    elif not type_.is_exact and not type_.is_time:
        raise _unsupported(capitals(function), type_)
    return RowAggregate(function, type_, (written,), told)


def _canonical(value: RowExpression, type_: RowType) -> RowExpression:
    """Return a number of which equal ones are the same: one zero, and one NaN, the largest."""
    nan, zero = (RowCast(RowConstant("DOUBLE", text), type_) for text in ("nan", "0.0"))
    cases = ((RowCall("isnan", (value,)), nan), (RowCall("=", (value, zero)), zero))
    return RowCase(cases, value)


def _added(function: str, type_: RowType) -> RowType:
    """Return the type of a sum that can't overflow."""
    small = type_.is_integer and type_ != HUGEINT and type_.name != "UHUGEINT"
    if not small and not (type_.name == "DECIMAL" and type_.width <= MOST_ADDED):
        raise _unsupported(capitals(function), type_)
    return HUGEINT if small else decimal(MOST_DIGITS, type_.scale)


def _in_order(value: RowExpression, written: RowValue, writer: RowWriter) -> RowValue:
    """Return what values are told apart and sorted by: bytes, or an ENUM as it is stored."""
    if isinstance(value, RowColumn) and is_enum(writer.types[value.name]):
        return as_stored(value.name)
    return bytes_of(written)


def _unsupported(function: str, type_: RowType) -> UnsupportedSqlError:
    why, hint = "it takes numbers, dates and times", "ask for a value with EXISTS (… AND x = 'a')."
    if function.startswith("BOOL"):
        why, hint = "it takes a condition", "write one, for example BOOL_OR(x > 3)."
    elif type_.is_number:
        hint = "use whole numbers or decimals, for example CAST(x AS DECIMAL(18, 2))."
        why = "it could be too large"
        if not type_.is_exact:
            why = "it would depend on the order in which rows are read"
    return UnsupportedSqlError(
        f"{function} of {type_.sql} within a unit is not supported: {why}.", hint=hint
    )
