"""A table in plain JSON, as releases keep it: exactly, with the types that the catalog gave.

Whoever made a document, reading it runs nothing of it. msgspec reads the shapes below, strictly: no
value is taken for one of another type, and nothing may be there that isn't named. What was read is
written again and must be the document, so that it is exactly what `table_to_json` writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from dpsql.errors import InternalError, SchemaError
from dpsql.schema.domain import INTEGER_TYPES, Domain, NumberBounds, Outside
from dpsql.schema.entries import check_expressions, read_expressions
from dpsql.schema.grain import grain, origins
from dpsql.schema.groups import Groups
from dpsql.schema.kinds import Kind, Shape, kind_of, require
from dpsql.schema.sequences import (
    decimal_text,
    exact,
)
from dpsql.schema.table import Origin, Parent, Table
from dpsql.schema.units import MAX_ROWS, KeyPair, KeyStep, ResolvedUnit, RowLimit

# ── Units, and the keys that lead to them ─────────────────────────────────────────────────────────

Place: TypeAlias = tuple[int, str]
"""A column: the number of the table whose it is, and its name there."""
MAX_JOINS = 64
_MAX_COLUMNS = 64
"""Columns of one key."""
_MAX_PATH = 3


class StoredJoin(Shape, frozen=True):
    """One step along a key."""

    column: str
    path: tuple[str, ...]
    key: str
    type: str
    further: tuple[KeyPair, ...] = ()
    enforced: bool = True

    def read(self) -> KeyStep:
        """Read it."""
        require(is_path(self.path) and len(self.further) <= _MAX_COLUMNS)
        return msgspec.convert(self, KeyStep, from_attributes=True)


class StoredUnit(Shape, frozen=True):
    """A unit, with the way to it and its bounds."""

    name: str
    column: str
    type: str
    joins: tuple[StoredJoin, ...]
    max_rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] | None
    further: tuple[tuple[str, str], ...] = ()
    max_groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] | None = None
    limits: tuple[RowLimit, ...] = ()
    max_values: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] | None = None

    def read(self) -> ResolvedUnit:
        """Read it."""
        require(len(self.joins) <= MAX_JOINS and len(self.further) <= _MAX_COLUMNS)
        require(all(1 <= limit.rows <= MAX_ROWS and limit.columns for limit in self.limits))
        joins = tuple(join.read() for join in self.joins)
        return replace(msgspec.convert(self, ResolvedUnit, from_attributes=True), joins=joins)


class StoredChosen(Shape, frozen=True):
    """The rows of a table that were chosen, as releases had them before relations were."""

    path: tuple[str, ...]
    unit: StoredUnit
    window: str
    first: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    last: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    rows: Annotated[int, msgspec.Meta(ge=1)] | None
    apart: tuple[str, ...] = ()

    def check(self) -> None:
        """Check it, as nothing else is read of it."""
        require(is_path(self.path) and self.first <= self.last)
        self.unit.read()


class _NotAtHand:
    """The origin of rows in a saved release, which has none."""

    roots: tuple[Path, ...] = ()
    state: str = ""

    @property
    def sql(self) -> str:
        """There is no database."""
        raise InternalError("what was saved has no rows")

    def check_unchanged(self) -> None:
        """There are no files."""


@dataclass(frozen=True)
class KnownRows(_NotAtHand):
    """The origin of the rows of a view or of a relation, as a saved release has it."""

    base: Table
    digest: str
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class FormerRows(_NotAtHand):
    """Rows of several tables, or chosen ones, as releases had them before relations were.

    What was measured of them is answered by the release as it is, and nothing else is.
    """

    base: Table
    tables: tuple[Table, ...]
    equal: tuple[tuple[Place, Place], ...]
    chosen: StoredChosen | None

    @property
    def digest(self) -> str:
        """The hash by which ledgers know them."""
        said: tuple[object, ...] = ()
        if self.chosen is not None:
            chosen = self.chosen
            said = chosen.path[1:], chosen.window, chosen.first, chosen.last
        else:
            said = [_former(table) for table in self.tables], [list(pair) for pair in self.equal]
        return hashlib.sha256(repr(said).encode()).hexdigest()


def _former(table: Table) -> tuple[object, ...]:
    steps = [(parent.above, parent.join, parent.on_way) for parent in table.parents]
    return table.path[1:], table.unit, steps, [origin.digest for origin in origins(table)]


def is_path(path: tuple[str, ...]) -> bool:
    """Whether a table may have such a path."""
    return len(path) <= _MAX_PATH


# ── Domains and tables ────────────────────────────────────────────────────────────────────────────

_COLUMN_TYPE = re.compile(
    r"|DOUBLE|FLOAT|DATE|TIMESTAMP( WITH TIME ZONE|_S|_MS|_NS)?|DECIMAL\(\d\d?,\d\d?\)", re.ASCII
)


class _Column(Shape, frozen=True):
    name: str
    type: str
    values: Kind
    nullable: bool
    outside: Outside
    other: str | None
    column_type: str
    zone: str | None = None

    def read(self) -> Domain:
        """Read the domain, which checks itself; not the type of the column, which SQL is from."""
        require(self.column_type in INTEGER_TYPES or bool(_COLUMN_TYPE.fullmatch(self.column_type)))
        values, uppers = self.values.read(self.type)
        rules = self.nullable, self.outside, uppers, self.other
        return Domain(self.type, values, *rules, self.column_type, self.zone)


class _Undeclared(Shape, frozen=True):
    name: str
    type: str
    bounds: tuple[str, str] | None = None
    found: bool = False
    """Whether the bounds were found in the rows."""


class _Expression(Shape, frozen=True):
    text: str
    bounds: tuple[str, str]


class _Derived(Shape, frozen=True):
    name: str
    digest: str


class _Parent(Shape, frozen=True):
    above: str
    join: StoredJoin
    on_way: bool
    table: _Table

    def read(self) -> Parent:
        require(self.table.unit is None and not self.table.parents)
        return Parent(self.above, self.join.read(), self.table.read(), self.on_way)


class _Table(Shape, frozen=True):
    name: str
    path: tuple[str, ...]
    columns: tuple[_Column, ...]
    undeclared: tuple[_Undeclared, ...]
    enforced: tuple[str, ...]
    unit: StoredUnit | None
    groups: tuple[Groups, ...] = ()
    expressions: tuple[_Expression, ...] = ()
    filled: tuple[str, ...] = ()
    derived: tuple[_Derived, ...] = ()
    parents: tuple[_Parent, ...] = ()
    made_of: tuple[_Table, ...] = ()
    equal: tuple[tuple[Place, Place], ...] = ()
    chosen: StoredChosen | None = None
    below: _Below | None = None
    order: tuple[str, ...] = ()

    def read(self) -> Table:
        columns = {column.name: column.read() for column in self.columns}
        undeclared = {column.name: column.type for column in self.undeclared}
        # A name that stands twice is missing in what is written again.
        given = ((c.name, c.bounds, c.found) for c in self.undeclared)
        bounds = {name: _bounds(ends, found=of) for name, ends, of in given if ends is not None}
        require(not columns.keys() & undeclared.keys())
        require({*columns, *bounds} >= {*self.enforced})
        require({*columns, *undeclared} >= {*self.filled})
        require(not self.order or {*columns, *undeclared} == {*self.order})
        expressions = read_expressions(self.name, {e.text: e.bounds for e in self.expressions})
        check_expressions(self.name, expressions, (*columns, *undeclared))
        self._check_parts(columns)
        table = Table(
            self.name,
            columns,
            undeclared,
            self.path,
            None if self.unit is None else self.unit.read(),
            frozenset(self.enforced),
            self.groups,
            bounds=bounds,
            filled=frozenset(self.filled),
            expressions=expressions,
            derived={key.name: key.digest for key in self.derived},
            origin=self._origin(),
            order=self.order,
        )
        parents = [parent.read() for parent in self.parents]
        known = {"", *(parent.prefix for parent in parents)}
        require(all(parent.above in known for parent in parents))
        return grain(table, parents)

    def _origin(self) -> Origin | None:
        """Return where its rows come from, which can't be read here."""
        if self.below is not None:
            return self.below.read()
        made = tuple(one.read() for one in self.made_of)
        unit = None if self.unit is None else self.unit.read()
        if unit is None or not (made or self.chosen):
            return None
        if self.chosen is not None:
            self.chosen.check()
        path = self.path if self.chosen is not None else (*self.path[:-1], self.name)
        base = Table(self.name, {}, path=path, unit=replace(unit, column=unit.name))
        return FormerRows(base, made, self.equal, self.chosen)

    def _check_parts(self, columns: Mapping[str, Domain]) -> None:
        """Refuse parts that no table has together."""
        require(all(groups.resolved("", columns) == groups for groups in self.groups))
        require(all(len(row) == len(g.columns) for g in self.groups for row in _rows(g)))
        require(is_path(self.path))
        limits = () if self.unit is None else self.unit.limits
        require(all(name in columns for limit in limits for name in limit.columns))
        require(self.below is None or not self.made_of)
        require(self.unit is not None or not (self.chosen or self.made_of))
        places = {number for pair in self.equal for number, _ in pair}
        require(places <= set(range(len(self.made_of))))
        require(len(self.parents) <= MAX_JOINS)


