"""Rows that columns need besides those of their table, and where these are read. Trusted.

Guarantees:
    A parent that is read in `way_to_unit` is the row that would be joined behind it.

    *Proof.* `Others.on_way` are parents by the first steps of `ResolvedUnit.joins`, one after the
    other, each a FOREIGN KEY. An engine's `way_to_unit` joins the same tables by the
    same columns, as t1, t2, …, and of a FOREIGN KEY's columns no two rows have the same values.
    Rows that it leaves out, as they refer to none, have no unit. ∎ Which rows of a unit are kept
    doesn't depend on it: `Others.stored`, by which that is decided, are the same columns wherever
    parents are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.names import unused
from dpsql.schema.table import Parent

if TYPE_CHECKING:
    from dpsql.rel.added import AddedColumn


def parents_of(table: Table, names: Collection[str]) -> tuple[Parent, ...]:
    """Return the parents whose columns are among some, and those on the way to them."""
    parents: list[Parent] = []
    for parent in reversed(table.parents):
        shown = {parent.matched, *parent.names.values()}
        if not shown.isdisjoint(names) or any(other.above == parent.prefix for other in parents):
            parents.append(parent)
    return tuple(reversed(parents))


@dataclass(frozen=True, slots=True)
class Others:
    """The rows and columns that some columns of a table need besides its own rows.

    Args:
        table: the table.
        parents: rows that these refer to, each after the one that refers to it.
        added: columns that nodes add to rows with these, each after those that it needs.
        needed: the columns that these need, and all others that are asked for.
    """

    table: Table
    parents: tuple[Parent, ...]
    added: list[AddedColumn]
    needed: list[str]

    @property
    def over_all(self) -> list[str]:
        """The columns that look at all rows of a unit, also at those that don't count."""
        return [column.name for column in self.added if column.is_window]

    @property
    def stored(self) -> list[str]:
        """The columns of the rows themselves, with those that refer to any of the parents."""
        refer = [name for p in self.parents if not p.above for name in p.join.columns]
        made = self.table.joined
        return list(dict.fromkeys([*(name for name in self.needed if name not in made), *refer]))

    @property
    def on_way(self) -> tuple[Parent, ...]:
        """Parents that `way_to_unit` joins: the first as `t1`, the next as `t2`, and so on.

        They are those along the first steps to the unit, as far as these are FOREIGN KEYs.
        """
        way, above = list[Parent](), ""
        for join in self.table.unit.joins if self.table.unit is not None else ():
            steps = (p for p in self.parents if p.on_way and p.above == above and p.join == join)
            parent = next(steps, None)
            if parent is None:
                break
            way.append(parent)
            above = parent.prefix
        return tuple(way)

    @property
    def left(self) -> tuple[Parent, ...]:
        """Parents that are joined behind the way to the unit."""
        on_way = self.on_way
        return tuple(parent for parent in self.parents if parent not in on_way)


def others_of(table: Table, names: Iterable[str]) -> Others:
    """Return what some columns of a table need besides its rows."""
    asked = list(names)
    added: list[AddedColumn] = []
    for column in reversed(added_to(table)):  # each comes after those that it needs
        if column.name in asked:
            added.insert(0, column)
            asked += sorted(column.columns)
    made = {column.name for column in added}
    needed = list(dict.fromkeys(name for name in asked if name not in made))
    return Others(table, parents_of(table, needed), added, needed)


class _Needing(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> frozenset[str]: ...


N = TypeVar("N", bound=_Needing)


def in_turns(windows: Iterable[N]) -> Iterator[list[N]]:
    """Yield computed columns, as many at once as need nothing of each other.

    Raises:
        InternalError: one needs what comes after it.
    """
    left = list(windows)
    while left:
        waiting = {column.name for column in left}
        ready = [column for column in left if waiting.isdisjoint(column.columns)]
        if not ready:
            raise InternalError("a window needs what comes after it")
        yield ready
        left = [column for column in left if column not in ready]


def added_to(table: Table) -> list[AddedColumn]:
    """Return the columns that nodes add to rows, as engines write them."""
    if not table.added:
        return []
    from dpsql.rel.added import AddedColumn  # which most statements don't need

    added = [column for column in table.added if isinstance(column, AddedColumn)]
    if len(added) < len(table.added):
        raise InternalError("nothing says how a column is added")
    return added


def unit_name(table: Table) -> str:
    """Return a name for ids of units that no column has which is read beside it."""
    return f"{unused(_names_met(table))}unit"


def _names_met(table: Table) -> Iterator[str]:
    """Name the columns of a table, and of all whose rows its rows meet."""
    yield from (*table.columns, *table.undeclared)
    for parent in table.parents:
        yield from stored_columns(parent.table)


def stored_columns(table: Table) -> list[str]:
    """Return the names of all columns that are stored in a table."""
    alone = table.alone
    return [*alone.columns, *alone.undeclared]
