"""Plan the workloads of the QuerySmasher paper again: `python examples/paper_tables.py`.

Each row of Tables 2 to 8 of arXiv 2604.00868 is planned from scratch in a process of its own, with
uniform residuals, as in the paper, and with weighted ones. `--quick` takes a few rows of each
table; `--table 4` takes one table; `--write PAGE` writes the result as a page.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dpsql
from dpsql.workload import (
    AllRange,
    CircularRange,
    Factor,
    Identity,
    Matrix,
    Prefix,
    Workload,
)

PUBLISHED = json.loads((Path(__file__).parent / "data" / "published.json").read_text("utf-8"))
TABLES = {
    2: "points and prefixes on real schemas",
    3: "affine and |x − y| comparisons on real schemas",
    4: "40 attributes of size n, one- and two-way",
    5: "ranges, affine comparisons and three-way prefixes on d attributes of size n",
    6: "planning time: one- and two-way prefixes on d attributes of size n",
    7: "planning time: the workloads of Table 5",
    8: "Table 4 with random weights",
}
SUBSTITUTED = 6000
"""Table 3 takes products of prefixes for pairs of attributes with more cells than this."""
QUICK = {2: (4, 7), 3: (), 4: (0, 1, 2, 3, 4, 5), 5: (0,), 6: (0,), 7: (0,), 8: ()}
BUDGET = dpsql.Budget(mu=1)

Row = dict[str, Any]


def hybrid(schema: str, ways: str) -> Workload:
    """Table 2: products of points (categorical) and prefixes (numeric)."""
    numeric, workload = _attributes(schema)
    sizes = (1, 2, 3) if ways == "<=3" else (int(ways),)
    for names in itertools.chain(*(itertools.combinations(workload.domain, k) for k in sizes)):
        factors = [Prefix() if name in numeric else Identity() for name in names]
        workload.add(list(names), factors)
    return workload


def comparisons(schema: str, family: str) -> Workload:
    """Table 3: all attributes numeric, one-way prefixes and two-way comparisons."""
    _, workload = _attributes(schema)
    for name in workload.domain:
        workload.add([name], [Prefix()])
    for a, b in itertools.combinations(workload.domain, 2):
        n, m = workload.domain[a], workload.domain[b]
        if n * m > SUBSTITUTED:
            workload.add([a, b], [Prefix(), Prefix()])
        else:
            workload.add([(a, b)], [_comparison(family, n, m)])
    return workload


def one_and_two_way(n: int, family: str, d: int = 40, *, weighted: bool = False) -> Workload:
    """Tables 4, 6 and 8: the same queries on all attributes and pairs."""
    workload = Workload({f"a{i}": n for i in range(d)})
    one, two = _factors(n, family)
    draw = np.random.default_rng(1)

    def weight() -> float:
        return float(draw.integers(1, 6)) if weighted else 1.0

    for name in workload.domain:
        workload.add([name], [one], weight())
    for a, b in itertools.combinations(workload.domain, 2):
        if two is None:
            workload.add([a, b], [one, one], weight())
        else:
            workload.add([(a, b)], [two], weight())
    return workload


def three_way(n: int, d: int) -> Workload:
    """Tables 5 and 7: ranges, pairs of affine comparisons, products of three prefixes."""
    workload = Workload({f"a{i}": n for i in range(d)})
    comparison = _comparison("affine", n, n)
    for name in workload.domain:
        workload.add([name], [AllRange()])
    for a, b in itertools.combinations(workload.domain, 2):
        workload.add([(a, b)], [comparison])
    for names in itertools.combinations(workload.domain, 3):
        workload.add(list(names), [Prefix()] * 3)
    return workload


def _attributes(schema: str) -> tuple[list[str], Workload]:
    kinds = PUBLISHED["schemas"][schema]
    categorical = [f"c{i}" for i in range(len(kinds["categorical"]))]
    numeric = [f"n{i}" for i in range(len(kinds["numeric"]))]
    sizes = kinds["categorical"] + kinds["numeric"]
    return numeric, Workload(dict(zip(categorical + numeric, sizes, strict=True)))


def _comparison(family: str, n: int, m: int) -> Matrix:
    """Return x + y <= c, or |x − y| <= c, for every c."""
    return Matrix.affine((n, m), (1, 1)) if family == "affine" else Matrix.difference((n, m))


def _factors(n: int, family: str) -> tuple[Factor, Factor | None]:
    """Return what is asked of one attribute, and of two if that is not a product."""
    if family == "random":
        draw = np.random.default_rng(0)
        return Matrix(draw.random((3 * n, n)) < 0.3), Matrix(draw.random((3 * n * n, n * n)) < 0.3)
    if family in ("affine", "abs"):
        return Prefix(), _comparison(family, n, n)
    products: dict[str, Factor] = {
        "marginal": Identity(),
        "prefix": Prefix(),
        "range": AllRange(),
        "circular": CircularRange(),
    }
    return products[family], None


def build(table: int, row: Row) -> Workload:
    """Return the workload of one row."""
    if table == 2:
        return hybrid(row["schema"], row["ways"])
    if table == 3:
        return comparisons(row["schema"], row["family"])
    if table == 6:
        return one_and_two_way(row["n"], "prefix", row["d"])
    if table in (5, 7):
        return three_way(row["n"], row["d"])
    return one_and_two_way(row["n"], row["family"], weighted=table == 8)


def plan_row(table: int, row: Row) -> Row:
    """Plan one row in this process."""
    workload = build(table, row)
    result: Row = {"queries": workload.count}
    for residuals in ("uniform", "weighted"):
        start = time.perf_counter()
        planned = dpsql.plan(workload, budget=BUDGET, residuals=residuals)
        result[residuals] = planned.rmse
        result[f"{residuals} s"] = time.perf_counter() - start
        result[f"{residuals} gap"] = planned.gap
        result[f"{residuals} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if table in (6, 7):  # the paper times uniform residuals
            break
    return result


def run(table: int, number: int) -> Row:
    """Plan one row in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--row", str(table), str(number)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    found: Row = json.loads(done.stdout)
    return found


