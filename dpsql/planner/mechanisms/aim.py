"""AIM with GReM: marginals are chosen by how badly they are known, and measured one by one.

"AIM+GReM" is by Fuentes, Mullins, Xiao, Kifer, Musco and Sheldon ("Fast private adaptive query
answering for large data domains"), after AIM by McKenna, Mullins, Sheldon and Miklau (VLDB 2022).

Here is what is public about such a release before it begins: what is charged and can't be answered,
what may be measured of each table and what that is worth. The rounds, and the estimates that they
make and are decided by, are in `aim_rounds`.

Of several tables with rows of the same units one plan is made, and one charge pays for it: one
allowance, from which all rounds are paid, whatever table each of them looks at.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsql.errors import InternalError, MechanismError
from dpsql.hints import call, option
from dpsql.linalg.sets import subsets
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.mechanisms.base import Mechanism, Options, reason_of_counts
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.cellwise import Attributes
from dpsql.planner.reconstruction.sources import of_measure
from dpsql.privacy import Budget
from dpsql.workload import Workload

MAX_CELLS = 1 << 26
"""The cells of all marginals together, which are held at once."""
MAX_PARTS = 1 << 18
"""Pairs of an attribute set and one inside it, which is the work of a round."""
MAX_SETS = 1 << 16
"""Attribute sets inside those of the workload: each is a candidate in every round."""
MAX_LISTED = 1 << 20
"""Subsets that are listed to find them."""
_TOO_MANY = f"there would be more than {MAX_SETS:,} attribute sets to choose from"


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """A workload and the budget that `aim.run` may spend on it.

    What will be measured is chosen on the way, by what was measured before. So there are no
    expected errors, and the answers have no variances. An allowance sees to it that the cost stays
    within the budget's μ².

    Raises:
        InternalError: the workload can't be answered; see `reason_unsupported`.
    """

    workload: Workload
    budget: Budget
    contributions: int = 1
    """The most records of one privacy unit that are counted."""
    neighbours: str = RECORD
    """In what data sets differ that can hardly be told apart: whom the plan protects."""

    def __post_init__(self) -> None:
        if type(self.contributions) is not int or self.contributions < 1:
            raise InternalError("a unit contributes a whole number of records, at least one")
        if reason_unsupported(self.workload, self.budget) is not None:
            raise InternalError("a workload was planned that can't be answered")

    @property
    def mechanism(self) -> str:
        """The name in `mechanism=`, as other plans have one."""
        return Aim.traits.name

    @cached_property
    def tables(self) -> tuple[TableTargets, ...]:
        """The targets of each table: what is asked about it."""
        return by_table(self.workload, self.contributions)

    def table(self, measure: str | None) -> TableTargets:
        """Return what is asked about the table of which the counts have an axis; None for the only.

        Raises:
            InternalError: nothing is.
        """
        for table in self.tables:
            if table.measure == measure:
                return table
        raise InternalError("a table was asked for that was not estimated")

    @property
    def marginals(self) -> tuple[Attributes, ...]:
        """The attribute sets whose marginals have to be counted, in domain order.

        Of several tables, with the axis of the table's counts behind them.
        """
        return tuple(t.marginal(largest) for t in self.tables for largest in t.targets.largest)

    @property
    def privacy_cost(self) -> Fraction:
        """The amount charged as μ², exactly: the whole budget. No more is spent."""
        return self.budget.mu_squared

    @property
    def delta(self) -> Fraction:
        """The δ charged besides: none, as all that it tells has noise."""
        return Fraction(0)

    @property
    def bounds(self) -> Mapping[str, int]:
        """The bounds of several tables: axis of the counts → the most rows of one unit counted."""
        return {table.measure: table.rows for table in self.tables if table.measure is not None}

    @property
    def digest(self) -> str:
        """A hash of all that decides what may be measured, and for whom, for the ledger."""
        sizes = {name: n for name, n in self.workload.domain.items() if n > 1}
        asked = [tuple(sorted(table.targets.weights.items())) for table in self.tables]
        several = [(measure, rows) for measure, rows in self.bounds.items()]
        public = (
            self.mechanism,
            self.contributions,
            self.privacy_cost,
            tuple(sizes.items()),
            *asked,
            *several,
        )
        return hashlib.sha256(repr(public).encode()).hexdigest()

    def explain(self) -> str:
        """Describe what will happen."""
        each = [(t, largest) for t in self.tables for largest in t.targets.largest]
        cells = sum(table.targets.cells(largest) for table, largest in each)
        return "\n".join(
            [
                f"AIM+GReM plan: {self.workload.count:,} queries in "
                f"{len(self.workload.families)} families, {len(each):,} marginals of "
                f"{cells:,} cells in all",
                f"budget {self.budget}; privacy cost mu^2 = {float(self.privacy_cost):.6g}",
                f"neighbours: {self.neighbours}",
                "what is measured depends on the data; answers are biased and have no variance",
            ]
        )


class Aim(Mechanism):
    """Chooses what it measures by the data, so that its plans are of another kind."""

    traits = MECHANISMS["aim"]

    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say why it can't answer."""
        return reason_unsupported(workload, budget)

    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Refuse: there are no expected errors.

        Raises:
            MechanismError: always.
        """
        raise MechanismError(
            f"{self.traits.title} chooses what it measures by the data: there are no expected "
            "errors that could be planned.",
            hint=call("session.release", option("mechanism", self.traits.name))
            + " answers with it.",
        )


def reason_unsupported(workload: Workload, budget: Budget) -> str | None:
    """Say why the mechanism can't answer, as a clause; None if it can."""
    reason = reason_of_counts(workload, budget)
    if reason is not None:
        return reason
    each = [Targets.of(part.workload) for part in parts(workload)]
    sets = [attributes for targets in each for attributes in targets.weights]
    if 1 << max(map(len, sets)) > MAX_SETS or sum(t.closure_bound for t in each) > MAX_LISTED:
        return _TOO_MANY
    if sum(len(targets.closure) for targets in each) > MAX_SETS:
        return _TOO_MANY
    if sum(1 << len(part) for targets in each for part in targets.closure) > MAX_PARTS:
        return "its marginals have too many attributes: each is made of all that are inside of it"
    cells = sum(targets.cells(largest) for targets in each for largest in targets.largest)
    if cells > MAX_CELLS:
        return f"its marginals have {cells:,} cells in all, above the limit of {MAX_CELLS:,}"
    return None


