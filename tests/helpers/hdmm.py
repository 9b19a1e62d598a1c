"""HDMM's strategies, written out."""

from __future__ import annotations

import numpy as np

from dpsql.planner.mechanisms.hdmm_products import EvenStrategy, Noise, Strategy


def rows_of(strategy: Strategy) -> np.ndarray:
    """One row for each cell, and one for the total; or the rows that are there."""
    if not isinstance(strategy, EvenStrategy):
        return strategy.rows.copy()
    parts = [strategy.each * np.eye(strategy.cells)] if strategy.each else []
    if strategy.total or not strategy.each:
        parts.append(np.full((1, strategy.cells), strategy.total))
    return np.vstack(parts)


def sensitivity(rows: np.ndarray, noise: Noise) -> float:
    """Return the norm of the largest column."""
    if noise == "laplace":
        return float(np.abs(rows).sum(axis=0).max())
    return float(np.sqrt(np.square(rows).sum(axis=0).max()))
