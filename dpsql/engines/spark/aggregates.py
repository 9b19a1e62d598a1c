"""Spark's SQL of what is computed of several rows. Trusted.

Guarantees:
    It is a function of the multiset of what it is given, or, over a window with a strict order, of
    that in its order; and it never fails.

    *Proof.* Functions are those of `rows/within.py` and `rows/windows.py`, whose proof says why
    they are. What is added up are integers of at most 64 bits, or DECIMALs of at most 18 digits:
    each is brought to a DECIMAL(28, s) that has it, which Spark adds up in a DECIMAL(38, s). Fewer
    than 2^63 rows add up to less than 10^38 last digits, so nothing overflows; and sums of DECIMALs
    are exact in whatever order. A divisor of zero is NULL before anything is divided. The least and
    the largest text are those of the bytes. Over a window, numbers of values are made of ranks by
    the value alone, and rows that agree in it have the same. Numbers that functions take are
    constants. ∎

An average is the quotient of two doubles, of which that of the sum is the nearest one. DuckDB's is,
too, where a sum has no more than 53 bits; beyond, its last digit may be another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import call, whole
from dpsql.rows.typed import RowAggregate
from dpsql.rows.types import BIGINT, VARCHAR
from dpsql.rows.windows import CHOSEN, RANKS, SHARES, SHIFTED
from dpsql.rows.within import MOST_ADDED

_ADDED_DIGITS = MOST_ADDED + 10


def aggregate_sql(one: RowAggregate) -> tuple[str, ...]:
    """Write an aggregate in pieces: `FILTER (…)`, or `OVER (…)`, belongs between them.

    Raises:
        UnsupportedSqlError: Spark can't compute it, or not the same values.
    """
    function, given = one.function, [spark_sql(argument) for argument in one.arguments]
    if function == "exists":
        return ("true",)
    if function == "count_distinct":  # of a window: `distinct_over`
        return f"system.builtin.count(DISTINCT {_told(one)})", ""
    if function == "count":
        return call("count", *(given or [whole(1)])), ""
    if function in {"sum", "avg"}:
        return _added(one, given[0])
    if function in {*RANKS, *SHARES, *SHIFTED, *CHOSEN}:
        numbers = [whole(number, "INT") for number in one.numbers]
        made = call(function, *given[:1], *numbers, *given[1:])
        return (f"CAST({made}", f" AS {BIGINT.sql})") if function in RANKS else (made, "")
    if one.type == VARCHAR and one.told is not None:
        return f"CAST({call(function, spark_sql(one.told))}", " AS STRING)"
    return call(function, *given), ""


def distinct_over(one: RowAggregate, agree: Sequence[str]) -> str:
    """Write how many values rows have that agree in something, NULL left aside.

    Spark has no DISTINCT over windows. If rows have d values, NULL among them or not, the dense
    rank of each from the least on is r, and that from the largest on d + 1 - r.
    """
    told, by = _told(one), f"PARTITION BY {', '.join(agree)}"
    rank, none = call("dense_rank"), f"CASE WHEN {told} IS NULL THEN {whole(1)} ELSE {whole(0)} END"
    up = f"CAST({rank} OVER ({by} ORDER BY {told} ASC NULLS FIRST) AS BIGINT)"
    down = f"CAST({rank} OVER ({by} ORDER BY {told} DESC NULLS LAST) AS BIGINT)"
    return f"({up} + {down} - {whole(1)} - {call('max', none)} OVER ({by}))"


def _told(one: RowAggregate) -> str:
    """Write what tells values apart that are counted."""
    return spark_sql(one.arguments[0] if one.told is None else one.told)


def _added(one: RowAggregate, value: str) -> tuple[str, ...]:
    scale = one.added.scale
    summed = f"CAST({call('sum', f'CAST({value} AS DECIMAL({_ADDED_DIGITS},{scale}))')}"
    if one.function == "sum":
        return summed, f" AS DECIMAL(38,{scale}))"
    # A call that begins in one piece, and ends in another.
    number = f"CAST(system.builtin.nullif({call('count', value)}"
    return f"({summed}", f" AS DOUBLE) / {number}", f", {whole(0)}) AS DOUBLE))"
