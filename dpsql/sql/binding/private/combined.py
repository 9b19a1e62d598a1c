"""Joins in which rows of several private tables meet: pairs of rows of the same unit.

    FROM orders o JOIN visits v ON o.customer_id = v.customer_id

counts pairs: no row of one refers to one of the other. `schema/combined.py` says what is counted
then. Items after FROM that others refer to are put to these first (`grains.py`), and what is left
over is combined. Each of these must be joined with another one by an equality of two columns; that
of their units is added, whatever they are. Equalities of stored columns tell which rows meet before
it is bounded how many count. All other conditions are conditions on what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dpsql.errors import SchemaError, SqlError
from dpsql.hints import Hint
from dpsql.schema import Table
from dpsql.schema.combined import Place as Column
from dpsql.schema.combined import RowCombination
from dpsql.schema.grain import grain
from dpsql.schema.keys import comparable
from dpsql.schema.names import folded
from dpsql.schema.table import Parent
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.binding.items import PrivateItems
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.named import Names
from dpsql.sql.binding.private.grains import EqualColumns, equalities_of, own_type, reached
from dpsql.sql.binding.private.sides import Grained, PrivateSides, Referred
from dpsql.sql.binding.row_queries import Home
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.text.spans import SourceText


@dataclass(frozen=True, slots=True)
class CombinedItems:
    """Private items after FROM whose rows meet."""

    table: Table
    """What is counted."""
    steps: Mapping[int, Parent]
    """What each item is of it."""
    used: frozenset[int]
    """The equalities that are true of all of its rows, as identities of nodes."""
    using: frozenset[str]
    """Names after USING that are equal in all of them, in small letters."""

    def sides(
        self,
        joins: Sequence[JoinedItem],
        home_of: Callable[..., Home],
        within: Grained,
        first: int,
    ) -> PrivateSides:
        """Return what is counted, with all items as sides of it.

        Args:
            joins: the items.
            home_of: returns the private table or the query that an item is, as a part of others.
            within: what is counted, or what it is a part of.
            first: the number of the first public relation in it.
        """
        found = list[Referred]()
        for number, join in enumerate(joins):
            step = self.steps[number]
            home = home_of(join.item, at=within.at(step), first=first)
            first += len(home.relations)
            found.append(Referred(join, step, home))
        (place, *others) = found
        return PrivateSides(place.join, place.home, tuple(others), self.used, self.using)


@dataclass(frozen=True, slots=True)
class _Joined:
    """An item, and others that its rows refer to."""

    number: int
    table: Table
    """With the columns of these, and of no others."""
    parents: Mapping[int, Parent]


def combined_items(
    joins: Sequence[JoinedItem],
    homes: Sequence[Home],
    where: Expr | None,
    items: PrivateItems,
    names: Names,
) -> CombinedItems:
    """Combine private items after FROM.

    Args:
        joins: the items.
        homes: what they are.
        where: the condition after WHERE.
        items: tells items apart.
        names: what names mean there.

    Raises:
        SqlError: rows of several units could meet.
    """
    source, further = items.source, Hint("")
    try:
        found = _combined(joins, homes, where, items.tables, source)
    except SqlError:
        raise
    except SchemaError as error:
        found, further = None, Hint(f" {error.message} To join them, ") + (error.hint or "")
    if found is None:
        grains = [items.tables.grain(home.table) for home in homes]
        raise items.no_grain(joins, names, grains, further)
    return found


def _combined(
    joins: Sequence[JoinedItem],
    homes: Sequence[Home],
    where: Expr | None,
    tables: NamedTables,
    source: SourceText,
) -> CombinedItems | None:
    alike = all(join.kind == "inner" for join in joins)
    if not alike or any(home.table.unit is None for home in homes):
        return None
    scopes = [home.scope(source, {}) for home in homes]
    equalities = list(equalities_of(joins, scopes, where))
    parts, used = _parts(joins, homes, equalities, tables)
    owner = {number: part.number for part in parts for number in (part.number, *part.parents)}
    across = [
        one
        for one in equalities
        if one.of is None and len({owner[number] for number, _ in one.sides}) == 2
    ]
    if not _all_meet(across, owner):
        return None
    places = {part.number: place for place, part in enumerate(parts)}
    told = {one: _told(one, parts, places) for one in across}
    equal = frozenset(pair for pair in told.values() if pair)
    combination = RowCombination(tuple(part.table for part in parts), equal)
    table = tables.combined(combination)
    known = {side.prefix: side for side in combination.sides}
    steps: dict[int, Parent] = {}
    for prefix, part in zip(combination.prefixes, parts, strict=True):
        steps[part.number] = known[prefix]
        steps |= {number: known[prefix + p.prefix] for number, p in part.parents.items()}
    true = [one for one, pair in told.items() if pair is not None]
    nodes = {id(one.node) for one in true if one.node is not None}
    using = {folded(name) for one in true if one.node is None for _, name in one.sides}
    return CombinedItems(table, steps, used | nodes, frozenset(using))


def _parts(
    joins: Sequence[JoinedItem],
    homes: Sequence[Home],
    equalities: Sequence[EqualColumns],
    tables: NamedTables,
) -> tuple[list[_Joined], frozenset[int]]:
    """Put items to those whose rows refer to theirs; return what is left over, in order."""
    found = dict[int, tuple[Mapping[int, Parent], frozenset[int]]]()
    for number, home in enumerate(homes):
        found[number] = reached(number, tables.grain(home.table), (joins, homes), equalities)
    left, parts, used = set(found), list[_Joined](), frozenset[int]()
    for number in sorted(found, key=lambda one: -len(found[one][0])):
        if number not in left:
            continue
        parents, said = found[number]
        if not left.issuperset(parents):
            parents, said = {}, frozenset()
        left -= {number, *parents}
        used |= said
        parts.append(_Joined(number, _narrowed(homes[number].table, parents), parents))
    return sorted(parts, key=lambda part: (part.table.path, part.number)), used


def _narrowed(table: Table, parents: Mapping[int, Parent]) -> Table:
    """Return a table with the columns of some of the rows that its rows refer to."""
    wanted = {parent.prefix for parent in parents.values()}
    wanted |= {parent.prefix for parent in table.parents}  # as a query of rows has joined them
    known = {parent.prefix: parent for parent in (*table.parents, *parents.values())}
    chosen = [parent for prefix, parent in known.items() if prefix in wanted]
    return grain(table.alone, sorted(chosen, key=lambda parent: parent.prefix.count(".")))


def _all_meet(across: Sequence[EqualColumns], owner: Mapping[int, int]) -> bool:
    """Whether equalities lead from each part to all others."""
    edges = [{owner[number] for number, _ in one.sides} for one in across]
    met = {min(owner.values())}
    while more := [edge for edge in edges if met & edge and not edge <= met]:
        met = met.union(*more)
    return met == set(owner.values())


def _told(
    one: EqualColumns, parts: Sequence[_Joined], places: Mapping[int, int]
) -> frozenset[Column] | None:
    """Return an equality as the combination has it: empty if its units say so already.

    None if it stays a condition: of a column that isn't stored in the combined tables, or of such
    types that comparing them as they are might fail.
    """
    if not all(number in places for number, _ in one.sides):
        return None
    pair = sorted((places[number], name) for number, name in one.sides)
    tables = [parts[place].table for place, _ in pair]
    if all(_is_unit(table, name) for table, (_, name) in zip(tables, pair, strict=True)):
        return frozenset()
    types = [own_type(table, name) for table, (_, name) in zip(tables, pair, strict=True)]
    if None in types or not comparable(str(types[0]), str(types[1])):
        return None
    return frozenset(pair)


def _is_unit(table: Table, name: str) -> bool:
    """Whether a column is the id of the unit."""
    unit = table.unit
    return unit is not None and not unit.joins and unit.columns == ((name, unit.type),)
