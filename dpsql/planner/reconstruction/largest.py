"""The largest variance of a family, however many answers it has.

A variance is Σ_A c_A ∏_g u_{A,g}(row of g), where g are groups of blocks and u the squared norms
of their rows (see `inverses`). It grows in every u >= 0. So a row of g for which another row is at
least as large in all u_{A,g} need not be looked at: only the Pareto front is left of each group,
and the largest is that of the product of the fronts. The group with the most rows is searched
instead, from the rows with the largest bounds on.

Where even that is too much, rows of a front are put together by taking the larger u of each, and
the search ends with a bound: what comes out is then an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import unions
from dpsql.planner.reconstruction.inverses import CHUNK, Inverses, groups
from dpsql.planner.reconstruction.measured import MeasuredFactor, Space
from dpsql.planner.residuals.pieces import split_rows
from dpsql.workload import Block, Family

Key = tuple[object, ...]
InversesOf = Callable[[tuple[str, ...]], Inverses]
"""Tells by its attributes what queries become of measurements of a residual space."""

TABLE = 2**22
"""Rows of blocks that share a factor, up to which their squares are computed one by one."""
FRONT = 2**27
"""Comparisons of numbers that a Pareto front may take."""
GROUPED = 1024
"""Rows that what is left is put together into, where a front would take more."""
PRODUCT = 2**18
"""Rows of the product of all fronts but the largest one."""
WORK = 2**28
"""Rows of that product times residual spaces."""
SEARCH = 2**30
"""Sums that the search for the largest may compute."""
ROUNDING = 1e-12
"""Rows that are larger by no more than this, relatively, are taken as equal."""


@dataclass(frozen=True, slots=True)
class _Term:
    """What one residual space adds: `scale` times a product of tables over blocks."""

    scale: float
    tables: Mapping[tuple[int, ...], Key]
    """Numbers of blocks → which table of their rows."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the rows of some blocks give to each term."""

    rows: Array
    """Shape (rows, different columns)."""
    taken: Sequence[int]
    """Which column each term takes."""


class _Tables:
    """The squared norms of rows, group by group; each table is made once."""

    def __init__(self, inverses: InversesOf, blocks: Sequence[Block], limit: int) -> None:
        self._inverses, self._blocks, self._limit = inverses, blocks, limit
        self._known: dict[Key, Array] = {}

    def __getitem__(self, key: Key) -> Array:
        return self._known[key]

    def term(self, space: Space) -> _Term:
        """Make what a residual space needs."""
        factors, scale = space.factors, space.noise
        tables: dict[tuple[int, ...], Key] = {}
        parts = [b.attributes for b in self._blocks]
        for bs, fs in groups(parts, [space.of(f) for f in factors]):
            numbers, its = tuple(sorted(bs)), [factors[f] for f in fs]
            if not numbers:
                scale *= float(self._inverses_in(space).group_squares([], its, space))
            elif len(numbers) == 1 or self._rows(numbers) <= self._limit:
                tables[numbers] = self._exact(numbers, its, space)
            else:
                scale *= math.prod(self._norm(f, space) for f in its)
                tables |= {(b,): self._bound(b, space) for b in numbers}
        return _Term(scale, tables)

    def _rows(self, numbers: Iterable[int]) -> int:
        return math.prod(self._blocks[b].queries.rows for b in numbers)

    def _inverses_in(self, space: Space) -> Inverses:
        return self._inverses(space.attributes)

    def _references(self, numbers: Iterable[int], space: Space) -> tuple[bytes, ...]:
        """Tell the references of some blocks' attributes from those in other contexts."""
        references = self._inverses_in(space).references
        return tuple(references[a].key for b in numbers for a in self._blocks[b].attributes)

    def _exact(
        self, numbers: tuple[int, ...], factors: Sequence[MeasuredFactor], space: Space
    ) -> Key:
        alike = self._references(numbers, space)
        key = (numbers, alike, *((f.content, space.of(f)) for f in factors))
        if key not in self._known:
            blocks = [self._blocks[b] for b in numbers]
            self._known[key] = self._inverses_in(space).group_squares(blocks, factors, space)
        return key

    def _norm(self, factor: MeasuredFactor, space: Space) -> float:
        """Return the largest squared norm of a row by CB⁺, for rows of norm 1."""
        inverse = self._inverses_in(space).inverse(factor, space.of(factor))
        return float(np.linalg.norm(inverse.matrix, 2) ** 2)

    def _bound(self, number: int, space: Space) -> Key:
        """Make the squared norms of what is kept of one block's rows."""
        block = self._blocks[number]
        kept = tuple(name in space.attributes for name in block.attributes)
        key = ("kept", number, kept, self._references([number], space))
        if key not in self._known:
            self._known[key] = _kept_squares(block, kept, self._inverses_in(space))
        return key


