"""Subqueries over rows of the same unit: each is a column of the rows that are counted.

    SELECT region, COUNT(*) FROM customers c
    WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.price > 7) GROUP BY region

counts customers, and whether one has such an order is a column of the customer, as
`rows/within.py` says. Here it is found out which rows are meant. A subquery must say that its rows
are of the unit of the row that it is for: by an equality of columns that refer to the same row, or
of which one is that row's key. So they are rows of one unit if those that refer to each other are.
Where a FOREIGN KEY leads to rows of another unit, these are left out, as everywhere.

What else a subquery says is about its own rows, and about the row that it is for. It may have
subqueries of its own, over rows of the same unit as its rows are. `x IN (SELECT y …)` is EXISTS
with x = y, where neither is ever NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError
from dpsql.schema import Table
from dpsql.schema.combined import combination_of
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjuncts, has_aggregate
from dpsql.sql.binding.items import PrivateItems
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.named import Grouped, Names, Told
from dpsql.sql.binding.private.grains import keys_referred, own_unit, rows_told
from dpsql.sql.binding.private.sides import PrivateSides
from dpsql.sql.binding.scope import stored_place
from dpsql.sql.binding.subqueries import Subqueries
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.binding.unions.branches import Branches
from dpsql.sql.binding.units.counts import UnitCounts
from dpsql.sql.binding.units.group import UnitGroup
from dpsql.sql.binding.units.group_rows import one_of_each, over_rows, rows_of_groups
from dpsql.sql.binding.units.grouped import meets_group
from dpsql.sql.binding.units.inner import InnerBinder
from dpsql.sql.binding.units.public_values import PublicValues
from dpsql.sql.binding.units.sums import UnitSums
from dpsql.sql.binding.units.windows import tells_unit
from dpsql.sql.text.spans import SourceText

Sides = Callable[[exp.Select, list[JoinedItem], Names], PrivateSides]
"""Finds out what the private items of a SELECT are."""
_MORE = ("group", "having", "distinct", "limit", "offset", "qualify", "laterals")
"""Clauses that a subquery over rows of one unit can't have."""
_HINT = (
    "limit it to rows of the same unit, WHERE o.customer_id = c.id, in EXISTS (…), in x IN (…), "
    "or in a "
    "subquery with COUNT, SUM, MIN or MAX of its rows; noisy answers can be used in HAVING and "
    "around the statement."
)


