"""Rows of one file, whatever table is asked for, and Ctrl-C while they are counted."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, nullcontext

from dpsql.engines.spark.engine import SparkCounting
from dpsql.engines.spark.sessions import own_session
from dpsql.schema.names import quoted_name


@contextmanager
def ctrl_c_while_counting(spark, monkeypatch):
    """Press Ctrl-C once a task of Spark counts rows, which is after the charge."""
    tracker, run, over = spark.sparkContext.statusTracker(), SparkCounting.run, threading.Event()

    def is_busy():
        found = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numActiveTasks > 0 for stage in found)

    def press():
        while not over.wait(0.05):
            if is_busy():
                os.kill(os.getpid(), signal.SIGINT)
                return

    def begun(counting):
        threading.Thread(target=press, daemon=True).start()
        return run(counting)

    monkeypatch.setattr(SparkCounting, "run", begun)
    try:
        yield
    finally:
        over.set()


class OneFile:
    """The rows of one Parquet file, whatever table is asked for."""

    def __init__(self, spark, path):
        self.session, self.path = own_session(spark), str(path)

    def snapshot(self):
        return nullcontext()

    def rows(self, table):
        return self.session.read.parquet(self.path)

    def at(self, path, types):
        return self.session.read.parquet(self.path)

    def check_unchanged(self, path):
        pass


class ManyFiles(OneFile):
    """The rows of tables of a DuckDB database, each in a Parquet file."""

    def __init__(self, spark, con, folder):
        super().__init__(spark, folder)
        for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            path = self.file(("", "", name))
            con.execute(f"COPY (SELECT * FROM {quoted_name(name)}) TO '{path}'").fetchall()

    def file(self, path):
        return f"{self.path}/{path[-1].encode().hex()}.parquet"

    def rows(self, table):
        return self.session.read.parquet(self.file(table.path))

    def at(self, path, types):
        return self.session.read.parquet(self.file(path))
