"""DuckDB's SQL of what is computed of several rows.

Functions are called by their full names, as everywhere; each is one of those of `rows/within.py`
and `rows/windows.py`, whose proofs say why it can be asked of rows of a unit.
"""

from __future__ import annotations

from dpsql.rows.typed import RowAggregate, call, whole
from dpsql.rows.types import HUGEINT


def aggregate_sql(one: RowAggregate) -> tuple[str, ...]:
    """Write an aggregate, in pieces: `OVER (…)` belongs between them, if it is a window's."""
    function, given = one.function, [argument.sql for argument in one.arguments]
    if function == "exists":
        return ("true",)
    if function == "count" and not given:
        return "system.main.count(*)", ""
    if function == "count_distinct":
        told = given[0] if one.told is None else one.told.sql
        return f"system.main.count(DISTINCT {told})", ""
    if function in {"sum", "avg"}:
        return _added(one, given[0])
    if one.told is not None:
        return call(f"arg_{function}", given[0], one.told.sql), ""
    numbers = map(whole, one.numbers)
    return call(function, *given[:1], *numbers, *given[1:]), ""


def _added(one: RowAggregate, value: str) -> tuple[str, ...]:
    """Write a sum, or what it is divided by how many there are."""
    before, after = f"CAST({call('sum', value)}", f" AS {one.added.sql})"
    if one.function == "sum":
        return before, after
    if one.added == HUGEINT:  # see `huge_as_float`
        before, after = f"CAST({before}", f"{after} AS VARCHAR)"
    # The quotient of two doubles: a call that begins in one piece, and ends in another.
    divided = f'system.main."/"(CAST({before}'
    between = f"{after} AS DOUBLE), CAST({call('count', value)}"
    return divided, between, " AS DOUBLE))"
