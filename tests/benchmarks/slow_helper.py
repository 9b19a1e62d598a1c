"""A script of plain statements while the SQL helper is slowed down, as on a busy machine.

    python -m tests.benchmarks.slow_helper [statements] [times]

The helper process is stopped and let go on in turn, so that it has one part in `times` of the
clock.
Its limits are of its own CPU time: no statement may be refused, and none take another answer.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import threading
import time

import duckdb
import psutil

import dpsql

SLICE = 0.1
"""Seconds in which the helper is stopped and let go on once."""


def script(count: int) -> dict[str, str]:
    """Return plain statements, no two of which compute the same."""
    kinds = (
        "SELECT g, COUNT(*) AS n FROM t WHERE n * (1 + {i}) > {j} GROUP BY g",
        "SELECT CASE WHEN n > {j} THEN 'a' ELSE 'b{i}' END AS k, COUNT(*) AS c FROM t GROUP BY 1",
        "SELECT upper(g) || '{i}' AS u, COUNT(*) AS n FROM t GROUP BY 1",
        "SELECT n % {j} AS r, COUNT(*) AS c FROM t WHERE n <> {j} GROUP BY 1",
    )
    return {f"s{i}": kinds[i % len(kinds)].format(i=i, j=2 + i % 7) for i in range(count)}


def slowed(times: int, ended: threading.Event) -> None:
    """Stop the helpers of this process for most of the time, until it is ended."""
    while not ended.is_set():
        helpers = psutil.Process().children()
        for action, seconds in (
            (signal.SIGSTOP, SLICE * (times - 1) / times),
            (signal.SIGCONT, SLICE / times),
        ):
            for helper in helpers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(helper.pid, action)
            time.sleep(seconds)


def main() -> int:
    """Plan the script, and say how long that took, of the clock and of processors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("statements", nargs="?", type=int, default=1000)
    parser.add_argument("times", nargs="?", type=int, default=20)
    given = parser.parse_args()
    count, times = given.statements, given.times
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (g VARCHAR NOT NULL CHECK (g IN ('x', 'y')), n INTEGER NOT NULL CHECK (n "
        "BETWEEN 0 AND 20))"
    )
    session = dpsql.Session(con)
    session.plan("SELECT g, COUNT(*) AS n FROM t GROUP BY g", budget=dpsql.Budget(rho=1))
    ended = threading.Event()
    slower = threading.Thread(target=slowed, args=(times, ended))
    slower.start()
    clock, cpu = time.monotonic(), time.process_time()
    try:
        plan = session.plan(script(count), budget=dpsql.Budget(rho=1))
        said = f"planned, expected error {plan.rmse:.3f}"
    except dpsql.DpsqlError as error:
        said = f"refused: {type(error).__name__}: {error}"
    finally:
        ended.set()
        slower.join()
    print(f"{count:,} statements, the helper {times} times slower: {said}")
    print(
        f"{time.monotonic() - clock:.0f} s, {time.process_time() - cpu:.0f} CPU s of this process"
    )
    return 0 if said.startswith("planned") else 1


if __name__ == "__main__":
    raise SystemExit(main())
