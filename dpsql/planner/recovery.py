"""Recovery: how answers follow from measurements, and with which variance.

A query is q(x) = Σ_A q_A(x_A), and on the residual space V_A the measurements y = B_A x_A + z
give q_A(x_A) ≈ q_A B_A⁺ y. With R = q_A B_A⁺,

    answer = Σ_A R_A y_A ,      variance = Σ_A (σ_A² + 1/12) ‖rows of R_A‖² .

B_A is a Kronecker product of factors and the queries are one of blocks, so R_A is a Kronecker
product of small matrices, one for each group of blocks and factors that share attributes. The
same matrices give the answers and the variances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.planner.decompose import Piece, family_pieces
from dpsql.planner.integer import NOISE_ROUNDING_VARIANCE, BlockStrategy, IntegerFactor
from dpsql.workload import Family

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """R for one group: shape (∏ rows of its blocks, ∏ measurements of its factors)."""

    blocks: tuple[int, ...]
    factors: tuple[int, ...]
    matrix: Array


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """How one family uses one block's measurements."""

    block: BlockStrategy
    shape: tuple[int, ...]
    """The number of queries along each of the family's blocks."""
    parts: tuple[Part, ...]

    def answers(self, measured: Array) -> Array:
        """Apply ⊗R to measurements of shape (measurements per factor, …)."""
        return _apply(self.parts, measured, self.shape)

    def variances(self) -> Array:
        """Return the variance that this block's noise gives to each query."""
        noise = float(self.block.noise_variance + NOISE_ROUNDING_VARIANCE)
        result = np.ones(())
        for part in self.parts:
            rows = np.square(part.matrix).sum(axis=1)
            result = np.multiply.outer(result, rows.reshape([self.shape[b] for b in part.blocks]))
        order = [b for part in self.parts for b in part.blocks]
        return noise * result.transpose(np.argsort(order))


class RecoveryTable:
    """Recoveries of every family from the blocks of one plan; pseudo-inverses are made once."""

    def __init__(self, blocks: tuple[BlockStrategy, ...]) -> None:
        self._blocks = {frozenset(block.attributes): _Inverses(block) for block in blocks}

    def of(self, family: Family) -> tuple[Recovery, ...]:
        """Return one recovery for every residual space that the family touches."""
        return tuple(
            _recover(family, pieces, self._blocks[frozenset(attributes)])
            for attributes, pieces in family_pieces(family)
        )

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        total = np.zeros(family.shape)
        for recovery in self.of(family):
            total = total + recovery.variances()
        return total

    def answers(self, family: Family, measured: Mapping[frozenset[str], Array]) -> Array:
        """Return every answer, in the shape of the family.

        `measured` maps each residual space to its noisy measurements, of shape (measurements of
        the first factor, …).
        """
        total = np.zeros(family.shape)
        for recovery in self.of(family):
            total = total + recovery.answers(measured[frozenset(recovery.block.attributes)])
        return total


class _Inverses:
    """A block with the pseudo-inverses of its factors."""

    def __init__(self, block: BlockStrategy) -> None:
        self.block = block

    @cached_property
    def of_factors(self) -> tuple[Array, ...]:
        """One pseudo-inverse per factor, shape (cells, measurements)."""
        return tuple(pseudo_inverse(f) for f in self.block.factors)


def pseudo_inverse(factor: IntegerFactor) -> Array:
    """Return B⁺ of shape (cells, measurements) for rows that are independent.

    Bᵀ = QR gives B⁺ = Q R⁻ᵀ, which doesn't square the condition number as BBᵀ would.
    """
    q, r = scipy.linalg.qr(factor.matrix.T.astype(np.float64), mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)


def _recover(family: Family, pieces: tuple[Piece, ...], inverses: _Inverses) -> Recovery:
    factors = inverses.block.factors
    parts = tuple(
        Part(tuple(bs), tuple(fs), _part(pieces, bs, factors, fs, inverses.of_factors))
        for bs, fs in _groups(pieces, factors)
    )
    return Recovery(inverses.block, family.shape, parts)


def _groups(
    pieces: tuple[Piece, ...], factors: tuple[IntegerFactor, ...]
) -> list[tuple[list[int], list[int]]]:
    """Group the pieces and factors that are connected by common attributes."""
    groups: list[tuple[list[int], list[int], set[str]]] = []
    for b, p in enumerate(pieces):
        groups = _join(groups, [b], [], set(p.attributes))
    for f, factor in enumerate(factors):
        groups = _join(groups, [], [f], set(factor.attributes))
    return [(bs, fs) for bs, fs, _ in groups]


def _join(
    groups: list[tuple[list[int], list[int], set[str]]],
    blocks: list[int],
    factors: list[int],
    attributes: set[str],
) -> list[tuple[list[int], list[int], set[str]]]:
    apart = [g for g in groups if not g[2] & attributes]
    for bs, fs, names in (g for g in groups if g[2] & attributes):
        blocks, factors, attributes = bs + blocks, fs + factors, names | attributes
    return [*apart, (blocks, factors, attributes)]


def _part(
    pieces: tuple[Piece, ...],
    blocks: list[int],
    factors: tuple[IntegerFactor, ...],
    chosen: list[int],
    inverses: tuple[Array, ...],
) -> Array:
    """Multiply the group's queries, written out, by the pseudo-inverses, axis by axis."""
    matrix: Array = np.ones((1, 1))
    for b in blocks:
        matrix = np.asarray(np.kron(matrix, pieces[b].matrix), dtype=np.float64)
    names = [a for b in blocks for a in pieces[b].attributes]
    shape = [n for b in blocks for n in pieces[b].shape]
    tensor: Array = matrix.reshape(-1, *shape)
    for f in chosen:
        axes = [names.index(a) + 1 for a in factors[f].attributes]
        cells = factors[f].shape
        inverse = inverses[f].reshape(*cells, -1)
        tensor = _contract(tensor, inverse, axes, len(cells))
        names = [a for a in names if a not in factors[f].attributes]
    # Axes that are used up go, new ones come last, so the measurements end up in order.
    return tensor.reshape(matrix.shape[0], -1)


def _contract(tensor: Array, inverse: Array, axes: list[int], count: int) -> Array:
    return np.asarray(np.tensordot(tensor, inverse, (axes, list(range(count)))), dtype=np.float64)


def _apply(parts: tuple[Part, ...], measured: Array, shape: tuple[int, ...]) -> Array:
    """Contract each part with its axes of `measured`; put the rows in the order of the blocks."""
    result, left = measured, list(range(measured.ndim))
    for done, part in enumerate(parts):
        # Axes of `result`: the rows of the parts done so far, the last first, then what is left.
        tensor = part.matrix.reshape(-1, *(measured.shape[f] for f in part.factors))
        axes = [done + left.index(f) for f in part.factors]
        result = np.tensordot(tensor, result, (list(range(1, tensor.ndim)), axes))
        left = [f for f in left if f not in part.factors]
    blocks = [b for part in reversed(parts) for b in part.blocks]
    return result.reshape([shape[b] for b in blocks]).transpose(np.argsort(blocks))
