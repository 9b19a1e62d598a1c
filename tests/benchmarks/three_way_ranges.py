"""Plan all three-way ranges, without ever holding an answer or a variance of each.

python -m tests.benchmarks.three_way_ranges          both cases
python -m tests.benchmarks.three_way_ranges cube     three attributes of 100 values
python -m tests.benchmarks.three_way_ranges adult    Adult's age x hours x education

Each case runs in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import dpsql
from dpsql.workload import AllRange, Workload

CASES = {
    "cube": {"age": 100, "hours": 100, "education": 100},
    "adult": {"age": 74, "hours": 99, "education": 16},
}


def run(name: str) -> None:
    """Print what planning a case takes, and how good the plan is."""
    workload = Workload(CASES[name])
    start = time.perf_counter()
    workload.add(list(workload.domain), [AllRange()] * 3, name="ranges")
    plan = dpsql.plan(workload, budget=dpsql.Budget(rho=0.5))
    planned = time.perf_counter()
    (row,) = plan.expected_error().to_dicts()
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = " x ".join(str(n) for n in workload.domain.values())
    print(f"{sizes}: {workload.count:,} answers at rho = 0.5")
    print(f"  planned in {planned - start:.2f} s, expected error in {done - planned:.2f} s")
    print(f"  peak {peak:.0f} MB")
    print(
        f"  rmse {plan.rmse:.4f} (again from the table: {row['rmse']:.4f}), "
        f"largest standard error {row['worst_standard_error']:.4f}, gap {plan.gap:.1e}"
    )


def main() -> None:
    """Run the cases that are named."""
    names = sys.argv[1:] or list(CASES)
    if len(names) == 1 and names[0] in CASES:
        run(names[0])
    elif set(names) <= set(CASES):
        for name in names:
            command = [sys.executable, "-m", "tests.benchmarks.three_way_ranges", name]
            subprocess.run(command, check=True)
    else:
        print(__doc__)


if __name__ == "__main__":
    main()
