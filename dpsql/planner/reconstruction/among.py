"""Reconstruction of what one table is asked, from what is known of several together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.reconstruction.base import Aligned, Missing, Reconstruction
from dpsql.planner.reconstruction.measured import Space, Values
from dpsql.workload import Family
from dpsql.workload.workload import UnitTable


class AmongOthers(Reconstruction):
    """How answers about one table follow from what was measured of several.

    Args:
        table: the one that is asked, in the names that it has among several.
        together: how answers about all of them follow.
        measures: the axes of what is added up of it, by these names.
    """

    def __init__(
        self, table: UnitTable, together: Reconstruction, measures: Collection[str | None]
    ) -> None:
        self._table, self._together = table, together
        self._sums = frozenset(measures) - {table.name}

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured of all tables."""
        return self._together.spaces

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes of the table."""
        names = tuple(map(self._table.attribute, attributes))
        if not self._sums.isdisjoint(names):
            return self._together.marginal(names, values)
        return np.asarray(self._together.marginal((*names, self._table.name), values)[..., 0])

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        found = self._together.variances(self._table.family(family))
        return found.reshape(family.shape)

    def extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Return the sum of a family's variances, and the largest."""
        return self._together.extent(self._table.family(family), self._table.renamed(domain))

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        return self.extent(family, domain)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        return self._together.covariances(self._aligned(first), self._aligned(second), sizes)

    def _aligned(self, own: Aligned) -> Aligned:
        """Name what is asked as among several; counts get the axis of the table's counts."""
        axes = own.axes if own.family.measure is not None else (*own.axes, ())
        return Aligned(self._table.family(own.family), axes)

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Return the variance of each combination."""
        named = [(self._table.family(family), coefficients) for family, coefficients in terms]
        return self._together.combined_variances(named, self._table.renamed(domain))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the attribute sets of which too little was measured to answer a family."""
        found = self._together.missing(self._table.family(family), self._table.renamed(domain))
        named = (map(self._table.own, names) for names in found)
        return tuple(tuple(name for name in names if name is not None) for names in named)
