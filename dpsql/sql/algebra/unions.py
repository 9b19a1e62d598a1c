"""UNION ALL of relations of the same units: columns of one type, and what is public of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UnsupportedSqlError
from dpsql.rel.nodes import Id, Project, Union
from dpsql.schema import Domain
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.sql.algebra.declared import domain_in, is_listed, value_in
from dpsql.sql.algebra.described import (
    NO_TYPE,
    DescribedRelation,
    NewColumn,
    covering,
    only,
    united,
)
from dpsql.sql.algebra.selects import Translator


@dataclass(frozen=True, slots=True)
class UnitedPart:
    """One of the relations that are put together, and its columns that go together by places."""

    of: DescribedRelation
    columns: tuple[NewColumn, ...]


def places_with_values(parts: Sequence[UnitedPart]) -> list[int]:
    """Return the places of columns that aren't NULL in all parts."""
    each = enumerate(zip(*(part.columns for part in parts), strict=True))
    return [place for place, columns in each if _with_values(columns)]


def type_in_common(types: Iterable[str]) -> str:
    """Return the type that all values of some columns have.

    Raises:
        UnsupportedSqlError: they have none, unless the database makes one of them.
    """
    given = {*types}
    given -= {NO_TYPE} if len(given) > 1 else set()
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
    domains = [
        domain_in(columns, _united(columns), type_)
        for columns, type_ in zip(each, types, strict=True)
    ]
    ids = [queries.fresh(name) for name in names]
    relations = []
    for part in parts:
        trees = map(value_in, part.columns, domains, types)
        listed = ((queries.fresh(name), tree) for name, tree in zip(names, trees, strict=True))
        relations.append(Project(part.of.relation, tuple(listed)))
    added = list(map(_of_all, ids, types, each, domains))
    made = only(parts[0].of, Union(tuple(relations), tuple(ids)), added)
    counted = {table.path: table for part in parts for table in part.of.counted}
    read = tuple(table for part in parts for table in part.of.read)
    told = set()
    for part in parts:
        passed = zip((column.id for column in part.columns), ids, strict=True)
        told.add(part.of.ids_at(dict(passed)))
    return replace(
        made,
        most=_most_of([part.of.most for part in parts]),
        counted=tuple(counted.values()),
        read=read,
        sure=None,
        ids=told.pop() if len(told) == 1 else (),
    ), ids


def _most_of(parts: Sequence[int | None]) -> int | None:
    """Return how many rows of a unit parts have together at most, if that is known of each."""
    known = [most for most in parts if most is not None]
    return sum(known) if len(known) == len(parts) else None


def _of_all(id_: Id, type_: str, news: Sequence[NewColumn], domain: Domain | None) -> NewColumn:
    """Describe a column by what it is in each part."""
    tells = frozenset.intersection(*(new.tells for new in news))
    there = _with_values(news)
    listed = is_listed(news, domain)
    nullable = any(new.nullable or not new.listed for new in news)
    between = covering([new.between for new in there])
    expected = covering([new.expected or (None, None) for new in there])
    return NewColumn(id_, type_, nullable, domain, between, expected, tells, listed)


def _with_values(columns: Iterable[NewColumn]) -> list[NewColumn]:
    """Return those of some columns that have other values than NULL."""
    return [one for one in columns if one.type != NO_TYPE]


def _united(columns: Sequence[NewColumn]) -> Domain | None:
    """Return the values of a column that several become, as far as they are known."""
    there = _with_values(columns)
    domain = united([one.domain for one in there])
    return domain if domain is None or there == [*columns] else replace(domain, nullable=True)
