"""Workloads: weighted families of linear queries over marginals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError, WorkloadError
from dpsql.linalg.matrices import Dense, Kronecker, kron
from dpsql.linalg.matrices import StructuredMatrix as Queries
from dpsql.schema.table import closest
from dpsql.workload.checks import check_answers, check_cells, check_sum, check_weight
from dpsql.workload.factors import MAX_CELLS, Factor, Measure, is_factor

EQUAL = 1e-6
"""Weights of rows are equal if they differ by no more than this, relatively."""


@dataclass(frozen=True, slots=True)
class Block:
    """Queries over the joint cells of one or more attributes (cells in C order)."""

    attributes: tuple[str, ...]
    shape: tuple[int, ...]
    queries: Queries
    bound: int | None = None
    """Of the axis of a measure, which has one cell: the largest magnitude of a row's value."""
    center: float = 0.0
    """Of such an axis: what a row that has a value counts in answers besides it."""
    rows: int = 1
    """Of such an axis: how many rows of one unit count at most, if its table is one of several."""
    of_units: bool = False
    """Of such an axis: whether units are counted, each in `rows` cells of the other attributes at
    most."""
    of_rows: bool = False
    """Of such an axis: whether each row adds 1, as in counts of one of several tables. Else what it
    adds may be negative, too, even if the bound is 1."""


@dataclass(frozen=True, slots=True)
class Family:
    """The Kronecker product of its blocks' queries, all with one weight.

    The blocks touch disjoint attributes. Query (i_1, …, i_k) is the product of row i_1 of the
    first block, row i_2 of the second, and so on; answers have shape `shape`. The product is
    never written out.
    """

    name: str
    blocks: tuple[Block, ...]
    weight: float
    hidden: frozenset[int] = frozenset()
    """Numbers of blocks whose last row is asked for the sake of later questions only, and is not
    shown in answers."""
    present: Family | None = None
    """Of sums around a center: counts of the rows that have a value, for which the center is put
    back. Its blocks are those of the sums, in their order, but for blocks of a single row. None:
    all rows that `counted` counts have one."""

    @property
    def shown(self) -> Family:
        """The queries whose answers are shown."""
        if not self.hidden:
            return self
        rows = [slice(0, n - (i in self.hidden)) for i, n in enumerate(self.shape)]
        box = self.box(rows)
        present = None if box.present is None else replace(box.present, hidden=frozenset())
        return replace(box, hidden=frozenset(), present=present)

    @property
    def measure(self) -> Block | None:
        """The block of what is added up; None if rows are counted."""
        for block in self.blocks:
            if block.bound is not None:
                return block
        return None

    @property
    def counted(self) -> Family:
        """The same queries of counts, if a measure is added up, which count in its unit."""
        kept = [i for i, block in enumerate(self.blocks) if block.bound is None]
        hidden = frozenset(place for place, i in enumerate(kept) if i in self.hidden)
        own = tuple(self.blocks[i] for i in kept)
        return replace(self, blocks=own, hidden=hidden, present=None)

    @property
    def unit(self) -> float:
        """What the answers to `counted` are multiplied by: the unit of the measure."""
        return 1.0 if self.measure is None else float(self.measure.queries.matrix[0, 0])

    @property
    def center(self) -> float:
        """What the answers to `restored` are multiplied by and added."""
        return 0.0 if self.measure is None else self.measure.center

    @property
    def restored(self) -> Family:
        """Counts of the rows for which the center is put back, with a row for each of the sums."""
        return self.counted if self.present is None else self.present

    @property
    def rests_on(self) -> tuple[Family, ...]:
        """The families of which the answers are made: itself, and what is restored to it."""
        return (self, self.restored) if self.center else (self,)

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes that the queries touch, block by block."""
        return tuple(a for block in self.blocks for a in block.attributes)

    @property
    def attributes(self) -> frozenset[str]:
        """The same as a set."""
        return frozenset(self.names)

    @property
    def queries(self) -> Kronecker:
        """The queries over the joint cells of their attributes, as `names` has them."""
        return Kronecker(block.queries for block in self.blocks)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of queries along each block."""
        return tuple(block.queries.rows for block in self.blocks)

    @property
    def count(self) -> int:
        """The number of queries."""
        return math.prod(self.shape)

    def part(self, start: int, stop: int) -> Family:
        """Return the queries with the rows from `start` to before `stop` of the first block."""
        return self.box((slice(start, stop),)) if self.blocks else self

    def box(self, rows: Sequence[slice]) -> Family:
        """Return the queries with some rows of each block; all of those that `rows` leaves out."""
        cut = [
            replace(block, queries=block.queries.between(chosen.start, chosen.stop))
            for block, chosen in zip(self.blocks, rows, strict=False)
        ]
        present = None if self.present is None else self.present.box(rows)
        return replace(self, blocks=(*cut, *self.blocks[len(cut) :]), present=present)

    def parts(self, size: int) -> Iterator[Family]:
        """Split the family into families of at most `size` queries, 1 or more, in C order."""
        yield from (self.box(rows) for rows in boxes(self.shape, size))

    def written_out(self) -> NDArray[np.float64]:
        """Write the queries out over the joint cells of their attributes, in the blocks' order."""
        return kron(block.queries.matrix for block in self.blocks)

    def joined(self) -> Family:
        """Return the same queries, in the same order, as one block over all attributes."""
        shape = tuple(n for block in self.blocks for n in block.shape)
        one = Block(self.names, shape, Dense(self.written_out()))
        return replace(self, blocks=(one,), hidden=frozenset())

    def emphasised(self, weights: Sequence[NDArray[np.float64]]) -> Family:
        """Return the queries with further weights: the product of one for the row of each block.

        A query has its weight as a factor, its root, since errors are of its square; what all of
        a block have in common goes to the weight of the family.

        Args:
            weights: one positive number for each row, for each block.
        """
        if not self.count:
            return self
        blocks, weight = [], self.weight
        for block, own in zip(self.blocks, weights, strict=True):
            mean = float(own.mean())
            weight *= mean
            queries = block.queries
            if own.max() > own.min() * (1 + EQUAL):
                queries = Dense(np.sqrt(own / mean)[:, None] * queries.matrix)
            blocks.append(replace(block, queries=queries))
        present = self.present
        if present is not None:
            ones = [np.ones(n) for n in present.shape[len(weights) :]]
            present = present.emphasised([*weights[: len(present.blocks)], *ones])
        return replace(self, blocks=tuple(blocks), weight=weight, present=present)

    def check_held(self) -> None:
        """Refuse to hold all answers at once, where they are too many.

        Raises:
            ResourceLimitError: there are more than 67,108,864.
        """
        check_held(self.name, self.count)


