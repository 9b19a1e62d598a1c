"""Reconstruction from marginals whose cells are measured directly, by least squares over all.

A marginal over B, of which each cell is measured with noise of variance v_B, tells of the residual
space A ⊆ B what is left of its cells when the axes of B∖A are added up and those of A centred: an
estimate with noise v_B · ∏_{i∈B∖A} n_i in each direction. These projections of all marginals share
their eigenspaces, which are the residual spaces (HDMM, JPC 2023, 7), so that least squares
is done for each A apart: estimates are averaged with weights

    w_B ∝ p_B = 1 / (v_B · ∏_{i∈B∖A} n_i) ,

and the average has noise 1/Σ p_B. From there on all is as if A had been measured by nI − J on each
axis with noise of variance ∏_{i∈A} n_i² / Σ p_B.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labelled import LabelledArray
from dpsql.linalg.subsets import subsets
from dpsql.measurement.integer import CentredFactor, DenseFactor, IntegerFactor
from dpsql.planner.reconstruction.marginals import MarginalReconstruction
from dpsql.planner.reconstruction.measured import Noisy, Space, Values
from dpsql.planner.reconstruction.residual import ResidualReconstruction
from dpsql.planner.reconstruction.sources import Reading
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Family, Workload


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """One marginal whose cells were measured directly."""

    attributes: tuple[str, ...]
    sizes: Mapping[str, int]
    scale: float
    """How many times each cell was counted."""
    variance: float
    """Of one cell's estimate."""

    @classmethod
    def of(cls, space: Space) -> _Cells:
        scale, sizes = 1.0, dict[str, int]()
        for factor in space.factors:
            each = factor.real.cell_squares()
            if each is None or (factor.real.is_written and factor.measurements > 1):
                raise InternalError("only cells that are measured directly can be pooled")
            scale *= math.sqrt(each[0])
            sizes |= dict(zip(space.of(factor), factor.shape, strict=True))
        return cls(space.attributes, sizes, scale, space.noise / scale**2)

    def precision(self, attributes: frozenset[str]) -> float:
        """Return p_B for a residual space inside."""
        others = math.prod(n for name, n in self.sizes.items() if name not in attributes)
        return 1 / (self.variance * others)


class PooledReconstruction(ResidualReconstruction):
    """How answers follow from marginals that are measured directly, all of them together."""

    reading = "pooled"

    def __init__(self, measured: Iterable[Space]) -> None:
        self._measured_cells = [_Cells.of(space) for space in measured]
        self._sizes = {a: n for m in self._measured_cells for a, n in m.sizes.items()}
        self._inside: dict[frozenset[str], list[_Cells]] = {}
        for cells in self._measured_cells:
            names = [a for a in cells.attributes if cells.sizes[a] > 1]
            for part in subsets(names):
                self._inside.setdefault(frozenset(part), []).append(cells)
        spaces = [self._space(part) for part in self._inside]
        super().__init__(spaces, {a: Reference.of_cells(n) for a, n in self._sizes.items()})

    def values(self, noisy: Noisy) -> Values:
        """Return the averaged residuals, scaled as if they had been measured by nI − J."""
        return {space: self._average(space.attributes, noisy) for space in self.spaces}

    def errors_by_marginal(self, workload: Workload) -> dict[frozenset[str], float]:
        """Return the weighted sum of variances that the noise in each marginal gives."""
        found: dict[frozenset[str], float] = defaultdict(float)
        for space, error in self.errors(workload):
            for marginal, part in self._contributions(space):
                found[marginal] += part * error
        return found

    def _contributions(self, attributes: Sequence[str]) -> Iterator[tuple[frozenset[str], float]]:
        """Yield how much of the error in a residual space is due to each measured marginal."""
        inside = self._inside[frozenset(attributes)]
        precisions = [m.precision(frozenset(attributes)) for m in inside]
        for cells, precision in zip(inside, precisions, strict=True):
            yield frozenset(cells.attributes), precision / math.fsum(precisions)

    def _space(self, attributes: frozenset[str]) -> Space:
        names = tuple(a for a in self._sizes if a in attributes)
        factors: tuple[IntegerFactor, ...] = tuple(
            CentredFactor((axis,), (self._sizes[a],), 1) for axis, a in enumerate(names)
        ) or (DenseFactor((), (), np.array([[1]], dtype=np.int64)),)
        precision = math.fsum(m.precision(attributes) for m in self._inside[attributes])
        squares = math.prod(self._sizes[a] for a in names) ** 2
        return Space(names, factors, squares / precision)

    def _average(self, names: Sequence[str], noisy: Noisy) -> Array:
        inside = self._inside[frozenset(names)]
        weights = np.array([m.precision(frozenset(names)) for m in inside])
        total: Array = np.zeros([self._sizes[a] for a in names] or [1])
        for cells, weight in zip(inside, weights / weights.sum(), strict=True):
            total += weight * _inside(cells, names, noisy[frozenset(cells.attributes)])
        for axis in range(len(names)):
            total = total.shape[axis] * (total - total.mean(axis=axis, keepdims=True))
        return total


def _inside(cells: _Cells, names: Sequence[str], noisy: Ints) -> Array:
    """Return the estimate of a marginal inside a measured one."""
    counts = LabelledArray.of(cells.attributes, cells.sizes, noisy / cells.scale)
    return np.atleast_1d(counts.project(names))


def of_marginals(
    spaces: Sequence[Space], families: Iterable[Family], reading: Reading
) -> PooledReconstruction | MarginalReconstruction:
    """Return how families are answered from marginals: from all together, or each from one."""
    if reading == PooledReconstruction.reading:
        return PooledReconstruction(spaces)
    return MarginalReconstruction(spaces, families)
