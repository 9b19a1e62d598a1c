"""Public items after FROM of a SELECT that counts: they are joined with the cells of its rows.

    SELECT r.name, COUNT(*) FROM people p JOIN regions r ON p.code = r.code GROUP BY r.name

counts people by their cells, and which rows of `regions` a cell meets is public. So nothing has to
be said of regions where people are read, and statements that join other tables share what is
measured of people. The same is so in a query after FROM that projects and filters rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.schema.names import folded
from dpsql.sql.algebra.meeting import keeps_all, met_rows
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.binding.items import PRIVATE
from dpsql.sql.binding.joins import JoinedItem, check_sides, unknown_join
from dpsql.sql.binding.relations import check_using, conditions_of
from dpsql.sql.binding.row_queries import inner_query, is_by_row
from dpsql.sql.binding.scope import VisibleItem


def from_rows(rows: RowsOfSelect, joins: Sequence[JoinedItem]) -> list[Expr]:
    """Translate FROM; return the conditions of WHERE, and of inner joins, that are left.

    Raises:
        SqlError: rows of several units could meet, or public rows would be kept.
    """
    if rows.cells is None:
        return met_rows(rows, joins)
    queries, source = rows.queries, rows.source
    private = [j for j in joins if queries.item_kind(j.item, rows.names) == PRIVATE]
    place, *others = private
    if any(keeps_all(join, joins) for join in others):  # public rows before it are so
        return met_rows(rows, joins)
    known = rows.names.get(folded(place.item.name))
    stored = inner_query(place.item) is None and (known is None or known.rows is None)
    plain = stored and (rows.core or not is_by_row(rows.select))
    check_sides(joins, place, source, plain=plain, apart=others)
    asof = next((join for join in joins if join.nearest and join not in others), None)
    if asof is not None:
        raise unknown_join(asof.item, "ASOF", source)
    # What the first one says, if it isn't the first of all, is of public items before it.
    first = place if place is joins[0] else replace(place, kind="inner", on=None, using=())
    left = met_rows(rows, [first, *others])
    _Over(rows, joins, private).join()
    return left


class _Over:
    """Joins the public items of one SELECT."""

    def __init__(
        self, rows: RowsOfSelect, joins: Sequence[JoinedItem], private: Sequence[JoinedItem]
    ) -> None:
        self._rows, self._joins, self._private = rows, joins, private
        self._place = private[0]
        self._public = [j for j in joins if j not in private]

    def join(self) -> None:
        """Join the public items, in the order in which they stand."""
        rows, place = self._rows, self._place
        numbers = rows.cells
        if not self._public or numbers is None:
            return
        own = [rows.queries.store(next(numbers), join, rows.names) for join in self._public]
        self._show([VisibleItem.of(relation) for relation in own])
        turned = place is not self._joins[0]
        on_place = conditions_of(place, own, None, rows.binder()) if turned else ()
        where = list(on_place if place.turned is None else ())
        for number, join in enumerate(self._public):
            kind, on, using = join.kind, self._on(join, number, own), join.using
            if place.turned is not None and number == 0:
                kind, on, using = place.turned, on_place, place.using
            where += on if kind == "inner" else ()
            own[number] = replace(own[number], kind=kind, on=() if kind == "inner" else on)
            if kind in {"semi", "anti"}:
                rows.items = tuple(i for i in rows.items if i is not self._shown[number])
            check_using(kind, using, join, rows.source)
            if kind == "right":
                rows.kept |= {folded(name) for name in using}
        rows.relations = (*rows.relations, *own)
        rows.where = (*rows.where, *where)

    def _on(
        self, join: JoinedItem, number: int, own: Sequence[PublicRows]
    ) -> tuple[BoundExpr, ...]:
        """Bind the condition of one of them."""
        rows = self._rows
        prepared = join if join.on is None else replace(join, on=rows.prepared(join.on))
        return conditions_of(prepared, own[:number], own[number], rows.binder())

    def _show(self, public: Sequence[VisibleItem]) -> None:
        """Make their columns visible, in the order in which items stand after FROM."""
        rows, self._shown = self._rows, public
        left, others, items = iter(rows.items), iter(public), list[VisibleItem]()
        for join in self._joins:
            if join not in self._private:
                items.append(next(others))
            elif join.kind not in {"semi", "anti"} or join is self._place:
                items.append(next(left))
            rows.merged |= {folded(name) for name in join.using}
        rows.items = tuple(items)
