"""The functions of SQL in three columns: what is written, what it is in the sandbox, and on rows.

The first two are listed in `dpsql/sql/sandbox/permitted.py`, the third is what `dpsql/rows/` has
records of (`rows/functions.py`), which has to be among the second: constants of an expression of
rows are computed in the sandbox.

Nowhere in it are functions that tell the time, the session or the catalog (`now`, `version`), that
draw random numbers, keep state, wait, fail on purpose, read files or run text as SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import InternalError
from dpsql.rows.functions import FUNCTIONS as OF_ROWS
from dpsql.rows.read import READ
from dpsql.schema.names import folded
from dpsql.sql.sandbox import permitted as listed

Class = type[exp.Expr]


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function that may be written, or by which others are.

    Args:
        written: a class of the parser's, or a name that it has no class for; None if nobody may
            write it.
        sandbox: DuckDB's name; empty if it is syntax.
        on_rows: whether it may run on private rows, too.
    """

    written: Class | str | None
    sandbox: str
    on_rows: bool


def _table(entries: Sequence[listed.Entry]) -> tuple[SqlFunction, ...]:
    table = []
    for name, word in entries:
        written: Class | str | None = getattr(exp, word) if word[:1].isupper() else word or None
        table.append(SqlFunction(written, name, (name or folded(word)) in READ))
    return tuple(table)


SCALARS, _AGGREGATES, _WINDOWS = map(_table, (listed.SCALARS, listed.AGGREGATES, listed.WINDOWS))
"""The table: functions of their arguments alone, aggregates, and window functions."""
_NOWHERE = sorted({one.duckdb for one in OF_ROWS.values() if one.duckdb} - listed.RUN)
if _NOWHERE:
    raise InternalError(f"functions of rows that can't run in the sandbox: {_NOWHERE}")


def _classes(table: Sequence[SqlFunction]) -> frozenset[Class]:
    return frozenset(one.written for one in table if isinstance(one.written, type))


FUNCTIONS = _classes(SCALARS)
"""Functions that the parser knows by a class of their own."""
NAMED = frozenset(one.written for one in SCALARS if isinstance(one.written, str))
"""Functions that the parser knows by name only."""
AGGREGATES = _classes(_AGGREGATES)
"""Aggregates that may be computed on public or noisy rows; fewer may be on private ones."""
WINDOWS = _classes(_WINDOWS)
"""Window functions; they compute on noisy answers."""

VOLATILE: tuple[type[exp.Expr], ...] = (
    exp.Rand, exp.Uuid, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime,
    exp.Localtimestamp, exp.CurrentDatabase, exp.CurrentSchema, exp.CurrentVersion,
    exp.CurrentUser, exp.SessionUser, exp.CurrentRole, exp.CurrentCatalog,
)  # fmt: skip
"""Functions whose value isn't one of their arguments, for a better message."""

TYPES = frozenset(
    {
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT",
        "UINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "TEXT", "CHAR", "DATE",
        "TIMESTAMP", "TIMESTAMPNTZ", "TIME", "INTERVAL",
    }
)  # fmt: skip
"""Types that can be cast to."""
