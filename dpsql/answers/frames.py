"""The frames of a release: what follows from its answers, statement by statement, and marks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from dpsql.answers.answers import Answers, GroupBox, computed, keys, parts, whole
from dpsql.answers.facts import FoundColumn
from dpsql.answers.noise import (
    CONFIDENCE,
    Footing,
    Interval,
    Noise,
    PairSupport,
    Quotient,
    Steps,
    of_statistic,
    reach,
    rounded,
    unfounded,
)
from dpsql.answers.scored import with_scores
from dpsql.errors import (
    DpsqlError,
    ResourceLimitError,
    SchemaError,
    SqlError,
    UndeterminedError,
    printable,
)
from dpsql.hints import option
from dpsql.linalg.arrays import Ints
from dpsql.schema import Table
from dpsql.sql.compiled import Statement
from dpsql.sql.computing.fractions import COLUMNS, Placed, rounding_of
from dpsql.sql.computing.postprocess import DirectOutput, Postprocessing
from dpsql.workload.factors import MAX_CELLS

DESCRIBED = ("column", "role", "variance", "reason")
DescribedOutput = tuple[str, str, str | None, str | None]

BIASED = "biased: chosen and fitted by the data"
FEW_ROWS = "if there are few rows, rely only on the interval of `confidence`"
CLIPPED = "values are cut off at what is possible, and so biased if there are few rows"
ROOT = "NULL if noise leaves no number that has a root or logarithm; `confidence` gives an interval"
FIRST_ORDER = "its interval is approximate too: wrong if noise is large compared with the values"


class Frames(Protocol):
    """The source of the frames of a release."""

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""


def slices(frame: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Yield a frame in pieces of at most so many rows; at least one, which may be empty."""
    for start in range(0, max(frame.height, 1), rows):
        yield frame.slice(start, rows)


