"""Groups: rows of a unit that are put together; after a LEFT JOIN often those of its left side.

    SELECT c.id, COUNT(o.id) AS n FROM customers c LEFT JOIN orders o ON o.customer_id = c.id
    GROUP BY c.id

returns each customer once, with the number of its orders: a `GroupJoin` of customers with orders,
as `SELECT c.id, (SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id) FROM customers c` is.
So it is counted as customers are, together with all else that is asked of them.

The rule is Moerkotte and Neumann's (Accelerating Queries with Group-By and Join by Groupjoin, PVLDB
4, 2011, section 3). It needs three things:

- Rows on the left differ in what is grouped by, and all of that is theirs. Then a group is one of
  them, with the rows that it meets; or with none, and NULLs in their place.
- Aggregates skip the row of NULLs: their values, or conditions, are NULL there. Then those of a
  group without other rows are those of no rows.
- Conditions before the groups are on the left side alone. Then they are conditions on groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.rel.facts import Known, conjuncts
from dpsql.rel.nodes import Agg, Group, GroupJoin, Id, Join
from dpsql.rows.expression import RowCall, RowCase, RowCast, RowColumn, RowConstant, RowExpression
from dpsql.rows.functions import COMPARISONS, FUNCTIONS, Null
from dpsql.schema import Table
from dpsql.schema.units import RowLimit
from dpsql.sql.algebra.described import DescribedRelation, NewColumn, only, with_columns
from dpsql.sql.algebra.places import listed, same_in_unit
from dpsql.sql.binding.expressions import BoundExpr

Key = tuple[Id, RowExpression]
_DECIDED = frozenset({"and", "or"})
"""Functions that may have a value beside NULL, although they are NULL only where something is."""


@dataclass(frozen=True, eq=False, slots=True)
class LeftRows:
    """The left side of a LEFT JOIN whose groups are its rows.

    Args:
        of: its rows, with what is said of them.
        join: the join.
        keys: column of the groups → the column of the left side that it is.
    """

    of: DescribedRelation
    join: Join
    keys: dict[Id, Id]

    def with_aggregates(
        self, adds: Sequence[tuple[Id, Agg]], added: Iterable[NewColumn], known: Known
    ) -> DescribedRelation:
        """Return each row once, with aggregates of those that it meets."""
        relation = GroupJoin(self.of.relation, self.join.right, self.join.on, tuple(adds))
        facts = known.of(relation).columns
        there = (
            one.column(one.id, facts[one.id].type, facts[one.id].nullable)
            for one in added
            if one.id not in self.keys
        )
        return with_columns(self.of, relation, there)


def left_rows(
    before: DescribedRelation,
    where: Iterable[BoundExpr],
    keys: Sequence[Key],
    adds: Iterable[tuple[Id, Agg]],
    known: Known,
) -> LeftRows | None:
    """Return the rows that groups are; None if they have more than one row on the left.

    Args:
        before: what is grouped.
        where: the conditions on its rows.
        keys: the columns of the groups, and what they are of, as it is stored.
        adds: the aggregates.
        known: the facts about relations.
    """
    join, left = before.relation, before.left
    if not isinstance(join, Join) or left is None or join.left is not left.relation:
        return None
    own, met = known.of(join.left), known.of(join.right)
    names = {id_: value.name for id_, value in keys if isinstance(value, RowColumn)}
    if len(names) < len(keys) or not own.columns.keys() >= set(names.values()):
        return None
    read = frozenset[Id]().union(*(one.attributes | one.by_row for one in where))
    if not own.is_unique(names.values()) or not read <= own.columns.keys():
        return None
    if not all(_skips(agg, frozenset(met.columns)) for _, agg in adds):
        return None
    return LeftRows(replace(left, read=before.read), join, names)


def _skips(agg: Agg, columns: frozenset[Id]) -> bool:
    """Whether an aggregate skips a row in which some columns are NULL."""
    by_value = agg.value is not None and is_null_with(agg.value, columns)
    return by_value or any(is_null_with(part, columns) for part in conjuncts(agg.where))


def is_null_with(value: RowExpression, columns: frozenset[Id]) -> bool:
    """Whether an expression is NULL wherever some columns are; False if that isn't sure."""
    match value:
        case RowColumn(name):
            return name in columns
        case RowConstant(kind):
            return kind == "NULL"
        case RowCast(of):
            return is_null_with(of, columns)
        case RowCase(branches, otherwise):
            return _is_null_case(branches, otherwise, columns)
        case RowCall(function, arguments) if function in COMPARISONS:
            return any(is_null_with(one, columns) for one in arguments)
        case RowCall(function, (first, *_)):
            never_else = FUNCTIONS[function].null is Null.ANY and function not in _DECIDED
            return never_else and is_null_with(first, columns)
        case _:
            return False


