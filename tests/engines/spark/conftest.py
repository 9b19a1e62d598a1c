"""Rows of one file, whatever table is asked for."""

from __future__ import annotations

from contextlib import nullcontext

from dpsql.engines.spark.sessions import own_session
from dpsql.schema.names import quoted_name


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
        return self.session.read.parquet(self.file(table.whole.path))

    def at(self, path, types):
        return self.session.read.parquet(self.file(path))