class AnsweredFrames:
    """Frames made from answers, when they are first asked for.

    Biased answers have neither variances nor intervals.
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        answers: Answers,
        confidence: float | None = None,
        *,
        biased: str = BIASED,
    ) -> None:
        self._statements = {statement.name: statement for statement in statements}
        self._frames: dict[str, pl.DataFrame] = {}
        self._support: dict[str, Footing] = {}
        self._lock = threading.RLock()
        self._answers = answers
        self._confidence = confidence
        self._biased = biased if answers.reconstruction is None else None
        self._wide = answers.for_intervals

    def with_scores(
        self, tables: Sequence[Table], found: Sequence[FoundColumn]
    ) -> AnsweredFrames | None:
        """Return frames that take scores along, if they are of counts that can; see `scored`."""
        asked = tuple(self._statements.values())
        answers = with_scores(self._answers, asked, tables, found)
        return None if answers is None else AnsweredFrames(asked, answers, self._confidence)

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return tuple(self._statements)

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement.

        Raises:
            KeyError: there is no such statement.
            ResourceLimitError: it has too many rows.
        """
        with self._lock:
            if name not in self._frames:
                self._frames[name] = self._frame(self._statements[name])
            return self._frames[name]

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield the frame in pieces of at most `rows` rows.

        Raises:
            KeyError: there is no such statement.
        """
        statement = self._statements[name]
        if statement.post is not None:
            yield from slices(self.frame(name), rows)
            return
        for part in parts(statement.tables[0].sets[0], rows):
            yield self._direct(statement, part)

    def supported(self, name: str) -> tuple[pl.DataFrame, Footing]:
        """Return the frame of a statement, and what its values rest on.

        Raises:
            KeyError: there is no such statement.
            ResourceLimitError: it has too many rows.
        """
        with self._lock:
            frame, statement = self.frame(name), self._statements[name]
            if name not in self._support:
                self._support[name] = self._direct_support(
                    statement, whole(statement.tables[0].sets[0])
                )
            return frame, self._support[name]

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Footing]]:
        """Yield the frame in pieces, each with what its values rest on.

        Raises:
            KeyError: there is no such statement.
        """
        statement = self._statements[name]
        if statement.post is not None:
            frame, support = self.supported(name)
            for start in range(0, max(frame.height, 1), rows):
                yield frame.slice(start, rows), support.part(start, rows)
            return
        for part in parts(statement.tables[0].sets[0], rows):
            yield self._direct(statement, part), self._direct_support(statement, part)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame; see `Release.columns`.

        Raises:
            KeyError: there is no such statement.
        """
        statement = self._statements[name]
        described = [self._described(statement, i) for i in range(len(statement.outputs))]
        for i, (column, role, kind, reason) in enumerate(described):
            noted = [note.text for note in statement.notes if note.about(i, key=role == "key")]
            if noted:
                described[i] = column, role, kind, "; ".join(filter(None, (reason, *noted)))
        if self._answers.remark is not None:
            described = [_remarked(f, self._answers.remark) for f in described]
        if self._biased is not None:
            described = [
                f if f[1] == "key" else (f[0], f[1], "none", self._biased) for f in described
            ]
        return pl.DataFrame(described, schema=dict.fromkeys(DESCRIBED, pl.String), orient="row")

    def _described(self, statement: Statement, i: int) -> DescribedOutput:
        if statement.post is not None:
            output = statement.post.outputs[i]
            kind = "exact" if output.exact else "approximate"
            if not output.noisy:
                return output.name, "key", None, None
            if i in statement.post.bounds:
                return output.name, "value", "interval", None
            if output.reason is not None:
                return output.name, "value", "none", output.reason
            return output.name, "value", kind, None if output.exact else _note(statement.post, i)
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

    def _direct(self, statement: Statement, part: GroupBox) -> pl.DataFrame:
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

    def _direct_support(self, statement: Statement, part: GroupBox) -> Footing:
        """Say what the rows rest on of a part of a statement that computes nothing."""
        outputs = statement.direct or ()
        order = _order(part, [o.key for o in outputs if o.key is not None])
        of = {o.name: part.group.columns[o.statistic] for o in outputs if o.statistic is not None}
        supports = {n: of_statistic(self._answers, c, part)[order] for n, c in of.items()}
        ranges = {name: column.range for name, column in of.items() if column.range is not None}
        return Footing.of(supports, part.rows, ranges=ranges)

    def _values(self, output: DirectOutput, part: GroupBox) -> list[pl.Series]:
        column = part.group.columns[output.statistic or 0]
        name = output.name
        if column.quantile is not None:
            quantiles = self._answers.quantiles(
                column, part, self._reach(self._confidence or CONFIDENCE)
            )
            values = quantiles.values.alias(name)
            return self._with_interval(values, quantiles.lower, quantiles.upper, column.range)
        values = pl.Series(name, self._answers.values(column, part))
        if self._biased:
            return [values]
        variances = pl.Series(self._answers.variances(column, part))
        if self._wide is self._answers:
            return self._with_errors(values, variances, variances)
        return self._with_errors(values, variances, pl.Series(self._wide.variances(column, part)))

    def _computed(self, statement: Statement, post: Postprocessing) -> pl.DataFrame:
        """Run what a statement computes on its answers, and find the variances."""
        around = self._reach(self._confidence or CONFIDENCE)
        result = computed(statement, post, self._answers, around)
        noise = None if self._biased else Noise(statement, self._answers)
        wide = noise if self._wide is self._answers else Noise(statement, self._wide)
        width = len(post.everything)
        columns: list[pl.Series] = []
        self._support[statement.name] = _support(statement, post, self._answers, result, noise)
        for i, output in enumerate(post.outputs):
            column = result.to_series(i).alias(output.name)
            if not output.noisy:
                columns.append(column)
            elif i in post.bounds:
                lower, upper = (result.to_series(post.bounds[i] + j) for j in (0, 1))
                columns += self._with_interval(column, lower, upper, post.ranges[i])
            elif noise is None or wide is None:
                columns.append(column)
            else:
                pairs = result.to_series(width + i)
                linear, steps = noise.variances(pairs), Steps.of(pairs)
                variances = _rounded(post, i, result, linear, steps)
                known = column.is_not_null()
                if column.dtype.is_float():
                    known &= column.is_finite().fill_null(value=False)
                doubtful = self._support[statement.name].unfounded.get(output.name)
                known &= True if doubtful is None else ~doubtful
                linear = linear if wide is noise else wide.variances(pairs)
                variances, linear = (
                    of.zip_with(known, _nulls(of.len())) for of in (variances, linear)
                )
                interval = self._around(post, i, result, wide) if output.reason is None else None
                column = _clipped(post, i, result).alias(output.name)
                columns += self._with_errors(column, variances, linear, interval, steps)
        return pl.DataFrame(columns)

    def _reach(self, confidence: float) -> float:
        return reach(confidence, laplace=self._answers.laplace)

    def _with_interval(
        self, values: pl.Series, lower: pl.Series, upper: pl.Series, domain: pl.Series | None
    ) -> list[pl.Series]:
        """Return a quantile, which has bounds and no variance."""
        if self._biased:
            return [values]
        if domain is not None:
            values = _unless_anything(values, lower, upper, domain)
        name = values.name
        variance = _nulls(values.len()).alias(f"{name}_variance")
        return [values, variance, lower.alias(f"{name}_lower"), upper.alias(f"{name}_upper")]

    def _around(
        self, post: Postprocessing, i: int, result: pl.DataFrame, noise: Noise
    ) -> Interval | None:
        """Return the intervals of a fraction, which aren't even around its values."""
        placed = post.fractions.get(i)
        if placed is None or self._confidence is None:
            return None
        quotient, steps = quotients(post, placed, result, noise), placed.fraction.steps
        interval = quotient.interval(self._reach(self._confidence)).after(steps)
        values = result.to_series(i).cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        return interval.holding(values, quotient.possible.after(steps))

    def _with_errors(
        self,
        values: pl.Series,
        variances: pl.Series,
        linear: pl.Series,
        interval: Interval | None = None,
        steps: Steps | None = None,
    ) -> list[pl.Series]:
        """Return a value with what is beside it.

        Args:
            values: the values.
            variances: of these.
            linear: those by which intervals reach, without those of roundings.
            interval: where it isn't even around the values.
            steps: what roundings do.
        """
        name = values.name
        columns = [values, variances.cast(pl.Float64).alias(f"{name}_variance")]
        if self._confidence is None or not values.dtype.is_numeric():
            return columns
        if interval is None:
            around = self._reach(self._confidence) * linear.sqrt()
            around += 0.0 if steps is None else pl.Series(steps.most, nan_to_null=True)
            lower, upper = values - around, values + around
        else:
            lower = pl.Series(interval.lower, nan_to_null=True)
            upper = pl.Series(interval.upper, nan_to_null=True)
        return [*columns, lower.alias(f"{name}_lower"), upper.alias(f"{name}_upper")]


