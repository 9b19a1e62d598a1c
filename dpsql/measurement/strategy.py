"""Integer strategies: what is measured, in numbers whose sensitivity is exact.

Trusted core. Nothing here depends on how good a plan is.

Guarantees:
    `BlockStrategy.sensitivity_squared` and `BlockStrategy.sensitivity_1` are exact. A column of a
    Kronecker product is a Kronecker product of columns, hence its norms are the products of the
    norms, and the largest one is the product of the largest; those of the factors are exact (see
    `factors`). `change_squared` takes the product of their `stretch_squared` for no less than the
    largest eigenvalue of BᵀB, with B the Kronecker product: its eigenvalues are the products of
    those of its factors, none of which is negative. A block of counts of units has a `UnitFactor`,
    whose norms are those of all that a unit adds: several groups at once, which a product with
    other norms would not bound. Its other axes have one cell each, and the factor 1, so that
    nothing is multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.measurement.distributions import CoarseGaussian, Laplace, Law
from dpsql.measurement.factors import ENTRY_BITS, IdentityFactor, IntegerFactor
from dpsql.measurement.units import UnitFactor
from dpsql.workload.spread import SpreadRows, by_share


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
        if units and units + sum(map(_is_one, self.factors)) != len(self.factors):
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
        """What measuring all the sets costs, exactly: as μ², or as ε with Laplace noise."""
        return self.cost()

    def cost(self, spreads: Sequence[SpreadRows] = ()) -> Fraction:
        """Return the same where the records of a unit are spread out, over k² if it has k of them.

        With Laplace noise, for which changes add up wherever they are, that is all the same.
        """
        if isinstance(self.law, Laplace):
            return len(self.spaces) * Fraction(self.sensitivity_1, self.law.width)
        shares = by_share(self.spaces, spreads).items()
        changes = (len(spaces) * change_squared(self.factors, share) for share, spaces in shares)
        return sum(changes, Fraction(0)) / self.law.width

    @property
    def measurements(self) -> int:
        """The number of noisy integers of one set."""
        return math.prod(f.measurements for f in self.factors)


def change_squared(factors: Sequence[IntegerFactor], share: Fraction) -> Fraction:
    """Return the largest squared change of a set's answers by k records of a unit, over k².

    Args:
        factors: what is measured.
        share: how many of these records may lie in one cell of the set; see `workload.spread`, of
            which this is the bound.
    """
    plain = Fraction(math.prod(factor.largest_column_norm_squared for factor in factors))
    if share == 1 or any(isinstance(factor, UnitFactor) for factor in factors):
        return plain  # counts of units are for a record that is a unit: its rows have no say
    return min(plain, share * math.prod(factor.stretch_squared for factor in factors))


def _is_one(factor: IntegerFactor) -> bool:
    """Whether a factor is the number 1 over one cell."""
    return isinstance(factor, IdentityFactor) and factor.shape == (1,) and factor.scale == 1
