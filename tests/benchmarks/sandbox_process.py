"""Time what the sandbox's own process costs: the first statement, and later ones.

Run `python -m tests.benchmarks.sandbox_process`. Statements are compiled, not planned. Each number
is the CPU time of this process and of its children, then wall seconds; later statements are the
median of 20. The script also runs with older versions: `PYTHONPATH=<folder> python <script>`.
"""

from __future__ import annotations

import statistics
import time

import polars as pl
import psutil

from dpsql.schema import Domain, Table
from dpsql.sql import compile_script

STATEMENTS = {
    "count": "SELECT COUNT(*) AS n FROM t",
    "groups": "SELECT sex, age, COUNT(*) AS n FROM t WHERE age > 20 GROUP BY sex, age",
    "average": "SELECT sex, AVG(age) AS m, COUNT(*) AS n FROM t GROUP BY sex HAVING COUNT(*) > 5",
}
TABLE = Table("t", {"age": Domain.integers(0, 99), "sex": Domain.labels(["F", "M"])})


def seconds() -> tuple[float, float]:
    """Return CPU seconds of this process and its children, and the time."""
    children = [child.cpu_times() for child in psutil.Process().children()]
    return time.process_time() + sum(c.user + c.system for c in children), time.perf_counter()


def main() -> None:
    """Print the table."""
    pl.DataFrame({"a": [1]}).to_arrow()  # what Polars and Arrow load is none of the sandbox's
    print(f"{'statement':<10} {'first CPU':>9} {'wall':>6}   {'later CPU':>9} {'wall':>6}")
    for name, sql in STATEMENTS.items():
        taken = []
        for _ in range(21):
            cpu, wall = seconds()
            compile_script([("q", sql)], lambda _: TABLE)
            after = seconds()
            taken.append((after[0] - cpu, after[1] - wall))
        later = [statistics.median(t[i] for t in taken[1:]) for i in range(2)]
        first = taken[0]
        print(f"{name:<10} {first[0]:9.3f} {first[1]:6.2f}   {later[0]:9.4f} {later[1]:6.3f}")


if __name__ == "__main__":
    main()
