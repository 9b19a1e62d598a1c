"""Ranks that are seen without a factorization are those that a factorization finds."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.linalg.matrices import Dense, Exchangeable, Intervals, least_rank


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_runs(seed):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, 12, (rng.integers(1, 14), 2)), axis=1)
    runs = Intervals(12, ends[:, 0], ends[:, 1] + 1)
    assert least_rank(runs) == np.linalg.matrix_rank(runs.matrix)


def test_ranks_of_cells():
    cells = Intervals(5, np.array([1, 3, 1]), np.array([2, 4, 2]))
    assert least_rank(cells) == 2
    assert least_rank(Exchangeable(7)) == 7


def test_nothing_is_said_of_what_goes_around_or_is_written():
    assert least_rank(Intervals(4, np.array([3]), np.array([5]))) == 0
    assert least_rank(Dense(np.eye(3))) == 0
