"""On how many rows values rest, and which quotients are divided by what may be noise alone.

A count rests on as many rows as it says, and so does a sum of counts. An average, a share or a
quantile rests on those of its group: the most that any of its counts says. A sum has no count, and
rests on the most that other values in its row do. All of these are noisy numbers of the release, so
that to decide by them costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dpsql.linalg.arrays import Array
from dpsql.release.answers import Answers, GroupBox, whole
from dpsql.release.noise import NumberedSet, flat_pairs, numbered, placed_pairs
from dpsql.sql.compiled import Statement, StatisticColumn

FOUNDED = 3.0
"""Standard errors from zero of what is divided by; nearer, it may be noise alone. Then the quotient
is marked and has no variance: one of first order would be wrong by any factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The support of the values of a frame: what they rest on, row by row."""

    rows: Mapping[str, pl.Series]
    """Value → on how many rows, by their noisy number; NULL where no count is known."""
    unfounded: Mapping[str, pl.Series]
    """Quotient → whether what it is divided by may be noise alone."""
    ranges: Mapping[str, pl.Series]
    """Quantile → all values of its domain, in order, of which it is one."""

    @classmethod
    def of(
        cls,
        found: Mapping[str, Array],
        rows: int,
        unfounded: Mapping[str, pl.Series] | None = None,
        ranges: Mapping[str, pl.Series] | None = None,
    ) -> Support:
        """Return what is known, with what others in a row say where nothing is known of a value.

        Args:
            found: value → on how many rows; NaN where nothing is known.
            rows: of the frame.
            unfounded: see the class.
            ranges: see the class.
        """
        most = np.full(rows, -np.inf)
        for each in found.values():
            most = np.fmax(most, each)
        filled = {name: np.where(np.isnan(each), most, each) for name, each in found.items()}
        known = {
            name: pl.Series(name, np.where(np.isfinite(each), each, np.nan)).fill_nan(None)
            for name, each in filled.items()
        }
        return cls(known, unfounded or {}, ranges or {})

    def part(self, start: int, rows: int) -> Support:
        """Return the same of a slice of the frame."""
        return Support(
            {name: each.slice(start, rows) for name, each in self.rows.items()},
            {name: each.slice(start, rows) for name, each in self.unfounded.items()},
            self.ranges,
        )


def unfounded(divisors: pl.Series, variances: pl.Series, *, positive: bool) -> pl.Series:
    """Say of each divisor whether it may be noise alone; in doubt it may not.

    Args:
        divisors: what is divided by.
        variances: of these.
        positive: whether nothing but noise makes them negative.
    """
    values, error = divisors.cast(pl.Float64), variances.cast(pl.Float64).sqrt()
    size = values if positive else values.abs()
    return ((error > 0) & (size < FOUNDED * error)).fill_null(value=False)


def of_statistic(answers: Answers, column: StatisticColumn, part: GroupBox) -> Array:
    """Return on how many rows a statistic rests, for every group of a part; NaN if not known."""
    if column.quantile is not None:
        return answers.distributed(column, part)
    if column.counts:
        return answers.values(column, part)
    return np.full(part.rows, np.nan)


class PairSupport:
    """On how many rows the values of a statement rest that computes on its answers."""

    def __init__(self, statement: Statement, answers: Answers) -> None:
        self._answers = answers
        self._places: Sequence[NumberedSet] = numbered(statement.tables)

    def of_values(self, pairs: pl.Series) -> Array:
        """Return on how many rows every value rests, given its list; NaN where none is known.

        A sum of counts says so itself; of all else, the largest count that it depends on.
        """
        total = np.full(pairs.len(), np.nan)
        flat = flat_pairs(pairs)
        if not flat.height:
            return total
        parts = []
        placed = placed_pairs(flat, self._places)
        for (number, j), part in placed.group_by("set", "column", maintain_order=True):
            group = self._places[int(str(number))].group
            column = group.columns[int(str(j))]
            known = of_statistic(self._answers, column, whole(group))
            at = known[part["row"].to_numpy()]
            counts = np.isfinite(at) & (column.quantile is None) & (part["c"].to_numpy() == 1.0)
            parts.append(part.select("value").with_columns(n=pl.Series(at), counts=counts))
        found = (
            pl.concat(parts)
            .group_by("value")
            .agg(
                pl.col("n").sum().alias("sum"),
                pl.col("n").fill_nan(None).max().alias("most"),
                pl.col("counts").all(),
            )
        )
        rows = found.select(pl.when("counts").then("sum").otherwise("most").alias("rows"))["rows"]
        total[found["value"].to_numpy()] = rows.cast(pl.Float64).fill_null(np.nan).to_numpy()
        return total
