"""All mechanisms by name: which of them can answer a workload, and their plans.

Each is a module of its own. QuerySmasher is the default; ResidualPlanner, ResidualPlanner+ and
Fourier factorizations are QuerySmasher with fewer strategies to choose from; HDMM and plain noise
measure marginals as they are; AIM chooses what it measures by the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from dpsql.errors import DpsqlError, InternalError, MechanismError, printable
from dpsql.hints import call, option, spend
from dpsql.linalg.threads import one_thread
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.mechanisms.aim.plan import AdaptivePlan
from dpsql.planner.mechanisms.arguments import Basis, Loss
from dpsql.planner.mechanisms.querysmasher import ObjectiveName, Residuals
from dpsql.planner.plans.names import AIM, QUERYSMASHER, TITLES
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.privacy import Budget
from dpsql.workload import Workload

LARGEST = frozenset({QUERYSMASHER, "residualplanner"})
"""Mechanisms that can make the largest variance small, in place of the total."""

_ROOM = "dpsql.planner.mechanisms"
_ROOMS: Mapping[str, tuple[str, str]] = {
    "residualplanner": (f"{_ROOM}.residualplanner", "refusal"),
    "residualplanner+": (f"{_ROOM}.residualplanner_plus", "refusal"),
    "fourier": (f"{_ROOM}.fourier", "refusal"),
    "hdmm": (f"{_ROOM}.hdmm.plan", "refusal"),
    "gaussian": (f"{_ROOM}.direct", "gaussian_refusal"),
    "laplace": (f"{_ROOM}.direct", "laplace_refusal"),
    AIM: (f"{_ROOM}.aim.plan", "refusal"),
}
"""Mechanism → its module, and who tells there what it can't answer; imported when asked for."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan is to be like; see `querysmasher.plan`."""

    tolerance: float = querysmasher.DEFAULT_TOLERANCE
    residuals: Residuals = "weighted"
    objective: ObjectiveName = "total"
    targets: Mapping[str, float] | None = None
    contributions: int = 1
    neighbours: str = RECORD
    bases: Mapping[str, Basis] | None = None
    """Of ResidualPlanner+: attribute → what its strategy is made for."""
    loss: Loss | None = None
    """Of ResidualPlanner: a convex function of the variances."""


DEFAULT = Options()


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
        mechanism: a name, see `titles`.
        options: what the plan is to be like.

    Raises:
        MechanismError: there is no such mechanism, it can't answer the workload within a budget
            of this kind, or has no such options; or it chooses what it measures by the data.
        WorkloadError: the workload is empty, or an option is out of range.
        ResourceLimitError: a strategy would be too large.
    """
    check_name(mechanism)
    querysmasher.check_how(options.tolerance, options.residuals, options.objective)
    if mechanism == AIM:
        raise MechanismError(
            f"{TITLES[AIM]} chooses what it measures by the data: there are no expected errors "
            "that could be planned.",
            hint=call("session.release", option("mechanism", AIM)) + " answers with it.",
        )
    nothing = bool(workload.families) and not workload.count
    if not nothing:
        _check(workload, budget, mechanism, options)
    return planned(workload, budget, QUERYSMASHER if nothing else mechanism, options)


def planned(workload: Workload, budget: Budget | None, mechanism: str, options: Options) -> Plan:
    """Plan a workload by a mechanism that has no reason to refuse, and takes such options."""
    if mechanism == QUERYSMASHER:
        return querysmasher.plan(
            workload,
            budget,
            tolerance=options.tolerance,
            residuals=options.residuals,
            objective=options.objective,
            targets=options.targets,
            contributions=options.contributions,
            neighbours=options.neighbours,
        )
    more = {
        name: value
        for name, value, usual in (
            ("objective", options.objective, "total"),
            ("bases", options.bases, None),
            ("loss", options.loss, None),
        )
        if value != usual
    }
    found: Plan = import_module(_ROOMS[mechanism][0]).plan(
        workload,
        budget,
        contributions=options.contributions,
        neighbours=options.neighbours,
        **more,
    )
    return found


def adaptive_plan(workload: Workload, budget: Budget | None, options: Options) -> AdaptivePlan:
    """Plan a data-adaptive release: what will be counted and charged, but not what is measured.

    Raises:
        MechanismError: it can't answer the workload within a budget of this kind.
    """
    _check(workload, budget, AIM, options)
    if budget is None:
        raise InternalError("a plan without a budget was let through")
    return AdaptivePlan(workload, budget, options.contributions, options.neighbours)


def refusal(mechanism: str, workload: Workload, budget: Budget) -> str | None:
    """Say why a mechanism can't answer a workload, as a clause; None if it can."""
    if mechanism == QUERYSMASHER:
        return "its Gaussian noise gives no pure ε" if budget.pure else None
    module, name = _ROOMS[mechanism]
    reason: Callable[[Workload, Budget], str | None] = getattr(import_module(module), name)
    try:
        return reason(workload, budget)
    except DpsqlError as error:
        return error.message


def able(workload: Workload, budget: Budget) -> tuple[str, ...]:
    """Name the mechanisms that can answer a workload."""
    return tuple(name for name in TITLES if refusal(name, workload, budget) is None)


def check_name(mechanism: object) -> None:
    """Refuse what is no mechanism.

    Raises:
        MechanismError: it isn't.
    """
    if not isinstance(mechanism, str) or mechanism not in TITLES:
        shown = printable(mechanism) if isinstance(mechanism, str) else type(mechanism).__name__
        raise MechanismError(
            f"There is no mechanism {shown!r}.", hint=f"the names are {', '.join(TITLES)}."
        )


def _check(workload: Workload, budget: Budget | None, mechanism: str, options: Options) -> None:
    title = TITLES[mechanism]
    if mechanism != QUERYSMASHER and options.targets is not None:
        raise MechanismError(
            f"{title} has no search for the least budget that meets targets.",
            hint="leave " + option("mechanism") + " out, or give a budget.",
        )
    if options.objective != "total" and mechanism not in LARGEST:
        raise MechanismError(
            f"{title} makes the total variance small, and nothing else.",
            hint="leave "
            + option("objective")
            + " out, or use "
            + option("mechanism", QUERYSMASHER)
            + ".",
        )
    for name, owner, given in (
        ("bases", "residualplanner+", options.bases),
        ("loss", "residualplanner", options.loss),
    ):
        if given is not None and mechanism != owner:
            raise MechanismError(
                f"{title} takes no {name}.", hint=f'leave {name}= out, or use mechanism="{owner}".'
            )
    if budget is None or not workload.families:
        if budget is None and options.targets is None:
            raise MechanismError(
                "A plan needs a budget.", hint="for example " + spend(rho="0.5") + "."
            )
        return
    reason = refusal(mechanism, workload, budget)
    if reason is not None:
        others = ", ".join(able(workload, budget)) or "none"
        raise MechanismError(
            f"{title} can't answer this: {reason}.", hint=f"mechanisms that can: {others}."
        )
