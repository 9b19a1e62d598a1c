"""Targets: those that mean what they say, and what meeting them may cost.

A target is the largest standard error that the answers of a statement may have. Plans bound the
noise of what is measured: counts, and sums in the units of what is added up. An answer that is
computed from several of these, such as an average, a share or a quantile, has an error that
depends on the rows, so that no target in rows can bound it.

If rows are assumed, averages and shares can have targets in their own units. They are translated
into targets of the sums and counts that they are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from dpsql.errors import BudgetError, WorkloadError, printable
from dpsql.hints import Hint, option, spend
from dpsql.planner.fitness import limits_of
from dpsql.planner.plan import Plan
from dpsql.privacy import Budget, Ledger
from dpsql.release.assumed import ROWS, check_assumed, largest_error, linear_fractions
from dpsql.sql.compiled import Script, Statement
from dpsql.workload import Family, Workload

ROUNDS = 8
"""How often translated targets are corrected."""
CLOSE = 0.99
"""A standard error of so much of its target is taken to be at it."""
LESS = Fraction(999, 1000)
"""A budget of less than so much of another is worth a further round."""
_UNIT = Budget(mu=1)

Planner = Callable[[Budget | None, Mapping[str, float] | None], Plan]
"""Plans statements, for a budget or for targets of families."""


def plan_for(
    script: Script,
    targets: Mapping[str, float] | None,
    assume: Mapping[str, float] | None,
    budget: Budget | None,
    planner: Planner,
) -> Plan:
    """Plan statements for a budget or for targets, some of which may be in units of averages.

    An average v = x/n of n rows has a variance of Var(x − v·n)/n², so what has to be small is
    the linear statistic x − v·n. v is not known. The variance is convex in v, and bounded by its
    values at the least and the largest possible average (`largest_error`): for AVG those are the
    middle of the domain, around which sums are centred, plus and minus half its width. A target
    that holds there holds wherever the average lies. If it is in the middle, the error is less.

    The search knows targets of families alone, the sums and counts. If the errors of all families
    of a statement change by some factor, so does that of its averages. So each family's target is
    its error in some plan, times what the averages' error there is short of their target. Plans
    for these targets share noise between sums and counts a little differently; so what they
    reach is looked at, and the targets are corrected by it, until it is at most what was asked.

    Args:
        script: what is asked.
        targets: statement or family → the largest standard error.
        assume: see `expected_answers`.
        budget: in place of targets.
        planner: plans for a budget or for targets of families.

    Raises:
        WorkloadError: a target can't bound what is selected, or is not met by any plan found.
    """
    check_targets(script, targets, assume)
    own = _in_own_units(script, targets, assume)
    if targets is None or assume is None or not own:
        return planner(budget, targets)
    limits = _first_limits(script, own, targets, assume, planner(_UNIT, None))
    best: Plan | None = None
    for _ in range(ROUNDS):
        plan = planner(None, limits)
        ratios = {
            name: largest_error(script, plan, statement, assume) / targets[name]
            for name, statement in own.items()
        }
        if max(ratios.values()) <= 1:
            less = best is None or plan.budget.mu_squared < LESS * best.budget.mu_squared
            best = plan if less else best
            if not less or max(ratios.values()) >= CLOSE:
                break  # others decide the budget, or these do, and are at their targets
        for name, statement in own.items():
            for family in _families(statement, script.workload):
                limits[family.name] /= max(ratios[name], 0.1) * (1 + 1e-4)
    if best is None:
        raise WorkloadError(
            "No budget was found that meets the targets for the rows assumed.",
            hint="allow larger errors, or plan with " + spend(rho=0.01) + ".",
        )
    return _named(script, own, best)


def _first_limits(
    script: Script,
    own: Mapping[str, Statement],
    targets: Mapping[str, float],
    assume: Mapping[str, float],
    guess: Plan,
) -> dict[str, float]:
    """Return targets of families: errors of a plan, times what they may grow or must shrink by."""
    limits = {name: target for name, target in targets.items() if name not in own}
    errors = guess.expected_error().select("statement", "worst_standard_error")
    worst = dict(errors.rows())
    for name, statement in own.items():
        names = [family.name for family in _families(statement, script.workload)]
        limits_of(script.workload, {min(names, key=len): targets[name]})  # refuses what is no error
        error = largest_error(script, guess, statement, assume)
        if not 0 < error < math.inf:
            raise WorkloadError(
                f"For the rows assumed, no error of {printable(name)} is known.",
                hint="assume more rows, or plan with " + spend(rho=0.01) + ".",
            )
        limits |= {family: worst[family] * targets[name] / error for family in names}
    return limits


def _named(script: Script, own: Mapping[str, Statement], plan: Plan) -> Plan:
    """Name statements for their families, and claim no bound: translated targets have none."""
    if plan.objective is None:
        return plan
    of = {f.name: name for name, s in own.items() for f in _families(s, script.workload)}
    binding = tuple(dict.fromkeys(of.get(name, name) for name in plan.objective.binding))
    return replace(plan, objective=replace(plan.objective, binding=binding, gap=math.inf))


def _in_own_units(
    script: Script, targets: Mapping[str, float] | None, assume: Mapping[str, float] | None
) -> dict[str, Statement]:
    """Return the statements with a target that is one of averages and shares."""
    if not isinstance(targets, Mapping) or not isinstance(assume, Mapping):
        return {}
    return {
        statement.name: statement
        for statement in script.statements
        if statement.name in targets
        and (statement.name in assume or ROWS in assume)
        and not set(targets) & _others(statement, script.workload)
        and linear_fractions(statement)
    }


def _others(statement: Statement, workload: Workload) -> set[str]:
    """Return the families of a statement that have names of their own."""
    return {family.name for family in _families(statement, workload)} - {statement.name}


def check_targets(
    script: Script,
    targets: Mapping[str, float] | None,
    assume: Mapping[str, float] | None = None,
) -> None:
    """Refuse targets of statements with answers that they don't bound.

    Raises:
        WorkloadError: a column of such a statement is no sum of rows, or a sum without a target,
            and not all are averages and shares with rows assumed.
    """
    if assume is not None:
        check_assumed([statement.name for statement in script.statements], assume)
    named = set(targets) if isinstance(targets, Mapping) else set()
    own = _in_own_units(script, targets, assume)
    for statement in script.statements:
        families = _families(statement, script.workload)
        if statement.name in own:
            continue
        if not named & {statement.name, *(family.name for family in families)}:
            continue
        columns = sorted(_columns(statement, script.workload), key=lambda pair: pair[1] is not None)
        for column, of in columns:
            if of is None:
                raise WorkloadError(
                    f"The target of {printable(statement.name)} can't bound the error of its "
                    f"column {printable(column)}, which depends on how many rows there are: "
                    "targets are for counts and sums, or for averages and shares alone if rows "
                    "are assumed.",
                    hint=_hint(statement, assume),
                )
            missing = sorted(of - named)
            if missing:
                known = named & {family.name for family in script.workload.families}
                wanted = dict.fromkeys([*sorted(known), *missing], 1)
                raise WorkloadError(
                    f"The column {printable(column)} of {printable(statement.name)} has no "
                    "target: sums have one of their own, in the units of what is added up.",
                    hint="for example " + option("targets", wanted) + ".",
                )


def _columns(statement: Statement, workload: Workload) -> Iterator[tuple[str, set[str] | None]]:
    """Yield every column with noise, and the families that bound its error; None if none do."""
    if statement.direct is not None:
        for direct in statement.direct:
            if direct.statistic is not None:
                column = statement.tables[0].sets[0].columns[direct.statistic]
                name = workload.families[column.family].name
                yield direct.name, {name} if column.quantile is None else None
        return
    post = statement.post
    names = {family.name for family in _families(statement, workload)}
    for i, output in enumerate(post.outputs if post is not None else ()):
        if output.noisy:
            linear = output.exact and output.reason is None and post and i not in post.bounds
            yield output.name, names if linear else None


def _families(statement: Statement, workload: Workload) -> list[Family]:
    """Return the families that a statement is answered by."""
    numbers = {c.family for table in statement.tables for s in table.sets for c in s.columns}
    return [workload.families[number] for number in sorted(numbers)]


def _hint(statement: Statement, assume: Mapping[str, float] | None) -> Hint:
    """Say what to do for a statement whose error depends on the rows."""
    if assume is None and linear_fractions(statement):
        return (
            "add "
            + option("assume", {statement.name: 1000})
            + ", the rows in each group, for a target in units of the column itself."
        )
    return (
        "plan with "
        + spend(rho=0.01)
        + " and "
        + option("assume", {ROWS: 100_000})
        + ", and see which errors that would have."
    )


def check_most(
    ledger: Ledger,
    targets: Mapping[str, float] | None,
    at_most: Budget | None,
    assume: Mapping[str, float] | None = None,
) -> None:
    """Refuse targets that nothing limits the cost of.

    Raises:
        BudgetError: there is neither a total nor a most; or a most or rows without targets.
    """
    if targets is None and assume is not None:
        raise BudgetError(
            "Without targets, no rows are assumed: the budget is what is charged.",
            hint="leave " + option("assume") + " out; a plan shows what it would mean.",
        )
    if targets is None and at_most is not None:
        raise BudgetError(
            "Without targets, the budget is what is charged.",
            hint="leave " + option("at_most") + " out.",
        )
    if at_most is not None and not isinstance(at_most, Budget):
        raise BudgetError(
            f"The most that targets may cost is a dpsql.Budget, not a {type(at_most).__name__}.",
            hint="write " + _most("0.5") + ".",
        )
    if targets is not None and at_most is None and ledger.total is None:
        raise BudgetError(
            "Targets cost whatever meets them, and the data set has no total that would limit it.",
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
