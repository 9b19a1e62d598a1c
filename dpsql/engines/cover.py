"""Cover many marginals by few scans, and add up what they found.

A block is a set of attributes that is counted in one scan over its mixed-radix key; each wanted
marginal is summed from the smallest block that contains it. Few larger blocks are cheaper than
one GROUP BY for every marginal, as long as a block's counters stay in the cache.

Sums of measures are added up without a wrap, and brought between ±2^62, again and again. Each of
these steps is a function f of one number with |f(s) - f(t)| <= |s - t|, or a sum of numbers of
which a row moves one. So a row that moves the sum of a group by v moves one cell of each marginal
by |v| at most, however large the sums are; and as long as they are below 2^62, which 2^31 rows
can't exceed, they are exact. (Wrapping modulo 2^64 would do as well where all that follows is
modulo 2^64, but not where it is done in integers of any size, see `measurement/wide.py`.)
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
MOST_SUM = 2**62
"""Sums of measures are brought between ±2^62: those of 2^31 rows are."""
_HALF_BITS = 31


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
    """Make a block's counts of what a database found for each mixed-radix key.

    Numbers of the same key are added up and keys without a cell are passed over, so that a row
    changes one count of a block by one at most, whatever the database returned; and one sum by no
    more than it adds.
    """
    cells = math.prod(shape)
    known = (keys >= 0) & (keys < cells)
    halves = np.zeros((2, cells), dtype=np.int64)
    for half, of in zip(halves, _halves(rows[known]), strict=True):
        np.add.at(half, keys[known], of)
    return _whole(*halves).reshape(shape)


def roll_up(
    wanted: Sequence[Marginal],
    counted: Mapping[Marginal, Counts],
    measures: AbstractSet[str] = frozenset(),
) -> dict[Marginal, Counts]:
    """Sum every wanted marginal from the smallest one that contains it: counted, or summed before.

    One that was counted by itself is that.

    What is added up in a block is that of the marginal: its measure, the number of rows, or that of
    units, which is an attribute of one cell among `measures`, too. Sums of
    measures stay in halves until all are there, so that only then they are brought between ends.
    """
    parts: dict[Marginal, tuple[Counts, ...]] = {}
    cells = {block: counts.size for block, counts in counted.items()}
    for marginal in sorted(wanted, key=len, reverse=True):
        sources = [
            other
            for other in cells
            if set(marginal) <= set(other) and measures.isdisjoint(set(other) - set(marginal))
        ]
        source = marginal if marginal in counted else min(sources, key=cells.__getitem__)
        if source not in parts:
            of = counted[source]  # no table has 2^62 rows
            parts[source] = (of,) if measures.isdisjoint(source) else _halves(of)
        found = (LabeledArray(source, part).project(marginal) for part in parts[source])
        parts[marginal] = tuple(part.copy(order="C") for part in found)
        cells[marginal] = parts[marginal][0].size
    return {m: parts[m][0] if measures.isdisjoint(m) else _whole(*parts[m]) for m in wanted}


def _halves(values: Counts) -> tuple[Counts, Counts]:
    """Write v = 2^31·h + l with 0 <= l < 2^31, for |v| <= 2^62: then |h| <= 2^31.

    Of fewer than 2^31 such numbers, both sums fit an int64.
    """
    return values >> _HALF_BITS, values & ((1 << _HALF_BITS) - 1)


def _whole(high: Counts, low: Counts) -> Counts:
    """Return 2^31·h + l for sums of halves, brought between ±2^62."""
    high, low = high + (low >> _HALF_BITS), low & ((1 << _HALF_BITS) - 1)
    limit = 1 << _HALF_BITS
    inside = (-limit <= high) & (high < limit)
    ends = np.where(high < 0, -MOST_SUM, MOST_SUM)
    return np.where(inside, (np.clip(high, -limit, limit) << _HALF_BITS) + low, ends)


def _cells(attributes: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[a] for a in attributes)
