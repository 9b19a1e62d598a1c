"""`python -m tests`: lint, format, types and tests, as CI runs them."""

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
    ("pytest", "-q", "-n", "auto"),
)

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Tests run in a process for each core: more threads would only wait for each other."""


def main() -> int:
    for check in CHECKS:
        print(f"$ {' '.join(check)}", flush=True)
        command = [sys.executable, "-m", *check, *_extra(check)]
        result = subprocess.run(command, cwd=ROOT, env={**ONE_THREAD, **os.environ}, check=False)
        if result.returncode:
            return result.returncode
    return 0


def _extra(check: tuple[str, ...]) -> list[str]:
    """Arguments of `python -m tests` go to pytest."""
    return sys.argv[1:] if check[0] == "pytest" else []


if __name__ == "__main__":
    raise SystemExit(main())
