"""All mechanisms by name: which of them can answer a workload, and their plans.

QuerySmasher is the default; ResidualPlanner, ResidualPlanner+ and Fourier factorizations are
QuerySmasher with fewer strategies to choose from; HDMM and plain noise measure marginals as they
are. Answers by pairs of columns are fitted to these; AIM chooses what it measures by the data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dpsql.errors import DpsqlError, InternalError, MechanismError, WorkloadError, printable
from dpsql.hints import option, spend
from dpsql.linalg.threads import one_thread
from dpsql.planner.mechanisms.base import (
    DEFAULT,
    Cost,
    Mechanism,
    Options,
    Solved,
    budget_of,
    check_how,
)
from dpsql.planner.mechanisms.compared import Again
from dpsql.planner.mechanisms.distinct_units import Most, plan_units
from dpsql.planner.mechanisms.measures import Part, parts, plan_parts
from dpsql.planner.mechanisms.querysmasher import QuerySmasher, plan_by, plan_inside
from dpsql.planner.plans.objectives import least_budget, least_largest
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER, Traits
from dpsql.planner.reconstruction.sources import RESIDUALS
from dpsql.privacy import Budget
from dpsql.workload import Workload

if TYPE_CHECKING:
    from dpsql.planner.mechanisms.aim import AdaptivePlan


@cache
def mechanism_of(name: str) -> Mechanism:
    """Return a mechanism; those that few plans need are imported when asked for."""
    match name:
        case "querysmasher":
            return QuerySmasher()
        case "residualplanner":
            from dpsql.planner.mechanisms.residualplanner import ResidualPlanner

            return ResidualPlanner()
        case "residualplanner+":
            from dpsql.planner.mechanisms.residualplanner import ResidualPlannerPlus

            return ResidualPlannerPlus()
        case "fourier":
            from dpsql.planner.mechanisms.fourier import Fourier

            return Fourier()
        case "hdmm":
            from dpsql.planner.mechanisms.hdmm import Hdmm

            return Hdmm()
        case "gaussian" | "laplace":
            from dpsql.planner.mechanisms.direct import DirectNoise

            return DirectNoise(name)
        case "pairs":
            from dpsql.planner.mechanisms.pairs import Pairs

            return Pairs()
        case "aim":
            from dpsql.planner.mechanisms.aim import Aim

            return Aim()
    raise InternalError(f"{name!r} has no case in `mechanism_of`, which MECHANISMS lets through")


@one_thread
def plan(
    workload: Workload,
    budget: Budget | None,
    mechanism: str = QUERYSMASHER,
    options: Options = DEFAULT,
) -> Plan:
    """Plan a workload.

    Args:
        workload: what to answer.
        budget: what may be spent; None if there are targets.
        mechanism: a name, see `traits`.
        options: what the plan is to be like.

    Raises:
        MechanismError: there is no such mechanism, it can't answer the workload within a budget
            of this kind, or has no such options; or it chooses what it measures by the data.
        WorkloadError: the workload is empty, or an option is out of range.
        ResourceLimitError: a strategy would be too large.
    """
    traits = traits_of(mechanism)
    check_how(options.tolerance, options.residuals, options.objective)
    if not workload.families:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    parts(workload)  # what is wrong with its measures is no mechanism's reason
    if not workload.count:  # nothing is asked, whoever is to answer
        mechanism = QUERYSMASHER
        if options.targets is not None:
            raise WorkloadError(
                "Nothing noisy is asked for, so that it has no error.",
                hint="give a budget, of which nothing is spent: " + spend(rho="0.5") + ".",
            )
    elif not traits.is_adaptive:
        _check(workload, budget, traits, options)
    return planned(workload, budget, mechanism, options)


def planned(workload: Workload, budget: Budget | None, mechanism: str, options: Options) -> Plan:
    """Plan a workload by a mechanism that has no reason to refuse, and takes such options.

    Raises:
        ResourceLimitError: its marginals are too large together.
        InternalError: it measures something else than its traits say; saved releases are read by
            these, so what was paid for would pass for damaged.
    """
    workload.check_cells()
    by = mechanism_of(mechanism)
    plan_ = _planned(by.measured(workload), budget, by, options)
    each = list(plan_.parts.values()) or [plan_]
    marginals = any(plan.reconstruction.reading != RESIDUALS for plan in each)
    if marginals != MECHANISMS[mechanism].measures_marginals:
        measured = "marginals" if marginals else "residual spaces"
        raise InternalError(f"{mechanism!r} measures {measured}: its traits say something else")
    return replace(plan_, neighbours=options.neighbours, mechanism=mechanism)


def _planned(
    workload: Workload, budget: Budget | None, mechanism: Mechanism, options: Options
) -> Plan:
    """Plan counts and each measure apart, if there are measures."""
    if all(family.measure is None for family in workload.families):
        return mechanism.plan(workload, budget, options)

    plainly = replace(options, targets=None, objective="total", solved=Solved())
    compare = mechanism.traits.name == QUERYSMASHER and options.contributions == 1

    def apart(part: Part, share: Budget) -> Plan:
        if part.of_units:
            plain = mechanism.traits.name in {"gaussian", "laplace"}
            of = Cost(share, options.contributions)
            marginals = mechanism.traits.measures_marginals
            most = Most(part.rows, part.bound)
            return plan_units(part.workload, of, most, best=not plain, marginals=marginals)
        rows = options.contributions * part.rows
        part_options = replace(plainly, bound=part.bound, contributions=rows)
        return mechanism.plan(part.workload, share, part_options)

    def cost_at(budget: Budget) -> Cost:
        return Cost(
            budget, options.contributions, spreads=options.spreads, supports=options.supports
        )

    def by(part: Part, share: Budget, again: Again) -> Plan:
        cost = Cost(share, options.contributions * part.rows, part.bound)
        how = again.merged, again.root, again.lower
        return plan_by(part.workload, cost, *how) or apart(part, share)

    def inside(part: Part, share: Budget, like: Plan) -> Plan | None:
        if part.of_units:
            return None
        cost = Cost(share, options.contributions * part.rows, part.bound, options.spreads)
        solved = plainly.solved or Solved()
        return plan_inside(part.workload, cost, like, options.tolerance, solved)

    def planner(weighted: Workload, at: Budget, _: Plan | None) -> Plan:
        best = mechanism.traits.name == QUERYSMASHER
        return plan_parts(
            weighted,
            cost_at(at),
            apart,
            by if compare else None,
            inside=inside if best else None,
            by=by if best else None,
            tolerance=options.tolerance,
        )

    if options.targets is not None:
        return least_budget(workload, options.targets, planner, whole=False)
    if options.objective == "largest":
        return least_largest(workload, budget_of(budget), planner, whole=False)
    return planner(workload, budget_of(budget), None)


def adaptive_plan(workload: Workload, budget: Budget | None, options: Options) -> AdaptivePlan:
    """Plan a data-adaptive release: what will be counted and charged, but not what is measured.

    Raises:
        MechanismError: it can't answer the workload within a budget of this kind.
    """
    from dpsql.planner.mechanisms.aim import AdaptivePlan, Aim

    _check(workload, budget, Aim.traits, options)
    return AdaptivePlan(workload, budget_of(budget), options.contributions, options.neighbours)


def reason_unsupported(mechanism: str, workload: Workload, budget: Budget) -> str | None:
    """Say why a mechanism can't answer a workload, as a clause; None if it can."""
    try:
        planner = mechanism_of(mechanism)
        if planner.traits.is_biased:
            return planner.reason_unsupported(workload, budget)
        apart = [part.workload for part in parts(workload)] or [workload]
        reasons = (planner.reason_unsupported(part, budget) for part in apart)
        return next((reason for reason in reasons if reason is not None), None)
    except DpsqlError as error:
        return error.message