def lines(table: int, numbers: Sequence[int]) -> Iterator[str]:
    """Yield a table as Markdown, row by row."""
    rows = PUBLISHED[f"table{table}"]
    timed = table in (6, 7)
    yield f"\n## Table {table}: {TABLES[table]}\n"
    if timed:
        yield "| row | queries | published s | s | published GB | MB | RMSE | gap |"
    else:
        yield "| row | queries | published | uniform | weighted | gaps | s | MB |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for number in numbers:
        row, found = rows[number], run(table, number)
        label = " ".join(str(row[k]) for k in ("schema", "ways", "family") if k in row)
        label = " ".join([*(f"{k}={row[k]}" for k in ("n", "d") if k in row), label]).strip()
        cells = (
            f"{row['total_s']:,} | {found['uniform s']:.2f} | {row['memory_gb']} | "
            f"{found['uniform MB']:.0f} | {found['uniform']:.3f} | {found['uniform gap']:.0e}"
            if timed
            else f"{row['querysmasher']} | {found['uniform']:.3f} | {found['weighted']:.3f} | "
            f"{found['uniform gap']:.0e}, {found['weighted gap']:.0e} | "
            f"{found['uniform s']:.2f}, {found['weighted s']:.2f} | {found['weighted MB']:.0f}"
        )
        yield f"| {label} | {found['queries']:,} | {cells} |"


HEADER = """# The published tables, planned again

Written by `python examples/paper_tables.py --write docs/reference/published-tables.md` on a
machine with 2 cores.

`published` is the RMSE at privacy cost 1 that the QuerySmasher paper (arXiv 2604.00868) reports
for its own planner; `uniform` and `weighted` are those of dpsql with the two kinds of residuals,
computed from the integers that would be measured. A gap is certified: no plan with the same
residual spaces has a total variance smaller by more than that. `s` is planning time, uniform
first; `MB` is the peak memory of the whole process. The paper's times and memory are from two
64-core processors with 1 TB. Random queries (Tables 4 and 8) and weights (Table 8) are drawn
anew, so that those rows compare roughly."""


def main() -> None:
    """Plan the rows that were asked for, and print or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rows of each table")
    parser.add_argument("--table", type=int, choices=TABLES, help="one table only")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--row", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        table, number = options.row
        print(json.dumps(plan_row(table, PUBLISHED[f"table{table}"][number])))
        return
    text = [HEADER]
    for table in [options.table] if options.table else TABLES:
        numbers = QUICK[table] if options.quick else range(len(PUBLISHED[f"table{table}"]))
        for line in lines(table, numbers) if numbers else ():
            print(line, flush=True)
            text.append(line)
    if options.write:
        options.write.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
