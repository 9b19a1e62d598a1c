"""Whether measurements determine queries: only then do unbiased answers follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.measurement.integer import CentredFactor
from dpsql.planner.reconstruction.marginals import MarginalRecovery
from dpsql.planner.reconstruction.measured import MeasuredFactor, Space, pseudo_inverse
from dpsql.planner.reconstruction.mixed import AnyRecovery, MixedRecovery
from dpsql.planner.reconstruction.residual import Recovery, groups
from dpsql.planner.reconstruction.whole import WholeRecovery
from dpsql.planner.residuals.component import Component
from dpsql.planner.residuals.decompose import decompose
from dpsql.planner.residuals.equivalence import by_reference
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.structure import Product, products
from dpsql.workload import Family, Workload

Array = NDArray[np.float64]
Missing = tuple[tuple[str, ...], ...]

CLOSE = 1e-6
"""What is left of a query, relatively, that lies in the span of measurements up to rounding."""
WRITTEN = 2**24
"""Entries of queries that are written out to be compared."""


def missing(recovery: AnyRecovery, family: Family, domain: Mapping[str, int]) -> Missing:
    """Return the sets of attributes of which too little was measured to answer a family.

    None are returned if every query of the family follows from the measurements.
    """
    if not family.count:
        return ()
    if isinstance(recovery, WholeRecovery):
        return () if spans_whole(recovery, family) else (_touched(family, domain),)
    if isinstance(recovery, MarginalRecovery):
        return () if recovery.determines(family) else (_touched(family, domain),)
    if isinstance(recovery, MixedRecovery):
        part = recovery.joint_part(family)
        inside = () if spans_whole(recovery.joint, part) else (_touched(part, domain),)
        return (*inside, *_missing_spaces(recovery.rest, family, domain, recovery.joint.names))
    return _missing_spaces(recovery, family, domain, None)


def _touched(family: Family, domain: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name in domain if name in family.attributes)


def _missing_spaces(
    recovery: Recovery, family: Family, domain: Mapping[str, int], joint: Sequence[str] | None
) -> Missing:
    """Look at every residual space of which something is asked, but for those inside `joint`."""
    alone = Workload.of(domain, [family])
    references = {name: recovery.references[name] for name in domain}
    colouring, colours = by_reference(references, domain)
    splitter = Splitter(colours)
    found: list[tuple[str, ...]] = []
    for subworkload in decompose(alone, colouring, splitter.squares):
        terms = products(subworkload, splitter)
        for space in subworkload.spaces:
            if joint is not None and set(space) <= set(joint):
                continue
            if not any(spans(terms, s) for s in recovery.measured(space)):
                found.append(space)
    return tuple(found)


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
    if isinstance(factor, CentredFactor):
        return True
    return factor.measurements >= math.prod(n - 1 for n in factor.shape)


def _spans_group(pieces: Sequence[Component], factors: Sequence[MeasuredFactor]) -> bool:
    """Project the product of some pieces' rows onto the rows of the factors, axis by axis."""
    if all(_is_full(f) for f in factors):
        return True
    if any(p.identity is not None and p.by_cell is None for p in pieces):  # of all cells
        return False
    if math.prod(p.dimension * len(p.rows) for p in pieces) > WRITTEN:
        return False
    rows: Array = np.ones((1, 1))
    for piece in pieces:
        rows = np.asarray(np.kron(rows, piece.rows))
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
    found = (flat @ pseudo_inverse(factor)) @ factor.matrix
    return np.moveaxis(found.reshape(moved.shape), range(-len(axes), 0), axes)


def spans_whole(recovery: WholeRecovery, family: Family) -> bool:
    """Whether the queries lie in the span of measurements over joint cells."""
    if not family.attributes <= set(recovery.names):
        return False
    (factor,) = recovery.space.factors
    cells = math.prod(factor.shape)
    if factor.measurements >= cells:
        return True
    inverse, matrix = pseudo_inverse(factor), factor.matrix.astype(np.float64)
    for part in family.parts(max(1, WRITTEN // cells)):
        rows = recovery.written_out(part)
        left = rows - (rows @ inverse) @ matrix
        if (np.abs(left) > CLOSE * max(1.0, float(np.abs(rows).max(initial=0.0)))).any():
            return False
    return True
