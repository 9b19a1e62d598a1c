"""The session in which an engine counts: one of its own, in which nothing is left to chance.

The caller's session stays as it is: it has temporary views and functions that could take the place
of tables, and settings by which a value would have another cell. A new session shares catalogs,
executors and cached files with it, and none of these.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dpsql.engines.spark.sessions import new_session
from dpsql.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "false",
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
unit may be a few bytes there. So that unit would decide whether the job fails."""
_LOGGERS = (
    "SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging",
)  # fmt: skip
"""Those that write errors of statements to stderr, and what these quote."""


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the caller's, with settings of its own.

    Raises:
        SchemaError: there can be none, or one of its settings can't be changed.
    """
    session: SparkSession | None = None
    changed: set[str] = set()
    with quiet(), suppress(Exception):
        found = new_session(spark)
        found.conf.get(next(iter(PINNED)))  # where nobody answers, that is seen at once
        session = found
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
