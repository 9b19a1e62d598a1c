"""SciPy's linear algebra: what planning uses of it, with its types."""

from scipy.linalg import (
    LinAlgError,
    cho_factor,
    cho_solve,
    eigh_tridiagonal,
    lapack,
    null_space,
    qr,
    solve,
    solve_triangular,
    svd,
)

__all__ = [
    "LinAlgError", "cho_factor", "cho_solve", "eigh_tridiagonal", "lapack", "null_space", "qr",
    "solve", "solve_triangular", "svd",
]  # fmt: skip
