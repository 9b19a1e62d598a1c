"""Time, memory and accuracy of the census task, measured in a fresh process.

    python -m tests.benchmarks.census_task [--releases 200]

The task: all 1- and 2-way group-bys over five columns of Adult plus the age distribution,
677 answers, planned jointly at ε = 1, δ = 1e-9.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time


def measure_once() -> dict[str, float]:
    """Plan and release the task once; wall seconds, CPU seconds and peak memory of the process."""
    started = time.perf_counter()
    import dpsql

    imported = time.perf_counter()
    from tests.release.adult import census_task, connect

    con, task = connect(), census_task()
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    loaded = time.perf_counter()
    plan = dpsql.plan(con, task, budget=budget)
    rmse, gap = plan.rmse, plan.gap
    planned = time.perf_counter()
    release = dpsql.query(con, task, budget=budget)
    done = time.perf_counter()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "import_s": imported - started,
        "plan_s": planned - loaded,
        "whole_call_s": done - planned,
        "process_cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        "rmse": rmse,
        "gap": gap,
        "answers": float(sum(frame.height for frame in release.values())),
    }


def empirical_rmse(releases: int) -> tuple[float, float]:
    """Root of the mean squared error over many releases, and its standard error."""
    import numpy as np

    import dpsql
    from tests.release.adult import census_task, connect

    con, task = connect(), census_task()
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    exact = dpsql.query(con, task, budget=dpsql.Budget(rho=10**12))
    squared = []
    for _ in range(releases):
        release = dpsql.query(con, task, budget=budget)
        errors = [release[n]["n"].to_numpy() - np.rint(exact[n]["n"].to_numpy()) for n in task]
        squared.append(np.square(np.concatenate(errors)).mean())
    mean = float(np.mean(squared))
    return mean**0.5, float(np.std(squared) / np.sqrt(releases) / 2 / mean**0.5)


def main() -> None:
    """Print the medians of five fresh processes and the empirical RMSE."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--releases", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure_once()))
        return
    command = [sys.executable, "-m", "tests.benchmarks.census_task", "--once"]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        for _ in range(5)
    ]
    for key in runs[0]:
        values = sorted(run[key] for run in runs)
        print(f"{key:>14}: min {values[0]:.4g}  median {values[2]:.4g}  max {values[-1]:.4g}")
    rmse, error = empirical_rmse(arguments.releases)
    print(f"empirical RMSE of {arguments.releases} releases: {rmse:.3f} +- {error:.3f}")


if __name__ == "__main__":
    main()
