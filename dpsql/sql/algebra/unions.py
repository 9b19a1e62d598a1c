"""UNION ALL of relations of the same units: columns of one type, and what is public of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UnsupportedSqlError
from dpsql.rel.nodes import Id, Project, Union
from dpsql.rows.expression import RowCast, RowColumn, RowConstant, RowExpression
from dpsql.rows.types import row_type
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.sql.algebra.described import DescribedRelation, NewColumn, covering, only, united
from dpsql.sql.algebra.selects import Translator


@dataclass(frozen=True, slots=True)
class UnitedPart:
    """One of the relations that are put together, and its columns that go together by places."""

    of: DescribedRelation
    columns: tuple[NewColumn, ...]


def type_in_common(types: Iterable[str]) -> str:
    """Return the type that all values of some columns have.

    Raises:
        UnsupportedSqlError: they have none, unless the database makes one of them.
    """
    given = {*types}
    given -= {"NULL"} if len(given) > 1 else set()
    if len(given) == 1:
        return given.pop()
    if given <= INTEGER_TYPES - {"UBIGINT"}:
        return "BIGINT"
    if given <= {*INTEGER_TYPES, "HUGEINT"}:
        return "HUGEINT"
    if all(t == "VARCHAR" or t.startswith("ENUM") for t in given):
        return "VARCHAR"
    raise UnsupportedSqlError(
        f"UNION ALL puts together columns of the types {' and '.join(sorted(given))}.",
        hint="cast both to one type, for example CAST(x AS BIGINT).",
    )


def put_together(
    queries: Translator, parts: Sequence[UnitedPart], names: Sequence[str]
) -> tuple[DescribedRelation, list[Id]]:
    """Put the rows of several relations together.

    Args:
        queries: gives ids.
        parts: the relations, each with as many columns.
        names: what the columns are called.

    Returns:
        The relation, and the ids of its columns in order.

    Raises:
        UnsupportedSqlError: columns have no type in common.
    """
    each = list(zip(*(part.columns for part in parts), strict=True))
    types = [type_in_common(one.type for one in columns) for columns in each]
    ids = [queries.fresh(name) for name in names]
    relations = []
    for part in parts:
        trees = (_cast(one, type_) for one, type_ in zip(part.columns, types, strict=True))
        listed = ((queries.fresh(name), tree) for name, tree in zip(names, trees, strict=True))
        relations.append(Project(part.of.relation, tuple(listed)))
    added = [_of_all(*one) for one in zip(ids, types, each, strict=True)]
    made = only(parts[0].of, Union(tuple(relations), tuple(ids)), added)
    known = [part.of.most for part in parts if part.of.most is not None]
    most = sum(known) if len(known) == len(parts) else None
    counted = {table.path: table for part in parts for table in part.of.counted}
    read = tuple(table for part in parts for table in part.of.read)
    return replace(made, most=most, counted=tuple(counted.values()), read=read, sure=None), ids


def _of_all(id_: Id, type_: str, news: Sequence[NewColumn]) -> NewColumn:
    """Describe a column by what it is in each part."""
    tells = frozenset.intersection(*(new.tells for new in news))
    nullable = any(new.nullable for new in news)
    domain, listed = united([new.domain for new in news]), all(new.listed for new in news)
    between = covering([new.between for new in news])
    expected = covering([new.expected or (None, None) for new in news])
    return NewColumn(id_, type_, nullable, domain, between, expected, tells, listed)


def _cast(column: NewColumn, to: str) -> RowExpression:
    if column.type == to:
        return RowColumn(column.id)
    of = RowConstant("NULL", "") if column.type == "NULL" else RowColumn(column.id)
    return RowCast(of, row_type(to))
