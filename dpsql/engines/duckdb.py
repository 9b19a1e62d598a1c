"""Counts from DuckDB, by statements that the library builds from the schema alone.

The private connection never sees a word that an analyst wrote: identifiers come from the
catalog and are quoted, domain values are bound parameters, and nothing but counts comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np

from dpsql.engines.base import (
    Counted,
    Counting,
    Counts,
    Engine,
    Marginal,
    Merged,
    Step,
    cells_counted,
)
from dpsql.engines.bounded import KEPT, kept_rows
from dpsql.engines.columns import CodedColumn, Parameters, call, whole
from dpsql.engines.cover import cover, roll_up, tally
from dpsql.errors import InternalError, ResourceLimitError
from dpsql.schema import Table
from dpsql.schema.catalog import fetch
from dpsql.schema.names import quoted_name

PERFECT_HASH_BITS = 20
"""Blocks of up to `cover.MAX_BLOCK_CELLS` cells fit this comfortably."""

SETTINGS = """
    SELECT system.main.current_setting('lock_configuration'),
        system.main.current_setting('enable_profiling'),
        system.main.current_setting('perfect_ht_threshold')
"""


class DuckDBEngine(Engine):
    """Counts marginals on the caller's own connection, in one read transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, *, on_step: Step | None = None) -> None:
        self.con = con
        self.on_step = on_step

    def prepared(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
    ) -> DuckDBCounting:
        """Build the statements that count every wanted marginal; see `Engine.prepared`."""
        needed = scans(table, wanted, merged)
        return DuckDBCounting(self, tuple(wanted), tuple(needed), table.contributions)

    def marginals(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
    ) -> Counted:
        """Count every wanted marginal, at once."""
        return self.prepared(table, wanted, merged).run()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Begin a read transaction, unless the caller has one; see `Engine.snapshot`.

        Raises:
            SchemaError: the connection is closed, busy, or in a failed transaction.
            ResourceLimitError: profiling is on and can't be switched off; it would print counts.
        """
        with self._quiet_and_fast():
            owned = self._outside()
            # Ctrl-C may come at any line, so also before the first end: then the second is reached.
            try:
                try:
                    if owned:
                        fetch(self.con, "BEGIN TRANSACTION")
                    yield
                finally:
                    self._end(owned)
            finally:
                self._end(owned)

    def _outside(self) -> bool:
        """Whether the caller has no transaction open: otherwise the snapshot is the caller's.

        Just trying would not do, because a nested BEGIN aborts the caller's transaction. Outside
        a transaction every statement has a transaction number of its own.
        """
        number = "SELECT system.main.txid_current()"
        return fetch(self.con, number) != fetch(self.con, number)

    def _end(self, owned: bool) -> None:
        """End our transaction, if it is open."""
        if owned:
            with suppress(duckdb.Error):
                self.con.rollback()

    @contextmanager
    def _quiet_and_fast(self) -> Iterator[None]:
        """Switch profiling off, and let DuckDB count a block in a plain array.

        By default it does so up to 12 bits only. The settings are the connection's own and are
        put back. Where the configuration is locked, trying would abort an open transaction.
        """
        ((locked, profiling, bits),) = fetch(self.con, SETTINGS)
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
        for statement in changed:
            fetch(self.con, statement)
        try:
            yield
        finally:
            for statement in back:
                with suppress(duckdb.Error):
                    self.con.execute(statement).fetchall()


@dataclass(frozen=True, slots=True)
class DuckDBCounting(Counting):
    """The statements that count some marginals, to be bound before they are run."""

    engine: DuckDBEngine
    wanted: tuple[Marginal, ...]
    needed: tuple[Scan, ...]
    contributions: int

    def check(self) -> None:
        """Have DuckDB bind what `run` would run; see `Counting.check`."""
        with self.engine.snapshot():
            for scan in self.needed:
                scan.check(self.engine.con)

    def run(self) -> Counted:
        """Count the marginals that were prepared, on one snapshot; see `Counting.run`."""
        counted: dict[Marginal, Counts] = {}
        with self.engine.snapshot():
            for done, scan in enumerate(self.needed, start=1):
                counted |= scan.run(self.engine.con)
                if self.engine.on_step is not None:
                    self.engine.on_step(done, len(self.needed))
        return Counted(roll_up(self.wanted, counted), self.contributions)


@dataclass(frozen=True, slots=True)
class Scan:
    """One statement that counts blocks, as rows of (block, key, rows in that cell).

    Keys are mixed-radix.
    """

    sql: str
    parameters: tuple[Any, ...]
    shapes: Mapping[Marginal, tuple[int, ...]]

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement and its parameters.

        DESCRIBE ends there: the statement is neither optimized nor run, so that no row and no
        statistic of the table is looked at, and all that it returns are names and types.

        Raises:
            InternalError: it can't be bound.
        """
        try:
            con.execute(f"DESCRIBE {self.sql}", list(self.parameters)).fetchall()
        except duckdb.Error:
            bound = False
        else:
            bound = True
        if not bound:  # outside the handler: a parameter may be a label that was only declared
            raise InternalError("DuckDB refuses a counting statement; nothing was charged")

    def run(self, con: duckdb.DuckDBPyConnection) -> dict[Marginal, Counts]:
        """Run the statement; return the rows of each cell, by block."""
        found = con.execute(self.sql, list(self.parameters)).fetchnumpy()
        blocks = np.ma.filled(found["block"], -1).astype(np.int64)
        keys = np.ma.filled(found["key"], -1).astype(np.int64)
        rows = np.ma.filled(found["n"], 0).astype(np.int64)
        return {
            block: tally(shape, keys[blocks == number], rows[blocks == number])
            for number, (block, shape) in enumerate(self.shapes.items())
        }


