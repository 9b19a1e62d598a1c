"""Workloads: weighted families of linear queries over marginals."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ArgumentError, ResourceLimitError, WorkloadError, shown
from dpsql.hints import Hint
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense, Kronecker, kron
from dpsql.linalg.matrices import StructuredMatrix as Queries
from dpsql.schema.names import as_sql, closest
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
    """The bound of the axis of a measure, which has one cell: the largest magnitude of a row's
    value."""
    center: float = 0.0
    """The center of such an axis: what a row that has a value counts in answers besides it."""
    rows: int = 1
    """The most rows of one unit that count along such an axis, if its table is one of several."""
    of_units: bool = False
    """Whether units are counted along such an axis, each in `rows` cells of the other attributes at
    most."""
    of_rows: bool = False
    """Whether each row adds 1 along such an axis, as in counts of one of several tables. Else what
    it adds may be negative, too, even if the bound is 1."""


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
    """Counts of the rows that have a value, of sums around a center, which is put back for these.
    Its blocks are those of the sums, in their order, but for blocks of a single row. None: all rows
    that `counted` counts have one."""

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
        blocks = tuple(self.blocks[i] for i in kept)
        return replace(self, blocks=blocks, hidden=hidden, present=None)

    @property
    def unit(self) -> float:
        """The factor of the answers to `counted`: the unit of the measure."""
        return 1.0 if self.measure is None else float(self.measure.queries.matrix[0, 0])

    @property
    def center(self) -> float:
        """The factor of the answers to `restored`, which are then added."""
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
        joint = Block(self.names, shape, Dense(self.written_out()))
        return replace(self, blocks=(joint,), hidden=frozenset())

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
        for block, factors in zip(self.blocks, weights, strict=True):
            mean = float(factors.mean())
            weight *= mean
            queries = block.queries
            if factors.max() > factors.min() * (1 + EQUAL):
                queries = Dense(np.sqrt(factors / mean)[:, None] * queries.matrix)
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
    if not family.center or any(cell != other for cell, other in pairs):
        raise WorkloadError(
            f"The counts that go with the sums {family.name!r} are of other groups.",
            hint="give them the same blocks, or blocks of one row, in the same order.",
        )


# ── Checks: sizes, as numbers alone show them, and weights ───────────────────────────────────────


MAX_ANSWERS = 2**62
"""Answers of one workload. Of one family, up to `MAX_CELLS` can be held at once."""
MAX_SUM = 2**27
"""Cells of all marginals of a request, if the data owner doesn't say otherwise: 16 bytes each."""
VARIABLE = "DPSQL_MAX_CELLS"
"""Says otherwise, in the environment: how many fit is a matter of the computer, not of a call."""


def check_sum(cells: int) -> None:
    """Refuse marginals that have too many cells together: all of them are counted and held.

    Raises:
        ResourceLimitError: they have; nothing is charged then.
        ArgumentError: what the environment says is no number of cells.
    """
    most = _most_cells()
    if cells > most:
        raise ResourceLimitError(
            f"The marginals that are asked have {cells:,} cells together; the limit is {most:,}.",
            hint="ask for fewer or coarser groups at once. Or, with "
            f"{math.ceil(cells * 16 / 1e9):,} GB of memory for them, "
            + Hint(
                f'raise it before you ask: os.environ["{VARIABLE}"] = "{cells}".',
                f"raise it in front of the command: {VARIABLE}={cells} dpsql …",
                f"raise it before you ask: %env {VARIABLE}={cells}",
            ),
        )


def _most_cells() -> int:
    said = os.environ.get(VARIABLE, str(MAX_SUM))
    if not (said.isascii() and said.isdigit() and 0 < len(said) < 19):
        raise ArgumentError(
            f"{VARIABLE} in the environment is no number of cells: {shown(said)}.",
            hint=f"for example {VARIABLE}={MAX_SUM}.",
        )
    return int(said)


def check_cells(label: str, count: int) -> None:
    """Refuse a marginal with too many cells."""
    if count > MAX_CELLS:
        raise ResourceLimitError(
            f"{label!r} has {count:,} cells of its marginal; the limit is {MAX_CELLS:,}.",
            hint="use fewer attributes, or coarser domains.",
        )


