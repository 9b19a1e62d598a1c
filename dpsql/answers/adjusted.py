"""Columns of adjusted answers beside the unbiased ones: not negative, whole numbers, or both.

All of them follow from one table that fits the measurements of the release, so that they agree
with each other; or, where that would be too large, from tables of single marginals, which agree in
part (see `MarginalTables`). They are biased: what can't be negative is too large on average where
there is little, and too small elsewhere, since the total stays the unbiased one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import polars as pl

from dpsql.answers.answers import Answers, Marginal
from dpsql.answers.frames import DESCRIBED, AnsweredFrames, slices
from dpsql.answers.leastsquares import (
    MeasuredTable,
    Rows,
    Tables,
    evenly,
    known_sum,
    least_squares,
    whole_table,
)
from dpsql.answers.noise import Footing
from dpsql.answers.sources import about
from dpsql.errors import InternalError, ResourceLimitError, SqlError, UnsupportedSqlError, printable
from dpsql.hints import NO_REUSE, option
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.sets import unions
from dpsql.linalg.threads import one_thread
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.planner.reconstruction.cellwise import Attributes, CellwiseTables, Unbiased
from dpsql.planner.reconstruction.measured import MeasuredFactor
from dpsql.planner.reconstruction.sources import Ground, Source, counts_of, entries
from dpsql.schema.names import folded
from dpsql.sql.compiled import Script, Statement
from dpsql.workload.workload import UnitTable

# ── Post-processing to tables without negative counts, or of whole numbers ───────────────────────
#
# Unbiased answers may be negative and are not whole. To make all answers of a release so, and still
# agree with each other, one table of joint cells is fitted to everything that was measured, and all
# answers are computed from it. Whatever is made of noisy numbers costs no privacy. It costs the
# absence of bias: cells that are small come out too large on average, others too small. The total
# stays as it is without the condition.
#
# Attributes that no measurement connects need no joint table. Each component, of attributes that
# are connected, has a table of its own, and all tables have the same total: then answers over a
# component agree, and so do the totals of answers over different ones.


MAX_JOINT_CELLS = 1 << 22
"""Joint cells of one component: a table of 32 MiB, and a few of its size beside it."""
MAX_TIES = 10
"""Rounds in which the tables of several components are fitted, until their totals agree."""
_AGREE = 1e-5
"""Totals agree that differ by so much of themselves; what is left is taken away at the end."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Measurements of one marginal: y = (⊗ factors) marginal + noise, independent for each."""

    names: tuple[str, ...]
    """The attributes, by the axes of the factors; none for the total."""
    factors: tuple[MeasuredFactor, ...]
    noise: float
    """The variance of the noise of each measurement, above 0."""
    values: Array | Ints
    """Shape (measurements of the first factor, …)."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedTable:
    """One table for each component; the tables have one total."""

    total: float
    tables: tuple[tuple[tuple[str, ...], Array], ...]
    """Attributes and table, of shape (size of the first attribute, …), of each component."""
    domain: Mapping[str, int]
    nonnegative: bool
    integers: bool

    def marginal(self, attributes: Sequence[str]) -> Array:
        """Return the counts over some attributes: shape (size of the first attribute, …).

        Over attributes of several components, whatever was measured is the same for all joint
        tables; one is given that has the components' tables as marginals, and is whole or not
        negative like them. Over an attribute of which nothing was measured, counts are even.
        """
        parts, order = [], list[str]()
        for names, table in self._needed(attributes):
            kept = [name for name in names if name in attributes]
            parts.append(LabeledArray(names, table).project(kept))
            order += kept
        joint = reduce(self._couple, parts, None)
        if joint is None:
            return np.asarray(self.total)
        return np.ascontiguousarray(LabeledArray(order, joint).transpose(attributes))

    def _needed(self, attributes: Sequence[str]) -> list[tuple[tuple[str, ...], Array]]:
        needed = [(names, table) for names, table in self.tables if set(names) & set(attributes)]
        measured = {name for names, _ in self.tables for name in names}
        for name in attributes:
            if name not in measured:
                even = evenly(self.total, self.domain[name], integers=self.integers)
                needed.append(((name,), even))
        return needed

    def _couple(self, one: Array | None, other: Array) -> Array:
        """Return a joint table of two tables of the same total."""
        if one is None:
            return other
        a, b = one.ravel(), other.ravel()
        if not self.nonnegative:  # a total near 0 may not divide
            joint = np.zeros((len(a), len(b)))
            joint[:, 0] += a
            joint[0] += b
            joint[0, 0] -= self.total
        elif self.integers:
            joint = _overlap(a, b)
        else:
            joint = np.outer(a, b) / (self.total or 1.0)
        return joint.reshape(one.shape + other.shape)


@one_thread
def fit_table(
    observations: Sequence[Observation],
    domain: Mapping[str, int],
    *,
    nonnegative: bool,
    integers: bool,
) -> FittedTable:
    """Fit tables to measurements: weighted least squares, the likeliest for Gaussian noise.

    Minimizes Σ ‖(⊗ factors) marginal(x) − y‖² / noise over tables x of one total, over x >= 0 if
    `nonnegative`. Then the total is the one that all measurements give without that condition, if
    they give one, and at least 0. With `integers` the tables are rounded afterwards, see
    `whole_table`.

    The same input gives the same tables.

    Args:
        observations: what was measured, in any order.
        domain: attribute → number of cells.
        nonnegative: whether counts may not be below zero.
        integers: whether counts must be whole.

    Raises:
        ResourceLimitError: the attributes of a component have more than `MAX_JOINT_CELLS` joint
            cells.
    """
    _check(observations, domain)
    named = [o for o in observations if o.names]
    alone = [o for o in observations if not o.names]
    components = components_of([o.names for o in named], domain)
    measured = [_measured(names, named, domain) for names in components]
    total, tables = _fit(measured, alone, nonnegative=nonnegative)
    if integers:
        total = float(np.rint(total))
        tables = [
            whole_table(c.component, c.values, table, int(total), nonnegative=nonnegative)
            for c, table in zip(measured, tables, strict=True)
        ]
    found = tuple(zip(components, tables, strict=True))
    return FittedTable(total, found, dict(domain), nonnegative, integers)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A component, and what was measured of it in units of its standard deviation."""

    component: MeasuredTable
    values: Array


