"""Apache Spark for tests, if it is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
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
    packages = all(importlib.util.find_spec(name) for name in ("pyspark", "deltalake", "grpc"))
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java") or shutil.which(os.path.join(home, "bin", "java"))
    return bool(packages and java)


_PORT = "spark.connect.grpc.binding.port"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


STDERR = "stderr"
"""The file in the folder that Spark's Java and its workers write errors to."""


@contextmanager
def session(folder: Path, master: str = "local[1]", **more: str) -> Iterator[Any]:
    """Start a Spark in this process, with one core and what it writes in a folder.

    It also serves sessions of Spark Connect.

    Args:
        folder: where it writes to.
        master: another one than one core of this machine.
        more: settings, with __ in place of dots.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1", _PORT: str(_free_port()),
        **{name.replace("__", "."): value for name, value in more.items()},
    }  # fmt: skip
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings(), _stderr_in(folder / STDERR):
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    # Spark has a handler of its own; other tests need Python's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Let processes that are started inside write their errors to a file, as long as they run."""
    before = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def port(session: Any) -> int:
    """The port at which a Spark serves sessions of Spark Connect."""
    return int(session.conf.get(_PORT))


@contextmanager
def connected(at: int) -> Iterator[Any]:
    """Open a session of Spark Connect.

    By its own class: Spark's own way would have no classic session in this process any more.
    """
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(f"sc://127.0.0.1:{at}").create()
    yield session
    session.stop()
