"""PIVOT, ORDER BY ALL, FETCH FIRST, DISTINCT ON, joins in parentheses: as what they stand for.

ORDER BY ALL sorts by all items of the SELECT list from the left, as their numbers do, and
`FETCH FIRST 3 ROWS ONLY` is LIMIT 3. `SELECT DISTINCT ON (a) b … ORDER BY a, c` keeps the first row
of each a, and so does `QUALIFY row_number() OVER (PARTITION BY a ORDER BY a, c) = 1`. What is left
is refused with the rest of the statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.expressions import maybe_parse
from sqlglot.tokenizer_core import TokenType

from dpsql.errors import SchemaError, Span, SqlError, SqlLimitError, printable
from dpsql.hints import first_that_works, write
from dpsql.schema.names import capitals, folded, quoted_text
from dpsql.sql.binding.expressions import is_star, meant
from dpsql.sql.text.edits import swapped
from dpsql.sql.text.parse import Parsed
from dpsql.sql.text.spans import SourceText


def without_shorthands(parsed: Parsed) -> Parsed:
    """Write them out wherever they stand in a statement."""
    for query in list(parsed.query.find_all(exp.Query)):
        limit, order = query.args.get("limit"), query.args.get("order")
        if isinstance(limit, exp.Fetch) and not _has_options(limit):
            count = limit.args.get("count") or exp.Literal.number(1)
            query.set("limit", exp.Limit(expression=count))
        if order is not None and len(order.expressions) == 1:
            _write_order(order, _width(query))
        if isinstance(query, exp.Select) and query.args.get("qualify") is None:
            _write_first(query)
    return parsed


def orders_by_all(node: exp.Expr) -> bool:
    """Whether a node is the word in ORDER BY ALL."""
    ordered = isinstance(node.parent, exp.Ordered)
    return ordered and isinstance(node, exp.Var) and capitals(node.name) == "ALL"


def _has_options(fetch: exp.Fetch) -> bool:
    """Whether FETCH has WITH TIES or PERCENT, which DuckDB doesn't take either."""
    options = fetch.args.get("limit_options")
    return options is not None and any(options.args.get(key) for key in ("percent", "with_ties"))


