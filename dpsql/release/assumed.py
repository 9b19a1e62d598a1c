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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import WorkloadError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.release.answers import Answers, whole
from dpsql.release.counted import Counts, even_shares
from dpsql.release.expected import Expected, ExpectedColumn, columns_of, counted
from dpsql.sql.compiled import Script, Statement
from dpsql.sql.computing.fractions import Placed
from dpsql.sql.computing.postprocess import DirectOutput

ROWS = "rows"
"""What stands for the rows of the whole table among the names of statements."""
ERROR, INTERVAL = "error", "interval"
"""What a target in units of the values is of: a standard error, or the width of an interval."""
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
    found: list[tuple[object, ...]] = []
    for statement in script.statements:
        answers = expected(script, plan, statement, assume, counts)
        if answers is None:
            found += _by_size(script, plan, statement)
            continue
        columns = columns_of(statement, answers)
        known = [c for c in columns if not answers.noisy or np.isfinite([c.errors, c.widths]).any()]
        rows = [_row(statement, c, c.unsure, answers.said, None) for c in known]
        if len(known) < len(columns):  # of these, what was counted says nothing
            others = {c.name for c in columns} - {c.name for c in known}
            rows += [row for row in _by_size(script, plan, statement) if row[1] in others]
        found += rows or _unlisted(statement, plan)
    return pl.DataFrame(found, schema=COLUMNS, orient="row")


def _by_size(script: Script, plan: Plan, statement: Statement) -> list[tuple[object, ...]]:
    """Tell of each column for groups of several sizes; once, where errors don't depend on rows.

    Sizes that are too small to tell anything come before those that do.
    """
    each, sized = _all_rows(script, plan, statement, 1.0), _has_size(script, statement)
    found: dict[str, list[tuple[object, ...]]] = {}
    missing: dict[str, int] = {}
    for size in SIZES:
        said = f"a group of {size:,} rows, spread evenly over all values"
        for column in columns_of(statement, _even(script, plan, size * each, said)):
            if missing.setdefault(column.name, 1 if column.exact else EXAMPLES):
                if column.exact and not sized:
                    column = replace(column, values=np.full(len(column.values), np.nan))
                row = _row(statement, column, column.drowned, said, size)
                found.setdefault(column.name, []).append(row)
                missing[column.name] -= bool((column.known & ~column.drowned).any())
        if not any(missing.values()):
            break
    return [row for rows in found.values() for row in rows] or _unlisted(statement, plan)


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
    if post is None:
        group = statement.tables[0].sets[0]
        own = [
            group.columns[o.statistic] for o in statement.direct or () if o.statistic is not None
        ]
        return INTERVAL if all(column.quantile is not None for column in own) else None
    found = set()
    for i, output in enumerate(post.outputs):
        if not output.noisy:
            continue
        placed = post.fractions.get(i)
        if output.chosen:  # noise chooses other groups than those of the rows assumed
            return None
        if i in post.bounds:
            found.add(INTERVAL)
        elif placed is not None and output.reason is None and _bounded(placed):
            found.add(ERROR)
        else:
            return None
    return found.pop() if len(found) == 1 else None


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
    found = [0.0 if columns else math.inf]
    for column in columns:
        own = column.most if unit_of(statement) == ERROR else column.widths
        found += [math.inf] if column.unsure.any() else [float(np.nanmax(own, initial=-math.inf))]
    return max(found) if min(found) >= 0 else math.inf


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
    own = [float(of.mean()) for of in counts if of.sum() <= 1 + 1e-9]
    share = max(own, default=0.0) or 1 / max(1, part.rows)
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
    found: list[tuple[object, ...]] = []
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
        found.append((statement.name, output.name, *row))
    return found


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
    found = values[np.isfinite(values)]
    return float(found.mean()) if len(found) else None


def _root(square: float | None) -> float | None:
    return None if square is None else math.sqrt(square)
