"""Checks of requests: what can't be meant is refused before anything is planned or charged."""

from __future__ import annotations

from pathlib import Path

from dpsql.answers.noise import check_confidence
from dpsql.calls import check_above, check_callable, check_path, check_rows, check_switch
from dpsql.errors import ArgumentError, BudgetError, MechanismError, shown
from dpsql.hints import ANY_BUDGET, FREE, Hint, option
from dpsql.planner.registry import traits_of
from dpsql.present.disk import check_target
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.finding import RULES
from dpsql.request import Request

_EXAMPLES = {"keys": "at_least=100", "bounds": "share=0.2", "quantiles": "share=0.5"}


def check_request(request: Request) -> None:
    """Refuse options that can't be meant, or not together.

    Raises:
        BudgetError, MechanismError, ReleaseFormatError, ArgumentError: there is one.
    """
    check_amount(request)
    check_confidence(request.confidence)
    check_switch(
        reuse=request.reuse,
        nonnegative=request.nonnegative,
        integers=request.integers,
        accept_gap=request.accept_gap,
        report_cut=request.report_cut,
        report_moved=request.report_moved,
        standard_errors=request.standard_errors,
    )
    check_rules(keys=request.keys, bounds=request.bounds, quantiles=request.quantiles)
    if not isinstance(request.progress, bool):
        check_callable(progress=request.progress)
    check_path(out=request.out)
    _check_mechanism(request)
    if request.out is not None:
        check_target(Path(request.out))
    check_above(groups_above=request.groups_above)
    check_rows(suppress_below=request.suppress_below)


def check_rules(**given: object) -> None:
    """Refuse what is no rule for finding keys or bounds, or for drawing quantiles.

    Raises:
        ArgumentError: it is something else.
    """
    for name, value in given.items():
        kind = RULES[name]
        if value is not None and not isinstance(value, kind):
            raise ArgumentError(
                f"{name} is a dpsql.{kind.__name__}, not {shown(value)}.",
                hint=f"for example {name}=dpsql.{kind.__name__}({_EXAMPLES[name]}).",
            )


def check_amount(request: Request) -> None:
    """Refuse a missing budget, unless there are targets; and targets that nothing is paid for."""
    if request.free and request.targets is not None:
        raise BudgetError(
            "Targets need a budget to spend, and the budget is 0.",
            hint="leave " + FREE + " out: targets that are met already cost nothing.",
        )
    if not request.free and (request.targets is None or request.budget is not None):
        check_budget(request.budget)


def check_budget(budget: object) -> None:
    """Refuse anything that is not a budget."""
    if budget is None:
        raise BudgetError("There is no budget.", hint="pass " + ANY_BUDGET + ".")
    if not isinstance(budget, Budget):
        raise BudgetError(
            f"A budget must be a dpsql.Budget, not a {type(budget).__name__}.",
            hint="write " + ANY_BUDGET + ".",
        )


def check_key_delta(budget: Budget | None, key_delta: object) -> None:
    """Refuse δ that is set aside of no total, before an account is opened; or more than it has."""
    if key_delta is None:
        return
    if budget is None:
        raise BudgetError(
            "A δ is set aside of a total, or beside it, and there is none.",
            hint="pass the total as well, " + ANY_BUDGET + ".",
        )
    budget.setting_aside(key_delta)  # type: ignore[arg-type]


def _check_mechanism(request: Request) -> None:
    """Refuse what is not a mechanism, and what it can't do.

    Raises:
        MechanismError: that is so.
    """
    traits = traits_of(request.mechanism)
    title = traits.title
    if request.free and not traits.reuses_measurements:
        raise MechanismError(
            f"A budget of 0 measures nothing, with {title} as with any mechanism.",
            hint="leave " + option("mechanism") + " out.",
        )
    if traits.is_biased and request.confidence is not None:
        raise MechanismError(
            f"Answers by {title} are biased, and have no intervals.",
            hint="leave " + option("confidence") + " out.",
        )
    if traits.is_biased and request.groups_above is not None:
        raise MechanismError(
            f"Answers by {title} are biased, and have no standard errors to leave groups out by.",
            hint="leave " + option("groups_above") + " out.",
        )
    if (request.nonnegative or request.integers) and not traits.can_adjust:
        raise MechanismError(
            f"There can be no adjusted columns for answers by {title}.",
            hint="leave "
            + option("nonnegative")
            + " and "
            + option("integers")
            + " out, or use another mechanism.",
        )


def check_most(request: Request, ledger: Ledger) -> None:
    """Refuse targets that nothing limits the cost of.

    Raises:
        BudgetError: there is neither a total nor a most; or a most or rows without targets.
    """
    targets, most = request.targets, request.at_most
    if targets is None and request.assume is not None:
        raise BudgetError(
            "Assumed rows are for targets; without targets, the budget is charged as it is.",
            hint="leave " + option("assume") + " out; a plan shows what it would mean.",
        )
    if targets is None and most is not None:
        raise BudgetError(
            "Without targets, the budget is what is charged.",
            hint="leave " + option("at_most") + " out.",
        )
    if most is not None and not isinstance(most, Budget):
        raise BudgetError(
            f"The most that targets may cost is a dpsql.Budget, not a {type(most).__name__}.",
            hint="write " + _most("0.5") + ".",
        )
    if targets is not None and most is None and ledger.total is None:
        raise BudgetError(
            "Meeting targets may cost any amount, and the data set has no total that limits it.",
            hint="add " + _most("0.5") + ", the most that may be charged.",
        )


def check_cost(budget: Budget, at_most: Budget | None) -> None:
    """Refuse a plan that costs more than targets may.

    Raises:
        BudgetError: it does; nothing was charged.
    """
    if at_most is not None and budget.mu_squared > at_most.mu_squared:
        raise BudgetError(
            f"The targets need {at_most.describe(budget.mu_squared)}, more than the most that "
            f"may be charged: {at_most.describe(at_most.mu_squared)}.",
            hint="allow larger errors, or more.",
        )


def _most(rho: str) -> Hint:
    return Hint(
        f"at_most=dpsql.Budget(rho={rho})",
        f"--at-most --rho {rho}",
        f"a total by %dpsql --total --rho {rho}",
    )
