"""Cover many marginals by few scans.

A block is a set of attributes that is counted in one scan over its mixed-radix key; each wanted
marginal is summed from the smallest block that contains it. Few larger blocks are cheaper than
one GROUP BY for every marginal, as long as a block's counters stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from dpsql.engines.base import Counts, Marginal
from dpsql.linalg.labeled import LabeledArray

MAX_BLOCK_CELLS = 20_000
"""Blocks are merged up to this many cells. A wanted marginal may be larger on its own."""


def cover(wanted: Iterable[Marginal], sizes: Mapping[str, int]) -> tuple[Marginal, ...]:
    """Choose blocks that contain every wanted marginal.

    Greedy: take the marginals from the largest down; put each where it adds the fewest cells
    and the result stays within `MAX_BLOCK_CELLS`, or else open a block for it. Attributes are
    in the order of `sizes`.
    """
    blocks: list[frozenset[str]] = []
    marginals = sorted({frozenset(m) for m in wanted}, key=lambda m: (-_cells(m, sizes), sorted(m)))
    for marginal in marginals:
        if any(marginal <= block for block in blocks):
            continue
        grown = [(_cells(b | marginal, sizes) - _cells(b, sizes), i) for i, b in enumerate(blocks)]
        fitting = [
            (added, i)
            for added, i in grown
            if _cells(blocks[i] | marginal, sizes) <= MAX_BLOCK_CELLS
        ]
        if fitting:
            index = min(fitting)[1]
            blocks[index] |= marginal
        else:
            blocks.append(marginal)
    kept = [
        b for i, b in enumerate(blocks) if not any(b < o for o in blocks) and b not in blocks[:i]
    ]
    return tuple(tuple(a for a in sizes if a in block) for block in kept)


def tally(shape: tuple[int, ...], keys: Counts, rows: Counts) -> Counts:
    """Make a block's counts of the rows that a database found for each mixed-radix key.

    Rows with the same key are added up and keys without a cell are passed over, so that a row
    changes one count of a block by one at most, whatever the database returned.
    """
    counts = np.zeros(math.prod(shape), dtype=np.int64)
    known = (keys >= 0) & (keys < counts.size)
    np.add.at(counts, keys[known], rows[known])
    return counts.reshape(shape)


def roll_up(
    wanted: Sequence[Marginal],
    counted: Mapping[Marginal, Counts],
    measures: AbstractSet[str] = frozenset(),
) -> dict[Marginal, Counts]:
    """Sum every wanted marginal from the smallest counted block that contains it.

    What is added up in a block is that of the marginal: its measure, or the number of rows.
    """
    result: dict[Marginal, Counts] = {}
    for marginal in wanted:
        sources = [
            block
            for block in counted
            if set(marginal) <= set(block) and measures.isdisjoint(set(block) - set(marginal))
        ]
        source = min(sources, key=lambda block: counted[block].size)
        result[marginal] = LabeledArray(source, counted[source]).project(marginal).copy(order="C")
    return result


def _cells(attributes: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[a] for a in attributes)
