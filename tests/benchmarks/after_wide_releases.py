"""How long a small question takes to plan after a wide release.

    python -m tests.benchmarks.after_wide_releases

Each line has the joint cells of an earlier release, what was asked in it, and the CPU seconds of
planning counts by region afterwards, which rest on it. `beside` counts those of another column
as well, of which nothing is known.
"""

from __future__ import annotations

import time

import duckdb

import dpsql

BUDGET = dpsql.Budget(rho=0.1)
AGES = (100, 200)
WIDE = {
    "marginals": (
        "SELECT region, COUNT(*) AS n FROM people GROUP BY region",
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM people GROUP BY age",
        "SELECT region, employed, COUNT(*) AS n FROM people WHERE age >= 18 GROUP BY ALL",
    ),
    "all cells": ("SELECT region, age, employed, COUNT(*) AS n FROM people GROUP BY ALL",),
}
SMALL = {
    "inside": "SELECT region, COUNT(*) AS n FROM people GROUP BY region",
    "beside": "SELECT region, COUNT(*) AS n FROM people WHERE income < 1500 GROUP BY region",
}


def session(ages: int) -> dpsql.Session:
    """Return a session over a table of a thousand rows."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (region ENUM ('north', 'south', 'west') NOT NULL, employed BOOLEAN, "
        f"age SMALLINT NOT NULL CHECK (age BETWEEN 0 AND {ages - 1}), "
        "income SMALLINT NOT NULL CHECK (income BETWEEN 0 AND 9999))"
    )
    con.execute(
        "INSERT INTO people SELECT ['north', 'south', 'west'][1 + i % 3], i % 2 = 0, "
        f"i % {ages}, i * 7 % 10000 FROM range(1000) r(i)"
    )
    return dpsql.Session(con, budget=dpsql.Budget(rho=10))


def main() -> None:
    """Print one line for each case."""
    for ages in AGES:
        for wide, statements in WIDE.items():
            asked = session(ages)
            asked.release(list(statements), budget=BUDGET)
            for small, sql in SMALL.items():
                start = time.process_time()
                plan = asked.plan(sql, budget=BUDGET)
                spent = time.process_time() - start
                print(
                    f"{9 * ages:6,} cells  {wide:10}  {small:7} {spent:7.2f} s  "
                    f"rmse {plan.rmse:.6g}, gap {plan.gap:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