def _support(
    statement: Statement,
    post: Postprocessing,
    answers: Answers,
    result: pl.DataFrame,
    noise: Noise | None,
) -> Footing:
    """Say what the rows of a result rest on."""
    known, width = PairSupport(statement, answers), len(post.everything)
    noisy = {i: output.name for i, output in enumerate(post.outputs) if output.noisy}
    supports = {name: known.of_values(result.to_series(width + i)) for i, name in noisy.items()}
    sizes = {i: result.to_series(at + 2) for i, at in post.bounds.items()}
    supports |= {noisy[i]: of.cast(pl.Float64).to_numpy() for i, of in sizes.items()}
    doubtful: dict[str, pl.Series] = {}
    for i, name in noisy.items():
        placed = post.fractions.get(i)
        if noise is not None and placed is not None and placed.fraction.bottom:
            below = placed.at + 1
            variances = noise.variances(result.to_series(width + below))
            several = len(placed.fraction.bottom) > 1  # as N·(N − 1), which no rows make negative
            doubtful[name] = unfounded(result.to_series(below), variances, positive=several)
    ranges = {noisy[i]: values for i, values in post.ranges.items()}
    return Footing.of(supports, result.height, doubtful, ranges)


def quotients(post: Postprocessing, placed: Placed, result: pl.DataFrame, noise: Noise) -> Quotient:
    """Return what a fraction consists of, row by row, with its noise.

    Args:
        post: what the statement computes.
        placed: the fraction, one of `post`.
        result: of running it.
        noise: of the statement.
    """
    top, bottom, least, largest = (
        result.to_series(placed.at + j).cast(pl.Float64).to_numpy() for j in range(COLUMNS)
    )
    hidden = len(post.everything) + placed.at
    known = noise.joint(result.to_series(hidden), result.to_series(hidden + 1))
    steps = (Steps.of(result.to_series(hidden + j)).most for j in (0, 1))
    return Quotient(top, bottom, *known, least, largest, *steps)


