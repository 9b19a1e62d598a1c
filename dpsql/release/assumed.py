"""Expected errors of what statements select, in its own units, for an assumed number of rows.

How far an average, a share or a quantile is off depends on how many rows there are. So that it
can be said before anything is charged, rows are assumed: as many as the caller says, spread evenly
over the values of every column, independently of each other. The answers and the errors that
such a table would have are then found by what makes those of releases.

Targets hold for more tables: of what is assumed they use only the rows that are divided by. The
average or share may be anything that it can be at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import polars as pl

from dpsql.errors import SqlError, WorkloadError, printable
from dpsql.hints import option
from dpsql.planner.plan import Plan
from dpsql.release.answers import Answers, Array, table_frame, whole
from dpsql.release.frames import AnsweredFrames, quotients
from dpsql.release.noise import Noise
from dpsql.release.rehearse import MAX_ROWS
from dpsql.sql.compiled import Script, Statement
from dpsql.sql.computing.fractions import Placed

ROWS = "rows"
"""What stands for the rows of the whole table among the names of statements."""
_AFFINE = {"plus", "times"}
COLUMNS = {
    "statement": pl.String(),
    "column": pl.String(),
    "typical": pl.Float64(),
    "standard_error": pl.Float64(),
    "largest_standard_error": pl.Float64(),
    "interval": pl.Float64(),
}


def expected_answers(script: Script, plan: Plan, assume: Mapping[str, float]) -> pl.DataFrame:
    """Return the expected error of every column of noisy values; see `Plan.expected_answers`.

    Args:
        script: what is asked.
        plan: how it is measured.
        assume: `rows` → rows of the table, or statement → rows in each of its groups.

    Raises:
        WorkloadError: a name is no statement's, or a number is not positive.
    """
    check_assumed([statement.name for statement in script.statements], assume)
    found = [
        row
        for statement in script.statements
        for row in _columns(script, plan, statement, _rows(script, plan, statement, assume))
    ]
    return pl.DataFrame(found, schema=COLUMNS, orient="row")


def assuming(script: Script, plan: Plan, assume: Mapping[str, float] | None) -> Plan:
    """Return a plan with its expected answers, if rows are assumed.

    Raises:
        WorkloadError: see `expected_answers`.
    """
    if assume is None:
        return plan
    return replace(plan, expected_answers=expected_answers(script, plan, assume))


def check_assumed(names: Sequence[str], assume: object) -> None:
    """Refuse what is no mapping of `rows` and statements to positive numbers.

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
            raise WorkloadError(f"{rows!r} is no number of rows.", hint=example)


def linear_fractions(statement: Statement) -> list[Placed] | None:
    """Return what the values of a statement consist of; None if they aren't all averages or shares.

    That is, sums by sums between known limits, times and plus public numbers.
    """
    post = statement.post
    if post is None:
        return None
    found = []
    for i, output in enumerate(post.outputs):
        if not output.noisy:
            continue
        placed = post.fractions.get(i)
        if placed is None or output.reason is not None or placed.fraction.limits is None:
            return None
        if output.chosen:  # noise chooses other groups than those of the rows assumed
            return None
        parts = post.everything[placed.at : placed.at + 2]
        steps = {step.name for step in placed.fraction.steps}
        if not all(part.exact and part.reason is None for part in parts) or steps - _AFFINE:
            return None
        found.append(placed)
    return found or None


