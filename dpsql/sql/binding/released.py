"""Values of all units' rows in a statement: what releases each, and what stands there then.

    SELECT COUNT(*) FROM loan l
    WHERE amount > (SELECT AVG(amount) FROM loan m WHERE m.kind = l.kind)

asks rows of several units which row counts, and what was released of them may decide that. An error
says which statement that is: here the average by kind. What it returns is written where the error
marks the text, and the statement is about public values then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError, ValueByKeys
from dpsql.hints import Hint, never
from dpsql.schema.checks import operands
from dpsql.schema.names import folded, quoted_name
from dpsql.sql.binding.expressions import (
    Expr,
    has_aggregate,
    is_aggregate,
    quoted,
    render,
    with_parts,
)
from dpsql.sql.text.spans import SourceText

_ROWS_OF_ITS_OWN = ("group", "having", "distinct", "qualify", "with_", "limit", "offset", "order")
"""Clauses with which a query has no single value for each key."""
_NULL_IF_ONE_IS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Literal, exp.Cast)
"""What is NULL if one of its parts is; beside aggregates nothing else stands in a value by keys."""
_COUNTS = (exp.Count, exp.CountIf)


def value_alone(node: Expr, root: Expr, source: SourceText) -> str | None:
    """Write the statement that returns the value of a subquery, if it may be one of no row.

    Args:
        node: the subquery.
        root: the statement that it is in.
        source: the text of that.
    """
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        return None
    return _alone(f"SELECT {source.text(source.node(node))} AS value", node, root)


def value_by_keys(
    node: Expr, outside: Collection[int], root: Expr
) -> tuple[str, ValueByKeys] | None:
    """Write the statement that returns the value of a subquery for each key that it compares.

    WHERE of the subquery compares expressions of its own rows with some of the row outside:
    so its value is one for each combination of the former. Where no row has a key, the value is
    NULL, as no row of the answers has it: they are those of which at least half a row is counted. A
    COUNT is 0.

    Args:
        node: the subquery.
        outside: the identities of columns in it that are from outside.
        root: the statement that it is in.

    Returns:
        The statement, whose columns are the value and the keys, and by what each row outside has
        one of its values. None if it compares in another way.
    """
    select = node.this if isinstance(node, exp.Subquery) else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1:
        return None
    where, item = select.args.get("where"), select.expressions[0].unalias()
    apart = any(select.args.get(key) for key in _ROWS_OF_ITS_OWN)
    if where is None or apart or not has_aggregate(item, windows=False):
        return None
    missing = _of_no_rows(item)
    said = operands(where.this, exp.And)
    rest = [part for part in said if not _columns(part, outside)]
    pairs = [pair for part in said if (pair := _compared(part, outside)) is not None]
    used = {id(column) for _, theirs in pairs for column in theirs.find_all(exp.Column)}
    if not pairs or missing is None or used != {id(c) for c in _columns(select, outside)}:
        return None
    taken = {folded(one.name) for one in root.find_all(exp.Identifier)}
    names = list(_unused(["value", *("key" for _ in pairs)], taken))
    made = _by_keys(select, names, [ours for ours, _ in pairs], rest)
    if isinstance(missing, exp.Null):
        some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number("0.5"))
        made.set("having", exp.Having(this=some))
    text = _alone(f"SELECT * FROM ({render(made)})", node, root)
    if text is None:
        return None
    return text, ValueByKeys(tuple(render(their) for _, their in pairs), render(missing))


def _by_keys(
    select: exp.Select, names: Sequence[str], keys: Sequence[Expr], conditions: Sequence[Expr]
) -> exp.Select:
    """Return a query with its value for each combination of keys.

    Args:
        select: the query.
        names: what the value is called, and each key.
        keys: the expressions that these are.
        conditions: what is left of WHERE.
    """
    listed = zip(names, [select.expressions[0].unalias(), *keys], strict=True)
    made = exp.Select(
        expressions=[exp.Alias(this=node.copy(), alias=quoted(name)) for name, node in listed],
        group=exp.Group(expressions=[key.copy() for key in keys]),
        from_=select.args["from_"].copy(),
        joins=[join.copy() for join in select.args.get("joins") or ()],
    )
    if conditions:
        true = exp.and_(*(part.copy() for part in conditions), copy=False)
        made.set("where", exp.Where(this=true))
    return made


def _columns(node: Expr, outside: Collection[int]) -> list[Expr]:
    return [column for column in node.find_all(exp.Column) if id(column) in outside]


def _compared(node: Expr, outside: Collection[int]) -> tuple[Expr, Expr] | None:
    """Return an expression of rows of the subquery, and one from outside that it is equal to."""
    inner = node.unnest()
    if not isinstance(inner, exp.EQ) or inner.find(exp.Query, exp.Window):
        return None
    sides = inner.this, inner.expression
    from_outside = [len(_columns(side, outside)) for side in sides]
    all_ = [len(list(side.find_all(exp.Column))) for side in sides]
    for ours, theirs in ((0, 1), (1, 0)):
        if not from_outside[ours] and all_[ours] and from_outside[theirs] == all_[theirs]:
            return sides[ours], sides[theirs]
    return None


def _of_no_rows(item: Expr) -> Expr | None:
    """Return what an expression of aggregates is without rows; None if that isn't clear."""
    found = set[bool]()

    def without(node: Expr) -> Expr:
        if is_aggregate(node):
            counts = isinstance(node.this if isinstance(node, exp.Filter) else node, _COUNTS)
            found.add(counts)
            return exp.Literal.number(0) if counts else exp.null()
        if not isinstance(node, (*_NULL_IF_ONE_IS, exp.DataType)):
            found.update((True, False))
        return with_parts(node, without)

    made = without(item)
    if len(found) != 1:
        return None
    return made if found == {True} else exp.null()


