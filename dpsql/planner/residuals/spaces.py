"""Residual spaces: which there are, which are asked the same, and those of each context."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from types import MappingProxyType

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.sets import subsets
from dpsql.planner.residuals.pieces import Piece, Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Block, Workload

# ── Divide: split every query into pieces, one for each residual space that it touches ───────────
#
# Notation (QuerySmasher, arXiv 2604.00868, 6.2; ResidualPlanner, arXiv 2305.08175, 4). For an
# attribute with the reference ℓ, `drop` contracts a query with ℓ and `keep` is what is left after
# that number is taken away. For a query q over attributes B and A ⊆ B,
#
#     q_A = (keep on every axis in A, drop on every axis in B∖A) q ,      q(x_B) = Σ_A q_A(x_A) .
#
# q_A lies in the residual space V_A, whose members contract to zero with ℓ along every axis of A.
# The spaces are linearly independent, so that each can be measured on its own.
#
# A family is a Kronecker product over blocks, and both operations act on one axis at a time, so
# the pieces of a family are Kronecker products as well. They are never multiplied out here, and
# spaces of which the same is asked are described once, as one subworkload.


MAX_SPACES = 1 << 18
"""Residual spaces at most: where no two are asked the same, each takes some 0.15 milliseconds."""

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
    """The queries about each of some residual spaces: the same of all, attributes renamed."""

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
    return tuple(Term(tuple(spaces), layout) for layout, spaces in shares.items())


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


# ── Colors: which attributes a workload treats alike, so that they can share a reference ─────────


@dataclass(frozen=True, slots=True)
class Coloring:
    """A color for each attribute. Attributes of one color have one size and one reference."""

    colors: tuple[int, ...]
    """The color of each attribute, in domain order: an index into `sizes`."""
    sizes: tuple[int, ...]
    """Cells of the attributes of each color."""


@dataclass(frozen=True, slots=True, eq=False)
class FamilyKind:
    """Families that have equal queries, over any attributes of equal colors."""

    blocks: tuple[Block, ...]
    """The blocks of one of these families."""
    attributes: Ints
    """Shape (families, attributes of all blocks)."""
    weights: Array
    """The weight of each family: shape (families,)."""


def by_size(workload: Workload) -> Coloring:
    """Give all attributes of one size one color."""
    sizes = tuple(sorted(set(workload.domain.values())))
    return Coloring(tuple(sizes.index(n) for n in workload.domain.values()), sizes)


def by_reference(
    references: Mapping[str, Reference], domain: Mapping[str, int]
) -> tuple[Coloring, list[Reference]]:
    """Give attributes that have equal references one color; return the colors' references."""
    distinct = {reference.key: reference for reference in references.values()}
    keys = list(distinct)
    colors = tuple(keys.index(references[name].key) for name in domain)
    sizes = tuple(len(r.weights) for r in distinct.values())
    return Coloring(colors, sizes), list(distinct.values())


def by_role(workload: Workload) -> Coloring:
    """Give attributes that occur in the same way in the same queries one color.

    Colors by size are refined until they are stable: attributes of one color then occur
    equally often at each place of families of each kind, weight and colors. Attributes that can
    be exchanged always end up with one color.
    """
    coloring = by_size(workload)
    sorts = kinds(workload, coloring)
    while True:
        finer = _refine(coloring, sorts)
        if len(finer.sizes) == len(coloring.sizes):
            return coloring
        coloring = finer


