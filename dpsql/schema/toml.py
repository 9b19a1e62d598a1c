"""Read declarations from a TOML file.

    [people]                    # a table
    unit = "person_id"          # whose rows are protected together
    max_rows = 3
    references = { household_id = "households.id" }  # keys that the database doesn't know
    groups = [{ columns = ["month", "day"], of = "calendar" }]  # which combinations exist

    [people.columns]
    age = { integers = [0, 115], nullable = true }
    sex = { labels = ["female", "male"] }
    wage = { number = [0, 500] }

    [people.expressions]
    "wage * hours" = { number = [0, 10_000] }

Whatever is not understood is refused: a declaration that is silently skipped would be a domain
that nobody meant. Numbers with a point are read as the decimals that they look like.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.entries import read_domain, references_from, toml_key
from dpsql.schema.expressions import read_expressions
from dpsql.schema.groups import Groups
from dpsql.schema.names import closest, folded, twins
from dpsql.schema.sequences import shown
from dpsql.schema.units import BOUNDS, EACH_ROW, EachRow, Unit, refuse_several, unit_of_entry

MAX_BYTES = 1 << 20
"""Larger files are refused unread."""
_MAX_DOTS = 250
"""The time and memory that tomllib takes for a key grow with the square of its parts."""
_UNIT_KEYS = ("unit", *BOUNDS)
_TABLE_KEYS = (*_UNIT_KEYS, "each_row", "columns", "groups", "expressions", "references")
_GROUPS = ({"columns", "of"}, {"columns", "rows"})
_MAX_PARTS = 3
_COLUMN = "for example age = {{ integers = [0, 115] }} under [{table}.columns]."


class Declarations(NamedTuple):
    """The declarations of a schema file."""

    tables: dict[str, dict[str, Domain | NumberBounds]]
    """Table → column → domain."""
    units: dict[str, Unit | EachRow]
    """Table → whose rows are protected together."""
    groups: dict[str, tuple[Groups, ...]]
    """Table → which combinations of values exist."""
    expressions: dict[str, Mapping[str, NumberBounds]]
    """Table → expression of a row → its bounds."""
    references: dict[str, str]
    """Column that refers to a row of another table → the column that it refers to."""


def read_toml(path: str | os.PathLike[str]) -> Declarations:
    """Read a schema file.

    Raises:
        SchemaError: the file can't be read, or something in it is not understood.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise SchemaError(
            f"{shown(path)} is not the path of a schema file.", hint='for example "schema.toml".'
        )
    file = Path(os.fsdecode(path))
    with _within(str(file)):
        return parse_toml(_text(file))


def parse_toml(text: str) -> Declarations:
    """Read the text of a schema file.

    Raises:
        SchemaError: something in it is not understood.
    """
    document = _parsed(text)
    contents = dict(_tables(document))
    _check_names(contents, "table")
    found = Declarations({}, {}, {}, {}, {})
    for table, content in contents.items():
        with _within(f"table {table}"):
            _read_table(table, content, found)
    return found


