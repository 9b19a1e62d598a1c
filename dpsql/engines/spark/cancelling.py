"""Jobs of Spark that are ended while they run: by Ctrl-C, or by somebody else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dpsql.engines.interrupts import EndedStatementError

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

_REPLACED = frozenset({"_signal", "pyspark", "dpsql"})
"""Packages whose handlers of SIGINT give way: Python's own, Spark's, and ours for databases."""


_CANCELLED = frozenset({"SPARK_JOB_CANCELLED", "OPERATION_CANCELED"})
"""Names of errors, of Spark and of Spark Connect, for jobs that somebody has cancelled."""


@contextmanager
def ended_apart() -> Iterator[None]:
    """Tell jobs that somebody has cancelled from those that failed.

    Raises:
        EndedStatementError: one was cancelled.
    """
    try:
        yield
    except Exception as error:
        if _CANCELLED.isdisjoint(_conditions(error)):
            raise
        raise EndedStatementError from None


def _conditions(error: BaseException) -> Iterator[str | None]:
    """Yield what Spark calls an error, and those that it comes of, in Java too."""
    found: BaseException | None = error
    while found is not None:
        own: Any = found
        with suppress(Exception):  # it is no error of Spark's
            yield own.getCondition()
        java: Any = getattr(found, "_origin", None) or getattr(found, "java_exception", None)
        while java is not None:
            with suppress(Exception):
                yield str(java.getCondition())
            java = java.getCause()
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


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
