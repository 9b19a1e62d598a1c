"""Places of floating-point numbers in their order: whole numbers, by their bits."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Ints

_SIGN = np.int64(-(2**63))


def places_of(numbers: NDArray[np.float64]) -> Ints:
    """Return the places of finite numbers: their bits, in the order of the numbers.

    Bits of a number are its sign and its magnitude. Negative ones get the places below 0, in the
    opposite order of their magnitudes, and both zeros the place 0.
    """
    bits = np.asarray(numbers, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, _SIGN - bits, bits)


def place_of(number: float) -> int:
    """Return the place of one number; see `places_of`."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits if bits >= 0 else -(2**63) - bits)


def number_at(place: int) -> float:
    """Return the number at a place."""
    bits = place if place >= 0 else -(2**63) - place
    (number,) = struct.unpack("<d", struct.pack("<q", bits))
    return float(number)
