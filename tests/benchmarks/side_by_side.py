"""CPU seconds of one list of tasks in two checkouts, alternating in one run.

python -m tests.benchmarks.side_by_side OTHER [--runs N] [--published] [TASK …]

OTHER is the root of another checkout. Both run this file's tasks, each in a process of its own on
one BLAS thread: only the package `dpsql` is the other's. Printed are the least CPU seconds of
planning (or of what the task names) of N runs, three if not said, and what came of it. The tasks
of `REACH` are those that no change may slow down by more than 5 percent; with `--published`, all
rows of the published tables are planned too, which takes about half an hour a run.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parents[2]
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
Outcome = tuple[float, str]

ADULT_SCRIPTS = {
    "adult A": {
        "a": "SELECT relationship, education_num, COUNT(*) AS n FROM adult "
        "WHERE hours_per_week > 3 * education_num GROUP BY ALL",
        "b": "SELECT relationship, COUNT(*) AS n FROM adult WHERE relationship <> 'Wife' "
        "GROUP BY ALL",
        "c": "SELECT hours_per_week, SUM(COUNT(*)) OVER (ORDER BY hours_per_week) AS n FROM adult "
        "GROUP BY hours_per_week",
    },
    "adult B": {
        "a": "SELECT marital_status, q, COUNT(*) AS n FROM adult "
        "JOIN range(0, 120, 10) r(q) ON hours_per_week + education_num <= q GROUP BY ALL",
        "b": "SELECT COUNT(*) AS n FROM adult WHERE marital_status <> 'Widowed'",
    },
}
"""Scripts in which two columns are compared and a third one is conditioned on."""

FLIGHTS = {
    "ratio of sums": "SELECT maker, SUM(air) / SUM(seats) AS q FROM flights WHERE built > 1999 "
    "GROUP BY maker",
    "share of 900": "SELECT flight, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM flights "
    "WHERE flight < 900 GROUP BY flight",
    "median 2402 by 4": "SELECT season, MEDIAN(dep_time) AS m FROM flights GROUP BY season",
    "median 1501, average": "SELECT MEDIAN(long_delay) AS m, AVG(long_delay) AS a FROM flights",
}

NUMBERS = """
    CREATE TABLE adult (
        age INTEGER CHECK (age BETWEEN 0 AND 99), hours INTEGER CHECK (hours BETWEEN 0 AND 99),
        education_num INTEGER CHECK (education_num BETWEEN 0 AND 99)
    )
"""
RANGES = """
    WITH r AS (SELECT a.x AS lo, b.x AS hi FROM range(100) a(x) JOIN range(100) b(x) ON a.x <= b.x)
    SELECT a.lo AS age_from, a.hi AS age_to, h.lo AS hours_from, h.hi AS hours_to,
        e.lo AS years_from, e.hi AS years_to, COUNT(*) AS n
    FROM adult JOIN r AS a ON age BETWEEN a.lo AND a.hi JOIN r AS h ON hours BETWEEN h.lo AND h.hi
        JOIN r AS e ON education_num BETWEEN e.lo AND e.hi
    GROUP BY ALL
"""
"""As in `sql_frontend`, which imports what not every checkout has."""

PEOPLE = {
    "two sums by 2 keys": "SELECT age, sex, SUM(income) AS i, SUM(age) AS a FROM persons "
    "GROUP BY age, sex HAVING NOT sex ORDER BY i, sex DESC LIMIT 10",
}


def cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(call: Callable[[], object]) -> Outcome:
    """Run a call that plans."""
    start = time.process_time()
    plan = call()
    seconds = time.process_time() - start
    return seconds, f"rmse {plan.rmse:.8g}, gap {plan.gap:.1e}"  # type: ignore[attr-defined]


def imported() -> Outcome:
    """Import the package."""
    start = time.process_time()
    import dpsql

    return time.process_time() - start, dpsql.__name__


def first_session() -> Outcome:
    """Import, open a connection, and plan a first statement in a session."""
    start = cpu()
    import duckdb

    import dpsql

    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 9))").fetchall()
    session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
    plan = session.plan("SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=dpsql.Budget(rho=0.5))
    return cpu() - start, f"rmse {plan.rmse:.8g}"


def census() -> Outcome:
    """All 1- and 2-way group-bys over five columns of Adult, and its ages; planned once before."""
    import dpsql
    from tests.release.adult import census_task, connect

    con, task = connect(), census_task()
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    dpsql.plan(con, task, budget=budget)
    return timed(lambda: dpsql.plan(con, task, budget=budget))


def census_release() -> Outcome:
    """The same task, planned and released; what is expected of it, and its empirical error."""
    import numpy as np

    import dpsql
    from tests.release.adult import census_task, connect

    con, task = connect(), census_task()
    exact = dpsql.query(con, task, budget=dpsql.Budget(rho=10**12))
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    start = time.process_time()
    releases = [dpsql.query(con, task, budget=budget) for _ in range(5)]
    seconds = (time.process_time() - start) / len(releases)
    errors = [r[name]["n"] - exact[name]["n"].round() for r in releases for name in task]
    return seconds, f"empirical rmse {np.sqrt(np.square(np.concatenate(errors)).mean()):.3g}"


def marginals() -> Outcome:
    """All marginals of up to three of Adult's columns, planned once before."""
    from itertools import combinations

    import dpsql
    from dpsql.workload import Identity, Workload

    sizes = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
    workload = Workload({f"a{i}": n for i, n in enumerate(sizes)})
    for size in (1, 2, 3):
        for names in combinations(workload.domain, size):
            workload.add(list(names), [Identity()] * size)
    dpsql.plan(workload, budget=dpsql.Budget(rho=1))
    return timed(lambda: dpsql.plan(workload, budget=dpsql.Budget(epsilon=1, delta=1e-9)))


