"""Scripts whose statements once were better planned apart: error and CPU seconds of one plan.

python -m tests.benchmarks.one_plan [FOLDER]

Each line has the total of weight·variance at μ = 1, that of the statements planned apart with the
best shares, (Σ √E_s)², the RMSE of the plan over that, CPU seconds of planning, and the gap. A plan
needs domains and no rows. With FOLDER, the root of another checkout, the same runs there first.
"""

from __future__ import annotations

import math
import sys
import time

import duckdb

import dpsql
from dpsql.workload import Workload

BUDGET = dpsql.Budget(mu=1)
TABLES = """
    CREATE TABLE t (
        a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 23),
        b INTEGER NOT NULL CHECK (b BETWEEN 0 AND 56),
        c INTEGER NOT NULL CHECK (c BETWEEN -5 AND 16),
        d INTEGER NOT NULL CHECK (d BETWEEN 0 AND 6),
        f BOOLEAN NOT NULL);
    CREATE TABLE w (
        age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 99), kind ENUM('a','b','c','d','e') NOT NULL,
        pay INTEGER NOT NULL CHECK (pay BETWEEN 0 AND 30));
    CREATE TABLE v (
        a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 64),
        b INTEGER NOT NULL CHECK (b BETWEEN 0 AND 12),
        f BOOLEAN NOT NULL);
"""


def running(top: int, step: int, where: str) -> str:
    """Count the rows up to each threshold of b."""
    return (
        f"SELECT q, COUNT(*) AS n FROM t JOIN range(0, {top}, {step}) AS r(q) ON b <= q "
        f"WHERE {where} GROUP BY q"
    )


SCRIPTS: dict[str, tuple[str, ...]] = {
    "79 answers, b % 3 OR d % 3; MEDIAN(c)": (
        running(57, 1, "b % 3 <> 0 OR d % 3 <> 0"),
        "SELECT MEDIAN(c) AS m FROM t WHERE d % 3 <> 0",
    ),
    "51 answers, the same": (
        running(57, 2, "b % 3 <> 0 OR d % 3 <> 0"),
        "SELECT MEDIAN(c) AS m FROM t WHERE d % 3 <> 0",
    ),
    "b > 10 OR d > 2; MEDIAN(c)": (
        running(57, 1, "b > 10 OR d > 2"),
        "SELECT MEDIAN(c) AS m FROM t WHERE d > 2",
    ),
    "b > 10 OR d > 2; GROUP BY c": (
        running(57, 1, "b > 10 OR d > 2"),
        "SELECT c, COUNT(*) FROM t GROUP BY c",
    ),
    "running ages WHERE kind OR age; MEDIAN": (
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM w WHERE kind = 'a' OR age >= 18 "
        "GROUP BY age",
        "SELECT MEDIAN(pay) FROM w WHERE kind <> 'a'",
    ),
    "counts of ages; running pay": (
        "SELECT age, COUNT(*) FROM w WHERE kind = 'a' OR age >= 18 GROUP BY age",
        "SELECT pay, SUM(COUNT(*)) OVER (ORDER BY pay) FROM w WHERE kind <> 'a' GROUP BY pay",
    ),
    "four statements, 99,264 joint cells": (
        running(57, 2, "b % 3 <> 0 OR d % 3 <> 0"),
        "SELECT MEDIAN(c) AS m FROM t WHERE d % 3 <> 0",
        "SELECT q, COUNT(*) AS n FROM t JOIN range(0, 24, 1) AS r(q) ON a <= q GROUP BY q",
        "SELECT COUNT(*) AS n FROM t WHERE (d + a >= 14 OR c BETWEEN 16 AND 31) "
        "AND d BETWEEN 5 AND 17",
    ),
    "running b by a WHERE b < a; MEDIAN(a)": (
        "SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY a ORDER BY b) FROM t WHERE b < a "
        "GROUP BY a, b",
        "SELECT MEDIAN(a) FROM t WHERE a < 20 AND f",
    ),
    "862 answers: running b by a; MEDIAN(a)": (
        "SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY a ORDER BY b) FROM v WHERE b < a "
        "GROUP BY a, b",
        "SELECT MEDIAN(a) FROM v WHERE a < 33 AND f",
    ),
    "three running totals": (
        *(
            f"SELECT {name}, SUM(COUNT(*)) OVER (ORDER BY {name}) FROM t GROUP BY {name}"
            for name in "abc"
        ),
    ),
}


def total_of(plan: dpsql.Plan) -> float:
    """Return the sum of weight·variance."""
    return plan.rmse**2 * plan.workload.count


def main() -> None:
    """Print a line for each script."""
    con = duckdb.connect()
    con.execute(TABLES).fetchall()
    for name, script in SCRIPTS.items():
        start = time.process_time()
        plan = dpsql.plan(con, {f"s{i}": sql for i, sql in enumerate(script)}, budget=BUDGET)
        seconds, total = time.process_time() - start, total_of(plan)
        told = next(line for line in plan.explain().splitlines() if "RMSE" in line)
        gap, domain = told.partition("; ")[2], plan.workload.domain
        statements = dict.fromkeys(family.name for family in plan.workload.families)
        alone = (Workload.of(domain, plan.families(statement)) for statement in statements)
        roots = (math.sqrt(total_of(dpsql.plan(each, budget=BUDGET))) for each in alone)
        apart = sum(roots) ** 2
        ratio = math.sqrt(total / apart)
        print(
            f"{name:39} {total:9.2f}, apart {apart:9.2f}, RMSE {ratio:.4f}; "
            f"{seconds:5.2f} s; {gap}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:]:
        from tests.benchmarks.checkouts import run_in

        run_in(sys.argv[1:], __file__)
    main()
