"""A DuckDB of our own, which holds public things only: domains, public tables, noisy answers.

The analyst's expressions are evaluated here and nowhere else. So three-valued logic, casts, the
order of strings and dates are DuckDB's own, while nothing, not even an error, can depend on a row
of the private table. The database is in memory, reaches no file and no network, and stops a
statement that takes too much memory or time.
"""

from __future__ import annotations

import json
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import duckdb
import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import printable
from dpsql.schema import Domain
from dpsql.schema.declared import FLOAT_TYPES, enum_labels
from dpsql.sql.sandbox.permitted import OWN_TABLE, NotPermittedError, check_permitted

T = TypeVar("T")
Con = duckdb.DuckDBPyConnection
Read = Callable[[Con, str, list[object]], T]

MAX_SECONDS = 60.0
"""What the statements of one script, or of one answer, may take together."""

_HARDENED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "temp_directory": "",  # else the owner's, and readable: it is on allowed_directories
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "2",
    "memory_limit": "2GB",
    "max_temp_directory_size": "0B",
    "preserve_insertion_order": "true",
}
_LOCKED = ("SET disabled_filesystems='LocalFileSystem'", "SET lock_configuration=true")
"""Run in this order: without a file system nothing is left to open, and then it stays so."""
_VALUE_FUNCTIONS = """
    current_catalog current_date current_localtime current_localtimestamp current_role
    current_schema current_user get_current_time get_current_timestamp session_user user
"""
_NAMES_OF_FUNCTIONS = tuple(
    f"CREATE MACRO {name}() AS error('There is no column of this name.')"
    for name in _VALUE_FUNCTIONS.split()
)
"""DuckDB takes the name of no column for a function of the clock or the session: not here."""
_TREE = "SELECT json_serialize_sql(?)"
_INCOMING = "__incoming_0"
_KIND = re.compile(r"^[A-Za-z ]*Error: ")
_PLACE = re.compile(r"\n.*", re.DOTALL)


class SandboxError(Exception):
    """DuckDB refuses a statement on public data; the text may be shown."""


class Sandbox:
    """Runs statements that the library has checked and rewritten, one at a time."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config=_HARDENED)
        for statement in (*_NAMES_OF_FUNCTIONS, *_LOCKED):
            self._con.execute(statement)
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

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a result.

        Raises:
            SandboxError: the query is none that may run, fails, or takes too long.
        """
        return self._run("", query, parameters, read=_rows)

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a result without NULL as arrays."""
        found = self._run("", query, (), read=_arrays)
        return {name: np.asarray(column) for name, column in found.items()}

    def frame(self, query: str) -> pl.DataFrame:
        """Return a result with the types of Polars; an ENUM keeps its labels."""
        with self.lock:
            types, found = self.types(query), self._run("", query, (), read=_frame)
        labels = [(name, enum_labels(type_)) for name, type_ in types]
        return found.with_columns(pl.col(n).cast(pl.Enum(each)) for n, each in labels if each)

    def types(self, query: str) -> list[tuple[str, str]]:
        """Return name and DuckDB type of a result's columns, without running it."""
        return [(row[0], row[1]) for row in self._run("DESCRIBE ", query, (), read=_rows)]

    def create(
        self, name: str, query: str, parameters: Sequence[object] = (), *, view: bool = False
    ) -> None:
        """Keep the result of a query as a table, in place of an old one; or the query as a view."""
        kind = "VIEW" if view else "TABLE"
        self._run(f"CREATE OR REPLACE {kind} {_own(name)} AS ", query, parameters, read=_rows)

    def drop(self, name: str) -> None:
        """Forget a table."""
        with self.lock:
            self._con.execute(f"DROP TABLE {_own(name)}")

    def store(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame as a table."""
        with self.lock:
            try:
                self._con.register(_INCOMING, frame)
            except (duckdb.Error, pl.exceptions.PolarsError) as error:
                text = _shown(error)
                raise SandboxError(text) from None
            try:
                self.create(name, f"SELECT * FROM {_INCOMING}")
            finally:
                self._con.unregister(_INCOMING)

    def _run(self, before: str, query: str, parameters: Sequence[object], read: Read[T]) -> T:
        """Run a query, with words of ours before it, if it is one that may run.

        This is the only way to DuckDB for a text with anything in it that isn't the library's.
        """
        with self.lock, _Limit(self):
            try:
                ((tree,),) = self._con.execute(_TREE, [query]).fetchall()
                check_permitted(json.loads(tree))
                return read(self._con, before + query, list(parameters))
            except NotPermittedError as error:
                text = str(error)
            except (duckdb.Error, pl.exceptions.PolarsError, ValueError, OverflowError) as error:
                text = _shown(error)
        raise SandboxError(text)

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
        values, count, type_ = domain.values, domain.size - domain.nullable, column_type(domain)
        parameters: list[object] = []
        if isinstance(values, range):
            value = f"(range::HUGEINT + ({values.start})::HUGEINT)::{type_}"
            query = f"SELECT range AS code, {value} AS value, {value} AS upper FROM range({count})"
        else:
            texts = [_text(value) for value in values]
            uppers = texts if domain.uppers is None else [_text(value) for value in domain.uppers]
            parameters = [texts, uppers]
            query = (
                f"SELECT code, value::{type_} AS value, upper::{type_} AS upper FROM (SELECT "
                f"unnest(range({count})) AS code, unnest(?::VARCHAR[]) AS value, "
                "unnest(?::VARCHAR[]) AS upper)"
            )
        if domain.nullable:
            query += f" UNION ALL SELECT {count}, NULL, NULL"
        self.create(name, query, parameters)


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
    """Return the DuckDB type in which SQL sees a column with this domain."""
    if domain.type.startswith("DECIMAL(") and domain.column_type not in {"", *FLOAT_TYPES}:
        return domain.column_type  # which may have more digits: as text, 0.50 is not 0.5
    if domain.type == "DOUBLE" and domain.column_type == "FLOAT":
        return "FLOAT"  # which a number is compared with as a FLOAT: 0.7 is not 0.7::DOUBLE
    if domain.type != "ENUM":
        return domain.type
    return "ENUM(" + ", ".join(quoted_text(str(v)) for v in domain.values) + ")"


def quoted_text(text: str) -> str:
    """Write a string literal."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _own(name: str) -> str:
    """Return a table's name as SQL.

    Raises:
        ValueError: it is none of `Sandbox.new_name`.
    """
    if OWN_TABLE.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name for a table here")
    return name


def _rows(con: Con, sql: str, parameters: list[object]) -> list[tuple[Any, ...]]:
    return con.execute(sql, parameters).fetchall()


def _arrays(con: Con, sql: str, parameters: list[object]) -> dict[str, NDArray[Any]]:
    return con.execute(sql, parameters).fetchnumpy()


def _frame(con: Con, sql: str, _: list[object]) -> pl.DataFrame:
    found: pl.DataFrame = con.sql(sql).pl()
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _shown(error: Exception) -> str:
    """Return the first line of DuckDB's message, without what quotes the rewritten statement."""
    text = _PLACE.sub("", _KIND.sub("", str(error)))
    return printable(text[:200]).strip()
