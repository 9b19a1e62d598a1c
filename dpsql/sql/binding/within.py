"""Subqueries over rows of the same unit: each is a column of the rows that are counted.

    SELECT region, COUNT(*) FROM customers c
    WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.price > 7) GROUP BY region

counts customers, and whether one has such an order is a column of the customer, as
`rows/within.py` says. Here it is found out which rows are meant. A subquery must say that its rows
are of the unit of the row that it is for: by an equality of columns that refer to the same row, or
of which one is that row's key. So they are rows of one unit if those that refer to each other are.
Where a FOREIGN KEY leads to rows of another unit, these are left out, as everywhere.

What else a subquery says is about its own rows. `x IN (SELECT y …)` is EXISTS with x = y, where
neither is ever NULL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import InternalError, SchemaError, SqlError, SqlSchemaError
from dpsql.schema import Table
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    column,
    conjuncts,
    has_aggregate,
    is_aggregate,
    rebuild,
    render,
)
from dpsql.sql.binding.grains import is_filled, keys_referred, rows_told, stored_place
from dpsql.sql.binding.items import Names, PrivateItems
from dpsql.sql.binding.joins import JoinedItem, joins_of
from dpsql.sql.binding.private_sides import PrivateSides
from dpsql.sql.binding.tables import NamedTables, UnitRows
from dpsql.sql.text.spans import SourceText

Sides = Callable[[exp.Select, list[JoinedItem], Names], PrivateSides]
"""Finds out what the private items of a SELECT are."""
_AGGREGATES: dict[type, str] = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}
_MORE = ("group", "having", "distinct", "limit", "offset", "qualify", "laterals")
"""Clauses that a subquery over rows of one unit can't have."""
_HINT = (
    "say whose rows they are, WHERE o.customer_id = c.id, in EXISTS (…), in x IN (…), or in a "
    "subquery with COUNT, SUM, MIN or MAX of its rows; noisy answers can be used in HAVING and "
    "around the statement."
)

_NESTED = "write the tables after FROM, joined ON what refers to what."


class RowsOfUnit:
    """Binds the subqueries of one statement that are over rows of the same unit.

    Args:
        source: its text.
        items: tells items after FROM apart.
        tables: what the names of tables mean.
        sides: finds out what the private items of a SELECT are.
    """

    def __init__(
        self, source: SourceText, items: PrivateItems, tables: NamedTables, sides: Sides
    ) -> None:
        self._source = source
        self._items = items
        self._tables = tables
        self._sides = sides

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
        self._check_clauses(node, select, joins, private)
        inside = self._inside(select, private, names, binder)
        if isinstance(node, exp.Exists):
            return inside.column("exists", None, node)
        if isinstance(node, exp.In):
            inside.pair(node.this, select.expressions[0], node)
            return inside.column("exists", None, node)
        return inside.value(select.expressions[0].unalias(), node)

    def refer(self, private: Sequence[JoinedItem], names: Names) -> bool:
        """Whether rows of some private items refer to private rows of the same unit."""
        items = [self._items.base(join.item, names) for join in private]
        return self._refer([self._items.table(item)[0] for item in items], items[0])

    def _refer(self, tables: Sequence[Table], at: Expr) -> bool:
        return any(self._grain(table, at).parents for table in tables)

    def _check_clauses(
        self,
        node: Expr,
        select: exp.Select,
        joins: Sequence[JoinedItem],
        private: Sequence[JoinedItem],
    ) -> None:
        """Refuse what isn't said of rows of one unit alone."""
        shown, exists = select.expressions, isinstance(node, exp.Exists)
        aggregated = any(map(has_aggregate, shown)) and isinstance(node, exp.Exists | exp.In)
        more = any(select.args.get(key) for key in _MORE)
        kinds = {join.kind for join in joins} - {"inner", "semi"}
        public = len(private) < len(joins)
        if more or kinds or public or aggregated or not (exists or len(shown) == 1):
            raise self._refused(node)

    def _inside(
        self, select: exp.Select, private: list[JoinedItem], names: Names, outer: RowBinder
    ) -> _Inside:
        sides = self._sides(select, private, names)
        table, around = (self._grain(one, select) for one in (sides.home.table, outer.table))
        binder = RowBinder(self._source, select, sides.home, _NO_MORE)
        conditions = [*sides.home.conjuncts, *sides.conditions(binder, self._source)]
        if any(condition.relations for condition in conditions) or sides.relations:
            raise self._refused(select)
        made = _Inside(self._tables, (outer, around), (binder, table), conditions)
        where = select.args.get("where")
        for part in conjuncts(where.this) if where is not None else ():
            if id(part) not in sides.used:
                made.condition(part)
        return made

    def _grain(self, table: Table, at: Expr) -> Table:
        try:
            return self._tables.grain(table)
        except SchemaError as error:
            raise self._source.located(error, at) from None

    def _refused(self, node: Expr) -> SqlError:
        return self._source.unsupported(
            node, "A subquery over private rows is not supported here.", _HINT
        )


