"""A plan: what will be measured and how well every query will be answered, before any data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import AccuracyError, PlotError, printable
from dpsql.hints import NO_REUSE, Hint, option
from dpsql.linalg.sets import largest_sets
from dpsql.linalg.threads import one_thread
from dpsql.markup import card, facts, folded, plain, preformatted, table
from dpsql.measurement.certify import CertifiedPlan, spent
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER
from dpsql.planner.reconstruction.base import Reconstruction, error_table
from dpsql.planner.reconstruction.combine import Combination
from dpsql.planner.reconstruction.measured import Noisy, Values
from dpsql.planner.reconstruction.parts import PartedCombination
from dpsql.planner.residuals.references import Reference
from dpsql.planner.shares import total_error
from dpsql.privacy import Budget
from dpsql.workload import Family, Workload
from dpsql.workload.spread import least_share

if TYPE_CHECKING:
    import altair


LOUD = 0.05
"""From so much avoidable variance on, relatively, a plan warns."""
TOGETHER = 1e-4
"""By so much are shares of the budget more than all of it, together, before that is said."""
LOCKED = 1.0
"""From so much on it is released only if that is accepted."""

ALL = "all mechanisms"
APART = "each part by itself"
SHARES = "these parts in other shares"
TOTAL = "total weighted variance"
"""The objective of a plan, if no other is asked for."""

RECORD = "add or remove one record"
"""Neighbours, where nothing is known about whose records they are."""


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A certified plan for a workload. Reading it spends nothing and needs no data.

    All variances are those of the integer measurements that will really be made, rounding
    included. They are public: they depend on the workload, the domains and the budget.
    """

    workload: Workload
    budget: Budget
    planned: tuple[PlannedBlock, ...]
    certified: CertifiedPlan
    reconstruction: Reconstruction
    """The way in which answers and variances follow from the measurements."""
    references: Mapping[str, Reference]
    """Attribute → the reference of its residual spaces; none if cells are measured directly."""
    objective: Objective | None = None
    neighbours: str = RECORD
    """In what data sets differ that can hardly be told apart: whom the plan protects."""
    given: Given | None = None
    """Earlier measurements on which the plan rests beside its own."""
    mechanism: str = QUERYSMASHER
    """The name of the mechanism that planned it."""
    expecting: Callable[[], pl.DataFrame] | None = field(default=None, repr=False)
    """Finds `expected_answers` when they are asked for."""
    held_for: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Statement with a target in its own units → the rows for which it holds, in words."""
    aside: bool = False
    """Whether it leaves earlier measurements aside, which might have helped: nothing is known then
    of how far it is from the best."""
    real: float = 0.0
    """The sum of weight·variance if its strategies were not rounded to integers; 0 if there is
    nothing to compare with."""
    least: float = 0.0
    """No matrix mechanism has a smaller sum of weight·variance at this budget; 0 if no such bound
    is known."""
    tried: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Another way to plan that was tried → its RMSE."""
    parts: Mapping[str | None, Plan] = field(default_factory=lambda: MappingProxyType({}))
    """Plans by measure, where measures are added up: as if sums were counts; None → the plan for
    counts. Their budgets are shares of this plan's."""
    bound: int = 1
    """The largest magnitude of what a row adds to a cell, in a plan for a measure."""
    rows: int = 1
    """The rows of a unit that are counted at most, in a part that has such a bound of its own."""
    saved: float = 0.0
    """The decrease of the sum of weight·variance by comparing totals of tables."""
    shared: float = 0.0
    """A bound on the sum of weight·variance, where parts share what the worst row costs; 0 where
    the costs of parts are added up."""
    among: str = APART
    """The plans of several parts to which that bound is."""
    added: Callable[[], Plan] | None = field(default=None, repr=False)
    """Makes the plan of the same parts whose costs are added up."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Attribute → what a reader calls it, if that isn't its name."""
    notes: tuple[str, ...] = ()
    """Sentences for readers about the rows that are counted."""

    def __repr__(self) -> str:
        return (
            f"Plan({self.workload.count:,} queries, {self.budget}, rmse {self.rmse:.4g}, "
            f"gap {self.gap:.1e})"
        )

    def __str__(self) -> str:

        answers = self.expected_answers
        known = f", within {self.gap:.2%} of the certified bound ({self.gap_among})"
        gap = known if math.isfinite(self.gap) else ""
        return text_of(
            told_rows(answers, self.expected_error(), self.mechanism),
            example_note(answers),
            f"overall RMSE {self.rmse:.4g}{gap}; {self.budget}",
            f"neighbours: {printable(self.neighbours)}",
            *(f"note: {note}" for note in self.notes),
        )

    def _repr_html_(self) -> str:
        known: dict[str, object] = {
            "budget": self.budget,
            "neighbours": self.neighbours,
            "overall RMSE": plain(self.rmse),
            "certified gap": f"{self.gap:.2%} ({self.gap_among})"
            if math.isfinite(self.gap)
            else "not known",
        }
        if self.binding:
            known["decided by"] = ", ".join(self.binding)
        from dpsql.charts.plots import inlined  # few plans are drawn
        from dpsql.planner.plans.tradeoff import tradeoff_figure

        answers, errors = self.expected_answers, self.expected_error()
        figure = None if self.given else tradeoff_figure(self.budget, errors)
        rows = told_rows(answers, errors, self.mechanism)
        return card(
            "Plan (planning spends nothing)",
            facts(known),
            table(HEADER, rows, more=example_note(answers)),
            *inlined(figure),
            folded("what is measured, and its share of the budget", preformatted(self.explain())),
        )

    @property
    def recovery(self) -> Reconstruction:
        """The name that `reconstruction` had."""
        return self.reconstruction

    @property
    def privacy_cost(self) -> Fraction:
        """The cost of the plan as μ², exactly; at most `budget.mu_squared`."""
        return self.certified.privacy_cost

    @property
    def contributions(self) -> int:
        """The most rows of one privacy unit that are counted."""
        return self.certified.contributions

    @property
    def agreeing(self) -> Fraction:
        """The number of these that may agree in all that is counted, however far apart they are."""
        return self.contributions * least_share(self.certified.spreads)

    @cached_property
    @one_thread
    def variances(self) -> tuple[NDArray[np.float64], ...]:
        """The variance of every answer: one array per family, in the family's shape.

        Raises:
            ResourceLimitError: a family has more than 67,108,864 answers.
        """
        return tuple(self.reconstruction.variances(family) for family in self.workload.families)

    @one_thread
    def check_variances(self) -> None:
        """Compute one variance of each family.

        More of them, up to what is held at once, are computed some at a time, so that no size
        can make them fail where one doesn't.

        Raises:
            ResourceLimitError: something in between is too large.
        """
        for family in self.workload.families:
            self.reconstruction.variances(next(family.parts(1), family))

    @property
    def rmse(self) -> float:
        """√(Σ weight·variance / number of queries) at the plan's budget, in rows."""
        count = self.workload.count
        return math.sqrt(self._total / count) if count else 0.0

    @property
    def gap(self) -> float:
        """The total's distance from the best: relative, certified; infinite if no bound is known.

        The best is that of all matrix mechanisms, where the domain is planned as a whole or the
        workload is a Kronecker product (`least` is known then); else of plans with these residual
        spaces, each of which is charged for a worst row of its own. Of several tables, or sums
        beside counts, it is of plans that measure each by itself. With differences of totals of
        tables the plan may be better than all of these. `gap_among` names the class, and
        `gap_to_all` is what is known for all mechanisms.

        The lower bound is `least`, or (Σ_A √lower_A)² · k² / μ² (QuerySmasher, 6.4), with k the
        `contributions`; the upper one the total of the variances above, rounding included. Where
        rows of a unit are apart, k is the number of those that may agree, which is a loose bound.
        """
        if self.aside:
            return math.inf
        if not self.planned:
            return 0.0
        if self.objective is not None:
            return self.objective.gap
        if self.given is not None:
            return self.given.gap
        if self.least or self.shared:
            return max(0.0, self._total / (self.least or self.shared) - 1.0)
        cost = float(self.budget.mu_squared / self.agreeing**2)
        if not all(block.lower > 0 for block in self.planned):
            return math.inf
        counts = [len(block.strategy.spaces) for block in self.planned]
        least = total_error([block.lower for block in self.planned], counts, cost)
        # Where the optimum is exact, rounding in floats could make this just negative.
        return max(0.0, self._total / least - 1.0)

    @property
    def gap_among(self) -> str:
        """The plans among which `gap` is the distance to the best: all mechanisms, or a class."""
        if self.given is not None:
            return "given what was measured"
        if self.parts or (self.shared and not self.least):
            return self.among
        return ALL if self.whole or self.least or not self.planned else "these residual spaces"

    @cached_property
    @one_thread
    def gap_to_all(self) -> float:
        """The distance from a bound for all matrix mechanisms; infinite if none is known.

        Where `gap` is among fewer, that bound is the best of the dual's at products of weights
        along each attribute. It takes a second or two at most, of public numbers alone.
        """
        if self.gap_among == ALL and math.isfinite(self.gap):
            return self.gap
        from dpsql.planner.strategies.product_bound import product_bound  # which is asked for

        another = self.objective is not None and self.objective.name != TOTAL
        others = self.given or self.parts or self.aside or self.budget.pure or another
        least = 0.0 if others else product_bound(self.workload)
        cost = float(self.budget.mu_squared / self.agreeing**2) if least else 1.0
        return max(0.0, self._total * cost / least - 1.0) if least else math.inf

    @cached_property
    def _total(self) -> float:
        if self.given is not None:
            return self.given.total
        if self.objective is not None:
            return self.objective.total
        # Differences of totals may take away more than is saved, if tables are measured for that.
        told = self.reconstruction.saved(self.workload) if self.saved else 0.0
        return math.fsum(block.error for block in self.planned) - told

    @property
    def avoidable(self) -> float:
        """The variance that could be avoided, relative to the least that is known to be possible.

        That is what the plan measures before it is rounded to integers, or the best of the plans
        that were `tried`, at the same budget. A `gap` that is loose because no good lower bound is
        known is no part of it.
        """
        count = self.workload.count
        least = min([rmse**2 * count for rmse in self.tried.values()], default=math.inf)
        least = min(least, self.real or math.inf)
        error = math.fsum(block.error for block in self.planned)
        return max(0.0, error / least - 1.0) if 0 < least < math.inf else 0.0

    @property
    def warning(self) -> str | None:
        """The warning to be said loudly: that the plan loses more than 5 percent avoidably."""
        if self.avoidable <= LOUD:
            return None
        before = [f"{math.sqrt(self.real / self.workload.count):.4g} before rounding to integers"]
        others = [f"{rmse:.4g} with {name}" for name, rmse in self.tried.items()]
        return (
            f"The variance is {self.avoidable:,.0%} above what is possible: expected RMSE "
            f"{self.rmse:.4g}, and {', '.join((before if self.real else []) + others)}."
        )

    def check_accuracy(self, *, accept_gap: bool) -> None:
        """Refuse a plan with more than twice the variance that is known to be possible.

        Raises:
            AccuracyError: it is one, and that is not accepted.
        """
        if self.avoidable > LOCKED and not accept_gap:
            raise AccuracyError(
                f"Nothing was charged, as the plan loses accuracy that it need not. {self.warning}",
                hint="ask for less at once, or accept it with " + option("accept_gap", True) + ".",
            )

    def values(self, measured: Noisy) -> Values:
        """Return what `reconstruction` makes answers of: the plan's measurements, and earlier ones.

        Args:
            measured: the noisy integers of every space that the plan measures.
        """
        if self.given is None:
            return self.reconstruction.values(measured)
        return self.given.combination.values([*self.given.measured, measured])

    @cached_property
    @one_thread
    def expected_answers(self) -> pl.DataFrame | None:
        """The expected errors of what statements select, in its own units.

        They are for rows that are assumed, or were counted before; without either, for groups of
        several sizes, as examples. None of a workload, and where nothing is known of errors.

        Columns: `statement`, `column`, `typical` (the mean of its values), `standard_error` (root
        of the mean variance), `largest_standard_error`, `interval` (the mean width of the 95 %
        intervals of quantiles, which have no variance), `left_out` (groups of which nothing can be
        said, as there are too few rows for the noise), `rows_from` (what the rows are, in words),
        `group_rows` (how many each group has, in an example), `answers`, `counts` (what the
        values are numbers of, `rows` or `units`) and `exact` (whether errors are the same for all
        rows).
        """
        return None if self.expecting is None else self.expecting()

    def expected_error(self) -> pl.DataFrame:
        """Return the expected error of each statement (or named family), in rows.

        Columns: `statement`, `rows` (the number of answers), `rmse` (root of the mean variance)
        and `worst_standard_error` (root of the largest variance). Only for a family of more than
        4,194,304 answers may the last be an upper bound; see `Reconstruction.extent`.
        """
        return error_table(self.reconstruction, self.workload)

    def error_by_budget(self) -> pl.DataFrame:
        """Return what other budgets would buy: expected errors at 1/4 to 4 times the budget.

        Columns: `budget`, as a text; `times` the plan's own; `errors`, by what all expected errors
        are multiplied; `rmse`, of all answers, in rows. Measurements stay as they are and their
        noise changes with 1/μ, or with 1/ε of a pure budget; so the numbers hold up to the
        rounding of noise to whole numbers. Multiples that are no budget are left out.

        Raises:
            AccuracyError: with earlier measurements, errors don't change alike.
        """
        if self.given is not None:
            raise AccuracyError(
                "Beside earlier measurements, the errors of a plan don't change alike with its "
                "budget.",
                hint="plan with each budget, which spends nothing; or leave earlier measurements "
                "aside: " + NO_REUSE + ".",
            )
        from dpsql.planner.plans.tradeoff import error_by_budget

        return error_by_budget(self.budget, self.rmse)

    def plot(self) -> altair.Chart | altair.LayerChart:
        """Draw what other budgets would buy: each statement's expected RMSE against the budget.

        A chart of Altair. Both axes are logarithmic; of more than six statements those with the
        largest errors are shown. It needs `pip install "dpsql[plots]"`.

        Raises:
            AccuracyError: with earlier measurements; see `error_by_budget`.
            PlotError: Altair is not installed, or there are no errors to draw.
        """
        from dpsql.charts.plots import plotted
        from dpsql.planner.plans.tradeoff import tradeoff_figure

        self.error_by_budget()
        figure = tradeoff_figure(self.budget, self.expected_error())
        if figure is None:
            raise PlotError("No statement has an error to draw.", hint="see plan.expected_error().")
        return plotted(figure, "Expected error by budget")

    def explain(self) -> str:
        """Describe the plan: the residual spaces, their solvers and shares of the budget."""
        count = sum(len(block.strategy.spaces) for block in self.planned)
        kind = "residual spaces" if self.references else "marginals"
        spaces = "over the whole domain" if self.whole else f"{count:,} {kind}"
        lines = [
            f"{MECHANISMS[self.mechanism].title} plan: {self.workload.count:,} queries in "
            f"{len(self.workload.families)} families, {spaces}",
            f"budget {self.budget}; privacy cost mu^2 = {float(self.privacy_cost):.6g}",
            f"neighbours: {self.neighbours}",
            f"expected RMSE {self.rmse:.4g}; {self._explain_gap()}",
            *([] if self.warning is None else [f"WARNING: {self.warning}"]),
            *(f"note: {note}" for note in self.notes),
            *(*self._explain_objective(), *self._explain_given(), *self._explain_totals()),
            "",
            f"{'share':>7}  {'measurements':>12}  {'noise sd':>9}  "
            f"{'residual space' if self.references else 'marginal'}: solver",
        ]
        all_ = tuple(block.strategy for block in self.planned)
        whose = self.contributions, self.certified.spreads, (), self.certified.supports
        cost = spent(all_, *whose)
        shares = [spent((strategy,), *whose) / cost if cost else Fraction(0) for strategy in all_]
        lines += map(self._explain_block, self.planned, shares)
        if sum(shares) > 1 + TOGETHER:
            lines += [
                "",
                "shares are more than 100 % together, as no row is in all that is measured",
            ]
        needed = "; ".join(map(self._named, self.marginals)) or "none"
        lines += ["", f"marginals needed: {needed}"]
        return "\n".join(lines)

    def _named(self, attributes: Sequence[str]) -> str:
        """Write an attribute set as readers call it."""
        return " x ".join(self.labels.get(name, name) for name in attributes) or "total"

    def _explain_gap(self) -> str:
        known = math.isfinite(self.gap)
        gap = f"certified gap {self.gap:.2e} ({self.gap_among})" if known else "no certified gap"
        most = known and self.gap_among == ALL
        if most or not math.isfinite(self.gap_to_all):
            return gap
        return f"{gap}, at most {self.gap_to_all:.2e} ({ALL})"

    def _explain_objective(self) -> list[str]:
        if self.objective is None:
            return []
        binding = f"; binding: {', '.join(self.binding)}" if self.binding else ""
        held = [f"target of {name}: for {said}" for name, said in self.held_for.items()]
        return [f"objective: {self.objective.name}{binding}", *held]

    def _explain_given(self) -> list[str]:
        if self.given is None:
            return []
        used = self.given.combination.used
        return [f"with the measurements of {len(used) - 1:,} earlier releases"]

    def _explain_totals(self) -> list[str]:
        less = self.saved / (self._total + self.saved) if self.saved else 0.0
        what = f"totals of tables are compared, at no cost: {less:.1%} less variance than the best"
        return [f"{what} that measures each by itself, to which the gap is"] if less else []

    def _explain_block(self, block: PlannedBlock, share: Fraction) -> str:
        strategy = block.strategy
        # The integers have a scale of their own; per unit of sensitivity the noise compares.
        noise = math.sqrt(strategy.law.variance) / strategy.sensitivity
        rows = len(strategy.spaces) * strategy.measurements
        space = self._named(strategy.spaces[0])
        if len(strategy.spaces) > 1:
            space += f" and {len(strategy.spaces) - 1:,} like it"
        return f"{float(share):7.2%}  {rows:12,}  {noise:9.4g}  {space}: {block.solver}"

    @property
    def binding(self) -> tuple[str, ...]:
        """The statements that decide the budget, or the largest variance; see `targets`."""
        return () if self.objective is None else self.objective.binding

    @property
    def whole(self) -> bool:
        """Whether the domain is measured at once; `gap` is then to the best of all mechanisms."""
        return self.reconstruction.whole

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        """The largest attribute sets whose marginals have to be counted."""
        measures = {measure for measure in self.parts if measure is not None}
        by_measures: dict[frozenset[str], list[tuple[str, ...]]] = {}
        for space in (space for block in self.planned for space in block.strategy.spaces):
            by_measures.setdefault(frozenset(measures.intersection(space)), []).append(space)
        return tuple(space for spaces in by_measures.values() for space in largest_sets(spaces))

    def families(self, name: str) -> tuple[Family, ...]:
        """Return the families of one statement."""
        return tuple(f for f in self.workload.families if f.name == name)


