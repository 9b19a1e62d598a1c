"""Gradual updates: rows are moved until the pairs of columns are nearer to their tables.

In each round, for each pair in random order, some rows leave cells of which there are too many and
go where there are too few: half of them become copies of rows that are there already, half of them
get the two values and keep all others (Zhang, Wang, Li, Honorio, Backes, He, Chen and Zhang,
"PrivSyn", USENIX Security 2021, gradual update). The first round moves all that is too much, and
each further one a smaller part: 0.95 of that before.

All pairs come nearer, also those that are not of the tree. What depends on three columns may get
lost: a row that is changed in two columns keeps the third one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.reconstruction.entropy import Attributes, EntropyTables
from dpsql.release.synthetic.draws import Draws, narrow
from dpsql.release.synthetic.junction import Codes, pairs

DECAY = 0.95
"""What a round moves of what the round before would."""
COPIED = 0.5
"""The part of the rows that become copies."""


def updated(codes: Codes, tables: EntropyTables, rounds: int, draws: Draws) -> Codes:
    """Return rows whose pairs are nearer to their tables."""
    names, known = list(tables.sizes), pairs(tables)
    rows = np.stack([codes[name] for name in names]) if names else np.zeros((0, 0), dtype=np.int64)
    for number in range(rounds):
        for at in draws.order(len(known)):
            _move(rows, names, known[at], tables, DECAY**number, draws)
    return dict(zip(names, rows, strict=True))


def _move(
    rows: NDArray[np.int64],
    names: list[str],
    pair: Attributes,
    tables: EntropyTables,
    part: float,
    draws: Draws,
) -> None:
    """Move rows between the cells of a pair, in place."""
    (i, j), width = map(names.index, pair), tables.sizes[pair[1]]
    wanted = tables.table(pair).ravel().astype(np.float64)
    if not wanted.sum() > 0:
        return
    cells = rows[i] * width + rows[j]
    there = np.bincount(cells, minlength=len(wanted))
    lacking = wanted * (rows.shape[1] / wanted.sum()) - there
    missed = np.maximum(lacking, 0.0)
    if missed.sum() < 1:
        return
    leaving = np.floor(np.maximum(-lacking, 0.0) * part + draws.uniform(len(wanted)))
    by_cell = np.argsort(narrow(cells, len(wanted)), kind="stable")
    begins = np.cumsum(there) - there
    going = _some(by_cell, there, begins, leaving.astype(np.int64), draws)
    if not len(going):
        return
    going = going[draws.order(len(going))]
    goals = _goals(missed, len(going), draws)
    copies = (there[goals] > 0) & (draws.uniform(len(going)) < COPIED)
    changed, cell = going[~copies], goals[~copies]
    # What is copied is copied as it was, whatever else is moved.
    at = goals[copies]
    chosen = (draws.uniform(len(at)) * there[at]).astype(np.int64)
    copied = rows[:, by_cell[begins[at] + chosen]]
    rows[i, changed], rows[j, changed] = cell // width, cell % width
    rows[:, going[copies]] = copied


def _some(by_cell: Ints, there: Ints, begins: Ints, leaving: Ints, draws: Draws) -> Ints:
    """Return so many rows of each cell, which follow each other from a random one on.

    Args:
        by_cell: the rows, cell after cell.
        there: how many there are of each cell.
        begins: where each cell begins.
        leaving: how many are wanted of each cell.
        draws: for the first of each cell.
    """
    leaving = np.minimum(leaving, there)
    first = (draws.uniform(len(there)) * there).astype(np.int64)
    cell = np.repeat(np.arange(len(there)), leaving)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(leaving) - leaving, leaving)
    return np.asarray(by_cell[begins[cell] + (first[cell] + place) % there[cell]])


def _goals(lacking: Array, count: int, draws: Draws) -> Ints:
    """Return so many cells, in proportion to what they lack."""
    running = np.cumsum(lacking)
    places = (np.arange(count) + draws.uniform(1)) / count * running[-1]
    found = np.searchsorted(running, places, side="right")
    return np.asarray(np.minimum(found, np.flatnonzero(lacking)[-1]))
