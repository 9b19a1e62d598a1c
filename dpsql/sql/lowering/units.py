"""Units by groups, as the queries of COUNT(*) by the same groups tell them.

A group counts the rows of the cells that have a coefficient in its query; whatever that is, a unit
with a row in one of them is in the group. So the places of coefficients say it all: those of a
public join that has a row several times, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.schema import Table
from dpsql.sql.lowering.matrices import LoweredBlock
from dpsql.workload.unit_groups import GroupedCells, UnitGroups, grouped_cells


def unit_groups(
    blocks: Sequence[LoweredBlock],
    groups: Sequence[int],
    sizes: Mapping[str, int],
    table: Table,
    condition: str,
) -> UnitGroups:
    """Return in which groups units are counted.

    Args:
        blocks: queries that count rows by groups, over classes of cells; without what is added up.
        groups: the number of groups along each axis.
        sizes: the number of classes of each column.
        table: the table whose units they are.
        condition: the measure that is 1 in rows that count; empty if all do that have cells.

    Raises:
        ResourceLimitError: there are too many coefficients.
    """
    count = int(np.prod(groups, dtype=object))
    found = tuple(_grouped(block, groups, sizes) for block in blocks if block.bound is None)
    unit = table.whole.unit
    most = 1 if unit is None else unit.max_groups or unit.max_rows or count
    if table.chosen is not None and table.chosen.rows is not None:
        most = min(most, table.chosen.rows * _groups_of_a_row(found))
    return UnitGroups(found, count, min(most, count), condition)


def _groups_of_a_row(blocks: Sequence[GroupedCells]) -> int:
    """Return in how many groups a row is at most: in several if public rows make it many."""
    times = (int(np.unique_counts(block.cells).counts.max(initial=1)) for block in blocks)
    return math.prod(times)


def _grouped(block: LoweredBlock, groups: Sequence[int], sizes: Mapping[str, int]) -> GroupedCells:
    entries = block.entries()
    shown = entries.row < entries.rows - block.hidden
    row, cell = entries.row[shown], entries.cell[shown]
    shape = tuple(sizes[name] for name in block.attributes)
    return grouped_cells(block.attributes, shape, (row, cell), block.axes, groups)