class _Below(Shape, frozen=True):
    """The table that is charged for in place of a view, and a digest of what the view scans."""

    base: _Table
    digest: str

    def read(self) -> KnownRows:
        require(self.base.below is None)
        return KnownRows(self.base.read(), self.digest)


# ── Documents ─────────────────────────────────────────────────────────────────────────────────────


def table_to_json(table: Table) -> dict[str, Any]:
    """Write a table in plain JSON types, so that `table_from_json` gives an equal one."""
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(_written(table)))
    return written


def table_from_json(document: object) -> Table:
    """Read a table that `table_to_json` wrote. The document may come from a stranger.

    Raises:
        SchemaError: it is not such a document, in any respect.
    """
    try:
        table = msgspec.convert(document, _Table).read()
        require(_text(table_to_json(table)) == _text(document))
    except (msgspec.ValidationError, ValueError, TypeError, ArithmeticError, RecursionError):
        raise SchemaError(
            "The stored description of a table and its columns is damaged.",
            hint="was the file changed, or written by another version of dpsql?",
        ) from None
    return table


def _text(document: object) -> bytes:
    """Write JSON, in which 1, 1.0 and true differ, and that has no NaN and no half characters."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


def _rows(groups: Groups) -> tuple[tuple[str, ...], ...]:
    return () if isinstance(groups.of, str) else groups.of


def _written(table: Table) -> _Table:
    alone, former = table.alone, table.origin if isinstance(table.origin, FormerRows) else None
    return _Table(
        alone.name,
        alone.path,
        tuple(_column(name, domain) for name, domain in alone.columns.items()),
        tuple(
            _Undeclared(name, type_, *_with_bounds(alone.bounds.get(name)))
            for name, type_ in alone.undeclared.items()
        ),
        tuple(sorted(alone.enforced)),
        None if alone.unit is None else StoredUnit.of(alone.unit),
        alone.groups,
        tuple(_Expression(text, _ends(bounds)) for text, bounds in alone.expressions.items()),
        tuple(sorted(alone.filled)),
        tuple(_Derived(n, of) for n, of in table.derived.items() if n not in table.joined),
        tuple(
            _Parent(p.above, StoredJoin.of(p.join), p.on_way, _written(replace(p.table, unit=None)))
            for p in table.parents
        ),
        () if former is None else tuple(map(_written, former.tables)),
        () if former is None else former.equal,
        None if former is None else former.chosen,
        None if former or table.origin is None else _below(table.origin),
        () if alone.listed == (*alone.columns, *alone.undeclared) else alone.listed,
    )


def _below(origin: Origin) -> _Below:
    return _Below(_written(origin.base), origin.digest)


def _with_bounds(bounds: NumberBounds | None) -> tuple[tuple[str, str] | None, bool]:
    return (None, False) if bounds is None else (_ends(bounds), bounds.found)


def _ends(bounds: NumberBounds) -> tuple[str, str]:
    return decimal_text(bounds.low), decimal_text(bounds.high)


def _bounds(ends: tuple[str, str], *, found: bool) -> NumberBounds:
    return NumberBounds(exact(ends[0]), exact(ends[1]), found)


def _column(name: str, domain: Domain) -> _Column:
    return _Column(
        name,
        domain.type,
        kind_of(domain),
        domain.nullable,
        domain.outside or "drop",  # never None
        domain.other,
        domain.column_type,
        domain.zone,
    )
