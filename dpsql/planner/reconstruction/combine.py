"""Combine: one reconstruction from the measurements of several releases.

All of it is weighted least squares, which is best among unbiased linear estimates. Measurements of
one residual space with the precision matrices P_k = B_kᵀB_k/σ_k² have together P = Σ P_k and the
estimate P⁺ Σ B_kᵀ y_k/σ_k². Other residual spaces don't matter for it (see `residuals.decompose`).

1. What was measured over joint cells, and all residual spaces inside of these, make one such
   problem over the joint cells (see below).
2. Measurements of equal rows are averaged, weighted by inverse variance.
3. Residual spaces of moderate size are put together in full.
4. Of larger ones, the estimates are averaged with one weight for all cells, by inverse variance:
   exact where strategies are proportional, as those for one workload are, unbiased in any case.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense
from dpsql.linalg.roots import independent_root, independent_rows, triangular_root
from dpsql.measurement.differences import Condition
from dpsql.planner.reconstruction.base import Aligned, CombinedReconstruction, Missing
from dpsql.planner.reconstruction.measured import Noisy, OnlyIn, RealFactor, Space, Values
from dpsql.planner.reconstruction.residual import ResidualReconstruction
from dpsql.planner.reconstruction.sources import (
    Agreement,
    Ground,
    Source,
    SpaceEntry,
    common_references,
    entries,
)
from dpsql.planner.reconstruction.whole import WholeReconstruction
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.planner.residuals.structure import Product
from dpsql.workload import Block, Family, Workload
from dpsql.workload.workload import touched

JOINT_CELLS = 2500
"""Joint cells up to which a precision matrix is written out."""
JOINT_ENTRIES = 2**24
"""Rows × cells up to which few rows over more cells are put together."""
PLANNED_ENTRIES = 2**21
"""The same where more is going to be measured: what is left out is measured anew, and to put it in
would take longer than all else of a plan."""
LEAST_SHARE = 0.01
"""Rows of a source, as a share of the answers that are asked, from which it is put into many joint
cells: it lowers the error in so many directions of theirs at most."""
MOST_ROWS = 2500
FEW = 2
"""Cells for each row, from which on no matrix of cells by cells is needed."""
DENSE_CELLS = 1500
"""Cells of a residual space up to which several measurements are put together in full."""
DENSE_WORK = 2e11
"""Multiplications that may take, all residual spaces together."""
NEGLIGIBLE = 1e-11
"""Eigenvalues of a precision matrix that are smaller, relatively, are rounding errors."""


class CombinedPart(ABC):
    """One space to reconstruct from, and how its measurements follow from the sources'."""

    space: Space

    @property
    @abstractmethod
    def counted(self) -> tuple[SpaceEntry, ...]:
        """The entries that it is made of."""

    @abstractmethod
    def values(self, given: Sequence[Noisy]) -> Array:
        """Return the space's measurements; given are those of each source."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept(CombinedPart):
    """Measurements as they are, times a weight."""

    space: Space
    entries: tuple[SpaceEntry, ...]
    """All with the same rows."""
    weights: tuple[float, ...]

    @property
    def counted(self) -> tuple[SpaceEntry, ...]:
        """All of them."""
        return self.entries

    def values(self, given: Sequence[Noisy]) -> Array:
        """Add up."""
        parts = zip(self.entries, self.weights, strict=True)
        return np.asarray(sum(weight * _of(entry, given) for entry, weight in parts))


@dataclass(frozen=True, slots=True, eq=False)
class Joined(CombinedPart):
    """Least squares over the joint cells of some attributes; noise of variance 1."""

    space: Space
    entries: tuple[tuple[SpaceEntry, Ints], ...]
    """With the cell of each for every joint cell."""

    @property
    def counted(self) -> tuple[SpaceEntry, ...]:
        """All of them."""
        return tuple(entry for entry, _ in self.entries)

    def values(self, given: Sequence[Noisy]) -> Array:
        """Return R⁺ᵀ Σ B_kᵀ y_k/σ_k², for the space's rows R with RᵀR = P."""
        (factor,) = self.space.factors
        total = np.sum([e.projected(_of(e, given))[at] for e, at in self.entries], axis=0)
        return np.asarray(factor.real.pinv(factor.shape).T @ total)


