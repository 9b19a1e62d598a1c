"""Weighted Fourier Factorizations (Lebeda, Nikolov and Tang, arXiv 2512.21499).

The strategy of each residual space doesn't change when the cells are shifted around the circle,
along any axis: X = F* diag(s) F with F the Fourier transform over the cells. Every diagonal entry
of X is then Σs/N, so that with g_k = f_k* G f_k, how much of the queries is at frequency k,

    minimize Σ_k g_k/s_k  subject to  Σ_k s_k = N   gives   s_k ∝ √g_k ,  error (Σ_k √g_k)²/N .

The frequencies of the residual space of A are those with all k_i ≠ 0 (QuerySmasher, arXiv
2604.00868, Appendix C). g is read off the queries' fast Fourier transform, and sums of products
need nothing but their spectra, so that errors are found for joint spaces that are far too large
for a strategy to be written down.

The factorization is optimal among all strategies where G doesn't change by shifts either: for
marginals and for circular ranges (5). For other queries it is often not; nor does it know the
queries that are never asked (comparisons of two attributes use few of the directions).

Prefixes are answered over their own n cells, as in the published comparisons (QuerySmasher, Tables
2 to 5, which this reproduces). The embedding into half circles of 2n cells (4.2) would need up to
18 % more error at n = 10 and 8 % less at n = 40, in one- and two-way prefixes over 40 attributes;
what it measures is no residual space, and it stays above ResidualPlanner+.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.planner.mechanisms.base import DEFAULT, Options
from dpsql.planner.mechanisms.querysmasher import (
    IDENTITY,
    Divided,
    FewRows,
    PlanBounds,
    RestrictedMechanism,
    divide_within,
    tells_apart,
)
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.pieces import Component, Key, Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import by_size, decompose
from dpsql.planner.residuals.structure import Product, Structure, factor, products
from dpsql.planner.strategies.base import Conquered, Solution, StrategyFamily, Triangular
from dpsql.planner.strategies.choose import named
from dpsql.planner.strategies.express import over_integers
from dpsql.workload import Workload

MAX_DIMENSION = 2500
"""Dimension up to which a strategy is measured over joint cells, in integers over a basis."""
MAX_WRITTEN = 2**24
"""Entries of such a strategy."""
CHUNK = 2**22
"""Entries of queries that are transformed at once."""
NAME = "Fourier"
ABSENT = 1e-13
"""Frequencies with less of the queries than this, relative to the largest, are not measured."""


class Fourier(RestrictedMechanism):
    """Plans with one variance for each frequency of a residual space."""

    traits = MECHANISMS["fourier"]

    def reason_of_queries(self, workload: Workload) -> str | None:
        """Name a strategy that would be too large."""
        for block in (b for family in workload.families for b in family.blocks):
            (name, *others), cells = block.attributes, block.queries.cells
            alike = block.queries.cell_squares() is not None
            if not others and cells - 1 > MAX_DIMENSION and not alike and tells_apart(block):
                return _too_large(name, cells)  # before anything of that size is written out
        coloring = by_size(workload)
        splitter = Splitter([Reference.of_cells(n) for n in coloring.sizes])
        for subworkload in decompose(workload, coloring, splitter.squares):
            for part in _written(factor(products(subworkload, splitter))):
                cells = math.prod(part.shape)
                if part.dimension > MAX_DIMENSION or part.dimension * cells > MAX_WRITTEN:
                    names = (subworkload.spaces[0][axis] for axis in part.axes)
                    return _too_large(" x ".join(names), cells)
        return None

    def divide(self, workload: Workload, options: Options = DEFAULT) -> Divided:
        """Write the strategies down as well; `reason_of_queries` bounds their size."""
        return divide(workload, measured=True)


def divide(workload: Workload, *, measured: bool = False) -> Divided:
    """Split a workload by residual spaces, with the errors of Fourier factorizations.

    Args:
        workload: what to answer.
        measured: whether strategies are written down as well; their size is bounded.
    """
    return divide_within(Circulant(measured=measured), workload, by_size(workload))


class Circulant(StrategyFamily):
    """Strategies that shifts around the circle leave as they are, along every axis."""

    def __init__(self, *, measured: bool) -> None:
        self._measured, self._bounds, self._few_rows = measured, PlanBounds(), FewRows()
        self._spectra: dict[Key, Array] = {}
        self._solutions: dict[Key, Solution] = {}

    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Find the best strategy: of a product the product, of a sum the one for its spectrum.

        Where strategies are not measured, there are none, and no bound.
        """
        structure = factor(terms)
        parts = [(c, self._spectrum(c)) for c in structure.components]
        if structure.rest:
            spectrum = sum(self._spectrum_of_product(t) for t in structure.rest)
            parts.append((_joint(structure.rest), np.asarray(spectrum)))
        error = structure.weight * math.prod(error_of(g, c.shape) for c, g in parts)
        if not self._measured:
            return Conquered(spaces, terms, (), error, 0.0, NAME)
        solved = tuple((c, self._solution(c, g)) for c, g in parts)
        asked = self._few_rows.of(terms)
        return Conquered(
            spaces, asked, solved, error, self._bounds.of(terms), named(solved, spaces[0])
        )

    def _spectrum(self, component: Component) -> Array:
        """Return g over the frequencies of the residual space: one axis less 1 for each."""
        key = component.shape, component.content
        if key not in self._spectra:
            self._spectra[key] = spectrum_of(component)
        return self._spectra[key]

    def _spectrum_of_product(self, product: Product) -> Array:
        """Return g of a Kronecker product, with its axes in order."""
        result = np.asarray(product.weight)
        for piece in product.pieces:
            result = np.multiply.outer(result, self._spectrum(piece))
        return result.transpose(np.argsort([axis for p in product.pieces for axis in p.axes]))

    def _solution(self, component: Component, spectrum: Array) -> Solution:
        if component.identity is not None:
            return IDENTITY.solve(component, 0.0, 0.0)
        key = component.shape, component.content
        if key not in self._solutions:
            error = error_of(spectrum, component.shape)
            strategy = _strategy(component, spectrum)
            self._solutions[key] = Solution(strategy, error, 0.0, NAME)
        return self._solutions[key]