def components_of(
    connected: Sequence[tuple[str, ...]], domain: Mapping[str, int]
) -> list[tuple[str, ...]]:
    """Return the attributes that measurements connect, in the order of the domain.

    Raises:
        ResourceLimitError: they have more than `MAX_JOINT_CELLS` joint cells.
    """
    groups = _connected(connected, domain)
    for names in groups:
        cells = math.prod(domain[name] for name in names)
        if cells > MAX_JOINT_CELLS:
            raise ResourceLimitError(
                f"The columns {printable(', '.join(names))} have {cells:,} joint cells, more than "
                f"the {MAX_JOINT_CELLS:,} that can be adjusted together.",
                hint="leave "
                + option("integers")
                + " out ("
                + option("nonnegative")
                + " alone has other limits), release fewer columns at a time, or pass "
                + NO_REUSE
                + " if earlier releases connect them.",
            )
    return groups


def fits_jointly(connected: Sequence[tuple[str, ...]], domain: Mapping[str, int]) -> bool:
    """Whether no component of the attributes that measurements connect has too many joint cells."""
    groups = _connected(connected, domain)
    return all(math.prod(domain[a] for a in names) <= MAX_JOINT_CELLS for names in groups)


def _connected(
    connected: Sequence[tuple[str, ...]], domain: Mapping[str, int]
) -> list[tuple[str, ...]]:
    ordered = [tuple(name for name in domain if name in group) for group in unions(connected)]
    return sorted(ordered, key=lambda names: list(domain).index(names[0]))


def _measured(
    names: tuple[str, ...], observations: Sequence[Observation], domain: Mapping[str, int]
) -> _Measured:
    within = [o for o in observations if set(o.names) <= set(names)]
    rows = [Rows([names.index(name) for name in o.names], o.factors, o.noise) for o in within]
    component = MeasuredTable.of(tuple(domain[name] for name in names), rows)
    values = [_scaled(within[i]) for i in component.order]
    return _Measured(component, np.concatenate(values))


def _scaled(observation: Observation) -> Array:
    return observation.values.ravel().astype(np.float64) / math.sqrt(observation.noise)


