"""What is public about a data-adaptive release before it begins: what may be measured, and is paid.

Of several tables with rows of the same units one plan is made, and one charge pays for it: one
allowance, from which all rounds are paid, whatever table each of them looks at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpsql.errors import InternalError, MechanismError
from dpsql.hints import call, option
from dpsql.planner.mechanisms.aim.targets import Attributes, TableTargets, Targets, by_table
from dpsql.planner.mechanisms.base import Mechanism, Options, reason_of_counts
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.privacy import Budget
from dpsql.workload import Workload

MAX_CELLS = 1 << 26
"""Of all marginals together, which are held at once."""
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
        """What is asked about each table."""
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
        """What is charged as μ², exactly: the whole budget. No more is spent."""
        return self.budget.mu_squared

    @property
    def bounds(self) -> Mapping[str, int]:
        """Of several tables: axis of the counts → how many rows of one unit may be counted."""
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
