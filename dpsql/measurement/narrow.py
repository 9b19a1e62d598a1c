"""Measuring where the entries of a strategy fit 31 bits: exact for tables of any size.

Trusted core.

*How large numbers get.* Let x be what is counted, E < 2^31 the largest product of entries of a
block (that of a measure is M, what a row may add), and N the number of rows. A row lies in one
cell, so each entry of B x, and of all partial products, is at most E·N. This passes 2^63 for N just
above 2^32, though x, the counts, do so for no table: a count is at most N, and a sum at most M·N.

*In two words.* So x = 2^28·h + l with 0 <= l < 2^28, and so is what comes of it. Let R be the
largest sum of the magnitudes of a row of B. It is public, as all that B is. l is taken apart into
pieces of w bits (`_width`), with R·2^w <= 2^62: as a rule that is one piece, or two. Then

    y = B x + z = 2^28·(B h) + Σ_i 2^(w·i)·(B p_i) + z ,

where B p_i is exact in an int64, whatever the counts are, and B h is what an int64 holds of it:
right modulo 2^64. From the least piece on, each leaves w bits as they will be, and what is above
them to the next; see `_with_low`. So y is known modulo 2^92.

Guarantees:
    1. y is right, and not only modulo 2^92, if |y| <= 2^90: for all tables of fewer than 2^58 rows,
       with counts or sums alike, as |B x| < 2^31·2^58 and |z| < 2^63.
    2. In any case what is kept is a function of (B x + z) modulo 2^92. For a table of more rows it
       would be wrong, and private none the less: it is post-processing of B x + z.
    3. The order, number and shape of the operations depend on the plan only, never on counts. That
       y is kept in Python's integers where an int64 doesn't hold all of it (`kept_integers`)
       follows from y, which is told anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import LOW_BITS, Counts
from dpsql.errors import InternalError
from dpsql.measurement.distributions import Gaussian, Laplace, Law
from dpsql.measurement.gaussian import rounded_gaussian
from dpsql.measurement.laplace import discrete_laplace
from dpsql.measurement.randomness import RandomBits
from dpsql.measurement.strategy import BlockStrategy

Kept = NDArray[np.int64] | NDArray[np.object_]
"""Noisy integers: of 64 bits, or Python's if there is one among them that has more."""

MOST_KEPT = 2**90
"""The largest noisy integer that is kept, 2^90: the answers of a table of 2^58 rows are less."""
_LOW = (1 << LOW_BITS) - 1
_HELD_BITS = 62


def measure_narrow(
    block: BlockStrategy, counts: Counts, above: Counts | None, bits: RandomBits
) -> Kept:
    """Measure one space of a block, with noise of its own.

    Args:
        block: with a law of 64 bits.
        counts: of shape `block.shape`.
        above: the higher words of sums, see `Counted`; None if counts are all there is.
        bits: where the noise comes from.

    Returns:
        y, of shape (measurements of the first factor, …).
    """
    exact = _applied(block, arranged(block, counts >> LOW_BITS if above is None else above))
    noise = draw(block.law, exact.size, bits).reshape(exact.shape)
    # Array addition of int64 wraps around silently, which is what guarantee 2 needs.
    exact = exact + (noise >> LOW_BITS)
    noise &= _LOW
    return _joined(*_with_low(block, exact, arranged(block, counts) & _LOW, noise))


def _with_low(
    block: BlockStrategy, high: Counts, low: Counts, rest: Counts
) -> tuple[Counts, Counts]:
    """Add B l and `rest`, a word, to 2^28·high; return both words.

    `rest` is within ±2^62 when a piece is added to it: at first it is a word. The product of the
    piece is, as R·2^w <= 2^62. So their sum fits an int64, and without its w last bits it is within
    ±2^62 again.
    """
    lowest = np.zeros((), dtype=np.int64)
    for shift, width in _pieces(block):
        mask = (1 << width) - 1
        rest += _applied(block, low if width == LOW_BITS else low >> shift & mask)
        left = rest & mask
        left <<= shift
        lowest = np.bitwise_or(lowest, left, out=left)
        rest >>= width
    rest += high
    return rest, lowest


def _pieces(block: BlockStrategy) -> Iterator[tuple[int, int]]:
    """Yield where the pieces of the lower word begin, and how many bits they have."""
    width = _width(block)
    for shift in range(0, LOW_BITS, width):
        yield shift, min(width, LOW_BITS - shift)


def _width(block: BlockStrategy) -> int:
    """Return the largest w for which R·2^w <= 2^62, up to a word.

    R is the product of those of the factors: the magnitudes of a row of a Kronecker product are the
    products of all magnitudes of rows of its factors. It is at most E times the number of cells, so
    that there is such a w where there are fewer than 2^30 cells.

    Raises:
        InternalError: there are far too many cells.
    """
    width = _HELD_BITS - math.prod(f.largest_row_sum for f in block.factors).bit_length()
    if width < 1:
        raise InternalError("a block has too many cells to be measured")
    return min(width, LOW_BITS)


def _applied(block: BlockStrategy, arranged_counts: Counts) -> Counts:
    """Return (⊗ factors) counts modulo 2^64, one factor at a time."""
    result = arranged_counts
    for axis, factor in enumerate(block.factors):
        result = factor.apply(result, axis)
    return np.ascontiguousarray(result)


def apply(block: BlockStrategy, counts: Counts) -> Counts:
    """Return (⊗ factors) counts modulo 2^64."""
    return _applied(block, arranged(block, counts))


def arranged(block: BlockStrategy, counts: Counts) -> Counts:
    """Return counts with one axis for the cells of each factor, if they are those of a marginal."""
    if counts.dtype != np.int64 or counts.shape != block.shape:
        raise InternalError("a marginal has the wrong shape or type")
    order = [axis for f in block.factors for axis in f.axes]
    return counts.transpose(order).reshape([math.prod(f.shape) for f in block.factors])


def draw(law: Law, count: int, bits: RandomBits) -> Counts:
    """Draw independent integers of a law, exactly."""
    if isinstance(law, Laplace):
        return discrete_laplace(law.scale, count, bits)
    if not isinstance(law, Gaussian):
        raise InternalError("noise of this law does not fit 64 bits")
    return rounded_gaussian(law.squared, count, bits)


def _joined(high: Counts, low: Counts) -> Kept:
    """Return 2^28·high + low, in 64 bits if all fit."""
    limit = 1 << (63 - LOW_BITS)
    if -limit <= high.min(initial=0) and high.max(initial=0) < limit:
        high <<= LOW_BITS
        return high | low
    pairs = zip(high.ravel().tolist(), low.ravel().tolist(), strict=True)
    return kept_integers([(upper << LOW_BITS) + lower for upper, lower in pairs], high.shape)


def kept_integers(values: Sequence[int], shape: Sequence[int]) -> Kept:
    """Return noisy integers as they are kept: between ±2^90, and in 64 bits if all fit."""
    values = [max(-MOST_KEPT, min(MOST_KEPT, value)) for value in values]
    fit = all(-(2**63) <= value < 2**63 for value in values)
    return np.array(values, dtype=np.int64 if fit else object).reshape(shape)
