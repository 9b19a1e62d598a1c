"""Jobs of Spark: how far they are, and their end while they run, by Ctrl-C or somebody else.

Progress is that of Spark's own status: tasks that are done, of those known. Stages are planned as
earlier ones end, so that more tasks become known. What is told are numbers of tasks, which follow
from files and settings.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dpsql.engines.interrupts import EndedStatementError
from dpsql.engines.spark.sessions import is_connected

if TYPE_CHECKING:
    from types import FrameType

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from dpsql.engines.base import Step

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
    cause: BaseException | None = error
    while cause is not None:
        condition: Any = cause
        with suppress(Exception):  # it is no error of Spark's
            yield condition.getCondition()
        java: Any = getattr(cause, "_origin", None) or getattr(cause, "java_exception", None)
        while java is not None:
            with suppress(Exception):
                yield str(java.getCondition())
            java = java.getCause()
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


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
ASKED_EVERY = 5.0
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
    places = (place.rpartition(":") for place in url.removeprefix(_SCHEME).split(","))
    return [(host or port, int(port) if host else _PORT) for host, _, port in places]


def _watch(
    session: SparkSession,
    masters: Sequence[tuple[str, int]],
    done: threading.Event,
    lost: threading.Event,
) -> None:
    seen = time.monotonic()
    while not done.wait(ASKED_EVERY):
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
    with suppress(OSError), socket.create_connection(place, ASKED_EVERY):
        return True
    return False


SHOWN_EVERY = 0.5
"""Seconds between two looks."""
_GROUP = "spark.jobGroup.id"


@contextmanager
def followed(session: SparkSession, on_step: Step | None) -> Iterator[None]:
    """Tell how many tasks are done of the jobs that this thread runs inside.

    Args:
        session: one of our own.
        on_step: who is told, of a classic session from another thread. What it raises ends the
            work, at the latest when the jobs end.
    """
    if on_step is None:
        yield
    elif is_connected(session):
        with _told_by_server(session, on_step):
            yield
    else:
        with _looked_at(session, on_step):
            yield


@contextmanager
def _told_by_server(session: SparkSession, on_step: Step) -> Iterator[None]:
    known, last = dict[str, tuple[int, int]](), (1, 1)

    def hear(*, stages: Iterable[Any], operation_id: str, **_: object) -> None:
        nonlocal last
        tasks = [(s.num_completed_tasks, s.num_tasks) for s in stages or ()]
        known[operation_id] = sum(a for a, _ in tasks), sum(b for _, b in tasks)
        now = sum(a for a, _ in known.values()), sum(b for _, b in known.values())
        if now[1] and now != last:
            last = now
            on_step(*now)

    session.registerProgressHandler(hear)
    try:
        yield
    finally:
        session.removeProgressHandler(hear)
    on_step(last[1], last[1])


@contextmanager
def _looked_at(session: SparkSession, on_step: Step) -> Iterator[None]:
    context, group = session.sparkContext, uuid4().hex
    before, done, failed = context.getLocalProperty(_GROUP), threading.Event(), list[Exception]()

    def look() -> None:
        last = (0, 0)
        while not done.wait(SHOWN_EVERY):
            now = _tasks(context, group)
            if now != last and now[1]:
                try:
                    on_step(*now)
                except Exception as error:
                    failed.append(error)
                    return
            last = now

    thread = threading.Thread(target=look, daemon=True)
    context.setLocalProperty(_GROUP, group)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        context.setLocalProperty(_GROUP, before)  # None takes it away
    if failed:
        raise failed[0]
    known = max(_tasks(context, group)[1], 1)
    on_step(known, known)


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Return how many tasks are done, and how many there are in stages that began; 0 if unknown.

    Stages whose results are there already never begin, and have no task to wait for.
    """
    tasks = dict[int, Any]()
    with suppress(Exception):  # where Spark ends, there is nothing to tell
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            told = tracker.getJobInfo(job)
            for stage in () if told is None else told.stageIds:
                tasks[stage] = tracker.getStageInfo(stage)
    begun = [s for s in tasks.values() if s and (s.numActiveTasks or s.numCompletedTasks)]
    return sum(s.numCompletedTasks for s in begun), sum(s.numTasks for s in begun)
