"""The public description of a table, and of several; and the values that declarations move."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar, runtime_checkable

from dpsql.errors import InternalError, SchemaError, WantedColumn, printable
from dpsql.hints import Hint
from dpsql.schema.domain import (
    COLLATED,
    DERIVED,
    INTEGER_TYPES,
    Cuts,
    Domain,
    Merging,
    NumberBounds,
    Unknown,
    Value,
    first_and_last,
    lines_of,
)
from dpsql.schema.drafts import (
    KEY_TYPES,
    counting_hint,
    declaration_hint,
    finding_hint,
    rounding_hint,
)
from dpsql.schema.groups import Groups
from dpsql.schema.names import as_sql, closest, folded, quoted_text, unknown
from dpsql.schema.sequences import DecimalRange, decimal_text
from dpsql.schema.units import KeyStep, ResolvedUnit

T = TypeVar("T")


class Origin(Protocol):
    """The origin of the rows of a view: a scan that the library writes, of rows of one table.

    Each row of the table below gives one row of the view or none, and by that row alone. So adding
    or removing a row there adds or removes one here at most, and what is charged for the view is
    charged for the table below: `base`, or a folder of files, of which `roots` names the place.
    """

    @property
    def base(self) -> Table:
        """The table whose rows they are, with the unit that the view has, and in its own file."""

    @property
    def sql(self) -> str:
        """The SQL that stands after FROM."""

    @property
    def digest(self) -> str:
        """A hash of what is scanned: views with another one have other rows."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of the files that are read; none if the rows are in the database."""

    @property
    def state(self) -> str:
        """A hash of which files there are and when they were written; empty without files."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private tables of whose rows a relation is made."""

    def check_unchanged(self) -> None:
        """Check that the files are those that were listed, and as they were.

        Raises:
            StaleSchemaError: they aren't.
        """


