"""Wanted facts: values and bounds of columns that statements need, and which nobody has declared.

    dpsql.query(con, "SELECT city, SUM(price) AS s FROM sales GROUP BY city", budget=…,
                keys=dpsql.Keys(), bounds=dpsql.Bounds())

finds them for a part of the budget, and answers with the rest. Before anything is spent, statements
are compiled and planned as if some were found, so that what can't be answered is refused for
nothing. What is found is public from then on, as answers are. So what is asked with it may depend
on it, and what is refused then may say why.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import partial, reduce
from typing import NamedTuple, TypeVar

from dpsql.answers.found_values import KeyValue, domain_of, text_of
from dpsql.answers.scored import counted_alone, is_count
from dpsql.errors import (
    ArgumentError,
    BudgetError,
    DpsqlError,
    SchemaError,
    SqlError,
    printable,
    shown,
)
from dpsql.hints import option
from dpsql.planner.plans.traits import QUERYSMASHER
from dpsql.privacy import Budget
from dpsql.privacy.amount import on_fine_grid, on_grid
from dpsql.privacy.finding import Bounds, Keys, delta_of, part_of, rest_of
from dpsql.privacy.keys import KeyRule
from dpsql.progress import Watch
from dpsql.request import Request
from dpsql.rows.expression import columns
from dpsql.rows.found import FoundExpression
from dpsql.schema import Table
from dpsql.schema.domain import (
    INTEGER_TYPES,
    OTHER,
    Domain,
    NumberBounds,
    UnknownBounds,
    UnknownKeys,
)
from dpsql.schema.drafts import drafted_bounds
from dpsql.schema.entries import BoundedExpression
from dpsql.schema.names import as_text, folded
from dpsql.schema.sequences import decimal_text, type_range
from dpsql.session.bounds import (
    BoundsQuestion,
    answer_bounds,
    findable_bounds,
    kept_bounds,
    type_of,
    with_bounds,
)
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.key_source import KeySource
from dpsql.session.keys import (
    KeyQuestion,
    answer_keys,
    delta_of_account,
    is_computed,
    kept_keys,
    key_of,
    most_keys,
    rule_alone,
    rule_of,
    with_keys,
)
from dpsql.sql.compiled import Script

ASSUMED, FEW = 100, 10
"""Keys that are taken to be found of a column: in plans, if nothing else is assumed; and where it
is only looked whether statements can be answered, of which many keys could be too many."""
_MOST_ASSUMED = 50_000
_NUMBER, _DAY = re.compile(r"(?<![\w.])\d{1,18}(?![\w.])"), re.compile(r"\d{4}-\d{2}-\d{2}")
E = TypeVar("E", bound=DpsqlError)
ALONE, BESIDE = Fraction(1, 2), Fraction(1, 5)
"""The share of the budget that finds keys: of statements that only count by them, and of others.

