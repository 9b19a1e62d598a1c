"""HDMM, the high-dimensional matrix mechanism (McKenna, Miklau, Hay and Machanavajjhala, JPC 2023).

One strategy is measured, and all answers follow from it by least squares. The strategies are
searched among those that can be written down for large domains:

    OPT_0           over the cells of one attribute                       `hdmm_products`
    OPT_⊗, OPT_+    one Kronecker product; one per set of attributes      `hdmm_products`
    OPT_M           marginals with weights                                below

and the best is taken (HDMM, 9 and 10). The noise is Gaussian, or Laplace for pure ε; what is best
differs.

OPT_⊗ and OPT_0 measure all attributes that are touched jointly, OPT_+ and OPT_M several marginals.
Answers follow by least squares, from the one marginal or from all of them; neither needs a matrix
over all cells: (⊗B_i)⁺ = ⊗B_i⁺, and marginals have their eigenspaces in common.

Real strategies are rounded to integers of a given width. All keep full column rank, so that every
cell follows from what is measured, without a bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import MechanismError, ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense, check_entries
from dpsql.linalg.sets import subsets
from dpsql.measurement.factors import ENTRY_BITS, DenseFactor, IdentityFactor, IntegerFactor
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of
from dpsql.planner.mechanisms.direct import MarginalStrategy, Reading, assemble, cells_of
from dpsql.planner.mechanisms.hdmm_products import (
    DenseStrategy,
    EvenStrategy,
    Noise,
    Oracle,
    Products,
    ProductStrategy,
    Strategy,
    best_product,
    best_union,
    descend,
    irregular,
)
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import by_size, decompose
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import round_strategy
from dpsql.privacy import Budget
from dpsql.workload import Workload
from dpsql.workload.workload import gram, joint_cells, touched

MOST_CELLS = 2**24
"""Cells of one marginal that is measured, at most."""
MOST_MEASUREMENTS = 2**25
"""Noisy integers of all marginals together, at most: they are held at once."""
MOST_PARTS = 2**17
"""Residual spaces of marginals that are put together."""
FEW_CELLS = 256
"""Joint cells up to which OPT_0 is tried over all of them."""
SPARE_CELLS = 2**20
"""Marginals up to this size are considered even where no query is over so many cells."""
SPARE = 1 << 10
"""Factor by which cells that nobody asks for are measured less than the total."""
NOISE_BITS = 40
"""Noise stays below about 2^40: far from the end of what is drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class StrategyCandidate:
    """One of the strategies among which the best is taken."""

    error: float
    """Σ weight·variance at unit noise and sensitivity 1; in integers where they make it worse."""
    strategies: tuple[MarginalStrategy, ...]
    reading: Reading


class Hdmm(Mechanism):
    """Plans with Laplace noise if the budget is pure, else with Gaussian noise."""

    traits = MECHANISMS["hdmm"]

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Name a marginal that has too many cells. Both kinds of budget will do."""
        families = [f for f in workload.families if f.count]
        if not families:
            return "the workload is empty"
        sets = {f.attributes for f in families}
        sizes = {s: math.prod(workload.domain[a] for a in s) for s in sets}
        largest = max(sets, key=sizes.__getitem__)
        if sizes[largest] > MOST_CELLS:
            names = " x ".join(a for a in workload.domain if a in largest)
            return f"it measures marginals, and that over {names} has {sizes[largest]:,} cells"
        total = sum(n for s, n in sizes.items() if not any(s < other for other in sets))
        if total > MOST_MEASUREMENTS and joint_cells(workload) > MOST_CELLS:
            return f"it measures marginals, and those that are asked have {total:,} cells"
        return None

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Take the best strategy of those that can be measured.

        Raises:
            MechanismError: none of the strategies can be measured.
            ResourceLimitError: the budget is too small for noise that fits 64-bit integers.
        """
        cost = Cost(budget_of(budget), options.contributions, options.bound)
        # What nobody asks about plays no part, and has no residual spaces among those measured.
        domain = {name: workload.domain[name] for name in touched(workload)}
        largest = max(f.weight for f in workload.families)
        scaled = [replace(f, weight=f.weight / largest) for f in workload.families]
        strategies = list(candidates(Workload.of(domain, scaled), cost))
        if not strategies:
            raise MechanismError(
                f"{self.traits.title} can't answer this: none of its strategies for these queries "
                "can be measured.",
                hint="use another mechanism.",
            )
        best = min(strategies, key=lambda candidate: candidate.error)
        return assemble(workload, cost, best.strategies, best.reading)


