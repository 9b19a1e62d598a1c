"""Found groups: keys of statements whose values nobody knows beforehand, and that can be found.

Groups by one such column have the values that were found of it. Groups by several have those lists
of values that many units have, which are found together as one text (`rows/found.py`): each value
is then a function of that text, and groups are its cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

from sqlglot import exp, parse_one

from dpsql.errors import SqlError
from dpsql.rows.expression import RowExpression, columns
from dpsql.rows.found import FoundExpression, part_sql
from dpsql.rows.key import RowKey, row_key
from dpsql.schema import Table
from dpsql.schema.domain import Domain
from dpsql.schema.grain import declared_type
from dpsql.sql.binding.expressions import BoundExpr, Expr, render
from dpsql.sql.lowering.measures import RowReader


class FoundGroups:
    """Says of which keys of groups values can be found, and which were.

    Args:
        reader: reads bound expressions as those of rows.
        table: the private table.
    """

    def __init__(self, reader: RowReader, table: Table) -> None:
        self._reader, self._table = reader, table

    def alone(self, bound: BoundExpr) -> FoundExpression | None:
        """Return an expression as one whose values can be found in the rows; None if they can't be.

        It is of stored columns alone of which nobody has declared anything.
        """
        reader, table = self._reader, self._table
        with suppress(SqlError):  # which will be told where it is lowered
            if self._has_keys(bound):
                expression = reader.expression(bound)
                if self._are_unknown(expression, table.undeclared.keys()):
                    with reader.at(bound.span):
                        return FoundExpression.of(expression, reader.types, table.filled)
        return None

    def part(self, bound: BoundExpr) -> FoundExpression | None:
        """Return an expression as one whose values can be found with others; None if they can't be.

        It is of columns of which nobody has declared anything, though values may have been found;
        and its own values aren't known by what it is.
        """
        filled, types = self._table.filled, self._types
        unknown = self._table.undeclared.keys() | self._table.learned
        with suppress(SqlError):  # which will be told where it is lowered
            if self._has_keys(bound):
                expression = self._reader.as_stored(bound)
                if self._are_unknown(expression, unknown):
                    with self._reader.at(bound.span):
                        if row_key(expression, types, filled) is None:
                            return FoundExpression.of(expression, types, filled, part=True)
        return None

    def together(self, parts: Sequence[FoundExpression]) -> FoundExpression:
        """Return several expressions as one whose values are found together."""
        return FoundExpression.together(parts, self._types)

    def key(self, found: FoundExpression) -> RowKey | None:
        """Return the key of an expression whose values were found in the rows; None if not."""
        domain = self._table.told.get(found.name)
        return None if domain is None else found.key(domain, self._types)

    def _has_keys(self, bound: BoundExpr) -> bool:
        return self._table.has_keys and not bound.relations and bound.node.find(exp.Query) is None

    def _are_unknown(self, expression: RowExpression, unknown: Set[str]) -> bool:
        """Whether an expression is of stored columns alone that are unknown, and tell no unit."""
        table, read = self._table, columns(expression)
        own = all(self._reader.stored(name) == (table, name) for name in read)
        return own and read <= unknown - table.joined and not table.tells_units(read)

    @property
    def _types(self) -> Mapping[str, str]:
        """The columns' types as they are stored, whether or not their values were found."""
        table = self._table
        return self._reader.types | {name: declared_type(table, name) for name in table.learned}


def part_of(text: Expr, domain: Domain, found: FoundExpression, part: FoundExpression) -> Expr:
    """Write one of several values that were found together, over the cells of their joined text.

    All that wasn't found has the label for others if it is a text, and is NULL if it is none.

    Args:
        text: the column of the text.
        domain: its values, with a label for others.
        found: the expressions of which they are values.
        part: one of these.
    """
    number = [one.name for one in found.parts].index(part.name)
    value = part_sql(render(text), number)
    if part.type == "DATE":
        value = f"DATE '1970-01-01' + TRY_CAST({value} AS INTEGER)"
    else:
        value = f"TRY_CAST({value} AS {part.type})"
    if part.own.sql != part.type:
        value = f"CAST({value} AS {part.own.sql})"
    label = exp.Literal.string(domain.other or "")
    is_other = exp.EQ(this=text.copy(), expression=label)
    other = label.copy() if part.type == "VARCHAR" else exp.Null()
    return exp.Case(
        ifs=[exp.If(this=is_other, true=other)], default=parse_one(value, dialect="duckdb")
    )
