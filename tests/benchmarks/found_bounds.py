"""Sums with found bounds beside sums with the best bounds there are, which nobody knows.

    python -m tests.benchmarks.found_bounds [runs]

50,000 lognormal numbers (σ = 1, 1.5), at ε = 1, δ = 1e-9; a tenth and a fifth of μ² find bounds.
The best clamp [0, c] is chosen with the rows at hand: of all c that which makes the sum of squared
bias and variance least, the noise being c/μ with all of μ². Printed are root mean squared errors
relative to the sum, and their ratio.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import duckdb
import numpy as np
import polars as pl

import dpsql

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
ROWS = 50_000


def best_clamp(values: np.ndarray) -> float:
    """Return the root mean squared error of the best clamp, relative to the sum."""
    mu = float(BUDGET.mu_squared) ** 0.5
    ends = np.quantile(values, np.linspace(0.9, 1, 400))
    found = [np.maximum(values - c, 0).sum() ** 2 + (c / mu) ** 2 for c in ends]
    return float(min(found) ** 0.5 / values.sum())


def error(values: np.ndarray, share: Fraction) -> float:
    """Return the error of a sum with bounds that were found for a share of μ²."""
    con = duckdb.connect()
    con.register("frame", pl.DataFrame({"x": values}))
    con.execute("CREATE TABLE t AS SELECT x FROM frame")
    con.unregister("frame")
    session, rho = dpsql.Session(con), BUDGET.mu_squared / 2
    session.find_bounds("t", "x", budget=dpsql.Budget(rho=rho * share))
    frame = session.query("SELECT SUM(x) AS s FROM t", budget=dpsql.Budget(rho=rho * (1 - share)))
    return float(frame["s"][0] / values.sum() - 1)


def main() -> None:
    """Print a line for each distribution and share."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for sigma in (1.0, 1.5):
        rng = np.random.default_rng(1)
        samples = [np.exp(rng.normal(0, sigma, ROWS)) for _ in range(runs)]
        best = float(np.sqrt(np.mean([best_clamp(values) ** 2 for values in samples])))
        for share in (Fraction(1, 10), Fraction(1, 5)):
            errors = [error(values, share) for values in samples]
            found = float(np.sqrt(np.mean(np.square(errors))))
            print(
                f"lognormal σ = {sigma}, {float(share):.0%} of μ² for bounds: {found:.4f}, "
                f"best clamp {best:.4f}, ratio {found / best:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