Where scores are taken along, 0.8 in place of 0.5 would find 9 percent more of the tail numbers of a
year's flights, and count all that are told nearly as well: with 5.72 for 5.60. But what is kept for
other questions would have 2.5 times the variance, and so would what isn't found (measured by
`tests/benchmarks/found_keys.py`)."""


class FindingStep(ABC):
    """A step that finds something of one column, for a charge."""

    @property
    @abstractmethod
    def note(self) -> str:
        """The note in a plan about how it is found, and what is assumed."""

    @property
    @abstractmethod
    def cost(self) -> tuple[Fraction, Fraction]:
        """The charge: μ² and δ."""

    @property
    @abstractmethod
    def epsilon(self) -> Fraction:
        """The pure ε that is charged; 0 if noise is Gaussian."""

    @abstractmethod
    def found(self, data: PrivateData, watch: Watch) -> PrivateData:
        """Find it; return the data with it.

        Raises:
            SchemaError: nothing was found, so that nothing can be answered.
            DpsqlError: see `Session.find_keys` and `Session.find_bounds`.
        """


@dataclass(frozen=True, slots=True)
class _KeyStep(FindingStep):
    """The finding of keys, by a rule that follows from the question."""

    assumed: Assumed
    question: KeyQuestion
    rule: KeyRule

    @property
    def note(self) -> str:
        return _note(self.assumed, self.rule.mu_squared, f": {self.rule}", 2500)

    @property
    def cost(self) -> tuple[Fraction, Fraction]:
        return on_grid(self.rule.mu_squared), on_fine_grid(self.rule.delta, up=True)

    @property
    def epsilon(self) -> Fraction:
        return self.rule.epsilon

    def gain(self, script: Script, rest: Budget) -> str | None:
        """Say how well rows are counted by keys that are frequent, if their scores are taken along.

        Args:
            script: all that is asked.
            rest: what measures it.
        """
        table, column = self.assumed.wanted.table, self.assumed.attribute
        alone = counted_alone(script.statements, script.workload) == column
        if not alone or table.unit is not None or table.origin or not is_count(self.rule):
            return None
        error = float(self.rule.mu_squared + rest.mu_squared) ** -0.5
        return (
            f"Counts of values of {printable(self.assumed.wanted.name)} follow from the noisy "
            "numbers by which these are found, too: errors are smaller than said, and about "
            f"{error:.3g} for frequent ones, if fewer than {self.question.keys.max_keys:,} are "
            "found."
        )

    def found(self, data: PrivateData, watch: Watch) -> PrivateData:
        keys = answer_keys(data, self.question, watch)
        keys.check_any()
        return with_keys(data, self.question, keys)


@dataclass(frozen=True, slots=True)
class _BoundsStep(FindingStep):
    """The finding of bounds, by a statement for a part of the budget."""

    assumed: Assumed
    question: BoundsQuestion
    budget: Budget

    @property
    def note(self) -> str:
        return _note(self.assumed, self.budget.mu_squared, "", 5000)

    @property
    def cost(self) -> tuple[Fraction, Fraction]:
        return on_grid(self.budget.mu_squared), Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        return self.budget.amount if self.budget.pure else Fraction(0)

    def found(self, data: PrivateData, watch: Watch) -> PrivateData:
        return with_bounds(data, self.question.table, answer_bounds(data, self.question, watch))


def _note(assumed: Assumed, mu_squared: Fraction, by: str, example: float) -> str:
    fact = assumed.wanted
    return (
        f"{fact.what} of {printable(fact.name)} are found first, for ρ = "
        f"{float(mu_squared / 2):.3g} of the budget{by}. "
        f"Errors are for {assumed.said}; another number is assumed by "
    ) + option("assume", {fact.name: example})


@dataclass(frozen=True, slots=True)
class WantedFact(ABC):
    """A column of which something is wanting that nobody has declared.

    Args:
        table: the table that has it.
        typed: the name by which the table is meant, and no other one.
        column: its name there.
    """

    table: Table
    typed: str
    column: str

    @property
    def name(self) -> str:
        """The name by which something is assumed of it."""
        return f"{self.table.name}.{self.column}"

    def is_same(self, other: WantedFact) -> bool:
        """Whether the same is wanting of the same column."""
        same = (self.table.path, self.column) == (other.table.path, other.column)
        return same and type(self) is type(other)

    def is_called(self, name: str) -> bool:
        """Whether something that is assumed by a name is about it."""
        return folded(name) == folded(self.name)

    @property
    @abstractmethod
    def what(self) -> str:
        """The kind of fact that is wanting, in a word."""

    @property
    @abstractmethod
    def price(self) -> str:
        """A budget that finds it, as it is written in a call."""

    def nothing_found(self) -> BudgetError:
        """Say that it was never found, where nothing may be spent."""
        return BudgetError(
            f"No {self.what} of {printable(self.name)} were found before.",
            hint="pass a budget, for example dpsql.Budget(epsilon=1, delta=1e-9).",
        )

    @property
    def called(self) -> str:
        """The table and the column as arguments of a call."""
        return f"{as_text(self.typed)}, {as_text(self.column)}"

    def given(self, request: Request, otherwise: object) -> object:
        """Return the number that a request assumes of it; another one if it doesn't."""
        numbers = (request.assume or {}).items()
        return next((number for name, number in numbers if self.is_called(name)), otherwise)

    @abstractmethod
    def call(self, budget: str) -> str:
        """Return the call that finds it, to be typed; the budget as it is written there."""

    @abstractmethod
    def assumed(self, request: Request, many: int) -> Assumed:
        """Return something that may be found.

        Args:
            request: the statements, and what they assume.
            many: how many keys, if the request doesn't say so.

        Raises:
            ArgumentError: nothing such can be assumed.
        """

    def attribute(self, declared: Domain | NumberBounds) -> str:
        """Return the name under which statements ask for it, if some values are declared."""
        return self.column

    def declare(self, data: DeclaredData, declared: Domain | NumberBounds) -> DeclaredData:
        """Return data with values, or bounds, that are made up."""
        return data.declaring(self.table, self.column, declared)

    @abstractmethod
    def known(self, data: PrivateData) -> PrivateData | None:
        """Return data with what was found of it before; None if nothing was."""


