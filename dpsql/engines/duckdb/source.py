"""Private data on a DuckDB connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import duckdb
import polars as pl

from dpsql.engines.base import Step
from dpsql.engines.duckdb import made
from dpsql.engines.duckdb.catalog import DuckDBCatalog, fetch
from dpsql.engines.duckdb.definitions import tables_below
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.views import describe_table
from dpsql.engines.source import DraftedSource, StoredState
from dpsql.engines.unit_rows import rows_without_unit, unit_counts
from dpsql.errors import SchemaError
from dpsql.schema import Schema, Table
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.facts import Database, TablePath
from dpsql.schema.lookup import current_database
from dpsql.schema.names import quoted_name
from dpsql.schema.units import DeclaredUnit, RowLimit


@dataclass(frozen=True, eq=False)
class DuckDBSource(DraftedSource):
    """The databases of a DuckDB connection; see `DataSource`.

    Args:
        con: the connection: the caller's, or one of dpsql's own.
    """

    con: duckdb.DuckDBPyConnection
    owned: bool = False
    """Whether dpsql has opened the connection."""

    @cached_property
    def catalog(self) -> DuckDBCatalog:
        """The catalog: all that is public of its tables."""
        return DuckDBCatalog(self.con)

    def identity(self) -> Database:
        """Return the current database: it is known by its file; see `DataSource.identity`."""
        return current_database(self.catalog)

    @property
    def is_opened(self) -> bool:
        """Tell that it is a database; see `DraftedSource.is_opened`."""
        return False

    def guess_types(self) -> bool:
        """Leave types as they are; see `DraftedSource.guess_types`."""
        return False

    def values_found(self, table: Table) -> Mapping[str, Domain | NumberBounds]:
        """Return what the rows of a table tell of its columns; see `found_values.values_found`."""
        from dpsql.engines.duckdb.found_values import values_found

        return values_found(self.con, table)

    def close(self) -> None:
        """Close a connection of dpsql's own; see `DataSource.close`."""
        if self.owned:
            self.con.close()

    def check_ledger(self, ledger: object, *, shared: bool) -> None:
        """Take any: a database's file tells where it is; see `DataSource.check_ledger`."""

    def describe(
        self, name_parts: tuple[str, ...], declared: Schema | None = None, unit: DeclaredUnit = None
    ) -> Table:
        """Describe a table, a view or Parquet files; see `DescribedTables.describe`.

        So it is asked when a statement is compiled, and again on the snapshot before the charge.
        """
        self.catalog.check_meaning()
        return describe_table(self.catalog, name_parts, declared, unit)

    def public_rows(self, name_parts: Sequence[str], most: int) -> pl.DataFrame | None:
        """Read a table or view that is declared public; see `DataSource.public_rows`."""
        path = ".".join(map(quoted_name, name_parts))
        ((rows,),) = fetch(self.con, f"SELECT system.main.count(*) FROM {path}")
        if int(rows) > most:
            return None
        try:
            frame: pl.DataFrame | None = self.con.sql(f"SELECT * FROM {path}").pl()
        except (duckdb.Error, pl.exceptions.PolarsError):
            frame = None
        if frame is None:  # outside the handler, whose error could quote a value
            raise SchemaError("A table can't be read.", hint="is it a table of this database?")
        return frame

    def tables_below(self, name_parts: Sequence[str]) -> frozenset[TablePath]:
        """Return the tables that may be read by a name; see `DataSource.tables_below`."""
        return tables_below(self.catalog, name_parts)

    def stored_state(self, table: Table) -> StoredState:
        """Leave it to the database's file, and to views; see `DataSource.stored_state`."""
        return StoredState()

    def engine(self, on_step: Step | None = None) -> DuckDBEngine:
        """Return what counts rows; see `DataSource.engine`."""
        return DuckDBEngine(self.con, on_step=on_step)

    def interrupt(self) -> None:
        """End the statement that runs."""
        self.con.interrupt()

    def unit_counts(
        self, table: Table, root: str, least: int, most: int, limits: tuple[RowLimit, ...] = ()
    ) -> Table:
        """Describe units with the number of their rows; see `DataSource.unit_counts`."""
        return unit_counts(table, root, least, most, limits, made.of_each_unit)

    def rows_without_unit(self, table: Table) -> Table:
        """Describe rows that belong to nobody; see `DataSource.rows_without_unit`."""
        return rows_without_unit(table, made.of_no_unit)


def is_connection(given: object) -> TypeGuard[duckdb.DuckDBPyConnection]:
    """Whether something is a DuckDB connection, or passes statements on to one.

    Raises:
        SchemaError: it is, and can't be asked now.
    """
    if isinstance(given, duckdb.DuckDBPyConnection):
        return True
    try:
        ((database,),) = fetch(given, "SELECT system.main.current_database()")  # type: ignore[arg-type]
    except SchemaError:
        raise
    except Exception:  # whatever it is that objects of any kind raise
        return False
    return isinstance(database, str)