def hybrid(residuals: str) -> Callable[[], Outcome]:
    """Points and prefixes of up to three of Adult's columns."""

    def run() -> Outcome:
        import dpsql
        from examples.paper_tables import BUDGET, hybrid

        workload = hybrid("Adult", "<=3")
        return timed(lambda: dpsql.plan(workload, budget=BUDGET, residuals=residuals))

    return run


def affine() -> Outcome:
    """Comparisons of all pairs of 40 attributes of 50 values."""
    import dpsql
    from examples.paper_tables import BUDGET, one_and_two_way

    workload = one_and_two_way(50, "affine")
    return timed(lambda: dpsql.plan(workload, budget=BUDGET, residuals="uniform"))


def ranges() -> Outcome:
    """All ranges of three columns, stated in SQL."""
    import duckdb

    import dpsql

    con = duckdb.connect()
    con.execute(NUMBERS).fetchall()
    return timed(lambda: dpsql.plan(con, RANGES, budget=dpsql.Budget(rho=0.5)))


def adult_script(name: str) -> Callable[[], Outcome]:
    """One of the scripts on Adult."""

    def run() -> Outcome:
        import dpsql
        from tests.release.adult import connect

        con, script = connect(), ADULT_SCRIPTS[name]
        return timed(lambda: dpsql.plan(con, script, budget=dpsql.Budget(rho=0.5)))

    return run


def flights(sql: str) -> Callable[[], Outcome]:
    """A statement on flights, after a plan that warms up."""

    def run() -> Outcome:
        import dpsql
        from examples.flights.flights import BUDGET
        from tests.benchmarks.planning import connection

        con, schema = connection()
        first = "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin"
        dpsql.plan(con, first, budget=BUDGET, schema=schema)
        return timed(lambda: dpsql.plan(con, sql, budget=BUDGET, schema=schema))

    return run


def people(sql: str) -> Callable[[], Outcome]:
    """A statement on persons with incomes in thousands."""

    def run() -> Outcome:
        import duckdb

        import dpsql

        con = duckdb.connect()
        con.execute(
            "CREATE TABLE persons (age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 100), "
            "sex BOOLEAN NOT NULL, income INTEGER NOT NULL)"
        ).fetchall()
        incomes = dpsql.Domain.decimals("0", "500000", "1000")
        schema = dpsql.Schema({"persons": {"income": incomes}})
        return timed(lambda: dpsql.plan(con, sql, budget=dpsql.Budget(rho=10**12), schema=schema))

    return run


def published_rows(table: int, kind: str) -> Callable[[], Outcome]:
    """All rows of one kind of a published table, with uniform and with weighted residuals."""

    def run() -> Outcome:
        from examples.paper_tables import PUBLISHED, plan_row

        plan_row(6, PUBLISHED["table6"][0])
        rows = [row for row in PUBLISHED[f"table{table}"] if kind_of(row) == kind]
        start = time.process_time()
        planned = [plan_row(table, row) for row in rows]
        seconds = time.process_time() - start
        return seconds, "rmse " + " ".join(
            f"{row[name]:.7g}" for row in planned for name in ("uniform", "weighted") if name in row
        )

    return run


def kind_of(row: dict[str, object]) -> str:
    """Return what rows of a published table have in common that differ in size."""
    return str(row.get("schema") or row.get("family") or f"n={row['n']}")


