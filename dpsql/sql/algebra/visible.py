"""Columns that clauses add to a relation, and equalities by which rows are of one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpsql.errors import Span
from dpsql.rel.facts import UNIT
from dpsql.rows.windows import RANKS
from dpsql.schema.names import as_sql
from dpsql.sql.algebra.described import DescribedRelation
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.scope import EITHER, MADE, VisibleItem

_NUMBERS = {"count": 0, "count_distinct": 0, **dict.fromkeys(RANKS, 1)}
"""Functions that are numbers of rows, or of places → the least that they can be."""


def made_column(id_: str, span: Span) -> exp.Column:
    """Refer to a column of the relation by its id, in place of what it is computed from."""
    found = exp.Column(this=exp.Identifier(this=MADE + id_, quoted=True))
    found.this.meta.update(start=span[0], end=span[1] - 1)
    found.meta.update(start=span[0], end=span[1] - 1)
    return found


def made_columns(node: Expr, names: Mapping[str, str]) -> Expr:
    """Refer to columns of the relation by other ids."""
    found = node.copy()
    for part in found.find_all(exp.Column):
        id_ = part.name.removeprefix(MADE)
        if id_ != part.name and id_ in names:
            part.this.set("this", MADE + names[id_])
    return found


def made_value(function: str, id_: str, span: Span) -> Expr:
    """Refer to a column by its id, in words that say what is the least that it can be.

    So expressions of it have known values where they have a largest one: `LEAST(n, 5)`. And it is
    said to be whole, so that groups by it are of numbers between its bounds.
    """
    made = made_column(id_, span)
    if function not in _NUMBERS:
        return made
    least = exp.Literal.number(_NUMBERS[function])
    found = exp.Greatest(this=made, expressions=[least])
    whole = exp.Cast(this=found, to=exp.DataType.build("BIGINT"))
    for node in (whole, found, least):
        node.meta.update(made.meta)
    return whole


def telling_equality(
    items: Sequence[VisibleItem], of: DescribedRelation, item: VisibleItem, other: DescribedRelation
) -> str | None:
    """Write an equality by which rows of two relations are of one unit; None if there is none.

    One of what tells the unit itself goes before one of rows that are the unit's.
    """
    theirs = [(c.name, id_of(c.value, other.table)) for c in item.columns]
    found: dict[bool, str] = {}
    for one in items if item.alias else ():
        for column in one.columns if one.alias != item.alias else ():
            own = id_of(column.value, of.table)
            for name, id_ in theirs if own is not None else ():
                if own is not None and id_ is not None and of.telling(own, id_, other):
                    sides = (item.alias, name), (one.alias, column.name)
                    written = " = ".join(_written(*side) for side in sides)
                    found.setdefault(UNIT in of.keys_of(own) & other.keys_of(id_), written)
    return found.get(True, found.get(False))


def telling_column(items: Sequence[VisibleItem], of: DescribedRelation) -> str:
    """Write a column that tells the unit of each row, with a space; nothing if none is visible."""
    found: dict[bool, str] = {}
    for item in items:
        for column in item.columns:
            tells = of.tells.get(id_of(column.value, of.table) or "")
            if tells:
                written = _written(item.alias if len(items) > 1 else "", column.name)
                found.setdefault(UNIT in tells, f"{written} ")
    return found.get(True, found.get(False, ""))


def _written(alias: str, name: str) -> str:
    """Write a column with the item whose it is; one that USING makes is nobody's."""
    return ".".join(map(as_sql, [name] if alias in {"", EITHER} else [alias, name]))
