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

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError, printable
from dpsql.hints import never
from dpsql.rel.keys import same_rows
from dpsql.rel.nodes import Filter, Id, Join, Public, Scan
from dpsql.rows.expression import RowConstant, RowExpression, all_if_any, all_of, same_value
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.grain import stored_type
from dpsql.schema.keys import comparable
from dpsql.schema.names import as_sql, capitals, folded
from dpsql.schema.table import Parent
from dpsql.sql.algebra.asides import with_exists
from dpsql.sql.algebra.described import (
    DescribedRelation,
    NewColumn,
    column_of,
    domain_of_texts,
    equated_columns,
    id_of,
    joined,
    merged,
    moved,
    with_columns,
)
from dpsql.sql.algebra.projections import projected
from dpsql.sql.algebra.selects import RowsOfQuery, RowsOfSelect
from dpsql.sql.algebra.visible import (
    NamedColumn,
    RelationHome,
    Visible,
    VisibleItem,
    made_column,
    telling_equality,
)
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjuncts, paren, quoted_column
from dpsql.sql.binding.joins import JoinedItem, name_parts
from dpsql.sql.binding.named import NOISY, PRIVATE
from dpsql.sql.binding.scope import qualifier_of
from dpsql.sql.lowering.measures import RowReader

MOST_PUBLIC = 10_000
"""Rows of a public table that are joined with rows of units."""
_Stored: TypeAlias = tuple[Table, str]
"""A column of a stored table."""
_KINDS = ("INTEGER", "DECIMAL", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR")


@dataclass(eq=False, slots=True)
class _Part:
    """An item after FROM: its relation, and what is true of its rows."""

    join: JoinedItem
    of: DescribedRelation
    item: VisibleItem
    where: tuple[BoundExpr, ...]
    times: int = 1
    """The most rows of it that a row meets, if it is public."""


@dataclass(frozen=True, slots=True)
class _Equal:
    """Two columns that are equal, and where that is written."""

    a: Id
    b: Id
    node: Expr | None


def met_rows(rows: RowsOfSelect, joins: Sequence[JoinedItem], *, cells: bool = False) -> list[Expr]:
    """Translate FROM; return the conditions of WHERE, and of inner joins, that are left.

    Args:
        rows: the SELECT.
        joins: its items after FROM.
        cells: whether public items are left out, to be joined over cells.

    Raises:
        SqlError: rows of several units could meet.
    """
    typed = joins
    joins = _turned(joins)
    meeting = _Meeting(rows)
    parts = [
        meeting.part(join)
        for join in joins
        if not cells or rows.queries.item_kind(join.item, rows.names) == PRIVATE
    ]
    given = [part.join for part in parts]
    lead = next((i for i, j in enumerate(given) if i and j.kind != "inner"), len(given))
    where = rows.select.args.get("where")
    said = [part for join in given[:lead] if join.on for part in conjuncts(join.on)]
    said += [] if where is None else conjuncts(where.this)
    left = meeting.inner(parts[:lead], said)
    for part in parts[lead:]:
        meeting.further(part)
    if joins is not typed:
        _check_named(rows, typed[1])
        first, second, *others = rows.items
        rows.items = (second, first, *others)  # as * lists them
    return left


def _turned(joins: Sequence[JoinedItem]) -> Sequence[JoinedItem]:
    """Exchange the sides of a RIGHT JOIN of two items."""
    if len(joins) >= 2 and joins[1].kind == "right":
        first, second = joins[0], joins[1]
        return [
            replace(second, kind="inner", on=None, using=()),
            replace(first, kind="left", on=second.on, using=second.using),
            *joins[2:],
        ]
    return joins


def _check_named(rows: RowsOfSelect, join: JoinedItem) -> None:
    """Refuse a RIGHT JOIN of which a column is the second item's, and listed as the first's."""
    if join.using:
        raise rows.source.unsupported(
            join.item,
            "A RIGHT JOIN with USING is not supported here.",
            "exchange the sides, and use LEFT JOIN.",
        )


def _of_tables(part: _Part) -> tuple[tuple[str, ...], ...]:
    """Return by what items are sorted: so joins that are typed in another order are the same."""
    return tuple(table.path for table in part.of.counted)


class _Meeting:
    """Joins the items of one SELECT."""

    def __init__(self, rows: RowsOfSelect) -> None:
        self._rows, self._queries, self._source = rows, rows.queries, rows.source
        self._parts: Sequence[_Part] = ()

    # ── Items ───────────────────────────────────────────────────────────────────────────────────

    def part(self, join: JoinedItem) -> _Part:
        """Translate an item after FROM."""
        kind = self._queries.item_kind(join.item, self._rows.names)
        if kind == NOISY:
            raise self._source.unsupported(
                join.item,
                "Noisy answers can't be joined with private rows.",
                never("a statement has either private rows or noisy answers in one FROM."),
            )
        if kind != PRIVATE:
            return self._public(join)
        found = self._queries.item(join.item, self._rows.names)
        path = name_parts(join.item) if isinstance(join.item, exp.Table) else ()
        alias = join.item.alias_or_name or "unnamed_subquery"
        path = () if join.item.alias else path
        return _Part(join, found.of, VisibleItem(alias, path, found.columns), found.where)

    def _public(self, join: JoinedItem) -> _Part:
        """Write the rows of a public item as constants."""
        stored = self._queries.store(0, join, self._rows.names)
        if stored.rows > MOST_PUBLIC:
            raise self._source.unsupported(
                join.item,
                f"A public table of more than {MOST_PUBLIC:,} rows can't be joined in a query of "
                "rows of units.",
                "join fewer of its rows: (SELECT … FROM … WHERE …).",
            )
        names = [f"__r0_{i}" for i in range(len(stored.columns))]
        listed = ", ".join(names)
        types = dict(self._queries.sandbox.types(f"SELECT {listed} FROM {stored.table}"))
        plain = [name for name in names if _kind_of(types[name]) is not None]
        shown = ", ".join(f"{name}::VARCHAR" if name in plain else "NULL" for name in names)
        found = self._queries.sandbox.rows(f"SELECT {shown} FROM {stored.table}")
        texts = sorted(found, key=repr)  # whatever order they are read in, it is one relation
        ids = [self._queries.fresh(name) for name in stored.columns]
        constants = [
            _constants((row[i] for row in texts), types[name]) for i, name in enumerate(names)
        ]
        kept = [i for i, values in enumerate(constants) if values is not None]
        written = [values for values in constants if values is not None]
        if not kept:
            raise self._source.unsupported(
                join.item,
                "No column of this public table can be read in a query of rows of units.",
                "cast one to a text, a number or a date: (SELECT CAST(x AS VARCHAR) AS x FROM …).",
            )
        relation = Public(
            tuple((ids[i], types[names[i]]) for i in kept),
            tuple(zip(*written, strict=True)),
            self._unique(stored, [(ids[i], names[i]) for i in kept]),
        )
        table = Table(stored.alias, {})
        of = DescribedRelation(relation, table, None, {}, (), ())
        added = [
            NewColumn(
                ids[i],
                types[names[i]],
                any(row[i] is None for row in texts),
                domain_of_texts([row[i] for row in texts], types[names[i]]),
            )
            for i in kept
        ]
        of = with_columns(of, relation, added)
        span = self._source.node(join.item)
        columns = tuple(
            NamedColumn(stored.columns[i], column_of(ids[i], of.table, span)) for i in kept
        )
        return _Part(join, of, VisibleItem(stored.alias, (), columns), (), max(1, stored.rows))

    def _unique(
        self, stored: PublicRows, columns: Sequence[tuple[Id, str]]
    ) -> frozenset[frozenset[Id]]:
        found = {
            frozenset({id_})
            for id_, name in columns
            if self._queries.tables.is_unique(stored.table, name)
        }
        return frozenset(found | ({frozenset[Id]()} if stored.rows <= 1 else set()))

    # ── Inner joins ─────────────────────────────────────────────────────────────────────────────

    def inner(self, parts: Sequence[_Part], said: Sequence[Expr]) -> list[Expr]:
        """Join the first items, in whatever order; return the conditions that are left."""
        self._parts, pool = parts, self._pool(parts, said)
        order = self._order(parts, pool)
        of, used = order[0].of, set[int]()
        for part in order[1:]:
            of, taken = self._attached(of, part, pool)
            used |= taken
        rows = self._rows
        rows.become(of)
        rows.items = tuple(p.item.moved(p.of.table, of.table) for p in parts)
        rows.merged = frozenset(folded(name) for p in parts for name in p.join.using)
        for part in parts:
            table = rows.table()
            rows.where = (*rows.where, *(moved(c, part.of.table, table) for c in part.where))
        for one in pool:
            if one.node is None and id(one) not in used:
                rows.where = (*rows.where, self._equal_bound(one))
        done = {id(one.node) for one in pool if one.node is not None and id(one) in used}
        return [part for part in said if id(part) not in done]

    def _equal_bound(self, one: _Equal) -> BoundExpr:
        span = self._source.node(self._rows.select)
        return self._rows.bound(
            exp.EQ(this=made_column(one.a, span), expression=made_column(one.b, span))
        )

    def _pool(self, parts: Sequence[_Part], said: Sequence[Expr]) -> list[_Equal]:
        """Return the columns of two items that conditions say are equal."""
        owner = {id_: n for n, part in enumerate(parts) for id_ in part.of.columns}
        found = list[_Equal]()
        for node in said:
            inner = node.unnest()
            if not isinstance(inner, exp.EQ):
                continue
            sides = [self._column(side, parts) for side in (inner.this, inner.expression)]
            a, b = sides
            if a is not None and b is not None and owner[a] != owner[b]:
                found.append(_Equal(a, b, node))
        for number, part in enumerate(parts):
            for name in part.join.using:
                ids = [self._column(quoted_column(name), [one]) for one in parts[: number + 1]]
                there = [id_ for id_ in ids if id_ is not None]
                if len(there) < 2 or ids[-1] is None:
                    raise self._source.error(
                        part.join.item,
                        f"USING names {printable(name)}, which is not a stored column on both "
                        "sides of the join.",
                        "write ON and the condition.",
                    )
                found.append(_Equal(there[0], there[-1], None))
        return [one for one in found if self._comparable(one, parts)]

    def _comparable(self, one: _Equal, parts: Sequence[_Part]) -> bool:
        types = [
            stored_type(part.of.table, id_)
            for id_ in (one.a, one.b)
            for part in parts
            if id_ in part.of.columns
        ]
        good = comparable(types[0], types[1])
        if not good and one.node is None:
            raise self._source.unsupported(
                self._rows.select, "USING names columns of different types.", "write ON."
            )
        return good

    def _column(self, node: Expr, parts: Sequence[_Part]) -> Id | None:
        """Return the stored column of one of some items that an expression is."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
            return None
        name = folded(inner.name)
        found = list[Id | None]()
        for part in parts:
            if inner.table and not part.item.is_called(qualifier_of(inner)):
                continue
            one = next((c for c in part.item.columns if folded(c.name) == name), None)
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
        key |= any(self._is_referred(other.of, part.of, both) for other in before)
        unit = any(other.of.telling(a, b, part.of) for other, a, b in pairs)
        apart = [[(a, b) for o, a, b in pairs if o is other] for other in before]
        of_all = (o.of.are_equal(part.of, own) for o, own in zip(before, apart, strict=True))
        unit |= any(of_all)
        own = ((other.of, part.of, said) for other, said in zip(before, apart, strict=True))
        return key, unit or any(self._reference(*one) is not None for one in own)

    def _reference(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> Parent | None:
        """Return by which columns one row refers to another, if these are several and all equal."""
        found: dict[tuple[str, str], list[tuple[_Stored, _Stored]]] = {}
        for a, b in pairs:
            if a in of.ids_of and b in other.ids_of:
                one, to = of.ids_of[a], other.ids_of[b]
                scans = a.removesuffix(one[1]), b.removesuffix(to[1])  # rows may be there twice
                found.setdefault(scans, []).append((one, to))
        ways = (way for said in found.values() for way in (said, [(to, one) for one, to in said]))
        return next((step for way in ways for step in self._steps(way)), None)

    def _is_referred(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> bool:
        """Whether rows refer to those of a table by equal columns, as somebody declares.

        It is one row if each of the table is on the right once at most.
        """
        stored = [
            (of.ids_of[a], other.ids_of[b])
            for a, b in pairs
            if a in of.ids_of and b in other.ids_of
        ]
        below = same_rows(other.relation, self._queries.known)
        once = {node.source.table.path for node in below if isinstance(node, Scan)}
        equal = {(child.path, column, key) for (child, column), (_, key) in stored}
        children = {child.path: child for (child, _), _ in stored}
        return any(
            {(child.path, pair.column, pair.key) for pair in parent.join.pairs} <= equal
            for child in children.values()
            for parent in self._queries.tables.grain(child).parents
            if not parent.above and parent.table.path in once
        )

    def _steps(self, said: Sequence[tuple[_Stored, _Stored]]) -> Iterator[Parent]:
        """Yield the references of several columns that equal columns of two rows are."""
        (child, _), (to, _) = said[0]
        equal = {(column, key) for (_, column), (_, key) in said}
        for parent in self._queries.tables.grain(child).parents if len(equal) > 1 else ():
            own = {(pair.column, pair.key) for pair in parent.join.pairs}
            if not parent.above and parent.table.path == to.path and own <= equal:
                yield parent

    def _attached(
        self, of: DescribedRelation, part: _Part, pool: Sequence[_Equal]
    ) -> tuple[DescribedRelation, set[int]]:
        """Join an item with those before it."""
        pairs, used = list[tuple[Id, Id]](), set[int]()
        for one in pool:
            for a, b in ((one.a, one.b), (one.b, one.a)):
                if a in of.columns and b in part.of.columns:
                    pairs.append((a, b))
                    used.add(id(one))
        if of.private and part.of.private:
            self._check_unit(of, part, pairs)
        if not of.private and part.of.private:
            raise self._source.unsupported(
                part.join.item, "The private table must come first here.", "write it first."
            )
        on = [same_value(a, b) for a, b in pairs]
        relation = Join(of.relation, part.of.relation, all_if_any(on))
        return self._described(relation, of, part, pairs, lost=False), used

    def _check_unit(
        self, of: DescribedRelation, part: _Part, pairs: Sequence[tuple[Id, Id]]
    ) -> None:
        told = [(a, b) for a, b in pairs if of.telling(a, b, part.of)]
        wide = None if told else self._reference(of, part.of, pairs)
        if wide is not None:
            if not wide.on_way:
                self._queries.rely_by(", ".join(wide.join.columns))
            return
        if not told and of.are_equal(part.of, pairs):
            return
        if not told:
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
        items = [*(p.item.moved(p.of.table, of.table) for p in self._before(of)), *self._rows.items]
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

    def _check_same_units(self, of: DescribedRelation, part: _Part) -> None:
        """Refuse rows of other units at once."""
        for first, other in product(of.counted[:1], part.of.counted):
            try:
                self._queries.tables.check_same_units(first, other)
            except SqlError:
                raise
            except SchemaError as error:
                raise self._source.located(error, part.join.item) from None

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
        elif not once and self._is_referred(of, part.of, pairs):
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
        if kind not in {"inner", "left", "semi", "anti"}:
            raise self._source.unsupported(
                part.join.item,
                f"A {capitals(kind)} JOIN of private rows is not supported here.",
                "exchange the sides, and use LEFT JOIN.",
            )
        if kind == "left":
            if part.of.private and not rows.of.private:
                raise self._public_kept()
            self._materialize(part)
        of, right = rows.of, part.of
        both = merged(of, right)
        items = tuple(item.moved(of.table, both) for item in rows.items)
        own = part.item.moved(right.table, both)
        pairs, rest = self._on(part, of, both, (items, own))
        if right.private:
            self._check_unit(of, part, pairs)
        on: list[RowExpression] = [same_value(a, b) for a, b in pairs]
        if kind in {"semi", "anti"}:
            self._exists(part, both, on, rest)
            return
        if kind == "left":
            on += [self._read(one, both) for one in rest]
        relation = Join(
            of.relation,
            right.relation,
            all_if_any(on),
            "left" if kind == "left" else "inner",
        )
        made = self._described(relation, of, part, pairs, lost=kind == "left")
        rows.become(made)
        rows.items = (*rows.items, part.item.moved(right.table, made.table))
        rows.merged |= {folded(name) for name in part.join.using}
        if kind == "inner":
            rows.where = (
                *rows.where,
                *(moved(one, right.table, rows.table()) for one in part.where),
                *(moved(one, both, rows.table()) for one in rest),
            )

    def _exists(
        self, part: _Part, both: Table, on: list[RowExpression], rest: Sequence[BoundExpr]
    ) -> None:
        right = part.of
        on += [self._read(one, both) for one in rest]
        on += [self._read(moved(one, right.table, both), both) for one in part.where]
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
            if pair is not None and comparable(*(stored_type(both, id_) for id_ in pair)):
                pairs.append(pair)
            else:
                rest.append(bound)
        return pairs, rest

    def _equal_in_both(
        self, name: str, part: _Part, items: Sequence[VisibleItem], own: VisibleItem
    ) -> Expr:
        """Write what USING a name means."""
        first = next(
            (i for i in items if any(folded(c.name) == folded(name) for c in i.columns)), None
        )
        if first is None:
            raise self._source.error(
                part.join.item, f"USING names {printable(name)}, which is no column.", "use ON."
            )
        sides = (quoted_column(name, item.alias) for item in (first, own))
        return exp.EQ(**dict(zip(("this", "expression"), sides, strict=True)))

    def _bound(self, node: Expr, both: Table, items: tuple[VisibleItem, ...]) -> BoundExpr:
        rows = self._rows
        home = RelationHome(
            both, self._source.node(node), None, visible=Visible(both, items, rows.merged)
        )
        return rows.bound(node, home)

    def _read(self, bound: BoundExpr, table: Table) -> RowExpression:
        return RowReader(self._queries.sandbox, table, self._source).expression(bound)


def _with_lost(most: int | None, others: int | None) -> int | None:
    """Return how many rows a unit has of a LEFT JOIN in which each right one meets one at most."""
    if most is None or others is None:
        return None
    return max(others, 1) if most == 1 else others + most


def _kind_of(type_: str) -> str | None:
    """Return the kind of constants of a type; None if there are none."""
    if type_.startswith("ENUM"):
        return "VARCHAR"
    plain = type_.split("(")[0]
    if plain in INTEGER_TYPES:
        return "INTEGER"
    if plain in {"FLOAT", "DOUBLE"}:
        return "DOUBLE"
    return plain if plain in _KINDS else None


def _constants(texts: Iterable[object], type_: str) -> tuple[RowConstant, ...] | None:
    """Return values as constants; None if one can't be written: a date may be infinite."""
    kind = _kind_of(type_)
    if kind is None:
        return None
    with suppress(SqlError):
        return tuple(
            RowConstant("NULL", "") if text is None else RowConstant(kind, str(text))
            for text in texts
        )
    return None
