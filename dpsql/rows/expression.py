"""Expressions of one row: each is a frozen tree of five kinds of nodes.

A tree can be made from anything, so each node checks what it is made of: whatever tree there is,
it has only functions and types of closed lists, constants that are what they say, and names that
can be quoted. Nothing else is needed to write it safely (`write.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import TypeAlias

from dpsql.errors import SqlLimitError, UnsupportedSqlError, printable
from dpsql.rows.functions import COUNTED, FUNCTIONS
from dpsql.rows.types import RowType
from dpsql.schema.names import as_sql, capitals, folded, quoted_text
from dpsql.schema.sequences import decimal_text

MOST_NODES = 5_000
MOST_LEVELS = 100
MOST_JOINED = 8
"""Columns of which a text is put together at most."""
_LONGEST = 100_000
"""Characters of a string."""
_KINDS = {
    "INTEGER": re.compile(r"-?[0-9]{1,38}"),
    "DECIMAL": re.compile(r"-?(?=\.?[0-9])(?=[0-9.]{1,39}\Z)[0-9]*\.[0-9]*"),
    "DOUBLE": re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|-?inf|nan"),
    "BOOLEAN": re.compile(r"true|false"),
    "DATE": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "TIMESTAMP": re.compile(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?"
    ),
    "TIME": re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"),
    "NULL": re.compile(r""),
    "VARCHAR": re.compile(rf"[^\x00\ud800-\udfff]{{0,{_LONGEST}}}"),
}
_NAME = re.compile(r"[^\x00\ud800-\udfff]{1,1000}")


@dataclass(frozen=True, slots=True)
class RowColumn:
    """The value of a column."""

    name: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise UnsupportedSqlError("A column can't have this name in an expression of rows.")


@dataclass(frozen=True, slots=True)
class RowConstant:
    """A constant, as exact text.

    Args:
        kind: what it is: a key of `_KINDS`.
        text: what it is made of, without quotes.
    """

    kind: str
    text: str

    def __post_init__(self) -> None:
        pattern = _KINDS.get(self.kind)
        good = pattern is not None and pattern.fullmatch(self.text) is not None
        if good and self.kind in {"DATE", "TIMESTAMP"}:
            good = _is_time(self.text)
        if good and self.kind == "DOUBLE" and self.text[-1] not in "fn":
            good = math.isfinite(float(self.text))
        if not good:
            raise UnsupportedSqlError(
                f"{printable(self.text[:60])!r} can't stand for a {printable(self.kind)[:20]} in "
                "an expression of rows."
            )


def exact_number(value: Fraction) -> RowConstant:
    """Write a decimal number in digits."""
    kind = "INTEGER" if value.denominator == 1 else "DECIMAL"
    return RowConstant(kind, decimal_text(value))


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RowCall:
    """A function or an operator, by its name in `functions.py`."""

    function: str
    arguments: tuple[RowExpression, ...]

    def __post_init__(self) -> None:
        listed = FUNCTIONS.get(self.function)
        if listed is None:
            raise unlisted(self.function)
        least, most = listed.arguments
        if not least <= len(self.arguments) <= most:
            raise UnsupportedSqlError(
                f"{self.function} can't have {len(self.arguments)} arguments in an expression of "
                "rows.",
                hint=f"it takes from {least} to {most}." if least < most else f"it takes {least}.",
            )


@dataclass(frozen=True, slots=True)
class RowCast:
    """A value as another type; NULL where it has none."""

    value: RowExpression
    to: RowType


@dataclass(frozen=True, slots=True)
class RowCase:
    """The first result whose condition is true, else another one."""

    cases: tuple[tuple[RowExpression, RowExpression], ...]
    otherwise: RowExpression

    def __post_init__(self) -> None:
        if not self.cases:
            raise UnsupportedSqlError("CASE needs a condition.")


RowExpression: TypeAlias = RowColumn | RowConstant | RowCall | RowCast | RowCase

NOTHING = RowConstant("NULL", "")
_OF_INTERVALS = "to_"
"""The prefix of functions that make intervals: to_days, to_months."""


def unlisted(name: str) -> UnsupportedSqlError:
    """Return the error for what is in no list of what may run on rows.

    DuckDB makes functions of an INTERVAL, which nobody wrote.
    """
    if name.startswith(_OF_INTERVALS) and name.removeprefix(_OF_INTERVALS).endswith("s"):
        return UnsupportedSqlError(
            "An INTERVAL can't be used in a computation on rows.",
            hint="compare numbers of days, hours or seconds: date_diff('second', earlier, later) "
            "< 172800, in place of later < earlier + INTERVAL 2 DAY.",
        )
    return UnsupportedSqlError(
        f"{printable(name)[:60]} can't run on rows.",
        hint="declare domains for its columns: over domains, any function can be evaluated. The "
        "functions that can run on rows are listed in docs/reference/sql/functions.md.",
    )


def all_of(conditions: Sequence[RowExpression]) -> RowExpression:
    """Return the condition that several hold."""
    (first, *others) = conditions
    return RowCall("and", (first, *others)) if others else first


def all_if_any(conditions: Sequence[RowExpression]) -> RowExpression | None:
    """Return the condition that several hold; None if there are none."""
    return all_of(conditions) if conditions else None


def same_value(a: str, b: str) -> RowExpression:
    """Return the condition that two columns are equal."""
    return RowCall("=", (RowColumn(a), RowColumn(b)))


def parts(expression: RowExpression) -> tuple[RowExpression, ...]:
    """Return the expressions that an expression is made of."""
    if isinstance(expression, RowCall):
        return expression.arguments
    if isinstance(expression, RowCast):
        return (expression.value,)
    if isinstance(expression, RowCase):
        return (*(part for case in expression.cases for part in case), expression.otherwise)
    return ()


def replaced(
    expression: RowExpression, change: Callable[[RowExpression], RowExpression]
) -> RowExpression:
    """Return an expression of the same kind whose parts were changed one by one."""
    if isinstance(expression, RowCall):
        return RowCall(expression.function, tuple(map(change, expression.arguments)))
    if isinstance(expression, RowCast):
        return RowCast(change(expression.value), expression.to)
    if isinstance(expression, RowCase):
        cases = tuple((change(holds), change(result)) for holds, result in expression.cases)
        return RowCase(cases, change(expression.otherwise))
    return expression


def nodes(expression: RowExpression) -> Iterator[RowExpression]:
    """Iterate over an expression and all that it is made of."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(parts(node))


