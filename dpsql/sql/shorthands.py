"""ORDER BY ALL and FETCH FIRST, written as what they stand for.

ORDER BY ALL sorts by all items of the SELECT list from the left, as their numbers do, and
`FETCH FIRST 3 ROWS ONLY` is LIMIT 3. What is left is refused with the rest of the statement.
"""

from __future__ import annotations

from sqlglot import exp

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
    return parsed


def orders_by_all(node: exp.Expr) -> bool:
    """Whether a node is the word in ORDER BY ALL."""
    ordered = isinstance(node.parent, exp.Ordered)
    return ordered and isinstance(node, exp.Var) and node.name.upper() == "ALL"


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
