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
from dpsql.answers.groundwork import Earlier, ReleasedValue
from dpsql.errors import (
    BudgetError,
    SchemaError,
    SqlError,
    UndeterminedError,
    UnsupportedSqlError,
    printable,
)
from dpsql.hints import option, spend
from dpsql.privacy import Budget
from dpsql.privacy.amount import on_fine_grid
from dpsql.privacy.finding import Keys, delta_of, part_of
from dpsql.release import Release
from dpsql.request import Request
from dpsql.schema.names import quoted_text
from dpsql.session.answer import check_answerable, released_before
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.wanted import FEW, AssumedFacts

SHARE = Fraction(1, 5)
"""The part of the budget for which all of them are released."""
MOST = 8
"""The largest number of them in a request."""
NAME = "value"
"""The name of each as a statement of its own."""


Finding = Callable[[Request, SchemaError], tuple[PrivateData, Request]]
"""Finds what a request lacks, for a part of its budget; returns the data with it, and the rest."""


def with_values(
    data: PrivateData, request: Request, answer: Callable[[Request], Release], find: Finding
) -> tuple[PrivateData, Request]:
    """Release the values, and return what is asked with these, for the rest of the budget.

    Before, it is looked whether that can be answered, with invented values. Keys and bounds that
    are wanting for it are found then: so tables are described alike in all that follows.

    Returns:
        The data with what was released, and what is asked.

    Args:
        data: what the statements are over.
        request: these.
        answer: answers a request, for a charge or from what was measured before.
        find: finds keys and bounds.

    Raises:
        DpsqlError: see `answer.answer`.
    """
    request = _with_delta(request)
    with data.held():
        known, rest = assumed_values(data.declared, request)
    each = _part(request, SHARE / len(known))
    if request.amount is not None:
        data.ledger.check_left(request.amount, request.amount.mu_squared, Fraction(0))
        try:
            check_answerable(data, rest)
        except SchemaError as error:
            data, rest = find(rest, error)
    valued = list[ReleasedValue]()
    for _ in known:
        with data.held():
            wanted = _wanted(data.declared, request)
        if wanted is not None:
            asked = _alone(each, str(wanted.value))
            release = (released_before(data, asked) if request.free else None) or answer(asked)
            value = _literal(release[NAME][NAME][0], wanted)
            charges = _charges_of(data, release)
            valued.append(ReleasedValue(str(wanted.value), value, charges))
            request = _written(request, wanted, value)
    declared = replace(data.declared, valued=tuple(valued))
    return replace(data, declared=declared), replace(rest, statements=request.statements)


def _with_delta(request: Request) -> Request:
    """Return a request whose δ for keys, if it has one, is said, and set aside of its budget.

    So each part of the request has a part of it, and all together spend no more. What an account
    sets aside it divides itself.
    """
    keys, budget = request.keys, request.amount
    if keys is None or budget is None or budget.key_delta or not (keys.delta or budget.delta):
        return request
    delta = delta_of(keys, budget, None)
    if budget.delta:
        budget = budget.setting_aside(delta)
    return replace(request, budget=budget, keys=_paid_by(keys, delta))


def _part(request: Request, share: Fraction) -> Request:
    """Return a request for a part of its budget, and of the δ that it names for keys."""
    keys, budget = request.keys, request.amount
    if budget is None:
        return request
    if keys is not None and keys.delta is not None:
        keys = _paid_by(keys, on_fine_grid(keys.delta * share, up=False))
    return replace(request, budget=part_of(budget, share), keys=keys)


def _paid_by(keys: Keys, delta: Fraction) -> Keys:
    return Keys(
        keys.share,
        at_least=keys.at_least,
        delta=delta,
        max_keys=keys.max_keys,
        pre_threshold=keys.pre_threshold,
    )


def _charges_of(data: PrivateData, release: Release) -> tuple[Earlier, ...]:
    """Return the charges on which a release rests, its own as the last."""
    paid = release.receipt
    own = (e for e in data.ledger.entries() if paid is not None and e.request == paid.request)
    return (*release.facts.charges_before, *map(Earlier.of, own))


def assumed_values(declared: DeclaredData, request: Request) -> tuple[list[str], Request]:
    """Return the statements that return the values, and what is asked with invented ones.

    The catalog is held, see `PrivateData.held`.

    Raises:
        DpsqlError: one of them can't be answered; or there is no budget of which to take a part.
    """
    found = list[str]()
    request = _with_delta(request)
    budget = request.amount
    while (wanted := _wanted(declared, request)) is not None:
        if len(found) == MOST:
            raise wanted
        if not request.free and (budget is None or request.targets is not None):
            raise BudgetError(
                "A value of all rows that rows are compared with is released first, for a part of "
                "a budget, and none is given.",
                hint="pass " + spend(rho="0.5") + " in place of " + option("targets") + ".",
            )
        found.append(str(wanted.value))
        invention = _literal(_invented(declared, request, wanted), wanted)
        request = _written(request, wanted, invention)
    return found, _part(request, 1 - SHARE)


def notes_of(known: list[str], rest: Budget | None) -> tuple[str, ...]:
    """Say what is released before the rest, for which part of the budget."""
    each = SHARE / (1 - SHARE) / len(known)
    rho = 0.0 if rest is None else float((part_of(rest, each)).mu_squared / 2)
    return tuple(
        f"{printable(sql)} is released first, for ρ = {rho:.3g} of the budget. Errors are for an "
        "invented value in its place"
        for sql in known
    )


def _invented(declared: DeclaredData, request: Request, wanted: UnsupportedSqlError) -> object:
    """Return an invented value in place of one that is wanting, of its type.

    Raises:
        UnsupportedSqlError: it can't be released by itself.
        SchemaError: nobody has declared what it needs, and nothing says how that is found.
    """
    alone = _alone(request, str(wanted.value))
    try:
        while (inner := _wanted(declared, alone)) is not None and inner.value != wanted.value:
            alone = _written(alone, inner, _literal(_invented(declared, alone, inner), inner))
        try:
            script = declared.compile(alone)
        except SchemaError as error:
            if error.wanted is None:
                raise
            script = AssumedFacts.of(declared, alone, error, FEW).script
    except SqlError as error:
        if isinstance(error, SchemaError) and error.wanted is not None:
            raise
        raise wanted from None
    return invented(script.statements[0])[0, 0]


def _wanted(declared: DeclaredData, request: Request) -> UnsupportedSqlError | None:
    """Return the error by which a request is refused for want of a value; None if it isn't.

    What else is wanting is found afterwards.
    """
    try:
        declared.compile(request)
    except UnsupportedSqlError as error:
        if error.value is None:
            raise
        return error
    except SchemaError as error:
        if error.wanted is None:
            raise
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
