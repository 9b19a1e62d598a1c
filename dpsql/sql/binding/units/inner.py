"""Bind what is said of rows for another row: columns may be those of either."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import Span, SqlSchemaError
from dpsql.schema import Domain
from dpsql.sql.binding.bind import RowBinder, Visit, Visits
from dpsql.sql.binding.expressions import BoundExpr, Expr, paren
from dpsql.sql.binding.row_queries import Home
from dpsql.sql.binding.tables import AROUND
from dpsql.sql.text.spans import SourceText


class InnerBinder(RowBinder):
    """Binds expressions over the rows of a subquery, and over the row that they are for.

    A column is the subquery's own if it has one of that name, as everywhere in SQL. Those of the
    other row have canonical names of their own, which begin with `AROUND`.

    Args:
        source: the statement's text.
        select: the subquery.
        home: the item after its FROM whose rows are private.
        visits: what becomes of its subqueries.
        outer: binds what is around it.
    """

    def __init__(
        self,
        source: SourceText,
        select: exp.Select,
        home: Home,
        visits: Visits,
        outer: RowBinder,
    ) -> None:
        super().__init__(source, select, home, visits)
        self._outer = outer

    def owns(self, node: exp.Column) -> bool:
        """Whether a column is one of the subquery.

        Raises:
            SqlSchemaError: it may be several.
        """
        try:
            self.scope.resolve(node, by_row=True)
        except SqlSchemaError as error:
            if error.unknown:
                return False
            raise
        return True

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Return name and domain of a column of either; None if it is none, or has none."""
        inner = node.unnest()
        if isinstance(inner, exp.Column) and not self.owns(inner):
            return self._outer.domain_of(node)
        return super().domain_of(node)

    def _written(self, node: Expr) -> Span:
        inner = node.unnest()
        if isinstance(inner, exp.Column) and not self.owns(inner):
            return self.source.node(node)
        return super()._written(node)

    def _column(
        self,
        node: exp.Column,
        change: Visit,
        attributes: set[str],
        relations: set[int],
        rows: set[str],
    ) -> Expr:
        if self.owns(node) or not self._is_around(node):
            return super()._column(node, change, attributes, relations, rows)
        bound = self._outer.bind(node)
        parts = list(bound.node.find_all(exp.Column))
        if bound.relations or any(part.name.startswith(AROUND) for part in parts):
            raise self.source.unsupported(
                node,
                "In a subquery over private rows, this column is neither of the subquery's tables "
                "nor of the private row outside it.",
                "compare columns of the subquery with those of the private row just outside it, "
                "and require that both belong to the same unit; or release what is computed from "
                "all rows separately.",
            )
        return _around(bound)

    def _is_around(self, node: exp.Column) -> bool:
        """Whether there is such a column around it, and not an alias of the SELECT list."""
        try:
            return not isinstance(self._outer.scope.resolve(node, by_row=True), exp.Expr)
        except SqlSchemaError as error:
            if error.unknown:
                return False
            raise


def _around(bound: BoundExpr) -> Expr:
    """Return an expression over the row outside, with the names that its columns have inside."""
    found = paren(bound.node)
    for part in found.find_all(exp.Column):
        part.this.set("this", AROUND + part.name.removeprefix("__"))
    return found.this if isinstance(bound.node, exp.Column) else found
