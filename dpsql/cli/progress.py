"""Progress of long work, as bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.progress import Progress, Watch

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID


class Bars(Watch):
    """A bar for each phase.

    Work of a single step has no share that is done: its bar moves on, beside the time it took.
    """

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, phase: str, done: int, of: int) -> None:
        """Draw the bar of a phase."""
        if phase not in self._tasks:
            self._tasks[phase] = self._display.add_task(phase)
        total = of if done or of > 1 else None
        self._display.update(self._tasks[phase], completed=done, total=total)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._display.console.print(text, highlight=False, markup=False)


@contextmanager
def progress_on_terminal(wanted: Progress | bool | None) -> Iterator[Watch]:
    """Give a watch that draws bars on standard error, if they are wanted and that is a terminal."""
    if wanted is False or not sys.stderr.isatty():
        yield Watch()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Bars(display)
