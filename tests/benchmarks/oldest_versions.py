"""Which versions of the dependencies the tests pass with: the source of the lower bounds.

python -m tests.benchmarks.oldest_versions                     all lower bounds at once
python -m tests.benchmarks.oldest_versions numpy 2.0.2 1.26.4  one package, the others as they are

Each version is installed in a throw-away environment, which runs a sample of the tests (or those
that follow `--`). With several versions, the first that fails ends the search: give the newest
first. A bound in pyproject.toml is the oldest version that passes by itself and with all others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]

SAMPLE = (
    "tests/cli/test_release.py",
    "tests/cli/test_query.py",
    "tests/engines/test_duckdb_engine.py",
    "tests/faces",
    "tests/measurement/test_noise.py",
    "tests/planner/test_rounding.py",
    "tests/planner/mechanisms/test_residualplanner.py",
    "tests/privacy/test_conversions.py",
    "tests/privacy/test_ledger.py",
    "tests/release/test_computed.py",
    "tests/release/test_folder.py",
    "tests/release/test_measurements.py",
    "tests/schema/test_catalog.py",
    "tests/session/test_sessions.py",
    "tests/sql/test_accepted.py",
    "tests/sql/test_hints.py",
    "tests/sql/test_mistakes.py",
    "tests/sql/test_refused.py",
    "tests/sql/test_sandbox.py",
)


def lower_bounds() -> list[str]:
    """Write every dependency, of the package and of its extras, as `name==bound`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    found = (re.match(r"([\w-]+)>=([\w.]+)", line) for line in wanted)
    return [f"{match[1]}=={match[2]}" for match in found if match]


def python_of(folder: Path, *, shared: bool) -> Path:
    """Make an environment, which sees the packages of this one too if it is shared."""
    venv.create(folder, with_pip=True)
    if shared:
        here = [path for path in sys.path if path.endswith("site-packages")]
        (there,) = folder.glob("lib/python*/site-packages")
        (there / "shared.pth").write_text("\n".join([str(ROOT), *here]), encoding="utf-8")
    return folder / "bin" / "python"


def passes(wanted: list[str], tests: tuple[str, ...], *, shared: bool) -> bool:
    """Install what is wanted, and run the tests with it."""
    with tempfile.TemporaryDirectory() as folder:
        python = python_of(Path(folder), shared=shared)
        targets = wanted
        if not shared:
            constraints = Path(folder, "constraints.txt")
            constraints.write_text("\n".join(wanted), encoding="utf-8")
            targets = ["-c", str(constraints), "-e", f"{ROOT}[test]"]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", *targets]
        run_tests = [str(python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **one_thread}
        return all(
            subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0
            for command in (pip, run_tests)
        )


def main() -> int:
    arguments, tests = sys.argv[1:], SAMPLE
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, tests = arguments[:cut], tuple(arguments[cut + 1 :])
    print(f"Python {sysconfig.get_python_version()}", flush=True)
    if not arguments:
        wanted = lower_bounds()
        print(*wanted, sep="\n", flush=True)
        return 0 if passes(wanted, tests, shared=False) else 1
    package, *versions = arguments
    for version in versions:
        passed = passes([f"{package}=={version}"], tests, shared=True)
        print(f"RESULT {package} {version}: {'passes' if passed else 'fails'}", flush=True)
        if not passed:
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
