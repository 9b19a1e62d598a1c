"""Meanings of names after FROM: tables of the sandbox, queries of private rows, noisy answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.unified import UnionColumn

PRIVATE, PUBLIC, NOISY = "private", "public", "noisy"


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """A query of private rows, as it is written."""

    query: Expr
    """A SELECT, or UNION ALL of such queries."""
    names: Names
    """Meanings of names around it."""
    columns: tuple[str, ...]
    """Names that a CTE gives its columns."""
    item: Expr
    """A private table that is named in it."""
    inside: Names
    """Meanings of names inside, as far as they are of private rows."""
    made: tuple[tuple[UnionColumn, ...], ...] = ()
    """Its columns in each UNION ALL of which it is a query, inner ones first."""


@dataclass(frozen=True, slots=True)
class Name:
    """The meaning of a name after FROM: a public table of the sandbox, or a CTE."""

    kind: str
    table: str
    rows: WrittenRows | None = None
    """The CTE, if it is of private rows."""


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