class _Inside:
    """One subquery over rows of the same unit."""

    def __init__(
        self,
        tables: NamedTables,
        around: tuple[RowBinder, Table],
        inside: tuple[RowBinder, Table],
        conditions: list[BoundExpr],
    ) -> None:
        self._tables, self._conditions = tables, conditions
        self._outer, self._around = around
        self._binder, self._table = inside
        self._source = self._binder.source
        self._pairs: list[tuple[str, str]] = []

    def condition(self, part: Expr) -> None:
        """Take a condition of the subquery: on its rows, or that they are of the same unit."""
        node = part.unnest()
        if isinstance(node, exp.EQ):
            for own, other in ((node.this, node.expression), (node.expression, node.this)):
                named = isinstance(other.unnest(), exp.Column)
                if named and self._owns(own) and not self._owns(other):
                    self.pair(other, own, part)
                    return
        self._conditions.append(self._bound(part))

    def pair(self, outer: Expr, inner: Expr, at: Expr) -> None:
        """Take an equality of a column from outside and one of the subquery.

        Raises:
            UnsupportedSqlError: they don't refer to the same row; or, in IN, may be NULL.
        """
        ours = stored_place(outer, self._outer.scope)
        theirs = stored_place(inner, self._binder.scope)
        if ours is None or theirs is None:
            raise self._not_theirs(at)
        known = keys_referred(self._around) | keys_referred(self._table)
        met = rows_told(self._around, ours) & rows_told(self._table, theirs) & known
        if not met:
            raise self._not_theirs(at)
        if isinstance(at, exp.In) and not (
            is_filled(self._around, ours) and is_filled(self._table, theirs)
        ):
            raise self._source.unsupported(
                at,
                "IN is not supported here: a NULL may be among what is compared.",
                "use EXISTS (SELECT 1 … WHERE … = …).",
            )
        self._pairs.append((ours, theirs))

    def value(self, node: Expr, at: Expr) -> BoundExpr:
        """Bind what a subquery returns: aggregates of its rows, and what is computed of them."""
        found: list[BoundExpr] = []

        def change(part: Expr) -> Expr:
            if is_aggregate(part):
                found.append(self._aggregate(part))
                return exp.Paren(this=found[-1].node.copy())
            if isinstance(part, exp.Column | exp.Query | exp.Window | exp.Star):
                raise self._not_computed(part)
            return rebuild(part, change)

        made = change(node)
        if not found:
            raise self._not_computed(node)
        by_row = frozenset[str]().union(*(one.by_row for one in found))
        span = self._source.node(at)
        return BoundExpr(made, render(made), frozenset(), frozenset(), span, by_row)

    def _aggregate(self, node: Expr) -> BoundExpr:
        inner, filters = node, list[Expr]()
        if isinstance(node, exp.Filter):
            inner, filters = node.this, [node.expression.this]
        function = _AGGREGATES.get(type(inner))
        if (
            function is None
            or inner.expressions
            or isinstance(inner.this, exp.Distinct | exp.Order)
        ):
            raise self._not_computed(node)
        argument = None if isinstance(inner.this, exp.Star) else inner.this
        return self.column(function, argument, node, filters)

    def column(
        self, function: str, argument: Expr | None, at: Expr, filters: Sequence[Expr] = ()
    ) -> BoundExpr:
        """Return the column that an aggregate of the rows is, or that there are some."""
        if not self._pairs:
            raise self._not_theirs(at)
        value = None if argument is None else self._bound(argument)
        filtered = (self._bound(part) for each in filters for part in conjuncts(each))
        conditions = tuple(dict.fromkeys([*self._conditions, *filtered]))
        pairs = tuple(sorted(set(self._pairs)))
        span = self._source.node(at)
        name = _name(self._table, function, value, conditions, pairs)
        rows = UnitRows(name, self._table, pairs, function, value, conditions, span, self._source)
        place = self._tables.add_rows(self._around, rows)
        made = column(f"__w{place}")
        made.meta.update(start=span.start, end=span.end - 1)
        return BoundExpr(made, render(made), frozenset(), frozenset(), span, frozenset({name}))

    def _owns(self, node: Expr) -> bool:
        """Whether an expression is a column of the subquery."""
        inner = node.unnest()
        if not isinstance(inner, exp.Column):
            return False
        try:
            self._binder.scope.resolve(inner, by_row=True)
        except SqlSchemaError as error:
            if error.unknown:
                return False
            raise
        return True

    def _bound(self, node: Expr) -> BoundExpr:
        """Bind an expression over the subquery's own columns."""
        nested = node.find(exp.Query)
        if nested is not None:
            raise self._source.unsupported(
                nested, "A subquery inside of one over private rows is not supported.", _NESTED
            )
        for part in node.find_all(exp.Column):
            if not self._owns(part) and stored_place(part, self._outer.scope) is not None:
                raise self._source.unsupported(
                    part,
                    "In a subquery over private rows, this column of the row that it is for can "
                    "only be equal to one that refers to the same row.",
                    "compare columns of the subquery's own tables, or join them.",
                )
        return self._binder.bind(node)

    def _not_theirs(self, at: Expr) -> SqlError:
        steps = [
            f"{self._table.name}.{p.join.column} = {p.table.name}.{p.join.key}"
            for p in self._table.parents
            if not p.above
        ]
        hint = f"for example {steps[0]}." if steps else "private tables are met by FOREIGN KEYs."
        return self._source.unsupported(
            at,
            "A subquery over private rows must say that they refer to the same row as the one that "
            "it is for: rows of different units could meet.",
            hint,
        )

    def _not_computed(self, at: Expr) -> SqlError:
        return self._source.unsupported(
            at,
            "This can't be computed of the rows of one unit.",
            "use COUNT, SUM, MIN or MAX of the subquery's rows, and functions of these.",
        )


