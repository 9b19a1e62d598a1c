"""The data owner's declarations about several tables, in Python and in TOML files."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from dpsql.calls import checked
from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Declaration, NumberBounds
from dpsql.schema.entries import read_domain, read_expressions, references_from, toml_key
from dpsql.schema.groups import Groups
from dpsql.schema.names import closest, folded, twins
from dpsql.schema.sequences import shown
from dpsql.schema.units import (
    BOUNDS,
    EACH_ROW,
    EachRow,
    Unit,
    checked_references,
    refuse_several,
    unit_of_entry,
)

T = TypeVar("T")


class Schema(Mapping[str, Mapping[str, Declaration]]):
    """Domains that the data owner declares: table name → column name → domain.

    A declared domain goes before what DuckDB's catalog says of the same column.

        dpsql.Schema({"people": {"age": dpsql.Domain.integers(0, 115)}})

    `units` says whose rows are protected together, for tables in which a person may have several
    rows: table name → `Unit`.

        dpsql.Schema({}, units={"visits": dpsql.Unit("person_id", max_rows=3)})

    Of a table without persons beside such ones it says `EACH_ROW`.

    `groups` says which combinations of values exist: table name → list of columns with "calendar",
    the name of a public table, or a Polars frame. A SELECT that groups by these columns returns
    no other groups.

        dpsql.Schema({}, groups={"flights": [(("month", "day"), "calendar")]})

    `expressions` says between what expressions of a row lie, where that is narrower than what
    follows from their columns: table name → expression in SQL → bounds.

        dpsql.Schema({}, expressions={"sales": {"price * (1 - discount)": (0, 110_000)}})

    `references` are the keys that the database doesn't know, see `dpsql.Unit`: a column that refers
    to a row of another table → the column that it refers to.

        dpsql.Schema({}, references={"orders.customer_id": "customers.id"})
    """

    @checked
    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Declaration]],
        *,
        units: Mapping[str, Unit | EachRow] | None = None,
        groups: Mapping[str, Sequence[object]] | None = None,
        expressions: Mapping[str, Mapping[str, Sequence[object] | NumberBounds]] | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        checked: dict[str, Mapping[str, Declaration]] = {}
        for table, columns in _items(tables, "A schema", "table"):
            _items(columns, f"The schema of {table}", "column")
            for column, domain in columns.items():
                if not isinstance(domain, Declaration):
                    raise SchemaError(
                        f"The domain of {table}.{column} is {domain!r}.",
                        hint="use dpsql.Domain.integers, .decimals, .dates, .bins, .labels, "
                        ".boolean, .number or .keys.",
                    )
            checked[table] = MappingProxyType(dict(columns))
        self._tables = MappingProxyType(checked)
        given = dict(_items(units or {}, "The units of a schema", "table"))
        given = {t: Unit.given(u, None) if isinstance(u, list) else u for t, u in given.items()}
        for table, unit in given.items():
            if not isinstance(unit, Unit | EachRow):
                raise SchemaError(
                    f"The unit of {printable(table)} is {shown(unit)}.",
                    hint='for example dpsql.Unit("person_id", max_rows=3).',
                )
        self._units = MappingProxyType(given)
        declared = _items(groups or {}, "The groups of a schema", "table")
        self._groups = MappingProxyType({table: _groups(table, each) for table, each in declared})
        bounded = _items(expressions or {}, "The expressions of a schema", "table")
        bounds = {table: read_expressions(table, each) for table, each in bounded}
        self._expressions = MappingProxyType(bounds)
        self._references = checked_references(references or {})

    @classmethod
    def given(cls, schema: SchemaLike) -> Schema:
        """Return what a caller passes for a schema: one, the path of its file, or its tables.

        Raises:
            SchemaError: it is malformed, or the file can't be read.
        """
        if isinstance(schema, Schema):
            return schema
        return cls.load(schema) if isinstance(schema, str | os.PathLike) else cls(schema)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema from a TOML file, see docs/reference/schema-file.md.

        Raises:
            SchemaError: the file can't be read, or something in it is not understood.
        """
        declared = read_toml(path)
        return cls(
            declared.tables,
            units=declared.units,
            groups=declared.groups,
            expressions=declared.expressions,
            references=declared.references,
        )

    @property
    def units(self) -> Mapping[str, Unit | EachRow]:
        """Table name → whose rows are protected together."""
        return self._units

    @property
    def groups(self) -> Mapping[str, tuple[Groups, ...]]:
        """Table name → which combinations of values exist."""
        return self._groups

    @property
    def expressions(self) -> Mapping[str, Mapping[str, NumberBounds]]:
        """Table name → expression of a row → its bounds."""
        return self._expressions

    @property
    def references(self) -> Mapping[str, str]:
        """Column that refers to a row of another table → the column that it refers to."""
        return self._references

    def __getitem__(self, table: str) -> Mapping[str, Declaration]:
        return self._tables[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        tables = {name: dict(columns) for name, columns in self._tables.items()}
        units = f", units={dict(self._units)!r}" if self._units else ""
        groups = f", groups={dict(self._groups)!r}" if self._groups else ""
        bounded = {table: dict(each) for table, each in self._expressions.items()}
        expressions = f", expressions={bounded!r}" if bounded else ""
        known = f", references={dict(self._references)!r}" if self._references else ""
        return f"Schema({tables!r}{units}{groups}{expressions}{known})"


def declaring(schema: Schema, table: str, column: str, domain: Declaration) -> Schema:
    """Return a schema that declares a domain besides, or in place of the column's own."""
    columns = schema.get(table, {})
    others = {name: of for name, of in columns.items() if folded(name) != folded(column)}
    return _with(schema, {**schema, table: {**others, column: domain}}, schema.expressions)


def bounding(schema: Schema, table: str, expression: str, bounds: NumberBounds) -> Schema:
    """Return a schema that declares bounds of an expression besides, or in place of its own."""
    expressions = schema.expressions.get(table, {})
    return _with(schema, schema, {**schema.expressions, table: {**expressions, expression: bounds}})


def _with(
    schema: Schema,
    tables: Mapping[str, Mapping[str, Declaration]],
    expressions: Mapping[str, Mapping[str, NumberBounds]],
) -> Schema:
    return Schema(
        tables,
        units=schema.units,
        groups=schema.groups,
        expressions=expressions,
        references=schema.references,
    )


SchemaLike = Schema | Mapping[str, Mapping[str, Declaration]] | str | os.PathLike[str]
"""A schema, the tables of one, or the path of a schema file."""


def _groups(table: str, declared: object) -> tuple[Groups, ...]:
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        raise SchemaError(
            f"The groups of {printable(table)} are {shown(declared)}.",
            hint='for example {"flights": [(("month", "day"), "calendar")]}.',
        )
    return tuple(map(Groups.read, declared))


def _items(mapping: Mapping[str, T], what: str, key: str) -> Iterable[tuple[str, T]]:
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
        raise SchemaError(
            f"{what} must map {key} names to something, it can't be {mapping!r}.",
            hint='for example {"people": {"age": dpsql.Domain.integers(0, 115)}}.',
        )
    return mapping.items()


# ── TOML files of declarations ───────────────────────────────────────────────────────────
#
#     [people]                    # a table
#     unit = "person_id"          # whose rows are protected together
#     max_rows = 3
#     references = { household_id = "households.id" }  # keys that the database doesn't know
#     groups = [{ columns = ["month", "day"], of = "calendar" }]  # which combinations exist
#
#     [people.columns]
#     age = { integers = [0, 115], nullable = true }
#     sex = { labels = ["female", "male"] }
#     wage = { number = [0, 500] }
#
#     [people.expressions]
#     "wage * hours" = { number = [0, 10_000] }
#
# Whatever is not understood is refused: a declaration that is silently skipped would be a domain
# that nobody meant. Numbers with a point are read as the decimals that they look like.


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

    tables: dict[str, dict[str, Declaration]]
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
    declarations = Declarations({}, {}, {}, {}, {})
    for table, content in contents.items():
        with _within(f"table {table}"):
            _read_table(table, content, declarations)
    return declarations


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


def _read_table(table: str, content: object, declared: Declarations) -> None:
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
    declared.tables[table] = {}
    for column, entry in columns.items():
        with _within(f"column {column}"):
            declared.tables[table][column] = read_domain(entry)
    if content.keys() & {*_UNIT_KEYS, "each_row"}:
        declared.units[table] = _unit(content)
    if "groups" in content:
        declared.groups[table] = _groups_in_file(content["groups"])
    if "expressions" in content:
        declared.expressions[table] = read_expressions(table, content["expressions"])
    declared.references.update(references_from(table, content.get("references", {})))


def _misplaced(table: str, key: str, value: object) -> str:
    if isinstance(value, Mapping) and folded(key) not in _TABLE_KEYS:
        return f"columns stand one level deeper: [{toml_key(table)}.columns.{toml_key(key)}]."
    return closest(key, _TABLE_KEYS)


def _groups_in_file(given: object) -> tuple[Groups, ...]:
    hint = 'write { columns = ["month", "day"], of = "calendar" } in a list.'
    groups = []
    for entry in given if isinstance(given, list) else [given]:
        if not isinstance(entry, Mapping) or set(entry) not in _GROUPS:
            raise SchemaError(f"{shown(entry)} is not a declaration of groups.", hint=hint)
        of = entry.get("of", entry.get("rows"))
        if isinstance(of, str) != ("of" in entry):
            raise SchemaError(f"The groups are {shown(of)}.", hint=hint)
        groups.append(Groups.read((entry["columns"], of)))
    return tuple(groups)


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
