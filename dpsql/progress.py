"""Long work: whom it tells how far it is, and a line that says so on a terminal or in a notebook.

Everything told is public: phases, and how many of their steps are done. A `Watch` is passed down
with the request, and each call has its own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpsql.calls import check_callable

Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`, `adjusting`), steps done and steps in
all."""

AFTER = 2.0
"""Seconds from which work is long, and is shown."""
_EVERY_SECONDS = 0.5


class Watch:
    """Who is told: a function of the caller's, or nobody."""

    def __init__(self, tell: Progress | None = None) -> None:
        self._tell = tell

    def __call__(self, phase: str, done: int, of: int) -> None:
        """Hear that of the steps of a phase some are done."""
        if self._tell is not None:
            self._tell(phase, done, of)

    def note(self, text: str) -> None:
        """Hear something about work that will be long; a function of three arguments doesn't."""


class ProgressLine(Watch):
    """One line that is written again and again, once the work has taken some seconds.

    Args:
        write: writes text that replaces the line.
        clock: seconds.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._began = clock()
        self._phase: tuple[str, int, int] | None = None
        self._since = self._began
        self._width = 0

    def __call__(self, phase: str, done: int, of: int) -> None:
        """Keep how far the work is, to be shown by the next tick."""
        with self._lock:
            if self._phase is None or self._phase[0] != phase:
                self._since = self._clock()
            self._phase = (phase, done, of)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._show("")
            self._write(f"\r{text}\n")

    def tick(self) -> None:
        """Write what goes on and for how long, if the work is long."""
        with self._lock:
            now = self._clock()
            if self._phase is None or now - self._began < AFTER:
                return
            phase, done, of = self._phase
            steps = f" {done:,} of {of:,}," if of > 1 else ""
            self._show(f"{phase}{steps} {now - self._since:,.0f} s")

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            self._show("")

    def _show(self, text: str) -> None:
        if text or self._width:
            self._write("\r" + text.ljust(self._width) + ("" if text else "\r"))
        self._width = len(text)


@contextmanager
def watched(given: Progress | bool | None) -> Iterator[Watch]:
    """Give the watch of one call.

    Args:
        given: who is to be told, as the caller has it. By default, and if it is True, a line is
            shown where somebody sees it: on a terminal, or in a notebook. If it is False, none is.

    Raises:
        ArgumentError: it is something else.
    """
    if isinstance(given, Watch):
        yield given
        return
    if given is not None and not isinstance(given, bool):
        check_callable(progress=given)
        yield Watch(given)
        return
    write = None if given is False else _seen()
    if write is None:
        yield Watch()
        return
    line, done = ProgressLine(write), threading.Event()
    thread = threading.Thread(target=_ticking, args=(line, done), daemon=True)
    thread.start()
    try:
        yield line
    finally:
        done.set()
        thread.join()
        line.clear()


def _ticking(line: ProgressLine, done: threading.Event) -> None:
    while not done.wait(_EVERY_SECONDS):
        line.tick()


def _seen() -> Callable[[str], None] | None:
    """Return what writes where somebody looks on; None if nobody does.

    In a notebook what goes to standard error looks like an error.
    """
    stream = sys.stdout if _in_notebook() else sys.stderr
    if stream is None or not (_in_notebook() or stream.isatty()):
        return None

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return write


def _in_notebook() -> bool:
    """Whether a kernel runs this, whose output a notebook shows."""
    shell = sys.modules.get("IPython.core.getipython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and hasattr(found, "kernel")
