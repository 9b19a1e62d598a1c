"""Groups that exist, as the owner declares: a condition on the keys of a SELECT's answers.

Such a SELECT has a HAVING on its keys more than was written. So which groups are returned, counted
in windows and averaged over is a matter of the declaration, while what is counted of the rows, and
with it the privacy cost, is the same without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from dpsql.errors import SchemaError, printable
from dpsql.schema import Table
from dpsql.schema.groups import CALENDAR, Groups, columns_in
from dpsql.schema.names import as_called, quoted_name
from dpsql.sql.binding.core import Role
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, render
from dpsql.sql.sandbox.database import Sandbox, column_type


@dataclass(frozen=True, slots=True)
class Existing:
    """The combinations of values of some columns that exist."""

    places: tuple[str, ...]
    """The columns, as they are called in bound expressions."""
    table: str
    """The sandbox table with the combinations: `c0`, `c1`, …"""


class ExistingGroups:
    """Stores which combinations exist, once for each table.

    Args:
        sandbox: where to.
        stored: finds the sandbox table of a public table.
    """

    def __init__(self, sandbox: Sandbox, stored: Callable[[tuple[str, ...]], str | None]) -> None:
        self._sandbox = sandbox
        self._stored = stored
        self._known: dict[tuple[str, ...], list[Existing]] = {}

    def of(self, table: Table) -> list[Existing]:
        """Return which combinations of values of a table's columns exist.

        Raises:
            SchemaError: they are in no public table, or none has values of the columns.
        """
        key = table.path or (table.name,)
        if key not in self._known:
            self._known[key] = [
                _existing(self._sandbox, groups, table, self._stored) for groups in table.groups
            ]
        return self._known[key]


def _existing(
    sandbox: Sandbox,
    groups: Groups,
    table: Table,
    stored: Callable[[tuple[str, ...]], str | None],
) -> Existing:
    """Store the combinations that exist, in the types of their columns."""
    names = [f"c{i}" for i in range(len(groups.columns))]
    if isinstance(groups.of, str) and groups.of != CALENDAR:
        source, given = _public(sandbox, groups, groups.of, stored)
    else:
        source, given = sandbox.new_name("listed"), names
        rows = groups.listed(table.columns)
        sandbox.store(source, pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row"))
    types = [column_type(table.columns[name]) for name in groups.columns]
    casts = ", ".join(
        f"TRY_CAST({quoted_name(of)} AS {type_}) AS {name}"
        for of, type_, name in zip(given, types, names, strict=True)
    )
    found = sandbox.new_name("existing")
    sandbox.create(found, f"SELECT DISTINCT {casts} FROM {source}")
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    ((count,),) = sandbox.rows(f"SELECT count(*) FROM {found} WHERE {known}")
    if not count:
        raise SchemaError(
            f"No declared group of {printable(table.name)} has values of its columns.",
            hint=f"list values of {printable(', '.join(groups.columns))}.",
        )
    index = list(table.columns)
    return Existing(tuple(f"__a{index.index(name)}" for name in groups.columns), found)


def _public(
    sandbox: Sandbox, groups: Groups, name: str, stored: Callable[[tuple[str, ...]], str | None]
) -> tuple[str, list[str]]:
    source = stored(tuple(name.split(".")))
    if source is None:
        raise SchemaError(
            f"The groups that exist are in {printable(name)}, which is not a public table.",
            hint=f"pass public=[{name!r}], or a mapping with the frame.",
        )
    given = {as_called(of): of for of, _ in sandbox.types(f"SELECT * FROM {source}")}
    what = f"The public table {printable(name)} of groups"
    return source, [given[of] for of in columns_in(groups.columns, given, what)]


def condition(exist: Sequence[Existing], keys: Sequence[BoundExpr]) -> list[Expr]:
    """Return what must hold of the keys of a SELECT, where it groups by all declared columns.

    Groups of NULL may exist, whatever is declared; and rolled-up keys are NULL.
    """
    places = {key.sql: i for i, key in enumerate(keys)}
    found: list[Expr] = []
    for each in exist:
        named = [places.get(render(column(place))) for place in each.places]
        own = [Role.KEY.column(key) for key in named if key is not None]
        if len(own) < len(named):
            continue
        listed = exp.Select(
            expressions=[column(f"c{i}") for i in range(len(own))],
            from_=exp.From(this=exp.Table(this=exp.Identifier(this=each.table))),
        )
        left = own[0] if len(own) == 1 else exp.Tuple(expressions=own)
        parts: list[Expr] = [exp.Is(this=key.copy(), expression=exp.Null()) for key in own]
        parts.append(exp.In(this=left, query=exp.Subquery(this=listed)))
        found.append(exp.Paren(this=exp.or_(*parts, wrap=False)))
    return found
