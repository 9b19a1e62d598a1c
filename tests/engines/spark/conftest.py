"""Rows of one file, whatever table is asked for."""

from __future__ import annotations

from contextlib import nullcontext

from dpsql.engines.spark.settings import own_session


class OneFile:
    """The rows of one Parquet file, whatever table is asked for."""

    def __init__(self, spark, path):
        self.session, self.path = own_session(spark), str(path)

    def snapshot(self):
        return nullcontext()

    def rows(self, table):
        return self.session.read.parquet(self.path)

    def check_unchanged(self, table):
        pass
