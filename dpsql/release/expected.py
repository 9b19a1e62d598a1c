"""The effect of a plan's noise on answers of statements, for rows that are assumed or counted.

The answers and the errors that a table would have are found by what makes those of releases.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError, SqlError
from dpsql.linalg.arrays import Array
from dpsql.measurement.certify import is_laplace
from dpsql.planner.plans.plan import Plan
from dpsql.release.answers import Answers, GroupBox, computed, whole
from dpsql.release.confidence import CONFIDENCE, reach
from dpsql.release.frames import quotients
from dpsql.release.noise import Noise, flat_pairs, numbered, placed_pairs
from dpsql.release.quantiles import Distribution, Quantiles, distribution, quantiles
from dpsql.release.rehearse import MAX_ROWS
from dpsql.release.support import FOUNDED
from dpsql.sql.compiled import Script, Statement, StatisticColumn
from dpsql.sql.computing.fractions import Placed
from dpsql.sql.computing.postprocess import Postprocessing
from dpsql.workload import Workload

SURE = 2.0
"""What is divided by has to be so many standard errors away from zero, as it was counted."""
MAX_HELD = 2**22
"""Places of distributions that are looked at; a statement with more has no expected widths."""


class Expected(Answers):
    """Answers that a table would have, with the noise of a plan."""

    def __init__(
        self,
        script: Script,
        plan: Plan,
        rows: Answers,
        known: Container[int],
        said: str,
        *,
        noisy: bool,
    ) -> None:
        """Take answers without the plan's noise.

        Args:
            script: what is asked.
            plan: how it is measured.
            rows: the answers of the same families, as assumed or counted.
            known: the numbers of the families that these mean something for.
            said: where they come from, in words.
            noisy: whether they have noise of their own.
        """
        laplace = is_laplace(plan.certified.blocks)
        super().__init__(script.workload, plan.reconstruction, _no_marginal, laplace=laplace)
        self.rows, self.known, self.said, self.noisy = rows, known, said, noisy
        self._distributions: dict[int, Distribution] = {}

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return a statistic for every group of a part; NaN where it isn't known."""
        if column.family not in self.known:
            return np.full(part.rows, np.nan)
        return self.rows.values(column, part)

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> Quantiles:
        """Read a quantile off the distribution of every group; nulls where it isn't known."""
        values = column.values if column.values is not None else pl.Series([0.0])
        if column.family not in self.known or part.rows * values.len() > MAX_HELD:
            continuous = column.quantile is not None and column.quantile.continuous
            of = pl.Float64() if continuous else values.dtype
            unknown = (pl.Series([None] * part.rows, dtype=t) for t in (of, of, of, pl.Float64()))
            return Quantiles(*unknown)
        if id(column) not in self._distributions:
            counted = self.rows.counted(column, part)
            found = distribution(
                column, self._family(column, part), part.shape, lambda _: counted, self._spread
            )
            self._distributions[id(column)] = _monotone(found) if self.noisy else found
        return quantiles(column, self._distributions[id(column)], reach)


def _no_marginal(_: tuple[str, ...]) -> Array:
    raise InternalError("what a plan will measure is not known before")


