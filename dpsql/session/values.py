"""Values of the rows of all units that statements compare rows with: each is released first.

    SELECT COUNT(*) FROM loan WHERE amount > (SELECT AVG(amount) FROM loan)

Which rows count must not depend on the rows of other units. But it may depend on what was released
of them. So such a subquery is a statement of its own, for a part of the budget, and its answer is
written in its place: what is asked then is a statement as any other, and the release shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from dpsql.answers.answers import invented
from dpsql.answers.facts import ReleasedValue
from dpsql.errors import (
    BudgetError,
    SqlError,
    UndeterminedError,
    UnsupportedSqlError,
    printable,
)
from dpsql.hints import option, spend
from dpsql.privacy import Budget
from dpsql.privacy.finding import part_of
from dpsql.release import Release
from dpsql.request import Free, Request
from dpsql.schema.names import quoted_text
from dpsql.session.answer import charges_of, check_answerable
from dpsql.session.data import PrivateData

SHARE = Fraction(1, 5)
"""The part of the budget for which all of them are released."""
MOST = 8
"""The largest number of them in a request."""
NAME = "value"
"""The name of each as a statement of its own."""


def with_values(
    data: PrivateData, request: Request, answer: Callable[[Request], Release]
) -> tuple[PrivateData, Request]:
    """Release the values, and return what is asked with these, for the rest of the budget.

    Before, it is looked whether that can be answered, with invented values.

    Returns:
        The data with what was released, and what is asked.

    Args:
        data: what the statements are over.
        request: these.
        answer: answers a request, for a charge or from what was measured before.

    Raises:
        DpsqlError: see `answer.answer`.
    """
    known, assumed = assumed_values(data, request)
    budget = request.amount
    each: Budget | Free = 0
    if budget is not None:
        each = part_of(budget, SHARE / len(known))
        data.ledger.check_left(budget, budget.mu_squared, Fraction(0))
        check_answerable(data, assumed)
    valued = list[ReleasedValue]()
    for _ in known:
        wanted = _wanted(data, request)
        if wanted is not None:
            asked = replace(_alone(request, str(wanted.value)), budget=each)
            release = answer(asked)
            value = _literal(release[NAME][NAME][0], wanted)
            charges = charges_of(data, release)
            valued.append(ReleasedValue(str(wanted.value), value, charges))
            request = _written(request, wanted, value)
    declared = replace(data.declared, valued=tuple(valued))
    return replace(data, declared=declared), replace(request, budget=assumed.budget)


def assumed_values(data: PrivateData, request: Request) -> tuple[list[str], Request]:
    """Return the statements that return the values, and what is asked with invented ones.

    Raises:
        DpsqlError: one of them can't be answered; or there is no budget of which to take a part.
    """
    found = list[str]()
    budget = request.amount
    while (wanted := _wanted(data, request)) is not None:
        if len(found) == MOST:
            raise wanted
        if not request.free and (budget is None or request.targets is not None):
            raise BudgetError(
                "A value of all rows that rows are compared with is released first, for a part of "
                "a budget, and none is given.",
                hint="pass " + spend(rho="0.5") + " in place of " + option("targets") + ".",
            )
        found.append(str(wanted.value))
        invention = _literal(_invented(data, request, wanted), wanted)
        request = _written(request, wanted, invention)
    if budget is not None:
        request = replace(request, budget=part_of(budget, 1 - SHARE))
    return found, request


def notes_of(known: list[str], budget: Budget | None) -> tuple[str, ...]:
    """Say what is released before the rest."""
    rho = 0.0 if budget is None else float(SHARE / len(known) * budget.mu_squared / 2)
    return tuple(
        f"{printable(sql)} is released first, for ρ = {rho:.3g} of the budget. Errors are for an "
        "invented value in its place"
        for sql in known
    )


def _invented(data: PrivateData, request: Request, wanted: UnsupportedSqlError) -> object:
    """Return an invented value in place of one that is wanting, of its type.

    Raises:
        UnsupportedSqlError: it can't be released by itself.
    """
    alone = _alone(request, str(wanted.value))
    try:
        while (inner := _wanted(data, alone)) is not None and inner.value != wanted.value:
            alone = _written(alone, inner, _literal(_invented(data, alone, inner), inner))
        with data.held():
            script = data.declared.compile(alone)
    except SqlError:
        raise wanted from None
    return invented(script.statements[0])[0, 0]


def _wanted(data: PrivateData, request: Request) -> UnsupportedSqlError | None:
    """Return the error by which a request is refused for want of a value; None if it isn't."""
    try:
        with data.held():
            data.declared.compile(request)
    except UnsupportedSqlError as error:
        if error.value is None:
            raise
        return error
    return None


def _alone(request: Request, sql: str) -> Request:
    """Ask for one of the values, in the same way, but for how answers are shown."""
    own = Request(((NAME, sql),), request.budget, objective=request.objective)
    ways = ("tolerance", "residuals", "reuse", "mechanism", "bases", "loss", "accept_gap", "keys",
            "bounds", "quantiles", "progress")  # fmt: skip
    return replace(own, **{way: getattr(request, way) for way in ways})


def _written(request: Request, wanted: UnsupportedSqlError, value: str) -> Request:
    """Write a value, as SQL has it, in the place that an error marks."""
    if wanted.sql is None or wanted.span is None:
        raise wanted
    sql = wanted.sql[: wanted.span.start] + value + wanted.sql[wanted.span.end :]
    written = ((name, sql if text == wanted.sql else text) for name, text in request.statements)
    statements = tuple(written)
    if statements == request.statements:  # it is about a text that was made of one
        raise wanted
    return replace(request, statements=statements)


def _literal(value: object, wanted: UnsupportedSqlError) -> str:
    """Write a value in SQL.

    Raises:
        UndeterminedError: it is NULL, as of too few rows.
    """
    if value is None:
        raise UndeterminedError(
            f"{printable(str(wanted.value))} has no value that could be told: it is of too few "
            "rows.",
            hint="write a value in its place.",
        )
    if isinstance(value, datetime):
        return f"TIMESTAMP {quoted_text(str(value))}"
    if isinstance(value, date):
        return f"DATE {quoted_text(str(value))}"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float | Decimal):
        return f"({Decimal(str(value)):f})"
    return quoted_text(str(value))
