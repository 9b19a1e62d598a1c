"""The coding of rows: columns, classes of cells, and keys that are computed of a row.

The sums of their values in a cell are written here, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import LOW_BITS, Keys, Marginal, Merged, cells_counted, columns_read
from dpsql.engines.codes import runs_of
from dpsql.engines.cover import MOST_SUM
from dpsql.engines.duckdb.columns import (
    CodedColumn,
    Parameters,
    class_listed,
    class_type,
    whole,
)
from dpsql.engines.duckdb.sums import RowSum
from dpsql.rows.measure import RowMeasure
from dpsql.rows.typed import call, constant_of, number_of
from dpsql.rows.types import BOOLEAN, RowType
from dpsql.schema import Table
from dpsql.schema.names import quoted_name

_MANY_CLASSES = 4096
"""Cells from which on their classes are told by the ends of few runs."""
MOST_STORED = 500
"""Groups of stored values, of which there may be more than cells: more take longer than to have
each row find its class."""
MOST_FEW = 8
"""Values for which a row is looked at while others are added up, in place of groups."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Grouping of a block: by what is stored, or by classes of that.

    Args:
        groups: how many there are at most.
        led: attribute → SQL of its class, of the columns of a row.
        classed: attributes whose class is made of what is stored, before rows are grouped. Of all
            others what is stored is grouped by.
    """

    groups: int
    led: Mapping[str, str]
    classed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Coding:
    """The coding of rows: columns, classes of cells, and keys that are computed of a row."""

    table: Table
    merged: Merged = field(default_factory=dict)
    keys: Keys = field(default_factory=dict)
    _led: dict[str, str | None] = field(default_factory=dict, init=False, compare=False, repr=False)

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
        runs = runs_of(classes)
        if len(classes) < _MANY_CLASSES or runs is None:
            return f"{class_listed(code, classes, name, parameters)}::BIGINT"
        cases = (
            f"WHEN {code} <= {whole(end, 'BIGINT')} THEN {whole(class_, 'BIGINT')}"
            for end, class_ in runs
        )
        return f"CASE {' '.join(cases)} END"

    def led(self, name: str) -> str | None:
        """Write the class of a row's cell by the conditions of a key alone, if it is a key of such.

        There is no value of the key then, which would have to be looked for in its domain.
        """
        if name in self.keys and name not in self._led:  # it is asked for for each block
            classes = self.classes(name)
            type_ = RowType(class_type(classes))
            led = self.keys[name].leading_to([number_of(int(i), type_) for i in classes])
            self._led[name] = None if led is None else led.sql
        return self._led.get(name)

    def grouping(self, block: Marginal) -> Grouping:
        """Choose what a block is grouped by.

        What is stored is grouped by fastest, and its few groups get their classes afterwards. Where
        it is of many values together, rows get their classes first, so that there are no more
        groups than cells.
        """
        led = {name: sql for name in block if (sql := self.led(name)) is not None}
        places = {name: self.column(name, "").values for name in block if name not in led}
        gains = {name: places[name] / max(self.size(name), 1) for name in places}
        groups = math.prod(places.values()) * math.prod(self.size(name) for name in led)
        classed: list[str] = []
        for name in sorted(gains, key=gains.__getitem__, reverse=True):
            if groups <= MOST_STORED or gains[name] <= 1:
                break
            groups = groups // places[name] * self.size(name)
            classed.append(name)
        return Grouping(groups, led, frozenset(classed))

    def class_of_row(self, column: CodedColumn, name: str, parameters: Parameters) -> str:
        """Write the class of the cell of a row, given what is stored of it."""
        return column.class_of(self.classes(name), parameters)

    def classes(self, name: str) -> NDArray[np.int64]:
        """Return the class of each cell: itself, if none are merged."""
        return self.merged.get(name, np.arange(self.table.cells(name)))

    def truth(self, marginal: Marginal) -> str | None:
        """Return the one key of a marginal that is of two cells, one of which has a few values."""
        few = [name for name in marginal if self._few(name)[1]]
        return few[0] if len(few) == 1 else None

    def true(self, name: str) -> int:
        """Return the cell of these values."""
        return self._few(name)[0]

    def condition(self, name: str) -> str:
        """Write that a row has one of a key's few values; not true where the key is NULL."""
        value, (true, few) = f"({self.keys[name].value.sql})", self._few(name)
        truths = [
            constant_of("true" if i == true else "false", BOOLEAN) for i in self.classes(name)
        ]
        if (led := self.keys[name].leading_to(truths)) is not None:
            return led.sql
        if self.table.columns[name].type == BOOLEAN.name:
            both = f"({value} IS NOT NULL)"
            return both if len(few) == 2 else value if few == [True] else f"(NOT {value})"
        return f"({value} IN ({', '.join(whole(known, 'BIGINT') for known in few)}))"

    def counted(self, name: str) -> str:
        """Name the expression that isn't NULL in just the rows with one of a key's few values."""
        presence = self.keys[name].presence
        alike = presence is not None and presence.values == frozenset(self._few(name)[1])
        return presence.of if presence is not None and alike else ""

    def _few(self, name: str) -> tuple[int, list[int]]:
        """Return a cell without NULL, and its values; none if that is not how a key is counted."""
        domain = self.table.columns[name]
        if name not in self.keys or self.size(name) != 2:
            return 0, []
        cells = self.classes(name)
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
    prefix: str,
    parameters: Parameters,
) -> str:
    """Give rows the numbers of the cells that they are in, or -1 where they are in none.

    Args:
        source: what stands after FROM.
        coding: how they get their cells; none are merged here.
        named: attributes; their cells are in `c0`, `c1` and so on.
        read: the other columns that are read.
        prefix: what the names of cells begin with, and those of no other column.
        parameters: what the query's parameters are among.
    """
    stored, cells = list[str](), list[str]()
    for i, name in enumerate(named):
        column, inside = coding.column(name, f"{prefix}k{i}"), f"{prefix}i{i}"
        if (led := replace(coding, merged={}).led(name)) is not None:
            stored.append(f"{led} AS {prefix}k{i}")
            cells.append(f"{prefix}k{i} AS {prefix}c{i}")
            continue
        stored.append(f"{column.stored(parameters)} AS {column.alias}")
        stored.append(f"({column.inside(parameters)}) IS TRUE AS {inside}")
        cells.append(
            f"CASE WHEN {inside} THEN {column.code} ELSE {whole(-1, 'BIGINT')} END AS {prefix}c{i}"
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