# ── Parts of plans: their blocks, their objective, and what was measured before ──────────────────


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Residual spaces that are measured alike, with the certificate of their strategy."""

    strategy: BlockStrategy
    error: float
    """The weighted sum of variances that their noise gives to all queries, rounding included."""
    lower: float
    """No strategy for one of them has a smaller weighted variance at privacy cost 1; 0 if no
    bound is known."""
    solver: str


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective of a plan, where that is not the total weighted variance."""

    name: str
    binding: tuple[str, ...]
    """The statements without which less error, or a smaller budget, would be possible."""
    gap: float
    """The largest possible distance of the plan from the best one for this objective."""
    total: float
    """The sum of weight·variance."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Earlier measurements that answers rest on as well."""

    combination: Combination | PartedCombination
    measured: tuple[Noisy, ...]
    """The noisy integers of each source but the last, which is the plan itself; none of those
    that were only planned."""
    total: float
    """The sum of weight·variance."""
    lower: float
    """No further measurements of this form, at this budget, make it less."""

    @property
    def gap(self) -> float:
        """The most by which the total exceeds the bound, relative; infinite if there's no bound."""
        return max(0.0, self.total / self.lower - 1.0) if self.lower else math.inf


# ── Expected errors as people are told them: a line for each column of values, in its own unit ───
#
# A count is off by so many rows whatever it is, an average by less the more rows there are. So the
# line of an average says for how many: "± 2,300 for a group of 700 rows, ± 230 for 7,000".


