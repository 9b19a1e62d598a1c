"""FULL JOIN: the rows of a unit that meet, and those of either side that meet none.

    a FULL JOIN b ON c

is a LEFT JOIN b ON c, and below it the rows of b that no row of a meets, with NULL for the columns
of a. Both are relations of the same units, so their union is one, and no node of its own is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UnsupportedSqlError
from dpsql.rel.nodes import Filter, Id, Join, Project, Relation
from dpsql.rel.rename import Prefixed, renamed, with_prefix
from dpsql.rows.expression import RowCall, RowColumn, RowConstant, RowExpression
from dpsql.schema import Table
from dpsql.schema.grain import declared_type
from dpsql.schema.names import folded
from dpsql.sql.algebra.described import DescribedRelation, NewColumn, known_column
from dpsql.sql.algebra.selects import RowsOfSelect, Translator
from dpsql.sql.algebra.set_operations import UnitedPart, put_together, type_in_common
from dpsql.sql.binding.canonical import Moving, column_of, id_of
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.scope import EITHER, NamedColumn, VisibleItem, owner_of

_THERE = RowConstant("BOOLEAN", "true")


@dataclass(frozen=True, eq=False, slots=True)
class MetSides:
    """Rows that meet, and those of either side.

    Args:
        left: the rows on the left.
        right: those on the right.
        met: the rows on the left, joined with those on the right by a LEFT JOIN.
        on: what is true of two rows that meet.
        pairs: columns of the left and the right that are equal then.
    """

    left: DescribedRelation
    right: DescribedRelation
    met: DescribedRelation
    on: RowExpression
    pairs: Sequence[tuple[Id, Id]]


@dataclass(frozen=True, eq=False, slots=True)
class _BothSides:
    """The rows of a FULL JOIN.

    Args:
        of: the rows.
        ids: what the columns of both sides are called in them.
        either: columns of the left and the right that are equal where rows meet → the column with
            the value of whichever is there.
    """

    of: DescribedRelation
    ids: Mapping[Id, Id]
    either: Mapping[tuple[Id, Id], Id]

    def item(self, item: VisibleItem, table: Table) -> VisibleItem:
        """Return an item of a side, whose columns are those of a table, as it is in the rows."""
        to, there = Moving(table, self.of.table, self.ids), self.ids.keys()
        columns = (
            replace(one, value=to(one.value))
            for one in item.columns
            if one.value.attributes | one.value.by_row <= there
        )
        return replace(item, columns=tuple(columns))


def keep_both(rows: RowsOfSelect, join: JoinedItem, item: VisibleItem, of: MetSides) -> None:
    """Let the rows of a SELECT be those of a FULL JOIN.

    Args:
        rows: the SELECT, which has the rows of the left side so far.
        join: the join.
        item: the item on the right.
        of: the rows that meet.

    Raises:
        UnsupportedSqlError: columns after USING have no type in common.
    """
    pairs = {
        name: (_id_in(rows.items, name, of.left.table), _id_in([item], name, of.right.table))
        for name in join.using
    }
    said = [(a, b) for a, b in pairs.values() if a is not None and b is not None]
    together = replace(of, pairs=list(dict.fromkeys([*of.pairs, *said])))
    span, made = rows.source.node(join.item), _both_sides(rows.queries, together)
    items = [made.item(one, of.left.table) for one in rows.items]
    own, using = made.item(item, of.right.table), list[NamedColumn]()
    for name in join.using:
        id_ = next((id_ for both, id_ in made.either.items() if both == pairs[name]), None)
        if id_ is None:
            raise rows.source.unsupported(
                join.item, "USING names columns of different types.", "write ON."
            )
        using.append(NamedColumn(name, column_of(id_, made.of.table, span)))
    rows.items = ()
    rows.become(made.of)
    rows.items = (*items, own, *([VisibleItem(EITHER, (), tuple(using))] if using else []))
    rows.either = {
        frozenset({made.ids[a], made.ids[b]}): id_ for (a, b), id_ in made.either.items()
    }
    rows.merged |= {folded(name) for name in join.using}


def _id_in(items: Sequence[VisibleItem], name: str, table: Table) -> Id | None:
    """Return the column of a table that a name after USING means in some items."""
    owner = owner_of(name, items)
    column = None if owner is None else owner.column(name)
    return None if column is None else id_of(column.value, table)


def _both_sides(queries: Translator, rows: MetSides) -> _BothSides:
    met, right = rows.met, rows.right
    read = queries.known.of(met.relation).columns
    ids = [id_ for id_ in met.columns if id_ in read]
    alone, copies = _rows_alone(queries, rows)
    pairs = [pair for pair in rows.pairs if _go_together(met, pair)]
    sides = [_maybe_missing(known_column(met.table, id_, met.tells)) for id_ in ids]
    first = [known_column(met.table, a, met.tells) for a, _ in pairs]
    second = [known_column(right.table, b, right.tells) for _, b in pairs]
    parts = [
        UnitedPart(met, (*sides, *first)),
        UnitedPart(
            replace(right, relation=alone, read=met.read),
            tuple(replace(one, id=copies[one.id]) for one in (*sides, *second)),
        ),
    ]
    made, found = put_together(queries, parts, [*ids, *(a for a, _ in pairs)])
    of = dict(zip(ids, found, strict=False))
    told = {of[id_]: met.keys_of(id_) for id_ in ids}
    paths = {table.path for table in met.counted}
    others = [table for table in right.counted if table.path not in paths]
    either = dict(zip(pairs, found[len(ids) :], strict=True))
    own = [*zip(rows.left.ids, right.ids, strict=False)]
    made = replace(
        made,
        counted=(*met.counted, *others),
        equal={id_: keys for id_, keys in told.items() if keys},
        ids=tuple(either[pair] for pair in own) if either.keys() >= {*own} else (),
    )
    return _BothSides(made, of, either)


def _rows_alone(queries: Translator, rows: MetSides) -> tuple[Relation, Mapping[Id, Id]]:
    """Return the rows on the right that meet none, and what all columns are called there.

    Rows on the left are given a column that is true before they are joined: where it is missing a
    row has met none, and so all of their columns are missing.
    """
    prefix, again, there = queries.copies(), queries.copies(), queries.fresh("there")
    left, right = rows.left.relation, rows.right.relation
    named = {id_: again + id_ for id_ in queries.known.of(left).columns}
    columns = ((name, RowColumn(prefix + id_)) for id_, name in named.items())
    marked = Project(with_prefix(left, prefix), (*columns, (there, _THERE)))
    copies = Prefixed(prefix, named)
    joined = Join(with_prefix(right, prefix), marked, renamed(rows.on, copies), "left")
    return Filter(joined, RowCall("is_null", (RowColumn(there),))), copies


def _maybe_missing(column: NewColumn) -> NewColumn:
    """Return what is public of a column of which rows of the other side have no value."""
    domain = None if column.domain is None else replace(column.domain, nullable=True)
    return replace(column, nullable=True, domain=domain, tells=frozenset())


def _go_together(met: DescribedRelation, pair: tuple[Id, Id]) -> bool:
    """Whether two columns have a type in common, without a cast of the database's own."""
    try:
        type_in_common(declared_type(met.table, id_) for id_ in pair)
    except UnsupportedSqlError:
        return False
    return True
