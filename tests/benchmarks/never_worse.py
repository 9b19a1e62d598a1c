"""The default plan beside all mechanisms, for scripts that it once planned far worse.

python -m tests.benchmarks.never_worse [NAME …] [--seeds FIRST LAST] [--overlapping FIRST LAST]

Each line has the RMSE of the default plan over the least of any mechanism, the certified gap, the
variance that was avoidable, and CPU seconds of planning. Nothing is released: a plan needs the
domains and no rows. With seeds, small random scripts are planned too, or workloads of overlapping
sets of columns of which different things are asked; those whose default is more than 0.1 percent
worse than the best are listed.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

import duckdb

import dpsql
from tests.helpers.overlapping import overlapping
from tests.helpers.random_scripts import script, table

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
LIMIT = 1.001
SUMS = (
    "SELECT c, q, COUNT(*) AS n FROM t JOIN range(0, 30) AS r(q) ON a + b <= q GROUP BY c, q",
    "SELECT q, COUNT(*) AS n FROM t JOIN range(0, 30) AS r(q) ON a + c <= q GROUP BY q",
)
DESTINATIONS = ", ".join(f"'D{i:03}'" for i in range(105))
TABLES = {
    "adult": """
        CREATE TABLE adult (
            relationship ENUM ('Wife', 'b', 'c', 'd', 'e', 'f') NOT NULL,
            marital_status ENUM ('Widowed', 'b', 'c', 'd', 'e', 'f', 'g') NOT NULL,
            education_num SMALLINT NOT NULL CHECK (education_num BETWEEN 1 AND 16),
            hours_per_week SMALLINT NOT NULL CHECK (hours_per_week BETWEEN 1 AND 99))""",
    "t": """
        CREATE TABLE t (
            a SMALLINT NOT NULL CHECK (a BETWEEN 0 AND 15),
            b SMALLINT NOT NULL CHECK (b BETWEEN 0 AND 15),
            c SMALLINT NOT NULL CHECK (c BETWEEN 0 AND 9))""",
    "flights": f"""
        CREATE TABLE flights (
            dest ENUM ({DESTINATIONS}) NOT NULL,
            month SMALLINT NOT NULL CHECK (month BETWEEN 1 AND 12),
            hour SMALLINT NOT NULL CHECK (hour BETWEEN 0 AND 23),
            arr_delay SMALLINT CHECK (arr_delay BETWEEN -60 AND 300))""",
}
CASES = {
    "three statements on adult": (
        "SELECT relationship, education_num, COUNT(*) AS n FROM adult "
        "WHERE hours_per_week > 3 * education_num GROUP BY ALL",
        "SELECT relationship, COUNT(*) AS n FROM adult WHERE relationship <> 'Wife' GROUP BY ALL",
        "SELECT hours_per_week, SUM(COUNT(*)) OVER (ORDER BY hours_per_week) AS n FROM adult "
        "GROUP BY hours_per_week",
    ),
    "two statements on adult": (
        "SELECT marital_status, q, COUNT(*) AS n FROM adult JOIN range(0, 120, 10) AS r(q) "
        "ON hours_per_week + education_num <= q GROUP BY ALL",
        "SELECT COUNT(*) AS n FROM adult WHERE marital_status <> 'Widowed'",
    ),
    "sums and a condition": (SUMS[0], "SELECT COUNT(*) AS n FROM t WHERE c >= 2"),
    "sums of three columns": SUMS,
    "averages where one group is left out": (
        "SELECT dest, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights WHERE dest <> 'D003' "
        "GROUP BY dest",
    ),
    "averages by month and hour": (
        "SELECT month, hour, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights "
        "WHERE hour BETWEEN 5 AND 23 GROUP BY ALL",
    ),
}


def beside(*asked: Any) -> tuple[float, str, float]:
    """Plan by default and by every mechanism; return the ratio, the best, and all in a line."""
    start = time.process_time()
    planned = dpsql.plan(*asked, budget=BUDGET)
    seconds = time.process_time() - start
    frame = dpsql.compare(*asked, budget=BUDGET).frame.drop_nulls("rmse")
    best = frame.sort("rmse").row(0, named=True)
    ratio = planned.rmse / best["rmse"]
    line = (
        f"default {planned.rmse:.5g} / {best['mechanism']} {best['rmse']:.5g} = {ratio:.5f}, "
        f"gap {planned.gap:.1e}, avoidable {planned.avoidable:.1e}, {seconds:.1f} s"
    )
    return ratio, line, planned.avoidable


def seeds(arguments: list[str], option: str) -> range:
    """Return the seeds that follow an option; none without it."""
    at = arguments.index(option) if option in arguments else len(arguments)
    return range(*map(int, arguments[at + 1 : at + 3])) if at < len(arguments) else range(0)


def random_script(generator: random.Random) -> tuple[Any, ...]:
    """Make a table and statements over it."""
    return table(generator), script(generator)


def random_workload(generator: random.Random) -> tuple[Any, ...]:
    """Make a workload of overlapping sets of columns."""
    return (overlapping(generator),)


def compare_random(
    kind: str, made: Callable[[random.Random], tuple[Any, ...]], seeds: range
) -> None:
    """Print those of many whose default plan is not the best, or loses by rounding."""
    worse, most, count = 0, 0.0, 0
    for seed in seeds:
        try:
            ratio, line, avoidable = beside(*made(random.Random(seed)))  # noqa: S311
        except dpsql.DpsqlError as error:
            print(f"{seed}: {type(error).__name__}: {error}", flush=True)
            continue
        count, worse, most = count + 1, worse + (ratio > LIMIT), max(most, avoidable)
        if ratio > LIMIT or avoidable > 0.01:
            print(f"{seed}: {line}", flush=True)
    if count:
        print(f"{count} random {kind}: {worse} worse than the best; avoidable at most {most:.1e}")


def main(arguments: list[str]) -> None:
    """Print all cases, or those named, and random ones if seeds are given."""
    named = [name for name in arguments if not name.startswith("--") and not name.isdigit()]
    for name in named or CASES:
        con = duckdb.connect()
        for sql in TABLES.values():
            con.execute(sql).fetchall()
        statements = {f"s{i}": sql for i, sql in enumerate(CASES[name])}
        print(f"{name}: {beside(con, statements)[1]}", flush=True)
    compare_random("scripts", random_script, seeds(arguments, "--seeds"))
    compare_random("workloads", random_workload, seeds(arguments, "--overlapping"))


if __name__ == "__main__":
    main(sys.argv[1:])
