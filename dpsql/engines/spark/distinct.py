"""Spark's SQL for distinct values by groups. Trusted.

Guarantees:
    Those of `engines/duckdb/distinct.py`, with its proof: rows, groups and values are those of
    `units.py`, each of one unit; `distinct` leaves one row for each unit, group and value, and
    windows that are PARTITION BY the id, or by id and group, number these in an order in which no
    two of one unit tie, also if a part of the job runs again. Groups of ids and groups collect
    values in whatever order: how many of them units cover doesn't depend on it.

Values come back at once, into the memory of this process: so Spark's limit on the size of results
is one on how many there may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.base import Counts, Marginal, Wanted
from dpsql.engines.cover import tally
from dpsql.engines.distinct import check_groups_of_a_row, covered, values_of
from dpsql.engines.others import unit_name
from dpsql.engines.spark.partials import COUNT, KEY
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.text import call, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.spark.units import CountedUnits, counts_by_key
from dpsql.errors import InternalError
from dpsql.rel.distinct import DistinctValues

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class CountedValues:
    """A count of distinct values by groups.

    Args:
        units: the groups, and what is computed of rows.
        values: what is counted.
    """

    units: CountedUnits
    values: DistinctValues

    @classmethod
    def of(cls, wanted: Wanted, marginal: Marginal, values: DistinctValues) -> CountedValues:
        """Write what is computed of rows; see `CountedUnits.of`.

        Raises:
            InternalError: the marginal has something else in it, or rows are not those of units,
                where units are meant.
            ResourceLimitError: there are too many cells.
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        if values.of_rows:
            check_groups_of_a_row(values)
        elif values.kept_of_all and values.kept > values.each * values.most:
            raise InternalError("more values of a unit are looked at than may be")
        return cls(CountedUnits.of(wanted, marginal, of_rows=values.of_rows), values)

    @property
    def marginal(self) -> Marginal:
        """The groups, and what says that values are counted."""
        return self.units.marginal

    def job(self, tables: SparkTables) -> DataFrame:
        """Build the job, whose rows are groups with values, or with their number; reads nothing."""
        unit = unit_name(self.units.table)
        pairs = self.units.each(tables, unit, self.values.value)
        functions = functions_of(pairs)
        if self.values.of_rows:
            return pairs.groupBy(KEY).agg(functions.count(functions.lit(1)).alias(COUNT))
        kept = self._kept(pairs, unit)
        listed = functions.collect_list(f"{unit}_v").alias("v")
        return kept.groupBy(unit, KEY).agg(listed).selectExpr(f"{KEY} AS g", "v")

    def tallied(self, found: pa.Table) -> Counts:
        """Return the numbers of values of all groups."""
        if self.values.of_rows:
            return tally(self.units.shape, *counts_by_key(found))
        covers = covered(values_of(found), self.values.count, self.values.each)
        return covers.reshape(self.units.shape)

    def _kept(self, pairs: DataFrame, unit: str) -> DataFrame:
        """Keep as many groups of each unit as count, and as many values as are looked at."""
        values, value = self.values, f"{unit}_v"
        if not values.kept_of_all and values.most < values.count:
            line = f"{self.units.order(unit)} ASC, {KEY} ASC"
            pairs = _first(pairs, unit, value, ("dense_rank", unit, line), values.most)
        among = unit if values.kept_of_all else f"{unit}, {KEY}"
        line = f"{self.units.order(unit, value)} ASC, {KEY} ASC, {value} ASC"
        return _first(pairs, unit, value, ("row_number", among, line), values.kept)


def _first(
    pairs: DataFrame, unit: str, value: str, by: tuple[str, str, str], most: int
) -> DataFrame:
    """Keep those with the first places, by a window function, its partition and its order."""
    function, among, line = by
    over = f"PARTITION BY {among} ORDER BY {line}"
    place = f"CAST({call(function)} OVER ({over}) AS BIGINT) AS {unit}_r"
    numbered = pairs.selectExpr(unit, KEY, value, place)
    few = f"{unit}_r BETWEEN {whole(1)} AND {whole(most)}"
    return numbered.where(few).select(unit, KEY, value)