class Assumed(NamedTuple):
    """Something that is assumed to be found of a column."""

    wanted: WantedFact
    declared: Domain | NumberBounds
    said: str
    """Words for the fact in a plan."""

    @property
    def attribute(self) -> str:
        """The name under which statements ask for it."""
        return self.wanted.attribute(self.declared)

    def declare(self, data: DeclaredData) -> DeclaredData:
        """Return data with it."""
        return self.wanted.declare(data, self.declared)


@dataclass(frozen=True, slots=True)
class _WantedKeys(WantedFact):
    """A column, or what is computed of a row, by whose values statements group.

    Args:
        other: the label for texts that aren't found.
        source: what it is.
    """

    other: str
    source: KeySource

    @property
    def what(self) -> str:
        return "values"

    @property
    def price(self) -> str:
        return "dpsql.Budget(epsilon=1, delta=1e-9)"

    def question(self, budget: Budget, keys: Keys) -> KeyQuestion:
        """Return the question for its keys."""
        computed = self.source.computed
        return KeyQuestion(self.typed, self.column, budget, keys, self.other, computed=computed)

    def attribute(self, declared: Domain | NumberBounds) -> str:
        computed = self.source.computed
        if computed is None or isinstance(declared, NumberBounds):
            return self.column
        return key_of(self.table, computed, declared)

    def declare(self, data: DeclaredData, declared: Domain | NumberBounds) -> DeclaredData:
        computed = self.source.computed
        if computed is None or isinstance(declared, NumberBounds):
            return data.declaring(self.table, self.column, declared)
        return data.telling(self.table, computed, declared)

    @property
    def called(self) -> str:
        each = ", ".join(as_text(part.label) for part in self.source.parts)
        return f"{as_text(self.typed)}, {f'[{each}]' if each else as_text(self.column)}"

    def call(self, budget: str) -> str:
        return f"session.find_keys({self.called}, budget={budget})"

    def known(self, data: PrivateData) -> PrivateData | None:
        keys = kept_keys(data, self.question(Budget(rho=1), Keys()))
        if keys is None:
            return None
        keys.check_any()
        return with_keys(data, self.question(Budget(rho=1), Keys()), keys)

    def assumed(self, request: Request, many: int) -> Assumed:
        """Return a domain with some keys, which are made up.

        Numbers and days are first those that statements name, with those before and after, so that
        conditions on them leave some.
        """
        many, said = self._many(request, many), " ".join(sql for _, sql in request.statements)
        keys = self._made_up(self.source.type, many, said)
        if self.source.parts:
            each = (self._made_up(part.type, many, said) for part in self.source.parts)
            keys = [text_of(values) for values in zip(*each, strict=False)]
        domain = domain_of(keys, self.source.type, self.other, filled=self.source.filled)
        return Assumed(self, domain, f"{many:,} of them")

    def _made_up(self, type_: str, many: int, said: str) -> Sequence[KeyValue]:
        """Make values of a type up, those first that statements name."""
        if type_ == "VARCHAR":
            made = (f"key {number}" for number in range(many + 1))
            return [key for key in made if key != self.other][:many]
        if type_ in INTEGER_TYPES:
            low, high = type_range(type_)
            numbers = dict.fromkeys((*_numbers_in(said), *range(many)))
            return sorted([n for n in numbers if low <= n <= high][:many])
        spread = (date(2000, 1, 1) + timedelta(days=37 * number) for number in range(many))
        return sorted(list(dict.fromkeys((*_days_in(said), *spread)))[:many])

    def _many(self, request: Request, otherwise: int) -> int:
        many = self.given(request, otherwise)
        whole = int(many) if _is_finite(many) else 0  # type: ignore[call-overload]
        if whole != many or not 1 <= whole <= _MOST_ASSUMED:
            raise ArgumentError(
                f"The keys that are assumed of {printable(self.name)} are a whole number from 1 to "
                f"{_MOST_ASSUMED:,}, not {shown(many)}.",
                hint="for example " + option("assume", {self.name: ASSUMED}) + ".",
            )
        return whole


