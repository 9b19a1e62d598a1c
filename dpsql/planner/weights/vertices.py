"""A workload over the cells that decide how much noise it needs; see `axes`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.matrices import Dense
from dpsql.planner.residuals.averaging import Reference
from dpsql.planner.residuals.equivalence import Colouring
from dpsql.planner.weights.axes import Cells, FreeAxis
from dpsql.workload import Block, Family, Queries, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Vertices:
    """A workload that needs the same noise as a given one, with fewer cells where little is asked.

    Only sums over cells differ, and with them what the uniform reference is: a colour keeps the
    one of all its cells, as far as queries can tell.
    """

    workload: Workload
    colouring: Colouring
    axes: Mapping[int, FreeAxis]
    """Of the colours that are searched."""
    uniform: tuple[Reference, ...]
    """For each colour, what is the uniform reference over all cells."""
    _all: Mapping[int, FreeAxis]

    @staticmethod
    def of(workload: Workload, colouring: Colouring, axes: Mapping[int, FreeAxis]) -> Vertices:
        """Leave out the cells that don't matter."""
        fewer = {c: a.vertices for c, a in axes.items() if len(a.vertices) < colouring.sizes[c]}
        sizes = tuple(len(fewer.get(c, range(n))) for c, n in enumerate(colouring.sizes))
        uniform = tuple(
            Reference.of_reals(axes[c].on_support(np.full(n, 1 / n))[fewer[c]])
            if c in fewer
            else Reference.of_cells(n)
            for c, n in enumerate(colouring.sizes)
        )
        places = {
            name: fewer[colour]
            for name, colour in zip(workload.domain, colouring.colours, strict=True)
            if colour in fewer
        }
        small = {c: a.on_vertices() if c in fewer else a for c, a in axes.items()}
        coloured = Colouring(colouring.colours, sizes)
        return Vertices(_cut(workload, places), coloured, small, uniform, axes)

    def spread(self, colour: int, reference: Reference) -> Reference:
        """Return a reference over the cells that are left as one over all of them."""
        axis = self._all.get(colour)
        if axis is None or reference.numerators is None or len(axis.vertices) == axis.cells:
            return reference
        numerators = np.zeros(axis.cells, dtype=np.int64)
        numerators[axis.vertices] = reference.numerators
        return Reference.of_integers(numerators)


def _cut(workload: Workload, places: Mapping[str, Cells]) -> Workload:
    """Keep some cells of some attributes."""
    if not places:
        return workload
    domain = {name: len(places.get(name, range(n))) for name, n in workload.domain.items()}
    known: dict[tuple[object, ...], Queries] = {}

    def block(given: Block) -> Block:
        names = given.attributes
        if not places.keys() & set(names):
            return given
        kept = [places.get(name, np.arange(n)) for name, n in zip(names, given.shape, strict=True)]
        key = given.queries.key, *(cells.tobytes() for cells in kept)
        if key not in known:
            tensor = given.queries.matrix.reshape(-1, *given.shape)
            for axis, cells in enumerate(kept):
                tensor = np.take(tensor, cells, axis + 1)
            known[key] = Dense(tensor.reshape(len(tensor), math.prod(map(len, kept))))
        return Block(names, tuple(map(len, kept)), known[key])

    def family(given: Family) -> Family:
        return replace(given, blocks=tuple(map(block, given.blocks)))

    return Workload.of(domain, map(family, workload.families))
