"""Spark's SQL of arithmetic, as DuckDB computes it; see `expressions.py`."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.engines.spark.sql.calendar import days, is_finite
from dpsql.engines.spark.sql.text import call, constant, let, real, text, whole
from dpsql.engines.spark.sql.types import digits_of, is_small, refused, type_name
from dpsql.rows.typed import RowValue, Writer
from dpsql.rows.types import DATE, FLOAT

_MOST_DIGITS = 38


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
    return _arithmetic(node, parts) if len(parts) == 2 else f"(- {parts[0]})"


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
        one, other = ("*", "/") if digits > 0 else ("/", "*")
        near = let("v", f"(v {one} {ten})", _NEAREST)
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
    "arithmetic": _arithmetic, "minus": _minus, "quotient": _quotient, "remainder": _remainder,
    "sign": _sign, "extreme": _extreme, "rounded": _rounded, "isnan": _is_nan,
    "isfinite": _is_finite, "plain": _plain, "bits": _bits,
}  # fmt: skip
"""Rules that records of functions name (`dpsql/rows/functions.py`)."""
