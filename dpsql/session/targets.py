"""Targets: those that mean what they say, and what meeting them may cost.

A target is the largest standard error that the answers of a statement may have. Plans bound the
noise of what is measured: counts, and sums in the units of what is added up. An answer that is
computed from several of these, such as an average, a share or a quantile, has an error that
depends on the rows, so that no target in rows can bound it.

If rows are assumed, or were counted by earlier measurements, averages, shares, deviations and
quantiles can have targets in their own units. They are translated into targets of the sums and
counts that they are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.answers.counted import Counts
from dpsql.answers.expected import (
    ERROR,
    ROWS,
    Expected,
    check_assumed,
    expected,
    largest_error,
    unit_of,
    unsure_groups,
)
from dpsql.errors import InternalError, WorkloadError, printable
from dpsql.hints import Hint, option, spend
from dpsql.planner.plans.objectives import limits_of, rounded_up
from dpsql.planner.plans.plan import Objective, Plan
from dpsql.privacy import Budget
from dpsql.privacy.budget import SMALLEST_MU_SQUARED
from dpsql.sql.compiled import Script, Statement
from dpsql.workload import Family, Workload

ROUNDS = 8
"""Corrections of translated targets, at most."""
CLOSE = 0.99
"""A standard error of so much of its target is taken to be at it."""
LESS = Fraction(999, 1000)
"""A budget of less than so much of another is worth a further round."""
SMALLEST_ROOM = 1e-4
"""Noise is looked at that is so many times a plan's, or that part of it."""
HALVINGS = 24
_UNIT, _LEAST = Budget(mu=1), rounded_up(1.01 * float(SMALLEST_MU_SQUARED))
LEAST = "least budget for the target"
AIM = 1.0005
"""The square of the room that is aimed for: a little more than 1, so that it is met."""

Planner = Callable[[Budget | None, Mapping[str, float] | None], Plan]
"""Plans statements, for a budget or for targets of families."""


def plan_for(
    script: Script,
    targets: Mapping[str, float] | None,
    assume: Mapping[str, float] | None,
    budget: Budget | None,
    planner: Planner,
    counts: Callable[[], Counts | None] = lambda: None,
) -> Plan:
    """Plan statements for a budget or for targets, some of which may be in units of averages.

    An average v = x/n of n rows has a variance of Var(x − v·n)/n², so what has to be small is
    the linear statistic x − v·n. v is not known. The variance is convex in v, and bounded by its
    values at the least and the largest possible average (`largest_error`): for AVG those are the
    middle of the domain, around which sums are centered, plus and minus half its width. A target
    that holds there holds wherever the average lies. If it is in the middle, the error is less.
    Deviations and quantiles have no such bound. Theirs are for the rows that are assumed or
    were counted.

    The search knows targets of families alone, the sums and counts. If the errors of all families
    of a statement change by some factor, so do those of its averages, and widths of intervals grow
    with it. So each family's target is its error in some plan, times the most by which the noise
    could grow there (`_room`). Plans for these targets share noise between sums and counts a little
    differently; so what they reach is looked at, and the targets are corrected by it, until it is
    at most what was asked.

    Args:
        script: what is asked.
        targets: statement or family → the largest standard error, or width of intervals.
        assume: see `expected_answers`.
        budget: in place of targets.
        planner: plans for a budget or for targets of families.
        counts: tells what was counted before, if it is needed.

    Raises:
        WorkloadError: a target can't bound what is selected, or is not met by any plan found.
    """
    if targets is None:
        return planner(budget, None)
    targets_ = _targets(script, targets, assume, counts)
    targets_.check()
    if not targets_.own:
        return planner(budget, targets)
    if len(script.statements) == len(targets) == 1:
        return _named(targets_, _alone(targets_, planner))
    limits = _first_limits(targets_, planner(_UNIT, None))
    best: Plan | None = None
    for _ in range(ROUNDS):
        plan = planner(None, limits)
        rooms = {name: targets_.room(plan, name) for name in targets_.own}
        if min(rooms.values()) >= 1:
            less = best is None or plan.budget.mu_squared < LESS * best.budget.mu_squared
            best = plan if less else best
            if not less or min(rooms.values()) <= 1 / CLOSE:
                break  # others decide the budget, or these do, and are at their targets
        for name, statement in targets_.own.items():
            for family in _families(statement, script.workload):
                limits[family.name] *= min(rooms[name], 10) / (1 + 1e-4)
    if best is None:
        raise _none_found()
    return _named(targets_, best)


