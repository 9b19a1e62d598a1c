"""Answers that are written to a database, of whichever engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from dpsql.schema.names import folded


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table to be written."""

    name: str
    columns: Sequence[tuple[str, str, str]]
    """Name, type and comment of each."""
    comment: str
    """Begins with the mark."""
    rows: Iterable[pl.DataFrame]
    """Its rows, in pieces."""


@dataclass(frozen=True, slots=True)
class WrittenTables:
    """Tables to be written together."""

    names: Sequence[str]
    """All of their names, which are looked at first."""
    mark: str
    """The beginning of the comments of all tables that are ever written so."""
    made: Iterable[WrittenTable]
    """The tables, made one after the other."""


def names_for(statements: Mapping[str, str]) -> dict[str, str]:
    """Name a table for each statement: as the statement, if SQL can tell it from the others.

    Args:
        statements: name → another one, which is safe everywhere and of no other statement.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for statement, plain in statements.items():
        base = statement if statement and statement.isprintable() else plain
        name, number = base, 1
        while folded(name) in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(folded(name))
        names[statement] = name
    return names
