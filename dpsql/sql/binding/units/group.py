"""The rows of the same unit that one query looks at, and what it computes from them.

They are the rows in which a column equals a column of the row that they are for, where both refer
to the same row: see `within.py`. Each thing that is computed is a column of that row, and its name
says all that it depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp

from dpsql.errors import Span, SqlError
from dpsql.hints import ask
from dpsql.schema import Table
from dpsql.schema.sequences import FLOATS
from dpsql.schema.windows import OUTSIDE
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    column,
    conjuncts,
    is_aggregate,
    rebuild,
    render,
)
from dpsql.sql.binding.private.grains import (
    are_ids,
    is_filled,
    keys_referred,
    own_unit,
    owners,
    rows_told,
)
from dpsql.sql.binding.scope import stored_place
from dpsql.sql.binding.tables import AROUND, NamedTables, UnitRows
from dpsql.sql.binding.units.inner import InnerBinder

AGGREGATES: dict[type, str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}
"""Aggregates of a unit's rows → what `rows/within.py` calls them."""
SUMS = frozenset({"sum", "avg"})
"""Aggregates of them that add numbers up."""


class UnitGroup:
    """Rows of the unit of the row that they are for, and what is computed of them."""

    def __init__(
        self,
        tables: NamedTables,
        around: tuple[RowBinder, Table],
        inside: tuple[InnerBinder, Table],
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
                named = isinstance(own.unnest(), exp.Column) and isinstance(
                    other.unnest(), exp.Column
                )
                if named and self._owns(own) and not self._owns(other) and self.tells(other, own):
                    self.pair(other, own, part)
                    return
        self._conditions.append(self._binder.bind(part))

    def pair(self, outer: Expr, inner: Expr, at: Expr) -> None:
        """Take an equality of a column from outside and one of the subquery.

        Raises:
            UnsupportedSqlError: they don't refer to the same row; or, in IN, may be NULL.
        """
        met = self._met(outer, inner)
        if met is None:
            raise self._not_theirs(at)
        ours, theirs = met
        if isinstance(at, exp.In) and not (
            is_filled(self._around, ours) and is_filled(self._table, theirs)
        ):
            raise self._source.unsupported(
                at,
                "IN is not supported here, as one of the compared values may be NULL.",
                "use EXISTS (SELECT 1 … WHERE … = …).",
            )
        self._pairs.append((ours, theirs))

    def tells(self, outer: Expr, inner: Expr) -> bool:
        """Whether rows are of the same unit if these columns of theirs are equal."""
        return self._met(outer, inner) is not None

    def _met(self, outer: Expr, inner: Expr) -> tuple[str, str] | None:
        """Return the names of two columns that refer to the same row if they are equal."""
        ours = stored_place(outer, self._outer.scope)
        theirs = stored_place(inner, self._binder.scope)
        if ours is None or theirs is None:
            return None
        return (ours, theirs) if self._are_alike(ours, theirs) else None

    def _are_alike(self, ours: str, theirs: str) -> bool:
        """Whether a column of the row outside and one of the rows tell the same row.

        Or the same unit, of which there need not be a row: tables of the same units are met here.
        """
        if are_ids(self._around, ours, self._table, theirs):
            return True
        known = keys_referred(self._around) | keys_referred(self._table)
        known |= own_unit(self._around) & own_unit(self._table)
        told = rows_told(self._around, ours), rows_told(self._table, theirs)
        return not known.isdisjoint(told[0].keys() & told[1].keys())

    def value(self, node: Expr, at: Expr) -> BoundExpr:
        """Bind what a query of the rows returns: aggregates, and what is computed of them.

        Columns of a GROUP BY are those of the row that it is for.
        """
        found: list[BoundExpr] = []

        def change(part: Expr) -> Expr:
            if is_aggregate(part):
                found.append(self._aggregate(part))
            elif isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
                found.append(self._key(part))
            elif isinstance(part, exp.Column | exp.Query | exp.Window | exp.Star):
                raise self._not_computed(part)
            else:
                return rebuild(part, change)
            return _inner(found[-1].node)

        made = change(node.unnest()).unnest()
        if not found:
            raise self._not_computed(node)
        return joined_bound(made, found, self._source.node(at))

    def check_tied(self, at: Expr) -> None:
        """Refuse a number of all rows, which says nothing of the row that it is for.

        Raises:
            UnsupportedSqlError: it is one.
        """
        named = [part.name for c in self._conditions for part in c.node.find_all(exp.Column)]
        if not self._pairs and not any(name.startswith(AROUND) for name in named):
            raise self._of_all(at)

    def determines(self, node: Expr) -> bool:
        """Whether all rows have the same value of a column, which is that of the row outside."""
        name = stored_place(node, self._binder.scope)
        return name is not None and self._outside(name) is not None

    def _key(self, node: exp.Column) -> BoundExpr:
        """Return the column of the row outside that is equal to one by which rows are grouped."""
        name = stored_place(node, self._binder.scope) if self._owns(node) else None
        ours = None if name is None else self._outside(name)
        if ours is None:
            raise self._not_computed(node)
        return self._column_around(ours, node)

    def _outside(self, name: str) -> str | None:
        """Return the column of the row outside that is the same as one of all rows; None if none.

        It is one of those that are equal; or it is of a row that they tell, by a key of which no
        two rows have the same value.
        """
        unique = keys_referred(self._around) | keys_referred(self._table)
        for ours, theirs in self._pairs:
            if theirs == name:
                return ours
            around, inside = rows_told(self._around, ours), rows_told(self._table, theirs)
            for row in unique.intersection(around, inside):
                for before, path, own in owners(self._table, name):
                    found = around[row] + own
                    known = found in self._around.columns or found in self._around.undeclared
                    if (before, path) == (inside[row], row[0]) and known:
                        return found
        return None

    def _column_around(self, name: str, at: Expr) -> BoundExpr:
        """Refer to a column of the row outside."""
        listed, by_row = self._around.columns, name not in self._around.columns
        place = list(self._around.undeclared if by_row else listed).index(name)
        made = column(f"__{'w' if by_row else 'a'}{place}")
        span, own = self._source.node(at), frozenset({name})
        made.meta.update(start=span.start, end=span.end - 1)
        kinds = (frozenset[str](), own) if by_row else (own, frozenset[str]())
        return BoundExpr(made, render(made), kinds[0], frozenset(), span, kinds[1])

    def _aggregate(self, node: Expr) -> BoundExpr:
        inner, filters = node, list[Expr]()
        if isinstance(node, exp.Filter):
            inner, filters = node.this, [node.expression.this]
        function, of = AGGREGATES.get(type(inner)), inner.this
        differing = isinstance(of, exp.Distinct) and len(of.expressions) == 1
        if function == "count" and differing:
            return self.column("count_distinct", of.expressions[0], node, filters)
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
        value = None if argument is None else self._binder.bind(argument)
        filtered = (self._binder.bind(part) for each in filters for part in conjuncts(each))
        conditions = tuple(dict.fromkeys([*self._conditions, *filtered]))
        pairs = tuple(sorted(set(self._pairs)))
        span = self._source.node(at)
        name = self._name(function, value, conditions, pairs)
        place = self._tables.add_rows(
            UnitRows(
                name,
                self._table,
                self._around,
                pairs,
                function,
                value,
                conditions,
                span,
                self._source,
            )
        )
        made = column(f"__w{place}")
        made.meta.update(start=span.start, end=span.end - 1)
        return BoundExpr(made, render(made), frozenset(), frozenset(), span, frozenset({name}))

    def _name(
        self,
        function: str,
        value: BoundExpr | None,
        conditions: Sequence[BoundExpr],
        pairs: Sequence[tuple[str, str]],
    ) -> str:
        """Name a column by what it is, in full: equal names are equal columns, in every release."""
        within = (self._tables.names_of_rows(table) for table in (self._table, self._around))
        inside, around = (
            canonical_names(table, names, before)
            for table, names, before in zip(
                (self._table, self._around), within, ("__", AROUND), strict=True
            )
        )
        names = inside | {name: OUTSIDE + of for name, of in around.items()}
        bound = [*conditions, *([] if value is None else [value])]
        read = {part.name for one in bound for part in one.node.find_all(exp.Column)}

        def written(bound: BoundExpr) -> str:
            found = bound.node.copy()
            for part in [part for part in found.find_all(exp.Column) if part.name in names]:
                part.set("this", exp.to_identifier(names[part.name], quoted=True))
            return render(found)

        parts = [
            *described(self._table, inside, read),
            None if value is None else written(value),
            sorted(map(written, conditions)),
            list(pairs),
        ]
        parts += [] if read.isdisjoint(around) else [described(self._around, around, read)]
        added = set() if value is None else {c.name for c in value.node.find_all(exp.Column)}
        parts += bounds_of_sum(function, self._table, inside, added)
        parts += bounds_of_sum(function, self._around, around, added)
        text = repr(tuple(parts))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return f"{function} of {self._table.name} {digest}"

    def _owns(self, node: Expr) -> bool:
        """Whether an expression is a column of the subquery."""
        inner = node.unnest()
        return isinstance(inner, exp.Column) and self._binder.owns(inner)

    def _not_theirs(self, at: Expr) -> SqlError:
        equal = next(self._equalities(), None)
        hint = "private tables are joined by FOREIGN KEYs."
        if equal is not None:
            ours, theirs = equal
            hint = f"say so by {self._binder.alias}.{theirs} = {self._outer.alias}.{ours}."
        return self._source.unsupported(
            at,
            "A subquery over private rows must be limited to rows that refer to the same row as "
            "the one outside; otherwise rows of different units could be combined.",
            hint,
        )

    def _equalities(self) -> Iterator[tuple[str, str]]:
        """Return columns of the row outside and of the rows that refer to the same row.

        Those on the way to the unit come first: others may lead to rows of other units.
        """
        around, inside = map(_own_columns, (self._around, self._table))
        pairs = ((ours, theirs) for theirs in inside for ours in around)
        return (pair for pair in pairs if self._are_alike(*pair))

    def _of_all(self, at: Expr) -> SqlError:
        return self._source.unsupported(
            at,
            "This is computed from the rows of all units, so the rows of one could decide which "
            "rows of others count.",
            "limit it to rows of the same unit, WHERE o.customer_id = c.id; or release it first, "
            + ask(_alone(self._source.text(self._source.node(at))))
            + ", and write the result here.",
        )

    def _not_computed(self, at: Expr) -> SqlError:
        return self._source.unsupported(
            at,
            "This can't be computed from the rows of one unit.",
            "use COUNT, SUM, AVG, MIN, MAX, BOOL_AND or BOOL_OR of the subquery's rows, and "
            "functions of these; MIN in place of ANY_VALUE.",
        )


def _alone(text: str) -> str:
    """Return a query in parentheses without these."""
    return text[1:-1].strip() if text.startswith("(") and text.endswith(")") else text


def _own_columns(table: Table) -> list[str]:
    """Return the columns that are stored in a table, those on the way to its unit first."""
    names = [name for name in (*table.undeclared, *table.columns) if name not in table.joined]
    way = {name for p in table.parents if p.on_way and not p.above for name in p.join.columns}
    return sorted(names, key=lambda name: name not in way)


def joined_bound(node: Expr, parts: Sequence[BoundExpr], span: Span) -> BoundExpr:
    """Return an expression that is made of some bound ones."""
    return BoundExpr(
        node,
        render(node),
        frozenset[str]().union(*(part.attributes for part in parts)),
        frozenset[int]().union(*(part.relations for part in parts)),
        span,
        frozenset[str]().union(*(part.by_row for part in parts)),
    )


def _inner(node: Expr) -> Expr:
    """Copy an expression to stand within another one."""
    return node.copy() if isinstance(node, exp.Column) else exp.Paren(this=node.copy())


def described(table: Table, names: Mapping[str, str], read: Collection[str]) -> tuple[object, ...]:
    """Return what is said of a table where some of its columns are read."""
    types = {n: repr(d) for n, d in table.columns.items()} | dict(table.undeclared)
    steps = [(p.above, p.join, p.on_way) for p in table.parents]
    own = table.unit
    further = () if own is None or not own.further else (own.further,)
    unit = None if own is None else (own.column, own.joins, *further)
    named = sorted(names[name] for name in read if name in names)
    # What is computed of other rows has all that it depends on in its name.
    return table.path[1:], unit, steps, [(name, types.get(name)) for name in named]


def bounds_of_sum(
    function: str, table: Table, names: Mapping[str, str], read: Collection[str]
) -> list[object]:
    """Return what a sum of doubles depends on besides: the bounds that its steps follow from."""
    types = {n: d.column_type or d.type for n, d in table.columns.items()} | dict(table.undeclared)
    named = sorted(names[name] for name in read if name in names)
    computed = [name for name in named if name not in types]
    floats = [name for name in named if types.get(name) in FLOATS]
    if function not in SUMS or not (computed or floats):
        return []
    most = table.unit.max_rows if computed and table.unit is not None else None
    bounds = [(n, str(table.bounds[n])) for n in named if n in table.bounds]
    return [(bounds, most)] if bounds or most is not None else []


def canonical_names(table: Table, within: Sequence[str], before: str = "__") -> dict[str, str]:
    """Return the canonical names of a table's columns, and what they are called."""
    names = {f"{before}a{i}": name for i, name in enumerate(table.columns)}
    return names | {f"{before}w{i}": n for i, n in enumerate([*table.undeclared, *within])}