def _alone(targets: _Targets, planner: Planner) -> Plan:
    """Find a budget for the target of the only statement.

    Precision is what was known before and what the budget adds, in proportion to μ². So the square
    of the room is a straight line over μ², nearly, and its root is looked for by secants.
    """
    (name,) = targets.own
    budget, before = _UNIT, None
    best: Plan | None = None
    for step in range(ROUNDS):
        plan = planner(budget, None)
        if not step:
            _check_target(targets, plan, name)
        at, reached = float(budget.mu_squared), targets.room(plan, name) ** 2
        if reached >= 1 and (best is None or plan.budget.mu_squared < best.budget.mu_squared):
            best = plan
        if 1 <= reached <= CLOSE**-2 or (reached >= 1 and budget == _LEAST):
            break
        wanted, then = AIM, at
        at = at * wanted / reached
        if before is not None and before[0] != then and before[1] != reached:
            slope = (reached - before[1]) / (then - before[0])
            at = then + (wanted - reached) / slope if slope > 0 else at
        before = then, reached
        budget = rounded_up(at) if at > float(_LEAST.mu_squared) else _LEAST
    if best is None:
        raise _none_found()
    total = best.rmse**2 * best.workload.count
    return replace(best, objective=Objective(LEAST, (name,), math.inf, total))


def _none_found() -> WorkloadError:
    return WorkloadError(
        "No budget was found that meets the targets for these rows.",
        hint="allow larger errors, or plan with " + spend(rho=0.01) + ".",
    )


def _check_target(targets: _Targets, guess: Plan, name: str) -> None:
    """Refuse a target that is not a number, or that no noise is known to meet.

    Raises:
        WorkloadError: it is one.
    """
    workload = targets.script.workload
    names = [family.name for family in _families(targets.own[name], workload)]
    limits_of(workload, {min(names, key=len): targets.targets[name]})  # refuses what can't be one
    targets.check_known(guess, name)
    if not 0 < targets.room(guess, name) < math.inf:
        raise WorkloadError(
            f"For these rows, no amount of noise is known with which {printable(name)} meets its "
            "target.",
            hint="allow a larger error, assume more rows, or plan with "
            + spend(rho=0.01)
            + " and "
            + option("assume", {ROWS: 100_000})
            + ".",
        )


def _first_limits(targets: _Targets, guess: Plan) -> dict[str, float]:
    """Return targets of families: errors of a plan, times what they may grow or must shrink by."""
    workload = targets.script.workload
    limits = {name: of for name, of in targets.targets.items() if name not in targets.own}
    errors = guess.expected_error().select("statement", "worst_standard_error")
    worst = dict(errors.rows())
    for name, statement in targets.own.items():
        _check_target(targets, guess, name)
        room = targets.room(guess, name)
        names = {family.name for family in _families(statement, workload)}
        limits |= {family: worst[family] * room for family in names}
    return limits


def _named(targets: _Targets, plan: Plan) -> Plan:
    """Name statements for their families, and claim no bound: translated targets have none."""
    workload = targets.script.workload
    held = {name: targets.answers(plan, name).said for name in targets.own}
    plan = replace(plan, held_for=held)
    if plan.objective is None:
        return plan
    of = {f.name: name for name, s in targets.own.items() for f in _families(s, workload)}
    binding = tuple(dict.fromkeys(of.get(name, name) for name in plan.objective.binding))
    return replace(plan, objective=replace(plan.objective, binding=binding, gap=math.inf))


def _targets(
    script: Script,
    targets: Mapping[str, float],
    assume: Mapping[str, float] | None,
    counts: Callable[[], Counts | None],
) -> _Targets:
    """Tell which targets are in units of averages, deviations or quantiles.

    Raises:
        WorkloadError: what is assumed is malformed.
    """
    if assume is not None:
        check_assumed([statement.name for statement in script.statements], assume)
    if not isinstance(targets, Mapping):
        return _Targets(script, targets, assume, None, {})
    readable = {
        statement.name: statement
        for statement in script.statements
        if statement.name in targets
        and not set(targets) & _others(statement, script.workload)
        and unit_of(statement) is not None
    }
    named = set(assume or ())
    open_ = [s for name, s in readable.items() if not named & {name, ROWS}]
    counted = counts() if open_ else None
    by_statement = {
        name: statement
        for name, statement in readable.items()
        if named & {name, ROWS} or (counted is not None and counted.knows_all(statement))
    }
    return _Targets(script, targets, assume, counted, by_statement)


