"""Tables as relations: the rows of a table, with what statements read of them, as a tree of nodes.

The order in which that is computed is fixed: the rows, those that they refer to, others of their
unit, windows, and the choice of rows by their places. Which rows of a unit count is decided by a
`Bound` right above what this depends on: above the rows themselves, so that they are not joined
with anything before; or, where they have windows or are chosen by these, above all of it, since
windows look at all rows of a unit.

Nothing else here is trusted: whatever tree is made, `rel/check.py` looks at it before it is
written. Each that passes has a meaning for each unit alone, and no more rows of a unit than are
charged for.

Guarantees:
    Columns are called unique only where the database enforces that they are (`KeyStep.enforced`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from dpsql.engines.others import Others, in_turns, others_of, stored_columns
from dpsql.errors import InternalError
from dpsql.rel.facts import UNIT, columns_of_rows
from dpsql.rel.nodes import (
    ONLY,
    OUTSIDE,
    SAME_IDS,
    Agg,
    Bound,
    CellLimit,
    CellsOf,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    Project,
    Relation,
    Scan,
    StoredRows,
    Window,
)
from dpsql.rel.related import related_rows
from dpsql.rel.rename import Prefixed, renamed, renamed_aggregate, renamed_call, with_prefix
from dpsql.rows.expression import (
    RowCall,
    RowColumn,
    RowConstant,
    all_of,
    same_value,
)
from dpsql.rows.windows import WindowCall
from dpsql.schema import Table
from dpsql.schema.table import Parent

if TYPE_CHECKING:
    from dpsql.rel.added import AddedColumn, MetRows

_TRUE, _ONE = RowConstant("BOOLEAN", "true"), RowConstant("INTEGER", "1")


@dataclass(frozen=True, slots=True)
class TableRelation:
    """The relation of a table's rows.

    Args:
        relation: the relation.
        ids: column of the table → its id there; of all that were asked for, and perhaps others.
    """

    relation: Relation
    ids: Mapping[str, Id]

    def id_of(self, name: str) -> Id:
        """Return the id of a column.

        Raises:
            InternalError: its rows have no such column that could be read.
        """
        if name not in self.ids:
            raise InternalError("rows have no such column that could be read")
        return self.ids[name]

    def above(self, relation: Relation, ids: Mapping[str, Id] | None = None) -> TableRelation:
        """Return a relation that is made of this one, with further columns."""
        return TableRelation(relation, {**self.ids, **(ids or {})})

    def with_bound(self, table: Table) -> TableRelation:
        """Keep the rows that count.

        Raises:
            InternalError: nothing says how many these are.
        """
        unit = table.own_unit
        if unit.max_rows is None:
            raise InternalError("nothing bounds the rows of units in this table")
        limits = (
            CellLimit(
                tuple(
                    CellsOf(self.ids[name], table.columns[name], table.leaves_out(name))
                    for name in limit.columns
                ),
                limit.rows,
            )
            for limit in unit.limits
        )
        return self.above(Bound(self.relation, unit.max_rows, tuple(limits)))


def rows_of_units(table: Table, names: Iterable[str]) -> TableRelation:
    """Return the relation of all rows of a table that belong to units.

    Args:
        table: the table.
        names: what is read of them.
    """
    return _Adapter().all_rows(table, list(names))


def kept_rows(table: Table, names: Iterable[str]) -> TableRelation:
    """Return the relation of the rows that count; see `rows_of_units`."""
    return _Adapter().kept_rows(table, list(names))


class _Adapter:
    """Makes one relation; ids of its columns are unique."""

    def __init__(self) -> None:
        self._numbers = count()

    def all_rows(self, table: Table, names: Sequence[str]) -> TableRelation:
        others = others_of(table, names)
        return self._with_others(self._base(others), others)

    def kept_rows(self, table: Table, names: Sequence[str]) -> TableRelation:
        limits = [name for limit in table.own_unit.limits for name in limit.columns]
        others = others_of(table, [*names, *limits])
        windows = others.over_all
        if not windows:
            return self._with_others(self._base(others).with_bound(table), others)
        before = [*windows, *limits]
        early, late = others_of(table, before), _beyond(others, others_of(table, before))
        needed = [*others.needed, *(p.above + n for p in late.parents for n in p.join.columns)]
        read = [*windows, *early.needed, *(n for n in needed if n not in _made(late))]
        rows = self.all_rows(table, list(dict.fromkeys(read))).with_bound(table)
        return self._with_others(rows, late)

    # ── The rows themselves ─────────────────────────────────────────────────────────────────────

    def _base(self, others: Others) -> TableRelation:
        """Return the rows of a table, with those of the first steps of the way to their units."""
        related = related_rows(others.table)
        if related is not None:
            names = (*related.columns, *related.undeclared)
            return TableRelation(related.relation, {name: name for name in names})
        return self._scanned(others)

    def _scanned(self, others: Others, unique: Iterable[frozenset[str]] = ()) -> TableRelation:
        alone, prefix = others.table.alone, self._fresh("t")
        source = _stored(alone, unique)
        along = [(_stored(parent.table.alone), self._fresh("t")) for parent in others.on_way]
        ids = {name: id_ for id_, name in columns_of_rows(source, prefix).items()}
        for parent, step in zip(others.on_way, along, strict=True):
            ids |= {parent.names[of]: id_ for id_, of in columns_of_rows(*step).items()}
        return TableRelation(Scan(source, prefix, tuple(along)), ids)

    # ── Further columns ─────────────────────────────────────────────────────────────────────────

    def _with_others(self, of: TableRelation, others: Others) -> TableRelation:
        """Add the columns that rows have of other rows."""
        for parent in others.on_way:
            if parent.matched in others.needed:
                of = self._with_match(of, parent)
        for parent in others.left:
            of = self._with_parent(of, parent)
        return self._with_added(of, others.added)

    def _with_match(self, of: TableRelation, parent: Parent) -> TableRelation:
        """Add that there is a row on the way to the unit, which there always is."""
        ids = {name: self._fresh("m") for name in (*of.ids, parent.matched)}
        columns = [(ids[name], RowColumn(id_)) for name, id_ in of.ids.items()]
        return TableRelation(Project(of.relation, (*columns, (ids[parent.matched], _TRUE))), ids)

    def _with_parent(self, of: TableRelation, parent: Parent) -> TableRelation:
        """Join the row that a row refers to, if one does of its unit alone."""
        keys, right = parent.join.pairs, self._parent(parent)
        ids = {name: self._fresh("p") for name in right.ids}
        columns = [(ids[name], RowColumn(id_)) for name, id_ in right.ids.items()]
        made = {parent.names[name]: id_ for name, id_ in ids.items()}
        made[parent.matched] = self._fresh("p")
        project = Project(right.relation, (*columns, (made[parent.matched], _TRUE)))
        on = [same_value(of.ids[parent.above + pair.column], ids[pair.key]) for pair in keys]
        return of.above(Join(of.relation, project, all_of(on), "left"), made)

    def _parent(self, parent: Parent) -> TableRelation:
        """Return the rows that may be referred to, of which no two of a unit have the same key."""
        table, keys = parent.table.alone, parent.join.keys
        names = stored_columns(table)
        others = others_of(table, names)
        if parent.join.enforced:
            scanned = self._scanned(others, [frozenset(keys)])
            return TableRelation(
                scanned.relation, {n: scanned.ids[n] for n in names if n in scanned.ids}
            )
        scanned = self._scanned(others)
        by = {key: self._fresh("k") for key in keys}
        only = {n: self._fresh("o") for n in names if n in scanned.ids and n not in by}
        number = self._fresh("n")
        alone = Group(
            scanned.relation,
            tuple((id_, RowColumn(scanned.ids[key])) for key, id_ in by.items()),
            (
                *((id_, Agg(ONLY, RowColumn(scanned.ids[name]))) for name, id_ in only.items()),
                (number, Agg("count")),
            ),
        )
        return TableRelation(Filter(alone, RowCall("=", (RowColumn(number), _ONE))), by | only)

    def _with_added(self, of: TableRelation, added: Sequence[AddedColumn]) -> TableRelation:
        """Add columns, as many at once as need nothing of each other."""
        for ready in in_turns(added):
            calls = [
                (column, column.computed)
                for column in ready
                if isinstance(column.computed, WindowCall)
            ]
            ids = {column.name: self._fresh("w") for column in ready}
            adds = tuple((ids[column.name], renamed_call(call, of.ids)) for column, call in calls)
            of = of.above(Window(of.relation, adds), ids) if adds else of
            met: dict[MetRows, list[tuple[Id, Agg]]] = {}
            for column in ready:
                if not isinstance(column.computed, WindowCall):
                    rows, agg = column.computed
                    met.setdefault(rows, []).append((ids[column.name], agg))
            for rows, aggs in met.items():
                of = self._meeting(of, rows, aggs)
            of = of.above(of.relation, ids)
        return of

    def _meeting(
        self, of: TableRelation, met: MetRows, aggs: Sequence[tuple[Id, Agg]]
    ) -> TableRelation:
        """Add aggregates of the rows that each row meets."""
        prefix = self._fresh("r")
        outside = {OUTSIDE + name: id_ for name, id_ in of.ids.items()}
        to = Prefixed(prefix, outside)
        right = with_prefix(met.relation, prefix)
        on = None if met.on is None else renamed(met.on, to)
        adds = tuple((id_, renamed_aggregate(agg, to)) for id_, agg in aggs)
        return of.above(GroupJoin(of.relation, right, on, adds))

    def _fresh(self, kind: str) -> str:
        return f"{kind}{next(self._numbers)}."


def _stored(table: Table, unique: Iterable[frozenset[str]] = ()) -> StoredRows:
    unit = table.own_unit
    alone = not unit.joins and not unit.further
    return StoredRows(table, SAME_IDS, frozenset(unique), {unit.column: UNIT} if alone else {})


def _beyond(others: Others, early: Others) -> Others:
    """Return what is joined with the rows that count, as windows don't look at it."""
    met = {*(parent.prefix for parent in early.parents), *(o.prefix for o in others.on_way)}
    parents = tuple(parent for parent in others.parents if parent.prefix not in met)
    early_added = {column.name for column in early.added}
    added = [column for column in others.added if column.name not in early_added]
    return replace(others, parents=parents, added=added)


def _made(late: Others) -> frozenset[str]:
    """Name the columns that this gives."""
    names = {parent.matched for parent in late.parents}
    names |= {column.name for column in late.added}
    return frozenset(names.union(*(parent.names.values() for parent in late.parents)))
