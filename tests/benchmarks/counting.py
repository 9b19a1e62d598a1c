"""Cover blocks against one GROUP BY for every marginal, in one run.

    python -m tests.benchmarks.counting [--rows 10000000]

All 66 two-way marginals of twelve columns. Prints CPU seconds of both ways and their ratio.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from itertools import combinations

import duckdb
import numpy as np

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.schema import Domain, Table

SIZES = (2, 2, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)


def make_table(con: duckdb.DuckDBPyConnection, rows: int) -> Table:
    """Fill a table with skewed, correlated codes."""
    columns = ", ".join(
        f"((hash(i * {k + 7} + (hash(i) % 40)) % {n * 97}) // 97)::UTINYINT AS c{k}"
        for k, n in enumerate(SIZES)
    )
    con.execute(f"CREATE TABLE t AS SELECT {columns} FROM range({rows}) AS r(i)").fetchall()
    domains = {f"c{k}": Domain("UTINYINT", range(n)) for k, n in enumerate(SIZES)}
    return Table("t", domains, path=("memory", "main", "t"), enforced=frozenset(domains))


def cpu() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def separately(con: duckdb.DuckDBPyConnection, wanted: list[tuple[str, str]]) -> dict:
    """One GROUP BY for every marginal."""
    result = {}
    for a, b in wanted:
        found = con.execute(f"SELECT {a}, {b}, count(*) AS n FROM t GROUP BY {a}, {b}").fetchnumpy()
        counts = np.zeros((SIZES[int(a[1:])], SIZES[int(b[1:])]), dtype=np.int64)
        counts[found[a], found[b]] = found["n"]
        result[a, b] = counts
    return result


def main() -> None:
    """Time both ways five times, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    con = duckdb.connect()
    table = make_table(con, rows)
    wanted = list(combinations(table.columns, 2))
    needed = DuckDBEngine(con).prepared(table, wanted).needed
    print(f"{rows:,} rows, {len(wanted)} marginals in {len(needed)} scans")
    times: dict[str, list[float]] = {"blocks": [], "separate": []}
    for _ in range(5):
        start = cpu()
        blocks = DuckDBEngine(con).marginals(table, wanted)
        times["blocks"].append(cpu() - start)
        start = cpu()
        separate = separately(con, wanted)
        times["separate"].append(cpu() - start)
        if any((blocks[m] != separate[m]).any() for m in wanted):
            raise SystemExit("the two ways disagree")
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    for way, seconds in medians.items():
        print(f"{way:>9}: {seconds:.2f} CPU s (median of 5)")
    print(f"    ratio: {medians['separate'] / medians['blocks']:.2f}")


if __name__ == "__main__":
    main()
