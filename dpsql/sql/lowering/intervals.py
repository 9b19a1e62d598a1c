"""Dates and moments that depend on no row, in expressions of rows.

    l_receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR
    l_receiptdate >= make_date(1994, 1, 1)

DuckDB computes them beforehand, among public things: so there is a constant where the private rows
are, and no functions of the calendar have to run there.
"""

from __future__ import annotations

from datetime import date, datetime

from sqlglot import exp

from dpsql.sql.binding.expressions import Expr, rebuild, render
from dpsql.sql.sandbox.database import Sandbox


def with_moments(node: Expr, sandbox: Sandbox) -> str:
    """Write an expression with constants in place of the dates and moments that are computed.

    Raises:
        SandboxError: DuckDB can't compute one.
    """

    def change(part: Expr) -> Expr:
        if _is_moment(part):
            found = sandbox.frame(f"SELECT {render(part)} AS v")["v"][0]
            if isinstance(found, datetime) and found.tzinfo is None:
                return exp.cast(exp.Literal.string(found.isoformat(" ")), "TIMESTAMP")
            if isinstance(found, date) and not isinstance(found, datetime):
                return exp.cast(exp.Literal.string(found.isoformat()), "DATE")
        return rebuild(part, change)

    return render(change(node)) if any(_is_moment(part) for part in node.walk()) else render(node)


_COMPUTED = (exp.Add, exp.Sub, exp.Func)


def _is_moment(part: Expr) -> bool:
    """Whether something is computed of constants that may be a date or a moment."""
    if not isinstance(part, _COMPUTED) or isinstance(part, (exp.Connector, exp.Cast, exp.Case)):
        return False
    return part.find(exp.Column, exp.Query) is None
