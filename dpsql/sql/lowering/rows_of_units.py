"""Values computed from rows of the same unit, as SQL for the private connection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError
from dpsql.rows import expression as row
from dpsql.rows.steps import in_steps, scale_of
from dpsql.rows.types import DOUBLE
from dpsql.rows.windows import (
    CHOSEN,
    SHIFTED,
    RowsWindow,
    WindowCall,
    WindowOrder,
    of_rows,
    rows_window,
)
from dpsql.rows.within import RowsWithin, rows_within
from dpsql.schema import Table
from dpsql.schema.grain import beside, stored_type, with_computed
from dpsql.schema.names import capitals
from dpsql.schema.windows import OUTSIDE
from dpsql.sql.binding.expressions import BoundExpr, named_by, render
from dpsql.sql.binding.tables import (
    AROUND,
    AddedRows,
    NamedTables,
    RowsOfUnit,
    UnitRows,
    UnitWindow,
    WindowSort,
)
from dpsql.sql.binding.units.group import SUMS
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.stored_values import clamped, number
from dpsql.sql.sandbox.database import Sandbox

if TYPE_CHECKING:
    from dpsql.rel.added import AddedColumn

_ONE_OF = frozenset({*SHIFTED, *CHOSEN, "min", "max"})
"""Windows that are a value of one of the rows."""
_MOST_LABELS = 100


class RowsOfUnits:
    """Writes what the statements of a script compute of rows of the same unit.

    Args:
        tables: what their names of tables mean.
        sandbox: reads SQL.
    """

    def __init__(self, tables: NamedTables, sandbox: Sandbox) -> None:
        self._tables, self._sandbox = tables, sandbox
        self._made: dict[tuple[str, ...], list[RowsWithin | RowsWindow | AddedColumn]] = {}

    def of(self, table: Table) -> Table:
        """Give a table the columns that are computed of other rows of the same unit.

        Raises:
            SqlError: one can't be evaluated row by row.
        """
        if not self._made:
            for rows in self._tables.rows_of_units:  # each after what it needs
                self._made.setdefault(rows.around.path, []).append(self._within(rows))
        return self._so_far(table)

    def _so_far(self, table: Table) -> Table:
        """Give a table those of its columns that are written."""
        if table.chosen is not None:
            whole = self._so_far(table.whole)
            return replace(whole, path=table.path, unit=table.unit, chosen=table.chosen)
        made = self._made.get(table.path)
        return table if made is None else with_computed(self._tables.grain(table), made)

    def _within(self, rows: RowsOfUnit) -> RowsWithin | RowsWindow | AddedColumn:
        if isinstance(rows, AddedRows):
            return rows.column
        try:
            return self._window(rows) if isinstance(rows, UnitWindow) else self._written(rows)
        except SqlError as error:
            if error.span is not None:
                raise
            raise rows.source.error(rows.span, error.message, error.hint, type(error)) from None
        except SchemaError as error:
            raise rows.source.located(error, rows.span) from None

    def _written(self, rows: UnitRows) -> RowsWithin:
        table, around = self._so_far(rows.table), self._so_far(rows.around)
        made = self._made.get(around.path, ())
        own = [replace(one, name=OUTSIDE + one.name) for one in made if isinstance(one, RowsWithin)]
        read = beside(table, around, own)
        places = {
            f"{AROUND}a{i}": f"__a{len(table.columns) + i}" for i in range(len(around.columns))
        }
        places |= {
            f"{AROUND}w{i}": f"__w{len(table.undeclared) + i}"
            for i in range(len(around.undeclared))
        }
        reader = RowReader(self._sandbox, read, rows.source)
        holds = [reader.expression(_placed(one, places)) for one in rows.conditions]
        value = None if rows.value is None else reader.expression(_placed(rows.value, places))
        types = dict(read.undeclared) | {name: stored_type(read, name) for name in read.columns}
        condition, scale = row.all_if_any(holds), None
        if value is not None and rows.value is not None:
            value, scale = _added(rows.function, value, rows.value, reader)
        found = rows_within(rows.name, table, rows.pairs, (rows.function, value), condition, types)
        given = (None, None) if value is None else reader.between([value])
        between = of_rows(rows.function, given, _most(table))
        found = replace(found, between=between, scale=scale)
        if any(one.name in found.outside for one in made if isinstance(one, RowsWindow)):
            raise rows.source.unsupported(
                rows.span,
                "A subquery over private rows can't use a window of the row outside it.",
                "compute the window first, in a query after FROM: FROM (SELECT *, … OVER (…) AS n "
                "FROM …).",
            )
        return found

    def _window(self, rows: UnitWindow) -> RowsWindow:
        table = self._so_far(rows.around)
        reader = RowReader(self._sandbox, table, rows.source)
        types = dict(table.undeclared) | {name: stored_type(table, name) for name in table.columns}
        holds = [reader.expression(one) for one in rows.conditions]
        arguments, scale = tuple(map(reader.expression, rows.arguments)), None
        if arguments:
            first, scale = _added(rows.function, arguments[0], rows.arguments[0], reader)
            arguments = (first, *arguments[1:])
        asked = WindowCall(
            rows.function,
            arguments,
            rows.numbers,
            tuple(map(reader.expression, rows.partition)),
            tuple((name, stored_type(table, name)) for name in rows.told),
            tuple(_sorted(one, table, reader) for one in rows.order),
            rows.frame,
            row.all_if_any(holds),
            _labels(rows, table),
            _ends(rows, reader),
            of_rows(rows.function, reader.between(arguments), _most(table)),
            scale,
        )
        return rows_window(rows.name, asked, types)


def _added(
    function: str, value: row.RowExpression, bound: BoundExpr, reader: RowReader
) -> tuple[row.RowExpression, int | None]:
    """Return what is added up of each row, in integers where it is a double, and their scale.

    Raises:
        SqlSchemaError: it is a double without public bounds.
    """
    if function not in SUMS:
        return value, None
    type_ = reader.type_of(bound)
    if not type_.is_float:
        return value, None
    value, (low, high) = reader.bounded(bound)
    scale = scale_of((low, high))
    if scale is None:
        return value, None
    inside = clamped(row.RowCast(value, DOUBLE), number(low), number(high))
    return in_steps(inside, scale), scale


def _most(table: Table) -> int | None:
    """Return how many rows of a unit count; None if nobody says so."""
    return None if table.unit is None else table.unit.max_rows


def _labels(rows: UnitWindow, table: Table) -> tuple[str, ...]:
    """Return all texts that a window can be, if it is one of those of columns with few of them."""
    if rows.function not in _ONE_OF:
        return ()
    found = [_texts(one.node, table) for one in rows.arguments]
    return tuple(dict.fromkeys(text for texts in found for text in texts)) if all(found) else ()


def _texts(node: exp.Expr, table: Table) -> list[str]:
    """Return all texts that a constant or a column can be; none if they aren't known."""
    if isinstance(node, exp.Literal) and node.is_string:
        return [node.name]
    if not isinstance(node, exp.Column) or not node.name.startswith("__a"):
        return []
    domain = table.columns[named_by(node.name, table)]
    values = [] if len(domain.values) > _MOST_LABELS else [*domain.values, domain.other]
    return [value for value in values if isinstance(value, str)]


