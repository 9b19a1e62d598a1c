"""What a first query of a process loads, and when: counted in modules, as seconds differ."""

from __future__ import annotations

import json
import subprocess
import sys

MOST_MODULES = 346
"""Of dpsql's own, that a first query has loaded: each takes a millisecond."""
SELDOM = (
    "dpsql.charts", "dpsql.planner.comparison", "dpsql.planner.mechanisms.aim",
    "dpsql.planner.mechanisms.aim_rounds",
    "dpsql.present.exports", "dpsql.present.page", "dpsql.present.pictures", "dpsql.present.report",
    "dpsql.release.relations", "dpsql.release.synthesis", "pandas", "matplotlib", "altair",
    "IPython", "pyspark", "psycopg", "scipy.linalg", "scipy.optimize", "scipy.sparse",
    "scipy.special", "scipy.stats", "fsspec", "dpsql.engines.duckdb.numbered",
)  # fmt: skip
"""What most releases have no use for."""
PROGRAM = """
import itertools, json, sys
import duckdb
import dpsql
from dpsql.engines.duckdb.engine import DuckDBCounting

con = duckdb.connect()
con.execute('''
    CREATE TABLE t (sex BOOLEAN NOT NULL, age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 99),
        a UTINYINT NOT NULL CHECK (a < 4), b UTINYINT NOT NULL CHECK (b < 4),
        c UTINYINT CHECK (c < 4), x DOUBLE CHECK (x BETWEEN 0 AND 5))
''').fetchall()
con.execute('''
    INSERT INTO t SELECT i % 2 = 0, i % 90, i % 4, i % 3, i % 4, i % 5 FROM range(5000) r(i)
''').fetchall()
budget = dpsql.Budget(epsilon=1, delta=1e-9)
run, charged = DuckDBCounting.run, []

def noted(counting):
    charged.append(set(sys.modules))
    return run(counting)

DuckDBCounting.run = noted
dpsql.query(con, "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex", budget=budget)
first, loaded = set(sys.modules), []
loaded.append(sorted(first - charged[0]))
dpsql.query(con, "SELECT sex, AVG(x) AS a FROM t WHERE age < 50 GROUP BY sex", budget=budget)
loaded.append(sorted(set(sys.modules) - charged[1]))
pairs = itertools.combinations(["sex", "age", "a", "b", "c"], 2)
script = {f"{a} {b}": f"SELECT {a}, {b}, COUNT(*) AS n FROM t GROUP BY ALL" for a, b in pairs}
release = dpsql.Session(con).release(script, budget=budget)
frames = [release[name] for name in release]
loaded.append(sorted(set(sys.modules) - charged[2]))
print(json.dumps([sorted(first), loaded]))
"""


def test_a_first_query_loads_what_it_needs_and_all_of_it_before_the_charge():
    """Nothing that could fail, or takes long, is loaded when the budget is gone."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, loaded = json.loads(run.stdout)
    own = [name for name in first if name.partition(".")[0] == "dpsql"]
    assert 200 < len(own) <= MOST_MODULES
    assert not [name for name in first if f"{name}.".startswith(tuple(f"{s}." for s in SELDOM))]
    assert len(loaded) == 3
    for after in loaded:  # Polars has a small module of its own for each kind of file
        assert not [name for name in after if not name.startswith("polars.")]
