"""The part of some queries in one residual space, and the pieces of queries it is made of.

A `Component` is the problem that solvers solve. A piece is what is left of a block of queries when
it is kept on some axes and dropped on others. On one axis, with the reference ℓ: `drop` contracts a
query with ℓ, and `keep` takes that number away from every coefficient. See `decompose` for why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import CenteredCells, Dense, StructuredMatrix
from dpsql.linalg.nested import nested_rows
from dpsql.linalg.roots import full_rank_root
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Queries

MAX_IDENTITY = 2**13
"""Cells up to which an identity is written out, where it is not alone."""

Key = tuple[tuple[int, ...], bytes]


@dataclass(frozen=True, eq=False)
class Component:
    """Weighted query rows over the joint cells of some axes of a residual space.

    Only their Gram matrix matters for a strategy, so `rows` may be any rows with the same one.
    Components of equal `content` are the same problem, wherever they are placed.
    """

    axes: tuple[int, ...]
    """Positions of the attributes in the residual space, ascending."""
    references: tuple[Reference, ...]
    """One for each axis: the space holds what they make zero."""
    content: bytes
    given: Array | None
    """The rows, of shape (any number, cells); None if `identity` says it all."""
    numerators: Ints | None = None
    """Integer rows that span what the rows do, or more, if such are known."""
    identity: float | None = None
    """If given, what is asked are single cells of one attribute with a uniform reference: the Gram
    matrix is (I − J/n) diag(w) (I − J/n), and this is the mean of w."""
    by_cell: Array | None = None
    """w, where it differs from cell to cell."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(len(r.weights) for r in self.references)

    @cached_property
    def rows(self) -> Array:
        """The rows, written out: shape (any number, cells).

        Raises:
            ResourceLimitError: an identity over too many cells.
        """
        if self.given is not None:
            return self.given
        (n,) = self.shape
        if n > MAX_IDENTITY:
            raise ResourceLimitError(
                f"The {n:,} values of one column can be counted, but not together with running "
                "totals or ranges over them.",
                hint="use a coarser domain for those, or release them apart.",
            )
        asked = np.flatnonzero(self.weights)
        return np.asarray(np.sqrt(self.weights[asked, None]) * (np.eye(n)[asked] - 1 / n))

    @property
    def queries(self) -> StructuredMatrix:
        """The rows, which need not be written out."""
        return CenteredCells(self.weights) if self.given is None else Dense(self.given)

    @property
    def weights(self) -> Array:
        """Return w, for each cell, where `identity` is given."""
        (n,) = self.shape
        return np.full(n, self.identity or 0.0) if self.by_cell is None else self.by_cell

    @property
    def key(self) -> Key:
        """Tell whether two components of one subworkload are the same factor."""
        return self.axes, self.content

    @property
    def dimension(self) -> int:
        """The dimension of the residual space."""
        return math.prod(n - 1 for n in self.shape)

    @property
    def most_rank(self) -> int:
        """An upper bound on the rank of the rows."""
        count = np.count_nonzero(self.weights) if self.given is None else len(self.given)
        return min(self.dimension, int(count))

    @cached_property
    def squares(self) -> float:
        """The sum of the rows' squared norms: the trace of the Gram matrix."""
        return float(self.queries.squares().sum())


MAX_EXACT = 2.0**52
"""Queries in integers are split in exact integers up to this: they are exact as floats, too."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block's queries, kept on some axes; told apart by content, wherever they are asked."""

    key: bytes
    """The queries' own key."""
    colors: tuple[int, ...]
    """The color of the attribute on each axis: those of one color have one reference."""
    kept: tuple[bool, ...]
    queries: Queries = field(compare=False, repr=False)


class Splitter:
    """Makes components of pieces, for one reference per color. Each is made once."""

    def __init__(self, references: Sequence[Reference]) -> None:
        self.references = tuple(references)
        self._known: dict[Piece, Component] = {}
        self._placed: dict[tuple[Piece, tuple[int, ...]], Component] = {}

    def moved(self, references: Sequence[Reference]) -> Splitter:
        """Return one for other references, with what is made already of those that are the same."""
        pairs = enumerate(zip(self.references, references, strict=True))
        same = {color for color, (old, new) in pairs if old.key == new.key}
        splitter = Splitter(references)
        splitter._known = {p: c for p, c in self._known.items() if same.issuperset(p.colors)}
        splitter._placed = {k: c for k, c in self._placed.items() if same.issuperset(k[0].colors)}
        return splitter

    def component(self, piece: Piece, axes: tuple[int, ...]) -> Component:
        """Return the kept queries over the axes of a residual space, ascending."""
        key = piece, axes
        if key not in self._placed:
            self._placed[key] = place(self._split(piece), axes)
        return self._placed[key]

    def squares(self, piece: Piece) -> float:
        """Return the sum of the squared coefficients; 0 if the piece vanishes."""
        return self._split(piece).squares

    def _split(self, piece: Piece) -> Component:
        if piece not in self._known:
            references = [self.references[c] for c in piece.colors]
            self._known[piece] = split(piece.queries, references, piece.kept)
        return self._known[piece]


