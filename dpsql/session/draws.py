"""Quantiles that are drawn, each for a charge of its own, before the rest is answered.

    SELECT carrier, MEDIAN(arr_delay) AS typical FROM flights GROUP BY carrier

Where nobody has declared which values a column has, or it has very many, its quantiles are drawn by
the exponential mechanism (`measurement/quantiles.py`), for a part of the budget. The rest of it
answers what is asked besides, and how many rows each group has. What was drawn is kept with the
account, and handed out again for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dpsql.answers.facts import DrawnQuantiles, words_of_miss
from dpsql.engines.ranked import RankedRows, Ranking, RankWindow
from dpsql.errors import BudgetError, InternalError, UndeterminedError, printable
from dpsql.hints import option, spend
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.quantiles import (
    DrawPlan,
    draw_quantiles,
    largest_epsilon,
)
from dpsql.privacy import Budget, Entry, Receipt
from dpsql.privacy.finding import Quantiles, part_of
from dpsql.rel.ranked import RankedValues
from dpsql.release.drawn import KeptQuantiles
from dpsql.request import Request
from dpsql.session.answer import check_plannable
from dpsql.session.data import PrivateData
from dpsql.session.paid import PaidStep
from dpsql.session.planning import Compiled, referred
from dpsql.sql.compiled import Script
from dpsql.sql.lowering.drawn import DrawnQuantile, Place

ALONE, BESIDE = Fraction(9, 10), Fraction(1, 2)
"""The share of the budget that draws quantiles: where nothing else is asked but how many rows they
are of, and beside other questions."""


@dataclass(frozen=True, slots=True)
class WantedQuantiles:
    """The quantiles that a request asks to be drawn, and what is spent on them.

    Args:
        script: the statements.
        missing: what wasn't drawn before: name → of what.
        amount: what is charged for each of these; None if there are none.
        rest: the budget that is left for all else.
    """

    script: Script
    missing: Mapping[str, DrawnQuantile]
    amount: Budget | None
    rest: Budget | None

    @classmethod
    def of(cls, script: Script, request: Request, known: Mapping[str, object]) -> WantedQuantiles:
        """Divide the budget of a request.

        Args:
            script: the statements, as they are compiled without regard to the past.
            request: the request.
            known: the names of what was drawn before.

        Raises:
            BudgetError: there is no budget of which a part could be taken.
            UndeterminedError: nothing may be spent, and something wasn't drawn before.
        """
        missing = {name: of for name, of in script.drawn.items() if name not in known}
        if not missing:
            return cls(script, {}, None, request.amount)
        label = printable(next(iter(missing.values())).label)
        if request.free:
            raise UndeterminedError(
                f"{label} wasn't drawn before, of these rows and in these groups.",
                hint="pass " + spend(rho="0.5") + ".",
            )
        budget = request.amount
        if budget is None or request.targets is not None:
            raise BudgetError(
                f"{label} is drawn for a part of a budget, and none is given.",
                hint="pass " + spend(rho="0.5") + " in place of " + option("targets") + ".",
            )
        given = request.quantiles or Quantiles()
        share = given.share or (ALONE if _is_alone(script) else BESIDE)
        each = share / len(script.drawn)  # so that a charge that failed is for the same again
        left = 1 - each * len(missing)
        return cls(script, missing, part_of(budget, each), part_of(budget, left))

    def plan(self, of: DrawnQuantile) -> DrawPlan:
        """Return the plan for drawing one of them."""
        rows, values = of.table.contributions, of.values
        return DrawPlan.of(of.name, values, rows, epsilon_of(self.amount, values, rows))

    def beside(self, asked: Compiled) -> Compiled:
        """Return what is planned with the rest of the budget, and what a plan says of these."""
        notes = (*asked.notes, *self.notes)
        return replace(asked, request=replace(asked.request, budget=self.rest), notes=notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how far off what is drawn will be."""
        said = []
        for of in self.missing.values():
            plan = self.plan(of)
            rho = float(self.amount.mu_squared / 2) if self.amount is not None else 0.0
            said.append(
                f"{printable(of.label)} is drawn, for ρ = {rho:.3g} of the budget: "
                f"{words_of_miss(plan)}. It has no interval"
            )
        return tuple(said)


def epsilon_of(budget: Budget | None, values: RankedValues, rows: int) -> Fraction:
    """Return the range ε that one row has a say of, where an amount is spent.

    Of a unit with k rows that are in m groups each, all draws together have a range of k·m·ε, so
    that is purely private; else they cost as `measurement/quantiles.py` proves.
    """
    if budget is None:
        return Fraction(0)
    most = min(values.most, values.count)
    epsilon = largest_epsilon(budget.mu_squared, most, rows)
    return min(epsilon, budget.amount / (rows * most)) if budget.pure else epsilon


