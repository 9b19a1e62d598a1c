"""Polars frames as private tables: `df.dp.sql("SELECT … FROM self …", budget=…)`.

What is public about a frame are its Enum categories and Boolean; other columns get a domain by
`schema`. NULL counts as a value of each column, unless a declared domain leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import polars as pl

from dpsql.calls import checked

if TYPE_CHECKING:
    from pathlib import Path

    from dpsql.privacy import Budget
    from dpsql.release import Release
    from dpsql.schema import Domain, EachRow, Schema
    from dpsql.session import Session

    Declared = Mapping[str, Domain] | Schema


@pl.api.register_lazyframe_namespace("dp")
@pl.api.register_dataframe_namespace("dp")
class PrivateFrame:
    """The attribute `dp` of a `DataFrame` or `LazyFrame`, which is the table `self` in SQL."""

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    @overload  # a str is a Sequence of str too, and then the first one is meant
    def sql(  # type: ignore[overload-overlap]
        self,
        statements: str,
        *,
        budget: Budget,
        schema: Declared | None = ...,
        unit: str | EachRow | None = ...,
        max_rows: int | None = ...,
        ledger: str | Path | None = ...,
        public: Mapping[str, pl.DataFrame] | None = ...,
        confidence: float | None = ...,
    ) -> pl.DataFrame: ...
    @overload
    def sql(
        self,
        statements: Sequence[str] | Mapping[str, str],
        *,
        budget: Budget,
        schema: Declared | None = ...,
        unit: str | EachRow | None = ...,
        max_rows: int | None = ...,
        ledger: str | Path | None = ...,
        public: Mapping[str, pl.DataFrame] | None = ...,
        confidence: float | None = ...,
    ) -> Release: ...
    @checked
    def sql(
        self,
        statements: str | Sequence[str] | Mapping[str, str],
        *,
        budget: Budget,
        schema: Declared | None = None,
        unit: str | EachRow | None = None,
        max_rows: int | None = None,
        ledger: str | Path | None = None,
        public: Mapping[str, pl.DataFrame] | None = None,
        confidence: float | None = None,
    ) -> pl.DataFrame | Release:
        """Answer SQL over this frame with differential privacy.

            df.dp.sql("SELECT sex, COUNT(*) AS n FROM self GROUP BY sex",
                      budget=dpsql.Budget(epsilon=1, delta=1e-9))

        Each call has an account of its own, unless `ledger` names a file: nothing limits several
        calls together. For several questions about one frame make a `session`.

        Args:
            statements: one SQL text for one frame; several, or name → text, for a `Release`.
            budget: what the call is charged.
            schema: column → `dpsql.Domain`, or a `dpsql.Schema` with the table `self`; for
                columns that are neither Enum nor Boolean, or that have no NULL.
            unit: the column that tells to whom a row belongs; by default each row is protected
                by itself.
            max_rows: how many rows of one unit count at most. Needed with `unit`.
            ledger: a file that keeps the account across calls.
            public: name → frame, for tables that hold no private row and may be joined.
            confidence: adds interval columns, for example 0.95.

        Raises:
            DpsqlError: see `dpsql.Session.release`.
        """
        session = self.session(
            schema=schema, unit=unit, max_rows=max_rows, ledger=ledger, public=public
        )
        if isinstance(statements, str):
            return session.query(statements, budget=budget, confidence=confidence)
        return session.release(statements, budget=budget, confidence=confidence)

    @checked
    def session(
        self,
        *,
        budget: Budget | None = None,
        schema: Declared | None = None,
        unit: str | EachRow | None = None,
        max_rows: int | None = None,
        ledger: str | Path | None = None,
        public: Mapping[str, pl.DataFrame] | None = None,
    ) -> Session:
        """Make a session on a copy of this frame, for several questions under one total.

        `budget` is that total; without it, spending is not limited. For the other arguments see
        `sql`.

        Raises:
            DpsqlError: see `dpsql.Session`.
        """
        # Imported late, so that `import dpsql` can offer the namespace without the planner.
        from dpsql.engines.frames import TABLE, store_frame
        from dpsql.schema import Schema
        from dpsql.session import Session

        frame = self._frame.collect() if isinstance(self._frame, pl.LazyFrame) else self._frame
        return Session(
            store_frame(frame),
            budget=budget,
            schema=schema
            if schema is None or isinstance(schema, Schema)
            else Schema(_whole(schema, TABLE)),
            ledger=ledger,
            public=public,
            unit=unit,
            max_rows=max_rows,
        )


def _whole(schema: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    """Put a table's name before its columns, unless it stands there, as in a `Schema`."""
    named = [*schema] == [table] and isinstance(schema[table], Mapping)
    return schema if named else {table: schema}
