"""What it costs to keep at most k rows of a unit: CPU seconds and peak memory.

    python -m tests.benchmarks.kept_rows [--rows 10000000] [--before]

A count by one of fifteen columns, on two threads: of units with 10 rows each and k = 5 or 10; of
units with 3 rows on average and k = 2; and of units a few of which have most rows, with k = 10.
Beside it the same count without units, and, with `--before`, by the rule before the present one:
the first rows in the order of an MD5 of their texts, found by two windows. Each is measured in a
process of its own; the table is in a file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.schema import Unit
from tests.helpers.described import read_table

LABELS = (9, 16, 7, 15, 6, 5, 2, 42, 2)
NUMBERS = (74, 16, 100, 100, 99, 30)
NAMES = [*(f"c{i}" for i in range(len(LABELS))), *(f"n{i}" for i in range(len(NUMBERS)))]
CASES = {
    "1/10 as many units, k = 5": ("even", 5),
    "1/10 as many units, k = 10": ("even", 10),
    "1/3 as many units, k = 2": ("few", 2),
    "skewed, k = 10": ("skewed", 10),
}


def make_table(path: str, rows: int) -> None:
    """Fill a table with units of three kinds, and columns of labels and numbers."""
    with duckdb.connect(path, config={"threads": 2}) as con:
        kinds = [f"ENUM ({', '.join(repr(f'label {i}') for i in range(n))})" for n in LABELS]
        columns = [f"c{i} {kind} NOT NULL" for i, kind in enumerate(kinds)]
        columns += [f"n{i} INTEGER CHECK (n{i} < {n} AND n{i} >= 0)" for i, n in enumerate(NUMBERS)]
        con.execute(
            f"CREATE TABLE t (even INTEGER, few INTEGER, skewed INTEGER, {', '.join(columns)})"
        ).fetchall()
        values = [f"'label ' || (hash(i, {k}) % {n})" for k, n in enumerate(LABELS)]
        values += [f"(hash(i, {k + 20}) % {n})" for k, n in enumerate(NUMBERS)]
        # Few ids are drawn often: an id below the share x of all has x^(1/4) of the rows.
        uniform = "(hash(i, 52) % 1000000 + 1) / 1000000.0"
        con.execute(
            f"INSERT INTO t SELECT i % {rows // 10}, hash(i, 51) % {rows // 3}, "
            f"(({uniform}) ** 4 * {rows // 4})::INTEGER, {', '.join(values)} "
            f"FROM range({rows}) AS r(i)"
        ).fetchall()


def before(unit: str, k: int) -> str:
    """Write the query of the earlier rule."""
    pieces = (f"coalesce(concat(strlen({c}::VARCHAR), ':', {c}::VARCHAR), '-')" for c in NAMES)
    rows = f"SELECT c6, {unit} AS id, concat('', {', '.join(pieces)}) AS text FROM t"
    copies = f"SELECT *, row_number() OVER (PARTITION BY id, encode(text)) AS copy FROM ({rows})"
    order = "encode(md5(concat(id, '|', copy, '|', text))), encode(text), copy"
    placed = f"SELECT c6, row_number() OVER (PARTITION BY id ORDER BY {order}) AS r FROM ({copies})"
    return f"SELECT c6, count(*) FROM (SELECT c6, r FROM ({placed}) WHERE r <= {k}) GROUP BY c6"


def measure(path: str, unit: str, k: int, way: str) -> None:
    """Count once and print how many rows are kept, CPU seconds and the peak of memory."""
    with duckdb.connect(path, read_only=True, config={"threads": 2}) as con:
        table = read_table(con, ("t",), None, Unit(unit, k) if way == "now" else None)
        start = resource.getrusage(resource.RUSAGE_SELF)
        if way == "before":
            rows = sum(count for _, count in con.execute(before(unit, k)).fetchall())
        else:
            rows = int(DuckDBEngine(con).marginals(table, [("c6",)])["c6",].sum())
        end = resource.getrusage(resource.RUSAGE_SELF)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    print(f"{way:>14}: {rows:>12,} rows {seconds:>7.1f} CPU s {end.ru_maxrss / 1000:>7,.0f} MB")


def main() -> None:
    """Measure every case, in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--before", action="store_true", help="measure the earlier rule too")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        path, unit, k, way = given.measure
        measure(path, unit, int(k), way)
        return
    ways = ["without units", "now", *["before"] * given.before]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "t.duckdb")
        make_table(path, given.rows)
        for name, (unit, k) in CASES.items():
            print(f"{given.rows:,} rows, {name}", flush=True)
            for way in ways:
                again = ["--measure", path, unit, str(k), way]
                command = [sys.executable, "-m", "tests.benchmarks.kept_rows", *again]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