def _is_alone(script: Script) -> bool:
    """Whether nothing is asked but quantiles that are drawn."""
    columns = (
        column
        for statement in script.statements
        for group in statement.sets
        for column in group.columns
    )
    return all(column.drawn for column in columns)


def planned_beside_alone(asked: Compiled) -> Compiled:
    """Return what is planned beside quantiles that are drawn, where there is no account."""
    if not asked.script.drawn or asked.request.amount is None:
        return asked
    return WantedQuantiles.of(asked.script, asked.request, {}).beside(asked)


def planned_beside(data: PrivateData, asked: Compiled) -> Compiled:
    """Return what is planned beside quantiles that are drawn, with what a plan says of these."""
    request = asked.request
    if not asked.script.drawn or request.free:
        return asked
    return WantedQuantiles.of(asked.script, request, _known(data, asked.script, request)).beside(
        asked
    )


def with_draws(data: PrivateData, asked: Compiled) -> tuple[PrivateData, Request]:
    """Draw the quantiles that statements ask for, each for a charge, or take those of before.

    Before anything is drawn, it is looked whether all else can be answered for the rest.

    Args:
        data: what the statements are over.
        asked: the statements, as they were compiled just now.

    Returns:
        The data with what was drawn, and what is asked with the rest of the budget.

    Raises:
        DpsqlError: see `answer.answer`.
    """
    request, script = asked.request, asked.alone or asked.script
    known = _known(data, script, request)
    draws = WantedQuantiles.of(script, request, known)
    rest = request if request.free else replace(request, budget=draws.rest)
    if draws.missing and request.amount is not None:
        data.ledger.check_left(request.amount, request.amount.mu_squared, Fraction(0))
        check_plannable(data, replace(asked, request=rest))
    for name, of in draws.missing.items():
        known[name] = _drawn(data, request, draws, of)
    drawn = tuple(
        known[name].told(
            script.drawn[name], [at for at, one in script.drawn_at.items() if one == name]
        )
        for name in script.drawn
    )
    return replace(data, declared=replace(data.declared, drawn=drawn)), rest


@dataclass(frozen=True, slots=True)
class _KnownQuantiles:
    """Quantiles that were drawn, and the charge for them."""

    entry: Entry
    kept: KeptQuantiles

    def told(self, asked: DrawnQuantile, at: Sequence[Place]) -> DrawnQuantiles:
        return self.kept.told(asked, at, self.entry)


def _known(data: PrivateData, script: Script, request: Request) -> dict[str, _KnownQuantiles]:
    """Return what was drawn before, of the same rows, by its name in a script."""
    if not request.reuse:
        return {}
    found = ((name, data.archive.kept_quantiles(of)) for name, of in script.drawn.items())
    return {name: _KnownQuantiles(*kept) for name, kept in found if kept is not None}


def _drawn(
    data: PrivateData, request: Request, draws: WantedQuantiles, of: DrawnQuantile
) -> _KnownQuantiles:
    """Draw one of the quantiles, for a charge; see `paid.PaidStep`."""
    amount, plan = draws.amount, draws.plan(of)
    if amount is None:
        raise InternalError("nothing is spent on what is drawn")
    own = next(each for each in draws.script.each if each.table.path == of.table.path)
    engine = data.declared.source.engine()
    ranking = _ReadRanking(engine.ranking(of.table, of.values, own.merged, own.measures, own.keys))
    seen, archive = referred(own), data.archive

    def charge() -> Receipt:
        return data.ledger.charge(
            amount.mu_squared,
            asked=data.ledger.understood(amount),
            purpose=archive.quantile_purpose(of, plan.digest, charged=True),
            accept_schema=archive.accepted((of.table, *seen)),
            each_row=of.table.each_row,
            referred=archive.referred(request, seen),
        )

    def take(charged: ChargedPlan) -> KeptQuantiles:
        step = partial(request.tell, "drawing quantiles")
        return KeptQuantiles.of(of, plan, draw_quantiles(charged, ranking, step))

    paid = PaidStep(of.table, plan, ranking.check, charge)
    receipt, kept = paid.taken(data, engine, take, lambda: ranking.read)
    (entry,) = (one for one in data.ledger.entries() if one.request == receipt.request)
    return _KnownQuantiles(entry, kept)


@dataclass(slots=True)
class _ReadRanking(Ranking):
    """Rows in order, and whether they were read: noise may have been drawn for them."""

    ranking: Ranking
    read: bool = False

    @property
    def contributions(self) -> int:
        return self.ranking.contributions

    @property
    def values(self) -> RankedValues:
        return self.ranking.values

    def check(self) -> None:
        self.ranking.check()

    def run(self, window: RankWindow) -> RankedRows:
        found = self.ranking.run(window)
        self.read = True
        return found
