"""Values of the rows of all units that statements compare rows with: each is released first.

    SELECT COUNT(*) FROM loan WHERE amount > (SELECT AVG(amount) FROM loan)

Which rows count must not depend on the rows of other units. But it may depend on what was released
of them. So such a subquery is a statement of its own, for a part of the budget, and its answer is
written in its place: what is asked then is a statement as any other, and the release shows it. So
is a query after FROM whose rows are answers, and that rows are joined with:

    SELECT COUNT(*) FROM loan JOIN (SELECT kind, AVG(amount) AS mean FROM loan GROUP BY kind) AS m
    ON loan.kind = m.kind WHERE amount > mean

Its answers are written there as a query of constants, which is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import polars as pl

from dpsql.answers.answers import invented
from dpsql.answers.facts import ReleasedValue
from dpsql.errors import (
    BudgetError,
    Span,
    SqlError,
    UndeterminedError,
    UnsupportedSqlError,
    ValueByKeys,
    printable,
)
from dpsql.hints import Hint, Remedy, never, option, spend
from dpsql.privacy import Budget
from dpsql.privacy.finding import part_of
from dpsql.release import Release
from dpsql.request import Free, Request
from dpsql.schema.names import RESERVED, folded, quoted_name, quoted_text
from dpsql.session.answer import charges_of, check_answerable
from dpsql.session.data import PrivateData

SHARE = Fraction(1, 5)
"""The part of the budget for which all of them are released."""
MOST_VALUES = 600
"""The largest number of values that the rows of one of them may have, each of a dozen tokens."""
_APART = 10**6
"""The largest of invented values that are far apart;"""
_LARGEST = 2**63 - 1
"""and that of whole numbers, which are written with as much room again for arithmetic."""
_DIGITS = 24
"""Characters of a number as it is written: no double has more."""
MOST = 8
"""The largest number of them in a request."""
NAME = "value"
"""The name of each as a statement of its own."""


def with_values(
    data: PrivateData, request: Request, answer: Callable[[Request], Release]
) -> tuple[PrivateData, Request]:
    """Release the values, and return what is asked with these, for the rest of the budget.

    Before, it is looked whether that can be answered, with invented values; where these are by
    keys, also with values far apart, and with none.

    Returns:
        The data with what was released, and what is asked.

    Args:
        data: what the statements are over.
        request: these.
        answer: answers a request, for a charge or from what was measured before.

    Raises:
        DpsqlError: see `answer.answer`.
    """
    edits = list[_Edit]()
    budget = request.amount
    each: Budget | Free = 0
    with _told_as_asked(edits):
        known, first, assumed, keyed = _assumed(data, request, edits)
        if budget is not None:
            each = part_of(budget, SHARE / len(known))
            data.ledger.check_left(budget, budget.mu_squared, Fraction(0))
            check_answerable(data, assumed)
            for alone in first:
                check_answerable(data, replace(alone, budget=each))
            for fill in (pl.DataFrame.clear, _far_apart) if keyed else ():
                edits.clear()
                check_answerable(data, _assumed(data, request, edits, fill).request)
    valued = list[ReleasedValue]()
    for _ in known:
        wanted = _wanted(data, request)
        if wanted is not None:
            asked = replace(_alone(request, str(wanted.value)), budget=each)
            release = answer(asked)
            shown = release.columns(NAME).filter(pl.col("role") != "adjusted")["column"]
            value = _written_out(release[NAME].select(shown.to_list()), wanted)
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
    edits = list[_Edit]()
    with _told_as_asked(edits):
        found = _assumed(data, request, edits)
        return found.statements, found.request


class _Assumed(NamedTuple):
    """A request with invented values."""

    statements: list[str]
    """The statements that return them."""
    first: list[Request]
    """Requests for each of them by itself, with invented values in these."""
    request: Request
    keyed: bool
    """Whether any of them is one by keys."""


_Fill = Callable[[pl.DataFrame], pl.DataFrame]
"""Returns other invented rows of the same columns."""


def _far_apart(answer: pl.DataFrame) -> pl.DataFrame:
    """Return rows whose first column has other numbers in each: whatever noise may make of it."""
    first, *others = answer.get_columns()
    if not first.dtype.is_numeric():
        return answer
    apart, dtype = (_LARGEST, pl.Int128()) if first.dtype.is_integer() else (_APART, first.dtype)
    step = 2 * apart // max(1, answer.height - 1)
    values = [min(i * step, 2 * apart) - apart for i in range(answer.height)]
    numbers = pl.Series(first.name, values, dtype=pl.Int128)
    return pl.DataFrame([numbers.cast(dtype, strict=False), *others])


def _as_they_are(answer: pl.DataFrame) -> pl.DataFrame:
    return answer


def _assumed(
    data: PrivateData, request: Request, edits: list[_Edit], fill: _Fill = _as_they_are
) -> _Assumed:
    statements, first, keyed = list[str](), list[Request](), False
    budget = request.amount
    while (wanted := _wanted(data, request)) is not None:
        if len(statements) == MOST:
            raise wanted
        if not request.free and (budget is None or request.targets is not None):
            raise BudgetError(
                "A value of all rows that rows are compared with is released first, for a part of "
                "a budget, and none is given.",
                hint="pass " + spend(rho="0.5") + " in place of " + option("targets") + ".",
            )
        statements.append(str(wanted.value))
        keyed |= wanted.by_keys is not None
        before, (value, alone) = request, _invented(data, request, wanted, fill)
        first.append(alone)
        request = _written(request, wanted, value)
        edits += _edits(before, request, wanted)
    if budget is not None:
        request = replace(request, budget=part_of(budget, 1 - SHARE))
    return _Assumed(statements, first, request, keyed)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A value that was written in a statement, which who asked didn't write."""

    before: str
    after: str
    start: int
    old: str
    new: str

    def place(self, at: int, *, end: bool) -> int:
        """Return where a place of the text with the value is in the text without."""
        if at <= self.start:
            return at
        if at >= self.start + len(self.new):
            return at - len(self.new) + len(self.old)
        return self.start + len(self.old) * end


