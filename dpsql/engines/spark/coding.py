"""Values that Spark computes of a row: codes of cells, and what is added up.

Keys and measures get columns of their own first, of which codes and sums are made, so that their
SQL stands in a statement once. Their names are in no table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.base import LOW_BITS, Keys, Marginal, Measures, Wanted, Words, columns_read
from dpsql.engines.codes import runs_of
from dpsql.engines.cover import cover
from dpsql.engines.spark.columns import code_of
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import array, call, quoted, whole
from dpsql.engines.spark.sums import SparkSum
from dpsql.schema import Table
from dpsql.schema.names import unused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_SUMMAND, _PRESENT = "w", "p"
"""What is added up of a measure, and whether that is something, with its number."""


@dataclass(frozen=True, slots=True)
class ComputedRow:
    """The values that are computed of a row.

    Args:
        read: the columns that are read.
        values: column → SQL of what is computed of these.
        codes: attribute → SQL of its code, over both.
        sums: measure → what is added up, and the column of its value.
    """

    read: tuple[str, ...]
    values: Mapping[str, str]
    codes: Mapping[str, str]
    sums: Mapping[str, tuple[SparkSum, str]]

    @classmethod
    def of(cls, table: Table, names: Sequence[str], measures: Measures, keys: Keys) -> ComputedRow:
        """Write what is computed for some attributes and measures.

        Raises:
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        own = unused([*table.columns, *table.undeclared])
        placed = {name: f"{own}k{i}" for i, name in enumerate(names) if name in keys}
        values = {place: spark_sql(keys[name].value) for name, place in placed.items()}
        codes = {
            name: code_of(
                quoted(placed.get(name, name)),
                table.columns[name],
                leaves_out=table.leaves_out(name),
            )
            for name in names
        }
        sums = dict[str, tuple[SparkSum, str]]()
        for i, (name, measure) in enumerate(measures.items()):
            made, place = SparkSum.made(measure), f"{own}x{i}"
            values[place] = made.value
            sums[name] = made, place
        read = columns_read(table, names, measures.values(), keys)
        return cls(tuple(read), values, codes, sums)

    def selected(
        self, rows: DataFrame, places: Mapping[str, str], beside: Sequence[str] = ()
    ) -> DataFrame:
        """Return codes and summands of rows, in columns of their own, and some beside them."""
        functions = functions_of(rows)
        values = [functions.expr(sql).alias(place) for place, sql in self.values.items()]
        shown = rows.select(*beside, *map(quoted, self.read), *values)
        codes = [functions.expr(sql).alias(places[name]) for name, sql in self.codes.items()]
        added = [
            column
            for i, (made, place) in enumerate(self.sums.values())
            for column in (
                functions.expr(made.added(quoted(place))).alias(f"{_SUMMAND}{i}"),
                functions.expr(f"({made.present(quoted(place))}) IS NOT NULL").alias(
                    f"{_PRESENT}{i}"
                ),
            )
        ]
        columns = [*beside, *codes, *added]
        return shown.select(*columns) if columns else rows.select(functions.lit(0).alias("c"))

    @property
    def summands(self) -> list[str]:
        """The columns of what is added up."""
        return [f"{of}{i}" for i in range(len(self.sums)) for of in (_SUMMAND, _PRESENT)]

    def summed(self, rows: DataFrame) -> list[Column]:
        """Return what is added up of some rows: sums, and in how many something is added."""
        functions, found = functions_of(rows), list["Column"]()
        for i in range(len(self.sums)):
            found.append(functions.sum(f"{_SUMMAND}{i}").alias(f"{_SUMMAND}{i}"))
            here = functions.when(functions.col(f"{_PRESENT}{i}"), functions.lit(1))
            found.append(functions.count(here).alias(f"{_PRESENT}{i}"))
        return found

    def totals(self, name: str, found: pa.Table, here: np.ndarray) -> Words:
        """Return V of the groups that are asked for, of all that were found, in two words."""
        number = list(self.sums).index(name)
        made, _ = self.sums[name]
        # Rows may be present of which none has a w: their sum is NULL, and stands for 0.
        sums = [int(w or 0) for w in found.column(f"{_SUMMAND}{number}").to_pylist()]
        counts = found.column(f"{_PRESENT}{number}").to_pylist()
        pairs = zip(sums, counts, here, strict=True)
        totals = [made.total(s, c) for s, c, asked in pairs if asked]
        high = np.array([total >> LOW_BITS for total in totals], dtype=np.int64)
        low = np.array([total & (1 << LOW_BITS) - 1 for total in totals], dtype=np.int64)
        return high, low


def placed(wanted: Wanted) -> dict[Marginal, list[str]]:
    """Choose what rows are grouped by, and which measures are added up in each of these groups.

    Raises:
        InternalError: what is to be added up can't be told.
    """
    wanted.check_measures()
    measures, sizes = wanted.measures, wanted.sizes
    places = [
        (tuple(a for a in marginal if a not in measures), [m for m in marginal if m in measures])
        for marginal in wanted.of_rows
    ]
    blocks: dict[Marginal, list[str]] = {
        block: [] for block in cover([own for own, _ in places], sizes)
    }
    for own, added in places:
        fitting = [block for block in blocks if set(own) <= set(block)]
        if added and not any(added[0] in blocks[block] for block in fitting):
            blocks[min(fitting, key=lambda b: math.prod(sizes[a] for a in b))].append(added[0])
    if wanted.total_apart and () in wanted.marginals:
        blocks.setdefault((), [])
    return blocks


def class_of(code: str, classes: np.ndarray) -> str:
    """Write the class of a cell, by the ends of runs of one class, or by a list."""
    if (runs := runs_of(classes)) is not None:
        return reduce(
            lambda rest, run: (
                f"CASE WHEN {code} <= {whole(run[0])} THEN {whole(run[1])} ELSE {rest} END"
            ),
            reversed(runs[:-1]),
            whole(runs[-1][1]),
        )
    listed = array([whole(int(value)) for value in classes])
    return call("coalesce", call("get", listed, f"CAST({code} AS INT)"), whole(0))
