"""Work measured by what it asks for, not by a clock, which tells how busy the computer is."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Calls:
    """How many functions written in Python were called."""

    count: int = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count calls of functions of Python in this thread."""
    calls = Calls()

    def count(_frame: object, event: str, _argument: object) -> None:
        calls.count += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@dataclass(slots=True)
class Memory:
    """The most bytes that objects of Python and arrays of NumPy took at once."""

    peak: int = 0


@contextmanager
def measured_memory() -> Iterator[Memory]:
    """Measure what is taken in all threads of this process."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
    finally:
        memory.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
