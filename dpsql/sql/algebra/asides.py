"""Subqueries for a row: each is a column of it, an aggregate of the rows of its unit that it meets.

    WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.price > 7)

adds to each customer whether one of its orders is of that kind. Conditions over the subquery's own
rows are conditions on these; what else is said of both is what makes them meet, and it has to say
that they are of one unit. That does for EXISTS, for IN, for SEMI and ANTI joins and for subqueries
with one value, which are the classical cases of decorrelation (Neumann and Kemper, BTW 2015): a
subquery that is of a row alone needs no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError, printable
from dpsql.hints import ask
from dpsql.rel.nodes import Agg, Filter, GroupJoin, Id, Join
from dpsql.rows.expression import RowExpression, all_if_any, all_of, same_value
from dpsql.schema import Domain
from dpsql.schema.names import folded
from dpsql.sql.algebra.declared import equal_values
from dpsql.sql.algebra.described import (
    DescribedRelation,
    NewColumn,
    check_read,
    equated_columns,
    joined,
    with_columns,
)
from dpsql.sql.algebra.projections import projected
from dpsql.sql.algebra.selects import RowsOfSelect
from dpsql.sql.algebra.unit_sums import without_steps
from dpsql.sql.algebra.visible import made_column, made_value, telling_equality
from dpsql.sql.binding.canonical import id_of, moved
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    has_aggregate,
    is_aggregate,
    joined_bound,
    paren,
    with_parts,
)
from dpsql.sql.binding.row_queries import column_name
from dpsql.sql.binding.scope import VisibleItem

_APART = ("group", "having", "distinct", "qualify", "with_", "limit", "offset")
"""Clauses with which a query has rows of its own, whatever row it is for."""


def with_exists(rows: RowsOfSelect, right: DescribedRelation, on: RowExpression | None) -> Expr:
    """Add whether a row meets one of some others; return the column."""
    id_ = rows.queries.fresh("exists")
    relation = GroupJoin(rows.of.relation, right.relation, on, ((id_, Agg("exists")),))
    new = NewColumn(id_, "BOOLEAN", nullable=False, domain=Domain.boolean())
    made = with_columns(rows.of, relation, [new])
    rows.become(replace(made, read=(*made.read, *right.read)))
    return made_column(id_, rows.source.node(rows.select))


def aside(rows: RowsOfSelect, node: Expr) -> Expr:
    """Add what a subquery over private rows is for each row; return it over the relation.

    Raises:
        SqlError: it isn't of the row's own unit.
    """
    query = node.args["query"] if isinstance(node, exp.In) else node.this
    while isinstance(query, exp.Subquery):
        query = query.this
    try:
        other = _Aside(rows, node, query)
    except UnsupportedSqlError as error:  # as for a LIMIT: its answers may be released
        if isinstance(node, exp.In) and error.value is None:
            raise rows.queries.public_values.released(error, node, rows.names) from None
        raise
    if isinstance(node, exp.Exists):
        return other.exists()
    return other.among(node) if isinstance(node, exp.In) else other.value()


class _Aside:
    """One subquery for a row."""

    def __init__(self, rows: RowsOfSelect, node: Expr, query: Expr) -> None:
        self._rows, self._node, self._query = rows, node, query
        self._source, self._queries = rows.source, rows.queries
        self._items: list[Expr] = []
        self._inner: RowsOfSelect = self._translated(query)
        self._check_windows()
        if not isinstance(node, exp.Exists):  # now, as this adds columns, and moves others
            self._items = [self._inner.prepared(item) for item in self._items]
        own, met = list[BoundExpr](), list[BoundExpr]()
        outside = set(rows.of.columns)
        for one in self._inner.where:
            (met if outside & (one.attributes | one.by_row) else own).append(one)
        self._met, self._tied = met, bool(met)
        if any(one.relations for one in own):  # public columns from outside
            self._tied = True
            raise self._refused()
        where = self._inner.holds(own)
        of = self._inner.of
        self._right = of if where is None else of.over(Filter(of.relation, where))

    def _translated(self, query: Expr) -> RowsOfSelect:
        rows, queries = self._rows, self._queries
        apart = not isinstance(query, exp.Select) or any(query.args.get(key) for key in _APART)
        if not apart and isinstance(query, exp.Select):
            self._items = [item.unalias() for item in query.expressions]
            return queries.select(query, rows.names, rows)
        select = query if isinstance(query, exp.Select) else query.find(exp.Select)
        if not isinstance(select, exp.Select):
            raise self._source.unsupported(query, "This is no query of rows.", "write SELECT.")
        self._check_apart(select)
        found = queries.rows(query, rows.names)
        alone = RowsOfSelect(queries, select, rows.names)
        alone.become(found.of)
        of, columns = projected(found, alone)
        inner = RowsOfSelect(queries, exp.Select(expressions=[]), rows.names, rows)
        inner.select.meta.update(select.meta)
        inner.become(of)
        inner.items = (VisibleItem("", (), columns),)
        self._items = [exp.Column(this=exp.Identifier(this=c.name, quoted=True)) for c in columns]
        return inner

    def _check_windows(self) -> None:
        """Refuse windows over the rows that one row meets: they would look at others as well."""
        outside = set(self._rows.of.columns)
        tied = any(outside & (one.attributes | one.by_row) for one in self._inner.where)
        windows = [found for item in self._items for found in item.find_all(exp.Window)]
        if windows and (tied or isinstance(self._node, exp.Subquery)):
            raise self._source.unsupported(
                windows[0],
                "This can't be computed from the rows of one unit.",
                "use COUNT, SUM, AVG, MIN, MAX, BOOL_AND or BOOL_OR of the subquery's rows; or "
                "compute the window in a query after its FROM.",
            )

    def _check_apart(self, select: exp.Select) -> None:
        """Refuse columns of the row outside in a query that has rows of its own."""
        around = {folded(item.alias) for item in self._rows.items}
        around -= {folded(table.alias_or_name) for table in select.find_all(exp.Table)}
        outside = [c for c in select.find_all(exp.Column) if folded(c.table) in around]
        if outside:
            raise self._source.unsupported(
                outside[0],
                "A subquery with UNION, GROUP BY, HAVING, DISTINCT, QUALIFY, LIMIT or WITH has the "
                "same rows whatever row it is for, so it can't use columns from outside.",
                "compare what it returns: c.id IN (SELECT o.customer_id FROM … GROUP BY …).",
            )

    def _refused(self) -> UnsupportedSqlError:
        """Refuse rows of all units; propose an equality by which they are of one."""
        error = self._source.unsupported(
            self._node,
            "This is computed from the rows of all units, so the rows of one could decide which "
            "rows of others count.",
            self._limited() + self._released(),
        )
        return self._queries.public_values.released(error, self._node, self._rows.names)

    def _limited(self) -> str:
        """Write by which condition rows are of the unit of the row outside."""
        around, inner = self._rows, self._inner
        written = (
            telling_equality(around.items, around.of, item, inner.of) for item in inner.items
        )
        known = next((one for one in written if one is not None), "o.customer_id = c.id")
        return f"limit it to rows of the same unit, WHERE {printable(known)}"

    def _released(self) -> str:
        """Write how a number of all rows is released by itself."""
        if not isinstance(self._node, exp.Subquery) or self._tied:
            return "."
        query = self._source.text(self._source.node(self._node)).strip()
        alone = query[1:-1].strip() if query.startswith("(") and query.endswith(")") else query
        return "; or release it first, " + ask(alone) + ", and write the result here."

    def _on(self, further: Sequence[BoundExpr] = (), *, told: bool = False) -> list[RowExpression]:
        """Return the conditions of the join; one of them must say that rows are of one unit."""
        found = [*self._met, *further]
        pairs = [self._pair(one) for one in found]
        rows, right, loose = self._rows.of, self._right, self._queries.loose
        telling = [pair for pair in pairs if pair and rows.telling(*pair, right)]
        if telling and all(a in loose or b in loose for a, b in telling):
            self._queries.rely_on(telling[0])
        if not (told or telling or rows.are_equal(right, pairs)):
            raise self._refused()
        on = list[RowExpression]()
        for one, pair in zip(found, pairs, strict=True):
            on += self._inner.said(one) if pair is None else [same_value(*pair)]
        return [*on, *equal_values(rows, right, [pair for pair in pairs if pair])]

    def _pair(self, bound: BoundExpr) -> tuple[Id, Id] | None:
        """Return the columns outside and inside that a condition says are equal."""
        pair = equated_columns(bound, self._inner.table(), self._rows.of, self._inner.of)
        if pair is not None:
            check_read(bound, self._inner.table(), self._source)
        return pair

    def exists(self) -> Expr:
        """Add whether there are rows."""
        if any(has_aggregate(item, windows=False) for item in self._items):
            raise self._source.unsupported(
                self._node,
                "Without GROUP BY, an aggregate returns a row also where there are none, so this "
                "is always true.",
                "leave the aggregate out: EXISTS (SELECT 1 FROM … WHERE …).",
            )
        on = self._on()
        return with_exists(self._rows, self._right, all_if_any(on))

    def among(self, node: exp.In) -> Expr:
        """Add whether a value, or several in brackets, are equal to those of one of the rows."""
        given = node.this.unnest()
        values = given.expressions if isinstance(given, exp.Tuple) else [node.this]
        if len(self._items) != len(values):
            raise self._source.unsupported(
                node,
                "IN compares as many values as the subquery has columns.",
                f"select {len(values)}." if len(values) > 1 else "select one.",
            )
        equal = [self._equal(*pair, node) for pair in zip(values, self._items, strict=True)]
        return with_exists(self._rows, self._right, all_of(self._on(equal)))

    def _equal(self, given: Expr, item: Expr, node: exp.In) -> BoundExpr:
        """Bind the condition that a value is equal to a column of the rows."""
        value, theirs = self._rows.bind(given), self._inner.bind(item)
        table = self._inner.table()
        ours = moved(value, self._rows.table(), table)
        equal = exp.EQ(this=paren(ours.node), expression=paren(theirs.node))
        plain = id_of(ours, table) in table.filled and id_of(theirs, table) in table.filled
        if not plain and not _is_positive(node):
            raise self._source.unsupported(
                node,
                "IN of values that may be NULL is neither true nor false here.",
                "write EXISTS, or NOT EXISTS: WHERE NOT EXISTS (SELECT 1 FROM … WHERE o.a = c.a).",
            )
        return joined_bound(equal, [ours, theirs], self._source.node(node))

    def value(self) -> Expr:
        """Add one value: aggregates of the rows, or what the only one of them has."""
        if len(self._items) != 1:
            raise self._source.unsupported(self._node, "This returns several columns.", "list one.")
        (item,) = self._items
        if not has_aggregate(item):
            return self._only(item)
        adds, added = list[tuple[Id, Agg]](), list[NewColumn]()
        on = self._on()
        shown = self._aggregated(item, adds, added)
        rows, right = self._rows, self._right
        relation = GroupJoin(rows.of.relation, right.relation, all_if_any(on), tuple(adds))
        facts = [self._queries.fact(relation, one.id) for one in added]
        added = [one.column(one.id, *fact) for one, fact in zip(added, facts, strict=True)]
        made = with_columns(rows.of, relation, added)
        rows.become(replace(made, read=(*made.read, *right.read)))
        return exp.Paren(this=rows.prepared(shown))

    def _aggregated(self, node: Expr, adds: list[tuple[Id, Agg]], added: list[NewColumn]) -> Expr:
        """Write columns in place of aggregates."""
        if is_aggregate(node):
            agg, new, scale = self._inner.aggregate(node)
            id_ = self._queries.fresh(column_name(node, self._source))
            adds.append((id_, agg))
            added.append(replace(new, id=id_))
            made = made_value(agg.function, id_, self._source.node(node))
            return without_steps(made, scale)
        return with_parts(node, lambda part: self._aggregated(part, adds, added))

    def _only(self, item: Expr) -> Expr:
        """Join the subquery's row, of which there is at most one, and return its value."""
        on, rows, right = self._on(), self._rows, self._right
        pairs = [self._pair(one) for one in self._met]
        facts = self._queries.known.of(right.relation)
        if None in pairs or not facts.is_unique(pair[1] for pair in pairs if pair):
            raise self._source.unsupported(
                self._node,
                "This subquery may return several rows for one.",
                "aggregate it: MIN(…), MAX(…), COUNT(*).",
            )
        bound = self._inner.bind(item)
        if not isinstance(bound.node.unnest(), exp.Column):
            raise self._source.unsupported(
                self._node, "This subquery has to return a column.", "compute with it outside."
            )
        id_ = id_of(bound, self._inner.table())
        relation = Join(rows.of.relation, right.relation, all_of(on), "left")
        counted = rows.of.counted
        rows.become(joined(relation, rows.of, right, rows.of.most, counted, lost=True, once=True))
        return made_column(str(id_), self._source.node(self._node))


def _is_positive(node: Expr) -> bool:
    """Whether a condition leaves the same rows out if it is false as if it is NULL."""
    above = node.parent
    while isinstance(above, (exp.And, exp.Or, exp.Paren)):
        above = above.parent
    return isinstance(above, (exp.Where, exp.Join, exp.Filter)) or above is None
