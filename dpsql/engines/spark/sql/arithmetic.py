"""Spark's SQL of arithmetic, as DuckDB computes it; see `expressions.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dpsql.engines.spark.sql.calendar import cast_time, days, is_finite
from dpsql.engines.spark.sql.text import (
    WIDE,
    between,
    call,
    constant,
    digits_of,
    is_small,
    let,
    real,
    refused,
    text,
    type_name,
    whole,
)
from dpsql.errors import UnsupportedSqlError
from dpsql.rows.typed import RowValue, Writer
from dpsql.rows.types import BOOLEAN, DATE, DOUBLE, FLOAT, NULL, VARCHAR, RowType

_MOST_DIGITS, _EXACT_DIGITS = 38, 34


def _arithmetic(node: RowValue, parts: list[str]) -> str:
    if DATE in (node.type, node.parts[0].type):
        return days(node, parts)
    if node.type == FLOAT:
        raise refused("FLOAT numbers", "write CAST(… AS DOUBLE).")
    if node.type.name == "DECIMAL":
        return _decimals(node, parts)
    return f"({parts[0]} {node.text} {parts[1]})"


def _decimals(node: RowValue, parts: list[str]) -> str:
    """Write a sum or product of DECIMALs: of no more digits than they have."""
    widths, written = [], []
    for part, sql in zip(node.parts, parts, strict=True):
        width = part.type.width
        if part.digits is not None:
            width = digits_of(part.digits, part.type.scale)
            sql = f"CAST({sql} AS DECIMAL({width},{part.type.scale}))"
        widths.append(width)
        written.append(sql)
    scales = [part.type.scale for part in node.parts]
    needed = sum(widths) + 1
    if node.text != "*":
        needed = max(w - s for w, s in zip(widths, scales, strict=True)) + max(scales) + 1
    if needed > _MOST_DIGITS:
        raise refused(
            f"{node.text} of numbers that together have more than {_MOST_DIGITS - 1} digits",
            "declare bounds of the columns, or cast them to DECIMALs with fewer digits.",
        )
    return f"try_cast({written[0]} {node.text} {written[1]} AS {node.type.sql})"


def _minus(node: RowValue, parts: list[str]) -> str:
    return _arithmetic(node, parts) if len(parts) == 2 else _negative(node.parts[0].type, *parts)


def _negative(type_: RowType, x: str) -> str:
    """Write a number with the other sign: for that alone, Spark rounds decimals to 34 digits."""
    if type_.is_integer and not is_small(type_):
        return f"({constant('0', 'DECIMAL(1,0)')} - {x})"
    if type_.width > _EXACT_DIGITS:
        raise refused(
            f"- and abs of numbers with more than {_EXACT_DIGITS} digits",
            "cast them to DECIMALs with fewer digits.",
        )
    return f"(- {x})"


def _absolute(node: RowValue, parts: list[str]) -> str:
    type_ = node.parts[0].type
    if type_.is_float or is_small(type_):
        return call("abs", *parts)
    zero = constant("0", "DECIMAL(1,0)")
    return let("v", parts[0], f"CASE WHEN v < {zero} THEN {_negative(type_, 'v')} ELSE v END")


def _quotient(node: RowValue, parts: list[str]) -> str:
    """Write a quotient of doubles: by zero it is infinite, with the sign of both, or NaN."""
    if node.type == FLOAT:
        raise refused("FLOAT numbers", "write CAST(… AS DOUBLE).")
    x, y = parts
    minus = call("startswith", f"CAST({y} AS STRING)", text("-"))
    signed = f"(CASE WHEN {minus} THEN - {x} ELSE {x} END)"
    infinite = f"({signed} * {constant('Infinity', 'DOUBLE')})"
    return f"(CASE WHEN {y} = {real(0)} THEN {infinite} ELSE {x} / {_not_zero(y)} END)"


def _not_zero(y: str) -> str:
    return call("nullif", y, real(0))


def _remainder(node: RowValue, parts: list[str]) -> str:
    """Write a quotient without its fraction, or what is left: 64 bits are enough for both."""
    bases = [part.parts[0] if part.operation == "cast" else part for part in node.parts]
    narrow = all(base.type.is_integer and is_small(base.type) for base in bases)
    if not node.type.is_integer or not narrow:
        raise refused(f"{node.text} of {node.type.sql}", "cast both sides to BIGINT.")
    a, b = (f"CAST({part} AS BIGINT)" for part in parts)
    if node.text == "%":
        return f"CAST({a} % {call('nullif', b, whole(0))} AS {type_name(node.type)})"
    plain = f"(CASE WHEN {b} NOT IN ({whole(0)}, {whole(-1)}) THEN {b} END)"
    name = type_name(node.type)
    other = f"CAST({a} div {plain} AS {name})"
    return f"(CASE WHEN {b} = {whole(-1)} THEN - CAST({a} AS {name}) ELSE {other} END)"


def _extreme(node: RowValue, parts: list[str]) -> str:
    return call(node.text, *parts) if len(parts) > 1 else parts[0]


def _sign(node: RowValue, parts: list[str]) -> str:
    type_ = node.parts[0].type
    if type_ == FLOAT:
        raise refused("sign of FLOAT", "write CAST(… AS DOUBLE).")
    zero, nan = constant("0", type_name(type_)), ""
    if type_.is_float:
        nan = f"WHEN {call('isnan', 'v')} THEN {whole(0)} "
    return let("v", parts[0], f"CASE {nan}WHEN v > {zero} THEN {whole(1)} WHEN v < {zero} "
               f"THEN {whole(-1)} WHEN v = {zero} THEN {whole(0)} END")  # fmt: skip


def _bits(node: RowValue, parts: list[str]) -> str:
    """Count the bits of an integer of its own type, which Spark has in 64 bits."""
    low, high = node.parts[0].type.limits or (0, 0)
    x = parts[0] if high.bit_length() == 63 else f"({parts[0]} & {whole(high - low)})"
    return f"CAST({call('bit_count', x)} AS BIGINT)"


def _rounded(node: RowValue, parts: list[str]) -> str:
    function, (x, *places) = node.text, parts
    if node.type == FLOAT:
        raise refused("FLOAT numbers", "write CAST(… AS DOUBLE).")
    if node.type.is_integer:
        x = f"CAST({x} AS DECIMAL({_MOST_DIGITS},0))"
    if node.type.is_exact:
        whole_ones = "CASE WHEN v < 0 THEN system.builtin.ceil(v) ELSE system.builtin.floor(v) END"
        made = call(function, "v", *(f"CAST({p} AS INT)" for p in places))
        made = let("v", x, whole_ones if function == "trunc" else made)
        return f"try_cast({made} AS {type_name(node.type)})"
    digits = int(node.parts[1].text) if places else 0
    if function == "round" and digits:
        ten = real(float(10 ** abs(digits)))
        times, other = ("*", "/") if digits > 0 else ("/", "*")
        near = let("v", f"(v {times} {ten})", _NEAREST)
        back = f"({near} {other} {ten})"
        end = "v" if digits > 0 else real(0)
        beyond = f"{call('abs', 'v')} >= {constant('Infinity', 'DOUBLE')}"
        far = f"({back} IS NULL OR {call('abs', back)} >= {constant('Infinity', 'DOUBLE')})"
        return let(
            "v", x, f"CASE WHEN v IS NULL OR {beyond} THEN v WHEN {far} THEN {end} ELSE {back} END"
        )
    return let("v", x, _WHOLE[function])


_RINT = "system.builtin.rint({0})"
_FLOOR = f"CASE WHEN {_RINT} > {{0}} THEN {_RINT} - 1.0D ELSE {_RINT} END"
_DOWN, _UP = _FLOOR.format("v"), f"- ({_FLOOR.format('(- v)')})"
_CUT = f"CASE WHEN v < 0.0D THEN {_UP} ELSE {_DOWN} END"
_NEAREST = (
    f"CASE WHEN system.builtin.abs(v - ({_CUT})) < 0.5D THEN {_CUT} "
    f"WHEN system.builtin.abs(v) >= 4503599627370496.0D THEN v "
    f"WHEN v < 0.0D THEN ({_CUT}) - 1.0D ELSE ({_CUT}) + 1.0D END"
)
_WHOLE = {"floor": _DOWN, "ceil": _UP, "trunc": _CUT, "round": _NEAREST}


def _plain(node: RowValue, parts: list[str]) -> str:
    """Write a function that Spark has under the same name, and with the same values."""
    return call(node.text, *parts)


def _is_nan(_: RowValue, parts: list[str]) -> str:
    return let("v", parts[0], f"CASE WHEN v IS NOT NULL THEN {call('isnan', 'v')} END")


def _is_finite(node: RowValue, parts: list[str]) -> str:
    if node.parts[0].type.is_time:
        return is_finite(parts[0], node.parts[0].type)
    (x,), infinite = parts, constant("Infinity", "DOUBLE")
    if node.text == "isinf":
        return f"({call('abs', x)} = {infinite})"
    return f"({call('abs', x)} < {infinite})"


NUMBERS: Mapping[str, Writer] = {
    "arithmetic": _arithmetic, "minus": _minus, "absolute": _absolute, "quotient": _quotient,
    "remainder": _remainder, "sign": _sign, "extreme": _extreme, "rounded": _rounded,
    "isnan": _is_nan, "isfinite": _is_finite, "plain": _plain, "bits": _bits,
}  # fmt: skip
"""Rules that records of functions name (`dpsql/rows/functions.py`)."""


# ── Spark's SQL of a value as another type, as DuckDB casts it; see `expressions.py` ─────────────


MOST = 10**38 - 1
"""The largest integer."""


def cast(node: RowValue, parts: list[str]) -> str:
    """Write a value as another type; NULL where it has none.

    Raises:
        UnsupportedSqlError: Spark has no such cast, or other values.
    """
    (x,), (of,), to = parts, node.parts, node.type
    if of.type in (NULL, to):
        return f"CAST({x} AS {type_name(to)})"
    if to.is_integer:
        return _to_integer(x, of.type, to)
    if to.name == "DECIMAL" and of.type.is_exact:
        return _to_decimal(x, of.type, to)
    if to == DOUBLE:
        return _to_double(x, of.type)
    if to == BOOLEAN and of.type.is_integer:
        return f"({x} <> {constant('0', type_name(of.type))})"
    if to == VARCHAR and (of.type == BOOLEAN or of.type.is_integer or of.type.scale in range(1, 7)):
        return f"CAST({x} AS STRING)"
    if of.type.is_time and to.is_time:
        return cast_time(x, of.type)
    raise _no_cast(of.type, to)


def _no_cast(of: RowType, to: RowType) -> UnsupportedSqlError:
    hint = "compare the column as it is, or store it with that type."
    return refused(f"a cast from {of.sql} to {to.sql}", hint)


def _inside(x: str, low: str, high: str, made: Callable[[str], str]) -> str:
    """Write what is made of a number between two constants, where it is; else NULL."""
    inside = made(between("v", low, high))
    return let("v", x, f"CASE WHEN v BETWEEN {low} AND {high} THEN {inside} END")


def _to_integer(x: str, of: RowType, to: RowType) -> str:
    name, limits = type_name(to), to.limits or (0, 0)
    if of == BOOLEAN:
        return f"CAST(CAST({x} AS INT) AS {name})"
    if of.is_integer:
        inner = of.limits or (0, 0)
        if limits[0] <= inner[0] and inner[1] <= limits[1]:
            return f"CAST({x} AS {name})"
        kept = max(limits[0], inner[0], -MOST), min(limits[1], inner[1], MOST)
        low, high = (constant(str(end), type_name(of)) for end in kept)
        return _inside(x, low, high, lambda v: f"CAST({v} AS {name})")
    if of.name == "DECIMAL":
        low, high = (constant(str(max(-MOST, min(MOST, end))), WIDE) for end in limits)
        rounded = f"CAST({call('round', x, whole(0, 'INT'))} AS {WIDE})"
        return _inside(rounded, low, high, lambda v: f"CAST({v} AS {name})")
    if of == DOUBLE and is_small(to):
        low, above = real(float(limits[0])), real(float(limits[1] + 1))
        inside = f"v >= {low} AND v < {above}"
        least, most = (constant(str(end), "BIGINT") for end in limits)
        cast = between(f"CAST({call('rint', between('v', low, above))} AS BIGINT)", least, most)
        return let("v", x, f"CASE WHEN {inside} THEN {cast} END")
    raise _no_cast(of, to)


def _to_decimal(x: str, of: RowType, to: RowType) -> str:
    if of.name == "DECIMAL" and of.scale > to.scale:
        raise _no_cast(of, to)
    return f"try_cast({x} AS {to.sql})"


def _to_double(x: str, of: RowType) -> str:
    if of == BOOLEAN:
        return f"CAST(CAST({x} AS INT) AS DOUBLE)"
    # Of an integer of whatever size both take the double that is nearest: `typed.huge_as_float`.
    if of == FLOAT or of.is_integer or (of.name == "DECIMAL" and of.width < 16):
        return f"CAST({x} AS DOUBLE)"
    if of.name == "DECIMAL" and of.width <= 18 and of.scale <= 15:
        # More than 2^53 last digits: DuckDB adds up what is before the point and after it.
        most = constant(f"{2**53 // 10**of.scale}", of.sql)
        before = "CAST(v AS BIGINT)"
        after = f"CAST(CAST(v - CAST({before} AS DECIMAL(18,0)) AS {of.sql}) AS DOUBLE)"
        large = f"(CAST({before} AS DOUBLE) + {after})"
        return let(
            "v", x, f"CASE WHEN {call('abs', 'v')} < {most} THEN CAST(v AS DOUBLE) ELSE {large} END"
        )
    raise refused(f"{of.sql} as DOUBLE", "cast the column to DECIMAL(18, 2) or BIGINT before.")
