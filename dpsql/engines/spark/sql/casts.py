"""Spark's SQL of a value as another type, as DuckDB casts it; see `expressions.py`."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.engines.spark.sql.calendar import cast_time
from dpsql.engines.spark.sql.text import between, call, constant, let, real, whole
from dpsql.engines.spark.sql.types import WIDE, is_small, refused, type_name
from dpsql.errors import UnsupportedSqlError
from dpsql.rows.typed import RowValue
from dpsql.rows.types import BOOLEAN, DOUBLE, FLOAT, NULL, VARCHAR, RowType

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
    if of == FLOAT or (of.is_integer and is_small(of)) or (of.name == "DECIMAL" and of.width < 16):
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
