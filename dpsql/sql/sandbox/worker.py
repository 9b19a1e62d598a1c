"""The helper: a process that has a DuckDB and nothing else, and runs the sandboxes' statements.

It is started by `helper.py` with its own bootstrap, so that it imports DuckDB, Arrow and the few
modules beside this one, and not the rest of dpsql. Once warm it gives up files, network and memory
(`confine.py`). Sandboxes have a connection each, and temporary tables, which others don't see.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from dpsql.sql.sandbox.confine import confine
from dpsql.sql.sandbox.permitted import OWN_TABLE, NotPermittedError, check_permitted
from dpsql.sql.sandbox.protocol import read_message, write_message

_HARDENED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "temp_directory": "",  # else a folder of the owner's, and readable
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "2",
    "memory_limit": "2GB",
    "max_temp_directory_size": "0B",
    "preserve_insertion_order": "true",
}
_VALUE_FUNCTIONS = """
    current_catalog current_date current_localtime current_localtimestamp current_role
    current_schema current_user get_current_time get_current_timestamp session_user user
"""
_NAMES_OF_FUNCTIONS = tuple(
    f"CREATE MACRO {name}() AS error('There is no column of this name.')"
    for name in _VALUE_FUNCTIONS.split()
)
"""DuckDB takes the name of no column for a function of the clock or the session: not here."""
_LOCKED = ("SET disabled_filesystems='LocalFileSystem'", "SET lock_configuration=true")
"""Run in this order: without a file system nothing is left to open, and then it stays so."""
_TREE = "SELECT json_serialize_sql(?)"
_INCOMING = "__incoming_0"
_LIMITS = (
    duckdb.OperationalError,  # among them that memory is used up
    duckdb.InternalError,
    duckdb.InterruptException,
    duckdb.FatalException,
    MemoryError,
)
"""Errors that say nothing about the values of a statement."""
_KIND = re.compile(r"^[A-Za-z ]*Error: ")
_PLACE = re.compile(r"\n.*", re.DOTALL)
_PAUSE = 0.1
"""Seconds between two looks at how long a statement takes."""
_REMEMBERED = 16
"""A statement is described, rehearsed and run: its tree is looked at once."""
_DEPTH = 20_000
"""The depth of Python's recursion: DuckDB's trees have some levels for each operator."""

Con = duckdb.DuckDBPyConnection


def connect() -> Con:
    """Open a database in memory that reaches nothing, and whose settings can't be changed."""
    con = duckdb.connect(":memory:", config=_HARDENED)
    for statement in (*_NAMES_OF_FUNCTIONS, *_LOCKED):
        con.execute(statement)
    return con


@dataclass(slots=True)
class _Running:
    """The statement that runs."""

    con: Con
    number: object
    """The number of its message."""
    start: float
    seconds: float
    """The seconds that the message may take."""
    grace: float
    """Further seconds, in which a statement that was stopped has to end."""
    late: bool = False
    """Whether it was stopped for taking too long."""


