"""Count several tables at once, for a plan in which a privacy unit is one record.

What is counted of a table gets the axis of its counts, and other names; see `workload.workload`.
How much one unit changes is said here, of what was counted and of nothing that was planned: each
table's own bound on rows, times the largest value of a row. And that no marginal of a table counts
more rows of a unit than its total: they are of rows that are kept once for all of them, and in the
total, which is counted by itself, each of these counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.base import (
    Counted,
    Counting,
    Counts,
    Engine,
    Keys,
    Marginal,
    Measures,
    Merged,
    Step,
    Units,
)
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.workload.spread import SpreadRows
from dpsql.workload.workload import UnitTable

if TYPE_CHECKING:
    from dpsql.rel.support import Support


@dataclass(frozen=True, slots=True)
class CountedTable:
    """One of several tables, and in what it is counted."""

    unit_table: UnitTable
    table: Table
    merged: Merged
    measures: Measures
    keys: Keys
    units: Units = field(default_factory=dict)

    def own(self, marginal: Marginal) -> Marginal | None:
        """Return what a marginal among several tables is in this one; None if it is of another.

        Raises:
            InternalError: it is of several tables, or of no counts and no measure of one.
        """
        names = [n for n in marginal if n != self.unit_table.name]
        names_here = [self.unit_table.own(name) for name in names]
        attributes = [name for name in names_here if name is not None]
        if not attributes and len(names) == len(marginal):
            return None
        own_axes = self.measures.keys() | self.units.keys()
        axes = len(marginal) - len(names) + sum(name in own_axes for name in attributes)
        if len(attributes) < len(names) or axes != 1:
            raise InternalError("what is counted together is not of one table, or in two ways")
        return tuple(attributes)


def count_several(
    engine: Engine, tables: Sequence[CountedTable], wanted: Sequence[Marginal], step: Step
) -> CountingOfSeveral:
    """Say how marginals of several tables are counted; reads nothing.

    Args:
        engine: counts each of them.
        tables: the tables.
        wanted: marginals among several tables.
        step: called after each table.

    Raises:
        InternalError: a marginal is of none of the tables, or of several.
    """
    parts = []
    for each in tables:
        of_table = {marginal: each.own(marginal) for marginal in wanted}
        named = {marginal: names for marginal, names in of_table.items() if names is not None}
        counting = engine.prepared(
            each.table,
            tuple(dict.fromkeys(named.values())),
            each.merged,
            each.measures,
            each.keys,
            each.units,
            total_apart=True,
        )
        parts.append(_CountedPart(each, named, counting))
    if sorted(marginal for part in parts for marginal in part.named) != sorted(set(wanted)):
        raise InternalError("a marginal is of no table, or of several")
    return CountingOfSeveral(engine, tuple(parts), step)


@dataclass(frozen=True, slots=True)
class _CountedPart:
    """The marginals of one table, and the statements that count them."""

    of: CountedTable
    named: Mapping[Marginal, Marginal]
    """Marginal among several tables → the marginal of this table."""
    counting: Counting

    def marginals(self, counted: Counted) -> Iterator[tuple[Marginal, Counts]]:
        """Yield what was counted, with the axis of the table's counts where that is counted."""
        for marginal, names in self.named.items():
            array = counted[names]
            if self.of.unit_table.name in marginal:
                array = np.expand_dims(array, marginal.index(self.of.unit_table.name))
            yield marginal, array

    def above(self, counted: Counted) -> Iterator[tuple[Marginal, Counts]]:
        """Yield the higher words of sums, which have the axis of their measure already."""
        for marginal, names in self.named.items():
            if names in counted.above:
                yield marginal, counted.above[names]

    def bounds(self, counted: Counted) -> Iterator[tuple[str, int]]:
        """Yield by how much the rows of a unit change each sum, all of them together.

        At most `contributions` of its rows were counted, and each of them changes a count by one,
        and a sum by its bound at most. Where values of units are counted the bound is for all rows.
        """
        of = self.of.unit_table
        yield of.name, counted.contributions
        for measure, bound in counted.bounds.items():
            times = 1 if measure in counted.units else counted.contributions
            yield of.attribute(measure), times * bound


@dataclass(frozen=True, slots=True)
class CountingOfSeveral(Counting):
    """The statements that count marginals of several tables, on one snapshot."""

    engine: Engine
    parts: tuple[_CountedPart, ...]
    step: Step

    def check(self) -> None:
        """Have the statements for each table bound; see `Counting.check`."""
        with self.engine.snapshot():
            for part in self.parts:
                part.counting.check()

    def run(self) -> Counted:
        """Count all tables as they are in one snapshot; see `Counting.run`."""
        marginals: dict[Marginal, Counts] = {}
        bounds: dict[str, int] = {}
        units: dict[str, int] = {}
        totals: dict[str, int] = {}
        above: dict[Marginal, Counts] = {}
        rows: dict[str, int] = {}
        spreads, supports = list[SpreadRows](), list["Support"]()
        with self.engine.snapshot():
            for done, part in enumerate(self.parts, start=1):
                counted = part.counting.run()
                marginals |= part.marginals(counted)
                above |= part.above(counted)
                bounds |= part.bounds(counted)
                of = part.of.unit_table
                totals[of.name] = counted.contributions
                summed = counted.bounds.keys() - counted.units.keys()
                rows |= {of.attribute(measure): counted.contributions for measure in summed}
                units |= {of.attribute(name): most for name, most in counted.units.items()}
                spreads += (spread.renamed(of.attribute) for spread in counted.spreads)
                supports += (support.renamed(of.attribute) for support in counted.supports)
                self.step(done, len(self.parts))
        return Counted(marginals, 1, bounds, units, spreads, totals, above, rows, supports)
