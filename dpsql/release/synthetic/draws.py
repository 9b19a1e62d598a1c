"""Numbers that follow from a seed: for rows that are made up, never for noise.

They are read off SHAKE-256 of the seed, so that they are the same on each machine and with each
version of NumPy. Without a seed the operating system gives one.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints

_BITS = 53
_FROM = b"dpsql synthetic rows"


class Draws:
    """Uniform numbers, one stream after the other."""

    def __init__(self, seed: int | None) -> None:
        self._key = secrets.token_bytes(32) if seed is None else str(seed).encode()
        self._calls = 0

    def uniform(self, count: int) -> Array:
        """Return numbers from 0 to below 1."""
        return (self._words(count) >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS

    def order(self, count: int) -> Ints:
        """Return the numbers below `count` in a random order."""
        return np.argsort(self._words(count), kind="stable")

    def stratified(self, groups: Ints, count: int) -> Array:
        """Return a number from 0 to below 1 for each row, evenly spread within each group.

        Of m rows of a group, each of the m intervals of equal length has one, all at the same
        distance from its end: so of any interval of length p, there are mp of them but for less
        than one.

        Args:
            groups: the group of each row, below `count`.
            count: how many groups there may be.
        """
        order = self.order(len(groups))
        order = order[np.argsort(narrow(groups, count)[order], kind="stable")]
        own = groups[order]
        rows = np.bincount(groups, minlength=count)
        begins = np.cumsum(rows) - rows
        found = np.empty(len(groups))
        place = np.arange(len(groups)) - begins[own]
        found[order] = (place + self.uniform(count)[own]) / rows[own]
        return np.minimum(found, 1 - 2.0**-30)  # so far from 1 that a group's number can be added

    def _words(self, count: int) -> NDArray[np.uint64]:
        self._calls += 1
        told = b"%b/%d/%b" % (_FROM, self._calls, self._key)
        return np.frombuffer(hashlib.shake_256(told).digest(8 * count), dtype="<u8")


def narrow(numbers: Ints, count: int) -> NDArray[np.integer]:
    """Return numbers below `count` in few bytes: what has two is sorted in linear time."""
    return numbers.astype(np.uint16) if count <= 1 << 16 else numbers
