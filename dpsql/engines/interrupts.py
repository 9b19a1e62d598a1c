"""Statements that are ended from outside while a database runs them: by Ctrl-C, or otherwise.

When that happens is chosen by whoever does it. So it says nothing of the data, and is no failure of
what was counted, which would pay for a second look at how long the count takes.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

_EVERY_SECONDS = 0.05


class EndedStatementError(Exception):
    """A statement was ended from outside, or it can't be told that it wasn't. It quotes nothing."""


class Interruptible(Protocol):
    """A connection whose statement another thread may end, such as those of DuckDB and SQLite."""

    def interrupt(self) -> None:
        """End the statement that runs, with an error; do nothing if none does."""


@contextmanager
def interruptible(con: Interruptible) -> Iterator[None]:
    """Let Ctrl-C end the statement that `con` runs, and raise KeyboardInterrupt then.

    Python hands signals to the main thread between two of its own steps, so not before a
    statement of the database has ended. Here a second thread hears of the signal at once and
    ends the statement; whatever error comes of that, it is the interrupt that is raised. It is
    raised once: what cleans up after it is not interrupted by another Ctrl-C.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # another thread is not told of signals; whoever has a handler wants no other
        return
    interrupt, watch = _Interrupt(), _Watch(con)
    try:
        watch.begin(interrupt)
        yield
    except Exception:
        if interrupt.heard:
            raise KeyboardInterrupt from None
        raise
    finally:
        interrupt.held = True
        watch.end()
    if interrupt.heard:  # late, or the database has lost what the handler raised
        raise KeyboardInterrupt


def is_interrupted() -> bool:
    """Tell, within `interruptible`, whether Ctrl-C was pressed: errors may be what became of it.

    DuckDB looks for signals itself while a statement runs. If it is faster than the thread of
    `interruptible`, it raises an error of its own, and what the handler has raised is lost. Only
    the end of that block makes an interrupt of it again.
    """
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, _Interrupt) and handler.heard


class _Interrupt:
    """The handler of SIGINT, and what it noted.

    A signal may come at any step, so also while the handler is at work for another one. It takes
    no lock, for which such a second call would wait for ever.
    """

    def __init__(self) -> None:
        self.heard = False
        self.held = True
        """Whether a signal is only noted: one was raised before, or none may be now."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        if not self.held:
            self.held = True
            signal.default_int_handler(number, frame)


class _Watch:
    """A thread that hears of SIGINT while the main thread runs a statement, and ends that.

    Whoever listened before, an event loop for example, hears of all signals too.
    """

    def __init__(self, con: Interruptible) -> None:
        self._con = con
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._earlier_mouth, self._listens = -1, False
        self._thread: threading.Thread | None = None

    def begin(self, interrupt: _Interrupt) -> None:
        """Listen, and let `interrupt` handle SIGINT."""
        signal.signal(signal.SIGINT, interrupt)  # from now on a signal waits for the end of this
        self._thread = threading.Thread(target=self._run, args=(interrupt,), daemon=True)
        self._thread.start()
        self._earlier_mouth = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._listens = True
        interrupt.held = False
        if interrupt.heard:
            raise KeyboardInterrupt

    def end(self) -> None:
        """Put the handlers of signals back as they were."""
        if self._listens:
            signal.set_wakeup_fd(self._earlier_mouth)
        self._mouth.close()
        if self._thread is not None:
            self._thread.join()
        self._ear.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _run(self, interrupt: _Interrupt) -> None:
        """Wait for SIGINT, then end statements until Python has heard of it too.

        The first one ends a statement even if Python has heard of it: DuckDB looks for signals
        while it computes, notes that Python's handler has raised, and may go on computing.
        """
        is_first = True
        while number := self._ear.recv(1):
            if self._earlier_mouth != -1:
                with suppress(OSError):  # it is full, or gone
                    os.write(self._earlier_mouth, number)
            while number[0] == signal.SIGINT and (
                is_first or not (interrupt.heard or interrupt.held)
            ):
                is_first = False
                self._con.interrupt()
                time.sleep(_EVERY_SECONDS)
