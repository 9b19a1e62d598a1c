"""Declared values: what SQL sees of a column with a domain that nobody enforces.

A declaration says of each stored value what stands in its place where it is outside of the domain:
NULL, the nearer end, a label, or nothing, so that the row is left out of answers. A column of a
relation is passed on as it is stored, with its domain beside it, and an expression reads it by that
(`RowReader`). Here are the three places where columns are told apart, or put together, without
being read by one. After them there is no stored value any more, or no domain by which to read it:

- rows that meet because columns are equal: values that are outside are equal to none;
- rows that are put together because they agree in columns: values that count as one are one;
- columns of several relations that become one, whose domains differ: each has its own values
  brought to what they are by its own declaration, below the node that makes them one.

Keys by which a row leads to another are no such values: they are compared as they are stored. So is
a column whose values were found for another statement, as this one's answers don't depend on it.

A row that is left out stays in a relation, as what is asked of it may be about other columns. All
values of a column for which rows are left out become one that is in no domain, by which they are
left out wherever a SELECT that counts names the column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

from dpsql.rel.facts import Known
from dpsql.rel.keys import with_one_zero
from dpsql.rel.nodes import Id, ProjectApart
from dpsql.rel.rename import with_prefix
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.types import DOUBLE, VARCHAR, RowType, is_enum, is_readable, row_type
from dpsql.schema import Domain, Table
from dpsql.schema.domain import Value, first_and_last
from dpsql.schema.grain import declared_type
from dpsql.sql.algebra.described import (
    NO_TYPE,
    DescribedRelation,
    NewColumn,
    known_column,
    with_columns,
)
from dpsql.sql.algebra.groups import is_null_with
from dpsql.sql.lowering.stored_values import within

_FIRST_YEAR = 1700
"""A year that times of all types have, and the next one."""
_UNEQUAL = frozenset({"null", "drop"})
"""Rules by which SQL sees NULL in place of a value outside."""


def equal_values(
    left: DescribedRelation, right: DescribedRelation, pairs: Sequence[tuple[Id, Id]]
) -> list[RowExpression]:
    """Return what is true where columns that are equal as they are stored are equal to SQL, too.

    Args:
        left: the rows on the left.
        right: those on the right.
        pairs: columns of the left and the right that are equal.
    """
    ids = {*zip(left.ids, right.ids, strict=False)} if left.are_equal(right, pairs) else set()
    values = [pair for pair in pairs if pair not in ids and not left.telling(*pair, right)]
    found = list[RowExpression]()
    for table, id_ in (side for a, b in values for side in ((left.table, a), (right.table, b))):
        sure = table.enforced | table.learned
        domain = None if id_ in sure else table.columns.get(id_)
        if domain is not None and domain.outside in _UNEQUAL:
            found.append(_is_there(_seen(id_, domain, counted=False)))
    return list(dict.fromkeys(found))


def left_in(condition: RowExpression, table: Table, names: Iterable[Id]) -> list[RowExpression]:
    """Return what else is true of rows that meet a condition: none of them is left out.

    Args:
        condition: the condition.
        table: its columns.
        names: those that it names.
    """
    guarded = ((id_, table.columns[id_]) for id_ in sorted({*names}) if _is_left_out(table, id_))
    return [
        _has_cell(id_, domain)
        for id_, domain in guarded
        if not is_null_with(condition, frozenset({id_}))
    ]


def key_of(stored: RowColumn, column: NewColumn) -> tuple[RowExpression, NewColumn]:
    """Return a column with one value for each of its cells: values of one cell become equal.

    Args:
        stored: the column.
        column: what is public of it, by the name that it is given.
    """
    domain = column.domain
    if domain is None or domain.zone is not None or is_enum(column.type):
        return stored, column
    if column.listed or column.learned or column.tells:
        return stored, column
    value: RowExpression | None = _seen(stored.name, domain, counted=True)
    if domain.outside == "drop":
        value = _left_out_as(stored.name, domain, _outside_of(domain, column.type), stored)
    if value is None or value == stored:
        return stored, column
    if row_type(column.type) == DOUBLE:
        value = with_one_zero(value)
    else:
        value = RowCast(value, row_type(column.type))
    return value, replace(column, nullable=True, listed=domain.covers_all)


def told_apart(
    of: DescribedRelation, fresh: Callable[[str], Id], prefix: str
) -> tuple[DescribedRelation, Mapping[Id, Id]]:
    """Return rows that may be missing, with columns beside those in which NULL leaves a row out.

    Where a row is missing its columns are NULL, and a column that has no cell for NULL is given
    one. Beside it is another one then, for what is named after the join: with a value that is in no
    cell in place of NULL, by which a row that is there is left out as it was before. There is no
    such value where values outside count as others, nor of keys, which NULL leads nowhere.

    Args:
        of: the rows.
        fresh: gives ids.
        prefix: what no id begins with.

    Returns:
        The rows, and the columns that have another one beside them → that.
    """
    values = dict[Id, RowExpression]()
    table = of.table
    for id_, domain in table.columns.items():
        sure = table.enforced | table.learned | table.filled
        if domain.nullable or domain.outside != "drop" or id_ in sure or of.is_key(id_):
            continue
        outside = _outside_of(domain, declared_type(table, id_))
        if outside is not None:
            missing = RowCall("is_null", (RowColumn(prefix + id_),))
            values[id_] = RowCase(((missing, outside),), RowColumn(prefix + id_))
    if not values:
        return of, {}
    beside, read = {id_: fresh(id_) for id_ in values}, Known().of(of.relation).columns
    kept = ((id_, RowColumn(prefix + id_)) for id_ in of.columns if id_ in read)
    added = ((beside[id_], value) for id_, value in values.items())
    relation = ProjectApart(with_prefix(of.relation, prefix), (*kept, *added))
    columns = (replace(known_column(table, id_, of.tells), id=beside[id_]) for id_ in values)
    made = with_columns(of, relation, columns)
    owners = {beside[id_]: of.ids_of[id_] for id_ in values if id_ in of.ids_of}
    return replace(made, ids_of={**of.ids_of, **owners}), beside


def value_in(column: NewColumn, domain: Domain | None, type_: str) -> RowExpression:
    """Return the value of a column as one of a column that several become.

    Args:
        column: what is public of it.
        domain: the domain of all of them; None if it has none.
        type_: the type of all of them.
    """
    if column.type == NO_TYPE:
        return RowCast(NOTHING, row_type(type_))
    own, stored = column.domain, _cast(RowColumn(column.id), column.type, type_)
    if own is None or own == domain or own.zone is not None or is_enum(type_):
        return stored
    if column.listed or column.learned:
        return stored
    if domain is None or own.outside != "drop":
        seen = _seen(column.id, own, counted=False)
        plain = seen == RowColumn(column.id)
        return stored if plain else _cast(seen, "", type_)
    found = _left_out_as(column.id, own, _outside_of(domain, type_), stored)
    return stored if found is None else found


def domain_in(columns: Sequence[NewColumn], domain: Domain | None, type_: str) -> Domain | None:
    """Return the domain of a column that several become, with the rule for what is outside.

    Args:
        columns: what is public of these.
        domain: the values of all of them, as far as they are known.
        type_: the type of all of them.
    """
    if domain is None:
        return None
    unsure = [one for one in columns if not one.listed and one.domain not in (None, domain)]
    unsure = [one for one in unsure if not one.learned]
    if unsure and is_enum(type_):
        return None
    if not any(one.domain is not None and one.domain.outside == "drop" for one in unsure):
        return domain
    if domain.outside not in _UNEQUAL or _outside_of(domain, type_) is None:
        return None
    return replace(domain, outside="drop")


def is_listed(columns: Sequence[NewColumn], domain: Domain | None) -> bool:
    """Whether all values of a column that several become are of its domain, or NULL in it."""
    if domain is None or not domain.covers_all:
        return all(one.listed for one in columns)
    return all(one.listed or (one.domain != domain and not one.learned) for one in columns)


# ── Values ───────────────────────────────────────────────────────────────────────────────────────


def _is_left_out(table: Table, id_: Id) -> bool:
    return id_ in table.columns and id_ not in table.learned and table.leaves_out(id_)


def _is_there(value: RowExpression) -> RowExpression:
    return RowCall("not", (RowCall("is_null", (value,)),))


def _seen(id_: Id, domain: Domain, *, counted: bool) -> RowExpression:
    """Return the value that SQL sees of a column; see `stored_values.within`."""
    column, shown = RowColumn(id_), None
    if domain.zone is not None:
        shown = RowCall("clock", (column, RowConstant("VARCHAR", domain.zone)))
    return within(column, domain, enforced=False, counted=counted, shown=shown)


def _has_cell(id_: Id, domain: Domain) -> RowExpression:
    """Return whether a row has a cell of a column's domain, so that it isn't left out."""
    there = _is_there(_seen(id_, domain, counted=True))
    return RowCall("or", (there, _is_null(id_))) if domain.nullable else there


def _is_null(id_: Id) -> RowExpression:
    return RowCall("is_null", (RowColumn(id_),))


def _left_out_as(
    id_: Id, domain: Domain, outside: RowExpression | None, stored: RowExpression
) -> RowExpression | None:
    """Return a column with one value where its rows are left out; None if there is none."""
    if outside is None:
        return None
    return RowCase(((_has_cell(id_, domain), stored),), outside)


def _cast(value: RowExpression, of: str, to: str) -> RowExpression:
    return value if of == to else RowCast(value, row_type(to))


def _outside_of(domain: Domain, type_: str) -> RowExpression | None:
    """Return a value of a column's type that is in no cell of a domain; None if there is none."""
    if not is_readable(type_) or is_enum(type_):
        return None
    found = next(_beyond(domain, row_type(type_)), None)
    return None if found is None else RowCast(found, row_type(type_))


