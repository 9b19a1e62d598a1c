"""Wanted keys: values of columns by which statements group, and which nobody has declared.

    dpsql.query(con, "SELECT city, COUNT(*) AS n FROM people GROUP BY city", budget=…,
                keys=dpsql.Keys())

finds them for a part of the budget, and answers with the rest. Before anything is spent, statements
are compiled and planned as if some keys were found, so that what can't be answered is refused for
nothing. The keys that are found are public from then on, as answers are. So what is asked with them
may depend on them, and what is refused then may say why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import partial
from typing import TypeVar

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
from dpsql.privacy import Budget
from dpsql.privacy.amount import on_fine_grid, on_grid
from dpsql.privacy.key_budget import Keys, delta_of
from dpsql.privacy.keys import KeyRule
from dpsql.progress import Watch
from dpsql.release.found_keys import KeyValue, domain_of
from dpsql.request import Request
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES, OTHER, Domain
from dpsql.schema.grain import declared_type
from dpsql.schema.names import folded
from dpsql.schema.sequences import type_range
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.keys import (
    KeyQuestion,
    answer_keys,
    delta_of_account,
    kept_keys,
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
"""The share of the budget that finds keys: of statements that only count by them, and of others."""


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """A column by whose values statements group.

    Args:
        table: the table that has it.
        typed: the name by which the table is meant, and no other one.
        column: its name there.
        other: the label for texts that aren't found.
    """

    table: Table
    typed: str
    column: str
    other: str

    @property
    def name(self) -> str:
        """The name by which keys are assumed."""
        return f"{self.table.name}.{self.column}"

    def is_same(self, other: WantedKeys) -> bool:
        """Whether it is the same column."""
        return (self.table.path, self.column) == (other.table.path, other.column)

    def is_called(self, name: str) -> bool:
        """Whether keys that are assumed by a name are its."""
        return folded(name) == folded(self.name)

    @property
    def filled(self) -> bool:
        """Whether it is never NULL."""
        return self.column in self.table.filled

    def question(self, budget: Budget, keys: Keys) -> KeyQuestion:
        """Return the question for its keys."""
        return KeyQuestion(self.typed, self.column, budget, keys, self.other)

    def call(self, budget: str) -> str:
        """Return the call that finds its keys, to be typed; the budget as it is written there."""
        table, column = printable(self.typed), printable(self.column)
        return f'session.find_keys("{table}", "{column}", budget={budget})'

    def assumed(self, many: int, said: str) -> Domain:
        """Return a domain with so many keys, which are made up.

        Numbers and days are first those that statements name, with those before and after, so that
        conditions on them leave some.

        Args:
            many: how many.
            said: the statements.
        """
        type_ = declared_type(self.table, self.column)
        made = (f"key {number}" for number in range(many + 1))
        keys: Sequence[KeyValue] = [key for key in made if key != self.other][:many]
        if type_ in INTEGER_TYPES:
            low, high = type_range(type_)
            numbers = dict.fromkeys((*_numbers_in(said), *range(many)))
            keys = sorted([n for n in numbers if low <= n <= high][:many])
        elif type_ != "VARCHAR":
            spread = (date(2000, 1, 1) + timedelta(days=37 * number) for number in range(many))
            keys = sorted(list(dict.fromkeys((*_days_in(said), *spread)))[:many])
        return domain_of(keys, type_, self.other, filled=self.filled)


@dataclass(frozen=True, slots=True)
class AssumedKeys:
    """Statements that are compiled as if keys had been found.

    Args:
        wanted: the columns whose keys they need, each with a number of keys that is assumed.
        declared: the data with domains for these.
        script: what the statements are compiled to.
    """

    wanted: tuple[tuple[WantedKeys, int], ...]
    declared: DeclaredData
    script: Script

    @classmethod
    def of(
        cls, declared: DeclaredData, request: Request, refused: SchemaError, many: int = ASSUMED
    ) -> AssumedKeys:
        """Assume keys of one column after the other, until nothing is refused for want of them.

        Args:
            declared: the data.
            request: the statements.
            refused: the error by which they are refused.
            many: how many keys of each, if the request doesn't say so.

        Raises:
            SchemaError: that one, where the keys of its column aren't to be found; or another one.
            ArgumentError: no such number can be assumed.
        """
        found = list[tuple[WantedKeys, int]]()
        while True:
            one = _wanted(declared, request.keys, refused)
            if one is None or any(one.is_same(before) for before, _ in found):
                raise refused
            found.append((one, _number(one, request, many)))
            domain = one.assumed(found[-1][1], " ".join(sql for _, sql in request.statements))
            declared = declared.declaring(one.table, one.column, domain)
            try:
                return cls(tuple(found), declared, declared.compile(request))
            except SchemaError as error:
                if error.wanted is None:
                    raise _made_up(error, found) from None
                refused = error
            except SqlError as error:
                raise _made_up(error, found) from None

    @property
    def share(self) -> Fraction:
        """The part of the budget that finds keys by default."""
        names = {one.column for one, _ in self.wanted}
        families = (family for own in self.script.each for family in own.workload.families)
        return ALONE if all(family.attributes & names for family in families) else BESIDE

    def without_numbers(self, request: Request) -> Request:
        """Return a request without the numbers of keys that it assumes."""
        given, wanted = request.assume or {}, [one for one, _ in self.wanted]
        rest = {n: of for n, of in given.items() if not any(one.is_called(n) for one in wanted)}
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


def _made_up(error: E, found: Sequence[tuple[WantedKeys, int]]) -> E:
    """Say how it is asked what is refused because of numbers or days that are made up."""
    for one, _ in found:
        if declared_type(one.table, one.column) != "VARCHAR":
            error.hint = (
                f"values of {printable(one.name)} aren't known beforehand; if that is why, find "
                f"them first: {one.call('…')}."
            )
            break
    return error


def _number(one: WantedKeys, request: Request, otherwise: int) -> int:
    """Return how many keys of a column are assumed.

    Raises:
        ArgumentError: there can't be so many.
    """
    given = (n for name, n in (request.assume or {}).items() if one.is_called(name))
    many: object = next(given, otherwise)
    number = isinstance(many, int | float) and not isinstance(many, bool) and math.isfinite(many)
    whole = int(many) if number and isinstance(many, int | float) else 0
    if whole != many or not 1 <= whole <= _MOST_ASSUMED:
        raise ArgumentError(
            f"The keys that are assumed of {printable(one.name)} are a whole number from 1 to "
            f"{_MOST_ASSUMED:,}, not {shown(many)}.",
            hint="for example " + option("assume", {one.name: ASSUMED}) + ".",
        )
    return whole


def _wanted(declared: DeclaredData, keys: Keys | None, refused: SchemaError) -> WantedKeys | None:
    """Return the column for want of whose keys something is refused; None if none are to be found.

    Raises:
        SchemaError: they can't be found.
    """
    if refused.wanted is None:
        return None
    path, column = refused.wanted
    table = declared.private(path)
    said = table.unknown.get(column)
    if said is None and keys is None:
        return None
    most_keys(declared, table, column)
    return WantedKeys(table, declared.name_of(table), column, OTHER if said is None else said.other)


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The parts of a budget for which keys are found.

    Args:
        budget: all of it, with δ set aside.
        questions: the questions for keys.
        rules: the rule by which those of each are found.
        notes: what a plan says of each.
    """

    budget: Budget
    questions: tuple[KeyQuestion, ...]
    rules: tuple[KeyRule, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        assumed: AssumedKeys,
        request: Request,
        missing: Sequence[tuple[WantedKeys, int]],
        rule: Callable[[KeyQuestion], KeyRule],
        delta_aside: Callable[[Budget, Fraction], Fraction | None] = lambda *_: None,
    ) -> KeyParts:
        """Divide the budget of a request.

        Args:
            assumed: what is asked, as if keys had been found.
            request: the request.
            missing: the columns whose keys have to be found, and how many are assumed.
            rule: gives the rule for a question.
            delta_aside: gives the δ of an account for a part of a budget; None if it has no total.

        Raises:
            BudgetError: there is no budget to take a part of, or no δ.
        """
        budget, keys, each = request.amount, request.keys or Keys(), len(missing)
        if budget is None or request.targets is not None:
            one, _ = missing[0]
            raise BudgetError(
                f"The values of {printable(one.name)} are found for a part of a budget, and none "
                "is given.",
                hint=f"find them first: {one.call('dpsql.Budget(rho=0.1)')}.",
            )
        share = None if keys.at_least is not None else keys.share or assumed.share
        delta = delta_of(keys, budget, delta_aside(budget, share or Fraction(1)))
        if budget.delta is not None and not budget.key_delta:
            budget = budget.setting_aside(delta)
        part = Keys(
            None if share is None else share / each,
            at_least=keys.at_least,
            delta=on_fine_grid(delta / each, up=False),
            max_keys=keys.max_keys,
            pre_threshold=keys.pre_threshold,
        )
        questions = tuple(one.question(budget, part) for one, _ in missing)
        rules = tuple(map(rule, questions))
        notes = (_note(one, many, by) for (one, many), by in zip(missing, rules, strict=True))
        return cls(budget, questions, rules, tuple(notes))

    @property
    def delta(self) -> Fraction:
        """The δ of all, as it is charged."""
        return sum((on_fine_grid(rule.delta, up=True) for rule in self.rules), Fraction(0))

    @property
    def rest(self) -> Budget:
        """The budget that is left for the answers once keys were found.

        Raises:
            BudgetError: that is nothing.
        """
        spent = sum((on_grid(rule.mu_squared) for rule in self.rules), Fraction(0))
        left = self.budget.mu_squared - spent
        if left <= 0:
            raise BudgetError(
                f"Finding keys takes all of {self.budget}, and leaves nothing for the answers.",
                hint="spend a part of it on keys, for example keys=dpsql.Keys(share=0.5).",
            )
        return Budget(rho=left / 2)