def largest_error(
    script: Script, plan: Plan, statement: Statement, assume: Mapping[str, float]
) -> float:
    """Bound the standard errors of a statement's averages and shares, in their own units.

    For groups of the rows assumed, wherever the averages lie; see `Quotient.largest_error`.

    Args:
        script: what is asked.
        plan: how it is measured.
        statement: one that has `linear_fractions`.
        assume: see `expected_answers`; it has rows for this statement.

    Returns:
        The bound; infinite if none is known.
    """
    post, rows = statement.post, _rows(script, plan, statement, assume)
    groups = sum(whole(group).rows for table in statement.tables for group in table.sets)
    if post is None or rows is None or groups > MAX_ROWS:
        return math.inf
    answers = _even(script, plan, rows)
    frames = [
        table_frame(table, answers, columns, 1.0)
        for table, (_, columns) in zip(statement.tables, post.tables, strict=True)
    ]
    result, noise = post.run(frames), Noise(statement, answers)
    found = [0.0]
    for placed in linear_fractions(statement) or ():
        times = [abs(step.number) for step in placed.fraction.steps if step.name == "times"]
        quotient = quotients(post, placed, result, noise)
        # Groups that can't have rows, such as that of NULL in AVG(x) by x, have no answer.
        some = quotient.bottom > 1e-9 * np.nanmax(quotient.bottom, initial=0.0)
        found += [math.prod(times) * quotient.largest_error()[some].max(initial=0.0)]
    return float(np.nan_to_num(np.max(found), nan=math.inf, posinf=math.inf))


def _even(script: Script, plan: Plan, rows: float) -> Answers:
    """Return the answers that so many rows would have, spread evenly over all values."""

    def share(name: str) -> Array:
        inside = script.table.columns[name].size
        cells = script.workload.domain[name]
        classes = script.merged.get(name, np.arange(max(cells, inside)))[:inside]
        return np.bincount(classes, minlength=cells) / inside

    def marginal(names: Sequence[str]) -> Array:
        return np.asarray(reduce(np.multiply.outer, map(share, names), np.asarray(rows)))

    return Answers(script.workload, plan.recovery, marginal)


def _rows(
    script: Script, plan: Plan, statement: Statement, assume: Mapping[str, float]
) -> float | None:
    """Return how many rows the table would have; None if that isn't assumed."""
    if statement.name not in assume:
        return assume.get(ROWS)
    group = statement.tables[0].sets[0]
    part, shares = whole(group), _even(script, plan, 1.0)
    counts = [
        shares.values(column, part)
        for column in group.columns
        if script.workload.families[column.family].name == statement.name
    ]
    # A row is in one group, so what adds up to more than all rows is a total, not a group's count.
    own = [float(of.mean()) for of in counts if of.sum() <= 1 + 1e-9]
    share = max(own, default=0.0) or 1 / max(1, part.rows)
    return assume[statement.name] / share


def _columns(
    script: Script, plan: Plan, statement: Statement, rows: float | None
) -> list[tuple[object, ...]]:
    """Describe the columns of one statement; without rows, only those that need none."""
    groups = sum(whole(group).rows for table in statement.tables for group in table.sets)
    frames = AnsweredFrames(
        replace(script, statements=(statement,)), _even(script, plan, rows or 1.0)
    )
    described = frames.columns(statement.name).filter(pl.col("role") == "value")
    needed = rows is not None or described["variance"].eq("exact").all()
    try:
        frame = frames.frame(statement.name) if needed and groups <= MAX_ROWS else None
    except SqlError:  # what it computes can't be, for such answers
        frame = None
    found: list[tuple[object, ...]] = []
    for name, kind in described.select("column", "variance").rows():
        typical, *errors = (None,) * 4 if frame is None else _errors(frame, name, kind)
        found.append((statement.name, name, typical if rows is not None else None, *errors))
    return found


def _errors(frame: pl.DataFrame, name: str, kind: str) -> tuple[float | None, ...]:
    """Return the typical value, the mean and the largest standard error, and the mean interval."""
    values = frame[name].cast(pl.Float64, strict=False).drop_nulls()
    typical = values.mean() if values.len() else None
    if kind == "interval":
        ends = [frame[f"{name}_{end}"].cast(pl.Float64, strict=False) for end in ("lower", "upper")]
        width = (ends[1] - ends[0]).mean()
        return _number(typical), None, None, _number(width)
    variances = frame[f"{name}_variance"].cast(pl.Float64).drop_nulls()
    if not variances.len():
        return _number(typical), None, None, None
    mean, largest = (float(v) for v in (variances.to_numpy().mean(), variances.to_numpy().max()))
    return _number(typical), math.sqrt(mean), math.sqrt(largest), None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
