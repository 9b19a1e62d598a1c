"""Synthetic rows of a release: it makes them up, and compares them with itself.

The code for that is imported where it is needed, as most releases make up no rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction.sources import Source
from dpsql.release.facts import Facts
from dpsql.release.requery import fitting

if TYPE_CHECKING:
    from dpsql.release.relations import ReleasedRelation


class SyntheticRows(ABC):
    """The synthetic rows of the tables of a release. All of this is post-processing."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The public facts about the release."""

    @property
    @abstractmethod
    def sources(self) -> tuple[Source, ...]:
        """The sources of the release: what was measured."""

    @one_thread
    def synthetic(
        self,
        rows: int | None = None,
        *,
        updates: int = 0,
        seed: int | None = None,
        table: str | None = None,
    ) -> pl.DataFrame:
        """Make up rows that are like those of the table, as far as the release says. It is free.

        They have the columns with a domain by which rows were counted, with the types of the
        table. Columns are drawn one by one, each given two others at most, so that pairs of columns
        are near what was measured; what was not measured is not in them.

        Args:
            rows: how many; as many as the release says that there are, by default.
            updates: rounds in which rows are moved so that all pairs of columns get nearer to what
                was measured, also those that columns were not drawn by. What depends on three
                columns may get lost, and it takes longer.
            seed: gives the same rows each time; without it, they are others each time.
            table: of several tables, which one's rows are meant.

        Raises:
            UndeterminedError: the release doesn't say how many rows there are.
            ArgumentError, SchemaError, ResourceLimitError: no such rows can be made up.
        """
        from dpsql.release.synthesis import synthetic

        with fitting():
            return synthetic(self._relation(table), rows, updates, seed)

    @one_thread
    def synthetic_quality(self, frame: pl.DataFrame, *, table: str | None = None) -> pl.DataFrame:
        """Compare synthetic rows with what was measured: a row for each column and measured pair.

        Columns: `columns`, `cells`, and three distances, each half the sum of absolute differences
        between shares of rows (total variation). `tv_to_fitted` is that of the rows to the table
        without negative cells that was fitted to measurements. `tv_noise_expected` says about how
        far this table is from the truth, by its noise; NULL where that isn't known.
        `tv_estimated` is of both together, about. `note` says which columns are independent of all
        others or were left out, and why.

        Args:
            frame: rows of `synthetic`.
            table: of several tables, which one's rows they are.

        Raises:
            ArgumentError, SchemaError: they are no such rows.
        """
        from dpsql.release.quality import quality

        with fitting():
            return quality(self._relation(table), frame)

    def _relation(self, name: str | None) -> ReleasedRelation:
        """Return what is known of the rows of a table; it is kept."""
        from dpsql.release.relations import ReleasedRelation
        from dpsql.release.synthesis import table_named

        found = table_named(self.facts.tables, name)
        if found.path not in self._relations:
            self._relations[found.path] = ReleasedRelation.of(found, self.sources)
        return self._relations[found.path]

    @cached_property
    def _relations(self) -> dict[tuple[str, ...], ReleasedRelation]:
        return {}
