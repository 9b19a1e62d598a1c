"""Keys that the statements of a script derive: the axes on which they lie, and which are found.

Of some keys nobody knows the values beforehand, but they can be found. Groups by one such column
have the values that were found of it. Groups by several have those lists of values that many units
have, which are found together as one text (`rows/found.py`): each value is then a function of that
text, and groups are its cells.

Expressions of one column that are known by where its value lies aren't keys of their own: the
column's line is, which is cut where one of them changes, and each is a function of it (see
`rows/key.py`). So there are no joint cells in which no row can be, and a strategy for fewer cells
is never worse: of any that measures them as attributes of their own, the columns of the cells that
rows can be in do the same on the line, at no larger sensitivity. And how a column is cut is a sum
of how it was cut before, with all these cuts, so that what was measured then goes together with it.

Where the line is cut is found first, in all statements, and in measurements of the past that are
to be used; then the statements are gone through once more, and expressions are written over it.
What each of them is in an interval is what its own SQL gives, evaluated by DuckDB in the sandbox
for values of the interval.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlglot import exp, parse_one

from dpsql.errors import SqlError, UnsupportedSqlError
from dpsql.rows.cuts import Cutter, Range, above, ends, has_places, moment_at, only_cycle, place
from dpsql.rows.expression import RowCast, RowColumn, RowConstant, RowExpression, columns
from dpsql.rows.found import FoundExpression, part_sql
from dpsql.rows.key import (
    MOST_INTERVALS,
    Axis,
    RowKey,
    cycle,
    line,
    line_name,
    looked_up_key,
    row_key,
    steps,
)
from dpsql.rows.times import meant
from dpsql.rows.typed import RowValue, text_of
from dpsql.rows.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    NANOSECONDS,
    TIMESTAMP,
    VARCHAR,
    RowType,
    row_type,
)
from dpsql.rows.write import RowWriter
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES, Cuts, Domain
from dpsql.schema.grain import declared_type
from dpsql.schema.names import quoted_name
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, render
from dpsql.sql.lowering.by_rows import long_columns
from dpsql.sql.lowering.lookups import constants_of
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.lowering.stored_values import read_type
from dpsql.sql.sandbox.database import Sandbox, SandboxError


class FoundGroups:
    """Says of which keys of groups values can be found, and which were.

    Args:
        reader: reads bound expressions as those of rows.
        table: the private table.
    """

    def __init__(self, reader: RowReader, table: Table) -> None:
        self._reader, self._table = reader, table

    def alone(self, bound: BoundExpr) -> FoundExpression | None:
        """Return an expression as one whose values can be found in the rows; None if they can't be.

        It is of stored columns alone of which nobody has declared anything.
        """
        reader, table = self._reader, self._table
        with suppress(SqlError):  # which will be told where it is lowered
            if self._has_keys(bound):
                expression = reader.expression(bound)
                if self._are_unknown(expression, table.undeclared.keys()):
                    with reader.at(bound.span):
                        return FoundExpression.of(expression, reader.types, table.filled)
        return None

    def part(self, bound: BoundExpr) -> FoundExpression | None:
        """Return an expression as one whose values can be found with others; None if they can't be.

        It is of columns of which nobody has declared anything, though values may have been found;
        and its own values aren't known by what it is.
        """
        filled, types = self._table.filled, self._types
        unknown = self._table.undeclared.keys() | self._table.learned
        with suppress(SqlError):  # which will be told where it is lowered
            if self._has_keys(bound):
                expression = self._reader.as_stored(bound)
                if self._are_unknown(expression, unknown):
                    with self._reader.at(bound.span):
                        if row_key(expression, types, filled) is None:
                            return FoundExpression.of(expression, types, filled, part=True)
        return None

    def together(self, parts: Sequence[FoundExpression]) -> FoundExpression:
        """Return several expressions as one whose values are found together."""
        return FoundExpression.together(parts, self._types)

    def key(self, found: FoundExpression) -> RowKey | None:
        """Return the key of an expression whose values were found in the rows; None if not."""
        domain = self._table.told.get(found.name)
        return None if domain is None else found.key(domain, self._types)

    def _has_keys(self, bound: BoundExpr) -> bool:
        return self._table.has_keys and not bound.relations and bound.node.find(exp.Query) is None

    def _are_unknown(self, expression: RowExpression, unknown: Set[str]) -> bool:
        """Whether an expression is of stored columns alone that are unknown, and tell no unit."""
        table, read = self._table, columns(expression)
        are_columns = all(self._reader.stored(name) == (table, name) for name in read)
        return are_columns and read <= unknown - table.joined and not table.tells_units(read)

    @property
    def _types(self) -> Mapping[str, str]:
        """The columns' types as they are stored, whether or not their values were found."""
        table = self._table
        return self._reader.types | {name: declared_type(table, name) for name in table.learned}