def _edits(before: Request, after: Request, wanted: UnsupportedSqlError) -> Iterator[_Edit]:
    """Yield what became of the statements in which a value was written."""
    if wanted.span is None:
        return
    start, stop = wanted.span.start, wanted.span.end
    texts = ((a, b) for (_, a), (_, b) in zip(before.statements, after.statements, strict=True))
    for text, written in texts:
        if text != written:
            length = len(written) - len(text) + stop - start
            yield _Edit(text, written, start, text[start:stop], written[start : start + length])


@contextmanager
def _told_as_asked(edits: Sequence[_Edit]) -> Iterator[None]:
    """Tell of errors in the words of who asked, without values that are invented."""
    try:
        yield
    except SqlError as error:
        for edit in reversed(edits):
            if error.sql == edit.after and error.span is not None:
                start, stop = error.span.start, error.span.end
                inside = edit.start <= start and stop <= edit.start + len(edit.new)
                span = edit.place(start, end=False), edit.place(stop, end=True)
                error.sql, error.span = edit.before, Span(*span)
                error.message = error.message.replace(edit.new, edit.old)
                if inside and edit.new.startswith("("):
                    error.message = error.message.replace(edit.new[1:-1], edit.old)
                error.hint = _without(error.hint, edit)
        raise


def _without(hint: str | None, edit: _Edit) -> str | None:
    """Return a hint in which a subquery stands again, in place of its value."""
    if not isinstance(hint, Hint):
        return hint and hint.replace(edit.new, edit.old)
    remedies = list[Remedy]()
    for remedy in hint.remedies:
        span = remedy.span
        if span is not None:
            span = edit.place(span[0], end=False), edit.place(span[1], end=True)
        remedies.append(Remedy(remedy.place, remedy.text.replace(edit.new, edit.old), span))
    python, command, cell = (
        text.replace(edit.new, edit.old) for text in (hint, hint.command, hint.cell)
    )
    return Hint(python, command, cell, tuple(remedies))


def notes_of(known: list[str], budget: Budget | None) -> tuple[str, ...]:
    """Say what is released before the rest."""
    rho = 0.0 if budget is None else float(SHARE / len(known) * budget.mu_squared / 2)
    return tuple(
        f"{printable(sql)} is released first, for ρ = {rho:.3g} of the budget. Errors are for an "
        "invented value in its place"
        for sql in known
    )


def _invented(
    data: PrivateData, request: Request, wanted: UnsupportedSqlError, fill: _Fill = _as_they_are
) -> tuple[str, Request]:
    """Write an invented value in place of one that is wanting, of its type; or such rows.

    Returns:
        What is written, and the request for the value by itself.

    Raises:
        UnsupportedSqlError: it can't be released by itself.
    """
    alone = _alone(request, str(wanted.value))
    try:
        while (inner := _wanted(data, alone)) is not None and inner.value != wanted.value:
            alone = _written(alone, inner, _invented(data, alone, inner, fill)[0])
        with data.held():
            script = data.declared.compile(alone)
    except SqlError:
        raise wanted from None
    statement = script.statements[0]
    answer = invented(statement)
    shown = [name for name in answer.columns if not name.startswith(RESERVED)]
    if (values := statement.rows * len(shown)) > MOST_VALUES:  # as many as noise may choose of all
        wanted.message = (
            f"At most {MOST_VALUES} values that are released first are written in a statement, and "
            f"this may have {values:,}."
        )
        wanted.hint = never(
            "ask for fewer groups; or release them by themselves, and make them a public table, "
        ) + Hint('public={"chosen": frame}.', "--public chosen.")
        raise wanted
    rows = answer.select(shown)
    types = rows.dtypes if wanted.by_keys is None else rows.dtypes[:1]
    if any(_has_another_order(dtype) for dtype in types) and not _is_only_equal(wanted):
        wanted.message = (
            "Values of an ENUM are compared in its order; this one would be written as a text, "
            "whose order is another."
        )
        wanted.hint = never("compare by = or IN; or release the value by itself, and write it.")
        raise wanted
    return _written_out(rows if wanted.by_keys is None else fill(rows), wanted), alone


