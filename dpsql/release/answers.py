"""Answers of statistics for groups, and their errors, in the order of the groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array
from dpsql.planner.reconstruction.base import Aligned, Reconstruction
from dpsql.planner.reconstruction.measured import Values
from dpsql.release.marginals import Marginal, NoisyMarginals, in_group_order
from dpsql.release.quantiles import Quantiles, distribution, quantiles
from dpsql.sql.binding.core import ROW, Role
from dpsql.sql.compiled import AnswerTable, GroupingSet, Statement, StatisticColumn
from dpsql.sql.computing.postprocess import Postprocessing
from dpsql.workload import Family, Workload
from dpsql.workload.workload import boxes


@dataclass(frozen=True, slots=True)
class GroupBox:
    """Some of the groups of a grouping set: a box of its axes."""

    group: GroupingSet
    box: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of groups along each axis."""
        return tuple(chosen.stop - chosen.start for chosen in self.box)

    @property
    def rows(self) -> int:
        """The number of groups."""
        return math.prod(self.shape)


def whole(group: GroupingSet) -> GroupBox:
    """Return all groups of a grouping set."""
    return GroupBox(group, tuple(slice(0, n) for n in group.shape))


def parts(group: GroupingSet, rows: int) -> Iterator[GroupBox]:
    """Yield a grouping set in parts of at most so many groups, in C order."""
    for box in boxes(group.shape, rows):
        yield GroupBox(group, box)


class Answering(Protocol):
    """Gives answers of statistics."""

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return a statistic for every group of a part, in C order."""

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variance of a statistic for every group of a part."""

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> Quantiles:
        """Return a quantile for every group of a part."""


class Answers:
    """The answers to a workload, by statistic and group."""

    def __init__(
        self,
        workload: Workload,
        reconstruction: Reconstruction | None,
        marginal: Marginal,
        *,
        laplace: bool = False,
    ) -> None:
        self.workload = workload
        self.laplace = laplace
        """Whether noise has the heavier tails of the Laplace distribution."""
        self.reconstruction = reconstruction
        """Tells the variances of unbiased answers; None if there are none."""
        self.marginal = marginal
        """Makes the marginals of which answers are made."""
        self._marginals = NoisyMarginals(marginal)

    @classmethod
    def measured(
        cls,
        workload: Workload,
        reconstruction: Reconstruction,
        values: Values,
        *,
        laplace: bool = False,
    ) -> Answers:
        """Take the answers that follow from measured values."""

        def marginal(names: tuple[str, ...]) -> Array:
            return reconstruction.marginal(names, values)

        return cls(workload, reconstruction, marginal, laplace=laplace)

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return a statistic for every group of a part, in C order."""
        answers = self._marginals.answers(self._family(column, part))
        return in_group_order(answers, column.axes, part.shape)

    def counted(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the answers of a statistic's family for the groups of a part, in its shape."""
        return self._marginals.answers(self._family(column, part))

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return the variance of a statistic for every group of a part, in C order."""
        return in_group_order(self._spread(self._family(column, part)), column.axes, part.shape)

    def quantiles(self, column: StatisticColumn, part: GroupBox, reach: float) -> Quantiles:
        """Read a quantile off the noisy distribution of every group of a part.

        Args:
            column: a quantile.
            part: the groups.
            reach: how many standard deviations its interval reaches to each side.
        """
        family = self._family(column, part)
        found = distribution(column, family, part.shape, self._marginals.answers, self._spread)
        return quantiles(column, found, reach)

    def distributed(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return of how many rows a quantile is, for every group of a part, in C order."""
        if column.values is None:
            raise InternalError("known only for quantiles")
        values = column.values.len()
        found = self._marginals.answers(self._family(column, part))
        counts = in_group_order(found, column.axes, (*part.shape, values))
        return np.asarray(counts.reshape(-1, values)[:, -1])

    def _spread(self, family: Family) -> Array:
        """Return the variances of a family; zeros if they are not known."""
        return (
            np.zeros(family.shape)
            if self.reconstruction is None
            else self.reconstruction.variances(family)
        )

    def family(self, column: StatisticColumn) -> Family:
        """Return the queries that answer a statistic."""
        return self.workload.families[column.family].shown

    def _family(self, column: StatisticColumn, part: GroupBox) -> Family:
        """Return the queries of a statistic for the groups of a part."""
        family, box, sizes = self.family(column), part.box, part.group.shape
        if column.values is not None:  # the values of a quantile run along one more axis
            box, sizes = (*box, slice(0, column.values.len())), (*sizes, column.values.len())
        if part.shape == part.group.shape:
            return family
        return Aligned(family, column.axes).cut(box, sizes).family


def keys(part: GroupBox) -> dict[int, pl.Series]:
    """Return every key of a part, row by row."""
    found: dict[int, pl.Series] = {}
    grid = np.indices(part.shape).reshape(len(part.shape), part.rows)
    for i, axis in enumerate(part.group.axes):
        at = grid[i] + part.box[i].start
        for number, key in zip(axis.numbers, axis.keys, strict=True):
            found[number] = key.gather(at)
    return found


def computed(
    statement: Statement, post: Postprocessing, answers: Answering, reach: float
) -> pl.DataFrame:
    """Run what a statement computes on answers; the last columns of the result are hidden ones.

    Intervals of quantiles reach so many standard deviations to each side.

    Raises:
        SqlError: it can't be computed for these answers.
    """
    return post.run(
        [
            _table_frame(table, answers, columns, reach)
            for table, (_, columns) in zip(statement.tables, post.tables, strict=True)
        ]
    )


def _table_frame(
    table: AnswerTable, answers: Answering, types: Sequence[tuple[str, str]], reach: float
) -> pl.DataFrame:
    """Return the whole table of a core's answers, with the columns that `postprocess` names."""
    frames, first = [], 0
    for group in table.sets:
        frames.append(_set_frame(table, group, answers, first, reach))
        first += group.rows
    return pl.concat(frames, how="diagonal_relaxed").select(name for name, _ in types)


def _set_frame(
    table: AnswerTable, group: GroupingSet, answers: Answering, first: int, reach: float
) -> pl.DataFrame:
    part = whole(group)
    here = keys(part)
    columns: list[pl.Series] = []
    for k in range(table.keys):
        key = here.get(k, pl.Series([None] * part.rows, dtype=pl.Null))
        columns.append(key.alias(Role.KEY.named(k)))
        rolled_up = [int(k not in here)] * part.rows
        columns.append(pl.Series(Role.ROLLED_UP.named(k), rolled_up, dtype=pl.Int32))
    for j, column in enumerate(group.columns):
        name, centers = Role.STATISTIC.named(j), [column.center] * part.rows
        columns.append(pl.Series(Role.CENTER.named(j), centers, dtype=pl.Float64))
        if column.quantile is None:
            columns.append(pl.Series(name, answers.values(column, part), nan_to_null=True))
        else:
            found = answers.quantiles(column, part, reach)
            columns.append(found.values.alias(name))
            columns.append(found.lower.alias(Role.LOWER.named(j)))
            columns.append(found.upper.alias(Role.UPPER.named(j)))
            columns.append(found.rows.alias(Role.SIZE.named(j)))
        if j == table.floor:
            errors = np.sqrt(answers.variances(column, part))
            columns.append(pl.Series(Role.STANDARD_ERROR.named(j), errors))
    columns.append(pl.Series(ROW, np.arange(first, first + part.rows)))
    return pl.DataFrame(columns)