def candidates(workload: Workload, cost: Cost) -> Iterator[StrategyCandidate]:
    """Yield what can be measured of OPT_0, OPT_⊗, OPT_+ and OPT_M."""
    noise: Noise = "laplace" if cost.budget.pure else "gaussian"
    oracle = Oracle(noise)
    searches: list[Callable[[], StrategyCandidate | None]] = []
    if not any(len(block.attributes) > 1 for f in workload.families for block in f.blocks):
        searches += [partial(f, workload, oracle, cost) for f in (_kronecker, _union)]
    if len(touched(workload)) > 1 and joint_cells(workload) <= FEW_CELLS:
        searches.append(partial(_all_cells, workload, oracle, cost))
    searches.append(partial(_marginals, workload, noise))
    for search in searches:
        # A Gram matrix may be too large, or its entries too far apart; others may need none.
        candidate = None
        with (
            suppress(ResourceLimitError, np.linalg.LinAlgError, ArithmeticError, ValueError),
            np.errstate(all="ignore"),
        ):
            candidate = search()
        if candidate is not None and math.isfinite(candidate.error):
            yield candidate


def _kronecker(workload: Workload, oracle: Oracle, cost: Cost) -> StrategyCandidate | None:
    if joint_cells(workload) > MOST_CELLS:
        return None
    product = best_product(Products.of(workload), oracle)
    return _products([product], [1.0], oracle.noise, cost, "one product")


def _union(workload: Workload, oracle: Oracle, cost: Cost) -> StrategyCandidate | None:
    union = best_union(workload, oracle)
    return _products(union.products, union.shares, oracle.noise, cost, "a union of products")


def _products(
    products: Sequence[ProductStrategy],
    shares: Sequence[float],
    noise: Noise,
    cost: Cost,
    what: str,
) -> StrategyCandidate | None:
    """Round products, and see how well they do in integers; None if they are too many."""
    if any(p.asked.cells > MOST_CELLS for p in products):
        return None
    bits = _bits(cost, min(shares))
    strategies, errors = [], []
    for product, share in zip(products, shares, strict=True):
        factors = rounded(product.factors, noise, bits)
        solver = f"{what}: {_described(product)}"
        strategies.append(MarginalStrategy(product.asked.names, factors, share, solver))
        pairs = zip(factors, product.factors, strict=False)
        measured = tuple(realized(factor, solution, noise) for factor, solution in pairs)
        errors.append(ProductStrategy(product.asked, measured).error)
    counts = (math.prod(f.measurements for f in s.factors) for s in strategies)
    if sum(counts) > MOST_MEASUREMENTS:
        return None
    squared = [s if noise == "gaussian" else s * s for s in shares]
    error = math.fsum(e / s for e, s in zip(errors, squared, strict=True))
    return StrategyCandidate(error, tuple(strategies), "marginals")


def _described(product: ProductStrategy) -> str:
    return ", ".join(sorted({_kind(factor) for factor in product.factors})) or "total"


def _kind(factor: Strategy) -> str:
    if not isinstance(factor, EvenStrategy):
        return "searched"
    return "cells and total" if factor.total else "cells"


def _all_cells(workload: Workload, oracle: Oracle, cost: Cost) -> StrategyCandidate:
    """OPT_0 over the joint cells."""
    names = touched(workload)
    asked = Dense(gram(workload, names))
    sizes = [workload.domain[name] for name in names]
    solution = oracle.solve(asked)
    factor = joint(solution, oracle.noise, sizes, _bits(cost, 1.0))
    strategy = MarginalStrategy(names, (factor,), 1.0, "all joint cells: searched")
    return StrategyCandidate(
        realized(factor, solution, oracle.noise).error(asked), (strategy,), "marginals"
    )


