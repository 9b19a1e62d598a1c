"""Scripts of several parts, with a limit on rows, or over several tables: errors and CPU seconds.

python -m tests.benchmarks.several_parts [FOLDER]

(a) `max_rows_per`: the RMSE at ρ = 0.5 of plans for persons by month and carrier, and beside it the
RMSE of the best block-diagonal plan where that is known. (b) Random scripts over two and three
tables with rows of the same units: by how many percent the RMSE is above the least of all matrix
mechanisms. (c) Counts and sums under conditions that exclude each other: the RMSE at μ = 1, and how
many times that of the best plan it is which measures each part by itself, where that is little
work. A plan needs domains and no rows. With FOLDER, the root of another checkout, the same runs
there first.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import time

import duckdb
import numpy as np

import dpsql
from dpsql.linalg.roots import compressed
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.strategies.dual import Dual, QueryPart, maximize
from dpsql.workload import Workload
from dpsql.workload.workload import written_out

BUDGET = dpsql.Budget(rho=0.5)
FLIGHTS = """
    CREATE TABLE f (
        p INTEGER, m SMALLINT NOT NULL CHECK (m BETWEEN 1 AND 12),
        c SMALLINT NOT NULL CHECK (c BETWEEN 0 AND 9),
        d SMALLINT NOT NULL CHECK (d BETWEEN 1 AND 31), x DOUBLE)
"""
SCHEMA = dpsql.Schema({"f": {"x": dpsql.Domain.number(-10, 10)}})
BOTH = (
    "SELECT m, c, COUNT(*) AS n FROM f GROUP BY m, c",
    "SELECT m, COUNT(*) AS n FROM f GROUP BY m",
)
ALL = (*BOTH, "SELECT c, COUNT(*) AS n FROM f GROUP BY c", "SELECT COUNT(*) AS n FROM f")
LIMITED: dict[str, tuple[int, tuple[str, ...], float | None]] = {
    "12 x 10, k = 12, by (m, c) and m": (12, BOTH, 4.068),
    "the same, k = 6": (6, BOTH, 2.8765),
    "the same, k = 3": (3, BOTH, 2.0340),
    "12 x 10, k = 12, all four groupings": (12, ALL, 5.5274),
    "by m; in all": (12, (BOTH[1], ALL[3]), None),
    "by c; in all": (12, ALL[2:], None),
    "WHERE m = 3": (12, ("SELECT COUNT(*) AS n FROM f WHERE m = 3",), 1.0),
    "SUM(x) WHERE m = 3": (12, ("SELECT SUM(x) AS s FROM f WHERE m = 3",), None),
    "WHERE m = 3; in all": (12, ("SELECT COUNT(*) AS n FROM f WHERE m = 3", ALL[3]), None),
    "m <= 6 by c; by m": (12, ("SELECT c, COUNT(*) FROM f WHERE m <= 6 GROUP BY c", BOTH[1]), None),
    "12 x 10 x 31: by m, c, d; by m": (
        12,
        ("SELECT m, c, d, COUNT(*) AS n FROM f GROUP BY m, c, d", BOTH[1]),
        None,
    ),
}
ASKED = {
    "groups": "SELECT c, COUNT(*) AS n FROM {} GROUP BY c",
    "total": "SELECT COUNT(*) AS n FROM {}",
    "running": "SELECT c, SUM(COUNT(*)) OVER (ORDER BY c) AS n FROM {} GROUP BY c",
    "some": "SELECT COUNT(*) AS n FROM {} WHERE c > 0",
}
ROWS = (1, 1, 2, 5, 20)
MOST_OF_TWO, MOST_OF_THREE = 7, 4
SCRIPTS = 25


def tables(seed: int) -> tuple[duckdb.DuckDBPyConnection, dict[str, str], dict[str, int]]:
    """Make two or three tables of one column, a script over them, and bounds on a unit's rows."""
    random_ = random.Random(f"tables-{seed}")  # noqa: S311
    count = random_.choice([2, 2, 2, 3])
    most = MOST_OF_TWO if count == 2 else MOST_OF_THREE
    domains, rows = [], {}
    for i in range(count):
        domains.append(random_.randint(2, most))
        rows[f"t{i}"] = random_.choice(ROWS)
    con = duckdb.connect()
    con.execute("CREATE TABLE u (id INTEGER PRIMARY KEY)").fetchall()
    for i, cells in enumerate(domains):
        con.execute(
            f"CREATE TABLE t{i} (pid INTEGER NOT NULL REFERENCES u(id), "
            f"c INTEGER NOT NULL CHECK (c BETWEEN 0 AND {cells - 1}))"
        ).fetchall()
    script = {}
    for i in range(count):
        for j in range(random_.choice([1, 1, 2])):
            script[f"s{i}{j}"] = ASKED[random_.choice([*ASKED])].format(f"t{i}")
    return con, script, rows


