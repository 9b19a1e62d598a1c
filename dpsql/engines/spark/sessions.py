"""Differences between a session of classic Spark and one of Spark Connect.

A classic session is in this process, with Spark's driver in a Java machine beside it. One of Spark
Connect sends plans to a server, which may be anywhere: of files that it calls its own nobody knows
here whether they are on this machine, too, and it may go away at any time.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# ── The session in which an engine counts: one of its own, in which nothing is left to chance ────
#
# The caller's session stays as it is: it has temporary views and functions that could take the
# place of tables, and settings by which a value would have another cell. A new session shares
# catalogs, executors and cached files with it, and none of these.


PINNED = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.aggregatePushdown": "false",
    "spark.sql.sources.useV1SourceList": "avro,csv,json,kafka,orc,parquet,text",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.legacy.integralDivide.returnBigint": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.optimizer.metadataOnly": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0",
    "spark.sql.join.preferSortMergeJoin": "true",
    "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": "4096",
    "spark.sql.windowExec.buffer.in.memory.threshold": "4096",
}
"""An error that a row makes would lose the budget, and tell that there is one: so ANSI mode is off,
though nothing that is written here needs it to be (`columns.py`), and files are read by the reader
which takes a DECIMAL of up to 18 digits as it is (`files.py`). What a file says of the
least and largest values of its columns decides nothing.

Rows that meet are sorted, which Spark does on a disk where memory ends. Else it holds those of one
side in memory, of which it takes the size of their files for a measure: and a million rows of a
unit may be a few bytes there. So that unit would decide whether the job fails. Public rows may meet
all others: no setting forbids a join without a condition."""
_LOGGERS = (
    "SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging",
)  # fmt: skip
"""Loggers that write errors of statements to stderr, and what these quote."""


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the caller's, with settings of its own.

    Raises:
        SchemaError: there can be none, or one of its settings can't be changed.
    """
    session: SparkSession | None = None
    changed: set[str] = set()
    with quiet(), suppress(Exception):
        pinned = new_session(spark)
        pinned.conf.get(next(iter(PINNED)))  # where nobody answers, that is seen at once
        session = pinned
        for key, value in PINNED.items():
            with suppress(Exception):
                session.conf.set(key, value)
            if session.conf.get(key) == value:
                changed.add(key)
    if session is None:  # outside the handler: Spark's error may quote whatever it has
        raise SchemaError(
            "The Spark session can't be used.", hint="was it stopped, or is its server gone?"
        )
    for key in PINNED.keys() - changed:
        raise SchemaError(
            f"The setting {key} of Spark can't be made {PINNED[key]}.",
            hint=f'leave it as it is by default: spark.conf.unset("{key}").',
        )
    return session


@contextmanager
def quiet() -> Iterator[None]:
    """Let PySpark log nothing of what fails: it would quote rows."""
    from pyspark.logger import PySparkLogger

    # Made by PySpark, as it calls them by arguments that other loggers don't take.
    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # of versions of pandas
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


_CONNECT = "pyspark.sql.connect."
RETRIES = 6
"""The number of times that a server which doesn't answer is asked: for about a minute. By default
Spark does so for ten."""
LOCAL = "file:"
"""The beginning of Spark's names of files that are on machines."""


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
