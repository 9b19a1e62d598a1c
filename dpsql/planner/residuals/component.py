"""What some queries ask of one residual space: the problems that solvers solve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.linalg.matrices import Dense, StructuredMatrix
from dpsql.linalg.structures import CenteredCells
from dpsql.planner.residuals.averaging import Reference

MAX_IDENTITY = 2**13
"""Cells up to which an identity is written out, where it is not alone."""

Key = tuple[tuple[int, ...], bytes]


@dataclass(frozen=True, eq=False)
class Component:
    """Weighted query rows over the joint cells of some axes of a residual space.

    Only their Gram matrix matters for a strategy, so `rows` may be any rows with the same one.
    Components of equal `content` are the same problem, wherever they are placed.
    """

    axes: tuple[int, ...]
    """Where the residual space has the attributes, ascending."""
    references: tuple[Reference, ...]
    """One for each axis: the space holds what they make zero."""
    content: bytes
    given: NDArray[np.float64] | None
    """The rows, of shape (any number, cells); None if `identity` says it all."""
    numerators: NDArray[np.int64] | None = None
    """Integer rows that span the same space, if they are known."""
    identity: float | None = None
    """If given, what is asked are single cells of one attribute with a uniform reference: the Gram
    matrix is (I − J/n) diag(w) (I − J/n), and this is the mean of w."""
    by_cell: NDArray[np.float64] | None = None
    """w, where it differs from cell to cell."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(len(r.weights) for r in self.references)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """The rows, written out: shape (any number, cells).

        Raises:
            ResourceLimitError: an identity over too many cells.
        """
        if self.given is not None:
            return self.given
        (n,) = self.shape
        if n > MAX_IDENTITY:
            raise ResourceLimitError(
                f"The {n:,} values of one column can be counted, but not together with running "
                "totals or ranges over them.",
                hint="use a coarser domain for those, or release them apart.",
            )
        asked = np.flatnonzero(self.weights)
        return np.asarray(np.sqrt(self.weights[asked, None]) * (np.eye(n)[asked] - 1 / n))

    @property
    def queries(self) -> StructuredMatrix:
        """The rows, which need not be written out."""
        return CenteredCells(self.weights) if self.given is None else Dense(self.given)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return w, for each cell, where `identity` is given."""
        (n,) = self.shape
        return np.full(n, self.identity or 0.0) if self.by_cell is None else self.by_cell

    @property
    def key(self) -> Key:
        """Tell whether two components of one subworkload are the same factor."""
        return self.axes, self.content

    @property
    def dimension(self) -> int:
        """The dimension of the residual space."""
        return math.prod(n - 1 for n in self.shape)

    @cached_property
    def squares(self) -> float:
        """The sum of the rows' squared norms: the trace of the Gram matrix."""
        return float(self.queries.squares().sum())
