"""What is public about a table, and about several."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from dpsql.calls import checked
from dpsql.errors import SchemaError, printable
from dpsql.schema.cuts import DERIVED, Cuts, lines_of
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.drafts import declaration_hint, rounding_hint
from dpsql.schema.expressions import read_expressions
from dpsql.schema.groups import Groups
from dpsql.schema.names import as_sql as as_sql
from dpsql.schema.names import as_text as as_text
from dpsql.schema.names import closest as closest
from dpsql.schema.names import unknown
from dpsql.schema.numbers import shown
from dpsql.schema.toml import read_toml
from dpsql.schema.units import EachRow, ResolvedUnit, Unit

T = TypeVar("T")


COLLATED = "VARCHAR with a collation"
"""The type, in messages, of texts that CHECKs compare by another rule than byte by byte."""


class Origin(Protocol):
    """Where the rows of a view come from: a scan that the library writes, of rows of one table.

    Each row of the table below gives one row of the view or none, and by that row alone. So adding
    or removing a row there adds or removes one here at most, and what is charged for the view is
    charged for the table below: `base`, or a folder of files, of which `roots` names the place.
    """

    @property
    def base(self) -> Table:
        """The table whose rows they are, with the unit that the view has, and in its own file."""

    @property
    def sql(self) -> str:
        """What stands after FROM."""

    @property
    def digest(self) -> str:
        """A hash of what is scanned: views with another one have other rows."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of the files that are read; none if the rows are in the database."""

    @property
    def state(self) -> str:
        """A hash of which files there are and when they were written; empty without files."""

    def check_unchanged(self) -> None:
        """Check that the files are those that were listed, and as they were.

        Raises:
            StaleSchemaError: they aren't.
        """