@dataclass(frozen=True, slots=True)
class _Targets:
    """Targets, and the rows that they are for."""

    script: Script
    targets: Mapping[str, float]
    assume: Mapping[str, float] | None
    counts: Counts | None
    own: Mapping[str, Statement]
    """The statements whose targets are in units of averages, deviations or quantiles."""

    def answers(self, plan: Plan, name: str) -> Expected:
        """Return what the rows of a statement would be answered, with a plan's noise."""
        answers = expected(self.script, plan, self.own[name], self.assume, self.counts)
        if answers is None:
            raise InternalError("there are no rows to rest a target on")
        return answers

    def room(self, plan: Plan, name: str) -> float:
        """Return by how much a plan's noise may grow, at most, until a target is just met.

        Standard errors are in proportion to it. Widths of intervals take steps, so that the last
        one is looked for.
        """
        statement, target = self.own[name], self.targets[name]
        answers = self.answers(plan, name)
        if unit_of(statement) == ERROR:
            error = largest_error(statement, answers)
            return target / error if error > 0 else math.inf
        low, high = SMALLEST_ROOM, 1 / SMALLEST_ROOM
        if not largest_error(statement, answers, low) <= target:
            return 0.0
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            if largest_error(statement, answers, middle) <= target:
                low = middle
            else:
                high = middle
        return low

    def check_known(self, plan: Plan, name: str) -> None:
        """Refuse a target in groups of which too few rows were counted.

        Raises:
            WorkloadError: there are some.
        """
        unsure, groups = unsure_groups(self.own[name], self.answers(plan, name))
        if unsure:
            raise WorkloadError(
                f"The target of {printable(name)} is for all groups, and in {unsure:,} of "
                f"{groups:,} groups too few rows were counted before to predict the error.",
                hint="add "
                + option("assume", {name: 1000})
                + ", the rows of the groups that it is meant for.",
            )

    def check(self) -> None:
        """Refuse targets of statements with answers that they don't bound.

        Raises:
            WorkloadError: a column of such a statement is not a sum over rows, or is one without a
                target, and it has no target in its own units.
        """
        workload = self.script.workload
        named = set(self.targets) if isinstance(self.targets, Mapping) else set()
        for statement in self.script.statements:
            families = _families(statement, workload)
            if statement.name in self.own:
                continue
            if named & {statement.name, *(family.name for family in families)}:
                self._check_sums(statement, named)

    def _check_sums(self, statement: Statement, named: set[str]) -> None:
        workload = self.script.workload
        columns = sorted(_columns(statement, workload), key=lambda pair: pair[1] is not None)
        for column, of in columns:
            if of is None:
                raise WorkloadError(
                    f"The target of {printable(statement.name)} can't bound the error of its "
                    f"column {printable(column)}, which depends on how many rows there are: "
                    "targets are for counts and sums; or, where rows are assumed or were counted "
                    "before, for averages, shares and deviations alone, or for quantiles alone.",
                    hint=_hint(statement, self.assume),
                )
            missing = sorted(of - named)
            if missing:
                known = named & {family.name for family in workload.families}
                wanted = dict.fromkeys([*sorted(known), *missing], 1)
                raise WorkloadError(
                    f"The column {printable(column)} of {printable(statement.name)} has no "
                    "target: sums have one of their own, in the units of what is added up.",
                    hint="for example " + option("targets", wanted) + ".",
                )


def _others(statement: Statement, workload: Workload) -> set[str]:
    """Return the families of a statement that have names of their own."""
    return {family.name for family in _families(statement, workload)} - {statement.name}


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
    return [workload.families[number] for number in statement.families]


def _hint(statement: Statement, assume: Mapping[str, float] | None) -> Hint:
    """Say what to do for a statement whose error depends on the rows."""
    if assume is None and unit_of(statement) is not None:
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
