"""The settings of a connection while rows are counted on it, and back to what they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb
from duckdb import DuckDBPyConnection

from dpsql.engines.duckdb.fetching import fetch
from dpsql.errors import ResourceLimitError

PERFECT_HASH_BITS = 20
"""Blocks of up to `cover.MAX_BLOCK_CELLS` cells fit this comfortably."""

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
    line, so it isn't drawn, but DuckDB knows how far it is. The settings are the connection's own
    and are put back. Where the configuration is locked, trying would abort an open transaction.
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
    bars = _bars_can_be_set(con, drawn=drawn)
    if drawn and bars:
        changed.append("SET enable_progress_bar_print = false")
        back.append("SET enable_progress_bar_print = true")
    if not bar and bars:
        changed.append("SET enable_progress_bar = true")
        back.insert(0, "SET enable_progress_bar = false")
    try:
        for statement in changed:
            fetch(con, statement)
        yield
    finally:
        for statement in back:
            with suppress(duckdb.Error):
                con.execute(statement).fetchall()


def _bars_can_be_set(con: DuckDBPyConnection, *, drawn: bool) -> bool:
    """Whether it can be changed how bars are drawn; if not, there are none.

    In a notebook without ipywidgets all attempts fail, and one would abort an open transaction of
    the connection: so this sets, on another one beside it, what it is anyway.
    """
    try:
        with con.cursor() as beside:
            beside.execute(f"SET enable_progress_bar_print = {str(drawn).lower()}").fetchall()
    except duckdb.Error:
        return False
    return True
