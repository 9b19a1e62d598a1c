"""The first query of a process, after the import: CPU seconds, and modules by library.

    python -m tests.benchmarks.first_query

Each of a few processes imports dpsql, then asks for one count by group of a table of 5,000 rows;
the least is shown. Modules are compiled before, as they are wherever Python may write bytecode.
"""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
from pathlib import Path

import dpsql

RUNS = 5
PROGRAM = """
import collections, json, sys, time
import duckdb
con = duckdb.connect()
con.execute("CREATE TABLE t (sex BOOLEAN NOT NULL)").fetchall()
con.execute("INSERT INTO t SELECT i % 2 = 0 FROM range(5000) r(i)").fetchall()
start = time.process_time()
import dpsql
imported, before = time.process_time(), set(sys.modules)
budget = dpsql.Budget(epsilon=1, delta=1e-9)
sql = "SELECT sex, COUNT(*) AS n FROM t GROUP BY sex"
dpsql.query(con, sql, budget=budget)
first = time.process_time()
modules = collections.Counter(name.partition(".")[0] for name in set(sys.modules) - before)
dpsql.query(con, sql, budget=budget)
again = time.process_time()
print(json.dumps([imported - start, first - imported, again - first, modules.most_common(6)]))
"""

if __name__ == "__main__":
    compileall.compile_dir(str(Path(dpsql.__file__).parent), quiet=1)
    found = [
        json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM], text=True))
        for _ in range(RUNS)
    ]
    for i, name in enumerate(("import dpsql", "first query", "second query")):
        print(f"{name:14} {min(run[i] for run in found):6.3f} CPU s")
    print("modules of the first query:", ", ".join(f"{n} {name}" for name, n in found[0][3]))
