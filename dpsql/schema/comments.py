"""The owner's declarations in comments of the database, on tables and on columns.

    COMMENT ON TABLE visits IS 'dpsql: {"unit": "person_id", "max_rows": 3}';
    COMMENT ON TABLE orders IS 'dpsql: {"references": {"customer_id": "customers.id"}}';
    COMMENT ON TABLE sales IS 'dpsql: {"expressions": {"price * (1 - discount)": [0, 110000]}}';
    COMMENT ON COLUMN sales.price IS 'dpsql: {"number": [0, 200000]}';

A column's comment has the keys of its entry in a schema file. Other comments are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeGuard

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.entries import read_domain
from dpsql.schema.expressions import Declared, read_expressions

PREFIX = "dpsql:"


def read_comment(comment: str | None) -> object:
    """Return what a comment for dpsql says, as JSON; None if it is not JSON.

    Nor if it is for others.
    """
    if not is_ours(comment) or comment is None:
        return None
    try:
        return json.loads(comment.strip().removeprefix(PREFIX), parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def is_ours(comment: str | None) -> bool:
    """Whether a comment is meant for dpsql."""
    return comment is not None and comment.strip().startswith(PREFIX)


def expressions_of(table: str, comment: str | None) -> Declared:
    """Return the bounds of expressions that a table's comment declares.

    Raises:
        SchemaError: they are malformed.
    """
    found = read_comment(comment)
    given = found.get("expressions", {}) if isinstance(found, Mapping) else {}
    return read_expressions(table, given)


def references_of(table: str, comment: str | None) -> dict[str, str]:
    """Return what a table's comment says that its rows refer to.

    Raises:
        SchemaError: it is malformed.
    """
    found = read_comment(comment)
    given = found.get("references", {}) if isinstance(found, Mapping) else {}
    return references_from(table, given)


def references_from(table: str, given: object) -> dict[str, str]:
    """Read references that are declared of a table: its own columns need no name before them.

    Raises:
        SchemaError: they are malformed.
    """
    if not is_of_texts(given):
        raise SchemaError(
            f"{printable(table)}: references map columns to the columns that they refer to.",
            hint='for example {"customer_id": "customers.id"}; of several, "shop, nr": '
            '"orders.shop, orders.nr".',
        )
    return {
        ", ".join(f"{table}.{column.strip()}" for column in columns.split(",")): key
        for columns, key in given.items()
    }


def is_of_texts(given: object) -> TypeGuard[Mapping[str, str]]:
    """Whether something maps texts to texts, none of which is empty."""
    return isinstance(given, Mapping) and all(
        isinstance(text, str) and text.strip() for pair in given.items() for text in pair
    )


def domains_of(
    table: str, columns: Iterable[tuple[str, str | None]]
) -> dict[str, Domain | NumberBounds]:
    """Return the domains and bounds that comments on columns declare.

    Args:
        table: whose columns they are.
        columns: the name and the comment of each.

    Raises:
        SchemaError: a comment is meant for dpsql and not understood.
    """
    return {name: _domain(table, name, comment) for name, comment in columns if is_ours(comment)}


def _domain(table: str, name: str, comment: str | None) -> Domain | NumberBounds:
    found: Any = read_comment(comment)
    try:
        if not isinstance(found, Mapping):
            raise SchemaError(
                "It is not JSON.",
                hint="write COMMENT ON COLUMN … IS 'dpsql: {\"number\": [0, 9]}'.",
            )
        return read_domain(found)
    except SchemaError as error:
        message = f"The comment on the column {printable(table)}.{printable(name)} is not "
        raise SchemaError(f"{message}understood: {error.message}", hint=error.hint) from None
