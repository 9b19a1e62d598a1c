"""Apache Spark for tests, if it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

MISSING = (
    "There is no Spark here, so the tests that count by it are left out. To run them: "
    "apt-get install openjdk-17-jre-headless, and pip install '.[spark]'"
)


@cache
def is_there() -> bool:
    """Whether there are PySpark, the readers of its tables, and a Java."""
    packages = all(importlib.util.find_spec(name) for name in ("pyspark", "deltalake"))
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java") or shutil.which(os.path.join(home, "bin", "java"))
    return bool(packages and java)


@contextmanager
def session(folder: Path) -> Iterator[Any]:
    """Start a Spark in this process, with one core and what it writes in a folder."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder),
    }  # fmt: skip
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    # Spark has a handler of its own; other tests need Python's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
