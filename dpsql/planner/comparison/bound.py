"""The SVD bound: no matrix mechanism answers a workload with less error.

(Li and Miklau, "Optimal error of query sets under the differentially-private matrix mechanism",
ICDT 2013; HDMM, Theorems 5 and 12.) Let W be the queries over N cells with their weights folded
in, and A any strategy from which they follow. With ‖·‖_* the sum of the singular values,

    ‖W‖_* = ‖W A⁺ A‖_* <= ‖W A⁺‖_F ‖A‖_F <= ‖W A⁺‖_F · √N · Δ ,

where Δ is the largest Euclidean norm of a column of A. So with noise of variance 1 and Δ <= 1 the
sum of weight·variance is at least ‖W‖_*² / N. A column has no larger Euclidean norm than sum of
magnitudes, so that the bound is as true where Δ is the latter, for Laplace noise.

Over large domains W isn't written out. Its singular values are the roots of the eigenvalues of
G = WᵀW, which is a sum of Kronecker products of Gram matrices of single attributes.

*Common eigenspaces.* Where each factor has the ones as an eigenvector, and the factors of one
attribute commute, the eigenspaces are products of those of the attributes, and lie in residual
spaces. On that of A, every family over B ⊇ A adds its weight times the product of the eigenvalues
along the attributes of A, and of h_i/n_i for those of B∖A and 1/n_i for those of A, where h_i is
the eigenvalue at the ones (N is divided out). So it is for marginals and circular ranges.

*Below.* Other factors G_i are replaced by less. Write G_i = [[g, cᵀ], [c, C]] in a basis whose
first vector is along the ones. With s = g − cᵀC⁺c and 0 <= h <= s, h < g,

    H = [[h, 0], [0, C − ccᵀ/(g − h)]]

is positive semidefinite, and so is G_i − H. Then ⊗H_i <= ⊗G_i for products of such matrices, sums
keep that order, and so do the eigenvalues: ‖W‖_* is only made smaller. Several h are tried.

*Sums.* The least error of several parts of a workload together is at least the sum of their
least errors, since one strategy serves all. Families that have no eigenspaces in common, even
after that, are bounded in parts. *Units by groups* have a least error of their own, whatever rows
a unit has (`planner.mechanisms.distinct_units`): it is added, for Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from dpsql.errors import ResourceLimitError
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import StructuredMatrix, across_and_along, weighted_sum
from dpsql.linalg.sets import subsets
from dpsql.planner.mechanisms.distinct_units import least_error
from dpsql.planner.mechanisms.hdmm_products import MAX_CELLS, Products, gram_of
from dpsql.planner.mechanisms.measures import parts
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload
from dpsql.workload.workload import gram, joint_cells, touched

SMALL = 1000
"""Joint cells up to which all queries are taken together."""
MAX_SETS = 2**20
"""Pairs of a family and a set of its attributes."""
MAX_TENSOR = 2**22
"""Eigenvalues of one residual space that are written out."""
KEPT = (0.0, 0.3, 0.6, 0.9)
"""What is tried as h/s: how much of the eigenvalue at the ones is kept (see above)."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound on the error of every matrix mechanism."""

    total: float
    """The least Σ weight·variance with noise of variance 1 and sensitivity 1."""
    exact: bool
    """Whether it is the SVD bound; if not, it is below."""
    how: str
    """How it was found."""
    of_units: float = 0.0
    """The same for units by groups, of which a unit is one record."""

    def at(self, budget: Budget, contributions: float = 1) -> float:
        """Return the least Σ weight·variance at a budget, with the noise that it is for.

        Gaussian noise has σ² = Δ²/μ². Laplace noise over the integers has the variance
        v(b) = 1/(2 sinh²(1/2b)), less than 2b². A measurement a/b >= 1/b of the scale counts
        a²/v(b) <= 2 sinh²(a/2b), by which the columns' Euclidean norm is bounded: these are
        convex and 0 at 0, so that they add up to at most 2 sinh²(ε/2) where Σ a/b <= ε.
        """
        if budget.pure:
            epsilon = float(budget.amount) / contributions
            return self.total / (2 * math.sinh(min(epsilon, 700.0) / 2) ** 2)
        return (self.total * contributions**2 + self.of_units) / float(budget.mu_squared)


