"""Merge cells that no query of a script tells apart.

A condition such as `age >= 18` asks for two cells of `age` and not for a hundred. With the cells
that every matrix treats alike merged to one, the same answers follow from smaller matrices: plans
are found sooner, more of them are optimal over the whole domain, and what was too large to be
written out may no longer be. A row still lies in one cell, so nothing changes for its protection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import MAX_ENTRIES, Intervals, Runs, Sparse, of_entries
from dpsql.sql.lowering.matrices import LoweredBlock
from dpsql.workload.cells import refined


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The classes into which the cells of each column fall."""

    of: Mapping[str, Ints]
    """Column → the class of every cell, for columns of which some cells are merged. Classes are
    numbered in the order of their first cells."""
    sizes: Mapping[str, int]
    """Column → the number of its cells, or classes."""
    _first: dict[str, Ints] = field(default_factory=dict)

    @classmethod
    def of_blocks(
        cls,
        blocks: Iterable[LoweredBlock],
        sizes: Mapping[str, int],
        split: Mapping[str, Ints] = MappingProxyType({}),
    ) -> Classes:
        """Find the classes for all blocks of a script, at least as fine as those of `split`."""
        found = {name: refined(np.zeros_like(of), of) for name, of in split.items()}
        for block in blocks:
            for axis, name in enumerate(block.attributes):
                known = found.get(name, np.zeros(sizes[name], dtype=np.int64))
                if known.max(initial=0) + 1 < len(known):  # else all cells are told apart already
                    found[name] = refined(known, _signatures(block, axis, sizes))
        merged = {name: of for name, of in found.items() if of.max() + 1 < len(of)}
        left = {
            name: int(merged[name].max()) + 1 if name in merged else n for name, n in sizes.items()
        }
        return cls(MappingProxyType(merged), MappingProxyType(left))

    def merge(self, block: LoweredBlock, sizes: Mapping[str, int]) -> LoweredBlock:
        """Return a block over classes in place of cells."""
        if not any(name in self.of for name in block.attributes):
            return block
        if block.runs is not None and len(block.attributes) == 1:
            return block.with_rows(self._merged_runs(block.runs, block.attributes[0]))
        entries = block.entries()
        cells = np.unravel_index(entries.cell, [sizes[name] for name in block.attributes])
        # Cells of a class have equal entries, so those of the first cell of each are kept.
        kept = np.ones(len(entries.cell), dtype=np.bool_)
        places = []
        for name, at in zip(block.attributes, cells, strict=True):
            if name in self.of:
                kept &= self._firsts(name)[self.of[name][at]] == at
                at = self.of[name][at]
            places.append(at)
        shape = [self.sizes[name] for name in block.attributes]
        cell = np.ravel_multi_index([at[kept] for at in places], shape)
        count = int(np.prod(shape, dtype=object))
        row, weight = entries.row[kept], entries.weight[kept]
        return block.with_rows(of_entries(entries.rows, count, row, cell, weight))

    def _merged_runs(self, runs: Runs, name: str) -> Intervals:
        """Bound runs by classes: those with an earlier first cell come before a run."""
        (low, high), cells = runs, len(self.of[name])
        before = np.zeros(cells + 1, dtype=np.int64)
        before[self._firsts(name) + 1] = 1
        before = before.cumsum()
        count = self.sizes[name]
        around = high > cells
        after = before[np.where(around, high - cells, high)] + count * around
        return Intervals(count, before[low], after)

    def _firsts(self, name: str) -> Ints:
        """Return the first cell of every class."""
        if name not in self._first:
            self._first[name] = np.unique(self.of[name], return_index=True)[1]
        return self._first[name]


def _signatures(block: LoweredBlock, axis: int, sizes: Mapping[str, int]) -> Ints:
    """Return numbers for the values of one column: equal only if the matrix treats them alike."""
    runs = block.runs
    if runs is not None and len(block.attributes) == 1:
        return _segments(runs, block.rows.cells)
    shape = [sizes[name] for name in block.attributes]
    if runs is not None and (runs[1] - runs[0]).sum() > MAX_ENTRIES:
        return np.arange(shape[axis])
    entries = block.entries()
    at = np.unravel_index(entries.cell, shape)
    rest = np.ravel_multi_index(
        [np.zeros_like(at[i]) if i == axis else at[i] for i in range(len(shape))], shape
    )
    return _equal_slices(at[axis], _keys(entries, rest), entries.weight, shape[axis])


def _segments(runs: Runs, cells: int) -> Ints:
    """Return numbers for the stretches of cells between the ends of runs; one for all in none.

    Two adjacent cells are told apart if and only if a run begins or ends between them, and cells
    in no run are all alike. A run that goes around ends at `high - cells`.
    """
    low, high = runs
    cuts = np.zeros(cells + 1, dtype=np.int64)
    cuts[low] = 1
    cuts[np.where(high > cells, high - cells, high)] = 1
    steps = np.bincount(low, minlength=2 * cells + 1)
    steps -= np.bincount(high, minlength=2 * cells + 1)
    counted = steps.cumsum()
    inside = counted[:cells] + counted[cells : 2 * cells]
    return np.where(inside > 0, cuts[:cells].cumsum(), -1) + 1


def _keys(entries: Sparse, rest: Ints) -> Ints:
    """Return numbers for the places of entries apart from the column that is looked at."""
    return np.asarray(entries.row * entries.cells + rest)


def _equal_slices(at: Ints, key: Ints, weight: Array, size: int) -> Ints:
    """Return numbers for the slices of a matrix, so that only equal ones have equal numbers.

    Keys ascend within a slice, because entries do, and those of a slice have one value of the
    column that is looked at. Slices are compared with the one before them among those of the same
    length and hash: a collision of hashes only splits a class.
    """
    # Bring the entries of each slice together: slice v has those from starts[v] on.
    narrow = at.astype(np.uint16) if size <= 1 << 16 else at  # which is sorted by its digits
    order = np.argsort(narrow, kind="stable")
    at, key, weight = at[order], key[order], weight[order]
    lengths = np.bincount(at, minlength=size)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    # Hash each entry by its place and the bits of its weight (the constants are those of Fibonacci
    # hashing and of splitmix64), and each slice by the sum of its entries' hashes.
    bits = weight.view(np.uint64) ^ (key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = np.zeros(size, dtype=np.uint64)
    np.add.at(hashes, at, mixed ^ (mixed >> np.uint64(32)))
    # Slices that may be equal are now side by side; they are compared in full.
    ranked = np.lexsort((hashes, lengths))
    same = np.zeros(size, dtype=np.bool_)
    alike = (np.diff(hashes[ranked]) == 0) & (np.diff(lengths[ranked]) == 0)
    one, other = ranked[:-1][alike], ranked[1:][alike]
    same[other] = _slices_equal(one, other, starts, lengths, key, weight)
    # A slice that equals the one before it has its number, any other the next one.
    numbers = np.empty(size, dtype=np.int64)
    numbers[ranked] = np.cumsum(~same[ranked])
    return numbers


def _slices_equal(
    one: Ints, other: Ints, starts: Ints, lengths: Ints, key: Ints, weight: Array
) -> NDArray[np.bool_]:
    """Compare slices pair by pair, entry by entry."""
    count = lengths[one]
    pair = np.repeat(np.arange(len(one)), count)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    a, b = starts[one][pair] + within, starts[other][pair] + within
    differ = (key[a] != key[b]) | (weight[a] != weight[b])
    return np.asarray(np.bincount(pair, weights=differ, minlength=len(one)) == 0)
