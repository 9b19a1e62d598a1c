"""Integer strategies: what is measured, in numbers whose sensitivity is exact.

Trusted core. Nothing here depends on how good a plan is.

Guarantees:
    `BlockStrategy.sensitivity_squared` and `BlockStrategy.sensitivity_1` are exact. A column of a
    Kronecker product is a Kronecker product of columns, hence its norms are the products of the
    norms, and the largest one is the product of the largest; those of the factors are exact (see
    `factors`). `change_squared` takes the product of their `stretch_squared` for no less than the
    largest eigenvalue of BᵀB, with B the Kronecker product: its eigenvalues are the products of
    those of its factors, none of which is negative. BᵀB itself is the Kronecker product of those of
    the factors; so the largest products of its columns by the cells of some axes are those of the
    factors that have some of these axes, multiplied with each other and with the largest products
    of the others' columns, which are their largest squared norms (Cauchy and Schwarz). A block of
    counts of units has a `UnitFactor`, whose norms are those of all that a unit adds: several
    groups at once, which a product with other norms would not bound. Its other axes have one cell
    each, and the factor 1, so that nothing is multiplied; or, where values of units are counted, a
    `MeasureFactor`: then all that a unit adds is l times what it adds otherwise (see `UnitFactor`),
    and so are its norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.measurement.distributions import CoarseGaussian, Laplace, Law
from dpsql.measurement.factors import (
    ENTRY_BITS,
    MOST_MULTIPLIED,
    MOST_STRETCHED,
    IdentityFactor,
    IntegerFactor,
    MeasureFactor,
    UnitFactor,
)
from dpsql.workload.spread import Apart, SpreadRows, by_limits


@dataclass(frozen=True, slots=True, eq=False)
class BlockStrategy:
    """The same measurements of one or more attribute sets, each with noise of its own.

    Each set is measured once, on its residual space or on all cells of its marginal: ⊗ factors,
    plus noise.
    """

    spaces: tuple[tuple[str, ...], ...]
    """The attributes of each, one for each axis of the factors."""
    factors: tuple[IntegerFactor, ...]
    law: Law

    def __post_init__(self) -> None:
        covered = sorted(axis for f in self.factors for axis in f.axes)
        if covered != list(range(len(covered))):
            raise InternalError("the factors of a block must partition its axes")
        if not self.spaces or any(len(space) != len(covered) for space in self.spaces):
            raise InternalError("the spaces of a block must have one attribute for each axis")
        if any(len(set(space)) != len(space) for space in self.spaces):
            raise InternalError("a space of a block has an attribute twice")
        units = sum(isinstance(factor, UnitFactor) for factor in self.factors)
        besides = sum(_is_one(f) or isinstance(f, MeasureFactor) for f in self.factors)
        if units and units + besides != len(self.factors):
            raise InternalError("units are counted by groups, and by nothing else")
        if units > 1:
            raise InternalError("units are counted by one set of groups at a time")
        if not isinstance(self.law, CoarseGaussian) and self.largest_product >= 1 << ENTRY_BITS:
            raise InternalError("the products of a block's entries have 31 bits or more")

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        sizes = {axis: n for f in self.factors for axis, n in zip(f.axes, f.shape, strict=True)}
        return tuple(sizes[axis] for axis in range(len(sizes)))

    @property
    def of_units(self) -> bool:
        """Whether units are counted: a record is then a unit, whatever rows it has."""
        return any(isinstance(factor, UnitFactor) for factor in self.factors)

    @property
    def largest_product(self) -> int:
        """The largest magnitude of an entry of the Kronecker product."""
        return math.prod(f.largest_entry for f in self.factors)

    @property
    def sensitivity_squared(self) -> int:
        """The largest squared change of one set's answers by one record, exact."""
        return math.prod(f.largest_column_norm_squared for f in self.factors)

    @property
    def sensitivity_1(self) -> int:
        """The largest sum of the absolute changes of one set's answers by one record, exact."""
        return math.prod(f.largest_column_sum for f in self.factors)

    @property
    def sensitivity(self) -> float:
        """The largest change of one set's answers by one record, in the norm of the noise."""
        if isinstance(self.law, Laplace):
            return float(self.sensitivity_1)
        return math.sqrt(self.sensitivity_squared)

    @property
    def privacy_cost(self) -> Fraction:
        """The cost of measuring all the sets, exactly: as μ², or as ε with Laplace noise."""
        return self.cost()

    def cost(self, spreads: Sequence[SpreadRows] = (), *, evenly: bool = False) -> Fraction:
        """Return the same where the records of a unit are spread out, over k² if it has k of them.

        Where `evenly`, n of the k records cost n/k of it at most: see `change_squared`.
        """
        limits = by_limits(self.spaces, spreads).items()
        costs = (len(spaces) * self.cost_within(of, evenly=evenly) for of, spaces in limits)
        return sum(costs, Fraction(0))

    def cost_within(self, limits: Sequence[Apart], *, evenly: bool = False) -> Fraction:
        """Return the same of one set, with limits on how far apart these records are in it."""
        change = change_1 if isinstance(self.law, Laplace) else change_squared
        return change(self.factors, limits, evenly=evenly) / self.law.width

    @property
    def measurements(self) -> int:
        """The number of noisy integers of one set."""
        return math.prod(f.measurements for f in self.factors)