def _is_null_case(
    branches: Iterable[tuple[RowExpression, RowExpression]],
    otherwise: RowExpression,
    columns: frozenset[Id],
) -> bool:
    """Whether a CASE is NULL, as no branch is taken with another value before one that is."""
    for condition, result in branches:
        null = is_null_with(result, columns)
        if _is_true_with(condition, columns):
            return null
        if not null and not is_null_with(condition, columns):
            return False
    return is_null_with(otherwise, columns)


def _is_true_with(condition: RowExpression, columns: frozenset[Id]) -> bool:
    """Whether a condition is true wherever some columns are NULL, as it asks for NULL."""
    match condition:
        case RowCall("is_null", (value,)):
            return is_null_with(value, columns)
        case RowCall("or", parts):
            return any(_is_true_with(part, columns) for part in parts)
        case _:
            return False


def grouped(
    before: DescribedRelation,
    relation: Group,
    keys: Sequence[Key],
    added: Iterable[NewColumn],
    known: Known,
) -> DescribedRelation:
    """Describe groups, of which each is a row of its own.

    Args:
        before: the rows that are put together.
        relation: the groups.
        keys: the columns of the groups, and what they are of, as it is stored.
        added: all columns of the groups.
        known: the facts about relations.
    """
    made = only(before, relation, added)
    facts, found = known.of(relation), _table_of(keys, before)
    most = before.most if found is None else found.unit_rows
    limits = _told_apart(keys, before, made.table, known)
    many = [1] if _all_same(keys, before, known) else []
    many += [math.prod(made.table.columns[n].size for n in one.columns) for one in limits]
    return replace(
        made,
        ids=before.ids_at({by.name: id_ for id_, by in keys if isinstance(by, RowColumn)}),
        most=_least(*many, most if facts.most is None else facts.most),
        counted=before.counted if found is None else (found,),
        limits=limits,
        sure=_least(*many, made.sure),
    )


def _least(*rows: int | None) -> int | None:
    return min((one for one in rows if one is not None), default=None)


def _told_apart(
    keys: Sequence[Key], of: DescribedRelation, table: Table, known: Known
) -> tuple[RowLimit, ...]:
    """Say that no two groups of a unit agree in all keys of which it may have several values.

    Args:
        keys: what rows are grouped by.
        of: the rows.
        table: the columns of the groups.
        known: the facts about relations.
    """
    same = same_in_unit(of, known)
    finer = sorted(id_ for id_, by in keys if not (isinstance(by, RowColumn) and by.name in same))
    return (RowLimit(tuple(finer), 1),) if finer and listed(table).issuperset(finer) else ()


def _all_same(keys: Sequence[Key], of: DescribedRelation, known: Known) -> bool:
    """Whether a unit has one value of all that its rows are grouped by."""
    same = same_in_unit(of, known)
    return all(isinstance(by, RowColumn) and by.name in same for _, by in keys)


def _table_of(keys: Sequence[tuple[Id, RowExpression]], of: DescribedRelation) -> Table | None:
    """Return the table of whose rows there are as many as groups, or more: all keys are of it."""
    found = dict[str, Table]()
    for _, value in keys:
        stored = of.ids_of.get(value.name) if isinstance(value, RowColumn) else None
        if stored is None or not isinstance(value, RowColumn):
            return None
        table, name = stored
        found[value.name.removesuffix(name)] = table
    return next(iter(found.values())) if len(found) == 1 else None
