"""HDMM's plan: the best of OPT_0, OPT_⊗, OPT_+ and OPT_M, in integers (HDMM, 9 and 10).

OPT_⊗ and OPT_0 measure all attributes that are touched jointly, OPT_+ and OPT_M several marginals.
Answers follow by least squares, from the one marginal or from all of them; neither needs a matrix
over all cells: (⊗B_i)⁺ = ⊗B_i⁺, and marginals have their eigenspaces in common.

Real strategies are rounded to integers of a given width. All keep full column rank, so that every
cell follows from what is measured, without a bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpsql.errors import MechanismError, ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Dense, check_entries
from dpsql.measurement.factors import ENTRY_BITS, DenseFactor, IdentityFactor, IntegerFactor
from dpsql.planner.mechanisms.base import Cost, Mechanism, Options, budget_of
from dpsql.planner.mechanisms.hdmm import marginals
from dpsql.planner.mechanisms.hdmm.products import (
    Products,
    ProductStrategy,
    best_product,
    best_union,
)
from dpsql.planner.mechanisms.hdmm.strategies import (
    DenseStrategy,
    EvenStrategy,
    Noise,
    Oracle,
    Strategy,
)
from dpsql.planner.mechanisms.marginals import MarginalStrategy, Reading, assemble, cells_of
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.strategies.express import over_basis
from dpsql.planner.strategies.rounding import round_strategy
from dpsql.privacy import Budget
from dpsql.workload import Workload
from dpsql.workload.workload import gram, joint_cells, touched

MOST_CELLS = 2**24
"""Of one marginal that is measured."""
MOST_MEASUREMENTS = 2**25
"""Of all marginals together: noisy integers that are held at once."""
MOST_PARTS = 2**17
"""Residual spaces of marginals that are put together."""
FEW_CELLS = 256
"""Joint cells up to which OPT_0 is tried over all of them."""
SPARE_CELLS = 2**20
"""Marginals up to this size are considered even where no query is over so many cells."""
SPARE = 1 << 10
"""How much less than the total the cells are measured that nobody asks for."""
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
        found = list(candidates(Workload.of(domain, scaled), cost))
        if not found:
            raise MechanismError(
                f"{self.traits.title} can't answer this: none of its strategies for these queries "
                "can be measured.",
                hint="use another mechanism.",
            )
        best = min(found, key=lambda candidate: candidate.error)
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
        found = None
        with (
            suppress(ResourceLimitError, np.linalg.LinAlgError, ArithmeticError, ValueError),
            np.errstate(all="ignore"),
        ):
            found = search()
        if found is not None and math.isfinite(found.error):
            yield found


def _kronecker(workload: Workload, oracle: Oracle, cost: Cost) -> StrategyCandidate | None:
    if joint_cells(workload) > MOST_CELLS:
        return None
    product = best_product(Products.of(workload), oracle)
    return _products([product], [1.0], oracle.noise, cost, "one product")


def _union(workload: Workload, oracle: Oracle, cost: Cost) -> StrategyCandidate | None:
    found = best_union(workload, oracle)
    return _products(found.products, found.shares, oracle.noise, cost, "a union of products")


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
        measured = tuple(realized(factor, found, noise) for factor, found in pairs)
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
    found = oracle.solve(asked)
    factor = joint(found, oracle.noise, sizes, _bits(cost, 1.0))
    strategy = MarginalStrategy(names, (factor,), 1.0, "all joint cells: searched")
    return StrategyCandidate(
        realized(factor, found, oracle.noise).error(asked), (strategy,), "marginals"
    )


def _marginals(workload: Workload, noise: Noise) -> StrategyCandidate | None:
    """OPT_M, over marginals that can be measured; they are cells, so that nothing is rounded."""
    spectrum = marginals.spectrum(workload)
    if spectrum is None:
        return None
    asked = max(
        math.prod(workload.domain[a] for a in f.attributes) for f in workload.families if f.count
    )
    for largest in sorted({max(asked, min(SPARE_CELLS, MOST_CELLS)), asked}, reverse=True):
        found = marginals.best_marginals(spectrum, noise, largest)
        sizes = [[workload.domain[a] for a in names] for names in found.sets]
        # Answers that are pooled need each attribute to be measured, if only for its total.
        whole = {a for names in found.sets for a in names} == set(touched(workload))
        parts = sum(1 << len(names) for names in found.sets)
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
        for names, shape, theta in zip(found.sets, sizes, found.theta, strict=True)
    )
    return StrategyCandidate(found.error, strategies, "pooled")


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
