"""Whether measurements determine queries: only then do unbiased answers follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.products import kron
from dpsql.planner.reconstruction.inverses import groups
from dpsql.planner.reconstruction.measured import MeasuredFactor, Space
from dpsql.planner.residuals.component import Component
from dpsql.planner.residuals.structure import Product

Array = NDArray[np.float64]

CLOSE = 1e-6
"""What is left of a query, relatively, that lies in the span of measurements up to rounding."""
WRITTEN = 2**24
"""Entries of queries that are written out to be compared."""


def spans(terms: Sequence[Product], space: Space) -> bool:
    """Whether what is asked of a residual space lies in the span of its measurements."""
    if all(_is_full(f) for f in space.factors):
        return True
    return all(
        _spans_group([t.pieces[p] for p in ps], [space.factors[f] for f in fs])
        for t in terms
        for ps, fs in groups(
            [tuple(space.attributes[axis] for axis in p.axes) for p in t.pieces],
            [space.of(f) for f in space.factors],
        )
        if ps
    )


def _is_full(factor: MeasuredFactor) -> bool:
    return factor.measurements >= math.prod(n - 1 for n in factor.shape)


def _spans_group(pieces: Sequence[Component], factors: Sequence[MeasuredFactor]) -> bool:
    """Project the product of some pieces' rows onto the rows of the factors, axis by axis."""
    if all(_is_full(f) for f in factors):
        return True
    if any(p.identity is not None and p.by_cell is None for p in pieces):  # of all cells
        return False
    if math.prod(p.dimension * len(p.rows) for p in pieces) > WRITTEN:
        return False
    rows: Array = kron(piece.rows for piece in pieces)
    axes = [axis for p in pieces for axis in p.axes]
    sizes = {axis: n for p in pieces for axis, n in zip(p.axes, p.shape, strict=True)}
    tensor = rows.reshape(-1, *(sizes[axis] for axis in axes))
    tensor = tensor.transpose(0, *(1 + i for i in np.argsort(axes)))
    projected, order = tensor, sorted(axes)
    for factor in factors:
        if not _is_full(factor):
            projected = _projected(projected, [1 + order.index(a) for a in factor.axes], factor)
    size = float(np.abs(rows).max(initial=0.0))
    return bool((np.abs(projected - tensor) <= CLOSE * size).all())


def _projected(tensor: Array, axes: Sequence[int], factor: MeasuredFactor) -> Array:
    """Apply B⁺B along the axes of a factor."""
    moved = np.moveaxis(tensor, axes, range(-len(axes), 0))
    flat = moved.reshape(-1, math.prod(factor.shape))
    found = (flat @ factor.real.pinv(factor.shape)) @ factor.real
    return np.moveaxis(found.reshape(moved.shape), range(-len(axes), 0), axes)
