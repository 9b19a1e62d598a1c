"""Windows over groups: sums of a statistic over those groups that a window frame holds.

An axis that the window is partitioned by stays as it is. Along an axis that neither partitions
nor orders, all groups are added up. Along what orders them, each group's frame is a run of groups
in that order, which DuckDB itself finds on the public groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from dpsql.hints import Hint, first_that_works
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import Intervals, Runs, compact
from dpsql.schema.names import capitals
from dpsql.sql.binding.core import Core, Windowed
from dpsql.sql.lowering.evaluate import Evaluator, StoredAxis
from dpsql.sql.lowering.matrices import LoweredBlock, check_entries
from dpsql.sql.text.edits import swapped


def over_window(
    blocks: Sequence[LoweredBlock],
    windowed: Windowed,
    axes: Sequence[StoredAxis],
    core: Core,
    evaluator: Evaluator,
) -> tuple[LoweredBlock, ...]:
    """Return the blocks of the sums, or means, over the windows of a linear statistic.

    Args:
        blocks: those of the statistic.
        windowed: the window.
        axes: the axes of the groups.
        core: what the keys of the window are keys of.
        evaluator: evaluates the order on the groups.

    Raises:
        SqlError: the frame counts rows, and the order doesn't tell all groups apart.
        ResourceLimitError: a matrix is too large.
    """
    return _Window(windowed, axes, core, evaluator).blocks(blocks)


class _Window:
    """One window, over groups along some axes.

    An axis is of one of three kinds: the window is partitioned by its keys alone, and they stay
    apart; it is *ordered* if another of its keys is one of the window's; all others are *free*.
    """

    def __init__(
        self, windowed: Windowed, axes: Sequence[StoredAxis], core: Core, evaluator: Evaluator
    ) -> None:
        place = {key: i for i, key in enumerate(core.keys)}
        self._mean = windowed.mean
        self._frame = windowed.frame
        self._axes = axes
        self._evaluator = evaluator
        self._partition = [place[key] for key in windowed.frame.partition]
        self._order = [place[o.key] for o in windowed.frame.order]
        self._sizes = [axis.rows for axis in axes]
        named = set(self._partition) | set(self._order)
        apart = {i for i, a in enumerate(axes) if set(a.keys) <= set(self._partition)}
        rest = [i for i in range(len(axes)) if i not in apart]
        self._ordered = [i for i in rest if named & set(axes[i].keys)]
        self._free = [i for i in rest if i not in self._ordered]

    def blocks(self, blocks: Sequence[LoweredBlock]) -> tuple[LoweredBlock, ...]:
        if self._frame.spec and (self._free or not self._ordered):
            self._check_told_apart(all(self._sizes[i] == 1 for i in self._free))
        merged = [b for b in blocks if set(b.axes) & set(self._ordered)]
        summed = [self._summed(b) for b in blocks if not set(b.axes) & set(self._ordered)]
        if merged:
            # A frame is a run of groups of all ordered axes together, so they need one block.
            summed.append(self._along_order(self._summed(reduce(_product, merged))))
        return tuple(summed)

    def _summed(self, block: LoweredBlock) -> LoweredBlock:
        """Add up along the free axes of a block, and repeat the sums."""
        free = [at for at, axis in enumerate(block.axes) if axis in self._free]
        if not free:
            return block
        count = math.prod(self._sizes[block.axes[at]] for at in free)
        if block.rows.is_identity and not self._mean:  # each sum is then that of all cells
            n = block.rows.cells
            return block.with_rows(Intervals(n, np.zeros(n, dtype=np.int64), np.full(n, n)))
        tensor = self._tensor(block)
        summed = tensor.sum(axis=tuple(free), keepdims=True) / (count if self._mean else 1)
        return self._from_tensor(block, np.broadcast_to(summed, tensor.shape))

    def _along_order(self, block: LoweredBlock) -> LoweredBlock:
        """Add up the groups of each frame along the ordered axes, which are all in this block."""
        position, low, high = self._frames()
        order = np.argsort(position)
        if block.runs is not None and len(block.axes) == 1 and not self._mean:
            joined = _joined(block.runs, order, low, high)
            if joined is not None:
                return block.with_rows(Intervals(block.rows.cells, *joined))
        # Bring the ordered axes to the front, and their groups into the window's order.
        at = [block.axes.index(axis) for axis in self._ordered]
        tensor = self._tensor(block)
        front = np.moveaxis(tensor, at, range(len(at)))
        flat = front.reshape(len(order), -1)[order]
        # The sum over positions low..high is the difference of two running totals.
        totals = np.concatenate([np.zeros((1, flat.shape[1])), flat.cumsum(axis=0)])
        frames = totals[high + 1] - totals[low]
        if self._mean:
            frames = frames / np.maximum(high + 1 - low, 1)[:, None]
        # Back again; what rounding leaves of differences of equal totals is zero.
        back = np.moveaxis(frames.reshape(front.shape), range(len(at)), at)
        return self._from_tensor(block, np.where(np.abs(back) < 1e-12, 0.0, back))

    def _frames(self) -> tuple[Ints, Ints, Ints]:
        """Return the position of each group in the order, and its frame's first and last one.

        Groups are those of the ordered axes, in C order. An empty frame ends before it begins.
        """
        row, tables = "0", []
        for i in self._ordered:
            row = f"({row}) * {self._sizes[i]} + x{i}.row"
            tables.append(f"{self._axes[i].table} x{i}")
        here = {k for i in self._ordered for k in self._axes[i].keys}
        partition = [f"k{k}" for k in self._partition if k in here]
        pairs = zip(self._order, self._frame.order, strict=True)
        order = [
            f"k{k} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
            for k, o in pairs
            if k in here
        ]
        by = f"PARTITION BY {', '.join(partition)}" if partition else ""
        ordering = f"ORDER BY {', '.join(order)}" if order else ""
        window = f"({by} {ordering} {self._frame.spec})"
        # Positions number the groups so that partitions and frames are runs of them. DuckDB then
        # says of each group which positions its own frame holds.
        every = ", ".join([*partition, *order, "row"])
        peers = ", ".join([*partition, *(f"k{k}" for k in self._order if k in here)]) or "row"
        found = self._evaluator.arrays(
            f"WITH g AS (SELECT ({row})::BIGINT AS row, * EXCLUDE (row) FROM {', '.join(tables)}), "
            f"o AS (SELECT *, row_number() OVER (ORDER BY {every}) - 1 AS pos FROM g) "
            f"SELECT pos, coalesce(min(pos) OVER {window}, 0) AS low, "
            f"coalesce(max(pos) OVER {window}, -1) AS high, "
            f"count(*) OVER (PARTITION BY {peers}) AS peers FROM o ORDER BY row",
            self._frame.span,
        )
        if self._frame.counts_rows:
            self._check_told_apart(bool((found["peers"] == 1).all()))
        return found["pos"], found["low"], found["high"]

    def _told_apart(self) -> list[Hint]:
        """Order by all that is grouped by."""
        source, span = self._evaluator.source, self._frame.span
        clause = source.clause("GROUP")
        listed = [] if clause is None else source.text(clause).split(None, 2)[2].split(",")
        ordered = capitals(source.text(span))
        more = ", ".join(key.strip() for key in listed if capitals(key.strip()) not in ordered)
        every = ", ".join(key.strip() for key in listed)
        return [
            *swapped(source, span, r"ORDER BY (.*?)\s+ROWS", rf"ORDER BY \1, {more} ROWS"),
            *swapped(source, span, r"\(ROWS", f"(ORDER BY {every} ROWS"),
        ]

    def _check_told_apart(self, well: bool) -> None:
        if not well:
            raise self._evaluator.source.error(
                self._frame.span,
                "A frame of rows needs an order that tells all groups apart.",
                first_that_works(
                    self._told_apart(),
                    "add the other columns of GROUP BY to PARTITION BY or ORDER BY, or write "
                    "RANGE in place of ROWS.",
                ),
            )

    def _tensor(self, block: LoweredBlock) -> Array:
        return block.dense().reshape(*(self._sizes[i] for i in block.axes), -1)

    def _from_tensor(self, block: LoweredBlock, tensor: Array) -> LoweredBlock:
        return block.with_dense(tensor.reshape(block.rows.rows, -1))


def _joined(runs: Runs, order: Ints, low: Ints, high: Ints) -> Runs | None:
    """Join adjacent runs to one per frame; None if they are not adjacent in this order."""
    if (high < low).any():
        return None
    start, stop = (ends[order] for ends in runs)
    if np.array_equal(start[1:], stop[:-1]):
        return start[low], stop[high]
    if np.array_equal(stop[1:], start[:-1]):
        return start[high], stop[low]
    return None


def _product(first: LoweredBlock, second: LoweredBlock) -> LoweredBlock:
    columns = (*first.attributes, *second.attributes)
    one, other = first.entries(), second.entries()
    check_entries(len(one.row) * len(other.row), 1, columns)
    return LoweredBlock(columns, compact(one.kron(other)), (*first.axes, *second.axes))
