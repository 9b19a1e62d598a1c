"""The progress of Spark's jobs, by Spark's own status: tasks that are done, of those known.

Stages are planned as earlier ones end, so that more tasks become known. What is told are numbers of
tasks, which follow from files and settings.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dpsql.engines.spark.sessions import is_connected

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from dpsql.engines.base import Step

EVERY = 0.5
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
        while not done.wait(EVERY):
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
    found = dict[int, Any]()
    with suppress(Exception):  # where Spark ends, there is nothing to tell
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            told = tracker.getJobInfo(job)
            for stage in () if told is None else told.stageIds:
                found[stage] = tracker.getStageInfo(stage)
    begun = [s for s in found.values() if s and (s.numActiveTasks or s.numCompletedTasks)]
    return sum(s.numCompletedTasks for s in begun), sum(s.numTasks for s in begun)
