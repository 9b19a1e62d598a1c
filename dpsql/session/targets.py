"""Targets: those that mean what they say, and what meeting them may cost.

A target is the largest standard error that the answers of a statement may have. Plans bound the
noise of what is measured: counts, and sums in the units of what is added up. An answer that is
computed from several of these, such as an average, a share or a quantile, has an error that
depends on the rows, so that no target in rows can bound it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsql.errors import BudgetError, WorkloadError, printable
from dpsql.hints import Hint, option, spend
from dpsql.privacy import Budget, Ledger
from dpsql.sql.compiled import Script, Statement
from dpsql.workload import Family, Workload


def check_targets(script: Script, targets: Mapping[str, float] | None) -> None:
    """Refuse targets of statements with answers that they don't bound.

    Raises:
        WorkloadError: a column of such a statement is no sum of rows, or a sum without a target.
    """
    named = set(targets) if isinstance(targets, Mapping) else set()
    for statement in script.statements:
        families = _families(statement, script.workload)
        if not named & {statement.name, *(family.name for family in families)}:
            continue
        columns = sorted(_columns(statement, script.workload), key=lambda pair: pair[1] is not None)
        for column, of in columns:
            if of is None:
                raise WorkloadError(
                    f"The target of {printable(statement.name)} can't bound the error of its "
                    f"column {printable(column)}, which depends on how many rows there are: "
                    "targets are for counts and sums.",
                    hint="plan with "
                    + spend(rho=0.01)
                    + " and "
                    + option("assume", {"rows": 100_000})
                    + ", and see which errors that would have.",
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


def check_most(ledger: Ledger, targets: Mapping[str, float] | None, at_most: Budget | None) -> None:
    """Refuse targets that nothing limits the cost of.

    Raises:
        BudgetError: there is neither a total nor a most; or a most without targets.
    """
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
