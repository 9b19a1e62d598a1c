"""Threads: planning takes one of BLAS, whatever the environment says, and one of Python's.

A plan makes many factorizations of matrices of up to 2,500 rows. Several threads make those 2 to
30 times dearer in CPU time, the more so the busier the machine is, and hardly ever faster; and
with one, equal requests get equal plans to the last digit, however many cores there are.

Python hears of Ctrl-C between two steps of its own, so not while LAPACK factorizes, which takes
seconds. So what plans runs in a thread beside the main one, which waits, and hears at once.
Python ends only after such a thread: one that comes back from LAPACK while Python is taken apart
finds nothing to go on with, and that ended in a segmentation fault.
"""

from __future__ import annotations

import atexit
import contextvars
import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from functools import cache
from typing import TypeVar

import scipy.linalg  # noqa: F401  (loads SciPy's own OpenBLAS, so that it is limited as well)
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
_EVERY_SECONDS, _AGAIN_SECONDS = 0.1, 1.0
_EXIT_SECONDS = 5.0
"""Most single steps take less, and who interrupts doesn't want to wait."""


class _Here(threading.local):
    """The state of a thread of the caller's: the limit that it entered, and how many times."""

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


def interruptibly(work: Callable[[], T]) -> T:
    """Return what some work gives, and let Ctrl-C end the waiting for it at once.

    Work that is left alone ends at its next step in Python. Outside of the main thread, which
    alone hears of signals, it is done right here.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    found: list[T] = []
    raised: list[BaseException] = []
    done, context = threading.Event(), contextvars.copy_context()

    def run() -> None:
        try:
            found.append(context.run(work))
        except BaseException as error:  # whatever it is, the main thread raises it
            raised.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()  # it waits, too, so Ctrl-C may end that
        while not done.wait(_EVERY_SECONDS):  # a signal that another thread got wakes nobody
            pass
    except BaseException:
        ending = threading.Thread(target=_end, args=(thread,), daemon=True)
        ending.start()
        atexit.register(ending.join, _EXIT_SECONDS)
        raise
    if raised:
        raise raised.pop()
    return found.pop()


def _end(thread: threading.Thread) -> None:
    """Have a thread that nobody waits for any more raise at its next step, until it has ended.

    It may be about to begin, and a callback of a library may hold back what was raised first.
    """
    time.sleep(_EVERY_SECONDS)
    while thread.is_alive() and thread.ident is not None:
        number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
        thread.join(_AGAIN_SECONDS)
