"""Other checkouts in which a benchmark runs, to be compared with this one."""

from __future__ import annotations

import os
import subprocess
import sys

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def run_in(folders: list[str], script: str, **variables: str) -> None:
    """Run a script of this checkout with the dpsql of others, one after the other.

    It gets no arguments, and may import nothing of `tests`, which others have otherwise.
    """
    for folder in folders:
        print(f"in {folder}:", flush=True)
        environment = {**os.environ, "PYTHONPATH": folder, **dict.fromkeys(THREADS, "1")}
        subprocess.run(
            [sys.executable, script], env=environment | variables, cwd=folder, check=True
        )
