"""Tables with named axes: nobody else counts on which axis comes where.

All operations are those of NumPy on the values, exact for integers; none of them copies what need
not be copied.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.matrices import StructuredMatrix

Name = Hashable


@dataclass(frozen=True, slots=True, eq=False)
class LabeledArray:
    """An array whose axes have names."""

    names: Sequence[Name]
    """One for each axis, all different."""
    values: NDArray[Any]

    @classmethod
    def of(
        cls, names: Sequence[Name], sizes: Mapping[Any, int], flat: NDArray[Any]
    ) -> LabeledArray:
        """Give flat values, in C order, axes of some sizes."""
        return cls(names, flat.reshape([sizes[name] for name in names]))

    @property
    def sizes(self) -> dict[Name, int]:
        """Name → length of the axis."""
        return dict(zip(self.names, self.values.shape, strict=True))

    def transpose(self, names: Sequence[Name]) -> NDArray[Any]:
        """Return the values with the axes in another order."""
        return self.values.transpose([self.names.index(name) for name in names])

    def project(self, names: Sequence[Name]) -> NDArray[Any]:
        """Sum over all axes but some, and return the values with these in the given order."""
        gone = tuple(i for i, name in enumerate(self.names) if name not in names)
        left = [name for name in self.names if name in names]
        values = self.values.sum(axis=gone) if gone else self.values
        return np.asarray(LabeledArray(left, values).transpose(names))

    def expand(self, names: Sequence[Name]) -> NDArray[Any]:
        """Return the values along more axes, in the given order, of length 1 where they lack one.

        So tables over different axes can be added and multiplied.
        """
        sizes = self.sizes
        ordered = self.transpose([name for name in names if name in sizes])
        return ordered.reshape([sizes.get(name, 1) for name in names])

    def apply(self, name: Name, matrix: StructuredMatrix) -> LabeledArray:
        """Multiply by a matrix along one axis."""
        return LabeledArray(self.names, matrix.apply(self.values, self.names.index(name)))
