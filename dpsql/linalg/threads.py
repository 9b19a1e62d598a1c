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
import importlib.util
import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

T = TypeVar("T")
_EVERY_SECONDS, _AGAIN_SECONDS = 0.1, 1.0
_EXIT_SECONDS = 5.0
"""Most single steps take less, and who interrupts doesn't want to wait."""


class _Here(threading.local):
    """The state of a thread of the caller's: how many times it entered, and its own limit."""

    depth: int = 0
    limit: Any = None


class _OneThread(ContextDecorator):
    """Limits BLAS to one thread while a thread of the caller's is inside of it.

    OpenBLAS over OpenMP has a number for each thread, which everyone who enters limits. All else
    has one number for the process: who enters first limits it, and who leaves last gives it back.
    threadpoolctl has one thread change that, and does nothing in others without a word. So the
    claim is taken from whoever has it, be it one who entered first and left, and given up again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = _Here()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        if not self._here.depth:
            libraries = _libraries()
            with self._lock:
                if not self._inside:
                    OpenBLASController.clear_controlling_thread(force=True)
                    self._limit = libraries.of_process.limit(limits=1)
                self._inside += 1
            self._here.limit = libraries.of_threads.limit(limits=1)
        self._here.depth += 1

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1
        if not self._here.depth:
            self._here.limit.restore_original_limits()
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    OpenBLASController.clear_controlling_thread(force=True)
                    self._limit.restore_original_limits()
                    OpenBLASController.clear_controlling_thread(force=True)


one_thread = _OneThread()
"""Enter it, or decorate a function with it, where planning begins. Inside of itself it does
nothing, so that every entrance may have it."""


class _Libraries(NamedTuple):
    """The libraries of BLAS that are loaded, by whose their number of threads is."""

    of_process: ThreadpoolController
    of_threads: ThreadpoolController


@cache
def _libraries() -> _Libraries:
    """Return the libraries that plans use; it takes milliseconds to find them."""
    _load_blas_of_scipy()
    blas = ThreadpoolController().select(user_api="blas")
    of_threads = blas.select(internal_api="openblas").select(threading_layer="openmp")
    apart = {library["filepath"] for library in of_threads.info()}
    paths = [path for library in blas.info() if (path := library["filepath"]) not in apart]
    return _Libraries(blas.select(filepath=paths), of_threads)


def _load_blas_of_scipy() -> None:
    """Load SciPy's own BLAS, so that it is limited as NumPy's is, whenever SciPy itself is loaded.

    That takes a quarter of a second, and few plans need it. The system loads the library with a
    module that is linked to it, without running any of SciPy's code.
    """
    spec = importlib.util.find_spec("scipy")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    for suffix in EXTENSION_SUFFIXES:
        with suppress(OSError):  # Windows finds its libraries by SciPy's own code alone
            ctypes.CDLL(str(folder / "linalg" / f"_fblas{suffix}"))
            return
    importlib.import_module("scipy.linalg")


def interruptibly(work: Callable[[], T]) -> T:
    """Return what some work gives, and let Ctrl-C end the waiting for it at once.

    Work that is left alone ends at its next step in Python. Outside of the main thread, which
    alone hears of signals, it is done right here.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    raised: list[BaseException] = []
    done, context = threading.Event(), contextvars.copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
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
    return results.pop()


def _end(thread: threading.Thread) -> None:
    """Have a thread that nobody waits for any more raise at its next step, until it has ended.

    It may be about to begin, and a callback of a library may hold back what was raised first.
    """
    time.sleep(_EVERY_SECONDS)
    while thread.is_alive() and thread.ident is not None:
        number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
        thread.join(_AGAIN_SECONDS)
