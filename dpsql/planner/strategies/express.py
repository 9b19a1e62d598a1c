"""A strategy in real numbers, expressed over an integer basis of what it measures."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.coordinates import narrow
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import over_axis_basis, residual_basis, row_basis
from dpsql.planner.strategies.base import Triangular

MOST_ENTRIES = 2**26
"""Entries at most of a basis of a residual space that is written out."""
MOST_WORK = 2e10
"""The cube of its dimension: a strategy is factorized over it."""
WIDEST_ROW = 2**44
"""Rows with larger integers would leave too few bits for the strategy's own coefficients."""
SPARE = 2.0**-7


def over_integers(root: Array, component: Component, rank: int) -> Triangular:
    """Return the strategy that measures what rows R tell of a component's residual space.

    Its columns have norm at most 1, whatever the scale of R.

    Args:
        root: rows that the references make zero along each axis, and that span the component's.
        component: what is asked.
        rank: that of its rows. With the dimension of the residual space all of it is measured.
    """
    basis = integer_basis(component, rank)
    full = len(basis) == component.dimension
    express = partial(over_residual_basis, component=component) if full else None
    return over_basis(root, basis, express, component.shape)


def integer_basis(component: Component, rank: int) -> Ints:
    """Return integer rows that span the component's: its own, or all of the residual space.

    Its own are taken where they span less than the residual space. `over_residual_basis` is the
    fast way for `over_basis` where they are as many as the space has dimensions.
    """
    if rank < component.dimension and component.numerators is not None:
        rows = row_basis(component.numerators)
        few = rank <= len(rows) < component.dimension
        if few and int(np.abs(rows).max()) < WIDEST_ROW:
            return rows
    cells = math.prod(component.shape)
    if component.dimension * cells > MOST_ENTRIES or component.dimension**3 > MOST_WORK:
        if rank >= component.dimension:
            raise ResourceLimitError(
                f"The queries over {cells:,} cells need a strategy of {rank:,} rows, more than can "
                "be written out.",
                hint="use a coarser domain, or ask for fewer different ranges.",
            )
        raise ResourceLimitError(
            f"The queries over {cells:,} cells have coefficients that are not small whole numbers.",
            hint="use a coarser domain, or round the coefficients.",
        )
    return residual_basis(component.references)


def over_basis(
    root: Array,
    basis: Ints,
    express: Callable[[Array], Array] | None = None,
    shape: tuple[int, ...] = (),
) -> Triangular:
    """Return the strategy that measures what rows R do, with columns of norm at most 1.

    It is upper triangular L of full rank with X = basisᵀ LᵀL basis, diag(X) <= 1.

    Queries that are not integers may span less than the basis does. The directions that they
    don't need are then measured too, at `SPARE` of the precision: it costs SPARE² and keeps the
    rounding error of the other directions answerable.

    Args:
        root: R with RᵀR = X up to a factor. It may have more rows than the basis, of the same span.
        basis: integer rows that span those of R.
        express: gives the coefficients of rows over the basis, if there is a fast way.
        shape: the number of cells along each axis, if there are several.
    """
    scaled = root / math.sqrt(float(np.square(root).sum(axis=0).max()))
    spanning = basis.astype(np.float64)
    if express is None and not (basis.sum(axis=0) > 1).any() and not (basis < 0).any():
        express = partial(np.take, indices=basis.argmax(axis=1), axis=1)  # sums of other cells each
    if express is None and (narrowed := narrow(spanning, shape)) is not None:
        scaled, spanning = narrowed.project(scaled), narrowed.small
    if len(scaled) < len(basis):
        scaled = np.vstack([scaled, SPARE * _complement(scaled, spanning)])
    if express is None:
        # basis = TᵀOᵀ with orthonormal columns O, so inner·TᵀOᵀ = scaled says T·innerᵀ = Oᵀscaledᵀ.
        columns, t = scipy.linalg.qr(spanning.T, mode="economic")
        inner = scipy.linalg.solve_triangular(t, (scaled @ columns).T).T
    else:
        inner = express(scaled)
    upper = np.asarray(scipy.linalg.qr(inner, mode="r")[0])[: len(basis)]
    upper = upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
    return Triangular(np.asarray(upper, dtype=np.float64), basis)


def _complement(rows: Array, basis: Array) -> Array:
    """Return orthonormal rows in the span of the basis that are orthogonal to some of its rows."""
    spanning = scipy.linalg.qr(basis.T, mode="economic")[0].T
    return np.asarray(scipy.linalg.null_space(rows @ spanning.T).T @ spanning)


def over_residual_basis(root: Array, component: Component) -> Array:
    """Return the coefficients of rows over the basis ⊗S_i of the residual space, axis by axis."""
    tensor: Array = root.reshape(-1, *component.shape)
    for axis, reference in enumerate(component.references):
        moved = np.moveaxis(tensor, axis + 1, -1)
        over = over_axis_basis(moved.reshape(-1, moved.shape[-1]), reference)
        tensor = np.moveaxis(over.reshape(*moved.shape[:-1], -1), -1, axis + 1)
    return np.asarray(tensor.reshape(len(root), -1))
