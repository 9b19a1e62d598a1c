"""Found bounds: between which numbers most values of a column lie, of which nobody knew any.

Values are counted in bins between powers of two, up to the ends of the column's type. That is a
statement like any other, with public groups; its noise is certified, charged and kept as ever. The
outermost bins whose noisy counts are surely above 0 tell the bounds (ApproxBounds of Google's
library for differential privacy; here with one Gaussian measurement).

With m bins a count is surely above 0 if it is above z standard errors, Φ(z) = 1 − 10⁻⁶/m: so that
any bin without rows is taken for one with some in 1 case of a million at most. A wrong bin at 2^62
would ruin a sum; so there are no bins beyond the type's own range, either. From the outermost of
these bins on, those beside them count as well as long as each is likely to have rows, in 1 case of
100 by mistake: the bounds are twice as wide then, which costs less than to cut such rows off.

NaN and infinite values are in no bin: that there are some says nothing of where the others lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import polars as pl

from dpsql.answers.facts import Earlier
from dpsql.errors import InternalError, printable
from dpsql.schema.domain import INTEGER_TYPES, NumberBounds
from dpsql.schema.names import as_sql
from dpsql.schema.sequences import FLOATS, decimal_scale, decimal_width, type_range

SURE = 1e-6
"""The probability that any bin without rows is surely taken for one with some."""
LIKELY = 0.01
"""The probability that one beside another that has rows is, if it has none."""
MOST_BITS = 63
"""The power of two up to which numbers are told apart: beyond, they count as in the last bin."""
BIN, COUNT = "bin", "n"


@dataclass(frozen=True, slots=True)
class Bin:
    """An interval of numbers, and its number among all: 0 is that from 0 up to 1."""

    number: int
    low: Fraction
    high: Fraction
    """The bound on values in it; those of whole numbers are below the next power of two."""


def bins_of(type_: str) -> tuple[Bin, ...]:
    """Return the bins of a type of numbers, in ascending order.

    Raises:
        InternalError: it is of another type.
    """
    least, most = _bits(type_)
    whole = type_ in INTEGER_TYPES or type_ == "HUGEINT"
    below = [
        Bin(-k - 1, -(Fraction(2) ** k), -(Fraction(2) ** (k - 1))) for k in range(least, 0, -1)
    ]
    fractions = [Bin(-1, Fraction(-1), Fraction(0))] if least and not whole else []
    above = [
        Bin(k, Fraction(2) ** (k - 1) if k else Fraction(0), Fraction(2) ** k - whole)
        for k in range(most + 1)
    ]
    return (*below, *fractions, *above)


def _bits(type_: str) -> tuple[int, int]:
    """Return the powers of two between whose negative and positive ones all values lie."""
    if type_ in FLOATS or type_ == "HUGEINT":
        return MOST_BITS, MOST_BITS
    if type_ in INTEGER_TYPES:
        low, high = type_range(type_)
        return min(max(-low - 1, 0).bit_length(), MOST_BITS), min(high.bit_length(), MOST_BITS)
    if type_.startswith("DECIMAL("):
        digits = decimal_width(type_) - decimal_scale(type_)
        bits = min((10**digits).bit_length(), MOST_BITS)
        return bits, bits
    raise InternalError("there are bins of numbers alone")


def statement(table: str, column: str, type_: str) -> str:
    """Write the statement that counts the values of a column in its bins."""
    name, bins = as_sql(column), bins_of(type_)
    nothing = [f"WHEN isnan({name}) OR isinf({name}) THEN NULL"] if type_ in FLOATS else []
    below = (f"WHEN {name} <= {_number(b.high)} THEN {b.number}" for b in bins if b.number < -1)
    around = (f"WHEN {name} < {_number(b.high)} THEN -1" for b in bins if b.number == -1)
    above = [b for b in bins if b.number >= 0]
    ends = (f"WHEN {name} < {_number(c.low)} THEN {b.number}" for b, c in pairwise(above))
    last = f"WHEN {name} >= {_number(above[-1].low)} THEN {above[-1].number}"
    cases = " ".join([*nothing, *below, *around, *ends, last])
    return f"SELECT CASE {cases} END AS {BIN}, COUNT(*) AS {COUNT} FROM {table} GROUP BY {BIN}"


def _number(value: Fraction) -> str:
    return str(int(value))


@dataclass(frozen=True, repr=False)
class FoundBounds:
    """Bounds of a column's numbers, found with noise; see `Session.find_bounds`.

    Args:
        table: the table.
        column: the column.
        low: the lower bound.
        high: the upper one.
        any: whether there is a bin that surely has rows; else the bounds are 0 and 1.
        charges: what was charged for what they follow from.
    """

    table: str
    column: str
    low: Fraction
    high: Fraction
    any: bool
    charges: tuple[Earlier, ...]

    @classmethod
    def of(
        cls,
        table: str,
        column: str,
        type_: str,
        counts: pl.DataFrame,
        charges: tuple[Earlier, ...],
        *,
        laplace: bool = False,
    ) -> FoundBounds:
        """Read them off noisy counts of bins; with Gaussian noise, or with Laplace noise."""
        ends = _ends(bins_of(type_), counts, _laplace_quantile if laplace else _normal_quantile)
        low, high = (Fraction(0), Fraction(1)) if ends is None else (ends[0].low, ends[1].high)
        return cls(table, column, low, max(high, low + 1), ends is not None, charges)

    @property
    def bounds(self) -> NumberBounds:
        """The bounds, for schemas."""
        return NumberBounds(self.low, self.high)

    def __repr__(self) -> str:
        name = f"{printable(self.table)}.{printable(self.column)}"
        said = str(self.bounds) if self.any else "nothing is surely there"
        return f"<FoundBounds of {name}: {said}>"


def _normal_quantile(beyond: float) -> float:
    """Return how many standard errors Gaussian noise exceeds with some probability."""
    return NormalDist().inv_cdf(1 - beyond)


def _laplace_quantile(beyond: float) -> float:
    """Return how many standard errors Laplace noise exceeds with some probability below a half.

    P(Z > t) = exp(−t/b)/2, with the standard error b√2; discrete noise is no farther out.
    """
    return math.log(1 / (2 * beyond)) / math.sqrt(2)


def _ends(
    bins: Sequence[Bin], counts: pl.DataFrame, quantile: Callable[[float], float]
) -> tuple[Bin, Bin] | None:
    """Return the outermost bins that have rows, by their noisy counts; None if none surely has."""
    rows = counts.select(BIN, COUNT, f"{COUNT}_variance").rows()
    errors = {number: count / math.sqrt(variance) for number, count, variance in rows}
    above = [errors.get(b.number, 0.0) for b in bins]
    sure = [i for i, z in enumerate(above) if z > quantile(SURE / len(bins))]
    if not sure:
        return None
    first, last, likely = sure[0], sure[-1], quantile(LIKELY)
    while first > 0 and above[first - 1] > likely:
        first -= 1
    while last + 1 < len(bins) and above[last + 1] > likely:
        last += 1
    return bins[first], bins[last]
