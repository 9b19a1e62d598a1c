"""Progress of long work, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str, int, int], None]


@contextmanager
def progress_on_terminal() -> Iterator[Tell | None]:
    """Give a callback that draws bars on standard error; None if that is not a terminal.

    Work of a single step has no share that is done: its bar moves on, beside the time it took.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        tasks: dict[str, TaskID] = {}

        def tell(phase: str, done: int, of: int) -> None:
            if phase not in tasks:
                tasks[phase] = display.add_task(phase)
            display.update(tasks[phase], completed=done, total=of if done or of > 1 else None)

        yield tell


@contextmanager
def working(phase: str) -> Iterator[None]:
    """Show on a terminal that work of one step goes on, and for how long."""
    with progress_on_terminal() as tell:
        if tell is not None:
            tell(phase, 0, 1)
        yield
