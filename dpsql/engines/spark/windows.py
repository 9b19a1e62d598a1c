"""Spark's SQL for what rows are among the rows of their unit. Trusted.

Guarantees:
    Rows get further columns, no row comes or goes, and what a row gets follows from the rows with
    the same id of a unit.

    *Proof.* `rows/windows.py` has the proof that it is a function of these. Here PARTITION BY
    begins with all columns of the ids, always; windows whose rows must be told one by one have the
    places in the unit's line at the end of ORDER BY; what a window needs of others is there before
    it. The constant by which rows are sorted where nothing else is said tells none apart, so all
    are equal then, as without an order in DuckDB.

    The places were counted before, and parts of a job may run again, with rows that are alike in
    another order. Each run has the same multiset of rows with their places, and tasks get rows by
    their values: so it doesn't matter of which run they get them. ∎
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.engines.others import in_turns
from dpsql.engines.spark.aggregates import aggregate_sql, distinct_over, empty_sql
from dpsql.engines.spark.lines import least_first
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import identity, quoted, whole
from dpsql.engines.spark.sql.types import refused
from dpsql.errors import InternalError
from dpsql.rows.windows import RowsWindow, SortedBy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_windows(
    rows: DataFrame, windows: Sequence[RowsWindow], ids: Sequence[str], line: str
) -> DataFrame:
    """Add what rows are among those of their unit.

    Args:
        rows: all rows that windows look at, with what these read.
        windows: what is computed, each after what it needs.
        ids: the columns with the ids of their units.
        line: that with their places in the line of their unit.
    """
    for ready in in_turns(windows):
        shown = (f"{window_sql(one, ids, [line])} AS {quoted(one.name)}" for one in ready)
        rows = rows.selectExpr("*", *shown)
    return rows


def window_sql(one: RowsWindow, ids: Sequence[str], line: Sequence[str]) -> str:
    """Write a window: of rows that it doesn't see it is constant.

    Args:
        one: what is computed.
        ids: the columns with the ids of units.
        line: those with the places of rows in the line of their unit.
    """
    if not ids:
        raise InternalError("a window needs the ids of units")
    seen = [] if one.condition is None else [spark_sql(one.condition)]
    told = [identity(quoted(name), type_) for name, type_ in one.told]
    agree = [*ids, *seen, *told, *map(spark_sql, one.partition)]
    order = [*map(_key, one.order), *(least_first(line) if one.lined else ())]
    if one.value.function == "count_distinct":
        if order or (one.frame is not None and not one.frame.is_whole):
            raise InternalError("values of some rows of a window are counted")
        value = distinct_over(one.value, agree)
    else:
        value = f" OVER ({_spec(one, agree, order)})".join(aggregate_sql(one.value))
    if one.condition is None:
        return value
    return f"(CASE WHEN {seen[0]} THEN {value} ELSE {empty_sql(one.value)} END)"


def _spec(one: RowsWindow, agree: Sequence[str], order: Sequence[str]) -> str:
    frame = one.frame
    ends = () if frame is None else (frame.start, frame.end)
    first, *last = [end for end in ends if end is not None] or [0]
    if last and first > last[0]:
        raise refused("frames without rows", "let the frame begin before it ends.")
    sorted_by = ", ".join(order) or f"{whole(0)} ASC"
    bounds = "" if frame is None else f" {frame.sql}"
    if not order and frame is None and one.value.function not in _SORTED:
        return f"PARTITION BY {', '.join(agree)}"
    return f"PARTITION BY {', '.join(agree)} ORDER BY {sorted_by}{bounds}"


def _key(one: SortedBy) -> str:
    """Write what rows are sorted by."""
    side = "DESC" if one.descending else "ASC"
    return f"{spark_sql(one.value)} {side} NULLS {'FIRST' if one.nulls_first else 'LAST'}"


_SORTED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""What Spark computes of sorted rows alone."""