def _no_others(node: Expr, outer: object) -> Expr:
    """Refuse what was to be refused before."""
    raise InternalError("a subquery inside of one over private rows")


def _no_rows(node: Expr, binder: RowBinder) -> None:
    """Know of no rows of the same unit."""


_NO_MORE = Visits(_no_others, _no_rows, _no_others)


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


def _name(
    table: Table,
    function: str,
    value: BoundExpr | None,
    conditions: Sequence[BoundExpr],
    pairs: Sequence[tuple[str, str]],
) -> str:
    """Name a column by what it is, in full: equal names are equal columns, in every release."""
    names = {f"__a{i}": name for i, name in enumerate(table.columns)}
    names |= {f"__w{i}": name for i, name in enumerate(table.undeclared)}
    types = {n: repr(d) for n, d in table.columns.items()} | dict(table.undeclared)

    def written(bound: BoundExpr) -> str:
        found = bound.node.copy()
        read = [part for part in found.find_all(exp.Column) if part.name in names]
        for part in read:
            part.set("this", exp.to_identifier(names[part.name], quoted=True))
        return render(found)

    read = {name for one in conditions for name in (*one.attributes, *one.by_row)}
    read |= set() if value is None else {*value.attributes, *value.by_row}
    steps = [(p.above, p.join, p.on_way) for p in table.parents]
    unit = None if table.unit is None else (table.unit.column, table.unit.joins)
    text = repr(
        (
            table.path[1:],
            unit,
            steps,
            sorted((name, types[name]) for name in read),
            None if value is None else written(value),
            sorted(map(written, conditions)),
            list(pairs),
        )
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return f"{function} of {table.name} {digest}"
