"""See which Kronecker structure a subworkload has.

A subworkload is a sum of Kronecker products. Where its Gram matrix is itself one product, the
optimal strategy is the product of the optimal strategies of the factors (math: if G = ⊗G_i and
X_i is optimal for G_i then ⊗X_i is optimal, errors multiply), so only small problems are left.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dpsql.linalg.arrays import Ints
from dpsql.linalg.matrices import kron
from dpsql.planner.residuals.pieces import Component, Key, Splitter, reorder
from dpsql.planner.residuals.references import Reference, axis_basis, row_basis
from dpsql.planner.residuals.spaces import Subworkload

WEIGHT_BITS = 38
"""Bits of a weight beside a larger one: fifteen fewer than floats have."""
MAX_EXPANDED = 2**25
"""Entries (rows × cells) up to which a sum of products is written out."""


@dataclass(frozen=True, slots=True)
class Product:
    """A weighted Kronecker product of pieces.

    Its Gram matrix is `weight` times the Kronecker product of the pieces' Gram matrices.
    """

    weight: float
    pieces: tuple[Component, ...]

    @property
    def keys(self) -> frozenset[Key]:
        """The pieces, in no order."""
        return frozenset(p.key for p in self.pieces)

    @property
    def references(self) -> dict[int, Reference]:
        """Axis → the reference of the attribute there."""
        pairs = (zip(p.axes, p.references, strict=True) for p in self.pieces)
        return dict(chain.from_iterable(pairs))


def products(subworkload: Subworkload, splitter: Splitter) -> tuple[Product, ...]:
    """Put the splitter's numbers into a subworkload. Blocks that it drops become weight."""
    return tuple(
        Product(
            math.fsum(
                share * math.prod(splitter.squares(piece) for piece in dropped)
                for share, dropped in term.shares
            ),
            tuple(splitter.component(piece, axes) for piece, axes in term.layout),
        )
        for term in subworkload.terms
    )


@dataclass(frozen=True, slots=True)
class Structure:
    """A subworkload as `weight` × ⊗ components ⊗ Σ `rest`; one product has no `rest`."""

    weight: float
    components: tuple[Component, ...]
    rest: tuple[Product, ...] = ()


def analyze(terms: tuple[Product, ...]) -> Structure:
    """Factor out what all terms share, then join what is left into one component.

    The decision list:

    1. Terms with equal factors are added up; terms that differ in one factor only are stacked
       in that factor.
    2. Factors that all terms share become components of their own.
    3. What is left is one factor (a component), or a sum small enough to be written out (one
       joint component), or stays a sum of products (`rest`).
    """
    structure = factor(terms)
    if not structure.rest:
        return structure
    top, rest = _scaled(structure.rest)
    joint = _expand(rest)
    if joint is None:
        return Structure(1.0, (), terms)
    return Structure(structure.weight * top, (*structure.components, joint))


def factor(terms: tuple[Product, ...]) -> Structure:
    """Factor out what all terms share (steps 1 and 2 of `analyze`); `rest` is what is left."""
    if len(terms) == 1:
        return Structure(terms[0].weight, terms[0].pieces)
    stacked = _stack(_merge(terms))
    shared = tuple(p for p in stacked[0].pieces if all(p.key in t.keys for t in stacked))
    if len(stacked) == 1:
        return Structure(stacked[0].weight, shared)
    keys = {p.key for p in shared}
    rest = tuple(
        Product(t.weight, tuple(p for p in t.pieces if p.key not in keys)) for t in stacked
    )
    return Structure(1.0, shared, rest)


def _merge(terms: tuple[Product, ...]) -> list[Product]:
    """Add up the weights of terms with the same pieces."""
    merged: dict[frozenset[Key], Product] = {}
    for t in terms:
        seen = merged.get(t.keys)
        merged[t.keys] = Product(t.weight + (seen.weight if seen else 0.0), t.pieces)
    return list(merged.values())


def _stack(terms: list[Product]) -> list[Product]:
    """Stack terms that differ in one piece over the same axes."""
    for axes in sorted({p.axes for t in terms for p in t.pieces}):
        groups: dict[tuple[bool, frozenset[Key]], list[Product]] = {}
        for t in terms:
            others = frozenset(p.key for p in t.pieces if p.axes != axes)
            has = any(p.axes == axes for p in t.pieces)
            groups.setdefault((has, others), []).append(t)
        terms = [g[0] if len(g) == 1 else _stack_group(g, axes) for g in groups.values()]
    return terms


