"""Quantiles: from counts of values to cumulative counts."""

from __future__ import annotations

import numpy as np

from dpsql.linalg.matrices import Intervals
from dpsql.sql.lowering.matrices import LoweredBlock


def cumulative(counted: LoweredBlock, values: int) -> LoweredBlock:
    """Sum the rows of every group from the first value up to each.

    Args:
        counted: its rows are groups × values, in C order.
        values: the number of values.

    Returns:
        As many rows; row (g, v) counts the rows of group g with a value of at most v.
    """
    cells = counted.rows.cells
    if counted.runs is not None:
        low, high = (ends.reshape(-1, values) for ends in counted.runs)
        if np.array_equal(low[:, 1:], high[:, :-1]):  # each run goes on where the last one ends
            return counted.with_rows(Intervals(cells, np.repeat(low[:, 0], values), high.ravel()))
    summed = counted.dense().reshape(-1, values, cells).cumsum(axis=1)
    return counted.with_dense(summed.reshape(-1, cells))