def able(workload: Workload, budget: Budget) -> tuple[str, ...]:
    """Name the mechanisms that can answer a workload."""
    return tuple(name for name in MECHANISMS if not reason_unsupported(name, workload, budget))


def traits_of(mechanism: object) -> Traits:
    """Return what is known of a mechanism.

    Raises:
        MechanismError: there is none of that name.
    """
    if not isinstance(mechanism, str) or mechanism not in MECHANISMS:
        shown = printable(mechanism) if isinstance(mechanism, str) else type(mechanism).__name__
        raise MechanismError(
            f"There is no mechanism {shown!r}.", hint=f"the names are {', '.join(MECHANISMS)}."
        )
    return MECHANISMS[mechanism]


def _check(workload: Workload, budget: Budget | None, traits: Traits, options: Options) -> None:
    """Refuse what a mechanism can't do, and what it can't answer."""
    if options.targets is not None and not traits.meets_targets:
        raise MechanismError(
            f"{traits.title} has no search for the least budget that meets targets.",
            hint="leave " + option("mechanism") + " out, or give a budget.",
        )
    if options.objective != "total" and not traits.minimizes_largest:
        raise MechanismError(
            f"{traits.title} makes the total variance small, and nothing else.",
            hint="leave "
            + option("objective")
            + " out, or use "
            + option("mechanism", QUERYSMASHER)
            + ".",
        )
    for name, given in (("bases", options.bases), ("loss", options.loss)):
        if given is not None and name not in traits.takes:
            (owner,) = (other.name for other in MECHANISMS.values() if name in other.takes)
            raise MechanismError(
                f"{traits.title} takes no {name}.",
                hint=f'leave {name}= out, or use mechanism="{owner}".',
            )
    if budget is None:
        if options.targets is None:
            raise MechanismError(
                "A plan needs a budget.", hint="for example " + spend(rho="0.5") + "."
            )
        return
    reason = reason_unsupported(traits.name, workload, budget)
    if reason is not None:
        others = ", ".join(able(workload, budget)) or "none"
        raise MechanismError(
            f"{traits.title} can't answer this: {reason}.", hint=f"mechanisms that can: {others}."
        )
