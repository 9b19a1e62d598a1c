"""Keys that nobody knows, found by dpsql and by its peers: how many, and how well they are counted.

    python -m tests.benchmarks.peers_keys [--runs 3] [--tools dpsql opendp] [--sets words]

Each answers the number of units by key for (ε, δ) = (1, 1e-9) in all, by its own accounting; see
`peers_tools` for what each is asked. A tool runs in the interpreter that an environment variable
names, or in this one: OPENDP_PYTHON (`pip install 'opendp[polars]'`), SMARTNOISE_SQL_PYTHON
(smartnoise-sql), TMLT_ANALYTICS_PYTHON (tmlt.analytics, with a Java), PYQRLEW_PYTHON (pyqrlew
sqlalchemy 'pandas<2.3' duckdb). One that isn't there is left out, which is said.

Data sets: `tails`, the tail numbers of flights, see `found_keys`; `cities`, persons of whom each
has one of 10,000 cities, by Zipf's law; `words`, docstrings of Python's standard library, each
with 10 of its words, by a hash. Errors are root mean squares over the keys that a tool has found,
and over the runs.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb

import dpsql
from tests.benchmarks.found_keys import flights
from tests.benchmarks.peers_tools import DELTA, EPSILON, MOST, NAMES

TOOL = Path(__file__).with_name("peers_tools.py")
Row = tuple[int, str]


def tails() -> Iterator[Row]:
    """Yield the tail number of each flight."""
    found = flights().execute("SELECT tailnum FROM flights ORDER BY tailnum").fetchall()
    yield from ((i, key) for i, (key,) in enumerate(found))


def cities() -> Iterator[Row]:
    """Yield the city of each person: the i-th one has 10,000/i inhabitants."""
    places = (place for place in range(1, 10_001) for _ in range(10_000 // place))
    yield from ((i, f"city {place}") for i, place in enumerate(places))


def words() -> Iterator[Row]:
    """Yield the words of docstrings."""
    for number, text in enumerate(_docstrings(Path(sysconfig.get_paths()["stdlib"]))):
        found = set(re.findall("[a-z]{2,}", text.lower()))
        by_hash = sorted(found, key=lambda w: hashlib.sha256(f"{text} {w}".encode()).digest())
        yield from ((number, word) for word in by_hash[:MOST])


def _docstrings(root: Path) -> Iterator[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "idle_test"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # of files that tests of lib2to3 read
            continue
        texts = (ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, documented))
        yield from (text for text in texts if text)


SETS = {"tails": tails, "cities": cities, "words": words}


def with_dpsql(rows: Path, several: bool) -> dict:
    """Ask dpsql."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS FROM read_csv('{rows}', types = {{'key': 'VARCHAR'}})")
    unit = {"unit": "unit", "max_rows": MOST} if several else {}
    budget = dpsql.Budget(epsilon=EPSILON, delta=DELTA)
    counted = "COUNT(DISTINCT unit)" if several else "COUNT(*)"
    sql = f"SELECT key, {counted} AS n FROM t GROUP BY key"
    release = dpsql.query(con, {"query": sql}, budget=budget, keys=dpsql.Keys(), **unit)
    found = set(release.found_keys("t", "key").keys)
    counts = {key: n for key, n in release["query"].select("key", "n").iter_rows() if key in found}
    return {"version": dpsql.__version__, "spent": (EPSILON, DELTA), "counts": counts}


def with_pure(rows: Path, several: bool) -> dict:
    """Ask dpsql for a pure ε, with δ for keys alone: by the noisy numbers that found these."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS FROM read_csv('{rows}', types = {{'key': 'VARCHAR'}})")
    unit = {"unit": "unit", "max_rows": MOST} if several else {}
    budget, keys = dpsql.Budget(epsilon=EPSILON, delta=0), dpsql.Keys(delta=str(DELTA))
    about = {"version": dpsql.__version__, "spent": (EPSILON, DELTA)}
    if not several:
        found = dpsql.Session(con, **unit).find_keys("t", "key", budget=budget, keys=keys)
        return {**about, "counts": dict(found.counts.iter_rows())}
    sql, how = "SELECT key, COUNT(*) AS n FROM t GROUP BY key", {"mechanism": "laplace"}
    release = dpsql.query(con, {"query": sql}, budget=budget, keys=keys, **how, **unit)
    known = set(release.found_keys("t", "key").keys)
    rows_of = release["query"].select("key", "n").iter_rows()
    return {**about, "counts": {key: n for key, n in rows_of if key in known}}


def with_tool(tool: str, rows: Path) -> dict | str:
    """Ask another tool; return why it can't be, if so."""
    python = os.environ.get(f"{tool.upper()}_PYTHON", sys.executable)
    named = NAMES[tool]
    known = [python, "-c", f"import importlib.metadata as m; m.version({named!r})"]
    if subprocess.run(known, capture_output=True, check=False).returncode:
        return f"{named} isn't installed in {python}"
    out = rows.with_suffix(".json")
    command = [python, str(TOOL), tool, str(rows), str(out)]
    environment = os.environ | {"PYSPARK_PYTHON": python}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]
    return json.loads(out.read_text())


OWN = {"dpsql": with_dpsql, "dpsql, pure": with_pure}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tools", nargs="*", default=[*OWN, *NAMES])
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.sets:
            several = name == "words"
            rows = Path(folder) / f"{'several' if several else 'one'}_{name}.csv"
            pairs = list(SETS[name]())
            with rows.open("w", newline="") as file:
                csv.writer(file).writerows([("unit", "key"), *pairs])
            counts = Counter(key for _, key in pairs)
            print(f"\n{name}: {len(pairs):,} pairs, {len(counts):,} keys")
            print("tool, version | keys found | RMSE of counts | spent | s", flush=True)
            for tool in given.tools:
                print(line(tool, rows, several, counts, given.runs), flush=True)


def line(tool: str, rows: Path, several: bool, counts: Counter, runs: int) -> str:
    """Return a line of the table."""
    sizes, squares, began = list[int](), list[float](), time.perf_counter()
    for _ in range(runs):
        found = OWN[tool](rows, several) if tool in OWN else with_tool(tool, rows)
        if isinstance(found, str):
            return f"{tool} | {found}"
        sizes.append(len(found["counts"]))
        squares += [(n - counts[key]) ** 2 for key, n in found["counts"].items()]
    error = math.sqrt(sum(squares) / len(squares)) if squares else math.nan
    spent = "({:.3g}, {:.3g})".format(*found["spent"])
    seconds = (time.perf_counter() - began) / runs
    mean = sum(sizes) / runs
    return f"{tool} {found['version']} | {mean:,.0f} | {error:.2f} | {spent} | {seconds:.0f}"


if __name__ == "__main__":
    main()
