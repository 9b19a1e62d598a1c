"""Conditions by which few rows of each unit are chosen: these are a relation of their own.

    SELECT * FROM orders QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY day) = 1

has at most one order of each customer. Here it is found out that a condition says so, and what is
counted are the chosen rows, with that bound (`schema/windows.py`), in place of all rows that may
count. Whether that is right makes no difference to what is protected: the engine keeps so many
chosen rows of a unit, and no more. If it is not found out, the condition is one on the rows of the
table, like any other.

A condition must be true of all rows that count, so it stands alone or beside others with AND: one
in an OR, in NOT, in FILTER or in a CASE bounds nothing. Of functions only row_number gives each row
a place of its own: of equal rows all have the same rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.schema import Table
from dpsql.schema.combined import combination_of
from dpsql.schema.grain import unit_columns
from dpsql.schema.units import MAX_ROWS
from dpsql.schema.windows import Chosen
from dpsql.sql.binding.core import Core
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.binding.tables import NamedTables, UnitWindow

_MIRRORED: dict[type[Expr], type[Expr]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
"""Comparison → what it is with its sides exchanged."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Between which places a condition has a row to be."""

    condition: BoundExpr
    column: str
    """The canonical name of the column with the places."""
    first: int = 1
    last: int | None = None
    exact: bool = True
    """Whether it says nothing else."""


def over_chosen(core: Core, table: Table, tables: NamedTables) -> tuple[Core, Table]:
    """Let a core count chosen rows, if its conditions choose few of each unit.

    Args:
        core: what is asked.
        table: the table whose rows are counted.
        tables: what the names of tables mean.

    Returns:
        The core, without the conditions that are true of all chosen rows, and these; or both as
        they are.
    """
    said = list(_said(core)) if tables.names_of_rows(table) else []
    if table.unit is None or not said:
        return core, table
    whole = tables.grain(table)
    found = list[tuple[Chosen, frozenset[BoundExpr]]]()
    for name in dict.fromkeys(one.column for one in said):
        own = [one for one in said if one.column == name]
        chosen = _chosen(own, whole, tables)
        if chosen is not None:
            found.append((chosen, frozenset(one.condition for one in own if one.exact)))
    if not found:
        return core, table
    chosen, true = min(found, key=lambda one: math.inf if one[0].rows is None else one[0].rows)
    counted = tables.chosen(whole, chosen)
    if counted is None:
        return core, table
    left = tuple(condition for condition in core.by_row if condition not in true)
    return replace(core, by_row=left), counted


def _chosen(said: Sequence[_Places], table: Table, tables: NamedTables) -> Chosen | None:
    """Return which rows some conditions on the same column choose; None if they choose none."""
    first = max(one.first for one in said)
    last = min((one.last for one in said if one.last is not None), default=None)
    window = tables.window(table, said[0].column)
    if table.unit is None or window is None or last is None or not first <= last <= MAX_ROWS:
        return None
    if window.function != "row_number":
        return None
    finer = _told_apart(window, table)
    rows = None if finer is None else (last - first + 1) * _values(finer, table)
    unbounded = table.unit.max_rows is None
    if unbounded and (rows is None or rows > MAX_ROWS or combination_of(table) is not None):
        return None
    apart = _columns_of(finer or (), table)
    return Chosen(table.path, table.unit, window.name, first, last, rows, apart)


def _said(core: Core) -> Iterator[_Places]:
    """Return the conditions of a core by which a row has one of some places."""
    for condition in core.by_row:
        node = condition.node.unnest()
        if isinstance(node, exp.Between):
            low, high = _number(node.args["low"]), _number(node.args["high"])
            name = _column(node.this)
            if name and low is not None and high is not None:
                yield _Places(condition, name, max(low, 1), high)
        elif isinstance(node, exp.In):
            numbers = [_number(part) for part in node.expressions]
            known = [number for number in numbers if number is not None]
            name = _column(node.this)
            if name and known and len(known) == len(numbers):
                yield _Places(condition, name, max(min(known), 1), max(known), exact=False)
        elif type(node) in _MIRRORED:
            yield from _compared(condition, node)


def _compared(condition: BoundExpr, node: Expr) -> Iterator[_Places]:
    sides, kind = (node.this, node.expression), type(node)
    if not _column(sides[0]):
        sides, kind = sides[::-1], _MIRRORED[kind]
    name, number = _column(sides[0]), _number(sides[1])
    if not name or number is None:
        return
    first, last = max(number, 1), number
    if kind is exp.EQ:
        yield _Places(condition, name, first, last)
    elif kind in {exp.LT, exp.LTE}:
        yield _Places(condition, name, last=last - (kind is exp.LT))
    else:
        yield _Places(condition, name, max(number + (kind is exp.GT), 1))


def _column(node: Expr) -> str:
    """Return the canonical name of a column without a domain; empty if it is something else."""
    inner = node.unnest()
    named = isinstance(inner, exp.Column) and inner.name.startswith("__w")
    return inner.name if named else ""


def _number(node: Expr) -> int | None:
    """Return a whole number that is written; None if it is something else."""
    inner = node.unnest()
    good = isinstance(inner, exp.Literal) and not inner.is_string and inner.name.isdecimal()
    return int(inner.name) if good and len(inner.name) <= len(str(MAX_ROWS)) else None


def _told_apart(window: UnitWindow, table: Table) -> tuple[BoundExpr, ...] | None:
    """Return what rows of a unit with the same place differ in; None if they may be any number.

    There is one for each value of what else PARTITION BY names than the unit. These are so many
    where every value that is stored is one of those of a domain.
    """
    finer = tuple(part for part in window.partition if not _is_of_unit(part, table))
    read = {name for part in finer for name in part.attributes | part.by_row}
    listed = {n for n, d in table.columns.items() if n in table.enforced and not d.coarse}
    return finer if read <= listed and _of_unit(table).issuperset(window.told) else None


def _values(parts: Sequence[BoundExpr], table: Table) -> int:
    """Return how many values some expressions have at most, together."""
    read = frozenset[str]().union(*(part.attributes for part in parts))
    return math.prod(table.columns[name].size for name in read)


def _columns_of(parts: Sequence[BoundExpr], table: Table) -> tuple[str, ...]:
    """Return the columns that some expressions are, if these are stored ones; else none."""
    found = {name for part in parts for name in part.attributes}
    plain = all(isinstance(part.node.unnest(), exp.Column) for part in parts)
    return tuple(sorted(found)) if plain and table.joined.isdisjoint(found) else ()


def _is_of_unit(part: BoundExpr, table: Table) -> bool:
    """Whether an expression is the same in all rows of a unit: of its id, or of its own row."""
    return not part.relations and (part.attributes | part.by_row) <= _of_unit(table)


def _of_unit(table: Table) -> set[str]:
    """Return columns that are the same in all rows of a unit."""
    unit, sides = table.unit, table.origin.sides if table.origin is not None else ()
    if unit is None:
        return set()
    own = {*unit_columns(table), *(() if unit.joins else dict(unit.columns))}
    for parent in table.parents:  # each comes after the one that refers to it
        if parent.join.enforced and {parent.above + name for name in parent.join.columns} <= own:
            own |= {parent.matched, *parent.names.values()}
    for side in sides:  # of a combination
        if not side.above:
            inside = _of_unit(side.table)
            own |= {joined for of, joined in side.names.items() if of in inside}
    return own
