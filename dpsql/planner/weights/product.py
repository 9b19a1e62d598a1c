"""Closed form: the references of one Kronecker product, and a bound for all mechanisms.

Many a statement asks the same along one attribute for all cells of the others: counts, averages or
a median by groups. Its Gram matrix is one product G = ⊗G_i, with one factor for each attribute (of
an attribute that nothing is asked of, the total). Then the best of *all* Gaussian matrix
mechanisms is found from the factors, and residual spaces reach it.

1. *Bound.* For δ_i >= 0 with Σδ_i = 1 and D_i = diag(δ_i), no strategy for G_i has an error below
   f_i² = (tr (D_i^½ G_i D_i^½)^½)² at privacy cost 1 (see `strategies.dual`). D = ⊗D_i is feasible
   for G, and roots and traces of Kronecker products are products. So no strategy for G has an
   error below ∏ f_i².

2. *References.* Let X_i, with a diagonal of at most 1, be a strategy for G_i of error
   tr(G_i X_i⁺) = (1 + g_i) f_i². By Kronecker products, ⊗X_i has the error ∏(1 + g_i)·∏ f_i².
   There is ℓ_i with Σℓ_i = 1, t_i >= 0 and K_i ⪰ 0 so that

       X_i = t_i·11ᵀ + K_i   and   K_i ℓ_i = 0 :

   - if 1 is in the range of X_i, t_i = 1/(1ᵀX_i⁺1) and ℓ_i = t_i·X_i⁺1. Then K_i ⪰ 0 by
     Cauchy-Schwarz, (1ᵀv)² = ((X_i^½)⁺1 · X_i^½v)² <= vᵀX_iv / t_i, and X_iℓ_i = t_i·1;
   - else t_i = 0, K_i = X_i, and ℓ_i = p/‖p‖² for what is left of 1, p, less its part in the range.

3. *Nothing is lost.* Multiplied out, ⊗X_i = Σ_A (⊗_{i∈A} K_i) ⊗ (⊗_{i∉A} t_i·11ᵀ), of which each
   term is what ⊗_{i∈A} K_i tells of the residual space A, as K_i ℓ_i = 0. Measured apart, the
   terms tell as much as ⊗X_i does, and answers have the same variances. As the diagonals of X_i
   and K_i differ by t_i in all cells, all terms are largest at the same cell, and together cost

       Σ_A ∏_{i∈A} (max diag X_i − t_i) ∏_{i∉A} t_i = ∏ max diag X_i ,

   which is what ⊗X_i costs. So the best strategies for these residual spaces have an error of at
   most ∏(1 + g_i) times the bound, and are certified against it.

Step 3 holds for every Kronecker product of strategies. And it holds for several of them together
whose factors on one attribute share a reference, as all identities do: measuring marginals as they
are is no better than residual spaces with uniform references.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpsql.linalg.arrays import Array
from dpsql.linalg.nested import nested_rows
from dpsql.linalg.roots import compressed, full_rank_root
from dpsql.planner.residuals.references import Reference, rounded
from dpsql.planner.strategies.dual import MAX_RANK, Dual, maximize
from dpsql.planner.weights.axes import LOW, MAX_CELLS, MOST_ENTRIES, FreeAxis
from dpsql.workload import Queries, Workload
from dpsql.workload.factors import Total
from dpsql.workload.workload import touched

Along = tuple[tuple[float, Queries], ...]
"""Weighted queries along one attribute, one after the other."""

MOST_TERMS = 2**16
"""Families × attributes up to which it is seen whether they are a product."""
COARSEST, RESOLUTION = 128, 16
"""References are rounded to multiples of 1/COARSEST, those on many cells to finer ones."""
MIXED = 1e-4
"""Share of the uniform δ in the one that a search begins with: none may be zero then."""
EXACT = 1e-9
"""Precision, relatively, that makes no difference and all matrices invertible."""


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The references of a workload that is one Kronecker product."""

    references: Mapping[str, Reference]
    """One for each attribute of the domain."""
    starts: Mapping[bytes, Array]
    """Key of a reference → δ from which the dual of its residual space is solved in few steps."""
    error: float
    """No matrix mechanism has a smaller sum of weight·variance at privacy cost 1."""


@dataclass(frozen=True, slots=True, eq=False)
class _SolvedFactor:
    """One factor: ℓ_i, the δ_i that was found, if one was searched for, and f_i²."""

    reference: Reference
    delta: Array | None
    error: float


def closed_form(workload: Workload, tolerance: float) -> ClosedForm | None:
    """Find the references of a Kronecker product; None if the workload is none, or too large.

    Args:
        workload: what is asked.
        tolerance: the relative gap to which each factor is solved.
    """
    asked = factors(workload)
    if asked is None:
        return None
    references = {name: Reference.of_cells(n) for name, n in workload.domain.items()}
    starts, error = dict[bytes, Array](), 1.0
    for name, along in asked.items():
        axis = _solved(along, workload.domain[name], tolerance)
        if axis is None:
            return None
        references[name] = axis.reference
        error *= axis.error
        if axis.delta is not None:
            starts[axis.reference.key] = axis.delta
    return ClosedForm(references, starts, error) if error > 0 else None


