"""What is shipped, used elsewhere: build the sdist and the wheel, install the wheel, and test it.

Run it: python -m tests.benchmarks.built_packages [TEST …]

The wheel is built from the sdist and installed in a new environment, which runs the demo and then
tests (`TESTS`, or those that are named). They come from the sdist too, unpacked without its
`dpsql/`, so that what they import is what was installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = (
    "tests/cli/test_release.py",
    "tests/engines/test_duckdb_engine.py",
    "tests/faces/test_html.py",
    "tests/privacy/test_conversions.py",
    "tests/release/test_folder.py",
    "tests/sql/test_accepted.py",
)


def run(*command: str | Path, cwd: Path) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(c) for c in command], cwd=cwd, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        built, unpacked = place / "built", place / "unpacked"
        venv.create(place / "tools", with_pip=True)
        tools = place / "tools" / "bin" / "python"
        run(tools, "-m", "pip", "install", "--quiet", "hatchling", cwd=place)
        run(tools, "-m", "hatchling", "build", "-t", "sdist", "-d", built, cwd=ROOT)
        with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = unpacked.iterdir()
        run(tools, "-m", "hatchling", "build", "-t", "wheel", "-d", built, cwd=source)
        shutil.rmtree(source / "dpsql")
        venv.create(place / "other", with_pip=True)
        python = place / "other" / "bin" / "python"
        (wheel,) = built.glob("*.whl")
        run(python, "-m", "pip", "install", "--quiet", wheel, cwd=place)
        run(python.with_name("dpsql"), "demo", cwd=place)
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[test]", cwd=place)
        run(python, "-m", "pytest", "-q", *(sys.argv[1:] or TESTS), cwd=source)


if __name__ == "__main__":
    main()
