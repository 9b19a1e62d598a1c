"""The whole domain at once, where it is small: the best of all matrix mechanisms.

Residual spaces are measured apart, which is what makes large domains possible and costs a little.
Where all attributes that a workload touches have few joint cells, or where there are few queries,
the dual of `solvers.dual` is solved for the Gram matrix over all cells. Its lower bound holds for
every matrix mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.reconstruction.measured import Noisy, Space, Values, pseudo_inverse, read
from dpsql.planner.residuals.averaging import Reference
from dpsql.planner.residuals.basis import row_basis
from dpsql.planner.residuals.component import Component
from dpsql.planner.strategies.base import Solution
from dpsql.planner.strategies.dual import Dual, maximise
from dpsql.planner.strategies.express import over_basis
from dpsql.workload import Family, Workload

Array = NDArray[np.float64]

SOLVER = "dual over the whole domain"
MAX_CELLS = 2000
"""Joint cells up to which the whole domain can be planned at once."""
QUICK_CELLS = 400
"""Joint cells up to which that takes no longer than residual spaces do."""
ALONE_CELLS = 1200
"""Cells of a single attribute up to which it doesn't: the search for its reference solves problems
of that size many times."""
MODERATE_CELLS = 1500
"""Joint cells up to which that takes some seconds, and is done where no other plan is certified
against all mechanisms."""
FEW = 64
"""Queries that are written out over larger domains too: their dual is of low rank."""
FEW_ENTRIES = 2**22
UNWEIGHTED = 1e-12
"""How far from whole numbers, relatively, rows are integers that were multiplied by weights."""


def touched(workload: Workload) -> tuple[str, ...]:
    """Return the attributes that the families touch, in domain order."""
    used = frozenset().union(*(f.attributes for f in workload.families if f.count))
    return tuple(name for name in workload.domain if name in used)


def cells(workload: Workload) -> int:
    """Return the number of joint cells of the touched attributes."""
    return math.prod(workload.domain[name] for name in touched(workload))


def is_quick(workload: Workload) -> bool:
    """Whether planning the whole domain takes no longer than residual spaces do."""
    n, m = cells(workload), workload.count
    most = ALONE_CELLS if len(touched(workload)) == 1 else QUICK_CELLS
    return n <= most or (m <= FEW and m * n <= FEW_ENTRIES)


def solve_whole(workload: Workload, tolerance: float) -> tuple[Component, Solution] | None:
    """Find the best strategy over all cells; None if there is no way to measure it in integers."""
    names = touched(workload)
    shape = tuple(workload.domain[name] for name in names)
    few = workload.count <= min(FEW, math.prod(shape))
    rows = written_out(workload, names) if few else root_of(gram(workload, names))
    if not rows.any():
        return None
    dual = Dual.of(rows, shape)
    basis = integer_basis(workload, names, dual.rank)
    if basis is None:
        return None
    best = maximise(dual, tolerance)
    strategy = over_basis(best.root, basis)
    references = tuple(Reference.of_cells(n) for n in shape)
    component = Component(tuple(range(len(names))), references, b"whole", rows)
    return component, Solution(strategy, best.upper, best.lower, SOLVER)


def root_of(gram: Array) -> Array:
    """Return rows with this Gram matrix."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def integer_basis(
    workload: Workload, names: tuple[str, ...], rank: int
) -> NDArray[np.int64] | None:
    """Take the queries' own rows if they are few and in integers, else all cells if few."""
    n = cells(workload)
    if rank < n and workload.count <= max(FEW, 2 * n):
        families = [f for f in workload.families if f.count]
        written = np.vstack([_written_out(f, names, workload.domain) for f in families])
        rows = _unweighted(written)
        if (rows == np.rint(rows)).all() and np.abs(rows).max() < 2**20:
            basis = row_basis(rows.astype(np.int64))
            if len(basis) == rank:
                return basis
    return np.eye(n, dtype=np.int64) if n <= MAX_CELLS else None


def _unweighted(rows: Array) -> Array:
    """Return rows that span the same: in integers, if these are integers times weights."""
    if (rows == np.rint(rows)).all():
        return rows
    least = np.where(rows != 0, np.abs(rows), np.inf).min(axis=1, keepdims=True)
    scaled = rows / np.where(np.isfinite(least), least, 1.0)
    whole = np.rint(scaled)
    return whole if np.allclose(scaled, whole, rtol=UNWEIGHTED, atol=0.0) else rows


def written_out(workload: Workload, names: tuple[str, ...]) -> Array:
    """Write all queries out over the joint cells, with their weights folded in."""
    families = [f for f in workload.families if f.count]
    sizes = workload.domain
    return np.vstack([math.sqrt(f.weight) * _written_out(f, names, sizes) for f in families])


