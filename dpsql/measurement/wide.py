"""Measuring in integers of any size, where the entries of a strategy need more than 31 bits.

Trusted core.

A strategy that is rounded to entries of some bits loses accuracy if they are too few: its rows may
only lie in one space, and where that space has no short integer vectors, most of the bits go into
its basis. So a block may have entries of up to 62 bits in each factor. Then

    y = round((B x + round(N(0, σ²)))/2^s)

is measured, with B x and the noise as integers without a width. y is kept as in `narrow`.

Guarantees:
    1. B x is exact, for any counts: products are FLINT's of integer matrices, or sums of products
       of Python's integers, as the rest is. Nothing wraps around. y would end at ±2^90, which is
       beyond the answers of 2^58 rows: s leaves entries fewer than 32 bits.
    2. The noise is drawn exactly from its law, independently of counts, and it is added before
       anything is rounded off; what comes after is a function of noisy answers only.
    3. The order and number of the operations depend on the plan and on the noise only; and as in
       `narrow`, on y how it is kept.
"""

from __future__ import annotations

import math

import flint
import numpy as np
from flint import arb
from numpy.typing import NDArray

from dpsql.engines.base import LOW_BITS
from dpsql.errors import InternalError
from dpsql.measurement.distributions import WIDE_VARIANCE_BITS, CoarseGaussian
from dpsql.measurement.factors import EvenFactor, IntegerFactor
from dpsql.measurement.narrow import Kept, arranged, kept_integers
from dpsql.measurement.randomness import RandomBits
from dpsql.measurement.strategy import BlockStrategy
from dpsql.privacy.conversions import precision

Counts = NDArray[np.int64]
Wide = NDArray[np.object_]
"""Integers of any size, FLINT's or Python's."""

_WORD_BITS = 64
_SPARE_BITS = 40
"""Bits of a uniform number, beyond those of σ: a ball that spans two integers is seldom met."""
_GUARD_BITS = 64
_HELD = 2**20
"""Entries that are multiplied at a time."""


def measure_wide(
    block: BlockStrategy, counts: Counts, above: Counts | None, bits: RandomBits
) -> Kept:
    """Measure one space of a block, with noise of its own.

    Args:
        block: with a `CoarseGaussian` law.
        counts: of shape `block.shape`.
        above: the higher words of sums, see `Counted`; None if counts are all there is.
        bits: where the noise comes from.

    Returns:
        The integers to be kept, of shape (measurements of the first factor, …).
    """
    if not isinstance(block.law, CoarseGaussian):
        raise InternalError("a block of narrow integers is measured in 64 bits")
    exact = exact_answers(block, counts, above)
    noise = wide_gaussian(block.law.squared, exact.size, bits)
    shift = block.law.shift
    pairs = zip(exact.ravel().tolist(), noise, strict=True)
    return kept_integers([_round_off(int(a) + z, shift) for a, z in pairs], exact.shape)


def _round_off(value: int, shift: int) -> int:
    """Return value/2^shift, rounded to the nearest integer, of two to the even one."""
    quotient, rest = divmod(value, 1 << shift)
    twice = 2 * rest - (1 << shift)
    return quotient + (twice > 0 or (twice == 0 and quotient % 2))


def exact_answers(block: BlockStrategy, counts: Counts, above: Counts | None = None) -> Wide:
    """Return (⊗ factors) counts in integers of any size."""
    result: Wide = arranged(block, counts).astype(object)
    if above is not None:
        high = arranged(block, above).astype(object)
        result = (high << LOW_BITS) + (result & (1 << LOW_BITS) - 1)
    # Those first that leave the fewest numbers for the others.
    ratios = [f.measurements / math.prod(f.shape) for f in block.factors]
    for axis in sorted(range(len(ratios)), key=ratios.__getitem__):
        result = _apply(block.factors[axis], result, axis)
    return result


