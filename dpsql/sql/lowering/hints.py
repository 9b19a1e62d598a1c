"""Hints for what DuckDB can't compute: by the class of its error, and by what stands there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from dpsql.errors import Span, printable
from dpsql.hints import Hint, first_that_works, instead, write
from dpsql.schema.names import as_sql
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.sandbox.database import Refusal, SandboxError
from dpsql.sql.text.edits import casts, chained, renamed, swapped, written
from dpsql.sql.text.spans import SourceText


def hint_for(
    error: SandboxError,
    node: Expr | None,
    source: SourceText,
    span: Span | None,
    columns: Iterable[str] = (),
) -> str:
    """Say what to do about an error.

    Args:
        error: what DuckDB says.
        node: the expression, if it is known.
        source: the statement's text.
        span: where that was written, if it is known.
        columns: the columns of the table.
    """
    parts = [] if node is None else list(node.walk())
    if error.kind is Refusal.UNBOUND and any(isinstance(part, exp.Query) for part in parts):
        return first_that_works(
            renamed(source, str(error), map(as_sql, columns)),
            "a subquery can use the columns of its own tables only; join them instead.",
        )
    if span is None:
        return "check the types, and rule out values for which it isn't defined."
    if error.kind is Refusal.OVERFLOW:
        return first_that_works(
            casts(source, span),
            "cast to a larger type first, as in age::BIGINT, or write a smaller number.",
        )
    if error.kind is Refusal.CONVERSION and any(map(_converts, parts)):
        shown = printable(" ".join(source.text(span).split()))
        tried = instead(f"TRY({shown})", of=span)
        return tried + " is NULL for such values; leave them out by WHERE if none can occur."
    return first_that_works(
        _otherwise(error, source, span),
        "check the types, and rule out values for which it isn't defined.",
    )


def _otherwise(error: SandboxError, source: SourceText, span: Span) -> Iterator[Hint]:
    """Write what DuckDB refuses for its types otherwise."""
    said, text = str(error), source.text(span)
    if "INTERVAL" in said:
        return  # as what an interval is meant there, isn't known
    if said.endswith("to BOOL"):
        given = written(source, f"{text} IS NOT NULL", span)
        yield given + " A condition is true or false: or compare it with a value."
    yield from chained(source, span)
    yield from swapped(source, span, r"\bRANGE\b", "ROWS")
    if "(DATE -> DOUBLE)" in said:
        yield write(f"date_diff('day', DATE '2000-01-01', {text})", of=span)
    yield from casts(source, span, "DATE" if "date field format" in said else "INTEGER")


def _converts(node: Expr) -> bool:
    """Whether a node makes another value of a column: a cast, or a function such as make_date."""
    function = isinstance(node, exp.Func) and not isinstance(node, exp.Connector)
    return function and node.find(exp.Column) is not None