def columns(expression: RowExpression) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    return frozenset(node.name for node in nodes(expression) if isinstance(node, RowColumn))


def check_size(expression: RowExpression) -> None:
    """Check that an expression is not too large to be written.

    Raises:
        SqlLimitError: it is.
    """
    pending, count = [(expression, 1)], 0
    while pending:
        node, level = pending.pop()
        count += 1
        if count > MOST_NODES or level > MOST_LEVELS:
            raise SqlLimitError(
                "The expression is too long to run on rows.",
                hint=f"at most {MOST_NODES} parts and {MOST_LEVELS} levels are taken.",
            )
        pending.extend((part, level + 1) for part in parts(node))


def check_columns(joined: RowExpression) -> None:
    """Check that a text that is put together isn't much longer than those of the row.

    Raises:
        SqlLimitError: it may be.
    """
    if sum(isinstance(node, RowColumn) for node in nodes(_without_lengths(joined))) > MOST_JOINED:
        raise SqlLimitError(
            f"|| puts more than {MOST_JOINED} columns of a row together.",
            hint="compare the columns one by one.",
        )


def _without_lengths(node: RowExpression) -> RowExpression:
    """Return a text without the lengths of others that stand in it, which are short."""
    if isinstance(node, RowCall) and node.function in {"length", "strlen"}:
        return NOTHING
    return replaced(node, _without_lengths)


def ordered(expression: RowExpression) -> RowExpression:
    """Return an expression with the operands of each + and * in one order.

    Numbers are the same in either order, so `a * b` and `b * a` become one tree.
    """
    changed = replaced(expression, ordered)
    if isinstance(changed, RowCall) and changed.function in {"+", "*"}:
        return RowCall(changed.function, tuple(sorted(changed.arguments, key=canonical)))
    return changed


