"""Windows: columns computed of several rows of a unit, and rows of a table that are chosen by them.

    SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY day) = 1

has one order of each customer, however many count in `orders`. So these rows are a relation of
their own, with a bound of their own: counts of them have the noise of one row of a customer. They
have the columns of the table, and what was measured of them is of no other rows.

*Why a unit has so many at most.* Places are numbers 1, 2, … of the rows that agree in the unit and
in what else PARTITION BY names, so no more than `last - first + 1` of these are chosen. Where it
names columns with a list of all values that are stored, there are so many of each of these. Privacy
doesn't rest on that: as many count as were expected, or `max_rows` if that is less or nothing else
is known, and which of more are kept is decided by the rule of `engines/duckdb/bounded.py` when they
have been chosen. Of those that agree in such columns `last - first + 1` count, by the same rule.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from dpsql.schema.units import ResolvedUnit

OUTSIDE = "\x1f"
"""The sign before a column of a row, beside the columns of other rows of its unit."""


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


class SteppedColumn(ComputedColumn, Protocol):
    """A computed column that may be a number of steps."""

    @property
    def scale(self) -> int | None:
        """The scale of a number of steps that stands for a DOUBLE, see `dpsql/rows/steps.py`."""


@runtime_checkable
class WindowColumn(SteppedColumn, Protocol):
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen rows of a table: those with some places among the rows of their unit."""

    path: tuple[str, ...]
    """The path of the table."""
    unit: ResolvedUnit
    """Its unit, with the bound that all of its rows have."""
    window: str
    """The name of the column with the places, which says all that these depend on."""
    first: int
    """The first place that is chosen, from 1."""
    last: int
    rows: int | None
    """How many of them a unit has at most, if all is as it is declared; None if that isn't known,
    so that as many count as of all rows."""
    apart: tuple[str, ...] = ()
    """Columns that tell rows of a unit with the same place apart, if these are such."""

    @property
    def places(self) -> int:
        """The number of places that are chosen."""
        return self.last - self.first + 1

    @property
    def digest(self) -> str:
        """A hash of which rows they are: with another one, they are other rows."""
        made = self.path[1:], self.window, self.first, self.last
        return hashlib.sha256(repr(made).encode()).hexdigest()
