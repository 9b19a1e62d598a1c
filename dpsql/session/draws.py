"""Quantiles that are drawn, for charges of their own, before the rest is answered.

    SELECT carrier, MEDIAN(arr_delay) AS typical FROM flights GROUP BY carrier

Where nobody has declared which values a column has, or it has very many, its quantiles are drawn by
the exponential mechanism (`measurement/quantiles.py`), for a part of the budget. The rest of it
answers what is asked besides, and how many rows each group has. What was drawn is kept with the
account, and handed out again for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dpsql.answers.facts import DrawnQuantiles, words_of_miss
from dpsql.engines.ranked import RankedRows, Ranking, RankWindow
from dpsql.errors import BudgetError, UndeterminedError, printable
from dpsql.hints import option, spend
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.quantiles import FEWEST, DrawPlan, draw_quantiles, largest_epsilon
from dpsql.privacy import Budget, Entry, Receipt
from dpsql.privacy.finding import Quantiles, part_of
from dpsql.rel.ranked import RankedValues, ValueLine
from dpsql.release.drawn import KeptDraws, KeptQuantiles
from dpsql.request import Request
from dpsql.session.answer import check_plannable
from dpsql.session.data import PrivateData
from dpsql.session.paid import PaidStep
from dpsql.session.planning import Compiled, referred
from dpsql.sql.compiled import Script
from dpsql.sql.lowering.drawn import DrawnQuantile, Place

if TYPE_CHECKING:
    from dpsql.measurement.halving import HalvedPlan

ALONE, BESIDE = Fraction(9, 10), Fraction(1, 2)
"""The share of the budget that draws quantiles: where nothing else is asked but how many rows they
are of, and beside other questions."""


@dataclass(frozen=True, slots=True)
class DrawStep:
    """Quantiles that are drawn for one charge: one, or several of the same rows by halving.

    Args:
        asked: what is drawn, in the order of probabilities.
        amount: what is charged for it.
    """

    asked: tuple[DrawnQuantile, ...]
    amount: Budget

    @property
    def among(self) -> tuple[Fraction, ...]:
        """The probabilities of several; none of one."""
        several = len(self.asked) > 1
        return tuple(of.values.probability for of in self.asked) if several else ()

    @property
    def plan(self) -> DrawPlan | HalvedPlan:
        """The plan for drawing them."""
        first, among = self.asked[0], self.among
        rows, values = first.table.contributions, first.values
        if not among:
            return DrawPlan.of(first.name, values, rows, epsilon_of(self.amount, values, rows))
        from dpsql.measurement.halving import HalvedPlan, levels_of  # which few need

        epsilon = epsilon_of(self.amount, values, rows, levels_of(among))
        return HalvedPlan.of(first.rows, values, among, rows, epsilon)

    @property
    def notes(self) -> Iterator[str]:
        """The words of a plan for each: how far off it will be."""
        epsilon, line = self.plan.epsilon, self.plan.line
        rho = float(self.amount.mu_squared / 2)
        for of in self.asked:
            words = words_of_miss(_OneOf(of.values.probability, epsilon, line, self.among))
            if not self.among:
                yield (
                    f"{printable(of.label)} is drawn, for ρ = {rho:.3g} of the budget: {words}. "
                    "It has no interval"
                )
                continue
            yield (
                f"{printable(of.label)} is drawn with {len(self.asked) - 1} others, for "
                f"ρ = {rho:.3g} of the budget together: {words}. It has no interval"
            )

    def drawn(
        self, charged: ChargedPlan, ranking: Ranking, step: Callable[[int, int], None]
    ) -> KeptDraws:
        """Draw them."""
        each = draw_quantiles(charged, ranking, step)
        kept = (
            KeptQuantiles.of(of, places, self.plan.epsilon, self.among)
            for of, places in zip(self.asked, each, strict=True)
        )
        return KeptDraws(tuple(kept))


class _OneOf(NamedTuple):
    """One of the quantiles of a step, see `RankDraw`."""

    probability: Fraction
    epsilon: Fraction
    line: ValueLine
    among: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class WantedQuantiles:
    """The quantiles that a request asks to be drawn, and what is spent on them.

    Args:
        script: the statements.
        steps: what wasn't drawn before, by the charges that it takes.
        rest: the budget that is left for all else.
    """

    script: Script
    steps: tuple[DrawStep, ...]
    rest: Budget | None

    @classmethod
    def of(cls, script: Script, request: Request, known: Container[str]) -> WantedQuantiles:
        """Divide the budget of a request.

        Args:
            script: the statements, as they are compiled without regard to the past.
            request: the request.
            known: the names of what was drawn before.

        Raises:
            BudgetError: there is no budget of which a part could be taken.
            UndeterminedError: nothing may be spent, and something wasn't drawn before.
        """
        missing = [of for name, of in script.drawn.items() if name not in known]
        if not missing:
            return cls(script, (), request.amount)
        label = printable(missing[0].label)
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
        steps = _steps(missing, lambda of: DrawStep(of, part_of(budget, each * len(of))))
        return cls(script, tuple(steps), part_of(budget, 1 - each * len(missing)))

    def beside(self, asked: Compiled) -> Compiled:
        """Return what is planned with the rest of the budget, and what a plan says of these."""
        notes = (*asked.notes, *(note for step in self.steps for note in step.notes))
        return replace(asked, request=replace(asked.request, budget=self.rest), notes=notes)


def _steps(
    missing: Sequence[DrawnQuantile], step: Callable[[tuple[DrawnQuantile, ...]], DrawStep]
) -> Iterator[DrawStep]:
    """Yield what is drawn for one charge each: several quantiles of the same rows, or one.

    The least and the largest value are drawn by themselves, and so are all that halving would bring
    no nearer.
    """
    rows = dict[object, list[DrawnQuantile]]()
    for of in missing:
        inside = 0 < of.values.probability < 1
        rows.setdefault((of.table.path, of.rows) if inside else id(of), []).append(of)
    for alike in rows.values():
        alike.sort(key=lambda of: of.values.probability)
        if len(alike) >= FEWEST and _are_better(together := step(tuple(alike))):
            yield together
        else:
            yield from (step((of,)) for of in alike)


def _are_better(step: DrawStep) -> bool:
    from dpsql.measurement.halving import has_few_near, is_better, levels_of  # which few need

    values, rows = step.asked[0].values, step.asked[0].table.contributions
    epsilon = epsilon_of(step.amount, values, rows, levels_of(step.among))
    few = has_few_near(step.among, values.line, epsilon)
    return few and is_better(step.among, values.line, epsilon)


def epsilon_of(budget: Budget, values: RankedValues, rows: int, levels: int = 1) -> Fraction:
    """Return the range ε that one row has a say of, where an amount is spent.

    Of a unit with k rows that are in m groups each, all draws of a level together have a range of
    k·m·ε, so that is purely private; else they cost as `measurement/quantiles.py` proves.
    """
    most = min(values.most, values.count)
    epsilon = largest_epsilon(budget.mu_squared / levels, most, rows)
    return min(epsilon, budget.amount / (rows * most * levels)) if budget.pure else epsilon


def _is_alone(script: Script) -> bool:
    """Whether nothing is asked but quantiles that are drawn."""
    columns = (
        column
        for statement in script.statements
        for group in statement.sets
        for column in group.columns
    )
    return all(column.drawn for column in columns)


def planned_beside(asked: Compiled, data: PrivateData | None) -> Compiled:
    """Return what is planned beside quantiles that are drawn, with what a plan says of these.

    Args:
        asked: the statements.
        data: what they are over, with an account; None without one.
    """
    known = {} if data is None else _known(data, asked.script, asked.request)
    return WantedQuantiles.of(asked.script, asked.request, known).beside(asked)


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
    if draws.steps and request.amount is not None:
        data.ledger.check_left(request.amount, request.amount.mu_squared, Fraction(0))
        check_plannable(data, replace(asked, request=rest))
    names = {(of.table.path, of.name): name for name, of in script.drawn.items()}
    for step in draws.steps:
        entry, kept = _drawn(data, request, script, step)
        for of, quantiles in zip(step.asked, kept.each, strict=True):
            known[names[of.table.path, of.name]] = _KnownQuantiles(entry, quantiles)
    drawn = tuple(
        known[name].told(
            script.drawn[name],
            [at for at, drawn_name in script.drawn_at.items() if drawn_name == name],
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
    kept_of = ((name, data.archive.kept_quantiles(of)) for name, of in script.drawn.items())
    return {name: _KnownQuantiles(*kept) for name, kept in kept_of if kept is not None}


def _drawn(
    data: PrivateData, request: Request, script: Script, step: DrawStep
) -> tuple[Entry, KeptDraws]:
    """Draw quantiles, for a charge; see `paid.PaidStep`."""
    of, amount, plan = step.asked[0], step.amount, step.plan
    counted = next(each for each in script.each if each.table.path == of.table.path)
    engine = data.declared.source.engine()
    ranking = _ReadRanking(
        engine.ranking(of.table, of.values, counted.merged, counted.measures, counted.keys)
    )
    seen, archive = referred(counted), data.archive

    def charge() -> Receipt:
        return data.ledger.charge(
            amount.mu_squared,
            asked=data.ledger.understood(amount),
            purpose=archive.quantile_purpose(
                of, plan.digest, halved=bool(step.among), charged=True
            ),
            accept_schema=archive.accepted((of.table, *seen)),
            each_row=of.table.each_row,
            referred=archive.referred(request, seen),
        )

    def take(charged: ChargedPlan) -> KeptDraws:
        return step.drawn(charged, ranking, partial(request.tell, "drawing quantiles"))

    paid = PaidStep(of.table, plan, ranking.check, charge)
    receipt, kept = paid.taken(data, engine, take, lambda: ranking.read)
    return data.charge_of(receipt.request), kept


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

    def run(self, windows: Sequence[RankWindow]) -> RankedRows:
        ranks = self.ranking.run(windows)
        self.read = True
        return ranks
