"""The sources of the rows that Spark counts, and the tables that these are of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from dpsql.schema import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTables(Protocol):
    """The source of the rows of tables."""

    @property
    def session(self) -> SparkSession:
        """A session with settings that are pinned."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read inside be of one state; see `Engine.snapshot`."""

    def rows(self, table: Table) -> DataFrame:
        """Return all rows of a table, in the snapshot; reads none."""

    def at(self, path: tuple[str, ...], types: Mapping[str, str]) -> DataFrame:
        """Return all rows of a table on the way to a unit, in the snapshot; reads none.

        Args:
            path: where it is.
            types: columns that it must have, with their types.

        Raises:
            StaleSchemaError: it has others.
        """

    def check_unchanged(self, path: tuple[str, ...]) -> None:
        """Check that what was read is still what it was when the snapshot was entered.

        Raises:
            StaleSchemaError: it isn't.
        """
