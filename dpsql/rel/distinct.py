"""Distinct values by groups: how many values of an expression the rows of a group have.

COUNT(DISTINCT e) of rows that are each a unit of their own is a number that one row changes by one
at most. Where a unit has several rows it may bring any number of values. So a unit *covers* at most
l values of each group, of those that its own rows have there, and what is counted is how many
values can be covered at most, by the best choice for all units together: F_l (Knop and Steinke,
"Counting distinct elements under person-level differential privacy", 2023). It is at most the
number of values, and equal to it where l is large. What a unit changes: `engines/distinct.py`.

It is counted as units by groups are (`workload/unit_groups.py`): the groups of a statement are an
attribute of their own, and in its marginal with one more attribute values are counted, not rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.rows.typed import RowValue
from dpsql.workload.unit_groups import UnitGroups

FEWEST_KEPT, TIMES_KEPT = 1_000, 20
"""Values of a unit in a group that are looked at: so many, or so often as many as it covers."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadValue:
    """A value that is computed of each row.

    Args:
        value: how.
        columns: what is read of a row.
        known: what it is, so that only the same values have the same text.
    """

    value: RowValue
    columns: frozenset[str]
    known: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DistinctValues(UnitGroups):
    """The values of an expression by groups: `most` groups of a unit count, with `per_group` each.

    Or, if `kept_of_all` is set, as many of its pairs of a group and a value, in whatever groups.
    """

    value: ReadValue
    per_group: int
    """A unit covers at most so many values of a group: l."""
    kept_of_all: bool = False
    """Whether a unit has no more than l·m pairs of a group and a value that count in all, so that
    all of its groups count: then it covers no more than that, either."""
    of_rows: bool = field(default=False)
    """Whether each row is a unit of its own."""

    @property
    def each(self) -> int:
        """By how much a unit changes a group at most."""
        return self.per_group

    @property
    def kept(self) -> int:
        """The most values of a unit that are looked at: of all, or in each group."""
        if self.kept_of_all:
            return self.per_group * self.most
        return max(FEWEST_KEPT, TIMES_KEPT * self.per_group)

    @property
    def said(self) -> tuple[object, ...]:
        """The rest of what tells such counts apart, besides the groups of cells."""
        of = self.count, self.most, self.condition, self.value.known
        return (*of, self.per_group, self.kept_of_all, self.kept, self.of_rows)

    @property
    def kind(self) -> str:
        """The word for what is counted."""
        return "values"