def svd_bound(workload: Workload) -> LowerBound:
    """Return the SVD bound of a workload, or as much of it as can be computed.

    It takes seconds at most, and no more memory than one matrix over the cells of an attribute.
    """
    of_units = [part for part in parts(workload) if part.of_units]
    if of_units:
        rows = [f for f in workload.families if f.measure is None or not f.measure.of_units]
        found = svd_bound(Workload.of(workload.domain, rows))
        units = math.fsum(least_error(part.workload, part.rows) for part in of_units)
        return replace(found, exact=False, of_units=units)
    families = [f for f in workload.families if f.count]
    if not families:
        return LowerBound(0.0, exact=True, how="nothing is asked")
    if joint_cells(workload) <= SMALL:
        together = nuclear(gram(workload, touched(workload))) ** 2 / joint_cells(workload)
        return LowerBound(together, exact=True, how="singular values over all joint cells")
    separate = _separate(families, workload.domain)
    if separate is not None:
        return LowerBound(separate, exact=True, how="product of the bounds of the attributes")
    groups = _same_structure(families)
    if len(groups) == 1:
        value, exact = _product(families)
        return LowerBound(value, exact, "product of the bounds of its factors")
    joint = [g for g in groups if any(len(b.attributes) > 1 for b in g[0].blocks)]
    single = [g for g in groups if g not in joint]
    return _of_parts(single, joint, workload.domain)


def _of_parts(
    single: list[list[Family]], joint: list[list[Family]], domain: Mapping[str, int]
) -> LowerBound:
    """Add up a bound for products over single attributes, and one for each joint structure."""
    apart = math.fsum(_product(group)[0] for group in single)
    rest = math.fsum(_product(group)[0] for group in joint)
    best = LowerBound(apart + rest, exact=False, how=f"sum over {len(single) + len(joint):,} parts")
    families = [family for group in single for family in group]
    if not families or sum(1 << len(f.attributes) for f in families) > MAX_SETS:
        return best
    axes = _Axes()
    try:
        eigenspaces = [_common(part, domain, axes) for part in _alike(families)]
    except ResourceLimitError:
        return best
    total = math.fsum(value for value, _ in eigenspaces)
    if total < apart:
        return best
    exact = len(eigenspaces) == 1 and not joint and eigenspaces[0][1]
    parts = len(eigenspaces) + len(joint)
    how = "common eigenspaces" + ("" if exact else " of smaller matrices")
    return LowerBound(total + rest, exact, how if parts == 1 else f"{how}, in {parts:,} parts")


def nuclear(gram: Array) -> float:
    """Return the sum of the singular values of queries with this Gram matrix."""
    return float(np.sqrt(_eigenvalues(gram)).sum())


def _eigenvalues(gram: Array) -> Array:
    """Return the eigenvalues; those that may be 0 are, so that no root makes them count."""
    values = np.linalg.eigvalsh(gram)
    return np.where(values > max(values[-1], 0.0) * 1e-13 * len(values), values, 0.0)


def _same_structure(families: Sequence[Family]) -> list[list[Family]]:
    """Group families that differ in their weights only."""
    found: dict[frozenset[tuple[tuple[str, ...], bytes]], list[Family]] = {}
    for family in families:
        key = frozenset((block.attributes, block.queries.key) for block in family.blocks)
        found.setdefault(key, []).append(family)
    return list(found.values())


def _separate(families: Sequence[Family], domain: Mapping[str, int]) -> float | None:
    """Bound all combinations of what is asked of each attribute, which are one product.

    Such as all marginals of some attributes: WᵀW = ⊗_i Σ_r w_ir G_ir, where the weight of each
    combination is a product of one number for each attribute. None if they are others.
    """
    if any(len(block.attributes) > 1 for family in families for block in family.blocks):
        return None
    try:
        asked = Products.of(Workload.of(domain, families))
    except ResourceLimitError:
        return None
    shape = [len(grams) for grams in asked.grams]
    if math.prod(shape) > len(families):
        return None
    weights = np.zeros(shape)
    np.add.at(weights, tuple(asked.roles.T), asked.weights)
    total = float(weights.sum())
    others = [tuple(j for j in range(len(shape)) if j != i) for i in range(len(shape))]
    along: list[Array] = [weights.sum(axis=o) / total for o in others]
    product: Array = reduce(np.multiply.outer, along, np.array(total))
    if np.abs(weights - product).max() > 1e-12 * total:
        return None
    factors = (
        weighted_sum(list(zip(a.tolist(), grams, strict=True)))
        for a, grams in zip(along, asked.grams, strict=True)
    )
    return total * math.prod(_of_gram(factor) for factor in factors)


