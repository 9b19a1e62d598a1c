"""Vertices of convex hulls of columns, where there are few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

SPARE = 4
"""How many times the columns that are enough there must be for the others to be left out."""
FLAT = 2
"""Dimensions up to which a convex hull is looked for."""
EXACT = 1e-7
"""Columns that are dependent up to this, relatively, are taken as dependent."""


def hull(rows: Array) -> Numbers:
    """Return the numbers of the columns at the vertices of their hull; all in many dimensions.

    The hull is looked for in coordinates of the affine space that the columns span.
    """
    count = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    left, values, _ = np.linalg.svd(centred @ centred.T)
    kept = values > values[0] * EXACT**2
    points = (left[:, kept] / np.sqrt(values[kept])).T @ centred
    if len(points) == 1:
        return np.unique([int(points[0].argmin()), int(points[0].argmax())])
    if not 0 < len(points) <= FLAT:  # many dimensions; or none, as all columns are equal
        return np.arange(count)
    from scipy.spatial import ConvexHull  # slow to import, and seldom needed

    found = ConvexHull(points.T).vertices
    return np.sort(found).astype(np.intp) if SPARE * len(found) <= count else np.arange(count)