def _marginals(workload: Workload, noise: Noise) -> StrategyCandidate | None:
    """OPT_M, over marginals that can be measured; they are cells, so that nothing is rounded."""
    given = spectrum(workload)
    if given is None:
        return None
    asked = max(
        math.prod(workload.domain[a] for a in f.attributes) for f in workload.families if f.count
    )
    for largest in sorted({max(asked, min(SPARE_CELLS, MOST_CELLS)), asked}, reverse=True):
        best = best_marginals(given, noise, largest)
        sizes = [[workload.domain[a] for a in names] for names in best.sets]
        # Answers that are pooled need each attribute to be measured, if only for its total.
        whole = {a for names in best.sets for a in names} == set(touched(workload))
        parts = sum(1 << len(names) for names in best.sets)
        if whole and parts <= MOST_PARTS and sum(map(math.prod, sizes)) <= MOST_MEASUREMENTS:
            break
    else:
        return None
    strategies = tuple(
        MarginalStrategy(
            names,
            cells_of(shape),
            theta if noise == "laplace" else theta**2,
            "marginals with weights: cells",
        )
        for names, shape, theta in zip(best.sets, sizes, best.theta, strict=True)
    )
    return StrategyCandidate(best.error, strategies, "pooled")


def _bits(cost: Cost, share: float) -> int:
    """Choose the width of entries from public numbers only.

    Wide ones keep rounding harmless, but at a small cost the noise would grow too wide.
    """
    spent = float(cost.per_record) * share
    shrink = -math.log2(spent) / (1 if cost.budget.pure else 2)
    room = ENTRY_BITS - 1 - (cost.bound - 1).bit_length()
    return max(1, min(room, max(8, int(NOISE_BITS - max(0.0, shrink)))))


