"""Kronecker products of matrices, which are never multiplied out to be applied."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import StructuredMatrix, check_entries, frozen


def kron(tables: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Multiply the Kronecker product of tables out; of none it is 1."""
    return reduce(np.kron, tables) if (tables := list(tables)) else np.ones((1, 1))


class Kronecker(StructuredMatrix):
    """⊗ factors: rows and cells are those of the factors, in C order. Of no factors it is 1."""

    def __init__(self, factors: Iterable[StructuredMatrix]) -> None:
        self.factors = tuple(factors)
        super().__init__(
            math.prod(f.rows for f in self.factors), math.prod(f.cells for f in self.factors)
        )

    def _digest(self) -> bytes:
        return hashlib.sha256(b"kronecker" + b"".join(f.key for f in self.factors)).digest()

    @property
    def matrix(self) -> Array:
        """The product, multiplied out."""
        check_entries(self.rows, self.cells)
        return frozen(kron(f.matrix for f in self.factors))

    @property
    def T(self) -> Kronecker:  # noqa: N802
        """The product of the transposes."""
        return Kronecker(f.T for f in self.factors)

    def apply(self, values: Array, axis: int) -> Array:
        """Apply one factor after the other along an axis of its own."""
        before, after = values.shape[:axis], values.shape[axis + 1 :]
        tensor = values.reshape([*before, *(f.cells for f in self.factors), *after])
        for at, factor in enumerate(self.factors, start=axis):
            tensor = factor.apply(tensor, at)
        return tensor.reshape([*before, self.rows, *after])

    def apply_transposed(self, values: Array, axis: int) -> Array:
        """Apply the product of the transposes, factor by factor."""
        return self.T.apply(values, axis)

    def gram(self) -> Array:
        """Multiply the Gram matrices."""
        return kron(f.gram() for f in self.factors)

    def pinv(self, shape: Sequence[int] = ()) -> Kronecker:
        """Return the product of the pseudo-inverses."""
        return Kronecker(f.pinv() for f in self.factors)

    def sums(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.sums())

    def squares(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.squares())

    def column_squares(self) -> Array:
        """Multiply those of the factors."""
        return self._each(lambda f: f.column_squares())

    def _each(self, of: Callable[[StructuredMatrix], Array]) -> Array:
        return np.asarray(reduce(np.multiply.outer, map(of, self.factors), np.ones(()))).ravel()