def factors(workload: Workload) -> dict[str, Along] | None:
    """Take a workload apart by attributes; None if its Gram matrix is not seen to be one product.

    Families that differ along one attribute only are asked one after the other there, until one is
    left.
    """
    names = touched(workload)
    if max((len(f.names) for f in workload.families), default=0) < len(names):
        return None  # no family is over all attributes
    families = [f for f in workload.families if f.count]
    widest = any(len(f.names) == len(names) for f in families)
    if not widest or len(families) * len(names) > MOST_TERMS:
        return None
    if any(len(block.attributes) != 1 for f in families for block in f.blocks):
        return None
    totals = {name: Total().bind(workload.domain[name]) for name in names}
    terms: list[tuple[float, dict[str, Along]]] = []
    for family in families:
        by_attribute = totals | {block.attributes[0]: block.queries for block in family.blocks}
        terms.append((family.weight, {name: ((1.0, by_attribute[name]),) for name in names}))
    for name in names:
        terms = _stacked(terms, name)
    if len(terms) != 1:
        return None
    ((weight, axes),) = terms
    first = next(iter(axes), None)
    if first is not None:
        axes[first] = tuple((weight * w, queries) for w, queries in axes[first])
    return axes or None


def _stacked(
    terms: Sequence[tuple[float, dict[str, Along]]], name: str
) -> list[tuple[float, dict[str, Along]]]:
    """Put terms together that differ along one attribute at most."""
    groups: dict[object, list[tuple[float, dict[str, Along]]]] = {}
    for weight, queries in terms:
        others = tuple(_key(queries[other]) for other in queries if other != name)
        groups.setdefault(others, []).append((weight, queries))
    result = []
    for group in groups.values():
        first = group[0][0]
        along = tuple((w / first * v, q) for w, queries in group for v, q in queries[name])
        result.append((first, {**group[0][1], name: along}))
    return result


def _key(along: Along) -> object:
    return tuple((weight, queries.key) for weight, queries in along)


def _solved(along: Along, cells: int, tolerance: float) -> _SolvedFactor | None:
    """Solve one factor by the dual, over all its cells; None if it is too large.

    Where single cells are asked about, G_i is diagonal: X = I has the error tr G_i, and so has the
    bound at δ = diag(G_i)/tr G_i.
    """
    squares = [(w, queries.cell_squares()) for w, queries in along]
    singles = [w * float(squares_.sum()) for w, squares_ in squares if squares_ is not None]
    if len(singles) == len(along):
        return _SolvedFactor(Reference.of_cells(cells), None, math.fsum(singles))
    rows = _rows(along, cells)
    if rows is None or not len(rows):
        return None
    axis = FreeAxis.of(rows)
    here = axis.on_vertices()
    best = maximize(Dual.of(here.rows, (here.cells,)), tolerance)
    weights, delta = np.zeros(cells), np.full(cells, MIXED / cells)
    weights[axis.vertices] = reference_of(best.root)
    delta[axis.vertices] += (1 - MIXED) * best.delta
    # A multiple of the cells, so that the uniform reference is one of those.
    fine = COARSEST if axis.sparse else cells * max(RESOLUTION, -(-COARSEST // cells))
    return _SolvedFactor(rounded(axis.on_support(weights), fine), delta, best.lower)


def _rows(along: Along, cells: int) -> Array | None:
    """Return rows with the Gram matrix G_i; None if there are too many."""
    count = sum(queries.rows for _, queries in along)
    if count <= LOW and count * cells <= MOST_ENTRIES:
        return compressed(np.vstack([math.sqrt(w) * q.matrix for w, q in along]))
    if cells > MAX_RANK:
        return None
    gram: Array = np.zeros((cells, cells))
    for weight, queries in along:
        gram += weight * queries.gram()
    return full_rank_root(gram) if cells <= MAX_CELLS else nested_rows(gram)


def reference_of(root: Array) -> Array:
    """Return the reference ℓ of the strategy X = RᵀR, filled up.

    What a cell's diagonal entry lacks to the largest one can be added to it: that costs nothing,
    as a record is in one cell, and X tells more. So cells that nothing is asked of, NULL for
    example, are counted as well, and with them what further queries need: the total.

    With a little more precision everywhere X has an inverse, and one formula does: if 1 is not in
    the range of X, X⁻¹1 is nearly all outside of it. Few rows over many cells need no matrix of
    cells × cells, by Woodbury's identity (S + RᵀR)⁻¹1 = S⁻¹1 − S⁻¹Rᵀ(I + RS⁻¹Rᵀ)⁻¹RS⁻¹1.
    """
    lengths = np.square(root).sum(axis=0)
    spare = (1 + EXACT) * lengths.max() - lengths
    if root.shape[1] <= MAX_CELLS:
        weights = scipy.linalg.solve(
            root.T @ root + np.diag(spare), np.ones(len(spare)), assume_a="pos"
        )
    else:
        scaled = root / spare
        core = np.eye(len(root)) + scaled @ root.T
        solved = scipy.linalg.solve(core, scaled.sum(axis=1), assume_a="pos")
        weights = 1 / spare - solved @ scaled
    return np.asarray(weights / weights.sum())
