"""ResidualPlanner+ (Xiao et al., arXiv 2305.08175v3): one strategy per attribute, used everywhere.

Each attribute has a basis: queries W that its own strategy is made for. The strategy of the
residual space of A is the Kronecker product of those of its attributes, whatever is asked of A, so
that planning takes one small problem per attribute. It isn't optimal, not even for products.

The strategy of an attribute is made as the authors' code makes it: with C = I − J/n, take the X of
least error for the queries WC and the total together, over all n cells; then CXC, scaled to
sensitivity 1, is measured of every residual space that contains the attribute. (The best X for WC
alone would need less error: it is QuerySmasher's, and 1 to 8 % better where all is prefixes.)

With prefixes for numeric attributes and points for the others, and whole plans made for prefixes
where ranges are asked, this reproduces the numbers that are published for ResidualPlanner+
(QuerySmasher, arXiv 2604.00868, Tables 2 to 5; `tests/benchmarks/published_tables.py`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from dpsql.errors import WorkloadError
from dpsql.linalg.arrays import Array
from dpsql.linalg.roots import ROUNDING, compressed, independent_root
from dpsql.planner.mechanisms.base import DEFAULT, Basis, Options
from dpsql.planner.mechanisms.querysmasher import Divided, divide_within
from dpsql.planner.mechanisms.restricted import (
    IDENTITY,
    Bounds,
    FewRows,
    RestrictedMechanism,
    tells_apart,
)
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.equivalence import by_size
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.structure import Product
from dpsql.planner.strategies.base import Conquered, Solution, StrategyFamily
from dpsql.planner.strategies.dual import MAX_RANK, Dual, maximize
from dpsql.planner.strategies.express import over_integers
from dpsql.planner.strategies.product import product_error
from dpsql.workload import AllRange, Block, Factor, Family, Identity, Matrix, Prefix, Workload

TOLERANCE = 1e-7
"""The gap to which the strategy of an attribute is solved."""
NAMED: dict[str, Factor] = {"identity": Identity(), "prefix": Prefix(), "range": AllRange()}


class ResidualPlannerPlus(RestrictedMechanism):
    """Plans with one strategy per attribute.

    `Options.bases` are attribute → the queries that its strategy is made for. By default these are
    what the workload asks of the attribute, on average over its families (see `queries_of`).
    """

    traits = MECHANISMS["residualplanner+"]

    def reason_of_queries(self, workload: Workload) -> str | None:
        """Name an attribute that has too many cells for its strategy to be searched."""
        for block in (b for family in workload.families for b in family.blocks):
            points = block.queries.is_identity
            for name, n in zip(block.attributes, block.shape, strict=True):
                if n > MAX_RANK and not (points and len(block.attributes) == 1):
                    return (
                        f"its strategy for the {n:,} cells of {name} would be found among those "
                        f"of rank up to {MAX_RANK:,}"
                    )
        return None

    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Solve one small problem per attribute; equal ones once.

        Raises:
            WorkloadError: a basis is not one.
        """
        bases = options.bases or {}
        asked = {name: _asked(name, workload, bases) for name in workload.domain}
        _check_names(bases, workload)
        solved: dict[tuple[int, bytes], Solution] = {}
        for queries in asked.values():
            if queries.cells > 1 and queries.kind not in solved:
                solved[queries.kind] = strategy_for(queries)
        by_name = {name: solved[q.kind] for name, q in asked.items() if q.cells > 1}
        return divide_within(PerAttribute(by_name), workload, by_size(workload))


class PerAttribute(StrategyFamily):
    """Kronecker products of given strategies, one for each attribute."""

    def __init__(self, strategies: Mapping[str, Solution]) -> None:
        self._strategies, self._bounds, self._few_rows = strategies, Bounds(), FewRows()

    def kind(self, space: tuple[str, ...]) -> Hashable:
        """Tell spaces of different strategies apart."""
        return tuple(id(self._strategies[name]) for name in space)

    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Return the product of the attributes' strategies, which answers whatever is asked."""
        terms = self._few_rows.of(terms)
        solutions = [self._strategies[name] for name in spaces[0]]
        references = terms[0].references
        solved = tuple(
            (_component(axis, references[axis]), solution)
            for axis, solution in enumerate(solutions)
        )
        error = product_error(terms, {axis: s.strategy for axis, s in enumerate(solutions)})
        named = " (x) ".join(
            f"{s.solver} on {a}" for s, a in zip(solutions, spaces[0], strict=True)
        )
        return Conquered(
            spaces, terms, solved, error, self._bounds.of(terms), named or "closed form"
        )


