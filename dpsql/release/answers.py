"""Answers of statistics for groups, and their errors, in the order of the groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.planner.reconstruction.aligned import Aligned
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.release.marginals import Marginal, NoisyMarginals
from dpsql.release.order import in_group_order
from dpsql.release.quantiles import Quantiles, distribution, quantiles
from dpsql.sql.compiled import AnswerTable, GroupingSet, StatisticColumn
from dpsql.workload import Family, Workload
from dpsql.workload.workload import boxes

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
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


def whole(group: GroupingSet) -> Part:
    """Return all groups of a grouping set."""
    return Part(group, tuple(slice(0, n) for n in group.shape))


def parts(group: GroupingSet, rows: int) -> Iterator[Part]:
    """Yield a grouping set in parts of at most so many groups, in C order."""
    for box in boxes(group.shape, rows):
        yield Part(group, box)


class Answering(Protocol):
    """Gives answers of statistics."""

    def values(self, column: StatisticColumn, part: Part) -> Array:
        """Return a statistic for every group of a part, in C order."""

    def variances(self, column: StatisticColumn, part: Part) -> Array:
        """Return the variance of a statistic for every group of a part."""

    def quantiles(self, column: StatisticColumn, part: Part, reach: float) -> Quantiles:
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
        self._marginals = NoisyMarginals(marginal)

    def values(self, column: StatisticColumn, part: Part) -> Array:
        """Return a statistic for every group of a part, in C order."""
        answers = self._marginals.answers(self._family(column, part))
        return in_group_order(answers, column.axes, part.shape)

    def counted(self, column: StatisticColumn, part: Part) -> Array:
        """Return the answers of a statistic's family for the groups of a part, in its shape."""
        return self._marginals.answers(self._family(column, part))

    def variances(self, column: StatisticColumn, part: Part) -> Array:
        """Return the variance of a statistic for every group of a part, in C order."""
        return in_group_order(self._spread(self._family(column, part)), column.axes, part.shape)

    def quantiles(self, column: StatisticColumn, part: Part, reach: float) -> Quantiles:
        """Read a quantile off the noisy distribution of every group of a part.

        Args:
            column: a quantile.
            part: the groups.
            reach: how many standard deviations its interval reaches to each side.
        """
        family = self._family(column, part)
        found = distribution(column, family, part.shape, self._marginals.answers, self._spread)
        return quantiles(column, found, reach)

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

    def _family(self, column: StatisticColumn, part: Part) -> Family:
        """Return the queries of a statistic for the groups of a part."""
        family, box, sizes = self.family(column), part.box, part.group.shape
        if column.values is not None:  # the values of a quantile run along one more axis
            box, sizes = (*box, slice(0, column.values.len())), (*sizes, column.values.len())
        if part.shape == part.group.shape:
            return family
        return Aligned(family, column.axes).cut(box, sizes).family


def keys(part: Part) -> dict[int, pl.Series]:
    """Return every key of a part, row by row."""
    found: dict[int, pl.Series] = {}
    grid = np.indices(part.shape).reshape(len(part.shape), part.rows)
    for i, axis in enumerate(part.group.axes):
        at = grid[i] + part.box[i].start
        for name in axis.keys.columns:
            found[int(name[1:])] = axis.keys[name].gather(at)
    return found


def table_frame(
    table: AnswerTable, answers: Answering, types: Sequence[tuple[str, str]], reach: float
) -> pl.DataFrame:
    """Return the whole table of a core's answers, with the columns that `postprocess` names.

    Intervals of quantiles reach so many standard deviations to each side.
    """
    frames, first = [], 0
    for group in table.sets:
        frame = _set_frame(table, group, answers, first, reach)
        errors = [name for name, _ in types if name.startswith("__d")]
        frames.append(frame.with_columns(_error(name, group, answers) for name in errors))
        first += whole(group).rows
    return pl.concat(frames, how="diagonal_relaxed").select(name for name, _ in types)


def _error(name: str, group: GroupingSet, answers: Answering) -> pl.Series:
    """Return the standard errors of the statistic that a column is named after."""
    variances = answers.variances(group.columns[int(name[3:])], whole(group))
    return pl.Series(name, np.sqrt(variances))


def _set_frame(
    table: AnswerTable, group: GroupingSet, answers: Answering, first: int, reach: float
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
            columns.append(pl.Series(f"__s{j}", answers.values(column, part), nan_to_null=True))
            continue
        found = answers.quantiles(column, part, reach)
        columns.append(found.values.alias(f"__s{j}"))
        columns += [found.lower.alias(f"__l{j}"), found.upper.alias(f"__u{j}")]
    columns.append(pl.Series("__row", np.arange(first, first + part.rows)))
    return pl.DataFrame(columns)
