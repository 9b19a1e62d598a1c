"""Numbers of Arrow as arrays of NumPy, read where they lie.

Arrow's own way from one to the other imports pandas, wherever that is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyarrow import Array


def numbers(column: Array[Any], type_: type[np.integer[Any]]) -> NDArray[Any]:
    """Read a column of integers of a type, that has some and no NULL."""
    width = np.dtype(type_).itemsize
    return np.frombuffer(column.buffers()[1], type_, len(column), column.offset * width)
