"""Recovery: how answers follow from measurements, and with which variance.

On the residual space V_A, the measurements y = B_A x_A + z give the estimate t_A = B_A⁺ y over
the cells of A. Spread evenly over the other attributes of B and added up, the estimates make a
marginal over B,

    x̂_B = Σ_{A⊆B} t_A ⊗ (1/n_i for i in B∖A) ,

and every query q over B that was planned for has q(x̂_B) = Σ_A q_A(t_A): exactly unbiased, with

    variance = Σ_A (σ_A² + 1/12) ‖q_A B_A⁺‖² .

B_A is a Kronecker product of factors and the queries are one of blocks, so ‖q_A B_A⁺‖² is a
product of one number for each group of blocks and factors that share attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpsql.planner.component import Component
from dpsql.planner.decompose import split_rows
from dpsql.planner.integer import (
    NOISE_ROUNDING_VARIANCE,
    BlockStrategy,
    CentredFactor,
    IntegerFactor,
)
from dpsql.workload import Block, Family
from dpsql.workload.queries import DenseQueries

Array = NDArray[np.float64]

WeightedProduct = tuple[float, Sequence[Component]]

CHUNK = 2**24
"""Entries of a product that are held at once while its squares are added up."""


class Recovery:
    """How answers and variances follow from the blocks of one plan.

    What depends on the contents only is made once for equal contents.
    """

    def __init__(self, blocks: Sequence[BlockStrategy]) -> None:
        self._blocks = {frozenset(b.attributes): b for b in blocks}
        self._inverses: dict[bytes, Array] = {}
        self._norms: dict[tuple[bytes, bytes], Array] = {}
        self._errors: dict[tuple[bytes, bytes], float] = {}

    def marginal(
        self,
        attributes: Sequence[str],
        sizes: Sequence[int],
        values: Mapping[frozenset[str], Array],
    ) -> Array:
        """Return x̂_B from the noisy measurements of each residual space."""
        total = np.zeros(tuple(sizes))
        for block in self._inside(attributes):
            estimate = self._estimate(block, values[frozenset(block.attributes)])
            places = [attributes.index(a) for f in block.factors for a in f.attributes]
            here = [n if i in places else 1 for i, n in enumerate(sizes)]
            spread = estimate.transpose(np.argsort(places)).reshape(here)
            total += spread * (spread.size / total.size)
        return total

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family."""
        total = np.zeros(family.shape)
        attributes = [a for block in family.blocks for a in block.attributes]
        for strategy in self._inside(attributes):
            total += _noise(strategy) * self._squares(family.blocks, strategy)
        return total

    def error(self, terms: Iterable[WeightedProduct], block: BlockStrategy) -> float:
        """Return the weighted sum of variances that a block gives to the terms of its space."""
        return _noise(block) * math.fsum(
            weight * math.prod(self._component_errors(components, block))
            for weight, components in terms
        )

    def _inside(self, attributes: Sequence[str]) -> Iterator[BlockStrategy]:
        sizes = range(len(attributes) + 1)
        for subset in chain.from_iterable(combinations(attributes, size) for size in sizes):
            block = self._blocks.get(frozenset(subset))
            if block is not None:
                yield block

    def _estimate(self, block: BlockStrategy, values: Array) -> Array:
        """Return ⊗B⁺ y over the cells of the factors' attributes, in the order of the factors."""
        result = values
        for axis, factor in enumerate(block.factors):
            result = self._invert(factor, result, axis)
        return result.reshape([n for f in block.factors for n in f.shape])

    def _invert(self, factor: IntegerFactor, values: Array, axis: int) -> Array:
        if isinstance(factor, CentredFactor):
            # (s(nI − J))⁺ = (I − J/n)/(sn)
            centred = values - values.mean(axis=axis, keepdims=True)
            return np.asarray(centred / (factor.scale * factor.cells))
        return np.moveaxis(np.tensordot(self.inverse(factor), values, (1, axis)), 0, axis)

    def inverse(self, factor: IntegerFactor) -> Array:
        """Return B⁺ of a factor, written out: shape (cells, measurements)."""
        if factor.content not in self._inverses:
            self._inverses[factor.content] = pseudo_inverse(factor)
        return self._inverses[factor.content]

    def _squares(self, blocks: Sequence[Block], strategy: BlockStrategy) -> Array:
        """Return ‖q_A B_A⁺‖² of every query."""
        result, order = np.ones(()), []
        for bs, fs in _groups([b.attributes for b in blocks], strategy.factors):
            group = [blocks[b] for b in bs]
            norms = self._group_squares(group, [strategy.factors[f] for f in fs])
            result = np.multiply.outer(result, norms)
            order += bs
        return result.transpose(np.argsort(order))

    def _group_squares(self, blocks: Sequence[Block], factors: Sequence[IntegerFactor]) -> Array:
        if not blocks:  # the total's own factor
            return np.asarray(math.prod(float(np.square(self.inverse(f)).sum()) for f in factors))
        if not factors:
            (block,) = blocks
            return np.asarray(np.square(block.queries.sums() / block.queries.cells))
        if len(blocks) == len(factors) == 1 and len(blocks[0].attributes) == 1:
            key = (blocks[0].queries.key, factors[0].content)
            if key not in self._norms:
                self._norms[key] = self._axis_squares(blocks[0], factors[0])
            return self._norms[key]
        if len(factors) == 1 and all(len(b.attributes) == 1 for b in blocks):
            return self._joint_squares(blocks, factors[0])
        kept = {a for f in factors for a in f.attributes}
        rows = [split_rows(b, tuple(a in kept for a in b.attributes)) for b in blocks]
        names = [a for b in blocks for a in b.attributes if a in kept]
        squares: Array = np.square(self._multiply(rows, names, factors)).sum(axis=1)
        return squares.reshape([b.queries.rows for b in blocks])

    def _axis_squares(self, block: Block, factor: IntegerFactor) -> Array:
        """Return ‖q_A B⁺‖² of one attribute's queries; the columns of B⁺ are centred already."""
        queries = block.queries
        if isinstance(factor, CentredFactor):
            n = factor.cells
            centred = queries.squares() - np.square(queries.sums()) / n
            return np.asarray(np.maximum(centred, 0.0) / (factor.scale * n) ** 2)
        if isinstance(queries, DenseQueries):
            table = split_rows(block, (True,)) @ self.inverse(factor)
            return np.asarray(np.square(table).sum(axis=1))
        return self._joint_squares([block], factor)

    def _joint_squares(self, blocks: Sequence[Block], factor: IntegerFactor) -> Array:
        """Apply each attribute's queries to the columns of B⁺, some columns at a time."""
        inverse = self.inverse(factor)
        order = [factor.attributes.index(b.attributes[0]) for b in blocks]
        tensor = inverse.reshape(*factor.shape, -1).transpose(*order, -1)
        result = np.zeros([b.queries.rows for b in blocks])
        step = max(1, CHUNK // max(1, result.size))
        for start in range(0, tensor.shape[-1], step):
            columns = tensor[..., start : start + step]
            for axis, block in enumerate(blocks):
                columns = block.queries.apply(columns, axis)
            result += np.square(columns).sum(axis=-1)
        return result

    def _component_errors(
        self, components: Sequence[Component], strategy: BlockStrategy
    ) -> Iterator[float]:
        for cs, fs in _groups([c.attributes for c in components], strategy.factors):
            group = [components[c] for c in cs]
            factors = [strategy.factors[f] for f in fs]
            if len(group) == len(factors) == 1:
                key = (group[0].content, factors[0].content)
                if key not in self._errors:
                    self._errors[key] = self._error(group, factors)
                yield self._errors[key]
            else:
                yield self._error(group, factors)

    def _error(self, components: Sequence[Component], factors: Sequence[IntegerFactor]) -> float:
        """Return Σ ‖row B⁺‖² over the rows of the components' product."""
        only = factors[0]
        if len(components) == len(factors) == 1:
            if isinstance(only, CentredFactor):
                return components[0].squares / (only.scale * only.cells) ** 2
            if components[0].attributes == only.attributes:
                return float(np.square(components[0].rows @ self.inverse(only)).sum())
        names = [a for c in components for a in c.attributes]
        matrix = self._multiply([c.rows for c in components], names, factors)
        return float(np.square(matrix).sum())

    def _multiply(
        self, rows: Sequence[Array], names: list[str], factors: Sequence[IntegerFactor]
    ) -> Array:
        """Write out the product of `rows`, and multiply it by the B⁺ axis by axis."""
        matrix: Array = np.ones((1, 1))
        for table in rows:
            matrix = np.asarray(np.kron(matrix, table), dtype=np.float64)
        size = {a: n for f in factors for a, n in zip(f.attributes, f.shape, strict=True)}
        tensor: Array = matrix.reshape(-1, *(size[a] for a in names))
        for factor in factors:
            axes = [names.index(a) + 1 for a in factor.attributes]
            inverse = self.inverse(factor).reshape(*factor.shape, -1)
            tensor = np.asarray(np.tensordot(tensor, inverse, (axes, list(range(len(axes))))))
            # Axes that are used up go, new ones come last.
            names = [a for a in names if a not in factor.attributes]
        return tensor.reshape(matrix.shape[0], -1)


def pseudo_inverse(factor: IntegerFactor) -> Array:
    """Return B⁺ of shape (cells, measurements).

    For rows that are independent, Bᵀ = QR gives B⁺ = Q R⁻ᵀ, which doesn't square the condition
    number as BBᵀ would.
    """
    if isinstance(factor, CentredFactor):
        centred = np.eye(factor.cells) - 1 / factor.cells
        return np.asarray(centred / (factor.scale * factor.cells))
    q, r = scipy.linalg.qr(factor.matrix.T.astype(np.float64), mode="economic")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, trans="N", lower=False).T)


def _noise(block: BlockStrategy) -> float:
    return float(block.noise_variance + NOISE_ROUNDING_VARIANCE)


def _groups(
    attributes: Sequence[tuple[str, ...]], factors: Sequence[IntegerFactor]
) -> list[tuple[list[int], list[int]]]:
    """Group blocks (given by their attributes) and factors that common attributes connect."""
    groups: list[tuple[list[int], list[int], set[str]]] = []
    for b, names in enumerate(attributes):
        groups = _join(groups, [b], [], set(names))
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
