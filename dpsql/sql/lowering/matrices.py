"""Lowered blocks: query matrices over the joint cells of columns that a core couples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp

from dpsql.errors import ResourceLimitError
from dpsql.hints import Hint, first_that_works, write
from dpsql.linalg.arrays import Array
from dpsql.linalg.matrices import (
    MAX_ENTRIES,
    Dense,
    Exchangeable,
    Runs,
    Sparse,
    StructuredMatrix,
    compact,
)
from dpsql.linalg.sets import unions
from dpsql.rows.measure import RowMeasure
from dpsql.schema import Table
from dpsql.sql.binding.core import Core, Linear, Relation
from dpsql.sql.binding.expressions import BoundExpr
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText
from dpsql.workload import Factor, Identity, Matrix, Measure, Queries

# ── Components of coupled columns and relations, one for each block ───────────────────────────────


Node = str | int


@dataclass(frozen=True, slots=True)
class CoupledColumns:
    """Columns and relations that conditions, keys or weights connect; independent of all others."""

    attributes: tuple[str, ...]
    """In the order of the schema."""
    relations: tuple[Relation, ...]
    conjuncts: tuple[BoundExpr, ...]
    keys: tuple[int, ...]
    """The numbers of the keys that depend on it."""
    weighted: bool
    """Whether a statistic's weight depends on it."""

    @property
    def nodes(self) -> frozenset[Node]:
        """Everything in it: column names and relation numbers."""
        return frozenset(self.attributes).union(r.number for r in self.relations)


def components(
    core: Core,
    keys: Sequence[int],
    table: Table,
    filters: Iterable[BoundExpr] = (),
    couplings: Iterable[frozenset[Node]] = (),
    weights: Sequence[BoundExpr] = (),
) -> list[CoupledColumns]:
    """Divide a core's columns and relations into independent components.

    Args:
        core: the core.
        keys: the keys of one grouping set.
        table: its private table.
        filters: conditions of one statistic besides those of the core.
        couplings: nodes that are to be in one component for other reasons.
        weights: what each row adds the product of.

    Returns:
        The components; those with keys first, in the order of their first key.
    """
    conjuncts = tuple(dict.fromkeys([*core.conjuncts, *filters]))
    weight = frozenset[Node]().union(*(weight.nodes for weight in weights))
    parts = (*conjuncts, *(core.keys[k] for k in keys))
    edges = [*(part.nodes for part in parts), *couplings, weight, *map(_nodes, core.relations)]
    # What depends on nothing, such as WHERE 1 = 0, is a matter of the first component.
    needs_one = bool(weights or conjuncts)
    groups = _with_attributes(unions(filter(None, edges)), table, needs_one=needs_one)
    coupled = []
    for number, group in enumerate(groups):
        first = number == 0
        conditions = (c for c in conjuncts if _depends(c.nodes, group, first=first))
        coupled.append(
            CoupledColumns(
                tuple(name for name in table.columns if name in group),
                tuple(r for r in core.relations if r.number in group),
                tuple(sorted(conditions, key=lambda c: bool(c.nodes))),
                tuple(k for k in keys if _depends(core.keys[k].nodes, group, first=False)),
                bool(weights) and _depends(weight, group, first=first),
            )
        )
    alone = tuple(k for k in keys if not core.keys[k].nodes)
    coupled += [CoupledColumns((), (), (), alone, False)] if alone else []
    return sorted(coupled, key=lambda component: component.keys or (len(core.keys),))


def _nodes(relation: Relation) -> frozenset[Node]:
    """Return a relation, and all that its conditions are about."""
    return frozenset({relation.number}).union(*(c.nodes for c in relation.on))


def _depends(nodes: frozenset[Node], group: frozenset[Node], *, first: bool) -> bool:
    """Whether what is about some nodes depends on a group; what is about none, on the first one."""
    return nodes <= group if nodes else first