def place(component: Component, axes: tuple[int, ...]) -> Component:
    """Put a component on other axes; its cells are reordered if they are not ascending."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    target = tuple(axes[i] for i in order)
    references = tuple(component.references[i] for i in order)
    given, numerators, content = component.given, component.numerators, component.content
    if order != list(range(len(axes))):
        given = None if given is None else reorder(given, component.shape, order)
        numerators = None if numerators is None else reorder(numerators, component.shape, order)
        content = hashlib.sha256(repr(order).encode() + content).digest()
    return Component(
        target, references, content, given, numerators, component.identity, component.by_cell
    )


def reorder(rows: NDArray, shape: tuple[int, ...], order: Sequence[int]) -> NDArray:  # type: ignore[type-arg]
    """Permute the axes of the cells."""
    tensor = rows.reshape(len(rows), *shape).transpose(0, *(i + 1 for i in order))
    return _frozen(np.ascontiguousarray(tensor.reshape(len(rows), math.prod(shape))))


def split(queries: Queries, references: Sequence[Reference], kept: tuple[bool, ...]) -> Component:
    """Split queries; by their Gram matrix where they are at least as many as the cells."""
    keys = b"".join(r.key for r in references)
    content = hashlib.sha256(repr(kept).encode() + keys + queries.key).digest()
    left = tuple(r for r, keep in zip(references, kept, strict=True) if keep)
    axes = tuple(range(len(left)))
    if kept == (False,) and not queries.is_written:
        norm = float(np.linalg.norm(queries.apply(references[0].weights, 0)))
        return Component(axes, left, content, np.full((1, 1), norm))
    if kept == (True,) and references[0].uniform:
        squares = queries.cell_squares()
        if squares is not None:
            alike = None if (squares == squares[0]).all() else squares
            return Component(axes, left, content, None, None, float(squares.mean()), alike)
    known = queries.is_written or queries.is_identity
    if len(kept) == 1 and not known and queries.rows >= queries.cells:
        root = _root(queries.gram(), references[0].weights, kept[0])
        return Component(axes, left, content, _frozen(root))
    matrix = queries.matrix
    exact = _split_integers(matrix, references, kept)
    if exact is not None:
        numerators, denominator = exact
        return Component(axes, left, content, _frozen(numerators / denominator), numerators)
    reals = split_rows(matrix, [r.weights for r in references], kept)
    return Component(axes, left, content, _frozen(_flush(reals, matrix)))


def _root(gram: Array, weights: Array, keep: bool) -> Array:
    """Return rows whose Gram matrix is that of the kept, or dropped, part of some queries."""
    means = gram @ weights
    if not keep:
        return np.array([[math.sqrt(weights @ means)]])
    if (rows := nested_rows(gram)) is not None:
        # Indicators of sets that differ are independent of each other and of 1, but for all cells.
        kept = rows - (rows @ weights)[:, None]
        return np.ascontiguousarray(kept[~(rows != 0).all(axis=1)])
    centered = gram - means - means[:, None] + weights @ means
    return np.ascontiguousarray(full_rank_root(centered))


def split_rows(matrix: Array, weights: Sequence[Array], kept: tuple[bool, ...]) -> Array:
    """Split queries row by row: shape (queries, cells of the kept axes)."""
    work = matrix.reshape(-1, *map(len, weights))
    for axis in reversed(range(len(kept))):
        dropped = np.tensordot(work, weights[axis], (axis + 1, 0))
        work = work - np.expand_dims(dropped, axis + 1) if kept[axis] else dropped
    return np.ascontiguousarray(work.reshape(len(matrix), -1))


_SCALES = (1, 2, 4, 10, 100, 1_000, 10_000)


def _split_integers(
    matrix: Array, references: Sequence[Reference], kept: tuple[bool, ...]
) -> tuple[Ints, int] | None:
    """Return the split matrix as integers and one denominator, where they are small enough.

    With ℓ = p/P, both operations are scaled by P, so that nothing is divided.
    """
    integers = [r.numerators for r in references if r.numerators is not None]
    if len(integers) < len(references):
        return None
    totals = [r.total for r in references]
    denominator = math.prod(totals)
    scale = _whole_scale(matrix)
    growth = math.prod(max(t, int(np.abs(p).sum())) for t, p in zip(totals, integers, strict=True))
    if not scale or scale * float(np.abs(matrix).max(initial=0)) * growth > MAX_EXACT:
        return None
    work = (
        np.rint(matrix * scale).astype(np.int64).reshape(-1, *(len(r.weights) for r in references))
    )
    for axis in reversed(range(len(kept))):
        dropped = np.tensordot(work, integers[axis], (axis + 1, 0))
        kept_part = work * totals[axis] - np.expand_dims(dropped, axis + 1)
        work = kept_part if kept[axis] else dropped
    return np.ascontiguousarray(work.reshape(len(matrix), -1)), denominator * scale


def _whole_scale(matrix: Array) -> int:
    """Return a small number that makes all coefficients whole; 0 if none does.

    Sums of decimals have such coefficients, and squares of halves.
    """
    size = np.abs(matrix).max(initial=1.0)
    for scale in _SCALES:
        scaled = matrix * scale
        if (np.abs(scaled - np.rint(scaled)) <= 1e-14 * scale * size).all():
            return scale
    return 0


def _flush(pieces: Array, queries: Array) -> Array:
    """Zero what only rounding left over, so that an absent piece is seen to be absent."""
    scales = np.abs(queries).max(axis=1, initial=0.0, keepdims=True)
    return np.where(np.abs(pieces) <= 1e-13 * scales, 0.0, pieces)


def _frozen(matrix: NDArray) -> NDArray:  # type: ignore[type-arg]
    matrix.setflags(write=False)
    return matrix
