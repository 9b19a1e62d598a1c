"""Public items after FROM as constants: rows of units meet them in a relation.

Where rows are counted, public tables are joined over cells, see `over_cells.py`. In queries whose
rows are put together, numbered or looked at by others, each row meets them before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dpsql.errors import Span, SqlError
from dpsql.rel.nodes import Id, Public
from dpsql.rows.expression import RowConstant
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.sql.algebra.described import (
    DescribedRelation,
    NewColumn,
    domain_of_texts,
    with_columns,
)
from dpsql.sql.algebra.selects import Translator
from dpsql.sql.binding.canonical import column_of
from dpsql.sql.binding.core import Relation
from dpsql.sql.binding.items import Names
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.scope import NamedColumn, VisibleItem

MOST_PUBLIC = 10_000
"""Rows of a public table that are joined with rows of units."""
_KINDS = ("INTEGER", "DECIMAL", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR")
Texts = Sequence[Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class PublicItem:
    """A public item as a relation of constants, and how many of its rows there are."""

    of: DescribedRelation
    relation: Public
    item: VisibleItem
    times: int


def public_rows(queries: Translator, join: JoinedItem, names: Names) -> PublicItem:
    """Write the rows of a public item as constants.

    Raises:
        UnsupportedSqlError: they are too many, or none of its columns can be written.
    """
    stored = queries.store(0, join, names)
    if stored.rows > MOST_PUBLIC:
        raise queries.source.unsupported(
            join.item,
            f"A public table of more than {MOST_PUBLIC:,} rows can't be joined in a query of "
            "rows of units.",
            "join fewer of its rows: (SELECT … FROM … WHERE …).",
        )
    types, texts = _read(queries, stored)
    values = [_constants((row[i] for row in texts), type_) for i, type_ in enumerate(types)]
    kept = {i: found for i, found in enumerate(values) if found is not None}
    if not kept:
        raise queries.source.unsupported(
            join.item,
            "No column of this public table can be read in a query of rows of units.",
            "cast one to a text, a number or a date: (SELECT CAST(x AS VARCHAR) AS x FROM …).",
        )
    ids = {i: queries.fresh(stored.columns[i]) for i in kept}
    relation = Public(
        tuple((ids[i], types[i]) for i in kept),
        tuple(zip(*kept.values(), strict=True)),
        _unique(queries, stored, ids),
    )
    names_of = [stored.columns[i] for i in kept]
    return _item(relation, stored.alias, names_of, queries.source.node(join.item))


def narrowed(public: PublicItem, met: Mapping[Id, Iterable[object]]) -> PublicItem:
    """Leave out rows that no private row meets, so that their values are no groups.

    Args:
        public: the rows.
        met: column → the values of those that it has to be equal to, whatever rows there are.
    """
    relation, rows = public.relation, public.relation.rows
    for i, (id_, type_) in enumerate(relation.columns):
        found = _texts_of(met[id_], type_) if id_ in met else None
        if found is not None:
            rows = tuple(row for row in rows if row[i].kind != "NULL" and row[i].text in found)
    if not rows or len(rows) == len(relation.rows):
        return public
    columns = public.item.columns
    named = [column.name for column in columns]
    span = columns[0].value.span
    return _item(replace(relation, rows=rows), public.item.alias, named, span)


def _item(relation: Public, alias: str, names: Sequence[str], span: Span) -> PublicItem:
    """Describe rows by the values that they have."""
    texts = [[None if one.kind == "NULL" else one.text for one in row] for row in relation.rows]
    bare = DescribedRelation(relation, Table(alias, {}), None, {}, (), ())
    listed = [_column(id_, type_, texts, i) for i, (id_, type_) in enumerate(relation.columns)]
    of = with_columns(bare, relation, listed)
    columns = (
        NamedColumn(name, column_of(id_, of.table, span), listed=False)
        for name, (id_, _) in zip(names, relation.columns, strict=True)
    )
    item = VisibleItem(alias, (), tuple(columns))
    return PublicItem(of, relation, item, max(1, len(relation.rows)))


def _texts_of(values: Iterable[object], type_: str) -> frozenset[str] | None:
    """Return values as constants of a type are written; None if they may be written otherwise."""
    kinds = {"INTEGER": int, "VARCHAR": str}
    kind, found = kinds.get(_kind_of(type_) or ""), list(values)
    return frozenset(map(str, found)) if all(type(one) is kind for one in found) else None


def _read(queries: Translator, stored: Relation) -> tuple[list[str], Texts]:
    """Return the types of the columns, and the rows as texts, in one order whatever they are."""
    names = [f"__r0_{i}" for i in range(len(stored.columns))]
    typed = dict(queries.sandbox.types(f"SELECT {', '.join(names)} FROM {stored.table}"))
    plain = (f"{n}::VARCHAR" if _kind_of(typed[n]) is not None else "NULL" for n in names)
    found = queries.sandbox.rows(f"SELECT {', '.join(plain)} FROM {stored.table}")
    return [typed[name] for name in names], sorted(found, key=repr)


def _column(id_: Id, type_: str, texts: Texts, place: int) -> NewColumn:
    values = [row[place] for row in texts]
    return NewColumn(id_, type_, None in values, domain_of_texts(values, type_))


def _unique(queries: Translator, stored: Relation, ids: dict[int, Id]) -> frozenset[frozenset[Id]]:
    """Return the columns in which no two rows agree."""
    found = {
        frozenset({id_})
        for i, id_ in ids.items()
        if queries.tables.is_unique(stored.table, f"__r0_{i}")
    }
    return frozenset(found | ({frozenset[Id]()} if stored.rows <= 1 else set()))


def _kind_of(type_: str) -> str | None:
    """Return the kind of constants of a type; None if there are none."""
    if type_.startswith("ENUM"):
        return "VARCHAR"
    plain = type_.split("(")[0]
    if plain in INTEGER_TYPES:
        return "INTEGER"
    if plain in {"FLOAT", "DOUBLE"}:
        return "DOUBLE"
    return plain if plain in _KINDS else None


def _constants(texts: Iterable[object], type_: str) -> tuple[RowConstant, ...] | None:
    """Return values as constants; None if one can't be written: a date may be infinite."""
    kind = _kind_of(type_)
    if kind is None:
        return None
    with suppress(SqlError):
        return tuple(
            RowConstant("NULL", "") if text is None else RowConstant(kind, str(text))
            for text in texts
        )
    return None
