"""See which Kronecker structure a subworkload has.

A subworkload is a sum of Kronecker products. Where its Gram matrix is itself one product, the
optimal strategy is the product of the optimal strategies of the factors (math: if G = ⊗G_i and
X_i is optimal for G_i then ⊗X_i is optimal, errors multiply), so only small problems are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.component import Component, Key
from dpsql.planner.decompose import Subworkload, Term

MAX_EXPANDED = 2**25
"""Entries (rows × cells) up to which a sum of products is written out."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A subworkload as `weight` × ⊗ components; `rest` is a sum that is not one product."""

    weight: float
    components: tuple[Component, ...]
    rest: tuple[Term, ...] = ()


def analyse(subworkload: Subworkload) -> Structure:
    """Factor out what all terms share, then join what is left into one component.

    The decision list:

    1. Terms with equal factors are added up; terms that differ in one factor only are stacked
       in that factor.
    2. Factors that all terms share become components of their own.
    3. What is left is one factor (a component), or a sum small enough to be written out (one
       joint component), or stays a sum of products (`rest`).
    """
    if len(subworkload.terms) == 1:
        (term,) = subworkload.terms
        return Structure(term.weight, term.pieces)
    terms = _stack(_merge([_as_factors(t) for t in subworkload.terms]))
    shared = [f for f in terms[0].factors if all(f.key in t.keys for t in terms)]
    if len(terms) == 1:
        return Structure(terms[0].weight, tuple(shared))
    keys = {f.key for f in shared}
    left = [_Factors(t.weight, tuple(f for f in t.factors if f.key not in keys)) for t in terms]
    order = subworkload.attributes
    joint = _expand(left, order)
    if joint is None:
        return Structure(1.0, (), subworkload.terms)
    return Structure(1.0, (*shared, joint))


@dataclass(frozen=True, slots=True)
class _Factors:
    weight: float
    factors: tuple[Component, ...]

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(f.key for f in self.factors)


def _as_factors(term: Term) -> _Factors:
    return _Factors(term.weight, term.pieces)


def _merge(terms: list[_Factors]) -> list[_Factors]:
    """Add up the weights of terms with the same factors."""
    merged: dict[frozenset[Key], _Factors] = {}
    for t in terms:
        seen = merged.get(t.keys)
        merged[t.keys] = _Factors(t.weight + (seen.weight if seen else 0.0), t.factors)
    return list(merged.values())


def _stack(terms: list[_Factors]) -> list[_Factors]:
    """Stack terms that differ in one factor over the same attributes."""
    spaces = sorted({f.attributes for t in terms for f in t.factors})
    for space in spaces:
        groups: dict[tuple[bool, frozenset[Key]], list[_Factors]] = {}
        for t in terms:
            others = frozenset(f.key for f in t.factors if f.attributes != space)
            has = any(f.attributes == space for f in t.factors)
            groups.setdefault((has, others), []).append(t)
        terms = [g[0] if len(g) == 1 else _stack_group(g, space) for g in groups.values()]
    return terms


def _stack_group(group: list[_Factors], space: tuple[str, ...]) -> _Factors:
    chosen = [(t.weight, next(f for f in t.factors if f.attributes == space)) for t in group]
    others = tuple(f for f in group[0].factors if f.attributes != space)
    return _Factors(1.0, (*others, _stack_rows(chosen)))


def _stack_rows(chosen: list[tuple[float, Component]]) -> Component:
    first = chosen[0][1]
    content = repr([(w, c.content) for w, c in chosen]).encode()
    if all(c.identity is not None for _, c in chosen):
        weight = math.fsum(w * (c.identity or 0.0) for w, c in chosen)
        return Component(first.attributes, first.shape, content, None, None, weight)
    rows = np.vstack([math.sqrt(w) * c.rows for w, c in chosen])
    parts = [c.numerators for _, c in chosen]
    known = [p for p in parts if p is not None]
    numerators = np.vstack(known) if len(known) == len(parts) else None
    return Component(first.attributes, first.shape, content, rows, numerators)


def _expand(terms: list[_Factors], order: tuple[str, ...]) -> Component | None:
    """Write a sum of products out as rows over the joint cells, if that is small enough."""
    cells = math.prod(n for f in terms[0].factors for n in f.shape)
    count = sum(math.prod(f.rows.shape[0] for f in t.factors) for t in terms)
    if count * cells > MAX_EXPANDED:
        return None
    return _stack_rows([(t.weight, _multiply(t.factors, order)) for t in terms])


def _multiply(factors: tuple[Component, ...], order: tuple[str, ...]) -> Component:
    """Write out the Kronecker product of factors over cells in the order of `order`."""
    attributes = tuple(a for f in factors for a in f.attributes)
    shape = tuple(n for f in factors for n in f.shape)
    target = sorted(range(len(attributes)), key=lambda i: order.index(attributes[i]))
    exact = all(f.numerators is not None for f in factors)
    rows = _reorder(_kron([f.rows for f in factors]), shape, target)
    numerators = None
    if exact and _fits(factors):
        tables = [f.numerators for f in factors if f.numerators is not None]
        numerators = _reorder(_kron(tables), shape, target)
    content = repr((target, [f.content for f in factors])).encode()
    names = tuple(attributes[i] for i in target)
    return Component(names, tuple(shape[i] for i in target), content, rows, numerators)


def _fits(factors: tuple[Component, ...]) -> bool:
    """Whether the product of the integer factors stays below 2^62."""
    tables = [f.numerators for f in factors if f.numerators is not None]
    largest = [int(np.abs(t).max(initial=1)) for t in tables]
    return math.prod(largest) < 2**62


def _kron(tables: list[NDArray[Any]]) -> NDArray[Any]:
    result = tables[0]
    for table in tables[1:]:
        result = np.kron(result, table)
    return result


def _reorder(rows: NDArray[Any], shape: tuple[int, ...], target: list[int]) -> NDArray[Any]:
    """Permute the axes of the cells."""
    tensor = rows.reshape(-1, *shape)
    moved = tensor.transpose(0, *(i + 1 for i in target))
    return np.ascontiguousarray(moved.reshape(rows.shape[0], -1))
