"""The protocol by which a session asks for private data, of which each engine has a class.

    session ──▶ DataSource ──▶ Catalog     what is public of tables: `schema/` asks it
                   │ └───────▶ Engine      exact counts, on one snapshot: `session/answer.py`
                   ├─ DescribedTables      `describe`: tables as `schema/` joins them
                   └─ identity, public tables, tables made of rows of others

`dpsql.engines.data_source` makes one of what a caller passes, and knows all engines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from dpsql.engines.base import Engine, Step
from dpsql.engines.interrupts import Interruptible
from dpsql.hints import Hint
from dpsql.schema import Schema, Table
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.facts import Database
from dpsql.schema.references import DescribedTables
from dpsql.schema.units import RowLimit


class RefusedViewError(Exception):
    """A reason why a view can't be released from, in half a sentence; becomes a SchemaError."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class StoredState(NamedTuple):
    """The state of a table's rows, as told by the table itself, not by the database it is in."""

    roots: tuple[Path, ...] = ()
    """The folders of this machine whose account they are in; see `frozen.root_of`."""
    uid: str = ""
    """A name that the table alone has, and no other one made in its place."""
    version: str = ""
    """The version of its rows, which nobody changes."""
    files: str = ""
    """A hash of the files of rows without a version, and of when these were written."""


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

    def how_to_declare(self, declared: Schema | None, public: Collection[str] = ()) -> Hint | None:
        """Say what an owner does first who has declared nothing; None if there is nothing to say.

        Args:
            declared: what is declared.
            public: the tables that are declared public.
        """
        return None

    def undeclared_texts(
        self, declared: Schema | None, public: Collection[str] = ()
    ) -> Mapping[str, Sequence[str]]:
        """Return the columns that are texts as nothing is declared of their table, by its name.

        Args:
            declared: what is declared.
            public: the tables that are declared public.
        """
        return {}

    def close(self) -> None:
        """Close what was opened for it, and nothing that a caller has passed."""

    def check_ledger(self, ledger: object, *, shared: bool) -> None:
        """Refuse a ledger that couldn't be found by all who ask of this data set.

        Args:
            ledger: what the caller names; None if nothing.
            shared: whether that is a server, which all machines can ask.

        Raises:
            LedgerError: it can't be that.
        """

    def public_rows(self, name_parts: Sequence[str], most: int) -> pl.DataFrame | None:
        """Read a table or view that the owner declared public; None if it has more rows.

        Raises:
            SchemaError: it can't be read. Its text quotes nothing.
        """

    def tables_below(self, name_parts: Sequence[str]) -> Collection[tuple[str, ...]]:
        """Return the paths of stored tables that may be read by a name: through views, too.

        Raises:
            SchemaError: it can't be told.
        """

    def stored_state(self, table: Table) -> StoredState:
        """Return which rows a stored table has; nothing, if the database's file tells of them.

        Outside a snapshot it is of when the table was described.

        Raises:
            StaleSchemaError: it was written since.
        """

    def engine(self, on_step: Step | None = None) -> Engine:
        """Return what counts rows.

        Args:
            on_step: called after each scan.
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


class DraftedSource(DataSource, Protocol):
    """Private data of which an owner wants drafts; see `dpsql schema`."""

    @property
    def is_opened(self) -> bool:
        """Whether it is of files or frames, of which no catalog declares anything."""

    def guess_types(self) -> bool:
        """Find the types of what has none in its rows; tell if any were.

        Raises:
            SchemaError: rows can't be read.
        """

    def values_found(self, table: Table) -> Mapping[str, Domain | NumberBounds]:
        """Return what the rows of a table tell of its columns: it is as private as they are."""
