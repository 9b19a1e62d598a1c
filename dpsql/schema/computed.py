"""Columns that are computed of several rows of a unit, and what windows are."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol, runtime_checkable

OUTSIDE = "\x1f"
"""What stands before a column of a row, beside the columns of other rows of its unit."""


class ComputedColumn(Protocol):
    """A column that is computed of several rows of a unit."""

    @property
    def name(self) -> str:
        """The name of the column, which says in full what it is."""

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def filled(self) -> bool:
        """Whether it is never NULL."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read of the rows."""

    @property
    def between(self) -> tuple[Fraction | None, Fraction | None]:
        """Between which numbers it lies, days of 1970 for times, where units keep to `max_rows`."""


@runtime_checkable
class Window(ComputedColumn, Protocol):
    """A column that is computed of rows of the same table and unit: see `dpsql/rows/windows.py`."""

    @property
    def least(self) -> int | None:
        """The least number that it can be, if it counts something."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All texts that it can be; none if they aren't known."""

    @property
    def ends(self) -> tuple[int, int] | None:
        """Between which numbers it is, if that is known."""

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """Columns that are the same in rows that are looked at together, with their types."""

    @property
    def lined(self) -> bool:
        """Whether rows that are alike in that are looked at one by one, as they stand in line."""
