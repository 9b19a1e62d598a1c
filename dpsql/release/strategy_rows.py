"""Strategies as rows of the table of measurements: factors, noise, and differences of totals.

What is read may be forged, so that all that doesn't fit is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsql.engines.base import LOW_BITS
from dpsql.errors import ReleaseFormatError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.differences import Difference
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace, Law
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    IntegerFactor,
    UnitFactor,
)
from dpsql.measurement.narrow import MOST_KEPT, Kept, kept_integers

LAPLACE = "laplace "
"""Stands before the scale of Laplace noise; a number alone is the variance of Gaussian noise."""
COARSE = "coarse "
"""Stands before the bits that are rounded off and the variance of noise in wide integers."""
IDENTITY = "identity "
"""Stands before the scale of an identity; a number alone is that of a centered identity."""
UNITS = "units "
"""Stands before the three numbers of a strategy for counts of units: see `UnitFactor`."""
MAX_DIGITS = 100
"""Of a number in decimal text: noise variances are below 2^300."""
_LOW = (1 << LOW_BITS) - 1


class ParquetRow(NamedTuple):
    """A row of the table."""

    source: int
    kind: str
    block: int
    names: list[str]
    axes: list[int]
    shape: list[int]
    number: str
    data: Ints


Rows = Sequence[tuple[dict[str, Any], Ints]]


def malformed() -> ReleaseFormatError:
    """Return the error for what wasn't written here."""
    return ReleaseFormatError(
        "The measurements can't be read: they are damaged, or of another version.",
        hint="use the release as it was written.",
    )


def factor_row(number: int, block: int, factor: IntegerFactor) -> ParquetRow:
    """Write a factor of a block."""
    axes, shape = list(factor.axes), list(factor.shape)
    nothing = np.zeros(0, dtype=np.int64)
    if factor.kind == DenseFactor.kind:
        return ParquetRow(number, "factor", block, [], axes, shape, "", factor.matrix.ravel())
    if isinstance(factor, UnitFactor):
        units = f"{UNITS}{factor.own} {factor.all} {factor.most}"
        return ParquetRow(number, "factor", block, [], axes, shape, units, nothing)
    scale = IDENTITY * (factor.kind == IdentityFactor.kind) + str(factor.scale)
    return ParquetRow(number, "factor", block, [], axes, shape, scale, nothing)


def factor_of(row: dict[str, Any], data: Ints) -> IntegerFactor:
    """Read a factor."""
    axes, shape = tuple(row["axes"]), tuple(row["shape"])
    if row["number"].startswith(IDENTITY):
        return IdentityFactor(axes, shape, whole_of(row["number"].removeprefix(IDENTITY)))
    if row["number"].startswith(UNITS):
        own, all_, most = map(whole_of, row["number"].removeprefix(UNITS).split(" "))
        return UnitFactor(axes, shape, own, all_, most)
    if row["number"]:
        return CenteredFactor(axes, shape, whole_of(row["number"]))
    return DenseFactor(axes, shape, data.reshape(-1, math.prod(shape)))


def written(noisy: Kept) -> Ints:
    """Write noisy integers. If not all fit 64 bits, first the higher words of all, then the lower.

    An integer is 2^28 times its higher word, and its lower one, which is from 0 to 2^28 − 1.
    """
    if noisy.dtype == np.int64:
        return noisy.ravel().astype(np.int64)
    values = noisy.ravel().tolist()
    high = [value >> LOW_BITS for value in values]
    return np.array(high + [value & _LOW for value in values], dtype=np.int64)


def read(data: Ints, shape: Sequence[int]) -> Kept:
    """Read what was `written`."""
    if data.size != 2 * math.prod(shape) or not data.size:
        return data.reshape(shape)
    high, low = np.split(data, 2)
    most = MOST_KEPT >> LOW_BITS
    if low.min() < 0 or low.max() > _LOW or high.min() < -most or high.max() > most:
        raise malformed()
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    return kept_integers([(upper << LOW_BITS) + lower for upper, lower in pairs], shape)


def difference_rows(
    number: int, differences: Sequence[Difference], values: Mapping[frozenset[str], Kept]
) -> Iterator[ParquetRow]:
    """Write differences of totals, with their noisy numbers."""
    for one in differences:
        times, most, law = list(one.times), list(one.rows), written_law(one.law)
        noisy = written(values[one.space])
        yield ParquetRow(number, "difference", -1, list(one.tables), times, most, law, noisy)


def differences_of(
    rows: Rows,
) -> tuple[tuple[Difference, ...], dict[frozenset[str], Kept]]:
    """Read differences of totals, with their noisy numbers."""
    found: dict[Difference, Kept] = {}
    for row, data in rows:
        (first, second), law = row["names"], law_of(row["number"])
        (a, b), (k, m) = row["axes"], row["shape"]
        if not isinstance(law, Gaussian):
            raise malformed()
        found[Difference((first, second), (a, b), (k, m), law)] = read(data, (1,))
    values = {difference.space: data for difference, data in found.items()}
    if len(values) < len(rows):
        raise malformed()
    return tuple(found), values


def written_law(law: Law) -> str:
    """Write a law of noise."""
    if isinstance(law, CoarseGaussian):
        return f"{COARSE}{law.shift} {law.squared}"
    return LAPLACE * isinstance(law, Laplace) + str(law.width)


def law_of(text: str) -> Law:
    """Read a law of noise."""
    if text.startswith(COARSE):
        shift, squared = text.removeprefix(COARSE).split(" ")
        return CoarseGaussian(whole_of(squared), whole_of(shift))
    if text.startswith(LAPLACE):
        return Laplace(whole_of(text.removeprefix(LAPLACE)))
    return Gaussian(whole_of(text))


def whole_of(text: str) -> int:
    """Read a whole number that isn't negative."""
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise malformed()
    return int(text)
