"""DuckDB's SQL for units by groups: in how many of the groups units are. Trusted.

Guarantees:
    A unit adds 0 or 1 to each group, and 1 to at most m = `UnitGroups.most` of them; to add or to
    remove it with all of its rows changes nothing else.

    *Proof.* Rows are those of a relation, of which a unit may have any number: each has the id of
    one unit, and all that it has is a function of the rows of that unit (`engines/relations.py`).
    What is counted are pairs of an id and a number of a group, each once: the inner DISTINCT leaves
    one row for each, so that a unit adds one to a group or nothing, whatever its rows are, and
    whatever the lists of cells say. Where m is less than the number of groups, its pairs are
    numbered among those of its id alone, and those with numbers from 1 to m stay. ∎ Which these are
    depends on the id and on the groups that the unit is in, by the order of an MD5 of both: it is
    the same in each release, whatever the order of rows and the number of threads. As the MD5 of a
    pair may be that of another one, the group comes after it, and of one id no two pairs have the
    same one. Collisions do no harm.

All rows of a unit have a say, also those that are not among the `max_rows` that count where rows
are counted: a unit that is in a group is counted there, however many rows it has. Where rows are
looked at one by one, to be put in order (`duckdb/ranked.py`), they are those that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpsql.engines.base import Marginal, Measures, Units
from dpsql.engines.duckdb.bounded import in_order
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.columns import Parameters, source_of, whole
from dpsql.engines.duckdb.relations import kept_rows, rows_of_units
from dpsql.engines.duckdb.sums import RowSum
from dpsql.engines.others import unit_name
from dpsql.errors import InternalError
from dpsql.rel.distinct import ReadValue
from dpsql.rows.typed import call
from dpsql.schema.names import quoted_name
from dpsql.workload.unit_groups import GroupedCells, UnitGroups, groups_of

UnitScan = tuple[str, tuple[Any, ...], Mapping[Marginal, tuple[int, ...]]]
"""SQL, its parameters, and the marginal that is counted, with its shape."""


def count_units(coding: Coding, marginal: Marginal, units: Units, measures: Measures) -> UnitScan:
    """Write the statement that counts units by groups, as rows of (block, key, n).

    Args:
        coding: how rows get their cells.
        marginal: the groups, and what says that units are counted.
        units: in which groups they are.
        measures: what is computed row by row, of which one may be a condition.

    Raises:
        InternalError: the marginal has something else in it, or rows have no units.
    """
    (name,) = (name for name in marginal if name in units)
    if sorted(marginal) != sorted((name, groups_of(name))):
        raise InternalError("units are counted by their groups, and by nothing else")
    shape = tuple(1 if axis == name else units[name].count for axis in marginal)
    written = UnitsInGroups(coding, units[name], measures)
    sql = written.counts()  # which binds parameters
    return sql, tuple(written.parameters.values), {marginal: shape}


class UnitsInGroups:
    """Writes in which groups units have rows, perhaps with a value of each row.

    Args:
        coding: how rows get their cells.
        groups: the groups.
        measures: what is computed row by row, of which one may be a condition.
        value: what is computed of each row besides; rows without it are left out.
        of_rows: whether rows are looked at as they are, whose ever they are.
        ranked: how a value is written by which rows are put in order: then each row that counts is
            looked at, as where rows are counted, and not each group of a unit once.

    Raises:
        InternalError: rows have no units, or are not looked at as rows of these.
    """

    def __init__(
        self,
        coding: Coding,
        groups: UnitGroups,
        measures: Measures,
        value: ReadValue | None = None,
        *,
        of_rows: bool = False,
        ranked: str = "",
    ) -> None:
        if not ranked and (coding.table.unit is None) is not of_rows:
            raise InternalError("rows without units have no units that could be counted")
        self.parameters = Parameters()
        self._coding, self._groups, self._value = coding, groups, value
        self._shown = ranked or ("" if value is None else _bytes_of(value))
        self._once = "" if ranked else "DISTINCT "
        condition = measures[groups.condition] if groups.condition else None
        self._condition = None if condition is None else RowSum.made(condition)
        names = list(dict.fromkeys(a for block in groups.blocks for a in block.attributes))
        read = coding.read(names, [] if condition is None else [condition])
        read = list(dict.fromkeys([*read, *sorted(value.columns if value else ())]))
        self._unit = unit_name(coding.table)
        if coding.table.unit is None:
            columns = ", ".join(map(quoted_name, read)) or "0"
            self._rows = f"SELECT {columns} FROM {source_of(coding.table)}"
        elif ranked:
            self._rows = kept_rows(coding.table, read, self.parameters)
        else:
            self._rows = rows_of_units(coding.table, read, self._unit)
        self._told = [] if of_rows or ranked else ["u"]
        self._columns = {
            name: coding.column(name, f"{self._unit}_{i}") for i, name in enumerate(names)
        }

    def each(self) -> str:
        """Write the groups that units are in, each once; with each value that is there, if any.

        Of rows that are looked at one by one, the groups that each of them is in.
        """
        value = [] if self._value is None else ["c.v AS v"]
        shown = [*self._told, f"{self._group()} AS g", *value]
        return f"SELECT {self._once}{', '.join(shown)} FROM {self._joined()}"

    def counts(self) -> str:
        """Write a count of units: of all pairs of a unit and a group those that count, by groups.

        As many groups of a unit count as may; they are chosen by an order of its own.
        """
        pairs = self.each()
        if self._groups.most < self._groups.count:
            text = call("concat", "u::VARCHAR", "' '", "g::VARCHAR")
            order = in_order([call("md5_number", call("encode", text)), "g"])
            number = f"{call('row_number')} OVER (PARTITION BY u ORDER BY {order})"
            pairs = f"SELECT g FROM (SELECT g, {number} AS r FROM ({pairs})) "
            pairs += f"WHERE r <= {whole(self._groups.most, 'BIGINT')}"
        count = "system.main.count(*)"
        return f"SELECT 0 AS block, g AS key, {count} AS n FROM ({pairs}) GROUP BY g"

    def _group(self) -> str:
        """Write the number of a group: what its cells add up to."""
        group = whole(0, "BIGINT")
        for i in range(len(self._groups.blocks)):
            group = call("+", group, f"b{i}.g")
        return group

    def _joined(self) -> str:
        """Write the cells in which units have rows, with the groups that these are in."""
        source = f"({self._cells()}) AS c"
        for i, block in enumerate(self._groups.blocks):
            source += f" JOIN ({self._listed(i, block)}) AS b{i} ON c.c{i} = b{i}.c"
        return source

    def _listed(self, number: int, block: GroupedCells) -> str:
        """Write which cells are in which groups."""
        count = whole(len(block.cells), "BIGINT")
        at = np.arange(len(block.cells))
        if np.array_equal(block.cells, at) and np.array_equal(block.groups, at):
            return f"SELECT c, c AS g FROM system.main.range({count}) AS listed(c)"
        places = f"system.main.range({call('+', count, whole(1, 'BIGINT'))})"
        cells, groups = (
            f"{self.parameters.bind((kind, str(number)), listed.tolist())}::BIGINT[]"
            for kind, listed in (("cells", block.cells), ("groups", block.groups))
        )
        shown = f"{call('list_extract', cells, 'i')} AS c, {call('list_extract', groups, 'i')} AS g"
        return f"SELECT {shown} FROM {places} AS listed(i) WHERE i > {whole(0, 'BIGINT')}"

    def _cells(self) -> str:
        """Write in which cells units have rows that count, each once; or rows one by one."""
        codes = [f"{self._code(block)} AS c{i}" for i, block in enumerate(self._groups.blocks)]
        columns, unit = self._columns.values(), quoted_name(self._unit)
        told = [unit] if self._told else []
        shown = [*told, *(f"{c.stored(self.parameters)} AS {c.alias}" for c in columns)]
        codes = [f"{unit} AS u" for _ in told] + codes
        if self._value is not None:
            shown.append(f"{self._shown} AS {self._unit}_v")
            codes.append(f"{self._unit}_v AS v")
        inside = " AND ".join(column.inside(self.parameters) for column in columns) or "true"
        if self._condition is None:
            rows = f"SELECT {', '.join(shown) or '0'} FROM ({self._rows}) WHERE {inside}"
        else:
            value = f"{self._unit}_x"
            again = sorted(self._condition.read_again)
            shown += [self._condition.computed(value), *map(quoted_name, again)]
            rows = f"SELECT {', '.join(shown)} FROM ({self._rows}) WHERE {inside}"
            rows = f"SELECT * FROM ({rows}) WHERE ({self._condition.added(value)}) = 1"
        there = "" if self._value is None else f" WHERE {self._unit}_v IS NOT NULL"
        return f"SELECT {self._once}{', '.join(codes)} FROM ({rows}){there}"

    def _code(self, block: GroupedCells) -> str:
        """Write the number of a joint cell."""
        key = whole(0, "BIGINT")
        for name, size in zip(block.attributes, block.shape, strict=True):
            code = self._columns[name].code
            if name in self._coding.merged:
                code = self._coding.class_of(code, name, self.parameters)
            key = call("+", call("*", key, whole(size, "BIGINT")), code)
        return f"({key})::BIGINT"


def _bytes_of(read: ReadValue) -> str:
    """Write a value so that no two have the same bytes; zeros of a double and NaNs have no sign.

    NaNs have one where a processor makes them, of inf − inf for example.
    """
    value, type_ = read.value.sql, read.value.type.sql
    if read.value.type.is_float:
        alike = f"WHEN ({value}) = 0 THEN {whole(0, type_)}"
        alike += f" WHEN {call('isnan', value)} THEN 'nan'::{type_}"
        value = f"CASE {alike} ELSE ({value}) END"
    return call("encode", f"({value})::VARCHAR")
