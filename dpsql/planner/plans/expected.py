"""Expected errors of statements, in rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.workload import Workload

EXPECTED = {
    "statement": pl.String(),
    "rows": pl.Int64(),
    "rmse": pl.Float64(),
    "worst_standard_error": pl.Float64(),
}
"""The columns of `Plan.expected_error`."""


@dataclass(slots=True)
class _Error:
    """Sums over the variances of a statement."""

    rows: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, rows: int, total: float, largest: float) -> None:
        self.rows += rows
        self.total += total
        self.largest = max(self.largest, largest)


@one_thread
def error_table(reconstruction: Reconstruction, workload: Workload) -> pl.DataFrame:
    """Return the error of each statement; see `Plan.expected_error`."""
    table: dict[str, _Error] = {}
    for family in (family.shown for family in workload.families):
        error = table.setdefault(family.name, _Error())
        error.add(family.count, *reconstruction.extent(family, workload.domain))
    return pl.DataFrame(
        {
            "statement": list(table),
            "rows": [e.rows for e in table.values()],
            "rmse": [math.sqrt(e.total / e.rows) if e.rows else 0.0 for e in table.values()],
            "worst_standard_error": [math.sqrt(e.largest) for e in table.values()],
        },
        schema=EXPECTED,
    )
