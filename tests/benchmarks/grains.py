"""What it costs to count three tables of the same units, joined: CPU seconds and peak memory.

    python -m tests.benchmarks.grains [--customers 100000] [--only orders]

Customers, ten times as many orders, thirty times as many items; each of them counted by columns
of its own and of what it refers to, on two threads, where 1, 8 and 25 rows of a customer count.
Beside it is what DuckDB takes for the same with windows: joins, `row_number()` of the rows of a
customer in the order of the same columns, those up to the bound, GROUP BY. The tables are in a
file. They are filled, and each is measured, in a process of its own: the peak is that of the
counting, beside what the process has in memory before. DuckDB is allowed 4 GB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.request import Request, named

UNIT = dpsql.Unit("customers", max_rows={"customers": 1, "orders": 8, "items": 25})
TABLES = """
    CREATE TABLE customers (
        id INTEGER PRIMARY KEY, region INTEGER NOT NULL CHECK (region BETWEEN 0 AND 24),
        segment INTEGER NOT NULL CHECK (segment BETWEEN 0 AND 4));
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
        status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2),
        month INTEGER NOT NULL CHECK (month BETWEEN 0 AND 79));
    CREATE TABLE items (
        order_id INTEGER NOT NULL REFERENCES orders (id),
        kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 9),
        pieces INTEGER NOT NULL CHECK (pieces BETWEEN 1 AND 50));
"""
ROWS = """
    INSERT INTO customers SELECT i, hash(i) % 25, hash(i + 1) % 5 FROM range({n}) AS r(i);
    INSERT INTO orders SELECT i, hash(i) % {n}, hash(i + 2) % 3, hash(i + 3) % 80
        FROM range(10 * {n}) AS r(i);
    INSERT INTO items SELECT hash(i + 4) % (10 * {n}), hash(i + 5) % 10, 1 + hash(i + 6) % 50
        FROM range(30 * {n}) AS r(i);
"""
COUNTS = {
    "customers": "SELECT region, segment, COUNT(*) AS n FROM customers GROUP BY ALL",
    "orders": "SELECT region, status, COUNT(*) AS n FROM orders JOIN customers c "
    "ON customer_id = c.id GROUP BY ALL",
    "items": "SELECT region, status, kind, COUNT(*) AS n FROM items JOIN orders o "
    "ON order_id = o.id JOIN customers c ON customer_id = c.id GROUP BY ALL",
}
COLUMNS = {
    "customers": ("region", "segment"),
    "orders": ("customer_id.region", "status"),
    "items": ("order_id.customer_id.region", "order_id.status", "kind"),
}
"""By which each is counted, as the table with the columns of others has them."""
WINDOWS = {
    "customers": COUNTS["customers"],
    "orders": "SELECT region, status, COUNT(*) AS n FROM (SELECT region, status, row_number() OVER "
    "(PARTITION BY customer_id ORDER BY status, month, o.id) AS place FROM orders o JOIN customers "
    "c ON customer_id = c.id) WHERE place <= 8 GROUP BY ALL",
    "items": "SELECT region, status, kind, COUNT(*) AS n FROM (SELECT region, status, kind, "
    "row_number() OVER (PARTITION BY customer_id ORDER BY kind, pieces, order_id) AS place FROM "
    "items JOIN orders o ON order_id = o.id JOIN customers c ON customer_id = c.id) "
    "WHERE place <= 25 GROUP BY ALL",
}


def make_tables(path: str, customers: int) -> None:
    """Fill the tables."""
    with duckdb.connect(path, config={"threads": 2}) as con:
        con.execute(TABLES).fetchall()
        con.execute(ROWS.format(n=customers)).fetchall()


def measure(path: str, name: str, way: str) -> None:
    """Count once and print how many rows count, CPU seconds and the peak of memory."""
    with duckdb.connect(path, read_only=True, config={"threads": 2}) as con:
        con.execute("SET memory_limit = '4GB'").fetchall()
        engine = DuckDBEngine(con)
        session = dpsql.Session(con, unit=UNIT, ledger=f"{path}.ledger")
        asked = Request(named(COUNTS[name]), dpsql.Budget(rho=1))
        table = session._data.declared.compile(asked).table
        wanted = COLUMNS[name]
        before, start = forget_peak(), resource.getrusage(resource.RUSAGE_SELF)
        if way == "windows":
            rows = sum(row[-1] for row in con.execute(WINDOWS[name]).fetchall())
        else:
            rows = int(engine.marginals(table, [wanted])[wanted].sum())
        end = resource.getrusage(resource.RUSAGE_SELF)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    print(
        f"{way:>8}: {rows:>12,} rows {seconds:>7.2f} CPU s {memory('VmHWM'):>7,.0f} MB, "
        f"{before:,.0f} before"
    )


def forget_peak() -> float:
    """Let the peak of this process's memory begin anew, and return how many MB it has now.

    What `getrusage` says would not do: a process starts with the peak of the one that started it.
    """
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(line: str) -> float:
    """Return a line of what Linux says of this process's memory, in MB."""
    status = Path("/proc/self/status").read_text().splitlines()
    (found,) = (each.split()[1] for each in status if each.startswith(f"{line}:"))
    return int(found) / 1000


def main() -> None:
    """Fill the tables and measure each, in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--customers", type=int, default=100_000)
    parser.add_argument("--only", choices=COUNTS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure)
        return
    if given.fill:
        make_tables(given.fill, given.customers)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "t.duckdb")
        run("--fill", path, "--customers", str(given.customers))
        for name in [given.only] if given.only else COUNTS:
            print(name, flush=True)
            for way in ("windows", "dpsql"):
                run("--measure", path, name, way)


def run(*arguments: str) -> None:
    """Start this again, for one thing."""
    subprocess.run([sys.executable, "-m", "tests.benchmarks.grains", *arguments], check=True)


if __name__ == "__main__":
    main()
