"""Ten ordinary statements beside plain DuckDB: CPU time, memory, and the rows that scans return.

    python -m tests.benchmarks.ordinary                   10,000,000 rows, in a file
    python -m tests.benchmarks.ordinary 1000000

Filters, CASE, and sums of DOUBLE expressions over 14 columns sized as in Adult, in one release;
then counts under conditions on one to four columns of 100 values. Seconds are those of all threads.
Peaks of memory are of a process for each of the two ways.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import duckdb

from dpsql import Budget, Domain, Schema, Session
from dpsql.engines.duckdb.engine import CountingScan

SIZES = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
STATEMENTS = {
    "filter": "SELECT c9, COUNT(*) AS n FROM t WHERE c4 BETWEEN 20 AND 60 GROUP BY c9",
    "product": "SELECT c11, SUM(x * (1 - y / 200)) AS s FROM t GROUP BY c11",
    "averages": "SELECT c10, AVG(x) AS a, AVG(y) AS b FROM t WHERE c12 = 1 GROUP BY c10",
    "bands": "SELECT CASE WHEN c4 < 18 THEN 'minor' WHEN c4 < 65 THEN 'adult' ELSE 'old' END AS g, "
    "COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY 1",
    "conditional": "SELECT c8, SUM(CASE WHEN y > 50 THEN x ELSE 0 END) AS s FROM t GROUP BY c8",
    "two keys": "SELECT c12, c13, COUNT(*) AS n, SUM(x + 2 * y) AS s FROM t GROUP BY ALL",
    "filtered": "SELECT c7, COUNT(*) FILTER (WHERE x > 500) AS n FROM t GROUP BY c7",
    "decimals": "SELECT c6, SUM(z) AS s FROM t WHERE c5 > 10 GROUP BY c6",
    "deviation": "SELECT c11, STDDEV(x) AS d FROM t GROUP BY c11",
    "total": "SELECT COUNT(*) AS n, SUM(x * y) AS s FROM t WHERE c0 < 50 AND c1 >= 10",
}
SCHEMA = Schema(
    {
        "t": {
            "x": Domain.number(0, 1000),
            "y": Domain.number(0, 100),
            "z": Domain.number(0, 1000),
        }
    }
)
BUDGET = Budget(rho=0.5)


def used() -> float:
    """Return the CPU seconds of this process."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def peak() -> float:
    """Return the most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make(path: Path, rows: int) -> None:
    """Make the table: codes are squares of uniform numbers, so that few values are most rows."""
    con = duckdb.connect(path)
    columns = ", ".join(
        f"c{i} UTINYINT NOT NULL CHECK (c{i} BETWEEN 0 AND {size - 1})"
        for i, size in enumerate(SIZES)
    )
    con.execute(f"CREATE TABLE t ({columns}, x DOUBLE, y DOUBLE, z DECIMAL(9, 2))").fetchall()
    values = ", ".join(
        f"floor(pow((hash(i * {k + 7}) % 65536) / 65536.0, 2) * {size})::UTINYINT"
        for k, size in enumerate(SIZES)
    )
    con.execute(
        f"INSERT INTO t SELECT {values}, (hash(i * 37) % 100000) / 100.0, "
        f"(hash(i * 41) % 1000) / 10.0, (hash(i * 43) % 100000) / 100 FROM range({rows}) r(i)"
    ).fetchall()
    con.execute("CHECKPOINT").fetchall()
    con.close()


def opened(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the file, and read a column of it once."""
    con = duckdb.connect(path, config={"threads": 2}, read_only=True)
    con.execute("SELECT count(*) FROM t WHERE c0 < 3").fetchall()
    return con


def plain(path: Path) -> None:
    """Run the ten statements one by one."""
    con = opened(path)
    before, started = peak(), used()
    for sql in STATEMENTS.values():
        con.execute(sql).fetchnumpy()
    print(f"{'plain DuckDB':32} {used() - started:8.2f} CPU s {peak() - before:8.0f} MB more")


def noisy(path: Path) -> None:
    """Release the ten statements together, after another one in the same process."""
    con = opened(path)
    session = Session(con, schema=SCHEMA, ledger=path.with_suffix(".ledger"))
    session.query("SELECT c12, COUNT(*) AS n FROM t GROUP BY c12", budget=BUDGET)
    before, started = peak(), used()
    session.plan(STATEMENTS, budget=BUDGET, reuse=False)
    planned = used() - started
    with told() as aside:
        started = used()
        session.release(STATEMENTS, budget=BUDGET, reuse=False)
        released = used() - started - sum(aside)
    print(
        f"{'dpsql, of that planning':32} {released:8.2f} CPU s {peak() - before:8.0f} MB "
        f"more   {planned:.2f} CPU s"
    )
    for columns in range(1, 5):
        below = " AND ".join(f"c{i} < 50" for i in range(columns))
        sql = f"SELECT COUNT(*) AS n FROM t WHERE {below}"
        con.execute(sql).fetchall()
        started = used()
        con.execute(sql).fetchall()
        exact = used() - started
        with told():
            session.query(sql, budget=BUDGET, reuse=False)
        print(f"{f'conditions on {columns} columns, plain':32} {exact:8.3f} CPU s")


@contextmanager
def told() -> Iterator[list[float]]:
    """Print of each scan how many rows it returns, and how many cells it is for.

    To find that out it is run again; what that takes is in the list.
    """
    run, aside = CountingScan.run, list[float]()

    def counted(scan: CountingScan, con: duckdb.DuckDBPyConnection, *args: object) -> object:
        started = used()
        found = run(scan, con, *args)  # type: ignore[arg-type]
        done = used()
        number = f"SELECT count(*) FROM ({scan.sql})"
        ((rows,),) = con.execute(number, list(scan.parameters)).fetchall()
        cells = sum(counts.size for block, counts in found[0].items() if block in scan.shapes)
        print(f"    scan {done - started:6.2f} CPU s: {rows:,} rows for {cells:,} cells")
        aside.append(used() - done)
        return found

    with patch.object(CountingScan, "run", counted):
        yield aside


def apart(of: Callable[[Path], None], path: Path) -> None:
    """Run something in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=of, args=(path,))
    process.start()
    process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=10_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.duckdb"
        make(file, asked.rows)
        apart(plain, file)
        apart(noisy, file)
