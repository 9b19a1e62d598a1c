"""Spark's SQL for what rows are among the rows of their unit. Trusted.

Guarantees:
    Rows get further columns, no row comes or goes, and what a row gets follows from the rows with
    the same id of a unit.

    *Proof.* `rows/windows.py` has the proof that it is a function of these. PARTITION BY begins
    with the id, and windows whose rows must be told one by one have the places in the unit's line
    at the end of ORDER BY (`engines/relations.py`). The constant by which rows are sorted where
    nothing else is said tells none apart, so all are equal then, as without an order in DuckDB.

    The places were counted before, and parts of a job may run again, with rows that are alike in
    another order. Each run has the same multiset of rows with their places, and tasks get rows by
    their values: so it doesn't matter of which run they get them. ∎
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.engines.spark.aggregates import aggregate_sql, distinct_over
from dpsql.engines.spark.sql.text import whole
from dpsql.engines.spark.sql.types import refused
from dpsql.errors import InternalError
from dpsql.rows.windows import RowsWindow

_SORTED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""The functions that Spark computes of sorted rows alone."""


def over_sql(one: RowsWindow, agree: Sequence[str], order: Sequence[str]) -> str:
    """Write a window over the rows that agree in something.

    Args:
        one: what is computed.
        agree: in which they agree.
        order: the keys by which they are sorted.

    Raises:
        UnsupportedSqlError: it looks at no rows, which Spark refuses.
    """
    if one.value.function != "count_distinct":
        return f" OVER ({_spec(one, agree, order)})".join(aggregate_sql(one.value))
    if order or (one.frame is not None and not one.frame.is_whole):
        raise InternalError("values of some rows of a window are counted")
    return distinct_over(one.value, agree)


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
