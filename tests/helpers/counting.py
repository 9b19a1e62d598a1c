"""What stands between a release and the rows: every statement that counts, seen or replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from dpsql.engines.duckdb.engine import CountingScan
from dpsql.engines.duckdb.one_pass import OnePass

COUNTERS = (CountingScan, OnePass)
"""All that read rows: by a statement for each block, and by one for many."""


@contextmanager
def counted(by: Callable[..., Any]) -> Iterator[None]:
    """Have `by(run, statement, con, …)` count, which may call `run(statement, con, …)`."""

    def replaced(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda statement, *given: by(run, statement, *given)

    with ExitStack() as stack:
        for counter in COUNTERS:
            stack.enter_context(patch.object(counter, "run", replaced(counter.run)))
        yield


@contextmanager
def recorded_statements() -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """Keep the SQL and the parameters of all that counts."""
    found: list[tuple[str, tuple[Any, ...]]] = []

    def record(run: Callable[..., Any], statement: Any, *given: Any) -> Any:
        found.append((statement.sql, statement.parameters))
        return run(statement, *given)

    with counted(record):
        yield found
