"""Divide: split every query into pieces, one for each residual space that it touches.

Notation (QuerySmasher, arXiv 2604.00868, 6.2; ResidualPlanner, arXiv 2305.08175, 4). For an
attribute with the reference ℓ, `drop` contracts a query with ℓ and `keep` is what is left after
that number is taken away. For a query q over attributes B and A ⊆ B,

    q_A = (keep on every axis in A, drop on every axis in B∖A) q ,      q(x_B) = Σ_A q_A(x_A) .

q_A lies in the residual space V_A, whose members contract to zero with ℓ along every axis of A.
The spaces are linearly independent, so that each can be measured on its own.

A family is a Kronecker product over blocks, and both operations act on one axis at a time, so
the pieces of a family are Kronecker products as well. They are never multiplied out here, and
spaces of which the same is asked are described once, as one subworkload.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.sets import subsets
from dpsql.planner.residuals.equivalence import Coloring, FamilyKind, distinct_rows, kinds
from dpsql.planner.residuals.pieces import Piece
from dpsql.workload import Block, Workload

MAX_SPACES = 1 << 18
"""Where all are asked for other things, planning takes about 0.15 milliseconds for each."""

MAX_JOINT_ATTRIBUTES = 12
"""A matrix over k attributes has 2^k pieces, each taking time in its cells, 2^k or more."""

Layout = tuple[tuple[Piece, tuple[int, ...]], ...]
"""Pieces and the axes of the residual space that they take."""
Dropped = tuple[Piece, ...]
Asked = tuple[int, float]
"""Which layout with which dropped pieces, and the weight of the families that ask it."""


@dataclass(frozen=True, slots=True)
class Term:
    """A weighted Kronecker product of pieces: what some families ask of a residual space.

    Its weight is Σ share · ∏ (squares of the dropped pieces).
    """

    shares: tuple[tuple[float, Dropped], ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Subworkload:
    """What is asked of each of some residual spaces: the same of all, attributes renamed."""

    terms: tuple[Term, ...]
    spaces: tuple[tuple[str, ...], ...]
    """Their attributes, in domain order."""


def decompose(
    workload: Workload, coloring: Coloring, squares: Callable[[Piece], float]
) -> tuple[Subworkload, ...]:
    """Collect the pieces of all families by residual space, the smallest spaces first.

    Args:
        workload: the families.
        coloring: which attributes share a reference.
        squares: tells how large a piece is; pieces of 0 are left out.

    Raises:
        ResourceLimitError: there are too many.
    """
    table = _SubworkloadTable(workload, coloring)
    for kind in kinds(workload, coloring):
        table.add(kind, squares)
    return tuple(chain.from_iterable(table.subworkloads(size) for size in sorted(table.sizes)))


class _SubworkloadTable:
    """Number of attributes → (layout, dropped) → spaces and weights, as they are found."""

    def __init__(self, workload: Workload, coloring: Coloring) -> None:
        self._names = tuple(workload.domain)
        self._colors = coloring.colors
        self._found: dict[int, dict[tuple[Layout, Dropped], list[tuple[Ints, Array]]]]
        self._found = defaultdict(lambda: defaultdict(list))

    @property
    def sizes(self) -> set[int]:
        return set(self._found)

    def add(self, kind: FamilyKind, squares: Callable[[Piece], float]) -> None:
        """Add what the families of one kind ask of each residual space that they touch.

        A family is ⊗_b Q_b, so its pieces are ⊗_b (Q_b kept on some axes, dropped on the others):
        one choice for each block, independent of the other blocks. A choice that is 0 leaves all
        products with it out.
        """
        choices, begin = [], 0
        for block in kind.blocks:
            end = begin + len(block.attributes)
            colors = tuple(self._colors[i] for i in kind.attributes[0, begin:end])
            choices.append([p for p in _pieces(block, colors, begin) if squares(p[0])])
            begin = end
        if math.prod(map(len, choices)) > MAX_SPACES:
            raise _too_many_spaces()
        for parts in product(*choices):
            self._place(
                kind, [p for p in parts if p[1]], [p for p, columns in parts if not columns]
            )

    def _place(
        self, kind: FamilyKind, kept: list[tuple[Piece, tuple[int, ...]]], dropped: list[Piece]
    ) -> None:
        # The space of each family: its kept attributes, in domain order.
        columns = [c for _, cs in kept for c in cs]
        attributes = kind.attributes[:, columns]
        order = attributes.argsort(axis=1)
        spaces = np.take_along_axis(attributes, order, axis=1)
        ranks = order.argsort(axis=1)
        # Families whose attributes are in the same order have their pieces on the same axes.
        for rank, rows in _alike(ranks):
            axis = dict(zip(columns, rank, strict=True))
            layout = [(piece, tuple(axis[c] for c in cs)) for piece, cs in kept]
            layout.sort(key=lambda placed: placed[1])
            key = tuple(layout), tuple(sorted(dropped, key=lambda p: (p.key, p.colors)))
            self._found[len(columns)][key].append((spaces[rows], kind.weights[rows]))

    def subworkloads(self, size: int) -> Iterator[Subworkload]:
        """Group the residual spaces of some size by what is asked of them."""
        # 1. Number the different spaces; every (layout, dropped) has a slice of `codes`.
        keys = list(self._found[size])
        parts = [part for key in keys for part in self._found[size][key]]
        counts = [sum(len(w) for _, w in self._found[size][key]) for key in keys]
        codes, spaces = distinct_rows(np.concatenate([s for s, _ in parts]), len(self._names))
        if len(spaces) > MAX_SPACES:
            raise _too_many_spaces()
        weights = np.split(np.concatenate([w for _, w in parts]), np.cumsum(counts)[:-1])
        # 2. For each space, what is asked of it: numbers of keys with the sums of their weights.
        asked: list[list[Asked]] = [[] for _ in spaces]
        for number, (at, weight) in enumerate(
            zip(np.split(codes, np.cumsum(counts)[:-1]), weights, strict=True)
        ):
            sums = np.bincount(at, weight)
            for space in np.flatnonzero(np.bincount(at)).tolist():
                asked[space].append((number, float(sums[space])))
        # 3. Spaces of which the same is asked. Equal layouts have equal colors, so that those of
        # one group differ in names only.
        groups: dict[tuple[Asked, ...], list[int]] = defaultdict(list)
        for space, what in enumerate(asked):
            groups[tuple(what)].append(space)
        for same, members in groups.items():
            yield Subworkload(_terms(same, keys), tuple(self._named(spaces[m]) for m in members))

    def _named(self, space: Ints) -> tuple[str, ...]:
        return tuple(self._names[i] for i in space.tolist())


def _too_many_spaces() -> ResourceLimitError:
    return ResourceLimitError(
        f"The queries touch more than {MAX_SPACES:,} residual spaces.",
        hint="group by fewer columns at once: k columns touch 2^k spaces.",
    )


def _terms(what: tuple[Asked, ...], keys: list[tuple[Layout, Dropped]]) -> tuple[Term, ...]:
    """Put the shares of one layout together."""
    shares: dict[Layout, list[tuple[float, Dropped]]] = defaultdict(list)
    for number, weight in what:
        layout, dropped = keys[number]
        shares[layout].append((weight, dropped))
    return tuple(Term(tuple(found), layout) for layout, found in shares.items())


def _pieces(
    block: Block, colors: tuple[int, ...], begin: int
) -> Iterator[tuple[Piece, tuple[int, ...]]]:
    """Yield every piece of a block with the columns that it keeps."""
    width = len(block.attributes)
    if width > MAX_JOINT_ATTRIBUTES:
        raise ResourceLimitError(
            f"One condition joins {width} columns, more than {MAX_JOINT_ATTRIBUTES}.",
            hint="store what it says as a column of its own, or join fewer columns by OR.",
        )
    for columns in subsets(range(width)):
        kept = tuple(i in columns for i in range(width))
        piece = Piece(block.queries.key, colors, kept, block.queries)
        yield piece, tuple(begin + c for c in columns)


def _alike(ranks: Ints) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Group rows that are equal: yield each with where it is."""
    if (ranks == ranks[0]).all():  # of most kinds, and quick to see
        yield tuple(ranks[0].tolist()), np.arange(len(ranks))
        return
    codes, distinct = distinct_rows(ranks, max(1, ranks.shape[1]))
    for number, rank in enumerate(distinct.tolist()):
        yield tuple(rank), np.flatnonzero(codes == number)