class RowsOfUnit:
    """Binds the subqueries of one statement that are over rows of the same unit.

    Args:
        source: its text.
        items: tells items after FROM apart.
        tables: what the names of tables mean.
        sides: finds out what the private items of a SELECT are.
        subqueries: rewrites those over public tables.
        branches: asks each table of a UNION ALL by itself.
    """

    def __init__(
        self,
        source: SourceText,
        items: PrivateItems,
        tables: NamedTables,
        sides: Sides,
        subqueries: Subqueries,
        branches: Branches,
    ) -> None:
        self._source = source
        self._branches = branches
        self._items = items
        self._tables = tables
        self._sides = sides
        self._public = PublicValues(source, items, subqueries)
        self._units = UnitCounts(source, items, subqueries)

    def bind(self, node: Expr, binder: RowBinder, names: Names) -> BoundExpr | None:
        """Bind EXISTS, IN or a subquery with one value; None if no row after its FROM is private.

        Args:
            node: it.
            binder: binds what is around it.
            names: what names mean there.

        Raises:
            SqlError: it is over private rows, and not over those of the same unit alone.
        """
        select = _select(node)
        if select is None or select.args.get("with_") is not None:
            return None
        joins = joins_of(select, self._source)
        private = self._items.among(joins, names)
        if not private or not (self._refer([binder.table], node) or self.refer(private, names)):
            return None
        grouped = self._items.grouped_of(select, names, None) if isinstance(node, exp.In) else None
        if isinstance(node, exp.In) and grouped is not None and len(grouped.columns) == 1:
            return meets_group(node, grouped, self.group(grouped, binder), binder)
        self._check_clauses(node, select)
        several = self._branches.of(select, names, alone=False)
        if len(several) > 1:
            return self._of_each(node, several, binder)
        inside = self._of_private(select, names, binder)
        if isinstance(node, exp.Exists):
            return inside.column("exists", None, node)
        if isinstance(node, exp.In):
            inside.pair(node.this, select.expressions[0], node)
            return inside.column("exists", None, node)
        value = select.expressions[0].unalias()
        if has_aggregate(value):
            inside.check_tied(node)
        return inside.value(value, node)

    def _of_each(
        self, node: Expr, several: Sequence[tuple[exp.Select, Names]], binder: RowBinder
    ) -> BoundExpr:
        """Bind a subquery over UNION ALL of rows of several tables."""
        groups = [self._of_private(*one, binder) for one in several]
        sums = UnitSums(groups, self._source)
        if isinstance(node, exp.In):
            for group, (select, _) in zip(groups, several, strict=True):
                group.pair(node.this, select.expressions[0], node)
        if isinstance(node, exp.Exists | exp.In):
            return sums.exists(node)
        return sums.value(several[0][0].expressions[0].unalias(), node)

    def group(self, grouped: Grouped, outer: RowBinder) -> UnitGroup:
        """Return the rows of which the groups of a query are, for a row that it is joined with.

        Raises:
            SqlError: they aren't told by what rows refer to.
        """
        return self._of_private(grouped.select, grouped.names, outer)

    def told(self, grouped: Grouped) -> Told | None:
        """Say what the groups of a query are of; None if not of rows that their rows refer to."""
        select, names = grouped.select, grouped.names
        joins = joins_of(select, self._source)
        private = self._items.among(joins, names)
        sides = self._sides(select, private, names)
        self._check_bounded(sides.home.table, select)
        table = self._grain(sides.home.table, select)
        visits = Visits(self._refuse, partial(self._inner, names=names), self._refuse)
        binder = RowBinder(self._source, select, sides.home, visits)
        sides.conditions(binder, self._source)
        places = [stored_place(key, binder.scope) for key in grouped.keys]
        keys = [place for place in places if place is not None]
        telling = [key for key in keys if not _tells(table).isdisjoint(rows_told(table, key))]
        if not telling or len(keys) < len(places):
            return None
        known = all(key in table.columns for key in keys)
        single = not sides.relations and all(
            join in private or self._items.adds_one(join, select, names) for join in joins
        )
        rows = None if known else rows_of_groups(grouped, keys, table, single=single)
        by_unit = all((table.path, key) in own_unit(table) for key in keys)
        if not (known or rows or by_unit or sides.relations) and tells_unit(table, keys):
            rows = one_of_each(grouped)
        return Told(known, rows, sides.home.table if by_unit else None)

    def over_rows(
        self, select: exp.Select, joins: Sequence[JoinedItem], names: Names
    ) -> tuple[exp.Select, Names] | None:
        """Return a query around groups of which there is no list as one of rows, if it is one."""
        grouped = self._items.grouped(joins[0].item, names) if len(joins) == 1 else None
        if grouped is not None and not self._items.is_answer(grouped.select, names):
            found = over_rows(select, grouped, joins[0].item.alias_or_name, self._source)
            if found is not None:
                return found, grouped.names
        return self._units.counted(select, joins, names)

    def refer(self, private: Sequence[JoinedItem], names: Names) -> bool:
        """Whether rows of some private items refer to private rows of the same unit."""
        items = [self._items.base(join.item, names) for join in private]
        return self._refer([self._items.table(item)[0] for item in items], items[0])

    def _refer(self, tables: Sequence[Table], at: Expr) -> bool:
        return any(_tells(self._grain(table, at)) for table in tables)

    def _check_clauses(self, node: Expr, select: exp.Select) -> None:
        """Refuse what isn't said of rows of one unit alone."""
        shown, exists = select.expressions, isinstance(node, exp.Exists)
        aggregated = any(map(has_aggregate, shown)) and isinstance(node, exp.Exists | exp.In)
        more = any(select.args.get(key) for key in _MORE)
        if more or aggregated or not (exists or len(shown) == 1):
            raise self._refused(node)

    def _of_private(self, select: exp.Select, names: Names, outer: RowBinder) -> UnitGroup:
        """Return the rows that a query is of, which joins no others than public ones.

        Raises:
            SqlError: they aren't told by what rows refer to; or more is asked of public ones.
        """
        joins = joins_of(select, self._source)
        private = self._items.among(joins, names)
        if {join.kind for join in private} - {"inner", "semi"}:
            raise self._refused(select)
        if len(private) == len(joins):
            return self._inside(select, private, names, outer)
        found = self._public.without_public(select, joins, private, names)
        if found is None:
            raise self._source.unsupported(
                select,
                "Here, a public table can only list the values that a column of private rows may "
                "have.",
                "join each by one equality, o.day_id = d.id, and let other conditions be over "
                "public columns alone; where rows are counted or added up, by a column in which "
                "no two public rows are equal.",
            )
        private = self._items.among(joins_of(found, self._source), names)
        return self._inside(found, private, names, outer)

    def _inner(self, node: Expr, binder: RowBinder, names: Names) -> BoundExpr | None:
        """Bind what stands in a subquery: one of its own, or one over public tables alone."""
        found = self.bind(node, binder, names)
        return self._public.bind(node, binder, names) if found is None else found

    def _inside(
        self, select: exp.Select, private: list[JoinedItem], names: Names, outer: RowBinder
    ) -> UnitGroup:
        sides = self._sides(select, private, names)
        self._check_bounded(sides.home.table, select)
        table, around = (self._grain(one, select) for one in (sides.home.table, outer.table))
        visits = Visits(self._refuse, partial(self._inner, names=names), self._refuse)
        binder = InnerBinder(self._source, select, sides.home, visits, outer)
        conditions = [*sides.home.conjuncts, *sides.conditions(binder, self._source)]
        if any(condition.relations for condition in conditions) or sides.relations:
            raise self._refused(select)
        made = UnitGroup(self._tables, (outer, around), (binder, table), conditions)
        where = select.args.get("where")
        for part in conjuncts(where.this) if where is not None else ():
            if id(part) not in sides.used:
                made.condition(part)
        return made

    def _check_bounded(self, table: Table, at: Expr) -> None:
        """Refuse rows of several tables that meet, of which nothing says how many count."""
        if combination_of(table) is not None and not table.is_bounded:
            raise self._source.located(self._tables.unbounded(table), at)

    def _grain(self, table: Table, at: Expr) -> Table:
        try:
            return self._tables.grain(table)
        except SchemaError as error:
            raise self._source.located(error, at) from None

    def _refuse(self, node: Expr, outer: object) -> Expr:
        raise self._refused(node)

    def _refused(self, node: Expr) -> SqlError:
        return self._source.unsupported(
            node, "A subquery over private rows is not supported here.", _HINT
        )


def _tells(table: Table) -> set[tuple[tuple[str, ...], str]]:
    """Return the keys of rows, of which those that refer to one are of the same unit."""
    return keys_referred(table) | own_unit(table)


def _select(node: Expr) -> exp.Select | None:
    """Return the SELECT of EXISTS, of IN or of a subquery; None if it is another query."""
    found: object = node
    if isinstance(node, exp.In):
        found = node.args.get("query")
    elif isinstance(node, exp.Exists):
        found = node.this
    while isinstance(found, exp.Subquery):
        found = found.this
    return found if isinstance(found, exp.Select) else None
