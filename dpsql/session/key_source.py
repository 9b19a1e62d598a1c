"""Sources of keys: a column of a table, or what is computed of each row, whose values are found."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.rows.expression import RowColumn, RowExpression
from dpsql.rows.found import FoundExpression
from dpsql.schema import Table
from dpsql.schema.grain import declared_type

OF_COLUMN, OF_EXPRESSION = "keys", "keys of an expression"


@dataclass(frozen=True, slots=True)
class KeySource:
    """A column, or an expression of a row, whose values are found.

    Args:
        name: which one it is, as ledgers know it.
        label: what a reader calls it.
        key: what is computed of a row.
        type: its type.
        filled: whether it is never NULL.
        computed: the expression; None for a column.
    """

    name: str
    label: str
    key: RowExpression
    type: str
    filled: bool
    computed: FoundExpression | None = None

    @classmethod
    def of_column(cls, table: Table, name: str) -> KeySource:
        """Return a column of a table as one."""
        type_, filled = declared_type(table, name), name in table.filled
        return cls(name, name, RowColumn(name), type_, filled)

    @classmethod
    def of_expression(cls, found: FoundExpression) -> KeySource:
        """Return an expression as one."""
        return cls(
            found.name, found.label, found.expression, found.type, found.filled, computed=found
        )

    @property
    def parts(self) -> tuple[FoundExpression, ...]:
        """The expressions that are found together; none if it is one alone."""
        return () if self.computed is None else self.computed.parts

    @property
    def kind(self) -> str:
        """The word that tells columns from expressions, whatever they are called."""
        return OF_COLUMN if self.computed is None else OF_EXPRESSION