def _tables(document: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the tables of a file; one of a schema stands in it, as in [stage.people.columns]."""
    for name, content in document.items():
        path = (*above, name)
        if len(path) < _MAX_PARTS and isinstance(content, Mapping) and _holds_tables(content):
            yield from _tables(content, path)
        else:
            yield ".".join(path), content


def _holds_tables(content: Mapping[str, Any]) -> bool:
    """Whether tables stand in something, or tables in schemas, and not columns."""
    inner = [value for value in content.values() if isinstance(value, Mapping)]
    return len(inner) == len(content) > 0 and not content.keys() & set(_TABLE_KEYS) and all(
        value.keys() & set(_TABLE_KEYS) or _holds_tables(value) for value in inner
    )  # fmt: skip


@contextmanager
def _within(place: str) -> Iterator[None]:
    """Say in errors where in the file they are."""
    try:
        yield
    except SchemaError as error:
        message = f"{printable(place)[:200]}: {error.message}"
        raise SchemaError(message, hint=error.hint) from None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise SchemaError("There is no such file.", hint="check the path.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):  # ValueError: a path with a NUL
        raise SchemaError(
            "The file can't be read.", hint="check the path and its permissions."
        ) from None
    if len(data) > MAX_BYTES:
        raise SchemaError(
            f"The file has more than {MAX_BYTES:,} bytes.",
            hint="give columns with very many labels an ENUM type, and leave them out.",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SchemaError("The file is not UTF-8.", hint="save it as UTF-8.") from None


def _parsed(text: str) -> dict[str, Any]:
    if any(piece.count(".") > _MAX_DOTS for piece in re.split(r"[\n=,{\[]", text)):
        raise SchemaError(
            f"A key or a text has more than {_MAX_DOTS} dots.", hint="write [table.columns]."
        )
    try:
        return tomllib.loads(text, parse_float=_decimal)
    except RecursionError:
        message, hint = "The file is nested too deeply.", "a column has one list of plain values."
    except ValueError as error:  # also a number with thousands of digits
        message = f"The file is not TOML: {printable(str(error))[:200]}."
        hint = 'texts stand in quotes, and names too unless they are plain: "net income".'
    raise SchemaError(message, hint=hint)


def _decimal(text: str) -> Decimal:
    """Read a number with a point exactly."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all bounds
        return Decimal("nan")


def _read_table(table: str, content: object, found: Declarations) -> None:
    if not isinstance(content, Mapping):
        raise SchemaError(
            f"This should be a table of the database, not {shown(content)}.",
            hint=f"write [{toml_key(table)}.columns], and the columns below it.",
        )
    for key, value in content.items():
        if key not in _TABLE_KEYS:
            raise SchemaError(
                f"There is no key {printable(key)}.", hint=_misplaced(table, key, value)
            )
    if not content:
        raise SchemaError("Nothing is declared.", hint=_COLUMN.format(table=toml_key(table)))
    columns = content.get("columns", {})
    if not isinstance(columns, Mapping):
        raise SchemaError(
            f"The columns are {shown(columns)}.", hint=_COLUMN.format(table=toml_key(table))
        )
    _check_names(columns, "column")
    found.tables[table] = {}
    for column, entry in columns.items():
        with _within(f"column {column}"):
            found.tables[table][column] = read_domain(entry)
    if content.keys() & {*_UNIT_KEYS, "each_row"}:
        found.units[table] = _unit(content)
    if "groups" in content:
        found.groups[table] = _groups(content["groups"])
    if "expressions" in content:
        found.expressions[table] = read_expressions(table, content["expressions"])
    found.references.update(references_from(table, content.get("references", {})))


def _misplaced(table: str, key: str, value: object) -> str:
    if isinstance(value, Mapping) and folded(key) not in _TABLE_KEYS:
        return f"columns stand one level deeper: [{toml_key(table)}.columns.{toml_key(key)}]."
    return closest(key, _TABLE_KEYS)


def _groups(given: object) -> tuple[Groups, ...]:
    hint = 'write { columns = ["month", "day"], of = "calendar" } in a list.'
    found = []
    for entry in given if isinstance(given, list) else [given]:
        if not isinstance(entry, Mapping) or set(entry) not in _GROUPS:
            raise SchemaError(f"{shown(entry)} is not a declaration of groups.", hint=hint)
        of = entry.get("of", entry.get("rows"))
        if isinstance(of, str) != ("of" in entry):
            raise SchemaError(f"The groups are {shown(of)}.", hint=hint)
        found.append(Groups.read((entry["columns"], of)))
    return tuple(found)


def _unit(content: Mapping[str, Any]) -> Unit | EachRow:
    if "each_row" in content:
        if content["each_row"] is not True or content.keys() & {*_UNIT_KEYS}:
            raise SchemaError(
                "Either each row is protected by itself, or there is a privacy unit.",
                hint="write each_row = true alone, or unit and max_rows.",
            )
        return EACH_ROW
    hint = 'write both, for example unit = "person_id" and max_rows = 3.'
    if "unit" not in content:
        raise SchemaError(
            "A limit on the rows of a unit needs the column that identifies the unit.", hint=hint
        )
    refuse_several(content["unit"])
    if not isinstance(content["unit"], str) or not content["unit"].strip():
        raise SchemaError(f"The unit {shown(content['unit'])} does not name a column.", hint=hint)
    return unit_of_entry(content)


def _check_names(names: Collection[str], what: str) -> None:
    """Refuse names that are one to SQL."""
    if "" in names:
        raise SchemaError(f"A {what} has no name.", hint="write its name before the =.")
    same = twins(names)
    if same is not None:
        other, name = map(printable, same)
        raise SchemaError(
            f"The {what} {name} is declared twice, also as {other}.",
            hint="SQL ignores case: keep one.",
        )
