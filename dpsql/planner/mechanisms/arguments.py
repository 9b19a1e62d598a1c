"""What single mechanisms take besides a workload and a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

Basis = str | ArrayLike
"""Of an attribute in ResidualPlanner+: `identity`, `prefix`, `range`, or queries × cells."""
Loss = Callable[[Any], Any]
"""Of ResidualPlanner: from the variances v_B, a vector of CVXPY with one entry for each family, to
a convex scalar."""