@dataclass(frozen=True, slots=True)
class _WantedBounds(WantedFact):
    """A column of numbers that statements add up, or what is computed of a row."""

    @property
    def what(self) -> str:
        return "bounds"

    @property
    def price(self) -> str:
        return "dpsql.Budget(rho=0.1)"

    def question(self, budget: Budget) -> BoundsQuestion:
        """Return the question for its bounds."""
        return BoundsQuestion(self.typed, self.column, budget)

    def call(self, budget: str) -> str:
        return f"session.find_bounds({self.called}, budget={budget})"

    def declare(self, data: DeclaredData, declared: Domain | NumberBounds) -> DeclaredData:
        if isinstance(declared, NumberBounds) and not self.table.has(self.column):
            return data.bounding(self.table, self.column, declared)
        return data.declaring(self.table, self.column, declared)

    def known(self, data: PrivateData) -> PrivateData | None:
        bounds = kept_bounds(data, self.typed, self.column)
        return None if bounds is None else with_bounds(data, self.typed, bounds)

    def assumed(self, request: Request, many: int) -> Assumed:
        """Return bounds: up to a number that is given, or those that the column's name suggests."""
        bounds = drafted_bounds(self.column, type_of(self.table, self.column))
        given = self.given(request, bounds)
        if given is not bounds:
            if not _is_finite(given) or given == 0:
                raise ArgumentError(
                    f"The bound that is assumed of {printable(self.name)} is a number other than "
                    f"0, not {shown(given)}.",
                    hint="for example " + option("assume", {self.name: 1000}) + ".",
                )
            end = Fraction(str(given))
            bounds = NumberBounds(min(end, Fraction(0)), max(end, Fraction(0)))
        bounds = replace(bounds, found=True)
        ends = " to ".join(map(decimal_text, (bounds.low, bounds.high)))
        return Assumed(self, bounds, f"numbers from {ends}")