def check_answers(label: str, count: int) -> None:
    """Refuse too many answers of one workload."""
    if count > MAX_ANSWERS:
        raise ResourceLimitError(
            f"With {label!r} there are {count:,} answers; the limit is {MAX_ANSWERS:,}.",
            hint="ask for fewer ranges at once.",
        )


def check_weight(weight: float) -> float:
    """Return a weight as a float.

    Raises:
        WorkloadError: it is no positive finite number, or out of range.
    """
    message = f"The weight {weight!r} is not a positive finite number."
    hint = "weights between 1e-9 and 1e9 say how much a family matters."
    if isinstance(weight, (bool, str, bytes, complex)):
        raise WorkloadError(message, hint=hint)
    try:
        value = float(weight)
    except (TypeError, ValueError):
        raise WorkloadError(message, hint=hint) from None
    if not 1e-9 <= value <= 1e9:
        raise WorkloadError(message, hint=hint)
    return value


# ── A workload over the joint cells of the attributes that it touches ────────────────────────────


Groups = dict[frozenset[str], list[Family]]
"""Families by the set of their attributes."""


def touched(workload: Workload) -> tuple[str, ...]:
    """Return the attributes that the families touch, in domain order."""
    used: set[str] = set()
    for family in workload.families:
        if len(used) == len(workload.domain):
            break  # often the first few of very many touch them all
        if family.count:
            used.update(family.names)
    return tuple(name for name in workload.domain if name in used)


def by_attributes(families: Iterable[Family]) -> Groups:
    """Group the families that have any queries by their attributes, as these come."""
    groups: Groups = {}
    for family in families:
        if family.count:
            groups.setdefault(family.attributes, []).append(family)
    return groups


def joint_cells(workload: Workload) -> int:
    """Return the number of joint cells of the touched attributes."""
    return math.prod(workload.domain[name] for name in touched(workload))


def gram(workload: Workload, names: Sequence[str]) -> Array:
    """Return Σ weight · QᵀQ over the joint cells."""
    total: Array = np.zeros(())
    for family in workload.families:
        if not family.count:
            continue
        others = [name for name in names if name not in family.attributes]
        whole = (np.ones((workload.domain[name],) * 2) for name in others)
        product = kron([*(block.queries.gram() for block in family.blocks), *whole])
        order = [*family.names, *others]
        # Both sides' axes are brought into one order.
        sides = [(side, name) for side in (0, 1) for name in order]
        sizes = {key: workload.domain[key[1]] for key in sides}
        table = LabeledArray.of(sides, sizes, product)
        ordered = table.transpose([(side, name) for side in (0, 1) for name in names])
        total = total + family.weight * ordered.reshape(product.shape)
    return total


def written_out(workload: Workload, names: Sequence[str]) -> Array:
    """Write all queries out over the joint cells, with their weights folded in."""
    families = [f for f in workload.families if f.count]
    sizes = workload.domain
    return np.vstack([math.sqrt(f.weight) * spread_out(f, names, sizes) for f in families])


def spread_out(family: Family, names: Sequence[str], sizes: Mapping[str, int]) -> Array:
    """Write a family's queries out over the joint cells: shape (queries, cells)."""
    written = family.written_out().reshape(-1, *(sizes[name] for name in family.names))
    spread = LabeledArray(("", *family.names), written).expand(("", *names))
    full = np.broadcast_to(spread, (len(written), *(sizes[name] for name in names)))
    return full.reshape(len(written), -1)


# ── Several tables in one workload, whose rows are of the same privacy units ─────────────────────
#
#     orders.status    the column `status` of the table `orders`
#     orders           an axis of one cell, along which the rows of `orders` are counted
#
# Statements over one table ask nothing of another, and columns of two tables may have one name. So
# what is asked of each table has names and an axis of its own, as what is added up has: a table is
# planned as a measure is, to which every row adds 1 (see `planner.mechanisms.measures`). And a unit
# is one record then, which has up to k rows in the table: its errors are divided by k, in the total
# that a plan makes small, as those of sums are by the largest value of a row. Otherwise the table
# with the largest k would have nearly all of the budget.


