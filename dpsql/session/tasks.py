"""Tasks that are about to be charged and measured, and the release that is made of the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.answers.facts import Facts
from dpsql.engines.base import Counted, Marginal
from dpsql.measurement.measure import ChargedPlan, NoisyMeasurements, Payable, measure
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.sources import Source
from dpsql.privacy import Receipt
from dpsql.release import Release, from_plan
from dpsql.release.assembly import (
    from_estimates,
    from_pairs,
    measured_source,
    sources_of_rounds,
    used,
)
from dpsql.release.measurements import encode
from dpsql.session.planning import Compiled

if TYPE_CHECKING:
    from dpsql.planner.mechanisms.aim import AdaptivePlan
    from dpsql.planner.mechanisms.aim_rounds import Estimates


@dataclass(frozen=True, slots=True, eq=False)
class PlannedTask:
    """A certified plan, and what is public about its release but for the receipt."""

    asked: Compiled
    plan: Plan
    facts: Facts

    @property
    def payable(self) -> Payable:
        """The plan that is charged for."""
        return self.plan.certified

    @property
    def wanted(self) -> Sequence[Marginal]:
        """The marginals to count: one for each residual space, and the totals that are compared."""
        certified = self.plan.certified
        spaces = [space for block in certified.blocks for space in block.spaces]
        return [*spaces, *((table,) for d in certified.differences for table in d.tables)]

    def measure(self, charged: ChargedPlan, counts: Counted) -> MeasuredPlan:
        """Measure every residual space."""
        self.asked.request.tell("measuring", 0, 1)
        measured = measure(charged, counts)
        own = measured_source(self.plan, self.asked.script, measured, self.asked.before)
        return MeasuredPlan(self, measured, own)

    def release_unmeasured(self) -> Release:
        """Make the release of a plan that measures nothing, as all answers are known."""
        nothing = NoisyMeasurements(self.plan.certified, {})
        return from_plan(self.asked.script, self.plan, self.facts, nothing, ())


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPlan:
    """The noisy measurements of a certified plan."""

    task: PlannedTask
    measured: NoisyMeasurements
    own: tuple[Source, ...]
    """What is kept of them: for each table, if these are several."""

    @property
    def content(self) -> bytes:
        """The bytes that are kept in the ledger."""
        return encode(self.own)

    def release(self, receipt: Receipt) -> Release:
        """Make the release, which may rest on earlier measurements too."""
        plan, asked = self.task.plan, self.task.asked
        sources = (*used(plan, asked.before).sources, *self.own)
        facts = replace(self.task.facts, receipt=receipt)
        if facts.biased:
            return from_pairs(asked.script, plan, facts, self.measured.values, self.own)
        return from_plan(asked.script, plan, facts, self.measured, sources)


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveTask:
    """A plan that chooses what it measures by the data, and what is public about its release."""

    asked: Compiled
    plan: AdaptivePlan
    facts: Facts

    @property
    def payable(self) -> Payable:
        """The plan that is charged for."""
        return self.plan

    @property
    def wanted(self) -> Sequence[Marginal]:
        """The marginals to count: all that may be chosen."""
        return self.plan.marginals

    def measure(self, charged: ChargedPlan, counts: Counted) -> MeasuredRounds:
        """Let each round choose what it measures, by what the ones before have shown."""
        # Whoever planned this has loaded it, before the charge.
        from dpsql.planner.mechanisms.aim_rounds import run

        self.asked.request.tell("measuring", 0, 1)
        estimates = run(charged, counts)
        kept = encode(tuple(sources_of_rounds(self.asked.script, estimates)))
        return MeasuredRounds(self, estimates, kept)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRounds:
    """The measurements of all rounds, and the estimates that follow."""

    task: AdaptiveTask
    estimates: Estimates
    content: bytes
    """The bytes that are kept in the ledger."""

    def release(self, receipt: Receipt) -> Release:
        """Make the release, of answers that follow from the estimates."""
        facts = replace(self.task.facts, receipt=receipt)
        return from_estimates(self.task.asked.script, facts, self.estimates, self.content)


Task = PlannedTask | AdaptiveTask
