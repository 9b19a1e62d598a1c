"""Starting points that are irregular and always the same.

Searches with many local minima need starts without structure. Plans must not depend on chance, so
the fractional parts of α·i² for irrational α take the place of random numbers: they are spread
evenly over 0 to 1 (Weyl), and neighbours have nothing to do with each other.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def irregular(count: int, number: int) -> NDArray[np.float64]:
    """Return numbers from 0 to 1; other ones for each `number` from 1."""
    alpha = math.sqrt(number * number + 1)  # no square for number > 0
    return np.asarray(np.square(np.arange(1, count + 1, dtype=np.float64)) * alpha % 1.0)
