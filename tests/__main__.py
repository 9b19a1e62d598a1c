"""Lint, format, types and tests, as CI runs them.

    python -m tests                 all but slow tests; stops at the first that fails
    python -m tests --slow          today's fifth of the slow tests, which CI runs after these
    python -m tests -k noise        only tests with "noise" in their names
    python -m tests tests/planner   only tests of one folder; with --slow, all slow ones of it

Arguments go to pytest, which runs one process for each core: `python -m pytest -h` lists them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

from tests.helpers.slow import PARTS

ROOT = Path(__file__).parent.parent
CHECKS = (
    ("ruff", "check", "--quiet", "."),
    ("ruff", "format", "--check", "--quiet", "."),
    ("mypy", "--num-workers", "auto"),
)
TESTS = ("pytest", "-q", "-n", "auto", "--dist", "worksteal")
SLOW = (*TESTS, "-m", "slow and not long")

CPU_MINUTES = {TESTS: 15, SLOW: 17}
"""What they take of processors of 2 GHz, the slow ones in a day: see `tests/helpers/cpu.py`."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Tests run in a process for each core: more threads would only wait for each other."""

CORES = os.cpu_count() or 1
WORKERS = {"PYTEST_XDIST_AUTO_NUM_WORKERS": str(CORES + 1)} if CORES <= 4 else {}
"""One process more than cores, if these are few: tests wait for databases, browsers and Javas."""

COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Else each process compiles all modules anew, those that tests start too: a second of each."""


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & {*arguments}:
        print(__doc__)
        return 0
    checks, tests = ((), SLOW) if "--slow" in arguments else (CHECKS, TESTS)
    chosen = [argument for argument in arguments if argument != "--slow"]
    for check in checks:
        if status := _status(check):
            return status
    if chosen:
        return _status((*tests, *chosen))
    part = ("--part", str(date.today().toordinal() % PARTS + 1)) if tests is SLOW else ()
    return _status((*tests, *part), _expected(CPU_MINUTES[tests]))


def _status(command: tuple[str, ...], note: str = "") -> int:
    """Run a module, after telling which."""
    print(f"$ {' '.join(command)}\n{note}".rstrip(), flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**ONE_THREAD, **WORKERS, **os.environ, **COMPILED},
        check=False,
    )
    return ended.returncode


def _expected(minutes: int) -> str:
    """Say how long the tests take, and how to see that they move."""
    return (
        f"These tests take about {round(minutes / CORES) or 1} minutes on {CORES} cores. "
        "They are collected for half a minute, then each dot is a test that passed; each full line "
        "says how many percent are done."
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