def _with_attributes(
    groups: list[frozenset[Node]], table: Table, *, needs_one: bool
) -> list[frozenset[Node]]:
    """Give relations that no column is connected with a column: a matrix needs cells."""
    if needs_one and not groups:
        return [_smallest(table)]
    alone = [group for group in groups if not any(isinstance(node, str) for node in group)]
    if not alone:
        return groups
    rest = [group for group in groups if group not in alone] or [_smallest(table)]
    return [rest[0].union(*alone), *rest[1:]]


def _smallest(table: Table) -> frozenset[Node]:
    """Choose a column for what depends on none: one in which every row has a cell, if possible.

    A table without such columns has one cell.
    """

    def cost(name: str) -> tuple[bool, int]:
        domain = table.columns[name]
        return not domain.covers_all, domain.size

    stored = [name for name in table.columns if name not in table.joined]
    return frozenset(sorted(stored, key=cost)[:1])


@dataclass(frozen=True, slots=True, eq=False)
class LoweredBlock:
    """A matrix over the joint cells of some columns, whose rows run along some axes."""

    attributes: tuple[str, ...]
    rows: StructuredMatrix
    """Runs of cells; or entries, if not all rows are runs."""
    axes: tuple[int, ...]
    """The axes of the groups along which its rows run, in C order; none for a single row."""
    hidden: bool = False
    """Whether there is one more row, the last, which no answer shows; see `assemble`."""
    bound: int | None = None
    """The largest magnitude of a row's value of a measure, in its unit, which is the one entry."""
    center: float = 0.0
    """The number that a row of a measure counts besides its value."""

    @property
    def content(self) -> tuple[object, ...]:
        """A key that is equal for blocks that ask the same of the same groups."""
        return self.attributes, self.axes, self.rows.rows, self.rows.key

    @property
    def factor(self) -> Factor:
        """The factor with these rows.

        Raises:
            ResourceLimitError: they are too many to be written out.
        """
        if self.bound is not None:
            return Measure(self.bound, float(self.rows.matrix[0, 0]), self.center)
        if self.rows.is_written:
            return Matrix(self.dense())
        return Identity() if self.rows.is_identity else _Held(self.rows)

    @property
    def runs(self) -> Runs | None:
        """The rows as runs of cells, if they are."""
        return None if self.rows.is_written else self.rows.runs()

    def entries(self) -> Sparse:
        """Return the entries one by one.

        Raises:
            ResourceLimitError: they are too many.
        """
        if not self.rows.is_written:  # the squared norm of a run is its number of cells
            check_entries(int(self.rows.squares().sum()), 1, self.attributes)
        return self.rows.entries()

    def dense(self) -> Array:
        """Write the matrix out.

        Raises:
            ResourceLimitError: it is too large.
        """
        check_entries(self.rows.rows, self.rows.cells, self.attributes)
        return self.rows.matrix

    def with_rows(self, rows: StructuredMatrix) -> LoweredBlock:
        """Return the block with other rows along the same axes."""
        return replace(self, rows=rows)

    def with_dense(self, matrix: Array) -> LoweredBlock:
        """Return the block with the rows of a matrix, as runs if they are."""
        return self.with_rows(compact(Dense(matrix).entries()))


@dataclass(frozen=True, slots=True)
class _Held:
    """A factor that is known already."""

    queries: Queries

    def bind(self, cells: int) -> Queries:
        return self.queries


def check_entries(rows: int, cells: int, columns: tuple[str, ...]) -> None:
    """Refuse a matrix that is too large to be written out, by its size alone."""
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"The groups and conditions over {', '.join(columns)} need a matrix of "
            f"{rows:,} x {cells:,} entries, more than {MAX_ENTRIES:,}.",
            hint="group by columns with fewer values, or by fewer of the columns in the condition.",
        )


# ── The contribution of a row to a statistic: its cell's weights, less their middle; or a measure


MAX_WEIGHT = 1e12
"""The most that one row may add to a sum, or to a sum of products."""


