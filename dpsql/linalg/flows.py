"""Largest flows from left to right: how many on the right are taken by those on the left.

On the left each may take up to `capacity` of those on the right that an edge leads to; on the right
each is taken once at most. What can be taken at most is a maximum flow, and a minimum cut says that
it is: some on the left and some on the right, so that each edge ends in one of them, of which
`capacity` times those on the left and those on the right are as many as are taken (König; Ford and
Fulkerson 1956). Whoever rests on the flow being the largest compares both numbers.

*What is easy* is taken off first: one on the left with no more than `capacity` edges takes all that
they lead to: whoever takes one of these in another flow may leave it, and no fewer are taken.
Without these others have fewer edges, and may be easy then. The flow of the rest is found by SciPy,
by Dinic's algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from dpsql.linalg.arrays import Ints

NOBODY = -1
_DENSE = 8
"""Codes for each that there is, up to which they are looked up in a list of all."""
_MOST_ROUNDS = 50
"""Rounds in which the easy ones are taken off; each looks at all edges that are left."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A flow, and a cut.

    Args:
        by: for each on the right, by whom it is taken, or `NOBODY`.
        left: whether one on the left is in the cut.
        right: whether one on the right is.
    """

    by: Ints
    left: np.ndarray[tuple[int], np.dtype[np.bool_]]
    right: np.ndarray[tuple[int], np.dtype[np.bool_]]


def taken(edges: tuple[Ints, Ints], sizes: tuple[int, int], capacity: int) -> Taken:
    """Return a flow that is the largest, and a cut that says so.

    Args:
        edges: where each begins on the left, and where it ends on the right; each pair once.
        sizes: how many there are on the left, and on the right.
        capacity: how many each on the left may take.
    """
    left, right = edges
    by = np.full(sizes[1], NOBODY, dtype=np.int64)
    for _ in range(_MOST_ROUNDS):
        easy = np.bincount(left, minlength=sizes[0])[left] <= capacity
        if not easy.any():
            break
        by[right[easy]] = left[easy]
        rest = ~easy & (by[right] == NOBODY)
        left, right = left[rest], right[rest]
    cut_left, cut_right = np.zeros(sizes[0], dtype=np.bool_), by != NOBODY
    if left.size:
        lefts, left = numbered(left, sizes[0])
        rights, right = numbered(right, sizes[1])
        flow = _core((left, right), (len(lefts), len(rights)), capacity)
        matched = flow.by != NOBODY
        by[rights[matched]] = lefts[flow.by[matched]]
        cut_left[lefts[flow.left]] = True
        cut_right[rights[flow.right]] = True
    return Taken(by, cut_left, cut_right)


def numbered(codes: Ints, most: int) -> tuple[Ints, Ints]:
    """Return which codes there are, in ascending order, and for each code the number of its own.

    Args:
        codes: whole numbers from 0 on.
        most: what they are below.
    """
    if most > _DENSE * max(codes.size, 1):
        distinct, places = np.unique(codes, return_inverse=True)
        return distinct, places
    there = np.zeros(most, dtype=np.bool_)
    there[codes] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def _core(edges: tuple[Ints, Ints], sizes: tuple[int, int], capacity: int) -> Taken:
    """Return the same by SciPy: nodes are a source, those on the left, on the right, and a sink."""
    (left, right), (lefts, rights) = edges, sizes
    sink = lefts + rights + 1
    ends = (
        np.concatenate([np.zeros(lefts, np.int32), 1 + left, 1 + lefts + np.arange(rights)]),
        np.concatenate([1 + np.arange(lefts), 1 + lefts + right, np.full(rights, sink)]),
    )
    # Nobody has more edges than there are on the right, so that capacities fit 32 bits.
    room = np.ones(len(ends[0]), dtype=np.int32)
    room[:lefts] = min(capacity, rights)
    first, last = (end.astype(np.int32) for end in ends)
    graph = csr_array((room, (first, last)), shape=(sink + 1, sink + 1))
    del ends, room, first, last
    flow = maximum_flow(graph, 0, sink).flow
    by = np.full(rights, NOBODY, dtype=np.int64)
    from_lefts = slice(*flow.indptr[[1, 1 + lefts]])  # the rows of those on the left
    moved = flow.data[from_lefts] > 0
    whose = np.repeat(np.arange(lefts), np.diff(flow.indptr[1 : lefts + 2]))
    by[flow.indices[from_lefts][moved] - 1 - lefts] = whose[moved]
    return _with_cut(edges, by, lefts, capacity)


def _with_cut(edges: tuple[Ints, Ints], by: Ints, lefts: int, capacity: int) -> Taken:
    """Add the cut of a flow that is the largest.

    From those on the left that may take more, edges lead to some on the right, and from these to
    whoever has taken them. Those that are reached so on the right are in the cut, and those on the
    left that are not.
    """
    left, right = edges
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    first = np.searchsorted(left, np.arange(lefts + 1))
    load = np.bincount(by[by != NOBODY], minlength=lefts)
    reached, on_right = load < capacity, np.zeros(len(by), dtype=np.bool_)
    new = np.flatnonzero(reached)
    while new.size:
        seen = np.unique(right[_runs(first[new], first[new + 1])])
        seen = seen[~on_right[seen]]
        on_right[seen] = True
        behind = by[seen]
        behind = np.unique(behind[behind != NOBODY])
        new = behind[~reached[behind]]
        reached[new] = True
    return Taken(by, ~reached, on_right)


def _runs(start: Ints, stop: Ints) -> Ints:
    """Return all numbers of some runs, one after the other."""
    lengths = stop - start
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if ends.size else 0
    within = np.arange(total, dtype=np.int64) - np.repeat(ends - lengths, lengths)
    return np.asarray(np.repeat(start, lengths) + within, dtype=np.int64)
