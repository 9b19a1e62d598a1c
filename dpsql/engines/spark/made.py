"""Spark's rows that are made of rows of private tables. Trusted.

Guarantees:
    A row of a combination is made of rows of one unit, whose id is in the column `unit`.

    *Proof.* The rule is that of `engines/duckdb/made.py`. Each side has one row for each (row, u),
    and what a row has is a function of the rows of u (`parents.py`), also where a side is made of
    others itself, by induction. Sides are joined by inner joins whose conditions begin with the
    equality of all columns of the ids, bytes for texts: so what is made for u is a function of the
    rows of u alone, as a multiset, and to add or remove another unit changes nothing of it. ∎ Of
    these rows at most k for each unit are kept when they have been made (`bounded.py`).

    Before sides meet, each of their columns gets a name of its own, by its number. So no name that
    a table has stands for another column, also where a table meets itself.

    Nothing fails: columns that are equal are of the same type, or both integers
    (`keys.comparable`).

The same rows are kept as in DuckDB where ids are one number, day or text: they are made by the same
equalities, and stand in the same line, that of all columns of all sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.combined import CombinedRows, columns_of_side, equal_columns
from dpsql.engines.spark.parents import OwnedRows
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.spark.text import call, constant, identity, quoted
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.combined import UNIT, Place, RowCombination, combination_of
from dpsql.schema.grain import stored_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MadeTables(SparkTables):
    """Tables of which some are made of others' rows.

    Args:
        stored: where the rows of the others come from.
    """

    stored: SparkTables

    @property
    def session(self) -> SparkSession:
        """A session with settings that are pinned."""
        return self.stored.session

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read inside be of one state; see `Engine.snapshot`."""
        return self.stored.snapshot()

    def rows(self, table: Table) -> DataFrame:
        """Return all rows of a table, in the snapshot; reads none."""
        combination = combination_of(table)
        return self.stored.rows(table) if combination is None else self._combined(combination)

    def at(self, path: tuple[str, ...], types: Mapping[str, str]) -> DataFrame:
        """Return all rows of a table on the way to a unit; see `SparkTables.at`."""
        return self.stored.at(path, types)

    def check_unchanged(self, path: tuple[str, ...]) -> None:
        """Check that what was read is still what it was; see `SparkTables.check_unchanged`."""
        self.stored.check_unchanged(path)

    def _combined(self, combination: RowCombination) -> DataFrame:
        """Return the rows of several tables that meet, with the ids of their units."""
        found, ids = self._side(combination, 0)
        shown = [f"{_id(ids)} AS {quoted(UNIT)}", *_named(combination, 0)]
        for number in range(1, len(combination.sources)):
            met, own = self._side(combination, number)
            same = [f"{one} = {other}" for one, other in zip(ids, own, strict=True)]
            pairs = equal_columns(combination, number)
            same += [f"{_told(combination, a)} = {_told(combination, b)}" for a, b in pairs]
            found = found.join(met, functions_of(found).expr(" AND ".join(same)), "inner")
            shown += _named(combination, number)
        return found.selectExpr(*shown)

    def _side(self, combination: RowCombination, number: int) -> tuple[DataFrame, list[str]]:
        """Return the rows of one of the tables, and the columns with the ids of their units."""
        table = combination.sources[number]
        made, read = OwnedRows.of(self, table), columns_of_side(combination, number)
        told = [name for name, _ in made.told(table)]
        ids = [f"s{number}u{i}" for i in range(len(told))]
        columns = [f"{quoted(name)} AS s{number}c{i}" for i, name in enumerate(read)]
        units = (f"{one} AS {id_}" for one, id_ in zip(told, ids, strict=True))
        return made.rows(table, read).selectExpr(*units, *columns), ids


def _id(ids: list[str]) -> str:
    """Write the id of a unit: what `OwnedRows.told` takes apart again."""
    if len(ids) == 1:
        return ids[0]
    parts = (part for i, id_ in enumerate(ids) for part in (constant(f"i{i}", "STRING"), id_))
    return call("named_struct", *parts)


def _named(combination: RowCombination, number: int) -> list[str]:
    """Write the columns of one of the tables, as the combination has them."""
    prefix, read = combination.prefixes[number], columns_of_side(combination, number)
    return [f"s{number}c{i} AS {quoted(prefix + name)}" for i, name in enumerate(read)]


def _told(combination: RowCombination, place: Place) -> str:
    """Write what tells values of a column apart, before it has its name in the combination."""
    number, name = place
    column = f"s{number}c{columns_of_side(combination, number).index(name)}"
    return identity(column, stored_type(combination.sources[number], name))


def not_written(made: CombinedRows) -> str:
    """Refuse to write rows as a text: Spark's are made by `MadeTables`.

    Raises:
        InternalError: always.
    """
    raise InternalError(f"rows of {len(made.tables)} tables are no text in Spark")
