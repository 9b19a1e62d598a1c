"""Units that are counted by groups: in which groups a unit is, by the cells that its rows lie in.

COUNT(DISTINCT unit) asks for the number of distinct pairs of a unit and a group. That is no sum
over cells of the table's columns: a unit with rows in two cells of a group is in the group once. So
the groups of a statement, with its conditions, are an attribute of their own, whose cells are the
groups; and the pairs are counted in its marginal with one more attribute of one cell, which says
that units are counted there and not rows. Where two statements have the same groups of the same
cells it is the same attribute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Ints

GROUPS = " by groups"
"""The words behind the name of such counts in the name of the attribute of the groups."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupedCells:
    """The groups that cells of some columns are in, as far as these columns tell groups."""

    attributes: tuple[str, ...]
    shape: tuple[int, ...]
    """The number of cells of each."""
    cells: Ints
    """Numbers of joint cells, in C order. Those that are missing are in no group."""
    groups: Ints
    """For each of them, what it adds to the number of the group."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitGroups:
    """In which groups a unit is: in those in which it has a row."""

    blocks: tuple[GroupedCells, ...]
    """A row is in a group if its cells are, in each of these; what they add up to is its number."""
    count: int
    """The number of groups."""
    most: int
    """A unit counts in at most so many of them."""
    condition: str = ""
    """A measure of 0 or 1: rows count in which it is 1. Empty if all rows do that have cells."""

    @property
    def each(self) -> int:
        """By how much a unit changes a group at most."""
        return 1

    @property
    def said(self) -> tuple[object, ...]:
        """The rest of what tells such counts apart, besides the groups of cells."""
        return self.count, self.most, self.condition

    @property
    def kind(self) -> str:
        """The word for what is counted."""
        return "units"

    def name(self, merged: Mapping[str, Ints], derived: Mapping[str, str]) -> str:
        """Return a name that only the same counts have, whatever they were asked in.

        Args:
            merged: for columns of which cells are counted together: the class of each.
            derived: keys that statements have computed → what each is: of a line, where it is cut,
                as its name doesn't say so.
        """
        digest = hashlib.sha256(repr(self.said).encode())
        for block in sorted(self.blocks, key=lambda block: block.attributes):
            digest.update(repr((block.attributes, block.shape)).encode())
            for name in block.attributes:
                digest.update(np.asarray(merged.get(name, ()), dtype=np.int64).tobytes())
                digest.update(derived.get(name, "").encode())
            digest.update(block.cells.tobytes() + b" " + block.groups.tobytes())
        return f"{self.kind} {digest.hexdigest()[:24]}"


def groups_of(name: str) -> str:
    """Return the attribute of the groups by which units are counted."""
    return name + GROUPS


def grouped_cells(
    attributes: tuple[str, ...],
    shape: tuple[int, ...],
    entries: tuple[Ints, Ints],
    axes: Sequence[int],
    groups: Sequence[int],
) -> GroupedCells:
    """Return which cells are in which groups, of queries whose rows run along some axes.

    Args:
        attributes: the columns.
        shape: the number of cells of each.
        entries: rows and cells of the coefficients that are not 0.
        axes: the axes of the groups along which the rows run, in C order; none for one row.
        groups: the number of groups along each axis.
    """
    rows, cells = entries
    strides = [math.prod(groups[axis + 1 :]) for axis in range(len(groups))]
    places = np.unravel_index(rows, [groups[axis] for axis in axes]) if axes else ()
    added = np.zeros(len(rows), dtype=np.int64)
    for axis, place in zip(axes, places, strict=True):
        added += strides[axis] * place
    order = np.lexsort((added, cells))
    return GroupedCells(attributes, shape, cells[order].copy(), added[order])
