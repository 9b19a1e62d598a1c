"""Subqueries in conditions on rows: they are public, but for columns of the row they are for.

Such a column has one value in each cell, so that DuckDB can run the subquery for cells as well as
for rows. Which columns are the subquery's own follows from what is after FROM in it, from the
inside out, as everywhere in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.sql.binding.expressions import Expr

Outer = Callable[[exp.Column], Expr | None]
"""Binds a column from outside of a subquery; None if there is none of its name."""
Shown = Callable[[Expr], Sequence[str] | None]
"""Returns the names of the columns of an item after FROM; None if they aren't known."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What one SELECT calls its tables and their columns, in lower case."""

    tables: frozenset[str]
    columns: frozenset[str]
    complete: bool
    """Whether all of its columns are known."""

    def has(self, node: exp.Column) -> bool:
        """Whether a column is, or may be, one of this SELECT."""
        qualifier = node.table.lower()
        if qualifier:
            return qualifier in self.tables | self.columns  # a column may have parts of its own
        return not self.complete or node.name.lower() in self.columns


@dataclass(frozen=True, slots=True)
class OuterColumns:
    """Binds the columns of a subquery that are not its own.

    Args:
        outer: binds them.
        shown: returns the columns of an item after FROM.
    """

    outer: Outer
    shown: Shown
    bound: dict[int, Expr] = field(default_factory=dict)
    """What to put in place of a column, under the identity of its node."""

    def bind(self, node: Expr, around: tuple[_Names, ...] = ()) -> None:
        """Look through a subquery, and bind what is from outside.

        Raises:
            SqlError: a column is neither its own, nor one that a condition may use.
        """
        if isinstance(node, exp.Column):
            self._column(node, around)
            return
        if not isinstance(node, exp.Select):
            for part in node.iter_expressions():
                self.bind(part, around)
            return
        inside = (*around, self._names(node))
        for part in node.iter_expressions():
            if not isinstance(part, exp.From | exp.Join):
                self.bind(part, inside)
                continue
            self.bind(part.this, around)  # a table sees no column of those beside it
            if part.args.get("on") is not None:
                self.bind(part.args["on"], inside)

    def _column(self, node: exp.Column, around: tuple[_Names, ...]) -> None:
        if isinstance(node.this, exp.Star) or any(names.has(node) for names in around):
            return
        bound = self.outer(node)
        if bound is not None:
            self.bound[id(node)] = bound

    def _names(self, select: exp.Select) -> _Names:
        items = [clause.this for clause in _items(select)]
        found = [self.shown(item) for item in items]
        columns = [name for names in found for name in names or ()]
        columns += [item.alias for item in select.expressions if isinstance(item, exp.Alias)]
        return _Names(
            frozenset(item.alias_or_name.lower() for item in items),
            frozenset(map(str.lower, columns)),
            None not in found,
        )


def _items(select: exp.Select) -> list[Expr]:
    clause = select.args.get("from_")
    return [] if clause is None else [clause, *(select.args.get("joins") or [])]
