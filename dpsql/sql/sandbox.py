"""A DuckDB of our own, which holds public things only: domains, public tables, noisy answers.

The analyst's expressions are evaluated here and nowhere else. So three-valued logic, casts, the
order of strings and dates are DuckDB's own, while nothing, not even an error, can depend on a row
of the private table. The database is in memory, reaches no file and no network, and stops a
statement that takes too much memory or time.
"""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import printable
from dpsql.schema import Domain
from dpsql.schema.declared import enum_labels

MAX_SECONDS = 60.0
"""What the statements of one script, or of one answer, may take together."""

_HARDENED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "2",
    "memory_limit": "2GB",
    "max_temp_directory_size": "0B",
    "preserve_insertion_order": "true",
    "lock_configuration": "true",
}
_KIND = re.compile(r"^[A-Za-z ]*Error: ")
_PLACE = re.compile(r"\n.*", re.DOTALL)


class SandboxError(Exception):
    """DuckDB refuses a statement on public data; the text may be shown."""


class Sandbox:
    """Runs statements that the library has checked and rewritten, one at a time."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config=_HARDENED)
        self.lock = threading.RLock()
        """Held while statements are run that belong together."""
        self.left = MAX_SECONDS
        """Seconds that statements may still take, together."""
        self._domains: dict[tuple[int, Domain], str] = {}
        self._cells: dict[str, pl.DataFrame] = {}
        self._names = 0
        self.deadline: float | None = None
        """When the running statement is to be stopped."""
        _WATCH.add(self)

    def interrupt(self) -> None:
        """Stop the running statement."""
        self._con.interrupt()

    def new_name(self, what: str) -> str:
        """Return a table name that is not in use, and that no analyst can give."""
        self._names += 1
        return f"__{what}_{self._names}"

    def run(self, sql: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement for its effect.

        Raises:
            SandboxError: it fails, or takes too long.
        """
        self.rows(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a result."""
        with self.lock, _Limit(self):
            try:
                return self._con.execute(sql, list(parameters)).fetchall()
            except (duckdb.Error, ValueError, OverflowError) as error:
                text = _shown(error)
        raise SandboxError(text)

    def arrays(self, sql: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a result without NULL as arrays."""
        with self.lock, _Limit(self):
            try:
                found = self._con.execute(sql).fetchnumpy()
            except duckdb.Error as error:
                text = _shown(error)
            else:
                return {name: np.asarray(column) for name, column in found.items()}
        raise SandboxError(text)

    def frame(self, sql: str) -> pl.DataFrame:
        """Return a result with the types of Polars; an ENUM keeps its labels."""
        types = self.types(sql)
        with self.lock, _Limit(self):
            try:
                found: pl.DataFrame = self._con.sql(sql).pl()
            except (duckdb.Error, pl.exceptions.PolarsError) as error:
                text = _shown(error)
            else:
                casts = [
                    pl.col(name).cast(pl.Enum(labels))
                    for name, type_ in types
                    if (labels := enum_labels(type_))
                ]
                return found.with_columns(casts)
        raise SandboxError(text)

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return name and DuckDB type of a result's columns, without running it."""
        return [(row[0], row[1]) for row in self.rows(f"DESCRIBE {sql}")]

    def store(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame as a table."""
        with self.lock:
            try:
                self._con.register("__incoming", frame)
            except (duckdb.Error, pl.exceptions.PolarsError) as error:
                text = _shown(error)
                raise SandboxError(text) from None
            try:
                self.run(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM __incoming")
            finally:
                self._con.unregister("__incoming")

    def domain(self, index: int, domain: Domain) -> str:
        """Store a domain once, as a table with `code`, `value` and `upper`; return its name.

        The row of NULL, if there is one, has the last code.
        """
        key = (index, domain)
        if key not in self._domains:
            name = self.new_name("domain")
            self._store_domain(name, domain)
            self._domains[key] = name
        return self._domains[key]

    def cells(self, index: int, domain: Domain) -> pl.DataFrame:
        """Return the values of a domain in the order of their codes, as the column `value`."""
        name = self.domain(index, domain)
        if name not in self._cells:
            self._cells[name] = self.frame(f"SELECT value FROM {name} ORDER BY code")
        return self._cells[name]

    def _store_domain(self, name: str, domain: Domain) -> None:
        values, count = domain.values, domain.size - domain.nullable
        columns = f"code BIGINT, value {column_type(domain)}, upper {column_type(domain)}"
        self.run(f"CREATE TABLE {name} ({columns})")
        if isinstance(values, range):
            value = f"(range::HUGEINT + ({values.start})::HUGEINT)::{domain.type}"
            self.run(f"INSERT INTO {name} SELECT range, {value}, {value} FROM range({count})")
        else:
            texts = [_text(value) for value in values]
            uppers = texts if domain.uppers is None else [_text(value) for value in domain.uppers]
            lists = "unnest(?::VARCHAR[]), unnest(?::VARCHAR[])"
            self.run(f"INSERT INTO {name} SELECT unnest(range({count})), {lists}", [texts, uppers])
        if domain.nullable:
            self.run(f"INSERT INTO {name} VALUES ({count}, NULL, NULL)")


class _Limit:
    """Marks a statement as running, for the watch to interrupt it if it takes too long."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.monotonic()
        self._sandbox.deadline = self._start + self._sandbox.left

    def __exit__(self, *_: object) -> None:
        self._sandbox.deadline = None
        self._sandbox.left -= time.monotonic() - self._start


class _Watch:
    """One thread that interrupts statements beyond their time, in all sandboxes."""

    def __init__(self) -> None:
        self._sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, sandbox: Sandbox) -> None:
        with self._lock:
            self._sandboxes.add(sandbox)
            if self._thread is None or not self._thread.is_alive():  # a fork has no threads
                self._thread = threading.Thread(target=self._run, name="dpsql-watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(1.0)
            self._look()

    def _look(self) -> None:
        """Look once; a method of its own, so that no sandbox is kept alive while it sleeps."""
        with self._lock:
            sandboxes = list(self._sandboxes)
        for sandbox in sandboxes:
            deadline = sandbox.deadline
            if deadline is not None and time.monotonic() > deadline:
                sandbox.interrupt()


_WATCH = _Watch()


def column_type(domain: Domain) -> str:
    """Return the DuckDB type of a column with this domain."""
    if domain.type != "ENUM":
        return domain.type
    return "ENUM(" + ", ".join(quoted_text(str(v)) for v in domain.values) + ")"


def quoted_text(text: str) -> str:
    """Write a string literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _shown(error: Exception) -> str:
    """Return the first line of DuckDB's message, without what quotes the rewritten statement."""
    text = _PLACE.sub("", _KIND.sub("", str(error)))
    return printable(text[:200]).strip()
