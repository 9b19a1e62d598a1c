"""Reconstruction from residual spaces.

On the residual space V_A, the measurements y = B_A x_A + z give the estimate t_A = C_A B_A⁺ y
over the cells of A, where C_A = ⊗(I − ℓ1ᵀ) lets a query on t_A count what it keeps. Spread over
the other attributes of B as their references say and added up, the estimates make a marginal
over B,

    x̂_B = Σ_{A⊆B} t_A ⊗ (ℓ_i for i in B∖A) ,

and every query q over B that was planned for has q(x̂_B) = Σ_A q_A(t_A): exactly unbiased, with

    variance = Σ_A (σ_A² + 1/12) ‖q_A B_A⁺‖² .

The norms are products over groups of blocks and factors, see `inverses`. Measurements of different
residual spaces are independent, so that covariances add up over the spaces, too; see below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import MAX_ENTRIES, Dense, StructuredMatrix
from dpsql.linalg.sets import subsets, unions
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.base import (
    Aligned,
    Axes,
    CombinedReconstruction,
    Missing,
    contract,
    cut_blocks,
    placed,
    taken,
)
from dpsql.planner.reconstruction.inverses import CHUNK, Inverses, groups, spans
from dpsql.planner.reconstruction.measured import MeasuredFactor, OnlyIn, Space, Values
from dpsql.planner.residuals.pieces import split_rows
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import Context, References, decomposed
from dpsql.planner.residuals.structure import Product, products
from dpsql.workload import Block, Family, Queries, Workload
from dpsql.workload.workload import boxes


class ResidualReconstruction(CombinedReconstruction):
    """The reconstruction of answers and variances from measurements of residual spaces."""

    def __init__(self, spaces: Iterable[Space], references: Mapping[str, Reference]) -> None:
        self._spaces: dict[frozenset[str], list[Space]] = {}
        for space in spaces:
            self._spaces.setdefault(frozenset(space.attributes), []).append(space)
        self._touched = {name for space in self._spaces for name in space}
        self._references = References.of(references)
        self._inverses: dict[Context, Inverses] = {}

    @property
    def references(self) -> References:
        """Attribute → its reference, in each context."""
        return self._references

    def inverses(self, space: Iterable[str] = ()) -> Inverses:
        """Return what queries become of measurements of a residual space."""
        context = self._references.context(space)
        if context not in self._inverses:
            self._inverses[context] = Inverses(self._references.within(context))
        return self._inverses[context]

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces. Estimates of one residual space add up, as their variances do."""
        return tuple(chain.from_iterable(self._spaces.values()))

    def marginal(
        self,
        attributes: Sequence[str],
        values: Values,
    ) -> Array:
        """Return x̂_B from the noisy measurements of each residual space.

        Axis by axis (Fuentes et al., "Fast private adaptive query answering for large data
        domains", 3): of two tables that differ in one attribute, the one without it is spread
        along that axis and added to the other. So it takes time in the cells of the marginal, and
        hardly more for each of its 2^k residual spaces.
        """
        tables: dict[frozenset[str], Array] = {}
        for space in self.inside(attributes):
            _add(tables, frozenset(space.attributes), self._placed(space, values, attributes))
        # Pivots last: what they keep tells along which references others are spread. Else axes of
        # few cells first, which make the other tables the least larger.
        cells = {name: len(self.references[name].weights) for name in attributes}
        for name in sorted(cells, key=lambda a: (a in self.references.pivots, cells[a])):
            merged = dict[frozenset[str], Array]()
            for kept, table in tables.items():
                if name not in kept:
                    table = table * self._along(name, kept, attributes)
                _add(merged, kept - {name}, table)
            tables = merged
        if not tables:
            return np.zeros([cells[a] for a in attributes])
        (result,) = tables.values()
        return result

    def with_total(self) -> Values | None:
        """Return what the noise of the total's own space is: no other has a say in it."""
        values = OnlyIn()
        for space in self._measured(()):
            shape = [factor.measurements for factor in space.factors]
            units = np.eye(math.prod(shape)).reshape(-1, *shape)
            parts = [self.inverses().estimate(space, unit) for unit in units]
            values[space] = space.noise * np.array(parts, dtype=np.float64).reshape(shape)
        return values or None

    def _placed(self, space: Space, values: Values, attributes: Sequence[str]) -> Array:
        """Return the estimate of a residual space along the axes of a marginal."""
        names = [a for f in space.factors for a in space.of(f)]
        estimate = self.inverses(space.attributes).estimate(space, values[space])
        return LabeledArray(names, estimate).expand(attributes)

    def _along(self, name: str, kept: Iterable[str], attributes: Sequence[str]) -> Array:
        """Return the reference of an attribute along its axis, where others are kept."""
        weights = self.inverses(kept).references[name].weights
        return LabeledArray((name,), weights).expand(attributes)

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        family.check_held()
        total = np.zeros(family.shape)
        for space in self._inside_of(family):
            squares = self.inverses(space.attributes).squares(family.blocks, space)
            total += space.noise * squares
        return total

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Take what the planner knows as the error of the family alone, and search the largest."""
        alone = Workload.of(domain, [family])
        total = math.fsum(error for _, error in self.errors(alone)) / family.weight
        spaces = list(self._inside_of(family))
        return total, largest_variance(self.inverses, spaces, family)

    def errors(self, workload: Workload) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the weighted sum of variances that the noise in each residual space gives."""
        known = {name: n for name, n in workload.domain.items() if name in self.references}
        for space, terms in self._asked(Workload.of(known, workload.families)):
            if self._measured(space):  # not so inside of joint cells that are known at once
                yield space, self.error_of(terms, space)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Add up over the residual spaces inside both families' attributes."""
        total = np.zeros(sizes)
        most = min(rows_at_once(side.family, MAX_ENTRIES) for side in (first, second))
        if most < total.size:
            for box in boxes(sizes, most):
                here = tuple(s.stop - s.start for s in box)
                ours, theirs = first.cut(box, sizes), second.cut(box, sizes)
                total[box] = self._covariances(ours, theirs, here)
            return total
        both = first.family.attributes & second.family.attributes
        for space in self.inside([a for a in self.references if a in both]):
            inner = InnerProducts(self.inverses(space.attributes), space, sizes)
            total += space.noise * inner.of(first, second)
        return total

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Look at every residual space of which something is asked."""
        known = {n: domain[n] for n in domain if n in self.references or n in family.attributes}
        asked = self._asked(Workload.of(known, [family])) if family.count else ()
        return tuple(space for space, terms in asked if not self._determines(terms, space))

    def _asked(self, workload: Workload) -> Iterator[tuple[tuple[str, ...], Sequence[Product]]]:
        """Yield what is asked of every residual space."""
        for splitter, subworkload in decomposed(workload, self.references):
            terms = products(subworkload, splitter)
            for space in subworkload.spaces:
                yield space, terms

    def _determines(self, terms: Sequence[Product], space: tuple[str, ...]) -> bool:
        return any(spans(terms, s) for s in self._measured(space))

    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a space; 0 if unknown."""
        return self.error_of(terms, space) if self._determines(terms, space) else 0.0

    def error(self, terms: Sequence[Product], block: BlockStrategy) -> float:
        """Return the weighted sum of variances that a block gives to the terms of its spaces."""
        return len(block.spaces) * self.error_of(terms, block.spaces[0])

    def error_of(self, terms: Sequence[Product], attributes: Sequence[str]) -> float:
        """Return the weighted sum of variances that one space gives to the terms asked of it."""
        spaces = self._measured(attributes)
        inverses = self.inverses(attributes)
        return math.fsum(inverses.error(terms, attributes, space) for space in spaces)

    def _measured(self, attributes: Iterable[str]) -> Sequence[Space]:
        """Return the measurements of a residual space; none if it was not measured."""
        return self._spaces.get(frozenset(attributes), ())

    def _inside_of(self, family: Family) -> Iterator[Space]:
        return self.inside(family.names)

    def inside(self, attributes: Sequence[str]) -> Iterator[Space]:
        """Yield the residual spaces whose attributes are all among some."""
        measured = [a for a in attributes if a in self._touched]
        if 1 << len(measured) > len(self._spaces):
            inside = set(measured)
            for names, spaces in self._spaces.items():
                if names <= inside:
                    yield from spaces
            return
        for subset in subsets(measured):
            yield from self._spaces.get(frozenset(subset), ())


