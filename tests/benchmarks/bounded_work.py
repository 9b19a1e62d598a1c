"""Measure what must not grow by surprise: nested queries, long scripts, long sessions.

Run `python -m tests.benchmarks.bounded_work`, or with the names of some parts after it. Numbers are
CPU seconds of this process, whatever else the computer does; those of the process that evaluates
SQL are apart.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb
import psutil

import dpsql
from dpsql.sql.sandbox.helper import helper

BUDGET = dpsql.Budget(rho=1)
PLAYERS = """
    CREATE TABLE players (
        name VARCHAR, weight INT CHECK (weight BETWEEN 60 AND 330),
        height INT CHECK (height BETWEEN 40 AND 90), hand ENUM('B', 'L', 'R')
    );
    INSERT INTO players SELECT repeat('x', 3 + i % 9), 120 + i % 150, 55 + i % 30,
        ['B', 'L', 'R'][1 + i % 3] FROM range(4000) t(i);
"""
BEFORE = (
    "SELECT CORR(weight, height) AS c FROM players WHERE weight IS NOT NULL AND height IS NOT NULL",
    "SELECT hand, REGR_SLOPE(weight, height) AS s, REGR_COUNT(weight, height) AS n FROM players "
    "GROUP BY hand",
    "SELECT name LIKE 'xxxx%' AS j, COUNT(*) AS n FROM players WHERE name IS NOT NULL GROUP BY j",
)
LAST = "SELECT LEAST(LENGTH(name), 12) AS letters, COUNT(*) AS n FROM players GROUP BY letters"


def seconds(step: Callable[[], object]) -> float:
    """Return the CPU time of a step."""
    start = time.process_time()
    step()
    return time.process_time() - start


def columns(sizes: list[int]) -> duckdb.DuckDBPyConnection:
    """Return a database with columns c0, c1, … of so many values."""
    con = duckdb.connect()
    declared = (
        f"c{i} INT NOT NULL CHECK (c{i} BETWEEN 0 AND {n - 1})" for i, n in enumerate(sizes)
    )
    con.execute(f"CREATE TABLE t ({', '.join(declared)})")
    values = ", ".join(f"(hash(i * {k + 1}) % {n})::INT" for k, n in enumerate(sizes))
    con.execute(f"INSERT INTO t SELECT {values} FROM range(5000) r(i)")
    return con


def nested() -> None:
    """Plan queries of private rows in queries."""
    con = columns([10])
    dpsql.plan(con, "SELECT COUNT(*) AS n FROM t", budget=BUDGET)
    for depth in (4, 8, 16, 31):
        sql = f"SELECT COUNT(*) AS n FROM {'(SELECT c0 FROM ' * depth}t{')' * depth}"
        taken = seconds(lambda sql=sql: dpsql.plan(con, sql, budget=BUDGET))  # type: ignore[misc]
        print(f"{depth:4} nested queries: {taken:.2f}")


def planned_thousand() -> float:
    """Plan a script of as many statements as may be in one."""
    con = columns([7] * 8)
    sql = "SELECT c{}, COUNT(*) AS n FROM t WHERE c{} BETWEEN 0 AND 3 GROUP BY ALL"
    script = {f"s{i}": sql.format(i % 8, (i + 2) % 8) for i in range(1_000)}
    return seconds(lambda: dpsql.plan(con, script, budget=BUDGET))


def thousand_statements() -> None:
    """Plan them, and say what the process that evaluates SQL takes besides."""
    con, own = columns([2]), psutil.Process(helper().pid)
    dpsql.plan(con, "SELECT COUNT(*) AS n FROM t", budget=BUDGET)
    before, taken = sum(own.cpu_times()[:2]), planned_thousand()
    after = sum(own.cpu_times()[:2])
    print(f"1,000 statements: {taken:.2f}, and {after - before:.2f} of the helper")


def slowed_helper() -> None:
    """Plan them while the process that evaluates SQL stands still for 19 of 20 moments."""
    with standing_still(0.02, 19):
        taken = planned_thousand()
    print(f"1,000 statements, the helper slowed down 20 times: {taken:.2f}, none refused")


@contextmanager
def standing_still(moment: float, times: int) -> Iterator[None]:
    """Stop the helper again and again, for so many times as long as it runs."""
    pid, ended = helper().pid, threading.Event()

    def slow() -> None:
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            ended.wait(moment * times)
            os.kill(pid, signal.SIGCONT)
            ended.wait(moment)

    slowing = threading.Thread(target=slow, daemon=True)
    slowing.start()
    try:
        yield
    finally:
        ended.set()
        slowing.join()


def after_others() -> None:
    """Ask one statement alone, and after three others of the same rows."""
    con = duckdb.connect()
    con.execute(PLAYERS)
    session = dpsql.Session(con)
    session.query("SELECT hand, COUNT(*) AS n FROM players GROUP BY hand", budget=BUDGET)
    print(f"one statement: {seconds(lambda: session.query(LAST, budget=BUDGET)):.2f}")
    session = dpsql.Session(con)
    for sql in (*BEFORE, LAST):
        taken = seconds(lambda sql=sql: session.query(sql, budget=BUDGET))  # type: ignore[misc]
        print(f"  in a session of four: {taken:.2f}")


def pairs_after_counts() -> None:
    """Release all pairs of 14 columns alone, and after five small counts."""
    con = columns([100, 100, 100, 100, 85, 2, 7, 16, 15, 5, 2, 41, 3, 9])
    sql = "SELECT c{}, c{}, COUNT(*) AS n FROM t GROUP BY ALL"
    pairs = {f"p{a}_{b}": sql.format(a, b) for a, b in itertools.combinations(range(14), 2)}
    session = dpsql.Session(con)
    session.query("SELECT c12, COUNT(*) AS n FROM t GROUP BY c12", budget=BUDGET)
    for k in range(1, 5):
        where = " AND ".join(f"c{i} < 50" for i in range(k))
        session.query(f"SELECT COUNT(*) AS n FROM t WHERE {where}", budget=BUDGET)
    alone = seconds(lambda: session.plan(pairs, budget=BUDGET, reuse=False))
    after = seconds(lambda: session.release(pairs, budget=BUDGET))
    print(f"91 pairs: planned {alone:.2f} alone; released {after:.2f} after five counts")


def hundred_queries() -> None:
    """Ask a hundred statements one after the other, with the past and without."""
    for reuse in (True, False):
        session = dpsql.Session(columns(list(range(4, 12))))
        taken = []
        for k in range(100):
            sql = (
                f"SELECT c{k % 8}, COUNT(*) AS n FROM t WHERE c{(k * 3 + 1) % 8} <= {k % 5} "
                f"AND c{(k * 5 + 2) % 8} >= {k % 3} GROUP BY ALL"
            )
            ask = lambda sql=sql: session.query(sql, budget=BUDGET, reuse=reuse)  # noqa: B023, E731
            taken.append(seconds(ask))
        shown = ", ".join(f"{statistics.median(taken[at - 4 : at]):.2f}" for at in (8, 50, 100))
        print(f"the 8th, 50th and 100th query, reuse={reuse}: {shown}")


PARTS = (
    nested, thousand_statements, slowed_helper, after_others, pairs_after_counts, hundred_queries,
)  # fmt: skip


def main() -> None:
    """Print the numbers of all parts, or of those that are named."""
    for part in PARTS:
        if part.__name__ in (sys.argv[1:] or [part.__name__]):
            part()


if __name__ == "__main__":
    main()
