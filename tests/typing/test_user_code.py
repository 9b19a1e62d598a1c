"""The types that users see are those of `user_code.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_mypy_finds_the_types_that_user_code_expects():
    command = [sys.executable, "-m", "mypy", str(HERE / "user_code.py")]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
