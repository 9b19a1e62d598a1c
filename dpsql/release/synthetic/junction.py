"""Rows by a junction tree of width two: each column is drawn given two others, or one.

*The tree* (a two-tree). It starts with the pair of columns that tell most of each other, by the
mutual information I of their table. Each further column c is attached to an edge (a, b) of the
tree, the one with the largest I(a; c) + I(b; c), and makes two new edges. So 2d − 3 pairs of d
columns are those of the tables, and of others what follows from them. Where the joint cells are too
many, or the second column tells nothing, c is attached to one column; where none tells anything,
to none.

*The rows*. P(c | a, b) is read off the table of the three columns, of largest entropy given their
pairs. Rows that are in one cell of (a, b) are spread over the cells of c evenly (systematic
sampling): of m rows, m·P have a value, but for less than one. That has less variance than drawing
each on its own.

No cells but those of three columns are ever looked at, so it doesn't matter how many there are of
all together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.reconstruction.entropy import Attributes, EntropyTables, Table
from dpsql.release.synthetic.draws import Draws

MAX_PAIR = 1 << 20
"""Joint cells of a pair of columns that is looked at."""
MAX_TRIPLE = 1 << 23
"""Joint cells of the table by which a column is drawn: 64 MiB, and a few of its size beside it."""

Codes = dict[str, Ints]
"""Column → the cell of each row."""


@dataclass(frozen=True, slots=True)
class DrawnColumn:
    """One column, and those of which its distribution depends."""

    column: str
    given: Attributes
    """Drawn before: none, one or two."""


class TwoTree:
    """In which order columns are drawn, and given which others.

    Args:
        tables: of the columns, in domain order.
    """

    def __init__(self, tables: EntropyTables) -> None:
        self._names = tuple(tables.sizes)
        self._sizes = np.array([tables.sizes[name] for name in self._names], dtype=np.float64)
        self._tells = told(tables)

    @property
    def steps(self) -> tuple[DrawnColumn, ...]:
        """Each column after those that it is given."""
        count = len(self._names)
        if not count:
            return ()
        at = int(np.argmax(self._tells)) if count > 1 else 0
        first, second = divmod(at, count)
        found = [DrawnColumn(self._names[first], ())]
        inside, edges = [first], list[tuple[int, int]]()
        left = [i for i in range(count) if i != first]
        while left:
            given, column = (
                ((first,), second)
                if len(inside) == 1 and self._tells[first, second] > 0
                else self._next(inside, edges, left)
            )
            found.append(DrawnColumn(self._names[column], tuple(self._names[i] for i in given)))
            edges += [(i, column) for i in given]
            inside.append(column)
            left.remove(column)
        return tuple(found)

    def _next(
        self, inside: Sequence[int], edges: Sequence[tuple[int, int]], left: Sequence[int]
    ) -> tuple[tuple[int, ...], int]:
        """Return the next column, and what it is given."""
        alone = self._tells[np.ix_(inside, left)]
        best = int(np.argmax(alone))
        worth, (row, column) = float(alone.flat[best]), divmod(best, len(left))
        given: tuple[int, ...] = (inside[row],) if worth > 0 else ()
        if edges:
            ends = np.array(edges)
            both = self._tells[ends[:, 0]][:, left] + self._tells[ends[:, 1]][:, left]
            cells = np.prod(self._sizes[ends], axis=1)[:, None] * self._sizes[left]
            both[cells > MAX_TRIPLE] = 0.0
            at = int(np.argmax(both))
            if both.flat[at] > worth:
                edge, column = divmod(at, len(left))
                given = edges[edge]
        return given, left[column]


def told(tables: EntropyTables) -> Array:
    """Return what each column tells of each other one, in nats; 0 of what isn't known."""
    names = list(tables.sizes)
    found = np.zeros((len(names), len(names)))
    for pair in pairs(tables):
        i, j = map(names.index, pair)
        found[i, j] = found[j, i] = information(tables.table(pair))
    return found


def pairs(tables: EntropyTables) -> list[Attributes]:
    """Return the pairs of columns that were measured, and aren't too large."""
    return [
        pair
        for pair in combinations(tables.sizes, 2)
        if not too_large(tables.sizes, pair) and tables.known(pair)
    ]


def too_large(sizes: Mapping[str, int], pair: Attributes) -> bool:
    """Whether a pair has too many joint cells to be looked at."""
    return math.prod(sizes[name] for name in pair) > MAX_PAIR


def information(table: Table) -> float:
    """Return the mutual information of a table's two axes."""
    total = float(table.sum(dtype=np.float64))
    if total <= 0:
        return 0.0
    joint = table.astype(np.float64) / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    there = (joint > 0) & (apart > 0)
    return max(0.0, float((joint[there] * np.log(joint[there] / apart[there])).sum()))


def drawn(tables: EntropyTables, rows: int, draws: Draws) -> Codes:
    """Draw rows, column by column."""
    found: Codes = {}
    for step in TwoTree(tables).steps:
        groups = np.zeros(rows, dtype=np.int64)
        for name in step.given:
            groups = groups * tables.sizes[name] + found[name]
        found[step.column] = _spread(_given(tables, step), groups, draws)
    return {name: found[name] for name in tables.sizes}


def _given(tables: EntropyTables, step: DrawnColumn) -> Array:
    """Return the weights of a column's cells, for each joint cell of what it is given."""
    wanted = (*step.given, step.column)
    ordered = tuple(name for name in tables.sizes if name in wanted)
    table = tables.table(ordered).transpose([ordered.index(name) for name in wanted])
    weights = table.reshape(-1, tables.sizes[step.column]).astype(np.float64)
    empty = weights.sum(axis=1) <= 0
    if empty.any():
        weights[empty] = tables.table((step.column,))
    weights[weights.sum(axis=1) <= 0] = 1.0
    return weights


def _spread(weights: Array, groups: Ints, draws: Draws) -> Ints:
    """Give each row a cell, in proportion to the weights of its group.

    The running sums of all groups, each from its number to the next, ascend as one list.
    """
    count, cells = weights.shape
    running = np.cumsum(weights, axis=1)
    running /= running[:, -1:]
    running[:, -1] = 1.0
    running += np.arange(count)[:, None]
    key = groups + draws.stratified(groups, count)
    found = np.searchsorted(running.ravel(), key, side="right")
    return np.asarray(found - groups * cells)