HEADER = ("statement", "answers", "standard error")
DIGITS = 2
WIDTH = 100
MOST_DECIMALS = 12
UNKNOWN = "not known before the release"
BIASED = "not known: it depends on the data"
SURE = " at 95 %"
"""Words on quantiles, which have intervals and no standard errors."""


def told_rows(
    answers: pl.DataFrame | None, errors: pl.DataFrame, mechanism: str
) -> list[tuple[str, int, str]]:
    """Return a row for each column of values, below `HEADER`.

    Args:
        answers: what `Plan.expected_answers` has.
        errors: what `Plan.expected_error` has, which is told where there is nothing else.
        mechanism: the name of the plan's.
    """
    if answers is None:
        biased = MECHANISMS[mechanism].is_biased
        return [
            (name, rows, BIASED if biased else _always(rmse, worst))
            for name, rows, rmse, worst in errors.rows()
        ]
    columns: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in answers.iter_rows(named=True):
        columns.setdefault(row["statement"], {}).setdefault(row["column"], []).append(row)
    return [
        (
            statement if len(of) == 1 else f"{statement}: {column}",
            max(row["answers"] for row in rows),
            said(rows),
        )
        for statement, of in columns.items()
        for column, rows in of.items()
    ]


def said(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what error is expected of a column.

    Args:
        rows: those that `Plan.expected_answers` has of it.
    """
    first = rows[0]
    if first["exact"]:
        return _exact(first)
    told = [(row, error) for row in rows if (error := _error(row)) is not None]
    if not told:
        return "noise alone" if any(row["left_out"] for row in rows) else UNKNOWN
    if first["group_rows"] is None:
        row, error = told[0]
        some = f"; nothing can be said of {row['left_out']:,} of {row['answers']:,} groups"
        return error + (some if row["left_out"] else "")
    (row, error), *others = told
    parts = [f"{error} for a group of {row['group_rows']:,} rows"]
    parts += [f"{error.removesuffix(SURE)} for {row['group_rows']:,}" for row, error in others]
    noise = [row["group_rows"] for row in rows if _error(row) is None and row["left_out"]]
    return ", ".join([*parts, *([f"noise alone for {max(noise):,}"] if noise else [])])


def _exact(row: Mapping[str, Any]) -> str:
    """Say an error that is the same for all rows; of what isn't counted, how large it is beside."""
    if row["standard_error"] is None:
        return UNKNOWN
    said = _always(row["standard_error"], row["largest_standard_error"], row["counts"] or "")
    if row["counts"] or not row["typical"] or not row["standard_error"]:
        return said
    share = f"{digits(100 * row['standard_error'] / abs(row['typical']))} %"
    where = "" if row["group_rows"] is None else f" for a group of {row['group_rows']:,} rows"
    return f"{said}, that is {share}{where}"


def _always(error: float, largest: float, unit: str = "") -> str:
    if not largest:
        return "exact"
    most = "" if digits(error) == digits(largest) else f", at most {digits(largest)}"
    return f"± {digits(error)}{' ' * bool(unit)}{unit}{most}"


def _error(row: Mapping[str, Any]) -> str | None:
    """Say the error of a row; None if there is nothing to say."""
    if row["standard_error"] is not None:
        largest = row["largest_standard_error"] if row["group_rows"] is None else None
        return _always(row["standard_error"], largest or row["standard_error"])
    return None if row["interval"] is None else f"± {digits(row['interval'] / 2)}{SURE}"


def digits(value: float) -> str:
    """Write a size with two digits, in full."""
    if not math.isfinite(value):
        return "∞"
    if value == 0:
        return "0"
    decimals = min(DIGITS - 1 - math.floor(math.log10(abs(value))), MOST_DECIMALS)
    text = f"{round(Decimal(value), decimals):,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def example_note(answers: pl.DataFrame | None) -> str:
    """Say what the groups are that errors are told for; nothing if there are none.

    Args:
        answers: what `Plan.expected_answers` has.
    """
    if answers is None or not answers.filter(~answers["exact"])["group_rows"].count():
        return ""
    said = "Groups of so many rows are examples, with all values equally frequent; for others add "
    return Hint(said) + option("assume", {"rows": 100_000}) + "."


def text_of(rows: Sequence[tuple[str, int, str]], *below: str) -> str:
    """Write rows as a table, and lines below it."""
    lines = [HEADER, *((printable(name), f"{answers:,}", told) for name, answers, told in rows)]
    wide = [max(len(line[i]) for line in lines) for i in range(2)]
    table = [f"{name:<{wide[0]}}  {answers:>{wide[1]}}  {told}" for name, answers, told in lines]
    return "\n".join([*table, *(part for line in below for part in textwrap.wrap(line, WIDTH))])
