"""Aggregates over rows of a unit: their names, and sums of doubles as whole numbers of steps.

A sum of doubles depends on the order in which rows are read, so whole numbers are added up in its
place (`dpsql/rows/windows.py`), and SQL sees how many steps these are.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.rows.expression import RowCast, RowExpression
from dpsql.rows.types import DOUBLE
from dpsql.rows.windows import in_steps, scale_of
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.stored_values import clamped, number

AGGREGATES: dict[type, str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}
"""Aggregates of a unit's rows → what `rows/windows.py` calls them."""
_OF_TRUTHS = {"min": "bool_and", "max": "bool_or"}


def is_sum(function: str) -> bool:
    """Whether an aggregate adds numbers up."""
    return function in {"sum", "avg"}


def of_truths(function: str, type_: str) -> str:
    """Return what the least or the largest value of a type is: of truth values, false is less."""
    return _OF_TRUTHS.get(function, function) if type_ == "BOOLEAN" else function


def added_up(
    function: str, bound: BoundExpr, reader: RowReader
) -> tuple[RowExpression, int | None]:
    """Return what a row adds to an aggregate; of a double, how many steps, and their scale.

    Raises:
        SqlSchemaError: it is a double without public bounds.
    """
    if not is_sum(function) or not reader.type_of(bound).is_float:
        return reader.expression(bound), None
    value, (low, high) = reader.bounded(bound)
    scale = scale_of((low, high))
    if scale is None:
        return value, None
    inside = clamped(RowCast(value, DOUBLE), number(low), number(high))
    return in_steps(inside, scale), scale


def without_steps(made: Expr, scale: int | None) -> Expr:
    """Write the number that is so many steps."""
    if scale is None:
        return made
    double = exp.DataType.build("DOUBLE")
    value = exp.Cast(this=made, to=double.copy())
    power = exp.Cast(this=exp.Literal.number(10 ** abs(scale)), to=double)
    found: Expr = (exp.Div if scale > 0 else exp.Mul)(this=value, expression=power)
    for node in (value, power, power.this, found):
        node.meta.update(made.meta)
    return exp.Paren(this=found)
