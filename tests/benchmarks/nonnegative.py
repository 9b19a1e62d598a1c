"""Answers without negative counts: how far off they are, and what becomes of totals.

Run it: python -m tests.benchmarks.nonnegative [draws [case …]]

Each case is released with `nonnegative=True`, and again with `integers=True`; then measured as
often as `draws` says with seeded noise. A line has the root mean squared error, Σ|error| / Σ truth,
and the mean of sum / true sum, of the unbiased answers, the adjusted ones, those cut off at zero
and scaled to the unbiased sum, and for each statement the nearest point without negative numbers
that keeps the unbiased sum ("simplex"). Then the mean error of adjusted answers, by the true count.
"""

from __future__ import annotations

import sys
import time

import duckdb
import numpy as np

import dpsql
from tests.helpers.redrawn import Redrawn
from tests.release.adult import connect

EPSILONS = (0.1, 1.0)
BINS = ((0, 0), (1, 5), (6, 20), (21, 100), (101, 1000), (1001, 10**9))
CASES: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "dense, 3 columns": ("adult", (("sex", "race", "relationship"),)),
    "4 tables of 2 columns": (
        "adult",
        (("sex", "race"), ("race", "income"), ("relationship", "income"), ("sex", "relationship")),
    ),
    "sparse, 3 columns": ("adult", (("age", "workclass", "marital_status"),)),
    "400 rows, 2 columns": ("few", (("age", "education_num"),)),
    "344 rows, 3 tables": ("little", (("race", "sex"), ("race", "relationship"), ("sex",))),
    "sparse, 4 columns": ("adult", (("age", "workclass", "education_num", "race"),)),
    "3 sparse tables": (
        "adult",
        (("workclass", "education_num"), ("age", "workclass"), ("age", "education_num")),
    ),
}


def tables() -> duckdb.DuckDBPyConnection:
    """Return the Adult extract, and small tables of some of its rows."""
    con = connect()
    schema = con.execute("SELECT sql FROM duckdb_tables() WHERE table_name = 'adult'").fetchone()[0]
    for name, rows in (("few", 400), ("little", 344)):
        con.execute(schema.replace("adult", name, 1)).fetchall()
        con.execute(
            f"INSERT INTO {name} SELECT * FROM adult ORDER BY hash(age, hours_per_week, rowid) "
            f"LIMIT {rows}"
        ).fetchall()
    return con


def script(case: str) -> dict[str, str]:
    """Return the statements of a case."""
    table, sets = CASES[case]
    return {
        "_".join(keys): f"SELECT {', '.join(keys)}, COUNT(*) AS n FROM {table} GROUP BY ALL"
        for keys in sets
    }


def simplex(y: np.ndarray) -> np.ndarray:
    """Return the nearest point without negative numbers that sums to what y does."""
    total = y.sum()
    if total <= 0:
        return np.zeros_like(y)
    ordered = np.sort(y)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(y) + 1)
    return np.maximum(y - over[np.flatnonzero(ordered > over)[-1]], 0)


def scaled(y: np.ndarray) -> np.ndarray:
    """Return what is above zero, scaled to what all of it sums to."""
    cut = np.maximum(y, 0)
    return cut * (max(y.sum(), 0) / (cut.sum() or 1))


class Errors:
    """What one way to answer got wrong, draw by draw."""

    def __init__(self) -> None:
        self.off: list[np.ndarray] = []
        self.sums: list[float] = []

    def add(self, found: list[np.ndarray], truth: list[np.ndarray]) -> None:
        """Note a draw: answers and truth of each statement."""
        self.off.append(np.concatenate(found) - np.concatenate(truth))
        self.sums += [float(f.sum() / t.sum()) for f, t in zip(found, truth, strict=True)]

    @property
    def rmse(self) -> float:
        """The root mean squared error."""
        return float(np.sqrt(np.mean(np.square(self.off))))

    @property
    def ratio(self) -> float:
        """The mean of sum / true sum."""
        return float(np.mean(self.sums))

    def relative(self, truth: np.ndarray) -> float:
        """Return Σ|error| / Σ truth."""
        return float(np.abs(self.off).sum(axis=1).mean() / truth.sum())

    def bias(self, mine: np.ndarray) -> float:
        """Return the mean error of some answers."""
        return float(np.mean(np.array(self.off)[:, mine]))


def measured(
    con: duckdb.DuckDBPyConnection, case: str, epsilon: float, draws: int, *, integers: bool
) -> tuple[dict[str, Errors], np.ndarray]:
    """Return what each way got wrong, and the truth."""
    statements = script(case)
    how = {"nonnegative": True, "integers": integers}
    plan = Redrawn.of(con, statements, budget=dpsql.Budget(epsilon=epsilon, delta=1e-9), **how)
    exact = plan.exact()
    truth = [np.rint(exact[name]["n"].to_numpy()) for name in statements]
    ways = {name: Errors() for name in ("unbiased", "adjusted", "scaled", "simplex")}
    for release in plan.draws(draws):
        free = [release[name]["n"].to_numpy() for name in statements]
        ways["unbiased"].add(free, truth)
        ways["adjusted"].add([release[n]["n_adjusted"].to_numpy() for n in statements], truth)
        ways["scaled"].add([scaled(y) for y in free], truth)
        ways["simplex"].add([simplex(y) for y in free], truth)
    return ways, np.concatenate(truth)


def main() -> None:
    """Print a block for each case and budget."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    con = tables()
    for case in sys.argv[2:] or CASES:
        for epsilon in EPSILONS:
            for integers in (False, True):
                start = time.process_time()
                ways, truth = measured(con, case, epsilon, draws, integers=integers)
                shown = "".join(
                    f"  {name} {e.rmse:.4g} / {e.relative(truth):.3g} / {e.ratio:.3f}"
                    for name, e in ways.items()
                )
                kind = "whole" if integers else "real"
                print(f"{case}, {len(truth):,} cells, ε {epsilon}, {kind}:{shown}")
                bias = [
                    f"{low}-{high}: {ways['adjusted'].bias(mine):+.2f}"
                    for low, high in BINS
                    if (mine := (truth >= low) & (truth <= high)).any()
                ]
                spent = (time.process_time() - start) / draws
                print(f"    bias {', '.join(bias)}; {spent:.2f} CPU s a draw", flush=True)


if __name__ == "__main__":
    main()
