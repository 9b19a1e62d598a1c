"""Sums in which numbers of private rows are multiplied with numbers that are looked up for them.

    SELECT SUM(l.price * (1 - l.discount) - s.cost * l.quantity)
    FROM lines l JOIN supplies s ON s.part = l.part AND s.seller = l.seller

What is added up row by row is computed where the private rows are, and public tables aren't there.
But Σ cost · quantity is Σ cost(part, seller) · (the sum of quantity for this part and seller): a
sum of measured sums with public factors. So the expression is divided into terms, and each of them
into a factor that is private, which is measured, and one that is public, by which the measured sums
of cells are multiplied. The sum is then that of the terms, over the rows in which all have a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.schema import Table
from dpsql.sql.binding.core import Linear, Role, present
from dpsql.sql.binding.expressions import BoundExpr, Expr, paren, render, times
from dpsql.sql.binding.instants import told_by_rows

_COLUMN = re.compile(r"__([awr])(\d+)(?:_\d+)?")
_ONE = exp.Literal.number(1)


@dataclass(frozen=True, slots=True)
class _Summand:
    """One summand: the product of a private and a public factor."""

    negative: bool
    private: BoundExpr | None
    public: BoundExpr | None


def divided(
    whole: BoundExpr, linear: Linear, table: Table, note: Callable[[Linear], int]
) -> Expr | None:
    """Return a sum as one of sums with public factors; None if it isn't needed, or can't be done.

    Args:
        whole: what is added up.
        linear: the sum of that.
        table: the private table.
        note: notes a statistic; returns its number.
    """
    if not whole.by_row or not _is_looked_up(whole.node):
        return None
    terms: list[_Summand] = []
    for negative, factors in _terms(whole.node):
        sides = [[f for f in factors if _is_looked_up(f) is public] for public in (False, True)]
        private, public = (_product(side, whole, table) for side in sides)
        if public is not None and public.by_row:
            return None
        terms.append(_Summand(negative, private, public))
    there = [part for term in terms for part in (term.private, term.public) if part is not None]
    found: Expr | None = None
    for number, term in enumerate(terms, start=1):
        name = linear.label if len(terms) == 1 else f"{linear.label}, summand {number}"
        measured = replace(_measured(term, there, whole, linear), label=name)
        statistic = Role.STATISTIC.column(note(measured))
        if found is None:
            found = exp.Neg(this=statistic) if term.negative else statistic
        else:
            kind = exp.Sub if term.negative else exp.Add
            found = kind(this=found, expression=statistic)
    return None if found is None else exp.Paren(this=found)


def _measured(
    term: _Summand, there: Sequence[BoundExpr], whole: BoundExpr, linear: Linear
) -> Linear:
    """Return what is measured of one summand, in rows in which all of them have a value."""
    rows = [part for part in there if part not in (term.private, term.public)]
    private = term.private
    if private is None:  # what is measured is 1, wherever all have a value
        measured = [part for part in there if not _is_looked_up(part.node)]
        private = _there(measured, whole)
        rows = [part for part in rows if part not in measured]
    private = replace(private, by_row=private.by_row | private.attributes)
    conditions = tuple(dict.fromkeys((*linear.filters, *map(present, rows))))
    return Linear(linear.label, private, filters=conditions, factor=term.public)


def _terms(node: Expr, negative: bool = False) -> Iterator[tuple[bool, list[Expr]]]:
    """Divide a sum into summands, and these into factors; a public sum is one factor."""
    inner = node.unnest()
    if isinstance(inner, exp.Add | exp.Sub) and _is_mixed(inner):
        yield from _terms(inner.this, negative)
        yield from _terms(inner.expression, negative is not isinstance(inner, exp.Sub))
    elif isinstance(inner, exp.Neg) and _is_mixed(inner):
        yield from _terms(inner.this, not negative)
    else:
        yield negative, list(_factors(inner))


def _factors(node: Expr) -> Iterator[Expr]:
    inner = node.unnest()
    if isinstance(inner, exp.Mul) and _is_mixed(inner):
        yield from _factors(inner.this)
        yield from _factors(inner.expression)
    elif isinstance(inner, exp.Neg) and _is_mixed(inner):
        yield exp.Neg(this=_ONE.copy())
        yield from _factors(inner.this)
    else:
        yield inner


def _is_looked_up(node: Expr) -> bool:
    """Whether an expression needs public rows."""
    return node.find(exp.Query) is not None or any(kind == "r" for kind, _ in _columns(node))


def _is_mixed(node: Expr) -> bool:
    """Whether an expression needs public rows, and columns of private ones besides."""
    return _is_looked_up(node) and any(kind != "r" for kind, _ in _columns(node))


def _columns(node: Expr) -> Iterator[tuple[str, int]]:
    """Return the columns of an expression: of which kind each is, and its number there."""
    for part in node.find_all(exp.Column):
        found = _COLUMN.fullmatch(part.name)
        if found is not None:
            yield found[1], int(found[2])


def _product(factors: Sequence[Expr], whole: BoundExpr, table: Table) -> BoundExpr | None:
    """Return the product of some parts of a bound expression; None if there are none."""
    if not factors:
        return None
    node = times(*factors) if len(factors) > 1 else factors[0].copy()
    listed = list(table.columns)
    columns = set(_columns(node))
    attributes = frozenset(listed[number] for kind, number in columns if kind == "a")
    by_row = told_by_rows(node, table)
    if any(kind == "w" for kind, _ in columns):
        by_row |= whole.by_row.difference(listed)
    return replace(
        whole,
        node=node,
        sql=render(node),
        attributes=attributes,
        relations=frozenset(number for kind, number in columns if kind == "r"),
        by_row=by_row,
    )


def _there(parts: Sequence[BoundExpr], whole: BoundExpr) -> BoundExpr:
    """Return 1 for the rows in which all of some expressions have a value."""
    condition = exp.and_(*(paren(present(part).node) for part in parts), copy=False)
    node = exp.Case(ifs=[exp.If(this=condition, true=_ONE.copy())])
    return replace(
        whole,
        node=node,
        sql=render(node),
        attributes=frozenset[str]().union(*(part.attributes for part in parts)),
        relations=frozenset(),
        by_row=frozenset[str]().union(*(part.by_row for part in parts)),
    )
