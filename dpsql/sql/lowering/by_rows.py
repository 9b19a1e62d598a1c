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

from dpsql.errors import Span, SqlError
from dpsql.schema import Table
from dpsql.schema.checks import MAX_CELLS
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
from dpsql.sql.binding.expressions import BoundExpr, Expr, as_stored, column, render
from dpsql.sql.lowering.drawn import counted_of
from dpsql.sql.lowering.evaluate import MAX_JOINT_CELLS, Evaluator
from dpsql.sql.lowering.lookups import kept_relation
from dpsql.sql.lowering.matrices import CoupledColumns, components
from dpsql.sql.lowering.measures import RowReader


def by_rows(core: Core, table: Table, reader: RowReader, evaluator: Evaluator) -> Core:
    """Return a core in which what cells don't tell is marked as computed of rows.

    Args:
        core: the core.
        table: the private table.
        reader: reads what is computed of rows.
        evaluator: knows what cells tell.
    """
    marked = _Untold(table, evaluator).core(of_long_columns(core, table, reader))
    while True:
        moved = _apart(marked, table, reader)
        if moved is None:
            return _freed(marked, core, table, reader)
        marked = moved


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
        *(part for statistic in core.statistics for part in expressions(statistic)),
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


# ── Long columns: domains of so many values that they aren't written out, but cut where asked ────
#
# The cells of `Domain.integers(0, 40_000_000)` would take seconds and gigabytes, and statements
# tell few of them apart. So where all that a SELECT asks of such a column can be computed of rows,
# it is: conditions and groups become keys, which lie on the column's line as those of a column
# without a domain do (see `keys`). What the domain says of rows outside of it holds there as well:
#
# - a value outside is NULL, or the nearer end, as `stored_values.within` writes it into whatever is
#   computed of the row;
# - a row that is left out, as it has no value of the domain, must not meet the conditions of the
#   SELECT. So one is added, that it has a value. It stands in place of the cell that such rows have
#   elsewhere (see `assemble`).
#
# If one part of a SELECT needs the cells, as a quantile of the column does, all parts use them.


def long_columns(table: Table) -> frozenset[str]:
    """Return the columns of too many values to write them out."""
    return frozenset(name for name, domain in table.columns.items() if domain.size > MAX_CELLS)


def of_long_columns(core: Core, table: Table, reader: RowReader) -> Core:
    """Return a core in which long columns are computed of rows, where all of each can be.

    The condition that a row has a value is one of WHERE. Where rows of a public table are kept that
    no row meets, it would leave these out; so there it is one of ON: a row that is left out meets
    none. Of a FULL JOIN, which keeps that row as well, cells are used.
    """
    names, kept = long_columns(table) & core.named, kept_relation(core.relations)
    if kept is not None and kept.kind == "full":
        names -= table.guards(names)
    if not names:
        return core
    for part in _cells_of(core, reader):
        if not part.attributes.isdisjoint(names) and not _is_key(part, reader):
            names -= part.attributes

    def change(bound: BoundExpr) -> BoundExpr:
        is_long = not bound.attributes.isdisjoint(names)
        return replace(bound, by_row=bound.attributes) if is_long else bound

    changed, left_out = rewritten(core, change), sorted(table.guards(names))
    there = tuple(_has_value(name, table, core, reader) for name in left_out)
    changed = replace(changed, named=core.named.difference(left_out))
    if kept is None:
        return replace(changed, by_row=(*changed.by_row, *there))
    relations = (
        replace(r, on=(*r.on, *there)) if r.number == kept.number else r for r in changed.relations
    )
    return replace(changed, relations=tuple(relations))


def _cells_of(core: Core, reader: RowReader) -> list[BoundExpr]:
    """Return what is asked of cells, but what is added up row by row anyway, or drawn."""
    parts = [*core.conjuncts, *core.by_row, *core.keys]
    parts += [condition for relation in core.relations for condition in relation.on]
    for statistic in core.statistics:
        base = base_of(statistic)
        if isinstance(base, Quantile):
            added = list(base.weights) if counted_of(base, reader) is not None else []
        else:
            added = [weight for weight in base.weights if weight.by_row]
        parts += [part for part in expressions(statistic) if part not in added]
    return parts


def _is_key(bound: BoundExpr, reader: RowReader) -> bool:
    """Whether an expression has few values that can be computed of a row."""
    if bound.relations or bound.node.find(exp.Query):
        return False
    with suppress(SqlError):
        marked = replace(bound, by_row=bound.attributes | bound.by_row)
        return reader.key(marked, rounded=True) is not None
    return False


def _has_value(name: str, table: Table, core: Core, reader: RowReader) -> BoundExpr:
    """Return the condition that a row has a value of a column's domain.

    SQL sees NULL in place of a value outside. Where NULL is in the domain as well, the row is
    counted if it is NULL that is stored. The condition is compared with true, as it is known to
    hold where rows without a value have a cell.
    """
    index = list(table.columns).index(name)
    there: Expr = exp.Not(this=exp.Is(this=column(f"__a{index}"), expression=exp.Null()))
    if table.columns[name].nullable:
        there = exp.or_(there, exp.Is(this=column(as_stored(index)), expression=exp.Null()))
    node = exp.EQ(this=exp.Paren(this=there), expression=exp.true())
    spans = [part.span for part in _cells_of(core, reader) if name in part.attributes]
    span = spans[0] if spans else core.where or Span(0, 0)
    return BoundExpr(node, render(node), frozenset({name}), frozenset(), span, frozenset({name}))
