"""Mechanisms side by side, and lower bounds for those without a certificate."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dpsql.charts.plots import inlined, plotted
from dpsql.charts.specs import Figure, Panel, Points
from dpsql.errors import DpsqlError, MechanismError, PlotError, ResourceLimitError, WorkloadError
from dpsql.hints import Hint
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import StructuredMatrix, across_and_along, weighted_sum
from dpsql.linalg.sets import subsets
from dpsql.linalg.threads import one_thread
from dpsql.markup import card, table
from dpsql.planner.mechanisms.base import DEFAULT, Cost, Options
from dpsql.planner.mechanisms.distinct_units import least_error
from dpsql.planner.mechanisms.hdmm_products import MAX_CELLS, Products, gram_of
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER
from dpsql.planner.registry import planned, reason_unsupported, traits_of
from dpsql.privacy import Budget
from dpsql.workload import Family, Queries, Workload
from dpsql.workload.workload import gram, joint_cells, touched

if TYPE_CHECKING:
    import altair


# ── The SVD bound: no matrix mechanism answers a workload with less error ────────────────────────
#
# (Li and Miklau, "Optimal error of query sets under the differentially-private matrix mechanism",
# ICDT 2013; HDMM, Theorems 5 and 12.) Let W be the queries over N cells with their weights folded
# in, and A any strategy from which they follow. With ‖·‖_* the sum of the singular values,
#
#     ‖W‖_* = ‖W A⁺ A‖_* <= ‖W A⁺‖_F ‖A‖_F <= ‖W A⁺‖_F · √N · Δ ,
#
# where Δ is the largest Euclidean norm of a column of A. So with noise of variance 1 and Δ <= 1 the
# sum of weight·variance is at least ‖W‖_*² / N. A column has no larger Euclidean norm than sum of
# magnitudes, so that the bound is as true where Δ is the latter, for Laplace noise.
#
# Over large domains W isn't written out. Its singular values are the roots of the eigenvalues of
# G = WᵀW, which is a sum of Kronecker products of Gram matrices of single attributes.
#
# *Common eigenspaces.* Where each factor has the ones as an eigenvector, and the factors of one
# attribute commute, the eigenspaces are products of those of the attributes, and lie in residual
# spaces. On that of A, every family over B ⊇ A adds its weight times the product of the eigenvalues
# along the attributes of A, and of h_i/n_i for those of B∖A and 1/n_i for those of A, where h_i is
# the eigenvalue at the ones (N is divided out). So it is for marginals and circular ranges.
#
# *Below.* Other factors G_i are replaced by less. Write G_i = [[g, cᵀ], [c, C]] in a basis whose
# first vector is along the ones. With s = g − cᵀC⁺c and 0 <= h <= s, h < g,
#
#     H = [[h, 0], [0, C − ccᵀ/(g − h)]]
#
# is positive semidefinite, and so is G_i − H. Then ⊗H_i <= ⊗G_i for products of such matrices, sums
# keep that order, and so do the eigenvalues: ‖W‖_* is only made smaller. Several h are tried.
#
# *Sums.* The least error of several parts of a workload together is at least the sum of their
# least errors, since one strategy serves all. Families that have no eigenspaces in common, even
# after that, are bounded in parts. *Units by groups* have a least error of their own, whatever rows
# a unit has (`planner.mechanisms.distinct_units`): it is added, for Gaussian noise.


SMALL = 1000
"""Joint cells up to which all queries are taken together."""
MAX_SETS = 2**20
"""Pairs of a family and a set of its attributes."""
MAX_TENSOR = 2**22
"""Eigenvalues of one residual space that are written out."""
KEPT = (0.0, 0.3, 0.6, 0.9)
"""Values of h/s that are tried: shares of the eigenvalue at the ones that are kept, see above."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound on the error of every matrix mechanism."""

    total: float
    """The least Σ weight·variance with noise of variance 1 and sensitivity 1."""
    exact: bool
    """Whether it is the SVD bound; if not, it is below."""
    how: str
    """The method by which it was found."""
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
        bound = svd_bound(Workload.of(workload.domain, rows))
        each = ((least_error(part.workload, part.rows), part.change) for part in of_units)
        units = math.fsum(error * change**2 for error, change in each)
        return replace(bound, exact=False, of_units=units)
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
    groups: dict[frozenset[tuple[tuple[str, ...], bytes]], list[Family]] = {}
    for family in families:
        key = frozenset((block.attributes, block.queries.key) for block in family.blocks)
        groups.setdefault(key, []).append(family)
    return list(groups.values())


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


