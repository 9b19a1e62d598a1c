"""A release: named frames, made from one set of noisy measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.mechanism.measure import NoisyMeasurements
from dpsql.mechanism.reconstruct import Reconstruction
from dpsql.planner.plan import Plan
from dpsql.privacy import Budget, Receipt
from dpsql.schema import Domain
from dpsql.sql.frontend import KeyColumn, Script, Statement, ValueColumn

POLARS_TYPES: Mapping[str, pl.DataType] = MappingProxyType(
    {
        "TINYINT": pl.Int8(),
        "SMALLINT": pl.Int16(),
        "INTEGER": pl.Int32(),
        "BIGINT": pl.Int64(),
        "UTINYINT": pl.UInt8(),
        "USMALLINT": pl.UInt16(),
        "UINTEGER": pl.UInt32(),
        "UBIGINT": pl.UInt64(),
        "BOOLEAN": pl.Boolean(),
        "VARCHAR": pl.String(),
    }
)
"""DuckDB type → Polars type of a key column. ENUM becomes `pl.Enum` with the same labels."""


class Release(Mapping[str, pl.DataFrame]):
    """The answers of one release: statement name → frame.

    Each frame has a row for every group of the public domain that the WHERE clause leaves
    possible, whether or not the table has such rows. Keys have the type of the domain; beside
    each value column `n` stands its `n_variance`. Answers are unbiased and consistent across
    statements.
    """

    def __init__(
        self, frames: Mapping[str, pl.DataFrame], plan: Plan, receipt: Receipt | None
    ) -> None:
        self._frames = MappingProxyType(dict(frames))
        self._plan = plan
        self._receipt = receipt

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Release({', '.join(self._frames)}; charged {self.charged or 'nothing'})"

    @property
    def plan(self) -> Plan:
        """The plan that was measured."""
        return self._plan

    @property
    def charged(self) -> Budget | None:
        """What the release was charged; None if its answers follow from the domains alone."""
        return self._plan.budget if self._receipt is not None else None


def build_release(
    script: Script,
    plan: Plan,
    measured: NoisyMeasurements,
    receipt: Receipt | None,
    quantile: float | None,
) -> Release:
    """Turn noisy measurements into one frame per statement.

    With a `quantile`, bounds are that many standard deviations from the values.
    """
    answers = Reconstruction(plan, measured)
    frames = {s.name: _frame(s, plan, answers, quantile) for s in script.statements}
    return Release(frames, plan, receipt)


def _frame(
    statement: Statement, plan: Plan, answers: Reconstruction, quantile: float | None
) -> pl.DataFrame:
    keys = [c for c in statement.columns if isinstance(c, KeyColumn)]
    codes = [_spread(key, statement.shape) for key in keys]
    count = math.prod(statement.shape)
    order = np.lexsort(codes[::-1]) if codes else np.arange(count)
    columns: list[pl.Series] = []
    for column in statement.columns:
        if isinstance(column, KeyColumn):
            index = next(i for i, key in enumerate(keys) if key is column)
            columns.append(key_series(column.name, column.domain, codes[index][order]))
        else:
            columns += _value_series(column, plan, answers, order, quantile)
    return pl.DataFrame(columns)


def _spread(key: KeyColumn, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Repeat a block's codes along the other blocks, flattened in C order."""
    along = [1] * len(shape)
    along[key.block] = shape[key.block]
    return np.broadcast_to(key.codes.reshape(along), shape).ravel()


def _value_series(
    column: ValueColumn,
    plan: Plan,
    answers: Reconstruction,
    order: NDArray[np.int64],
    quantile: float | None,
) -> list[pl.Series]:
    family = plan.workload.families[column.family]
    values = answers.answers(family).ravel()[order]
    variances = plan.variances[column.family].ravel()[order]
    alias = column.alias
    series = [pl.Series(alias, values), pl.Series(f"{alias}_variance", variances)]
    if quantile is not None:
        reach = quantile * np.sqrt(variances)
        series.append(pl.Series(f"{alias}_lower", values - reach))
        series.append(pl.Series(f"{alias}_upper", values + reach))
    return series


def key_series(name: str, domain: Domain, codes: NDArray[np.int64]) -> pl.Series:
    """Turn codes into values of the domain's type; the last code of a nullable domain is null."""
    labels = list(domain.values)
    dtype = (
        pl.Enum([str(v) for v in labels]) if domain.type == "ENUM" else POLARS_TYPES[domain.type]
    )
    values = pl.Series(name, [*labels, None], dtype=dtype)
    return values.gather(codes)
