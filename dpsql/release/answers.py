"""Answers of statistics for groups, and their errors, in the order of the groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.mechanism.reconstruct import Reconstruction
from dpsql.planner.plan import Plan
from dpsql.release.quantiles import Quantiles, quantiles
from dpsql.sql.frontend import AnswerTable, GroupingSet, StatisticColumn
from dpsql.workload import Family

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the groups of a grouping set: a slice of its first axis."""

    group: GroupingSet
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups along each axis."""
        shape = self.group.shape
        return (self.stop - self.start, *shape[1:]) if shape else shape

    @property
    def rows(self) -> int:
        """The number of groups."""
        return math.prod(self.shape)


def whole(group: GroupingSet) -> Part:
    """Return all groups of a grouping set."""
    return Part(group, 0, group.shape[0] if group.shape else 1)


def parts(group: GroupingSet, rows: int) -> Iterator[Part]:
    """Yield a grouping set in parts of about so many groups."""
    if not group.shape:
        yield whole(group)
        return
    first, *others = group.shape
    step = max(1, rows // max(1, math.prod(others)))
    for start in range(0, first, step):
        yield Part(group, start, min(start + step, first))


class Answers:
    """The answers of one release, by statistic and group."""

    def __init__(self, plan: Plan, reconstruction: Reconstruction) -> None:
        self.plan = plan
        self._reconstruction = reconstruction

    def values(self, column: StatisticColumn, part: Part) -> Array:
        """Return a statistic for every group of a part, in C order."""
        family = self._family(column, part)
        return _in_order(self._reconstruction.answers(family), column.axes, part.shape)

    def variances(self, column: StatisticColumn, part: Part) -> Array:
        """Return the variance of a statistic for every group of a part, in C order."""
        family = self._family(column, part)
        return _in_order(self.plan.recovery.variances(family), column.axes, part.shape)

    def quantiles(self, column: StatisticColumn, part: Part, reach: float) -> Quantiles:
        """Read a quantile off the noisy distribution of every group of a part.

        Args:
            column: a quantile.
            part: the groups.
            reach: how many standard deviations its interval reaches to each side.
        """
        family, variances = self._family(column, part), self.plan.recovery.variances
        return quantiles(column, family, part.shape, self.answers, variances, reach)

    def answers(self, family: Family) -> Array:
        """Return the answers of any family that was planned for, in its shape."""
        return self._reconstruction.answers(family)

    def family(self, column: StatisticColumn) -> Family:
        """Return the family that answers a statistic."""
        return self.plan.workload.families[column.family]

    def _family(self, column: StatisticColumn, part: Part) -> Family:
        """Cut a family along the first axis, on which its first block depends."""
        family = self.family(column)
        if (part.start, part.stop) == (0, part.group.shape[0] if part.group.shape else 1):
            return family
        first = column.axes[0]
        inner = family.shape[0] // part.group.shape[0]
        if first[0] != 0:
            raise IndexError("the first block doesn't begin with the first axis")
        return family.part(part.start * inner, part.stop * inner)


def can_be_cut(group: GroupingSet) -> bool:
    """Whether all statistics can be answered for a part of the first axis."""
    return bool(group.shape) and all(c.axes and c.axes[0][:1] == (0,) for c in group.columns)


def keys(part: Part) -> dict[int, pl.Series]:
    """Return every key of a part, row by row."""
    found: dict[int, pl.Series] = {}
    grid = np.indices(part.shape).reshape(len(part.shape), part.rows)
    for i, axis in enumerate(part.group.axes):
        at = grid[i] + (part.start if i == 0 else 0)
        for name in axis.keys.columns:
            found[int(name[1:])] = axis.keys[name].gather(at)
    return found


def table_frame(
    table: AnswerTable, answers: Answers, types: Sequence[tuple[str, str]], reach: float
) -> pl.DataFrame:
    """Return the whole table of a core's answers, with the columns that `postprocess` names.

    Intervals of quantiles reach so many standard deviations to each side.
    """
    frames, first = [], 0
    for group in table.sets:
        frames.append(_set_frame(table, group, answers, first, reach))
        first += whole(group).rows
    return pl.concat(frames, how="diagonal_relaxed").select(name for name, _ in types)


def _set_frame(
    table: AnswerTable, group: GroupingSet, answers: Answers, first: int, reach: float
) -> pl.DataFrame:
    part = whole(group)
    here = keys(part)
    columns: list[pl.Series] = []
    for k in range(table.keys):
        key = here.get(k, pl.Series([None] * part.rows, dtype=pl.Null))
        columns.append(key.alias(f"__k{k}"))
        columns.append(pl.Series(f"__g{k}", [int(k not in here)] * part.rows, dtype=pl.Int32))
    for j, column in enumerate(group.columns):
        columns.append(pl.Series(f"__c{j}", [column.centre] * part.rows, dtype=pl.Float64))
        if column.quantile is None:
            columns.append(pl.Series(f"__s{j}", answers.values(column, part)))
            continue
        found = answers.quantiles(column, part, reach)
        columns.append(found.values.alias(f"__s{j}"))
        columns += [found.lower.alias(f"__l{j}"), found.upper.alias(f"__u{j}")]
    columns.append(pl.Series("__row", np.arange(first, first + part.rows)))
    return pl.DataFrame(columns)


def _in_order(array: Array, axes: Sequence[Sequence[int]], shape: tuple[int, ...]) -> Array:
    """Bring answers from the order of the blocks to that of the groups, and flatten them."""
    placed = [axis for block in axes for axis in block]
    tensor = array.reshape([shape[axis] for axis in placed])
    return np.ascontiguousarray(tensor.transpose(np.argsort(placed))).ravel()
