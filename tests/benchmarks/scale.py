"""Plan, count, measure and reconstruct every answer of large workloads, end to end.

python -m tests.benchmarks.scale adult     all <= 3-way marginals of Adult's shape
python -m tests.benchmarks.scale table7    QuerySmasher's Table 7, n = 20 and d = 20
python -m tests.benchmarks.scale growth    planning time for d = 10, 20, …, 100
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import combinations

import duckdb

import dpsql
from dpsql.answers.answers import NoisyMarginals
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.measurement.measure import measure
from dpsql.workload import Identity, Workload
from examples.paper_tables import three_way
from tests.helpers.charging import pay
from tests.helpers.described import read_table

ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
BATCH = 1_000_000


def marginals(sizes: dict[str, int], ways: int) -> Workload:
    """All marginals of up to `ways` attributes."""
    workload = Workload(sizes)
    for size in range(1, ways + 1):
        for names in combinations(sizes, size):
            workload.add(list(names), [Identity()] * size)
    return workload


def table(con: duckdb.DuckDBPyConnection, workload: Workload, rows: int) -> None:
    """Fill a table with skewed codes."""
    columns = ", ".join(
        f"{name} SMALLINT NOT NULL CHECK ({name} BETWEEN 0 AND {n - 1})"
        for name, n in workload.domain.items()
    )
    con.execute(f"CREATE TABLE t ({columns})")
    values = ", ".join(f"floor(pow(random(), 2) * {n})" for n in workload.domain.values())
    con.execute(f"INSERT INTO t SELECT {values} FROM range({rows})")


def end_to_end(workload: Workload, rows: int) -> None:
    """Print what each phase takes."""
    con = duckdb.connect()
    table(con, workload, rows)
    source = read_table(con, ("t",), None)
    clock = Clock()
    plan = dpsql.plan(workload, budget=dpsql.Budget(epsilon=1, delta=1e-9))
    clock.tell(f"planned {plan.workload.count:,} answers, rmse {plan.rmse:.3f}, gap {plan.gap:.1e}")
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    counts = DuckDBEngine(con).marginals(source, spaces)
    clock.tell(f"counted {len(spaces):,} marginals of {rows:,} rows")
    measured = measure(pay(plan), counts)
    clock.tell(f"measured {sum(v.size for v in measured.values.values()):,} noisy integers")
    values, reconstruction = plan.values(measured.values), plan.reconstruction
    answers = NoisyMarginals(lambda names: reconstruction.marginal(names, values))
    total, squares = 0, 0.0
    for family in plan.workload.families:
        for part in family.parts(BATCH):
            total += answers.answers(part).size
            squares += float(reconstruction.variances(part).sum())
    clock.tell(f"made {total:,} answers with variances, rmse {(squares / total) ** 0.5:.3f}")
    clock.sum_up()


class Clock:
    """Seconds and processor seconds since the last phase."""

    def __init__(self) -> None:
        self._start = self._last = (time.perf_counter(), time.process_time())

    def tell(self, what: str) -> None:
        """Print a phase."""
        now = (time.perf_counter(), time.process_time())
        print(f"{now[0] - self._last[0]:7.2f} s {now[1] - self._last[1]:7.2f} CPU s  {what}")
        self._last = now

    def sum_up(self) -> None:
        """Print the sums, and the peak memory of the process."""
        self._last = self._start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.tell(f"in all; peak {peak:.0f} MB")


def growth() -> None:
    """Print planning times for more and more attributes of one size: one distinct problem each."""
    for d in range(10, 101, 10):
        workload = marginals({f"a{i}": 10 for i in range(d)}, 3)
        start = time.perf_counter()
        plan = dpsql.plan(workload, budget=dpsql.Budget(mu=1))
        seconds = time.perf_counter() - start
        distinct = len(plan.planned)
        print(
            f"d = {d:3}: {len(workload.families):7,} marginals, {distinct} kinds, {seconds:.1f} s"
        )


def main() -> None:
    """Run the benchmark that is named."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "adult":
        end_to_end(marginals({f"a{i}": n for i, n in enumerate(ADULT)}, 3), 48_842)
    elif name == "table7":
        end_to_end(three_way(20, 20), 1_000_000)
    elif name == "growth":
        growth()
    else:
        print(__doc__)


if __name__ == "__main__":
    main()
