"""Statistics of rows that no cells tell apart: do they equal DuckDB's, how fast, how accurate.

    python -m tests.benchmarks.rows_reach [--scale 0.1] [--rows 100000]

For each statement: CPU seconds of the plan; the largest error relative to the largest value of a
column, at a budget so large that noise plays no part; and for those of flights, the weighted sum
of the variances of all counts and sums over the best for bounded sums. The first statements are
over rows like those of `flights` (python -m examples.flights), the others over TPC-H's lineitem,
which is made here with the distributions of the specification (4.2.3), and public parts.

The best for bounded sums: in units of what a row can add, each of P sums per group is a count whose
rows weigh up to 1, and C = μ² is what may be spent. A row is in one of G groups, so all groups of
one sum cost as much as one of them: with the share c of the budget each has the variance 1/c, and
together E/c with E = G. Σ_p G/c_p is least, under Σ c_p = C, for equal shares: (P√G)²/C = P²·G/C.
Nothing measured of a sum says anything of another one where rows have all kinds of values.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import polars as pl

import dpsql
from dpsql import Budget, Domain, Schema

BUDGET = Budget(rho=0.5)
PRECISE = Budget(rho=1e13)

_PICK = "CREATE OR REPLACE TEMP MACRO pick(i, n) AS (hash(i) % n)::INTEGER"
_FLIGHTS = """
    CREATE TABLE flights AS SELECT
        ['EWR', 'JFK', 'LGA'][1 + i % 3] AS origin,
        ['9E', 'AA', 'AS', 'B6', 'DL', 'EV', 'F9', 'FL', 'HA', 'MQ', 'OO', 'UA', 'US', 'VX', 'WN',
         'YV'][1 + pick(i, 16)] AS carrier,
        pick(i + 1, 24) AS hour,
        80 + pick(i // 7, 4903) AS distance,
        CASE WHEN i % 41 > 0 THEN 20 + pick(i + 2, 670) END AS air_time,
        CASE WHEN i % 43 > 0 THEN pick(i + 3, 150) - 30 END AS dep_delay,
        CASE WHEN i % 41 > 0 THEN pick(i + 3, 150) + pick(i + 4, 60) - 60 END
            AS arr_delay
    FROM range({rows}) r(i)
"""
FLIGHTS_SCHEMA = Schema(
    {
        "flights": {
            "origin": Domain.labels(["EWR", "JFK", "LGA"]),
            "carrier": Domain.labels(
                "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV".split(),  # noqa: SIM905
            ),
            "hour": Domain.integers(0, 23),
            "distance": Domain.number(80, 4983),
            "air_time": Domain.number(20, 695),
            "dep_delay": Domain.number(-60, 300),
            "arr_delay": Domain.number(-90, 300),
        }
    }
)
FLIGHTS = {
    "speed by carrier": (
        "SELECT carrier, AVG(distance / air_time * 60) AS v FROM flights GROUP BY carrier",
        (2, 16),
    ),
    "correlation by origin": (
        "SELECT origin, CORR(dep_delay, arr_delay) AS v FROM flights GROUP BY origin",
        (6, 3),
    ),
    "made up by hour and carrier": (
        "SELECT hour, carrier, AVG(arr_delay - dep_delay) AS v FROM flights GROUP BY hour, carrier",
        (2, 24 * 16),
    ),
}
"""Name → statement, the number of sums and counts that it needs, and of groups."""

_PART = """
    CREATE TABLE part AS SELECT
        (i + 1)::INTEGER AS p_partkey,
        'Brand#' || (1 + pick(i, 5)) || (1 + pick(i + 1, 5)) AS p_brand,
        ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'][1 + pick(i + 2, 6)] || ' '
            || ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'][1 + pick(i + 3, 5)]
            || ' ' || ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'][1 + pick(i + 4, 5)] AS p_type,
        1 + pick(i + 5, 50) AS p_size,
        ['SM', 'LG', 'MED', 'JUMBO', 'WRAP'][1 + pick(i + 6, 5)] || ' '
            || ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'][1 + pick(i + 7, 8)]
            AS p_container
    FROM range({parts}) r(i)
"""
_LINEITEM = """
    CREATE TABLE lineitem AS
    WITH keyed AS (
        SELECT i, 1 + pick(i, {parts}) AS l_partkey,
            1 + pick(i + 1, {suppliers}) AS l_suppkey,
            1 + pick(i + 2, 50) AS quantity,
            DATE '1992-01-01' + pick(i // 4, 2406) AS ordered
        FROM range({rows}) r(i)
    ), shipped AS (
        SELECT *, ordered + 1 + pick(i + 3, 121) AS l_shipdate FROM keyed
    ), received AS (
        SELECT *, l_shipdate + 1 + pick(i + 4, 30) AS l_receiptdate FROM shipped
    )
    SELECT l_partkey, l_suppkey, quantity::DECIMAL(15, 2) AS l_quantity,
        (quantity * (90000 + (l_partkey // 10) % 20001 + 100 * (l_partkey % 1000)) / 100)
            ::DECIMAL(15, 2) AS l_extendedprice,
        (pick(i + 5, 11) / 100)::DECIMAL(15, 2) AS l_discount,
        (pick(i + 6, 9) / 100)::DECIMAL(15, 2) AS l_tax,
        CASE WHEN l_receiptdate > DATE '1995-06-17' THEN 'N' WHEN pick(i + 7, 2) = 0 THEN 'R'
            ELSE 'A' END AS l_returnflag,
        CASE WHEN l_shipdate > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS l_linestatus,
        l_shipdate, l_receiptdate,
        ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'][1 + pick(i + 8, 4)]
            AS l_shipinstruct,
        ['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'][1 + pick(i + 9, 7)]
            AS l_shipmode
    FROM received
"""
LINEITEM = {
    "Q1": """
        SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty,
            SUM(l_extendedprice) AS sum_base_price,
            SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            AVG(l_quantity) AS avg_qty, AVG(l_extendedprice) AS avg_price,
            AVG(l_discount) AS avg_disc, COUNT(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus
    """,
    "Q6": """
        SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
            AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24
    """,
    "Q14": """
        SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount)
            ELSE 0 END) / SUM(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
            AND l_shipdate < DATE '1995-09-01' + INTERVAL '1' MONTH
    """,
    "Q15's view": """
        SELECT l_suppkey AS supplier_no, SUM(l_extendedprice * (1 - l_discount)) AS total_revenue
        FROM lineitem WHERE l_shipdate >= DATE '1996-01-01'
            AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
        GROUP BY l_suppkey ORDER BY l_suppkey
    """,
    "Q19": """
        SELECT SUM(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part WHERE (
            p_partkey = l_partkey AND p_brand = 'Brand#12'
            AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
            AND l_quantity >= 1 AND l_quantity <= 1 + 10 AND p_size BETWEEN 1 AND 5
            AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'
        ) OR (
            p_partkey = l_partkey AND p_brand = 'Brand#23'
            AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
            AND l_quantity >= 10 AND l_quantity <= 10 + 10 AND p_size BETWEEN 1 AND 10
            AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'
        ) OR (
            p_partkey = l_partkey AND p_brand = 'Brand#34'
            AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
            AND l_quantity >= 20 AND l_quantity <= 20 + 10 AND p_size BETWEEN 1 AND 15
            AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON'
        )
    """,
}


@dataclass(frozen=True)
class Reached:
    """What was seen of one statement."""

    planned: float
    """CPU seconds."""
    error: float
    """The largest, relative to the largest value of its column."""
    excess: float
    """Σ variance / M² over P²·G/C, less 1; NaN where that isn't known."""


def flights(rows: int) -> duckdb.DuckDBPyConnection:
    """Make rows like those of flights."""
    con = duckdb.connect()
    con.execute(_PICK).fetchall()
    con.execute(_FLIGHTS.format(rows=rows)).fetchall()
    return con


def lineitem(scale: float) -> tuple[duckdb.DuckDBPyConnection, Schema]:
    """Make TPC-H's lineitem and part, and declare what of lineitem is public."""
    sizes = {"parts": int(200_000 * scale), "suppliers": max(1, int(10_000 * scale))}
    con = duckdb.connect()
    con.execute(_PICK).fetchall()
    con.execute(_PART.format(**sizes)).fetchall()
    con.execute(_LINEITEM.format(rows=int(6_001_215 * scale), **sizes)).fetchall()
    declared = {
        "l_partkey": Domain.integers(1, sizes["parts"]),
        "l_suppkey": Domain.integers(1, sizes["suppliers"]),
        "l_quantity": Domain.decimals(1, 50, 1),
        "l_extendedprice": Domain.number(900, 104_950),
        "l_discount": Domain.decimals(0, "0.10", "0.01"),
        "l_tax": Domain.number(0, "0.08"),
        "l_returnflag": Domain.labels(["A", "N", "R"]),
        "l_linestatus": Domain.labels(["F", "O"]),
        "l_shipdate": Domain.dates("1992-01-02", "1998-12-01"),
        "l_shipinstruct": Domain.labels(
            ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]
        ),
        "l_shipmode": Domain.labels(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]),
    }
    return con, Schema({"lineitem": declared})


def reached(
    con: duckdb.DuckDBPyConnection,
    schema: Schema,
    sql: str,
    needed: tuple[int, int] | None = None,
) -> Reached:
    """Plan and answer a statement, and compare the answer with DuckDB's."""
    public = [name for (name,) in con.execute("SHOW TABLES").fetchall() if name == "part"]
    session = dpsql.Session(con, schema=schema, public=public)
    started = time.process_time()
    plan = session.plan(sql, budget=BUDGET)
    planned = time.process_time() - started
    found = session.query(sql, budget=PRECISE)
    names = [name for name in found.columns if not name.endswith("_variance")]
    answer = con.execute(sql)
    columns, rows = [name for name, *_ in answer.description], answer.fetchall()
    exact = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
    keys = [name for name in names if f"{name}_variance" not in found.columns]
    both = (
        found.join(exact, on=keys, suffix="_exact")
        if keys
        else found.hstack(exact.rename({name: f"{name}_exact" for name in names}))
    )
    errors = [
        ((both[name] - both[f"{name}_exact"].cast(float)).abs().max() or 0.0)
        / (both[f"{name}_exact"].cast(float).abs().max() or 1.0)
        for name in names
        if name not in keys
    ]
    complete = both.height == exact.height
    excess = math.nan if needed is None else _weighted(plan) / _best(*needed) - 1
    return Reached(planned, max(map(float, errors)) if complete else math.inf, excess)


def _best(sums: int, groups: int) -> float:
    return sums**2 * groups / float(BUDGET.mu_squared)


def _weighted(plan: dpsql.Plan) -> float:
    """Add up the variances of counts and sums, in units of what one row can add."""
    total = 0.0
    for family in plan.workload.families:
        block = family.measure
        largest = 1.0 if block is None or block.bound is None else family.unit * block.bound
        total += float(plan.reconstruction.variances(family.shown).sum()) / largest**2
    return total


def results(scale: float, rows: int) -> Iterator[tuple[str, Reached]]:
    """Yield what is seen of each statement."""
    con = flights(rows)
    for name, (sql, needed) in FLIGHTS.items():
        yield name, reached(con, FLIGHTS_SCHEMA, sql, needed)
    con, schema = lineitem(scale)
    for name, sql in LINEITEM.items():
        yield name, reached(con, schema, sql)


def main() -> None:
    """Print a line for each statement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    warm = duckdb.connect()
    warm.execute("CREATE TABLE t (b BOOLEAN)")
    dpsql.plan(warm, "SELECT b, COUNT(*) AS n FROM t GROUP BY b", budget=BUDGET)
    print(f"{'plan s':>7} {'error':>9} {'excess':>9}")
    for name, found in results(given.scale, given.rows):
        print(f"{found.planned:7.2f} {found.error:9.1e} {found.excess:9.1e}  {name}", flush=True)


if __name__ == "__main__":
    main()
