"""The least budget for targets, and the least largest variance, beside the least there can be.

python -m tests.benchmarks.targets_bound [FIRST LAST]

Random workloads of 4 to 24 cells, and running totals and ranges of few cells. The least over all
matrix mechanisms comes from a semidefinite program. Each line has the budget μ² that was found and
the largest weighted variance at μ = 1, both in units of the least ones too, and CPU seconds of
planning; the last lines have the distribution over all workloads. A certified gap below the true
distance is an error.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

import numpy as np

import dpsql
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Total, Workload
from tests.helpers.least import least_budget

MOST_ROWS = 36
"""More different queries would take the semidefinite program minutes."""
ACCURACY = 1e-5
"""Of the semidefinite program, relatively."""
PLAIN = {
    **{f"running totals of {n} cells": (n, Prefix()) for n in (4, 8, 12)},
    **{f"all ranges of {n} cells": (n, AllRange()) for n in (4, 8)},
}


@dataclass(frozen=True)
class Found:
    """What a plan reached, the least there can be, and the certified distance."""

    reached: float
    least: float
    gap: float

    @property
    def ratio(self) -> float:
        """What was reached, in units of the least."""
        return self.reached / self.least

    def check(self) -> None:
        """Refuse a bound that is false."""
        if not 1 - ACCURACY <= self.ratio <= (1 + self.gap) * (1 + ACCURACY):
            raise AssertionError(f"{self.ratio} times the least, and a gap of {self.gap}")

    def __str__(self) -> str:
        return f"{self.reached:.6g} = {self.ratio:.5f} x the least (gap {self.gap:.1e})"


def small(generator: random.Random) -> tuple[Workload, dict[str, float]]:
    """Make a random workload with targets for some of its families."""
    while True:
        sizes = [generator.randint(2, 6) for _ in range(generator.choice([1, 2, 2, 3]))]
        if len(sizes) == 1:
            sizes = [generator.randint(4, 24)]
        names = [f"a{i}" for i in range(len(sizes))]
        workload = Workload(dict(zip(names, sizes, strict=True)))
        for i in range(generator.randint(1, 3)):
            chosen = sorted(generator.sample(names, generator.randint(1, len(names))))
            factors = [_factor(generator, workload.domain[name]) for name in chosen]
            workload.add(chosen, factors, float(generator.choice([1, 1, 4])), name=f"f{i}")
        if 4 <= np.prod(sizes) <= 24 and workload.count <= MOST_ROWS:
            break
    targets = {
        family.name: float(generator.choice([3, 5, 10, 20, 40]))
        for family in workload.families
        if generator.random() < 0.8
    }
    return workload, targets or {"f0": 10.0}


def _factor(generator: random.Random, cells: int) -> Identity | Prefix | AllRange | Total | Matrix:
    kind = generator.choice("iipprtm")
    if kind == "m":
        chosen = [[generator.randint(0, 1) for _ in range(cells)] for _ in range(3)]
        return Matrix([row if any(row) else [1] * cells for row in chosen])
    return {"i": Identity(), "p": Prefix(), "r": AllRange(), "t": Total()}[kind]


def budget(workload: Workload, targets: dict[str, float]) -> Found:
    """Find the least budget for targets."""
    planned = dpsql.plan(workload, targets=targets)
    for family, variances in zip(workload.families, planned.variances, strict=True):
        assert variances.max() <= targets.get(family.name, np.inf) ** 2
    limits = [targets[f.name] ** 2 if f.name in targets else None for f in workload.families]
    return Found(float(planned.budget.mu_squared), least_budget(workload, limits), planned.gap)


def largest(workload: Workload) -> Found:
    """Find the least largest weighted variance."""
    planned = dpsql.plan(workload, budget=dpsql.Budget(mu=1), objective="largest")
    pairs = zip(workload.families, planned.variances, strict=True)
    most = max(family.weight * float(variances.max()) for family, variances in pairs)
    least = least_budget(workload, [1 / family.weight for family in workload.families])
    return Found(most, least, planned.gap)


def main(arguments: list[str]) -> None:
    """Print the plain cases, and as many random ones as are asked for."""
    first, last = map(int, arguments or ("0", "80"))
    cases = {
        name: (Workload({"a": n}).add(["a"], [factor], name="q"), {"q": 10.0})
        for name, (n, factor) in PLAIN.items()
    }
    # Random numbers here are for workloads, not for privacy.
    cases |= {str(seed): small(random.Random(seed)) for seed in range(first, last)}  # noqa: S311
    table: list[tuple[float, float]] = []
    for name, (workload, targets) in cases.items():
        start = time.process_time()
        dpsql.plan(workload, targets=targets)
        dpsql.plan(workload, budget=dpsql.Budget(mu=1), objective="largest")
        seconds = time.process_time() - start
        found = budget(workload, targets), largest(workload)
        for each in found:
            each.check()
        table.append((found[0].ratio, found[1].ratio))
        print(
            f"{name}: {dict(workload.domain)}, {workload.count} queries: budget {found[0]}, "
            f"largest variance {found[1]}; {seconds:.2f} s",
            flush=True,
        )
    for title, column in zip(("budget", "largest variance"), np.array(table).T, strict=True):
        low, median, high, most = np.quantile(column, [0, 0.5, 0.9, 1])
        print(
            f"{title} of {len(column)}, in units of the least: least {low:.5f}, median "
            f"{median:.5f}, 90 % {high:.5f}, most {most:.5f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
