"""Statistics computed of rows although their columns have domains, whose cells don't tell them.

Cells make answers agree with each other, so they are used wherever they can be. But they can't tell
apart what is stored within one of them (see `coarse`), and joint cells of several columns may be
too many: those of two dates of ten years are 13 million. Such conditions, keys and summands are
evaluated row by row then, as those of columns without a domain are: a condition becomes a key that
is true or false, what is added up a measure with the bounds that follow from the domains.

Subqueries and joined tables aren't where the private rows are. Of what is compared with public
values of these, the private rows tell between which of them it lies (see `derive`); anything else
stays with the cells, and is refused if they don't tell it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SqlError
from dpsql.schema import Table
from dpsql.sql.binding.core import (
    Core,
    Linear,
    Quantile,
    Relation,
    Statistic,
    Windowed,
    base_of,
    expressions,
    rewritten,
)
from dpsql.sql.binding.expressions import BoundExpr, column, render
from dpsql.sql.lowering.components import CoupledColumns, components
from dpsql.sql.lowering.evaluate import MAX_JOINT_CELLS, Evaluator
from dpsql.sql.lowering.long import of_long_columns
from dpsql.sql.lowering.measures import RowReader


def by_rows(core: Core, table: Table, reader: RowReader, evaluator: Evaluator) -> Core:
    """Return a core in which what cells don't tell is marked as computed of rows.

    Args:
        core: the core.
        table: the private table.
        reader: reads what is computed of rows.
        evaluator: knows what cells tell.
    """
    found = _Untold(table, evaluator).core(of_long_columns(core, table, reader))
    while True:
        moved = _apart(found, table, reader)
        if moved is None:
            return _freed(found, core, table, reader)
        found = moved


def _freed(core: Core, before: Core, table: Table, reader: RowReader) -> Core:
    """Leave rows without a value of a domain out by conditions that are evaluated row by row.

    Elsewhere a column that is named has a cell for these rows, of which nothing is counted. Of
    them, a condition sees NULL: so it is enough that no such row meets it, unless the condition is
    left out, because all rows with a value of the domain meet it.
    """
    moved = [c for c in core.by_row if c in before.conjuncts and _is_of_rows(c)]
    moved = [c for c in moved if not _always_holds(c, reader)]
    used = _columns_of(core, without=moved)
    apart = {
        name
        for name in frozenset[str]().union(*(c.attributes for c in moved)) - used
        if table.leaves_out(name) and not table.columns[name].nullable
    }
    index = {name: i for i, name in enumerate(table.columns)}
    strict = {c: _only_there(c, sorted(index[n] for n in c.attributes & apart)) for c in moved}
    return replace(
        core,
        by_row=tuple(strict.get(c, c) for c in core.by_row),
        named=core.named - apart,
    )


def _columns_of(core: Core, *, without: Sequence[BoundExpr]) -> frozenset[str]:
    """Return the columns of all parts of a core but some of its conditions by rows."""
    parts = [
        *core.keys,
        *core.conjuncts,
        *core.derived,
        *(c for r in core.relations for c in r.on),
        *(part for one in core.statistics for part in expressions(one)),
        *(c for c in core.by_row if c not in without),
    ]
    return frozenset[str]().union(*(part.attributes | part.by_row for part in parts))


def _always_holds(condition: BoundExpr, reader: RowReader) -> bool:
    try:
        return reader.always_holds(condition)
    except SqlError:  # which will be told where it is lowered
        return False


def _only_there(condition: BoundExpr, places: Sequence[int]) -> BoundExpr:
    """Return a condition that is true only where some columns are not NULL."""
    if not places or _is_strict(condition.node):
        return condition
    there = [exp.Not(this=exp.Is(this=column(f"__a{i}"), expression=exp.Null())) for i in places]
    node = exp.and_(condition.node.copy(), *there)
    return replace(condition, node=node, sql=render(node))


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_OPERANDS = (exp.Column, exp.Identifier, exp.Literal, exp.Cast, exp.DataType, exp.DataTypeParam,
             exp.Paren, exp.Neg, exp.Add, exp.Sub)  # fmt: skip
"""Nodes that have no value where a part of them is NULL."""


def _is_strict(node: exp.Expr) -> bool:
    """Whether a condition is known to be NULL where a column in it is."""
    if not isinstance(node, _COMPARISONS):
        return False
    return all(
        isinstance(part, _OPERANDS) for side in node.iter_expressions() for part in side.walk()
    )


class _Untold:
    """Finds what the cells of its columns don't tell."""

    def __init__(self, table: Table, evaluator: Evaluator) -> None:
        self._table, self._evaluator = table, evaluator
        self._relations: Sequence[Relation] = ()

    def core(self, core: Core) -> Core:
        self._relations = core.relations
        where = [self._moved(condition, truth=True) for condition in core.conjuncts]
        return replace(
            core,
            conjuncts=tuple(c for c in where if not c.by_row),
            by_row=(*core.by_row, *(c for c in where if c.by_row)),
            keys=tuple(self._moved(key, truth=False) for key in core.keys),
            relations=tuple(
                replace(relation, on=self._filters(relation.on)) for relation in core.relations
            ),
            statistics=tuple(map(self._statistic, core.statistics)),
        )

    def _statistic(self, statistic: Statistic) -> Statistic:
        if isinstance(statistic, Windowed):
            return replace(statistic, of=self._linear(statistic.of))
        if isinstance(statistic, Quantile):
            value = self._moved(statistic.value, truth=False, plain=not statistic.continuous)
            return replace(statistic, value=value, filters=self._filters(statistic.filters))
        return self._linear(statistic)

    def _linear(self, linear: Linear) -> Linear:
        weight, times = linear.weight, linear.times
        if weight is not None:
            weight = self._moved(weight, truth=False, plain=False)
        if times is not None:
            times = self._moved(times, truth=False, plain=False)
        filters = self._filters(linear.filters)
        return replace(linear, weight=weight, times=times, filters=filters)

    def _filters(self, filters: Sequence[BoundExpr]) -> tuple[BoundExpr, ...]:
        return tuple(self._moved(condition, truth=True) for condition in filters)

    def _moved(self, bound: BoundExpr, *, truth: bool, plain: bool = True) -> BoundExpr:
        """Return an expression, marked if the cells of its columns don't tell it, but rows do."""
        if bound.by_row or not any(map(self._table.merges, bound.attributes)):
            return bound
        plain = plain and not truth
        if self._evaluator.tells(bound, self._relations, truth=truth, plain=plain):
            return bound
        return replace(bound, by_row=bound.attributes)  # as a whole, or the parts that aren't told


