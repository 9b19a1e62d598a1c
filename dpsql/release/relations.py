"""The rows of one of a release's tables, as the release tells of them: tables of its columns.

A column can be made up if rows were counted by it and its values are known: if it has a domain. It
is looked at over the cells that measurements tell apart; see `synthesis` for the values within.

Tables are those of `reconstruction.cellwise`, or, of a release that chose what to measure by the
data, those by which it was answered. Where measurements say something of a pair of columns but not
all, as conditions do, its table is the one that fits best what was measured of them, see
`answers.adjusted`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpsql.answers.adjusted import Observation, fit_table
from dpsql.answers.sources import by_itself, identity_of
from dpsql.errors import UndeterminedError, printable
from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.mechanisms.aim_rounds import (
    FittedMarginals,
    LinearMarginals,
    Residual,
    residual_of,
)
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.planner.reconstruction.cellwise import (
    Attributes,
    CellwiseTables,
    EntropyTables,
    Table,
    Unbiased,
    prior_variances,
)
from dpsql.planner.reconstruction.measured import Values
from dpsql.planner.reconstruction.sources import (
    Ground,
    Source,
    along,
    common_cuts,
    entries,
    lies_on,
    of_table,
)
from dpsql.planner.reuse.past import Past, alone, put_together
from dpsql.schema import Table as RowTable
from dpsql.workload import Workload

MAX_KEPT = 1 << 26
"""Cells of tables of pairs that are kept, of all pairs: 512 MiB."""
MAX_FITTED = 1 << 16
"""Joint cells of columns of which something was measured, but not all."""
NOT_COUNTED = "rows were not counted by it"
NO_DOMAIN = "it has no domain: its values are not known"
COMPUTED = "it is computed from each row, and is not a column"


@dataclass(frozen=True, eq=False)
class ReleasedRelation:
    """One table of a release, as far as rows of it can be made up."""

    table: RowTable
    sources: tuple[Source, ...]
    """Measurements of it, along one set of cuts."""

    @classmethod
    def of(cls, table: RowTable, sources: Sequence[Source]) -> ReleasedRelation:
        """Take what was measured of a table."""
        own = [by_itself(source) for source in of_table(sources, identity_of(table))]
        filtered = frozenset[str]().union(*(source.guards for source in own))
        cuts = common_cuts(own, {})
        together = tuple(along(source, cuts) for source in own if lies_on(source, cuts))
        return cls(replace(table, enforced=table.enforced | filtered), together)

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """Column → why it isn't made up."""
        counted = self._counted
        return {
            **{
                n: NOT_COUNTED
                for n in self.table.columns
                if self._is_column(n) and n not in counted
            },
            **{n: COMPUTED for n in sorted(counted) if not self._is_column(n)},
            **{n: NO_DOMAIN for n in self.table.undeclared if n in self.table.alone.undeclared},
        }

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that are made up, in the order of the table."""
        return tuple(n for n in self.table.columns if self._is_column(n) and n in self._counted)

    @cached_property
    def classes(self) -> Mapping[str, Ints]:
        """Column → the cell, among those that are told apart, of each cell of its domain."""
        merged = self._ground.merged
        return {n: merged.get(n, np.arange(self.table.cells(n))) for n in self.columns}

    @cached_property
    def tables(self) -> EntropyTables:
        """Tables of the columns that have several cells.

        Raises:
            UndeterminedError: it isn't known how many rows there are.
        """
        ground = self._ground
        sizes = {n: ground.sizes[n] for n in self.columns if ground.sizes[n] > 1}
        found: EntropyTables
        if any(source.reading == "adaptive" for source in self.sources):
            found = FittedMarginals(_linear(self.sources, sizes))
        else:
            measured = _observations(self.sources, ground)
            found = ReleasedTables(_unbiased(self.sources, sizes, ground), measured)
        if not found.known(()):
            raise UndeterminedError(
                f"This release doesn't say how many rows of {printable(self.table.name)} there "
                "are, so none can be made up.",
                hint=self._counting,
            )
        return found

    @property
    def _counting(self) -> str:
        """The hint on how to count all rows."""
        table = self.table
        if table.made_of:
            return "release COUNT(*) of the same rows with it, without a further condition."
        return f"release a count of all with it: SELECT COUNT(*) AS n FROM {table.typed}."

    def _is_column(self, name: str) -> bool:
        """Whether a name is a column, of the rows themselves or of rows that they refer to."""
        stored = name not in self.table.derived
        return stored or any(name in parent.names.values() for parent in self.table.parents)

    @cached_property
    def _counted(self) -> frozenset[str]:
        return frozenset[str]().union(*(source.attributes for source in self.sources))

    @cached_property
    def _ground(self) -> Ground:
        return Ground.of(self.sources, {}, {})


class ReleasedTables(CellwiseTables):
    """Tables of what measurements say, be it all or not.

    Args:
        unbiased: what they determine.
        observations: what was measured.
    """

    def __init__(self, unbiased: Unbiased, observations: Sequence[Observation]) -> None:
        super().__init__(unbiased, ())
        self._observations = [(frozenset(o.names), o) for o in observations]
        self._cells = 0
        self._noise: dict[Attributes, float] = {}

    def keeps(self, attributes: Attributes) -> bool:
        """Whether it is of one column, or of a pair, as long as these are few."""
        if len(attributes) < 2:
            return True
        self._cells += math.prod(self.sizes[a] for a in attributes)
        return len(attributes) == 2 and self._cells <= MAX_KEPT

    def known(self, attributes: Attributes) -> bool:
        """Whether the measurements say something of the cells that others don't."""
        return super().known(attributes) or self._in_part(attributes)

    def single(self, attributes: Attributes) -> Array:
        """Return the table of one attribute."""
        if super().known(attributes) or not self._in_part(attributes):
            return super().single(attributes)
        return self._fitted(attributes)

    def moved(self, attributes: Attributes, expected: Table) -> Table:
        """Move an expected table towards what was measured."""
        if not super().known(attributes):
            return self._fitted(attributes)
        estimates = self._unbiased.estimates(attributes)
        variances = self._unbiased.variances(attributes)
        prior = prior_variances(estimates, expected, variances)
        self._noise[attributes] = _expected(prior * variances / (prior + variances))
        return super().moved(attributes, expected)

    def noise(self, attributes: Attributes) -> float | None:
        """Return how far cells are from the true ones, all together; about, and if that is known.

        Of one column that is the noise of the cells that are above zero, for of the others most is
        cut off. Of several it is what is left by the prior of their table, and by those of single
        columns, which it was fitted to, as if all of these were independent.
        """
        if not super().known(attributes):
            return None
        if len(attributes) == 1:
            return _expected(self._unbiased.variances(attributes)[self.table(attributes) > 0])
        self.table(attributes)
        alone = [self.noise((name,)) for name in attributes]
        return math.hypot(self._noise[attributes], *(noise or 0.0 for noise in alone))

    def _in_part(self, attributes: Attributes) -> bool:
        """Whether something was measured of these attributes, if not all."""
        wanted = frozenset(attributes)
        few = math.prod(self.sizes[a] for a in attributes) <= MAX_FITTED
        return few and bool(wanted) and any(names == wanted for names, _ in self._observations)

    def _fitted(self, attributes: Attributes) -> Array:
        """Fit a table to what was measured of some attributes, and of fewer of them."""
        inside = [o for names, o in self._observations if names <= frozenset(attributes)]
        sizes = {a: self.sizes[a] for a in attributes}
        fitted = fit_table(inside, sizes, nonnegative=True, integers=False).marginal(attributes)
        total, now = float(self.table(())), float(fitted.sum())
        return fitted * (total / now) if now > 0 else np.full(fitted.shape, total / fitted.size)


