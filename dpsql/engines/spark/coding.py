"""Values that Spark computes of a row: codes of cells, and what is added up. Trusted.

Guarantees:
    What is added up is w of `rows/measure.py`: an integer, in last digits, between low·d + `offset`
    and high·d + `offset`, or NULL; and just the rows are counted that add something. Nothing fails,
    and sums hold all that is added up of n < 2^50 rows.

    *Proof.* What a row has is a number x of an exact type T, or a double; it is total
    (`sql/expressions.py`).

    - *Where values are exact,* `least` and `greatest` bring x between two constants of T, which
      stand for low and high; or x lies between them by its form (`rows/operands.py`), and they
      change nothing. So its last digits are between low·d + `offset` and high·d + `offset`. These
      have as many digits as the larger of both, to which x is cast, and times 10^s they are whole
      numbers in a DECIMAL that has room for them: it is checked here that 38 digits are enough.
    - *Where values are doubles,* h takes the place of what is larger, NaN is NULL, and the steps
      y·f − g are between 0 and those of h before `rint` rounds them, where they are not negative;
      elsewhere there is no w. As in DuckDB, steps of h are high − low with nothing rounded.

    So |w| < 2^76, and |Σ w| < 2^126 < 10^38 is held by the DECIMAL(38,0) in which Spark adds up a
    DECIMAL(28,0). What is made of sums is made of Python's integers, which have no end. ∎

A double in which what T can't compute is tried again isn't written: then the measure is refused.

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
from dpsql.engines.cover import MOST_SUM, cover
from dpsql.engines.spark.columns import code_of
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import (
    array,
    between,
    call,
    digits_of,
    last_digits,
    let,
    quoted,
    real,
    refused,
    whole,
)
from dpsql.rows.measure import RowMeasure
from dpsql.rows.typed import RowValue, value_of
from dpsql.rows.types import DOUBLE
from dpsql.schema import Table
from dpsql.schema.names import unused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_MOST_DIGITS = 38
_ADDED, _DOUBLE = "DECIMAL(28,0)", value_of(DOUBLE)


@dataclass(frozen=True, slots=True)
class SparkSum:
    """A measure as Spark adds it up.

    Args:
        of: the measure.
        value: SQL of what a row has: what `added` and `present` are made of.
    """

    of: RowMeasure
    value: str

    @classmethod
    def made(cls, measure: RowMeasure) -> SparkSum:
        """Write a measure.

        Raises:
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        if measure.again is not None and _may_overflow(measure.value):
            raise refused(
                "what could be too large for its type",
                "declare bounds of the columns, or cast them to DECIMALs with fewer digits.",
            )
        made = cls(measure, spark_sql(measure.value))
        made.added("x")
        return made

    def present(self, x: str) -> str:
        """Write what is not NULL in rows that add something, given the value."""
        if self.of.exact:
            return x
        return spark_sql(self.of.present(_DOUBLE), {"value": lambda *_: x})

    def added(self, x: str) -> str:
        """Write w, given the value."""
        return self._of_exact(x) if self.of.exact else self._of_double(x)

    def _of_exact(self, x: str) -> str:
        scale = self.of.type.scale
        bounded = between("v", *map(spark_sql, self.of.ends))
        digits = digits_of(self.of.digits, scale)
        if scale and digits + scale + 2 > _MOST_DIGITS:
            raise refused(
                f"sums of numbers with {scale} digits after the point",
                "cast them to DECIMALs with fewer.",
            )
        added = f"CAST({last_digits(bounded, digits, scale)} AS {_ADDED})"
        return let("v", x, f"CASE WHEN v IS NOT NULL THEN {added} END")

    def _of_double(self, x: str) -> str:
        of = self.of
        steps = spark_sql(of.in_steps(_DOUBLE), {"value": lambda *_: "v"})
        zero, most = real(0), real(of.high - of.low)
        nearest = call("rint", between("v", zero, most))
        made = f"CASE WHEN v >= {zero} THEN CAST(CAST({nearest} AS BIGINT) AS {_ADDED}) END"
        return let("v", let("v", self.present(x), steps), made)

    def total(self, summed: int, count: int) -> int:
        """Return V of some rows, given Σ w and how many rows are present."""
        s = summed - count * self.of.offset
        d = self.of.parts
        return max(-MOST_SUM, min(MOST_SUM, (s + d // 2) // d))


def _may_overflow(value: RowValue) -> bool:
    """Whether a number may be NULL by its type, where its double isn't: see `write_double`."""
    if value.operation == "case":
        results = (*value.parts[1::2], *value.parts[-1:])
        return any(map(_may_overflow, results))
    if value.operation in {"try", "tried"}:
        return True
    sums = value.operation == "call" and value.text in {"+", "-", "*"}
    return (sums or value.operation in {"cast", "try_cast"}) and any(
        map(_may_overflow, value.parts)
    )


_SUMMAND, _PRESENT = "w", "p"
"""Columns of a measure, with its number: the part of a row, and whether that is something."""


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
        prefix = unused([*table.columns, *table.undeclared])
        placed = {name: f"{prefix}k{i}" for i, name in enumerate(names) if name in keys}
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
            made, place = SparkSum.made(measure), f"{prefix}x{i}"
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
        functions, columns = functions_of(rows), list["Column"]()
        for i in range(len(self.sums)):
            columns.append(functions.sum(f"{_SUMMAND}{i}").alias(f"{_SUMMAND}{i}"))
            here = functions.when(functions.col(f"{_PRESENT}{i}"), functions.lit(1))
            columns.append(functions.count(here).alias(f"{_PRESENT}{i}"))
        return columns

    def totals(self, name: str, answer: pa.Table, here: np.ndarray) -> Words:
        """Return V of the groups that are asked for, of all that were found, in two words."""
        number = list(self.sums).index(name)
        made, _ = self.sums[name]
        # Rows may be present of which none has a w: their sum is NULL, and stands for 0.
        sums = [int(w or 0) for w in answer.column(f"{_SUMMAND}{number}").to_pylist()]
        counts = answer.column(f"{_PRESENT}{number}").to_pylist()
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
        block: [] for block in cover([key for key, _ in places], sizes)
    }
    for key, added in places:
        fitting = [block for block in blocks if set(key) <= set(block)]
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
