"""Spark's SQL of days and times, as DuckDB counts them.

DuckDB's infinite days and times are the last and the first but one of their types, and are found
by their numbers here. What is computed of a day or a time is computed where it is finite only, and
is NULL elsewhere, where DuckDB has no value, or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpsql.engines.spark.sql.text import (
    array,
    between,
    blob,
    call,
    constant,
    let,
    quoted,
    refused,
    whole,
)
from dpsql.rows.times import DAYS, LENGTHS, MONTHS
from dpsql.rows.typed import RowValue, Writer
from dpsql.rows.types import DATE, TIMESTAMP, RowType
from dpsql.schema.sequences import decimal_text

_INFINITE = 2**31 - 1
_LAST = _INFINITE - 1
_FIRST_WEEK = 193 - _LAST
_FAR = 106_751_991
"""Days around 1970 that a TIMESTAMP has as a whole."""
_DAYS = {"year": "year", "month": "month", "day": "dayofmonth", "quarter": "quarter",
         "dayofyear": "dayofyear", "week": "weekofyear"}  # fmt: skip
_CLOCK = {"hour": "hour", "minute": "minute", "second": "second"}
_CLOCKS = {unit: rest for unit, (_, _, rest) in LENGTHS.items() if rest}
_FAR_SECONDS = 100_000 * 31_556_952
_CUT = {"year": "YEAR", "quarter": "QUARTER", "month": "MONTH", "week": "WEEK"}


def _date(number: int) -> str:
    return call("date_from_unix_date", whole(number, "INT"))


def is_finite(v: str, type_: RowType) -> str:
    """Write whether a day or a time is finite."""
    if type_ == DATE:
        return f"({v} BETWEEN {_date(-_LAST)} AND {_date(_LAST)})"
    low, high = (constant(text, "TIMESTAMP_NTZ") for text in _TIMES)
    return f"({v} BETWEEN {low} AND {high})"


_EPOCH = constant("1970-01-01", "TIMESTAMP_NTZ")
_NEVER, _EVER = "-290308-12-21 19:59:05.224193", "+294247-01-10 04:00:54.775807"
_INFINITELY = 2**20
_TIMES = "-290308-12-22 00:00:00", "+294247-01-10 04:00:54.775806"
"""The first and the last time of DuckDB."""


def _day(v: str, type_: RowType) -> str:
    return v if type_ == DATE else f"CAST({v} AS DATE)"


def cast_time(x: str, of: RowType) -> str:
    """Write a day as a time, or the day of a time; infinite ones stay so."""
    if of == TIMESTAMP:
        finite, ends, zero = "CAST(v AS DATE)", (_date(-_INFINITE), _date(_INFINITE)), _EPOCH
        near = is_finite("v", of)
    else:
        near, zero = f"v BETWEEN {_date(-_FAR)} AND {_date(_FAR)}", _date(0)
        finite = f"CAST({between('v', _date(-_FAR), _date(_FAR))} AS TIMESTAMP_NTZ)"
        ends = constant(_NEVER, "TIMESTAMP_NTZ"), constant(_EVER, "TIMESTAMP_NTZ")
    far = f"WHEN v IS NULL OR {is_finite('v', of)} THEN NULL"
    made = f"CASE WHEN {near} THEN {finite} {far} WHEN v < {zero} THEN {ends[0]} ELSE {ends[1]} END"
    return let("v", x, made)


def _of_finite(x: str, type_: RowType, made: str) -> str:
    return let("v", x, f"CASE WHEN {is_finite('v', type_)} THEN {made} END")


def _part(node: RowValue, parts: list[str]) -> str:
    part, type_ = node.parts[0].text, node.parts[1].type
    day = _day("v", type_)
    if part in _DAYS:
        made = call(_DAYS[part], day)
    elif part == "dayofweek":
        made = f"{call('dayofweek', day)} - {whole(1, 'INT')}"
    elif part == "isodow":
        made = f"{call('weekday', day)} + {whole(1, 'INT')}"
    elif part in _CLOCK:
        made = whole(0, "INT") if type_ == DATE else call(_CLOCK[part], "v")
    else:
        raise refused(f"date_part of {part}", "use year, month, day, week, hour or minute.")
    if part == "week" and type_ == DATE:  # of the first days of all, DuckDB knows none
        made = f"CASE WHEN {day} >= {_date(_FIRST_WEEK)} THEN {made} END"
    return _of_finite(parts[1], type_, f"CAST({made} AS BIGINT)")


def _named(node: RowValue, parts: list[str]) -> str:
    type_ = node.parts[0].type
    day = _day("v", type_)
    names, place = (DAYS, call("weekday", day)) if node.text == "dayname" else (
        MONTHS, f"{call('month', day)} - {whole(1, 'INT')}")  # fmt: skip
    listed = array([f"CAST({blob(name.encode())} AS STRING)" for name in names])
    return _of_finite(parts[0], type_, call("get", listed, place))


def _truncated(node: RowValue, parts: list[str]) -> str:
    unit = node.parts[0].text
    if unit not in _CUT and unit != "day":
        raise refused(f"date_trunc to {unit}", "use day, week, month, quarter or year.")
    day = cast_time("v", TIMESTAMP)
    if unit in _CUT:
        cut = call("trunc", "v", constant(_CUT[unit], "STRING"))
        day = let("v", day, f"CASE WHEN {is_finite('v', DATE)} THEN {cut} ELSE v END")
    return cast_time(let("v", parts[1], day), DATE)


def _span(node: RowValue, parts: list[str]) -> str:
    unit, type_ = node.parts[0].text, node.parts[1].type
    if unit in {"hour", "minute", "second"} and type_ == DATE:  # of days that no time reaches, too
        first, last = (_of_finite(part, DATE, _number("day")) for part in parts[1:])
        return f"(({last} - {first}) * {whole(24 * _CLOCKS['hour'] // _CLOCKS[unit])})"
    if unit in _CLOCKS:
        times = [cast_time(part, DATE) if type_ == DATE else part for part in parts[1:]]
        return _apart(_CLOCKS[unit], times)
    if unit not in {"day", "month", "quarter", "year"}:
        raise refused(f"date_diff in {unit}", "count hours, days, months, quarters or years.")
    first, last = (_of_finite(part, type_, _number(unit)) for part in parts[1:])
    return f"({last} - {first})"


def _apart(each: int, parts: list[str]) -> str:
    """Write how many borders of a unit of the clock lie between two times.

    Microseconds of far ones are more than 64 bits have, for which DuckDB has no value either.
    """
    at = call("unix_micros", "CAST(v AS TIMESTAMP)")
    if each > 1:
        at = let("m", at, f"(m - {call('pmod', 'm', whole(each))}) div {whole(each)}")
    else:
        at = f"CAST({at} AS DECIMAL(38,0))"
    first, last = (_of_finite(part, TIMESTAMP, at) for part in parts)
    return f"try_cast(({last} - {first}) AS BIGINT)"


def shift(node: RowValue, parts: list[str]) -> str:
    """Write a time that is moved by an interval; infinite ones stay where they are."""
    months, days, rest = (int(part) for part in node.text.split())
    seconds = constant(decimal_text(Fraction(rest, 10**6)), "DECIMAL(24,6)")
    zero = whole(0, "INT")
    span = call(
        "make_interval", zero, whole(months, "INT"), zero, whole(days, "INT"), zero, zero, seconds
    )
    moved = let(
        "m", call("try_add", "v", span), f"CASE WHEN {is_finite('m', TIMESTAMP)} THEN m END"
    )
    return let("v", parts[0], f"CASE WHEN {is_finite('v', TIMESTAMP)} THEN {moved} ELSE v END")


def clock(node: RowValue, _: list[str]) -> str:
    """Write what a clock shows; beyond the years 100,000 before and after, an infinite time."""
    column, (zone,) = quoted(node.text), node.parts
    if zone.text == "UTC":  # which is the zone of the session
        return f"CAST({column} AS TIMESTAMP_NTZ)"
    ends = [call("timestamp_seconds", whole(end)) for end in (-_FAR_SECONDS, _FAR_SECONDS)]
    shown = call("from_utc_timestamp", between("v", *ends), constant(zone.text, "STRING"))
    far = [constant(end, "TIMESTAMP_NTZ") for end in (_NEVER, _EVER)]
    cases = f"WHEN v < {ends[0]} THEN {far[0]} WHEN v > {ends[1]} THEN {far[1]}"
    inside = f"WHEN v IS NOT NULL THEN CAST({shown} AS TIMESTAMP_NTZ)"
    return let("v", column, f"CASE {cases} {inside} END")


def _number(unit: str) -> str:
    """Write the number of the period that a time is in."""
    day = "CAST(v AS DATE)"
    if unit == "day":
        return f"CAST({call('unix_date', day)} AS BIGINT)"
    year = f"CAST({call('year', day)} AS BIGINT)"
    if unit == "year":
        return year
    months = f"({year} * {whole(12)} + {call('month', day)})"
    return months if unit == "month" else f"(({months} - {whole(1)}) div {whole(3)})"


def days(node: RowValue, parts: list[str]) -> str:
    """Write a day some days later or earlier, or the days between two.

    From infinite days so many are counted that they stay infinite.
    """
    if node.parts[1].type == DATE:
        first, last = (f"CAST({call('unix_date', x)} AS BIGINT)" for x in parts)
        return f"({first} - {last})"
    number = f"CAST({call('unix_date', 'v')} AS BIGINT)"
    far = let("v", parts[0], f"CASE WHEN {is_finite('v', DATE)} THEN {number} "
              f"ELSE {number} * {whole(_INFINITELY)} END")  # fmt: skip
    inside = between("v", whole(-_LAST), whole(_LAST))
    made = call("date_from_unix_date", f"CAST({inside} AS INT)")
    most = whole(_INFINITE * (_INFINITELY - 2))
    cases = f"WHEN v > {most} THEN {_date(_INFINITE)} WHEN v < - {most} THEN {_date(-_INFINITE)}"
    near = f"WHEN v BETWEEN {whole(-_LAST)} AND {whole(_LAST)} THEN {made}"
    return let("v", f"({far} {node.text} {parts[1]})", f"CASE {near} {cases} END")


TIMES: Mapping[str, Writer] = {
    "part": _part, "named": _named, "truncated": _truncated, "span": _span,
}  # fmt: skip
"""Rules that records of functions name (`dpsql/rows/functions.py`)."""