def _monotone(found: Distribution) -> Distribution:
    """Make noisy cumulative counts what exact ones are: not negative, and never falling."""
    from scipy.optimize import isotonic_regression  # half a second to import, and rarely needed

    counts = [isotonic_regression(row).x for row in found.counts]
    return Distribution(np.maximum(np.array(counts), 0.0).reshape(found.counts.shape), found.spread)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedColumn:
    """The expected values of one column and their errors, row by row; NaN where not known."""

    name: str
    values: Array
    errors: Array
    """Standard errors; of averages and shares with limits, to first order at these values."""
    most: Array
    """The same, whatever possible value an average or a share has; else as `errors`."""
    widths: Array
    """Of the intervals of quantiles."""
    exact: bool
    """Whether errors don't depend on the rows."""
    unsure: NDArray[np.bool_]
    """Where too few rows were counted to say anything."""
    drowned: NDArray[np.bool_]
    """Values of which the plan's noise would leave nothing: where a release would mark what it
    is divided by, a guess within its limits would do as well, or no value is excluded."""
    counts: str | None = None
    """The things that it counts, `rows` or `units`; None if it counts none."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """A mask of the rows where something can be said."""
        return ~self.unsure & ~(np.isnan(self.errors) & np.isnan(self.widths))


def columns_of(statement: Statement, answers: Expected, grow: float = 1.0) -> list[ExpectedColumn]:
    """Return what is expected of the values of a statement; nothing if it has too many groups.

    Args:
        statement: what is asked.
        answers: what a table would have.
        grow: by how much the noise is larger than the plan's.
    """
    if statement.rows > MAX_ROWS:
        return []
    around = grow * reach(CONFIDENCE, laplace=answers.laplace)
    if statement.post is not None:
        try:
            return _computed(statement, statement.post, answers, around, grow)
        except SqlError:  # what it computes can't be, for such answers
            return []
    return _direct(statement, answers, around, grow)


def _direct(
    statement: Statement, answers: Expected, around: float, grow: float
) -> list[ExpectedColumn]:
    part = whole(statement.tables[0].sets[0])
    found = []
    for output in statement.direct or ():
        if output.statistic is None:
            continue
        column = part.group.columns[output.statistic]
        if column.quantile is not None:
            q = answers.quantiles(column, part, around)
            found.append(_of_quantile(output.name, q.values, q.lower, q.upper, column.values))
        else:
            errors = grow * np.sqrt(answers.variances(column, part))
            known = _of_errors(output.name, answers.values(column, part), errors, exact=True)
            found.append(replace(known, counts=counted((column,), answers.workload)))
    return found


def _computed(
    statement: Statement, post: Postprocessing, answers: Expected, around: float, grow: float
) -> list[ExpectedColumn]:
    result, noise = computed(statement, post, answers, around), Noise(statement, answers)
    found = []
    for i, output in enumerate(post.outputs):
        if not output.noisy:
            continue
        if i in post.bounds:
            lower, upper = (result.to_series(post.bounds[i] + j) for j in (0, 1))
            read = result.to_series(i)
            found.append(_of_quantile(output.name, read, lower, upper, post.ranges.get(i)))
            continue
        values, pairs = _floats(result.to_series(i)), result.to_series(len(post.everything) + i)
        variances = noise.variances(pairs)
        errors = grow * np.sqrt(variances.cast(pl.Float64).to_numpy())
        exact = output.exact and output.reason is None
        if not exact:
            errors = np.where(np.isfinite(values), errors, np.nan)
        placed = post.fractions.get(i)
        column = _of_errors(output.name, values, errors, exact=exact)
        if placed is not None:
            column = _divided(column, post, placed, result, noise, statement, answers, grow)
        elif exact:
            column = replace(column, counts=_counts_of(pairs, statement, answers))
        found.append(column)
    return found


def _counts_of(pairs: pl.Series, statement: Statement, answers: Expected) -> str | None:
    """Say what values are numbers of that are sums of others, given their lists."""
    places, flat = numbered(statement.tables), flat_pairs(pairs)
    if flat.is_empty():
        return None
    placed = placed_pairs(flat, places)
    if not (placed["c"].abs() == 1.0).all():
        return None
    used = placed.select("set", "column").unique().rows()
    return counted([places[number].group.columns[j] for number, j in used], answers.workload)


def counted(columns: Sequence[StatisticColumn], workload: Workload) -> str | None:
    """Say what statistics are numbers of, if all of them are of the same."""
    if not all(column.counts for column in columns):
        return None
    blocks = [workload.families[column.family].measure for column in columns]
    kinds = {"units" if block is not None and block.of_units else "rows" for block in blocks}
    return kinds.pop() if len(kinds) == 1 else None


def _divided(
    column: ExpectedColumn,
    post: Postprocessing,
    placed: Placed,
    result: pl.DataFrame,
    noise: Noise,
    statement: Statement,
    answers: Expected,
    grow: float,
) -> ExpectedColumn:
    """Look at what a value is divided by: it must be there, and known well enough.

    What lies between two limits is known as well without any noise if its standard error is that of
    a guess, all values between them being alike: their distance by √12.
    """
    quotient = quotients(post, placed, result, noise)
    bottom, pairs = quotient.bottom, result.to_series(len(post.everything) + placed.at + 1)
    # Groups that can't have rows, such as that of NULL in AVG(x) by x, have no answer.
    some = np.abs(bottom) > 1e-9 * np.nanmax(np.abs(bottom), initial=0.0)
    some |= np.isnan(bottom)
    unsure = np.zeros(len(bottom), dtype=np.bool_)
    if answers.noisy and placed.fraction.bottom:
        there = pl.Series(~np.isnan(bottom))
        counted = Noise(statement, answers.rows).variances(
            pairs.zip_with(there, pl.Series([None] * len(bottom), dtype=pairs.dtype))
        )
        unsure = ~(np.abs(bottom) >= SURE * np.sqrt(_floats(counted))) | np.isnan(column.values)
    most = column.errors
    drowned = np.abs(bottom) < FOUNDED * grow * np.sqrt(quotient.variance_bottom)
    steps = placed.fraction.steps
    factor = math.prod(abs(step.number) for step in steps if step.name == "times")
    if linear(post, placed):
        most = grow * factor * quotient.largest_error()
    if all(step.name in ("plus", "times") for step in steps):
        room = factor * (quotient.largest - quotient.least)  # NaN where there are no limits
        drowned |= column.errors > room / math.sqrt(12)
    return replace(
        column,
        values=np.where(some & ~unsure, column.values, np.nan),
        errors=np.where(some, column.errors, np.nan),
        most=np.where(some, most, np.nan),
        unsure=unsure & some,
        drowned=drowned & some,
    )


def linear(post: Postprocessing, placed: Placed) -> bool:
    """Whether a value is an average or a share: a sum by a sum, between known limits.

    Its errors are then bounded wherever it lies.
    """
    parts = post.everything[placed.at : placed.at + 2]
    affine = {step.name for step in placed.fraction.steps} <= {"plus", "times"}
    exact = all(part.exact and part.reason is None for part in parts)
    return exact and affine and placed.fraction.limits is not None


def _of_errors(name: str, values: Array, errors: Array, *, exact: bool) -> ExpectedColumn:
    nothing = np.full(len(values), np.nan)
    no = np.isinf(nothing)
    return ExpectedColumn(name, values, errors, errors, nothing, exact, no, no)


def _of_quantile(
    name: str, values: pl.Series, lower: pl.Series, upper: pl.Series, domain: pl.Series | None
) -> ExpectedColumn:
    nothing = np.full(values.len(), np.nan)
    ends, no = (_floats(lower), _floats(upper)), np.isinf(nothing)
    all_of_it = no
    if domain is not None and domain.len() > 1:
        all_of_it = (ends[0] <= _floats(domain.head(1))) & (ends[1] >= _floats(domain.tail(1)))
    return ExpectedColumn(
        name, _floats(values), nothing, nothing, ends[1] - ends[0], False, no, all_of_it
    )


def _floats(values: pl.Series) -> Array:
    return values.cast(pl.Float64, strict=False).to_numpy().astype(np.float64)