def _fit(
    measured: Sequence[_Measured], alone: Sequence[Observation], *, nonnegative: bool
) -> tuple[float, list[Array]]:
    """Return the total, and a table for each component."""
    rows = [Rows((), o.factors, o.noise) for o in alone]
    values = np.concatenate([np.zeros(0), *map(_scaled, alone)])
    held = None
    if nonnegative or not measured:
        held = _known_total(measured, rows, values, nonnegative=nonnegative)
    if not measured:
        return held or 0.0, []
    tables = Tables.of([m.component for m in measured], rows, held=held is not None)
    ties = tables.tied(held or 0.0)
    y = np.concatenate([*(m.values for m in measured), values, ties])
    x = np.zeros(tables.cells)
    for _ in range(MAX_TIES):
        x = least_squares(tables, y, x, nonnegative=nonnegative)
        totals = np.array([table.sum() for table in tables.split(x)])
        common = float(totals.mean()) if held is None else held
        if np.abs(totals - common).max() <= _AGREE * (1 + abs(common)):
            break
        # The method of multipliers: what is missing is asked for once more.
        y[tables.count :] += ties - tables.apply(x)[tables.count :]
    fitted = [t.reshape(m.component.shape) for t, m in zip(tables.split(x), measured, strict=True)]
    return common, [_with_total(t, common, nonnegative=nonnegative) for t in fitted]


def _known_total(
    measured: Sequence[_Measured], rows: Sequence[Rows], values: Array, *, nonnegative: bool
) -> float | None:
    """Return the best estimate of the total by all measurements; None if there is none.

    Least squares over cells that may not be negative would lift the total by what it cuts off of
    each of them, although the total is known far better than they are. So it is estimated before.
    """
    ones = np.concatenate([np.zeros(0), *(row.apply(np.ones(())) for row in rows)])
    known = [(float(ones @ values), float(ones @ ones))]  # estimate / variance, 1 / variance
    for m in measured:
        found, variance = known_sum(m.component, m.values)
        known.append((found / variance, 1 / variance))
    weight = math.fsum(part for _, part in known)
    if not weight:
        return None
    total = math.fsum(part for part, _ in known) / weight
    return max(total, 0.0) if nonnegative else total


def _with_total(table: Array, total: float, *, nonnegative: bool) -> Array:
    """Take away what is left of the difference between totals."""
    total_now = float(table.sum())
    if nonnegative and total_now > 0:
        return table * (total / total_now)
    return table + (total - total_now) / table.size


def _overlap(a: Array, b: Array) -> Array:
    """Lay two lists of counts side by side, and count what lies beside what."""
    a_ends, b_ends = np.cumsum(a), np.cumsum(b)
    ends = np.minimum.outer(a_ends, b_ends)
    begins = np.maximum.outer(a_ends - a, b_ends - b)
    return np.asarray(np.maximum(ends - begins, 0.0))


def _check(observations: Sequence[Observation], domain: Mapping[str, int]) -> None:
    for o in observations:
        axes = [axis for f in o.factors for axis in f.axes]
        shape = [n for f in o.factors for n in f.shape]
        if sorted(axes) != list(range(len(o.names))):
            raise InternalError("the factors of an observation must partition its axes")
        if [domain.get(o.names[axis]) for axis in axes] != shape:
            raise InternalError("an observation does not fit the domain")
        if not (o.noise > 0 and math.isfinite(o.noise) and np.isfinite(o.values).all()):
            raise InternalError("an observation is not finite, or its noise is not above 0")


# ── Adjusted answers where a table of all joint cells would be too large: one for each marginal ──
#
# Each attribute set that is asked has a table of its own, see `reconstruction.cellwise`. So cells
# of single statements count, and not those of all columns that measurements connect.
#
# Where measurements don't determine the cells of a set, but something was measured of it, its table
# is the one that fits best what was measured over its attributes, see `fit_table`: conditions and
# sums may be all that is asked of a column.