def _ends(rows: UnitWindow, reader: RowReader) -> tuple[int, int] | None:
    """Return between which numbers a window is, if it is one of numbers with bounds."""
    if rows.function not in _ONE_OF:
        return None
    try:
        exact = all(reader.type_of(one).is_exact for one in rows.arguments)
        known = [reader.known(one)[1] for one in rows.arguments] if exact else []
    except SqlError:
        return None
    least = [low for low, _ in known if low is not None]
    most = [high for _, high in known if high is not None]
    if not least or len(least) + len(most) < 2 * len(rows.arguments):
        return None
    return math.floor(min(least)), math.ceil(max(most))


def _sorted(one: WindowSort, table: Table, reader: RowReader) -> WindowOrder:
    """Read what rows are sorted by; an ENUM has an order of its own."""
    node = one.value.node
    if isinstance(node, exp.Column):
        name = named_by(node.name, table)
        if capitals(stored_type(table, name)).startswith("ENUM"):
            found = row.RowColumn(name)
            return WindowOrder(found, one.descending, one.nulls_first, stored=True)
    return WindowOrder(reader.expression(one.value), one.descending, one.nulls_first)


def _placed(bound: BoundExpr, places: Mapping[str, str]) -> BoundExpr:
    """Name columns of the row that it is for as they are called beside the others."""
    node = bound.node.copy()
    for part in [part for part in node.find_all(exp.Column) if part.name in places]:
        part.this.set("this", places[part.name])
    return replace(bound, node=node, sql=render(node))
