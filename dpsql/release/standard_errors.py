"""Frames as they are handed out with standard errors in place of variances.

They are a view: what is kept of a release, marked and reported has variances. A column belongs to a
value by what the statement says, and not by its name alone: an analyst may call any column so.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from dpsql.release.frames import Frames
from dpsql.release.shown import VARIANCE, with_errors


class ErrorFrames:
    """Frames with standard errors beside their values.

    Args:
        plain: with variances.
    """

    def __init__(self, plain: Frames) -> None:
        self._plain = plain

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return with_errors(self._plain.frame(name), self._values(name))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        values = self._values(name)
        return (with_errors(frame, values) for frame in self._plain.batches(name, rows))

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        return self._plain.columns(name)

    def _values(self, name: str) -> frozenset[str]:
        """Return the values of a statement beside which nothing stands that it names itself."""
        described = self._plain.columns(name)
        named = set(described["column"])
        values = described.filter(pl.col("role") == "value")["column"]
        return frozenset(value for value in values if f"{value}{VARIANCE}" not in named)