def part_of(text: Expr, domain: Domain, found: FoundExpression, part: FoundExpression) -> Expr:
    """Write one of several values that were found together, over the cells of their joined text.

    All that wasn't found has the label for others if it is a text, and is NULL if it is none.

    Args:
        text: the column of the text.
        domain: its values, with a label for others.
        found: the expressions of which they are values.
        part: one of these.
    """
    number = [one.name for one in found.parts].index(part.name)
    value = part_sql(render(text), number)
    if part.type == "DATE":
        value = f"DATE '1970-01-01' + TRY_CAST({value} AS INTEGER)"
    else:
        value = f"TRY_CAST({value} AS {part.type})"
    if part.own.sql != part.type:
        value = f"CAST({value} AS {part.own.sql})"
    label = exp.Literal.string(domain.other or "")
    is_other = exp.EQ(this=text.copy(), expression=label)
    other = label.copy() if part.type == "VARCHAR" else exp.Null()
    return exp.Case(
        ifs=[exp.If(this=is_other, true=other)], default=parse_one(value, dialect="duckdb")
    )


# ── The axes on which keys lie ──


MOST_COMPARED = 1_000
"""Public values with which something is compared row by row."""
_CANONICAL = re.compile(r"__([aws])([0-9]+)")
NO_CUTS: Mapping[str, Cuts] = MappingProxyType({})
Ranges = Mapping[str, Range]
"""Column → the places to which conditions restrict it."""


@dataclass(frozen=True, slots=True)
class OnAxis:
    """An expression that is a function of an axis, in some of its cells."""

    column: str
    cuts: frozenset[int] | None
    """The cuts of the column's line; None if it is a part of a time that comes again."""
    within: Range | None = None
    """The places of which it is known; None if it is known of all."""
    part: str = ""
    """The part of a time."""