MAX_CELLS = 1 << 24
"""Cells of the table of a statement: 128 MiB, and a dozen of its size while it is made."""
MAX_COLUMNS = 12
"""Columns of a statement: each table is made with those of all subsets of them."""
AGREE = "sums agree with all tables of one column, and nearly with those of several"
REASON_BY_MARGINAL = f"biased: of a table of the columns of this statement alone; {AGREE}"
"""The reason that is told of such columns."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedMarginals:
    """The tables that are asked, and what is known of them."""

    sets: tuple[Attributes, ...]
    """In domain order."""
    unbiased: Unbiased
    measured: frozenset[frozenset[str]]
    """The attribute sets over which something was measured, or will be."""

    @classmethod
    def of(
        cls,
        sets: Collection[Collection[str]],
        unbiased: Unbiased,
        measured: Collection[Collection[str]],
    ) -> AskedMarginals:
        """Bring the attributes of each set in order."""
        ordered = {tuple(a for a in unbiased.sizes if a in own) for own in sets}
        return cls(tuple(sorted(ordered, key=len)), unbiased, frozenset(map(frozenset, measured)))

    def check(self) -> None:
        """Refuse tables that are too large; reads no measurement.

        Raises:
            ResourceLimitError: one of them is.
        """
        for attributes in self.sets:
            cells = math.prod(self.unbiased.sizes[a] for a in attributes)
            if cells > MAX_CELLS:
                raise _too_large(attributes, f"{cells:,} joint cells", f"{MAX_CELLS:,}")
            if len(attributes) > MAX_COLUMNS:
                raise _too_large(attributes, f"{len(attributes)} columns", f"{MAX_COLUMNS}")
            if self.fits_directly(attributes):
                components_of(self.inside(attributes), self.unbiased.sizes)

    def inside(self, attributes: Attributes) -> list[tuple[str, ...]]:
        """Return the sets over which something was measured that are inside of another one."""
        return [tuple(space) for space in self.measured if space and space <= frozenset(attributes)]

    def fits_directly(self, attributes: Attributes) -> bool:
        """Whether something was measured of a set that doesn't determine all cells there."""
        sizes = self.unbiased.sizes
        spaces = (tuple(a for a in sizes if a in space) for space in self.inside(attributes))
        return any(not self.unbiased.determined(space) for space in spaces)


class MarginalTables:
    """Makes the tables that are asked.

    Args:
        asked: which these are.
        observations: reads all that was measured of the table.
    """

    def __init__(
        self, asked: AskedMarginals, observations: Callable[[], Sequence[Observation]]
    ) -> None:
        self._asked, self._observations = asked, observations
        self._tables = CellwiseTables(asked.unbiased, asked.sets)
        self._direct = {own for own in asked.sets if asked.fits_directly(own)}

    def marginal(self, names: Attributes) -> Array:
        """Return the table over some attributes, in any order."""
        own = tuple(a for a in self._asked.unbiased.sizes if a in names)
        table = self._directly(own) if own in self._direct else self._tables.table(own)
        return np.ascontiguousarray(table.transpose([own.index(a) for a in names]))

    def _directly(self, attributes: Attributes) -> Array:
        inside = [o for o in self._observations() if set(o.names) <= set(attributes)]
        sizes = {a: self._asked.unbiased.sizes[a] for a in attributes}
        return fit_table(inside, sizes, nonnegative=True, integers=False).marginal(attributes)


def by_table(parts: Sequence[tuple[UnitTable | None, Marginal]]) -> Marginal:
    """Make marginals of the only table, or of several, each with the axis of its counts."""

    def marginal(names: Attributes) -> Array:
        for of, own in parts:
            if of is None:
                return own(names)
            if of.name in names:
                inside = (of.own(name) for name in names)
                table = own(tuple(name for name in inside if name is not None))
                return np.expand_dims(table, names.index(of.name))
        raise InternalError("a marginal was asked for of none of the tables")

    return marginal


def unbiased_tables(
    script: Script, reconstruction: Reconstruction, marginal: Marginal
) -> list[tuple[UnitTable | None, Script, Unbiased]]:
    """Return what is known of the tables of a script: of the only one, or of several each."""
    tables = script.apart or ((None, script),)
    domain = script.workload.domain
    return [
        (of, own, Unbiased(own.workload.domain, domain, reconstruction, marginal, of))
        for of, own in tables
    ]


def asked_of(script: Script) -> list[frozenset[str]]:
    """Return the attribute sets that are asked of one table."""
    return [family.attributes for family in script.workload.families]


def _too_large(attributes: Attributes, what: str, most: str) -> ResourceLimitError:
    return ResourceLimitError(
        f"A statement over {printable(', '.join(attributes))} has {what}, more than the {most} of "
        "which a table without negative numbers is made.",
        hint="leave " + option("nonnegative") + " out, or ask for fewer columns at a time.",
    )


REASON = "biased: of a table that fits all measurements"


