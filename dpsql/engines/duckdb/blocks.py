"""Blocks by what they cost: what rows are grouped by, and what is added up in each of these groups.

A wanted marginal is summed from any block that has its attributes, and its measure. To have a key
computed twice costs as much as a block, and to add up in many groups more than in few. So each
marginal goes where it adds the least to what DuckDB takes for a row. What is chosen follows from
what is public: types, sizes, conditions of keys, and what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.engines.base import Marginal
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.grouped import MOST_PLACES, GroupedRows
from dpsql.engines.duckdb.one_pass import reading_cost
from dpsql.engines.duckdb.settings import PERFECT_HASH_BITS
from dpsql.engines.duckdb.sums import RowSum

Sums = Mapping[str, RowSum]
"""Measure → what is added up of each row."""

MOST_CELLS, MOST_SPREAD = 2**16, 20_000
"""Blocks are merged up to this many cells; up to so many where these are spread over more places of
a plain array than `grouped.MOST_PLACES`. A wanted marginal may be larger on its own."""
_BLOCK, _KEY, _CLASS = 8.0, 1.5, 5.0
"""Nanoseconds of a processor for a row, of a statement; of each of its keys; where what is stored
is of more values than cells, to find which of these it is in."""
_COUNT, _SUM = 0.5, 1.5
_NEAR = 256
"""To find a group, and one more for each sum, each time that there are twice as many as `_NEAR`:
these are no longer at hand."""
_ADDED = 7.0
"""To add up a sum."""
_HASHED, _PLACES = 20.0, 10.0
"""To look for a group that has no place in a plain array; for all places of the largest of these,
which are looked through by themselves."""


@dataclass(slots=True)
class _Block:
    """A block: its keys, and the sums of each of its groups."""

    keys: frozenset[str]
    added: dict[str, RowSum] = field(default_factory=dict)


def blocks_for(
    coding: Coding, places: Sequence[tuple[Marginal, Sums]], *, total: bool
) -> dict[Marginal, Sums]:
    """Choose blocks that contain every place, with what is added up there.

    Greedy: from the places of the most cells down, each goes where that adds the least cost, if the
    block stays within `MOST_CELLS`; or into a block of its own.

    Args:
        coding: how rows get their cells.
        places: what is grouped by for each wanted marginal, and what is added up.
        total: whether all rows are counted by themselves: one that has no cell of a key is in no
            block of that key.
    """
    costs, blocks = _Costs(coding), list[_Block]()
    all_rows = _Block(frozenset())
    for own, added in sorted(places, key=lambda place: (-costs.cells(place[0]), place[0])):
        if total and not own:
            all_rows.added |= added
            continue
        keys = frozenset(own)
        # What is added up for groups, or grouped by itself, gives what they are together.
        if any(keys <= b.keys and added.keys() <= b.added.keys() | b.keys for b in blocks):
            continue
        best, least = None, costs.of(keys, len(added))
        for block in blocks:
            joint, more = block.keys | keys, {**block.added, **added}
            if joint == block.keys or costs.is_small(joint):
                dearer = costs.of(joint, len(more)) - costs.of(block.keys, len(block.added))
                if dearer < least:
                    best, least = block, dearer
        if best is None:
            blocks.append(best := _Block(keys))
        best.keys |= keys
        best.added |= added
    found: dict[Marginal, dict[str, RowSum]] = {}
    for block in [*blocks, all_rows] if total else blocks:
        within = any(block.keys < other.keys for other in blocks)
        if block.added or not within or block is all_rows:
            names = tuple(a for a in coding.table.columns if a in block.keys)
            found[names] = found.get(names, {}) | block.added
    return dict(found)


class _Costs:
    """Costs of blocks, in nanoseconds of a processor for a row."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._sizes: dict[str, int] = {}
        self._made: dict[frozenset[str], GroupedRows] = {}
        self._known: dict[frozenset[str], tuple[float, float]] = {}

    def cells(self, keys: Marginal | frozenset[str]) -> int:
        """Return the number of cells of a block."""
        for name in keys:
            if name not in self._sizes:
                self._sizes[name] = self._coding.size(name)
        return math.prod(self._sizes[name] for name in keys)

    def is_small(self, keys: frozenset[str]) -> bool:
        """Whether marginals may be put together in a block."""
        cells = self.cells(keys)
        if cells <= min(MOST_CELLS, MOST_SPREAD):
            return True
        return cells <= MOST_CELLS and self._rows(keys).places <= MOST_PLACES

    def of(self, keys: frozenset[str], sums: int) -> float:
        """Return what it costs to group a row, and to add up so many sums."""
        if keys not in self._known:
            self._known[keys] = self._grouped(keys)
        grouped, doublings = self._known[keys]
        return grouped + _COUNT * doublings + sums * (_ADDED + _SUM * doublings)

    def _grouped(self, keys: frozenset[str]) -> tuple[float, float]:
        rows = self._rows(keys)
        cost = _BLOCK + _CLASS * len(rows.grouping.classed)
        for name in keys:
            cost += _KEY + (
                _CLASS if name in rows.grouping.led else reading_cost(self._coding, name)
            )
        full = rows.places / 2**PERFECT_HASH_BITS
        cost += _HASHED if full > 1 else _PLACES * full
        return cost, max(0.0, math.log2(max(self.cells(keys), 1) / _NEAR))

    def _rows(self, keys: frozenset[str]) -> GroupedRows:
        if keys not in self._made:
            self._made[keys] = GroupedRows.of(self._coding, tuple(sorted(keys)), "")
        return self._made[keys]
