"""Cover many marginals by few scans, and add up what they found.

A block is a set of attributes that is counted in one scan over its mixed-radix key; each wanted
marginal is summed from the smallest block that contains it. Few larger blocks are cheaper than
one GROUP BY for every marginal, as long as a block's counters stay in the cache.

Counts are added up as they are: no table has 2^62 rows. A sum of a measure is two words (see
`Words`), and while sums are added up, three numbers: 2^56·a + 2^28·b + c, with b and c from 0 to
2^28. Each of the three is added up by itself. As a sum is between ±2^90, |a| <= 2^34: what fewer
than 2^29 of them add up to fits an int64, so that it is exact. Then the total is brought between
±2^90 again. Each of these steps is a function f of one number with |f(s) - f(t)| <= |s - t|, or a
sum of numbers of which a row moves one. So a row that moves the sum of a group by v moves one cell
of each marginal by |v| at most, however large the sums are; and as long as they are below 2^90,
which 2^59 rows can't exceed, they are exact. (Wrapping would do as well where all that follows is
modulo a power of two, but not in integers of any size, see `measurement/wide.py`.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from dpsql.engines.base import LOW_BITS, Counts, Marginal, Words
from dpsql.linalg.labeled import LabeledArray

MAX_BLOCK_CELLS = 20_000
"""Blocks are merged up to this many cells. A wanted marginal may be larger on its own."""
MOST_SUM = 2**90
"""Sums of measures are brought between ±2^90: those of 2^59 rows are."""
_LOW = (1 << LOW_BITS) - 1
_MOST_HIGH = MOST_SUM >> LOW_BITS


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
    changes one count of a block by one at most, whatever the database returned.
    """
    cells = math.prod(shape)
    known = (keys >= 0) & (keys < cells)
    counts = np.zeros(cells, dtype=np.int64)
    np.add.at(counts, keys[known], rows[known])
    return counts.reshape(shape)


def tally_sums(shape: tuple[int, ...], keys: Counts, sums: Words) -> Words:
    """Make a block's sums in the same way: a row changes one by no more than it adds."""
    high, low, least = (tally(shape, keys, part) for part in _parts(sums))
    return _words(high, low, least)


def roll_up(
    wanted: Sequence[Marginal],
    counted: Mapping[Marginal, Counts],
    measures: AbstractSet[str] = frozenset(),
) -> dict[Marginal, Counts]:
    """Sum every wanted marginal from the smallest one that contains it: counted, or summed before.

    One that was counted by itself is that.

    What is added up in a block is that of the marginal: its measure, the number of rows, or that of
    units, which is an attribute of one cell among `measures`, too.
    """
    rolled = dict(counted)
    cells = {block: counts.size for block, counts in counted.items()}
    for marginal in sorted(wanted, key=len, reverse=True):
        sources = [
            other
            for other in cells
            if set(marginal) <= set(other) and measures.isdisjoint(set(other) - set(marginal))
        ]
        source = marginal if marginal in counted else min(sources, key=cells.__getitem__)
        rolled[marginal] = LabeledArray(source, rolled[source]).project(marginal).copy(order="C")
        cells[marginal] = rolled[marginal].size
    return {marginal: rolled[marginal] for marginal in wanted}


def roll_up_sums(
    wanted: Sequence[Marginal], summed: Mapping[Marginal, Words], measures: AbstractSet[str]
) -> dict[Marginal, Words]:
    """Sum marginals of measures in the same way. Only then they are brought between ends."""
    parts = {block: _parts(sums) for block, sums in summed.items()}
    rolled = [
        roll_up(wanted, {block: part[i] for block, part in parts.items()}, measures)
        for i in range(3)
    ]
    return {m: _words(*(part[m] for part in rolled)) for m in wanted}


def low_word(sums: Words) -> Counts:
    """Return sums modulo 2^64: all that there is of them, if they fit."""
    high, low = sums
    return (high << LOW_BITS) + low


def _parts(sums: Words) -> tuple[Counts, Counts, Counts]:
    high, low = sums
    return high >> LOW_BITS, high & _LOW, low


def _words(high: Counts, low: Counts, least: Counts) -> Words:
    """Return 2^56·high + 2^28·low + least in two words, brought between ±2^90."""
    low = low + (least >> LOW_BITS)
    high = high + (low >> LOW_BITS)
    limit = _MOST_HIGH >> LOW_BITS
    inside = (-limit <= high) & (high < limit)
    ends = np.where(high < 0, -_MOST_HIGH, _MOST_HIGH)
    joined = (np.clip(high, -limit, limit) << LOW_BITS) + (low & _LOW)
    return np.where(inside, joined, ends), np.where(inside, least & _LOW, 0)


def _cells(attributes: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[a] for a in attributes)
