"""The owner's side of the helper process: start it, ask it, stop it, and don't trust it.

There is one helper for each process that uses sandboxes. It is started by exec, with none of the
owner's environment, `/` as its folder and nothing open but its pipes, when the first statement is
to be run. It answers one message at a time. What doesn't stop when told to is killed, and the next
sandbox gets a new helper; sandboxes of the old one are lost.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpsql.errors import ResourceLimitError
from dpsql.sql.sandbox.protocol import MAX_REPLY_JSON, ProtocolError, read_message, write_message

MAX_REPLY = 2**31
"""Bytes of a result."""
MOST_KEPT, MAX_KEPT = 1024, 2**14
"""Replies that are kept, and the length of one with its question: 16 MiB together at most."""
SECONDS_OF_SILENCE = 1_800.0
"""Seconds by the clock that an answer is waited for: only a process that hangs takes so long.

Time is counted as CPU time, by the helper: see `worker.py`. So no answer depends on how busy the
computer is, and this is for what uses no time and doesn't end.
"""
SECONDS_TO_STOP = 2.0
"""Seconds that a stopped statement may go on before the helper ends: of CPU time where it took too
much of that, and by the clock after Ctrl-C."""

_LEAN = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "DUCKDB_JE_MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0",
}
"""It is address space that is bounded, and it would be used up by what nobody uses: Arrow's own
allocator reserves a gibibyte at a time, the C library 64 MiB for each thread, and DuckDB's keeps
the addresses of what it has freed."""

_BOOTSTRAP = """
import json, sys, types
folder, path = json.loads(sys.argv[1])
sys.path[:] = path
for name in ("dpsql", "dpsql.sql", "dpsql.sql.sandbox"):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
sys.modules["dpsql.sql.sandbox"].__path__ = [folder]
from dpsql.sql.sandbox.worker import main
main()
"""
"""Imports the helper's modules without the packages around them, which would import everything."""

Reply = tuple[dict[str, Any], bytes]


class KnownReplies:
    """Replies to the last questions whose answer follows from their text alone.

    They are of public things, as all that a helper knows, and are gone with it. What failed is
    asked again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[tuple[str, str], Reply] = OrderedDict()

    def get(self, question: tuple[str, str]) -> Reply | None:
        """Return the reply to a question: its kind, and its text."""
        with self._lock:
            reply = self._replies.get(question)
            if reply is not None:
                self._replies.move_to_end(question)
            return reply

    def put(self, question: tuple[str, str], reply: Reply) -> None:
        """Keep a reply, if it is small."""
        size = sum(map(len, question)) + len(reply[1]) + len(str(reply[0].get("tree", "")))
        if size > MAX_KEPT or reply[0].keys() & {"error", "unlisted"}:
            return
        with self._lock:
            self._replies[question] = reply
            while len(self._replies) > MOST_KEPT:
                self._replies.popitem(last=False)


class HelperError(Exception):
    """The helper doesn't run a statement; the text may be shown."""


class HelperLostError(HelperError):
    """The helper is gone, with all that it held."""


