"""Sums, averages and counts of columns in which values may be missing; counts under conditions.

python -m tests.benchmarks.nullable_sums [FOLDER]

(a) Random scripts over a table with two DOUBLE columns, which may hold NaN: by how many percent the
RMSE is above the least of all matrix mechanisms, whose bound is the dual over all that a row can
add: its cell, with both ends of each value, or none where it is missing. (b) Counts under
conditions that exclude each other, over more cells than are planned at once: the RMSE, and how many
times that of plans in which none pays for the others. With FOLDER, the root of another checkout,
the same scripts are planned there first, and only their RMSE is told.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import time

import duckdb
import numpy as np

import dpsql
from dpsql.planner.strategies.dual import Dual, maximize
from dpsql.workload.workload import spread_out

BUDGET = dpsql.Budget(mu=1)
SCRIPTS = 40
BOUNDS = ((0, 100), (0, 1), (-50, 200), (10, 100), (-1, 1))
VALUES = (
    "SUM(x) AS s", "AVG(x) AS m", "SUM(x) AS s, COUNT(*) AS n", "AVG(x) AS m, COUNT(*) AS n",
    "SUM(x) AS s, SUM(y) AS t, COUNT(*) AS n", "AVG(x) AS m, AVG(y) AS k", "SUM(y) AS s",
    "SUM(CASE WHEN f THEN x ELSE 0 END) AS s, COUNT(*) AS n",
)  # fmt: skip
KEYS, CONDITIONS = ("", "g", "h", "g, h", "g, f"), ("", "", " WHERE f", " WHERE h > 0")
LARGE = (
    "SELECT a, b, COUNT(*) AS n FROM t WHERE g = 0 GROUP BY a, b",
    "SELECT b, c, COUNT(*) AS n FROM t WHERE g = 1 GROUP BY b, c",
    "SELECT c, d, COUNT(*) AS n FROM t WHERE g = 2 GROUP BY c, d",
)


def statement(generator: random.Random) -> str:
    """Write one statement."""
    keys, values = generator.choice(KEYS), generator.choice(VALUES)
    listed, by = (f"{keys}, ", f" GROUP BY {keys}") if keys else ("", "")
    return f"SELECT {listed}{values} FROM t{generator.choice(CONDITIONS)}{by}"


def planned(seed: int) -> dpsql.Plan:
    """Plan one to three statements."""
    generator = random.Random(f"sums-{seed}")  # noqa: S311
    con = duckdb.connect()
    labels = ", ".join(repr(f"g{i}") for i in range(generator.randint(2, 6)))
    con.execute(
        f"CREATE TABLE t (g ENUM ({labels}) NOT NULL, f BOOLEAN NOT NULL, x DOUBLE, y DOUBLE, "
        f"h INTEGER NOT NULL CHECK (h BETWEEN 0 AND {generator.randint(1, 5)}))"
    ).fetchall()
    bounds = {"x": generator.choice(BOUNDS), "y": (0, 10)}
    numbers = {name: dpsql.Domain.number(*ends) for name, ends in bounds.items()}
    script = {f"s{i}": statement(generator) for i in range(generator.randint(1, 3))}
    return dpsql.plan(con, script, budget=BUDGET, schema=dpsql.Schema({"t": numbers}))


def least_of_all(plan: dpsql.Plan) -> float:
    """Return a bound on the sum of weight·variance of all mechanisms."""
    families, sizes = plan.workload.families, dict(plan.workload.domain)
    measures = list(dict.fromkeys(f.measure.attributes[0] for f in families if f.measure))
    used = {name for family in families for own in family.rests_on for name in own.names}
    names = [name for name in sizes if name in used and name not in measures]
    places = np.indices([sizes[name] for name in names]).reshape(len(names), -1)
    there = {name: np.ones(places.shape[1]) for name in measures}
    for support in plan.certified.supports:
        if support.attribute in names:
            there[support.measure] *= np.array(support.cells)[
                places[names.index(support.attribute)]
            ]
    rows = []
    for family in families:
        counts = spread_out(family.counted, names, sizes)
        restored = spread_out(family.restored, names, sizes) if family.center else 0 * counts
        own = [counts] * 2 ** len(measures)
        if family.measure is not None:
            name = family.measure.attributes[0]
            each = itertools.product((-1, 1), repeat=len(measures))
            most = family.unit * (family.measure.bound or 1)
            signs = (values[measures.index(name)] for values in each)
            own = [most * v * counts * there[name] + family.center * restored for v in signs]
        rows.append(math.sqrt(family.weight) * np.hstack(own))
    asked = np.unique(np.round(np.vstack(rows), 9), axis=1)
    asked = asked[:, np.square(asked).sum(axis=0) > 0]
    return maximize(Dual.of(asked, (asked.shape[1],)), 1e-4).lower


def sums(*, bounds: bool) -> None:
    """Print a line for each script of sums, and how far all are from the best."""
    above = []
    for seed in range(SCRIPTS):
        start = time.process_time()
        plan = planned(seed)
        seconds = time.process_time() - start
        said = ""
        if bounds:
            total = plan.rmse**2 * plan.workload.count
            above.append(100 * (math.sqrt(total / least_of_all(plan)) - 1))
            said = f"; {above[-1]:6.2f} % above the best"
        print(f"sums {seed:2}: RMSE {plan.rmse:9.5f}; {seconds:5.2f} s{said}", flush=True)
    if bounds:
        found = np.percentile(above, [50, 90, 100])
        print("above the best: median {:.2f}, 90 % {:.2f}, worst {:.2f} %".format(*found))


def large() -> None:
    """Print a line for each number of statements that exclude each other."""
    con = duckdb.connect()
    columns = (f"{name} SMALLINT NOT NULL CHECK ({name} BETWEEN 0 AND 49)" for name in "abcd")
    con.execute(
        f"CREATE TABLE t ({', '.join(columns)}, g SMALLINT NOT NULL CHECK (g BETWEEN 0 AND 3))"
    ).fetchall()
    for count in range(1, len(LARGE) + 1):
        script = {f"s{i}": sql for i, sql in enumerate(LARGE[:count])}
        start = time.process_time()
        plan = dpsql.plan(con, script, budget=BUDGET)
        seconds = time.process_time() - start
        alone = [dpsql.plan(con, sql, budget=BUDGET) for sql in script.values()]
        total = sum(one.rmse**2 * one.workload.count for one in alone)
        times = plan.rmse / math.sqrt(total / plan.workload.count)
        print(
            f"{count} exclusive conditions, 25,000,000 joint cells: RMSE {plan.rmse:.4f}, "
            f"{times:.4f} times that of each alone; {seconds:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    if os.environ.get("ONLY_RMSE"):
        sums(bounds=False)
        large()
        sys.exit()
    if sys.argv[1:]:
        from tests.benchmarks.checkouts import run_in

        run_in(sys.argv[1:], __file__, ONLY_RMSE="1")
    sums(bounds=True)
    large()
