"""Bounds that nobody knows beforehand: columns that may have them, and sessions that found some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dpsql.errors import SchemaError, printable
from dpsql.release.found_bounds import FoundBounds, has_bins
from dpsql.schema import Table
from dpsql.schema.drafts import declaration_hint
from dpsql.schema.grain import declared_type
from dpsql.session.data import PrivateData
from dpsql.session.keys import column_of


def findable_bounds(
    table: Table, column: object, found: Collection[tuple[tuple[str, ...], str]]
) -> str:
    """Return the column whose bounds may be found.

    Args:
        table: the table.
        column: a name, as it was given.
        found: paths and columns whose bounds were found before.

    Raises:
        SchemaError: there is none; or it has a domain, bounds that were declared, or no numbers.
    """
    name = column_of(table, column)
    shown = f"{printable(table.name)}.{printable(name)}"
    if name in table.columns or (name in table.bounds and (table.path, name) not in found):
        raise SchemaError(
            f"{shown} has public bounds already.", hint="add it up: that needs no others."
        )
    type_ = declared_type(table, name)
    if not has_bins(type_):
        raise SchemaError(
            f"{shown} is of type {type_}, and bounds are found of numbers.",
            hint=declaration_hint(table.typed, name, type_, view=table.origin is not None),
        )
    return name


def with_bounds(data: PrivateData, table: Table, found: FoundBounds) -> PrivateData:
    """Return data whose owner has declared the bounds that were found of a column."""
    with data.held():
        data.archive.expect_change(table, found.column)
        return replace(data, declared=data.declared.bounding(table, found))