def _unused(names: Sequence[str], taken: set[str]) -> Iterator[str]:
    """Yield names with which nothing in a statement is called."""
    for name in names:
        numbered = (name if n == 1 else f"{name}{n}" for n in count(1))
        found = next(one for one in numbered if folded(one) not in taken)
        taken.add(folded(found))
        yield found


def noisy_item(item: Expr, root: Expr, source: SourceText) -> UnsupportedSqlError:
    """Say that an item after FROM has noisy answers, and return the statement that releases them.

    Args:
        item: the item.
        root: the statement that it is in.
        source: the text of that.
    """
    error = source.unsupported(
        item,
        "Noisy answers can't be joined with private rows.",
        never(
            "a statement has either private rows or noisy answers in one FROM. Join two noisy "
            "answers: WITH a AS (SELECT …), b AS (SELECT …) SELECT … FROM a JOIN b USING (sex); or "
            "release what is to be joined by itself, and make it a public table, "
        )
        + Hint('public={"chosen": frame}.', "--public chosen."),
    )
    if isinstance(item, exp.Subquery | exp.Table):
        alias, name = item.args.get("alias"), item.name if isinstance(item, exp.Table) else ""
        called = render(alias) if alias is not None else name and quoted_name(name)
        error.value, _ = answers_of(item, root, source)
        error.around = "", f" AS {called}" if called else ""
    return error


def answers_of(node: Expr, root: Expr, source: SourceText) -> tuple[str | None, tuple[str, str]]:
    """Write the statement that returns the answers of a query in another one.

    Returns:
        That, and what is written before its rows and behind them: nothing.
    """
    return _alone(f"SELECT * FROM {source.text(source.node(node))}", node, root), ("", "")


def _alone(text: str, node: Expr, root: Expr) -> str | None:
    """Write a statement with the CTEs of another one, if a part of that needs them.

    None if it may need one of a query within that.
    """
    clause = root.args.get("with_")
    named = clause.expressions if clause is not None else ()
    inner = [cte for cte in root.find_all(exp.CTE) if not any(cte is one for one in named)]
    used = {folded(table.name) for table in node.find_all(exp.Table)}
    own = {id(cte) for cte in node.find_all(exp.CTE)}
    if any(folded(cte.alias) in used and id(cte) not in own for cte in inner):
        return None
    uses = any(folded(cte.alias) in used for cte in named)
    return f"{render(clause)} {text}" if clause is not None and uses else text
