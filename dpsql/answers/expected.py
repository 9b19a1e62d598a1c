"""Expected errors of what statements select, in its own units.

How far an average, a share or a quantile is off depends on how many rows there are. So that it
can be said before anything is charged, rows are assumed: as many as the caller says, spread evenly
over the values of every column, independently of each other. Where nothing is assumed, noisy counts
of earlier measurements take their place, if there are any; and if there are none, groups of several
sizes do, as examples.

Why one size tells of others. Let T and N be what an average, a share or another ratio is divided
out of, and T', N' their noisy answers, with noises of mean zero. With v = T/N,

    T'/N' − v = (T' − vN')/N' = (T' − vN')/N · (1 − (N' − N)/N + …)

and T' − vN' has mean zero and the variance s² = Var T' − 2v Cov(T', N') + v² Var N', all of which
the plan knows and none of which depends on how many rows there are. So the standard error is s/N:
ten times the rows, a tenth of the error. What is left out is of the relative size of
(sd N')/N, which is below a third wherever `drowned` doesn't say that noise is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.answers.answers import (
    MAX_ROWS,
    Answers,
    Distribution,
    GroupBox,
    QuantileValues,
    computed,
    distribution,
    quantiles,
    whole,
)
from dpsql.answers.counted import Counts, even_shares
from dpsql.answers.frames import quotients
from dpsql.answers.noise import (
    CONFIDENCE,
    FOUNDED,
    Noise,
    flat_pairs,
    numbered,
    placed_pairs,
    reach,
)
from dpsql.errors import InternalError, SqlError, WorkloadError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.measurement.certify import is_laplace
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.sql.compiled import Script, Statement, StatisticColumn
from dpsql.sql.computing.fractions import Placed
from dpsql.sql.computing.postprocess import DirectOutput, Postprocessing
from dpsql.workload import Workload

# ── Expected answers: the effect of a plan's noise on rows that are assumed or counted ───────────
#
# The answers and the errors that a table would have are found by what makes those of releases.


SURE = 2.0
"""Standard errors that a divisor has to be away from zero, as it was counted."""
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

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> QuantileValues:
        """Read a quantile off the distribution of every group; nulls where it isn't known."""
        values = column.range if column.range is not None else pl.Series([0.0])
        if column.drawn or column.family not in self.known or part.rows * values.len() > MAX_HELD:
            continuous = column.quantile is not None and column.quantile.continuous
            of = pl.Float64() if continuous else values.dtype
            unknown = (pl.Series([None] * part.rows, dtype=t) for t in (of, of, of, pl.Float64()))
            return QuantileValues(*unknown)
        if id(column) not in self._distributions:
            counted = self.rows.counted(column, part)
            found = distribution(
                column, self._family(column, part), part.shape, lambda _: counted, self._spread
            )
            self._distributions[id(column)] = _monotone(found) if self.noisy else found
        return quantiles(column, self._distributions[id(column)], reach)


def _no_marginal(_: tuple[str, ...]) -> Array:
    raise InternalError("what a plan will measure is not known before")


def _monotone(distribution: Distribution) -> Distribution:
    """Make noisy cumulative counts what exact ones are: not negative, and never falling."""
    from scipy.optimize import isotonic_regression  # half a second to import, and rarely needed

    counts = [isotonic_regression(row).x for row in distribution.counts]
    rising = np.maximum(np.array(counts), 0.0).reshape(distribution.counts.shape)
    return replace(distribution, counts=rising)


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
    """Widths of the intervals of quantiles."""
    exact: bool
    """Whether errors don't depend on the rows."""
    unsure: NDArray[np.bool_]
    """Values for which too few rows were counted to say anything."""
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
    widths = []
    for output in statement.direct or ():
        if output.statistic is None:
            continue
        column = part.group.columns[output.statistic]
        if column.quantile is not None:
            q = answers.quantiles(column, part, around)
            widths.append(_of_quantile(output.name, q.values, q.lower, q.upper, column.range))
        else:
            errors = grow * np.sqrt(answers.variances(column, part))
            known = _of_errors(output.name, answers.values(column, part), errors, exact=True)
            widths.append(replace(known, counts=counted((column,), answers.workload)))
    return widths


