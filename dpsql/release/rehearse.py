"""Rehearse what statements compute on their answers, before anything is charged.

Invented answers take the place of noisy ones. What fails for them would most likely fail for the
real ones too, which would then have been paid for in vain.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from dpsql.errors import SqlError
from dpsql.linalg.arrays import Array
from dpsql.release.answers import GroupBox, computed
from dpsql.release.quantiles import Quantiles
from dpsql.sql.compiled import Script, StatisticColumn

MAX_ROWS = 200_000
"""Statements over more groups are not rehearsed: it would take as long as the answer."""


class _Invented:
    """Answers that look like noisy counts of a larger table."""

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return fractional numbers of several sizes."""
        return np.asarray(1_000.25 + 37.7 * (np.arange(part.rows) % 101))

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variances of small noise."""
        return np.ones(part.rows)

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> Quantiles:
        """Return the first value of each quantile's expression."""
        known = column.values if column.values is not None else pl.Series([0.0])
        values = known.gather(np.zeros(part.rows, dtype=np.int64))
        if column.quantile is not None and column.quantile.continuous:
            values = values.cast(pl.Float64)
        return Quantiles(values, values, values, pl.Series(np.full(part.rows, 1_000.25)))


def rehearse(script: Script) -> None:
    """Run every statement that computes on its answers once, on invented ones.

    Raises:
        SqlError: one fails.
    """
    for statement in script.statements:
        if statement.post is None or statement.rows > MAX_ROWS:
            continue
        try:
            computed(statement, statement.post, _Invented(), 0.0)
        except SqlError as error:
            error.sql = statement.sql
            error.statement = statement.name if len(script.statements) > 1 else None
            raise
