"""Spark's SQL that turns a stored value into the code of its cell. Trusted.

Guarantees:
    The code of a value is a BIGINT that is never NULL: that of its cell, as `Counting.run` says,
    or -1 where it has none. It is a function of this value alone, in a session with the settings
    of `sessions.py`, and it never fails. (ANSI mode would change nothing of this.)

    *Proof.* The trees are those of `engines/codes.py`; each operation below is total on what it is
    given there. A code is CASE WHEN placed THEN c ELSE rest END, where `rest` is a constant, or one
    of two by IS NULL, and -1 should c be NULL.
    Neither `placed` nor c rests on the other being asked first: Spark may compute them in any
    order. (i) Casts are from a type to one that has all its values: integers to BIGINT, numbers to
    DOUBLE, STRING to BINARY, which is a look at its bytes, valid UTF-8 or not; TIMESTAMP_NTZ to
    DATE, as 2^63 microseconds are fewer than 2^31 days. Any other cast is of a value that `least`
    and `greatest` brought between constants before, which the type has. Both pass over NULL, so
    what they give is between the constants whatever a row holds; NaN is the largest double, and
    gives the upper one. (ii) Integers: hi - lo < 2^62 is checked here, so x - lo is a BIGINT, and
    so are sums and quotients by positive constants, after which nothing is larger. (iii) Decimals
    between ends of w digits with s after the point are multiplied by 10^s in a type of w + s + 2
    digits, of which there are 38: exact. (iv) Doubles: floor of what is between -1 and the number
    of cells, as (x - lo) / step was computed of a bounded x with a positive step; so no infinity
    and no NaN comes to `floor`, which fails for them in ANSI mode. (v) Days and months of a date
    between two of the years 1 to 9999 are small. Clocks of a zone are computed of instants between
    the years -100000 and 100000, where a zone's shift of hours can't overflow. `CAST(… AS DATE)`
    of what has no zone asks for none; of what has one, it is the session's, which is UTC and is
    pinned (`sessions.py`). (vi) Lists: `array_position` gives 0 for what isn't in it and NULL for
    NULL, and `get`, unlike `element_at`, NULL for a place that isn't there.

    Texts are compared as bytes, so no collation merges two of them, nor CHAR's blanks, nor what
    replaces what isn't UTF-8. -0.0 is equal to 0.0 in all comparisons. ∎

No function of a sequence of rows, no random number and no clock is among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dpsql.engines.codes import codes_of, halved
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import (
    array,
    between,
    blob,
    call,
    constant,
    digits_of,
    last_digits,
    type_name,
    whole,
)
from dpsql.errors import SchemaError
from dpsql.rows.typed import RowValue, Writer
from dpsql.rows.types import BIGINT, DATE, HUGEINT, RowType
from dpsql.schema import Domain
from dpsql.schema.sequences import (
    FLOATS,
    DecimalRange,
    decimal_scale,
)

MOST_CELLS = 2**62
"""Codes, and all that is computed of them, are BIGINT."""
_MOST_LISTED = 100_000
"""Values of a list. All of them are in the text of a statement."""
_SEARCHED = 64
"""Values of a list that is searched through; longer ones are halved until they have no more."""
_MOST_DIGITS = 38
_SAFE_DIGITS = 18
"""Digits that a BIGINT has for sure."""
_FAR = 3_093_527_980_800
"""Seconds in 98,000 years and more."""
NOWHERE = -1
"""The code of what has no cell."""


def code_of(column: str, domain: Domain, *, leaves_out: bool) -> str:
    """Write the code of a value.

    Args:
        column: SQL of the value, which never fails.
        domain: the cells.
        leaves_out: whether rows that have no value of the domain are in a cell after its cells.

    Raises:
        SchemaError: Spark can't tell the cells of such a domain.
    """
    codes, last = codes_of(domain, _room(domain)), domain.size - domain.nullable

    def value(node: RowValue, _: list[str]) -> str:
        return f"CAST({column} AS {type_name(node.type)})" if node.type.is_exact else column

    @cache
    def place(compared: str) -> str:
        return _place(compared, domain.values)

    of_value = {**_CELLS, "value": value, "place": lambda _, parts: place(*parts)}
    bounded, placed = spark_sql(codes.bounded, of_value), spark_sql(codes.placed, of_value)
    code = spark_sql(codes.code, {**_CELLS, "within": lambda *_: bounded})
    if domain.nullable and leaves_out:
        rest = f"CASE WHEN {column} IS NULL THEN {whole(last)} ELSE {whole(last + 1)} END"
    else:
        rest = whole(last if domain.nullable or leaves_out else NOWHERE)
    code = f"CASE WHEN {placed} THEN CAST({code} AS BIGINT) ELSE {rest} END"
    return call("coalesce", code, whole(NOWHERE))


def _room(domain: Domain) -> RowType:
    """Return the type in which codes are computed, of what is between the ends of a domain.

    Raises:
        SchemaError: there is none, or there are too many values.
    """
    values, type_ = domain.values, domain.column_type
    if domain.size >= MOST_CELLS:
        raise SchemaError(
            "A domain has too many values to be counted.", hint="declare a smaller range."
        )
    if isinstance(values, range):
        for end in (values.start, values.stop - 1):
            whole(end)  # refuses what isn't a BIGINT
    if isinstance(values, DecimalRange) and type_ not in FLOATS:
        scale = decimal_scale(type_)
        low, high, step = values.scaled(scale)
        digits = digits_of((low, high), scale)
        if scale and digits + scale + 2 > _MOST_DIGITS:
            raise SchemaError(
                f"Decimals of {digits} digits, {scale} of them after the point, can't be counted "
                "in Spark.",
                hint="use Domain.bins, or store the column with fewer digits.",
            )
        if digits >= _MOST_DIGITS or (digits <= _SAFE_DIGITS and step >= MOST_CELLS):
            raise SchemaError(
                "Decimals so far apart can't be counted in Spark.", hint="use Domain.bins."
            )
        return BIGINT if digits <= _SAFE_DIGITS else HUGEINT
    if isinstance(values, tuple) and domain.type != "DOUBLE" and len(values) > _MOST_LISTED:
        raise SchemaError(
            f"A list of more than {_MOST_LISTED:,} values can't be counted in Spark yet.",
            hint="declare a range, or fewer values with one for all others.",
        )
    return BIGINT


def _shown(node: RowValue, parts: list[str]) -> str:
    """Write what the clock shows: of an instant, that in the declared zone."""
    (x,) = parts
    if not node.text:
        return x
    ends = (call("timestamp_seconds", whole(end)) for end in (-_FAR, _FAR))
    shown = call("from_utc_timestamp", between(x, *ends), constant(node.text, "STRING"))
    return f"(CASE WHEN {x} IS NOT NULL THEN CAST({shown} AS TIMESTAMP_NTZ) END)"


def _plain(node: RowValue, parts: list[str]) -> str:
    if node.text == "floor":  # is a BIGINT
        return f"CAST({call('floor', *parts)} AS DOUBLE)"
    return f"({parts[0]} {'div' if node.text == '//' else node.text} {parts[1]})"


def _digits(node: RowValue, parts: list[str]) -> str:
    scale = node.parts[0].type.scale
    digits = last_digits(parts[0], digits_of(node.digits or (0, 0), scale), scale)
    return f"CAST({digits} AS {type_name(node.type)})"


def _months(_: RowValue, parts: list[str]) -> str:
    (day,) = parts
    return f"(CAST({call('year', day)} AS BIGINT) * {whole(12)} + {call('month', day)})"


def _since(node: RowValue, parts: list[str]) -> str:
    if node.parts[0].type == DATE:
        return f"CAST({call('datediff', *parts)} AS BIGINT)"
    last, first = (call("unix_micros", f"CAST({clock} AS TIMESTAMP)") for clock in parts)
    return f"({last} - {first})"  # as if the clock hung in UTC


_CELLS: Mapping[str, Writer] = {
    "there": lambda _, p: f"({p[0]} IS NOT NULL)",
    "number": lambda _, p: f"({p[0]} IS NOT NULL AND NOT {call('isnan', p[0])})",
    "inside": lambda _, p: between(*p),
    "shown": _shown,
    "as": lambda node, p: f"CAST({p[0]} AS {type_name(node.type)})",
    "plain": _plain,
    "digits": _digits,
    "months": _months,
    "since": _since,
    "cell": lambda node, _: whole(int(node.text)),
}
"""The operations of `engines/codes.py`."""


def _place(stored: str, values: Sequence[Any]) -> str:
    """Write the place of a value in a list, from 1; NULL if it isn't there."""
    order = sorted(range(len(values)), key=lambda i: _key(values[i]))
    parts = [order[i : i + _SEARCHED] for i in range(0, len(order), _SEARCHED)]

    def found(part: Sequence[int]) -> str:
        at = call("array_position", array([_constant(values[i]) for i in part]), stored)
        places = array([whole(i + 1) for i in part])
        return call("get", places, f"CAST({at} - {whole(1)} AS INT)")

    def one_of(first: str, below: str, above: str) -> str:
        return f"CASE WHEN {stored} < {first} THEN {below} ELSE {above} END"

    firsts = [_constant(values[part[0]]) for part in parts]
    return halved(firsts, [found(part) for part in parts], one_of)


def _key(value: Any) -> Any:
    """Return what values are sorted by: Spark compares bytes as Python does."""
    return value.encode() if isinstance(value, str) else value


def _constant(value: Any) -> str:
    if isinstance(value, str):
        return blob(value.encode())
    return whole(value) if isinstance(value, int) else constant(value.isoformat(), "DATE")
