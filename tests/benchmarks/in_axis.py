"""In-axis decomposition and reconstruction: time per cell as marginals grow.

python -m tests.benchmarks.in_axis

"decompose" is what a measurement does before noise is added (`measurement.measure.apply`): n·I − J
along each axis. "invert" brings it back to the residual space (`planner.reconstruction`, and AIM's
`residual_of`), "reconstruct" adds all residuals inside a marginal up
(`ResidualReconstruction.marginal`, and AIM's `LinearMarginals.rebuilt`). Nanoseconds per cell of
the marginal; constant means linear.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np

import dpsql
from dpsql.linalg.sets import subsets
from dpsql.measurement.narrow import apply
from dpsql.planner.mechanisms.aim_rounds import LinearMarginals, residual_block, residual_of
from dpsql.workload import Identity, Workload

SHAPES = (
    (10, 10, 10), (20, 20, 20), (50, 50, 50), (100, 100, 100), (200, 200, 200), (300, 300, 300),
    (10,) * 2, (10,) * 4, (10,) * 5, (10,) * 6, (10,) * 7,
    (1000, 1000), (4000, 4000), (2,) * 10,
)  # fmt: skip


def seconds(call) -> float:
    """Return the least time of three calls, each repeated for a while."""
    best = math.inf
    for _ in range(3):
        started, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - started < 0.02:
            call()
            count += 1
        best = min(best, (time.perf_counter() - started) / count)
    return best


def main() -> None:
    """Print one line for each shape."""
    print(f"{'shape':>20} {'cells':>11} {'decompose':>10} {'invert':>8} {'reconstruct':>12} "
          f"{'reconstruction':>9}   (ns per cell)")  # fmt: skip
    generator = np.random.default_rng(0)
    for shape in SHAPES:
        sizes = {f"x{i}": n for i, n in enumerate(shape)}
        names = tuple(sizes)
        block = residual_block(names, sizes, Fraction(1), 1)
        counts = generator.integers(0, 100, shape)
        measured = apply(block, counts)
        cells = counts.size
        times = [
            seconds(lambda b=block, c=counts: apply(b, c)),
            seconds(lambda b=block, m=measured: residual_of(b, m)),
            seconds(_rebuilding(sizes, names)),
            _reconstruction(sizes, names) if len(shape) <= 7 else math.nan,
        ]
        label = "x".join(map(str, shape)) if len(set(shape)) > 1 else f"{shape[0]}^{len(shape)}"
        each = [1e9 * t / cells for t in times]
        print(f"{label:>20} {cells:11,} {each[0]:10.2f} {each[1]:8.2f} {each[2]:12.2f} "
              f"{each[3]:9.2f}", flush=True)  # fmt: skip


def _rebuilding(sizes, names):
    marginals = LinearMarginals(sizes)
    for part in subsets(names):
        block = residual_block(part, sizes, Fraction(1), 1)
        marginals.add(part, residual_of(block, np.ones(block.shape or (1,), dtype=np.int64)))
    return lambda: marginals.rebuilt(names)


def _reconstruction(sizes, names) -> float:
    """Time the planner's own reconstruction of a marginal, from a plan for it."""
    workload = Workload(sizes).add(list(names), [Identity()] * len(names))
    plan = dpsql.plan(workload, budget=dpsql.Budget(rho=1), residuals="uniform")
    if plan.whole:
        return math.nan
    values = {}
    for space in plan.reconstruction.spaces:
        values[space] = np.ones([f.measurements for f in space.factors])
    return seconds(lambda: plan.reconstruction.marginal(names, values))


if __name__ == "__main__":
    main()
