"""Bounds of expressions of a row: what the owner knows beyond what follows from the columns.

    dpsql.Schema({}, expressions={"sales": {"price * (1 - discount)": (0, 110_000)}})

A price may go up to 200,000 and a discount down to 0, and yet no product be above 110,000: what a
row adds to a sum is then brought between these, and less noise is needed. Nothing private rests
on their being true, as each row is brought between them, whatever it holds.

Here the text is looked at only so far as to know its columns. It is read as statements are, into a
tree (`dpsql/sql/declared.py`), and found in statements by that tree, not by the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.names import as_sql, closest, folded
from dpsql.schema.sequences import shown

MAX_CHARACTERS = 10_000
"""Longer expressions are refused unread."""
MOST = 1_000
"""Expressions of one table."""
Declared = Mapping[str, NumberBounds]
"""Expression, as it is written → its bounds."""
_EXAMPLE = 'for example {"price * (1 - discount)": (0, 1000)}.'


def read_expressions(table: str, given: object) -> Declared:
    """Read the bounds of expressions of a table, as Python, a file or a comment has them.

    Raises:
        SchemaError: they are malformed, or bounds are reversed or not finite.
    """
    if not isinstance(given, Mapping) or len(given) > MOST:
        raise SchemaError(
            f"The expressions of {printable(table)} are {shown(given)}.",
            hint=f"at most {MOST:,} expressions have bounds; {_EXAMPLE}",
        )
    found: dict[str, NumberBounds] = {}
    for text, bounds in given.items():
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_CHARACTERS:
            raise SchemaError(
                f"{shown(text)} is not an expression of {printable(table)}.", hint=_EXAMPLE
            )
        try:
            found[text] = _bounds(bounds)
        except SchemaError as error:
            message = f"The bounds of {_brief(text)} in {printable(table)}: {error.message}"
            raise SchemaError(message, hint=error.hint) from None
    return MappingProxyType(found)


def _bounds(given: object) -> NumberBounds:
    if isinstance(given, NumberBounds):
        return given
    if isinstance(given, Mapping) and set(given) == {"number"}:
        given = given["number"]
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise SchemaError(
            f"{shown(given)} is not a pair of bounds.",
            hint="write the least and the largest value.",
        )
    low, high = given
    return Domain.number(low, high)


def check_expressions(table: str, expressions: Declared, columns: Iterable[str]) -> None:
    """Check that each is an expression of columns that the table has.

    Raises:
        SchemaError: one isn't.
    """
    known = {folded(name): name for name in columns}
    for text in expressions:
        tree = _parsed(table, text)
        for column in tree.find_all(exp.Column):
            if folded(column.name) not in known:
                raise SchemaError(
                    f"The schema bounds {_brief(text)}, but {printable(table)} has no column "
                    f"{printable(column.name)}.",
                    hint=closest(column.name, known.values(), as_sql),
                )


def _parsed(table: str, text: str) -> exp.Expr:
    """Parse an expression. What may run on rows is decided where it is read as statements are."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except (SqlglotError, RecursionError):
        tree = None
    columns = [] if tree is None else list(tree.find_all(exp.Column))
    if tree is None or not isinstance(tree, exp.Condition) or not columns:
        raise SchemaError(
            f"{_brief(text)} is not an expression of a row of {printable(table)}.", hint=_EXAMPLE
        )
    if any(tree.find_all(exp.Query, exp.AggFunc, exp.Window)):
        raise SchemaError(
            f"{_brief(text)} is not of one row of {printable(table)} alone.",
            hint="leave out subqueries, aggregates and windows: bounds are for what is added up "
            "in each row.",
        )
    if any(column.table for column in columns):
        raise SchemaError(
            f"{_brief(text)} names a column with its table.",
            hint=f"all columns are those of {printable(table)}: write their names alone.",
        )
    return tree


def _brief(text: str) -> str:
    return printable(text if len(text) <= 80 else f"{text[:80]}…")
