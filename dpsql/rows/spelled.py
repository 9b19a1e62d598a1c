"""Expressions of rows as a reader would write them, for reports.

Two that differ may be spelled alike; `canonical` tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.intervals import PARTS
from dpsql.schema.names import as_sql, capitals, quoted_text

_INFIX = {
    "or": 1, "and": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "like": 4, "ilike": 4,
    "+": 5, "-": 5, "||": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip
"""Operators, and how strongly they bind."""
_NOT, _TEST, _SIGN = 3, 4, 7


_LONGEST = 200
"""Characters of what is written of a sum."""


def sum_spelled(
    factors: Sequence[RowExpression],
    centers: Sequence[RowConstant],
    conditions: Sequence[RowExpression],
) -> str:
    """Write a sum: of a number, of a product of what two are off their centers, or of ones.

    Args:
        factors: the numbers.
        centers: what is taken off each of two.
        conditions: what a row must meet to add anything.
    """
    apart = (
        [
            RowCall("-", (factor, center)) if float(center.text) else factor
            for factor, center in zip(factors, centers, strict=True)
        ]
        if centers
        else list(factors)
    )
    text = " * ".join(spelled(part, _INFIX["*"] if apart[1:] else 0) for part in apart)
    found = f"SUM({text})" if text else "COUNT(*)"
    if conditions:
        found += " WHERE " + " AND ".join(spelled(part, _INFIX["and"]) for part in conditions)
    return found if len(found) <= _LONGEST else f"{found[: _LONGEST - 1]}…"


def spelled(expression: RowExpression, around: int = 0) -> str:
    """Write an expression.

    Args:
        expression: what to write.
        around: how strongly what stands around it binds; it gets parentheses if it binds less.
    """
    if isinstance(expression, RowColumn):
        return as_sql(expression.name)
    if isinstance(expression, RowConstant):
        return _constant(expression)
    if isinstance(expression, RowCast):
        return f"CAST({spelled(expression.value)} AS {expression.to.sql})"
    if isinstance(expression, RowCase):
        cases = " ".join(f"WHEN {spelled(a)} THEN {spelled(b)}" for a, b in expression.cases)
        return f"CASE {cases} ELSE {spelled(expression.otherwise)} END"
    text, strength = _call(expression)
    return f"({text})" if strength < around else text


def _constant(constant: RowConstant) -> str:
    if constant.kind == "NULL":
        return "NULL"
    if constant.kind in {"DATE", "TIME", "TIMESTAMP"}:
        return f"{constant.kind} {quoted_text(constant.text)}"
    if constant.kind == "VARCHAR":
        return quoted_text(constant.text)
    return constant.text.removesuffix(".0" if constant.kind == "DOUBLE" else ".")


def _call(call: RowCall) -> tuple[str, int]:
    """Return a call, and how strongly it binds."""
    name, given = call.function, call.arguments
    first = given[0] if given else None
    if name in _INFIX and len(given) > 1:
        strength = _INFIX[name]
        left, *others = given
        rest = [spelled(other, strength + 1) for other in others]
        return f" {capitals(name)} ".join([spelled(left, strength), *rest]), strength
    if name == "negative" and first is not None:
        return f"-{spelled(first, _SIGN)}", _SIGN
    if name == "is_null" and first is not None:
        return f"{spelled(first, _TEST + 1)} IS NULL", _TEST
    if name == "not" and isinstance(first, RowCall) and first.function == "is_null":
        return f"{spelled(first.arguments[0], _TEST + 1)} IS NOT NULL", _TEST
    if name == "not" and first is not None:
        return f"NOT {spelled(first, _NOT)}", _NOT
    if name == "shift" and first is not None:
        return f"{spelled(first, _SIGN)} + INTERVAL '{_moved(given[1])}'", _SIGN - 1
    if name == "clock" and first is not None:
        return spelled(first), _SIGN + 1
    parts = [spelled(part, _TEST + 1) for part in given]
    if name == "between":
        return f"{parts[0]} BETWEEN {parts[1]} AND {parts[2]}", _TEST
    if name == "in":
        return f"{parts[0]} IN ({', '.join(parts[1:])})", _TEST
    return f"{name}({', '.join(map(spelled, given))})", _SIGN + 1


def _moved(span: RowExpression) -> str:
    """Spell an interval without what it has none of."""
    counts = span.text.split() if isinstance(span, RowConstant) else []
    parts = zip(counts, PARTS, strict=False)
    return " ".join(f"{count} {unit}" for count, unit in parts if count != "0") or "0 days"
