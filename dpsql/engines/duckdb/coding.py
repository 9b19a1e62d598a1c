"""How rows get their cells: columns, classes of cells, and keys that are computed of a row.

And what their values add up to in a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpsql.engines.base import LOW_BITS, Keys, Marginal, Merged, cells_counted, columns_read
from dpsql.engines.cover import MOST_SUM
from dpsql.engines.duckdb.columns import CodedColumn, Parameters, call, whole
from dpsql.engines.duckdb.sums import RowSum
from dpsql.rows.measure import RowMeasure
from dpsql.rows.types import BOOLEAN
from dpsql.schema import Table
from dpsql.schema.names import quoted_name

_FEW_RUNS = 32
_MANY_CLASSES = 4096
"""Cells from which on their classes are told by the ends of few runs."""
MOST_FEW = 8
"""Values for which a row is looked at while others are added up, in place of groups."""


@dataclass(frozen=True, slots=True)
class Coding:
    """How rows get their cells: columns, classes of cells, and keys that are computed of a row."""

    table: Table
    merged: Merged = field(default_factory=dict)
    keys: Keys = field(default_factory=dict)

    def size(self, name: str) -> int:
        """Return into how many cells, or classes of them, an attribute is counted."""
        return cells_counted(self.table, name, self.merged)

    def column(self, name: str, alias: str) -> CodedColumn:
        """Return the SQL for one attribute."""
        value = f"({self.keys[name].value.sql})" if name in self.keys else quoted_name(name)
        domain, leaves_out = self.table.columns[name], self.table.leaves_out(name)
        return CodedColumn(value, alias, domain, leaves_out=leaves_out)

    def class_of(self, code: str, name: str, parameters: Parameters) -> str:
        """Write the class of a cell, by a list, or by the ends of runs of one class.

        A list of millions of cells takes seconds to bind, and as many to search.
        """
        classes = self.merged[name]
        ends = [*np.flatnonzero(np.diff(classes)).tolist(), len(classes) - 1]
        if len(classes) < _MANY_CLASSES or len(ends) > _FEW_RUNS:
            listed = parameters.bind(("classes", name), classes.tolist())
            place = call("+", code, whole(1, "BIGINT"))
            return call("list_extract", f"{listed}::BIGINT[]", place)
        runs = (
            f"WHEN {code} <= {whole(end, 'BIGINT')} THEN {whole(int(classes[end]), 'BIGINT')}"
            for end in ends
        )
        return f"CASE {' '.join(runs)} END"

    def truth(self, marginal: Marginal) -> str | None:
        """Return the one key of a marginal that is of two cells, one of which has a few values."""
        found = [name for name in marginal if self._few(name)[1]]
        return found[0] if len(found) == 1 else None

    def true(self, name: str) -> int:
        """Return the cell of these values."""
        return self._few(name)[0]

    def condition(self, name: str) -> str:
        """Write that a row has one of these values; it is not true where the key is NULL."""
        value, (_, few) = f"({self.keys[name].value.sql})", self._few(name)
        if self.table.columns[name].type == BOOLEAN.name:
            both = f"({value} IS NOT NULL)"
            return both if len(few) == 2 else value if few == [True] else f"(NOT {value})"
        return f"({value} IN ({', '.join(whole(known, 'BIGINT') for known in few)}))"

    def counted(self, name: str) -> str:
        """Name the expression that is there in just the rows that have one of these values."""
        presence = self.keys[name].presence
        alike = presence is not None and presence.values == frozenset(self._few(name)[1])
        return presence.of if presence is not None and alike else ""

    def _few(self, name: str) -> tuple[int, list[int]]:
        """Return a cell without NULL, and its values; none if that is not how a key is counted."""
        domain = self.table.columns[name]
        if name not in self.keys or self.size(name) != 2:
            return 0, []
        cells = self.merged.get(name, np.arange(self.table.cells(name)))
        rest = len(cells) > len(domain.values)  # the last cell is of NULL, or of other values
        true = 1 - int(cells[-1]) if rest else 1
        pairs = zip(domain.values, cells, strict=False)
        few = [value for value, cell in pairs if cell == true]
        whole_numbers = [value for value in few if isinstance(value, int)]
        good = len(few) <= MOST_FEW and len(whole_numbers) == len(few)
        return (true, whole_numbers) if good else (0, [])

    def read(self, names: Iterable[str], measures: Iterable[RowMeasure]) -> list[str]:
        """List the columns of the table that attributes and measures are made of."""
        return columns_read(self.table, names, measures, self.keys)


def with_cells(
    source: str,
    coding: Coding,
    named: Sequence[str],
    read: Sequence[str],
    own: str,
    parameters: Parameters,
) -> str:
    """Give rows the numbers of the cells that they are in, or -1 where they are in none.

    Args:
        source: what stands after FROM.
        coding: how they get their cells; none are merged here.
        named: attributes; their cells are in `c0`, `c1` and so on.
        read: the other columns that are read.
        own: what the names of cells begin with, and those of no other column.
        parameters: what the query's parameters are among.
    """
    stored, cells = list[str](), list[str]()
    for i, name in enumerate(named):
        column, inside = coding.column(name, f"{own}k{i}"), f"{own}i{i}"
        stored.append(f"{column.stored(parameters)} AS {column.alias}")
        stored.append(f"({column.inside(parameters)}) IS TRUE AS {inside}")
        cells.append(
            f"CASE WHEN {inside} THEN {column.code} ELSE {whole(-1, 'BIGINT')} END AS {own}c{i}"
        )
    for computed in (stored, cells):  # a cell's code is made of what is stored for it
        source = f"(SELECT {', '.join([*read, *computed])} FROM {source})"
    return source[1:-1]


def words_of(value: RowSum, summed: str, count: str) -> tuple[str, str]:
    """Write both words of the sum of a measure over the rows of a cell; neither ever fails.

    It is brought between ±2^90: where it isn't there already, of more than 2^59 rows, that costs
    accuracy and not privacy, because two sums that differ by d differ by d at most then (see
    `cover.py`). Then 2^90 is put to it, so that nothing is negative; of the higher word it is taken
    off again.
    """
    ends = whole(-MOST_SUM), whole(MOST_SUM)
    total = call("least", call("greatest", value.total(summed, count), ends[0]), ends[1])
    positive = call("+", total, whole(MOST_SUM))
    high = call("-", call(">>", positive, whole(LOW_BITS)), whole(MOST_SUM >> LOW_BITS))
    low = call("&", positive, whole((1 << LOW_BITS) - 1))
    return f"{high}::BIGINT", f"{low}::BIGINT"