def _rounded(
    post: Postprocessing, i: int, result: pl.DataFrame, linear: pl.Series, steps: Steps
) -> pl.Series:
    """Return the variances of an output, given those that it has if nothing is rounded."""
    placed = post.fractions.get(i)
    last = None if placed is None else rounding_of(placed.fraction.steps)
    within = linear + pl.Series(steps.squares, nan_to_null=True)
    if placed is None or last is None:
        return within
    hidden = len(post.everything) + placed.at
    above, below = (Steps.of(result.to_series(hidden + j)).most for j in (0, 1))
    variances = within.zip_with(pl.Series(above + below > 0), linear)
    top, bottom = (result.to_series(placed.at + j).cast(pl.Float64).to_numpy() for j in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        before = Interval(top / bottom, top / bottom).after(last.before).lower / last.width
    size = (last.factor * last.width) ** 2
    given = variances.cast(pl.Float64).to_numpy() / size
    return pl.Series(size * rounded(before + last.shift, given)).fill_nan(None)


def _clipped(post: Postprocessing, i: int, result: pl.DataFrame) -> pl.Series:
    """Return the values of an output, cut off at what is possible at all, if that is known.

    The truth is possible, so no value gets farther from it; but values are biased then, where they
    would have been beyond. What divides by noise was biased before.
    """
    column, placed = result.to_series(i), post.fractions.get(i)
    if placed is None or placed.fraction.limits is None or not column.dtype.is_numeric():
        return column
    least, largest = (
        result.to_series(placed.at + j).cast(pl.Float64).fill_null(beyond).to_numpy()
        for j, beyond in ((2, -np.inf), (3, np.inf))
    )
    possible = Interval(least, largest).after(placed.fraction.steps)
    values = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    for beyond, end in (
        (values < possible.lower, possible.lower),
        (values > possible.upper, possible.upper),
    ):
        column = column.zip_with(
            pl.Series(~beyond), pl.Series(end).cast(column.dtype, strict=False)
        )
    return column


def _unless_anything(
    values: pl.Series, lower: pl.Series, upper: pl.Series, domain: pl.Series
) -> pl.Series:
    """Return quantiles, NULL for an end of the domain of which no value is excluded.

    It is where rows would be looked for if there were any: of none SQL has no quantile either.
    """
    if domain.n_unique() < 3:
        return values

    def is_end(of: pl.Series, end: pl.Series) -> pl.Series:
        return of == end.cast(of.dtype, strict=False)

    first, last = domain.head(1), domain.tail(1)
    anything = is_end(lower, first) & is_end(upper, last)
    anything &= is_end(values, first) | is_end(values, last)
    return values.zip_with(~anything.fill_null(value=False), values.clear(values.len()))


def _note(post: Postprocessing, i: int) -> str:
    """Say how far a value that isn't linear in noisy answers, and its interval, can be trusted."""
    placed = post.fractions.get(i)
    if placed is None:
        return FIRST_ORDER
    said = FIRST_ORDER
    if placed.fraction.polynomial:
        said = ROOT if placed.fraction.rooted else FEW_ROWS
    clipped = placed.fraction.bottom and placed.fraction.limits is not None
    return f"{said}; {CLIPPED}" if clipped else said


def _remarked(described: DescribedOutput, remark: str) -> DescribedOutput:
    """Describe a column whose values follow from more than what was measured."""
    name, role, kind, reason = described
    if role == "key":
        return described
    return (
        name,
        role,
        "approximate" if kind == "exact" else kind,
        "; ".join(filter(None, (reason, remark))),
    )


def _nulls(count: int) -> pl.Series:
    return pl.Series([None] * count, dtype=pl.Float64)


def _check_size(statement: Statement) -> None:
    """Refuse a frame that would not fit; its batches may.

    Raises:
        ResourceLimitError: it has too many rows.
    """
    if statement.rows > MAX_CELLS:
        raise ResourceLimitError(
            f"The answer to {statement.name} has {statement.rows:,} rows, more than {MAX_CELLS:,}.",
            hint=f"take it in parts: for frame in release.batches({statement.name!r}): …",
        )


def _order(part: GroupBox, selected: list[int]) -> Ints:
    """Sort groups by the axes of the selected keys, in the order in which they are selected."""
    owner = {key: i for i, axis in enumerate(part.group.axes) for key in axis.numbers}
    axes = list(dict.fromkeys(owner[key] for key in selected))
    rest = [i for i in range(len(part.shape)) if i not in axes]
    if axes == sorted(axes) and not rest:
        return np.arange(part.rows)
    numbers = np.arange(part.rows).reshape(part.shape)
    return np.ascontiguousarray(numbers.transpose([*axes, *rest])).ravel()


# ── Values that mean nothing: marked in a frame of their own, or left out of the answer ──────────
#
# Both are views of frames that are there. They are decided by noisy values and by errors that are
# known beforehand, so they cost nothing, and nothing of what is kept of a release changes by them.


SUPPRESSED = "suppressed"
DIVIDED = "divided by noise"
NOISE = "noise"
ROUNDING = 1e-6
"""The distance of values that were computed twice."""
MARKS = pl.Enum([SUPPRESSED, DIVIDED, NOISE])
"""The marks of values, of which each has the first that fits."""
SUPPRESSES = "NULL where fewer than {:g} rows are behind it, by their noisy number"
KEEPS = "not suppressed: no count of its rows is known"


class SupportedFrames(Frames, Protocol):
    """Frames of which it is known what their values rest on."""

    def supported(self, name: str) -> tuple[pl.DataFrame, Footing]:
        """Return the frame of a statement, and what its values rest on."""

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Footing]]:
        """Yield it in pieces."""