def _kept_squares(block: Block, kept: tuple[bool, ...], inverses: Inverses) -> Array:
    if not any(kept):
        return np.square(inverses.dropped(block))
    if len(kept) == 1:  # CB⁺ gives the same to rows that differ by a constant
        centered = np.square(block.queries.sums()) / block.queries.cells
        return np.maximum(block.queries.squares() - centered, 0.0)
    weights = [inverses.references[a].weights for a in block.attributes]
    parts = Family("", (block,), 1.0).parts(max(1, CHUNK // block.queries.cells))
    rows = (split_rows(part.blocks[0].queries.matrix, weights, kept) for part in parts)
    return np.concatenate([np.square(some).sum(axis=1) for some in rows])


def largest_variance(inverses: InversesOf, spaces: Sequence[Space], family: Family) -> float:
    """Return the largest variance that the noise in some spaces gives, or an upper bound."""
    shape = family.shape
    for limit in (TABLE, 0):
        tables = _Tables(inverses, family.blocks, limit)
        terms = [tables.term(space) for space in spaces]
        shared = dict.fromkeys(numbers for term in terms for numbers in term.tables)
        parts = [tuple(sorted(numbers)) for numbers in unions(shared)]
        if all(len(p) == 1 or math.prod(shape[b] for b in p) <= TABLE for p in parts):
            break
    columns = [_columns(tables, terms, part, shape) for part in parts]
    return _over_product([term.scale for term in terms], columns)


def _columns(
    tables: _Tables, terms: Sequence[_Term], part: tuple[int, ...], shape: tuple[int, ...]
) -> _Columns:
    """Return the different columns that terms have for some blocks."""
    columns: dict[tuple[Key, ...], int] = {}
    values: list[Array] = []
    taken: list[int] = []
    for term in terms:
        mine = {
            numbers: term.tables[numbers] for numbers in sorted(term.tables) if numbers[0] in part
        }
        key = tuple(mine.values())
        if key not in columns:
            columns[key] = len(values)
            product: Array = np.ones(())
            for numbers, name in mine.items():
                along = [shape[b] if b in numbers else 1 for b in part]
                product = product * tables[name].reshape(along)
            values.append(product.ravel())
        taken.append(columns[key])
    return _Columns(np.stack(values, axis=1), taken)


def front(rows: Array) -> Array:
    """Return the rows of which no other is at least as large in all columns.

    Rows are >= 0. Where that would take long, some are put together into larger ones.
    """
    sizes = rows.max(axis=0)
    order = np.argsort(-(rows / np.where(sizes > 0, sizes, 1.0)).sum(axis=1), kind="stable")
    left, found, work = rows[order], list[Array](), 0
    while len(left) and work < FRONT:
        work += left.size
        found.append(left[0].copy())
        left = left[(left > left[0] * (1 + ROUNDING)).any(axis=1)]
    return np.vstack([np.array(found).reshape(-1, rows.shape[1]), _put_together(left, GROUPED)])


def _put_together(rows: Array, count: int) -> Array:
    """Return at most `count` rows, such that each given row is below one of them."""
    if len(rows) <= count:
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return np.array([part.max(axis=0) for part in np.array_split(rows, count)])


def _over_product(scales: Sequence[float], groups_: Sequence[_Columns]) -> float:
    """Return the largest of Σ scale · ∏ (column of a group) over the product of their rows."""
    if not groups_:  # a total, or nothing that is measured
        return math.fsum(scales)
    *others, widest = sorted(groups_, key=lambda g: len(g.rows))
    room = max(1, min(PRODUCT, WORK // max(1, len(scales))))
    fronts, left = [], len(others)
    for group in sorted(
        (_Columns(front(g.rows), g.taken) for g in others), key=lambda g: len(g.rows)
    ):
        rows = _put_together(group.rows, max(1, math.floor(room ** (1 / left) * (1 + 1e-9))))
        fronts.append(_Columns(rows, group.taken))
        room, left = max(1, room // len(rows)), left - 1
    slopes = np.zeros((widest.rows.shape[1], math.prod(len(f.rows) for f in fronts)))
    for i, scale in enumerate(scales):
        vectors = [f.rows[:, f.taken[i]] for f in fronts]
        product: Array = reduce(np.multiply.outer, vectors, np.asarray(scale))
        slopes[widest.taken[i]] += product.ravel()
    return _search(widest.rows, slopes)


def _search(rows: Array, slopes: Array) -> float:
    """Return the largest entry of rows · slopes, both >= 0: the promising rows come first.

    If that takes too long, the bound of the next row is returned.
    """
    bounds = rows @ slopes.max(axis=1)
    order = np.argsort(-bounds, kind="stable")
    step, best = max(1, CHUNK // slopes.shape[1]), 0.0
    for start in range(0, len(order), step):
        next_bound = float(bounds[order[start]])
        if next_bound <= best * (1 + ROUNDING):
            return best
        if start * slopes.shape[1] >= SEARCH:
            return next_bound
        best = max(best, float((rows[order[start : start + step]] @ slopes).max(initial=0.0)))
    return best
