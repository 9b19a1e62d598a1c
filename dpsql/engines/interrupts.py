"""Ctrl-C while DuckDB runs a statement."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_EVERY_SECONDS = 0.05


@contextmanager
def interruptible(con: DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C end the statement that `con` runs, and raise KeyboardInterrupt then.

    Python hands signals to the main thread between two of its own steps, so not before a
    statement of DuckDB has ended. Here a second thread hears of the signal at once and ends the
    statement; whatever error comes of that, it is the interrupt that is raised.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # another thread is not told of signals; whoever has a handler wants no other
        return
    handled = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.default_int_handler(number, frame)

    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    earlier_mouth = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(ear, con, handled, earlier_mouth), daemon=True)
    earlier = signal.signal(signal.SIGINT, handle)
    watch.start()
    try:
        yield
    except Exception:
        if handled.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, earlier)
        signal.set_wakeup_fd(earlier_mouth)
        handled.set()
        mouth.close()
        watch.join()
        ear.close()


def _watch(
    ear: socket.socket, con: DuckDBPyConnection, handled: threading.Event, earlier_mouth: int
) -> None:
    """Wait for SIGINT, then end statements until Python has heard of it too.

    Whoever listened before, an event loop for example, hears of all signals too.
    """
    while number := ear.recv(1):
        if earlier_mouth != -1:
            with suppress(OSError):  # it is full, or gone
                os.write(earlier_mouth, number)
        while number[0] == signal.SIGINT and not handled.is_set():
            con.interrupt()
            handled.wait(_EVERY_SECONDS)
