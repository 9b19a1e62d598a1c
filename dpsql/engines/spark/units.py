"""Spark's SQL for units by groups: in how many of the groups units are. Trusted.

Guarantees:
    A unit adds 0 or 1 to each group, and 1 to at most m = `UnitGroups.most` of them; to add or to
    remove it with all of its rows changes nothing else.

    *Proof.* The rule is that of `engines/duckdb/units.py`. Rows are those of a relation, of
    which a unit may have any number: each has the id of one unit, and all that it has is a function
    of the rows of that unit (`engines/relations.py`). What is counted are pairs of an id and a
    number of a group: `distinct` leaves one row for each. Where m is less than the number of
    groups, pairs are numbered by a window that is PARTITION BY the id, and those with numbers from
    1 to m stay. Their order is that of an MD5 of id
    and group, as DuckDB has it, and then of the group, which of one id no two pairs have: so the
    numbers follow from the unit's own groups, also if a part of the job runs again. They are INTs,
    which begin again below zero behind 2^31 - 1: there are no 2^32 groups, as their counts are held
    in memory. ∎

    Nothing fails: cells are codes of `columns.py`, looked up in lists that are constants; a place
    that a list hasn't is NULL, and is in no group. Groups are below 2^62, so sums don't overflow.

All rows of a unit have a say, also those that are not among the `max_rows` that count where rows
are counted: a unit that is in a group is counted there, however many rows it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.arrow import numbers
from dpsql.engines.base import Counts, Marginal, Merged, Wanted, cells_counted
from dpsql.engines.cover import tally
from dpsql.engines.others import unit_name
from dpsql.engines.spark.bounded import text_of_id
from dpsql.engines.spark.coding import ComputedRow, class_of
from dpsql.engines.spark.partials import COUNT, KEY
from dpsql.engines.spark.relations import kept_rows, rows_of_units
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import call, let, quoted, text, whole
from dpsql.engines.spark.tables import SparkTables, parts_of_id
from dpsql.errors import InternalError, ResourceLimitError
from dpsql.rel.distinct import ReadValue
from dpsql.schema import Table
from dpsql.workload.unit_groups import GroupedCells, UnitGroups, groups_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MOST_LISTED = 2_000_000
"""The most cells whose groups are written as a list."""


@dataclass(frozen=True, slots=True)
class CountedUnits:
    """A count of units by groups.

    Args:
        marginal: the groups, and what says that units are counted.
        table: whose rows say in which groups they are.
        groups: these.
        computed: what is computed of a row.
        merged: attribute → the class of each cell.
        shape: the numbers of groups, and of units, of which there is one.
    """

    marginal: Marginal
    table: Table
    groups: UnitGroups
    computed: ComputedRow
    merged: Merged
    shape: tuple[int, ...]

    @classmethod
    def of(cls, wanted: Wanted, marginal: Marginal, *, of_rows: bool = False) -> CountedUnits:
        """Write what is computed of rows.

        Args:
            wanted: what is counted.
            marginal: the groups, and what says that units are counted.
            of_rows: whether rows are looked at as they are, whose ever they are.

        Raises:
            InternalError: the marginal has something else in it, or rows have no units.
            ResourceLimitError: there are too many cells.
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        table, units, merged = wanted.table, wanted.units, wanted.merged
        (name,) = (name for name in marginal if name in units)
        other = sorted(marginal) != sorted((name, groups_of(name)))
        if other or (table.unit is None) is not of_rows:
            raise InternalError("units are counted by their groups, and by nothing else")
        groups = units[name]
        if any(len(block.cells) > _MOST_LISTED and not _is_same(block) for block in groups.blocks):
            raise ResourceLimitError(
                "There are too many cells to count units by groups in Spark.",
                hint="group by fewer columns, or declare fewer values.",
            )
        for block in groups.blocks:
            sizes = tuple(cells_counted(table, each, merged) for each in block.attributes)
            if sizes != tuple(block.shape):
                raise InternalError("groups are of other cells than are counted")
        names = list(dict.fromkeys(each for block in groups.blocks for each in block.attributes))
        conditions = [groups.condition] if groups.condition else []
        measures = {each: wanted.measures[each] for each in conditions}
        computed = ComputedRow.of(table, names, measures, wanted.keys)
        shape = tuple(1 if axis == name else groups.count for axis in marginal)
        return cls(marginal, table, groups, computed, merged, shape)

    def job(self, tables: SparkTables) -> DataFrame:
        """Build the job, whose rows are groups with how many units are in them; reads nothing."""
        unit = unit_name(self.table)
        pairs = self.each(tables, unit)
        if self.groups.most < self.groups.count:
            pairs = self._fewer(pairs, unit)
        functions = functions_of(pairs)
        return pairs.groupBy(KEY).agg(functions.count(functions.lit(1)).alias(COUNT))

    def tallied(self, found: pa.Table) -> Counts:
        """Return the counts of all groups."""
        return tally(self.shape, *counts_by_key(found))

    def each(
        self, tables: SparkTables, own: str, value: ReadValue | None = None, *, ranked: str = ""
    ) -> DataFrame:
        """Return units with the groups that they are in, each once; with values that are there.

        Args:
            tables: where rows come from.
            own: the column with the ids, if rows have units; our other names begin with it.
            value: what is computed of each row besides; rows without it are left out.
            ranked: how a value is written by which rows are put in order: then each row that counts
                is returned, as where rows are counted, and not each group of a unit once.
        """
        groups = self.groups
        places = {name: f"{own}_c{i}" for i, name in enumerate(self.computed.codes)}
        further = value.columns if value else frozenset[str]()
        read = list(dict.fromkeys([*self.computed.read, *sorted(further)]))
        told = [own] if self.table.unit and not ranked else []
        if self.table.unit is None:
            rows = tables.rows(self.table)
        elif ranked:
            rows = kept_rows(tables, self.table, read)
        else:
            rows = rows_of_units(tables, self.table, read, own)
        if value is not None:
            there = functions_of(rows).expr(ranked or _bytes_of(value)).alias(f"{own}_v")
            rows = rows.select(*told, *map(quoted, read), there)
            rows = rows.where(f"{own}_v IS NOT NULL")
            told.append(f"{own}_v")
        coded = self.computed.selected(rows, places, told)
        inside = [
            f"{place} BETWEEN {whole(0)} AND {whole(self.table.cells(name) - 1)}"
            for name, place in places.items()
        ]
        if groups.condition:
            inside.append(f"{self.computed.summands[0]} = {whole(1)}")
        if inside:
            coded = coded.where(" AND ".join(inside))
        keys = [f"{self._cell(b, places)} AS {own}_b{i}" for i, b in enumerate(groups.blocks)]
        pairs, total = coded.selectExpr(*told, *keys), whole(0)
        pairs = pairs if ranked else pairs.distinct()
        for i, block in enumerate(groups.blocks):
            key, group = f"{own}_b{i}", f"{own}_b{i}"
            if _is_same(block):
                pairs = pairs.where(f"{key} < {whole(len(block.cells))}")
            else:
                listed = _listed(tables, block, f"{own}_l{i}", f"{own}_g{i}")
                group = f"{own}_g{i}"
                same = functions_of(pairs).expr(f"{key} = {own}_l{i}")
                pairs = pairs.join(listed, same, "inner")
            total = f"({total} + {group})"
        pairs = pairs.selectExpr(*told, f"{total} AS {KEY}")
        return pairs if ranked else pairs.distinct()

    def _cell(self, block: GroupedCells, places: dict[str, str]) -> str:
        """Write the number of a joint cell."""
        key = whole(0)
        for name, size in zip(block.attributes, block.shape, strict=True):
            code = quoted(places[name])
            if name in self.merged:
                code = class_of(code, self.merged[name])
            key = f"({key} * {whole(size)} + {code})"
        return key

    def _fewer(self, pairs: DataFrame, unit: str) -> DataFrame:
        """Keep as many groups of each unit as count."""
        order = self.order(unit)
        by = f"PARTITION BY {unit} ORDER BY {order} ASC, {KEY} ASC"
        place = f"CAST({call('row_number')} OVER ({by}) AS BIGINT) AS {unit}_r"
        numbered = pairs.selectExpr(KEY, place)
        few = f"{unit}_r BETWEEN {whole(1)} AND {whole(self.groups.most)}"
        return numbered.where(few).select(KEY)

    def order(self, own: str, value: str = "") -> str:
        """Write by what a unit's groups stand in line, or its values in groups, as in DuckDB."""
        shown = text_of_id(parts_of_id(self.table, own), f"{own}_")
        told = [shown, text(" "), f"CAST({KEY} AS STRING)"]
        told += [text(" "), call("hex", value)] if value else []
        hashed = call("md5", f"CAST({call('concat', *told)} AS BINARY)")
        return let(f"{own}_m", hashed, _reversed(f"{own}_m"))