def _add(tables: dict[frozenset[str], Array], key: frozenset[str], table: Array) -> None:
    tables[key] = tables[key] + table if key in tables else table


# ── Inner products of queries, as the measurements of one residual space see them ────────────────
#
# On each residual space A inside both families' attributes, the estimates have the errors
# q_A B_A⁺ z with z of variance σ_A² + 1/12, and those of different spaces are independent. So
#
#     Cov(q, p) = Σ_A (σ_A² + 1/12) ⟨q_A B_A⁺, p_A B_A⁺⟩ .
#
# An attribute that a family does not touch is summed over: its query is all ones, of which nothing
# is kept, so that no other spaces count. The inner product is a product of one number for each
# group of blocks of both families and factors that share attributes of A.


def rows_at_once(family: Family, entries: int) -> int:
    """Return how many rows there can be for joint queries to be written out."""
    joint = [b.queries for b in family.blocks if len(b.attributes) > 1]
    large = [q.cells for q in joint if q.rows * q.cells > entries]
    return max(1, entries // max(large)) if large else family.count


@dataclass(frozen=True, slots=True)
class _Side:
    """Blocks of one family that are in a group, with the base axes of each."""

    blocks: tuple[Block, ...]
    axes: tuple[Axes, ...]

    @property
    def flat(self) -> Axes:
        return tuple(axis for axes in self.axes for axis in axes)

    @property
    def key(self) -> tuple[object, ...]:
        """The key that the answers of two sides that are the same have in common."""
        return self.axes, *((b.attributes, b.queries.key) for b in self.blocks)


class InnerProducts:
    """The inner products ⟨q_A B_A⁺, p_A B_A⁺⟩ of one residual space."""

    def __init__(self, inverses: Inverses, space: Space, sizes: tuple[int, ...]) -> None:
        self._inverses, self._space, self._sizes = inverses, space, sizes
        self._kept = frozenset(space.attributes)

    def of(self, first: Aligned, second: Aligned) -> Array:
        """Return the inner product in each row; it broadcasts to the base axes."""
        factors = self._space.factors
        ours, theirs = first.family.blocks, second.family.blocks
        parts = [self._keeps(block) for block in (*ours, *theirs)]
        result: Array = np.ones([1] * len(self._sizes))
        for bs, fs in groups(parts, [self._space.of(f) for f in factors]):
            sides = (
                self._side(first, [b for b in bs if b < len(ours)]),
                self._side(second, [b - len(ours) for b in bs if b >= len(ours)]),
            )
            result = result * self._group(sides, [factors[f] for f in fs])
        return result

    def _keeps(self, block: Block) -> tuple[str, ...]:
        return tuple(name for name in block.attributes if name in self._kept)

    def _side(self, aligned: Aligned, numbers: Sequence[int]) -> _Side:
        return _Side(
            tuple(self._contracted(aligned.family.blocks[b]) for b in numbers),
            tuple(aligned.axes[b] for b in numbers),
        )

    def _contracted(self, block: Block) -> Block:
        """Contract the axes that are dropped, of a block that keeps others."""
        kept = self._keeps(block)
        if not kept or len(kept) == len(block.attributes):
            return block
        weights = [self._inverses.references[a].weights for a in block.attributes]
        keeps = tuple(a in self._kept for a in block.attributes)
        rows = split_rows(block.queries.matrix, weights, keeps)
        shape = tuple(n for n, keep in zip(block.shape, keeps, strict=True) if keep)
        return Block(kept, shape, Dense(rows))

    def _group(self, sides: tuple[_Side, _Side], factors: Sequence[MeasuredFactor]) -> Array:
        """Return one group's inner products, along its own base axes and 1 along the others."""
        first, second = sides
        if not first.blocks and not second.blocks:  # the total's own factor
            return self._inverses.group_squares([], factors, self._space)
        if not factors:
            (side,) = (s for s in sides if s.blocks)
            return placed(self._inverses.dropped(side.blocks[0]), side.flat, self._sizes)
        if first.key == second.key:
            squares = self._inverses.group_squares(first.blocks, factors, self._space)
            return placed(squares, first.flat, self._sizes)
        if len(factors) == 1:
            (factor,) = factors
            names = self._space.of(factor)
            inverse = self._inverses.inverse(factor, names)
            if len(names) == 1 and not inverse.is_written:
                return self._cells(first, second, inverse)
            if all(len(b.attributes) == 1 for side in sides for b in side.blocks):
                return self._columns(
                    first, second, inverse.matrix.reshape(*factor.shape, -1), names
                )
        return self._written(first, second, factors)

    def _cells(self, first: _Side, second: _Side, inverse: StructuredMatrix) -> Array:
        """Multiply the queries themselves, where the inverse need not be written out."""
        dense = any(s.blocks[0].queries.is_written for s in (first, second))
        result, boxes_ = self._boxes(first, second, inverse.rows if dense else 1)
        for box in boxes_:
            q, p = (_repeated(side, box, self._sizes) for side in (first, second))
            result[box] = inverse.image_products(q, p).reshape(result[box].shape)
        return result

    def _columns(self, first: _Side, second: _Side, tensor: Array, names: tuple[str, ...]) -> Array:
        """Apply each attribute's queries to the columns of CB⁺, some columns at a time."""
        rows = math.prod(self._sizes[a] for a in {*first.flat, *second.flat})
        step, total = max(1, CHUNK // max(1, rows)), np.zeros(())
        for start in range(0, tensor.shape[-1], step):
            columns = tensor[..., start : start + step]
            q, p = (_applied(side.blocks, names, columns) for side in (first, second))
            total = total + contract(q, first.flat, p, second.flat, self._sizes)
        return total

    def _written(self, first: _Side, second: _Side, factors: Sequence[MeasuredFactor]) -> Array:
        """Write q_A B_A⁺ out on both sides, some rows at a time."""
        cells = max(math.prod(n for b in s.blocks for n in b.shape) for s in (first, second))
        result, boxes_ = self._boxes(first, second, cells)
        for box in boxes_:
            q, p = (
                self._inverses.table(self._inside(side, box), factors, self._space)
                for side in (first, second)
            )
            shape = [s.stop - s.start for s in box]
            result[box] = contract(q, first.flat, p, second.flat, shape)
        return result

    def _inside(self, side: _Side, box: Sequence[slice]) -> tuple[Block, ...]:
        return cut_blocks(side.blocks, side.axes, box, self._sizes)

    def _boxes(
        self, first: _Side, second: _Side, width: int
    ) -> tuple[Array, Iterator[tuple[slice, ...]]]:
        """Make room along both sides' axes, and split it so that boxes × width are few entries."""
        axes = {*first.flat, *second.flat}
        shape = [n if a in axes else 1 for a, n in enumerate(self._sizes)]
        return np.zeros(shape), boxes(shape, max(1, CHUNK // width))


def _repeated(side: _Side, box: Sequence[slice], sizes: Sequence[int]) -> Queries:
    """Return the one block's query at each place of a box, also along axes of others."""
    (block,), (axes,) = side.blocks, side.axes
    numbers = placed(np.arange(block.queries.rows), axes, sizes)
    there = numbers[tuple(s if a in axes else slice(0, 1) for a, s in enumerate(box))]
    shape = [s.stop - s.start for s in box]
    return taken(block.queries, np.broadcast_to(there, shape).ravel())


def _applied(blocks: Sequence[Block], names: Sequence[str], columns: Array) -> Array:
    """Apply queries of one attribute each to the columns over some attributes."""
    result = columns.transpose(*(names.index(b.attributes[0]) for b in blocks), -1)
    for axis, block in enumerate(blocks):
        result = block.queries.apply(result, axis)
    return result


# ── The largest variance of a family, however many answers it has ────────────────────────────────
#
# A variance is Σ_A c_A ∏_g u_{A,g}(row of g), where g are groups of blocks and u the squared norms
# of their rows (see `inverses`). It grows in every u >= 0. So a row of g for which another row is
# at least as large in all u_{A,g} need not be looked at: only the Pareto front is left of each
# group, and the largest is that of the product of the fronts. The group with the most rows is
# searched instead, from the rows with the largest bounds on.
#
# Where even that is too much, rows of a front are put together by taking the larger u of each, and
# the search ends with a bound: what comes out is then an upper bound.


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
    """The term of one residual space: `scale` times a product of tables over blocks."""

    scale: float
    tables: Mapping[tuple[int, ...], Key]
    """Numbers of blocks → which table of their rows."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns that the rows of some blocks give to each term."""

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
            numbers, factors_of_term = tuple(sorted(bs)), [factors[f] for f in fs]
            if not numbers:
                scale *= float(self._inverses_in(space).group_squares([], factors_of_term, space))
            elif len(numbers) == 1 or self._rows(numbers) <= self._limit:
                tables[numbers] = self._exact(numbers, factors_of_term, space)
            else:
                scale *= math.prod(self._norm(f, space) for f in factors_of_term)
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
    left, corners, work = rows[order], list[Array](), 0
    while len(left) and work < FRONT:
        work += left.size
        corners.append(left[0].copy())
        left = left[(left > left[0] * (1 + ROUNDING)).any(axis=1)]
    return np.vstack([np.array(corners).reshape(-1, rows.shape[1]), _put_together(left, GROUPED)])


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