def _computed(
    statement: Statement, post: Postprocessing, answers: Expected, around: float, grow: float
) -> list[ExpectedColumn]:
    result, noise = computed(statement, post, answers, around), Noise(statement, answers)
    widths = []
    for i, output in enumerate(post.outputs):
        if not output.noisy:
            continue
        if i in post.bounds:
            lower, upper = (result.to_series(post.bounds[i] + j) for j in (0, 1))
            read = result.to_series(i)
            widths.append(_of_quantile(output.name, read, lower, upper, post.ranges.get(i)))
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
        widths.append(column)
    return widths


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
    kinds = {
        "values" if column.distinct else "units" if block and block.of_units else "rows"
        for column, block in zip(columns, blocks, strict=True)
    }
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


ROWS = "rows"
"""The name that stands among those of statements for the rows of the whole table."""
ERROR, INTERVAL = "error", "interval"
"""Kinds of targets in units of the values: a standard error, or the width of an interval."""
_SMOOTH = {"plus", "times", "sqrt"}
COLUMNS = {
    "statement": pl.String(),
    "column": pl.String(),
    "typical": pl.Float64(),
    "standard_error": pl.Float64(),
    "largest_standard_error": pl.Float64(),
    "interval": pl.Float64(),
    "left_out": pl.Int64(),
    "rows_from": pl.String(),
    "group_rows": pl.Int64(),
    "answers": pl.Int64(),
    "counts": pl.String(),
    "exact": pl.Boolean(),
}
SIZES = tuple(700 * 10**k for k in range(6))
"""Rows of a group for which errors are told where nothing is assumed or known: the first two of
them for which there is something to tell."""
EXAMPLES = 2


def expected_answers(
    script: Script, plan: Plan, assume: Mapping[str, float] | None, counts: Counts | None = None
) -> pl.DataFrame:
    """Return the expected error of every column of noisy values; see `Plan.expected_answers`.

    Args:
        script: what is asked.
        plan: how it is measured.
        assume: `rows` → rows of the table, or statement → rows in each of its groups.
        counts: what was counted before, for statements without rows assumed.
    """
    rows_of_all: list[tuple[object, ...]] = []
    for statement in script.statements:
        answers = expected(script, plan, statement, assume, counts)
        if answers is None:
            rows_of_all += _by_size(script, plan, statement)
            continue
        columns = columns_of(statement, answers)
        known = [c for c in columns if not answers.noisy or np.isfinite([c.errors, c.widths]).any()]
        rows = [_row(statement, c, c.unsure, answers.said, None) for c in known]
        if len(known) < len(columns):  # of these, what was counted says nothing
            others = {c.name for c in columns} - {c.name for c in known}
            rows += [row for row in _by_size(script, plan, statement) if row[1] in others]
        rows_of_all += rows or _unlisted(statement, plan)
    return pl.DataFrame(rows_of_all, schema=COLUMNS, orient="row")


def _by_size(script: Script, plan: Plan, statement: Statement) -> list[tuple[object, ...]]:
    """Tell of each column for groups of several sizes; once, where errors don't depend on rows.

    Sizes that are too small to tell anything come before those that do.
    """
    each, sized = _all_rows(script, plan, statement, 1.0), _has_size(script, statement)
    rows_by_size: dict[str, list[tuple[object, ...]]] = {}
    missing: dict[str, int] = {}
    for size in SIZES:
        said = f"a group of {size:,} rows, spread evenly over all values"
        for column in columns_of(statement, _even(script, plan, size * each, said)):
            if missing.setdefault(column.name, 1 if column.exact else EXAMPLES):
                if column.exact and not sized:
                    column = replace(column, values=np.full(len(column.values), np.nan))
                row = _row(statement, column, column.drowned, said, size)
                rows_by_size.setdefault(column.name, []).append(row)
                missing[column.name] -= bool((column.known & ~column.drowned).any())
        if not any(missing.values()):
            break
    return [row for rows in rows_by_size.values() for row in rows] or _unlisted(statement, plan)


