"""FROM: rows of a unit that meet, in an order in which each join is by a key, if there is one.

    FROM customers, orders, items WHERE orders.customer_id = customers.id AND …

counts items, as each row of `items` meets one order and one customer. SQL has no order of inner
joins, so it is looked for: from each private item on, others are joined of which a row meets one
row at most. Where there is no such order rows of a unit are multiplied, and something has to say
how many count.

Two private items may be joined by an equality alone that says that both rows are of one unit. The
nodes mean that anyway; but a statement that didn't say so would be answered with other rows than
those that it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import SqlError, SqlSchemaError, printable
from dpsql.rel.facts import is_scanned
from dpsql.rel.nodes import Filter, Id, Join, Scan
from dpsql.rows.expression import RowExpression, all_if_any, all_of, same_value
from dpsql.schema import Table
from dpsql.schema.grain import stored_type
from dpsql.schema.keys import comparable
from dpsql.schema.names import as_sql, folded
from dpsql.sql.algebra.asides import with_exists
from dpsql.sql.algebra.declared import equal_values, left_in, told_apart
from dpsql.sql.algebra.described import (
    MOST_VALUES,
    DescribedRelation,
    EqualIds,
    RowReferences,
    check_read,
    equated_columns,
    joined,
    merged,
)
from dpsql.sql.algebra.projections import projected
from dpsql.sql.algebra.query_rows import RowsOfQuery
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.algebra.visible import made_column, telling_equality
from dpsql.sql.binding.canonical import Moving, id_of, moved, moved_relations
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjuncts, paren, quoted_column
from dpsql.sql.binding.items import NOISY, PRIVATE
from dpsql.sql.binding.joins import JoinedItem, unknown_join
from dpsql.sql.binding.released import noisy_item
from dpsql.sql.binding.row_queries import UNNAMED
from dpsql.sql.binding.scope import EITHER, Home, Visible, VisibleItem, owner_of, qualifier_of
from dpsql.sql.lowering.measures import RowReader

if TYPE_CHECKING:
    from dpsql.sql.algebra.public_rows import PublicItem


@dataclass(eq=False, slots=True)
class _Part:
    """An item after FROM: its relation, and what is true of its rows."""

    join: JoinedItem
    of: DescribedRelation
    item: VisibleItem
    where: tuple[BoundExpr, ...]
    times: int = 1
    """The most rows of it that a row meets, if it is public."""
    relations: tuple[PublicRows, ...] = ()
    """The public relations that its rows are joined with over cells."""
    public: PublicItem | None = None


@dataclass(frozen=True, slots=True)
class _Equal:
    """Two columns that are equal, and where that is written."""

    a: Id
    b: Id
    node: Expr | None
    implied: bool = False
    """Whether the equality only follows from others."""

    @property
    def sides(self) -> frozenset[Id]:
        """Both columns."""
        return frozenset({self.a, self.b})


def met_rows(rows: RowsOfSelect, joins: Sequence[JoinedItem]) -> list[Expr]:
    """Translate FROM; return the conditions of WHERE, and of inner joins, that are left.

    Args:
        rows: the SELECT.
        joins: its items after FROM, without public ones that are joined over cells.

    Raises:
        SqlError: rows of several units could meet.
    """
    typed = joins
    joins = _turned(joins)
    kept = any(join.kind in {"right", "full"} for join in joins)
    meeting = _Meeting(rows, plain=not kept)
    lead = next(
        (i for i, j in enumerate(joins) if i and (j.kind != "inner" or j.nearest)), len(joins)
    )
    plain = 0 if kept else lead
    parts = [meeting.part(join, plain=number < plain) for number, join in enumerate(joins)]
    where = rows.select.args.get("where")
    after = [] if where is None else conjuncts(where.this)
    said = [part for join in joins[:lead] if join.on for part in conjuncts(join.on)]
    if kept:  # what is true after the join is nothing by which rows meet before it
        meeting.inner_alone(parts[:lead], said)
        left = after
    else:
        left = meeting.inner(parts[:lead], said + after)
    for part in parts[lead:]:
        meeting.further(part)
    if joins is not typed:
        first, second, *others = rows.items
        rows.items = (second, first, *others)  # as * lists them
    return left


def keeps_all(join: JoinedItem, joins: Sequence[JoinedItem]) -> bool:
    """Whether a join keeps rows of its right side whatever is joined before: RIGHT or FULL JOIN.

    Not a RIGHT JOIN of the first two items, of which the second comes first as well.
    """
    return join.kind == "full" or (join.kind == "right" and not _is_turned(join, joins))


def _is_turned(join: JoinedItem, joins: Sequence[JoinedItem]) -> bool:
    return len(joins) > 1 and join is joins[1] and join.kind == "right" and not join.using


def _narrowed(part: _Part, parts: Sequence[_Part], pool: Sequence[_Equal]) -> _Part:
    """Leave out public rows that meet no value of the columns that they have to be equal to."""
    if part.public is None:
        return part
    from dpsql.sql.algebra.public_rows import narrowed

    met = dict[Id, Sequence[object]]()
    for one, other in product(pool, parts):
        for a, b in ((one.a, one.b), (one.b, one.a)):
            values = _enforced(other.of.table, a) if other is not part else None
            if values is not None and b in part.of.columns:
                met[b] = values
    public = narrowed(part.public, met)
    return replace(part, of=public.of, item=public.item, times=public.times, public=public)


def _enforced(table: Table, name: Id) -> Sequence[object] | None:
    """Return the values that a column has in all rows, as the database sees to it, if it is few."""
    domain = table.columns.get(name)
    if domain is None or name not in table.enforced or table.merges(name):
        return None
    return domain.values if len(domain.values) <= MOST_VALUES else None


def _turned(joins: Sequence[JoinedItem]) -> Sequence[JoinedItem]:
    """Exchange the sides of a RIGHT JOIN of the first two items."""
    if len(joins) > 1 and _is_turned(joins[1], joins):
        first, second = joins[0], joins[1]
        return [
            replace(second, kind="inner", on=None),
            replace(first, kind="left", on=second.on),
            *joins[2:],
        ]
    return joins


def _of_tables(part: _Part) -> tuple[tuple[str, ...], ...]:
    """Return by what items are sorted: so joins that are typed in another order are the same."""
    return tuple(table.path for table in part.of.counted)


def _implied(equal: Sequence[_Equal]) -> list[_Equal]:
    """Return what is equal because both are equal to others, in the rows that all of it leaves."""
    same = EqualIds()
    for one in equal:
        same.add(one.a, one.b)
    written = {one.sides for one in equal}
    return [
        _Equal(a, b, None, implied=True)
        for a, b in same.pairs()
        if frozenset({a, b}) not in written
    ]


class _Meeting:
    """Joins the items of one SELECT."""

    def __init__(self, rows: RowsOfSelect, *, plain: bool = True) -> None:
        self._rows, self._queries, self._source = rows, rows.queries, rows.source
        self._references = RowReferences(rows.queries.tables, rows.queries.known)
        self._plain = plain
        """Whether items are stored columns and conditions only where a join needs that."""
        self._parts: Sequence[_Part] = ()
        self._computed: Sequence[_Equal] = ()
        """The columns after USING whose values aren't told apart by what is stored."""

    # ── Items ───────────────────────────────────────────────────────────────────────────────────

    def part(self, join: JoinedItem, *, plain: bool) -> _Part:
        """Translate an item after FROM.

        Args:
            join: the item.
            plain: whether its rows are kept as they are, but for some that are left out.
        """
        kind = self._queries.item_kind(join.item, self._rows.names)
        if kind == NOISY:
            raise noisy_item(join.item, self._queries.root, self._source)
        if kind != PRIVATE:
            from dpsql.sql.algebra.public_rows import public_rows  # most are joined over cells

            public = public_rows(self._queries, join, self._rows.names)
            return _Part(join, public.of, public.item, (), public.times, public=public)
        cells = self._rows.cells if plain else None
        try:
            found = self._queries.item(join.item, self._rows.names, cells)
        except SqlSchemaError as error:
            self._queries.add_public_hint(error, self._rows)
            raise
        alias = join.item.alias_or_name or UNNAMED
        path = found.of.table.path if isinstance(found.of.relation, Scan) else ()
        item = VisibleItem(alias, path, found.columns)
        return _Part(join, found.of, item, found.where, relations=found.relations)

    # ── Inner joins ─────────────────────────────────────────────────────────────────────────────

    def inner(self, parts: Sequence[_Part], said: Sequence[Expr]) -> list[Expr]:
        """Join the first items, in whatever order; return the conditions that are left."""
        pool = self._pool(parts, said)
        parts = [_narrowed(part, parts, pool) for part in parts]
        self._parts = parts
        order = self._order(parts, pool)
        of, used, same = order[0].of, set[int](), EqualIds()
        for part in order[1:]:
            of, taken = self._attached(of, part, pool, same)
            used |= taken
        rows = self._rows
        rows.become(of)
        rows.items = tuple(p.item.moved(Moving(p.of.table, of.table)) for p in parts)
        rows.merged = frozenset(folded(name) for p in parts for name in p.join.using)
        for part in parts:
            table = rows.table()
            to = Moving(part.of.table, table)
            rows.where = (*rows.where, *map(to, part.where))
            rows.relations = (*rows.relations, *moved_relations(part.relations, to))
        rows.where = (*rows.where, *map(self._equal_bound, self._computed))
        done = {id(one.node) for one in pool if one.node is not None and id(one) in used}
        return [part for part in said if id(part) not in done]

    def inner_alone(self, parts: Sequence[_Part], said: Sequence[Expr]) -> None:
        """Join the first items, so that all that is said of them is true of their rows."""
        rows, source = self._rows, self._source
        for part in parts:
            self._materialize(part)
        for part in parts[1:]:
            if part.join.on is None and not part.join.using:
                raise source.unsupported(
                    part.join.item,
                    "A RIGHT or FULL JOIN after items that no condition joins is not supported.",
                    "join each by its condition: FROM a JOIN b ON … JOIN c ON ….",
                )
        left = self.inner(parts, said)
        with rows.before_windows():
            rows.where = (*rows.where, *(one for part in left for one in rows.conditions(part)))

    def _equal_bound(self, one: _Equal) -> BoundExpr:
        span = self._source.node(self._rows.select)
        return self._rows.bound(
            exp.EQ(this=made_column(one.a, span), expression=made_column(one.b, span))
        )

    def _pool(self, parts: Sequence[_Part], said: Sequence[Expr]) -> list[_Equal]:
        """Return the columns of two items that conditions say are equal."""
        owner = {id_: n for n, part in enumerate(parts) for id_ in part.of.columns}
        equal = list[_Equal]()
        for node in said:
            inner = node.unnest()
            if not isinstance(inner, exp.EQ):
                continue
            sides = [self._column(side, parts) for side in (inner.this, inner.expression)]
            a, b = sides
            if a is not None and b is not None and owner[a] != owner[b]:
                equal.append(_Equal(a, b, node))
        for number, part in enumerate(parts):
            equal += (self._named(name, parts[: number + 1]) for name in part.join.using)
        told = [pair for pair in equal if self._comparable(pair, parts)]
        self._computed = [pair for pair in equal if pair.node is None and pair not in told]
        return [*told, *_implied(told)]

    def _named(self, name: str, parts: Sequence[_Part]) -> _Equal:
        """Return the columns of a name in USING: of the last item, and of the first that has it."""
        ids = [self._column(quoted_column(name), [part]) for part in parts]
        there = [id_ for id_ in ids if id_ is not None]
        if len(there) < 2 or ids[-1] is None:
            raise self._source.error(
                parts[-1].join.item,
                f"USING names {printable(name)}, which is not a stored column on both sides of the "
                "join.",
                "write ON and the condition.",
            )
        return _Equal(there[0], there[-1], None)

    def _comparable(self, one: _Equal, parts: Sequence[_Part]) -> bool:
        types = [
            stored_type(part.of.table, id_)
            for id_ in (one.a, one.b)
            for part in parts
            if id_ in part.of.columns
        ]
        good = comparable(types[0], types[1]) and all(map(_is_told, types))
        if not good and all(part.of.table.unit is None for part in parts):
            raise self._queries.no_reference(self._rows)
        return good

    def _column(self, node: Expr, parts: Sequence[_Part]) -> Id | None:
        """Return the stored column of one of some items that an expression is."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
            return None
        found = list[Id | None]()
        for part in parts:
            if inner.table and not part.item.is_called(qualifier_of(inner)):
                continue
            one = part.item.column(inner.name)
            if one is not None:
                found.append(id_of(one.value, part.of.table))
        return found[0] if len(found) == 1 else None

    def _order(self, parts: Sequence[_Part], pool: Sequence[_Equal]) -> list[_Part]:
        """Return items in an order in which each is joined by a key, if there is one."""
        private = [part for part in parts if part.of.private]
        if not private:
            if self._rows.outer is None:
                raise self._public_kept()
            private = list(parts)
        faults, order = self._best(private, parts, pool)
        if any(faults):  # rows that are multiplied are the same, whatever is typed first
            _, order = self._best(
                sorted(private, key=_of_tables), sorted(parts, key=_of_tables), pool
            )
        return order

    def _best(
        self, private: Sequence[_Part], parts: Sequence[_Part], pool: Sequence[_Equal]
    ) -> tuple[tuple[int, ...], list[_Part]]:
        """Return the order with the fewest faults, the first of several; see `_from`."""
        found = ((self._from(start, parts, pool)) for start in private)
        order, faults = min(found, key=lambda one: one[1], default=((), ()))
        if not order:
            raise self._source.unsupported(self._rows.select, "Nothing stands after FROM.", "")
        return faults, list(order)

    def _public_kept(self) -> SqlError:
        return self._source.unsupported(
            self._rows.select,
            "Rows of a public table are kept here whether or not a private row meets them.",
            "write the private table first: FROM orders LEFT JOIN regions ON …",
        )

    def _from(
        self, start: _Part, parts: Sequence[_Part], pool: Sequence[_Equal]
    ) -> tuple[list[_Part], tuple[int, ...]]:
        """Return items in an order from one on, and how many are joined otherwise."""
        order, left, bad, loose = [start], [p for p in parts if p is not start], 0, 0
        while left:
            ranked = []
            for place, part in enumerate(left):
                key, unit = self._fits(order, part, pool)
                ranked.append(((not part.of.private, not unit, not key, place), part))
            (public, foreign, many, _), part = min(ranked, key=lambda one: one[0])
            bad += foreign and not public
            loose += many and not public
            order.append(part)
            left.remove(part)
        return order, (bad, loose)

    def _fits(
        self, before: Sequence[_Part], part: _Part, pool: Sequence[_Equal]
    ) -> tuple[bool, bool]:
        """Return whether an item is joined by its key, and whether its rows are of the unit."""
        pairs = [
            (other, a, b)
            for one in pool
            for a, b in ((one.a, one.b), (one.b, one.a))
            if b in part.of.columns
            for other in before
            if a in other.of.columns
        ]
        facts = self._queries.known.of(part.of.relation)
        key = facts.is_unique(b for _, _, b in pairs)
        if not part.of.private:
            return key, True
        both = [(a, b) for _, a, b in pairs]
        key |= any(self._references.is_one(other.of, part.of, both) for other in before)
        unit = any(other.of.telling(a, b, part.of) for other, a, b in pairs)
        apart = [[(a, b) for o, a, b in pairs if o is other] for other in before]
        of_all = (o.of.are_equal(part.of, own) for o, own in zip(before, apart, strict=True))
        unit |= any(of_all)
        own = ((other.of, part.of, said) for other, said in zip(before, apart, strict=True))
        return key, unit or any(self._references.step(*one) is not None for one in own)

    def _attached(
        self, of: DescribedRelation, part: _Part, pool: Sequence[_Equal], same: EqualIds
    ) -> tuple[DescribedRelation, set[int]]:
        """Join an item with those before it, by equalities of which none follows from others."""
        given, said, used = list[tuple[Id, Id]](), list[tuple[Id, Id]](), set[int]()
        for one in pool:
            for a, b in ((one.a, one.b), (one.b, one.a)):
                if a in of.columns and b in part.of.columns:
                    given.append((a, b))
                    said += [] if one.implied else [(a, b)]
                    used.add(id(one))
        known = self._references.equalities(of, part.of, given)
        pairs = [pair for pair in (*known, *given) if same.add(*pair)]
        if of.private and part.of.private:
            self._check_unit(of, part, pairs)
        if not of.private and part.of.private:
            raise self._source.unsupported(
                part.join.item, "The private table must come first here.", "write it first."
            )
        on = [same_value(a, b) for a, b in pairs] + self._equal_values(of, part.of, said)
        relation = Join(of.relation, part.of.relation, all_if_any(on))
        return self._described(relation, of, part, pairs, lost=False), used

    def _check_unit(
        self, of: DescribedRelation, part: _Part, pairs: Sequence[tuple[Id, Id]]
    ) -> None:
        """Refuse rows that aren't said to be of one unit; of tables without units, of one row."""
        if (of.table.unit is None) is not (part.of.table.unit is None):
            self._check_same_units(of, part)
            raise self._queries.no_reference(self._rows)
        told = [(a, b) for a, b in pairs if of.telling(a, b, part.of)]
        if not told:
            self._check_clear(of, part)
        wide = None if told else self._references.step(of, part.of, pairs)
        if wide is not None:
            if not wide.on_way:
                self._queries.rely_by(", ".join(wide.join.columns))
            return
        if not told and of.are_equal(part.of, pairs):
            return
        if not told:
            if part.of.table.unit is None and of.table.unit is None:
                raise self._queries.no_reference(self._rows)
            self._check_same_units(of, part)
            raise self._source.unsupported(
                part.join.item,
                "A join of private tables must say that both rows are of one unit; otherwise rows "
                "of different units could be joined.",
                self._joined_by(of, part),
            )
        loose = self._queries.loose
        if all(a in loose or b in loose for a, b in told):
            self._queries.rely_on(told[0])

    def _joined_by(self, of: DescribedRelation, part: _Part) -> str:
        """Name an equality by which rows of both sides are of one unit, if there is one."""
        before = (p.item.moved(Moving(p.of.table, of.table)) for p in self._before(of))
        items = [*before, *self._rows.items]
        written = telling_equality(items, of, part.item, part.of)
        if written is not None:
            return f"say so: {printable(written)}."
        for item, tables in [
            (part.item, part.of.counted),
            *((p.item, p.of.counted) for p in self._parts),
        ]:
            way = self._way(item, tables)
            if way is not None:
                return f"join what leads to the unit, too, and say so of that: {printable(way)}."
        return f"join {printable(part.item.alias)} by columns that tell the unit."

    def _way(self, item: VisibleItem, tables: Sequence[Table]) -> str | None:
        """Write the join of the first table on the way to the unit; None if there is none."""
        unit = tables[0].unit if len(tables) == 1 else None
        if unit is None or not unit.joins or item.columns == ():
            return None
        (step, *_), to = unit.joins, as_sql(unit.joins[0].path[-1])
        pairs = (
            f"{as_sql(item.alias)}.{as_sql(pair.column)} = {to}.{as_sql(pair.key)}"
            for pair in step.pairs
        )
        return f"JOIN {to} ON {' AND '.join(pairs)}"

    def _check_clear(self, of: DescribedRelation, part: _Part) -> None:
        """Refuse rows of tables of which it isn't clear whose rows they refer to."""
        with self._source.locating(part.join.item):
            self._queries.tables.check_met((*of.read, *part.of.read))

    def _check_same_units(self, of: DescribedRelation, part: _Part) -> None:
        """Refuse rows of other units at once."""
        with self._source.locating(part.join.item):
            for first, other in product(of.counted[:1], part.of.counted):
                self._queries.tables.check_same_units(first, other)

    def _before(self, of: DescribedRelation) -> list[_Part]:
        """Return the first items that are joined so far."""
        return [part for part in self._parts if set(part.of.columns) <= set(of.columns)]

    def _described(
        self,
        relation: Join,
        of: DescribedRelation,
        part: _Part,
        pairs: Sequence[tuple[Id, Id]],
        *,
        lost: bool,
    ) -> DescribedRelation:
        """Say how many rows of a unit a join has, and of which tables these are."""
        known = self._queries.known
        right, left = known.of(part.of.relation), known.of(of.relation)
        a, b = [a for a, _ in pairs], [b for _, b in pairs]
        most, counted, once = of.most, of.counted, right.is_unique(b)
        if not part.of.private:
            most = None if most is None else most * (1 if once else part.times)
        elif not once and self._references.is_one(of, part.of, pairs):
            pass  # it is declared that a row meets one
        elif not once:
            if left.is_unique(a):
                counted = part.of.counted
                most = _with_lost(of.most, part.of.most) if lost else part.of.most
            elif of.most == 1:
                most, counted = part.of.most, part.of.counted
            elif part.of.most != 1:
                most, counted = None, (*of.counted, *part.of.counted)
        facts = known.of(relation).most
        if facts is not None:
            most = facts if most is None else min(most, facts)
        return joined(relation, of, part.of, most, counted, lost=lost, once=once)

    # ── Other joins ─────────────────────────────────────────────────────────────────────────────

    def further(self, part: _Part) -> None:
        """Join an item by LEFT, SEMI or ANTI JOIN, or by an inner join after one."""
        rows, kind = self._rows, part.join.kind
        self._check_further(part)
        if kind in {"left", "full"} or part.join.nearest or not self._plain:
            self._materialize(part)
        holds = rows.holds(rows.where) if kind in {"right", "full"} else None
        if holds is not None:
            rows.become(rows.of.over(Filter(rows.of.relation, holds)))
            rows.where = ()
        ours, theirs = self._told_apart(part)
        of, right = rows.of, part.of
        both = merged(of, right)
        to = Moving(of.table, both)
        items = tuple(item.moved(to) for item in rows.items)
        own = part.item.moved(Moving(right.table, both))
        pairs, rest = self._on(part, of, both, (items, own))
        if right.private:
            self._check_unit(of, part, pairs)
        on: list[RowExpression] = [same_value(a, b) for a, b in pairs]
        on += self._equal_values(of, right, pairs)
        if part.join.nearest:
            on.append(self._nearest(part, pairs, rest, both))
            right, rest = part.of, []
        if kind in {"semi", "anti"}:
            self._exists(part, both, on, rest)
            return
        lost = kind in {"left", "right", "full"}
        if lost:
            on += self._said(rest, both)
        rows.items = tuple(item.moved(ours) for item in rows.items)
        part.item = part.item.moved(theirs)
        if kind == "right":
            self._keep_right(part, all_of(on), pairs)
            return
        relation = Join(of.relation, right.relation, all_if_any(on), "left" if lost else "inner")
        made = self._described(relation, of, part, pairs, lost=lost)
        if kind == "full":
            from dpsql.sql.algebra.both_sides import MetSides, keep_both  # most don't need it

            keep_both(rows, part.join, part.item, MetSides(of, right, made, all_of(on), pairs))
            return
        if part.join.nearest:
            made = replace(made, most=of.most, counted=of.counted)
        rows.become(made)
        rows.items = (*rows.items, part.item.moved(Moving(right.table, made.table)))
        rows.merged |= {folded(name) for name in part.join.using}
        if kind == "inner":
            rows.where = (
                *rows.where,
                *map(Moving(right.table, rows.table()), part.where),
                *map(Moving(both, rows.table()), rest),
            )

    def _told_apart(self, part: _Part) -> tuple[Moving, Moving]:
        """Let NULL say of rows that may be missing that they are; see `declared.told_apart`.

        Returns:
            The ways to the columns that are named after the join, of the rows so far and of the
            item's.
        """
        rows, kind = self._rows, part.join.kind
        ours = theirs = Moving(rows.of.table, rows.of.table)
        if kind in {"right", "full"}:
            made, beside = told_apart(rows.of, self._queries.fresh, self._queries.copies())
            rows.become(made)
            ours = _named_beside(made, beside)
        if kind in {"left", "full"} and part.of.private:
            made, beside = told_apart(part.of, self._queries.fresh, self._queries.copies())
            part.item = part.item.moved(Moving(part.of.table, made.table))
            part.of, theirs = made, _named_beside(made, beside)
        return ours, theirs

    def _keep_right(self, part: _Part, on: RowExpression, pairs: Sequence[tuple[Id, Id]]) -> None:
        """Join by RIGHT JOIN: it is a LEFT JOIN with the sides exchanged."""
        rows, right = self._rows, part.of
        relation = Join(right.relation, rows.of.relation, on, "left")
        turned = [(b, a) for a, b in pairs]
        made = self._described(relation, right, replace(part, of=rows.of), turned, lost=True)
        rows.become(made)
        own = part.item.moved(Moving(right.table, made.table))
        names = [(name, own.column(name)) for name in part.join.using]
        using = tuple(replace(column, name=name) for name, column in names if column is not None)
        rows.items = (*rows.items, own, *([VisibleItem(EITHER, (), using)] if using else []))
        rows.merged |= {folded(name) for name in part.join.using}

    def _check_further(self, part: _Part) -> None:
        """Refuse joins that keep rows of the right, and nearest rows that aren't of units."""
        rows, kind = self._rows, part.join.kind
        keeps = kind in {"right", "full"} and part.of.private and rows.of.table.unit is not None
        if kind not in {"inner", "left", "semi", "anti"} and not keeps:
            if not part.of.private:
                raise self._public_kept()
            raise self._queries.no_reference(rows)
        if part.join.nearest and (not part.of.private or part.of.table.unit is None):
            raise unknown_join(part.join.item, "ASOF", self._source)
        if kind == "left" and part.of.private and not rows.of.private:
            raise self._public_kept()

    def _nearest(
        self,
        part: _Part,
        pairs: Sequence[tuple[Id, Id]],
        rest: Sequence[BoundExpr],
        both: Table,
    ) -> RowExpression:
        """Let each row meet the nearest one alone; return what else is true of the two."""
        from dpsql.sql.algebra.nearest import nearest_rows  # which most statements don't need

        said = self._said(rest, both)
        next_ = self._queries.fresh("next")
        found = nearest_rows(part.of, [b for _, b in pairs], said, next_)
        if found is None:
            raise self._source.unsupported(
                part.join.item,
                "An ASOF join compares a value of a row with a column of those that it may meet.",
                "write equalities of columns, and one of >=, >, <= and <: ON v.person_id = "
                "l.person_id AND v.day >= l.day.",
            )
        part.of, on = found
        return on

    def _exists(
        self, part: _Part, both: Table, on: list[RowExpression], rest: Sequence[BoundExpr]
    ) -> None:
        right = part.of
        on += self._said((*rest, *(moved(one, right.table, both) for one in part.where)), both)
        there = with_exists(self._rows, right, all_if_any(on))
        said = exp.Not(this=paren(there)) if part.join.kind == "anti" else there
        self._rows.where = (*self._rows.where, self._rows.bound(said))

    def _materialize(self, part: _Part) -> None:
        """Let what is true of the rows of an item be so before it is joined."""
        plain = all(id_of(c.value, part.of.table) is not None for c in part.item.columns)
        if not part.of.private or (plain and not part.where):
            return
        select = RowsOfSelect(self._queries, self._rows.select, self._rows.names)
        select.become(part.of)
        if plain:
            holds = [select.expression(one) for one in part.where]
            part.of, part.where = part.of.over(Filter(part.of.relation, all_of(holds))), ()
            return
        made, columns = projected(RowsOfQuery(part.of, part.item.columns, part.where), select)
        part.of, part.where = made, ()
        part.item = replace(part.item, columns=columns)

    def _on(
        self,
        part: _Part,
        of: DescribedRelation,
        both: Table,
        visible: tuple[tuple[VisibleItem, ...], VisibleItem],
    ) -> tuple[list[tuple[Id, Id]], list[BoundExpr]]:
        """Bind a condition of a join; return the columns that are equal, and what else it says."""
        items, own = visible
        said = [] if part.join.on is None else conjuncts(part.join.on)
        said += [self._equal_in_both(name, part, items, own) for name in part.join.using]
        pairs, rest = list[tuple[Id, Id]](), list[BoundExpr]()
        for bound in [self._bound(node, both, (*items, own)) for node in said]:
            pair = equated_columns(bound, both, of, part.of)
            types = [] if pair is None else [stored_type(both, id_) for id_ in pair]
            if pair is not None and comparable(*types) and all(map(_is_told, types)):
                pairs.append(pair)
            else:
                rest.append(bound)
        return pairs, rest

    def _equal_in_both(
        self, name: str, part: _Part, items: Sequence[VisibleItem], own: VisibleItem
    ) -> Expr:
        """Write what USING a name means."""
        first = owner_of(name, items)
        if first is None:
            raise self._source.error(
                part.join.item, f"USING names {printable(name)}, which is no column.", "use ON."
            )
        sides = (quoted_column(name, item.alias) for item in (first, own))
        return exp.EQ(**dict(zip(("this", "expression"), sides, strict=True)))

    def _bound(self, node: Expr, both: Table, items: tuple[VisibleItem, ...]) -> BoundExpr:
        rows = self._rows
        visible = Visible(both, items, rows.merged, either=rows.either)
        return rows.bound(node, Home(both, visible))

    def _said(self, bounds: Iterable[BoundExpr], table: Table) -> list[RowExpression]:
        """Read conditions over the columns of both sides; see `RowsOfSelect.said`."""
        reader, found = RowReader(self._queries.sandbox, table, self._source), []
        for bound in bounds:
            check_read(bound, table, self._source)
            condition = reader.expression(bound)
            found += [condition, *left_in(condition, table, bound.attributes | bound.by_row)]
        return found

    def _equal_values(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Sequence[tuple[Id, Id]]
    ) -> list[RowExpression]:
        """Return what else is true where columns are equal; references as they are stored."""
        if not equal_values(of, other, pairs):
            return []
        keys = {*self._references.equalities(of, other, pairs)}
        keys |= {
            (a, b) for b, a in self._references.equalities(other, of, [(b, a) for a, b in pairs])
        }
        return equal_values(of, other, [pair for pair in pairs if pair not in keys])


def _named_beside(of: DescribedRelation, beside: Mapping[Id, Id]) -> Moving:
    """Return the way to columns that are named in place of others."""
    called = {**{id_: id_ for id_ in of.columns}, **beside}
    return Moving(of.table, of.table, called if beside else None)


def _is_told(type_: str) -> bool:
    """Whether values of a type can be told apart in relations."""
    return is_scanned(type_) or type_.startswith("ENUM")


def _with_lost(most: int | None, others: int | None) -> int | None:
    """Return how many rows a unit has of a LEFT JOIN in which each right one meets one at most."""
    if most is None or others is None:
        return None
    return max(others, 1) if most == 1 else others + most