class Worker:
    """The sandboxes of one helper.

    Args:
        con: the database; each sandbox gets a connection to it.
        clock: CPU time of this process, in seconds. One statement runs at a time, so what passes
            is its own.
    """

    def __init__(self, con: Con, clock: Callable[[], float] = time.process_time) -> None:
        self._con = con
        self._clock = clock
        self._cursors: dict[int, Con] = {}
        self._running: _Running | None = None
        self._changing = threading.Lock()
        """Held while a statement is stopped, so that the next one isn't stopped in its place."""
        self._permitted: deque[str] = deque(maxlen=_REMEMBERED)
        self.asked = threading.Event()
        """Set when a statement begins."""

    def stop(self) -> None:
        """Stop the running statement; called by another thread."""
        with self._changing:
            if self._running is not None:
                self._running.con.interrupt()

    @property
    def busy(self) -> bool:
        """Whether a statement runs."""
        return self._running is not None

    def overdue(self) -> object | None:
        """Stop the running statement if it has used up its time; called by another thread.

        Returns:
            The number of its message if it was stopped, and goes on all the same.
        """
        with self._changing:
            running = self._running
            if running is None:
                return None
            over = self._clock() - running.start - running.seconds
            if over > 0:
                running.late = True
                running.con.interrupt()
            return running.number if over > running.grace else None

    def answer(self, message: dict[str, Any], block: bytes) -> tuple[dict[str, object], bytes]:
        """Do what a message asks for; return the reply, and its block."""
        for number in message["forget"]:
            if number in self._cursors:
                self._cursors.pop(number).close()
        for number, name in message.get("drop", ()):
            if number in self._cursors:
                self._cursors[number].execute(f"DROP TABLE IF EXISTS {_own(name)}")
        con = self._cursors.get(message["sandbox"])
        if con is None:
            con = self._cursors[message["sandbox"]] = self._con.cursor()
        limits = message["seconds"], message["grace"]
        running = _Running(con, message["number"], self._clock(), *limits)
        self._running = running
        self.asked.set()
        try:
            reply, content = self._run(con, message, block)
        except NotPermittedError as error:
            reply, content = {"unlisted": str(error)}, b""
        except (duckdb.Error, pa.ArrowException, MemoryError, ValueError, OverflowError) as error:
            text = _PLACE.sub("", _KIND.sub("", str(error)))[:200]
            if running.late:
                text = f"it takes more than {running.seconds:g} seconds of CPU time"
            limit, name = running.late or isinstance(error, _LIMITS), type(error).__name__
            reply, content = {"error": text, "class": name, "limit": limit}, b""
        finally:
            with self._changing:
                self._running = None
        return {**reply, "seconds": self._clock() - running.start}, content

    def _run(
        self, con: Con, message: dict[str, Any], block: bytes
    ) -> tuple[dict[str, object], bytes]:
        kind, name = message["kind"], message.get("name", "")
        if kind == "store":
            return self._store(con, name, block)
        if kind == "tree":
            return {"tree": con.execute(_TREE, [message["query"]]).fetchall()[0][0]}, b""
        query, parameters = message["query"], message["parameters"]
        self._check(con, query)
        if kind in {"TABLE", "VIEW"}:
            statement = f"CREATE OR REPLACE TEMP {kind} {_own(name)} AS {query}"
            con.execute(statement, parameters)
            return {}, b""
        relation = con.sql(query, params=parameters or None)
        types = list(zip(relation.columns, map(str, relation.types), strict=True))
        # Without parameters nothing has run yet.
        return {"types": types}, b"" if kind == "types" else _packed(relation.to_arrow_table())

    def _check(self, con: Con, query: str) -> None:
        """Refuse what may not run. It depends on the text alone, so the same one passes again."""
        if query in self._permitted:
            return
        ((text,),) = con.execute(_TREE, [query]).fetchall()
        tree = json.loads(text)
        if tree.get("error_type") == "parser":
            raise ValueError(str(tree.get("error_message")))
        check_permitted(tree)
        self._permitted.append(query)

    def _store(self, con: Con, name: str, block: bytes) -> tuple[dict[str, object], bytes]:
        con.register(_INCOMING, pa.ipc.open_stream(block).read_all())
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE {_own(name)} AS SELECT * FROM {_INCOMING}")
        finally:
            con.unregister(_INCOMING)
        return {}, b""


def _own(name: str) -> str:
    """Return a table's name as SQL.

    Raises:
        ValueError: it is not one of a sandbox's own.
    """
    if OWN_TABLE.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a name for a table here")
    return name


def _packed(table: pa.Table) -> bytes:
    """Write a table in Arrow's stream format; labels are written out as strings."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(i).cast(field.type.value_type)
            table = table.set_column(i, field.name, plain)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _warm(worker: Worker) -> None:
    """Do once what loads something, so that nothing is to be loaded later."""
    columns = "1 AS a, 'x'::ENUM('x') AS b, 1.5::DECIMAL(9, 2) AS c, DATE '2026-01-31' AS d"
    plain = {"number": 0, "seconds": 60, "grace": 60, "forget": [], "sandbox": 0, "parameters": []}
    asked = {**plain, "kind": "frame", "query": f"SELECT {columns}"}
    _, block = worker.answer(asked, b"")
    for more in (
        {"kind": "store", "name": "__warm_1"},
        {"kind": "TABLE", "name": "__warm_2", "query": "SELECT * FROM __warm_1"},
        {"kind": "select", "query": "SELECT strftime(d, '%Y'), error_ FROM __warm_2"},
        {"kind": "types", "query": "SELECT 1 AS a", "drop": [(0, "__warm_1"), (0, "__warm_2")]},
    ):
        worker.answer({**plain, **more}, block)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer messages until the owner's end is closed."""
    worker = Worker(connect())
    waiting: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()

    def listen() -> None:
        """Hear of messages also while a statement runs; without an owner there is none to wait."""
        try:
            while (received := read_message(source)) is not None:
                if received[0]["kind"] == "stop":
                    worker.stop()
                else:
                    waiting.put(received)
        finally:
            os._exit(0)

    writing = threading.Lock()

    def watch() -> None:
        """End what takes too much CPU time: the statement, or else the process."""
        while worker.asked.wait():
            worker.asked.clear()
            while worker.busy:
                number = worker.overdue()
                if number is not None:
                    with writing:
                        write_message(sink, {"lost": True, "number": number})
                        os._exit(0)
                time.sleep(_PAUSE)

    sys.setrecursionlimit(_DEPTH)
    _warm(worker)
    for task in (listen, watch):
        threading.Thread(target=task, daemon=True).start()
    write_message(sink, {"ready": confine()})
    while True:
        message, block = waiting.get()
        reply, content = worker.answer(message, block)
        with writing:
            write_message(sink, {**reply, "number": message["number"]}, content)


def main() -> None:
    """Serve over standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner stops statements, or the process
    serve(sys.stdin.buffer, sys.stdout.buffer)
