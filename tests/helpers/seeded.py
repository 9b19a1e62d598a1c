"""Random bits that can be repeated: for tests only, the package has no such thing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SeededBits:
    """Words from numpy's Philox generator. `drawn` counts them."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))
        self.drawn = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        self.drawn += count
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


class GivenBits:
    """The given words, in order."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        given, self.left = self.left[:count], self.left[count:]
        if len(given) < count:
            raise AssertionError("more words were drawn than given")
        return np.array(given, dtype=np.uint64)