def _refine(coloring: Coloring, sorts: list[FamilyKind]) -> Coloring:
    """Tell attributes of one color apart by where they occur.

    One round of color refinement (Weisfeiler and Leman, 1968) on the hypergraph whose vertices are
    attributes and whose edges are families: vertices of one color stay so if as many edges of each
    description meet them at each place. All edges of a kind are handled at once, as rows.
    """
    colors = np.array(coloring.colors, dtype=np.int64)
    seen: list[Counter[object]] = [Counter() for _ in colors]
    for kind in sorts:
        # 1. The places of a family of this kind, and the colors that stand there.
        labels = [label for block in kind.blocks for label in _places(block)]
        occurring = colors[kind.attributes]
        for label in set(labels):  # what can be exchanged is put in order
            columns = [i for i, other in enumerate(labels) if other == label]
            occurring[:, columns] = np.sort(occurring[:, columns], axis=1)
        # 2. A description of each family: its weight, and its places with the colors in them.
        values, weights = np.unique(kind.weights, return_inverse=True)
        rows = np.column_stack([weights, occurring])
        codes, distinct = distinct_rows(rows, max(len(values), len(colors)))
        families = [
            (values[row[0]], tuple(sorted(zip(labels, row[1:], strict=True))))
            for row in distinct.tolist()
        ]
        # 3. For each place, count how often each attribute is there in families so described.
        for label, attributes in zip(labels, kind.attributes.T, strict=True):
            events, counts = np.unique(codes * len(colors) + attributes, return_counts=True)
            for event, count in zip(events.tolist(), counts.tolist(), strict=True):
                code, attribute = divmod(event, len(colors))
                seen[attribute][label, families[code]] += count
    # 4. What an attribute was, and all that was counted of it, is its new color.
    roles = [(c, frozenset(s.items())) for c, s in zip(coloring.colors, seen, strict=True)]
    first = list(dict.fromkeys(roles))
    return Coloring(
        tuple(first.index(role) for role in roles),
        tuple(coloring.sizes[c] for c, _ in first),
    )


def _places(block: Block) -> list[tuple[bytes, int]]:
    """Label the axes of a block; those that can be exchanged get one label."""
    labels: list[int] = []
    for axis, n in enumerate(block.shape):
        same = (i for i in labels if block.shape[i] == n and _exchangeable(block, i, axis))
        labels.append(next(same, axis))
    return [(block.queries.key, label) for label in labels]


def _exchangeable(block: Block, first: int, other: int) -> bool:
    """Whether every query of a block says the same of both axes."""
    tensor = block.queries.matrix.reshape(-1, *block.shape)
    return bool((tensor == tensor.swapaxes(first + 1, other + 1)).all())


def kinds(workload: Workload, coloring: Coloring) -> list[FamilyKind]:
    """Sort the families that have any queries by kind."""
    order = {name: i for i, name in enumerate(workload.domain)}
    by_key: dict[object, tuple[tuple[Block, ...], list[list[int]], list[float]]] = {}
    for family in workload.families:
        if not family.count:
            continue
        row = [order[a] for block in family.blocks for a in block.attributes]
        shape = tuple((len(block.attributes), block.queries.key) for block in family.blocks)
        key = shape, tuple(coloring.colors[i] for i in row)
        if key not in by_key:
            by_key[key] = family.blocks, [], []
        by_key[key][1].append(row)
        by_key[key][2].append(family.weight)
    return [
        FamilyKind(blocks, np.array(rows, dtype=np.int64), np.array(weights))
        for blocks, rows, weights in by_key.values()
    ]


