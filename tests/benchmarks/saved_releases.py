"""A large release, saved and loaded, in one run.

    python -m tests.benchmarks.saved_releases [--answers 1000000]

One statement over four columns with a hundred values at most. Prints how large the files are, and
the seconds that it takes to make the release, to make its frame, to save it, to load it and to
read the frame back.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb

import dpsql

COLUMNS = {"a": 100, "b": 100, "c": 10}
T = TypeVar("T")


def make_table(con: duckdb.DuckDBPyConnection, answers: int) -> str:
    """Fill a table whose columns have about `answers` joint cells; return the statement."""
    sizes = COLUMNS | {"d": max(1, answers // 100_000)}
    columns = ", ".join(
        f"{name} INTEGER NOT NULL CHECK ({name} BETWEEN 0 AND {n - 1})" for name, n in sizes.items()
    )
    values = ", ".join(f"hash(i, {k}) % {n}" for k, n in enumerate(sizes.values()))
    con.execute(f"CREATE TABLE t ({columns})").fetchall()
    con.execute(f"INSERT INTO t SELECT {values} FROM range(1000000) AS r(i)").fetchall()
    return f"SELECT {', '.join(sizes)}, COUNT(*) AS n FROM t GROUP BY ALL"


def timed(what: str, work: Callable[[], T]) -> T:
    """Do something, and print how long it took."""
    start = time.perf_counter()
    result = work()
    print(f"{what:>12}: {time.perf_counter() - start:6.2f} s")
    return result


def main() -> None:
    """Measure each step once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=1_000_000)
    answers = parser.parse_args().answers
    con = duckdb.connect()
    sql = make_table(con, answers)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "release"
        session = dpsql.Session(con)
        release = timed(
            "release", lambda: session.release({"cells": sql}, budget=dpsql.Budget(rho=1))
        )
        frame = timed("frame", lambda: release["cells"])
        timed("save", lambda: release.save(target))
        loaded = timed("load", lambda: dpsql.Release.load(target, ledger=session.ledger))
        again = timed("read frame", lambda: loaded["cells"])
        if not again.equals(frame):
            raise SystemExit("the frames differ")
        for file in sorted(target.iterdir()):
            print(f"{file.stat().st_size / 1e6:12.1f} MB  {file.name}")
        print(f"{frame.height:,} answers")


if __name__ == "__main__":
    main()
