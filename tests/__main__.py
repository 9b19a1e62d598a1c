"""Lint, format, types and tests, as CI runs them.

    python -m tests                 all of them; stops at the first that fails
    python -m tests -k noise        only tests with "noise" in their names
    python -m tests tests/planner   only tests of one folder

Arguments go to pytest, which runs one process for each core: `python -m pytest -h` lists them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKS = (
    ("ruff", "check", "--quiet", "."),
    ("ruff", "format", "--check", "--quiet", "."),
    ("mypy",),
    ("pytest", "-q", "-n", "auto", "--dist", "worksteal"),
)

CPU_MINUTES = 36
"""What the default tests take, of processors of 2 GHz: see `--cpu` of `tests/helpers/cpu.py`."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Tests run in a process for each core: more threads would only wait for each other."""


def main() -> int:
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return 0
    for check in CHECKS:
        print(f"$ {' '.join(check)}", flush=True)
        if check[0] == "pytest" and not _extra(check):
            print(_expected(), flush=True)
        command = [sys.executable, "-m", *check, *_extra(check)]
        result = subprocess.run(command, cwd=ROOT, env={**ONE_THREAD, **os.environ}, check=False)
        if result.returncode:
            return result.returncode
    return 0


def _expected() -> str:
    """Say how long the tests take, and how to see that they move."""
    cores = os.cpu_count() or 1
    return (
        f"All default tests take about {round(CPU_MINUTES / cores) or 1} minutes on {cores} cores. "
        "Each dot is a test that passed; each full line says how many percent are done."
    )


def _extra(check: tuple[str, ...]) -> list[str]:
    """Arguments of `python -m tests` go to pytest."""
    return sys.argv[1:] if check[0] == "pytest" else []


if __name__ == "__main__":
    raise SystemExit(main())
