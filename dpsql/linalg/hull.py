"""Vertices of convex hulls of columns, where there are few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import AS_GOOD

Numbers = NDArray[np.intp]

SPARE = 4
"""The factor by which there must be more columns than are enough, for the others to be left out."""
FLAT = 2
"""Dimensions up to which a convex hull is looked for."""
EXACT = 1e-7
"""Columns that are dependent up to this, relatively, are taken as dependent."""


def hull(rows: Array) -> Numbers:
    """Return the numbers of the columns at the vertices of their hull; all in many dimensions.

    The hull is looked for in coordinates of the affine space that the columns span.
    """
    count = rows.shape[1]
    centered = rows - rows.mean(axis=1, keepdims=True)
    left, values, _ = np.linalg.svd(centered @ centered.T)
    kept = values > values[0] * EXACT**2
    points = (left[:, kept] / np.sqrt(values[kept])).T @ centered
    if len(points) == 1:
        return _firsts(points.T, np.array([points[0].argmin(), points[0].argmax()]))
    if not 0 < len(points) <= FLAT:  # many dimensions; or none, as all columns are equal
        return np.arange(count)
    from scipy.spatial import ConvexHull  # slow to import, and seldom needed

    corners = _firsts(points.T, _without_flat(points.T, ConvexHull(points.T).vertices))
    return corners if SPARE * len(corners) <= count else np.arange(count)


def _firsts(points: Array, chosen: NDArray[np.integer]) -> Numbers:
    """Return for each point that was chosen the first that equals it but for rounding, in order."""
    near = AS_GOOD * float(np.abs(points).max())
    return np.unique([int((np.abs(points - points[at]) <= near).all(1).argmax()) for at in chosen])


def _without_flat(points: Array, ring: NDArray[np.int32]) -> NDArray[np.int32]:
    """Leave out the vertices of a polygon that lie on a side, but for rounding.

    One that is farthest from the middle does not.
    """
    near = EXACT * float(np.abs(points).max())
    ring = np.roll(ring, -int(np.linalg.norm(points[ring], axis=1).argmax()))
    last, kept = 0, [0]
    for i in range(1, len(ring)):
        start, end = points[ring[last]], points[ring[(i + 1) % len(ring)]]
        side = (end - start) / (np.linalg.norm(end - start) or 1.0)
        off = (points[ring[last + 1 : i + 1]] - start) @ np.array([-side[1], side[0]])
        if np.abs(off).max() > near:
            last = i
            kept.append(i)
    return ring[kept]
