"""Private data in Spark: which tables there are, and their rows as they were at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import polars as pl

from dpsql.engines.base import Step
from dpsql.engines.source import DataSource, StoredState
from dpsql.engines.spark.catalog import SparkCatalog
from dpsql.engines.spark.engine import Partials, SparkEngine
from dpsql.engines.spark.files import LAKES, PinnedFiles
from dpsql.engines.spark.made import MadeTables, not_written
from dpsql.engines.spark.sessions import is_here_alone, own_session, quiet
from dpsql.engines.spark.sql.text import quoted
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.unit_rows import rows_without_unit, unit_counts
from dpsql.errors import LedgerError, SchemaError, StaleSchemaError, printable
from dpsql.hints import option
from dpsql.schema import Schema, Table
from dpsql.schema.catalog import read_table
from dpsql.schema.facts import Database
from dpsql.schema.grain import declared_type, paths_read
from dpsql.schema.names import as_sql
from dpsql.schema.units import DeclaredUnit, RowLimit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PinnedTables(SparkTables):
    """Tables of Spark's catalogs, and of folders, each pinned when it is first read in a snapshot.

    Args:
        session: one of our own.
        version: of tables with versions, which one is read; the last one if there is none.
    """

    def __init__(self, session: SparkSession, version: str | None = None) -> None:
        self._session, self.version = session, version
        self._held: dict[tuple[str, ...], PinnedFiles] | None = None
        self._described: dict[tuple[str, ...], PinnedFiles] = {}

    @property
    def session(self) -> SparkSession:
        """A session with settings that are pinned."""
        return self._session

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let each table that is read inside be of one state; see `Engine.snapshot`."""
        if self._held is not None:
            yield
            return
        self._held = {}
        try:
            yield
        finally:
            self._held = None

    def rows(self, table: Table) -> DataFrame:
        """Return all rows of a table, in the snapshot; reads none.

        Raises:
            SchemaError: it can't be read.
            StaleSchemaError: its columns are others than were described.
        """
        files = self.pinned(table.path)
        if files.types != _types(table):
            raise _altered(table.name)
        return files.rows(self._session)

    def at(self, path: tuple[str, ...], types: Mapping[str, str]) -> DataFrame:
        """Return all rows of a table on the way to a unit, in the snapshot; reads none.

        Raises:
            SchemaError: it can't be read.
            StaleSchemaError: it hasn't the columns that it must have.
        """
        files = self.pinned(path)
        if not types.items() <= files.types.items():
            raise _altered(path[-1])
        return files.rows(self._session)

    def describe(self, path: tuple[str, ...], files: PinnedFiles) -> None:
        """Keep which files a table had when it was described: these are counted.

        In a snapshot, in which it is described once more, nothing changes.
        """
        if self._held is None:
            self._described[path] = files

    def pinned(self, path: tuple[str, ...]) -> PinnedFiles:
        """Return the files of a table, as they were when it was described.

        In a snapshot these are looked for once more, when they are first asked for.

        Raises:
            SchemaError: they aren't there any more.
            StaleSchemaError: they are others, or not as they were.
        """
        known = self._described.get(path)
        if self._held is None:
            return self._pin(path, "") if known is None else known
        if path not in self._held:
            version = self._pin(path, "" if known is None else known.version)
            if known is not None:
                known.check_unchanged(version)
            self._held[path] = version
        return self._held[path]

    def _pin(self, path: tuple[str, ...], version: str) -> PinnedFiles:
        return files_of(SparkCatalog(self._session, version or self.version), path)

    def check_unchanged(self, path: tuple[str, ...]) -> None:
        """Check that the files that were read are as they were when they were listed.

        Raises:
            StaleSchemaError: they aren't.
        """
        files = self.pinned(path)
        if not files.version:
            files.check_unchanged(self._pin(path, ""))


def files_of(catalog: SparkCatalog, path: tuple[str, ...]) -> PinnedFiles:
    """Return the files of a stored table, as they are now.

    Raises:
        SchemaError: there is none, or it can't be read.
    """
    stored = catalog.seen(path)
    if stored is None:
        raise SchemaError(f"There is no table {printable(path[-1])}.", hint="was it dropped?")
    if stored.files is None:
        raise _other_format(catalog, path, stored.kind)
    if catalog.version is not None and not stored.files.version:
        raise SchemaError(
            f"{printable(path[-1])} has no versions: it is a folder of Parquet files.",
            hint="leave version out.",
        )
    return stored.files


def _other_format(catalog: SparkCatalog, path: tuple[str, ...], kind: str) -> SchemaError:
    name = ".".join(map(as_sql, path))
    return SchemaError(
        f"{printable(path[-1])} is stored as {printable(kind)[:60]}, not as Parquet.",
        hint=f'name its place: FROM {kind}."/…".'
        if kind in LAKES
        else "store its rows in Parquet: " + catalog.copying(name, as_sql(f"{path[-1]}_stored")),
    )


def _types(table: Table) -> dict[str, str]:
    """Return the types of a table's columns as they were described."""
    alone = table.alone
    return {name: declared_type(alone, name) for name in (*alone.columns, *alone.undeclared)}


