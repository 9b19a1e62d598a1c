"""What reports take, and what a browser says of them.

    python -m tests.benchmarks.report [FOLDER]

The release of the demo, one of 200 statements over Adult, and one of all 91 pairs of 14 columns are
written as reports, each in a new process that loads the release from a folder. Printed are seconds
and CPU seconds of that call, megabytes, requests to anything but the page, messages in the console,
and what axe-core complains of, light and dark. It fails beyond the CPU seconds and megabytes below,
or for anything that was asked or said. With a FOLDER the pages stay there, with pictures of them at
three widths.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tempfile
from itertools import combinations, islice
from pathlib import Path

import duckdb

import dpsql
from tests.helpers.browser import chromium, opened, violations

ROOT = Path(__file__).parents[2]
MOST = {"demo": (1.0, 500_000), "statements": (3.0, 4_500_000), "pairs": (2.0, 4_600_000)}
"""CPU seconds and bytes that a report may have."""
WIDTHS = (390, 768, 1280)
SIZES = (2, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 40, 85, 99)
"""Values of the columns of which there are pairs."""
WRITE = """
import json, sys, time, dpsql
release = dpsql.Release.load(sys.argv[1])
began = time.perf_counter(), time.process_time()
release.report(sys.argv[2])
print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1]]))
"""


def releases(folder: Path) -> dict[str, Path]:
    """Make the releases, and return their folders."""
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    con = duckdb.connect()
    demo["load_adult"](con)
    session = dpsql.Session(con, budget=demo["TOTAL"])
    scripts = {
        "demo": dpsql.read_script(ROOT / "examples" / "adult_release.sql"),
        "statements": many(con),
    }
    found = {}
    for name, script in scripts.items():
        release = session.release(script, budget=demo["BUDGET"], confidence=0.95)
        found[name] = release.save(folder / name)
    session = dpsql.Session(of_pairs(), budget=demo["TOTAL"])
    columns = combinations((f"c{i}" for i in range(len(SIZES))), 2)
    pairs = {f"{a}{b}": f"SELECT {a}, {b}, COUNT(*) AS n FROM t GROUP BY ALL" for a, b in columns}
    found["pairs"] = session.release(pairs, budget=demo["BUDGET"]).save(folder / "pairs")
    return found


def of_pairs() -> duckdb.DuckDBPyConnection:
    """Return a table of 14 columns and 5,000 rows."""
    con = duckdb.connect()
    columns = [f"c{i} INT NOT NULL CHECK (c{i} BETWEEN 0 AND {n - 1})" for i, n in enumerate(SIZES)]
    con.execute(f"CREATE TABLE t ({', '.join(columns)})")
    values = ", ".join(f"hash(i * {k + 7}) % {n}" for k, n in enumerate(SIZES))
    con.execute(f"INSERT INTO t SELECT {values} FROM range(5000) r(i)")
    return con


def many(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return 200 statements: tables of one, two and three columns, from the small ones on."""
    columns = [
        name
        for (name,) in con.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = 'adult' "
            "AND column_name NOT IN ('age', 'hours_per_week', 'native_country')"
        ).fetchall()
    ]
    wanted = (group for size in (1, 2, 3) for group in combinations(columns, size))
    found = {
        "_by_".join(group): f"SELECT {', '.join(group)}, COUNT(*) AS people FROM adult GROUP BY ALL"
        for group in islice(wanted, 200)
    }
    for number in range(200 - len(found)):
        found[f"up_to_{number}"] = (
            f"SELECT sex, COUNT(*) AS people FROM adult WHERE age <= {20 + number} GROUP BY sex"
        )
    return found


def looked_at(browser: object, place: Path, folder: Path) -> list[str]:
    """Return all that a browser was asked for or said of a page, and take pictures of it."""
    found = []
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            with opened(browser, place, width=width, scheme=scheme) as (page, seen):
                page.screenshot(path=folder / f"{place.stem}-{scheme}-{width}.png")
                found += [*seen.asked, *seen.said]
        with opened(browser, place, scheme=scheme, trusted=True) as (page, _):
            found += violations(page)
    return found


def measured(browser: object, folder: Path) -> list[str]:
    """Print a line for each report, and return what is beyond a limit."""
    wrong = []
    for name, release in releases(folder).items():
        place = folder / f"{name}.html"
        command = [sys.executable, "-c", WRITE, str(release), str(place)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds, cpu = json.loads(printed)
        size, found = place.stat().st_size, looked_at(browser, place, folder)
        print(
            f"{name:12} {seconds:5.2f} s {cpu:5.2f} CPU s {size / 1e6:5.2f} MB; "
            f"{len(found)} requests, messages and violations",
            flush=True,
        )
        most_cpu, most_bytes = MOST[name]
        wrong += found + [f"{name}: {cpu:.2f} CPU s"] * (cpu > most_cpu)
        wrong += [f"{name}: {size:,} bytes"] * (size > most_bytes)
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        folder.mkdir(exist_ok=True, parents=True)
        wrong = measured(browser, folder)
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
