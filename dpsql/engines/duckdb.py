"""Counts from DuckDB, by statements that the library builds from the schema alone.

The private connection never sees a word that an analyst wrote: identifiers come from the
catalog and are quoted, domain values are bound parameters, and nothing but counts comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from dpsql.engines.base import Counts, Marginal
from dpsql.engines.cover import cover, roll_up
from dpsql.schema import Domain, Table

PERFECT_HASH_BITS = 20
"""Blocks of up to `cover.MAX_BLOCK_CELLS` cells fit this comfortably."""

Step = Callable[[int, int], None]
"""Called after each scan with the number of scans done and to do."""


class DuckDBEngine:
    """Counts marginals on the caller's own connection, in one read transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, *, on_step: Step | None = None) -> None:
        self._con = con
        self._on_step = on_step

    def marginals(self, table: Table, wanted: Sequence[Marginal]) -> Mapping[Marginal, Counts]:
        """Count every wanted marginal; see `Engine.marginals`."""
        used = {a for marginal in wanted for a in marginal}
        sizes = {name: domain.size for name, domain in table.columns.items() if name in used}
        blocks = cover(wanted, sizes)
        counted: dict[Marginal, Counts] = {}
        with self._wide_counters(), self._snapshot():
            for done, block in enumerate(blocks):
                counted[block] = scan(table, block, tuple(sizes)).run(self._con)
                if self._on_step is not None:
                    self._on_step(done + 1, len(blocks))
        return roll_up(wanted, counted)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Let all scans see the same rows."""
        owned = self._begin()
        try:
            yield
        finally:
            if owned:
                with suppress(duckdb.Error):
                    self._con.rollback()

    def _begin(self) -> bool:
        """Open a transaction, unless the caller has one open: then the snapshot is the caller's.

        Just trying would not do, because a nested BEGIN aborts the caller's transaction. Outside
        a transaction every statement has a transaction number of its own.
        """
        number = "SELECT txid_current()"
        if self._con.execute(number).fetchall() == self._con.execute(number).fetchall():
            return False
        self._con.begin()
        return True

    @contextmanager
    def _wide_counters(self) -> Iterator[None]:
        """Let DuckDB count a block in a plain array; by default that ends at 12 bits.

        The setting is the connection's own and is put back. Where the configuration is locked,
        trying would abort an open transaction, so counting is just slower there.
        """
        name = "perfect_ht_threshold"
        query = f"SELECT current_setting('lock_configuration'), current_setting('{name}')"
        locked, before = self._con.execute(query).fetchall()[0]
        if locked:
            yield
            return
        self._con.execute(f"SET {name} = {PERFECT_HASH_BITS}").fetchall()
        try:
            yield
        finally:
            with suppress(duckdb.Error):
                self._con.execute(f"SET {name} = {int(before)}").fetchall()


@dataclass(frozen=True, slots=True)
class Scan:
    """One statement that counts a block, as (key, rows) pairs over its mixed-radix key."""

    sql: str
    parameters: tuple[Any, ...]
    shape: tuple[int, ...]

    def run(self, con: duckdb.DuckDBPyConnection) -> Counts:
        """Count."""
        found = con.execute(self.sql, list(self.parameters)).fetchnumpy()
        counts = np.zeros(math.prod(self.shape), dtype=np.int64)
        counts[np.asarray(found["key"], dtype=np.int64)] = np.asarray(found["n"], dtype=np.int64)
        return counts.reshape(self.shape)


def scan(table: Table, block: Marginal, used: Sequence[str]) -> Scan:
    """Build the statement for a block; rows need a cell in every column of `used`.

    The inner query groups by the columns as they are stored, which DuckDB does fastest; codes
    are made of its few rows.
    """
    parameters: list[Any] = []
    columns = {a: _Column(a, f"k{i}", table.columns[a], parameters) for i, a in enumerate(used)}
    key = "0"
    for attribute in block:
        key = f"({key}) * {table.columns[attribute].size} + {columns[attribute].code}"
    grouped = "".join(f"{columns[a].stored} AS {columns[a].alias}, " for a in block)
    inside = " AND ".join(columns[a].inside for a in used) or "true"
    source = ".".join(quote(part) for part in table.path)
    by = "GROUP BY " + ", ".join(str(i + 1) for i in range(len(block))) if block else ""
    sql = (
        f"SELECT ({key})::BIGINT AS key, n FROM "
        f"(SELECT {grouped}count(*) AS n FROM {source} WHERE {inside} {by})"
    )
    return Scan(sql, tuple(parameters), tuple(table.columns[a].size for a in block))


class _Column:
    """SQL for one column.

    `inside` says whether a row has a cell, `stored` is what to group by under the name `alias`,
    and `code` makes the code of that. Codes are BIGINT: the key can't overflow a narrow type.
    """

    def __init__(self, name: str, alias: str, domain: Domain, parameters: list[Any]) -> None:
        column, values = quote(name), domain.values
        self.alias, self.stored = alias, column
        if isinstance(values, range):
            known = f"{column} BETWEEN {values.start} AND {values.stop - 1}"
            code = f"{alias}::HUGEINT - ({values.start})"
        elif domain.type == "BOOLEAN":
            known, code = f"{column} IS NOT NULL", alias
        elif domain.type == "ENUM":
            known, code = f"{column} IS NOT NULL", f"enum_code({alias})"
        else:
            self.stored = _position(column, values, parameters)
            known, code = f"{self.stored} IS NOT NULL", f"{alias} - 1"
        self.inside, self.code = known, f"({code})::BIGINT"
        if domain.nullable:
            self.inside = "true"
            self.stored = f"CASE WHEN {known} THEN {self.stored} END"
            self.code = f"coalesce({self.code}, {len(values)})"


def _position(column: str, values: Sequence[Any], parameters: list[Any]) -> str:
    """Return SQL for the place of a value in a list, from 1; NULL if it isn't there.

    Strings are compared as bytes. Under a collation such as NOCASE a GROUP BY would merge
    strings and show one of them, so that one row could move the count of a whole group.
    """
    if isinstance(values[0], str):
        parameters.append([str(v).encode() for v in values])
        return f"list_position(${len(parameters)}::BLOB[], encode({column}))"
    parameters.append(list(values))
    return f"list_position(${len(parameters)}::HUGEINT[], {column}::HUGEINT)"


def quote(identifier: str) -> str:
    """Quote an identifier of the catalog."""
    return '"' + identifier.replace('"', '""') + '"'
