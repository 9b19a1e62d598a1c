"""Queries in terms of measurements of residual spaces: q_A B_A⁺, and its squared norms.

B_A is a Kronecker product of factors and the queries are one of blocks, so q_A B_A⁺ is a product
over the groups of blocks and factors that share attributes, and so is its squared norm. Written
out is at most one group, some rows at a time.

Whether measurements determine queries at all is here, too: only then do unbiased answers follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense, Kronecker, StructuredMatrix, kron
from dpsql.linalg.sets import connected
from dpsql.planner.reconstruction.measured import MeasuredFactor, Space
from dpsql.planner.residuals.pieces import Component, split_rows
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.structure import Product
from dpsql.workload import Block, Family

CHUNK = 2**24
"""Entries of a product that are held at once while its squares are added up."""


class Inverses:
    """CB⁺ of factors, with C = ⊗(I − ℓ1ᵀ), and what it makes of queries.

    What depends on the contents only is made once for equal contents.
    """

    def __init__(self, references: Mapping[str, Reference]) -> None:
        self.references = references
        """Attribute → its reference."""
        self._inverses: dict[tuple[bytes, ...], StructuredMatrix] = {}
        self._norms: dict[tuple[bytes, ...], Array] = {}

    def estimate(self, space: Space, values: Array) -> Array:
        """Return ⊗CB⁺ y over the cells of the factors' attributes, in the order of the factors."""
        inverse = Kronecker(self.inverse(f, space.of(f)) for f in space.factors)
        return (inverse @ values.ravel()).reshape([n for f in space.factors for n in f.shape])

    def inverse(self, factor: MeasuredFactor, names: tuple[str, ...]) -> StructuredMatrix:
        """Return CB⁺ of a factor on some attributes: shape (cells, measurements)."""
        references = [self.references[a] for a in names]
        key = (factor.content, *(r.key for r in references))
        if key not in self._inverses:
            self._inverses[key] = _keeping(factor.real.pinv(factor.shape), references)
        return self._inverses[key]

    def squares(self, blocks: Sequence[Block], space: Space) -> Array:
        """Return ‖q_A B_A⁺‖² of every query."""
        result, order = np.ones(()), []
        for bs, norms in self._tables(blocks, space):
            result = np.multiply.outer(result, norms)
            order += bs
        return result.transpose(np.argsort(order))

    def tables(self, blocks: Sequence[Block], space: Space) -> list[Array]:
        """Return tables over groups of blocks whose outer product is ‖q_A B_A⁺‖² of every query."""
        return [norms for _, norms in self._tables(blocks, space)]

    def _tables(self, blocks: Sequence[Block], space: Space) -> Iterator[tuple[list[int], Array]]:
        factors = space.factors
        for bs, fs in groups([b.attributes for b in blocks], [space.of(f) for f in factors]):
            yield bs, self.group_squares([blocks[b] for b in bs], [factors[f] for f in fs], space)

    def group_squares(
        self, blocks: Sequence[Block], factors: Sequence[MeasuredFactor], space: Space
    ) -> Array:
        """Return ‖q_A B_A⁺‖² over one group of blocks and factors, in the shape of the blocks.

        q_A is the blocks' queries, kept on the attributes of the factors and dropped on others, and
        q_A B_A⁺ = q·CB⁺, as C = ⊗(I − ℓ1ᵀ) keeps, and B⁺ = ⊗ of the factors' B⁺.
        """
        # No block: the total's own factor, of one cell, and q = 1.
        if not blocks:
            squares = [float(self.inverse(f, ()).squares().sum()) for f in factors]
            return np.asarray(math.prod(squares))
        # No factor: all attributes are dropped, and what is left of a query is one number.
        if not factors:
            (block,) = blocks
            return np.asarray(np.square(self.dropped(block)))
        # One factor, all of whose attributes are kept, one by each block: q need not be written
        # out to be applied to the columns of CB⁺.
        if len(factors) == 1 and all(len(b.attributes) == 1 for b in blocks):
            return self._of_axes(blocks, factors[0], space.of(factors[0]))
        # Else a block has several attributes, of several factors or partly dropped. Its rows are
        # written out, some at a time: no family is too large that has parts that are not.
        cells = math.prod(n for block in blocks for n in block.shape)
        parts = Family("", tuple(blocks), 1.0).parts(max(1, CHUNK // cells))
        squares_ = [np.square(self.table(p.blocks, factors, space)).sum(axis=1) for p in parts]
        return np.concatenate(squares_).reshape([b.queries.rows for b in blocks])

    def table(
        self, blocks: Sequence[Block], factors: Sequence[MeasuredFactor], space: Space
    ) -> Array:
        """Write out q_A B_A⁺ over one group: shape (rows of the blocks, measurements)."""
        kept = {a for f in factors for a in space.of(f)}
        rows = [
            split_rows(
                b.queries.matrix,
                [self.references[a].weights for a in b.attributes],
                tuple(a in kept for a in b.attributes),
            )
            for b in blocks
        ]
        names = [a for b in blocks for a in b.attributes if a in kept]
        return self.multiply(rows, names, [(f, space.of(f)) for f in factors])

    def dropped(self, block: Block) -> Array:
        """Contract all axes of a block's queries with their references."""
        return block.queries @ kron(self.references[a].weights for a in block.attributes).ravel()

    def error(self, terms: Sequence[Product], attributes: Sequence[str], space: Space) -> float:
        """Return the weighted sum of variances that the noise in a space gives to some terms.

        The attributes are in the order of the terms' axes; the space may have another one.
        """
        return math.fsum(
            space.noise * t.weight * math.prod(self._errors(t.pieces, attributes, space))
            for t in terms
        )

    def _of_axes(
        self, blocks: Sequence[Block], factor: MeasuredFactor, names: tuple[str, ...]
    ) -> Array:
        """Return ‖q_A B_A⁺‖² for queries of one attribute each, and a factor over all of them."""
        inverse = self.inverse(factor, names)
        if len(blocks) > 1:
            # Cells in the order of the blocks, so that the queries are a Kronecker product.
            columns = LabeledArray((*names, ""), inverse.matrix.reshape(*factor.shape, -1))
            ordered = columns.transpose([*(b.attributes[0] for b in blocks), ""])
            queries = Kronecker(b.queries for b in blocks)
            squares = Dense(ordered.reshape(inverse.rows, -1)).image_squares(queries)
            return squares.reshape([b.queries.rows for b in blocks])
        (block,) = blocks
        key = (block.queries.key, factor.content, self.references[names[0]].key)
        if key not in self._norms:
            self._norms[key] = inverse.image_squares(block.queries)
        return self._norms[key]

    def _errors(
        self, pieces: Sequence[Component], attributes: Sequence[str], space: Space
    ) -> Iterator[float]:
        """Yield Σ ‖row B⁺‖² over the rows of the pieces' product, group by group."""
        placed = [(f, space.of(f)) for f in space.factors]
        names = [tuple(attributes[axis] for axis in p.axes) for p in pieces]
        for ps, fs in groups(names, [axes for _, axes in placed]):
            mine = [name for p in ps for name in names[p]]
            yield self._error([pieces[p] for p in ps], mine, [placed[f] for f in fs])

    def _error(
        self,
        pieces: Sequence[Component],
        names: list[str],
        factors: Sequence[tuple[MeasuredFactor, tuple[str, ...]]],
    ) -> float:
        only, axes = factors[0]
        if len(pieces) == len(factors) == 1 and tuple(names) == axes:
            return float(self.inverse(only, axes).image_squares(pieces[0].queries).sum())
        return float(np.square(self.multiply([p.rows for p in pieces], names, factors)).sum())

    def multiply(
        self,
        rows: Sequence[Array],
        names: list[str],
        factors: Sequence[tuple[MeasuredFactor, tuple[str, ...]]],
    ) -> Array:
        """Write out the product of `rows`, and multiply it by the CB⁺ axis by axis."""
        matrix = kron(rows)
        tensor: Array = matrix.reshape(-1, *(len(self.references[a].weights) for a in names))
        for factor, axes in factors:
            # Axes that are used up come last, and become one: that of the measurements.
            at = [names.index(a) + 1 for a in axes]
            tensor = np.moveaxis(tensor, at, range(-len(at), 0))
            tensor = tensor.reshape(*tensor.shape[: tensor.ndim - len(at)], -1)
            tensor = tensor @ self.inverse(factor, axes)
            names = [a for a in names if a not in axes]
        return tensor.reshape(matrix.shape[0], -1)


def _keeping(inverse: StructuredMatrix, references: Sequence[Reference]) -> StructuredMatrix:
    """Apply I − ℓ1ᵀ along every axis of the cells; nothing changes if ℓ = 0, or 1ᵀB⁺ = 0."""
    if not any(r.weights.any() for r in references):
        return inverse
    if len(references) == 1 and not inverse.T.sums().any():
        return inverse
    tensor = inverse.matrix.reshape(*(len(r.weights) for r in references), -1)
    for axis, reference in enumerate(references):
        along = [-1 if i == axis else 1 for i in range(tensor.ndim)]
        tensor = tensor - reference.weights.reshape(along) * tensor.sum(axis=axis, keepdims=True)
    return Dense(tensor.reshape(inverse.rows, -1))


def groups(
    parts: Sequence[tuple[str, ...]], others: Sequence[tuple[str, ...]]
) -> list[tuple[list[int], list[int]]]:
    """Group what common attributes connect: numbers of parts, and of others."""
    return [
        ([i for i in group if i < len(parts)], [i - len(parts) for i in group if i >= len(parts)])
        for group in connected(chain(parts, others))
    ]


CLOSE = 1e-6
"""Relative distance from a query to the span of the measurements, up to which it lies in it."""
WRITTEN = 2**24
"""Entries of queries that are written out to be compared."""


def spans(terms: Sequence[Product], space: Space) -> bool:
    """Whether what is asked of a residual space lies in the span of its measurements."""
    if all(_is_full(f) for f in space.factors):
        return True
    return all(
        _spans_group([t.pieces[p] for p in ps], [space.factors[f] for f in fs])
        for t in terms
        for ps, fs in groups(
            [tuple(space.attributes[axis] for axis in p.axes) for p in t.pieces],
            [space.of(f) for f in space.factors],
        )
        if ps
    )


def _is_full(factor: MeasuredFactor) -> bool:
    return factor.measurements >= math.prod(n - 1 for n in factor.shape)


def _spans_group(pieces: Sequence[Component], factors: Sequence[MeasuredFactor]) -> bool:
    """Project the product of some pieces' rows onto the rows of the factors, axis by axis."""
    if all(_is_full(f) for f in factors):
        return True
    if any(p.identity is not None and p.by_cell is None for p in pieces):  # of all cells
        return False
    if math.prod(p.dimension * len(p.rows) for p in pieces) > WRITTEN:
        return False
    rows: Array = kron(piece.rows for piece in pieces)
    axes = [axis for p in pieces for axis in p.axes]
    sizes = {axis: n for p in pieces for axis, n in zip(p.axes, p.shape, strict=True)}
    tensor = rows.reshape(-1, *(sizes[axis] for axis in axes))
    tensor = tensor.transpose(0, *(1 + i for i in np.argsort(axes)))
    projected, order = tensor, sorted(axes)
    for factor in factors:
        if not _is_full(factor):
            projected = _projected(projected, [1 + order.index(a) for a in factor.axes], factor)
    size = float(np.abs(rows).max(initial=0.0))
    return bool((np.abs(projected - tensor) <= CLOSE * size).all())


def _projected(tensor: Array, axes: Sequence[int], factor: MeasuredFactor) -> Array:
    """Apply B⁺B along the axes of a factor."""
    moved = np.moveaxis(tensor, axes, range(-len(axes), 0))
    flat = moved.reshape(-1, math.prod(factor.shape))
    projected = (flat @ factor.real.pinv(factor.shape)) @ factor.real
    return np.moveaxis(projected.reshape(moved.shape), range(-len(axes), 0), axes)