def check_held(name: str, count: int) -> None:
    """Refuse to hold too many answers at once, by their number alone."""
    if count > MAX_CELLS:
        raise ResourceLimitError(
            f"{name!r} has {count:,} answers; at most {MAX_CELLS:,} are held at once.",
            hint="take them in batches; for their errors, see expected_error().",
        )


def boxes(shape: Sequence[int], size: int) -> Iterator[tuple[slice, ...]]:
    """Split the places of an array into boxes of at most `size`, 1 or more, in C order.

    What a box holds is one piece of the flattened array.
    """
    if not shape:
        yield ()
        return
    first, *others = shape
    rest = math.prod(others)
    step = max(1, size // max(1, rest))
    for start in range(0, first, step):
        here = slice(start, min(start + step, first))
        if rest <= size:
            yield (here, *(slice(0, n) for n in others))
        else:
            yield from ((here, *inner) for inner in boxes(others, size))


class Workload:
    """Linear queries over a table whose attributes have public sizes.

        w = Workload({"age": 100, "sex": 2})
        w.add(["age", "sex"], [Prefix(), Identity()])      # one factor per attribute
        w.add([("age", "sex")], [Matrix(q)], weight=2.0)   # one matrix over joint cells
        w.add(["age", "sex"], Matrix(q), weight=2.0)       # the same, shorter

    Nothing here ever has the size of the full domain.
    """

    def __init__(self, domain: Mapping[str, int]) -> None:
        for name, size in domain.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise WorkloadError(
                    f"The size of {name!r} is {size!r}.", hint="sizes are whole numbers from 1."
                )
        self._domain = MappingProxyType(dict(domain))
        self._families: list[Family] = []
        self._count = 0

    @classmethod
    def of(cls, domain: Mapping[str, int], families: Iterable[Family]) -> Workload:
        """Return the workload of families that were made for this domain."""
        workload = cls(domain)
        workload._families = list(families)
        workload._count = sum(family.count for family in workload._families)
        return workload

    @property
    def domain(self) -> Mapping[str, int]:
        """Attribute → number of cells, in declaration order."""
        return self._domain

    @property
    def families(self) -> tuple[Family, ...]:
        """The families in the order in which they were added."""
        return tuple(self._families)

    def copy(self) -> Workload:
        """Return a workload of its own with the same families."""
        return Workload.of(self._domain, self._families)

    def weighted(self, weights: Sequence[float | None]) -> Workload:
        """Return the families with other weights, in order, without those whose weight is None.

        Raises:
            WorkloadError: a weight is not a positive finite number.
        """
        pairs = zip(self._families, weights, strict=True)
        return Workload.of(
            self._domain,
            [replace(f, weight=check_weight(weight)) for f, weight in pairs if weight is not None],
        )

    def check_cells(self) -> None:
        """Refuse to count and hold all marginals at once, where these are too large together.

        Raises:
            ResourceLimitError: they have more cells than the data owner allows.
        """
        marginals = {
            (f.counted.attributes, f.measure and f.measure.attributes) for f in self._families
        }
        sizes = (math.prod(self._domain[name] for name in names) for names, _ in marginals)
        check_sum(sum(sizes))

    @property
    def count(self) -> int:
        """The number of queries in all families."""
        return self._count

    def add(
        self,
        attributes: Sequence[str | Sequence[str]],
        factors: Factor | Sequence[Factor],
        weight: float = 1.0,
        *,
        name: str | None = None,
        hidden: Iterable[int] = (),
        present: Family | None = None,
    ) -> Workload:
        """Add one family of queries.

        Args:
            attributes: the attributes that the queries touch; a group of attributes in a tuple
                shares one factor over its joint cells. Empty for the total.
            factors: one factor per entry of `attributes`, or a single one over all of them.
            weight: the importance of each query, positive and finite.
            name: a label for reports; the attributes' names by default.
            hidden: the entries of `attributes` whose last row is not shown in answers.
            present: of a `Measure` with a center, counts of the rows that have a value, see
                `Family`.

        Returns:
            The workload itself, so that calls can be chained.

        Raises:
            WorkloadError: an unknown or repeated attribute, a wrong number of factors, a matrix
                of the wrong width, a weight that is not positive and finite.
            ResourceLimitError: the marginal, a factor or the answers are too large, as the sizes
                alone show.
        """
        groups, factors = _grouped(attributes, factors)
        flat = [a for group in groups for a in group]
        self._check_attributes(flat)
        label = name if name is not None else " x ".join(flat) or "total"
        check_cells(label, math.prod(self._domain[a] for a in flat))
        blocks = tuple(
            self._bind(group, factor) for group, factor in zip(groups, factors, strict=True)
        )
        family = Family(label, blocks, check_weight(weight), frozenset(hidden), present)
        _check_present(family)
        check_answers(label, self._count + family.count)
        self._families.append(family)
        self._count += family.count
        return self

    def _check_attributes(self, attributes: list[str]) -> None:
        for attribute in attributes:
            if attribute not in self._domain:
                raise WorkloadError(
                    f"There is no attribute {attribute!r} in the domain.",
                    hint=closest(str(attribute), self._domain),
                )
        if len(set(attributes)) != len(attributes):
            raise WorkloadError(
                "An attribute is used twice in one family.",
                hint="put both conditions into one Matrix over that attribute.",
            )

    def _bind(self, attributes: tuple[str, ...], factor: Factor) -> Block:
        if not is_factor(factor):
            raise WorkloadError(f"{factor!r} is not a query factor.", hint="for example Prefix().")
        shape = tuple(self._domain[a] for a in attributes)
        queries = factor.bind(math.prod(shape))
        if isinstance(factor, Measure):
            of = (factor.bound, factor.center, factor.rows, factor.of_units)
            return Block(attributes, shape, queries, *of)
        return Block(attributes, shape, queries)


def _grouped(
    attributes: Sequence[str | Sequence[str]], factors: Factor | Sequence[Factor]
) -> tuple[list[tuple[str, ...]], Sequence[Factor]]:
    """Pair groups of attributes with factors; a single factor is over all attributes jointly."""
    groups = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in attributes]
    if not isinstance(factors, Sequence):
        if not is_factor(factors):
            raise WorkloadError(f"{factors!r} is not a query factor.", hint="for example Prefix().")
        groups = [tuple(a for group in groups for a in group)] if groups else []
        factors = [factors] if groups else []
    if len(groups) != len(factors):
        raise WorkloadError(
            f"There are {len(groups)} attributes but {len(factors)} factors.",
            hint="give one factor per attribute, or a single Matrix over all of them.",
        )
    return groups, factors


def _check_present(family: Family) -> None:
    if family.present is None:
        return
    pairs = zip_longest(family.shape, family.present.shape, fillvalue=1)
    if not family.center or any(one != other for one, other in pairs):
        raise WorkloadError(
            f"The counts that go with the sums {family.name!r} are of other groups.",
            hint="give them the same blocks, or blocks of one row, in the same order.",
        )
