"""Rows in order of a value, by groups: those near a place in the order. Trusted.

Guarantees:
    Of each group what is read are its number n of rows, and of the values that some of its rows
    have how many rows are below each and how many up to it. To add or to remove a unit with all of
    its rows puts in or takes out at most k rows, which are in at most m groups each; nothing else
    changes of any group. A row that has no value is in none.

    *Proof.* The rows are those that are counted where rows are counted: all of a table without
    units, and k is 1; of units those that `duckdb/bounded.py` chooses, with its proof. A row is in
    the groups of the cells that it lies in, as `check_ranked` makes sure in no more than m of
    them, and once in each. Its value is a total function of the row, and so is the place of that on
    the line. ∎

    Values beyond the line are moved to its nearer end before anything is counted, and numbers of a
    line of single precision are rounded to that. So rows that have the same place are always
    counted together: they are equal wherever rows are told apart.

    Values are left out that miss all places that are looked for by more than a number of rows, on
    either side; but those that aren't left out say how many rows are below them, and up to them.
    See `measurement/quantiles.py` and `measurement/halving.py`, which ask for no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpsql.engines.arrow import numbers
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.rel.ranked import RankedValues, ValueLine

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RankWindow:
    """The part of an order of rows that is looked at: p·n, and so many rows to both sides.

    Args:
        probability: p.
        reach: how many rows, in units of 1/b rows, with b the denominator of p.
    """

    probability: Fraction
    reach: int


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Values of rows, near a place in their order, as exact as they are private.

    Args:
        groups: the number of each value's group, in ascending order.
        places: the places of the values on the line, in ascending order within a group, each once.
        below: how many rows of the group have a smaller value.
        upto: how many have it or a smaller one.
        sizes: for each value, the number of rows in its group.
    """

    groups: Ints
    places: Ints
    below: Ints
    upto: Ints
    sizes: Ints

    def __repr__(self) -> str:
        return "<RankedRows>"  # never what they are

    def check(self, groups: int, line: ValueLine, windows: int = 1) -> None:
        """Make sure that these are values of groups, in order.

        Args:
            groups: the number of groups.
            line: where the values lie.
            windows: how many places they are near to: between those of one, none is left out.

        Raises:
            InternalError: they aren't.
        """
        arrays = self.groups, self.places, self.below, self.upto, self.sizes
        if any(a.dtype != np.int64 or a.shape != self.groups.shape for a in arrays):
            raise InternalError("ranks are integers of 64 bits")
        if not self.groups.size:
            return
        same = self.groups[1:] == self.groups[:-1]
        left_out = (self.below[1:] - self.upto[:-1])[same]
        ordered = (
            (self.groups[1:] >= self.groups[:-1]).all()
            and (self.places[1:] > self.places[:-1])[same].all()
            and ((left_out >= 0) if windows > 1 else (left_out == 0)).all()
            and (self.sizes[1:] == self.sizes[:-1])[same].all()
            and (self.below >= 0).all()
            and (self.below < self.upto).all()
            and (self.upto <= self.sizes).all()
            and int(self.groups[0]) >= 0
            and int(self.groups[-1]) < groups
        )
        if not ordered:
            raise InternalError("values of rows are out of order")
        if line.low > int(self.places.min()) or line.high < int(self.places.max()):
            raise InternalError("a value is beyond its line")


def read_ranks(found: pa.Table, columns: Sequence[str], values: RankedValues) -> RankedRows:
    """Read ranks that a database has found; of floating-point values the places of their bits.

    Args:
        found: a row for each value of each group, in order; no column has NULLs.
        columns: the names of the group, the value, the rows below, up to it, and of the group.
        values: what was put in order.
    """

    def column(name: str) -> Ints:
        parts = [numbers(chunk, np.int64) for chunk in found.column(name).chunks if len(chunk)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    groups, bits, below, upto, sizes = map(column, columns)
    line = values.line
    places = line.places_of(bits.view(np.float64)) if line.type.is_float else bits
    return RankedRows(groups, places, below, upto, sizes)


class Ranking(Protocol):
    """Statements that put the rows of groups in order; the same are checked and run."""

    @property
    def contributions(self) -> int:
        """The most rows of one unit: k."""

    @property
    def values(self) -> RankedValues:
        """The values that are put in order."""

    def check(self) -> None:
        """Make sure that `run` can do it, as far as no row is needed to know.

        Raises:
            InternalError: the database would refuse the statement.
        """

    def run(self, windows: Sequence[RankWindow]) -> RankedRows:
        """Put the rows in order, and read the values within windows, group by group.

        It may fail with any exception whatever, and the text of that may quote values.
        """


def check_ranked(values: RankedValues) -> None:
    """Make sure that a row is in no more groups than it is charged for, and in each of them once.

    Numbers of groups are sums of what blocks add, of which each is about other axes.

    Raises:
        InternalError: it may be.
    """
    pairs = (np.stack([of.cells, of.groups]) for of in values.blocks)
    once = all(
        np.unique_counts(at[0] * values.count + at[1]).counts.max(initial=1) == 1 for at in pairs
    )
    times = (int(np.unique_counts(of.cells).counts.max(initial=1)) for of in values.blocks)
    if not once or math.prod(times) > values.most < values.count:
        raise InternalError("a row may be in more groups than it is charged for")


def by_group(rows: RankedRows) -> Callable[[int], slice]:
    """Return what gives the values of a group, by its number."""

    def of(group: int) -> slice:
        low, high = np.searchsorted(rows.groups, [group, group + 1])
        return slice(int(low), int(high))

    return of
