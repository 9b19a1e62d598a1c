"""Dates and moments that are moved by an interval, in expressions of rows.

    l_receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR

Where nothing in it depends on a row, DuckDB computes it beforehand, among public things: so there
is a constant where the private rows are, and no functions of the calendar have to run there.
"""

from __future__ import annotations

from datetime import datetime

from sqlglot import exp

from dpsql.sql.binding.expressions import Expr, rebuild, render
from dpsql.sql.sandbox.database import Sandbox


def with_moments(node: Expr, sandbox: Sandbox) -> str:
    """Write an expression with constants in place of those that are moved by intervals.

    Raises:
        SandboxError: DuckDB can't compute one.
    """
    if node.find(exp.Interval) is None:
        return render(node)

    def change(part: Expr) -> Expr:
        moved = isinstance(part, exp.Add | exp.Sub) and part.find(exp.Interval) is not None
        if moved and part.find(exp.Column, exp.Query) is None:
            found = sandbox.frame(f"SELECT {render(part)} AS v")["v"][0]
            if isinstance(found, datetime) and found.tzinfo is None:
                return exp.cast(exp.Literal.string(found.isoformat(" ")), "TIMESTAMP")
        return rebuild(part, change)

    return render(change(node))
