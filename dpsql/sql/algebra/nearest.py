"""ASOF joins: of the rows of its unit that a row meets, the nearest one.

    FROM visits v ASOF JOIN labs l ON v.person_id = l.person_id AND v.day >= l.day

joins each visit with the last lab of its person until then. Let next(l) be the day of the lab that
follows l in the order of days among those that agree with it in what has to be equal. Then l is the
last one until a day d if l.day <= d, and next(l) isn't: of labs of one day the last in line has a
next one of another day. So the join is one of pairs, with a window on the right:

    v JOIN (l, next = lead(day) over (by person_id order day))
      ON v.person_id = l.person_id AND v.day >= l.day AND (next IS NULL OR NOT v.day >= next)

in which each row meets one at most. For `<=` and `<` the order is turned.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.rel.nodes import Id, Window
from dpsql.rows.expression import RowCall, RowColumn, RowExpression, all_of, replaced
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.windows import WindowCall, WindowOrder
from dpsql.schema.grain import declared_type
from dpsql.sql.algebra.described import DescribedRelation, NewColumn, with_columns

_FROM_THE_LEFT = {">=": False, ">": False, "<=": True, "<": True}
"""Comparisons with a column of the right behind them → whether the nearest is the least of it."""


def nearest_rows(
    right: DescribedRelation, equal: Sequence[Id], said: Sequence[RowExpression], next_: Id
) -> tuple[DescribedRelation, RowExpression] | None:
    """Return rows of which each knows what follows it, and the condition that it is the nearest.

    Args:
        right: the rows.
        equal: their columns that have to be equal to some of the row that they meet.
        said: what else is said of both: one comparison with a column of theirs.
        next_: the id of the column with what follows.

    Returns:
        These; None if it is no such comparison.
    """
    place = _compared(right, said)
    if place is None:
        return None
    column, last = place
    told = tuple((id_, declared_type(right.table, id_)) for id_ in equal)
    order = (WindowOrder(RowColumn(column), descending=last, nulls_first=False),)
    call = WindowCall("lead", (RowColumn(column),), (), (), told, order)
    new = NewColumn(next_, declared_type(right.table, column), nullable=True)
    made = with_columns(right, Window(right.relation, ((next_, call),)), [new])
    (condition,) = said
    there = RowCall("is_null", (RowColumn(next_),))
    beyond = RowCall("not", (_with(condition, column, next_),))
    return made, all_of([condition, RowCall("or", (there, beyond))])


def _compared(right: DescribedRelation, said: Sequence[RowExpression]) -> tuple[Id, bool] | None:
    """Return the column that is compared, and whether the nearest is the least of its values."""
    own = set(right.columns)
    match said:
        case [RowCall(sign, sides)] if sign in _FROM_THE_LEFT and len(sides) == 2:
            for (value, column), turned in ((sides, False), (sides[::-1], True)):
                if not isinstance(column, RowColumn) or column.name not in own:
                    continue
                if own.isdisjoint(columns_of(value)):
                    return column.name, _FROM_THE_LEFT[sign] is not turned
    return None


def _with(value: RowExpression, column: Id, other: Id) -> RowExpression:
    """Put another column in the place of one."""
    if isinstance(value, RowColumn):
        return RowColumn(other) if value.name == column else value
    return replaced(value, lambda part: _with(part, column, other))
