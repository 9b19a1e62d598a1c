"""Every error that dpsql raises.

There are two families. A `DpsqlError` is for the reader to mend: it says what is wrong, where
(the place in the SQL, if there is one), why, and ends in a hint that works when typed. An
`InternalError` is a mistake of dpsql itself.

No error carries data: messages are built from the SQL text and the public schema only, and
`ExecutionError`, the only one raised after the data was touched, has a constant text.
"""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A half-open range of characters in a SQL text."""

    start: int
    end: int


class DpsqlError(Exception):
    """Base of all errors that the caller can mend."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nHint: {self.hint}"


class ArgumentError(DpsqlError, TypeError):
    """A call lacks an argument, or has one that it doesn't take."""


class SqlError(DpsqlError):
    """The SQL can't be answered; `span` marks the place in `sql`."""

    def __init__(
        self,
        message: str,
        *,
        sql: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.sql = sql
        self.span = span
        self.statement: str | None = None
        """The statement's name, where there are several; lines count from its beginning."""

    def __str__(self) -> str:
        parts = [self.message]
        if self.sql is not None and self.span is not None:
            parts.append(highlight(self.sql, self.span, self.statement))
        elif self.statement is not None:
            parts.append(f"  in statement {self.statement}")
        if self.hint is not None:
            parts.append(f"Hint: {self.hint}")
        return "\n".join(parts)


class SqlParseError(SqlError):
    """The text is not one well-formed SQL statement."""


class ValueByKeys(NamedTuple):
    """A value for each of some keys."""

    keys: tuple[str, ...]
    """Expressions that a row compares with each of the keys, in SQL."""
    missing: str | None
    """Its value if it has none of them, in SQL; None if it is NULL."""


class UnsupportedSqlError(SqlError):
    """Well-formed SQL with a construct that dpsql refuses."""

    value: str | None = None
    """If the place that is marked is a value of all units' rows: the statement that returns it."""
    behind: str | None = None
    """If what is marked is a query of such values: the text that is written behind it."""
    by_keys: ValueByKeys | None = None
    """If what is marked is a value for each of some keys, which the statement returns behind it."""


class SqlLimitError(SqlError):
    """The text is longer or deeper than dpsql is willing to parse."""


class WantedColumn(NamedTuple):
    """A column of which something is wanting that could be found in the rows."""

    path: tuple[str, ...]
    """Its table's."""
    column: str
    bounds: bool = False
    """Whether it is the bounds of its numbers; else it is the values that it has."""
    computed: object = None
    """The expression of columns of a row that is meant instead of the column itself: a
    `rows.found.FoundExpression` for its values, a `schema.entries.BoundedExpression` for bounds."""


class SchemaError(DpsqlError):
    """A table, column or domain is missing or badly declared."""

    unknown: bool = False
    """Whether it is about a name that no table or column has."""
    wanted: WantedColumn | None = None
    """The column for want of whose values, or bounds, something is refused, if they could be found.
    """


class SqlSchemaError(SqlError, SchemaError):
    """The SQL names a table or column that the schema lacks, or has no public domain for."""


class UnboundedError(SchemaError):
    """Nothing says how many rows of a unit count: of a table, or where rows of several meet."""


class StaleSchemaError(SchemaError):
    """The table is no longer the one that the schema describes."""


class WorkloadError(DpsqlError):
    """A workload is malformed: unknown attribute, wrong shape, bad weight."""


class MechanismError(DpsqlError):
    """A mechanism can't answer the workload, or not within a budget of this kind."""


class AccuracyError(DpsqlError):
    """A plan would lose accuracy that it need not lose, so nothing was charged."""


class BudgetError(DpsqlError):
    """A budget is malformed, or more is asked than is left."""


class LedgerError(DpsqlError):
    """The ledger can't be trusted or written, so nothing is released."""


class ResourceLimitError(DpsqlError):
    """The request would need too much memory, as the public sizes alone show."""


class SandboxLimitError(DpsqlError):
    """SQL over public values took too much time or memory, or the process that runs it is gone.

    So it isn't known what DuckDB says of it: whoever takes another error for that answer must not
    take this one for it. It tells of the computer as much as of the SQL.
    """


class ExecutionError(DpsqlError):
    """Something failed after the data was touched. The charge stands; no detail is given."""

    def __init__(self) -> None:
        super().__init__(
            "The release failed after the data was touched; the charge stands "
            "and nothing was handed out.",
            hint="check disk space, memory and the database with the data owner, then ask the same "
            "again; nothing more is charged if counting failed for the first time, or if its "
            "measurements were kept before the failure.",
        )


class UndeterminedError(SqlError):
    """Earlier measurements alone don't say what is asked; a budget is needed."""


class ReleaseFormatError(DpsqlError):
    """A release on disk can't be written, or is not what it should be."""


class PlotError(DpsqlError):
    """No picture fits what is to be drawn, or what draws it is not installed."""


class RandomnessError(DpsqlError):
    """The operating system gives no random bits, so there is no noise and no answer."""

    def __init__(self) -> None:
        super().__init__(
            "The operating system gave no random bits.",
            hint="check the system's random number generator (/dev/urandom on Linux).",
        )


class InternalError(Exception):
    """A check of dpsql on itself failed. This is a bug in dpsql, please report it."""


def highlight(sql: str, span: Span, statement: str | None = None) -> str:
    """Show the first line that `span` covers, with carets under the covered part."""
    start = min(max(span.start, 0), len(sql))
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line_end = len(sql) if line_end < 0 else line_end
    stop = max(start + 1, min(span.end, line_end))
    number = sql.count("\n", 0, start) + 1
    gutter = f"line {number}: " if statement is None else f"{statement}, line {number}: "
    line = printable(sql[line_start:line_end])
    carets = "^" * (stop - start)
    return f"  {gutter}{line}\n  {' ' * (len(gutter) + start - line_start)}{carets}"


def printable(text: str) -> str:
    """Replace control and direction characters, which could disguise a message."""
    if text.isprintable():
        return str.__str__(text)  # long texts in reports; of a subclass, too, a plain one
    return "".join(c if c.isprintable() else ("\t" if c == "\t" else "�") for c in text).replace(
        "\t", " "
    )


def shown(value: object) -> str:
    """Write whatever was passed, for a message; of what takes several lines, only the type."""
    try:
        text = repr(value)
    except ValueError:  # an int that is too long to be written
        return "This number"
    return f"a {type(value).__name__}" if "\n" in text else printable(text[:60])
