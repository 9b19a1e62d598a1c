"""Cells that are merged: which cell of a coarser domain each cell falls into."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpsql.linalg.arrays import Ints


def refined(known: Ints, signatures: Ints) -> Ints:
    """Split classes by further signatures, and number them by their first cells."""
    joint = known * (signatures.max(initial=0) + 1) + signatures
    _, first, inverse = np.unique(joint, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return np.asarray(order[inverse])


def common_refinement(classes: Iterable[Ints]) -> Ints:
    """Return the coarsest classes that are at least as fine as all of the given ones."""
    first, *others = classes
    result = refined(np.zeros_like(first), first)
    for other in others:
        result = refined(result, other)
    return result


def coarsening(fine: Ints, coarse: Ints) -> Ints | None:
    """Return the coarse class of each fine class; None if a fine class lies in several.

    Args:
        fine: the class of each cell, numbered from 0 without gaps.
        coarse: other classes of the same cells.
    """
    _, first = np.unique(fine, return_index=True)
    found = coarse[first]
    return found if (found[fine] == coarse).all() else None
