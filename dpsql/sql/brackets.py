"""Joins in parentheses, written without them where that makes no difference.

Joins are read from the left, so those in parentheses in front of others can do without:
`(a LEFT JOIN b ON x) JOIN c ON y` is `a LEFT JOIN b ON x JOIN c ON y`. Behind another, inner joins
can: `a JOIN (b JOIN c ON x) ON y` is `a CROSS JOIN b JOIN c ON x AND y`, because ⋈ is associative
and σ_y(A × σ_x(B × C)) = σ_{x AND y}(A × B × C). What is left is refused with the rest of the
statement.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.schema.names import capitals
from dpsql.sql.text.parse import Parsed

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
