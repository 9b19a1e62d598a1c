"""Polars frames as private tables: `df.dp.sql("SELECT … FROM self …", budget=…)`.

What is public about a frame are its Enum categories and Boolean; other columns get a domain by
`schema`. NULL counts as a value of each column, unless a declared domain leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import polars as pl

from dpsql.calls import checked
from dpsql.request import FrameOptions, FrameSessionOptions, Free, Statements, spelled_out

if TYPE_CHECKING:
    import os

    from dpsql.privacy import Budget
    from dpsql.privacy.budget import Number
    from dpsql.release import Release
    from dpsql.schema import Domain, Schema
    from dpsql.session import Session

    FrameSchema = Mapping[str, Domain] | Schema | str | os.PathLike[str]


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
        budget: Budget | Free,
        schema: FrameSchema | None = ...,
        **options: Unpack[FrameOptions],
    ) -> pl.DataFrame: ...
    @overload
    def sql(
        self,
        statements: Sequence[str] | Mapping[str, str],
        *,
        budget: Budget | Free,
        schema: FrameSchema | None = ...,
        **options: Unpack[FrameOptions],
    ) -> Release: ...
    @checked
    @spelled_out(FrameOptions)
    def sql(
        self,
        statements: Statements,
        *,
        budget: Budget | Free,
        schema: FrameSchema | None = None,
        **options: Unpack[FrameOptions],
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
                columns that are neither Enum nor Boolean, or that have no NULL. Or a schema file.
            unit: the column that tells to whom a row belongs; by default each row is protected
                by itself.
            max_rows: how many rows of one unit count at most.
            max_groups: in how many groups one counts at most where units are counted.
            max_values: how many values of one count at most in a group where these are counted.
            ledger: a file that keeps the account across calls, or the address of a server.
            dataset: with a server, the name of these rows that the owner has bound there.
            public: name → frame, for tables that hold no private row and may be joined.
            confidence: adds interval columns, for example 0.95.

        Raises:
            DpsqlError: see `dpsql.Session.release`.
        """
        # Imported late, so that `import dpsql` can offer the namespace without the planner.
        from dpsql.api import query
        from dpsql.engines.duckdb.frames import store_frame

        return query(
            store_frame(self._collected),
            statements,
            budget=budget,
            schema=_declared(schema),
            **options,
        )

    @checked
    @spelled_out(FrameSessionOptions)
    def session(
        self,
        *,
        budget: Budget | None = None,
        key_delta: Number | None = None,
        schema: FrameSchema | None = None,
        **options: Unpack[FrameSessionOptions],
    ) -> Session:
        """Make a session on a copy of this frame, for several questions under one total.

        `budget` is that total; without it, spending is not limited. For `key_delta` see
        `dpsql.Session`, for the other arguments `sql`.

        Raises:
            DpsqlError: see `dpsql.Session`.
        """
        from dpsql.engines.duckdb.frames import store_frame
        from dpsql.session import Session

        con = store_frame(self._collected)
        declared = _declared(schema)
        return Session(con, budget=budget, key_delta=key_delta, schema=declared, **options)

    @property
    def _collected(self) -> pl.DataFrame:
        return self._frame.collect() if isinstance(self._frame, pl.LazyFrame) else self._frame


def _declared(schema: FrameSchema | None) -> Schema | None:
    """Put the table's name before its columns, unless it stands there, as in a `Schema`."""
    from dpsql.engines.duckdb.frames import TABLE
    from dpsql.schema import Schema

    if schema is None:
        return None
    if not isinstance(schema, Mapping):
        return Schema.given(schema)
    named = [*schema] == [TABLE] and isinstance(schema[TABLE], Mapping)
    return Schema(cast(Any, schema if named else {TABLE: schema}))
