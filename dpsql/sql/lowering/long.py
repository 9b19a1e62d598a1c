"""Long columns: domains of so many values that they aren't written out, but cut where asked.

The cells of `Domain.integers(0, 40_000_000)` would take seconds and gigabytes, and statements tell
few of them apart. So where all that a SELECT asks of such a column can be computed of rows, it is:
conditions and groups become keys, which lie on the column's line as those of a column without a
domain do (see `keys`). What the domain says of rows outside of it holds there as well:

- a value outside is NULL, or the nearer end, as `stored_values.within` writes it into whatever is
  computed of the row;
- a row that is left out, as it has no value of the domain, must not meet the conditions of the
  SELECT. So one is added, that it has a value. It stands in place of the cell that such rows have
  elsewhere (see `outside`).

If one part of a SELECT needs the cells, as a quantile of the column does, all parts use them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import Span, SqlError
from dpsql.schema import Table
from dpsql.schema.checks import MAX_CELLS
from dpsql.sql.binding.core import Core, Linear, base_of, expressions, rewritten
from dpsql.sql.binding.expressions import BoundExpr, Expr, as_stored, column, render
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.unmatched import kept_relation


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
    for part in _cells_of(core):
        if not part.attributes.isdisjoint(names) and not _is_key(part, reader):
            names -= part.attributes

    def change(bound: BoundExpr) -> BoundExpr:
        is_long = not bound.attributes.isdisjoint(names)
        return replace(bound, by_row=bound.attributes) if is_long else bound

    found, left_out = rewritten(core, change), sorted(table.guards(names))
    there = tuple(_has_value(name, table, core) for name in left_out)
    found = replace(found, named=core.named.difference(left_out))
    if kept is None:
        return replace(found, by_row=(*found.by_row, *there))
    relations = (
        replace(r, on=(*r.on, *there)) if r.number == kept.number else r for r in found.relations
    )
    return replace(found, relations=tuple(relations))


def _cells_of(core: Core) -> list[BoundExpr]:
    """Return everything that is asked of cells, but what is added up row by row anyway."""
    parts = [*core.conjuncts, *core.by_row, *core.keys]
    parts += [condition for relation in core.relations for condition in relation.on]
    for statistic in core.statistics:
        base = base_of(statistic)
        added = [w for w in base.weights if w.by_row] if isinstance(base, Linear) else []
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


def _has_value(name: str, table: Table, core: Core) -> BoundExpr:
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
    spans = [part.span for part in _cells_of(core) if name in part.attributes]
    span = spans[0] if spans else core.where or Span(0, 0)
    return BoundExpr(node, render(node), frozenset({name}), frozenset(), span, frozenset({name}))
