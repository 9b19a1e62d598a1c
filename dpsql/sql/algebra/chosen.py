"""Rows that are chosen by their places: conditions on these hold first, and a unit has fewer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dpsql.errors import SqlError
from dpsql.rel.facts import conjuncts as conjuncts_of
from dpsql.rel.facts import said_of_place
from dpsql.rows.expression import RowExpression
from dpsql.sql.algebra.places import chosen_by_places
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.binding.expressions import BoundExpr


def choose(rows: RowsOfSelect, bounds: Sequence[BoundExpr]) -> list[bool]:
    """Leave the rows out of which conditions on places aren't true: a unit has fewer by that.

    Returns:
        For each condition, whether it was about places, and is true of the rows that are left.
    """
    places, taken = rows.queries.places, [False] * len(bounds)
    about = [not places.keys().isdisjoint(one.attributes | one.by_row) for one in bounds]
    said = dict[int, tuple[RowExpression, ...]]()
    for number in (i for i, is_about in enumerate(about) if is_about):
        with suppress(SqlError):  # it can't run on rows
            parts = conjuncts_of(rows.expression(bounds[number]))
            said |= {number: parts} if any(map(said_of_place, parts)) else {}
    found = chosen_by_places(
        rows.of, [part for parts in said.values() for part in parts], places, rows.queries.known
    )
    if found is None:
        return taken
    rows.become(found)
    return [i in said for i in range(len(bounds))]