class SparkSource(DataSource):
    """The tables of a Spark session; see `DataSource`.

    Args:
        spark: the caller's session, which stays as it is.
        version: of tables with versions, which one is read.
        partials: how parts of the rows are counted.
    """

    def __init__(
        self, spark: SparkSession, version: str | None = None, partials: Partials = "auto"
    ) -> None:
        session, works = own_session(spark), False
        with quiet(), suppress(Exception):
            session.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
            session.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
            works = True
        if not works:  # outside the handler: Spark's error may quote whatever it has
            raise SchemaError("The Spark session can't be used.", hint="was it stopped?")
        self._tables, self._partials = PinnedTables(session, version), partials
        self._places: dict[tuple[str, str], None] = {}

    @property
    def catalog(self) -> SparkCatalog:
        """The catalog of the tables: what is public of them."""
        return SparkCatalog(self._tables.session, self._tables.version, self._places)

    def identity(self) -> Database:
        """Return the catalog: nothing beside it could tell where an account is."""
        return Database(self.catalog.current().database, None)

    def close(self) -> None:
        """Leave the caller's session open."""

    def check_ledger(self, ledger: object, *, shared: bool) -> None:
        """Refuse a ledger that other sessions on the same rows wouldn't find.

        Raises:
            LedgerError: it is in memory; or in a file, and Spark runs on other machines, too.
        """
        if ledger is None:
            raise LedgerError(
                "Nothing that is stored beside Spark's tables says where their account is.",
                hint="name its ledger by " + option("ledger", "people.ledger") + " each time.",
            )
        if not shared and not is_here_alone(self._tables.session):
            raise LedgerError(
                "This Spark may be on several machines, and this ledger in a file on one of them.",
                hint="keep the account on a server, "
                + option("ledger", "postgresql://db.example/accounts")
                + " with "
                + option("dataset", "hr.people")
                + '; or count on this machine, SparkSession.builder.master("local[*]").',
            )

    def describe(
        self, name_parts: tuple[str, ...], declared: Schema | None = None, unit: DeclaredUnit = None
    ) -> Table:
        """Describe a stored table or a folder; reads no row.

        Raises:
            SchemaError: see `read_table`; it is a view, which may hold anything.
        """
        catalog = self.catalog
        catalog.know(name_parts, declared, unit)
        if catalog.views_named(name_parts[-1]) and not catalog.tables_named(name_parts[-1]):
            raise SchemaError(
                f"{printable(name_parts[-1])} is a view, which may change between two reads.",
                hint=catalog.copying(
                    ".".join(map(as_sql, name_parts)), as_sql(f"{name_parts[-1]}_stored")
                ),
            )
        table = read_table(catalog, name_parts, declared, unit)
        for path in paths_read(table):
            stored = catalog.stored(path)
            if stored is not None and stored.files is None:
                raise _other_format(catalog, path, stored.kind)
            if stored is not None and stored.files is not None:
                self._tables.describe(path, stored.files)
        return table

    def stored_state(self, table: Table) -> StoredState:
        """Return which rows a table has; see `DataSource.stored_state`."""
        path, *_ = paths_read(table)
        files = self._tables.pinned(path)
        state = "" if files.version else files.state
        return StoredState(files.roots, files.uid, files.version, state)

    def public_rows(self, name_parts: Sequence[str], most: int) -> pl.DataFrame | None:
        """Read a table or view that is declared public; None if it has more rows.

        Raises:
            SchemaError: it can't be read. Its text quotes nothing.
        """
        frame: pl.DataFrame | None = None
        with quiet():
            try:
                rows = self._tables.session.table(".".join(map(quoted, name_parts)))
                converted = pl.from_arrow(rows.limit(most + 1).toArrow())
                frame = converted if isinstance(converted, pl.DataFrame) else None
            except Exception:
                frame = None
        if frame is None:
            raise SchemaError(
                "A table can't be read.",
                hint="is it stored? Temporary views aren't seen: pass public={name: frame}.",
            )
        return None if frame.height > most else frame

    def tables_below(self, name_parts: Sequence[str]) -> tuple[()]:
        """Return none: what a view of Spark reads isn't looked into, names alone are compared."""
        return ()

    def engine(self, on_step: Step | None = None) -> SparkEngine:
        """Return what counts rows.

        Args:
            on_step: called after each job.
        """
        return SparkEngine(MadeTables(self._tables), on_step=on_step, partials=self._partials)

    def interrupt(self) -> None:
        """End what runs in the session, which is our own."""
        self._tables.session.interruptAll()

    def unit_counts(
        self, table: Table, root: str, least: int, most: int, limits: tuple[RowLimit, ...] = ()
    ) -> Table:
        """Describe units with the number of their rows; see `DataSource.unit_counts`."""
        return unit_counts(table, root, least, most, limits, not_written)

    def rows_without_unit(self, table: Table) -> Table:
        """Describe rows that belong to nobody; see `DataSource.rows_without_unit`."""
        return rows_without_unit(table, not_written)


def _altered(name: str) -> StaleSchemaError:
    return StaleSchemaError(
        f"The table {printable(name)} was altered or dropped since its schema was read.",
        hint="plan again: the new plan will read the new schema.",
    )
