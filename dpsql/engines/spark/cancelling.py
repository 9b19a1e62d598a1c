"""Jobs of Spark that are ended while they run: by Ctrl-C, or by somebody else."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dpsql.engines.interrupts import EndedStatementError
from dpsql.engines.spark.sessions import is_connected

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import SparkContext
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


# ── Jobs that nobody is there to run: all executors are gone, and so is the master of the cluster
#
# Spark would wait for ever, as new executors may come whenever a master answers again. What a count
# was charged for may wait for so long in a queue, but not for a master that is gone.


SECONDS = 60.0
"""Seconds for which both may be gone."""
EVERY = 5.0
_SCHEME, _PORT = "spark://", 7077
_DRIVER = 1
"""The driver: counted among the executors where rows are kept."""


@contextmanager
def given_up(session: SparkSession) -> Iterator[None]:
    """End the jobs that run inside when nobody is there to run them; they fail, then.

    That can be told of standalone clusters, by classic sessions. Managers of other clusters end an
    application themselves, and a server of Spark Connect tells nothing of its executors.

    Args:
        session: one of our own.
    """
    masters = [] if is_connected(session) else masters_of(session.sparkContext.master)
    if not masters:
        yield
        return
    done, lost = threading.Event(), threading.Event()
    thread = threading.Thread(target=_watch, args=(session, masters, done, lost), daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        if lost.is_set():  # it has failed: nobody else has cancelled it
            raise ConnectionError from None
        raise
    finally:
        done.set()
        thread.join()


def masters_of(url: str) -> list[tuple[str, int]]:
    """Return where the masters of a standalone cluster are; none of another kind of Spark."""
    if not url.startswith(_SCHEME):
        return []
    found = (place.rpartition(":") for place in url.removeprefix(_SCHEME).split(","))
    return [(host or port, int(port) if host else _PORT) for host, _, port in found]


def _watch(
    session: SparkSession,
    masters: Sequence[tuple[str, int]],
    done: threading.Event,
    lost: threading.Event,
) -> None:
    seen = time.monotonic()
    while not done.wait(EVERY):
        now = time.monotonic()
        if _executors(session.sparkContext) or any(map(_answers, masters)):
            seen = now
        elif now - seen >= SECONDS:
            lost.set()
            with suppress(Exception):
                session.interruptAll()
            return


def _executors(context: SparkContext) -> int:
    """Return how many there are; 0 where Spark itself is gone."""
    with suppress(Exception):
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - _DRIVER
    return 0


def _answers(place: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(place, EVERY):
        return True
    return False
