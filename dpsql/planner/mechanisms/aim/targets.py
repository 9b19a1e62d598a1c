"""What may be measured: the candidates of a round, and what each is worth.

The candidates are all nonempty subsets of the attribute sets that are asked about (AIM, 4.1: the
downward closure). The candidate r serves

    ω_r = Σ_s c_s |r ∩ s| = Σ_{i∈r} Σ_{s∋i} c_s

over the attribute sets s of the workload, with c_s the weight of the families over s: the more a
marginal shares with those that are asked for, the more its measurement improves (AIM, 4.2).
Attributes with one cell only say nothing and are left out.

*Several tables* with rows of the same units have candidates each, and one is chosen among all of
them. One unit changes the counts of a table by up to k rows of it, and noise is k times as large.
So errors are compared in units of k rows: the sum of the errors over a marginal is worth ω_r/k for
each row. What is made small is then of one kind with what other mechanisms do, for which errors of
such a table are divided by k, and their squares by k² (see `workload.workload`, of which c_s is the
weight before that). And as a unit changes Σ|error| by at most k rows, it changes what this is worth
by at most ω_r, whatever table r is of: no table makes the choice among others less exact, as one
with a large k would if rows of all tables were worth the same.

ω_r grows with how many sets are asked of its table, as r shares attributes with more of them. But
most of what a measurement improves is the marginal itself. So the ω_r of each table have a factor
by which the sets that are asked are worth their weights, Σ_s ω_s = Σ_s c_s. (Without it the total
error over three tables was up to 8 % larger, see `tests/benchmarks/aim_tables.py`.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dpsql.linalg.sets import subsets
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.reconstruction.sources import of_measure
from dpsql.workload import Workload

Attributes = tuple[str, ...]

_FINEST = 1 << 16
"""What candidates are worth for k rows, at least, is a whole number up to this one."""


@dataclass(frozen=True)
class Targets:
    """The attribute sets of a workload, in domain order, without attributes of one cell."""

    sizes: Mapping[str, int]
    """Attribute → its number of cells, at least 2, in domain order."""
    weights: Mapping[Attributes, float]
    """Attribute set → the weight of the families over it."""

    @classmethod
    def of(cls, workload: Workload, rows: int = 1) -> Targets:
        """Collect the attribute sets of all families, whose weights are divided by rows²."""
        touched = {name for family in workload.families for name in family.names}
        sizes = {name: n for name, n in workload.domain.items() if n > 1 and name in touched}
        weights: dict[Attributes, float] = {}
        for family in workload.families:
            inside = family.attributes
            attributes = tuple(name for name in sizes if name in inside)
            weights[attributes] = weights.get(attributes, 0.0) + rows**2 * family.weight
        return cls(sizes, weights)

    @cached_property
    def largest(self) -> tuple[Attributes, ...]:
        """The attribute sets that are inside no other."""
        inside: set[frozenset[str]] = set()
        found = []
        for attributes in sorted(self.weights, key=len, reverse=True):
            if frozenset(attributes) not in inside:
                found.append(attributes)
                inside.update(map(frozenset, subsets(attributes)))
        return tuple(found)

    @cached_property
    def closure(self) -> tuple[Attributes, ...]:
        """All subsets of the attribute sets, the smallest first, in domain order."""
        order = {name: place for place, name in enumerate(self.sizes)}
        every = {part for attributes in self.largest for part in subsets(attributes)}
        return tuple(sorted(every, key=lambda part: (len(part), [order[a] for a in part])))

    @property
    def closure_bound(self) -> int:
        """At most how many sets the closure has; cheap, where there may be too many."""
        return sum(1 << len(attributes) for attributes in self.weights)

    @cached_property
    def served(self) -> Mapping[Attributes, float]:
        """Candidate → ω_r; and of the total, as much as of the attribute that serves most.

        Where nothing but the total is asked, it serves that.
        """
        asked = {s: weight for s, weight in self.weights.items() if s}
        if not asked:
            return {(): math.fsum(self.weights.values())}
        single = {a: 0.0 for s in asked for a in s}
        for s, weight in asked.items():
            for a in s:
                single[a] += weight
        shared = math.fsum(single[a] for s in asked for a in s)
        unit = math.fsum(asked.values()) / shared
        found = {r: unit * math.fsum(single[a] for a in r) for r in self.closure if r}
        return {(): unit * max(single.values()), **found}

    def cells(self, attributes: Attributes) -> int:
        """Return the number of cells of a marginal."""
        return math.prod(self.sizes[a] for a in attributes)


@dataclass(frozen=True)
class TableTargets:
    """What is asked about a table: the only one, or one of several with rows of the same units."""

    targets: Targets
    measure: str | None
    """The axis of its counts, if it is one of several."""
    rows: int
    """How many rows of a record are counted: one, unless a record is all that a unit has."""
    change: int
    """k: how many rows of one privacy unit are counted."""
    row: float
    """What a row is worth, in a marginal with ω = 1."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Attribute → its number of cells."""
        return self.targets.sizes

    @cached_property
    def worth(self) -> Mapping[Attributes, int]:
        """Candidate, or the total → w_r = ω_r/k, in whole numbers from 1: what a row is worth."""
        return {r: max(1, round(self.row * served)) for r, served in self.targets.served.items()}

    @cached_property
    def candidates(self) -> Mapping[Attributes, int]:
        """Candidate → w_r."""
        return {r: worth for r, worth in self.worth.items() if r}

    def marginal(self, attributes: Attributes) -> Attributes:
        """Return some attributes as a marginal among those of all tables."""
        return attributes if self.measure is None else (*attributes, self.measure)

    def block(self, block: BlockStrategy) -> BlockStrategy:
        """Return measurements of the table as such among those of all tables."""
        return block if self.measure is None else of_measure(block, self.measure, 1, self.rows)


def by_table(workload: Workload, contributions: int) -> tuple[TableTargets, ...]:
    """Collect what is asked about each table.

    Args:
        workload: counts of rows, of one table or of several.
        contributions: how many records of one privacy unit are counted.
    """
    divided = parts(workload)
    found = [Targets.of(part.workload, part.rows) for part in divided]
    changes = [contributions * part.rows for part in divided]
    most = max(served for targets in found for served in targets.served.values())
    unit = _FINEST * max(changes) / most
    return tuple(
        TableTargets(targets, part.measure, part.rows, change, unit / change)
        for part, targets, change in zip(divided, found, changes, strict=True)
    )