def assuming(
    script: Script,
    plan: Plan,
    assume: Mapping[str, float] | None,
    counts: Callable[[], Counts | None] = lambda: None,
) -> Plan:
    """Return a plan that can tell what errors to expect, in the units of the answers.

    It finds them when it is asked, and `counts` then.

    Raises:
        WorkloadError: what is assumed is malformed.
    """
    if assume is not None:
        check_assumed([statement.name for statement in script.statements], assume)
    if MECHANISMS[plan.mechanism].is_biased:
        return plan
    return replace(plan, expecting=lambda: expected_answers(script, plan, assume, counts()))


def expected(
    script: Script,
    plan: Plan,
    statement: Statement,
    assume: Mapping[str, float] | None,
    counts: Counts | None,
) -> Expected | None:
    """Return the answers that a statement would have; None if nothing is assumed or known.

    What is assumed goes before what was counted.
    """
    if assume is not None and statement.name in assume:
        rows = _all_rows(script, plan, statement, assume[statement.name])
        said = f"assumed: {assume[statement.name]:,g} rows in each group"
        return _even(script, plan, rows, said + ", spread evenly over all values")
    if assume is not None and ROWS in assume:
        said = f"assumed: {assume[ROWS]:,g} rows in all, spread evenly over all values"
        return _even(script, plan, assume[ROWS], said)
    if counts is None or not counts.knows(statement):
        return None
    return Expected(script, plan, counts.answers, counts.spread, counts.said(statement), noisy=True)


def unit_of(statement: Statement) -> str | None:
    """Return in what a statement's values can have a target, if there are rows to rest on.

    Returns:
        `error`, if they are averages, shares, variances and deviations; `interval`, if they are
        quantiles; None if a target can't be read.
    """
    post = statement.post
    if any(column.drawn for group in statement.sets for column in group.columns):
        return None
    if post is None:
        group = statement.tables[0].sets[0]
        columns = [
            group.columns[o.statistic] for o in statement.direct or () if o.statistic is not None
        ]
        return INTERVAL if all(column.quantile is not None for column in columns) else None
    units = set()
    for i, output in enumerate(post.outputs):
        if not output.noisy:
            continue
        placed = post.fractions.get(i)
        if output.chosen:  # noise chooses other groups than those of the rows assumed
            return None
        if i in post.bounds:
            units.add(INTERVAL)
        elif placed is not None and output.reason is None and _bounded(placed):
            units.add(ERROR)
        else:
            return None
    return units.pop() if len(units) == 1 else None


def _bounded(placed: Placed) -> bool:
    """Whether a value is a quotient of sums between known limits, or the root of one."""
    fraction = placed.fraction
    steps = {step.name for step in fraction.steps}
    return fraction.limits is not None and fraction.polynomial and steps <= _SMOOTH


def largest_error(statement: Statement, answers: Expected, grow: float = 1.0) -> float:
    """Return the largest error of a statement that has a `unit_of`, in the units of its values.

    Args:
        statement: what is asked.
        answers: what a table would have.
        grow: by how much the noise is larger than the plan's.

    Returns:
        Of averages and shares a bound on the standard errors, wherever they lie, see
        `Quotient.largest_error`; of deviations that of these rows; of quantiles the largest width
        of an interval. Infinite if it isn't known in all groups.
    """
    columns = columns_of(statement, answers, grow)
    errors = [0.0 if columns else math.inf]
    for column in columns:
        widths = column.most if unit_of(statement) == ERROR else column.widths
        errors += (
            [math.inf] if column.unsure.any() else [float(np.nanmax(widths, initial=-math.inf))]
        )
    return max(errors) if min(errors) >= 0 else math.inf


def unsure_groups(statement: Statement, answers: Expected) -> tuple[int, int]:
    """Return in how many groups too few rows were counted to say anything, and how many there are.

    That there are none where nothing is known at all does not contradict this.
    """
    columns = columns_of(statement, answers)
    return (
        max((int(column.unsure.sum()) for column in columns), default=0),
        max((len(column.values) for column in columns), default=0),
    )