# ── Targets: the candidates of a round, and what each is worth ───────────────────────────────────
#
# The candidates are all nonempty subsets of the attribute sets that are asked about (AIM, 4.1: the
# downward closure). The candidate r serves
#
#     ω_r = Σ_s c_s |r ∩ s| = Σ_{i∈r} Σ_{s∋i} c_s
#
# over the attribute sets s of the workload, with c_s the weight of the families over s: the more a
# marginal shares with those that are asked for, the more its measurement improves (AIM, 4.2).
# Attributes with one cell only say nothing and are left out.
#
# *Several tables* with rows of the same units have candidates each, and one is chosen among all of
# them. One unit changes the counts of a table by up to k rows of it, and noise is k times as large.
# So errors are compared in units of k rows: the sum of the errors over a marginal is worth ω_r/k
# for each row. What is made small is then of one kind with what other mechanisms do, for which
# errors of such a table are divided by k, and their squares by k² (see `workload.workload`, of
# which c_s is the weight before that). And as a unit changes Σ|error| by at most k rows, it changes
# what this is worth by at most ω_r, whatever table r is of: no table makes the choice among others
# less exact, as one with a large k would if rows of all tables were worth the same.
#
# ω_r grows with how many sets are asked of its table, as r shares attributes with more of them. But
# most of what a measurement improves is the marginal itself. So the ω_r of each table have a factor
# by which the sets that are asked are worth their weights, Σ_s ω_s = Σ_s c_s. (Without it the total
# error over three tables was up to 8 % larger, see `tests/benchmarks/aim_tables.py`.)


_FINEST = 1 << 16
"""The least worth of candidates for k rows is a whole number up to this one."""


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
        kept = []
        for attributes in sorted(self.weights, key=len, reverse=True):
            if frozenset(attributes) not in inside:
                kept.append(attributes)
                inside.update(map(frozenset, subsets(attributes)))
        return tuple(kept)

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
        weights = {r: unit * math.fsum(single[a] for a in r) for r in self.closure if r}
        return {(): unit * max(single.values()), **weights}

    def cells(self, attributes: Attributes) -> int:
        """Return the number of cells of a marginal."""
        return math.prod(self.sizes[a] for a in attributes)


@dataclass(frozen=True)
class TableTargets:
    """The targets of a table: the only one, or one of several with rows of the same units."""

    targets: Targets
    measure: str | None
    """The axis of its counts, if it is one of several."""
    rows: int
    """The rows of a record that are counted: one, unless a record is all that a unit has."""
    change: int
    """k: how many rows of one privacy unit are counted."""
    row: float
    """The worth of a row, in a marginal with ω = 1."""

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
    each = [Targets.of(part.workload, part.rows) for part in divided]
    changes = [contributions * part.rows for part in divided]
    most = max(served for targets in each for served in targets.served.values())
    unit = _FINEST * max(changes) / most
    return tuple(
        TableTargets(targets, part.measure, part.rows, change, unit / change)
        for part, targets, change in zip(divided, each, changes, strict=True)
    )