def _of(entry: SpaceEntry, given: Sequence[Noisy]) -> Array:
    return entry.space.read(given[entry.source][entry.attributes])


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """Sources put together."""

    reconstruction: CombinedReconstruction
    parts: tuple[CombinedPart, ...]

    @property
    def used(self) -> frozenset[int]:
        """The numbers of the sources of which anything counts."""
        return frozenset(e.source for part in self.parts for e in part.counted)

    def values(self, given: Sequence[Noisy]) -> Values:
        """Return what the reconstruction needs, from the noisy integers of all sources."""
        return {part.space: part.values(given) for part in self.parts}


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Sources looked at over the cells of one ground, once, to be put together again and again."""

    sources: tuple[Source, ...]
    ground: Ground
    """Cells as fine as those of every source that is to count."""
    entries: tuple[tuple[SpaceEntry, ...], ...]
    """Measurements of each of them, over these cells."""
    references: References
    """Those of the sources, see `common_references`."""

    @classmethod
    def over(cls, ground: Ground, sources: Sequence[Source]) -> Gathered:
        """Look at some sources over a ground."""
        by_source = tuple(tuple(entries(i, source, ground)) for i, source in enumerate(sources))
        return cls(tuple(sources), ground, by_source, common_references(sources, ground))

    def beside(self, source: Source) -> Gathered:
        """Return these with one more source, as the last. References stay those of the others."""
        added = tuple(entries(len(self.sources), source, self.ground))
        return replace(self, sources=(*self.sources, source), entries=(*self.entries, added))


def combine(
    gathered: Gathered,
    references: Mapping[str, Reference],
    first: int | None = None,
    asked: Workload | None = None,
) -> Combination:
    """Put sources together over the cells of a ground.

    A source's residual spaces count if it weighs their attributes as the references do, or if
    they lie inside the joint cells of other sources; its joint cells count if they fit together
    with those of the other sources that were measured so, those with the largest cost first.

    Where a plan rests on sources, and measures what they don't tell, they fit together only if that
    takes little of a plan's time; and if there are many joint cells, only those of sources that
    tell more of what is asked than the total, and of enough of it.

    Args:
        gathered: what was measured, or will be.
        references: one for every attribute of the ground.
        first: the number of the source whose joint cells go before those of the others.
        asked: in a plan, what is asked.
    """
    sources, ground, by_source = gathered.sources, gathered.ground, gathered.entries
    joint = _joint_attributes(sources, by_source, ground, first, asked)
    common = References.of(references).beside(joint or frozenset())
    inside: list[SpaceEntry] = []
    apart: dict[frozenset[str], list[SpaceEntry]] = defaultdict(list)
    for source, of_source in zip(sources, by_source, strict=True):
        agreement = Agreement(source, ground, common)
        for entry in of_source:
            if joint is not None and entry.attributes <= joint:
                inside.append(entry)
            elif not source.whole and agreement.on(entry.attributes):
                apart[entry.attributes].append(entry)
    parts = _residual_parts(apart, first)
    rest = ResidualReconstruction([part.space for part in parts], common)
    if joint is None:
        return Combination(rest, tuple(parts))
    names = tuple(name for name in ground.sizes if name in joint)
    part = join(inside, names, ground.sizes)
    whole = WholeReconstruction(part.space)
    if not parts and len(names) == len(ground.sizes):
        return Combination(whole, (part,))
    return Combination(MixedReconstruction(whole, rest), (part, *parts))


def _joint_attributes(
    sources: Sequence[Source],
    by_source: Sequence[Sequence[SpaceEntry]],
    ground: Ground,
    first: int | None,
    asked: Workload | None,
) -> frozenset[str] | None:
    """Return the attributes whose joint cells are estimated at once; None if there are none."""
    joint: frozenset[str] | None = None
    most = [JOINT_ENTRIES] * len(sources)
    if asked is not None:
        helps = [i == first or _may_help(s, by_source[i], asked) for i, s in enumerate(sources)]
        most = [PLANNED_ENTRIES if able else 0 for able in helps]
    order = sorted(range(len(sources)), key=lambda i: (i != first, -most[i], -sources[i].cost))
    for i in order:
        if not sources[i].whole or not by_source[i]:
            continue
        wider = (joint or frozenset()) | sources[i].attributes
        if _can_be_joined(wider, by_source, ground, most[i]):
            joint = wider
    return joint


def _may_help(source: Source, spaces: Sequence[SpaceEntry], asked: Workload) -> bool:
    """Whether the joint cells of a source may lower the error of what is asked by a good share."""
    names = frozenset(touched(asked))
    rows = sum(entry.rows for entry in spaces)
    return not names or (bool(names & source.attributes) and rows >= LEAST_SHARE * asked.count)


def _can_be_joined(
    names: frozenset[str], by_source: Sequence[Sequence[SpaceEntry]], ground: Ground, most: int
) -> bool:
    cells = math.prod(ground.sizes[name] for name in names)
    rows = sum(e.rows for of_source in by_source for e in of_source if e.attributes <= names)
    return cells <= JOINT_CELLS or (rows <= MOST_ROWS and rows * cells <= most)


def join(
    inside: Sequence[SpaceEntry], names: tuple[str, ...], sizes: Mapping[str, int]
) -> CombinedPart:
    """Put entries together over the joint cells of some attributes."""
    if len(inside) == 1 and inside[0].space.attributes == names:
        return Kept(inside[0].space, tuple(inside), (1.0,))
    # The normal equations P x̂ = Σ B_kᵀ y_k/σ_k² are as if rows R with RᵀR = P had been measured,
    # with the results R⁺ᵀ Σ B_kᵀ y_k/σ_k² and noise of covariance R⁺ᵀ P R⁺ = I on their span.
    shape = tuple(sizes[name] for name in names)
    placed = tuple((entry, entry.indices(names, sizes)) for entry in inside)
    if are_few(placed, math.prod(shape)):
        rows, inverse = independent_rows(written_out(placed, math.prod(shape)), NEGLIGIBLE)
    else:
        total = precision(placed, math.prod(shape))
        rows, inverse = triangular_root(total) or independent_root(total, NEGLIGIBLE)
    factor = RealFactor(tuple(range(len(names))), shape, Dense(rows, inverse))
    return Joined(Space(names, (factor,), 1.0), placed)


def are_few(placed: Sequence[tuple[SpaceEntry, Ints]], cells: int) -> bool:
    """Whether the rows of some entries are so few that they take less time than cells do."""
    return FEW * sum(entry.rows for entry, _ in placed) <= cells or cells > JOINT_CELLS


def written_out(placed: Sequence[tuple[SpaceEntry, Ints]], cells: int) -> Array:
    """Return the rows B/σ of all entries over the joint cells, whose Gram matrix is P."""
    return np.vstack([np.zeros((0, cells)), *(entry.whitened()[:, at] for entry, at in placed)])


def precision(placed: Sequence[tuple[SpaceEntry, Ints]], cells: int) -> Array:
    """Return P = Σ BᵀB/σ² over the joint cells."""
    total: Array = np.zeros((cells, cells))
    for entry, at in placed:
        total += entry.gram()[np.ix_(at, at)]
    return total


def _residual_parts(
    apart: Mapping[frozenset[str], Sequence[SpaceEntry]], first: int | None
) -> list[CombinedPart]:
    """Put the measurements of each residual space together."""
    parts: list[CombinedPart] = []
    work = 0.0
    for of_space in apart.values():
        alike: dict[object, list[SpaceEntry]] = defaultdict(list)
        for entry in of_space:
            alike[entry.content].append(entry)
        averaged = [_average(same) for same in alike.values()]
        cost = 20.0 * of_space[0].cells ** 3
        if len(averaged) == 1:
            parts += averaged
        elif of_space[0].cells <= DENSE_CELLS and work + cost <= DENSE_WORK:
            work += cost
            parts.append(_joined_space(of_space))
        else:
            parts += _weighted(averaged, first)
    return parts


def _joined_space(of_space: Sequence[SpaceEntry]) -> CombinedPart:
    names = of_space[0].space.attributes
    sizes = {
        of_space[0].space.attributes[axis]: n
        for f in of_space[0].space.factors
        for axis, n in zip(f.axes, f.shape, strict=True)
    }
    return join(of_space, names, sizes)


def _average(same: Sequence[SpaceEntry]) -> Kept:
    """Average measurements of the same rows by inverse variance."""
    if len(same) == 1:
        return Kept(same[0].space, tuple(same), (1.0,))
    precisions = [1 / entry.space.noise for entry in same]
    total = math.fsum(precisions)
    first = same[0].space
    space = Space(first.attributes, first.factors, 1 / total)
    return Kept(space, tuple(same), tuple(p / total for p in precisions))


def _weighted(averaged: Sequence[Kept], first: int | None) -> list[CombinedPart]:
    """Weigh the estimates of one residual space by their overall precision.

    They can be mixed only if each answers all queries. Else one is taken: that of the first
    source, whose queries are the ones to be answered, or the one with the most rows. It may not
    answer all that the others together would, see `determined.missing`.
    """
    full = [part for part in averaged if part.entries[0].full]
    if not full:
        of_first = [part for part in averaged if any(e.source == first for e in part.entries)]
        return [max(of_first or averaged, key=lambda part: part.entries[0].rows)]
    precisions = [1 / _trace(part.space) for part in full]
    total = math.fsum(precisions)
    return [_scaled(part, p / total) for part, p in zip(full, precisions, strict=True)]


def _trace(space: Space) -> float:
    """Return the sum of the variances of all cells of the estimate."""
    norms = (float(f.real.pinv(f.shape).squares().sum()) for f in space.factors)
    return space.noise * math.prod(norms)


def _scaled(part: Kept, weight: float) -> Kept:
    """Take an estimate times a number: so is its noise, squared."""
    space = Space(part.space.attributes, part.space.factors, weight**2 * part.space.noise)
    return Kept(space, part.entries, tuple(weight * w for w in part.weights))


# ── Reconstruction where a few attributes are known jointly and the others by residual spaces ────
#
# Measurements of earlier releases may be of a whole small domain J, whose estimates of the residual
# spaces inside J are correlated. Then everything known about these spaces is one estimate x̂_J over
# the joint cells of J (a `WholeReconstruction`); the other residual spaces have estimates of their
# own. For a query q over the attributes B,
#
#     q(x_B) = q_J(x_{B∩J}) + Σ_{A⊆B, A⊄J} q_A(x_A) ,
#
# where q_J drops the axes of B∖J with their references: the sum of all q_A with A ⊆ J telescopes
# (see `residuals.decompose`). Both parts rest on different measurements, so variances add up.


class MixedReconstruction(CombinedReconstruction):
    """The reconstruction of answers from an estimate over J's cells and other residual spaces."""

    def __init__(self, joint: WholeReconstruction, rest: ResidualReconstruction) -> None:
        self._inside = joint
        self.rest = rest
        """Spaces that are not inside J."""

    @property
    def references(self) -> Mapping[str, Reference]:
        """Attribute → its reference."""
        return self.rest.references

    @property
    def joint(self) -> Space:
        """The space of all joint cells of J."""
        return self._inside.space

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces."""
        return (*self._inside.spaces, *self.rest.spaces)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        inside = [a for a in attributes if a in self._inside.names]
        known = LabeledArray(inside, self._inside.marginal(inside, values)).expand(attributes)
        for name in (a for a in attributes if a not in inside):
            weights = self.references[name].weights
            known = known * LabeledArray((name,), weights).expand(attributes)
        return np.asarray(known + self.rest.marginal(attributes, values))

    def with_total(self) -> Values | None:
        """Return what it is inside of J: the other spaces have no say in the total."""
        total = self._inside.with_total()
        return None if total is None else OnlyIn(total)

    def with_count(self, table: str, condition: Condition | None) -> Values | None:
        """Return the same of a condition on attributes inside of J."""
        count = self._inside.with_count(table, condition)
        return None if count is None else OnlyIn(count)

    def _variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        return np.asarray(
            self._inside.variances(self.joint_part(family)) + self.rest.variances(family)
        )

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Add up: the largest of both parts need not be the same answer's."""
        inside = self._inside.extent(self.joint_part(family), domain)
        rest = self.rest.extent(family, domain)
        return inside[0] + rest[0], inside[1] + rest[1]

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Add up."""
        ours, theirs = (replace(s, family=self.joint_part(s.family)) for s in (first, second))
        inside = self._inside.covariances(ours, theirs, sizes)
        return np.asarray(inside + self.rest.covariances(first, second, sizes))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Look at J, and at every residual space that is not inside."""
        inside = self._inside.missing(self.joint_part(family), domain)
        rest = self.rest.missing(family, domain)
        return (*inside, *(space for space in rest if not set(space) <= set(self._inside.names)))

    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a space; 0 if unknown."""
        known = self._inside if set(space) <= set(self._inside.names) else self.rest
        return known.residual_error(terms, space)

    def joint_part(self, family: Family) -> Family:
        """Return q_J of every query, in the shape of the family."""
        return replace(family, blocks=tuple(self._dropped(block) for block in family.blocks))

    def _dropped(self, block: Block) -> Block:
        """Drop the axes outside of J; a block that has no others becomes a number for each row."""
        names = tuple(a for a in block.attributes if a in self._inside.names)
        if names == block.attributes:
            return block
        if not names:
            return Block((), (), Dense(self.rest.inverses().dropped(block)[:, None]))
        rows = block.queries.matrix.reshape(-1, *block.shape)
        table = LabeledArray(("", *block.attributes), rows)
        for name in (a for a in block.attributes if a not in names):
            table = table.apply(name, Dense(self.references[name].weights[None]))
        tensor = table.project(("", *names))
        return Block(names, tensor.shape[1:], Dense(tensor.reshape(len(tensor), -1)))
