"""SciPy's linear algebra, loaded where it is first used: that takes a tenth of a second.

A plain count needs nothing of it. It has a BLAS of its own, which is limited to one thread from the
moment on that it is loaded, if plans are being made then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        "LinAlgError", "cho_factor", "cho_solve", "eigh_tridiagonal", "lapack",
        "null_space", "qr", "solve", "solve_triangular", "svd",
    ]  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        """Return a function of `scipy.linalg`, and keep it here."""
        import scipy.linalg

        from dpsql.linalg.threads import one_thread

        one_thread.limit_loaded()
        found = globals()[name] = getattr(scipy.linalg, name)
        return found