@dataclass(frozen=True, slots=True)
class Table:
    """A base table, or a view of one, with the public domains of its columns.

    `columns` are the columns with a domain. `undeclared` are the other columns with their
    DuckDB types: they can't be used, and are kept only to explain that well.
    """

    name: str
    columns: Mapping[str, Domain]
    undeclared: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Database, schema and table name, as the engine addresses it."""
    unit: ResolvedUnit | None = None
    """Whose rows are protected together; None if each row is protected by itself."""
    enforced: frozenset[str] = field(default=frozenset(), compare=False)
    """The columns of which the database itself sees to it that every row has a cell, or that
    every number lies between the bounds."""
    groups: tuple[Groups, ...] = ()
    """Which combinations of values exist: a SELECT that groups by them returns no others."""
    each_row: bool = field(default=False, compare=False)
    """Whether the owner says that no unit is missing: see `EACH_ROW`."""
    bounds: Mapping[str, NumberBounds] = field(default_factory=dict)
    """Undeclared columns of numbers → their bounds: they can be added up."""
    filled: frozenset[str] = field(default=frozenset(), compare=False)
    """The columns that are never NULL, as the database itself sees to it."""
    origin: Origin | None = field(default=None, compare=False, repr=False)
    """Of a view, where its rows come from; a base table has its own."""
    expressions: Mapping[str, NumberBounds] = field(default_factory=dict)
    """Expressions of a row, as they are written → bounds of their own."""
    file: Path | None = field(default=None, compare=False, repr=False)
    """The file of the attached database that it is in; None in the connection's current one."""
    derived: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Keys that statements have computed of each row → a hash of what each is. They have domains
    among `columns`, but no row has them stored; see `dpsql/rows/key.py`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "derived", MappingProxyType(dict(self.derived)))
        object.__setattr__(self, "bounds", MappingProxyType(dict(self.bounds)))
        object.__setattr__(self, "expressions", MappingProxyType(dict(self.expressions)))
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        object.__setattr__(self, "undeclared", MappingProxyType(dict(self.undeclared)))

    def deriving(self, domains: Mapping[str, Domain], derived: Mapping[str, str]) -> Table:
        """Add keys that are computed of each row, which so has a cell of each of them.

        Args:
            domains: key → its domain.
            derived: key → a hash of what it is.
        """
        return replace(
            self,
            columns={**self.columns, **domains},
            enforced=self.enforced.union(domains),
            derived={**self.derived, **derived},
        )

    @property
    def lines(self) -> dict[str, Cuts]:
        """The derived keys that are lines of columns, and where these are cut."""
        return lines_of(self.derived)

    @property
    def without_keys(self) -> Table:
        """The table with the columns alone that are stored in it."""
        if not self.derived:
            return self
        columns = {name: d for name, d in self.columns.items() if name not in self.derived}
        enforced = self.enforced.difference(self.derived)
        return replace(self, columns=columns, enforced=enforced, derived={})

    def column(self, name: str) -> str:
        """Return the declared column that `name` means (SQL ignores case).

        Raises:
            SchemaError: there is no such column, or it has no public domain.
        """
        for known in self.columns:
            if known.lower() == name.lower():
                return known
        for known, type_ in self.undeclared.items():
            if known.lower() == name.lower():
                view = self.origin is not None
                raise SchemaError(
                    f"The column {known} of {self.name} has no public domain, "
                    "so it can't be grouped by.",
                    hint=rounding_hint(known, self.bounds[known])
                    if known in self.bounds
                    else declaration_hint(self.typed, known, type_, view=view),
                )
        raise unknown(
            f"There is no column {printable(name)} in {self.name}.",
            closest(name, [*self.columns, *self.undeclared], as_sql),
        )

    def leaves_out(self, name: str) -> bool:
        """Whether rows may have no value of a column's domain, and no rule gives them one.

        A SELECT that names the column doesn't count them. They are measured all the same, in a
        cell of their own after those of the domain, so that all measurements are about the same
        rows and go together.
        """
        return name not in self.enforced and not self.columns[name].covers_all

    def is_called(self, parts: Sequence[str]) -> bool:
        """Whether a name, with or without its schema and database, means this table."""
        path = tuple(part.lower() for part in self.path or (self.name,))
        name = tuple(part.lower() for part in parts)
        return name == path[-len(name) :] or (len(path) > 1 and name == (path[0], path[-1]))

    @property
    def typed(self) -> str:
        """How statements and schemas name it: with its database, unless that is the current one."""
        return self.name if self.file is None else ".".join(self.path)

    @property
    def stored(self) -> Table:
        """The table whose rows they are: itself, or the one below a view."""
        return self if self.origin is None else self.origin.base

    def guards(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of some columns in which rows may have no value of the domain."""
        return frozenset(name for name in names if self.leaves_out(name))

    def cells(self, name: str) -> int:
        """Return into how many cells a column is counted: every row is in one of them."""
        return self.columns[name].size + self.leaves_out(name)

    @property
    def contributions(self) -> int:
        """How many rows of one privacy unit count at most."""
        return 1 if self.unit is None else self.unit.max_rows

    @property
    def neighbours(self) -> str:
        """The neighboring relation that the privacy promise is about, in words."""
        if self.unit is None:
            return f"add or remove one row of {printable(self.name)}"
        return self.unit.neighbours

    @property
    def described(self) -> Mapping[str, str]:
        """Column → a hash of its domain; "" for a column without one.

        Derived keys are among them, with `DERIVED` before their hash: no column has the like.
        """
        domains = {
            name: repr(domain).encode() for name, domain in self.without_keys.columns.items()
        }
        domains |= {name: str(bounds).encode() for name, bounds in self._declared_bounds()}
        hashes = {name: hashlib.sha256(text).hexdigest() for name, text in domains.items()}
        keys = {name: f"{DERIVED}{of}" for name, of in self.derived.items()}
        return dict.fromkeys(self.undeclared, "") | hashes | keys

    def _declared_bounds(self) -> list[tuple[str, NumberBounds]]:
        """Return the bounds that somebody may change without changing the table."""
        return [each for each in self.bounds.items() if each[0] not in self.enforced]

    @property
    def fingerprint(self) -> str:
        """A hash of what is public about the rows of the table and their cells.

        Not of the database's name: the same file may be attached under several. Nor of bounds that
        a CHECK or an expression has, on which no cell depends: a sum has them in its own name. Nor
        of derived keys, which follow from the statements that have them.
        """
        lines = [repr(self.path[1:] or (self.name,))]
        lines += [f"{name!r}: {domain!r}" for name, domain in self.without_keys.columns.items()]
        zones = {
            name: domain.zone for name, domain in self.without_keys.columns.items() if domain.zone
        }
        lines += [repr(zones)] if zones else []
        types = ((name, t.replace(COLLATED, "VARCHAR")) for name, t in self.undeclared.items())
        lines += [f"{name!r}: {type_}" for name, type_ in types]
        lines += [f"{name!r}: {bounds}" for name, bounds in self._declared_bounds()]
        lines += [] if self.unit is None else [repr(self.unit)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


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
    """

    @checked
    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Domain | NumberBounds]],
        *,
        units: Mapping[str, Unit | EachRow] | None = None,
        groups: Mapping[str, Sequence[object]] | None = None,
        expressions: Mapping[str, Mapping[str, Sequence[object] | NumberBounds]] | None = None,
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
        return f"Schema({tables!r}{units}{groups}{expressions})"


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
