"""Privacy units in plain JSON, and the keys that lead to them; see `stored.py`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dpsql.schema.chosen import Chosen
from dpsql.schema.units import MAX_ROWS, Join, KeyPair, ResolvedUnit, RowLimit

MAX_JOINS = 64
_MAX_COLUMNS = 64
"""Columns of one key."""
_MAX_PATH = 3


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The shape of an object in the document: the names of its fields, and no others."""


class StoredJoin(Shape, frozen=True):
    """One step along a key."""

    column: str
    path: tuple[str, ...]
    key: str
    type: str
    further: tuple[KeyPair, ...] = ()
    enforced: bool = True

    @classmethod
    def written(cls, join: Join) -> StoredJoin:
        """Write it."""
        return cls(join.column, join.path, join.key, join.type, join.further, join.enforced)

    def read(self) -> Join:
        """Read it."""
        require(is_path(self.path) and len(self.further) <= _MAX_COLUMNS)
        return Join(self.column, self.path, self.key, self.type, self.further, self.enforced)


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

    @classmethod
    def written(cls, unit: ResolvedUnit) -> StoredUnit:
        """Write it."""
        joins = tuple(map(StoredJoin.written, unit.joins))
        bounds = unit.max_rows, unit.further, unit.max_groups, unit.limits
        return cls(unit.name, unit.column, unit.type, joins, *bounds)

    def read(self) -> ResolvedUnit:
        """Read it."""
        require(len(self.joins) <= MAX_JOINS and len(self.further) <= _MAX_COLUMNS)
        joins = tuple(join.read() for join in self.joins)
        require(all(1 <= limit.rows <= MAX_ROWS and limit.columns for limit in self.limits))
        bounds = self.max_rows, self.further, self.max_groups, self.limits
        return ResolvedUnit(self.name, self.column, self.type, joins, *bounds)


class StoredChosen(Shape, frozen=True):
    """The rows of a table that were chosen."""

    path: tuple[str, ...]
    unit: StoredUnit
    window: str
    first: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    last: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
    rows: Annotated[int, msgspec.Meta(ge=1)] | None
    apart: tuple[str, ...] = ()

    @classmethod
    def written(cls, chosen: Chosen) -> StoredChosen:
        """Write it."""
        unit = StoredUnit.written(chosen.unit)
        places = chosen.first, chosen.last, chosen.rows, chosen.apart
        return cls(chosen.path, unit, chosen.window, *places)

    def read(self) -> Chosen:
        """Read it."""
        require(is_path(self.path) and self.first <= self.last)
        places = self.first, self.last, self.rows, self.apart
        return Chosen(self.path, self.unit.read(), self.window, *places)


def require(holds: bool) -> None:
    """Refuse what `table_to_json` doesn't write.

    Raises:
        ValueError: something doesn't hold.
    """
    if not holds:
        raise ValueError


def is_path(path: tuple[str, ...]) -> bool:
    """Whether a table may have such a path."""
    return len(path) <= _MAX_PATH