def check_assumed(names: Sequence[str], assume: object) -> None:
    """Refuse what is not a mapping of `rows` and statements to positive numbers.

    Raises:
        WorkloadError: it isn't.
    """
    example = "for example " + option("assume", {ROWS: 100_000}) + "."
    if not isinstance(assume, Mapping) or not assume:
        raise WorkloadError("What is assumed is a mapping of names to rows.", hint=example)
    for name, rows in assume.items():
        if name not in {ROWS, *names}:
            raise WorkloadError(
                f"There is no statement {printable(str(name))!r} to assume rows for.",
                hint=f"the names are {', '.join([ROWS, *map(printable, names[:10])])}.",
            )
        number = isinstance(rows, (int, float)) and not isinstance(rows, bool)
        if not number or not 0 < rows < 1e15:
            raise WorkloadError(f"{rows!r} is not a number of rows.", hint=example)


def _even(script: Script, plan: Plan, rows: float, said: str) -> Expected:
    """Return the answers that so many rows would have, spread evenly over all values."""

    def marginal(names: Sequence[str]) -> Array:
        shares = (even_shares(script, name) for name in names)
        return np.asarray(reduce(np.multiply.outer, shares, np.asarray(rows)))

    answers = Answers(script.workload, None, marginal)
    known = range(len(script.workload.families))
    return Expected(script, plan, answers, known, said, noisy=False)


def _all_rows(script: Script, plan: Plan, statement: Statement, each: float) -> float:
    """Return how many rows the table would have, given those in each group of a statement."""
    group = statement.tables[0].sets[0]
    part, shares = whole(group), _even(script, plan, 1.0, "")
    counts = [
        shares.values(column, part)
        for column in group.columns
        if script.workload.families[column.family].name == statement.name
    ]
    # A row is in one group, so what adds up to more than all rows is a total, not a group's count.
    means = [float(of.mean()) for of in counts if of.sum() <= 1 + 1e-9]
    share = max(means, default=0.0) or 1 / max(1, part.rows)
    return each / share


def _has_size(script: Script, statement: Statement) -> bool:
    """Whether `_all_rows` knows how large the groups of a statement are.

    It does by its counts. Sums say it as well, if nothing but their groups decides on their rows.
    """
    group = statement.tables[0].sets[0]
    if any(column.counts for column in group.columns):
        return True
    return all(
        set(block.attributes) <= column.over or any(axis < len(group.axes) for axis in axes)
        for column in group.columns
        for block, axes in zip(
            script.workload.families[column.family].blocks, column.axes, strict=True
        )
    )


def _unlisted(statement: Statement, plan: Plan) -> list[tuple[object, ...]]:
    """Describe the columns of a statement whose answers are too many, or can't be computed.

    What is selected as it is was planned for, with the mean and the largest of its errors.
    """
    rows: list[tuple[object, ...]] = []
    for output in statement.outputs:
        if not output.noisy:
            continue
        errors: tuple[float | None, float | None] = (None, None)
        counts = None
        if isinstance(output, DirectOutput) and output.statistic is not None:
            column = statement.tables[0].sets[0].columns[output.statistic]
            if column.quantile is None:
                family = plan.workload.families[column.family].shown
                total, largest = plan.reconstruction.extent(family, plan.workload.domain)
                errors = math.sqrt(max(total, 0.0) / family.count), math.sqrt(largest)
                counts = counted((column,), plan.workload)
        exact = errors[0] is not None
        row = (None, *errors, None, 0, None, None, statement.rows, counts, exact)
        rows.append((statement.name, output.name, *row))
    return rows


def _row(
    statement: Statement,
    column: ExpectedColumn,
    silent: NDArray[np.bool_],
    said: str,
    size: int | None,
) -> tuple[object, ...]:
    """Describe one column.

    Args:
        statement: which it is of.
        column: what is expected of it.
        silent: where there is nothing to say of it.
        said: what the rows are, in words.
        size: how many rows a group has, if that is an example.
    """
    here = column.known & ~silent
    errors, widths = column.errors[here], column.widths[here]
    return (
        statement.name,
        column.name,
        _mean(column.values[here]),
        _root(_mean(errors**2)),
        float(np.nanmax(errors)) if np.isfinite(errors).any() else None,
        _mean(widths),
        int(silent.sum()),
        said,
        size,
        len(column.values),
        column.counts,
        column.exact,
    )


def _mean(values: Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _root(square: float | None) -> float | None:
    return None if square is None else math.sqrt(square)
