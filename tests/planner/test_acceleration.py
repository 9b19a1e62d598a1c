"""The fixed point of the dual is reached in few steps, with the certificate that it had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpsql.linalg import iterations
from dpsql.planner.strategies import dual
from dpsql.workload import AllRange, Matrix, Prefix

RANDOM = np.random.default_rng(0).random((60, 70)) < 0.3


@pytest.mark.parametrize(
    ("queries", "fewer"),
    [
        (Prefix().bind(120), 0.6),
        (AllRange().bind(24), 1.0),
        (Matrix(RANDOM).bind(70), 0.8),
        (Matrix.affine((9, 9), (1, 2)).bind(81), 0.8),
    ],
    ids=["prefix", "ranges", "random", "affine"],
)
def test_fewer_evaluations_for_the_same_bounds(queries, fewer, monkeypatch):
    problem = dual.Dual.of(queries.matrix, (queries.cells,))
    # Cumulative counts are solved in another way; here they are rows like others.
    parts = tuple(replace(part, nested=None) for part in problem.parts)
    problem = replace(problem, parts=parts)
    found = dual.maximize(problem, 1e-4)
    monkeypatch.setattr(iterations.Accelerated, "next", lambda self, delta, r: delta * np.exp(r))
    plain = dual.maximize(problem, 1e-4)
    assert max(found.gap, plain.gap) <= 1e-4
    assert found.evaluations <= fewer * plain.evaluations
    assert found.lower <= plain.upper
    assert plain.lower <= found.upper
