"""Hints for what DuckDB can't compute: by the class of its error, and by what stands there."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import printable
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.sandbox.database import Refusal, SandboxError


def hint_for(error: SandboxError, node: Expr | None, text: str) -> str:
    """Say what to do about an error.

    Args:
        error: what DuckDB says.
        node: the expression, if it is known.
        text: how that was written.
    """
    parts = [] if node is None else list(node.walk())
    if error.kind is Refusal.UNBOUND and any(isinstance(part, exp.Query) for part in parts):
        return "a subquery can use the columns of its own tables only; join them instead."
    if error.kind is Refusal.OVERFLOW:
        return "cast to a larger type first, as in age::BIGINT, or write a smaller number."
    if error.kind is Refusal.CONVERSION and any(map(_converts, parts)):
        shown = printable(" ".join(text.split()))
        return f"TRY({shown}) is NULL for such values; leave them out by WHERE if none can occur."
    return "check the types, and rule out values for which it isn't defined."


def _converts(node: Expr) -> bool:
    """Whether a node makes another value of a column: a cast, or a function such as make_date."""
    function = isinstance(node, exp.Func) and not isinstance(node, exp.Connector)
    return function and node.find(exp.Column) is not None
