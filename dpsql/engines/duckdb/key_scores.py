"""DuckDB's SQL for scores of keys. Trusted.

Guarantees:
    Those of `dpsql/engines/key_scores.py`. Pairs are written by `relations.py`, with its proof. Of
    a table without units each row is one pair at most, of the row itself and its value. Each pair
    adds one to the units of its key, and what the list of weights has at place t to the score, with
    t from 1 to K: both are added up by the bytes of the key's text, which no two keys share. There
    are fewer than 2^43 pairs, so no sum overflows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.engines.duckdb.catalog import check_bound
from dpsql.engines.duckdb.columns import Parameters, source_of
from dpsql.engines.duckdb.relations import DuckDBRelations
from dpsql.engines.key_scores import ScoredKeys, key_of_row, key_pairs, scored_keys
from dpsql.rows.expression import RowExpression
from dpsql.rows.typed import call
from dpsql.schema.table import Table

if TYPE_CHECKING:
    import duckdb

BATCH = 100_000
"""Keys that are looked at together: what Python holds of them is that much and no more."""


@dataclass(frozen=True, slots=True)
class KeyScan:
    """The statements that score keys.

    Args:
        table: whose rows they are of.
        key: a column, or what is computed of some.
        weights: what a unit with 1, 2, … keys adds.
    """

    table: Table
    key: RowExpression
    weights: Sequence[int]

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement."""
        check_bound(con, *self.statement())

    def run(self, con: duckdb.DuckDBPyConnection, known: Collection[bytes]) -> Iterator[ScoredKeys]:
        """Score all keys but those that are known."""
        sql, parameters = self.statement(known)
        for batch in con.sql(sql, params=parameters).to_arrow_reader(BATCH):
            if batch.num_rows:
                yield scored_keys(*(batch.column(name) for name in ("k", "n", "s")))

    def statement(self, known: Collection[bytes] = ()) -> tuple[str, list[Any]]:
        """Write the statement, as rows of (k, n, s), with its parameters."""
        parameters = Parameters()
        pairs = self._pairs(known, parameters) if self.table.unit else self._rows()
        return (
            "SELECT k, system.main.count(*)::BIGINT AS n, system.main.sum(w)::BIGINT AS s "
            f"FROM ({pairs}) GROUP BY k",
            list(parameters.values),
        )

    def _pairs(self, known: Collection[bytes], parameters: Parameters) -> str:
        """Write pairs of a unit and a key, with what the pair adds to the score."""
        pairs = key_pairs(self.table, self.key, len(self.weights), known)
        query = DuckDBRelations(parameters).query(pairs.relation, pairs.columns, pairs.charged)
        weight = f"{self.weights[0]}::BIGINT"
        if pairs.count is not None:
            listed = f"{parameters.bind(('weights', ''), list(self.weights))}::BIGINT[]"
            weight = call("list_extract", listed, query.columns[pairs.count])
        return f"SELECT {_bytes(query.columns[pairs.key])} AS k, {weight} AS w FROM ({query.sql})"

    def _rows(self) -> str:
        """Write rows that are units themselves, with what each adds."""
        key, there = key_of_row(self.table, self.key, self.weights)
        return (
            f"SELECT {_bytes(key.sql)} AS k, {self.weights[0]}::BIGINT AS w "
            f"FROM {source_of(self.table)} WHERE {there.sql}"
        )


def _bytes(key: str) -> str:
    return call("encode", f"({key})::VARCHAR")
