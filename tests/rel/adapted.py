"""Tables as relations: what a table counts today, as a tree of nodes.

The order in which a table's operators apply is fixed: its rows, the rows that they refer to, other
rows of their units, windows, the choice of rows, and the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from dpsql.engines.combined import columns_of_side, equal_columns
from dpsql.engines.lines import readable
from dpsql.engines.others import Others, others_of, places_of, stored_columns
from dpsql.rel.nodes import (
    ONLY,
    Agg,
    Bound,
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
from dpsql.rel.rename import renamed, renamed_call
from dpsql.rows.expression import RowCall, RowColumn, RowConstant, RowExpression, all_of
from dpsql.rows.windows import RowsWindow
from dpsql.rows.within import RowsWithin
from dpsql.schema.combined import OfCombination
from dpsql.schema.table import Parent, Table
from dpsql.schema.windows import OUTSIDE

TRUE, ONE = RowConstant("BOOLEAN", "true"), RowConstant("INTEGER", "1")
Ids = Mapping[str, Id]


class NotAdaptedError(Exception):
    """A view, or limits by cells, which are no nodes yet."""


class Adapter:
    """Makes relations of tables."""

    def __init__(self) -> None:
        self._numbers = count()

    def of(self, table: Table, names: Iterable[str], *, bound: bool = True) -> tuple[Relation, Ids]:
        """Return the relation of a table's rows, and the ids of some of its columns."""
        unit = table.unit
        assert unit is not None
        if unit.limits:
            raise NotAdaptedError
        asked = list(names)
        if table.chosen is not None:
            relation, ids, windows = *self._chosen(table, asked), True
        elif isinstance(table.origin, OfCombination):
            relation, ids, windows = *self._pairs(table, asked), False
        elif table.origin is not None:
            raise NotAdaptedError
        else:
            return self._stored(table, others_of(table, asked), bound=bound)
        rows = unit.max_rows
        assert windows or rows is not None or not bound
        return (Bound(relation, rows) if bound and rows is not None else relation), ids

    def _chosen(self, table: Table, names: list[str]) -> tuple[Relation, Ids]:
        places, chosen = places_of(table), table.chosen
        assert chosen is not None
        read = list(dict.fromkeys([*names, places.name, *sorted(places.columns)]))
        relation, ids = self.of(table.whole, read, bound=False)
        holds = places.asked.holds
        ends = (RowConstant("INTEGER", str(end)) for end in (chosen.first, chosen.last))
        place = RowColumn(ids[places.name])
        relation = relation if holds is None else Filter(relation, renamed(holds, ids))
        return Filter(relation, RowCall("between", (place, *ends))), ids

    def _pairs(self, table: Table, names: list[str]) -> tuple[Relation, Ids]:
        """Join the sides of a combination; its columns stand in the order that the table has."""
        assert isinstance(table.origin, OfCombination)
        combination, sides = table.origin.combination, list[tuple[Relation, Ids]]()
        for number, of in enumerate(combination.sources):
            sides.append(self.of(of, columns_of_side(combination, number), bound=False))
        relation, ids = sides[0][0], dict[str, Id]()
        for number, (side, _) in enumerate(sides):
            if number:
                on = [
                    RowCall("=", tuple(RowColumn(sides[of][1][name]) for of, name in pair))
                    for pair in equal_columns(combination, number)
                ]
                relation = Join(relation, side, all_of(on) if on else None)
        for prefix, (_, own) in zip(combination.prefixes, sides, strict=True):
            ids |= {prefix + name: id_ for name, id_ in own.items()}
        order = [*table.columns]
        if not table.columns.keys() >= {*names}:
            order += [name for name, _ in readable(table)]
        shown = {name: f"q{next(self._numbers)}" for name in order if name in ids}
        columns = tuple((id_, RowColumn(ids[name])) for name, id_ in shown.items())
        return Project(relation, columns), shown

    def _stored(
        self,
        table: Table,
        others: Others,
        unique: Iterable[frozenset[str]] = (),
        *,
        bound: bool,
    ) -> tuple[Relation, Ids]:
        own, prefix = table.alone, f"t{next(self._numbers)}."
        unit = table.unit
        assert unit is not None
        along = [
            (self._source(parent.table.alone), f"t{next(self._numbers)}.")
            for parent in others.on_way
        ]
        relation: Relation = Scan(self._source(own, unique), prefix, tuple(along))
        ids = {name: prefix + name for name in stored_columns(own)}
        for parent, (_, before) in zip(others.on_way, along, strict=True):
            ids |= {n: before + of for of, n in parent.names.items()}
        windows = bool(others.windows)
        if bound and not windows:
            assert unit.max_rows is not None
            relation = Bound(relation, unit.max_rows)
        relation = self._matched(relation, others.on_way, ids)
        for parent in others.left:
            relation, ids = self._joined(relation, ids, parent)
        for within in others.within:
            relation, ids = self._within(relation, ids, within)
        for window in others.windows:
            relation, ids = self._window(relation, ids, window)
        if bound and windows:
            assert unit.max_rows is not None
            relation = Bound(relation, unit.max_rows)
        return relation, ids

    def _matched(
        self, relation: Relation, parents: Sequence[Parent], ids: dict[str, Id]
    ) -> Relation:
        """Add that there is a row on the way, which there always is."""
        for parent in parents:
            columns = [(f"m{next(self._numbers)}", RowColumn(id_)) for id_ in ids.values()]
            made = dict(zip(ids, (name for name, _ in columns), strict=True))
            ids.update(made)
            ids[parent.matched] = f"m{next(self._numbers)}"
            relation = Project(relation, (*columns, (ids[parent.matched], TRUE)))
        return relation

    def _source(self, table: Table, unique: Iterable[frozenset[str]] = ()) -> StoredRows:
        return StoredRows(table, ("", ()), frozenset(unique))

    def _joined(self, relation: Relation, ids: Ids, parent: Parent) -> tuple[Relation, Ids]:
        """Join the row that a row refers to, if one does of its unit alone."""
        names = stored_columns(parent.table)
        unique = [frozenset(parent.join.keys)] if parent.join.enforced else []
        right, theirs = self._stored(
            parent.table.alone, others_of(parent.table.alone, names), unique, bound=False
        )
        names = [name for name in names if name in theirs]
        here = f"p{next(self._numbers)}."
        keys = parent.join.pairs
        if not parent.join.enforced:
            by = {pair.key: f"k{next(self._numbers)}" for pair in keys}
            only = {name: f"{here}{name}" for name in names}
            n = f"n{next(self._numbers)}"
            right = Group(
                right,
                tuple((id_, RowColumn(theirs[name])) for name, id_ in by.items()),
                (
                    *((id_, Agg(ONLY, RowColumn(theirs[name]))) for name, id_ in only.items()),
                    (n, Agg("count")),
                ),
            )
            right = Filter(right, RowCall("=", (RowColumn(n), ONE)))
            theirs = {**only, **by}
        there = f"p{next(self._numbers)}."
        shown = {parent.names[name]: f"{there}{name}" for name in names}
        columns = [(shown[parent.names[name]], RowColumn(theirs[name])) for name in names]
        shown[parent.matched] = f"m{next(self._numbers)}"
        right = Project(right, (*columns, (shown[parent.matched], TRUE)))
        on = [
            RowCall(
                "=",
                (RowColumn(ids[parent.above + p.column]), RowColumn(shown[parent.names[p.key]])),
            )
            for p in keys
        ]
        return Join(relation, right, all_of(on), "left"), {**ids, **shown}

    def _within(self, relation: Relation, ids: Ids, one: RowsWithin) -> tuple[Relation, Ids]:
        (function, value), holds = one.computed, one.holds
        inner = list(dict.fromkeys([*sorted(one.columns), *(i for _, i in one.pairs)]))
        right, theirs = self.of(one.table, inner, bound=False)
        both = {**theirs, **{OUTSIDE + name: id_ for name, id_ in ids.items()}}
        on: list[RowExpression] = [
            RowCall("=", (RowColumn(ids[outer]), RowColumn(theirs[inner])))
            for outer, inner in one.pairs
        ]
        on += [] if holds is None else [renamed(holds, both)]
        agg = Agg(function, None if value is None else renamed(value, both))
        name = f"w{next(self._numbers)}"
        added = GroupJoin(relation, right, all_of(on) if on else None, ((name, agg),))
        return added, {**ids, one.name: name}

    def _window(self, relation: Relation, ids: Ids, one: RowsWindow) -> tuple[Relation, Ids]:
        name = f"w{next(self._numbers)}"
        call = renamed_call(one.asked, ids)
        return Window(relation, ((name, call),)), {**ids, one.name: name}