def distinct_rows(rows: Ints, base: int) -> tuple[Ints, Ints]:
    """Return for each row, of numbers below `base`, which of the distinct rows it is; and those."""
    codes = np.zeros(len(rows), dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for column in rows.T:
        # Numbered anew after each column, so that the codes stay small.
        _, first, codes = np.unique(codes * base + column, return_index=True, return_inverse=True)
    return codes, rows[first] if len(rows) else rows


# ── Contexts: references of an attribute that depend on which other attributes are kept ──────────
#
# Some attributes, the *pivots* P, have one reference each. The context of a residual space A is
# which of them it keeps, K = A ∩ P, and every other attribute may have a reference ℓ_i^K for each
# context.
#
# *Why queries still split.* Split a query q over B along its pivots first, as always: q is the sum,
# over K ⊆ B ∩ P, of q_K, which is kept on K and dropped on the other pivots. Each q_K is then split
# along the other attributes with the references of the context K, whatever these are. So
#
#     q(x_B) = Σ_A q_A(x_A) ,   q_A kept on A and dropped on B∖A with the references of A ∩ P ,
#
# and no set of attributes occurs twice: a context is told by the set. Each residual space is still
# measured on its own, and all that is said of one (`decompose`) holds with the references of its
# context.
#
# *What it is good for.* By groups of one attribute running totals may be asked of another one, and
# by groups of a third the same from the other end. One reference must then be a compromise between
# two. A product of strategies for each set of attributes (HDMM's OPT_+) needs none, and could be
# better; with references for each context it is not (`weights.contexts`).


Context = frozenset[str]
"""The pivots that a residual space keeps."""


@dataclass(frozen=True, eq=False)
class References(Mapping[str, Reference]):
    """Attribute → its reference; and those that it has in some contexts instead."""

    usual: Mapping[str, Reference]
    pivots: frozenset[str] = frozenset()
    """The attributes that tell contexts apart. They have one reference each."""
    special: Mapping[tuple[str, Context], Reference] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """(attribute, context) → its reference there, in contexts that are not empty."""

    @classmethod
    def of(cls, references: Mapping[str, Reference]) -> References:
        """Return references that may be so already; others are the same in all contexts."""
        return references if isinstance(references, cls) else cls(references)

    def __getitem__(self, name: str) -> Reference:
        return self.usual[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.usual)

    def __len__(self) -> int:
        return len(self.usual)

    @cached_property
    def contexts(self) -> frozenset[Context]:
        """Those in which some attribute has a reference of its own, and the empty one."""
        return frozenset({frozenset[str](), *(context for _, context in self.special)})

    def context(self, space: Iterable[str]) -> Context:
        """Return the context of a residual space; the empty one where nothing is special."""
        kept = self.pivots.intersection(space)
        return kept if kept in self.contexts else frozenset()

    def within(self, context: Context) -> Mapping[str, Reference]:
        """Return attribute → its reference in a context."""
        here = {name: r for (name, where), r in self.special.items() if where == context}
        return {**self.usual, **here}

    def only(self, names: Iterable[str]) -> References:
        """Return those that matter for residual spaces of some attributes."""
        kept = frozenset(names)
        return References(
            {name: r for name, r in self.usual.items() if name in kept},
            self.pivots,
            {(a, k): r for (a, k), r in self.special.items() if {a, *k} <= kept},
        )

    def beside(self, joint: frozenset[str]) -> References:
        """Return references with which the spaces inside some joint cells are one estimate.

        An attribute outside then has the same reference for all of them. Measurements for which
        it had another one don't agree with these, and are left out.
        """
        kept = {(a, k): r for (a, k), r in self.special.items() if a in joint or not k <= joint}
        return References(self.usual, self.pivots, kept)

    def over(self, others: Mapping[str, Reference]) -> References:
        """Return these, and those of attributes and of contexts of which nothing is known here.

        There is one set of pivots. Where that of the others is another one, their usual references
        have to do.
        """
        more = References.of(others)
        special = dict(self.special)
        if not self.pivots or not more.pivots or self.pivots == more.pivots:
            known = frozenset(self.usual)
            special |= {(a, k): r for (a, k), r in more.special.items() if not {a, *k} <= known}
        pivots = self.pivots or more.pivots
        return References({**more.usual, **self.usual}, pivots, special)


def decomposed(
    workload: Workload, references: References
) -> Iterator[tuple[Splitter, Subworkload]]:
    """Yield what is asked of every residual space, with what made its pieces."""
    for context in sorted(references.contexts, key=sorted):
        within = references.within(context)
        of_domain = {name: within[name] for name in workload.domain}
        coloring, colors = by_reference(of_domain, workload.domain)
        splitter = Splitter(colors)
        for asked in decompose(workload, coloring, splitter.squares):
            spaces = tuple(s for s in asked.spaces if references.context(s) == context)
            if spaces:
                yield splitter, Subworkload(asked.terms, spaces)