class DerivedKeys:
    """The keys of one table that the statements of a script derive.

    Args:
        table: the table, with the columns that are stored in it.
        sandbox: where public tables are.
        cuts: line → where it is cut besides.
        lined: columns of which something is asked along their line, if that was found before.
    """

    def __init__(
        self,
        table: Table,
        sandbox: Sandbox,
        cuts: Mapping[str, Cuts] = NO_CUTS,
        lined: frozenset[str] | None = None,
    ) -> None:
        self.stored, self.sandbox = table, sandbox
        long = {name: read_type(table.columns[name]) for name in sorted(long_columns(table))}
        self.types = {**table.undeclared, **long}
        """The columns that have lines → their types."""
        self.keys: dict[str, RowKey] = {}
        """Name → key, in the order of their numbers, which come after those of the columns."""
        self.lined = lined or frozenset()
        self._settled = lined is not None
        self._used: set[str] = set()
        self._cuts = {name: set(known) for name, known in cuts.items()}
        self._axes: dict[str, Axis] = {}

    @property
    def table(self) -> Table:
        """The table with a domain for each of the keys."""
        domains = {name: key.domain for name, key in self.keys.items()}
        return self.stored.deriving(domains, {n: key.digest for n, key in self.keys.items()})

    @property
    def has_lines(self) -> bool:
        """Whether something is asked along the line of a column."""
        return bool(self._used)

    def settled(self) -> DerivedKeys:
        """Return that nothing is derived yet, and all cuts are known."""
        cuts = {name: tuple(sorted(known)) for name, known in self._cuts.items()}
        return DerivedKeys(self.stored, self.sandbox, cuts, frozenset(self._used))

    def number(self, key: RowKey) -> int:
        """Return the number under which expressions name a key."""
        self.keys.setdefault(key.name, key)
        return len(self.stored.columns) + list(self.keys).index(key.name)

    def typed(self, key: RowKey) -> Expr:
        """Write the column of a key, in the type that its expression has."""
        place = column(f"__a{self.number(key)}")
        if key.type.sql == key.domain.type:
            return place
        return exp.Cast(this=place, to=_sql_type(key.type))

    def over_cells(self, bound: BoundExpr, node: Expr) -> BoundExpr | None:
        """Bind an expression some parts of which are keys now; None if not all could be.

        Args:
            bound: what it was.
            node: what it is, over canonical names.
        """
        named = [_CANONICAL.fullmatch(part.name) for part in node.find_all(exp.Column)]
        numbers = {(place[1], int(place[2])) for place in named if place is not None}
        if any(kind != "a" for kind, _ in numbers):
            return None
        attributes = frozenset(self.name(number) for _, number in numbers)
        return replace(
            bound, node=node, sql=render(node), attributes=attributes, by_row=frozenset()
        )

    def domain_size(self, name: str) -> int:
        """Return how many values a column or a key has."""
        known = self.keys[name].domain if name in self.keys else self.stored.columns[name]
        return known.size

    def name(self, number: int) -> str:
        """Return the column or the key that expressions name by a number."""
        return [*self.stored.columns, *self.keys][number]

    # ── axes ───────────────────────────────────────────────────────────────────────────────

    def on_axis(self, expression: RowExpression, ranges: Ranges) -> OnAxis | None:
        """Say on which axis an expression lies; None if on none.

        Args:
            expression: what is computed of a row.
            ranges: to which conditions restrict columns.
        """
        read = columns(expression)
        if len(read) != 1:
            return None
        (name,) = read
        declared = self.types.get(name)
        if declared is None or self._is_taken(self.line_of(name)):
            return None
        try:
            type_ = row_type(declared)
        except UnsupportedSqlError:
            return None
        column = RowColumn(name)
        if has_places(type_):
            on_line = self._on_line(expression, column, type_, ranges)
            if on_line is not None:
                return on_line
        # Nanoseconds are rounded by some functions, and cut off by others: no one value of a part
        # stands for all.
        part = only_cycle(expression, column) if type_.is_time and type_ != NANOSECONDS else ""
        return OnAxis(name, None, part=part) if part else None

    def line_of(self, name: str) -> str:
        """Return the name of the line of a column."""
        return line_name(name, self.types[name])

    def over(self, expression: RowExpression, place: OnAxis) -> Expr | None:
        """Write an expression over its axis; None if it is no function of it to group by.

        One that has the same value in all cells would be a constant, which reads no key: groups by
        it would lie on none.
        """
        axis = self._axis(place)
        if axis is None:
            return None
        written = RowWriter(self.types).write(expression)
        if place.cuts is not None:
            self._used.add(place.column)
        if not self._settled and place.cuts is not None:  # only where it is cut matters
            return exp.Cast(this=self._column(axis), to=_sql_type(written.type))
        values = self._values(written, place, axis)
        if values is None or len(set(values)) == 1:
            return None
        return _chosen(self._column(axis), axis, values, written.type)

    def listed(
        self, expression: RowExpression, types: Mapping[str, str], queries: Sequence[str]
    ) -> Expr | None:
        """Write one text for all that equal none of the texts of some queries; see `steps`."""
        values = self._compared(queries)
        if values is None or any(k != "VARCHAR" and k[:5] != "ENUM(" for k, _ in values):
            return None
        key = looked_up_key(expression, types, sorted({text for _, text in values}), apart=True)
        return None if key is None or self._is_taken(key.name) else self.typed(key)

    def _compared(self, queries: Sequence[str]) -> set[tuple[str, str]] | None:
        """Return the types and the texts of public values; None if they are too many."""
        constants = [constants_of(self.sandbox, query, MOST_COMPARED) for query in queries]
        values = {value for listed in constants for value in listed or ()}
        return None if None in constants or len(values) > MOST_COMPARED else values

    def steps(
        self,
        expression: RowExpression,
        type_: RowType,
        types: Mapping[str, str],
        queries: Sequence[str],
    ) -> Expr | None:
        """Write one value for all that no comparison with public values tells apart.

        Args:
            expression: what is compared.
            type_: its type.
            types: those of columns.
            queries: these return the values.

        Returns:
            None if it isn't known where comparisons change, or they do at too many values.

        Raises:
            SqlError: the expression can't be written.
            SandboxError: DuckDB refuses a query.
        """
        values = self._compared(queries)
        compared = _compared_as(type_, {kind for kind, _ in values or ()})
        if values is None or not has_places(compared):
            return None
        cuts = set[int]()
        for kind, text in values:
            marks = _marks(kind, text, compared)
            if marks is None:
                return None
            cuts.update(marks)
        if compared != type_:
            expression, type_ = RowCast(expression, compared), compared
        axis = steps(expression, types, type_, sorted(cuts))
        if self._is_taken(axis.key.name):
            return None
        return _chosen(self._column(axis), axis, [cell[0] for cell in axis.cells], type_)

    def _column(self, axis: Axis) -> Expr:
        return column(f"__a{self.number(axis.key)}")

    def _is_taken(self, name: str) -> bool:
        """Whether a column has a name."""
        return name in self.stored.columns or name in self.stored.undeclared

    def _on_line(
        self, expression: RowExpression, own: RowColumn, type_: RowType, ranges: Ranges
    ) -> OnAxis | None:
        cutter = Cutter(own, type_)
        within: Range | None = None
        found = cutter.cuts_of(expression, cutter.everything)
        if found is None and own.name in ranges:
            within = ranges[own.name]
            found = cutter.cuts_of(expression, within)
        if found is None:
            return None
        known = self._cuts.setdefault(self.line_of(own.name), set())
        if len(known | found) >= MOST_INTERVALS or (self._settled and not found <= known):
            return None
        known |= found
        return OnAxis(own.name, found, within)

    def _axis(self, place: OnAxis) -> Axis | None:
        """Return an axis with all of its cells, or as many as are known yet."""
        declared, filled = self.types, self.stored.filled
        if place.cuts is None:
            key = cycle(place.column, declared, place.part, filled)
            return None if key is None or self._is_taken(key.key.name) else key
        name = self.line_of(place.column)
        if name not in self._axes or not self._settled:
            nullable = place.column not in filled
            cuts = sorted(self._cuts[name])
            self._axes[name] = line(place.column, declared[place.column], cuts, nullable=nullable)
        return self._axes[name]

    def _values(self, written: RowValue, place: OnAxis, axis: Axis) -> list[str | None] | None:
        """Evaluate an expression for values of each cell.

        Returns:
            For each cell its value, as text; None if some values of one cell differ.
        """
        tried = [(i, value) for i, values in enumerate(axis.cells) for value in values]
        listed = ", ".join(f"({i}, {'NULL' if v is None else text_of(v)})" for i, v in tried)
        type_ = row_type(self.types[place.column]).sql
        cell, name = quoted_name(f"_{place.column}"), quoted_name(place.column)  # never the same
        query = (
            f"SELECT {cell}, CAST({written.sql} AS VARCHAR) FROM (SELECT {cell}, CAST(v AS {type_})"
            f" AS {name} FROM (VALUES {listed}) AS x({cell}, v))"
        )
        values_of_cells: list[set[str | None]] = [set() for _ in axis.cells]
        try:
            for i, value in self.sandbox.rows(query):
                values_of_cells[int(i)].add(value)
        except SandboxError:
            return None
        for i in self._outside(place, axis):
            values_of_cells[i] = {None}
        if any(len(values) != 1 for values in values_of_cells):
            return None
        return [values.pop() for values in values_of_cells]

    def _outside(self, place: OnAxis, axis: Axis) -> list[int]:
        """Return the intervals in which an expression isn't known, and not asked for."""
        if place.within is None:
            return []
        low, high = place.within
        least, _ = ends(row_type(self.types[place.column]))
        firsts = [least, *sorted(self._cuts[axis.key.name])]
        return [i for i, first in enumerate(firsts) if not low <= first < high]


