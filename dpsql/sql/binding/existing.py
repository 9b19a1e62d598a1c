"""Groups that exist, as the owner declares: a condition on the keys of a SELECT's answers.

Such a SELECT has a HAVING on its keys more than was written. So which groups are returned, counted
in windows and averaged over is a matter of the declaration, while what is counted of the rows, and
with it the privacy cost, is the same without it.

Whether a row exists that another one meets, one that it refers to or a group that it has, is told
by a column, as a row is joined with at most one: of a row that is referred to `Parent.matched`,
true or NULL; of any other one that is true or false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import polars as pl
from sqlglot import exp

from dpsql.errors import SchemaError, Span, printable
from dpsql.schema import Table
from dpsql.schema.groups import CALENDAR, Groups, columns_in
from dpsql.schema.names import as_called, quoted_name
from dpsql.schema.table import Parent
from dpsql.sql.binding.core import Core, Role
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


Met: TypeAlias = tuple[str, tuple[str, ...]]
"""The column that says whether a row is met, and those that have a value only, and always, then."""


def met_by(parent: Parent) -> Met:
    """Return by which column a row is told to have a parent, and what it has of it always."""
    filled = (name for name, domain in parent.table.columns.items() if not domain.nullable)
    return parent.matched, tuple(parent.names[name] for name in filled)


def is_met(name: str, table: Table, span: Span) -> BoundExpr:
    """Say that a row is met, by the column that says so."""
    place = _place(name, table)
    return _bound(place if name in table.filled else _not_null(place), name, table, span)


def tightened(core: Core, table: Table, met: Iterable[Met]) -> Core:
    """Say that rows are met by that columns of them have values, where a core names such.

    A column that is never NULL in the row that is met is NULL where there is none, and only there.
    So groups of NULL are ruled out, and nothing else has to be looked at in rows.

    Args:
        core: what is asked.
        table: the table whose rows are counted.
        met: the rows that may be met.
    """
    by_row, conjuncts, known = list(core.by_row), list(core.conjuncts), list(met)
    for condition in (*core.by_row, *core.conjuncts):
        for name, filled in known:
            columns = [one for one in filled if one in core.named]
            if not columns or condition.sql != is_met(name, table, condition.span).sql:
                continue
            conjuncts += [_has_value(one, table, condition.span) for one in columns]
            by_row = [one for one in by_row if one is not condition]
            conjuncts = [one for one in conjuncts if one is not condition]
    return replace(core, conjuncts=tuple(dict.fromkeys(conjuncts)), by_row=tuple(by_row))


def _has_value(name: str, table: Table, span: Span) -> BoundExpr:
    return _bound(_not_null(_place(name, table)), name, table, span)


def _place(name: str, table: Table) -> Expr:
    if name in table.columns:
        return column(f"__a{list(table.columns).index(name)}")
    return column(f"__w{list(table.undeclared).index(name)}")


def _not_null(place: Expr) -> Expr:
    return exp.Not(this=exp.Paren(this=exp.Is(this=place, expression=exp.Null())))


def _bound(node: Expr, name: str, table: Table, span: Span) -> BoundExpr:
    own, none = frozenset({name}), frozenset[str]()
    declared = name in table.columns
    attributes, by_row = (own, none) if declared else (none, own)
    return BoundExpr(node, render(node), attributes, frozenset(), span, by_row)
