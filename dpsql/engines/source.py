"""What a session asks of private data: one protocol, of which each engine has a class.

    session ──▶ DataSource ──▶ Catalog     what is public of tables: `schema/` asks it
                   │ └───────▶ Engine      exact counts, on one snapshot: `session/answer.py`
                   ├─ DescribedTables      `describe`: tables as `schema/` joins them
                   └─ identity, public tables, tables made of rows of others

`dpsql.engines.data_source` makes one of what a caller passes, and knows all engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import polars as pl

from dpsql.engines.base import Engine, Step
from dpsql.engines.interrupts import Interruptible
from dpsql.schema import Table
from dpsql.schema.combined import RowCombination
from dpsql.schema.facts import Database
from dpsql.schema.referred import DescribedTables
from dpsql.schema.units import RowLimit


class DataSource(DescribedTables, Interruptible, Protocol):
    """Private data in a database. Nothing here but the `Engine` reads private rows.

    What it says is of the moment at which it is asked, or of the engine's snapshot while there is
    one. Another thread may end what it runs, by `interrupt`.
    """

    def identity(self) -> Database:
        """Return which data set this is: what its account is known by.

        It must not be the same for two data sets, nor differ for one that an account is kept of:
        a row would have two budgets.

        Raises:
            SchemaError: it has none, or it can't be told now.
        """

    def check_ledger(self, ledger: object) -> None:
        """Refuse a ledger that couldn't be found by all who ask of this data set.

        Args:
            ledger: what the caller names; None if nothing.

        Raises:
            LedgerError: it can't be that.
        """

    def public_rows(self, name_parts: Sequence[str], most: int) -> pl.DataFrame | None:
        """Read a table or view that the owner declared public; None if it has more rows.

        Raises:
            SchemaError: it can't be read. Its text quotes nothing.
        """

    def engine(self, on_step: Step | None = None) -> Engine:
        """Return what counts rows.

        Args:
            on_step: called after each scan.
        """

    def combined(self, combination: RowCombination, root: str, rows: int) -> Table:
        """Describe rows that are made of rows of several tables, by `combined.combined_rows`.

        Args:
            combination: which rows meet.
            root: the table and the columns of the ids of their units.
            rows: how many rows of a unit count.
        """

    def unit_counts(
        self, table: Table, root: str, least: int, most: int, limits: tuple[RowLimit, ...] = ()
    ) -> Table:
        """Describe the units of a table with the number of their rows, by `unit_rows.unit_counts`.

        Args:
            table: the table.
            root: the table and the columns of the ids of its units.
            least: the least number of rows that is told apart.
            most: the largest one.
            limits: a unit has that, too, if one of these leaves rows of it out.
        """

    def rows_without_unit(self, table: Table) -> Table:
        """Describe the rows of a table that belong to nobody, by `unit_rows.rows_without_unit`.

        Raises:
            SchemaError: rows of the table have no units; or, when one is gone, some may stay
                behind.
        """