def _chosen(here: Expr, axis: Axis, values: Sequence[str | None], type_: RowType) -> Expr:
    """Write which value there is in each cell."""
    domain = axis.key.domain
    cells = [str(cell) for cell in domain.values]
    branches = []
    if domain.nullable:
        is_null = exp.Is(this=here.copy(), expression=exp.Null())
        branches.append(exp.If(this=is_null, true=_constant(values[-1], type_)))
    for i, cell in enumerate(cells[:-1]):
        if values[i] != values[i + 1]:
            until = exp.LTE(this=here.copy(), expression=exp.Literal.number(cell))
            branches.append(exp.If(this=until, true=_constant(values[i], type_)))
    last = _constant(values[len(cells) - 1], type_)
    return exp.Case(ifs=branches, default=last) if branches else last


def _compared_as(type_: RowType, kinds: Set[str]) -> RowType:
    """Return the type in which DuckDB compares values of a type with others, where it has places.

    Args:
        type_: the type.
        kinds: those of the others.
    """
    if type_ == DATE and "TIMESTAMP" in kinds:
        return TIMESTAMP
    floats = type_.name == "DECIMAL" and kinds == {"DOUBLE"}
    return DOUBLE if floats or (type_ == FLOAT and kinds <= {"FLOAT", "DOUBLE"}) else type_


