"""TPC-H as a shop would have it: customers, their orders and the lines of these are private.

`python examples/tpch/tpch.py --scale 0.1` makes the tables (rows.sql: with the distributions of the
specification, without its program), and compares what is answered at a budget with hardly any noise
with DuckDB's answers. What had to be changed in a statement stands over it in `queries.sql`.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import duckdb
import polars as pl

import dpsql
from dpsql import Domain

HERE = Path(__file__).parent
PUBLIC = ("region", "nation", "supplier", "part", "partsupp")
"""What the shop's catalog says to anybody."""
UNIT = dpsql.Unit("customer", max_rows={"customer": 1, "orders": 40, "lineitem": 160})
"""All rows of a customer are protected together; nobody here has more of them."""
PRECISE = dpsql.Budget(rho=10**14)


def sizes(scale: float) -> dict[str, int]:
    """Return how many rows the tables have; lines are about four times as many as orders."""
    rows = {"suppliers": 10_000, "parts": 200_000, "customers": 150_000, "orders": 1_500_000}
    return {name: int(count * scale) for name, count in rows.items()}


def schema(scale: float) -> dpsql.Schema:
    """Declare what schema.sql doesn't say: steps of decimals, and how many parts there are."""
    found = sizes(scale)
    lines = {
        "l_partkey": Domain.integers(1, found["parts"]),
        "l_suppkey": Domain.integers(1, found["suppliers"]),
        "l_quantity": Domain.decimals(1, 50, 1),
        "l_discount": Domain.decimals(0, "0.10", "0.01"),
    }
    return dpsql.Schema({"lineitem": lines})


def load(con: duckdb.DuckDBPyConnection, scale: float) -> None:
    """Create the tables and fill them."""
    con.execute((HERE / "schema.sql").read_text(encoding="utf-8")).fetchall()
    rows = (HERE / "rows.sql").read_text(encoding="utf-8")
    con.execute(rows.format(**sizes(scale))).fetchall()


def connect(con: duckdb.DuckDBPyConnection, scale: float) -> dpsql.Session:
    """Open a session on the tables."""
    return dpsql.Session(con, schema=schema(scale), public=PUBLIC, unit=UNIT)


def queries() -> dict[str, str]:
    """Read the statements."""
    return dpsql.read_script(HERE / "queries.sql")


def largest_error(session: dpsql.Session, con: duckdb.DuckDBPyConnection, sql: str) -> float:
    """Compare an answer that is nearly exact with DuckDB's.

    A group that DuckDB doesn't have is one without rows.

    Returns:
        The largest difference, relative to the largest value of the column.
    """
    found = session.query(sql, budget=PRECISE)
    names = [name for name in found.columns if not name.endswith("_variance")]
    values = [name for name in names if f"{name}_variance" in found.columns]
    keys = [name for name in names if name not in values]
    true = con.sql(sql).pl().with_columns(pl.col(values).cast(pl.Float64))
    if not keys:
        found, true = (frame.with_columns(pl.lit(0).alias("all")) for frame in (found, true))
        keys = ["all"]
    text = [pl.col(key).cast(pl.String) for key in keys]
    both = true.with_columns(text).join(found.with_columns(text), on=keys, suffix="_found")
    if both.height < true.height:
        return math.inf
    errors = [0.0]
    for name in values:
        off = (both[name] - both[f"{name}_found"]).abs().max()
        largest = both[name].abs().max()
        errors.append(float(off or 0) / max(float(largest or 0), 1.0))
    return max(errors)


def main() -> None:
    """Print the CPU seconds and the error of each statement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    con = duckdb.connect()
    load(con, given.scale)
    for name, sql in queries().items():
        if given.only and name not in given.only:
            continue
        started = time.process_time()
        try:
            said = f"{largest_error(connect(con, given.scale), con, sql):9.1e}"
        except dpsql.DpsqlError as error:
            said = f"refused: {error}"
        print(f"{name:>4} {time.process_time() - started:6.1f} s {said}", flush=True)


if __name__ == "__main__":
    main()