def _width(query: exp.Expr) -> int:
    """Return how many columns a query has; 0 where they aren't written."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return 0
    items, clause = query.expressions, query.args.get("from_")
    if items == [exp.Star()] and clause is not None and not query.args.get("joins"):
        return _width(clause.this) if isinstance(clause.this, exp.Subquery) else 0
    return 0 if any(is_star(item.unalias()) for item in items) else len(items)


def _write_order(order: exp.Order, width: int) -> None:
    (ordered,) = order.expressions
    if width and orders_by_all(ordered.this):
        how = {key: value for key, value in ordered.args.items() if key != "this"}
        numbers = [exp.Literal.number(place + 1) for place in range(width)]
        order.set("expressions", [exp.Ordered(this=number, **how) for number in numbers])


def _write_first(select: exp.Select) -> None:
    """Write DISTINCT ON as a condition on the place of a row."""
    distinct, order = select.args.get("distinct"), select.args.get("order")
    on = distinct.args.get("on") if distinct is not None else None
    if on is None:
        return
    keys = on.expressions if isinstance(on, exp.Tuple) else [on]
    sorted_by = [part.copy() for part in order.expressions] if order is not None else []
    starred = any(is_star(item.unalias()) for item in select.expressions)
    if starred and any(isinstance(n, exp.Literal) for n in (*keys, *(o.this for o in sorted_by))):
        return  # a number counts columns that aren't written
    for part in sorted_by:
        part.set("this", meant(part.this, select))
    place = exp.Window(
        this=exp.RowNumber(),
        partition_by=[meant(key, select) for key in keys],
        order=exp.Order(expressions=sorted_by) if sorted_by else None,
        over="OVER",
    )
    first = exp.Qualify(this=exp.EQ(this=place, expression=exp.Literal.number(1)))
    first.meta["written"] = "DISTINCT ON"
    select.set("distinct", None)
    select.set("qualify", first)


# ── Joins in parentheses, written without them where that makes no difference ────────────────────
#
# Joins are read from the left, so those in parentheses in front of others can do without: `(a LEFT
# JOIN b ON x) JOIN c ON y` is `a LEFT JOIN b ON x JOIN c ON y`. Behind another, inner joins can: `a
# JOIN (b JOIN c ON x) ON y` is `a CROSS JOIN b JOIN c ON x AND y`, because ⋈ is associative and
# σ_y(A × σ_x(B × C)) = σ_{x AND y}(A × B × C). What is left is refused with the rest of the
# statement.


_INNER = frozenset({"", "INNER", "CROSS"})


def without_brackets(parsed: Parsed) -> Parsed:
    """Take the parentheses around joins away, where they may be."""
    for select in list(parsed.query.find_all(exp.Select)):
        clause = select.args.get("from_")
        if clause is None:
            continue
        first, joins = _opened(clause.this)
        clause.set("this", first)
        for join in select.args.get("joins") or []:
            joins += _behind(join)
        if joins:
            select.set("joins", joins)
    return parsed


def _opened(item: exp.Expr) -> tuple[exp.Expr, list[exp.Join]]:
    """Return the first table of an item after FROM, and what is joined with it in parentheses."""
    inner = item.this if isinstance(item, exp.Subquery) else None
    if not isinstance(inner, exp.Table | exp.Subquery) or item.args.get("alias") is not None:
        return item, []
    joined = inner.args.pop("joins", None) or []
    first, joins = _opened(inner)
    return first, [*joins, *joined]


def _behind(join: exp.Join) -> list[exp.Join]:
    """Return the joins that a join with an item in parentheses stands for."""
    first, inner = _opened(join.this.copy())
    if not inner:
        join.set("this", first)
        return [join]
    if not all(map(_is_inner, (join, *inner))):
        return [join]
    on = [j.args["on"] for j in (inner[-1], join) if j.args.get("on") is not None]
    if on:
        inner[-1].set("on", exp.and_(*on))
        inner[-1].set("kind", None)
    return [exp.Join(this=first, kind="CROSS"), *inner]


def _is_inner(join: exp.Join) -> bool:
    plain = not any(join.args.get(key) for key in ("side", "method", "using"))
    return plain and capitals(join.kind or "") in _INNER


# ── UNION of many queries, as that of a first and a second half ──────────────────────────────────
#
# A chain of UNION ALL, or of UNION, is read from the left: ((a ∪ b) ∪ c) ∪ d, as deep as it is
# long. Both are associative, so it's (a ∪ b) ∪ (c ∪ d) as well, in the same order of rows, and not
# deeper than the number of its queries has digits.


_LONG = 16
"""So many queries may stay as they are written."""
_ITS_OWN = frozenset({"this", "expression", "distinct"})
"""Parts that a UNION inside a chain may have: ORDER BY and WITH belong to it alone."""


def with_short_chains(parsed: Parsed) -> Parsed:
    """Halve long chains of UNION, so that no pass over them is deep."""
    outermost = [
        union
        for union in parsed.query.find_all(exp.Union)
        if not (isinstance(union.parent, exp.Union) and union.arg_key == "this")
    ]
    for union in outermost:
        queries = _chain(union)
        if len(queries) > _LONG:
            half = len(queries) // 2
            union.set("this", _halved(queries[:half], union))
            union.set("expression", _bracketed(_halved(queries[half:], union)))
    return parsed


def _chain(union: exp.Union) -> list[exp.Expr]:
    """Return the queries of a chain in order."""
    found: list[exp.Expr] = [union.expression]
    node = union.this
    while _continues(node, union):
        found.append(node.expression)
        node = node.this
    return [node, *reversed(found)]


def _continues(node: exp.Expr, union: exp.Union) -> bool:
    is_more = any(value for key, value in node.args.items() if key not in _ITS_OWN)
    same = node.args.get("distinct") == union.args.get("distinct")
    return isinstance(node, exp.Union) and same and not is_more and not union.args.get("by_name")


def _halved(queries: Sequence[exp.Expr], like: exp.Union) -> exp.Expr:
    if len(queries) == 1:
        return queries[0]
    half = len(queries) // 2
    first, second = _halved(queries[:half], like), _halved(queries[half:], like)
    return exp.Union(this=first, expression=_bracketed(second), distinct=like.args.get("distinct"))


def _bracketed(query: exp.Expr) -> exp.Expr:
    return exp.Subquery(this=query) if isinstance(query, exp.Union) else query


# ── PIVOT and UNPIVOT, written as the SELECT that they stand for ─────────────────────────────────
#
#     FROM q PIVOT (SUM(n) FOR sex IN ('F', 'M') GROUP BY edu)
#
# is `SELECT edu, SUM(n) FILTER (WHERE sex = 'F') AS "F", … FROM q GROUP BY edu`, and
#
#     FROM q UNPIVOT (v FOR k IN (a, b))
#
# is `SELECT …, k, CASE k WHEN 'a' THEN a ELSE b END AS v FROM q, (VALUES ('a'), ('b')) x(k)`,
# without the rows in which v is NULL. So noise is followed through them as through any other query,
# and over a private table they are a core. Nothing is checked here: what comes out is a statement
# like one that was written, and goes through the same checks.


Values = Callable[[tuple[str, ...], str], Sequence[str] | None]
"""Returns the public values of a table's column as text, sorted; None if they aren't known."""
Queries = Mapping[str, tuple[exp.Expr, tuple[str, ...]]]
"""The CTEs that a name may mean, and what they call their columns."""
_UNPIVOTED = "unpivoted"
_MAX_NODES = 100_000
"""The most nodes of the syntax trees that the pivots of one statement are written out to."""


class _Choice(NamedTuple):
    """One value that rows are told apart by."""

    name: str
    condition: exp.Expr


def without_pivots(parsed: Parsed, values: Values) -> Parsed:
    """Write out every PIVOT and UNPIVOT of a statement.

    Raises:
        UnsupportedSqlError: it isn't known which columns or groups one makes.
    """
    pivots = _Pivots(parsed.source, values)
    while (pivot := _innermost(parsed.query)) is not None:
        pivots.replace(pivot)
    return parsed


def _innermost(query: exp.Expr) -> exp.Pivot | None:
    """Return the first pivot in whose table there is none; CTEs come before what uses them.

    Conditions may be so deep that they can't be gone through by recursion. From the last part to
    the first, and each node before its parts, is the opposite of the order in which pivots are
    written out.
    """
    pivot, pending = None, [query]
    while pending:
        node = pending.pop()
        pivot = node if isinstance(node, exp.Pivot) else pivot
        clause = node.args.get("with_")
        pending += [clause] if clause is not None else []
        pending += [part for part in node.iter_expressions() if part is not clause]
    return pivot


class _Pivots:
    """Writes the pivots of one statement out, from the inside out."""

    def __init__(self, source: SourceText, values: Values) -> None:
        self._source = source
        self._values = values
        self._made = 0

    def replace(self, pivot: exp.Pivot) -> None:
        """Put a SELECT in the place of the innermost pivot."""
        if pivot.this is not None:  # PIVOT q ON …
            given = pivot.this
            select = self._written(pivot, given)
            select.set("with_", pivot.args.get("with_"))
            pivot.replace(select)
            return
        item = pivot.parent  # FROM q PIVOT (…)
        if not isinstance(item, exp.Table | exp.Subquery) or item.args["pivots"][0] is not pivot:
            raise self._refused(pivot, "This PIVOT is not supported.", "write SELECT … FROM (…).")
        given, later = item.copy(), item.args["pivots"][1:]
        given.set("pivots", None)
        whole = exp.Subquery(
            this=self._written(pivot, given, item), alias=pivot.args.get("alias"), pivots=later
        )
        item.replace(whole)

    def _written(
        self, pivot: exp.Pivot, given: exp.Expr, place: exp.Expr | None = None
    ) -> exp.Select:
        around = queries_around(place or pivot)
        columns = _columns(given, around)
        if pivot.args.get("unpivot"):
            return self._unpivoted(pivot, given, columns)
        return self._pivoted(pivot, given, columns, around)

    # ── PIVOT ──────────────────────────────────────────────────────────────────────────────

    def _pivoted(
        self,
        pivot: exp.Pivot,
        given: exp.Expr,
        columns: list[str] | None,
        around: Queries,
    ) -> exp.Select:
        fields = pivot.args.get("fields") or pivot.expressions
        items = pivot.args["using"] if pivot.this is not None else pivot.expressions
        items = items or [exp.Count(this=exp.Star())]
        group = pivot.args.get("group")
        if group is not None:
            kept: list[exp.Expr] = group.expressions
        else:
            used = {folded(c.name) for of in (*fields, *items) for c in of.find_all(exp.Column)}
            names = self._known(columns, pivot, "name the columns to group by after GROUP BY.")
            kept = [_named(name) for name in names if folded(name) not in used]
        told = [self._choices(field, given, around) for field in fields]
        self._check_size(told, items, pivot)
        choices = list(product(*told))
        found = [column.copy() for column in kept]
        for several in choices:
            label = "_".join(choice.name for choice in several)
            condition = exp.and_(*(choice.condition for choice in several), copy=True)
            for item in items:
                single = len(items) == 1 and not item.alias
                name = label if single else f"{label}_{self._name(item)}"
                where = exp.Where(this=condition.copy())
                value = exp.Filter(this=item.unalias().copy(), expression=where)
                found.append(exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)))
        select = exp.Select(expressions=found, from_=exp.From(this=given))
        if kept:
            select.set("group", exp.Group(expressions=[column.copy() for column in kept]))
        return select

    def _check_size(
        self, told: list[list[_Choice]], items: Sequence[exp.Expr], pivot: exp.Pivot
    ) -> None:
        """Refuse a pivot that would be too long before it is written out."""
        size = sum(_size(item) for item in items)
        size += len(items) * sum(max(map(_size_of, of), default=0) for of in told)
        self._made += size * math.prod(map(len, told))
        if self._made > _MAX_NODES:
            message, hint = "PIVOT makes too many columns here.", "list fewer values."
            raise self._source.error(self._place(pivot), message, hint, SqlLimitError)

    def _name(self, item: exp.Expr) -> str:
        """Return what the columns of an aggregate are called behind the value."""
        text = " ".join(self._source.text(self._source.node(item)).split())
        name, bracket, rest = text.partition("(")
        plain = isinstance(item, exp.Count) and isinstance(item.this, exp.Star)
        return item.alias or ("count_star()" if plain else folded(name) + bracket + rest)

    def _choices(self, field: exp.Expr, given: exp.Expr, around: Queries) -> list[_Choice]:
        """Return the values that an expression is compared with."""
        if not isinstance(field, exp.In):
            listed = self._values_of(field, given, around)
            if listed is None:
                text = self._source.text(self._source.node(field))
                raise self._refused(
                    field,
                    "It isn't known which values PIVOT turns into columns.",
                    f"list them: ON {text} IN ('a', 'b').",
                )
            cast: exp.Expr = maybe_parse("x::VARCHAR", dialect=DuckDB)
            cast.set("this", field.copy())
            return [self._choice(cast, exp.Literal.string(value)) for value in listed]
        wrong = [value for value in field.expressions if value.find(exp.Query, exp.Column)]
        if wrong or not field.expressions:
            place = wrong[0] if wrong else field
            quoted = [write(quoted_text(printable(part.name))) for part in wrong[:1]]
            hint = first_that_works(quoted, "list them: IN ('a', 'b').")
            raise self._refused(place, "PIVOT needs a list of values.", hint)
        return [self._choice(field.this, value) for value in field.expressions]

    def _choice(self, of: exp.Expr, value: exp.Expr) -> _Choice:
        plain = value.this if isinstance(value, exp.PivotAlias) else value
        if isinstance(of, exp.Tuple):
            if len(of.expressions) != len(plain.expressions):
                message = "The number of values differs from the number of columns."
                raise self._refused(value, message, "write one for each: (a, b) IN ((1, 2)).")
            pairs = zip(of.expressions, plain.expressions, strict=True)
            parts = [self._choice(*pair) for pair in pairs]
            name = "_".join(part.name for part in parts)
            condition: exp.Expr = exp.and_(*(part.condition for part in parts))
        elif isinstance(plain, exp.Null):
            name, condition = "NULL", exp.Is(this=of.copy(), expression=exp.Null())
        else:
            name, condition = _text(plain), exp.EQ(this=of.copy(), expression=plain.copy())
        return _Choice(value.alias or name, condition)

    def _values_of(self, field: exp.Expr, item: exp.Expr, around: Queries) -> Sequence[str] | None:
        """Return all values of a column, which are public; None if they aren't known."""
        if not isinstance(field, exp.Column):
            return None
        query, names = pivoted_item(item, around)
        if isinstance(query, exp.Table):
            parts = (query.args.get(key) for key in ("catalog", "db", "this"))
            try:
                return self._values(tuple(p.name for p in parts if p is not None), field.name)
            except SchemaError as error:
                raise self._source.located(error, query) from None
        if not isinstance(query, exp.Select):
            return None
        inner, known = query.args.get("from_"), queries_around(query)
        for i, column in enumerate(query.expressions):
            name = names[i] if i < len(names) else column.alias_or_name
            if folded(name) == folded(field.name) and inner and not query.args.get("joins"):
                return self._values_of(column.unalias(), inner.this, known)
        return None

    # ── UNPIVOT ────────────────────────────────────────────────────────────────────────────

    def _unpivoted(
        self, pivot: exp.Pivot, given: exp.Expr, columns: list[str] | None
    ) -> exp.Select:
        key, value, listed = self._unpivoted_names(pivot)
        names = self._known(
            columns, pivot, "write a query that names its columns in place of the table."
        )
        if any(not isinstance(_plain(column), exp.Column) for column in listed):
            message = "UNPIVOT of more than one column into a row is not supported."
            raise self._refused(pivot, message, "list columns: ON a, b INTO NAME k VALUE v.")
        turned = {folded(_plain(column).name) for column in listed}
        kept: list[exp.Expr] = [_named(name) for name in names if folded(name) not in turned]
        labels = [exp.Literal.string(column.alias or column.name) for column in listed]
        chosen = exp.Case(
            this=_named(key),
            ifs=[
                exp.If(this=label.copy(), true=_plain(column).copy())
                for label, column in zip(labels, listed, strict=True)
            ],
        )
        alias = exp.TableAlias(
            this=exp.to_identifier(_UNPIVOTED), columns=[exp.to_identifier(key, quoted=True)]
        )
        rows = exp.Values(expressions=[exp.Tuple(expressions=[n]) for n in labels], alias=alias)
        shown = exp.Alias(this=chosen, alias=exp.to_identifier(value, quoted=True))
        select = exp.Select(
            expressions=[*kept, _named(key), shown],
            from_=exp.From(this=given),
            joins=[exp.Join(this=rows)],
        )
        if not pivot.args.get("include_nulls"):
            absent = exp.Is(this=exp.Paren(this=chosen.copy()), expression=exp.Null())
            select.set("where", exp.Where(this=exp.Not(this=absent)))
        return select

    def _unpivoted_names(self, pivot: exp.Pivot) -> tuple[str, str, list[exp.Expr]]:
        """Return the names of the two new columns, and the columns that become rows."""
        if pivot.this is None:
            (field, *others), (value, *more) = pivot.args["fields"], pivot.expressions
            names, listed = (field.this.name, value.name), field.expressions
        else:
            into, others, more = pivot.args.get("into"), [], []
            if into is not None:
                value, *more = into.expressions
            names = ("name", "value") if into is None else (into.this.name, value.name)
            listed = pivot.expressions
        if others or more or not all(names) or not listed:
            message = "UNPIVOT into more than one column is not supported."
            hint = first_that_works(
                swapped(
                    self._source,
                    self._source.whole(),
                    r"ON \(([^()]*)\)(.*\bVALUE\s+\w+)(?:\s*,\s*\w+)+",
                    r"ON \1\2",
                ),
                "list columns: ON a, b INTO NAME k VALUE v.",
            )
            raise self._refused(pivot, message, hint)
        return *names, listed

    # ── both ───────────────────────────────────────────────────────────────────────────────

    def _known(self, columns: list[str] | None, pivot: exp.Pivot, hint: str) -> list[str]:
        if columns is None:
            message = "It isn't known which columns this starts from."
            raise self._refused(pivot, message, hint)
        return columns

    def _refused(self, place: exp.Expr, message: str, hint: str) -> SqlError:
        return self._source.unsupported(self._place(place), message, hint)

    def _place(self, node: exp.Expr) -> exp.Expr | Span:
        """Return where to mark a node: a pivot by its word."""
        word = self._source.first(TokenType.PIVOT, TokenType.UNPIVOT)
        return word if isinstance(node, exp.Pivot) and word is not None else node