def _beyond(domain: Domain, type_: RowType) -> Iterator[RowConstant]:
    """Yield constants that are no values of a domain."""
    ends = _ends(domain)
    numbers = [end for end in ends if isinstance(end, int | float | Decimal)]
    days = [date(end.year, end.month, end.day) for end in ends if isinstance(end, date)]
    if type_ == VARCHAR:
        label = "left out"
        while label in domain.values:
            label += "_"
        yield RowConstant("VARCHAR", label)
    elif type_.is_float:
        yield RowConstant("DOUBLE", "inf")
    elif type_.is_exact and numbers:
        most = 10 ** (type_.width - type_.scale) - 1
        low, high = (-most, most) if type_.limits is None else type_.limits
        beyond = math.floor(min(numbers)) - 2, math.ceil(max(numbers)) + 2
        yield from (RowConstant("INTEGER", str(n)) for n in beyond if low <= n <= high)
    elif days and min(days).year > _FIRST_YEAR:
        before = min(days) - timedelta(days=2)
        yield RowConstant("DATE", before.isoformat())


def _ends(domain: Domain) -> Iterable[Value]:
    """Return the values of a domain by which it is known how far it reaches."""
    listed = isinstance(domain.values, tuple)
    return (*domain.values, *(domain.uppers or ())) if listed else first_and_last(domain)
