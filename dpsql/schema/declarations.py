"""The data owner's declarations about several tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from dpsql.calls import checked
from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.expressions import read_expressions
from dpsql.schema.groups import Groups
from dpsql.schema.sequences import shown
from dpsql.schema.toml import read_toml
from dpsql.schema.units import EachRow, Unit, checked_references

T = TypeVar("T")


class Schema(Mapping[str, Mapping[str, Domain | NumberBounds]]):
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
        tables: Mapping[str, Mapping[str, Domain | NumberBounds]],
        *,
        units: Mapping[str, Unit | EachRow] | None = None,
        groups: Mapping[str, Sequence[object]] | None = None,
        expressions: Mapping[str, Mapping[str, Sequence[object] | NumberBounds]] | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        checked: dict[str, Mapping[str, Domain | NumberBounds]] = {}
        for table, columns in _items(tables, "A schema", "table"):
            _items(columns, f"The schema of {table}", "column")
            for column, domain in columns.items():
                if not isinstance(domain, Domain | NumberBounds):
                    raise SchemaError(
                        f"The domain of {table}.{column} is {domain!r}.",
                        hint="use dpsql.Domain.integers, .decimals, .dates, .bins, .labels, "
                        ".boolean or .number.",
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
        found = {table: read_expressions(table, each) for table, each in bounded}
        self._expressions = MappingProxyType(found)
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

    def __getitem__(self, table: str) -> Mapping[str, Domain | NumberBounds]:
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


SchemaLike = Schema | Mapping[str, Mapping[str, Domain | NumberBounds]] | str | os.PathLike[str]
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
