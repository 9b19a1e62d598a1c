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
from dpsql.schema.grain import declared_type
from dpsql.schema.names import as_sql
from dpsql.schema.sequences import decimal_text
from dpsql.session.answer import answer, answer_free, charges_of
from dpsql.session.checks import check_budget
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.keys import column_of


@dataclass(frozen=True, slots=True)
class BoundsQuestion:
    """A question for the bounds of a column.

    Args:
        table: the table's name.
        column: the column's name.
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
    type_, path = declared_type(table, name), ".".join(map(as_sql, table.path))
    request = Request(
        named(statement(path or as_sql(table.name), name, type_)),
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
    """Return the column whose bounds may be found.

    Args:
        declared: the data, with what was found before.
        table: the table.
        column: a name, as it was given.

    Raises:
        SchemaError: there is none; or it has a domain, bounds that were declared, or no numbers.
    """
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
        declared = data.declared.declaring(table, found.column, bounds, told)
        return replace(data, declared=declared)