def _marks(kind: str, text: str, type_: RowType) -> list[int] | None:
    """Return the places at which a comparison with a value changes; None if that isn't known."""
    kind = kind.partition("(")[0]
    whole = kind in INTEGER_TYPES | {"HUGEINT"} or (kind == "DECIMAL" and "." not in text)
    kind = "INTEGER" if whole else kind
    if kind == "FLOAT" and type_ == DOUBLE:
        kind = "DOUBLE"
    try:
        value = meant(text, type_) if kind == "VARCHAR" else RowConstant(kind, text)
    except UnsupportedSqlError:
        return None
    both = place(value, type_), above(value, type_)
    least, most = ends(type_)
    cuts = [cut for cut in both if cut is not None and least < cut <= most]
    sides = [side for cut in cuts for side in (cut - 1, cut)] if type_.is_time else []
    far = any(moment_at(side, type_) is None for side in sides)
    return None if far or None in both else cuts


def _constant(value: str | None, type_: RowType) -> Expr:
    if value is None:
        return exp.Cast(this=exp.Null(), to=_sql_type(type_))
    if type_ == BOOLEAN:
        return exp.Boolean(this=value == "true")
    text = exp.Literal.string(value)
    return text if type_ == VARCHAR else exp.Cast(this=text, to=_sql_type(type_))


def _sql_type(type_: RowType) -> exp.DataType:
    name = "INTEGER" if type_.name == "NULL" else type_.sql
    return exp.DataType.build(name, dialect="duckdb")