def _written_out(family: Family, names: tuple[str, ...], sizes: Mapping[str, int]) -> Array:
    """Write a family's queries out over the joint cells."""
    product = family.written_out()
    order = [name for block in family.blocks for name in block.attributes]
    tensor: Array = product.reshape(-1, *(sizes[name] for name in order))
    present = [name for name in names if name in order]
    tensor = tensor.transpose(0, *(1 + order.index(name) for name in present))
    spread = [sizes[name] if name in order else 1 for name in names]
    full = [sizes[name] for name in names]
    tensor = np.broadcast_to(tensor.reshape(-1, *spread), (len(product), *full))
    return tensor.reshape(len(product), -1)


def gram(workload: Workload, names: tuple[str, ...]) -> Array:
    """Return Σ weight · QᵀQ over the joint cells."""
    total: Array = np.zeros(())
    for family in workload.families:
        if not family.count:
            continue
        grams = [block.queries.gram() for block in family.blocks]
        order = [name for block in family.blocks for name in block.attributes]
        for name in names:
            if name not in order:
                grams.append(np.ones((workload.domain[name],) * 2))
                order.append(name)
        product: Array = np.ones((1, 1))
        for factor in grams:
            product = np.asarray(np.kron(product, factor), dtype=np.float64)
        total = total + family.weight * _in_order(product, order, names, workload)
    return total


def _in_order(gram: Array, order: list[str], names: tuple[str, ...], workload: Workload) -> Array:
    """Permute the cells of both sides from one order of the attributes to another."""
    shape = [workload.domain[name] for name in order]
    at = [order.index(name) for name in names]
    tensor = gram.reshape(shape * 2).transpose(at + [len(at) + i for i in at])
    return np.ascontiguousarray(tensor).reshape(gram.shape)


class WholeRecovery:
    """How answers and variances follow from measurements of all joint cells of some attributes."""

    def __init__(self, space: Space) -> None:
        self.space = space
        """Its one factor is over all axes."""
        (factor,) = space.factors
        self.names, self._shape = space.attributes, factor.shape
        self.noise = space.noise
        """The variance of the noise of each measurement, rounding included."""
        self._inverse = pseudo_inverse(factor)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured."""
        return (self.space,)

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of, from the noisy integers."""
        return read(self.spaces, noisy)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        return self._summed(self._inverse @ values[self.space], attributes)

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        family.check_held()
        total = np.zeros(family.shape)
        if not family.count:  # it may be over attributes that nothing else touches
            return total
        for columns in self.columns(family.count):
            total += np.square(self.applied(columns, family)).sum(axis=-1)
        return self.noise * total

    def error(self, rows: Array) -> float:
        """Return the sum of the variances of some queries over all cells."""
        return self.noise * float(np.square(rows @ self._inverse).sum())

    def total(self, workload: Workload) -> float:
        """Return the sum of weight·variance over all answers to a workload."""
        return self.error(root_of(gram(workload, self.names)))

    def bound(self, family: Family) -> float:
        """Return an upper bound of the variances of a family: the norms of rows and of B⁺."""
        attributes = [a for block in family.blocks for a in block.attributes]
        columns = self._summed(self._inverse, attributes).reshape(-1, self._inverse.shape[1])
        norms = [float(block.queries.squares().max(initial=0.0)) for block in family.blocks]
        return self.noise * float(np.linalg.norm(columns, 2)) ** 2 * math.prod(norms)

    def columns(self, count: int) -> Iterator[Array]:
        """Yield some columns of B⁺ at a time: `count` answers to each are held at once."""
        step = max(1, 2**24 // max(1, count))
        for start in range(0, self._inverse.shape[1], step):
            yield self._inverse[:, start : start + step]

    def applied(self, columns: Array, family: Family) -> Array:
        """Return the answers that columns of cells give: shape (*family.shape, columns)."""
        attributes = [a for block in family.blocks for a in block.attributes]
        tensor = self._summed(columns, attributes)
        tensor = tensor.reshape([*(math.prod(b.shape) for b in family.blocks), -1])
        for axis, block in enumerate(family.blocks):
            tensor = block.queries.apply(tensor, axis)
        return tensor

    def written_out(self, family: Family) -> Array:
        """Write queries out over the joint cells."""
        sizes = dict(zip(self.names, self._shape, strict=True))
        return _written_out(family, self.names, sizes)

    def _summed(self, values: Array, attributes: Sequence[str]) -> Array:
        """Add up over the other attributes; what comes after the cells stays as it is."""
        tensor = values.reshape((*self._shape, *values.shape[1:]))
        gone = tuple(i for i, name in enumerate(self.names) if name not in attributes)
        left = [name for name in self.names if name in attributes]
        tensor = tensor.sum(axis=gone)
        rest = range(len(left), tensor.ndim)
        return np.asarray(tensor.transpose([left.index(a) for a in attributes] + list(rest)))
