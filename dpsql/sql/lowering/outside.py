"""The cell of rows that have no value of a column's domain.

A SELECT counts the rows that have a value of the domain in every column that it names. Rows
without one are not left out of what is measured, or two statements that name different columns
would be about different rows, and nothing that was measured for one could be used for the other.
They have a cell of their own, after those of the domain. No query of an answer counts it:

- matrices over columns that are named have zeros there;
- a column that is named, and on which a statistic doesn't depend otherwise, gets a row of ones
  for its domain and a zero;
- a column that is not named, and stands in a matrix only because that needs cells, has the same
  coefficient there as in every other cell.

Where groups are the cells of a column, or all its cells are counted together, the last cell is
asked for as well, in a row that is not shown. That costs no accuracy: a record lies in that cell
or in one that is shown, and noise has to hide one of them only. With it, what was measured of
several columns can be added up to what fewer of them say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dpsql.linalg.matrices import Intervals, of_entries
from dpsql.schema import Table
from dpsql.sql.binding.core import Linear
from dpsql.sql.lowering.lower import LoweredCore, LoweredSet, LoweredStatistic
from dpsql.sql.lowering.matrices import LoweredBlock


def with_outside(core: LoweredCore, table: Table) -> LoweredCore:
    """Give every column of which rows may be left out its last cell."""
    if not any(table.leaves_out(name) for name in table.columns):
        return core
    counting = _OutsideCells(table, table.guards(core.core.named))
    return replace(core, sets=tuple(counting.set(group) for group in core.sets))


def completed(block: LoweredBlock, table: Table) -> LoweredBlock:
    """Ask for the last cell too, in a hidden row, where the rows are all other cells in order."""
    if block.bound is not None:
        return block
    runs, cells = block.runs, block.rows.cells
    alone = len(block.attributes) == 1 and table.leaves_out(block.attributes[0])
    if not (alone and block.axes and runs is not None and block.rows.rows == cells - 1):
        return block
    at = np.arange(cells - 1)
    if not (np.array_equal(runs[0], at) and np.array_equal(runs[1], at + 1)):
        return block
    return replace(block, rows=Intervals.of_cells(cells), hidden=True)


class _OutsideCells:
    """Says which rows one SELECT counts."""

    def __init__(self, table: Table, guards: frozenset[str]) -> None:
        self._table, self._guards = table, guards
        self._done: dict[int, LoweredBlock] = {}

    def set(self, group: LoweredSet) -> LoweredSet:
        return replace(group, columns=tuple(map(self._statistic, group.columns)))

    def _statistic(self, lowered: LoweredStatistic) -> LoweredStatistic:
        statistic = lowered.statistic
        counts = isinstance(statistic, Linear) and statistic.counts
        present = None if lowered.present is None else self._blocks(lowered.present, counts)
        return replace(lowered, blocks=self._blocks(lowered.blocks, counts), present=present)

    def _blocks(self, blocks: Sequence[LoweredBlock], counts: bool) -> tuple[LoweredBlock, ...]:
        touched = {name for block in blocks for name in block.attributes}
        inside = [self._inside(name, counts) for name in sorted(self._guards - touched)]
        return (*map(self._block, blocks), *inside)

    def _inside(self, name: str, counts: bool) -> LoweredBlock:
        """Count all cells of the domain; and, for counts, what is left."""
        cells = self._table.cells(name)
        low, high = np.array([0, cells - 1]), np.array([cells - 1, cells])
        rows = Intervals(cells, low[: 1 + counts], high[: 1 + counts])
        return LoweredBlock((name,), rows, (), hidden=counts)

    def _block(self, block: LoweredBlock) -> LoweredBlock:
        if id(block) not in self._done:  # statistics share blocks
            self._done[id(block)] = self._extended(block)
        return self._done[id(block)]

    def _extended(self, block: LoweredBlock) -> LoweredBlock:
        names, runs = block.attributes, block.runs
        if block.bound is not None or not any(map(self._table.leaves_out, names)):
            return block
        named = all(name in self._guards for name in names if self._table.leaves_out(name))
        if runs is not None and len(names) == 1 and named and (runs[1] <= block.rows.cells).all():
            return block.with_rows(Intervals(self._table.cells(names[0]), *runs))
        entries = block.entries()
        cells = list(np.unravel_index(entries.cell, list(self._sizes(names))))
        row, weight = entries.row, entries.weight
        for axis, name in enumerate(names):
            if self._table.leaves_out(name) and name not in self._guards:
                again = cells[axis] == 0
                cells = [np.concatenate([at, at[again]]) for at in cells]
                cells[axis][len(row) :] = self._table.columns[name].size
                row, weight = (np.concatenate([of, of[again]]) for of in (row, weight))
        shape = [self._table.cells(name) for name in names]
        cell = np.ravel_multi_index(cells, shape)
        count = int(np.prod(shape, dtype=object))
        return block.with_rows(of_entries(entries.rows, count, row, cell, weight))

    def _sizes(self, names: Iterable[str]) -> Iterable[int]:
        return (self._table.columns[name].size for name in names)
