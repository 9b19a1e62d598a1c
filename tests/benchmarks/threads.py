"""CPU seconds with the BLAS threads of the environment's default, and with one.

python -m tests.benchmarks.threads [NAME …]

Each case runs in processes of its own, once with no number of threads set and once with 1. Planning
takes one thread in any case, so that the ratio is about 1; before it did, it was 5 to 30.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import dpsql
from dpsql.workload import Identity, Prefix, Workload
from tests.benchmarks.flights_plans import BUDGET, STATEMENTS, THREADS, connection


def _sql(name: str):
    def plan() -> None:
        con, schema = connection()
        dpsql.plan(con, STATEMENTS[name], budget=BUDGET, schema=schema)

    return plan


def _workload(cells: int) -> Workload:
    workload = Workload({"a": cells, "b": 8})
    return workload.add(["a", "b"], [Prefix(), Identity()]).add(["a"], [Prefix()])


def _again() -> None:
    first = dpsql.plan(_workload(100), budget=BUDGET)
    dpsql.plan(_workload(100), budget=BUDGET, given=[first]).expected_error()


CASES = {
    "median 361": _sql("median 361"),
    "average": _sql("average"),
    "90th percentile by 3": _sql("p90"),
    "median 1501": _sql("median 1501"),
    "running totals by 8": lambda: dpsql.plan(_workload(250), budget=BUDGET).expected_error(),
    "on earlier measurements": _again,
    "all mechanisms": lambda: dpsql.compare(_workload(60), budget=BUDGET),
}


def seconds(name: str, threads: dict[str, str]) -> float:
    """Run a case in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in THREADS} | threads
    command = [sys.executable, "-m", "tests.benchmarks.threads", "--one", name]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print one line for each case."""
    names = sys.argv[1:] or list(CASES)
    if names[0] == "--one":
        start = time.process_time()
        CASES[names[1]]()
        print(time.process_time() - start)
        return
    print(f"{'':25} {'default':>8} {'one':>8} {'ratio':>6}   (CPU seconds)")
    for name in names:
        default, one = seconds(name, {}), seconds(name, dict.fromkeys(THREADS, "1"))
        print(f"{name:25} {default:8.2f} {one:8.2f} {default / one:6.2f}", flush=True)


if __name__ == "__main__":
    main()
