"""Quantiles: from counts of values to cumulative counts."""

from __future__ import annotations

import numpy as np

from dpsql.sql.lowering.matrices import Rows, Runs, compact, from_dense


def cumulative(counted: Rows, values: int, columns: tuple[str, ...]) -> Rows:
    """Sum the rows of every group from the first value up to each.

    Args:
        counted: rows are groups × values, in C order.
        values: the number of values.
        columns: what the cells are of, for error messages.

    Returns:
        As many rows; row (g, v) counts the rows of group g with a value of at most v.
    """
    if isinstance(counted, Runs):
        low, high = counted.low.reshape(-1, values), counted.high.reshape(-1, values)
        if np.array_equal(low[:, 1:], high[:, :-1]):  # each run goes on where the last one ends
            first = np.repeat(low[:, 0], values)
            return Runs(counted.cells, first, counted.high)
    dense = counted.expanded(columns).dense(columns)
    summed = dense.reshape(-1, values, counted.cells).cumsum(axis=1)
    return compact(from_dense(summed.reshape(counted.rows, counted.cells)))
