"""Spark's SQL for scores of keys. Trusted.

Guarantees:
    Those of `dpsql/engines/key_scores.py`. Pairs are written by `relations.py`, with its proof,
    also where a part of the job runs again; of a table without units each row is one pair at most,
    of the row itself and its value. Each pair adds one to the units of its key, and what the list
    of weights has at place t to the score, with t from 1 to K: both are added up by the bytes of
    the key's text, which no two keys share. There are fewer than 2^43 pairs, so no sum overflows.

Keys with their scores come back at once, into the memory of this process: so Spark's limit on the
size of results is one on how many keys there may be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.key_scores import key_of_row, key_pairs
from dpsql.engines.spark.relations import SparkRelations
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import array, call, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.rows.expression import RowExpression
from dpsql.schema.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY, UNITS, SCORE = "k", "n", "s"
_WEIGHT = "w"


@dataclass(frozen=True, slots=True)
class ScoredExpression:
    """An expression whose keys are scored.

    Args:
        table: whose rows they are of.
        key: a column, or what is computed of some.
        weights: what a unit with 1, 2, … keys adds.
    """

    table: Table
    key: RowExpression
    weights: Sequence[int]

    def job(self, tables: SparkTables, known: Collection[bytes] = ()) -> DataFrame:
        """Build the job, whose rows are keys with their units and scores; reads nothing.

        Args:
            tables: where rows come from.
            known: keys that are left out.

        Raises:
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        pairs = self._pairs(tables, known) if self.table.unit else self._rows(tables)
        functions = functions_of(pairs)
        added = functions.sum(_WEIGHT).cast("bigint").alias(SCORE)
        return pairs.groupBy(KEY).agg(functions.count(functions.lit(1)).alias(UNITS), added)

    def _pairs(self, tables: SparkTables, known: Collection[bytes]) -> DataFrame:
        """Return pairs of a unit and a key, with what the pair adds to the score."""
        pairs = key_pairs(self.table, self.key, len(self.weights), known)
        writer = SparkRelations(tables)
        query = writer.query(pairs.relation, pairs.columns, pairs.charged)
        weight = whole(self.weights[0])
        if pairs.count is not None:
            place = f"CAST({query.columns[pairs.count]} AS INT)"
            weight = call("element_at", array([whole(w) for w in self.weights]), place)
        key = _bytes(query.columns[pairs.key])
        return writer.rows(f"SELECT {key} AS {KEY}, {weight} AS {_WEIGHT} FROM ({query.sql})")

    def _rows(self, tables: SparkTables) -> DataFrame:
        """Return rows that are units themselves, with what each adds."""
        key, there = key_of_row(self.table, self.key, self.weights)
        weight = f"{whole(self.weights[0])} AS {_WEIGHT}"
        rows = tables.rows(self.table).where(spark_sql(there))
        return rows.selectExpr(f"{_bytes(spark_sql(key))} AS {KEY}", weight)


def _bytes(key: str) -> str:
    return f"CAST(CAST({key} AS STRING) AS BINARY)"
