"""Ctrl-C while jobs of Spark run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

_REPLACED = frozenset({"_signal", "pyspark", "dpsql"})
"""Packages whose handlers of SIGINT give way: Python's own, Spark's, and ours for databases."""


@contextmanager
def cancelled(session: SparkSession) -> Iterator[None]:
    """End the jobs that run inside when Ctrl-C is pressed, and raise KeyboardInterrupt then.

    Spark's own handler raises it while the answer is read from Java, and what reads it makes
    another error of that. Here a thread ends the jobs of the session, which is our own, and the
    error that they end with gives way to the interrupt. Whoever has another handler keeps it.
    """
    heard = list[int]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        threading.Thread(target=_end, args=(session,), daemon=True).start()

    before = signal.getsignal(signal.SIGINT)
    package = str(getattr(before, "__module__", "")).partition(".")[0]
    main = threading.current_thread() is threading.main_thread()
    replaces = main and package in _REPLACED
    try:
        if replaces:
            signal.signal(signal.SIGINT, interrupt)
        yield
    except Exception:
        if heard:
            raise KeyboardInterrupt from None
        raise
    finally:
        if replaces:
            signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def _end(session: SparkSession) -> None:
    with suppress(Exception):
        session.interruptAll()
