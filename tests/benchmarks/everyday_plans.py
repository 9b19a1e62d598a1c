"""CPU seconds to plan everyday scripts: five to eight statements over a table, or two.

python -m tests.benchmarks.everyday_plans [FOLDER]

Random scripts of counts by one or two columns, conditions that tie columns together, running
totals, medians, sums and averages, some of a second table that the first refers to. A plan needs
domains and no rows. Told are the seconds of the dearest, the median and the 95th percentile, and
how many take more than two; and the RMSE of each, so that two checkouts can be compared. With
FOLDER, the root of another checkout, the same runs there first.
"""

from __future__ import annotations

import random
import sys
import time

import duckdb
import numpy as np

import dpsql

BUDGET = dpsql.Budget(mu=1)
SCRIPTS = 60
LONG = 2
"""CPU seconds that a plan may take before it is long."""
KEYS = ("a", "b", "c", "d", "kind")
CONDITIONS = (
    "", "", " WHERE a < 5", " WHERE a + c > 12", " WHERE b % 3 = 1 OR d > 9", " WHERE kind = 'k0'",
    " WHERE a < d AND kind <> 'k1'",
)  # fmt: skip
TABLES = """
    CREATE TABLE people (
        id INTEGER PRIMARY KEY, region ENUM('n', 's', 'e', 'w') NOT NULL,
        age INTEGER NOT NULL CHECK (age BETWEEN 18 AND 90));
    CREATE TABLE t (
        pid INTEGER NOT NULL REFERENCES people (id), x DOUBLE,
        a INTEGER NOT NULL CHECK (a BETWEEN 0 AND {a}),
        b INTEGER NOT NULL CHECK (b BETWEEN 0 AND {b}),
        c INTEGER NOT NULL CHECK (c BETWEEN -5 AND {c}),
        d INTEGER NOT NULL CHECK (d BETWEEN 0 AND {d}),
        kind ENUM('k0', 'k1', 'k2', 'k3') NOT NULL);
"""


def statement(generator: random.Random, *, several: bool) -> str:
    """Write one statement."""
    key, other = generator.sample(KEYS, 2)
    number = generator.choice("abcd")
    where = generator.choice(CONDITIONS)
    of_people = (
        "SELECT region, COUNT(*) AS n FROM people GROUP BY region",
        "SELECT region, AVG(age) AS m FROM people GROUP BY region",
        f"SELECT {key}, region, COUNT(*) AS n FROM t JOIN people ON t.pid = people.id GROUP BY ALL",
    )
    return generator.choice(
        (
            f"SELECT {key}, COUNT(*) AS n FROM t{where} GROUP BY {key}",
            f"SELECT {key}, {other}, COUNT(*) AS n FROM t{where} GROUP BY ALL",
            f"SELECT {number}, SUM(COUNT(*)) OVER (ORDER BY {number}) AS n FROM t{where} "
            "GROUP BY 1",
            f"SELECT {key}, MEDIAN({number}) AS m FROM t{where} GROUP BY {key}",
            f"SELECT {key}, AVG({number}) AS m FROM t{where} GROUP BY {key}",
            f"SELECT SUM(x) AS s, AVG({number}) AS m FROM t{where}",
            "SELECT q, COUNT(*) AS n FROM t JOIN range(0, 20, 3) AS r(q) ON a + c <= q GROUP BY q",
            *(of_people if several else ()),
        )
    )


def planned(seed: int) -> tuple[float, dpsql.Plan]:
    """Plan a script; return the seconds of that, too."""
    generator = random.Random(f"everyday-{seed}")  # noqa: S311
    most = {"a": 23, "b": 56, "c": 16, "d": 22}
    ends = {name: generator.randint(6, end) for name, end in most.items()}
    con = duckdb.connect()
    con.execute(TABLES.format(**ends)).fetchall()
    several = generator.random() < 0.4
    script = {
        f"s{i}": statement(generator, several=several) for i in range(generator.randint(5, 8))
    }
    options = {"unit": dpsql.Unit("people.id", max_rows={"people": 1, "t": 3})} if several else {}
    numbers = dpsql.Schema({"t": {"x": dpsql.Domain.number(0, 100)}})
    start = time.process_time()
    plan = dpsql.plan(con, script, budget=BUDGET, schema=numbers, **options)
    return time.process_time() - start, plan


def main() -> None:
    """Print a line for each script that takes long, and the whole."""
    seconds, roots = [], []
    planned(0)  # what is loaded for the first plan isn't of it
    for seed in range(SCRIPTS):
        try:
            taken, plan = planned(seed)
        except dpsql.DpsqlError as error:  # as an older checkout may refuse one
            print(f"script {seed}: {error}", flush=True)
            continue
        seconds.append(taken)
        roots.append(plan.rmse)
        if taken > LONG:
            print(f"script {seed}: {taken:.2f} CPU s, RMSE {plan.rmse:.6g}", flush=True)
    median, most, worst = np.percentile(seconds, [50, 95, 100])
    print(
        f"{len(seconds)} scripts, {sum(seconds):.1f} CPU s: median {median:.2f}, 95 % {most:.2f}, "
        f"worst {worst:.2f}; {sum(s > LONG for s in seconds)} above {LONG}. "
        f"Sum of all RMSE {sum(roots):.6f}"
    )


if __name__ == "__main__":
    if sys.argv[1:]:
        from tests.benchmarks.checkouts import run_in

        run_in(sys.argv[1:], __file__)
    main()
