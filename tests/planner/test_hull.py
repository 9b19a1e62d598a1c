"""Vertices of convex hulls of columns, where rounding makes none of what lies on a side."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.linalg.hull import hull


@pytest.mark.parametrize("noise", [0.0, 1e-13, 1e-10])
def test_what_lies_on_a_side_is_no_vertex(noise):
    inside = np.append(np.ones(500), 0.0)
    rows = np.vstack([np.append(np.arange(500.0), 0.0), inside])
    turned = np.array([[0.8, -0.6], [0.6, 0.8]]) @ rows
    turned += noise * np.random.default_rng(0).normal(size=turned.shape)
    assert hull(turned).tolist() == [0, 499, 500]


def test_what_bends_slowly_is_kept_up_to_the_precision():
    x = np.linspace(-1, 1, 20001)
    curve = np.vstack([np.where(np.arange(20001) % 5 == 2, 0, x), 0 * x + 1])
    curve[1] = np.where(np.arange(20001) % 5 == 2, 0, 1e-3 * (1 - x**2))
    kept = hull(curve)
    exact = np.interp(x, x[kept], curve[1, kept])
    assert len(kept) * 4 <= 20001
    assert np.abs(exact - curve[1])[np.arange(20001) % 5 != 2].max() < 1e-6


def test_many_corners_stay():
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    corners = np.vstack([np.cos(angles), np.sin(angles)])
    rows = np.hstack([corners, 0.3 * np.random.default_rng(1).uniform(-1, 1, (2, 60))])
    assert hull(rows).tolist() == list(range(12))
