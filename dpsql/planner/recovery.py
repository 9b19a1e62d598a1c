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

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.planner.decompose import Piece, Pieces
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
    """Recoveries of every family from the blocks of one plan.

    Pseudo-inverses, and their products with pieces, are made once for equal contents.
    """

    def __init__(self, blocks: tuple[BlockStrategy, ...], pieces: Pieces) -> None:
        self._blocks = {frozenset(block.attributes): block for block in blocks}
        self._pieces = pieces
        # Factors with the same strategy share its matrix, which the blocks keep alive.
        self._inverses: dict[int, Array] = {}
        self._parts: dict[tuple[bytes, int], Array] = {}

    def of(self, family: Family) -> tuple[Recovery, ...]:
        """Return one recovery for every residual space that the family touches."""
        return tuple(
            self._recover(family, pieces, self._blocks[frozenset(attributes)])
            for attributes, pieces in self._pieces.of(family)
        )

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        total = np.zeros(family.shape)
        for recovery in self.of(family):
            total += recovery.variances()
        return total

    def answers(self, family: Family, measured: Mapping[frozenset[str], Array]) -> Array:
        """Return every answer, in the shape of the family.

        `measured` maps each residual space to its noisy measurements, of shape (measurements of
        the first factor, …).
        """
        total = np.zeros(family.shape)
        for recovery in self.of(family):
            total += recovery.answers(measured[frozenset(recovery.block.attributes)])
        return total

    def _recover(self, family: Family, pieces: tuple[Piece, ...], block: BlockStrategy) -> Recovery:
        parts = tuple(
            Part(
                tuple(bs),
                tuple(fs),
                self._part([pieces[b] for b in bs], [block.factors[f] for f in fs]),
            )
            for bs, fs in _groups(pieces, block.factors)
        )
        return Recovery(block, family.shape, parts)

    def _part(self, pieces: list[Piece], factors: list[IntegerFactor]) -> Array:
        if len(pieces) != 1 or len(factors) != 1 or pieces[0].attributes != factors[0].attributes:
            return _multiply(pieces, factors, [self._inverse(f) for f in factors])
        key = (pieces[0].key, id(factors[0].matrix))
        if key not in self._parts:
            self._parts[key] = pieces[0].matrix @ self._inverse(factors[0])
        return self._parts[key]

    def _inverse(self, factor: IntegerFactor) -> Array:
        key = id(factor.matrix)
        if key not in self._inverses:
            self._inverses[key] = pseudo_inverse(factor)
        return self._inverses[key]


def pseudo_inverse(factor: IntegerFactor) -> Array:
    """Return B⁺ of shape (cells, measurements) for rows that are independent.

    Bᵀ = QR gives B⁺ = Q R⁻ᵀ, which doesn't square the condition number as BBᵀ would.
    """
    q, r = scipy.linalg.qr(factor.matrix.T.astype(np.float64), mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)


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


def _multiply(pieces: list[Piece], factors: list[IntegerFactor], inverses: list[Array]) -> Array:
    """Multiply a group's queries, written out, by the pseudo-inverses, axis by axis."""
    matrix: Array = np.ones((1, 1))
    for p in pieces:
        matrix = np.asarray(np.kron(matrix, p.matrix), dtype=np.float64)
    names = [a for p in pieces for a in p.attributes]
    tensor: Array = matrix.reshape(-1, *(n for p in pieces for n in p.shape))
    for factor, inverse in zip(factors, inverses, strict=True):
        axes = [names.index(a) + 1 for a in factor.attributes]
        tensor = _contract(tensor, inverse.reshape(*factor.shape, -1), axes, len(factor.shape))
        names = [a for a in names if a not in factor.attributes]
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