class AnsweredAgain:
    """Frames that were stored. What they rest on is found by answering their statements again.

    That follows from the measurements, and gives the same frame up to rounding.

    Args:
        stored: the frames.
        answer: answers a statement again.
        fitted: whether the answers are of tables that were fitted to measurements.
    """

    def __init__(
        self, stored: Frames, answer: Callable[[str], SupportedFrames], fitted: bool
    ) -> None:
        self._stored, self._answer, self._fitted = stored, answer, fitted

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._stored.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return self._stored.frame(name)

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        return self._stored.batches(name, rows)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        return self._stored.columns(name)

    def supported(self, name: str) -> tuple[pl.DataFrame, Footing]:
        """Return the frame of a statement, and what its values rest on.

        Raises:
            UndeterminedError: the statement can't be answered again, for a public table that isn't
                there, or is answered otherwise than it was.
        """
        frame = self._stored.frame(name)
        if self._fitted:
            raise UndeterminedError(
                "These answers come from tables that were fitted to what was measured. The tables "
                "are not in the folder, so it is no longer known how many rows a value rests on.",
                hint="suppress when the release is made, "
                + option("suppress_below", 10)
                + ", and have it written as CSV or Parquet then.",
            )
        try:
            answers = self._answer(name)
        except (SchemaError, SqlError):
            known = False
        else:
            known = True
        if not known:
            raise UndeterminedError(
                f"The answers to {printable(name[:60])} don't follow from the folder alone: its "
                "statement is over a public table, or was answered with other measurements.",
                hint="answer it again with its public tables, as frames by name: "
                f"release.query(release.facts.statements[{name[:60]!r}], public={{…: frame}}, "
                "suppress_below=10).",
            )
        (asked,) = answers.names
        again, support = answers.supported(asked)
        if not _is_same(frame, again):
            raise UndeterminedError(
                f"The answers to {printable(name[:60])} don't follow from what was measured alone.",
                hint="make the release again, which is free with a budget of 0.",
            )
        return frame, support

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Footing]]:
        """Yield it in pieces."""
        frame, support = self.supported(name)
        for start in range(0, max(frame.height, 1), rows):
            yield frame.slice(start, rows), support.part(start, rows)


