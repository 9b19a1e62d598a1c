"""Long work: whom it tells how far it is, and a line that says so on a terminal or in a notebook.

Everything told is public: phases, and how many of their steps are done. A `Watch` is passed down
with the request, and each call has its own.

A notebook keeps what is written to it, so there the line is an output that is replaced, and at last
by nothing. Where a program runs the notebook, as nbclient does for nbconvert, nobody looks on.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from dpsql.calls import check_callable

Progress = Callable[[str, int, int], None]
"""Called with a phase (`planning`, `counting`, `measuring`, `adjusting`), steps done and steps in
all."""

AFTER = 2.0
"""Seconds from which work is long, and is shown."""
_EVERY_SECONDS = 0.5


class Watch:
    """A watch over some work: a function of the caller's that is told of it, or none."""

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


class NotebookLine(ProgressLine):
    """A line that is an output of a cell, and an empty one once the work is done.

    Args:
        publish: `publish` of IPython's `DisplayPublisher`.
        clock: seconds.
    """

    def __init__(
        self, publish: Callable[..., object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(lambda _: None, clock)
        self._publish, self._place = publish, {"display_id": uuid4().hex}
        self._said = ""
        self._is_there = False

    def note(self, text: str) -> None:
        """Say something in front of the line, until the work is done."""
        with self._lock:
            self._said = f"{text}; "
            self._show("")

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            if self._is_there:
                self._publish({}, transient=self._place, update=True)

    def _show(self, text: str) -> None:
        data = {"text/plain": (self._said + text).removesuffix("; ")}
        self._publish(data, transient=self._place, update=self._is_there)
        self._is_there = True


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
    line = None if given is False else _line()
    if line is None:
        yield Watch()
        return
    done = threading.Event()
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


def _line() -> ProgressLine | None:
    """Return a line where somebody looks on; None if nobody does."""
    shell = _notebook()
    if shell is not None:
        return NotebookLine(shell.display_pub.publish) if _is_looked_at(shell.kernel) else None
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return ProgressLine(write)


def _notebook() -> Any:
    """Return the shell of a kernel that runs this, whose outputs a notebook shows; or None."""
    shell = sys.modules.get("IPython.core.getipython")
    found = shell.get_ipython() if shell is not None else None
    return found if found is not None and hasattr(found, "kernel") else None


def _is_looked_at(kernel: Any) -> bool:
    """Whether a person may be there: programs that run notebooks can't be asked for input."""
    asked = kernel.get_parent() if hasattr(kernel, "get_parent") else {}
    return bool(asked.get("content", {}).get("allow_stdin", True))