def baselines(table: int) -> Callable[[], Outcome]:
    """One table of ResidualPlanner+ and Fourier factorizations.

    It is computed by the other checkout's own file, since it uses more than public names.
    """

    def run() -> Outcome:
        import dpsql

        sys.path.insert(0, str(Path(dpsql.__file__).resolve().parents[1]))
        from tests.benchmarks.published_tables import PUBLISHED, cells

        start = time.process_time()
        found = [cell.ours for row in PUBLISHED[f"table{table}"] for cell in cells(table, row)]
        seconds = time.process_time() - start
        return seconds, f"rmse {math.fsum(found):.8g} in all"

    return run


def published_tasks() -> dict[str, Callable[[], Outcome]]:
    """Return the tasks of all published tables."""
    from examples.paper_tables import PUBLISHED, TABLES

    kinds = {(t, kind_of(row)): None for t in TABLES for row in PUBLISHED[f"table{t}"]}
    rows = {f"table {t} {kind}": published_rows(t, kind) for t, kind in kinds}
    return rows | {f"baselines table {t}": baselines(t) for t in (2, 3, 4, 5)}


def shop(name: str) -> Callable[[], Outcome]:
    """A statement of TPC-H at scale 0.1: what is counted, once it is planned."""

    def run() -> Outcome:
        import duckdb

        import dpsql
        from examples.tpch import tpch

        con = duckdb.connect(config={"threads": 2})
        tpch.load(con, scale=0.1)
        session, sql = tpch.connect(con, 0.1), tpch.queries()[name]
        session.plan(sql, budget=tpch.PRECISE)
        taken = list[float]()
        for _ in range(3):
            start = cpu()
            found = dpsql.query(
                con,
                sql,
                budget=tpch.PRECISE,
                schema=tpch.schema(0.1),
                public=tpch.PUBLIC,
                unit=tpch.UNIT,
            )
            taken.append(cpu() - start)
        return min(taken), f"{found.height} rows"

    return run


SHOP = ("Q1", "Q4", "Q5", "Q6", "Q10", "Q12", "Q13", "Q14", "Q18", "Q22")
"""Statements of TPC-H of which each counts other rows: joins, EXISTS, groups, windows."""
REACH: dict[str, Callable[[], Outcome]] = {
    "import": imported,
    "first session": first_session,
    "census task": census,
    "census release": census_release,
    "adult marginals <= 3": marginals,
    "adult <= 3 uniform": hybrid("uniform"),
    "adult <= 3 weighted": hybrid("weighted"),
    "table 4 affine 50": affine,
    "ranges of 3 from SQL": ranges,
}
TASKS = (
    REACH
    | {name: flights(sql) for name, sql in FLIGHTS.items()}
    | {name: people(sql) for name, sql in PEOPLE.items()}
    | {name: adult_script(name) for name in ADULT_SCRIPTS}
    | {f"shop {name}": shop(name) for name in SHOP}
)


def prepared(folder: str, tree: Path) -> dict[str, str]:
    """Return an environment with the package of a checkout, and everything else of this one.

    Compiled files are kept in the folder, as an installed package has them.
    """
    (Path(folder) / "dpsql").symlink_to(tree / "dpsql")
    environment = os.environ | dict.fromkeys(THREADS, "1")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "compiled")
    environment["PYTHONPATH"] = os.pathsep.join((folder, str(HERE)))
    once(environment, "first session")
    return environment


def once(environment: dict[str, str], name: str) -> Outcome:
    """Run one task in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "", "--one", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return math.nan, (done.stderr.strip().splitlines() or [str(done.returncode)])[-1][:80]
    seconds, outcome = done.stdout.strip().splitlines()[-1].split("\t")
    return float(seconds), outcome


def main() -> None:
    """Print one line for each task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    if arguments.one:
        task = TASKS.get(arguments.one) or published_tasks()[arguments.one]
        seconds, outcome = task()
        print(f"{seconds:.3f}\t{outcome}")
        return
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        trees = prepared(one, arguments.other.resolve()), prepared(two, HERE)
        print(f"{'':22} {'other':>7} {'here':>7} {'ratio':>6}   (CPU seconds)")
        chosen = arguments.tasks or (*TASKS, *(published_tasks() if arguments.published else ()))
        for name in chosen:
            runs = [[once(tree, name) for tree in trees] for _ in range(arguments.runs)]
            (other, was), (here, outcome) = (min(side) for side in zip(*runs, strict=True))
            was = "" if was == outcome else f" (other: {was})"
            ratio = here / other
            print(f"{name:22} {other:7.2f} {here:7.2f} {ratio:6.2f}   {outcome}{was}", flush=True)


if __name__ == "__main__":
    main()
