"""Expected errors of what statements select, in its own units.

How far an average, a share or a quantile is off depends on how many rows there are. So that it
can be said before anything is charged, rows are assumed: as many as the caller says, spread evenly
over the values of every column, independently of each other. Where nothing is assumed, noisy counts
of earlier measurements take their place, if there are any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import polars as pl

from dpsql.errors import WorkloadError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.release.answers import Answers, whole
from dpsql.release.counted import Counts, even_shares
from dpsql.release.expected import Expected, ExpectedColumn, columns_of
from dpsql.sql.compiled import Script, Statement
from dpsql.sql.computing.fractions import Placed

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
}


def expected_answers(
    script: Script, plan: Plan, assume: Mapping[str, float] | None, counts: Counts | None = None
) -> pl.DataFrame:
    """Return the expected error of every column of noisy values; see `Plan.expected_answers`.

    Args:
        script: what is asked.
        plan: how it is measured.
        assume: `rows` → rows of the table, or statement → rows in each of its groups.
        counts: what was counted before, for statements without rows assumed.

    Raises:
        WorkloadError: a name is not a statement's, or a number is not positive.
    """
    if assume is not None:
        check_assumed([statement.name for statement in script.statements], assume)
    found = []
    for statement in script.statements:
        answers = expected(script, plan, statement, assume, counts)
        known = answers is not None
        # Without any rows, errors are still known where they depend on none.
        columns = columns_of(statement, answers or _even(script, plan, 1.0, ""))
        if not columns:
            columns = [_unknown(name) for name in _noisy(statement)]
        said = answers.said if answers is not None else None
        found += [(*_row(statement, c, known=known), said) for c in columns]
    return pl.DataFrame(found, schema=COLUMNS, orient="row")


def assuming(
    script: Script, plan: Plan, assume: Mapping[str, float] | None, counts: Counts | None = None
) -> Plan:
    """Return a plan with its expected answers, if rows are assumed or known.

    Raises:
        WorkloadError: see `expected_answers`.
    """
    if (assume is None and counts is None) or MECHANISMS[plan.mechanism].is_biased:
        return plan
    return replace(plan, expected_answers=expected_answers(script, plan, assume, counts))


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


def _noisy(statement: Statement) -> list[str]:
    """Return the names of a statement's noisy columns."""
    return [output.name for output in statement.outputs if output.noisy]


def _unknown(name: str) -> ExpectedColumn:
    nothing = np.zeros(0)
    return ExpectedColumn(name, nothing, nothing, nothing, nothing, False, nothing.astype(np.bool_))


def _row(statement: Statement, column: ExpectedColumn, *, known: bool) -> tuple[object, ...]:
    """Describe one column; without rows, only the errors that need none."""
    here = column.known if known or column.exact else np.zeros(len(column.values), dtype=np.bool_)
    errors, widths = column.errors[here], column.widths[here]
    left_out = int(column.unsure.sum()) if known else None
    return (
        statement.name,
        column.name,
        _mean(column.values[here]) if known else None,
        _root(_mean(errors**2)),
        float(np.nanmax(errors)) if np.isfinite(errors).any() else None,
        _mean(widths),
        left_out,
    )


def _mean(values: Array) -> float | None:
    found = values[np.isfinite(values)]
    return float(found.mean()) if len(found) else None


def _root(square: float | None) -> float | None:
    return None if square is None else math.sqrt(square)
