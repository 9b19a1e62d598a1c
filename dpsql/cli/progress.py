"""Progress of long work, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[str, int, int], None]


@contextmanager
def progress_on_terminal() -> Iterator[Tell | None]:
    """Give a callback that draws bars on standard error; None if that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as display:
        tasks: dict[str, TaskID] = {}

        def tell(phase: str, done: int, of: int) -> None:
            if phase not in tasks:
                tasks[phase] = display.add_task(phase)
            display.update(tasks[phase], completed=done, total=of)

        yield tell
