"""Strategies as rows of the table of measurements: factors, noise, and differences of totals.

What is read may be forged, so that all that doesn't fit is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsql.errors import ReleaseFormatError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.differences import Difference
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace, Law
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IdentityFactor, IntegerFactor
from dpsql.measurement.units import UnitFactor

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


def difference_rows(
    number: int, differences: Sequence[Difference], values: Mapping[frozenset[str], Ints]
) -> Iterator[ParquetRow]:
    """Write differences of totals, with their noisy numbers."""
    for one in differences:
        times, most, law = list(one.times), list(one.rows), written_law(one.law)
        noisy = values[one.space]
        yield ParquetRow(number, "difference", -1, list(one.tables), times, most, law, noisy)


def differences_of(
    rows: Rows,
) -> tuple[tuple[Difference, ...], dict[frozenset[str], Ints]]:
    """Read differences of totals, with their noisy numbers."""
    found: dict[Difference, Ints] = {}
    for row, data in rows:
        (first, second), law = row["names"], law_of(row["number"])
        (a, b), (k, m) = row["axes"], row["shape"]
        if not isinstance(law, Gaussian) or data.shape != (1,):
            raise malformed()
        found[Difference((first, second), (a, b), (k, m), law)] = data
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