def least_of_all(workload: Workload) -> float:
    """Return a bound on the error of all mechanisms: the dual over a cell, or none, of each table.

    A unit with all rows that it may have in one cell of some tables is the worst there is, as what
    it costs is convex.
    """
    asked: dict[str, list[np.ndarray]] = {}
    for family in workload.families:
        axis = family.measure
        assert axis is not None
        table = axis.attributes[0]
        names = [name for name in workload.domain if name.startswith(table + ".")]
        counted = Workload.of(workload.domain, [family.counted])
        rows = written_out(counted, names) if names else np.ones((1, 1)) * family.weight**0.5
        asked.setdefault(table, []).append(axis.rows * rows)
    each = [np.vstack(rows) for rows in asked.values()]
    sides = [np.hstack([rows, np.zeros((len(rows), 1))]) for rows in each]
    places = np.array([*itertools.product(*(range(side.shape[1]) for side in sides))])
    units = np.vstack([side[:, places[:, i]] for i, side in enumerate(sides)])
    units = units[:, np.square(units).sum(axis=0) > 0]
    return maximize(Dual.of(units, (units.shape[1],)), 1e-4).lower


MEASURES = 8
EXCLUSIVE = {
    **{f"K = {k}, FILTER": "SELECT " + ", ".join(f"SUM(x{i}) FILTER (WHERE g = {i}) AS s{i}"
       for i in range(k)) + " FROM t" for k in (1, 2, 3, 5, 8)},
    **{f"K = {k}, WHERE": {f"s{i}": f"SELECT SUM(x{i}) AS s FROM t WHERE g = {i}" for i in range(k)}
       for k in (2, 3, 5, 8)},
    **{f"K = {k}, CASE": "SELECT " + ", ".join(f"SUM(CASE WHEN g = {i} THEN x{i} END) AS s{i}"
       for i in range(k)) + " FROM t" for k in (2, 3, 5, 8)},
    "COUNT WHERE f; SUM WHERE NOT f": {
        "a": "SELECT COUNT(*) AS n FROM t WHERE f", "b": "SELECT SUM(x0) AS s FROM t WHERE NOT f"},
    "three AVG, disjoint": {
        f"a{i}": f"SELECT AVG(x{i}) AS m FROM t WHERE g = {i}" for i in range(3)},
    "by h: COUNT, x1 WHERE f; x2 WHERE NOT f": {
        "a": "SELECT h, COUNT(*) AS n FROM t WHERE f GROUP BY h",
        "b": "SELECT h, SUM(x1) AS s FROM t WHERE f GROUP BY h",
        "c": "SELECT h, SUM(x2) AS s FROM t WHERE NOT f GROUP BY h"},
    "SUM(x_i) WHERE g >= i, i < 6": {
        f"s{i}": f"SELECT SUM(x{i}) AS s FROM t WHERE g >= {i}" for i in range(6)},
}  # fmt: skip
LARGE = {
    "ages": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM t GROUP BY age",
    **{f"b{i}": f"SELECT store, SUM(d{i}) AS s FROM t WHERE kind = {i} GROUP BY store"
       for i in range(4)},
    "c": "SELECT age, SUM(d4) AS s FROM t WHERE kind IN (0, 1) GROUP BY age",
}  # fmt: skip


