"""Values of all units' rows in a statement: what releases each, and what stands there then.

    SELECT COUNT(*) FROM loan l
    WHERE amount > (SELECT AVG(amount) FROM loan m WHERE m.kind = l.kind)

asks rows of several units which row counts, and what was released of them may decide that. An error
says which statement that is: here the average by kind. What it returns is written where the error
marks the text, and the statement is about public values then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError, ValueByKeys
from dpsql.hints import Hint, never
from dpsql.schema.checks import operands
from dpsql.schema.names import folded, quoted_name
from dpsql.sql.binding.expressions import (
    Expr,
    is_aggregate,
    quoted,
    quoted_column,
    render,
    with_parts,
)
from dpsql.sql.text.spans import SourceText

_ROWS_OF_ITS_OWN = ("group", "having", "distinct", "qualify", "with_", "limit", "offset", "order")
"""Clauses with which a query has no single value for each key."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_COMPUTED = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren)
"""Nodes that are NULL if a part is; beside aggregates nothing else stands in a value by keys."""
_COUNTS = (exp.Count,)
"""Aggregates that are 0 of no rows; COUNT_IF is NULL in DuckDB where a subquery compares keys."""
_NULL_OF_NONE = (
    exp.Avg, exp.Sum, exp.Min, exp.Max, exp.Median, exp.Quantile, exp.PercentileCont,
    exp.PercentileDisc, exp.VariancePop,
)  # fmt: skip
"""Aggregates that are NULL where no row has a value of what they are of, and only there."""


@dataclass(frozen=True, slots=True)
class KeyedValue:
    """A value for each key that a subquery compares its rows with."""

    query: exp.Select
    """The query that returns the value and the keys, one row for each combination of these."""
    names: Sequence[str]
    """Their names in it, the value first."""
    compared: tuple[tuple[Expr, Expr], ...]
    """Each key: the expression of the subquery's rows, and that of the row outside."""
    missing: str | None
    """The value where no row has the key; None if it is NULL."""

    @property
    def told(self) -> ValueByKeys:
        """The parts that an error tells."""
        return ValueByKeys(tuple(render(theirs) for _, theirs in self.compared), self.missing)

    def statement(self, node: Expr, root: Expr) -> str | None:
        """Write the query as a statement of its own; see `value_alone`."""
        return _alone(f"SELECT * FROM ({render(self.query)})", node, root)

    def joined(self) -> Expr:
        """Return the value of a row, or of a group, as a subquery of these answers."""
        value, *keys = (quoted_column(name, self.names[0]) for name in self.names)
        given = zip(keys, self.compared, strict=True)
        equal = [exp.EQ(this=key, expression=exp.Paren(this=theirs)) for key, (_, theirs) in given]
        alias = exp.TableAlias(this=quoted(self.names[0]))
        found = exp.Select(
            expressions=[value],
            from_=exp.From(this=exp.Subquery(this=self.query, alias=alias)),
            where=exp.Where(this=exp.and_(*equal, copy=False)),
        )
        one = exp.Subquery(this=found)
        missing = None if self.missing is None else exp.maybe_parse(self.missing, dialect="duckdb")
        return one if missing is None else exp.Coalesce(this=one, expressions=[missing])


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


def keyed_value(node: Expr, outside: Collection[int], root: Expr) -> KeyedValue | None:
    """Write the statement that returns the value of a subquery for each key that it compares.

    WHERE of the subquery compares expressions of its own rows with some of the row outside:
    so its value is one for each combination of the former. Where none of its rows has a key, or
    none that its aggregates read, the value is NULL, and no row of the answers has the key: they
    are those of which the aggregates read more than half a row. A COUNT is 0 there.

    Args:
        node: the subquery.
        outside: the identities of columns in it that are from outside.
        root: the statement that it is in.

    Returns:
        None if it compares in another way.
    """
    select = node.this if isinstance(node, exp.Subquery) else None
    if not isinstance(select, exp.Select) or not _may_be_by_keys(select):
        return None
    read = _Read.of(select.expressions[0].unalias())
    said = operands(select.args["where"].this, exp.And)
    rest = [part for part in said if not _columns(part, outside)]
    pairs = [pair for part in said if (pair := _compared(part, outside)) is not None]
    used = {id(column) for _, theirs in pairs for column in theirs.find_all(exp.Column)}
    if read is None or not pairs or used != {id(c) for c in _columns(select, outside)}:
        return None
    taken = {folded(one.name) for one in root.find_all(exp.Identifier)}
    names = list(_unused(["value", *("key" for _ in pairs)], taken))
    made = _by_keys(select, names, [ours for ours, _ in pairs], rest)
    if read.present:
        made.set("having", exp.Having(this=exp.and_(*read.present, copy=False)))
    return KeyedValue(made, names, tuple(pairs), None if read.present else render(read.missing))


