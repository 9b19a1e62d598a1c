"""What a ledger in PostgreSQL bears: processes at once, crashes of the server, clients that stop.

    python -m tests.benchmarks.shared_ledger            all of it, about five minutes
    python -m tests.benchmarks.shared_ledger charges    one part: charges, crashes or frozen

Charges: 8 processes charge 100 times each, and the total is enough for 500. Crashes: 8 processes
go on charging while the server is stopped by `pg_ctl -m immediate` and started again, 30 times;
nothing that was acknowledged may be missing. Frozen: how long others wait for the lock of a client
that was stopped (SIGSTOP) while it wrote.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from statistics import quantiles

from dpsql.privacy import Budget, Ledger
from tests.helpers import postgres
from tests.privacy.ledger_tools import python, spend

PROCESSES, EACH, CRASHES = 8, 100, 30

CHARGING = """
    import sys, time
    from dpsql.errors import BudgetError
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import spend

    ledger = Ledger.existing(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[2])):
        start = time.monotonic()
        try:
            spend(ledger, 0.001)
            done = "spent"
        except BudgetError:
            done = "refused"
        print(done, time.monotonic() - start, flush=True)
"""

CRASHING = """
    import os, sys, time
    from dpsql.errors import LedgerError
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import spend

    ledger = Ledger.existing(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    while not os.path.exists(sys.argv[2]):
        try:
            print("spent", spend(ledger, 0.0001).request, flush=True)
        except LedgerError:
            print("failed", "", flush=True)
            time.sleep(0.2)
"""

FROZEN = """
    import sys
    from dpsql.privacy import Ledger

    with Ledger.existing(sys.argv[1]).store.writing():
        print("locked", flush=True)
        sys.stdin.readline()
"""


def started(code: str, *arguments: object) -> list[subprocess.Popen[str]]:
    """Start processes, wait until all are ready, and let them go."""
    found = [python(code, *arguments, stdin=subprocess.PIPE) for _ in range(PROCESSES)]
    for one in found:
        assert one.stdout is not None
        if one.stdout.readline() != "ready\n":
            raise SystemExit(one.communicate()[1])
    for one in found:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return found


def ended(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Wait for processes, and return the lines that they printed, as words."""
    lines = []
    for one in processes:
        out, err = one.communicate()
        if one.returncode:
            raise SystemExit(err)
        lines += [line.split() for line in out.splitlines() if line.strip()]
    return lines


def charges(server: postgres.Postgres) -> None:
    """Charge from many processes at once."""
    ledger = postgres.begun(server.address(), "charges")
    ledger.set_total(Budget(rho=0.5))
    processes = started(CHARGING, server.address(), EACH)
    start = time.monotonic()
    lines = ended(processes)
    seconds = time.monotonic() - start
    found = Counter(done for done, _ in lines)
    times = quantiles([float(took) for _, took in lines], n=100)
    ledger.audit()
    assert (found["spent"], found["refused"], ledger.remaining) == (500, 300, 0), found
    print(
        f"{PROCESSES} × {EACH} charges: {found['spent']} spent, {found['refused']} refused, "
        f"{ledger.remaining} left; {len(lines) / seconds:.0f}/s, "
        f"median {times[49] * 1000:.0f} ms, 99th percentile {times[98] * 1000:.0f} ms"
    )


def crashes(server: postgres.Postgres) -> None:
    """Crash the server while many processes charge."""
    enough = server.folder / "enough"
    ledger = postgres.begun(server.address(), "crashes")
    processes = started(CRASHING, server.address(), enough)
    for _ in range(CRASHES):
        time.sleep(1.0)
        server.stop("immediate")
        server.start()
    enough.touch()
    lines = ended(processes)
    acknowledged = {words[1] for words in lines if words[0] == "spent"}
    stored = {entry.request for entry in Ledger.existing(server.address()).entries()}
    ledger.audit()
    failed = sum(words[0] == "failed" for words in lines)
    assert acknowledged <= stored
    print(
        f"{CRASHES} crashes: {len(acknowledged):,} charges acknowledged, {failed} calls failed, "
        f"{len(stored):,} stored; {len(acknowledged - stored)} acknowledged and lost, "
        f"{len(stored - acknowledged)} stored and not acknowledged"
    )


def frozen(server: postgres.Postgres) -> None:
    """Stop a client that holds the lock."""
    ledger = postgres.begun(server.address(), "frozen")
    child = python(FROZEN, server.address(), stdin=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    os.kill(child.pid, signal.SIGSTOP)
    start = time.monotonic()
    spend(ledger)
    print(
        f"a client that is frozen while it writes: the next waits {time.monotonic() - start:.1f} s"
    )
    child.kill()
    child.wait()


PARTS = {"charges": charges, "crashes": crashes, "frozen": frozen}


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    for name in sys.argv[1:] or PARTS:
        with postgres.server() as server:
            PARTS[name](server)


if __name__ == "__main__":
    main()