# ── All mechanisms side by side, on one workload and budget ──────────────────────────────────────


UNIFORM = f"{QUERYSMASHER} (uniform)"
EVERY = 0.002
"""Seconds between two looks at the memory in use."""
BIASED = "no expected errors; answers are biased"
ADAPTIVE = f"chooses what it measures by the data: {BIASED}"

SCHEMA = {
    "mechanism": pl.String(),
    "rmse": pl.Float64(),
    "worst_standard_error": pl.Float64(),
    "lower_bound": pl.Float64(),
    "bound": pl.String(),
    "seconds": pl.Float64(),
    "peak_mb": pl.Float64(),
    "note": pl.String(),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Mechanisms side by side, the most accurate first. Shown as text, or as HTML in a notebook."""

    workload: Workload
    budget: Budget
    frame: pl.DataFrame
    """Columns: `mechanism`, `rmse` and `worst_standard_error` (in rows; null where there are none),
    `lower_bound` (no plan of the kind that `bound` names has a smaller RMSE), `bound`, `seconds`
    (of planning), `peak_mb` (memory that planning took), `note` (why a mechanism does not apply).
    """

    @property
    def title(self) -> str:
        """The heading of what is shown: the number of queries and the budget."""
        queries, families = self.workload.count, len(self.workload.families)
        counted = f"{queries:,} {'query' if queries == 1 else 'queries'}"
        return (
            f"{counted} in {families:,} {'family' if families == 1 else 'families'}, {self.budget}"
        )

    def __repr__(self) -> str:
        rows = [[*SHOWN], *(_shown(row) for row in self.frame.iter_rows(named=True))]
        widths = [max(len(row[i]) for row in rows) for i in range(len(SHOWN))]
        lines = [self.title, ""]
        for *cells, note in rows:
            left = cells[0].ljust(widths[0])
            right = "  ".join(c.rjust(w) for c, w in zip(cells[1:], widths[1:-1], strict=True))
            lines.append(f"{left}  {right}  {note}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [_shown(row) for row in self.frame.iter_rows(named=True)]
        return card(self.title, table(SHOWN, rows), *inlined(self._figure))

    def plot(self) -> altair.Chart | altair.LayerChart:
        """Draw the expected RMSE of each mechanism as a bar, and its lower bound as a tick.

        A chart of Altair; it needs `pip install "dpsql[plots]"`.

        Raises:
            PlotError: no mechanism has an expected error, or Altair is not installed.
        """
        if self._figure is None:
            raise PlotError("No mechanism has an expected error.", hint="see comparison.frame.")
        return plotted(self._figure, self.title)

    @property
    def _figure(self) -> Figure | None:
        known = self.frame.filter(pl.col("rmse").is_finite())
        if known.is_empty():
            return None
        points = Points(
            value="expected RMSE (rows)",
            by="mechanism",
            scale="nominal",
            keys=known["mechanism"].to_list(),
            values=known["rmse"].to_list(),
            ends=[None] * known.height,
            limits=known["lower_bound"].to_list(),
        )
        best, error = known.row(0, named=True)["mechanism"], known["rmse"][0]
        words = f"Bars: the expected RMSE of each mechanism; {best} has the least, {error:.4g}."
        missing = self.frame.height - known.height
        left_out = [f"{missing} without an expected error are left out"] if missing else []
        return Figure((Panel(points),), words, ("ticks are lower bounds", *left_out))


SHOWN = ("mechanism", "rmse", "largest se", "lower bound", "seconds", "peak MB", "note")


@one_thread
def compare(
    workload: Workload,
    budget: Budget,
    mechanisms: Sequence[str] | None = None,
    options: Options = DEFAULT,
) -> Comparison:
    """Plan a workload by several mechanisms, one after the other.

    Args:
        workload: what to answer.
        budget: what each may spend.
        mechanisms: their names; all by default.
        options: whom to protect, and how closely QuerySmasher is to be solved.

    Raises:
        MechanismError: there is no mechanism of that name.
        WorkloadError: the workload is empty.
    """
    if isinstance(mechanisms, str):
        mechanisms = [mechanisms]
    if mechanisms is not None and not isinstance(mechanisms, Sequence):
        raise MechanismError(
            "Mechanisms are given as a list of names.", hint='for example mechanisms=["hdmm"].'
        )
    for name in mechanisms or ():
        traits_of(name)
    if mechanisms is not None and not mechanisms:
        raise MechanismError(
            "No mechanism is named.",
            hint="leave " + Hint("mechanisms=", "--mechanism") + " out to compare all.",
        )
    if not workload.count:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    names = [*MECHANISMS] if mechanisms is None else list(dict.fromkeys(mechanisms))
    tried = [(name, name, options) for name in names]
    if QUERYSMASHER in names:
        tried.insert(
            names.index(QUERYSMASHER) + 1,
            (UNIFORM, QUERYSMASHER, replace(options, residuals="uniform")),
        )
    bound = svd_bound(workload)
    rows = [
        {"mechanism": label, **_measured(name, workload, budget, how, bound)}
        for label, name, how in tried
    ]
    # What differs in the tenth digit is equally good.
    order = pl.col("rmse").round_sig_figs(6)
    frame = pl.DataFrame(rows, schema=SCHEMA).sort(order, nulls_last=True, maintain_order=True)
    return Comparison(workload, budget, frame)


def _measured(
    name: str, workload: Workload, budget: Budget, options: Options, bound: LowerBound
) -> dict[str, object]:
    """Plan, and return what goes into the columns."""
    reason = reason_unsupported(name, workload, budget)
    if reason is None and MECHANISMS[name].is_adaptive:
        reason = ADAPTIVE
    if reason is not None:
        return {"note": reason}
    with peak_memory() as peak_mb:
        start = time.perf_counter()
        try:
            plan = planned(workload, budget, name, options)
        except DpsqlError as error:
            return {"note": error.message}
        except (ArithmeticError, ValueError):  # also what numpy raises of singular matrices
            return {"note": "its numbers are too far apart to be computed with"}
        seconds, peak = time.perf_counter() - start, peak_mb()
    work = {"seconds": seconds, "peak_mb": peak}
    if MECHANISMS[name].is_biased:
        return {
            **work,
            "note": f"measures {plan.workload.count:,} cells of pairs and single columns, "
            f"expected RMSE {plan.rmse:.4g}; {BIASED}",
        }
    kind, least = _bound(plan, bound, options)
    return {
        "rmse": plan.rmse,
        "worst_standard_error": plan.expected_error()["worst_standard_error"].max(),
        "lower_bound": least,
        "bound": kind,
        **work,
    }


def _bound(planned: Plan, bound: LowerBound, options: Options) -> tuple[str, float]:
    """Return the plan's own certificate, or else the bound that holds for all mechanisms.

    These may use that the rows of a unit are apart, also where the plan doesn't.
    """
    if math.isfinite(planned.gap):
        kind = "of all mechanisms" if planned.least else "of its residual spaces"
        return f"certified bound {kind}", planned.rmse / math.sqrt(1 + planned.gap)
    cost = Cost(planned.budget, planned.contributions, spreads=options.spreads)
    total = bound.at(planned.budget, float(cost.agreeing))
    return "SVD bound" if bound.exact else "below the SVD bound", math.sqrt(
        total / planned.workload.count
    )


def _shown(row: dict[str, object]) -> list[str]:
    """Write the cells of a row."""
    errors = [_number(row[k], ".4g") for k in ("rmse", "worst_standard_error", "lower_bound")]
    work = [_number(row["seconds"], ".2f"), _number(row["peak_mb"], ".0f")]
    return [str(row["mechanism"]), *errors, *work, str(row["note"] or row["bound"] or "")]


def _number(value: object, form: str) -> str:
    return "-" if value is None else format(value, form)


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Yield how much more memory the process used at most, in units of 2^20 bytes, since then."""
    import psutil  # only comparisons need it

    process, stop = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def look() -> float:
        nonlocal most
        most = max(most, process.memory_info().rss)
        return float(most - before) / 2**20

    def watch() -> None:
        while not stop.wait(EVERY):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield look
    finally:
        stop.set()
        thread.join()
