"""AIM on the Adult census extract: all three-way marginals over the original domains.

python -m tests.benchmarks.aim_adult examples/data/adult.parquet [runs]

The file has one row for each person, as CSV or Parquet, with the columns of `DOMAIN`. For each
budget the table gives the mean over all marginals of Σ|answer − truth|/rows:

    aim           the answers of `aim`: the mean over some runs, and the largest of them
    linear, cut   its linear estimates (GReM-MLE), cut off at zero and rescaled to the total
    rp, rp cut    ResidualPlanner's unbiased answers, and the same cut off and rescaled

with the seconds and rounds of the last run of `aim`, and the peak memory of the process before
ResidualPlanner ran. Published for the graphical-model AIM, measured with the public code: 0.411,
0.240 and 0.187.
"""

from __future__ import annotations

import resource
import sys
import time
from fractions import Fraction
from itertools import combinations

import numpy as np
import polars as pl

import dpsql
from dpsql.engines.base import Counted
from dpsql.measurement.measure import measure
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.planner.mechanisms.aim_rounds import Estimates, run
from tests.helpers.charging import pay as pay_planner
from tests.helpers.mechanisms import planned_by
from tests.measurement.adaptive.tools import all_marginals, marginals_of, pay
from tests.oracle import reconstruct

DOMAIN: dict[str, int | tuple[int, int]] = {
    "age": (16, 85), "workclass": 9, "fnlwgt_bin": (0, 100), "education_num": (1, 16),
    "marital_status": 7, "occupation": 15, "relationship": 6, "race": 5, "sex": 2,
    "capital_gain_bin": (0, 100), "capital_loss_bin": (0, 100), "hours_per_week": (1, 99),
    "native_country": 42, "income": 2,
}  # fmt: skip
"""Column → its number of labels, or its first number and how many there are."""
SIZES = {name: n if isinstance(n, int) else n[1] for name, n in DOMAIN.items()}
EPSILONS = ("0.1", "1", "10")
Tables = dict[tuple[str, ...], np.ndarray]


def read(path: str) -> dict[str, np.ndarray]:
    """Read the code of every row and column."""
    frame = pl.read_csv(path) if path.endswith(".csv") else pl.read_parquet(path)
    codes = {}
    for name, n in DOMAIN.items():
        if isinstance(n, int):
            column = frame[name].cast(pl.String)
            labels = pl.Enum(column.unique().sort())
            codes[name] = column.cast(labels).to_physical().to_numpy().astype(np.int64)
        else:
            codes[name] = frame[name].to_numpy().astype(np.int64) - n[0]
        if codes[name].min() < 0 or codes[name].max() >= SIZES[name]:
            raise SystemExit(f"{name} has values outside its domain")
    return codes


def distance(truth: Tables, answer) -> float:
    """Return the mean over marginals of the sum of absolute differences, per row."""
    rows = next(iter(truth.values())).sum()
    parts = [np.abs(answer(names) - counts).sum() / rows for names, counts in truth.items()]
    return float(np.mean(parts))


def cut(answer):
    """Cut answers off at zero, and rescale them to their total."""

    def positive(names):
        given = answer(names)
        kept = np.maximum(given, 0.0)
        return kept * (max(given.sum(), 0.0) / max(kept.sum(), 1e-9))

    return positive


def adaptive(
    truth: Tables, budget: dpsql.Budget, bits=None, sizes=SIZES
) -> tuple[Estimates, float]:
    """Run `aim` once; return its estimates and the seconds."""
    workload = all_marginals(sizes, list(truth))
    started = time.perf_counter()
    planned = AdaptivePlan(workload, budget)
    estimates = run(pay(planned), Counted(truth, 1), _bits=bits)
    for names in truth:
        estimates.marginal(names)
    return estimates, time.perf_counter() - started


def planner(truth: Tables, budget: dpsql.Budget):
    """Return ResidualPlanner's answers."""
    planned = planned_by("residualplanner", all_marginals(SIZES, list(truth)), budget)
    spaces = [space for block in planned.certified.blocks for space in block.spaces]
    noisy = measure(pay_planner(planned), Counted(_closure(truth, spaces), 1))
    families = {
        tuple(a for block in f.blocks for a in block.attributes): f
        for f in planned.workload.families
    }
    return lambda names: reconstruct(planned, noisy, families[names])


def _closure(truth: Tables, spaces: list[tuple[str, ...]]) -> Tables:
    found = {}
    for space in spaces:
        larger = next(names for names in truth if set(space) <= set(names))
        drop = tuple(i for i, a in enumerate(larger) if a not in space)
        found[space] = truth[larger].sum(axis=drop, dtype=np.int64) if drop else truth[larger]
    return found


def main() -> None:
    """Print one line for each budget."""
    path, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    truth = marginals_of(read(path), SIZES, list(combinations(SIZES, 3)))
    cells = sum(counts.size for counts in truth.values())
    print(f"{len(truth)} marginals of {cells:,} cells in all")
    print(f"{'eps':>5} {'aim':>7} {'worst':>7} {'linear':>8} {'cut':>7} {'rp':>8} {'rp cut':>7} "
          f"{'rounds':>7} {'seconds':>8} {'peak GB':>8}")  # fmt: skip
    peaks = {}
    found = {}
    for epsilon in EPSILONS:
        budget = dpsql.Budget(epsilon=Fraction(epsilon), delta=Fraction("1e-9"))
        errors = []
        for _ in range(runs):
            estimates, seconds = adaptive(truth, budget)
            errors.append(distance(truth, estimates.marginal))
        found[epsilon] = budget, errors, estimates, seconds
        peaks[epsilon] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for epsilon, (budget, errors, estimates, seconds) in found.items():
        unbiased = planner(truth, budget)
        print(f"{epsilon:>5} {np.mean(errors):7.3f} {max(errors):7.3f} "
              f"{distance(truth, estimates.linear):8.3f} "
              f"{distance(truth, cut(estimates.linear)):7.3f} {distance(truth, unbiased):8.3f} "
              f"{distance(truth, cut(unbiased)):7.3f} {len(estimates.rounds):7} {seconds:8.1f} "
              f"{peaks[epsilon]:8.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