class SuppressedFrames:
    """Frames whose values are NULL where too few rows are behind them; no row is left out.

    Args:
        plain: with all values.
        below: how many rows are enough.
    """

    def __init__(self, plain: SupportedFrames, below: float) -> None:
        self.plain, self._below = plain, below

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self.plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement."""
        return self.suppressed(name, *self.plain.supported(name))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield it in pieces."""
        for frame, support in self.plain.supported_batches(name, rows):
            yield self.suppressed(name, frame, support)

    def supported(self, name: str) -> tuple[pl.DataFrame, Footing]:
        """Return the frame of a statement, and what its values rest on."""
        frame, support = self.plain.supported(name)
        return self.suppressed(name, frame, support), support

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Footing]]:
        """Yield it in pieces."""
        for frame, support in self.plain.supported_batches(name, rows):
            yield self.suppressed(name, frame, support), support

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of the frame."""
        described = self.plain.columns(name)
        _, support = next(self.plain.supported_batches(name, 1_000_000))
        counted = {value for value, rows in support.rows.items() if rows.null_count() < rows.len()}
        rows = []
        for row in described.iter_rows(named=True):
            if row["role"] != "key":
                value = row["column"].removesuffix("_adjusted" * (row["role"] == "adjusted"))
                said = SUPPRESSES.format(self._below) if value in counted else KEEPS
                row = {**row, "reason": "; ".join(filter(None, (row["reason"], said)))}
            rows.append(row)
        return pl.DataFrame(rows, schema=dict.fromkeys(DESCRIBED, pl.String))

    def few(self, support: Footing, value: str) -> pl.Series:
        """Say of each value whether too few rows are behind it."""
        return (support.rows[value] < self._below).fill_null(value=False)

    def suppressed(self, name: str, frame: pl.DataFrame, support: Footing) -> pl.DataFrame:
        """Return a frame without the values of few rows."""
        changed = []
        for value in support.rows:
            few = self.few(support, value)
            beside = (f"{value}{end}" for end in ("", "_variance", "_lower", "_upper", "_adjusted"))
            roles = _roles(self.plain, name)
            changed += [
                pl.select(pl.when(~few).then(frame[column])).to_series().alias(column)
                for column in beside
                if column in frame.columns and (column == value or column not in roles)
            ]
        return frame.with_columns(changed)


def _roles(frames: Frames, name: str) -> set[str]:
    """Return the columns that a statement itself names."""
    described = frames.columns(name)
    return set(described.filter(pl.col("role") != "adjusted")["column"])


def marks(frames: SupportedFrames, name: str) -> pl.DataFrame:
    """Mark the values of a frame; see `Release.marks`."""
    return shown_and_marked(frames, name)[1]


def shown_and_marked(frames: SupportedFrames, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a frame as it is shown, see `as_read`, and the marks of its values."""
    plain = frames.plain if isinstance(frames, SuppressedFrames) else frames
    frame, support = plain.supported(name)
    notes, shown = [], frame
    if isinstance(frames, SuppressedFrames):
        shown = frames.suppressed(name, frame, support)
    for value in support.rows:
        suppressed = frames.few(support, value) if isinstance(frames, SuppressedFrames) else None
        flags: dict[str, pl.Series | None] = {
            SUPPRESSED: suppressed,
            DIVIDED: support.unfounded.get(value),
            NOISE: _is_noise(frame, value, support.ranges.get(value)),
        }
        notes.append(_first(flags, frame.height).alias(value))
    return shown, pl.DataFrame(notes, height=frame.height)