def error_of(spectrum: Array, shape: tuple[int, ...]) -> float:
    """Return the least error at privacy cost 1, (Σ √g)²/N."""
    return float(np.sqrt(spectrum).sum()) ** 2 / math.prod(shape)


def spectrum_of(component: Component) -> Array:
    """Return g_k = f_k* G f_k for unit f_k, over the frequencies with all k_i ≠ 0."""
    if component.identity is not None:
        return np.full(component.shape[0] - 1, component.identity)
    rows, shape = component.rows, component.shape
    cells, total = rows.shape[1], np.zeros(shape)
    step = max(1, CHUNK // cells)
    for start in range(0, len(rows), step):
        part = rows[start : start + step].reshape(-1, *shape)
        total += np.square(np.abs(np.fft.fftn(part, axes=range(1, part.ndim)))).sum(axis=0)
    return np.asarray(total[(slice(1, None),) * len(shape)] / cells)


def waves(spectrum: Array, shape: tuple[int, ...]) -> Array:
    """Return rows R with RᵀR = F* diag(√g) F: a cosine and a sine for each pair ±k.

    Shape (frequencies that are there, cells).
    """
    cells = math.prod(shape)
    frequencies = np.argwhere(spectrum > ABSENT * spectrum.max()) + 1
    opposite = np.array(shape) - frequencies
    codes, others = (f @ np.cumprod((1, *shape[:-1])) for f in (frequencies, opposite))
    weights = np.sqrt(np.sqrt(spectrum[tuple((frequencies - 1).T)]) / cells)
    places = np.indices(shape).reshape(len(shape), -1) / np.array(shape)[:, None]
    alone, first = codes == others, codes < others
    rows = [
        weights[alone, None] * np.cos(2 * np.pi * frequencies[alone] @ places),
        math.sqrt(2) * weights[first, None] * np.cos(2 * np.pi * frequencies[first] @ places),
        math.sqrt(2) * weights[first, None] * np.sin(2 * np.pi * frequencies[first] @ places),
    ]
    return np.vstack(rows)


def _strategy(component: Component, spectrum: Array) -> Triangular:
    """Write the strategy over the integer basis of the residual space."""
    return over_integers(waves(spectrum, component.shape), component, component.dimension)


def _too_large(names: str, cells: int) -> str:
    return (
        f"its strategy for the {cells:,} cells of {names} is too large to be measured in whole "
        "numbers"
    )


def _joint(terms: tuple[Product, ...]) -> Component:
    """Place a sum of products over all of its axes; its rows are not written out."""
    placed = terms[0].references
    content = hashlib.sha256(
        repr([(t.weight, [p.key for p in t.pieces]) for t in terms]).encode()
    ).digest()
    axes = tuple(sorted(placed))
    return Component(axes, tuple(placed[axis] for axis in axes), content, None)


def _written(structure: Structure) -> Iterator[Component]:
    """Yield what a strategy has to be written down for."""
    yield from (c for c in structure.components if c.identity is None)
    if structure.rest:
        yield _joint(structure.rest)
