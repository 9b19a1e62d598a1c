"""The same plans on every processor: what is measured, compared between kernels of BLAS.

    python -m tests.benchmarks.processors [NAME …] [--settings SETTING …] [--threads N …]

A hundred scripts and workloads are planned in a process of its own for each setting: kernels of
OpenBLAS, which it chooses by the processor unless `OPENBLAS_CORETYPE` says so, sets of instructions
that NumPy may not use, and numbers of threads. Compared are the digests of what would be measured:
integers and variances of noise, as they are certified. Printed are the plans that differ from those
of the first setting, with both errors, and then how many differ. Nothing is timed, and nothing is
released: a plan needs the domains and no rows. With names, only scripts with one of them in theirs
are planned.

Where NumPy can't do without some instructions, or the processor hasn't those of a kernel, the
setting is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__

import dpsql
from dpsql.planner import registry
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Suffix, Workload
from tests.benchmarks import compared_totals
from tests.helpers.overlapping import overlapping
from tests.helpers.random_scripts import script, table

ROOT = Path(__file__).parents[2]
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
KERNELS = ("Haswell", "Zen", "Prescott", "Sandybridge", "SkylakeX")
WITHOUT = {
    "no AVX-512": [name for name in __cpu_dispatch__ if name.startswith(("AVX512", "X86_V4"))],
    "no AVX2": __cpu_dispatch__,
}
"""What NumPy may not use of a processor, by the name of the setting: it knows names of its own."""
SETTINGS = (*KERNELS, *WITHOUT)
THREADS = ("1", "2")
ONLY_ON = {"SkylakeX": "avx512f", "Haswell": "avx2", "Zen": "avx2", "Sandybridge": "avx"}
"""The instructions that a kernel needs, as Linux names them."""

Made = Callable[[], dpsql.Plan]


def adult() -> dpsql.Plan:
    """Plan the script of the demo."""
    from tests.release.adult import EXAMPLES, connect

    session = dpsql.Session(connect(), budget=dpsql.Budget(epsilon=2, delta=1e-9))
    return session.plan(dpsql.read_script(EXAMPLES / "adult_release.sql"), budget=BUDGET)


def at_random(seed: int) -> dpsql.Plan:
    """Plan a small random script."""
    generator = random.Random(seed)  # noqa: S311
    return dpsql.Session(table(generator)).plan(script(generator), budget=BUDGET)


def compared(sizes: Sequence[int], slopes: Sequence[int], beside: str) -> dpsql.Plan:
    """Plan comparisons of two or three columns, and something beside them."""
    names = [f"a{i}" for i in range(len(sizes))]
    asked = Workload(dict(zip(names, sizes, strict=True)) | {"g": 3})
    asked.add(names, Matrix.affine(tuple(sizes), tuple(slopes)))
    if beside == "groups":
        asked.add(["g"], [Identity()], 2.0).add(["g", "a0"], [Identity(), Identity()])
    else:
        asked.add([names[0]], [Prefix()], 3.0).add([names[-1]], [AllRange()])
    return dpsql.plan(asked, budget=BUDGET)


def tables(bounds: Sequence[int], *statements: Mapping[str, int]) -> dpsql.Plan:
    """Plan counts of several tables, whose totals are compared."""
    return registry.plan(compared_totals.script([(k, [{}, *statements]) for k in bounds]), BUDGET)


def mixed(seed: int) -> dpsql.Plan:
    """Plan families over overlapping sets of columns, which are asked for different things."""
    return dpsql.plan(overlapping(random.Random(seed)), budget=BUDGET)  # noqa: S311


def cumulative(cells: int, columns: int, factor: object = None) -> Workload:
    """Ask cumulative counts along each column and each two."""
    asked = Workload({f"a{i}": cells for i in range(columns)})
    along = Prefix() if factor is None else factor
    for name in asked.domain:
        asked.add([name], [along])
    for pair in combinations(asked.domain, 2):
        asked.add(list(pair), [along, along])
    return asked


def by_groups(cells: int) -> Workload:
    """Ask cumulative counts by groups, and groups of another column."""
    asked = Workload({"a": cells, "b": 8, "c": 5})
    asked.add(["a", "b"], [Prefix(), Identity()]).add(["b", "c"], [Identity(), Identity()])
    return asked.add(["a", "c"], [Suffix(), Identity()], 0.3)


def least_budget(cells: int) -> dpsql.Plan:
    """Find the least budget for standard errors."""
    asked = Workload({"a": cells, "b": 4}).add(["a"], [Prefix()], name="totals")
    asked.add(["a", "b"], [Identity(), Identity()], name="groups")
    return dpsql.plan(asked, targets={"totals": 10, "groups": 5})


def afterwards(cells: int) -> dpsql.Plan:
    """Plan on what an earlier plan measured."""
    first = dpsql.plan(Workload({"a": cells, "b": 8}).add(["a"], [Prefix()]), budget=BUDGET)
    asked = Workload({"a": cells, "b": 8}).add(["a", "b"], [Prefix(), Identity()])
    return dpsql.plan(asked, budget=BUDGET, given=[first])


def _plans() -> dict[str, Made]:
    found: dict[str, Made] = {"the demo": adult}
    found |= {f"random script {seed}": partial(at_random, seed) for seed in range(42)}
    found |= {f"overlapping families {seed}": partial(mixed, seed) for seed in range(14)}
    for sizes, slopes in (
        ((6, 6), (1, 1)), ((9, 5), (1, -1)), ((12, 12), (1, 1)), ((8, 30), (3, -1)),
        ((5, 5, 4), (1, 1, -1)),
    ):  # fmt: skip
        for beside in ("groups", "ranges"):
            name = f"comparisons of {' x '.join(map(str, sizes))} beside {beside}"
            found[name] = partial(compared, sizes, slopes, beside)
    for bounds in ((1, 1), (1, 30), (1, 2, 5, 10), (3, 4, 5), (1,) * 10):
        for statements in (({"g": 4},), ({"g": 12, "h": 5}, {"h": 5})):
            name = f"tables {bounds} with {len(statements)} statements"
            found[name] = partial(tables, bounds, *statements)
    for cells, columns in ((3, 2), (5, 4), (10, 2), (40, 2), (7, 3), (300, 1), (1500, 1)):
        found[f"cumulative counts of {columns} columns of {cells}"] = partial(
            dpsql.plan, cumulative(cells, columns), budget=BUDGET
        )
    for cells in (6, 20, 90):
        ranges = cumulative(cells, 1 if cells > 20 else 2, AllRange())
        found[f"ranges of {cells}"] = partial(dpsql.plan, ranges, budget=BUDGET)
    for cells in (20, 100, 361):
        found[f"by groups of {cells}"] = partial(dpsql.plan, by_groups(cells), budget=BUDGET)
    for cells in (12, 60, 150):
        found[f"the least largest variance of {cells}"] = partial(
            dpsql.plan, by_groups(cells), budget=BUDGET, objective="largest"
        )
        found[f"the least budget for {cells}"] = partial(least_budget, cells)
        found[f"after an earlier plan for {cells}"] = partial(afterwards, cells)
    found["uniform references"] = partial(
        dpsql.plan, cumulative(9, 3), budget=BUDGET, residuals="uniform"
    )
    return found


PLANS = _plans()
QUICK = ("comparisons of 6 x 6", "tables (1, 30)", "overlapping families 3")
"""Of them, those that a default test plans under other kernels."""


def chosen(names: Sequence[str]) -> dict[str, Made]:
    """Return the plans with one of some names in theirs; all if there are none."""
    return {k: made for k, made in PLANS.items() if not names or any(n in k for n in names)}


def environment(setting: str, threads: str) -> dict[str, str]:
    """Return the variables that make NumPy and OpenBLAS compute as another processor would."""
    given = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), threads)
    if setting in WITHOUT:
        return {**os.environ, **given, "NPY_DISABLE_CPU_FEATURES": " ".join(WITHOUT[setting])}
    return {**os.environ, **given, "OPENBLAS_CORETYPE": setting}


def is_possible(setting: str) -> bool:
    """Whether this processor has the instructions of a kernel."""
    needed = ONLY_ON.get(setting)
    cpu = Path("/proc/cpuinfo")
    return needed is None or not cpu.exists() or needed in cpu.read_text(encoding="utf-8").split()


def planned(setting: str, threads: str, names: Sequence[str]) -> dict[str, list[object]]:
    """Return the digest of each plan, and its error, as planned under a setting."""
    command = [sys.executable, "-m", "tests.benchmarks.processors", *names, "--here"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(setting, threads), check=True,
        stdout=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def main() -> int:
    """Plan under each setting, and print what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--settings", nargs="*", default=SETTINGS, choices=SETTINGS)
    parser.add_argument("--threads", nargs="*", default=THREADS)
    parser.add_argument("--here", action="store_true", help="plan here, and print digests")
    given = parser.parse_args()
    if given.here:
        made = {name: make() for name, make in chosen(given.names).items()}
        print(json.dumps({k: [plan.certified.digest, plan.rmse] for k, plan in made.items()}))
        return 0
    different, first = 0, None
    for threads in given.threads:
        for setting in filter(is_possible, given.settings):
            found = planned(setting, threads, given.names)
            first = found if first is None else first
            others = [k for k, (digest, _) in found.items() if digest != first[k][0]]
            for name in others:
                print(f"  {name}: {first[name][1]!r} {found[name][1]!r}")
            different += len(others)
            print(f"{setting}, {threads} threads: {len(others)} of {len(found)} differ", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
