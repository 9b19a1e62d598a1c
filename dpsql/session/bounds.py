"""Bounds that nobody knows beforehand, found by counts between powers of two."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.answers.facts import BoundedColumn
from dpsql.errors import DpsqlError, SchemaError, SqlError, UndeterminedError, printable
from dpsql.planner.plans.traits import LAPLACE, QUERYSMASHER
from dpsql.privacy import Budget
from dpsql.progress import Watch
from dpsql.release.found_bounds import FoundBounds, statement
from dpsql.request import Free, Request, named
from dpsql.schema import Table
from dpsql.schema.domain import is_number
from dpsql.schema.drafts import declaration_hint
from dpsql.schema.entries import BoundedExpression
from dpsql.schema.grain import declared_type
from dpsql.schema.names import as_sql, as_text
from dpsql.schema.sequences import decimal_text
from dpsql.session.answer import answer, answer_free, charges_of
from dpsql.session.checks import check_budget
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.keys import column_of, is_expression

_DOUBLE, _VALUE = "DOUBLE", "value"


@dataclass(frozen=True, slots=True)
class BoundsQuestion:
    """A question for the bounds of a column.

    Args:
        table: the table's name.
        column: the column's name; or an expression of a row.
        budget: what is charged for it; 0 asks only for what follows from earlier measurements.
    """

    table: str
    column: str
    budget: Budget | Free

    def __post_init__(self) -> None:
        """Refuse what can't be meant.

        Raises:
            BudgetError: that is so.
        """
        if self.budget != 0 or isinstance(self.budget, bool):
            check_budget(self.budget)


def answer_bounds(data: PrivateData, asked: BoundsQuestion, watch: Watch | None) -> FoundBounds:
    """Find the bounds of a column by a statement that counts its values in bins.

    It is a statement like others, that `answer` answers: with budgets of pure ε by Laplace noise.

    Raises:
        DpsqlError: see `Session.find_bounds`.
    """
    with data.held():
        table = data.declared.described(asked.table)
        name = findable_bounds(data.declared, table, asked.column)
    budget = asked.budget
    if isinstance(budget, Budget):
        budget = data.ledger.understood(budget)
    pure = isinstance(budget, Budget) and budget.pure
    type_, rows = type_of(table, name), _path(table)
    if not table.has(name):
        rows, column = f"(SELECT CAST(({name}) AS {type_}) AS {_VALUE} FROM {rows}) AS r", _VALUE
    else:
        column = name
    request = Request(
        named(statement(rows, column, type_)),
        budget,
        mechanism=LAPLACE if pure else QUERYSMASHER,
        progress=watch,
    )
    try:
        release = answer_free(data, request) if request.free else answer(data, request)
    except SqlError as error:  # about a statement that nobody has typed
        raise _without_sql(error, f"{printable(table.name)}.{printable(name)}") from None
    (counts,) = release.values()
    charges = charges_of(data, release)
    return FoundBounds.of(table.typed, name, type_, counts, charges, laplace=release.facts.laplace)


def type_of(table: Table, name: str) -> str:
    """Return the type of the numbers of a column; what is computed is counted as a double."""
    return declared_type(table, name) if table.has(name) else _DOUBLE


def _path(table: Table) -> str:
    return ".".join(map(as_sql, table.path)) or as_sql(table.name)


def _without_sql(error: SqlError, name: str) -> DpsqlError:
    """Return an error about the bounds of a column, in place of one about how they are found."""
    if isinstance(error, UndeterminedError):
        said = f"No bounds of {name} follow from earlier measurements."
        return UndeterminedError(said, hint="pass a budget, for example dpsql.Budget(rho=0.01).")
    return SchemaError(error.message, hint=error.hint)


def kept_bounds(data: PrivateData, table: str, column: str) -> FoundBounds | None:
    """Return bounds that follow from earlier measurements; None if none do. Nothing is charged.

    Raises:
        SchemaError: the column can't have any.
    """
    try:
        return answer_bounds(data, BoundsQuestion(table, column, 0), None)
    except UndeterminedError:
        return None


def findable_bounds(declared: DeclaredData, table: Table, column: object) -> str:
    """Return the column, or the expression as the table's columns have it, whose bounds are found.

    Args:
        declared: the data, with what was found before.
        table: the table.
        column: a name, or an expression, as it was given.

    Raises:
        SchemaError: there is none; or it has a domain, bounds that were declared, or no numbers.
        SqlError: it can't be evaluated row by row.
    """
    if is_expression(table, column):
        return _findable_expression(declared, table, str(column))
    name = column_of(table, column)
    shown = f"{printable(table.name)}.{printable(name)}"
    if name in table.columns or (name in table.bounds and (table.path, name) not in declared.found):
        raise SchemaError(
            f"{shown} has public bounds already.", hint="add it up: that needs no others."
        )
    type_ = declared_type(table, name)
    if not is_number(type_):
        raise SchemaError(
            f"{shown} is of type {type_}, and bounds are found of numbers.",
            hint=declaration_hint(table.typed, name, type_, view=table.origin is not None),
        )
    return name


def _findable_expression(declared: DeclaredData, table: Table, text: str) -> str:
    """Return an expression for want of whose bounds it couldn't be added up, as the owner has it.

    Raises:
        SchemaError, SqlError: there is no such expression.
    """
    by_owner = replace(declared, schema=declared.by_owner, learned=frozenset())
    shown = f"{printable(text)} in {printable(table.name)}"
    try:
        by_owner.compile(Request(named(f"SELECT SUM({text}) AS s FROM {_path(table)}"), 0))
    except SqlError as error:
        wanted = error.wanted if isinstance(error, SchemaError) else None
        if wanted is None or not wanted.bounds:
            raise _without_sql(error, shown) from None
        if isinstance(wanted.computed, BoundedExpression):
            return wanted.computed.text
        names = f"{as_text(declared.name_of(table))}, {as_text(wanted.column)}"
        raise SchemaError(
            f"The bounds of {shown} follow from those of {printable(wanted.column)}.",
            hint=f"find these: session.find_bounds({names}, budget=…).",
        ) from None
    raise SchemaError(
        f"{shown} has public bounds already.", hint="add it up: that needs no others."
    )


def with_bounds(data: PrivateData, name: str, found: FoundBounds) -> PrivateData:
    """Return data whose owner has declared the bounds that were found of a column.

    Args:
        data: the data.
        name: the table's name, as the schema has it.
        found: the bounds.
    """
    with data.held():
        table = data.declared.described(name)
        ends = decimal_text(found.low), decimal_text(found.high)
        told = BoundedColumn(table.path, found.column, *ends, found.charges)
        bounds = replace(found.bounds, found=True)
        declare = data.declared.declaring if table.has(found.column) else data.declared.bounding
        return replace(data, declared=declare(table, found.column, bounds, told))