class Fit:
    """The table that fits the measurements, or those of single marginals; made when first needed.

    Args:
        own: what is asked of one table.
        sources: what was measured of it.
        unbiased: what is known of its cells without bias.
        nonnegative: whether no cell is negative.
        integers: whether all cells are whole numbers.
    """

    def __init__(
        self,
        own: Script,
        sources: Sequence[Source],
        unbiased: Unbiased,
        *,
        nonnegative: bool,
        integers: bool,
    ) -> None:
        self._sources = sources
        self._ground = Ground.of(sources, own.workload.domain, own.merged)
        self._nonnegative, self._integers = nonnegative, integers
        blocks = [block for source in sources for block in source.blocks]
        self._asked = _asked(own, blocks, unbiased)
        spaces = [names for block in blocks for names in block.spaces if names]
        self.joint = integers or fits_jointly(spaces, self._ground.sizes)

    @cached_property
    def marginal(self) -> Marginal:
        """Makes marginals."""
        if self.joint:
            return lambda names: self._table.marginal(names)
        return MarginalTables(self._asked, self._observations).marginal

    @cached_property
    def _table(self) -> FittedTable:
        return fit_table(
            self._observations(),
            self._ground.sizes,
            nonnegative=self._nonnegative,
            integers=self._integers,
        )

    def _observations(self) -> list[Observation]:
        return [
            Observation(
                e.space.attributes,
                e.space.factors,
                e.space.noise,
                e.space.read(s.values[e.attributes]),
            )
            for i, s in enumerate(self._sources)
            if s.values is not None
            for e in entries(i, s, self._ground)
        ]


@dataclass(frozen=True, eq=False)
class Fits:
    """The fits to the measurements, which make marginals: one, or one for each of the tables."""

    of_tables: tuple[tuple[UnitTable | None, Fit], ...]

    @classmethod
    def of(
        cls,
        script: Script,
        sources: Sequence[Source],
        answers: Answers,
        *,
        nonnegative: bool,
        integers: bool,
    ) -> Fits:
        """Fit tables to measurements.

        Args:
            script: what is asked.
            sources: what was measured; of several tables, of each of them.
            answers: the unbiased answers that follow.
            nonnegative: whether no cell is negative.
            integers: whether all cells are whole numbers.
        """
        if answers.reconstruction is None:
            raise InternalError("biased answers can't be adjusted")
        wishes = {"nonnegative": nonnegative, "integers": integers}
        tables = unbiased_tables(script, answers.reconstruction, answers.marginal)
        return cls(
            tuple(
                (of, Fit(own, about(script, own, sources), unbiased, **wishes))
                for of, own, unbiased in tables
            )
        )

    @property
    def reason(self) -> str:
        """The note on the columns: how they came about, and what agrees."""
        return REASON if all(fit.joint for _, fit in self.of_tables) else REASON_BY_MARGINAL

    @cached_property
    def marginal(self) -> Marginal:
        """Makes marginals over attributes of one table; of several, with its axis."""
        return by_table([(of, fit.marginal) for of, fit in self.of_tables])


def _asked(script: Script, blocks: Sequence[BlockStrategy], unbiased: Unbiased) -> AskedMarginals:
    known = script.workload.domain.keys()
    spaces = [names for block in blocks for names in block.spaces if known >= set(names)]
    return AskedMarginals.of(asked_of(script), unbiased, spaces)


def adjusted_name(name: str) -> str:
    """Return the name of the column with the adjusted values of another."""
    return f"{name}_adjusted"


def check_adjusted(
    script: Script,
    blocks: Sequence[BlockStrategy],
    sources: Sequence[Source],
    reconstruction: Reconstruction,
    *,
    integers: bool,
) -> None:
    """Check that adjusted answers can be made, before anything is charged for them.

    Args:
        script: what is asked.
        blocks: what will be measured.
        sources: what was measured before and will be used.
        reconstruction: how unbiased answers will follow.
        integers: whether they shall be whole numbers.

    Raises:
        UnsupportedSqlError: something is added up row by row.
        SqlError: a statement's own columns have names that adjusted ones need.
        ResourceLimitError: the columns that measurements connect have too many joint cells, or
            those of a statement.
    """
    _check_counted(script)
    _check_names(script)
    for of, script_of_table, unbiased in unbiased_tables(script, reconstruction, _nothing_yet):
        before = about(script, script_of_table, sources)
        will = list(blocks) if of is None else counts_of(blocks, of)
        measured = [*(block for source in before for block in source.blocks), *will]
        ground = Ground.of(before, script_of_table.workload.domain, script_of_table.merged)
        spaces = [names for block in measured for names in block.spaces if names]
        if integers or fits_jointly(spaces, ground.sizes):
            components_of(spaces, ground.sizes)
        else:
            _asked(script_of_table, measured, unbiased).check()


def _nothing_yet(_: tuple[str, ...]) -> Array:
    raise InternalError("what will be measured is not known before")


