"""Two releases at half the budget each: planned on each other, or apart.

Run it: python -m tests.benchmarks.rounds

The tasks are asked twice at ρ/2, or first one and then another. "apart" answers the second round
from its own measurements alone; "averaged" averages the answers of two rounds for the same task,
one by one, by inverse variance; "combined" puts the measurements of two rounds together that were
planned apart; "conditioned" also plans the second round on the first. "once" is one release at ρ.
RMSE in rows; the ratio is that of "conditioned" to "apart".
"""

from __future__ import annotations

import math
import time
from itertools import combinations

import numpy as np

import dpsql
from dpsql.planner.reuse.past import Past, Rounds, source_of
from dpsql.workload import AllRange, Identity, Prefix, Workload

BUDGET = 0.1
ADULT = {"age": 85, "workclass": 9, "education": 16, "race": 5, "sex": 2}


def marginals(k: int) -> Workload:
    """Return all k-way marginals of five columns of Adult."""
    workload = Workload(ADULT)
    for names in combinations(ADULT, k):
        workload.add(list(names), [Identity()] * k)
    return workload


def census() -> Workload:
    """Return marginals of one and two columns, and age distributions."""
    workload = Workload(ADULT)
    for k in (1, 2):
        for names in combinations(ADULT, k):
            factors = [Prefix() if name == "age" else Identity() for name in names]
            workload.add(list(names), factors)
    return workload


def ranges() -> Workload:
    """Return all ranges of ages by sex, and of education."""
    workload = Workload(ADULT)
    return workload.add(["age", "sex"], [AllRange(), Identity()]).add(["education"], [AllRange()])


def small() -> Workload:
    """Return a small domain, which is planned as a whole."""
    workload = Workload({"age": 60, "sex": 2})
    return workload.add(["age", "sex"], [Prefix(), Identity()]).add(["age"], [Identity()])


def small_other() -> Workload:
    """Return other questions about the small domain."""
    workload = Workload({"age": 60, "sex": 2})
    return workload.add(["sex"], [Identity()]).add(["age"], [AllRange()])


TASKS = {
    "2-way marginals, twice": (lambda: marginals(2), lambda: marginals(2)),
    "1-way, then 3-way marginals": (lambda: marginals(1), lambda: marginals(3)),
    "3-way, then 2-way marginals": (lambda: marginals(3), lambda: marginals(2)),
    "1- and 2-way with age prefixes, twice": (census, census),
    "2-way marginals, then ranges": (lambda: marginals(2), ranges),
    "ranges, then age prefixes": (ranges, census),
    "small domain, twice": (small, small),
    "small domain, then ranges": (small, small_other),
}


def main() -> None:
    """Print one line for each task."""
    half, whole = dpsql.Budget(rho=BUDGET / 2), dpsql.Budget(rho=BUDGET)
    print(f"{'second round':40} {'apart':>8} {'averaged':>9} {'combined':>9} {'conditioned':>12} "
          f"{'once':>8} {'ratio':>6} {'gap':>8} {'seconds':>8}")  # fmt: skip
    for name, (first, second) in TASKS.items():
        before = dpsql.plan(first(), budget=half)
        apart = dpsql.plan(second(), budget=half)
        averaged = _averaged(before, apart) if "twice" in name else math.nan
        combined = _combined(before, apart)
        started = time.perf_counter()
        given = dpsql.plan(second(), budget=half, given=[before])
        seconds = time.perf_counter() - started
        once = dpsql.plan(second(), budget=whole).rmse
        print(f"{name:40} {apart.rmse:8.3f} {averaged:9.3f} {combined:9.3f} {given.rmse:12.3f} "
              f"{once:8.3f} {given.rmse / apart.rmse:6.3f} {given.gap:8.1e} "
              f"{seconds:8.2f}")  # fmt: skip


def _combined(before: dpsql.Plan, after: dpsql.Plan) -> float:
    """Return the RMSE with the measurements of both plans, made without regard to each other."""
    past = Past((source_of(before),))
    return Rounds(after, past, past.over(after.workload.domain)).combined(after, 0.0).rmse


def _averaged(before: dpsql.Plan, after: dpsql.Plan) -> float:
    """Return the RMSE of answers that are averaged one by one, by inverse variance."""
    total, count = 0.0, 0
    for family, one, other in zip(
        after.workload.families, before.variances, after.variances, strict=True
    ):
        total += family.weight * float((1 / (1 / one + 1 / other)).sum())
        count += family.count
    return float(np.sqrt(total / count))


if __name__ == "__main__":
    main()
