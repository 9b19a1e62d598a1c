"""The normal form of rows that are counted: those of one table, with columns that are added.

    SELECT region, COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id
    WHERE EXISTS (SELECT 1 FROM visits v WHERE v.customer_id = c.id) GROUP BY region

counts orders: a join by the key of a row that is referred to, a `GroupJoin` and a `Window` give
each order once. So the relation is the scan of orders, and what is beside it are columns of an
order: those of its customer (`schema/grain.py`), and others that are added (`rel/added.py`). Then
all statements about orders are planned together, share what was measured of orders before, and
count the same rows: a bound keeps orders, before anything is joined with them.

Conditions and expressions stand beside a relation as it is (`selects.py`), so nothing else has to
go up. Whatever is of another kind (pairs, groups, UNION ALL, rows that were chosen first) has rows
of its own, and is counted as a relation (`rel/related.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dpsql.errors import Span, UnsupportedSqlError
from dpsql.rel.added import AddedColumn, Met, MetRows, added_column
from dpsql.rel.facts import Known, RelationFacts, conjuncts
from dpsql.rel.keys import equal_columns
from dpsql.rel.nodes import (
    OUTSIDE,
    Agg,
    Filter,
    GroupJoin,
    Id,
    Join,
    ProjectApart,
    Relation,
    Scan,
    Window,
)
from dpsql.rel.rename import Prefixed, renamed, renamed_aggregate, renamed_call
from dpsql.rows.expression import RowColumn, RowExpression, all_if_any, all_of
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.known import Interval
from dpsql.rows.windows import WindowCall, aggregated
from dpsql.rows.write import RowWriter
from dpsql.schema import Domain, Table
from dpsql.schema.grain import stored_type, unit_columns
from dpsql.sql.algebra.described import DescribedRelation, units_of
from dpsql.sql.binding.canonical import Moving
from dpsql.sql.binding.existing import Met as MustMeet
from dpsql.sql.binding.existing import is_met, met_by
from dpsql.sql.binding.expressions import BoundExpr
from dpsql.sql.binding.scope import Visible
from dpsql.sql.binding.tables import NamedTables

_THERE = ""
"""The id of the column that says whether a row is met, which no other has."""


@dataclass(frozen=True, slots=True)
class NormalRows:
    """The rows of a table as those of a relation.

    Args:
        table: the table, with all columns of the relation.
        names: column of the relation → its name in the table.
        met: the other rows that each row must meet, to be one of the relation.
        apart: columns with the id of the unit by which units of the table can't be counted.
    """

    table: Table
    names: Mapping[Id, str]
    met: tuple[MustMeet, ...] = ()
    apart: frozenset[Id] = frozenset()

    @property
    def adds(self) -> bool:
        """Whether rows have columns that are computed of others."""
        columns = {*self.names.values(), *(name for name, _ in self.met)}
        return not columns.isdisjoint(self.table.computed)

    def conditions(self, span: Span) -> list[BoundExpr]:
        """Return what is true of the rows of the relation alone."""
        return [is_met(name, self.table, span) for name, _ in self.met]

    def visible(self, visible: Visible) -> Visible:
        """Return what is visible in a SELECT, over the columns of the table."""
        to = Moving(visible.table, self.table, self.names)
        items = (item.moved(to) for item in visible.items)
        owners = {self.names[id_]: of for id_, of in visible.owners.items() if id_ in self.names}
        return replace(
            visible,
            table=self.table,
            items=tuple(items),
            outer=None,
            owners=owners,
            ids=self.names,
        )


def normal_rows(of: DescribedRelation, tables: NamedTables) -> NormalRows | None:
    """Return the table whose rows those of a relation are; None if it has rows of its own.

    Args:
        of: the relation.
        tables: what the names of tables mean; columns that are added are noted there.

    Raises:
        SchemaError: it looks at rows of other units.
    """
    if isinstance(of.relation, Scan) and not of.relation.along:
        (own,) = of.read
        return NormalRows(own, _names(of.relation, own))
    found = _Normal(of, tables).rows(of.relation)
    if found is None or not found.names.keys() >= set(of.columns):
        return None
    read = {table.path: table for table in of.read}
    own = read.pop(found.table.path)
    for other in read.values():
        tables.check_same_units(own, other)
    found = _with_units(found, of)
    if found is None:
        return None
    alone = not found.met and all(map(own.has, found.names.values()))
    return replace(found, table=own) if alone else found


def _among(call: WindowCall, met: Sequence[RowExpression]) -> WindowCall:
    """Let a window look at those rows alone of which more is true."""
    holds = () if call.holds is None else (call.holds,)
    return replace(call, holds=all_if_any([*holds, *met]))


def _with_units(rows: NormalRows, of: DescribedRelation) -> NormalRows | None:
    """Let columns with the id of the unit be that of the table; None if it has none.

    Whatever row of its unit a row meets has the same id, wherever there is one. An id that stands
    in a row which is referred to may stay there: it is a column of the table.
    """
    known = unit_columns(rows.table)
    others = [id_ for id_ in units_of(of) if rows.names[id_] not in known]
    type_ = stored_type(rows.table, known[0]) if known else None
    referred = rows.table.joined.difference(rows.table.computed)
    apart = [
        id_ for id_ in others if rows.names[id_] in referred and stored_type(of.table, id_) != type_
    ]
    rows = replace(rows, apart=frozenset(apart))
    others = [id_ for id_ in others if id_ not in apart]
    if not others:
        return rows
    types = {stored_type(of.table, id_) for id_ in others}
    if not known or types != {stored_type(rows.table, known[0])}:
        return None
    return replace(rows, names={**rows.names, **dict.fromkeys(others, known[0])})


def _names(scan: Scan, table: Table) -> dict[Id, str]:
    """Return the ids of all columns of a table that is scanned, with their names."""
    return {scan.prefix + name: name for name in (*table.alone.columns, *table.alone.undeclared)}


class _Normal:
    """Finds out what the rows of one relation are."""

    def __init__(self, of: DescribedRelation, tables: NamedTables) -> None:
        self._of, self._tables, self._known = of, tables, Known()
        self._read = {table.path: table for table in of.read}

    def rows(self, relation: Relation) -> NormalRows | None:
        match relation:
            case Scan():
                return self._scan(relation)
            case Join():
                return self._join(relation)
            case GroupJoin():
                return self._group_join(relation)
            case Window():
                return self._window(relation)
            case _:
                return None

    def _scan(self, node: Scan) -> NormalRows | None:
        table = self._read.get(node.source.table.path)
        if table is None or node.along:
            return None
        return NormalRows(self._tables.with_added(table), _names(node, table))

    def _join(self, node: Join) -> NormalRows | None:
        left = self.rows(node.left)
        if left is None:
            return None
        return self._referring(node, left) or self._meeting_one(node, left)

    def _referring(self, node: Join, left: NormalRows) -> NormalRows | None:
        """Return the rows on the left, if on the right stands what they refer to."""
        right = self._stored(node.right)
        if right is None or right.met or right.adds:
            return None
        pairs, rest = equal_columns(node.on, self._known.of(node.left), self._known.of(node.right))
        told = {(left.names[a], right.names[b]) for a, b in pairs}
        parents = (
            parent
            for parent in left.table.parents
            if parent.table.path == right.table.path
            and told == {(parent.above + pair.column, pair.key) for pair in parent.join.pairs}
        )
        parent = next(parents, None)
        if rest or parent is None or (isinstance(node.right, ProjectApart) and not parent.on_way):
            return None
        there = {*left.table.columns, *left.table.undeclared}
        theirs = {id_: parent.prefix + name for id_, name in right.names.items()}
        if not there.issuperset(theirs.values()):
            return None
        met = left.met
        if node.kind == "inner" and not parent.on_way:
            met = tuple(dict.fromkeys((*met, met_by(parent))))
        return NormalRows(left.table, {**left.names, **theirs}, met)

    def _stored(self, relation: Relation) -> NormalRows | None:
        """Return rows on the right with columns that are stored, which those beside them are, too.

        A row that always meets one has NULL where that has.
        """
        if isinstance(relation, Scan | Join):
            return self.rows(relation)
        if not isinstance(relation, ProjectApart):
            return None
        found = self._stored(relation.of)
        if found is None:
            return None
        of = {id_: columns_of(value) for id_, value in relation.columns}
        return replace(found, names={id_: found.names[one] for id_, (one,) in of.items()})

    def _meeting_one(self, node: Join, left: NormalRows) -> NormalRows | None:
        """Return the rows on the left, if each meets one row on the right at most."""
        right, inner = self._known.of(node.right), node.kind == "inner"
        pairs, _ = equal_columns(node.on, self._known.of(node.left), right)
        met, _ = self._met(left, node.right, node.on)
        if met is None or not right.is_unique(b for _, b in pairs):
            return None
        equal = {b: left.names[a] for a, b in pairs} if inner else {}
        there = (met, Agg("exists")), left.table, ("BOOLEAN", False), Domain.boolean()
        made = {_THERE: added_column(*there, (None, None))}
        for id_ in [id_ for id_ in self._of.columns if id_ in right.columns and id_ not in equal]:
            one = self._only(left, met, id_, right, lost=not inner)
            if one is None:
                return None
            made[id_] = one
        found = self._adding(left, made)
        names = dict(found.names)
        place = names.pop(_THERE)
        filled = tuple(
            names[id_] for id_ in made if id_ in right.columns and not right.columns[id_].nullable
        )
        further = ((place, filled),) if inner else ()
        return replace(found, names={**names, **equal}, met=(*found.met, *further))

    def _only(
        self, left: NormalRows, met: MetRows, id_: Id, right: RelationFacts, *, lost: bool
    ) -> AddedColumn | None:
        """Return a column of the one row that is met: the least of its values is the only one.

        It is NULL where none is met, which is no cell of its own where others leave such rows out.
        """
        type_, domain = right.columns[id_].type, self._of.table.columns.get(id_)
        function = "bool_or" if type_ == "BOOLEAN" else "min"
        with suppress(UnsupportedSqlError):
            if aggregated(function, RowColumn(id_), RowWriter(right.types)).type.sql == type_:
                listed = self._is_listed(id_)
                if domain is not None and (lost or listed):
                    domain = replace(domain, nullable=True)
                computed, fact = (met, Agg(function, RowColumn(id_))), (type_, True)
                between = self._between(id_)
                return added_column(computed, left.table, fact, domain, between, listed=listed)
        return None

    def _met(
        self, left: NormalRows, right: Relation, on: RowExpression | None
    ) -> tuple[MetRows | None, Prefixed]:
        """Return the rows that a row meets, and what columns are called in what is said of both."""
        to = Prefixed("", {id_: OUTSIDE + name for id_, name in left.names.items()})
        theirs = self._known.of(right).columns.keys()
        if any(id_.startswith(OUTSIDE) for id_ in theirs):
            return None, to
        said = conjuncts(on)
        own = [part for part in said if columns_of(part) <= theirs]  # wherever it was written
        if own:
            (rows, before) = (right.of, right.where) if isinstance(right, Filter) else (right, None)
            right = Filter(rows, all_of([*conjuncts(before), *own]))
        both = all_if_any([part for part in said if part not in own])
        return MetRows(right, None if both is None else renamed(both, to)), to

    def _group_join(self, node: GroupJoin) -> NormalRows | None:
        left = self.rows(node.left)
        if left is None:
            return None
        met, to = self._met(left, node.right, node.on)
        if met is None:
            return None
        computed = {id_: (met, renamed_aggregate(agg, to)) for id_, agg in node.adds}
        return self._of_node(left, node, computed)

    def _window(self, node: Window) -> NormalRows | None:
        left = self.rows(node.of)
        if left is None:
            return None
        met = [RowColumn(name) for name, _ in left.met]  # other rows aren't there
        calls = {id_: _among(renamed_call(call, left.names), met) for id_, call in node.adds}
        return self._of_node(left, node, calls)

    def _of_node(
        self, left: NormalRows, node: Relation, computed: Mapping[Id, Met | WindowCall]
    ) -> NormalRows:
        facts, domains = self._known.of(node).columns, self._of.table.columns
        made = {
            id_: added_column(
                one,
                left.table,
                (facts[id_].type, facts[id_].nullable),
                domains.get(id_),
                self._between(id_),
                listed=self._is_listed(id_),
            )
            for id_, one in computed.items()
        }
        return self._adding(left, made)

    def _adding(self, left: NormalRows, made: Mapping[Id, AddedColumn]) -> NormalRows:
        """Add columns to the table, if they aren't there yet."""
        table = self._read[left.table.path]
        for one in made.values():
            self._tables.add_column(table, one)
        names = {**left.names, **{id_: one.name for id_, one in made.items()}}
        return replace(left, table=self._tables.with_added(table), names=names)

    def _is_listed(self, id_: Id) -> bool:
        """Whether each row has a cell by a column, whatever it holds."""
        table = self._of.table
        return id_ not in table.columns or not table.leaves_out(id_)

    def _between(self, id_: Id) -> Interval:
        bounds = self._of.table.bounds.get(id_)
        return (None, None) if bounds is None else (bounds.low, bounds.high)