def _is_of_rows(bound: BoundExpr) -> bool:
    """Whether an expression needs nothing but columns of private rows."""
    return not bound.relations and bound.node.find(exp.Query) is None


def _marked(bound: BoundExpr, reader: RowReader) -> BoundExpr:
    """Mark an expression if all of it can be computed of rows."""
    moved = replace(bound, by_row=bound.attributes)
    with suppress(SqlError):
        reader.type_of(moved)
        return moved
    return bound


def _apart(core: Core, table: Table, reader: RowReader) -> Core | None:
    """Mark one more condition of those that couple columns with too many joint cells.

    None if there are no more.
    """
    if math.prod(table.columns[name].size for name in core.named) <= MAX_JOINT_CELLS:
        return None
    for component in _coupled(core, table):
        if math.prod(table.columns[name].size for name in component.attributes) > MAX_JOINT_CELLS:
            marked = _first(core, component, table, reader)
            if marked is not None:
                return marked
    return None


def _coupled(core: Core, table: Table) -> Iterator[CoupledColumns]:
    """Return what each statistic, and each grouping set, couples."""
    for keys in core.sets:
        base = components(core, keys, table)
        yield from base
        whole = [component.nodes for component in base]
        for statistic in core.statistics:
            of = base_of(statistic)
            filters = [c for c in of.filters if not c.by_row]
            weights = [w for w in of.weights if not w.by_row]
            yield from components(core, keys, table, filters, whole, weights)


def _first(core: Core, component: CoupledColumns, table: Table, reader: RowReader) -> Core | None:
    """Mark what has the most joint cells by itself, of what couples a component."""

    def cells(bound: BoundExpr) -> int:
        return math.prod(table.columns[name].size for name in bound.attributes)

    keys = [core.keys[k] for k in component.keys]
    weights = [w for s in core.statistics for w in base_of(s).weights if component.weighted]
    for parts in (component.conjuncts, weights, keys):
        coupling = [p for p in parts if len(p.attributes) > 1 and not p.by_row and _is_of_rows(p)]
        for part in sorted(coupling, key=cells, reverse=True):
            marked = _marked(part, reader)
            if marked.by_row:
                return _with(core, part, marked)
    return None


def _with(core: Core, part: BoundExpr, marked: BoundExpr) -> Core:
    """Put an expression that is marked in the place of the one that isn't."""
    return rewritten(core, lambda bound: marked if bound == part else bound)
