"""BLAS threads: planning takes one, whatever the environment says.

A plan makes many factorizations of matrices of up to 2,500 rows. Several threads make those 2 to
30 times dearer in CPU time, the more so the busier the machine is, and hardly ever faster; and
with one, equal requests get equal plans to the last digit, however many cores there are.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, ContextDecorator
from functools import cache

import scipy.linalg  # noqa: F401  (loads SciPy's own OpenBLAS, so that it is limited as well)
from threadpoolctl import ThreadpoolController


class _Here(threading.local):
    """What a thread of the caller's has entered."""

    depth: int = 0
    limit: AbstractContextManager[object] | None = None


class _OneThread(ContextDecorator):
    """Limits BLAS to one thread while a thread of the caller's is inside of it.

    Most builds of BLAS have one number of threads for the whole process, which threadpoolctl lets
    one thread change at a time. Two that enter one after the other find different numbers: the
    last one to leave gives back what the first one found, not the 1 that it found itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = _Here()
        self._inside = 0
        self._first: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        if not self._here.depth:
            with self._lock:
                self._here.limit = _controller().limit(limits=1, user_api="blas")
                self._here.limit.__enter__()
                if not self._inside:
                    self._first = self._here.limit
                self._inside += 1
        self._here.depth += 1

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1
        if not self._here.depth:
            with self._lock:
                self._inside -= 1
                limit = self._here.limit if self._inside else self._first
                if limit is not None:
                    limit.__exit__(None, None, None)


one_thread = _OneThread()
"""Enter it, or decorate a function with it, where planning begins. Inside of itself it does
nothing, so that every entrance may have it."""


@cache
def _controller() -> ThreadpoolController:
    # It takes milliseconds to find the libraries that are loaded.
    return ThreadpoolController()
