"""Sources: the measurements of single releases, and the cells over which they can be combined.

Each release merges the cells of a column that its queries don't tell apart, and weighs residual
spaces by references of its own. Measurements can be looked at over finer cells: a row of a strategy
then has the same coefficient for all parts of a cell. That it lies in a residual space stays true
if the finer reference gives each coarse cell, with all its parts, the weight that it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Literal

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense, Kronecker, StructuredMatrix, independent_inverse
from dpsql.measurement.differences import Condition, Difference
from dpsql.measurement.factors import IdentityFactor, IntegerFactor, MeasureFactor
from dpsql.measurement.narrow import Kept
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.measured import MeasuredFactor, Noisy, Space
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import Context, References
from dpsql.schema.domain import DERIVED, MOST_CUTS, Cuts, coarser, cut_at, lines_of, together
from dpsql.workload.workload import UnitTable, coarsening, common_refinement

PARTS = 4
"""A weight that is split among several cells gets this many units for each of them."""
Reading = Literal["residuals", "marginals", "pooled", "adaptive"]
"""The way in which answers follow from a source that stands alone: from residual spaces (or all
joint cells), each from one marginal, or from several marginals together; or not at all, because it
is one round of a release that chose what to measure by the data."""
RESIDUALS: Reading = "residuals"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The measurements of one release."""

    blocks: tuple[BlockStrategy, ...]
    references: Mapping[str, Reference]
    """Attribute → its reference; none where the whole domain was measured at once."""
    sizes: Mapping[str, int]
    """Attribute → the number of cells over which it was measured."""
    merged: Mapping[str, Ints] = field(default_factory=lambda: MappingProxyType({}))
    """For attributes whose cells were merged: the measured cell of each cell of the domain."""
    values: Noisy | None = None
    """None for what is only planned."""
    guards: frozenset[str] = frozenset()
    """Columns in which a row had to have a value of the domain to be counted, in releases before
    format 3: these are about other rows, and go with no other source. None in later ones, which
    count such rows in a cell of their own."""
    described: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Public facts about the table at that time, see `Table.described`; empty if unknown."""
    rests_on: tuple[str, ...] = ()
    """Names of the earlier releases with which it was put together, in order."""
    reading: Reading = RESIDUALS
    measures: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    """Measure → what was measured of its sums, as if they were counts: without its axis."""
    bound: int = 1
    """The largest magnitude of what a row adds to a measure's sums; 1 for counts."""
    rows: int = 1
    """The rows of a unit that count at most, in one of several tables."""
    kept: Source | None = None
    """The source as ledgers and folders keep it, if it is seen along more cuts, see `lines`."""
    table: str = ""
    """The table that it is about, if the release is of several: a digest, as ledgers have it."""
    differences: tuple[Difference, ...] = ()
    """Between totals of tables: by the axes of their counts, or by digests, as `table` has them."""
    compared: Mapping[frozenset[str], Mapping[str, Source]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Two tables → what was measured of each when they were compared, where that isn't among its
    measures: the cells that conditions are on."""
    kept_by: str = ""
    """By which rule rows of privacy units were kept, see `dpsql/engines/duckdb/bounded.py`; empty
    where each row counts, and in releases before that rule had a name."""

    @property
    def measured(self) -> tuple[BlockStrategy, ...]:
        """All that was measured, sums of measures too, as it was certified and paid for."""
        parts = self.measures.items()
        sums = (of_measure(b, m, part.bound, part.rows) for m, part in parts for b in part.blocks)
        return (*self.blocks, *sums)

    @property
    def whole(self) -> bool:
        """Whether the joint cells of its attributes were measured, not residual spaces."""
        return self.combines and not self.references

    @property
    def combines(self) -> bool:
        """Whether it can be put together with others; else answers follow from it alone."""
        return self.reading == RESIDUALS

    def has_cells(self, name: str, cells: int | None, merged: Ints | None) -> bool:
        """Whether an attribute was measured over just these cells, merged in the same way.

        Args:
            name: the attribute.
            cells: how many they are; None if nothing is asked of it.
            merged: the cell of each cell of the domain; None if each is one of its own.
        """
        if cells is None or self.sizes.get(name) != cells:
            return False
        each = np.arange(cells)
        mine = self.merged.get(name, each)
        return bool(np.array_equal(mine, each if merged is None else merged))

    @property
    def attributes(self) -> frozenset[str]:
        """All attributes that something was measured over."""
        return frozenset(a for block in self.blocks for space in block.spaces for a in space)

    @property
    def cost(self) -> float:
        """The privacy cost of one record: how much there is to learn from it."""
        return float(sum(block.privacy_cost for block in self.blocks)) * self.bound**2


def of_measure(block: BlockStrategy, measure: str, bound: int, rows: int = 1) -> BlockStrategy:
    """Return the same measurements of the sums of a measure instead of counts.

    Args:
        block: measurements of counts.
        measure: the attribute of the measure.
        bound: the largest magnitude of what a row adds.
        rows: how many rows a record has at most.
    """
    spaces = tuple((*space, measure) for space in block.spaces)
    if block.of_units and bound == 1:  # nothing is added up: the axis says that units are counted
        whole = IdentityFactor((len(block.shape),), (1,), 1)
        return BlockStrategy(spaces, (*block.factors, whole), block.law)
    factor = MeasureFactor((len(block.shape),), bound, 1 if block.of_units else rows)
    return BlockStrategy(spaces, (*block.factors, factor), block.law)


def without_axis(noisy: Noisy, measure: str | None, measures: AbstractSet[str]) -> Noisy:
    """Return the noisy integers of one measure, without its axis; or of counts, if it is None.

    What is of two measures at once, the difference of two totals, is of neither.
    """
    if measure is None:
        return {names: y for names, y in noisy.items() if measures.isdisjoint(names)}
    others = measures - {measure}
    return {
        names - {measure}: y[..., 0]
        for names, y in noisy.items()
        if measure in names and others.isdisjoint(names)
    }


def nested(sources: Sequence[Source]) -> Iterator[Source]:
    """Yield sources, and those of their measures."""
    for source in sources:
        yield source
        yield from source.measures.values()


def of_table(sources: Sequence[Source], table: str) -> tuple[Source, ...]:
    """Return those of some sources that are about a table, or about the only one there was."""
    return tuple(source for source in sources if source.table in {"", table})


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """The cells over which sources are put together: at least as fine as those of each."""

    sizes: Mapping[str, int]
    merged: Mapping[str, Ints]

    @classmethod
    def of(
        cls, sources: Sequence[Source], sizes: Mapping[str, int], merged: Mapping[str, Ints]
    ) -> Ground:
        """Take the given cells of some attributes; of others, those of the sources together."""
        cells, classes = dict(sizes), dict(merged)
        for name in sorted({a for s in sources for a in s.sizes} - set(sizes)):
            mine = [s for s in sources if name in s.sizes]
            if all(name in s.merged for s in mine):
                classes[name] = common_refinement([s.merged[name] for s in mine])
                cells[name] = int(classes[name].max()) + 1
            else:
                cells[name] = max(s.sizes[name] for s in mine)
        return cls(cells, classes)

    def coarse(self, source: Source, name: str) -> Ints | None:
        """Return the source's cell of each cell; None if the source tells more of them apart."""
        n = self.sizes[name]
        if name in source.merged:
            mine = source.merged[name]
            fine = self.merged.get(name)
            if fine is None:
                return mine if len(mine) == n else None
            return coarsening(fine, mine) if len(mine) == len(fine) else None
        same = name not in self.merged and source.sizes[name] == n
        return np.arange(n) if same else None


def splits(sources: Sequence[Source]) -> dict[str, Ints]:
    """Return the classes of cells that must be told apart to use all of the sources.

    Columns that a source did not merge are told apart entirely.
    """
    sources = tuple(nested(sources))
    classes: dict[str, Ints] = {}
    for name in sorted({a for s in sources for a in s.attributes}):
        mine = [s for s in sources if name in s.attributes]
        if all(name in s.merged for s in mine):
            classes[name] = common_refinement([s.merged[name] for s in mine])
        else:
            classes[name] = np.arange(max(s.sizes[name] for s in mine if name not in s.merged))
    return classes


def common_references(sources: Sequence[Source], ground: Ground) -> References:
    """Return for every attribute that a source has a reference of, one over the ground's cells.

    It agrees with that of the source which tells the most cells apart, the later of equal ones:
    releases that were planned on others take over their references.
    """
    most: dict[str, int] = {}
    references = References({})
    for source in sources:
        of_source = _over_cells(source, ground)
        taken = [name for name in of_source if source.sizes[name] >= most.get(name, 0)]
        most |= {name: source.sizes[name] for name in taken}
        references = of_source.only(taken).over(references)
    return references


def _over_cells(source: Source, ground: Ground) -> References:
    """Return a source's references over finer cells, of the attributes for which that can be."""
    references = References.of(source.references)
    cells = {name: ground.coarse(source, name) for name in references}
    known = {name: of for name, of in cells.items() if of is not None}
    usual = {a: _split(references[a], of) for a, of in known.items()}
    special = {
        (a, k): _split(r, known[a]) for (a, k), r in references.special.items() if a in known
    }
    return References(usual, references.pivots, special)


def agrees(reference: Reference, coarse: Ints, other: Reference) -> bool:
    """Whether a reference gives each coarse cell the weight that it has in another one."""
    if reference.uniform and other.uniform and len(coarse) == len(other.weights):
        return True
    if reference.numerators is None or other.numerators is None:
        return False
    sums = np.zeros(len(other.weights), dtype=object)
    np.add.at(sums, coarse, reference.numerators.astype(object))
    return bool((sums * other.total == other.numerators.astype(object) * reference.total).all())


def _split(reference: Reference, coarse: Ints) -> Reference:
    """Divide the weight of each coarse cell among its parts, as evenly as small integers can."""
    if len(coarse) == len(reference.weights) or reference.numerators is None:
        return reference
    parts = np.bincount(coarse, minlength=len(reference.weights))
    largest = int(parts.max())
    even = math.lcm(*(int(n) for n in set(parts.tolist())))
    unit = even if even <= PARTS * largest else PARTS * largest
    share, rest = np.divmod(reference.numerators * unit, parts)
    order = np.argsort(coarse, kind="stable")
    first = np.concatenate([[0], np.cumsum(parts)[:-1]])
    rank = np.empty(len(coarse), dtype=np.int64)
    rank[order] = np.arange(len(coarse)) - first[coarse[order]]
    return Reference.of_integers(share[coarse] + (rank < rest[coarse]))


MOST_ENTRIES = 2**24
"""Entries at most of a factor that is written out over finer cells."""


@dataclass(frozen=True, slots=True, eq=False)
class SpaceEntry:
    """One space of a source."""

    source: int
    """Which one."""
    space: Space

    @property
    def attributes(self) -> frozenset[str]:
        """Its attributes."""
        return frozenset(self.space.attributes)

    @property
    def cells(self) -> int:
        """The number of joint cells."""
        return math.prod(n for f in self.space.factors for n in f.shape)

    @property
    def rows(self) -> int:
        """The number of measurements."""
        return math.prod(f.measurements for f in self.space.factors)

    @property
    def full(self) -> bool:
        """Whether every query of the residual space can be answered."""
        return all(f.measurements >= math.prod(n - 1 for n in f.shape) for f in self.space.factors)

    @property
    def content(self) -> tuple[object, ...]:
        """The content that the rows of two entries that are alike have in common."""
        return tuple((f.axes, f.content) for f in self.space.factors)

    @property
    def _rows(self) -> Kronecker:
        """B, with the cells in the order of the factors."""
        return Kronecker(f.real for f in self.space.factors)

    def gram(self) -> Array:
        """Return BᵀB/σ² over the cells, in the order of the attributes."""
        return self._ordered(self._rows.gram() / self.space.noise, both=True)

    def whitened(self) -> Array:
        """Return B/σ, written out: shape (measurements, cells in the order of the attributes)."""
        return self._ordered(self._rows.matrix / math.sqrt(self.space.noise), both=False)

    def projected(self, values: Array) -> Array:
        """Return Bᵀy/σ² over the cells, in the order of the attributes."""
        flat = (self._rows.T @ values.ravel()) / self.space.noise
        return np.asarray(self._ordered(flat[None], both=False)[0])

    def _ordered(self, table: Array, *, both: bool) -> Array:
        """Bring the cells, the last axis or both, from the factors' order to that of the axes."""
        factors = self.space.factors
        axes = [axis for f in factors for axis in f.axes]
        if axes == sorted(axes):
            return table
        numbers = np.arange(self.cells).reshape([n for f in factors for n in f.shape])
        numbers = LabeledArray(axes, numbers).transpose(sorted(axes)).ravel()
        return np.asarray(table[np.ix_(numbers, numbers)] if both else table[:, numbers])

    def indices(self, names: Sequence[str], sizes: Mapping[str, int]) -> Ints:
        """Return the cell of this space for each joint cell of more attributes."""
        numbers = np.arange(self.cells).reshape([sizes[name] for name in self.space.attributes])
        place = LabeledArray(self.space.attributes, numbers).expand(names)
        return np.broadcast_to(place, [sizes[name] for name in names]).ravel()


def entries(number: int, source: Source, ground: Ground) -> Iterator[SpaceEntry]:
    """Yield what a source measured, over the ground's cells, as far as it can be seen there."""
    coarse = {name: ground.coarse(source, name) for name in sorted(source.attributes)}
    lifted: dict[tuple[object, ...], MeasuredFactor | None] = {}
    for block in source.blocks:
        for names in block.spaces:
            factors = []
            for factor in block.factors:
                names_of_axes = tuple(names[axis] for axis in factor.axes)
                key = id(factor), names_of_axes
                if key not in lifted:
                    lifted[key] = _lift(factor, [coarse[a] for a in names_of_axes])
                factors.append(lifted[key])
            if all(f is not None for f in factors):
                space = Space.of_block(names, block)
                known = tuple(f for f in factors if f is not None)
                yield SpaceEntry(number, Space(names, known, space.noise, space.unit))


class Agreement:
    """Tells which residual spaces a source and some references weigh alike."""

    def __init__(self, source: Source, ground: Ground, references: References) -> None:
        self._source, self._ground = source, ground
        self._theirs, self._ours = References.of(source.references), references
        self._known: dict[tuple[Context, Context], frozenset[str]] = {}

    def on(self, space: frozenset[str]) -> bool:
        """Whether a set of attributes is the same residual space for both."""
        contexts = self._theirs.context(space), self._ours.context(space)
        if contexts not in self._known:
            self._known[contexts] = self._agreed(*contexts)
        return space <= self._known[contexts]

    def _agreed(self, theirs: Context, ours: Context) -> frozenset[str]:
        names, within = [], self._ours.within(ours)
        for name, reference in self._theirs.within(theirs).items():
            coarse = self._ground.coarse(self._source, name)
            here = within.get(name)
            if coarse is not None and here is not None and agrees(here, coarse, reference):
                names.append(name)
        return frozenset(names)


def _lift(factor: IntegerFactor, coarse: Sequence[Ints | None]) -> MeasuredFactor | None:
    """Look at a factor over finer cells; None if that can't be, or is too large."""
    classes = [of for of in coarse if of is not None]
    if len(classes) < len(coarse):
        return None
    shape = tuple(len(of) for of in classes)
    if shape == factor.shape and all((of == np.arange(len(of))).all() for of in classes):
        return factor
    if factor.measurements * math.prod(shape) > MOST_ENTRIES:
        return None
    return LiftedFactor(factor, tuple(classes))


@dataclass(frozen=True, eq=False)
class LiftedFactor:
    """A factor over finer cells, which is written out only if something is made of it."""

    of: IntegerFactor
    coarse: tuple[Ints, ...]
    """For each axis the factor's own cell of each finer one."""

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the factor."""
        return self.of.axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of finer cells along each axis."""
        return tuple(map(len, self.coarse))

    @property
    def measurements(self) -> int:
        """The number of rows."""
        return self.of.measurements

    @cached_property
    def real(self) -> StructuredMatrix:
        """The rows: each has the same entry for all parts of a cell."""
        numbers = np.arange(math.prod(self.of.shape)).reshape(self.of.shape)
        rows = self.of.real
        return _LiftedRows(rows.matrix[:, numbers[np.ix_(*self.coarse)].ravel()], rows.is_written)

    @property
    def content(self) -> bytes:
        """A digest of the shape and the entries."""
        return b"real" + self.real.key


class _LiftedRows(Dense):
    """Rows over finer cells, whose pseudo-inverse is computed only if it is asked for.

    Not all rows of a factor that is not written out are independent, and then it takes longer.
    """

    def __init__(self, matrix: Array, independent: bool) -> None:
        super().__init__(matrix)
        self._independent = independent

    def pinv(self, shape: Sequence[int] = ()) -> StructuredMatrix:
        """Compute it, once."""
        if self._inverse is None:
            inverse = independent_inverse if self._independent else np.linalg.pinv
            self._inverse = np.asarray(inverse(self.matrix))
        return super().pinv(shape)


# ── Measurements along lines of columns, which may be cut at different places in each release ────
#
# An interval along more cuts lies within one along fewer of them. So what was measured along some
# cuts is, along all of them, a measurement over merged cells like any other: a row is in the cell
# in which it was.


def lines(source: Source) -> dict[str, Cuts]:
    """Return where columns were cut, for those that were measured along their lines."""
    return {name: of for name, of in lines_of(source.described).items() if name in source.sizes}


def common_cuts(sources: Sequence[Source], others: Mapping[str, Cuts]) -> dict[str, Cuts]:
    """Return all cuts of sources and of some lines; of a line with too many, only the latter."""
    lines_ = together([others, *map(lines, sources)])
    return {
        n: cuts if len(cuts) <= MOST_CUTS else others.get(n, cuts) for n, cuts in lines_.items()
    }


def lies_on(source: Source, cuts: Mapping[str, Cuts]) -> bool:
    """Whether a source was measured along some of the given cuts of each line."""
    return all(set(of) <= set(cuts.get(name, of)) for name, of in lines(source).items())


def along(source: Source, cuts: Mapping[str, Cuts]) -> Source:
    """Look at a source along more cuts of some lines.

    Args:
        source: what was measured.
        cuts: line → all of the source's own cuts, and others.

    Raises:
        ValueError: it has other cells than its cuts say.
    """
    finer = {name: of for name, of in lines(source).items() if cuts.get(name, of) != of}
    if not finer:
        return source
    merged = dict(source.merged)
    for name, of in finer.items():
        cells = len(merged.get(name, range(source.sizes[name])))
        if cells - len(of) not in {1, 2}:
            raise ValueError
        within = np.array(coarser(cuts[name], of, nullable=cells - len(of) == 2), dtype=np.int64)
        merged[name] = merged[name][within] if name in merged else within
    measures = {
        measure: along(replace(sums, described=source.described), cuts)
        for measure, sums in source.measures.items()
    }
    now = {name: f"{DERIVED}{cut_at(cuts[name])}" for name in finer}
    return replace(
        source,
        merged=merged,
        described={**source.described, **now},
        measures=measures,
        kept=source.kept or source,
    )


# ── Measurements of several tables: of all together, and of each as if it were the only one ──────
#
# Together, each table's counts are a measure, and all attributes have names that tell tables apart
# (`workload.workload`). So they are planned and put together as measures are. What is kept of them
# is of each table by itself, without any of that: what was measured of a table is the same then,
# whichever tables were asked beside it.


Rename = Callable[[str], str]


def tables_together(pairs: Sequence[tuple[UnitTable, Source]]) -> Source:
    """Return what was measured of several tables as one source.

    Args:
        pairs: each table, and what was measured of it as if it were the only one.
    """
    measures: dict[str, Source] = {}
    for table, source in pairs:
        counted = without_axis(source.values or {}, None, frozenset(source.measures))
        counts = replace(source, measures={}, values=counted)
        measures[table.name] = _named(counts, table)
        for measure, sums in source.measures.items():
            measures[table.attribute(measure)] = _named(sums, table)
    values = chain.from_iterable(_with_axis(of, name).items() for name, of in measures.items())
    reading = next((source.reading for _, source in pairs), RESIDUALS)
    return Source((), {}, {}, values=dict(values), reading=reading, measures=measures)


def tables_apart(source: Source, tables: Sequence[UnitTable]) -> tuple[Source, ...]:
    """Return what one source says of each table, as if it were the only one."""
    return tuple(_of(source, table) for table in tables)


def _of(source: Source, table: UnitTable) -> Source:
    def own(name: str) -> str:
        name_there = table.own(name)
        return name if name_there is None else name_there

    nothing = Source((), {}, {}, values={}, reading=source.reading)
    counts = _renamed(source.measures.get(table.name, nothing), own)
    sums = {
        own(measure): _renamed(of, own)
        for measure, of in source.measures.items()
        if table.own(measure) is not None
    }
    values = dict(counts.values or {})
    for measure, of in sums.items():
        values |= _with_axis(of, measure)
    bounds = {measure: replace(of, rows=1) for measure, of in sums.items()}
    return replace(counts, measures=bounds, values=values, rows=1)


def counts_of(blocks: Sequence[BlockStrategy], table: UnitTable) -> tuple[BlockStrategy, ...]:
    """Return the measurements of a table's counts among those of several, as if it were alone.

    The axis of the counts is the last one, as `of_measure` has put it.
    """

    def own(name: str) -> str:
        return table.own(name) or name

    return tuple(
        BlockStrategy(
            tuple(tuple(map(own, space[:-1])) for space in block.spaces),
            block.factors[:-1],
            block.law,
        )
        for block in blocks
        if all(space[-1:] == (table.name,) for space in block.spaces)
    )


def differences_in(
    sources: Sequence[Source], grounds: Mapping[str | None, Ground]
) -> tuple[tuple[Difference, ...], tuple[int, ...]]:
    """Return what sources say of the counts of two of some tables, and which of them says so.

    Args:
        sources: what was measured of several tables.
        grounds: table → the cells over which it is looked at. What counts rows in other cells than
            can be told apart there is left out.
    """
    differences = list[tuple[Difference, int]]()
    for number, source in enumerate(sources):
        for difference in source.differences:
            if all(table in grounds for table in difference.tables):
                sides = source.compared.get(difference.space, source.measures)
                lifted = [
                    (of, of and _over_ground(of, table, sides.get(table), grounds[table]))
                    for table, of in difference.sides
                ]
                if all(of is None or here is not None for of, here in lifted):
                    (_, first), (_, other) = lifted
                    differences.append((replace(difference, conditions=(first, other)), number))
    return tuple(pair for pair, _ in differences), tuple(number for _, number in differences)


def _over_ground(
    condition: Condition, table: str, source: Source | None, ground: Ground
) -> Condition | None:
    """Say a condition of finer cells; None if that can't be."""
    if source is None or not all(name in source.sizes for name in condition.named(table)):
        return None
    classes = [ground.coarse(source, name) for name in condition.named(table)]
    coarse = [of for of in classes if of is not None]
    if len(coarse) < len(classes):
        return None
    cells = condition.counted[np.ix_(*coarse)]
    return Condition(condition.attributes, cells.shape, cells.tobytes())


def with_values(source: Source, measured: Noisy) -> Source:
    """Give a source of several tables the noisy integers of its plan, part by part."""
    parts = {
        measure: replace(of, values=without_axis(measured, measure, source.measures.keys()))
        for measure, of in source.measures.items()
    }
    return replace(source, values=measured, measures=parts)


def _named(source: Source, table: UnitTable) -> Source:
    return replace(_renamed(source, table.attribute), rows=table.rows)


def _with_axis(source: Source, measure: str) -> dict[frozenset[str], Kept]:
    return {names | {measure}: y[..., None] for names, y in (source.values or {}).items()}


def _renamed(source: Source, rename: Rename) -> Source:
    """Give all attributes other names."""
    return replace(
        source,
        blocks=tuple(_block(block, rename) for block in source.blocks),
        references=_references(source.references, rename),
        sizes={rename(name): n for name, n in source.sizes.items()},
        merged={rename(name): of for name, of in source.merged.items()},
        values={frozenset(map(rename, names)): y for names, y in (source.values or {}).items()},
    )


def _block(block: BlockStrategy, rename: Rename) -> BlockStrategy:
    spaces = tuple(tuple(map(rename, space)) for space in block.spaces)
    return BlockStrategy(spaces, block.factors, block.law)


def _references(references: Mapping[str, Reference], rename: Rename) -> References:
    given = References.of(references)
    return References(
        {rename(name): reference for name, reference in given.items()},
        frozenset(map(rename, given.pivots)),
        {
            (rename(name), frozenset(map(rename, context))): reference
            for (name, context), reference in given.special.items()
        },
    )
