"""A release: named frames, made from one set of noisy measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
    statements. A frame is made when it is first asked for; `batches` makes it piece by piece.
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        answers: Reconstruction,
        plan: Plan,
        receipt: Receipt | None,
        quantile: float | None,
    ) -> None:
        self._statements = {statement.name: statement for statement in statements}
        self._frames: dict[str, pl.DataFrame] = {}
        self._answers = answers
        self._plan = plan
        self._receipt = receipt
        self._quantile = quantile

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._frames:
            statement = self._statements[name]
            whole = slice(0, statement.shape[0] if statement.shape else 1)
            self._frames[name] = self._frame(statement, whole)
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)

    def __repr__(self) -> str:
        return f"Release({', '.join(self._statements)}; charged {self.charged or 'nothing'})"

    def batches(self, name: str, rows: int = 1_000_000) -> Iterator[pl.DataFrame]:
        """Yield the answer to a statement as frames of about `rows` rows, one after the other.

        Together they have the rows of `release[name]`, up to rounding in floats, and in another
        order if the SELECT list names its keys in another order than GROUP BY. What is held at
        once is one batch and the largest marginal.

        Raises:
            KeyError: there is no such statement.
        """
        statement = self._statements[name]
        if not statement.shape:
            yield self._frame(statement, slice(0, 1))
            return
        first, *others = statement.shape
        step = max(1, rows // max(1, math.prod(others)))
        for start in range(0, first, step):
            yield self._frame(statement, slice(start, min(start + step, first)))

    @property
    def plan(self) -> Plan:
        """The plan that was measured."""
        return self._plan

    @property
    def charged(self) -> Budget | None:
        """What the release was charged; None if its answers follow from the domains alone."""
        return self._plan.budget if self._receipt is not None else None

    def _frame(self, statement: Statement, part: slice) -> pl.DataFrame:
        """Make the rows that belong to a part of the first block."""
        shape = statement.shape
        shape = (part.stop - part.start, *shape[1:]) if shape else shape
        keys = [c for c in statement.columns if isinstance(c, KeyColumn)]
        codes = [_spread(key, shape, part) for key in keys]
        order = np.lexsort(codes[::-1]) if codes else np.arange(math.prod(shape))
        columns: list[pl.Series] = []
        for column in statement.columns:
            if isinstance(column, KeyColumn):
                index = next(i for i, key in enumerate(keys) if key is column)
                columns.append(key_series(column.name, column.domain, codes[index][order]))
            else:
                columns += self._values(column, part, order)
        return pl.DataFrame(columns)

    def _values(
        self, column: ValueColumn, part: slice, order: NDArray[np.int64]
    ) -> list[pl.Series]:
        family = self._plan.workload.families[column.family].part(part.start, part.stop)
        values = self._answers.answers(family).ravel()[order]
        variances = self._plan.recovery.variances(family).ravel()[order]
        alias = column.alias
        series = [pl.Series(alias, values), pl.Series(f"{alias}_variance", variances)]
        if self._quantile is not None:
            reach = self._quantile * np.sqrt(variances)
            series.append(pl.Series(f"{alias}_lower", values - reach))
            series.append(pl.Series(f"{alias}_upper", values + reach))
        return series


def build_release(
    script: Script,
    plan: Plan,
    measured: NoisyMeasurements,
    receipt: Receipt | None,
    quantile: float | None,
) -> Release:
    """Make the answers of a script available from noisy measurements.

    With a `quantile`, bounds are that many standard deviations from the values.
    """
    return Release(script.statements, Reconstruction(plan, measured), plan, receipt, quantile)


def _spread(key: KeyColumn, shape: tuple[int, ...], part: slice) -> NDArray[np.int64]:
    """Repeat a block's codes along the other blocks, flattened in C order."""
    along = [1] * len(shape)
    along[key.block] = shape[key.block]
    codes = key.codes[part] if key.block == 0 else key.codes
    return np.broadcast_to(codes.reshape(along), shape).ravel()


def key_series(name: str, domain: Domain, codes: NDArray[np.int64]) -> pl.Series:
    """Turn codes into values of the domain's type; the last code of a nullable domain is null."""
    labels = list(domain.values)
    dtype = (
        pl.Enum([str(v) for v in labels]) if domain.type == "ENUM" else POLARS_TYPES[domain.type]
    )
    values = pl.Series(name, [*labels, None], dtype=dtype)
    return values.gather(codes)
