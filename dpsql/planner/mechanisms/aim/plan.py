"""What is public about a data-adaptive release before it begins: what may be measured, and is paid.

The candidates of a round are all nonempty subsets of the workload's attribute sets (AIM, 4.1:
the downward closure). The candidate r has the weight

    w_r = Σ_s c_s |r ∩ s| = Σ_{i∈r} Σ_{s∋i} c_s

over the attribute sets s of the workload, with c_s the weight of the families over s: the more a
marginal shares with those that are asked for, the more its measurement improves (AIM, 4.2).
Attributes with one cell only say nothing and are left out.
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
from dpsql.linalg.subsets import subsets
from dpsql.planner.mechanisms.base import Mechanism, Options, reason_of_kind
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.privacy import Budget
from dpsql.workload import Workload

Attributes = tuple[str, ...]

_FINEST = 1 << 16
"""Weights are whole numbers up to this one."""


@dataclass(frozen=True)
class Targets:
    """The attribute sets of a workload, in domain order, without attributes of one cell."""

    sizes: Mapping[str, int]
    """Attribute → its number of cells, at least 2, in domain order."""
    weights: Mapping[Attributes, float]
    """Attribute set → the weight of the families over it."""

    @classmethod
    def of(cls, workload: Workload) -> Targets:
        """Collect the attribute sets of all families."""
        sizes = {name: n for name, n in workload.domain.items() if n > 1}
        weights: dict[Attributes, float] = {}
        for family in workload.families:
            inside = family.attributes
            attributes = tuple(name for name in sizes if name in inside)
            weights[attributes] = weights.get(attributes, 0.0) + family.weight
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
    def candidates(self) -> Mapping[Attributes, int]:
        """Candidate → w_r, as whole numbers from 1 to 65,536."""
        single = {
            name: math.fsum(weight for s, weight in self.weights.items() if name in s)
            for name in self.sizes
        }
        sums = {r: math.fsum(single[a] for a in r) for r in self.closure if r}
        unit = _FINEST / max(sums.values(), default=1.0)
        return {r: max(1, round(unit * weight)) for r, weight in sums.items()}

    def cells(self, attributes: Attributes) -> int:
        """Return the number of cells of a marginal."""
        return math.prod(self.sizes[a] for a in attributes)


MAX_CELLS = 1 << 26
"""Of all marginals together, which are held at once."""
MAX_PARTS = 1 << 18
"""Pairs of an attribute set and one inside it, which is the work of a round."""
MAX_SETS = 1 << 16
"""Attribute sets inside those of the workload: each is a candidate in every round."""
MAX_LISTED = 1 << 20
"""Subsets that are listed to find them."""


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
    def targets(self) -> Targets:
        """The attribute sets that are asked about."""
        return Targets.of(self.workload)

    @property
    def marginals(self) -> tuple[Attributes, ...]:
        """The attribute sets whose marginals have to be counted, in domain order."""
        return self.targets.largest

    @property
    def privacy_cost(self) -> Fraction:
        """What is charged as μ², exactly: the whole budget. No more is spent."""
        return self.budget.mu_squared

    @property
    def digest(self) -> str:
        """A hash of all that decides what may be measured, and for whom, for the ledger."""
        targets = self.targets
        public = (
            self.mechanism,
            self.contributions,
            self.privacy_cost,
            tuple(targets.sizes.items()),
            tuple(sorted(targets.weights.items())),
        )
        return hashlib.sha256(repr(public).encode()).hexdigest()

    def explain(self) -> str:
        """Describe what will happen."""
        cells = sum(map(self.targets.cells, self.marginals))
        return "\n".join(
            [
                f"AIM+GReM plan: {self.workload.count:,} queries in "
                f"{len(self.workload.families)} families, {len(self.marginals):,} marginals of "
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
    reason = reason_of_kind(workload, budget)
    if reason is not None:
        return reason
    if any(family.measure is not None for family in workload.families):
        return (
            "it fits numbers of rows of one table, and neither sums of their values, nor rows of "
            "other tables, nor numbers of units follow from these"
        )
    targets = Targets.of(workload)
    widest = max(map(len, targets.weights))
    listed = 1 << widest <= MAX_SETS and targets.closure_bound <= MAX_LISTED
    if not listed or len(targets.closure) > MAX_SETS:
        return f"there would be more than {MAX_SETS:,} attribute sets to choose from"
    if sum(1 << len(part) for part in targets.closure) > MAX_PARTS:
        return "its marginals have too many attributes: each is made of all that are inside of it"
    cells = sum(map(targets.cells, targets.largest))
    if cells > MAX_CELLS:
        return f"its marginals have {cells:,} cells in all, above the limit of {MAX_CELLS:,}"
    return None
