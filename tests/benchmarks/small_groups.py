"""How far averages, shares and correlations of few rows are from the truth: cut off, and not.

Run it: python -m tests.benchmarks.small_groups [draws]

Groups of 5, 10, 40 and 200 rows have pay between 0 and 50, 20 on average, and hours that rise with
it. Every statement is planned once with μ = 0.2 and measured as often as `draws` says, with seeded
noise. Printed are the mean error of the quotient of the noisy sums, that of the value that is
shown, and the mean of the latter less the truth, which is its bias. Where noise leaves nothing to
take a root of, both are NULL, and left out.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

import duckdb
import numpy as np

import dpsql
from dpsql.answers import frames
from tests.helpers.redrawn import Redrawn

SIZES = (5, 10, 40, 200)
EACH = 5
"""Groups of each size."""
BUDGET = dpsql.Budget(rho=0.02)
"""μ = √(2ρ) = 0.2."""
STATEMENTS = {
    "AVG(pay)": "AVG(pay)",
    "share": "COUNT(*) FILTER (WHERE pay > 20) / COUNT(*)",
    "CORR(pay, hours)": "CORR(pay, hours)",
}


def groups() -> duckdb.DuckDBPyConnection:
    """Return a table with as many rows in each group as its size is."""
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND {len(SIZES) * EACH - 1}), "
        "pay INTEGER NOT NULL CHECK (pay BETWEEN 0 AND 50), "
        "hours INTEGER NOT NULL CHECK (hours BETWEEN 0 AND 60))"
    ).fetchall()
    for g in range(len(SIZES) * EACH):
        con.execute(
            "INSERT INTO t SELECT ?, 10 + (i % 5) * 5, 20 + (i % 5) * 5 + (i * 7) % 11 "
            "FROM range(?) r(i)",
            [g, SIZES[g % len(SIZES)]],
        ).fetchall()
    return con


def errors(con: duckdb.DuckDBPyConnection, value: str, draws: int) -> list[tuple[float, ...]]:
    """Return for each size: the error of the quotient, that of what is shown, and its bias."""
    sql = f"SELECT g, {value} AS v FROM t GROUP BY g ORDER BY g"
    truth = np.array([v for _, v in con.execute(sql).fetchall()], dtype=np.float64)
    plan = Redrawn.of(con, {"q": sql}, budget=BUDGET)

    def drawn() -> np.ndarray:
        found = (release["q"]["v"].to_numpy() for release in plan.draws(draws))
        return np.array([v - truth for v in found]).reshape(draws, EACH, len(SIZES))

    shown = drawn()
    with patch.object(frames, "_clipped", lambda post, i, result: result.to_series(i)):
        plain = drawn()
    return [
        tuple(float(np.nanmean(of[:, :, size])) for of in (np.abs(plain), np.abs(shown), shown))
        for size in range(len(SIZES))
    ]


def main() -> None:
    """Print the table, row by row."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    con = groups()
    print(f"{draws} draws: mean error of the quotient, of what is shown, and bias of that")
    for name, value in STATEMENTS.items():
        for size, found in zip(SIZES, errors(con, value, draws), strict=True):
            print(f"{name:18}{size:5} rows" + "".join(f"{number:12.4g}" for number in found))


if __name__ == "__main__":
    main()
