"""Spark's rows that are made of rows of private tables. Trusted.

Guarantees:
    1. `RowsOfEachUnit` have one row for each unit with rows in a table: its id, in the column
       `unit`, and how many they are, or the nearest number that is told apart; the largest one, if
       limits cut it. To add or to remove a unit with all of its rows adds or removes its row, and
       changes no other one.

       *Proof.* Rows are those of a relation: each has the id of one unit, and adding or removing u
       leaves those of v ≠ u as they are (`engines/relations.py`). Each group by the id, alone or
       with cells of a limit's columns, is made of what one unit has alone, and there is one group
       by the id for each, which these groups are put into. Counts are BIGINTs; a code of a cell is
       never NULL. ∎

    2. `RowsWithoutUnit` are the rows of a table of which a column of the id is NULL. No unit has
       such a row, so units come and go without them; and each of them is looked at alone. ∎ (Where
       other rows say whose they are, nothing in Spark enforces that, and they are refused before.)

However many rows a unit has, none of them need be in memory at once, by the settings of
`sessions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.engines.others import unit_name
from dpsql.engines.spark.bounded import cell_of
from dpsql.engines.spark.relations import rows_of_units
from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.text import call, quoted, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.unit_rows import ROWS, RowsOfEachUnit, RowsWithoutUnit
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.units import UNIT

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
        """Return all rows of a table, in the snapshot; reads none.

        Raises:
            InternalError: it is made of several, whose rows are those of a relation.
        """
        match table.origin:
            case RowsOfEachUnit():
                return self._of_each_unit(table.origin)
            case RowsWithoutUnit():
                return self._of_no_unit(table.origin)
            case None:
                return self.stored.rows(table)
            case _:
                raise InternalError("rows that are made are scanned as if they were stored")

    def at(self, path: tuple[str, ...], types: Mapping[str, str]) -> DataFrame:
        """Return all rows of a table on the way to a unit; see `SparkTables.at`."""
        return self.stored.at(path, types)

    def check_unchanged(self, path: tuple[str, ...]) -> None:
        """Check that files are as they were; see `SparkTables.check_unchanged`."""
        self.stored.check_unchanged(path)

    def _of_each_unit(self, made: RowsOfEachUnit) -> DataFrame:
        """Return units with the number of their rows."""
        most = whole(made.most)
        counts = self._grouped(made.table, ())
        for limit in made.limits:
            cut = self._grouped(made.table, limit.columns).where(f"n > {whole(limit.rows)}")
            counts = counts.unionAll(cut.selectExpr(UNIT, f"{most} AS n"))
        largest = functions_of(counts).expr(call("max", "n")).alias("n")
        rows = call("greatest", call("least", "n", most), whole(made.least))
        return counts.groupBy(UNIT).agg(largest).selectExpr(UNIT, f"{rows} AS {quoted(ROWS)}")

    def _grouped(self, table: Table, columns: Sequence[str]) -> DataFrame:
        """Return how many rows units have, in each cell of some columns."""
        unit, cells = unit_name(table), [f"c{i}" for i in range(len(columns))]
        codes = (cell_of(table, name) for name in columns)
        shown = [f"{a} AS {b}" for a, b in zip([unit, *codes], [UNIT, *cells], strict=True)]
        rows = rows_of_units(self, table, columns, unit).selectExpr(*shown)
        counted = functions_of(rows).expr(call("count", whole(1))).alias("n")
        return rows.groupBy(UNIT, *cells).agg(counted).select(UNIT, "n")

    def _of_no_unit(self, made: RowsWithoutUnit) -> DataFrame:
        """Return the rows that belong to nobody."""
        unit = made.table.unit
        if unit is None or unit.joins:
            raise InternalError("nothing in the rows says that they belong to nobody")
        nobody = " OR ".join(f"{quoted(name)} IS NULL" for name, _ in unit.columns)
        return self.rows(made.table).where(nobody).selectExpr(f"{whole(0)} AS n")


def not_written(made: RowsOfEachUnit | RowsWithoutUnit) -> str:
    """Refuse to write rows as a text: Spark's are made by `MadeTables`.

    Raises:
        InternalError: always.
    """
    raise InternalError(f"rows of {len(made.tables)} tables are no text in Spark")