def scans(table: Table, wanted: Sequence[Marginal], merged: Merged) -> list[Scan]:
    """Build the statements that count what every wanted marginal is summed from."""
    sizes = {name: cells_counted(table, name, merged) for name in table.columns}
    blocks = cover(wanted, sizes)
    if table.unit is not None:
        return [bounded_scan(table, blocks, merged)]
    return [scan(table, [block], merged) for block in blocks]


def scan(
    table: Table,
    blocks: Sequence[Marginal],
    merged: Merged = MappingProxyType({}),
    source: str | None = None,
) -> Scan:
    """Build the statement for some blocks.

    The inner queries group by the columns as they are stored, which DuckDB does fastest; codes
    are made of their few rows. Rows come from the table, unless there is another source.
    """
    parameters = Parameters()
    rows = source or ".".join(quoted_name(part) for part in table.path)
    parts = [_count(table, i, b, merged, rows, parameters) for i, b in enumerate(blocks)]
    shapes = {block: tuple(cells_counted(table, a, merged) for a in block) for block in blocks}
    return Scan(" UNION ALL ".join(parts), tuple(parameters.values), shapes)


def bounded_scan(
    table: Table,
    blocks: Sequence[Marginal],
    merged: Merged = MappingProxyType({}),
) -> Scan:
    """Build one statement for all blocks, over the rows that count of each privacy unit.

    They are found once: that takes far longer than to count them.
    """
    used = [name for name in table.columns if any(name in block for block in blocks)]
    counts = scan(table, blocks, merged, KEPT)
    return replace(
        counts, sql=f"WITH {KEPT} AS MATERIALIZED ({kept_rows(table, used)}) {counts.sql}"
    )


def _count(
    table: Table,
    number: int,
    block: Marginal,
    merged: Merged,
    source: str,
    parameters: Parameters,
) -> str:
    columns = {
        a: CodedColumn(a, f"k{i}", table.columns[a], leaves_out=table.leaves_out(a))
        for i, a in enumerate(block)
    }
    key = whole(0, "BIGINT")
    for attribute in block:
        size = whole(cells_counted(table, attribute, merged), "BIGINT")
        code = columns[attribute].code
        if attribute in merged:
            classes = parameters.bind(("classes", attribute), merged[attribute].tolist())
            place = call("+", code, whole(1, "BIGINT"))
            code = call("list_extract", f"{classes}::BIGINT[]", place)
        key = call("+", call("*", key, size), code)
    grouped = "".join(f"{columns[a].stored(parameters)} AS {columns[a].alias}, " for a in block)
    inside = " AND ".join(column.inside(parameters) for column in columns.values()) or "true"
    by = "GROUP BY " + ", ".join(str(i + 1) for i in range(len(block))) if block else ""
    return (
        f"SELECT {number} AS block, ({key})::BIGINT AS key, n FROM "
        f"(SELECT {grouped}system.main.count(*) AS n FROM {source} WHERE {inside} {by})"
    )