def _scaled(terms: Sequence[Product]) -> tuple[float, list[Product]]:
    """Take the largest weight out of some terms.

    Spaces that are asked the same but for a factor then have equal components, and share all that
    is made of them. So that they are equal to the last bit, the last few bits are rounded.
    """
    top = max(t.weight for t in terms) or 1.0
    return top, [Product(_to_bits(t.weight / top, WEIGHT_BITS), t.pieces) for t in terms]


def _to_bits(value: float, bits: int) -> float:
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


def _stack_group(group: list[Product], axes: tuple[int, ...]) -> Product:
    top, group = _scaled(group)
    chosen = [(t.weight, next(p for p in t.pieces if p.axes == axes)) for t in group]
    others = tuple(p for p in group[0].pieces if p.axes != axes)
    return Product(top, (*others, _stack_rows(chosen)))


def _stack_rows(chosen: list[tuple[float, Component]]) -> Component:
    first = chosen[0][1]
    content = hashlib.sha256(repr([(w, c.content) for w, c in chosen]).encode()).digest()
    if all(c.identity is not None for _, c in chosen):
        weight = math.fsum(w * (c.identity or 0.0) for w, c in chosen)
        by_cell = None
        if any(c.by_cell is not None for _, c in chosen):
            by_cell = np.sum([w * c.weights for w, c in chosen], axis=0)
        return Component(first.axes, first.references, content, None, None, weight, by_cell)
    rows = np.vstack([math.sqrt(w) * c.rows for w, c in chosen])
    parts = [c.numerators for _, c in chosen]
    known = [p for p in parts if p is not None]
    numerators = np.vstack(known) if len(known) == len(parts) else None
    return Component(first.axes, first.references, content, rows, numerators)


def _expand(terms: list[Product]) -> Component | None:
    """Write a sum of products out as rows over the joint cells, if that is small enough."""
    cells = math.prod(n for p in terms[0].pieces for n in p.shape)
    count = sum(math.prod(p.rows.shape[0] for p in t.pieces) for t in terms)
    if count * cells > MAX_EXPANDED:
        return None
    return _stack_rows([(t.weight, multiply(t.pieces)) for t in terms])


def multiply(pieces: tuple[Component, ...]) -> Component:
    """Write out the Kronecker product of pieces over cells in the order of the axes."""
    if len(pieces) == 1:
        return pieces[0]
    axes = [axis for p in pieces for axis in p.axes]
    shape = tuple(n for p in pieces for n in p.shape)
    order = sorted(range(len(axes)), key=axes.__getitem__)
    references = [r for p in pieces for r in p.references]
    rows = reorder(kron(p.rows for p in pieces), shape, order)
    tables = [table for p in pieces if (table := _spanning(p)) is not None]
    numerators = None
    if len(tables) == len(pieces) and _fits(tables):
        numerators = reorder(kron(tables), shape, order)
    content = hashlib.sha256(repr((order, [p.content for p in pieces])).encode()).digest()
    target = tuple(axes[i] for i in order)
    return Component(target, tuple(references[i] for i in order), content, rows, numerators)


def _spanning(piece: Component) -> Ints | None:
    """Return small integer rows that span what a piece asks, or more; None if none are known.

    They are only multiplied with others, so they had better be short and sparse: a piece that asks
    for all of a residual space of one attribute has the basis of that space. So has one that is
    known by its Gram matrix alone, as running totals are: these ask for nearly all of it.
    """
    if piece.identity is not None:
        full = np.count_nonzero(piece.weights) >= piece.dimension
        return axis_basis(piece.references[0]) if full else None
    rows = None if piece.numerators is None else row_basis(piece.numerators)
    if len(piece.axes) > 1 or (rows is not None and len(rows) < piece.dimension):
        return rows
    (reference,) = piece.references
    return None if reference.numerators is None else axis_basis(reference)


def _fits(tables: list[Ints]) -> bool:
    """Whether the product of integer tables stays below 2^62."""
    return math.prod(int(np.abs(t).max(initial=1)) for t in tables) < 2**62
