"""Families whose answers are laid along common base axes, to be compared row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labelled import LabelledArray
from dpsql.workload import Block, Family, Queries

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Aligned:
    """A family whose answers are laid along base axes, as those of other families are."""

    family: Family
    axes: tuple[Axes, ...]
    """For each block the base axes of its rows, which are their product in C order."""

    def cut(self, box: Sequence[slice], sizes: Sequence[int]) -> Aligned:
        """Return the answers inside a box of the base axes, whose sizes are given."""
        blocks = cut_blocks(self.family.blocks, self.axes, box, sizes)
        return Aligned(replace(self.family, blocks=blocks), self.axes)


def check_aligned(aligned: Aligned, sizes: Sequence[int]) -> None:
    """Refuse axes that do not fit the families; that is an error of the program."""
    covered = sorted(axis for axes in aligned.axes for axis in axes)
    rows = [math.prod(sizes[axis] for axis in axes) for axes in aligned.axes]
    if covered != list(range(len(sizes))) or rows != list(aligned.family.shape):
        raise InternalError("the blocks of a family do not fit the rows of its statement")


def cut_blocks(
    blocks: Sequence[Block],
    axes: Sequence[Axes],
    box: Sequence[slice],
    sizes: Sequence[int],
) -> tuple[Block, ...]:
    """Take the rows of each block that lie in a box."""
    cut = []
    for block, own in zip(blocks, axes, strict=True):
        numbers = np.arange(block.queries.rows).reshape([sizes[a] for a in own])
        chosen = numbers[tuple(box[a] for a in own)].ravel()
        cut.append(replace(block, queries=taken(block.queries, chosen)))
    return tuple(cut)


def taken(queries: Queries, rows: Ints) -> Queries:
    """Return the queries of these numbers; themselves, if these are all."""
    whole = len(rows) == queries.rows and (rows == np.arange(len(rows))).all()
    return queries if whole else queries.take(rows)


def placed(values: NDArray[Any], axes: Sequence[int], sizes: Sequence[int]) -> NDArray[Any]:
    """Lay rows in the C order of some base axes along them; the others are 1 long."""
    along = LabelledArray(axes, values.reshape([sizes[a] for a in axes]))
    return along.expand(range(len(sizes)))


def contract(
    q: Array, ours: Sequence[int], p: Array, theirs: Sequence[int], sizes: Sequence[int]
) -> Array:
    """Multiply tables of shape (rows, …, columns) row by row, and add up the columns."""
    columns = q.shape[-1]
    q = q.reshape([*(sizes[a] for a in ours), columns])
    p = p.reshape([*(sizes[a] for a in theirs), columns])
    axes = sorted({*ours, *theirs})
    left, right, both = map(_letters, (ours, theirs, axes))
    product = np.einsum(f"{left}Z,{right}Z->{both}", q, p)
    return placed(product, axes, sizes)


def _letters(axes: Sequence[int]) -> str:
    return "".join(chr(ord("a") + axis) for axis in axes)
