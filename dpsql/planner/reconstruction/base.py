"""The interface of reconstructions, by which answers follow from the measurements of a plan.

Whatever is measured, and however answers are put together from it, they are linear in the noisy
measurements and unbiased. All that is told of them follows from that: values, variances,
covariances, and which queries the measurements don't determine. Each way is a class of its own;
whoever uses one doesn't ask which.

Families whose answers are compared row by row are laid along common base axes (`Aligned`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError, ResourceLimitError
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import MAX_ENTRIES, Dense
from dpsql.linalg.threads import one_thread
from dpsql.measurement.differences import Condition
from dpsql.planner.reconstruction.measured import Noisy, Space, Values, read
from dpsql.planner.reconstruction.sources import RESIDUALS, Reading
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.structure import Product
from dpsql.workload import Block, Family, Queries, Workload
from dpsql.workload.workload import check_held

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
    told = [axis for axes in aligned.axes for axis in axes]
    single = [axis for axis, size in enumerate(sizes) if size == 1 and axis not in told]
    rows = [math.prod(sizes[axis] for axis in axes) for axes in aligned.axes]
    if sorted([*told, *single]) != list(range(len(sizes))) or rows != list(aligned.family.shape):
        raise InternalError("the blocks of a family do not fit the rows of its statement")


def cut_blocks(
    blocks: Sequence[Block],
    axes: Sequence[Axes],
    box: Sequence[slice],
    sizes: Sequence[int],
) -> tuple[Block, ...]:
    """Take the rows of each block that lie in a box."""
    cut = []
    for block, places in zip(blocks, axes, strict=True):
        numbers = np.arange(block.queries.rows).reshape([sizes[a] for a in places])
        chosen = numbers[tuple(box[a] for a in places)].ravel()
        cut.append(replace(block, queries=taken(block.queries, chosen)))
    return tuple(cut)


def taken(queries: Queries, rows: Ints) -> Queries:
    """Return the queries of these numbers; themselves, if these are all."""
    whole = len(rows) == queries.rows and (rows == np.arange(len(rows))).all()
    return queries if whole else queries.take(rows)


def placed(values: NDArray[Any], axes: Sequence[int], sizes: Sequence[int]) -> NDArray[Any]:
    """Lay rows in the C order of some base axes along them; the others are 1 long."""
    along = LabeledArray(axes, values.reshape([sizes[a] for a in axes]))
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


Missing = tuple[tuple[str, ...], ...]
"""Attribute sets of which too little was measured."""

LARGE = 2**22
"""Answers up to which all variances are computed."""
CHUNK = 2**24
"""Coefficients of combinations that are held at once."""


class Reconstruction(ABC):
    """The way in which answers follow from measurements, and how exact they are."""

    reading: Reading = RESIDUALS
    """The way to read the measurements once they are kept; see `Source`."""
    whole = False
    """Whether joint cells were measured at once, by the best strategy of all for them."""

    @property
    @abstractmethod
    def spaces(self) -> tuple[Space, ...]:
        """The measured spaces: the keys of `values`."""

    @property
    def references(self) -> Mapping[str, Reference]:
        """Attribute → the reference of its residual spaces; none if there are no such spaces."""
        return {}

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of, from the noisy integers of every space."""
        return read(self.spaces, noisy)

    @abstractmethod
    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes: shape (cells of the first, …)."""

    def with_total(self) -> Values | None:
        """Return the covariance of each measurement with the total; None if that isn't known.

        As answers are linear, what follows from these numbers in place of measurements is the
        covariance of each answer with the total.
        """
        return None

    def with_count(self, table: str, condition: Condition | None) -> Values | None:
        """Return the same for the number of rows of a table that satisfy a condition, if any."""
        return self.with_total() if condition is None else None

    @property
    def by_table(self) -> Reconstruction:
        """The same, as if answers about different tables had independent noise.

        What they have in common is apart: see `leans` and `in_common`.
        """
        return self

    def leans(self, family: Family) -> Mapping[str, Array]:
        """Return count that is compared → covariances of answers with it, in the family's shape."""
        return {}

    def saved(self, workload: Workload) -> float:
        """Return by how much the sum of weight·variance is less for differences of totals."""
        return 0.0

    def in_common(self, leans: Mapping[str, Array]) -> Array:
        """Return what is added to the variance by `by_table` of values that lean so."""
        return np.zeros(())

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Where there are none, a family may be about what nothing was measured of.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        return self._variances(family) if family.count else np.zeros(family.shape)

    @abstractmethod
    def _variances(self, family: Family) -> Array:
        """Return the same for a family of one answer at least."""

    def extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Return the sum of a family's variances, and the largest.

        Up to 4,194,304 answers both are exact. Beyond, the sum is, and the largest is exact for
        blocks that are measured by factors of their own with few different rows, such as ranges;
        else it is an upper bound. So it is where earlier measurements are put together with new
        ones.
        """
        if family.count > LARGE:
            return self._large_extent(family, domain)
        variances = self.variances(family)
        return float(variances.sum()), float(variances.max(initial=0.0))

    def total(self, workload: Workload) -> float:
        """Return the sum of weight·variance over all answers to a workload."""
        return math.fsum(
            f.weight * self.extent(f, workload.domain)[0] for f in workload.families if f.count
        )

    @abstractmethod
    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Return the same for any number of answers; the largest may be an upper bound."""

    def covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Return the covariance of the two answers in each row.

        Args:
            first: one answer for each row.
            second: another one.
            sizes: how many rows there are along each base axis.

        Returns:
            The covariances, of shape `sizes`.

        Raises:
            ResourceLimitError: there are too many rows, or something in between is too large. That
                depends on public sizes alone.
        """
        check_aligned(first, sizes)
        check_aligned(second, sizes)
        check_held("A covariance", math.prod(sizes))
        return self._covariances(first, second, sizes) if math.prod(sizes) else np.zeros(sizes)

    @abstractmethod
    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Return the same for rows that fit; there is at least one."""

    def combined_variances(
        self, terms: Sequence[tuple[Family, Array]], domain: Mapping[str, int]
    ) -> Array:
        """Return the variance of each of k combinations of answers, of shape (k,).

        Args:
            terms: families with coefficients of shape (k, number of answers), answers in C order.
            domain: attribute → number of cells.

        Raises:
            ResourceLimitError: the attributes of all terms have more than 16,777,216 joint cells.
        """
        touched = frozenset[str]().union(*(family.attributes for family, _ in terms))
        names = tuple(name for name in domain if name in touched)
        shape = tuple(domain[name] for name in names)
        cells = math.prod(shape)
        if cells > MAX_ENTRIES:
            raise ResourceLimitError(
                f"A combination touches {cells:,} joint cells; the limit is {MAX_ENTRIES:,}.",
                hint="combine answers over fewer columns, or over coarser domains.",
            )
        counts = {len(coefficients) for _, coefficients in terms}
        if len(counts) != 1:
            raise InternalError("the terms of a combination have different numbers of rows")
        (k,) = counts
        step = max(1, CHUNK // cells)
        result = np.zeros(k)
        for start in range(0, k, step):
            rows = np.zeros((min(step, k - start), *shape))
            for family, coefficients in terms:
                rows += _over_cells(family, coefficients[start : start + step], names)
            joint = Block(names, shape, Dense(rows.reshape(len(rows), -1)))
            result[start : start + step] = self.variances(Family("combination", (joint,), 1.0))
        return result

    @abstractmethod
    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Return the attribute sets of which too little was measured to answer a family.

        None are returned if every query of the family follows from the measurements.
        """


class CombinedReconstruction(Reconstruction):
    """A reconstruction from measurements that may be of several releases, put together."""

    @property
    def joint(self) -> Space | None:
        """The space of the attributes whose joint cells are estimated at once, if any."""
        return None

    def joint_part(self, family: Family) -> Family:
        """Return what queries ask of these attributes' joint cells, in the shape of the family."""
        return family

    @abstractmethod
    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a residual space.

        It is 0 if the measurements don't determine that.
        """


def touched_by(family: Family, domain: Mapping[str, int]) -> tuple[str, ...]:
    """Return the attributes of a family in the order of the domain."""
    return tuple(name for name in domain if name in family.attributes)


def _over_cells(family: Family, coefficients: Array, names: Sequence[str]) -> Array:
    """Turn rows of coefficients into queries over cells, to be spread over all of `names`."""
    flat = np.asarray(coefficients, dtype=np.float64).reshape(-1, family.count)
    cells = (flat @ family.queries).reshape(-1, *(n for b in family.blocks for n in b.shape))
    return LabeledArray(("", *family.names), cells).expand(("", *names))


EXPECTED = {
    "statement": pl.String(),
    "rows": pl.Int64(),
    "rmse": pl.Float64(),
    "worst_standard_error": pl.Float64(),
}
"""The columns of `Plan.expected_error`."""


@dataclass(slots=True)
class _Error:
    """Sums over the variances of a statement."""

    rows: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, rows: int, total: float, largest: float) -> None:
        self.rows += rows
        self.total += total
        self.largest = max(self.largest, largest)


@one_thread
def error_table(reconstruction: Reconstruction, workload: Workload) -> pl.DataFrame:
    """Return the error of each statement; see `Plan.expected_error`."""
    table: dict[str, _Error] = {}
    for family in (family.shown for family in workload.families):
        error = table.setdefault(family.name, _Error())
        error.add(family.count, *reconstruction.extent(family, workload.domain))
    return pl.DataFrame(
        {
            "statement": list(table),
            "rows": [e.rows for e in table.values()],
            "rmse": [math.sqrt(e.total / e.rows) if e.rows else 0.0 for e in table.values()],
            "worst_standard_error": [math.sqrt(e.largest) for e in table.values()],
        },
        schema=EXPECTED,
    )