def counts_by_key(found: pa.Table) -> tuple[Counts, Counts]:
    """Return the keys of what was found, and their counts."""
    keys, rows = (_numbers(found.column(name)) for name in (KEY, COUNT))
    return keys, rows


def _numbers(column: pa.ChunkedArray) -> Counts:
    """Read a column of BIGINTs without NULL."""
    parts = [numbers(part, np.int64) for part in column.cast("int64").chunks if len(part)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _bytes_of(read: ReadValue) -> str:
    """Write a value so that no two have the same bytes; of a double a zero has no sign."""
    value = spark_sql(read.value)
    if read.value.type.is_float:
        value = f"CASE WHEN ({value}) = 0 THEN CAST({whole(0)} AS DOUBLE) ELSE ({value}) END"
    return f"CAST(CAST({value} AS STRING) AS BINARY)"


def _is_same(block: GroupedCells) -> bool:
    """Whether each cell is a group of its own, with its number."""
    at = np.arange(len(block.cells))
    return np.array_equal(block.cells, at) and np.array_equal(block.groups, at)


def _listed(tables: SparkTables, block: GroupedCells, cell: str, group: str) -> DataFrame:
    """Say which cells are in which groups."""
    import pyarrow as pa

    columns = {
        cell: np.asarray(block.cells, dtype=np.int64),
        group: np.asarray(block.groups, dtype=np.int64),
    }
    session = tables.session
    return functions_of(session).broadcast(session.createDataFrame(pa.table(columns)))


def _reversed(digits: str) -> str:
    """Write a hash so that it sorts as a number: DuckDB reads its bytes from the last one."""
    pairs = (call("substr", digits, whole(i, "INT"), whole(2, "INT")) for i in range(31, 0, -2))
    return call("concat", *pairs)
