from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of these pages, built once for all processes that run tests; any warning fails."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    place, said = shared / "site", shared / "site.said"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            said.write_text(built(place, shared / "read"), encoding="utf-8")
    assert said.read_text(encoding="utf-8") == ""
    return place


def built(place: Path, read: Path) -> str:
    """Build the site; return what Sphinx says where it fails."""
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-d", read, ROOT / "docs", place],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return "" if result.returncode == 0 else f"{result.stderr}\nends with {result.returncode}"