def least_of_parts(workload: Workload) -> float:
    """Return the least error of plans that measure each part by itself, at the cost 1."""
    divided = parts(workload)
    names = [n for n in workload.domain if any(n in p.workload.domain for p in divided)]
    used = {n for part in divided for family in part.workload.families for n in family.names}
    names = [name for name in names if name in used]
    each = [compressed(written_out(part.workload, names) * part.change) for part in divided]
    rows = tuple(QueryPart(own, None) for own in each if len(own))
    return maximize(Dual(each[0].shape[1], rows), 1e-4).lower


def exclusive() -> None:
    """Print a line for each script of parts under conditions."""
    con = duckdb.connect()
    columns = "".join(f", x{i} DOUBLE NOT NULL" for i in range(MEASURES))
    con.execute(
        "CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 7), f BOOLEAN NOT NULL, "
        f"h INTEGER NOT NULL CHECK (h BETWEEN 0 AND 3){columns})"
    ).fetchall()
    schema = dpsql.Schema({"t": {f"x{i}": dpsql.Domain.number(0, 100) for i in range(MEASURES)}})
    for name, script in EXCLUSIVE.items():
        start = time.process_time()
        plan = dpsql.plan(con, script, budget=dpsql.Budget(mu=1), schema=schema)
        seconds = time.process_time() - start
        cells = math.prod(plan.workload.domain.values())
        best = math.sqrt(total_of(plan) / least_of_parts(plan.workload)) if cells < 10**4 else None
        above = "" if best is None else f"; {best:.4f} of the best"
        print(f"{name:40} RMSE {plan.rmse:9.4f}; {seconds:5.2f} s{above}", flush=True)
    for kinds, stores in ((5, 40), (5, 100), (10, 200), (20, 500)):
        large = duckdb.connect()
        sums = "".join(f", d{i} DECIMAL(9, 2) NOT NULL" for i in range(5))
        large.execute(
            f"CREATE TABLE t (kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND {kinds - 1}), "
            f"store INTEGER NOT NULL CHECK (store BETWEEN 0 AND {stores - 1}), "
            f"age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 99){sums})"
        ).fetchall()
        own = dpsql.Schema({"t": {f"d{i}": dpsql.Domain.number(-100, 100) for i in range(5)}})
        start = time.process_time()
        plan = dpsql.plan(large, LARGE, budget=dpsql.Budget(mu=1), schema=own)
        seconds = time.process_time() - start
        cells = kinds * stores * 100
        print(
            f"{cells:9,} joint cells, six statements    RMSE {plan.rmse:9.4f}; {seconds:5.2f} s",
            flush=True,
        )


def total_of(plan: dpsql.Plan) -> float:
    """Return the sum of weight·variance."""
    return plan.rmse**2 * plan.workload.count


def limited() -> None:
    """Print a line for each script with a limit."""
    con = duckdb.connect()
    con.execute(FLIGHTS).fetchall()
    for name, (rows, script, least) in LIMITED.items():
        unit = dpsql.Unit("p", rows, max_rows_per={"m": 1})
        asked = {f"s{i}": sql for i, sql in enumerate(script)}
        start = time.process_time()
        plan = dpsql.plan(con, asked, budget=BUDGET, unit=unit, schema=SCHEMA)
        seconds = time.process_time() - start
        known = "" if least is None else f"; block by month {least:.4f}"
        print(f"{name:38} RMSE {plan.rmse:8.4f}; {seconds:5.2f} s{known}", flush=True)


def related() -> None:
    """Print a line for each script over several tables, and how far plans are from the best."""
    above, seconds = [], []
    for seed in range(SCRIPTS):
        con, script, rows = tables(seed)
        start = time.process_time()
        plan = dpsql.plan(con, script, budget=BUDGET, unit=dpsql.Unit("u", max_rows=rows))
        seconds.append(time.process_time() - start)
        least = least_of_all(plan.workload)
        above.append(100 * (math.sqrt(total_of(plan) / least) - 1))
        print(f"tables {seed:2}: {above[-1]:6.2f} % above; {seconds[-1]:5.2f} s", flush=True)
    found = np.percentile(above, [50, 90, 100])
    print(
        "above the best of all: median {:.2f}, 90 % {:.2f}, worst {:.2f} %".format(*found), end=""
    )
    print(f"; {sum(seconds):.2f} s in all", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        from tests.benchmarks.checkouts import run_in

        run_in(sys.argv[1:], __file__)
    exclusive()
    limited()
    related()