def _apply(factor: IntegerFactor, values: Wide, axis: int) -> Wide:
    """Return matrix·values along one axis."""
    if isinstance(factor, EvenFactor):
        return factor.apply(values, axis)
    front = np.moveaxis(values, axis, 0)
    flat = front.reshape(len(front), -1)
    rows, cells = factor.matrix.shape
    if flat.shape[1] == 1:  # for FLINT each entry would be converted, to be multiplied once
        product = factor.matrix.astype(object) @ flat
        return np.moveaxis(product.reshape(rows, *front.shape[1:]), 0, axis)
    matrix = flint.fmpz_mat(rows, cells, _listed(factor.matrix))
    step = max(1, _HELD // cells)
    parts = [
        _multiply(matrix, flat[:, start : start + step]) for start in range(0, flat.shape[1], step)
    ]
    return np.moveaxis(np.hstack(parts).reshape(rows, *front.shape[1:]), 0, axis)


def _multiply(matrix: flint.fmpz_mat, values: Wide) -> Wide:
    product = matrix * flint.fmpz_mat(len(values), values.shape[1], _listed(values))
    entries = np.empty(product.nrows() * product.ncols(), dtype=object)
    entries[:] = product.entries()
    return entries.reshape(product.nrows(), product.ncols())


def _listed(values: Counts | Wide) -> list[int]:
    """Return all entries, as they are."""
    listed: list[int] = values.ravel().tolist()
    return listed


def wide_gaussian(sigma_squared: int, count: int, bits: RandomBits) -> list[int]:
    """Draw independent integers distributed exactly as round(N(0, σ²)), of any size.

    With U and V uniform on (0, 1), σ√(−2 ln U)·cos 2πV and σ√(−2 ln U)·sin 2πV are independent
    N(0, σ²) (Box and Muller, "A note on the generation of random normal deviates", 1958). Of U
    and V some leading bits are drawn, so that each is known to lie in an interval; ball arithmetic
    encloses both results for all points of the intervals. If each enclosure rounds to one integer,
    those are the integers; else more bits are drawn. That ends with probability 1. How many bits
    and how much time are used depends on the noise alone.

    Raises:
        InternalError: σ² is out of range.
        RandomnessError: there are no random bits.
    """
    if type(sigma_squared) is not int or not 1 <= sigma_squared < 1 << WIDE_VARIANCE_BITS:
        raise InternalError("noise was asked for with a parameter out of range")
    words = -(-(sigma_squared.bit_length() // 2 + _SPARE_BITS) // _WORD_BITS)
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += _pair(sigma_squared, words, bits)
    return drawn[:count]


def _pair(sigma_squared: int, words: int, bits: RandomBits) -> tuple[int, int]:
    """Draw two of them, from uniforms of so many words at first."""
    u, v = _more(0, words, bits), _more(0, words, bits)
    while True:
        known = words * _WORD_BITS
        with precision(known + _GUARD_BITS):
            radius = (-2 * sigma_squared * _between(u, known).log()).sqrt()
            for_sine, for_cosine = (2 * _between(v, known)).sin_cos_pi()
            first, second = _nearest(radius * for_sine), _nearest(radius * for_cosine)
        if first is not None and second is not None:
            return int(first), int(second)
        u, v, words = _more(u, 1, bits), _more(v, 1, bits), words + 1


def _more(uniform: int, words: int, bits: RandomBits) -> int:
    """Append random words to the known binary digits of a uniform number."""
    for word in bits.words(words).tolist():
        uniform = (uniform << _WORD_BITS) | word
    return uniform


def _between(uniform: int, known: int) -> arb:
    """Enclose all numbers whose binary digits begin with these `known` ones."""
    scale = arb(2) ** known
    return (arb(uniform) / scale).union(arb(uniform + 1) / scale)


def _nearest(value: arb) -> flint.fmpz | None:
    """Return the integer to which all of a ball rounds; None if there are several."""
    return (value + arb(1) / 2).floor().unique_fmpz() if value.is_finite() else None