def change_squared(
    factors: Sequence[IntegerFactor], limits: Sequence[Apart], *, evenly: bool = False
) -> Fraction:
    """Return the largest squared change of a set's answers by k records of a unit, over k².

    The least of the bounds of `workload.spread`, which has their proofs.

    Args:
        factors: what is measured.
        limits: how far apart these records are along the axes of the set.
        evenly: whether to take those bounds alone of which n records reach n/k at most.
    """
    plain = Fraction(math.prod(factor.largest_column_norm_squared for factor in factors))
    if not limits or any(isinstance(factor, UnitFactor) for factor in factors):
        return plain  # counts of units are for a record that is a unit: its rows have no say
    stretch = math.prod(factor.stretch_squared for factor in factors)
    bounds = [plain, *(limit.largest * stretch for limit in limits)]
    if not evenly:
        bounds += [bound for limit in limits if (bound := _by_classes(factors, limit)) is not None]
    return min(bounds)


def change_1(
    factors: Sequence[IntegerFactor], limits: Sequence[Apart], *, evenly: bool = False
) -> Fraction:
    """Return the largest sum of magnitudes by which k records change a set's answers, over k.

    The least of the bounds of `workload.spread`, its fifth guarantee. A column of a Kronecker
    product is one of columns of its factors, and the sum of its magnitudes the product of theirs.

    Args:
        factors: what is measured.
        limits: how far apart these records are along the axes of the set.
        evenly: whether to take that bound alone of which n records reach n/k at most.
    """
    plain = Fraction(math.prod(factor.largest_column_sum for factor in factors))
    if evenly or any(isinstance(factor, UnitFactor) for factor in factors):
        return plain
    bounds = (_sums_by_classes(factors, limit) for limit in limits)
    return min((bound for bound in bounds if bound is not None), default=plain)


def _sums_by_classes(factors: Sequence[IntegerFactor], limit: Apart) -> Fraction | None:
    """Return the bound of sums by classes; None if there are too many."""
    products = _along(
        factors, limit, lambda f: f.largest_column_sum, lambda f, axes: f.column_sums(axes)
    )
    if products is None or math.prod(part.size for part in products.parts) > MOST_STRETCHED:
        return None
    bound = limit.bound_of_sums(products.product.transpose(products.place))
    return None if bound is None else products.times * bound


def _by_classes(factors: Sequence[IntegerFactor], limit: Apart) -> Fraction | None:
    """Return the bound by pairs of classes; None if there are too many."""
    products = _along(
        factors, limit, lambda f: f.largest_column_norm_squared, lambda f, axes: f.products(axes)
    )
    if products is None or math.prod(part.size for part in products.parts) > MOST_MULTIPLIED**2:
        return None
    # Each part is of shape (g, g'), so their product of shape (g, g', d, d', …): to (g, d, …, g',
    # d', …), in the order of the limit's axes.
    first, second, end = list[int](), list[int](), 0
    for half in (part.ndim // 2 for part in products.parts):
        first += range(end, end + half)
        second += range(end + half, end + 2 * half)
        end += 2 * half
    order = [half[i] for half in (first, second) for i in products.place]
    bound = limit.bound(products.product.transpose(order))
    return None if bound is None else products.times * bound


class _Along(NamedTuple):
    """A Kronecker product, seen along the axes of a limit."""

    times: int
    """The product of what is told of the factors without such an axis."""
    parts: tuple[NDArray[Any], ...]
    """Numbers by the cells of these axes, of each of the other factors."""
    place: tuple[int, ...]
    """For each axis of the limit, its place among those of the parts."""

    @property
    def product(self) -> NDArray[Any]:
        """The outer product of the parts."""
        return np.asarray(reduce(np.multiply.outer, self.parts, np.array(1, dtype=object)))


def _along(
    factors: Sequence[IntegerFactor],
    limit: Apart,
    whole: Callable[[IntegerFactor], int],
    among: Callable[[IntegerFactor, list[int]], NDArray[Any] | None],
) -> _Along | None:
    """Separate factors with an axis of a limit from those without; None if some are too large.

    Args:
        factors: those of a set.
        limit: the limit.
        whole: what is told of a factor without such an axis.
        among: the numbers by the cells of these axes of a factor that has some.
    """
    times, parts, axes = 1, list[NDArray[Any]](), list[int]()
    for factor in factors:
        axes_here = [axis for axis in factor.axes if axis in limit.axes]
        if not axes_here:
            times *= whole(factor)
            continue
        part = among(factor, axes_here)
        if part is None:
            return None
        parts.append(part)
        axes += axes_here
    return _Along(times, tuple(parts), tuple(axes.index(axis) for axis in limit.axes))


def _is_one(factor: IntegerFactor) -> bool:
    """Whether a factor is the number 1 over one cell."""
    return isinstance(factor, IdentityFactor) and factor.shape == (1,) and factor.scale == 1
