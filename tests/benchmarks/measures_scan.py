"""Ten sums by three keys in one scan: CPU time beside DuckDB's own GROUP BY with the same sums.

    python -m tests.benchmarks.measures_scan              10,000,000 rows, in a file
    python -m tests.benchmarks.measures_scan 1000000

DECIMAL, integer and DOUBLE columns, sums of columns and of products of two and three of them; a
tenth of one column is NULL. Each number is the least of some runs, of all threads together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import duckdb

from dpsql import Budget, Domain, Schema, Session
from dpsql.engines.duckdb.engine import DuckDBCounting

RUNS = 3
SUMS = (
    "price", "discount", "price * (1 - discount)", "price * (1 - discount) * (1 + tax)", "quantity",
    "x", "y", "z", "gaps", "x * quantity",
)  # fmt: skip
ENDS = {
    "price": (0, 1000), "discount": ("0", "0.1"), "tax": ("0", "0.08"), "quantity": (0, 50),
    "x": (0, 10), "y": (0, 10**6), "z": (0, 10**4), "gaps": (0, 10),
}  # fmt: skip
SCHEMA = Schema(
    {
        "t": {
            "a": Domain.integers(0, 4),
            "b": Domain.integers(0, 6),
            "c": Domain.integers(0, 10),
            **{name: Domain.number(*ends) for name, ends in ENDS.items()},
        }
    }
)
LISTED = ", ".join(f"SUM({value}) AS s{i}" for i, value in enumerate(SUMS))
SQL = f"SELECT a, b, c, COUNT(*) AS n, {LISTED} FROM t GROUP BY a, b, c"


def connect(path: Path, rows: int) -> duckdb.DuckDBPyConnection:
    """Make the table."""
    con = duckdb.connect(path)
    con.execute("SELECT setseed(0.3)").fetchall()
    con.execute(f"""
        CREATE TABLE t AS SELECT (random() * 4)::INTEGER AS a, (random() * 6)::INTEGER AS b,
            (random() * 10)::INTEGER AS c, (random() * 1000)::DECIMAL(15, 2) AS price,
            (random() * 0.1)::DECIMAL(15, 2) AS discount, (random() * 0.08)::DECIMAL(15, 2) AS tax,
            (random() * 50)::INTEGER AS quantity, random() * 10 AS x, random() * 1e6 AS y,
            (random() * 1e4)::BIGINT AS z,
            CASE WHEN random() < 0.1 THEN NULL ELSE random() * 10 END AS gaps
        FROM range({rows})
    """).fetchall()
    con.execute("CHECKPOINT").fetchall()
    return con


def seconds(run: Callable[[], object]) -> float:
    """Return the least CPU time of some runs."""
    least = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        run()
        least = min(least, time.process_time() - started)
    return least


def counting(con: duckdb.DuckDBPyConnection) -> DuckDBCounting:
    """Return what a release of the statement counts."""
    found: list[DuckDBCounting] = []
    run = DuckDBCounting.run

    def keep(self: DuckDBCounting) -> object:
        found.append(self)
        return run(self)

    with patch.object(DuckDBCounting, "run", keep):
        Session(con, schema=SCHEMA).query(SQL, budget=Budget(rho=1))
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=10**7)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder, connect(Path(folder) / "t.duckdb", rows) as con:
        ours = counting(con)
        if len(ours.needed) != 1:
            raise SystemExit(f"{len(ours.needed)} scans")
        plain = seconds(lambda: con.execute(SQL).fetchall())
        own = seconds(ours.run)
    print(f"{rows:,} rows, {len(SUMS)} sums by 3 keys in one scan: CPU {own:.2f} s")
    print(f"DuckDB's own GROUP BY: {plain:.2f} s; ratio {own / plain:.2f}")


if __name__ == "__main__":
    main()