def as_read(frames: SupportedFrames, name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return a frame as people read it, and the marks of its values.

    Of a release that was loaded and can't be answered again, there are the marks that the frame
    alone tells.

    Raises:
        KeyError: there is no such statement.
        ResourceLimitError: its frame is too large.
    """
    described = frames.columns(name).filter(pl.col("role") == "value")
    values = described["column"].to_list()
    # Sums of counts are neither quotients nor quantiles. Of others it takes the statement to be
    # answered again, after loading, which takes longer than all the rest of a report.
    is_plain = not isinstance(frames, SuppressedFrames) and described["variance"].eq("exact").all()
    if not is_plain:
        try:
            return shown_and_marked(frames, name)
        except ResourceLimitError:
            raise
        except DpsqlError:  # what was loaded can't always be answered again
            pass
    frame = frames.frame(name)
    return frame, noise_marked(frame, values)


def noise_marked(frame: pl.DataFrame, values: Iterable[str]) -> pl.DataFrame:
    """Mark what a frame alone tells: values below their own standard errors."""
    marked = [
        _first({NOISE: _is_noise(frame, value, None)}, frame.height).alias(value)
        for value in values
    ]
    return pl.DataFrame(marked, height=frame.height)


def _first(flags: dict[str, pl.Series | None], height: int) -> pl.Series:
    """Give each value the first mark whose flag is up."""
    marked = pl.Series([None] * height, dtype=MARKS)
    for mark, flag in reversed(flags.items()):
        if flag is not None:
            marked = pl.select(
                pl.when(flag).then(pl.lit(mark, dtype=MARKS)).otherwise(marked)
            ).to_series()
    return marked


def _is_noise(frame: pl.DataFrame, value: str, values: pl.Series | None) -> pl.Series | None:
    """Say of each value whether it is below its own standard error; None where none is known.

    Args:
        frame: with the value and what is beside it.
        value: its name.
        values: of a quantile, all that it may be: noise is one of which none is excluded.
    """
    beside = f"{value}_variance"
    if values is not None:
        return _excludes_nothing(frame, value, values)
    if beside not in frame.columns or not frame[value].dtype.is_numeric():
        return None
    error = frame[beside].cast(pl.Float64).sqrt()
    size = frame[value].cast(pl.Float64).abs()
    return ((error > 0) & (size < error)).fill_null(value=False)


def _excludes_nothing(frame: pl.DataFrame, value: str, values: pl.Series) -> pl.Series | None:
    """Say of each quantile whether its interval is all of its domain; None if it has none."""
    ends = f"{value}_lower", f"{value}_upper"
    if values.n_unique() < 2 or not {*ends} <= set(frame.columns):
        return None
    at = ((frame[ends[0]], values.head(1)), (frame[ends[1]], values.tail(1)))
    lower, upper = (bound == end.cast(bound.dtype, strict=False) for bound, end in at)
    return (lower & upper).fill_null(value=False)


def _is_same(frame: pl.DataFrame, again: pl.DataFrame) -> bool:
    """Whether two frames have the same rows, up to rounding; one may have more columns."""
    if frame.height != again.height:
        return False
    return all(_alike(frame[c], again[c]) for c in again.columns if c in frame.columns)


def _alike(one: pl.Series, other: pl.Series) -> bool:
    if one.dtype != other.dtype:
        return False
    if not one.dtype.is_float():
        return one.eq_missing(other).all()
    near = (one - other).abs() <= ROUNDING * (1 + other.abs())
    return (near.fill_null(value=False) | one.eq_missing(other)).all()
