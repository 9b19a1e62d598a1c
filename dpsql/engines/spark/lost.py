"""Jobs that nobody is there to run: all executors are gone, and so is the master of the cluster.

Spark would wait for ever, as new executors may come whenever a master answers again. What a count
was charged for may wait for so long in a queue, but not for a master that is gone.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dpsql.engines.spark.sessions import is_connected

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SECONDS = 60.0
"""How long both may be gone."""
EVERY = 5.0
_SCHEME, _PORT = "spark://", 7077
_DRIVER = 1
"""Where rows are kept, the driver is counted among the executors."""


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