def _check_counted(script: Script) -> None:
    """Refuse sums that are no counts of cells: a table of counts says nothing of them."""
    for statement in script.statements:
        if any(map(script.adds_up, statement.families)):
            what = "adds up values row by row"
            if any(map(script.counts_units, statement.families)):
                what = "counts units, of which one may be in several groups"
            error = UnsupportedSqlError(
                f"Adjusted columns need a table of counts, and this {what}.",
                hint="leave "
                + option("nonnegative")
                + " and "
                + option("integers")
                + " out, or release the counts by themselves.",
            )
            error.statement = printable(statement.name)
            raise error


def _check_names(script: Script) -> None:
    for statement in script.statements:
        names = {folded(output.name) for output in statement.outputs}
        for name in sorted(names):
            if adjusted_name(name) in names:
                error = SqlError(
                    f"The columns {printable(name)} and {printable(adjusted_name(name))} can't "
                    "both be asked for: the second is the name of the adjusted values.",
                    hint="give one of them another name with AS.",
                )
                error.statement = printable(statement.name)
                raise error


class AdjustedFrames:
    """Frames with adjusted columns beside the unbiased ones."""

    def __init__(
        self,
        statements: Sequence[Statement],
        plain: AnsweredFrames,
        adjusted: AnsweredFrames,
        reason: str = REASON,
    ) -> None:
        self._direct = {s.name for s in statements if s.post is None}
        self._plain, self._adjusted, self._reason = plain, adjusted, reason

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return self._plain.names

    def frame(self, name: str) -> pl.DataFrame:
        """Return the frame of a statement.

        A statement that computes on its answers (HAVING, LIMIT, …) may choose other rows of
        adjusted answers. Rows are then found by their keys, and are null where there is none;
        without keys that tell rows apart there are no adjusted columns.
        """
        keys, values = self._roles(name)
        plain, other = self._plain.frame(name), self._adjusted.frame(name)
        if name in self._direct or (not keys and plain.height == other.height == 1):
            return _beside(plain, other, values)
        adjusted = other.select(*keys, *values).rename({v: adjusted_name(v) for v in values})
        if not keys or any(frame.select(keys).is_duplicated().any() for frame in (plain, adjusted)):
            return plain
        joined = plain.join(adjusted, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return joined.select(_order(plain.columns, values))

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield the frame in pieces of at most `rows` rows."""
        if name not in self._direct:
            yield from slices(self.frame(name), rows)
            return
        _, values = self._roles(name)
        pairs = zip(
            self._plain.batches(name, rows), self._adjusted.batches(name, rows), strict=True
        )
        for plain, other in pairs:
            yield _beside(plain, other, values)

    def supported(self, name: str) -> tuple[pl.DataFrame, Footing]:
        """Return the frame of a statement, and what its unbiased values rest on."""
        return self.frame(name), self._plain.supported(name)[1]

    def supported_batches(self, name: str, rows: int) -> Iterator[tuple[pl.DataFrame, Footing]]:
        """Yield the frame in pieces, each with what its unbiased values rest on."""
        known = (support for _, support in self._plain.supported_batches(name, rows))
        yield from zip(self.batches(name, rows), known, strict=True)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame; see `Release.columns`."""
        described = self._plain.columns(name)
        _, values = self._roles(name)
        if name not in self._direct:
            values = [v for v in values if adjusted_name(v) in self.frame(name).columns]
        rows = [(adjusted_name(v), "adjusted", "none", self._reason) for v in values]
        schema = dict.fromkeys(DESCRIBED, pl.String)
        return pl.concat([described, pl.DataFrame(rows, schema=schema, orient="row")])

    def _roles(self, name: str) -> tuple[list[str], list[str]]:
        """Return the names of the key columns, and of the value columns."""
        described = self._plain.columns(name)
        keys = described.filter(pl.col("role") == "key")["column"].to_list()
        return keys, described.filter(pl.col("role") == "value")["column"].to_list()


def _beside(plain: pl.DataFrame, other: pl.DataFrame, values: Sequence[str]) -> pl.DataFrame:
    """Put adjusted columns beside those of the same rows in the same order."""
    adjusted = [other[value].alias(adjusted_name(value)) for value in values]
    return plain.hstack(adjusted).select(_order(plain.columns, values))


def _order(columns: Sequence[str], values: Sequence[str]) -> list[str]:
    """Put each adjusted column behind what belongs to its value."""
    order = list(columns)
    for value in values:
        own = [f"{value}{end}" for end in ("", "_variance", "_lower", "_upper")]
        last = max(order.index(column) for column in own if column in order)
        order.insert(last + 1, adjusted_name(value))
    return order
