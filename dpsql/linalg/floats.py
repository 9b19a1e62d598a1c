"""Places of floating-point numbers in their order: whole numbers, by their bits.

Numbers of single precision, with some seven digits, have places of their own, which are fewer.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Ints

_SIGN = np.int64(-(2**63))
LARGEST_SINGLE = float(np.finfo(np.float32).max)
"""The largest finite number of single precision, some 3.4e38."""


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
    return _turned(bits, 63)


def number_at(place: int) -> float:
    """Return the number at a place."""
    (number,) = struct.unpack("<d", struct.pack("<q", _turned(place, 63)))
    return float(number)


def single_places_of(numbers: NDArray[np.float64]) -> Ints:
    """Return the places of finite numbers of single precision among each other.

    By the bits of a double with 52 after the point, of which such a number has 23: 2^e·1.m has the
    place (e + 127)·2^23 + m from e = −126 on, and a smaller one 2^(e + 149)·1.m, a whole number. No
    float has a part in that, as a processor may be set to take the smallest for 0.
    """
    places = places_of(numbers)
    size = np.abs(places)
    exponent = (size >> 52) - 1023
    usual = (size >> 29) - ((1023 - 127) << 23)
    digits = (1 << 52) | (size & ((1 << 52) - 1))
    smallest = digits >> np.clip(52 - 149 - exponent, 0, 63)
    return np.where(exponent >= -126, usual, smallest) * np.sign(places)


def single_place_of(number: float) -> int:
    """Return the place of the nearest number of single precision, of the largest if none is."""
    near = min(max(number, -LARGEST_SINGLE), LARGEST_SINGLE)
    (bits,) = struct.unpack("<i", struct.pack("<f", near))
    return _turned(bits, 31)


def single_number_at(place: int) -> float:
    """Return the number of single precision at a place, exactly."""
    (number,) = struct.unpack("<f", struct.pack("<i", _turned(place, 31)))
    return float(number)


def _turned(bits: int, sign: int) -> int:
    """Return the place of bits of which this one is the sign, or the bits of a place."""
    return bits if bits >= 0 else -(1 << sign) - bits


def shortest(number: float) -> float:
    """Return the number with the fewest digits to which a single precision is nearest.

    19.99 and not 19.989999771118164, which is what single precision makes of it.
    """
    return float(str(np.float32(number)))