def _size(node: exp.Expr) -> int:
    return sum(1 for _ in node.walk())


def _size_of(choice: _Choice) -> int:
    return _size(choice.condition)


def _plain(column: exp.Expr) -> exp.Expr:
    return column.this if isinstance(column, exp.PivotAlias | exp.Alias) else column


def _named(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _text(value: exp.Expr) -> str:
    """Return a value as DuckDB writes it."""
    if isinstance(value, exp.Neg):
        return "-" + _text(value.this)
    if isinstance(value, exp.Boolean):
        return "true" if value.this else "false"
    return _text(value.this) if isinstance(value, exp.Cast) else value.name


def queries_around(node: exp.Expr) -> Queries:
    """Return the CTEs in front of the queries around a node; the innermost of a name counts."""
    queries: dict[str, tuple[exp.Expr, tuple[str, ...]]] = {}
    above: exp.Expr | None = node
    while above is not None:  # from the inside out
        clause = above.args.get("with_")
        for cte in clause.expressions if clause is not None else []:
            columns = cte.args["alias"].args.get("columns") or []
            queries.setdefault(folded(cte.alias), (cte.this, tuple(c.name for c in columns)))
        above = above.parent
    return queries


def pivoted_item(item: exp.Expr, around: Queries) -> tuple[exp.Expr, tuple[str, ...]]:
    """Return the query or the table that an item after FROM is, and names of first columns."""
    names: tuple[str, ...] = ()
    while True:
        alias = item.args.get("alias")
        given = (alias.args.get("columns") or []) if isinstance(alias, exp.TableAlias) else []
        names = names or tuple(column.name for column in given)
        if isinstance(item, exp.Subquery | exp.SetOperation):
            item = item.this
        elif isinstance(item, exp.Table) and folded(item.name) in around and not item.db:
            item, written = around[folded(item.name)]
            names = names or written
            around = {k: v for k, v in around.items() if v[0] is not item}
        else:
            return item, names


def _columns(item: exp.Expr, around: Queries) -> list[str] | None:
    """Return the names of the columns of an item after FROM; None if they aren't known."""
    query, given = pivoted_item(item, around)
    if not isinstance(query, exp.Select):
        return None
    names: list[str] = []
    for column in query.expressions:
        clause = query.args.get("from_")
        if isinstance(column, exp.Star) and clause is not None and not query.args.get("joins"):
            inner = _columns(clause.this, {**around, **queries_around(query)})
        else:
            inner = [column.alias_or_name] if column.alias_or_name not in {"", "*"} else None
        if inner is None:
            return None
        names += inner
    return [*given, *names[len(given) :]]
