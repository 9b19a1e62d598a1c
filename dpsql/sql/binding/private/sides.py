"""The private items after FROM of one SELECT: what is counted, and what it refers to."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import InternalError, Span, printable
from dpsql.hints import Hint, first_that_works, instead
from dpsql.schema import Table
from dpsql.schema.names import capitals, folded
from dpsql.schema.table import Parent
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.expressions import BoundExpr, conjuncts
from dpsql.sql.binding.joins import JoinedItem, joined_plainly
from dpsql.sql.binding.presence import is_met
from dpsql.sql.binding.private.per_parent import of_each_parent
from dpsql.sql.binding.row_queries import Home
from dpsql.sql.text.spans import JOINS, SourceText


@dataclass(frozen=True, slots=True)
class Grained:
    """The table whose rows are counted, and which of the rows that these refer to are meant."""

    table: Table
    parent: Parent | None = None

    def at(self, parent: Parent) -> Grained:
        """Return what these refer to in turn."""
        before = "" if self.parent is None else self.parent.prefix
        of = next(p for p in self.table.parents if p.prefix == before + parent.prefix)
        return Grained(self.table, of)


@dataclass(frozen=True, slots=True)
class Referred:
    """A private item after FROM of which each counted row refers to one row, or to none."""

    join: JoinedItem
    step: Parent
    """How the rows of another item refer to it."""
    home: Home


@dataclass(frozen=True, slots=True)
class PrivateSides:
    """The private items after FROM: one is counted, the others are what its rows refer to."""

    place: JoinedItem
    home: Home
    """What is counted."""
    referred: tuple[Referred, ...] = ()
    used: frozenset[int] = field(default=frozenset())
    """The conditions that say nothing but that, as identities of nodes."""
    equal: frozenset[str] = field(default=frozenset())
    """Columns of a combination that are equal by USING, in small letters."""

    def of(self, join: JoinedItem) -> Home | None:
        """Return what an item is; None if it is not private."""
        if join is self.place:
            return self.home
        return next((one.home for one in self.referred if one.join is join), None)

    def is_step(self, name: str) -> bool:
        """Whether USING a name says which row is referred to."""
        steps = (pair for one in self.referred for pair in one.step.join.pairs)
        known = any(folded(name) in {folded(pair.column), folded(pair.key)} for pair in steps)
        return known or folded(name) in self.equal

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The public relations that are joined in queries of private rows."""
        below = (relation for one in self.referred for relation in one.home.relations)
        return (*self.home.relations, *below)

    def conditions(self, binder: RowBinder, source: SourceText) -> list[BoundExpr]:
        """Make what is referred to visible; return what must be true of it for a row to count.

        Raises:
            UnsupportedSqlError: it is joined in another way than that allows.
        """
        binder.leave_out(self.used)
        using = {folded(name) for one in self.referred for name in one.join.using}
        binder.scope.merge(sorted(using.union(filter(self.is_step, self.place.using))))
        if self.referred and self.place.kind != "inner":
            raise source.unsupported(
                source.clause(*JOINS) or source.node(self.place.item),
                f"A {capitals(self.place.kind)} join is not supported here: the rows of "
                f"{printable(self.home.alias)} are counted, each with the row that it refers to.",
                self._absent(source)
                or first_that_works(
                    self._of_each(source),
                    f"put {printable(self.home.alias)} first, or "
                    + joined_plainly(self.referred[0].join.item, source),
                ),
            )
        for one in self.referred:
            binder.name(frozenset() if one.home.query is None else one.home.query.named)
            if one.join.kind not in {"semi", "anti"}:
                binder.scope.join(one.home.scope(source, binder.aliases))
        return [part for one in self.referred for part in self._of(one, binder, source)]

    def _of_each(self, source: SourceText) -> list[Hint]:
        """Write what is asked with subqueries, if one item is referred to by one column."""
        keys = [pair.key for one in self.referred for pair in one.step.join.pairs]
        return of_each_parent(self.place, keys[0], source) if len(keys) == 1 else []

    def _absent(self, source: SourceText) -> Hint | None:
        """Write NOT EXISTS, where a LEFT JOIN is there to count what no row refers to."""
        joined, select = self.place, self.place.item.find_ancestor(exp.Select)
        where = None if select is None else select.args.get("where")
        if joined.kind != "left" or joined.on is None or not isinstance(where, exp.Where):
            return None
        first = conjuncts(where.this)[0]
        asked = first.this if isinstance(first, exp.Is) else None
        if not (isinstance(asked, exp.Column) and isinstance(first.expression, exp.Null)):
            return None
        if folded(asked.table) != folded(self.home.alias):
            return None
        item, on = (source.text(source.node(node)) for node in (joined.item, joined.on))
        span = source.joining(joined.item)[0], source.node(first)[1]
        text = f"WHERE NOT EXISTS (SELECT 1 FROM {item} WHERE {on})"
        return "count the rows to which no other row refers: " + instead(text, of=span) + "."

    def _of(self, one: Referred, binder: RowBinder, source: SourceText) -> list[BoundExpr]:
        """Return the conditions of one join."""
        join, span = one.join, source.node(one.join.item)
        further = list(binder.conditions(join.on)) if join.on is not None else []
        for name in join.using:
            if not self.is_step(name):
                raise source.unsupported(
                    join.item,
                    f"USING names {printable(name)}, which is not the column that refers to "
                    f"{printable(one.home.alias)}.",
                    "write ON and the conditions.",
                )
        further += one.home.conjuncts
        if one.home.relations and join.kind != "inner":
            raise source.unsupported(
                span,
                f"A {capitals(join.kind)} join with a query that joins public tables is not "
                "supported here.",
                "join them outside of the query.",
            )
        if join.kind in {"inner", "semi"}:
            return [*self._matched(one, span, there=True), *further]
        if join.kind in {"left", "anti"} and not further:
            return [] if join.kind == "left" else self._matched(one, span, there=False)
        raise source.unsupported(
            source.clause(*JOINS) or span,
            f"A {capitals(join.kind)} join of private tables is not supported with this condition.",
            f"write ON so that {', '.join(map(printable, one.step.join.columns))} equals "
            f"{', '.join(map(printable, one.step.join.keys))} and nothing else; put conditions on "
            "the counted rows after WHERE."
            if join.kind in {"left", "anti"}
            else "use JOIN or LEFT JOIN: groups without rows are in the answer anyway.",
        )

    def _matched(self, one: Referred, span: Span, *, there: bool) -> list[BoundExpr]:
        parent = one.home.parent
        if parent is None:
            raise InternalError("what is referred to has no place in the grain")
        if parent.on_way and there:
            return []
        return [is_met(parent.matched, self.home.table, span, there=there)]