class Helper:
    """One helper process, as its owner sees it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.lock = threading.RLock()
        """Held while a message is sent and answered."""
        self._numbers = itertools.count(1)
        self._process = _started()
        self._stdin: Any = self._process.stdin
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._forgotten: list[int] = []
        self._dropped: list[tuple[int, str]] = []
        self.known = KnownReplies()
        """The helper's replies to questions that always have the same answer."""
        self.confined: tuple[str, ...] = ()
        """The rights that the helper says it has given up."""
        self._end = weakref.finalize(self, _kill, self._process, self._pid)
        threading.Thread(
            target=_listen, args=(self._process.stdout, self._replies), daemon=True
        ).start()
        try:
            first = self._replies.get(timeout=SECONDS_OF_SILENCE)
        except BaseException as error:
            self._end()
            if isinstance(error, queue.Empty):
                raise _not_started("it didn't answer in time") from None
            raise
        if first is None:
            self._end()
            raise _not_started("it ended at once")
        self.confined = tuple(map(str, first[0].get("ready", ())))

    @property
    def alive(self) -> bool:
        """Whether it is this process's, and was not stopped."""
        return self._end.alive and self._pid == os.getpid()

    @property
    def pid(self) -> int:
        """The helper's own process number."""
        return self._process.pid

    def let_go(self) -> None:
        """Close this process's ends of the pipes, and end the helper if it is this process's."""
        self._end()

    def forget(self, sandbox: int) -> None:
        """Tell the helper, with the next message, that a sandbox is no longer used."""
        self._forgotten.append(sandbox)

    def drop(self, sandbox: int, table: str) -> None:
        """Tell the helper, with the next message, that a table is no longer used."""
        self._dropped.append((sandbox, table))

    def ask(self, message: Mapping[str, object], block: bytes, seconds: float) -> Reply:
        """Send a message and wait for the reply.

        Args:
            message: what to do.
            block: a frame that goes with it.
            seconds: of CPU time, after which the helper stops the statement.

        Raises:
            HelperLostError: the helper is gone, or had to be killed.
        """
        with self.lock:
            if not self.alive:
                raise HelperLostError("what was prepared for it is gone")
            number, forgotten = next(self._numbers), self._forgotten[:]
            del self._forgotten[: len(forgotten)]
            dropped, self._dropped = self._dropped, []
            try:
                counted = {"number": number, "seconds": seconds, "grace": SECONDS_TO_STOP}
                told = {**counted, "forget": forgotten, "drop": dropped}
                write_message(self._stdin, {**message, **told}, block)
                return self._received(number, self._replies.get(timeout=SECONDS_OF_SILENCE))
            except queue.Empty:
                self._end()
                raise HelperLostError("its process doesn't answer") from None
            except OSError:
                self._end()
                raise HelperLostError("its process ended") from None
            except HelperLostError:
                self._end()
                raise
            except BaseException:  # Ctrl-C, for example: a message may be half sent
                self._stopped(number)
                raise

    def _received(self, number: int, reply: Reply | None) -> Reply:
        if reply is None or reply[0].get("number") != number:
            raise HelperLostError("it took too much memory, or failed")
        if reply[0].get("lost"):
            raise HelperLostError("it takes too long, and can't be stopped")
        return reply

    def _stopped(self, number: int) -> bool:
        """Stop the running statement, or else the helper; return whether the helper goes on."""
        try:
            write_message(self._stdin, {"kind": "stop"})
            self._received(number, self._replies.get(timeout=SECONDS_TO_STOP))
        except (OSError, queue.Empty, HelperLostError):
            self._end()
        except BaseException:
            self._end()
            raise
        return self._end.alive


def _started() -> subprocess.Popen[bytes]:
    if not sys.executable or getattr(sys, "frozen", False):
        raise _not_started("there is no Python interpreter to start it with")
    # A relative entry would be the folder where the owner happens to be now, and not at its start.
    path = [entry for entry in sys.path if Path(entry).is_absolute()]
    given = json.dumps([str(Path(__file__).parent), path])
    try:
        return subprocess.Popen(  # noqa: S603 - no shell, and no word of anybody's
            [sys.executable, "-I", "-B", "-X", "utf8", "-c", _BOOTSTRAP, given],
            bufsize=0,  # no buffers, and so no locks that a fork would take along
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=os.path.abspath(os.sep),
            env=_environment(),
            close_fds=True,
            start_new_session=True,
        )
    except OSError:
        raise _not_started("the system refuses to start it") from None


def _environment() -> dict[str, str]:
    """Return an environment that says nothing of the owner's.

    Times with a zone are shown in the zone of the process, which DuckDB would ask the system for.
    Windows can't start a process without its own folder.
    """
    return {"TZ": "UTC"} | _LEAN | {k: os.environ[k] for k in ("SYSTEMROOT",) if k in os.environ}


def _not_started(why: str) -> ResourceLimitError:
    return ResourceLimitError(
        f"The process in which SQL is evaluated can't be started: {why}.",
        hint="dpsql starts sys.executable as a second process; run it with an ordinary Python "
        "that may start processes.",
    )


def _listen(stdout: Any, replies: queue.SimpleQueue[Reply | None]) -> None:
    """Put what the helper says into a queue; None when it says nothing more, or nonsense.

    Nobody else in this process closes the pipe: the system would give its number to a pipe of the
    next helper, and a thread that is about to read from it would take the first words of that one.
    """
    with stdout, suppress(ProtocolError, OSError, ValueError, MemoryError):
        while (reply := read_message(stdout, MAX_REPLY_JSON, MAX_REPLY)) is not None:
            replies.put(reply)
    replies.put(None)


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a helper; a process that was forked off its owner only lets go of the pipes.

    The owner's thread that listens closes the one it reads from, see `_listen`; a fork has none.
    """
    streams = [process.stdin]
    if os.getpid() == owner:
        process.kill()
        process.wait()
    else:
        streams.append(process.stdout)
    for stream in streams:
        if stream is not None:
            with suppress(OSError):
                stream.close()


class _Current:
    """The helper of this process, started when it is needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Helper | None = None

    def get(self) -> Helper:
        with self._lock:
            if self._helper is None or not self._helper.alive:
                self._helper = Helper()
            return self._helper

    def forked(self) -> None:
        """Let go of the parent's helper in a process that was forked off."""
        old, self._helper, self._lock = self._helper, None, threading.Lock()
        if old is not None:
            old.let_go()


_CURRENT = _Current()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CURRENT.forked)


def helper() -> Helper:
    """Return this process's helper; start one if there is none."""
    return _CURRENT.get()
