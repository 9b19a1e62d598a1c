"""Spark's SQL for rows in order of a value, by groups. Trusted.

Guarantees:
    Those of `dpsql/engines/ranked.py`. Each row that counts is read once for each group that it is
    in, with its value, by `units.py`; equal values of a group are counted, and running totals of
    these are numbers of rows up to a value, whatever part of the job runs again. All are whole
    numbers, of 38 digits where they are multiplied: tables have fewer than 2^53 rows, and
    `measurement/quantiles.py` lets no factor pass with which these don't fit 127 bits. NaN is none;
    what is beyond the line, as what is infinite is, becomes its nearer end before rows are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engines.base import Wanted
from dpsql.engines.others import unit_name
from dpsql.engines.ranked import RankedRows, RankWindow, check_ranked, read_ranks
from dpsql.engines.spark.partials import COUNT, KEY
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import call, constant, let, real, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.spark.units import CountedUnits
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rel.ranked import MOST_DIGITS, RankedValues, ValueLine
from dpsql.rows.typed import RowValue
from dpsql.rows.types import RowType
from dpsql.schema.sequences import decimal_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

BELOW, UPTO, SIZE = "below", "upto", "size"
_EXACT = "DECIMAL(38,0)"


@dataclass(frozen=True, slots=True)
class RankedColumn:
    """Rows that are put in order, by groups.

    Args:
        units: the groups, and what is computed of rows.
        values: what is put in order.
        ranked: how a value is written by which that is done.
    """

    units: CountedUnits
    values: RankedValues
    ranked: str

    @classmethod
    def of(cls, wanted: Wanted, values: RankedValues) -> RankedColumn:
        """Write what is computed of rows.

        Raises:
            InternalError: a row may be in more groups than it is charged for.
            ResourceLimitError: there are too many cells.
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        check_ranked(values)
        (marginal,) = wanted.marginals
        units = CountedUnits.of(wanted, marginal, of_rows=wanted.table.unit is None)
        return cls(units, values, _on_line(values.value.value))

    def job(self, tables: SparkTables, windows: Sequence[RankWindow]) -> DataFrame:
        """Build the job, whose rows are values with how many rows are below; reads nothing."""
        unit = unit_name(self.units.table)
        rows = self.units.each(tables, unit, self.values.value, ranked=self.ranked)
        functions, v = functions_of(rows), f"{unit}_v"
        many = functions.count(functions.lit(1)).alias(COUNT)
        rows = rows.selectExpr(KEY, f"{_within(v, self.values.line)} AS {v}")
        rows, total = rows.groupBy(KEY, v).agg(many), call("sum", COUNT)
        frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        running = f"PARTITION BY {KEY} ORDER BY {v} {frame}"
        upto = f"CAST({total} OVER ({running}) AS BIGINT) AS {UPTO}"
        size = f"CAST({total} OVER (PARTITION BY {KEY}) AS BIGINT) AS {SIZE}"
        placed = rows.selectExpr(KEY, v, COUNT, upto, size)
        below = f"({UPTO} - {COUNT}) AS {BELOW}"
        told = placed.selectExpr(KEY, f"{v} AS v", below, UPTO, SIZE)
        return told.where(" OR ".join(map(_is_near, windows))).orderBy(KEY, "v")

    def ranks(self, ranks: pa.Table) -> RankedRows:
        """Return the ranks of what was found."""
        return read_ranks(ranks, (KEY, "v", BELOW, UPTO, SIZE), self.values)


def _is_near(window: RankWindow) -> str:
    """Write whether a value is within a window."""
    p, reach = window.probability, _exact(window.reach)
    below, upto, size = (f"CAST({name} AS {_EXACT})" for name in (BELOW, UPTO, SIZE))
    aim, scale = f"{_exact(p.numerator)} * {size}", _exact(p.denominator)
    return f"({scale} * {upto} >= {aim} - {reach} AND {scale} * {below} <= {aim} + {reach})"


def _within(v: str, line: ValueLine) -> str:
    """Write a value as the line has it: rounded, or the nearer end if it is beyond."""
    if line.type.is_float:
        low, high = map(real, line.ends)
    else:
        low, high = (whole(end) for end in (line.low, line.high))
    inside = f"CAST(CAST({v} AS FLOAT) AS DOUBLE)" if line.single else v
    return f"CASE WHEN {v} < {low} THEN {low} WHEN {v} > {high} THEN {high} ELSE {inside} END"


def _exact(number: int) -> str:
    return constant(str(number), _EXACT)


def _on_line(value: RowValue) -> str:
    """Write the place of a value on its line; of floats the value itself. NULL where it has none.

    Raises:
        UnsupportedSqlError: it is a time.
    """
    sql, type_ = spark_sql(value), value.type
    if type_.is_float:
        number = f"CASE WHEN NOT {call('isnan', 'v')} THEN v END"
        return let("v", f"CAST({sql} AS DOUBLE)", number)
    line = ValueLine.of(type_)
    if type_.is_exact and line is not None:
        low, high = (decimal_text(Fraction(end, 10**type_.scale)) for end in (line.low, line.high))
        least, most = (constant(end, f"DECIMAL(38,{type_.scale})") for end in (low, high))
        ends = f"WHEN v >= {most} THEN {whole(line.high)} WHEN v <= {least} THEN {whole(line.low)}"
        return let("v", sql, f"CASE {ends} ELSE {_last_digits('v', type_)} END")
    if type_.name == "DATE":
        return f"CAST({call('unix_date', sql)} AS BIGINT)"
    if type_.name == "TIMESTAMP":
        raise UnsupportedSqlError(
            "Quantiles of times can't be drawn in Spark.", hint="ask for those of their days."
        )
    raise InternalError("values that aren't drawn are put in order")


def _last_digits(sql: str, type_: RowType) -> str:
    """Write how many last digits a number has that fits 18 digits, or is whole and fits 64 bits."""
    if type_.name != "DECIMAL":
        return f"CAST({sql} AS BIGINT)"
    narrow = f"CAST({sql} AS DECIMAL({MOST_DIGITS},{type_.scale}))"
    return f"CAST({narrow} * {constant(str(10**type_.scale), 'DECIMAL(19,0)')} AS BIGINT)"
