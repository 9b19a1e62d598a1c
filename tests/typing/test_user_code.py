"""The types that users see are those of `user_code.py`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_check_of_types_looks_at_user_code():
    """`python -m tests` runs mypy before the tests, over all that is named here, and strictly."""
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    options = project["tool"]["mypy"]
    assert options["strict"]
    assert "tests/typing/user_code.py" in options["files"]
    assert (HERE / "user_code.py").is_file()


@pytest.mark.long
def test_mypy_finds_the_types_that_user_code_expects():
    command = [sys.executable, "-m", "mypy", str(HERE / "user_code.py")]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
