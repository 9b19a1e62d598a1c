"""Bounds of expressions that the owner declares, as trees that statements are compared with.

A declared expression is read as a statement that adds it up, by the same steps as those of the
analyst: `SELECT SUM(price * (1 - discount)) FROM sales`. So it is bound by the same rules, refused
for the same reasons, and equal to what stands in a statement if both mean the same.
"""

from __future__ import annotations

from dpsql.errors import SchemaError, SqlError, printable
from dpsql.rows.expression import RowExpression
from dpsql.rows.known import Interval, common
from dpsql.schema import Table
from dpsql.schema.names import quoted_name
from dpsql.sql.allow import check_allowed
from dpsql.sql.binding.core import Core, Linear
from dpsql.sql.binding.expressions import BoundExpr
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.outline import Outliner
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.parse import check_written, parse_statement

_HINT = "give bounds to an expression that SUM can take, made of functions that can run on rows."


def declared_expressions(table: Table, sandbox: Sandbox) -> dict[RowExpression, Interval]:
    """Return the trees of a table's declared expressions, and their bounds.

    Raises:
        SchemaError: one can't be evaluated on a row, or its bounds contradict its columns'.
    """
    found: dict[RowExpression, Interval] = {}
    outliner = Outliner(NamedTables(sandbox, lambda _: table, lambda _: None))
    for text, bounds in table.expressions.items():
        try:
            tree = _tree(text, table, sandbox, outliner, (bounds.low, bounds.high))
        except SqlError as error:
            raise _refused(table, text, error.message, error.hint or _HINT) from None
        if tree in found:
            raise _refused(table, text, "It is declared twice.", "keep one of them.")
        found[tree] = (bounds.low, bounds.high)
    return found


def _tree(
    text: str, table: Table, sandbox: Sandbox, outliner: Outliner, ends: Interval
) -> RowExpression:
    parsed = parse_statement(f"SELECT SUM({text}) AS total FROM {quoted_name(table.name)}")
    check_allowed(parsed)
    check_written(parsed.query, parsed.source)
    cores = outliner.outline(parsed).cores
    weight = _only_weight(cores[0]) if len(cores) == 1 else None
    if weight is None:
        raise SqlError("It is not an expression of one row.", hint=_HINT)
    tree, known = RowReader(sandbox, table, parsed.source).known(weight)
    low, high = common(known, ends)
    if low is None or high is None or low > high:
        raise SqlError(
            "No value lies between its bounds: those of its columns rule them all out.",
            hint="correct one of them.",
        )
    return tree


def _only_weight(core: Core) -> BoundExpr | None:
    """Return what a core adds up, if it is the sum of one expression and nothing else."""
    plain = not core.keys and not core.conjuncts and not core.by_row and not core.relations
    (statistic, *others) = core.statistics
    if not plain or others or not isinstance(statistic, Linear) or statistic.filters:
        return None
    return statistic.weight


def _refused(table: Table, text: str, message: str, hint: str) -> SchemaError:
    brief = printable(text if len(text) <= 80 else f"{text[:80]}…")
    return SchemaError(
        f"The schema bounds {brief} in {printable(table.name)}: {message}", hint=hint
    )