def canonical(expression: RowExpression) -> str:
    """Write an expression so that two are written alike only if they are equal.

    Each name, string and constant is in quotes that are doubled within, each node in brackets
    with a word of its own, so the tree can be read off the text.

    It is in the names by which keys, measures and views are known to releases, plans and ledgers,
    those saved before among them: so it stays as it is, however an engine writes the tree. Where
    the tree means something else than it did, the name says so besides (`write.known_as`).
    """
    if isinstance(expression, RowColumn):
        return '"' + expression.name.replace('"', '""') + '"'
    if isinstance(expression, RowConstant):
        text = expression.text.replace("'", "''")
        return f"{expression.kind} '{text}'"
    if isinstance(expression, RowCall):
        inner = ", ".join(canonical(part) for part in expression.arguments)
        return f"{expression.function}({inner})"
    if isinstance(expression, RowCast):
        return f"CAST({canonical(expression.value)} AS {expression.to.sql})"
    cases = " ".join(f"WHEN {canonical(a)} THEN {canonical(b)}" for a, b in expression.cases)
    return f"CASE {cases} ELSE {canonical(expression.otherwise)} END"


# ── Expressions of rows as a reader would write them, for reports ────────────────────────────────
#
# Two that differ may be spelled alike; `canonical` tells them apart.


_INFIX = {
    "or": 1, "and": 2, "=": 4, "<>": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "like": 4, "ilike": 4,
    "+": 5, "-": 5, "||": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip
"""Operators, and how strongly they bind."""
_NOT, _TEST, _SIGN = 3, 4, 7


_LONGEST_SPELLED = 200
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
    return found if len(found) <= _LONGEST_SPELLED else f"{found[: _LONGEST_SPELLED - 1]}…"


def spelled(expression: RowExpression, around: int = 0) -> str:
    """Write an expression.

    Args:
        expression: what to write.
        around: how strongly what stands around it binds; it gets parentheses if it binds less.
    """
    if isinstance(expression, RowColumn):
        return as_sql(expression.name)
    if isinstance(expression, RowConstant):
        return _spelled_constant(expression)
    if isinstance(expression, RowCast):
        return f"CAST({spelled(expression.value)} AS {expression.to.sql})"
    if isinstance(expression, RowCase):
        cases = " ".join(f"WHEN {spelled(a)} THEN {spelled(b)}" for a, b in expression.cases)
        return f"CASE {cases} ELSE {spelled(expression.otherwise)} END"
    text, strength = _call(expression)
    return f"({text})" if strength < around else text


def _spelled_constant(constant: RowConstant) -> str:
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
    if name in _INFIX and len(given) > 1:
        strength = _INFIX[name]
        left, *others = given
        rest = [spelled(other, strength + 1) for other in others]
        return f" {capitals(name)} ".join([spelled(left, strength), *rest]), strength
    if name in _WORDS and given:
        return _WORDS[name](*given)
    if name in _OF_UNITS and isinstance(given[0], RowConstant):
        given = (replace(given[0], text=folded(given[0].text)), *given[1:])
    return f"{name}({', '.join(map(spelled, given))})", _SIGN + 1


def _negated(value: RowExpression) -> tuple[str, int]:
    if isinstance(value, RowCall) and value.function == "is_null":
        return f"{spelled(value.arguments[0], _TEST + 1)} IS NOT NULL", _TEST
    return f"NOT {spelled(value, _NOT)}", _NOT


def _between(*given: RowExpression) -> tuple[str, int]:
    value, low, high = (spelled(part, _TEST + 1) for part in given)
    return f"{value} BETWEEN {low} AND {high}", _TEST


def _among(*given: RowExpression) -> tuple[str, int]:
    value, *listed = (spelled(part, _TEST + 1) for part in given)
    return f"{value} IN ({', '.join(listed)})", _TEST


def _moved(span: RowExpression) -> str:
    """Spell an interval without what it has none of."""
    counts = span.text.split() if isinstance(span, RowConstant) else []
    parts = zip(counts, COUNTED, strict=False)
    return " ".join(f"{count} {unit}" for count, unit in parts if count != "0") or "0 days"


_OF_UNITS = frozenset({"date_diff", "date_part", "date_trunc"})
"""Functions whose first argument is a unit of time, which may be read in capitals."""
_WORDS: dict[str, Callable[..., tuple[str, int]]] = {
    "negative": lambda value: (f"-{spelled(value, _SIGN)}", _SIGN),
    "is_null": lambda value: (f"{spelled(value, _TEST + 1)} IS NULL", _TEST),
    "not": _negated,
    "shift": lambda time, by: (f"{spelled(time, _SIGN)} + INTERVAL '{_moved(by)}'", _SIGN - 1),
    "clock": lambda time, _: (spelled(time), _SIGN + 1),
    "between": _between,
    "in": _among,
}
"""Calls that are written in words: the text, and how strongly it binds."""
