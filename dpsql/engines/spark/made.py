"""Spark's rows that are made of rows of private tables. Trusted.

Guarantees:
    1. A row of a combination is made of rows of one unit, whose id is in the column `unit`.

    *Proof.* Each side has one row for each (row, u), and what a row has is a function of the rows
    of u (`parents.py`), also where a side is made of others itself, by induction. Sides are joined
    by inner joins whose conditions begin with the equality of all columns of the ids, bytes for
    texts: so what is made for u is a function of the rows of u alone, as a multiset, and to add or
    remove another unit changes nothing of it. ∎ Of these rows at most k for each unit are kept when
    they have been made (`bounded.py`).

    Before sides meet, each of their columns gets a name of its own, by its number. So no name that
    a table has stands for another column, also where a table meets itself.

    2. `RowsOfEachUnit` have one row for each unit with rows in a table: its id, and how many they
    are, or the nearest number that is told apart; the largest one, if limits cut it. To add or to
    remove a unit with all of its rows adds or removes its row, and changes no other one.

    *Proof.* Rows are those of `OwnedRows.rows`, each with the id of one unit, and adding or
    removing u leaves those of v ≠ u as they are. Each group by the id, alone or with cells of a
    limit's columns, is made of what one unit has alone, and there is one group by the id for each,
    which these groups are put into. Counts are BIGINTs; a code of a cell is never NULL. ∎

    3. `RowsWithoutUnit` are the rows of a table of which a column of the id is NULL. No unit has
    such a row, so units come and go without them; and each of them is looked at alone. ∎ (Where
    other rows say whose they are, nothing in Spark enforces that, and they are refused before.)

    Nothing fails: columns that are equal are of the same type, or both integers
    (`keys.comparable`). However many rows a unit has, none of them need be in memory at once, by
    the settings of `sessions.py`.

The same rows are kept as in DuckDB where ids are one number, day or text: they are made by the same
equalities, and stand in the same line, that of all columns of all sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.combined import columns_of_side, equal_columns
from dpsql.engines.spark.bounded import cell_of
from dpsql.engines.spark.parents import OwnedRows
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.text import call, constant, identity, quoted, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.unit_rows import ROWS, RowsOfEachUnit, RowsWithoutUnit
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
        combination, origin = combination_of(table), table.origin
        if combination is not None:
            return self._combined(combination)
        if isinstance(origin, RowsOfEachUnit):
            return self._of_each_unit(origin)
        if isinstance(origin, RowsWithoutUnit):
            return self._of_no_unit(origin)
        return self.stored.rows(table)

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

    def _of_each_unit(self, made: RowsOfEachUnit) -> DataFrame:
        """Return units with the number of their rows."""
        limits = [(limit.columns, limit.rows) for limit in made.limits]
        most = whole(made.most)
        found = None
        for columns, rows in [((), 0), *limits]:
            groups, ids = self._grouped(made.table, columns)
            several = groups.where(f"n > {whole(rows)}")
            told = several.selectExpr(*ids, f"{most if columns else 'n'} AS n")
            found = told if found is None else found.unionAll(told)
        if found is None:
            raise InternalError("units are counted of no rows")
        largest = functions_of(found).expr(call("max", "n")).alias("n")
        rows_ = call("greatest", call("least", "n", most), whole(made.least))
        each = found.groupBy(*ids).agg(largest)
        return each.selectExpr(f"{_id(ids)} AS {quoted(UNIT)}", f"{rows_} AS {quoted(ROWS)}")

    def _grouped(self, table: Table, columns: Sequence[str]) -> tuple[DataFrame, list[str]]:
        """Return how many rows units have, in each cell of some columns; and the ids' names."""
        made = OwnedRows.of(self, table)
        told = [name for name, _ in made.told(table)]
        ids = [f"u{i}" for i in range(len(told))]
        cells = [f"c{i}" for i in range(len(columns))]
        codes = [cell_of(table, name) for name in columns]
        shown = [f"{a} AS {b}" for a, b in zip([*told, *codes], [*ids, *cells], strict=True)]
        rows = made.rows(table, list(columns)).selectExpr(*shown)
        counted = functions_of(rows).expr(call("count", whole(1))).alias("n")
        return rows.groupBy(*ids, *cells).agg(counted), ids

    def _of_no_unit(self, made: RowsWithoutUnit) -> DataFrame:
        """Return the rows that belong to nobody."""
        unit = made.table.unit
        if unit is None or unit.joins:
            raise InternalError("nothing in the rows says that they belong to nobody")
        nobody = " OR ".join(f"{quoted(name)} IS NULL" for name, _ in unit.columns)
        return self.rows(made.table).where(nobody).selectExpr(f"{whole(0)} AS n")


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


def not_written(made: RowsOfEachUnit | RowsWithoutUnit) -> str:
    """Refuse to write rows as a text: Spark's are made by `MadeTables`.

    Raises:
        InternalError: always.
    """
    raise InternalError(f"rows of {len(made.tables)} tables are no text in Spark")
