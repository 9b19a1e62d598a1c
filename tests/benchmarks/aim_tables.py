"""AIM over several tables at once, beside AIM over each of them at an even part of the budget.

python -m tests.benchmarks.aim_tables [runs]

The tables are made up: people, their visits and what was bought on these, with all marginals of
three columns asked of each. A person has one row in the first, and up to 8 and 40 in the others.
For each budget the table gives means over some runs:

    together      of one release over all tables
    apart         of a release over each table, with a third of μ² each

of the error that is made small, Σ|answer − truth|/k over all marginals of all tables, with k the
rows of a person that count, in thousands; and for each table of Σ|answer − truth|/rows by marginal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations

import numpy as np

from dpsql.engines.base import Counted
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.planner.mechanisms.aim_rounds import run
from dpsql.privacy import Budget
from dpsql.workload.workload import UnitTable, over_all
from tests.measurement.adaptive.tools import all_marginals, marginals_of, pay

PEOPLE = 20_000
BUDGETS = ("0.001", "0.01", "0.1", "1")
Codes = dict[str, np.ndarray]


class MadeUp:
    """A table: its rows, of which columns depend on others, and how many of a person count."""

    def __init__(self, name: str, k: int, sizes: Mapping[str, int], codes: Codes) -> None:
        self.table, self.sizes, self.codes = UnitTable(name, k), sizes, codes
        self.wanted = list(combinations(sizes, 3))
        self.workload = all_marginals(sizes, self.wanted)
        self.truth = marginals_of(codes, sizes, self.wanted)
        self.rows = len(next(iter(codes.values())))

    def errors(self, answer) -> dict[tuple[str, ...], float]:
        """Return Σ|answer − truth| for each marginal."""
        return {
            names: float(np.abs(answer(names).reshape(truth.shape) - truth).sum())
            for names, truth in self.truth.items()
        }


def made_up(seed: int = 0, people: int = PEOPLE) -> list[MadeUp]:
    """Return three tables of the same people."""
    rng = np.random.default_rng(seed)

    def person(count: int) -> Codes:
        age = np.minimum((rng.gamma(3, 2, count)).astype(np.int64), 15)
        job = (age // 3 + (rng.random(count) < 0.3) * rng.integers(0, 6, count)) % 6
        town = rng.integers(0, 8, count)
        rent = np.minimum(town // 2 + job // 2 + rng.integers(0, 2, count), 6)
        sex = rng.integers(0, 2, count)
        return {"age": age, "job": job, "town": town, "rent": rent, "sex": sex}

    own = person(people)
    often = np.minimum(rng.geometric(0.3, people), 8) * (own["age"] > 1)
    of = np.repeat(np.arange(people), often)
    month = rng.integers(0, 12, len(of))
    shop = (own["town"][of] * 2 + (rng.random(len(of)) < 0.3)) % 16
    paid = np.minimum(own["rent"][of] + rng.geometric(0.5, len(of)), 11)
    visits = {"month": month, "shop": shop, "paid": paid, "card": (paid + month // 6) % 3}
    bought = np.repeat(np.arange(len(of)), np.minimum(rng.geometric(0.4, len(of)), 5))
    kind = (shop[bought] + rng.integers(0, 5, len(bought))) % 20
    price = np.minimum(kind // 2 + rng.geometric(0.4, len(bought)), 14)
    items = {"kind": kind, "price": price, "shop": shop[bought], "season": month[bought] // 3}
    return [
        MadeUp("people", 1, {"age": 16, "job": 6, "town": 8, "rent": 7, "sex": 2}, own),
        MadeUp("visits", 8, {"month": 12, "shop": 16, "paid": 12, "card": 3}, visits),
        MadeUp("items", 40, {"kind": 20, "price": 15, "shop": 16, "season": 4}, items),
    ]


def together(tables: list[MadeUp], budget: Budget, bits=None):
    """Run one release over all tables; return its estimates."""
    weights = [[1.0] * len(t.wanted) for t in tables]
    plan = AdaptivePlan(over_all([(t.table, t.workload) for t in tables], weights), budget)
    marginals = {
        (*map(t.table.attribute, names), t.table.name): truth[..., None]
        for t in tables
        for names, truth in t.truth.items()
    }
    bounds = {t.table.name: t.table.rows for t in tables}
    return run(pay(plan), Counted(marginals, 1, bounds), _bits=bits)


def alone(table: MadeUp, budget: Budget, bits=None):
    """Run a release over one table; return its estimates."""
    plan = AdaptivePlan(table.workload, budget, contributions=table.table.rows)
    return run(pay(plan), Counted(table.truth, table.table.rows), _bits=bits)


def compared(tables: list[MadeUp], budget: Budget, bits=(None, None)):
    """Return the errors of both ways, for each table and marginal."""
    part = Budget(rho=budget.rho / len(tables))
    joint, ours, theirs = together(tables, budget, bits[0]), {}, {}
    for t in tables:
        names = lambda own, of=t.table: (*map(of.attribute, own), of.name)  # noqa: E731
        ours[t.table.name] = t.errors(lambda own, names=names: joint.marginal(names(own)))
        theirs[t.table.name] = t.errors(alone(t, part, bits[1]).marginal)
    return ours, theirs


def total(tables: list[MadeUp], errors) -> float:
    """Return Σ|answer − truth|/k over all marginals of all tables."""
    return sum(sum(errors[t.table.name].values()) / t.table.rows for t in tables)


def main() -> None:
    """Print two lines for each budget."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    tables = made_up()
    print(", ".join(f"{t.table.name} {t.rows:,} rows" for t in tables))
    print(f"{'rho':>6} {'':>9} {'total':>8}", *(f"{t.table.name:>8}" for t in tables), "seconds")
    for rho in BUDGETS:
        started = time.perf_counter()
        found = [compared(tables, Budget(rho=Fraction(rho))) for _ in range(runs)]
        seconds = (time.perf_counter() - started) / runs
        for name, errors in zip(("together", "apart"), zip(*found, strict=True), strict=True):
            print(f"{rho:>6} {name:>9} {np.mean([total(tables, e) for e in errors]) / 1000:8.2f}",
                  *(f"{_relative(t, errors):8.3f}" for t in tables), f"{seconds:7.1f}",
                  flush=True)  # fmt: skip


def _relative(table: MadeUp, errors) -> float:
    parts = [np.mean(list(e[table.table.name].values())) / table.rows for e in errors]
    return float(np.mean(parts))


if __name__ == "__main__":
    main()