@dataclass(frozen=True, slots=True)
class AddedTerm:
    """A term that is added up over a sandbox table: columns w0 and w1 are its rows' weights."""

    term: str
    """As SQL."""
    scale: float
    """Its largest absolute value."""
    center: float
    """The number that was taken off the weight."""

    @classmethod
    def of(
        cls,
        sandbox: Sandbox,
        source: SourceText,
        part: str,
        linear: Linear,
        weights: Sequence[BoundExpr],
        centers: Sequence[float],
    ) -> AddedTerm:
        """Choose what to take off, by the values that are possible.

        Args:
            sandbox: has the table.
            source: the statement's text.
            part: the table.
            linear: the statistic.
            weights: those of its weights that are columns of the table: all, or none.
            centers: what is taken off each of two weights that are multiplied.

        Raises:
            SqlError: a weight is not finite, or too large.
        """
        if not weights:
            return cls("1.0::DOUBLE", 1.0, 0.0)
        if linear.times is None:
            low, high = _range(sandbox, source, part, 0, weights[0], 0.0, MAX_WEIGHT)
            center = (low + high) / 2 if linear.center else 0.0
            largest = max(abs(low - center), abs(high - center)) or 1.0
            return cls(f"(w0 - ({center!r}))", largest, center)
        places = (0, len(weights) - 1)
        for number, center in zip(places, centers, strict=True):
            _range(sandbox, source, part, number, weights[number], center, MAX_WEIGHT**0.5)
        factors = [f"(w{i} - ({c!r}))" for i, c in zip(places, centers, strict=True)]
        term = " * ".join(factors)
        ((largest,),) = sandbox.rows(f"SELECT max(abs({term})) FROM {part}")
        return cls(term, largest or 1.0, 0.0)


def _nullified(said: str) -> list[Hint]:
    """Propose an expression in which nothing is divided by zero."""
    tree = sqlglot.parse_one(said, read="duckdb")
    divisions = list(tree.find_all(exp.Div, exp.IntDiv, exp.Mod))
    for one in divisions:
        zero = exp.Literal.number(0)
        one.set("expression", exp.Nullif(this=one.expression.unnest(), expression=zero))
    return [write(tree.sql("duckdb"))] if divisions else []


def _range(
    sandbox: Sandbox,
    source: SourceText,
    part: str,
    number: int,
    weight: BoundExpr,
    center: float,
    largest: float,
) -> tuple[float, float]:
    """Return the least and the largest value of a weight.

    Raises:
        SqlError: it isn't finite, or too far from what is taken off it.
    """
    ((low, high),) = sandbox.rows(f"SELECT min(w{number}), max(w{number}) FROM {part}")
    low, high = (0.0, 0.0) if low is None else (low, high)
    if not (math.isfinite(low) and math.isfinite(high)):
        said = source.text(weight.span)
        raise source.error(
            weight.span,
            "This is infinite, or not a number, for some values of the columns.",
            first_that_works(
                [*_nullified(said), write(f"CASE WHEN isfinite({said}) THEN {said} END")],
                "leave those values out by WHERE or FILTER.",
            ),
        )
    if max(abs(low - center), abs(high - center)) > largest:
        raise source.error(
            weight.span,
            "These values are too large to be added up.",
            f"they may reach {largest:.0e} here; add up thousands or millions instead.",
        )
    return low, high


@dataclass(frozen=True, slots=True)
class AddedUp:
    """A measure, and what it means in units of answers."""

    name: str
    """All of it, so that two measures of one name are the same, whenever they were measured."""
    label: str
    """The name for a reader."""
    row: RowMeasure
    restored: bool = False
    """Whether what was taken off the value of each row is put back in answers."""
    instead: str = ""
    """Name of the measure to which rows without a value add nothing, where they add 0 to this."""

    @property
    def center(self) -> float:
        """The number that was taken off the value of each row."""
        return float(self.row.middle * self.row.step)

    @property
    def block(self) -> LoweredBlock:
        """The axis of the measure, along which no group runs."""
        unit, center = float(self.row.step), self.center if self.restored else 0.0
        axis = Exchangeable(1, unit, unit)
        return LoweredBlock((self.name,), axis, (), bound=self.row.bound, center=center)

    @property
    def scale(self) -> float:
        """The largest absolute value that one row can add."""
        return float(self.row.step) * self.row.bound + (abs(self.center) if self.restored else 0)