@dataclass(frozen=True, slots=True)
class UnitTable:
    """One of several tables, as attributes of a workload name it."""

    name: str
    """Also the axis of its counts. No other table has it, nor does any attribute begin with it and
    a dot that is of another table; see `named`."""
    rows: int
    """The most rows of one unit that count."""

    def attribute(self, own: str) -> str:
        """Return what a column of the table, or a measure, is called among several tables."""
        return f"{self.name}.{own}"

    def own(self, attribute: str) -> str | None:
        """Return what an attribute is called in the table; None if it is of another one."""
        before, attribute_there = attribute[: len(self.name) + 1], attribute[len(self.name) + 1 :]
        return attribute_there if before == f"{self.name}." else None

    def renamed(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the domain of a workload over the table, with the axis of its counts."""
        return {**{self.attribute(name): n for name, n in sizes.items()}, self.name: 1}

    def family(self, family: Family) -> Family:
        """Return a family of queries over the table as one among several tables.

        Counts get the axis of the table's counts, as their last block; sums have one of their own.
        What is restored to sums is counts, so it gets that axis, too.
        """
        blocks = tuple(map(self._block, family.blocks))
        present = None
        if family.present is not None:
            present = self.family(family.present)
        elif family.center:
            kept = (self._counts if b.bound is not None else b for b in blocks)
            present = replace(family, blocks=tuple(kept))
        if family.measure is None:
            blocks = (*blocks, self._counts)
        return replace(family, blocks=blocks, present=present)

    def _block(self, block: Block) -> Block:
        names = tuple(map(self.attribute, block.attributes))
        if block.of_units:  # it says itself in how many groups a unit is, whatever rows it has
            return replace(block, attributes=names)
        return replace(block, attributes=names, rows=1 if block.bound is None else self.rows)

    @property
    def _counts(self) -> Block:
        """The block of the table's counts."""
        axis = Measure(1).bind(1)
        return Block((self.name,), (1,), axis, bound=1, rows=self.rows, of_rows=True)


def named(tables: Iterable[str]) -> tuple[str, ...]:
    """Name tables so that no two attributes of different tables have one name.

    A name is written as SQL has it: bare, or in quotes if there are dots or spaces in it. So the
    first dot outside of quotes ends it. Of tables that are called alike (in two schemas) the second
    has its number behind it, after a space.
    """
    names: list[str] = []
    for table in map(as_sql, tables):
        numbered = (table if n == 1 else f"{table} {n}" for n in range(1, len(names) + 2))
        names.append(next(name for name in numbered if name not in names))
    return tuple(names)


def over_all(
    parts: Sequence[tuple[UnitTable, Workload]], weights: Sequence[Sequence[float]]
) -> Workload:
    """Put workloads over single tables together.

    Args:
        parts: each table, and what is asked of it.
        weights: those of its families, for each table.
    """
    domain: dict[str, int] = {}
    for table, workload in parts:
        domain |= table.renamed(workload.domain)
    return Workload.of(domain, _families(parts, weights))


def _families(
    parts: Sequence[tuple[UnitTable, Workload]], weights: Sequence[Sequence[float]]
) -> Iterator[Family]:
    for (table, workload), family_weights in zip(parts, weights, strict=True):
        for family, weight in zip(workload.families, family_weights, strict=True):
            yield replace(table.family(family), weight=weight / table.rows**2)


# ── Cells that are merged: which cell of a coarser domain each cell falls into ───────────────────


def refined(known: Ints, signatures: Ints) -> Ints:
    """Split classes by further signatures, and number them by their first cells."""
    joint = known * (signatures.max(initial=0) + 1) + signatures
    _, first, inverse = np.unique(joint, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return np.asarray(order[inverse])


def common_refinement(classes: Iterable[Ints]) -> Ints:
    """Return the coarsest classes that are at least as fine as all of the given ones."""
    first, *others = classes
    result = refined(np.zeros_like(first), first)
    for other in others:
        result = refined(result, other)
    return result


def coarsening(fine: Ints, coarse: Ints) -> Ints | None:
    """Return the coarse class of each fine class; None if a fine class lies in several.

    Args:
        fine: the class of each cell, numbered from 0 without gaps.
        coarse: other classes of the same cells.
    """
    _, first = np.unique(fine, return_index=True)
    classes = coarse[first]
    return classes if (classes[fine] == coarse).all() else None
