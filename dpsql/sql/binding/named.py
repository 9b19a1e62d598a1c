"""Meanings of names after FROM: tables of the sandbox, queries of private rows, noisy answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.schema import Table
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.unified import UnionColumn

PRIVATE, PUBLIC, NOISY = "private", "public", "noisy"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A query of private rows, as it is written."""

    query: exp.Select | exp.SetOperation
    """A SELECT, or UNION ALL of such queries."""
    names: Names
    """What names mean around it."""
    columns: tuple[str, ...]
    """What a CTE calls its columns."""
    item: Expr
    """The item after its FROM whose rows are private."""
    inside: Names
    """What names mean there, as far as they are of private rows."""
    made: tuple[tuple[UnionColumn, ...], ...] = ()
    """What its columns are in each UNION ALL of which it is a query, inner ones first."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A query of private rows with groups of rows that refer to the same one, as it is written."""

    select: exp.Select
    names: Names
    """What names mean there."""
    columns: tuple[tuple[str, Expr], ...]
    """What its columns are called, and what they are."""
    keys: tuple[Expr, ...]
    """What it is grouped by."""


@dataclass(frozen=True, slots=True)
class Told:
    """The facts that are known of the groups of a `Grouped` query."""

    known: bool
    """Whether there is a public list of them, so that they may be answers as well."""
    rows: exp.Select | None
    """The query as one of the rows that its groups are of, if that can be said."""
    of_units: Table | None = None
    """The table whose rows are grouped, if by nothing but a column with the ids of its units."""


@dataclass(frozen=True, slots=True)
class Name:
    """The meaning of a name after FROM: a public table of the sandbox, or a CTE."""

    kind: str
    table: str
    rows: WrittenRows | None = None
    """The CTE, if it is of private rows."""
    grouped: Grouped | None = None
    """The CTE, if it has groups of rows that refer to the same one."""


Names = Mapping[str, Name]


@dataclass(slots=True)
class Kinds:
    """The kinds of everything that was found in a query."""

    found: set[str] = field(default_factory=set)

    @property
    def all(self) -> str:
        """Noisy, if anything in it is."""
        return NOISY if NOISY in self.found else PUBLIC


def given_names(alias: Expr | None) -> tuple[str, ...]:
    """Return the names that an alias gives to columns: `AS s (a, b)`."""
    columns: Sequence[Expr] = (alias.args.get("columns") or []) if alias is not None else []
    return tuple(column.name for column in columns)


def renamed(grouped: Grouped, names: Sequence[str]) -> Grouped:
    """Return it with other names of the first columns."""
    given = [(name, of) for name, (_, of) in zip(names, grouped.columns, strict=False)]
    return replace(grouped, columns=(*given, *grouped.columns[len(given) :]))
