"""Differences between a session of classic Spark and one of Spark Connect.

A classic session is in this process, with Spark's driver in a Java machine beside it. One of Spark
Connect sends plans to a server, which may be anywhere: of files that it calls its own nobody knows
here whether they are on this machine, too, and it may go away at any time.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONNECT = "pyspark.sql.connect."
RETRIES = 6
"""How often a server that doesn't answer is asked again: for about a minute. By default Spark does
so for ten."""
LOCAL = "file:"
"""How Spark begins the names of files that are on machines."""


class SeenFile(NamedTuple):
    """A file as a session lists it: its size, and when it was written, in milliseconds."""

    path: str
    size: int = 0
    written: int = 0


def path_of(place: str) -> str:
    """Return the path of a place, if it is on a machine and not in a store."""
    return "/" + place.removeprefix(LOCAL).lstrip("/") if place.startswith(LOCAL) else place


def is_connected(of: SparkSession | DataFrame) -> bool:
    """Whether a session, or what is read in one, is of Spark Connect."""
    return any(kind.__module__.startswith(_CONNECT) for kind in type(of).__mro__)


def functions_of(of: SparkSession | DataFrame) -> Any:
    """Return the functions by which columns are made in a session.

    Spark's own module chooses by how the process began, and a process may have sessions of both.
    """
    return import_module(_CONNECT + "functions" if is_connected(of) else "pyspark.sql.functions")


def new_session(spark: SparkSession) -> SparkSession:
    """Return another session of the same Spark; fails as Spark fails."""
    session = spark.newSession()
    if is_connected(session):
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
        # When the process ends, the client says goodbye: once, as the server may have gone before.
        atexit.register(session.client.set_retry_policies, [])
    return session


def is_here_alone(session: SparkSession) -> bool:
    """Whether Spark runs in this machine alone, as far as can be told."""
    try:
        master = str(session.conf.get("spark.master", ""))
    except Exception:
        return False
    return master.startswith("local") and not is_connected(session)


def are_here(session: SparkSession, files: Iterable[SeenFile]) -> bool:
    """Whether files that Spark calls its machine's are on this machine.

    Those of a server of Spark Connect, and of executors on other machines, which tell sizes and
    times, are where files of the same paths, sizes and times are. Whether it is another machine
    with a copy of them makes no difference: what is looked up here is how columns are stored, and
    where the account is. That nobody writes to them is seen to by listing them there, too.

    Args:
        session: what listed them.
        files: with paths as this machine has them.
    """
    if is_here_alone(session):
        return True
    try:
        return all(_seen(file.path) == file for file in files)
    except OSError:
        return False


def _seen(path: str) -> SeenFile:
    status = os.stat(path)
    return SeenFile(path, status.st_size, status.st_mtime_ns // 10**6)
