"""All pairs of Adult's columns, counted by Spark of a folder of Parquet files.

    python -m tests.benchmarks.spark_counts [--rows 10000000 …] [--partials auto|sql|workers]
        [--master local[2]] [--folder FOLDER]

Prints processor seconds of this process, Spark's JVM and its workers together, for each number of
rows, with what it took to start Spark apart, and whether the counts are DuckDB's. Files are those
of `parquet_pass`: 20 bytes a row. The first number of rows is counted twice, as code is compiled in
the first run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import psutil

from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.views import describe_table
from dpsql.engines.spark.source import SparkSource
from dpsql.schema import EACH_ROW, Domain, Schema
from tests.benchmarks.parquet_pass import LABELS, NUMBERS, labels, make_files

PAIRS = list(combinations((*LABELS, *NUMBERS), 2))


def domains() -> dict[str, Domain]:
    """Return the domains of Adult's columns."""
    con = duckdb.connect()
    found = {name: Domain.labels(labels(con, name)) for name in LABELS}
    return found | {name: Domain.integers(*ends) for name, ends in NUMBERS.items()}


def cpu() -> float:
    """Return the processor seconds of this process and all that it started and that still run."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        used = process.cpu_times()
        total += used.user + used.system
    return total


def count(spark: Any, folder: Path, partials: Any, runs: tuple[str, ...]) -> None:
    """Count, and print what it took."""
    source = SparkSource(spark, partials=partials)
    name = f"parquet.{folder}"
    table = source.describe(("parquet", str(folder)), Schema({name: domains()}), EACH_ROW)
    counting = source.engine().prepared(table, PAIRS)
    for run in runs:
        wall, used = time.perf_counter(), cpu()
        counted = counting.run()
        wall, used = time.perf_counter() - wall, cpu() - used
        print(
            f"{int(counted[PAIRS[0]].sum()):>13,} rows, {run}: {used:7.1f} CPU s {wall:7.1f} s, "
            f"{len(counting.blocks)} blocks, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    con = duckdb.connect(config={"threads": 2})
    con.execute(f"CREATE VIEW t AS FROM read_parquet('{folder}/*.parquet')")
    same = describe_table(DuckDBCatalog(con), ("t",), Schema({"t": domains()}), None)
    expected = DuckDBEngine(con).prepared(same, PAIRS).run()
    alike = all((counted[pair] == expected[pair]).all() for pair in PAIRS)
    print("the counts are DuckDB's" if alike else "THE COUNTS ARE OTHERS THAN DUCKDB'S", flush=True)


def main() -> None:
    """Start Spark, and count folders of each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--partials", choices=("auto", "sql", "workers"), default="auto")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    used = cpu()
    builder = SparkSession.builder.master(given.master).config("spark.driver.memory", "2g")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.range(1).collect()
    print(f"Spark started in {cpu() - used:.1f} CPU s", flush=True)
    runs: tuple[str, ...] = ("cold", "warm")
    with tempfile.TemporaryDirectory() as scratch:
        for rows in given.rows:
            folder = (given.folder or Path(scratch)) / f"rows-{rows}"
            make_files(folder, rows)
            count(spark, folder, given.partials, runs)
            runs = runs[1:] or runs
    spark.stop()


if __name__ == "__main__":
    main()
