"""BLAS threads: one for many small factorisations, which several make up to 26 times slower."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

SMALL = 300
"""Factorisations up to this size run faster on one BLAS thread than on several."""


def threads_for(size: int) -> AbstractContextManager[object]:
    """Limit BLAS to one thread, for factorisations of small matrices."""
    return one_thread() if size <= SMALL else nullcontext()


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread."""
    limiter: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limiter


@cache
def _controller() -> ThreadpoolController:
    # It takes milliseconds to find the libraries that are loaded.
    return ThreadpoolController()