def _may_be_by_keys(select: exp.Select) -> bool:
    """Whether a query has FROM, WHERE and one item, and no clause that can't be by keys."""
    if len(select.expressions) != 1 or not all(map(select.args.get, ("from_", "where"))):
        return False
    # New names of columns may be those of columns from outside.
    renamed = any(alias.args.get("columns") for alias in select.find_all(exp.TableAlias))
    return not renamed and not any(map(select.args.get, _ROWS_OF_ITS_OWN))


def is_compared(node: Expr) -> bool:
    """Whether of a value nothing matters but how another one compares with it.

    So an expression has no more values by it than true, false and NULL.
    """
    above = node.parent
    while isinstance(above, _COMPUTED):
        above = above.parent
    return isinstance(above, _COMPARISONS)


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
        if not from_outside[ours] and all_[ours] and from_outside[theirs] == all_[theirs] > 0:
            return sides[ours], sides[theirs]
    return None


@dataclass(frozen=True, slots=True)
class _Read:
    """Conditions on what the aggregates of an expression read."""

    present: tuple[Expr, ...]
    """Conditions under which those are not NULL that may be."""
    missing: Expr
    """The expression of no rows, if there are none of those."""

    @classmethod
    def of(cls, item: Expr) -> _Read | None:
        """Return what they read; None if it has anything of which that isn't known."""
        present = list[Expr]()
        found, known = 0, True

        def without(node: Expr) -> Expr:
            nonlocal found, known
            if is_aggregate(node):
                found += 1
                inner = node.this if isinstance(node, exp.Filter) else node
                if isinstance(inner, _COUNTS):
                    return exp.Literal.number(0)
                some = _some(node)
                known = known and some is not None
                present.extend(() if some is None else (some,))
                return exp.null()
            known = known and (isinstance(node, _COMPUTED) or _is_number(node))
            return with_parts(node, without)

        missing = without(item)
        divided = all(_is_not_0(node.expression, bool(present)) for node in item.find_all(exp.Div))
        return cls(tuple(present), missing) if known and found and divided else None


def _is_number(node: Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _is_not_0(node: Expr, present: bool) -> bool:
    """Whether a divisor can't be 0, of some rows or of any number of them."""
    inner = node.unnest()
    if isinstance(inner, exp.Count):
        return present and isinstance(inner.this, exp.Star)
    return _is_number(inner) and float(inner.name) != 0


def _some(node: Expr) -> Expr | None:
    """Return the condition under which an aggregate isn't NULL; None if that isn't known.

    Noisy numbers of rows are no whole ones.
    """
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, exp.WithinGroup) or not isinstance(inner, _NULL_OF_NONE):
        return None
    value = inner.this
    if isinstance(value, exp.Distinct):
        value = value.expressions[0] if len(value.expressions) == 1 else None
    if value is None or isinstance(value, (exp.Star, exp.Order)) or inner.expressions:
        return None
    counted: Expr = exp.Count(this=value.copy())
    if node is not inner:
        counted = exp.Filter(this=counted, expression=node.expression.copy())
    return exp.GT(this=counted, expression=exp.Literal.number("0.5"))


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
        error.value, error.behind = answers_of(item, root, source), called and f" AS {called}"
    return error


def answers_of(node: Expr, root: Expr, source: SourceText) -> str | None:
    """Write the statement that returns the answers of a query in another one, if there is one."""
    return _alone(f"SELECT * FROM {source.text(source.node(node))}", node, root)


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
