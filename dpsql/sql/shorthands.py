"""ORDER BY ALL, FETCH FIRST, DISTINCT ON and joins in parentheses, as what they stand for.

ORDER BY ALL sorts by all items of the SELECT list from the left, as their numbers do, and
`FETCH FIRST 3 ROWS ONLY` is LIMIT 3. `SELECT DISTINCT ON (a) b … ORDER BY a, c` keeps the first row
of each a, and so does `QUALIFY row_number() OVER (PARTITION BY a ORDER BY a, c) = 1`. What is left
is refused with the rest of the statement.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import is_star
from dpsql.sql.text.parse import Parsed


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
        part.set("this", _meant(part.this, select))
    place = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_meant(key, select) for key in keys],
        order=exp.Order(expressions=sorted_by) if sorted_by else None,
        over="OVER",
    )
    first = exp.Qualify(this=exp.EQ(this=place, expression=exp.Literal.number(1)))
    first.meta["written"] = "DISTINCT ON"
    select.set("distinct", None)
    select.set("qualify", first)


def _meant(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return what an item of ORDER BY stands for: a number or an alias is one of the list."""
    found, items = node.unnest(), select.expressions
    if isinstance(found, exp.Literal) and not found.is_string and found.name.isdecimal():
        at = int(found.name) - 1
        found = items[at].unalias() if at in range(len(items)) else found
    elif isinstance(found, exp.Column) and not found.table:
        named = {folded(item.alias): item.this for item in items if isinstance(item, exp.Alias)}
        found = named.get(folded(found.name), found)
    copied: exp.Expr = found.copy()
    return copied


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
    own = inner.args.pop("joins", None) or []
    first, joins = _opened(inner)
    return first, [*joins, *own]


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
