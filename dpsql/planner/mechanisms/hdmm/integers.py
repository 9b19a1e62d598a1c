"""Real strategies in integers of a given width.

All keep full column rank, so that every cell follows from what is measured, without a bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.matrices import check_entries
from dpsql.measurement.integer import DenseFactor, IdentityFactor, IntegerFactor
from dpsql.planner.mechanisms.hdmm.strategies import Even, Noise, Strategy, Written
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import round_strategy

Ints = NDArray[np.int64]

IDENTITY_BITS = 20
"""Width of cells that are measured alone: noise of any variance then fits integers closely."""
SPARE = 1 << 10
"""How much less than the total the cells are measured that nobody asks for."""


def rounded(strategies: Sequence[Strategy], noise: Noise, bits: int) -> tuple[IntegerFactor, ...]:
    """Round the strategies of a product of which the entries may have `bits` bits in all.

    Cells alone need no bits. The others share them.
    """
    if not strategies:
        return (DenseFactor((), (), np.array([[1 << bits]], dtype=np.int64)),)
    lossy = [i for i, s in enumerate(strategies) if not _is_identity(s)]
    share = max(1, bits // max(1, len(lossy)))
    factors: list[IntegerFactor] = []
    for axis, strategy in enumerate(strategies):
        if axis in lossy:
            matrix = _matrix(strategy, noise, share)
            factors.append(DenseFactor((axis,), (strategy.cells,), matrix))
        else:
            scale = 1 << (min(bits, IDENTITY_BITS) if not lossy and axis == 0 else 0)
            factors.append(IdentityFactor((axis,), (strategy.cells,), scale))
    return tuple(factors)


def joint(strategy: Strategy, noise: Noise, sizes: Sequence[int], bits: int) -> DenseFactor:
    """Round a strategy over the joint cells of several attributes."""
    axes = tuple(range(len(sizes)))
    return DenseFactor(axes, tuple(sizes), _matrix(strategy, noise, bits))


def realised(factor: IntegerFactor, strategy: Strategy, noise: Noise) -> Strategy:
    """Return what became of a strategy, scaled to sensitivity 1."""
    change = factor.largest_column_sum
    norm = float(change) if noise == "laplace" else math.sqrt(factor.largest_column_norm_squared)
    if isinstance(factor, IdentityFactor):
        return Even(factor.cells, 1.0, 0.0)
    matrix = factor.matrix.astype(np.float64) / norm
    if isinstance(strategy, Even):
        total = float(matrix[strategy.cells, 0]) if len(matrix) > strategy.cells else 0.0
        return Even(strategy.cells, float(matrix[0, 0]), total)
    return Written.of(matrix)


def _is_identity(strategy: Strategy) -> bool:
    return strategy.cells == 1 or (isinstance(strategy, Even) and not strategy.total)


def _matrix(strategy: Strategy, noise: Noise, bits: int) -> Ints:
    if isinstance(strategy, Even):
        return _even(strategy, bits)
    rows = strategy.rows()
    if noise == "laplace":
        return _p_identity(rows, bits)
    basis = np.eye(strategy.cells, dtype=np.int64)
    return round_strategy(over_basis(rows, basis, lambda scaled: scaled), bits)


def _even(strategy: Even, bits: int) -> Ints:
    """Write it out. If only the total is asked, each cell is measured nonetheless, at `SPARE`."""
    n = strategy.cells
    check_entries(n + 1, n)
    scale = (1 << bits) / max(strategy.each, strategy.total)
    each = max(1, (1 << bits) // SPARE, round(strategy.each * scale))
    total = round(strategy.total * scale)
    cells = each * np.eye(n, dtype=np.int64)
    return np.vstack([cells, np.full((1, n), total)]) if total else cells


def _p_identity(rows: NDArray[np.float64], bits: int) -> Ints:
    """Round all entries; those of the cells stay above 0, and empty queries go."""
    n = rows.shape[1]
    matrix = np.rint(rows * ((1 << bits) / float(rows.max()))).astype(np.int64)
    at = np.arange(n)
    matrix[at, at] = np.maximum(matrix[at, at], 1)
    return np.vstack([matrix[:n], matrix[n:][matrix[n:].any(axis=1)]])
