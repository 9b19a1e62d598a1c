"""Spark's SQL of what is computed of a row. Trusted.

Guarantees:
    The SQL of a tree is a function of its own row's columns, and has the value that DuckDB's SQL
    of it has. It never fails, whatever a row holds.

    *Proof that nothing fails.* By induction over the tree; operands are total (with
    `arithmetic.py`, `strings.py` and `calendar.py`, where functions are written). (i) Integers of
    64 bits are BIGINT, wider ones DECIMAL(38,0), and each integer's limits are within its type:
    they are compared here with 10^38. So sums, differences and products don't overflow. (ii) Sums
    and products of DECIMALs are of a type that has all their digits, 38 at most, and are brought to
    another one by `try_cast`, which gives NULL; only what has 34 digits at most is negated. (iii) A
    number is cast to a narrower type only after `least` and `greatest` brought it between two
    constants that the type has. (iv) A divisor of zero is NULL before anything is divided. (v) Days
    and times are counted where they are finite, and days that are added up are brought between the
    ends of the type. (vi) No function is given a pattern: LIKE is a search for constant bytes, each
    from where the one before ended, so its time is linear, too. (vii) Doubles are total. ∎

    *Proof that nothing is read of other rows.* Spark's functions of characters take the length of a
    character from its first byte. Where a text ends within one, they read on: `substr` then gives
    bytes of the value stored behind it. So each text here is valid UTF-8, by induction: constants
    are; of columns, `make_valid_utf8`, which looks at no byte after the last one, puts U+FFFD in
    place of what isn't; numbers are shown in ASCII; pieces and concatenations of valid texts, cut
    where characters begin, and texts of which letters are replaced by letters are valid. What is
    chosen of a unit's values (`spark/relations.py`) is read as a column again. ∎

    *What makes values the same.* Texts are compared as bytes. What Spark computes in another way is
    written in another one: doubles are rounded to integers by `rint`, of two the even one; floors
    of doubles stay doubles; Sunday is 0; letters are mapped one by one, as DuckDB's own function
    does, by a list of all that it changes. `IN` for doubles would tell -0.0 from 0.0 in a long
    list, so these are looked up in an array. What can't be written with the same values is refused:
    logarithms, powers and sines, of which Java's last digit is another one than C's; regular
    expressions, which aren't matched in linear time; texts as numbers or times, and doubles, days
    and times as texts. That values are the same, tests see on odd rows; no privacy rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dpsql.engines.spark.sql.arithmetic import MOST, NUMBERS, cast
from dpsql.engines.spark.sql.calendar import TIMES, clock, shift
from dpsql.engines.spark.sql.strings import STRINGS
from dpsql.engines.spark.sql.text import (
    array,
    between,
    call,
    constant,
    quoted,
    real,
    refused,
    text,
    type_name,
)
from dpsql.errors import SqlLimitError
from dpsql.rows.functions import FUNCTIONS, SYNTAX, check_column
from dpsql.rows.typed import STANDARD, RowValue, Writer, case_of
from dpsql.rows.types import DOUBLE, FLOAT, NULL, VARCHAR

_CHOICES = frozenset({"column", "case", "coalesce", "nullif", "bounded"})
_LONGEST = 200_000
"""Characters of what is written."""


def spark_sql(value: RowValue, further: Mapping[str, Writer] = MappingProxyType({})) -> str:
    """Write what is computed of a row.

    Args:
        value: its tree.
        further: how operations are written that it has besides those of rows; then it may be long.

    Raises:
        UnsupportedSqlError: Spark can't compute it, or not the same values.
        SqlLimitError: it is too long.
    """
    operands = [spark_sql(part, further) for part in value.parts]
    _check_limits(value)
    written = (further.get(value.operation) or _WRITTEN[value.operation])(value, operands)
    if len(written) > _LONGEST and not further:
        raise SqlLimitError(
            "The expression is too long to run in Spark.", hint="write a shorter one."
        )
    return written


def _check_limits(value: RowValue) -> None:
    """Refuse integers that 38 digits may not hold, where they are made."""
    limits = value.limits
    # A choice among values has no others, and a column of more than 64 bits is one of the sums of
    # `spark/relations.py`, which have room.
    if value.operation in _CHOICES or value.text in {"least", "greatest"}:
        return
    if value.type.is_integer and limits is not None and max(map(abs, limits)) > MOST:
        raise refused(
            "integers of more than 38 digits",
            "declare bounds of the columns, or cast them to INTEGER before they are multiplied.",
        )


def _column(node: RowValue, _: list[str]) -> str:
    name = quoted(node.text)
    if node.type == VARCHAR:  # by its bytes, without the collation that a column may have
        return call("make_valid_utf8", f"CAST(CAST({name} AS BINARY) AS STRING)")
    return f"CAST({name} AS {type_name(node.type)})" if node.type.is_integer else name


def _constant(node: RowValue, _: list[str]) -> str:
    if node.type == NULL:
        return "NULL"
    if node.type == VARCHAR:
        return text(node.text)
    if node.type == DOUBLE:
        value = float(node.text)
        if math.isfinite(value):
            return real(value)
        return constant(
            "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity", "DOUBLE"
        )
    if node.type == FLOAT:
        raise refused("FLOAT numbers", "write CAST(… AS DOUBLE).")
    return constant(node.text, type_name(node.type))


def _compare(node: RowValue, parts: list[str]) -> str:
    left, right = parts
    if node.text == "IS DISTINCT FROM":
        return f"(NOT ({left} <=> {right}))"
    return f"({left} {'<=>' if node.text == 'IS NOT DISTINCT FROM' else node.text} {right})"


def _among(node: RowValue, parts: list[str]) -> str:
    value, *listed = parts
    if node.parts[0].type.is_float:
        return call("array_contains", array(listed), value)
    return STANDARD["in"](node, parts)


def _bounded(_: RowValue, parts: list[str]) -> str:
    x, low, high = parts
    return f"(CASE WHEN {x} IS NOT NULL THEN {between(x, low, high)} END)"


def _call(node: RowValue, parts: list[str]) -> str:
    rule = _CALLS.get(node.text)
    if rule is None:
        raise refused(node.text, "declare a domain of the column, and group by it.")
    return rule(node, parts)


_WRITTEN: Mapping[str, Writer] = {
    **STANDARD,
    "column": _column,
    "labels": _column,
    "constant": _constant,
    "clock": clock,
    "shift": shift,
    "cast": cast,
    "try_cast": cast,
    "call": _call,
    "try": lambda _, p: p[0],
    "tried": _call,
    "bytes": lambda _, p: f"CAST({p[0]} AS BINARY)",
    "compare": _compare,
    "in": _among,
    "coalesce": lambda _, p: call("coalesce", *p),
    "case": lambda node, p: f"({case_of(node, p)})",
    "nullif": lambda _, p: f"(CASE WHEN {p[0]} = {p[1]} THEN NULL ELSE {p[2]} END)",
    "bounded": _bounded,
}
_RULES = {**TIMES, **STRINGS, **NUMBERS}
check_column("spark", {"", SYNTAX, *_RULES})
_CALLS = {
    function.duckdb: _RULES[function.spark]
    for function in FUNCTIONS.values()
    if function.spark in _RULES
}
"""By DuckDB's names."""
