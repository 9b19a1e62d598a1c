"""A release: named frames, made from one set of noisy measurements."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError
from dpsql.mechanism.measure import NoisyMeasurements
from dpsql.mechanism.reconstruct import Reconstruction
from dpsql.planner.plan import Plan
from dpsql.privacy import Budget, Receipt
from dpsql.release.answers import Answers, Part, keys, parts, table_frame, whole
from dpsql.release.noise import Noise
from dpsql.sql.compiled import Script, Statement
from dpsql.sql.computing.postprocess import DirectOutput, Postprocessing
from dpsql.workload.factors import MAX_CELLS

CONFIDENCE = 0.95
"""The probability of a quantile's interval, if no other is asked for."""


class Release(Mapping[str, pl.DataFrame]):
    """The answers of one release: statement name → frame.

    Each frame has a row for every group of the public domain that the conditions leave possible,
    whether or not the table has such rows. Keys have the type of the domain; beside each value
    column `n` stands its `n_variance`. Answers are unbiased and consistent across statements. A
    frame is made when it is first asked for; `batches` makes it piece by piece.
    """

    def __init__(
        self,
        script: Script,
        plan: Plan,
        measured: NoisyMeasurements,
        receipt: Receipt | None,
        confidence: float | None,
    ) -> None:
        self._statements = {statement.name: statement for statement in script.statements}
        self._frames: dict[str, pl.DataFrame] = {}
        self._lock = threading.RLock()
        self._answers = Answers(plan, Reconstruction(plan, measured))
        self._receipt = receipt
        self._confidence = confidence
        self._neighbours = script.table.neighbours

    def __getitem__(self, name: str) -> pl.DataFrame:
        with self._lock:
            if name not in self._frames:
                self._frames[name] = self._frame(self._statements[name])
            return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)

    def __repr__(self) -> str:
        charged = f"charged {self.charged or 'nothing'}"
        return f"Release({', '.join(self._statements)}; {charged}; neighbours: {self.neighbours})"

    def batches(self, name: str, rows: int = 1_000_000) -> Iterator[pl.DataFrame]:
        """Yield the answer to a statement as frames of at most `rows` rows, one after the other.

        Together they have the rows of `release[name]`, up to rounding in floats, and in another
        order if the SELECT list names its keys in another order than GROUP BY. What is held at
        once is one batch and the largest marginal. A statement that computes on its answers
        (ORDER BY, averages, …) needs all of them: its batches are slices of its frame.

        Raises:
            KeyError: there is no such statement.
        """
        statement = self._statements[name]
        if statement.post is not None:
            frame = self[name]
            for start in range(0, max(frame.height, 1), rows):
                yield frame.slice(start, rows)
            return
        for part in parts(statement.tables[0].sets[0], rows):
            yield self._direct(statement, part)

    @property
    def plan(self) -> Plan:
        """The plan that was measured."""
        return self._answers.plan

    @property
    def charged(self) -> Budget | None:
        """What the release was charged; None if its answers follow from the domains alone."""
        return self.plan.budget if self._receipt is not None else None

    @property
    def neighbours(self) -> str:
        """Which change of the data the budget is for."""
        return self._neighbours

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a statement's answer.

        Columns: `column`, `role` (`key` or `value`), `variance` (`exact`, `approximate`: of first
        order, by the delta method, `interval`: a quantile has bounds instead, or `none`) and
        `reason` (why there is none).

        Raises:
            KeyError: there is no such statement.
        """
        found = [self._described(self._statements[name], i) for i in range(self._width(name))]
        schema = ["column", "role", "variance", "reason"]
        return pl.DataFrame(found, schema=dict.fromkeys(schema, pl.String), orient="row")

    def _width(self, name: str) -> int:
        statement = self._statements[name]
        if statement.post is not None:
            return len(statement.post.outputs)
        return len(statement.direct or ())

    def _described(self, statement: Statement, i: int) -> tuple[str, str, str | None, str | None]:
        if statement.post is not None:
            output = statement.post.outputs[i]
            kind = "exact" if output.exact else "approximate"
            if not output.noisy:
                return output.name, "key", None, None
            if i in statement.post.bounds:
                return output.name, "value", "interval", None
            return output.name, "value", "none" if output.reason else kind, output.reason
        direct = (statement.direct or ())[i]
        if direct.statistic is None:
            return direct.name, "key", None, None
        column = statement.tables[0].sets[0].columns[direct.statistic]
        return direct.name, "value", "exact" if column.quantile is None else "interval", None

    # ── frames ─────────────────────────────────────────────────────────────────────────────

    def _frame(self, statement: Statement) -> pl.DataFrame:
        _check_size(statement)
        if statement.post is not None:
            return self._computed(statement, statement.post)
        return self._direct(statement, whole(statement.tables[0].sets[0]))

    def _direct(self, statement: Statement, part: Part) -> pl.DataFrame:
        """Make the rows of a part of a statement that computes nothing."""
        here = keys(part)
        outputs = statement.direct or ()
        columns: list[pl.Series] = []
        for output in outputs:
            if output.key is not None:
                columns.append(here[output.key].alias(output.name))
            else:
                columns += self._values(output, part)
        order = _order(part, [o.key for o in outputs if o.key is not None])
        return pl.DataFrame([column.gather(order) for column in columns])

    def _values(self, output: DirectOutput, part: Part) -> list[pl.Series]:
        column = part.group.columns[output.statistic or 0]
        name = output.name
        if column.quantile is not None:
            reach = _reach(self._confidence or CONFIDENCE)
            found = self._answers.quantiles(column, part, reach)
            return _with_interval(found.values.alias(name), found.lower, found.upper)
        values = pl.Series(name, self._answers.values(column, part))
        return self._with_errors(values, pl.Series(self._answers.variances(column, part)))

    def _computed(self, statement: Statement, post: Postprocessing) -> pl.DataFrame:
        """Run what a statement computes on its answers, and find the variances."""
        reach = _reach(self._confidence or CONFIDENCE)
        frames = [
            table_frame(table, self._answers, columns, reach)
            for table, (_, columns) in zip(statement.tables, post.tables, strict=True)
        ]
        result = post.run(frames)
        noise = Noise(statement, self._answers)
        width = len(post.everything)
        columns: list[pl.Series] = []
        for i, output in enumerate(post.outputs):
            column = result.to_series(i).alias(output.name)
            if not output.noisy:
                columns.append(column)
            elif i in post.bounds:
                bounds = [result.to_series(post.bounds[i] + j) for j in (0, 1)]
                columns += _with_interval(column, *bounds)
            else:
                variances = noise.variances(result.to_series(width + i))
                known = column.is_not_null()
                if column.dtype.is_float():
                    known &= column.is_finite().fill_null(value=False)
                variances = variances.zip_with(known, _nulls(variances.len()))
                columns += self._with_errors(column, variances)
        return pl.DataFrame(columns)

    def _with_errors(self, values: pl.Series, variances: pl.Series) -> list[pl.Series]:
        name = values.name
        columns = [values, variances.cast(pl.Float64).alias(f"{name}_variance")]
        if self._confidence is not None and values.dtype.is_numeric():
            reach = _reach(self._confidence) * variances.sqrt()
            columns.append((values - reach).alias(f"{name}_lower"))
            columns.append((values + reach).alias(f"{name}_upper"))
        return columns


def build_release(
    script: Script,
    plan: Plan,
    measured: NoisyMeasurements,
    receipt: Receipt | None,
    confidence: float | None,
) -> Release:
    """Make the answers of a script available from noisy measurements.

    With a `confidence`, bounds hold each value with that probability.
    """
    return Release(script, plan, measured, receipt, confidence)


def _with_interval(values: pl.Series, lower: pl.Series, upper: pl.Series) -> list[pl.Series]:
    """Return a quantile, which has bounds and no variance."""
    name = values.name
    variance = _nulls(values.len()).alias(f"{name}_variance")
    return [values, variance, lower.alias(f"{name}_lower"), upper.alias(f"{name}_upper")]


def _nulls(count: int) -> pl.Series:
    return pl.Series([None] * count, dtype=pl.Float64)


def _check_size(statement: Statement) -> None:
    """Refuse a frame that would not fit; its batches may.

    Raises:
        ResourceLimitError: it has too many rows.
    """
    rows = sum(whole(group).rows for table in statement.tables for group in table.sets)
    if rows > MAX_CELLS:
        raise ResourceLimitError(
            f"The answer to {statement.name} has {rows:,} rows, more than {MAX_CELLS:,}.",
            hint=f"take it in parts: for frame in release.batches({statement.name!r}): …",
        )


def _order(part: Part, selected: list[int]) -> NDArray[np.int64]:
    """Sort groups by the axes of the selected keys, in the order in which they are selected."""
    owner = {int(n[1:]): i for i, axis in enumerate(part.group.axes) for n in axis.keys.columns}
    axes = list(dict.fromkeys(owner[key] for key in selected))
    rest = [i for i in range(len(part.shape)) if i not in axes]
    if axes == sorted(axes) and not rest:
        return np.arange(part.rows)
    numbers = np.arange(part.rows).reshape(part.shape)
    return np.ascontiguousarray(numbers.transpose([*axes, *rest])).ravel()


def _reach(confidence: float) -> float:
    """Return how many standard deviations an interval reaches to each side."""
    # The lower tail, because 1/2 + c/2 would round to 1 for a c just below 1.
    return -statistics.NormalDist().inv_cdf((1 - confidence) / 2)