@dataclass(frozen=True, slots=True, eq=False)
class BasisQueries:
    """The queries that an attribute's strategy is made for."""

    cells: int
    rows: Array | None
    """Rows with their Gram matrix; None for all cells, which need not be written out."""
    name: str
    kind: tuple[int, bytes]
    """Bases of one kind have one strategy."""


def strategy_for(asked: BasisQueries) -> Solution:
    """Make the strategy of an attribute, of sensitivity 1 on its residual space."""
    n = asked.cells
    reference = Reference.of_cells(n)
    component = _component(0, reference)
    if asked.rows is None:
        return IDENTITY.solve(component, 0.0, 0.0)
    centered = asked.rows - asked.rows.mean(axis=1, keepdims=True)
    glued = np.vstack([centered, np.ones((1, n))])
    best = maximize(Dual.of(glued, (n,)), TOLERANCE)
    root = best.root - best.root.mean(axis=1, keepdims=True)
    strategy = over_integers(compressed(root), component, component.dimension)
    error = float(np.square(centered @ strategy.inverse()).sum())
    return Solution(strategy, error, 0.0, f"basis ({asked.name})")


def queries_of(name: str, workload: Workload) -> BasisQueries:
    """Return what a workload asks of an attribute, on average over its families.

    A family counts by its weight and by the sum of squares of its queries over other attributes.
    Queries over several attributes together count with what they ask of this one for fixed cells
    of the others.
    """
    n = workload.domain[name]
    found: dict[tuple[bytes, int], tuple[Block, float]] = {}
    for family in workload.families:
        for block in (b for b in family.blocks if name in b.attributes):
            key = block.queries.key, block.attributes.index(name)
            weight = found[key][1] if key in found else 0.0
            found[key] = block, weight + family.weight * _others(family, block)
    asked = [(b, weight) for b, weight in found.values() if weight and tells_apart(b)]
    if all(b.queries.is_identity and len(b.attributes) == 1 for b, _ in asked):
        return _points(n)
    total = math.fsum(weight for _, weight in asked)
    gram = sum((_gram(block, name) * (weight / total) for block, weight in asked), np.zeros((n, n)))
    rows, _ = independent_root(gram, ROUNDING * n)
    return _written(rows, "own queries")


def _asked(name: str, workload: Workload, bases: Mapping[str, Basis]) -> BasisQueries:
    if name not in bases:
        return queries_of(name, workload)
    basis, n = bases[name], workload.domain[name]
    if not isinstance(basis, str):
        return _written(Matrix(basis).bind(n).matrix, "given")
    if basis not in NAMED:
        raise WorkloadError(
            f"There is no basis {basis!r}.",
            hint=f"use {', '.join(map(repr, NAMED))}, or a matrix of queries x cells.",
        )
    return _points(n) if basis == "identity" else _written(NAMED[basis].bind(n).matrix, basis)


def _check_names(bases: Mapping[str, Basis], workload: Workload) -> None:
    for name in bases:
        if name not in workload.domain:
            raise WorkloadError(
                f"There is no attribute {name!r} that could have a basis.",
                hint=f"the attributes are {', '.join(list(workload.domain)[:10])}.",
            )


def _points(cells: int) -> BasisQueries:
    return BasisQueries(cells, None, "identity", (cells, b"identity"))


def _written(rows: Array, name: str) -> BasisQueries:
    # Attributes that are asked the same may be summed up in another order.
    gram = rows.T @ rows
    rounded = np.round(gram / max(float(np.abs(gram).max()), np.finfo(float).tiny), 9) + 0.0
    cells = rows.shape[1]
    return BasisQueries(cells, rows, name, (cells, hashlib.sha256(rounded.tobytes()).digest()))


def _component(axis: int, reference: Reference) -> Component:
    """Return all cells of one attribute: where its strategy is measured."""
    return Component((axis,), (reference,), b"cells", None, None, 1.0)


def _others(family: Family, block: Block) -> float:
    """Return the sum of squares of a family's queries over the attributes of other blocks."""
    others = (b.queries for b in family.blocks if b is not block)
    return math.prod(float(queries.squares().sum()) for queries in others)


def _gram(block: Block, name: str) -> Array:
    """Return the Gram matrix over one attribute, averaged over the cells of the others."""
    if len(block.attributes) == 1:
        return block.queries.gram()
    at = block.attributes.index(name)
    tensor = block.queries.matrix.reshape(-1, *block.shape)
    slices = np.moveaxis(tensor, at + 1, -1).reshape(-1, block.shape[at])
    return np.asarray(slices.T @ slices) * (block.shape[at] / block.queries.cells)
