"""Post-processing to tables without negative counts, or of whole numbers.

Unbiased answers may be negative and are not whole. To make all answers of a release so, and still
agree with each other, one table of joint cells is fitted to everything that was measured, and all
answers are computed from it. Whatever is made of noisy numbers costs no privacy. It costs the
absence of bias: cells that are small come out too large on average, others too small. The total
stays as it is without the condition.

Attributes that no measurement connects need no joint table. Each component, of attributes that are
connected, has a table of its own, and all tables have the same total: then answers over a
component agree, and so do the totals of answers over different ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsql.errors import InternalError, ResourceLimitError, printable
from dpsql.hints import NO_REUSE, option
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.sets import unions
from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction.measured import MeasuredFactor
from dpsql.release.cells import MeasuredTable, Rows, Tables
from dpsql.release.leastsquares import known_sum, least_squares
from dpsql.release.rounding import evenly, whole_table

MAX_JOINT_CELLS = 1 << 22
"""Joint cells of one component: a table of 32 MiB, and a few of its size beside it."""
MAX_TIES = 10
"""How often the tables of several components are fitted, until their totals agree."""
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
        found = [(names, table) for names, table in self.tables if set(names) & set(attributes)]
        measured = {name for names, _ in self.tables for name in names}
        for name in attributes:
            if name not in measured:
                even = evenly(self.total, self.domain[name], integers=self.integers)
                found.append(((name,), even))
        return found

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
    its = [o for o in observations if set(o.names) <= set(names)]
    rows = [Rows([names.index(name) for name in o.names], o.factors, o.noise) for o in its]
    component = MeasuredTable.of(tuple(domain[name] for name in names), rows)
    values = [_scaled(its[i]) for i in component.order]
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
    found = float(table.sum())
    if nonnegative and found > 0:
        return table * (total / found)
    return table + (total - found) / table.size


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
