"""Lazy updates of GReM-MLE: one measured marginal, all estimates brought up to date.

python -m tests.benchmarks.lazy_updates [rounds]

The domain has the sizes of the Adult census extract, and all 364 three-way marginals are
estimated, 20.9 million cells. Each round measures the residuals that conditional ResidualPlanner
chooses for one random three-way marginal; "lazy" adds their changes to the marginals that contain
them, "full" puts all marginals together again. Exits with 1 if lazy is not five times as fast.
"""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.aim_rounds import (
    LinearMarginals,
    conditional_plan,
    residual_block,
    residual_of,
)
from tests.benchmarks.aim_adult import SIZES

TRIPLES = tuple(combinations(SIZES, 3))
PRICE = Fraction(1, 100)
LEAST = 5.0


def measure(marginals: LinearMarginals, blocks: list[BlockStrategy], generator) -> None:
    """Add invented measurements; what they are makes no difference to the time."""
    for block in blocks:
        noisy = generator.integers(-(2**40), 2**40, block.shape or (1,))
        marginals.add(block.spaces[0], residual_of(block, noisy))


def main() -> None:
    """Print the seconds of each round."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    generator = np.random.default_rng(0)
    marginals = LinearMarginals(SIZES)
    first = [(), *((a,) for a in SIZES)]
    measure(marginals, [residual_block(a, SIZES, PRICE, 1) for a in first], generator)
    for names in TRIPLES:
        marginals.marginal(names)
    lazy = full = worst = 0.0
    print(f"{'round':>5} {'residuals':>9} {'lazy s':>8} {'full s':>8}  marginal")
    for number in range(1, rounds + 1):
        chosen = TRIPLES[generator.integers(len(TRIPLES))]
        blocks = list(conditional_plan(chosen, SIZES, marginals.precision, PRICE, 1))
        started = time.perf_counter()
        measure(marginals, blocks, generator)
        updated = time.perf_counter()
        rebuilt = [marginals.rebuilt(names) for names in TRIPLES]
        ended = time.perf_counter()
        lazy, full = lazy + updated - started, full + ended - updated
        for names, table in zip(TRIPLES, rebuilt, strict=True):
            worst = max(worst, float(np.abs(table - marginals.marginal(names)).max()))
        print(f"{number:5} {len(blocks):9} {updated - started:8.3f} {ended - updated:8.3f}  "
              f"{' x '.join(chosen)}")  # fmt: skip
    print(f"lazy is {full / lazy:.1f} times as fast; largest difference {worst:.1e}")
    raise SystemExit(full < LEAST * lazy)


if __name__ == "__main__":
    main()