def _is_finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AssumedFacts:
    """Statements that are compiled as if what they lack had been found.

    Args:
        each: what is assumed.
        declared: the data with it.
        script: what the statements are compiled to.
    """

    each: tuple[Assumed, ...]
    declared: DeclaredData
    script: Script

    @classmethod
    def of(
        cls, declared: DeclaredData, request: Request, refused: SchemaError, many: int = ASSUMED
    ) -> AssumedFacts:
        """Assume something of one column after the other, until nothing is refused for want of it.

        Args:
            declared: the data.
            request: the statements.
            refused: the error by which they are refused.
            many: how many keys of each column, if the request doesn't say so.

        Raises:
            SchemaError: that one, where it isn't to be found; or another one.
            ArgumentError: nothing such can be assumed.
        """
        assumed, without = list[Assumed](), declared
        while True:
            fact = _wanted(declared, request, refused)
            if fact is None or any(fact.is_same(before.wanted) for before in assumed):
                raise refused
            assumed.append(fact.assumed(request, many))
            wanted = [each.wanted for each in assumed]
            assumed = [each for each in assumed if not _follows(each.wanted, wanted)]
            declared = reduce(lambda data, each: each.declare(data), assumed, without)
            try:
                return cls(tuple(assumed), declared, declared.compile(request))
            except SchemaError as error:
                if error.wanted is None:
                    raise _made_up(error, assumed, declared) from None
                refused = error
            except SqlError as error:
                raise _made_up(error, assumed, declared) from None

    @property
    def share(self) -> Fraction:
        """The part of the budget that finds keys by default."""
        keys = [fact for fact in self.each if isinstance(fact.wanted, _WantedKeys)]
        names, domains = {fact.attribute for fact in keys}, [fact.declared for fact in keys]
        values = [domain.values for domain in domains if isinstance(domain, Domain)]

        def tells(
            script: Script, name: str
        ) -> bool:  # also rows that refer to those with the column
            domain = script.table.columns.get(name)
            return name in names or (domain is not None and domain.values in values)

        each = (
            (script, family) for script in self.script.each for family in script.workload.families
        )
        alone = all(
            any(tells(script, name) for name in script.told_by(family)) for script, family in each
        )
        return ALONE if alone else BESIDE

    def without_numbers(self, request: Request) -> Request:
        """Return a request without the numbers that it assumes of columns."""
        given, wanted = request.assume or {}, [fact.wanted for fact in self.each]
        rest = {n: of for n, of in given.items() if not any(fact.is_called(n) for fact in wanted)}
        return replace(request, assume=rest or None)


def _numbers_in(said: str) -> Iterator[int]:
    """Yield the whole numbers that a text names, each with those beside it."""
    for number in map(int, _NUMBER.findall(said)):
        yield from (number, number - 1, number + 1)


def _days_in(said: str) -> Iterator[date]:
    """Yield the days that a text names, each with those beside it, and two of each year."""
    for text in _DAY.findall(said):
        with suppress(ValueError, OverflowError):
            day = date.fromisoformat(text)
            yield from (day, day - timedelta(days=1), day + timedelta(days=1))
    for year in (n for n in map(int, _NUMBER.findall(said)) if 1000 <= n <= 9999):
        yield from (date(year, 1, 1), date(year, 7, 1))


def _follows(before: WantedFact, facts: Sequence[WantedFact]) -> bool:
    """Whether values of an expression follow from those of columns, once these are found too."""
    if not isinstance(before, _WantedKeys) or before.source.computed is None:
        return False
    alone = {
        fact.column
        for fact in facts
        if isinstance(fact, _WantedKeys) and fact.source.computed is None
        if fact.table.path == before.table.path
    }
    return columns(before.source.computed.expression) <= alone


def _made_up(error: E, assumed: Sequence[Assumed], declared: DeclaredData) -> E:
    """Say how it is asked what is refused because of numbers or days that are made up."""
    for fact in (each.wanted for each in assumed):
        if not isinstance(fact, _WantedKeys) or fact.source.type != "VARCHAR":
            error.hint = declared.with_drafts(
                f"{fact.what} of {printable(fact.name)} aren't known beforehand; if that is why, "
                f"find them first: {fact.call('…')}."
            )
            break
    return error