def _of_gram(gram: StructuredMatrix) -> float:
    """Return the bound over one attribute."""
    if gram.even is not None:
        across, along = map(math.sqrt, gram.even)
        return (along + (gram.cells - 1) * across) ** 2 / gram.cells
    return nuclear(gram.matrix) ** 2 / gram.cells


def _product(families: Sequence[Family]) -> tuple[float, bool]:
    """Bound families of one structure: the bounds of the factors multiply (HDMM, Theorem 5)."""
    factors = [_factor(block.queries) for block in families[0].blocks]
    weight = math.fsum(family.weight for family in families)
    return weight * math.prod(value for value, _ in factors), all(exact for _, exact in factors)


def _factor(queries: Queries) -> tuple[float, bool]:
    """Bound one block, by its singular values, or by two norms of its few queries.

    By Hölder's inequality ‖Q‖_* >= (tr G)^{3/2} / (tr G²)^{1/2}.
    """
    n = queries.cells
    if n <= MAX_CELLS:
        return nuclear(queries.gram()) ** 2 / n, True
    if queries.rows <= MAX_CELLS and queries.rows * n <= 2**24:
        matrix = queries.matrix
        return nuclear(matrix @ matrix.T) ** 2 / n, True
    squares = queries.squares()
    if queries.rows == n and (squares == 1).all() and (queries.sums() == 1).all():
        return float(n), True  # the cells themselves
    # Any one query alone has to be answered.
    return float(squares.max(initial=0.0)) / n, False


def _alike(families: Sequence[Family]) -> list[list[Family]]:
    """Divide families so that in each part an attribute is asked one thing, or plain ones.

    Plain Gram matrices, aI + bJ, commute with all others that have the ones as an eigenvector.
    """
    parts: list[tuple[dict[str, bytes], list[Family]]] = []
    for family in families:
        asked = {
            b.attributes[0]: b.queries.key for b in family.blocks if b.queries.even_gram() is None
        }
        fitting = (p for p in parts if all(p[0].get(a, key) == key for a, key in asked.items()))
        known, members = next(fitting, ({}, []))
        if not members:
            parts.append((known, members))
        known.update(asked)
        members.append(family)
    return [members for _, members in parts]


@dataclass(frozen=True, slots=True)
class _Axis:
    """The eigenvalues of what is asked of one attribute, in a common basis."""

    at_ones: float
    across: Array
    """One for each eigenvector across the ones; one for all of them if they are equal."""
    exact: bool