@runtime_checkable
class Added(Protocol):
    """A column that is computed of a row and others of its unit: see `dpsql/rel/added.py`."""

    @property
    def name(self) -> str:
        """The name of the column, which says in full what it is."""

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def filled(self) -> bool:
        """Whether it is never NULL."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that are read of the row."""

    @property
    def between(self) -> tuple[Fraction | None, Fraction | None]:
        """Between which numbers it lies, days of 1970 for times, where units keep to `max_rows`."""

    @property
    def domain(self) -> Domain | None:
        """Its values, if they are known."""

    @property
    def listed(self) -> bool:
        """Whether the column has no values outside of its domain."""

    @property
    def is_window(self) -> bool:
        """Whether it looks at the other rows of its table."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The other private tables that are read."""

    @property
    def digest(self) -> str:
        """A hash of what it is, and of its values."""


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
    """The unit whose rows are protected together; None if each row is protected by itself."""
    enforced: frozenset[str] = field(default=frozenset(), compare=False)
    """The columns of which the database itself sees to it that every row has a cell, or that
    every number lies between the bounds."""
    groups: tuple[Groups, ...] = ()
    """Combinations of values that exist: a SELECT that groups by them returns no others."""
    each_row: bool = field(default=False, compare=False)
    """Whether the owner says that no unit is missing: see `EACH_ROW`."""
    bounds: Mapping[str, NumberBounds] = field(default_factory=dict)
    """Undeclared columns of numbers → their bounds: they can be added up."""
    filled: frozenset[str] = field(default=frozenset(), compare=False)
    """The columns that are never NULL, as the database itself sees to it."""
    origin: Origin | None = field(default=None, compare=False, repr=False)
    """The source of a view's rows; a base table has its own."""
    expressions: Mapping[str, NumberBounds] = field(default_factory=dict)
    """Expressions of a row, as they are written → bounds of their own."""
    file: Path | None = field(default=None, compare=False, repr=False)
    """The file of the attached database that it is in; None in the connection's current one."""
    derived: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Keys that statements have computed of each row → a hash of what each is. They have domains
    among `columns`, but no row has them stored; see `dpsql/rows/key.py`."""
    parents: tuple[Parent, ...] = field(default=(), compare=False, repr=False)
    """The rows of other private tables that a row refers to, whose columns it has too."""
    added: tuple[Added, ...] = field(default=(), compare=False, repr=False)
    """Columns that are computed of the row and others of its unit, each after what it needs."""
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Columns as they stand where they are stored, if others come between those with a domain."""
    unknown: Mapping[str, Unknown] = field(default_factory=dict, compare=False, repr=False)
    """Undeclared columns whose values are to be found."""
    told: Mapping[str, Domain] = field(default_factory=dict, compare=False, repr=False)
    """Expressions of a row whose values were found, as `rows/found.py` names them → these."""
    learned: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Columns whose domain was found in the rows, or is assumed to be, and isn't the owner's."""

    def __post_init__(self) -> None:
        for name in (
            "derived",
            "bounds",
            "expressions",
            "columns",
            "undeclared",
            "unknown",
            "told",
        ):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

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
    def own_unit(self) -> ResolvedUnit:
        """The unit that its rows are of.

        Raises:
            InternalError: there is none, and so no bound on them.
        """
        if self.unit is None:
            raise InternalError("the rows of a table without a unit have none")
        return self.unit

    @property
    def alone(self) -> Table:
        """The table with the columns alone that are stored in it."""
        if not (self.derived or self.joined):
            return self
        stored = replace(self, derived={}, parents=(), added=())
        return replace(
            stored,
            columns=self._stored(self.columns),
            undeclared=self._stored(self.undeclared),
            enforced=frozenset(self._stored(dict.fromkeys(self.enforced))),
            filled=frozenset(self._stored(dict.fromkeys(self.filled))),
            bounds=self._stored(self.bounds),
        )

    def _stored(self, named: Mapping[str, T]) -> dict[str, T]:
        """Leave out what is computed of a row, and what it has of rows that it refers to."""
        made = self.joined.union(self.derived)
        return {name: of for name, of in named.items() if name not in made}

    @property
    def read(self) -> tuple[Table, ...]:
        """All tables of which it has rows: itself, and others that are seen from its rows.

        The rows of a combination are those of the tables that it is made of.
        """
        seen = [parent.table for parent in self.parents]
        seen += [table for one in self.added for table in one.tables]
        return (self, *(other for table in (*self.made_of, *seen) for other in table.read))

    @property
    def made_of(self) -> tuple[Table, ...]:
        """The private tables of whose rows its rows are made; none if they are stored."""
        return () if self.origin is None else self.origin.tables

    @property
    def joined(self) -> frozenset[str]:
        """The columns that aren't stored in it: those of its parents, and of other rows."""
        from_others = {parent.matched for parent in self.parents} | {*self.computed}
        return frozenset(from_others.union(*(parent.names.values() for parent in self.parents)))

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns that are computed of rows of the same unit."""
        return tuple(one.name for one in self.added)

    @property
    def without_keys(self) -> Table:
        """The table without the keys that statements have computed; its parents' columns stay."""
        keys = self.derived.keys() - self.joined
        if not keys:
            return self
        return replace(
            self,
            columns={name: d for name, d in self.columns.items() if name not in keys},
            enforced=self.enforced.difference(keys),
            derived={name: of for name, of in self.derived.items() if name not in keys},
        )

    @property
    def listed(self) -> tuple[str, ...]:
        """All columns in the order in which `*` stands for them."""
        known, places = (*self.columns, *self.undeclared), {n: i for i, n in enumerate(self.order)}
        return tuple(sorted(known, key=lambda name: places.get(name, len(places))))

    def has(self, name: str) -> bool:
        """Whether there is a column of this name (SQL ignores case)."""
        return any(folded(name) == folded(known) for known in (*self.columns, *self.undeclared))

    def column(self, name: str, *, called: str = "") -> str:
        """Return the declared column that `name` means (SQL ignores case).

        Args:
            name: the column.
            called: what a statement calls it, if that is something else.

        Raises:
            SchemaError: there is no such column, or it has no public domain.
        """
        for known in self.columns:
            if folded(known) == folded(name):
                return known
        for parent in self.parents:
            for column, joined in parent.names.items():
                if joined == name:
                    parent.table.column(column)
        computed = next((each for each in self.added if each.name == name), None)
        if computed is not None:
            number = computed.type in {*INTEGER_TYPES, "HUGEINT", "FLOAT", "DOUBLE"}
            raise SchemaError(
                "What is computed from other rows of a unit has no public domain.",
                hint="round it, or limit it, to few values: floor(… / 100) * 100 or LEAST(…, 20); "
                "or compare it with a constant."
                if number or computed.type.startswith("DECIMAL")
                else "compare it with a constant: a condition has two values.",
            )
        for known, type_ in self.undeclared.items():
            if folded(known) == folded(name):
                raise self._undeclared(known, type_, called or known)
        raise unknown(
            f"There is no column {printable(name)} in {self.name}.",
            closest(name, [*self.columns, *self.undeclared], as_sql),
        )

    def _undeclared(self, name: str, type_: str, called: str) -> SchemaError:
        """Say that a column has no domain, and how it could have one."""
        hint, findable = Hint(""), self._can_be_found(name, type_)
        if self.unit is not None and self.unit.named_by == (name,):
            hint, findable = counting_hint(self.name, name, single=self.contributions == 1), False
        elif name in self.bounds:
            hint, findable = rounding_hint(self.typed, name, self.bounds[name]), False
        elif self.made_of:
            hint += "declare a domain for the columns that it is made of; or compare it with a "
            hint += "constant: a condition has two values."
        else:
            hint = finding_hint() if findable else hint
            hint += declaration_hint(self.typed, name, type_, view=bool(self.origin))
        error = SchemaError(
            f"The column {printable(called)} of {self.name} has no public domain, "
            "so its values can't be told apart.",
            hint=hint,
        )
        error.wanted = WantedColumn(self.path, name) if findable else None
        return error

    def _can_be_found(self, name: str, type_: str) -> bool:
        """Whether the values of a column can be found in the rows."""
        return type_ in KEY_TYPES and self.has_keys

    @property
    def has_keys(self) -> bool:
        """Whether values can be found in the rows: each is of one unit, which has so many."""
        unit = self.unit
        bounded = unit is None or (
            all(join.enforced for join in unit.joins)
            and (unit.max_groups or unit.max_rows) is not None
        )
        return not self.made_of and bounded

    def tells_units(self, names: Iterable[str]) -> bool:
        """Whether one of some columns says of which unit a row is."""
        return self.unit is not None and not set(names).isdisjoint(self.unit.named_by)

    def merges(self, name: str) -> frozenset[Merging]:
        """Say why the cells of a column stand for several values that may be stored in it."""
        merged = self.columns[name].merges
        return merged - {Merging.ENDS, Merging.OTHER} if name in self.enforced else merged

    def leaves_out(self, name: str) -> bool:
        """Whether rows may have no value of a column's domain, and no rule gives them one.

        A SELECT that names the column doesn't count them. They are measured all the same, in a
        cell of their own after those of the domain, so that all measurements are about the same
        rows and go together.
        """
        return name not in self.enforced and not self.columns[name].covers_all

    def is_called(self, parts: Sequence[str]) -> bool:
        """Whether a name, with or without its schema and database, means this table."""
        path = tuple(folded(part) for part in self.path or (self.name,))
        name = tuple(folded(part) for part in parts)
        return name == path[-len(name) :] or (len(path) > 1 and name == (path[0], path[-1]))

    @property
    def typed(self) -> str:
        """The name in statements and schemas: with its database, unless that is the current one."""
        return self.name if self.file is None else ".".join(self.path)

    @property
    def stored(self) -> Table:
        """The table that is charged for: itself, or the one below a view."""
        return self if self.origin is None else self.origin.base

    def guards(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of some columns in which rows may have no value of the domain."""
        return frozenset(name for name in names if self.leaves_out(name))

    def cells(self, name: str) -> int:
        """Return into how many cells a column is counted: every row is in one of them."""
        return self.columns[name].size + self.leaves_out(name)

    @property
    def contributions(self) -> int:
        """The most rows of one unit that count; 1 if only units can be counted, as records."""
        return 1 if self.unit is None else self.unit.max_rows or 1

    @property
    def unit_rows(self) -> int | None:
        """The most rows of one unit that count; None if nothing says so."""
        return None if self.unit is None else self.unit.max_rows

    @property
    def is_bounded(self) -> bool:
        """Whether rows of it can be counted: a unit has one, or so many count at most."""
        return self.unit is None or self.unit.max_rows is not None

    @property
    def neighbours(self) -> str:
        """The neighboring relation that the privacy promise is about, in words."""
        return neighbours_of((self,))

    @property
    def described(self) -> Mapping[str, str]:
        """Column → a hash of its domain; "" for a column without one.

        Derived keys are among them, with `DERIVED` before their hash: no column has the like.
        """
        domains = {name: repr(domain).encode() for name, domain in self.alone.columns.items()}
        domains |= {name: str(bounds).encode() for name, bounds in self.alone._declared_bounds()}
        hashes = {name: hashlib.sha256(text).hexdigest() for name, text in domains.items()}
        keys = {name: f"{DERIVED}{of}" for name, of in self.derived.items()}
        return dict.fromkeys(self.alone.undeclared, "") | hashes | keys

    def _declared_bounds(self) -> list[tuple[str, NumberBounds]]:
        """Return the bounds that somebody may change without changing the table."""
        declared = self.bounds.items()
        return [(name, of) for name, of in declared if not of.found and name not in self.enforced]

    @property
    def without_declared_bounds(self) -> Table:
        """The table without the bounds that somebody may change without changing it."""
        declared = dict(self._declared_bounds())
        return replace(self, bounds={n: of for n, of in self.bounds.items() if n not in declared})

    @property
    def fingerprint(self) -> str:
        """A hash of what is public about the rows of the table and their cells.

        Not of the database's name: the same file may be attached under several. Nor of bounds that
        a CHECK or an expression has, or that were found in the rows: no cell depends on them, and a
        sum has them in its own name. Nor of derived keys, which follow from the statements that
        have them, or of parents' columns.
        """
        described = self.alone
        lines = [repr(self.path[1:] or (self.name,))]
        lines += [f"{name!r}: {domain!r}" for name, domain in described.columns.items()]
        zones = {name: domain.zone for name, domain in described.columns.items() if domain.zone}
        lines += [repr(zones)] if zones else []
        types = ((name, t.replace(COLLATED, "VARCHAR")) for name, t in described.undeclared.items())
        lines += [f"{name!r}: {type_}" for name, type_ in types]
        lines += [f"{name!r}: {bounds}" for name, bounds in described._declared_bounds()]
        lines += [] if self.unit is None else [repr(self.unit)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def neighbours_of(tables: Sequence[Table]) -> str:
    """Word the neighboring relation of one table, or of several with rows of the same units.

    Who is protected, how many rows count, and by which way each row is found to be whose: as it was
    resolved, whatever the owner has typed.
    """
    first, *others = tables
    if first.unit is None:
        return f"add or remove one row of {printable(first.name)}"
    units = [table.unit for table in tables if table.unit is not None]
    named = [unit.shown for unit in units if unit.root[0] or "." in unit.name]
    alone = f"{first.name}.{first.unit.name}" if others else first.unit.name
    bounded = [table for table in tables if table.is_bounded]
    each = [f"{t.contributions:,}{f' of {printable(t.name)}' * bool(others)}" for t in bounded]
    kept = " and ".join(filter(None, (", ".join(each[:-1]), *each[-1:])))
    verb = "is" if kept == "1" else "are"
    text = f"add or remove one {printable([*named, alone][0])} with all of its rows"
    text += f", of which at most {kept} {verb} kept" if kept else ""
    stored = [part for table in tables for part in (table.made_of or (table,))]
    ways = dict.fromkeys(
        f"in {printable(part.name)} by {printable(part.unit.way(part.name))}"
        for part in stored
        if part.unit is not None
    )
    return f"{text}; its rows are found {', '.join(ways)}"


@dataclass(frozen=True, slots=True)
class Parent:
    """The one row of another private table that a row refers to."""

    above: str
    """The words before the columns of the row that refers to it; empty for the grain's own."""
    join: KeyStep
    """The join by which it refers to it."""
    table: Table
    on_way: bool
    """Whether it is a step of the way to the unit: then every row that counts has one."""

    @property
    def prefix(self) -> str:
        """The prefix of its columns in the grain."""
        return f"{self.above}{', '.join(self.join.columns)}."

    @property
    def matched(self) -> str:
        """The column of the grain that is true where there is a parent, else NULL."""
        return self.prefix

    @property
    def names(self) -> dict[str, str]:
        """Its columns → their names in the grain."""
        return {name: self.prefix + name for name in (*self.table.columns, *self.table.undeclared)}

    def domain(self, column: str) -> Domain:
        """Return the domain of one of its columns, with NULL if it may be missing."""
        domain = self.table.columns[column]
        return domain if self.on_way else replace(domain, nullable=True)

    def digest(self, column: str) -> str:
        """Return a hash of what a column is: the last step to it, and its domain."""
        join = self.join
        way: tuple[object, ...] = self.above, join.column, join.path[1:], join.key, column
        way += (join.further, join.enforced) if join.further or not join.enforced else ()
        return hashlib.sha256(f"{way!r}: {self.domain(column)!r}".encode()).hexdigest()


# ── Moved values: stored values that count as others, because the owner declares it so ───────────
#
# A domain may bring values beyond its ends to these, values between two of a grid to the nearer
# one, and texts that it doesn't list to one label; bounds bring numbers between them. Where a
# statement shows such a column, or adds it up, its readers must know. How many values are moved
# only the rows say, so it is asked of them as any count is: each kind comes with the condition that
# is true of the rows whose value was moved, and of no others.


_NEAR = "1e-9"
"""In steps: by how much a double may miss a multiple that it stands for."""


@dataclass(frozen=True, slots=True)
class MovedValues:
    """Values of a column that are moved in one way."""

    column: str
    kind: str
    """In a word: clamped, rounded, or other."""
    described: str
    """The value that they count as, told as a sentence without its subject."""
    condition: str
    """SQL that is true of the rows that have them."""

    def __str__(self) -> str:
        return f"{self.column} {self.described}"


def moved_values(table: Table, name: str) -> tuple[MovedValues, ...]:
    """Return in which ways values of a column are moved; in none, if all count as they are."""
    if name in table.bounds:
        enforced = name in table.enforced
        return () if enforced else (_between(name, table.bounds[name]),)
    domain = table.columns.get(name)
    return () if domain is None else tuple(_of_cells(name, domain, table.merges(name)))


def _between(name: str, bounds: NumberBounds) -> MovedValues:
    low, high = decimal_text(bounds.low), decimal_text(bounds.high)
    return _clamped(name, (low, high), (low, high))


def _of_cells(name: str, domain: Domain, merges: frozenset[Merging]) -> Iterator[MovedValues]:
    if Merging.ENDS in merges:
        yield _beyond(name, domain)
    if Merging.NEAREST in merges and isinstance(domain.values, DecimalRange):
        yield _between_two(name, domain.values)
    if Merging.OTHER in merges and domain.other is not None:
        listed = ", ".join(quoted_text(str(value)) for value in domain.values)
        described = f"counts as {quoted_text(domain.other)} where it isn't listed"
        yield MovedValues(name, "other", described, f"{as_sql(name)} NOT IN ({listed})")


def _beyond(name: str, domain: Domain) -> MovedValues:
    """Word the ends of a domain, which values beyond them count as."""
    first, last = first_and_last(domain)
    if domain.timed and isinstance(last, date):
        after = _literal(last + timedelta(days=1))
        condition = f"{as_sql(name)} < {_literal(first)} OR {as_sql(name)} >= {after}"
        return MovedValues(name, "clamped", _ends(str(first), str(last)), condition)
    return _clamped(name, (str(first), str(last)), (_literal(first), _literal(last)))


def _clamped(name: str, shown: tuple[str, str], written: tuple[str, str]) -> MovedValues:
    column = as_sql(name)
    condition = f"{column} < {written[0]} OR {column} > {written[1]}"
    return MovedValues(name, "clamped", _ends(*shown), condition)


def _ends(low: str, high: str) -> str:
    return f"counts as at least {low} and at most {high}"


def _between_two(name: str, grid: DecimalRange) -> MovedValues:
    """Word a grid that is coarser than its column; what lies beyond it isn't rounded."""
    step, low = Fraction(grid.step, 10**grid.scale), Fraction(grid.low, 10**grid.scale)
    shown = decimal_text(step)
    multiple = f"the nearest multiple of {shown}"
    if (low / step).denominator != 1:
        multiple = f"the nearest of {decimal_text(low)}, {decimal_text(low + step)}, …"
    steps = f"({as_sql(name)} - {decimal_text(low)}) / {shown}"
    inside = f"{as_sql(name)} BETWEEN {decimal_text(low)} AND {grid[-1]:f}"
    condition = f"{inside} AND abs({steps} - round({steps})) > {_NEAR}"
    return MovedValues(name, "rounded", f"counts as {multiple}", condition)


def _literal(value: Value) -> str:
    """Write an end of an ordered domain as SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    return f"DATE '{value}'" if isinstance(value, date) else str(value)