def _wanted(declared: DeclaredData, request: Request, refused: SchemaError) -> WantedFact | None:
    """Return the column for want of whose facts something is refused; None if none are to be found.

    Raises:
        SchemaError: they can't be found.
    """
    if refused.wanted is None:
        return None
    table = declared.private(refused.wanted.path)
    column = refused.wanted.column
    name = declared.name_of(table)
    if refused.wanted.bounds:
        of = refused.wanted.computed
        read = of.columns if isinstance(of, BoundedExpression) else {column}
        declared_so = all(isinstance(table.unknown.get(column), UnknownBounds) for column in read)
        if not declared_so and request.bounds is None:
            return None
        sought = of.text if isinstance(of, BoundedExpression) else column
        return _WantedBounds(table, name, findable_bounds(declared, table, sought))
    source, computed = KeySource.of_column(table, column), refused.wanted.computed
    read = columns(computed.expression) if isinstance(computed, FoundExpression) else {column}
    declared_so = all(isinstance(table.unknown.get(column), UnknownKeys) for column in read)
    if not declared_so and request.keys is None:
        return None
    if isinstance(computed, FoundExpression):
        of = KeySource.of_expression(computed)
        source = of if is_computed(declared, table, of) else source
    most_keys(declared, table, source)
    labels = (table.unknown.get(column) for column in sorted(read))
    others = (of.other for of in labels if isinstance(of, UnknownKeys) and of.other != OTHER)
    return _WantedKeys(table, name, source.label, next(others, OTHER), source)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a budget for which keys and bounds are found.

    Args:
        budget: all of it, with δ set aside for keys.
        steps: the steps that find them.
    """

    budget: Budget
    steps: tuple[FindingStep, ...]

    @classmethod
    def of(
        cls,
        assumed: AssumedFacts,
        request: Request,
        missing: Sequence[Assumed],
        rule: Callable[[KeyQuestion], KeyRule],
        delta_aside: Callable[[Budget, Fraction], Fraction | None] = lambda *_: None,
    ) -> Parts:
        """Divide the budget of a request.

        Args:
            assumed: what is asked, as if everything had been found.
            request: the request.
            missing: what has to be found.
            rule: gives the rule for a question for keys.
            delta_aside: gives the δ of an account for a part of a budget; None if it has no total.

        Raises:
            BudgetError: there is no budget to take a part of, or no δ.
        """
        budget, first = request.amount, missing[0].wanted
        if budget is None or request.targets is not None:
            raise BudgetError(
                f"The {first.what} of {printable(first.name)} are found for a part of a budget, "
                "and none is given.",
                hint=f"find them first: {first.call(first.price)}.",
            )
        steps = list[FindingStep]()
        keys = [(fact, fact.wanted) for fact in missing if isinstance(fact.wanted, _WantedKeys)]
        if keys:
            asked, each = request.keys or Keys(), len(keys)
            share = None if asked.at_least is not None else asked.share or assumed.share
            delta = delta_of(asked, budget, delta_aside(budget, share or Fraction(1)))
            if budget.delta and not budget.key_delta:
                budget = budget.setting_aside(delta)
            part = Keys(
                None if share is None else share / each,
                at_least=asked.at_least,
                delta=on_fine_grid(delta / each, up=False),
                max_keys=asked.max_keys,
                pre_threshold=asked.pre_threshold,
            )
            questions = [(fact, wanted.question(budget, part)) for fact, wanted in keys]
            steps += [_KeyStep(fact, asked, rule(asked)) for fact, asked in questions]
        bounds = [(fact, fact.wanted) for fact in missing if isinstance(fact.wanted, _WantedBounds)]
        if bounds:
            amount = part_of(budget, (request.bounds or Bounds()).share / len(bounds))
            steps += [_BoundsStep(fact, wanted.question(amount), amount) for fact, wanted in bounds]
        return cls(budget, tuple(steps))

    def notes(self, script: Script, request: Request) -> tuple[str, ...]:
        """Say what is found, and what a script's answers gain by that."""
        said = tuple(step.note for step in self.steps)
        (first, *others) = self.steps
        measured = request.nonnegative or request.integers or not request.reuse
        measured = measured or request.mechanism != QUERYSMASHER
        if not isinstance(first, _KeyStep) or others or measured:
            return said
        gain = first.gain(script, self.rest)
        return said if gain is None else (*said, gain)

    @property
    def delta(self) -> Fraction:
        """The δ of all, as it is charged."""
        return sum((step.cost[1] for step in self.steps), Fraction(0))

    @property
    def rest(self) -> Budget:
        """The budget that is left for the answers.

        Raises:
            BudgetError: that is nothing.
        """
        if self.budget.pure:
            left = self.budget.amount - sum((step.epsilon for step in self.steps), Fraction(0))
            rest = Budget(epsilon=left, delta=0) if left > 0 else None
        else:
            spent = sum((step.cost[0] for step in self.steps), Fraction(0))
            rest = rest_of(self.budget, spent, Fraction(0))
        if rest is None:
            raise BudgetError(
                f"Finding keys and bounds takes all of {self.budget}, and leaves nothing for the "
                "answers.",
                hint="spend a part of it on that, for example keys=dpsql.Keys(share=0.5).",
            )
        return rest


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """A request before which keys and bounds are found.

    Args:
        data: the data, in which is declared what was found before.
        steps: the steps that find what is wanting.
        request: what is asked then, for what is left of the budget.
        planned: the data as they are planned before anything is found.
        notes: what a plan says of what has to be found.
    """

    data: PrivateData
    steps: tuple[FindingStep, ...]
    request: Request
    planned: PrivateData
    notes: tuple[str, ...]

    @classmethod
    def of(cls, data: PrivateData, request: Request, refused: SchemaError, many: int) -> FirstSteps:
        """Say what has to be found, for which part of the budget; spends nothing.

        Args:
            data: the data.
            request: the statements.
            refused: the error by which they are refused without that.
            many: how many keys of each column are assumed, if the request doesn't say so.

        Raises:
            SchemaError: that error, or another one.
            BudgetError: there isn't enough of a budget.
        """
        assumed = AssumedFacts.of(data.declared, request, refused, many)
        missing = list[Assumed]()
        known = data
        for fact in assumed.each:
            found_data = fact.wanted.known(known)
            if found_data is None:
                missing.append(fact)
                continue
            known = found_data
        planned = known
        for fact in missing:
            planned = replace(planned, declared=fact.declare(planned.declared))
        asked = assumed.without_numbers(replace(request, keys=None, bounds=None))
        if not missing:
            return cls(known, (), asked, known, ())
        if request.free:
            raise missing[0].wanted.nothing_found()
        parts = Parts.of(
            assumed, request, missing, partial(rule_of, data), partial(delta_of_account, data)
        )
        for fact in missing:
            if isinstance(fact.wanted, _WantedKeys) and fact.wanted.source.computed is None:
                # The column has another domain then.
                data.archive.expect_change(fact.wanted.table, fact.wanted.column)
        data.ledger.check_left(parts.budget, parts.budget.mu_squared, parts.delta)
        asked, notes = replace(asked, budget=parts.rest), parts.notes(assumed.script, request)
        return cls(known, parts.steps, asked, planned, notes)

    def found(self, watch: Watch) -> Iterator[PrivateData]:
        """Find one after the other, with a charge for each; yield the data with it after each.

        Raises:
            SchemaError: no number or day was found, so that there are no groups. What was found
                before stays.
            DpsqlError: see `Session.find_keys` and `Session.find_bounds`.
        """
        data = self.data
        for step in self.steps:
            data = step.found(data, watch)
            yield data


def planned_alone(
    declared: DeclaredData, request: Request, refused: SchemaError
) -> tuple[Script, Request, tuple[str, ...]]:
    """Compile statements as if what they lack had been found, where there is no account.

    Returns:
        What they are compiled to, what is asked with the rest of the budget, and notes of the plan.

    Raises:
        SchemaError, BudgetError: see `FirstSteps.of`.
    """
    assumed = AssumedFacts.of(declared, request, refused)
    parts = Parts.of(assumed, request, assumed.each, partial(rule_alone, declared))
    asked = replace(request, keys=None, bounds=None, budget=parts.rest)
    notes = parts.notes(assumed.script, request)
    return assumed.script, assumed.without_numbers(asked), notes
