"""A query of private rows as a relation: its rows, its columns, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from sqlglot import exp

from dpsql.errors import SqlError, SqlLimitError
from dpsql.schema.names import folded
from dpsql.sql.algebra.described import DescribedRelation
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import BoundExpr, Expr, is_star
from dpsql.sql.binding.row_queries import UnionColumn
from dpsql.sql.binding.scope import NamedColumn, Scope

T = TypeVar("T")
Numbers: TypeAlias = Iterator[int]
"""Numbers for the public relations of one core, from 0 on."""


@dataclass(frozen=True, slots=True)
class RowsOfQuery:
    """A query of private rows: a relation, its columns, and what is true of those that count."""

    of: DescribedRelation
    columns: tuple[NamedColumn, ...]
    where: tuple[BoundExpr, ...] = ()
    relations: tuple[PublicRows, ...] = ()
    """The public relations that are joined with them over cells."""

    def renamed(self, names: Sequence[str]) -> RowsOfQuery:
        """Return it with other names of the first columns."""
        given = [replace(c, name=n) for n, c in zip(names, self.columns, strict=False)]
        return replace(self, columns=(*given, *self.columns[len(given) :]))

    def made(self, columns: Sequence[UnionColumn]) -> RowsOfQuery:
        """Return the rows with their columns cast to those of a UNION ALL."""
        found = (made.of(own) for made, own in zip(columns, self.columns, strict=True))
        return replace(self, columns=tuple(found))


def unless_refused(step: Callable[[Expr], T], node: Expr) -> T | SqlError:
    """Take a step with a column; return why it can't be, which matters where it is used.

    Raises:
        SqlLimitError: it is too long, with columns replaced by what they stand for.
    """
    try:
        return step(node)
    except SqlLimitError:
        raise
    except SqlError as error:
        return error


def check_names(node: Expr, scope: Scope, aliases: Container[str]) -> None:
    """Refuse names that mean nothing, also in columns that nobody uses.

    Raises:
        SqlError: there is one in an expression, outside of subqueries.
    """
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Column) and not is_star(part):
            if part.table or folded(part.name) not in aliases:
                scope.resolve(part, by_row=True)
        elif not isinstance(part, exp.Query):
            pending += part.iter_expressions()
