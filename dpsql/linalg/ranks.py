"""Ranks that are seen without a factorization."""

from __future__ import annotations

import numpy as np

from dpsql.linalg.matrices import StructuredMatrix


def least_rank(matrix: StructuredMatrix) -> int:
    """Return what the rank isn't below: the rank itself of single cells and of runs, else 0.

    A run is an edge between the two places where it begins and ends, and the rank of some runs is
    that of their graph: places less connected parts. That is not so where some go around.
    """
    if matrix.is_written:
        return 0
    squares = matrix.cell_squares()
    if squares is not None:
        return int(np.count_nonzero(squares))
    runs = matrix.runs()
    if runs is None or (runs[1] > matrix.cells).any():
        return 0
    from scipy.sparse import coo_array  # slow to import, and seldom needed
    from scipy.sparse.csgraph import connected_components

    low, high = runs
    places, ends = np.unique(np.concatenate([low, high]), return_inverse=True)
    edges = (ends[: len(low)], ends[len(low) :])
    graph = coo_array((np.ones(len(low)), edges), shape=(len(places),) * 2)
    parts, _ = connected_components(graph, directed=False)
    return len(places) - int(parts)
