"""What the data owner declares, checks of arguments, and compiling against the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import duckdb

from dpsql.engines.public import PublicReader, PublicTables
from dpsql.errors import BudgetError, MechanismError, SchemaError, SqlError
from dpsql.hints import ANY_BUDGET, FREE, Hint, option
from dpsql.planner.mechanisms.registry import traits_of
from dpsql.privacy import Budget, Ledger
from dpsql.release import Wishes
from dpsql.schema import Domain, EachRow, Schema, Table, Unit
from dpsql.schema.catalog import check_declared, read_table
from dpsql.sql.compiled import Script
from dpsql.sql.frontend import compile_script, no_split
from dpsql.workload.cells import Ints

Statements = str | Sequence[str] | Mapping[str, str]
Free = Literal[0]
"""In place of a budget: answer from earlier measurements alone."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What the data owner declares besides what the catalog says."""

    schema: Schema | None
    unit: Unit | EachRow | None
    public: PublicReader

    @classmethod
    def of(
        cls,
        con: duckdb.DuckDBPyConnection,
        schema: Schema | Mapping[str, Mapping[str, Domain]] | None,
        public: PublicTables | None,
        unit: str | EachRow | None,
        max_rows: int | None,
    ) -> Declared:
        """Check declarations as a caller gives them.

        Raises:
            SchemaError: one is malformed.
        """
        plain = schema is None or isinstance(schema, Schema)
        checked = schema if plain else Schema(schema)  # type: ignore[arg-type]
        return cls(checked, Unit.given(unit, max_rows), PublicReader(con, public))  # type: ignore[arg-type]

    def private(self, con: duckdb.DuckDBPyConnection, parts: tuple[str, ...]) -> Table:
        """Describe a table that is not public, by any name.

        Raises:
            SchemaError: it is public by another name, or can't be described.
        """
        table = read_table(con, parts, self.schema, self.unit)
        self.public.check_private(table)
        return table


def compile_statements(
    con: duckdb.DuckDBPyConnection,
    statements: Statements,
    declared: Declared,
    weights: Mapping[str, float] | None = None,
    split: Callable[[Table], Mapping[str, Ints]] = no_split,
    groups_above: float | None = None,
) -> Script:
    """Compile statements against the catalog of `con` and what is declared.

    `split` says of a table which cells have to be told apart in any case, `groups_above` which
    groups are left out; see `compile_script`.
    """
    check_connection(con)
    check_declared(con, declared.schema)
    return compile_script(
        named(statements),
        partial(declared.private, con),
        declared.public.read,
        weights,
        split,
        groups_above,
    )


def named(statements: Statements) -> list[tuple[str, str]]:
    """Give every statement a name: `query`, or `query_1`, `query_2`, … or the mapping's."""
    if isinstance(statements, str):
        return [("query", statements)]
    if isinstance(statements, Mapping):
        pairs = list(statements.items())
    elif isinstance(statements, Sequence):
        pairs = [(f"query_{i + 1}", sql) for i, sql in enumerate(statements)]
    else:
        pairs = [("", statements)]
    if not pairs:
        raise SqlError("There are no statements.", hint="pass at least one SELECT.")
    for name, sql in pairs:
        if not isinstance(name, str) or not isinstance(sql, str):
            raise SqlError("Statements are SQL texts.", hint='pass {"name": "SELECT …"}.')
    return pairs


def check_connection(con: duckdb.DuckDBPyConnection) -> None:
    """Refuse what is not a connection, such as the path of a database."""
    if not callable(getattr(con, "execute", None)):
        raise SchemaError(
            f"{type(con).__name__!r} is not a DuckDB connection.",
            hint='pass duckdb.connect("data.duckdb").',
        )


def is_free(budget: Budget | Free | None) -> bool:
    """Whether nothing may be spent: a plain 0 was given as the budget."""
    return type(budget) is int and budget == 0


def check_amount(budget: Budget | Free | None, targets: Mapping[str, float] | None) -> None:
    """Refuse a missing budget, unless there are targets; and targets that nothing is paid for."""
    if is_free(budget) and targets is not None:
        raise BudgetError(
            "Targets are met by spending, and the budget is 0.",
            hint="leave " + FREE + " out: targets that are met already cost nothing.",
        )
    if not is_free(budget) and (targets is None or budget is not None):
        check_budget(budget)


def check_budget(budget: Budget | Free | None) -> None:
    """Refuse anything that is not a budget."""
    if not isinstance(budget, Budget):
        raise BudgetError(
            f"A budget must be a dpsql.Budget, not a {type(budget).__name__}.",
            hint="write " + ANY_BUDGET + ".",
        )


def check_mechanism(
    mechanism: str, wishes: Wishes, *, free: bool = False, above: bool = False
) -> None:
    """Refuse what is no mechanism, and wishes that it can't fulfil.

    Raises:
        MechanismError: that is so.
    """
    traits = traits_of(mechanism)
    title = traits.title
    if free and not traits.reuses_measurements:
        raise MechanismError(
            f"A budget of 0 measures nothing, also with {title}.",
            hint="leave " + option("mechanism") + " out.",
        )
    if traits.is_adaptive and wishes.confidence is not None:
        raise MechanismError(
            f"Answers by {title} are biased, and have no intervals.",
            hint="leave " + option("confidence") + " out.",
        )
    if traits.is_adaptive and above:
        raise MechanismError(
            f"Answers by {title} are biased, and have no standard errors to leave groups out by.",
            hint="leave " + option("groups_above") + " out.",
        )
    if (wishes.nonnegative or wishes.integers) and not traits.can_adjust:
        raise MechanismError(
            f"There are no adjusted columns beside answers by {title}.",
            hint="leave "
            + option("nonnegative")
            + " and "
            + option("integers")
            + " out, or use another mechanism.",
        )


def check_most(
    ledger: Ledger,
    targets: Mapping[str, float] | None,
    at_most: Budget | None,
    assume: Mapping[str, float] | None = None,
) -> None:
    """Refuse targets that nothing limits the cost of.

    Raises:
        BudgetError: there is neither a total nor a most; or a most or rows without targets.
    """
    if targets is None and assume is not None:
        raise BudgetError(
            "Without targets, no rows are assumed: the budget is what is charged.",
            hint="leave " + option("assume") + " out; a plan shows what it would mean.",
        )
    if targets is None and at_most is not None:
        raise BudgetError(
            "Without targets, the budget is what is charged.",
            hint="leave " + option("at_most") + " out.",
        )
    if at_most is not None and not isinstance(at_most, Budget):
        raise BudgetError(
            f"The most that targets may cost is a dpsql.Budget, not a {type(at_most).__name__}.",
            hint="write " + _most("0.5") + ".",
        )
    if targets is not None and at_most is None and ledger.total is None:
        raise BudgetError(
            "Targets cost whatever meets them, and the data set has no total that would limit it.",
            hint="add " + _most("0.5") + ", the most that may be charged.",
        )


def check_cost(budget: Budget, at_most: Budget | None) -> None:
    """Refuse a plan that costs more than targets may.

    Raises:
        BudgetError: it does; nothing was charged.
    """
    if at_most is not None and budget.mu_squared > at_most.mu_squared:
        raise BudgetError(
            f"The targets need {at_most.describe(budget.mu_squared)}, more than the most that "
            f"may be charged: {at_most.describe(at_most.mu_squared)}.",
            hint="allow larger errors, or more.",
        )


def _most(rho: str) -> Hint:
    return Hint(
        f"at_most=dpsql.Budget(rho={rho})",
        f"--at-most --rho {rho}",
        f"a total by %dpsql --total --rho {rho}",
    )
