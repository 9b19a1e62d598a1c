"""How long it takes to find keys among very many, and how much memory.

    python -m tests.benchmarks.distinct_keys [ROWS] [THREADS]

A table of as many distinct texts as it has rows, by default 10^8, and 20 that many rows have: all
are scored, all get noise, and just these 20 are told. DuckDB may use half of the memory, and a
folder beside for the rest. Memory is the peak of the whole process, DuckDB and Python together.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time

import duckdb

import dpsql

ROWS = 10**8
FREQUENT, TIMES = 20, 1_000


def main(rows: int = ROWS, threads: int = 2) -> None:
    """Make the table, find its keys, and print what that took."""
    with tempfile.TemporaryDirectory() as folder:
        con = duckdb.connect(f"{folder}/keys.db")
        con.execute(f"SET memory_limit = '8GB'; SET threads = {threads}")
        con.execute(f"SET temp_directory = '{folder}/spilled'")
        begin = time.perf_counter()
        con.execute(f"""
            CREATE TABLE t AS SELECT i::VARCHAR AS k FROM range({rows}) r (i)
            UNION ALL SELECT 'frequent ' || (i % {FREQUENT}) FROM range({FREQUENT * TIMES}) r (i)
        """)
        print(f"{rows:,} distinct keys stored in {time.perf_counter() - begin:.0f} s", flush=True)
        stored = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        session = dpsql.Session(con)
        budget = dpsql.Budget(epsilon=1, delta=1e-9)
        begin, used = time.perf_counter(), time.process_time()
        found = session.find_keys("t", "k", budget=budget)
        took, used = time.perf_counter() - begin, time.process_time() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"found {len(found)} of {FREQUENT} in {took:.0f} s ({used:.0f} CPU s)")
        print(f"peak of memory: {peak:.1f} GiB, {stored:.1f} GiB before")
        frequent = {f"frequent {i}" for i in range(FREQUENT)}
        more = [str(key) for key in found.keys if key not in frequent]
        print(f"told of one row alone: {len(more)}; {float(rows * found.rule.delta):.3g} expected")
        for key in more:
            ((n,),) = con.execute("SELECT count(*) FROM t WHERE k = ?", [key]).fetchall()
            print(f"{key!r}: {n} rows")
        sys.exit(not frequent <= set(found.keys) or len(more) > 1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