def _has_another_order(dtype: object) -> bool:
    """Whether values of a type are in another order than the texts as which they are written."""
    return isinstance(dtype, pl.Enum) and not dtype.categories.is_sorted()


def _is_only_equal(wanted: UnsupportedSqlError) -> bool:
    """Whether a value is written where it is equal to something or not, whatever its order."""
    if wanted.sql is None or wanted.span is None or wanted.behind:
        return False
    before = folded(wanted.sql[: wanted.span.start]).rstrip()
    after = wanted.sql[wanted.span.end :].lstrip()
    equal = before.endswith(("=", "<>", " in")) and not before.endswith(("<=", ">="))
    return equal or after.startswith(("=", "<>", "!="))


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
    single = Request(((NAME, sql),), request.budget, objective=request.objective)
    ways = ("tolerance", "residuals", "reuse", "mechanism", "bases", "loss", "accept_gap", "keys",
            "bounds", "quantiles", "progress")  # fmt: skip
    return replace(single, **{way: getattr(request, way) for way in ways})


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


def _written_out(answer: pl.DataFrame, wanted: UnsupportedSqlError) -> str:
    """Write an answer in SQL, in place of what is wanting: a value, or an item after FROM.

    A number in such an item has the type and the length of any other, so that what is asked with an
    invented one can be asked with the true one.

    Raises:
        UndeterminedError: a value is NULL, as of too few rows.
    """
    if wanted.by_keys is not None:
        return _by_keys(answer, wanted.by_keys)
    if wanted.behind is None:
        return _literal(answer[0, 0], wanted)

    def written(value: object) -> str:
        if _is_missing(value):
            return "NULL"
        if isinstance(value, float):
            return f"CAST({quoted_text(f'{value!r:>{_DIGITS}}')} AS DOUBLE)"
        return _literal(value, wanted)

    rows = [
        f"({', '.join(map(written, row))})" for row in answer.rows() or [(None,) * answer.width]
    ]
    names = ", ".join(map(quoted_name, answer.columns))
    kept = "" if answer.height else " WHERE FALSE"
    values = f"(SELECT * FROM (VALUES {', '.join(rows)}) AS answers({names}){kept})"
    return values + wanted.behind


def _by_keys(answer: pl.DataFrame, by: ValueByKeys) -> str:
    """Write a value for each of some keys, all of one type and length, also where it is NULL.

    No row has a key that is NULL. Where there are no keys, there is one of that kind.
    """
    value, *keys = [_type(column) for column in answer.get_columns()]

    def case(row: Sequence[object]) -> str:
        equal = (
            f"({theirs}) = {_typed(key, type_)}"
            for theirs, key, type_ in zip(by.keys, row[1:], keys, strict=True)
        )
        return f"WHEN {' AND '.join(equal)} THEN {_typed(row[0], value)}"

    rows = [row for row in answer.rows() if not any(map(_is_missing, row[1:]))]
    cases = " ".join(map(case, rows or [(None,) * answer.width]))
    return f"(CASE {cases} ELSE {_typed(None, value) if by.missing is None else by.missing} END)"


_TYPES = {
    pl.Boolean: "BOOLEAN",
    pl.Date: "DATE",
    pl.Datetime: "TIMESTAMP",
    pl.String: "VARCHAR",
    pl.Enum: "VARCHAR",
    pl.Categorical: "VARCHAR",
}


def _type(column: pl.Series) -> str:
    """Return the type in SQL that a column of answers has."""
    dtype = column.dtype
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision or 38}, {dtype.scale})"
    if dtype.is_integer():
        return "HUGEINT"
    return _TYPES.get(dtype.base_type(), "DOUBLE")


def _typed(value: object, type_: str) -> str:
    """Write a value of a type; numbers are all as long."""
    if _is_missing(value):
        return f"CAST(NULL AS {type_})"
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    text = f"{value!s:>{_DIGITS}}" if number else str(value)
    return f"CAST({quoted_text(text)} AS {type_})"


def _is_missing(value: object) -> bool:
    """Whether a value is NULL, or no finite number."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _literal(value: object, wanted: UnsupportedSqlError) -> str:
    """Write a value in SQL.

    Raises:
        UndeterminedError: it is NULL, as of too few rows.
    """
    if _is_missing(value):
        raise UndeterminedError(
            f"{printable(str(wanted.value))} has no value that could be told: it is of too few "
            "rows.",
            hint="write a value in its place.",
        )
    if isinstance(value, datetime):
        return f"(TIMESTAMP {quoted_text(str(value))})"
    if isinstance(value, date):
        return f"(DATE {quoted_text(str(value))})"
    if isinstance(value, bool):
        return "(TRUE)" if value else "(FALSE)"
    if isinstance(value, int | float | Decimal):
        return f"({Decimal(str(value)):f})"
    return f"({quoted_text(str(value))})"
