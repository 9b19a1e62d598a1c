"""What a release costs by rows and by cells, for the model in docs/explanation/scale.md.

python -m tests.benchmarks.cost_model rows 1000000     all pairs of 12 columns are counted
python -m tests.benchmarks.cost_model cells 1000000    one marginal is measured and answered
python -m tests.benchmarks.cost_model words 1000000    so it is, where 64 bits are too few
python -m tests.benchmarks.cost_model parts 1250000    the cells that a part of the rows fills

One size for each process, because memory is told as its peak.
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import combinations

import duckdb
import numpy as np

import dpsql
from dpsql.engines.base import Counted
from dpsql.engines.cover import cover
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.measurement.measure import measure
from dpsql.workload import Identity, Workload
from tests.benchmarks.counting import SIZES, make_table
from tests.helpers.charging import pay

SPARSE = 19
"""Bytes of a row of a partial count: the key, the number, and something for the block."""


class Clock:
    """CPU seconds since the last phase, of all threads, and the peak of memory so far."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def tell(self, what: str) -> None:
        """Print a phase."""
        now, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{now - self._last:8.3f} CPU s  peak {peak / 1024:7.0f} MB  {what}", flush=True)
        self._last = time.process_time()


def pairs() -> list[tuple[str, ...]]:
    """All pairs of the columns."""
    return list(combinations([f"c{i}" for i in range(len(SIZES))], 2))


def of_rows(rows: int) -> None:
    """Count all pairs of a table in memory."""
    con = duckdb.connect()
    table, clock = make_table(con, rows), Clock()
    clock.tell(f"{rows:,} rows are there")
    counted = DuckDBEngine(con).marginals(table, pairs())
    blocks = cover(pairs(), dict(zip(table.columns, SIZES, strict=True)))
    cells = sum(counts.size for counts in counted.values())
    clock.tell(f"counted {len(counted)} marginals of {cells:,} cells by {len(blocks)} scans")


def of_cells(cells: int, times: int = 1) -> None:
    """Measure and answer one marginal of about so many cells."""
    side = round(cells ** (1 / 3))
    workload = Workload({"a": side, "b": side, "c": side})
    workload.add(["a", "b", "c"], [Identity()] * 3)
    clock = Clock()
    plan = dpsql.plan(workload, budget=dpsql.Budget(rho=0.5))
    clock.tell(f"planned {side**3:,} cells")
    counts = np.random.default_rng(0).integers(0, 100, (side, side, side)) * times
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    gone = {s: tuple(i for i, n in enumerate("abc") if n not in s) for s in spaces}
    counted = Counted({s: np.asarray(counts.sum(axis=gone[s])) for s in spaces}, 1)
    clock.tell("made counts")
    measured = measure(pay(plan), counted)
    kinds = {str(values.dtype) for values in measured.values.values()}
    clock.tell(f"measured {sum(v.size for v in measured.values.values()):,} integers, {kinds}")
    values = plan.values(measured.values)
    found = plan.reconstruction.marginal(("a", "b", "c"), values)
    clock.tell(f"made answers; standard error {np.std(found - counts):.2f}")


def of_parts(rows: int) -> None:
    """Count by how many cells are filled of the blocks that all pairs are counted in."""
    con = duckdb.connect()
    table = make_table(con, rows)
    blocks = cover(pairs(), dict(zip(table.columns, SIZES, strict=True)))
    filled = all_cells = 0
    for block in blocks:
        (counts,) = DuckDBEngine(con).marginals(table, [block]).values()
        filled, all_cells = filled + int((counts > 0).sum()), all_cells + counts.size
    sparse, dense = filled * SPARSE / 1e6, all_cells * 8 / 1e6
    print(f"{rows:,} rows fill {filled:,} of {all_cells:,} cells of {len(blocks)} blocks")
    print(f"{sparse:.2f} MB of keys and numbers, {dense:.2f} MB of all cells")


def main() -> None:
    """Run what is named."""
    what, size = sys.argv[1], int(float(sys.argv[2]))
    if what == "rows":
        of_rows(size)
    elif what == "cells":
        of_cells(size)
    elif what == "words":
        of_cells(size, 2**45)
    else:
        of_parts(size)


if __name__ == "__main__":
    main()
