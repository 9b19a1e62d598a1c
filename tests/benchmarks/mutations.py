"""Whether the default tests see when something that is trusted is no longer right.

python -m tests.benchmarks.mutations            all of them
python -m tests.benchmarks.mutations ledger     those with a word in their names

Each changes a line of a copy of the project, in a folder of its own, and runs those default tests
there that should fail then. They pass without the change, which is seen first. Whatever passes with
it is a hole in the tests, and the status is 1 then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("dpsql", "docs", "examples", "tests", "pyproject.toml", "README.md", "CHANGELOG.md")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A line that is written otherwise, and the tests that must fail then."""

    name: str
    file: str
    line: str
    instead: str
    tests: tuple[str, ...]

    def applied(self, folder: Path) -> str:
        """Change the line, and return what the file was."""
        path = folder / "dpsql" / self.file
        before = path.read_text(encoding="utf-8")
        if before.count(self.line) != 1:
            raise SystemExit(f"{self.name}: this line is no longer once in {self.file}")
        path.write_text(before.replace(self.line, self.instead), encoding="utf-8")
        return before


MUTATIONS = (
    Mutation(
        "sampler: noise is never positive",
        "measurement/gaussian.py",
        "return np.where(words & np.uint64(1), magnitude, -magnitude)",
        "return -np.abs(magnitude)",
        ("tests/measurement/test_noise.py",),
    ),
    Mutation(
        "sampler: half the variance",
        "measurement/gaussian.py",
        "_filter(math.sqrt(sigma_squared), uniform, quantile)",
        "_filter(math.sqrt(sigma_squared / 2), uniform, quantile)",
        ("tests/measurement/test_noise.py",),
    ),
    Mutation(
        "ledger: a charge may be more than is left",
        "privacy/ledger.py",
        "if left is None or left_delta is None or history.covers(cost):",
        "if left is None or left_delta is None or left >= 0:",
        ("tests/privacy/test_ledger.py",),
    ),
    Mutation(
        "ledger: a table may get another unit",
        "privacy/history.py",
        "if bound is not None and bound.unit != table.unit:",
        "if bound is not None and bound.unit is table:",
        ("tests/privacy/test_ledger_tables.py", "tests/release/test_units.py"),
    ),
    Mutation(
        "sensitivity: k rows of a unit cost k times as much, not k² times",
        "measurement/certify.py",
        "times = contributions if pure == {True} else contributions**2",
        "times = contributions",
        ("tests/measurement/test_units.py", "tests/release/test_units.py"),
    ),
    Mutation(
        "worst row: the least number over an attribute, not the largest",
        "measurement/worst_row.py",
        "np.asarray(self.cells.max(axis=place, initial=0), dtype=object)",
        "np.asarray(self.cells.min(axis=place), dtype=object)",
        ("tests/measurement/test_worst_row.py",),
    ),
    Mutation(
        "worst row: costs are rounded down",
        "measurement/worst_row.py",
        "-(-product // self.width)",
        "product // self.width",
        ("tests/measurement/test_worst_row.py",),
    ),
    Mutation(
        "worst row: a unit of several rows in a table is taken for one row",
        "measurement/certify.py",
        "all(f.rows == 1 for f in block.factors if isinstance(f, MeasureFactor))",
        "True",
        ("tests/measurement/test_worst_row.py",),
    ),
    Mutation(
        "worst row: nobody asks how many rows of a unit are in a sum",
        "measurement/measure.py",
        "_check_rows(self.certified, counted)",
        "pass",
        ("tests/measurement/test_worst_row.py",),
    ),
    Mutation(
        "clamping: what is above the bounds is added up as it is",
        "engines/duckdb/sums.py",
        'outside, above = f"{name} < {low} OR {name} > {high}"',
        'outside, above = f"{name} < {low}"',
        ("tests/engines/test_measures.py",),
    ),
    Mutation(
        "max_rows: a unit keeps a row more",
        "engines/duckdb/bounded.py",
        'k = whole(most, "BIGINT")',
        'k = whole(most + 1, "BIGINT")',
        ("tests/engines/test_bounded.py",),
    ),
    Mutation(
        "unit keys: limits are for the rows of all units together",
        "engines/duckdb/relations.py",
        'id_ = call("row", id_, *(f"t0.{column}" for column in agree))',
        'id_ = call("row", *(f"t0.{column}" for column in agree))',
        ("tests/engines/test_limits.py",),
    ),
    Mutation(
        "bounds: a difference is as a sum",
        "rows/known.py",
        '"difference": _subtracted,',
        '"difference": _added,',
        ("tests/rows/test_known.py",),
    ),
    Mutation(
        "sandbox: any function may run",
        "sql/sandbox/permitted.py",
        'if "function_name" in node and node["function_name"] not in RUN:',
        'if "function_name" in node and not node["function_name"]:',
        ("tests/sql/test_sandbox.py",),
    ),
    Mutation(
        "sandbox: there may be several queries",
        "sql/sandbox/permitted.py",
        'if len(document["statements"]) != 1:',
        'if not document["statements"]:',
        ("tests/sql/test_sandbox.py",),
    ),
    Mutation(
        "neighbors: rows that are spread out cost what their share is alone",
        "workload/spread.py",
        "return Fraction(int(found) << shift, self.share.denominator**2)",
        "return Fraction(int(found) << shift, self.share.denominator**3)",
        ("tests/measurement/test_spread.py", "tests/release/test_spread_out.py"),
    ),
    Mutation(
        "budget: a plan may cost twice what it is given",
        "measurement/certify.py",
        "if cost > (self.budget.amount if self.budget.pure else self.budget.mu_squared):",
        "if cost > 2 * (self.budget.amount if self.budget.pure else self.budget.mu_squared):",
        ("tests/measurement",),
    ),
    Mutation(
        "choices: scores count twice",
        "measurement/exponential.py",
        "slope = exact_ball(-steepness)",
        "slope = exact_ball(-2 * steepness)",
        ("tests/measurement/test_quantiles.py", "tests/measurement/adaptive"),
    ),
    Mutation(
        "choices: many candidates count as one",
        "measurement/exponential.py",
        "m.numerator * weights[d] / m.denominator",
        "weights[d] / m.denominator",
        ("tests/measurement/test_quantiles.py", "tests/measurement/adaptive"),
    ),
    Mutation(
        "quantiles: k rows of a unit cost k times as much, not k² times",
        "measurement/quantiles.py",
        "return self.most * self.contributions**2 * selection_cost(self.epsilon)",
        "return self.most * self.contributions * selection_cost(self.epsilon)",
        ("tests/measurement/test_quantiles.py",),
    ),
    Mutation(
        "quantiles: a row changes scores by the lesser of two numbers",
        "measurement/quantiles.py",
        "return 2 * max(a, b - a)",
        "return 2 * min(a, b - a) or 2",
        ("tests/measurement/test_quantiles.py",),
    ),
    Mutation(
        "halving: all levels cost as much as one",
        "measurement/halving.py",
        "return levels * self.most * self.contributions**2 * selection_cost(self.epsilon)",
        "return self.most * self.contributions**2 * selection_cost(self.epsilon)",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "halving: rows with the value of a cut are on both sides",
        "measurement/halving.py",
        "np.clip(rows[own], low.rows, high.rows) - low.rows",
        "rows[own] - low.rows",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "halving: a row of many with one value counts as much as a place",
        "measurement/halving.py",
        "[1] * len(free) + share[at].tolist()",
        "[1] * len(free) + [1] * len(at)",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "halving: all rows with the value of a cut are on its right",
        "measurement/halving.py",
        "left += number",
        "pass",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "halving: values of which all rows are elsewhere are in a part",
        "measurement/halving.py",
        "there = below < upto",
        "there = below <= upto",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "halving: of rows that aren't read, none are on the left",
        "measurement/halving.py",
        "if at < cuts.gaps:",
        "if False:",
        ("tests/measurement/test_halving.py",),
    ),
    Mutation(
        "ranks: values beyond the line stay where they are",
        "engines/duckdb/ranked.py",
        "{_within(self.values.line)} AS v",
        "v",
        ("tests/engines/test_ranked.py",),
    ),
    Mutation(
        "keys: one that a unit fewer has is told",
        "measurement/keys.py",
        "(units >= round_.least)",
        "(units >= round_.least - 1)",
        ("tests/measurement/test_keys.py",),
    ),
    Mutation(
        "relations: a row more of a unit may be counted than is charged for",
        "rel/check.py",
        "if most is None or node.rows > most or kept != charged:",
        "if most is None or node.rows > most + 1 or kept != charged:",
        ("tests/rel/test_check.py",),
    ),
    Mutation(
        "relations: rows of two units may meet",
        "rel/check.py",
        "if len({scan.source.ids for scan in scans}) > 1 or",
        "if len({scan.source.ids for scan in scans}) > 2 or",
        ("tests/rel/test_check.py",),
    ),
    Mutation(
        "ledger: what a charge was used for may be used again",
        "privacy/ledger.py",
        "        if unused:\n            _refuse_used(entry)",
        "        if not unused:\n            _refuse_used(entry)",
        ("tests/privacy/test_ledger.py",),
    ),
    Mutation(
        "max_rows: units with a row too many keep it",
        "engines/duckdb/bounded.py",
        'f"GROUP BY {id_} HAVING {count} > {most}"',
        'f"GROUP BY {id_} HAVING {count} > {most} + 1"',
        ("tests/engines/test_bounded.py",),
    ),
    Mutation(
        "rows outside of a domain are clamped where they are to be left out",
        "engines/codes.py",
        'if domain.outside != "clamp":',
        'if domain.outside == "clamp":',
        ("tests/engines/test_codes.py",),
    ),
    Mutation(
        "archive: what was measured of other rows is taken for these",
        "session/archive.py",
        'times = "" if self.state.vintage or not roots else digest([_PROCESS, states])',
        'times = ""',
        ("tests/session/test_files.py",),
    ),
    Mutation(
        "archive: what Spark measured of other files is taken for these",
        "session/archive.py",
        'return DataState("", digest(["files", joined, _PROCESS, stored.files]))',
        'return DataState("", digest(["files", joined, _PROCESS]))',
        (
            "tests/engines/spark/test_session.py::test_files_that_changed_have_measurements_of_their_own",
        ),
    ),
)


def passes(folder: Path, tests: tuple[str, ...]) -> bool:
    """Whether default tests pass in a copy of the project."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode not in {0, 1}:
        raise SystemExit(ended.stdout + ended.stderr)
    return ended.returncode == 0


def main(words: list[str]) -> int:
    chosen = [one for one in MUTATIONS if all(word in one.name for word in words)]
    missed = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        if not passes(folder, tuple(sorted({test for one in chosen for test in one.tests}))):
            raise SystemExit("the tests fail without any change")
        for one in chosen:
            before = one.applied(folder)
            seen = not passes(folder, one.tests)
            (folder / "dpsql" / one.file).write_text(before, encoding="utf-8")
            print("seen  " if seen else "MISSED", one.name, flush=True)
            missed += [] if seen else [one]
    return len(missed) > 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