def rounded(strategies: Sequence[Strategy], noise: Noise, bits: int) -> tuple[IntegerFactor, ...]:
    """Round the strategies of a product of which the entries may have `bits` bits in all.

    Cells alone need no bits. The others share them.
    """
    if not strategies:
        return cells_of(())
    lossy = [i for i, s in enumerate(strategies) if not _is_identity(s)]
    share = max(1, bits // max(1, len(lossy)))
    factors: list[IntegerFactor] = []
    for axis, strategy in enumerate(strategies):
        if axis in lossy:
            matrix = _matrix(strategy, noise, share)
            factors.append(DenseFactor((axis,), (strategy.cells,), matrix))
        else:
            factors.append(IdentityFactor((axis,), (strategy.cells,), 1))
    return tuple(factors)


def joint(strategy: Strategy, noise: Noise, sizes: Sequence[int], bits: int) -> DenseFactor:
    """Round a strategy over the joint cells of several attributes."""
    axes = tuple(range(len(sizes)))
    return DenseFactor(axes, tuple(sizes), _matrix(strategy, noise, bits))


def realized(factor: IntegerFactor, strategy: Strategy, noise: Noise) -> Strategy:
    """Return what became of a strategy, scaled to sensitivity 1."""
    change = factor.largest_column_sum
    norm = float(change) if noise == "laplace" else math.sqrt(factor.largest_column_norm_squared)
    if factor.kind == IdentityFactor.kind:
        return EvenStrategy(strategy.cells, 1.0, 0.0)
    matrix = factor.matrix.astype(np.float64) / norm
    if isinstance(strategy, EvenStrategy):
        total = float(matrix[strategy.cells, 0]) if len(matrix) > strategy.cells else 0.0
        return EvenStrategy(strategy.cells, float(matrix[0, 0]), total)
    return DenseStrategy.of(matrix)


def _is_identity(strategy: Strategy) -> bool:
    return strategy.cells == 1 or (isinstance(strategy, EvenStrategy) and not strategy.total)


def _matrix(strategy: Strategy, noise: Noise, bits: int) -> Ints:
    if isinstance(strategy, EvenStrategy):
        return _even(strategy, bits)
    if noise == "laplace":
        return _p_identity(strategy.rows, bits)
    basis = np.eye(strategy.cells, dtype=np.int64)
    return round_strategy(over_basis(strategy.rows, basis, lambda scaled: scaled), bits)


def _even(strategy: EvenStrategy, bits: int) -> Ints:
    """Write it out. If only the total is asked, each cell is measured nonetheless, at `SPARE`."""
    n = strategy.cells
    check_entries(n + 1, n)
    scale = (1 << bits) / max(strategy.each, strategy.total)
    each = max(1, (1 << bits) // SPARE, round(strategy.each * scale))
    total = round(strategy.total * scale)
    cells = each * np.eye(n, dtype=np.int64)
    return np.vstack([cells, np.full((1, n), total)]) if total else cells


def _p_identity(rows: Array, bits: int) -> Ints:
    """Round all entries; those of the cells stay above 0, and empty queries go."""
    n = rows.shape[1]
    matrix = np.rint(rows * ((1 << bits) / float(rows.max()))).astype(np.int64)
    at = np.arange(n)
    matrix[at, at] = np.maximum(matrix[at, at], 1)
    return np.vstack([matrix[:n], matrix[n:][matrix[n:].any(axis=1)]])


# ── OPT_M: marginals with weights (HDMM, 7 and 8) ────────────────────────────────────────────────
#
# The strategy θ_B·(marginal over B), for all attribute sets B, treats the cells of each attribute
# alike. So its Gram matrix has the residual spaces as eigenspaces, whatever the weights (Theorem
# 9): on that of A, with n_B the number of cells over B and N that of all, its eigenvalue is
#
#     κ_A = N · Σ_{B⊇A} θ_B² / n_B .
#
# With g_A the trace there of the Gram matrix of what is asked, the error is
#
#     ‖θ‖² · Σ_A g_A / κ_A ,   ‖θ‖² = Σ θ_B² (Gaussian) or (Σ θ_B)² (Laplace) ,
#
# of any queries, also joint ones: g_A is Σ over the queries of ‖their part in A‖² (Theorem 11, in
# other words). N cancels. The problem is convex in θ² for Gaussian noise; for Laplace noise the
# search starts from several places.
#
# Over up to 15 attributes all sets B are there, numbered by their bits, and sums over all supersets
# take one pass for each attribute (Yates's algorithm). Over more, only listed sets are.


MAX_BITS = 15
MAX_PAIRS = 2**23
"""Pairs of a listed set and a listed superset of it."""


class ListedSubsets:
    """Sets of the attributes 0..d−1, in a fixed order, with the pairs of one inside another."""

    def __init__(self, sets: Sequence[tuple[int, ...]]) -> None:
        import scipy.sparse  # slow to import, and no plain count needs it

        self.sets = list(sets)
        """The attributes of each set, ascending; a set is known by its place here."""
        self._numbers = {frozenset(s): i for i, s in enumerate(self.sets)}
        lower, upper = [], []
        for at, larger in enumerate(self.sets):
            for smaller in subsets(larger):
                number = self._numbers.get(frozenset(smaller))
                if number is not None:
                    lower.append(number)
                    upper.append(at)
        shape = (len(self.sets),) * 2
        pairs = scipy.sparse.coo_array((np.ones(len(lower)), (lower, upper)), shape)
        self._above, self._below = pairs.tocsr(), pairs.T.tocsr()

    def index(self, attributes: Collection[int]) -> int:
        """Return the number of a set."""
        return self._numbers[frozenset(attributes)]

    def above(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its supersets and of its own."""
        return np.asarray(self._above @ values)

    def below(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its subsets and of its own."""
        return np.asarray(self._below @ values)


class AllSubsets(ListedSubsets):
    """All 2^d sets, of which no pairs have to be kept."""

    def __init__(self, count: int) -> None:
        self._count = count
        numbers = range(1 << count)
        self.sets = [tuple(i for i in range(count) if n >> i & 1) for n in numbers]

    def index(self, attributes: Collection[int]) -> int:
        """Return the number whose bits are the attributes."""
        return sum(1 << i for i in attributes)

    def above(self, values: Array) -> Array:
        """Add what has a bit to what hasn't, bit by bit."""
        return self._passes(values, 0, 1)

    def below(self, values: Array) -> Array:
        """Add what hasn't a bit to what has, bit by bit."""
        return self._passes(values, 1, 0)

    def _passes(self, values: Array, into: int, of: int) -> Array:
        result = np.array(values)
        for i in range(self._count):
            pairs = result.reshape(-1, 2, 1 << i)
            pairs[:, into] += pairs[:, of]
        return result


def closure(sets: Collection[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the sets and all subsets of them, small ones first."""
    sets_below = set(chain.from_iterable(map(subsets, sets)))
    return sorted(sets_below, key=lambda s: (len(s), s))


def enough_subsets(count: int, wanted: Collection[tuple[int, ...]]) -> ListedSubsets | None:
    """Return all sets if there are few attributes, else the closure of those wanted.

    None if they are too many.
    """
    if count <= MAX_BITS:
        return AllSubsets(count)
    if sum(1 << len(s) for s in wanted) > MAX_PAIRS:
        return None
    listed = closure(wanted)
    if sum(1 << len(s) for s in listed) > MAX_PAIRS:
        return None
    return ListedSubsets(listed)


STARTS, SHAKES = 30, 30
"""With Laplace noise: how many points are searched from, and how often the best one is shaken."""
STEPS = 3000
PRECISION = 1e-10
SMALLEST = 1e-6
"""Shares of the sensitivity below which a marginal isn't measured, if it isn't needed."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedMarginals:
    """The marginals that are measured, and their weights: Σ θ² = 1, or Σ θ = 1."""

    sets: tuple[tuple[str, ...], ...]
    theta: tuple[float, ...]
    error: float
    """Σ weight·variance at unit noise and sensitivity 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The spectrum of what is asked: a number for each residual space of a family of sets."""

    names: tuple[str, ...]
    subsets: ListedSubsets
    asked: Array
    """g_A / N for each set, in their order: shape (sets,)."""
    cells: Array
    """n_B, the number of cells of each marginal: shape (sets,)."""


def spectrum(workload: Workload) -> Spectrum | None:
    """Add up what is asked of each residual space; None if there are too many, or none."""
    families = [f for f in workload.families if f.count]
    names = touched(workload)
    places = {name: i for i, name in enumerate(names)}
    lattice = enough_subsets(
        len(names), {tuple(sorted(places[a] for a in f.attributes)) for f in families}
    )
    if lattice is None:
        return None
    sizes = [workload.domain[name] for name in names]
    cells = np.array([float(math.prod(sizes[i] for i in s)) for s in lattice.sets])
    asked = np.zeros(len(lattice.sets))
    coloring = by_size(workload)
    splitter = Splitter([Reference.of_cells(n) for n in coloring.sizes])
    for subworkload in decompose(workload, coloring, splitter.squares):
        # Over its own cells Σ‖q_A‖² is g_A · n_A / N: what is dropped is the mean over n cells.
        squares = math.fsum(
            share * math.prod(map(splitter.squares, [*dropped, *(piece for piece, _ in t.layout)]))
            for t in subworkload.terms
            for share, dropped in t.shares
        )
        at = [lattice.index([places[a] for a in space]) for space in subworkload.spaces]
        asked[at] = squares / cells[at]
    return Spectrum(names, lattice, asked, cells) if asked.any() else None


def best_marginals(given: Spectrum, noise: Noise, largest: float = math.inf) -> WeightedMarginals:
    """Search the best weights of marginals with at most `largest` cells.

    Every residual space of which something is asked has to lie in a marginal that is measured:
    `largest` is not below the cells of what the workload touches.
    """
    error = _ErrorOfWeights(given, noise, given.cells <= largest)
    best = min((_search(error, z) for z in _starts(len(given.asked), noise)), key=error)
    for number in range(1, 1 + SHAKES * (noise == "laplace")):
        best = min(best, _search(error, _shaken(best, number)), key=error)
    weights = error.weights(best)
    kept = np.flatnonzero(weights > 0)
    names = [tuple(given.names[i] for i in given.subsets.sets[at]) for at in kept.tolist()]
    return WeightedMarginals(tuple(names), tuple(weights[kept].tolist()), error.of(weights))


class _ErrorOfWeights:
    """The logarithm of the error, as a function of z for each marginal, with θ² = z⁴ or θ = z²."""

    def __init__(self, given: Spectrum, noise: Noise, allowed: NDArray[np.bool_]) -> None:
        self._given, self._noise, self._allowed = given, noise, allowed
        self._needed = given.asked > 0

    def __call__(self, z: Array) -> float:
        return self.with_gradient(z)[0]

    def of(self, theta: Array) -> float:
        """Return the error itself."""
        norm = theta.sum() ** 2 if self._noise == "laplace" else np.square(theta).sum()
        kappa = self._given.subsets.above(theta**2 / self._given.cells)
        needed = self._needed
        return float(norm * (self._given.asked[needed] / kappa[needed]).sum())

    def weights(self, z: Array) -> Array:
        """Return θ with norm 1, without what is of no use."""
        laplace = self._noise == "laplace"
        theta = np.where(self._allowed, z * z if laplace else np.abs(z), 0.0)
        whole = self.of(theta)
        spent = theta / theta.sum() if laplace else theta**2 / np.square(theta).sum()
        without = np.where(spent > SMALLEST, theta, 0.0)
        kappa = self._given.subsets.above(without)
        if (kappa[self._needed] > 0).all() and self.of(without) <= whole * (1 + 1e-4):
            theta = without
        norm = theta.sum() if laplace else math.sqrt(float(np.square(theta).sum()))
        return np.asarray(theta / norm)

    def with_gradient(self, z: Array) -> tuple[float, Array]:
        """Return log ‖θ‖² + log Σ g/κ and its gradient in z."""
        given, laplace = self._given, self._noise == "laplace"
        squared = np.where(self._allowed, z**4 if laplace else z**2, 0.0)  # θ²
        norm = np.square(z[self._allowed]).sum()  # Σθ, or Σθ²
        kappa = given.subsets.above(squared / given.cells)
        ratio = np.divide(given.asked, kappa, out=np.zeros_like(kappa), where=self._needed)
        error = float(ratio.sum())
        inner = np.divide(ratio, kappa, out=np.zeros_like(kappa), where=self._needed)
        slope = -given.subsets.below(inner) / given.cells / error  # in θ²
        along = 4 * z**3 if laplace else 2 * z
        power = 2.0 if laplace else 1.0
        gradient = slope * along + power * 2 * z / norm
        return power * math.log(norm) + math.log(error), np.where(self._allowed, gradient, 0.0)


def _starts(sets: int, noise: Noise) -> Iterator[Array]:
    """Yield weights that are all alike, and for Laplace noise irregular ones."""
    yield np.ones(sets)
    if noise == "laplace":
        for number in range(1, STARTS + 1):
            # θ = z² is then u^(1/2) or u: where all begin large, more of them stay.
            yield irregular(sets, number) ** (1 / 4 if number % 3 else 1 / 2) + 1e-3


def _shaken(z: Array, number: int) -> Array:
    """Change a good point: all weights by some factor, and let some others in."""
    factors, chosen = irregular(len(z), number), irregular(len(z), number + 1)
    return np.asarray(z / z.max() * np.sqrt(2 * factors) + np.where(chosen < 0.3, factors**2, 0.0))


def _search(error: _ErrorOfWeights, start: Array) -> Array:
    return descend(error.with_gradient, start, STEPS, PRECISION)[1]