class _Axes:
    """The queries about single attributes, taken apart; once for each content."""

    def __init__(self) -> None:
        self._turned: dict[bytes, _Turned] = {}
        self._known: dict[tuple[bytes, float], _Axis] = {}

    def of(self, queries: Queries, kept: float) -> _Axis:
        """Take what is along the ones apart from the rest, with h = kept·s."""
        key = queries.key, kept
        if key not in self._known:
            gram = gram_of(queries)
            if gram.even is not None:
                across, along = gram.even
                self._known[key] = _Axis(along, np.array([across]), exact=True)
            else:
                if queries.key not in self._turned:
                    self._turned[queries.key] = _Turned.of(gram)
                self._known[key] = self._turned[queries.key].axis(kept)
        return self._known[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Turned:
    """A Gram matrix [[g, cᵀ], [c, C]] in a basis whose first vector is along the ones."""

    g: float
    c: Array
    across: Array
    spare: float
    """s = g − cᵀC⁺c, or a little less; g where c is 0."""

    @classmethod
    def of(cls, gram: StructuredMatrix) -> _Turned:
        basis = _basis_with_ones(gram.cells)
        turned = basis.T @ gram.matrix @ basis
        g, c, across = max(0.0, float(turned[0, 0])), turned[1:, 0], turned[1:, 1:]
        if np.abs(c).max(initial=0.0) <= 1e-12 * sum(across_and_along(gram)):
            return cls(g, np.zeros_like(c), across, g)
        # cᵀC⁺c = Σ (v·c)²/λ over the eigenvectors v of C; directions with λ = 0 have v·c = 0, too,
        # as [[g, cᵀ], [c, C]] is positive semidefinite.
        values, vectors = np.linalg.eigh(across)
        large = values > 1e-12 * values[-1]
        along = np.square(vectors.T @ c)[large] / values[large]
        return cls(g, c, across, max(0.0, g - float(along.sum())))

    def axis(self, kept: float) -> _Axis:
        """Return the eigenvalues of H, which is [[g, 0], [0, C]] itself where c is 0."""
        if not self.c.any():
            return _Axis(self.g, _eigenvalues(self.across), exact=True)
        # A little less than s, whose own rounding errors must not make H too large.
        h = kept * self.spare
        rest = self.across - np.outer(self.c, self.c) / (self.g - h)
        return _Axis(h, _eigenvalues(rest), exact=False)


def _common(
    families: Sequence[Family], domain: Mapping[str, int], known: _Axes
) -> tuple[float, bool]:
    """Bound families with eigenspaces in common, for the best h."""
    asked = {b.queries.key: b.queries for f in families for b in f.blocks}
    best, exact = 0.0, False
    for kept in KEPT:
        axes = {key: known.of(queries, kept) for key, queries in asked.items()}
        best = max(best, _over_residual_spaces(families, domain, axes))
        exact = all(axis.exact for axis in axes.values())
        if exact:
            break
    return best, exact


def _basis_with_ones(n: int) -> Array:
    """Return an orthonormal basis with the ones first: the reflection that takes e_0 there."""
    u = np.full(n, 1 / math.sqrt(n))
    v = u.copy()
    v[0] -= 1.0
    return np.asarray(np.eye(n) - 2 * np.outer(v, v) / (v @ v)) if n > 1 else np.ones((1, 1))


def _over_residual_spaces(
    families: Sequence[Family], domain: Mapping[str, int], axes: Mapping[bytes, _Axis]
) -> float:
    """Return (Σ over all eigenspaces of dimension·√eigenvalue)² / N.

    The eigenvalue of Σ_j w_j ⊗H_i^(j) on a product of eigenvectors is a sum of products. A family
    over B is seen on the residual space of each A ⊆ B: it has the factor h_i/n_i along the
    attributes of B∖A, and 1/n_i times the eigenvalues along those of A (the docstring of this file;
    attributes outside B have the Gram matrix J, whose eigenvalue n_i at the ones N takes away).
    Families that ask the same along A differ in this factor only, and are added up first.
    """
    asked: dict[frozenset[str], dict[tuple[bytes, ...], float]] = {}
    for family in families:
        keys = {b.attributes[0]: b.queries.key for b in family.blocks}
        names = sorted(keys)
        for kept in subsets(names):
            share = family.weight * math.prod(
                (1.0 if name in kept else axes[keys[name]].at_ones) / domain[name] for name in names
            )
            terms = asked.setdefault(frozenset(kept), {})
            along = tuple(keys[name] for name in kept)
            terms[along] = terms.get(along, 0.0) + share
    roots = (_roots([domain[n] for n in sorted(a)], terms, axes) for a, terms in asked.items())
    return math.fsum(roots) ** 2


def _roots(
    sizes: Sequence[int], terms: Mapping[tuple[bytes, ...], float], axes: Mapping[bytes, _Axis]
) -> float:
    """Return Σ √eigenvalue over one residual space.

    Args:
        sizes: the number of cells along each of its attributes.
        terms: what is asked along each of them → the factor in front of the product.
        axes: the eigenvalues of what is asked.
    """
    if len(terms) == 1 or math.prod(n - 1 for n in sizes) > MAX_TENSOR:
        products = (_product_roots(sizes, along, share, axes) for along, share in terms.items())
        return max(products)  # where they are too many, each of the terms alone is below the sum
    # An attribute along which all terms have one eigenvalue, n − 1 times, is counted and not
    # written out; along the others an axis of the tensor has the n − 1 eigenvalues.
    total: Array = np.zeros(())
    plain = [all(len(axes[along[i]].across) == 1 for along in terms) for i in range(len(sizes))]
    for along, share in terms.items():
        tensor: Array = np.array(share)
        for i, key in enumerate(along):
            values = axes[key].across
            full = values if plain[i] else np.broadcast_to(values, sizes[i] - 1)
            tensor = np.multiply.outer(tensor, full)
        total = total + tensor
    times = math.prod(n - 1 for n, alone in zip(sizes, plain, strict=True) if alone)
    return times * float(np.sqrt(total).sum())


def _product_roots(
    sizes: Sequence[int], along: Sequence[bytes], share: float, axes: Mapping[bytes, _Axis]
) -> float:
    """Return the same for one product: the sums of the axes multiply."""
    result = math.sqrt(share)
    for n, key in zip(sizes, along, strict=True):
        values = axes[key].across
        result *= (n - 1) / len(values) * float(np.sqrt(values).sum()) if n > 1 else 0.0
    return result