def _note(one: WantedKeys, many: int, rule: KeyRule) -> str:
    """Say of a column how its values are found, and with how many it is planned."""
    said = (
        f"values of {printable(one.name)} are found first, for ρ = "
        f"{float(rule.mu_squared / 2):.3g} of the budget: {rule}. Errors are for {many:,} of "
        "them; another number is assumed by "
    )
    return said + option("assume", {one.name: 2500})


@dataclass(frozen=True, slots=True)
class KeysFirst:
    """A request before which keys are found.

    Args:
        data: the data, in which keys that were found before are declared.
        steps: the questions for keys that have to be found.
        request: what is asked then, for what is left of the budget.
        planned: the data as they are planned before keys are found.
        notes: what a plan says of keys that have to be found.
    """

    data: PrivateData
    steps: tuple[KeyQuestion, ...]
    request: Request
    planned: PrivateData
    notes: tuple[str, ...]

    @classmethod
    def of(cls, data: PrivateData, request: Request, refused: SchemaError, many: int) -> KeysFirst:
        """Say which keys have to be found, for which part of the budget; spends nothing.

        Args:
            data: the data.
            request: the statements.
            refused: the error by which they are refused without keys.
            many: how many keys of each column are assumed, if the request doesn't say so.

        Raises:
            SchemaError: that error, or another one.
            BudgetError: there isn't enough of a budget.
        """
        assumed = AssumedKeys.of(data.declared, request, refused, many)
        missing = list[tuple[WantedKeys, int]]()
        declared, planned = data, assumed.declared
        for one, many in assumed.wanted:
            found = kept_keys(data, one.question(Budget(rho=1), Keys()))
            if found is None:
                missing.append((one, many))
                continue
            planned = planned.declaring(one.table, one.column, found.domain)
            declared = with_keys(declared, one.typed, found)
        asked = assumed.without_numbers(replace(request, keys=None))
        if not missing:
            return cls(declared, (), asked, declared, ())
        if request.free:
            raise BudgetError(
                f"No keys of {printable(missing[0][0].name)} were found before.",
                hint="pass a budget, for example dpsql.Budget(epsilon=1, delta=1e-9).",
            )
        parts = KeyParts.of(
            assumed, request, missing, partial(rule_of, data), partial(delta_of_account, data)
        )
        for one, _ in missing:
            data.archive.expect_change(one.table, one.column)  # which has other domains then
        data.ledger.check_left(parts.budget, parts.budget.mu_squared, parts.delta)
        return cls(
            declared,
            parts.questions,
            replace(asked, budget=parts.rest),
            replace(data, declared=planned),
            parts.notes,
        )

    def found(self, watch: Watch) -> Iterator[PrivateData]:
        """Find keys, with a charge for each column; yield the data with them after each.

        Raises:
            SchemaError: no number or day was found, so that there are no groups. What was found
                before stays.
            DpsqlError: see `Session.find_keys`.
        """
        data = self.data
        for question in self.steps:
            keys = answer_keys(data, question, watch)
            keys.check_any()
            data = with_keys(data, question.table, keys)
            yield data


def planned_alone(
    declared: DeclaredData, request: Request, refused: SchemaError
) -> tuple[Script, Request, tuple[str, ...]]:
    """Compile statements as if keys had been found, where there is no account.

    Returns:
        What they are compiled to, what is asked with the rest of the budget, and notes of the plan.

    Raises:
        SchemaError, BudgetError: see `KeysFirst.of`.
    """
    assumed = AssumedKeys.of(declared, request, refused)
    parts = KeyParts.of(assumed, request, assumed.wanted, partial(rule_alone, declared))
    asked = assumed.without_numbers(replace(request, keys=None, budget=parts.rest))
    return assumed.script, asked, parts.notes
