"""The order of answers: that of a family's blocks, and that of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def in_group_order(
    array: NDArray[Any], axes: Sequence[Sequence[int]], shape: Sequence[int]
) -> NDArray[Any]:
    """Bring an array from the order of a family's blocks to that of the groups, and flatten it.

    Args:
        array: one value per answer, in the family's own order.
        axes: the axes of each block.
        shape: the number of groups along each axis.
    """
    placed = [axis for block in axes for axis in block]
    tensor = array.reshape([shape[axis] for axis in placed])
    return np.ascontiguousarray(tensor.transpose(np.argsort(placed))).ravel()
