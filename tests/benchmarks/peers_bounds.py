"""Sums of a column whose bounds nobody knows, by dpsql and by its peers, and how far they are off.

    python -m tests.benchmarks.peers_bounds [--runs 5] [--tools dpsql smartnoise_sql]

50,000 lognormal numbers (σ = 1, 1.5), as in `found_bounds`, for ε = 1 of which a fifth finds
bounds; interpreters of other tools are those of `peers_keys`. Printed are root mean squares of
errors relative to the sum.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from tests.benchmarks.found_bounds import ROWS
from tests.benchmarks.peers_keys import with_tool
from tests.benchmarks.peers_tools import EPSILON, SUMS

HOW = {
    "dpsql, δ = 0": {"budget": dpsql.Budget(epsilon=EPSILON, delta=0), "mechanism": "laplace"},
    "dpsql, δ = 1e-9": {"budget": dpsql.Budget(epsilon=EPSILON, delta=1e-9)},
}


def with_dpsql(rows: Path, **how: object) -> float:
    """Ask dpsql."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS FROM read_csv('{rows}')")
    asked = "SELECT SUM(x) AS s FROM t"
    return float(dpsql.query(con, asked, bounds=dpsql.Bounds(), **how)["s"][0])


def main() -> None:
    """Print a line for each distribution and tool."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tools", nargs="*", default=[*HOW, *SUMS])
    given = parser.parse_args()
    for sigma in (1.0, 1.5):
        values = np.exp(np.random.default_rng(1).normal(0, sigma, ROWS))
        for tool in given.tools:
            with tempfile.TemporaryDirectory() as folder:
                rows = Path(folder) / "numbers.csv"
                np.savetxt(rows, values, header="x", comments="")
                print(f"σ = {sigma}: {line(tool, rows, values.sum(), given.runs)}", flush=True)


def line(tool: str, rows: Path, truth: float, runs: int) -> str:
    """Return what there is to say of a tool."""
    errors = list[float]()
    for _ in range(runs):
        if tool in HOW:
            found: dict | str = {"counts": {"sum": with_dpsql(rows, **HOW[tool])}}
        else:
            found = with_tool(tool, rows)
        if isinstance(found, str):
            return f"{tool} | {found}"
        errors.append(found["counts"]["sum"] / truth - 1)
    return f"{tool} | {np.sqrt(np.mean(np.square(errors))):.4f} of the sum, {runs} runs"


if __name__ == "__main__":
    main()
