"""The settings of a connection: while rows are counted on it, and those under which it can't be.

Each setting of DuckDB's is one of three kinds. What changes the meaning of SQL is refused, since
statements mean here what they mean by default (`MEANING` of `catalog.py`). What prints or is slow
is set while rows are counted (`quiet_and_fast`). On what is left nothing here depends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import duckdb
from duckdb import DuckDBPyConnection

from dpsql.engines.duckdb.catalog import fetch
from dpsql.errors import ResourceLimitError

PERFECT_HASH_BITS = 20
"""Blocks of up to 20,000 cells fit this comfortably, and larger ones if they are packed."""

SETTINGS = """
    SELECT system.main.current_setting('lock_configuration'),
        system.main.current_setting('enable_profiling'),
        system.main.current_setting('perfect_ht_threshold'),
        system.main.current_setting('enable_progress_bar'),
        system.main.current_setting('enable_progress_bar_print')
"""


@contextmanager
def quiet_and_fast(con: DuckDBPyConnection) -> Iterator[None]:
    """Switch profiling and the drawing of bars off, and let DuckDB count a block in a plain array.

    By default it does so up to 12 bits only. A bar would be drawn over the library's own
    line, so it isn't drawn, but DuckDB knows how far it is, except in notebooks. The settings are
    the connection's own and are put back. Where the configuration is locked, trying would abort an
    open transaction.
    """
    ((locked, profiling, bits, bar, drawn),) = fetch(con, SETTINGS)
    if locked and profiling is not None:
        raise ResourceLimitError(
            "Profiling is on, which would print exact counts, and the configuration is locked.",
            hint="PRAGMA disable_profiling before the configuration is locked.",
        )
    if locked:
        yield
        return
    changed = [f"SET perfect_ht_threshold = {PERFECT_HASH_BITS}"]
    back = [f"SET perfect_ht_threshold = {int(bits)}"]
    if profiling is not None:
        changed.append("PRAGMA disable_profiling")
        back.append(f"PRAGMA enable_profiling = '{profiling}'")
    if _in_notebook():
        if bar:
            changed.append("SET enable_progress_bar = false")
            back.append("SET enable_progress_bar = true")
    else:
        if drawn:
            changed.append("SET enable_progress_bar_print = false")
            back.append("SET enable_progress_bar_print = true")
        if not bar:
            changed.append("SET enable_progress_bar = true")
            back.insert(0, "SET enable_progress_bar = false")
    # Ctrl-C may come at any line, so also before the first end: then the second is reached.
    try:
        try:
            for statement in changed:
                fetch(con, statement)
            yield
        finally:
            _put_back(con, back)
    finally:
        _put_back(con, back)


def _put_back(con: DuckDBPyConnection, statements: Sequence[str]) -> None:
    for statement in statements:
        with suppress(duckdb.Error):
            con.execute(statement).fetchall()


def _in_notebook() -> bool:
    """Whether a notebook draws bars: without ipywidgets it has none, and setting them fails."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