def _expected(variances: Array) -> float:
    """Return the expected sum of |N(0, v)| over cells."""
    return math.sqrt(2 / math.pi) * float(np.sqrt(variances).sum())


def _unbiased(sources: Sequence[Source], sizes: Mapping[str, int], ground: Ground) -> Unbiased:
    """Return what measurements determine of the cells of some columns."""
    combining = tuple(source for source in sources if source.combines)
    if combining:
        combination = put_together(sizes, Past(combining, ground.merged))
        values = combination.values([source.values or {} for source in combining])
        return _read(sizes, combination.reconstruction, values)
    if len(sources) == 1:
        reconstruction = alone(replace(sources[0], measures={}), Workload(sizes))
        return _read(sizes, reconstruction, reconstruction.values(sources[0].values or {}))
    nothing = put_together(sizes, Past(()))
    return _read(sizes, nothing.reconstruction, nothing.values([]))


def _read(sizes: Mapping[str, int], reconstruction: Reconstruction, values: Values) -> Unbiased:
    return Unbiased(sizes, sizes, reconstruction, lambda a: reconstruction.marginal(a, values))


def _observations(sources: Sequence[Source], ground: Ground) -> list[Observation]:
    return [
        Observation(
            e.space.attributes, e.space.factors, e.space.noise, e.space.read(values[e.attributes])
        )
        for number, source in enumerate(sources)
        if (values := source.values) is not None
        for e in entries(number, source, ground)
    ]


def _linear(sources: Sequence[Source], sizes: Mapping[str, int]) -> LinearMarginals:
    """Return what the rounds of a release found that chose what to measure."""
    marginals = LinearMarginals(sizes)
    for names, residual in _residuals(sources):
        if set(names) <= sizes.keys():
            ordered = tuple(name for name in sizes if name in names)
            estimate = residual.estimate.transpose([names.index(name) for name in ordered])
            marginals.add(ordered, Residual(estimate, residual.precision))
    return marginals


def _residuals(sources: Sequence[Source]) -> Iterator[tuple[Attributes, Residual]]:
    for source in sources:
        for block in source.blocks:
            for names in block.spaces:
                yield names, residual_of(block, (source.values or {})[frozenset(names)])
