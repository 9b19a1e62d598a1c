"""Counts of the groups of statements by earlier measurements, in place of rows that are assumed.

Errors of averages and quantiles depend on how many rows there are. Noisy counts that were paid for
before tell that as well as exact ones would, nearly; to read them again is post-processing.

A sum or a distribution that was not measured follows from the counts of its groups, if its values
are taken to be spread evenly over their domain. Its queries are a Kronecker product of blocks. In
the block Q over the columns that are added up, each row is replaced by its mean: Q becomes
(Q e)·1ᵀ with the even distribution e. For a table whose values have the distribution e in every
group, these queries have the answers of the sum; and they ask for counts of the groups alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from dpsql.answers.answers import Answers
from dpsql.answers.facts import Earlier
from dpsql.errors import ResourceLimitError, printable
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import MAX_ENTRIES, Dense
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.reuse.past import Past, put_together
from dpsql.sql.compiled import GroupingSet, Script, Statement, StatisticColumn
from dpsql.workload import Family, Workload
from dpsql.workload.unit_groups import groups_of

UNASKED = 20_000
"""Groups of a statement that are looked at without being asked to: more take seconds."""
NAMED = 3
"""Entries of the ledger that are named, the last ones."""


class Counts:
    """Answers to the statistics of a script, as far as earlier measurements determine them."""

    def __init__(self, script: Script, past: Past, earlier: Sequence[Earlier] = ()) -> None:
        """Put earlier measurements together.

        Args:
            script: compiled over cells as fine as those of the sources.
            past: measurements of the same rows, which combine, in the script's names.
            earlier: where each of them is in the ledger, if it is.

        Raises:
            ResourceLimitError: they are too large to be put together.
            numpy.linalg.LinAlgError: their budgets are too far apart for floats.
        """
        domain = script.workload.domain
        apart = {part.measure for part in parts(script.workload)} if script.apart else ()
        combination = put_together(domain, past, apart)
        self._reconstruction = combination.reconstruction
        self._domain = domain
        self._used = [e for i, e in enumerate(earlier) if (i) in combination.used]
        values = combination.values([s.values for s in past.sources if s.values is not None])
        families = [family.shown for family in script.workload.families]
        self.spread: dict[int, frozenset[str]] = {}
        """Family that is known → the columns over which its rows are taken to be spread evenly."""
        for statement in script.statements:
            for group in statement.sets:
                for column in group.columns:
                    if column.family not in self.spread:
                        self._look_up(script, group, column, families)
        workload = Workload.of(domain, families)
        self.answers = Answers.measured(workload, combination.reconstruction, values)
        """Noisy answers by families that are in `spread`; those of others mean nothing."""

    def _look_up(
        self, script: Script, group: GroupingSet, column: StatisticColumn, families: list[Family]
    ) -> None:
        family = families[column.family]
        if not self._reconstruction.missing(family, self._domain):
            self.spread[column.family] = frozenset()
            return
        counts = _as_counts(script, column.family, family)
        even = spread_evenly(script, group, column, counts)
        for known in (None if counts is family else counts, even):
            if known is not None and not self._reconstruction.missing(known, self._domain):
                families[column.family] = known
                self.spread[column.family] = column.over
                return

    def knows(self, statement: Statement) -> bool:
        """Whether something of a statement is known, and it hasn't too many groups."""
        return statement.rows <= UNASKED and not self.spread.keys().isdisjoint(statement.families)

    def knows_all(self, statement: Statement) -> bool:
        """Whether all of a statement is known."""
        return self.knows(statement) and self.spread.keys() >= {*statement.families}

    def said(self, statement: Statement) -> str:
        """Say where the counts of a statement come from, and what is assumed besides."""
        named = [f"{e.seq} of {e.time}" for e in self._used[-NAMED:]]
        more = len(self._used) - len(named)
        source = "noisy counts of " + (
            f"ledger entr{'y' if len(self._used) == 1 else 'ies'} {' and '.join(named)}"
            + (f" and {more:,} before" if more else "")
            if named
            else "an earlier release"
        )
        spread = sorted({a for family in statement.families for a in self.spread.get(family, ())})
        return source + (f"; {printable(', '.join(spread))} spread evenly" if spread else "")


def even_shares(script: Script, name: str) -> Array:
    """Return the share of each cell of a column, of rows spread evenly over its domain.

    Of a measure it is what such rows add on average. Of groups of units, as many units are taken to
    be there as rows.
    """
    if name in script.measures:
        return np.array([script.measures[name].typical])
    if name in script.units:
        return np.ones(1)
    groups = {groups_of(units): of.count for units, of in script.units.items()}
    if name in groups:
        return np.full(groups[name], 1 / groups[name])
    if script.apart:
        of, statement = script.owner(name)
        return (
            even_shares(of, statement) if of is not script else np.ones(1)
        )  # each row counts as one
    inside = script.table.columns[name].size
    cells = script.workload.domain[name]
    classes = script.merged.get(name, np.arange(max(cells, inside)))[:inside]
    return np.bincount(classes, minlength=cells) / inside


def _as_counts(script: Script, number: int, family: Family) -> Family:
    """Return what sums over one of several tables are if its rows add what is typical, each.

    Of one table alone, counts are read so as they are: a measure has one cell.
    """
    block = family.measure
    if block is None or not script.apart or not script.adds_up(number):
        return family
    each = family.unit * script.measures[block.attributes[0]].typical + family.center
    table = next(of for of, _ in script.apart if of.own(block.attributes[0]) is not None)
    counts = replace(
        block, attributes=(table.name,), queries=Dense(np.array([[each]])), bound=1, center=0.0
    )
    blocks = tuple(counts if one is block else one for one in family.blocks)
    return replace(family, blocks=blocks, present=None)


def spread_evenly(
    script: Script, group: GroupingSet, column: StatisticColumn, family: Family
) -> Family | None:
    """Return queries of counts that answer a sum or a distribution for evenly spread values.

    Returns:
        Queries of the same shape; None if nothing can be spread, or they are too large.
    """
    blocks = []
    for block, axes in zip(family.blocks, column.axes, strict=True):
        grouped = any(axis < len(group.axes) for axis in axes)
        if grouped or not set(block.attributes) <= column.over:
            blocks.append(block)
            continue
        if block.queries.rows * block.queries.cells > MAX_ENTRIES:
            return None
        shares = [even_shares(script, name) for name in block.attributes]
        even = reduce(np.multiply.outer, shares).ravel()
        means = block.queries.apply(even, 0)
        rows = Dense(np.outer(means, np.ones(block.queries.cells)))
        blocks.append(replace(block, queries=rows))
    return replace(family, blocks=tuple(blocks)) if column.over else None


def counts_of(script: Script, past: Past, earlier: Sequence[Earlier] = ()) -> Counts | None:
    """Return what earlier measurements say of a script's statistics; None if that is nothing."""
    if not past.sources:
        return None
    try:
        counts = Counts(script, past, earlier)
    except (ResourceLimitError, np.linalg.LinAlgError):  # too large, or too far apart
        return None
    return counts if counts.spread else None
