"""Cells that no statement tells apart, found before joint cells are made of them.

What couples several columns is evaluated over their joint cells, and cells that all matrices treat
alike are merged afterwards (`Classes`). Of `(price < 10 AND day > 5) OR (price > 90 AND day =
1)` that would be every price with every day. Where joint cells are too many, each expression is
looked at first: of the price it takes no more than whether it is below 10, and above 90. One value
then stands for all that are alike in this, and joint cells are made of those alone.

Let a column be seen through some *parts* of the expressions in which it stands: the largest ones
that depend on nothing else. Whatever is computed of a row is a function of the values of these
parts and of the other columns, so values of the column for which each part has one value are alike:
what a row adds is the same in each joint cell of theirs. A public table that is joined by an
equality of the column with something that has another value in each of its rows depends on nothing
else either. A value has one row of it, or none, and which it is, is the same for each part that has
columns of the table; where there is none, nothing is added.

Values are compared as text, which tells apart what equality doesn't, like 0.0 and −0.0. NULL, and
rows outside the domain, keep their own cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.matrices import MAX_ENTRIES, Intervals, Runs, Sparse, of_entries
from dpsql.schema import Domain, Table
from dpsql.sql.binding.core import Core, Relation, expressions
from dpsql.sql.binding.expressions import BoundExpr, Expr, render
from dpsql.sql.lowering.lookups import implied_equalities
from dpsql.sql.lowering.matrices import LoweredBlock
from dpsql.sql.sandbox.database import Sandbox
from dpsql.workload.workload import common_refinement, refined

MOST_VALUES = 2**23
"""Values of a column that are written out to be looked at; a gigabyte holds no more of them."""


@dataclass(frozen=True, slots=True)
class SomeValues(Domain):
    """Some values of a domain, each for all that are alike; the domain itself was checked."""

    def __post_init__(self) -> None:
        pass


def alike_cells(
    sandbox: Sandbox, table: Table, cores: Iterable[Core], split: Mapping[str, Ints]
) -> dict[str, Ints]:
    """Return the class of each cell of a domain, for the columns with fewer classes than cells.

    Classes are numbered in the order of their first cells, as fine as those of `split`.

    Raises:
        SandboxError: DuckDB can't compute a part of an expression.
    """
    classes_by_attribute: dict[str, list[Ints]] = {}
    for core in cores:
        looking = _ColumnParts(sandbox, table, core)
        for name in looking.names:
            classes_by_attribute.setdefault(name, []).append(looking.classes(name))
    for name, classes in classes_by_attribute.items():
        if name in split:
            classes.append(split[name][: table.columns[name].size])
    joint = {name: common_refinement(classes) for name, classes in classes_by_attribute.items()}
    return {name: of for name, of in joint.items() if of.max() + 1 < len(of)}


def with_one_of_each(table: Table, alike: Mapping[str, Ints]) -> Table:
    """Return a table in whose domains one value stands for all that are alike: the first."""
    return replace(table, columns={**table.columns} | {n: _one(table, n, alike[n]) for n in alike})


def _one(table: Table, name: str, classes: Ints) -> SomeValues:
    domain = table.columns[name]
    first = np.unique(classes, return_index=True)[1]
    values = tuple(domain.values[int(i)] for i in first[: len(first) - domain.nullable])
    return SomeValues(
        domain.type,
        values,
        domain.nullable,
        domain.outside,
        column_type=domain.column_type,
        zone=domain.zone,
    )


def of_all(table: Table, alike: Mapping[str, Ints], over: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return what is said of each class of cells, as it is of each cell.

    Args:
        table: the table.
        alike: the classes.
        over: for some columns the class into which each of these falls, if not one by one.
    """
    together = dict(over)
    for name, classes in alike.items():
        cells = classes
        if table.leaves_out(name):
            cells = np.append(classes, classes.max() + 1)
        together[name] = over[name][cells] if name in over else cells
    return together


def of_first(table: Table, alike: Mapping[str, Ints], split: Mapping[str, Ints]) -> dict[str, Ints]:
    """Return what is said of each cell, as it is of each class."""
    refined_once = dict(split)
    for name in alike.keys() & split.keys():
        first = np.unique(alike[name], return_index=True)[1]
        outside = [len(alike[name])] if table.leaves_out(name) else []
        refined_once[name] = split[name][np.append(first, outside).astype(np.int64)]
    return refined_once


class _ColumnParts:
    """Looks at the columns of one core."""

    def __init__(self, sandbox: Sandbox, table: Table, core: Core) -> None:
        self._sandbox, self._table = sandbox, table
        self._nodes = [bound.node for bound in _expressions(core)]
        self._places = {f"__a{i}": name for i, name in enumerate(table.columns)}
        self._joined = dict(self._lookups(core))
        seen = {part.name for node in self._nodes for part in node.find_all(exp.Column)}
        hard = {
            part.name
            for node in self._nodes
            if node.find(exp.Query)
            for part in node.find_all(exp.Column)
        }
        self.names = [
            name
            for place, name in self._places.items()
            if place in seen - hard
            and _is_plain(table.columns[name])
            and table.columns[name].size <= MOST_VALUES
        ]

    def classes(self, name: str) -> Ints:
        """Return the class of each cell of a column."""
        index = list(self._table.columns).index(name)
        columns_read, joins = {f"__a{index}"}, []
        told = [f"v.__a{index} IS NULL"]
        for relation, (place, equal, key) in self._joined.items():
            if place == f"__a{index}":
                columns_read |= {f"__r{relation.number}_{j}" for j in range(len(relation.columns))}
                joins.append(f"LEFT JOIN {relation.table} ON {equal}")
                told.append(f"({key}) IS NULL")
        parts = {render(part) for node in self._nodes for part in _parts(node, columns_read)}
        told += [f"({part})::VARCHAR" for part in sorted(parts)]
        domain = self._sandbox.domain(index, self._table.columns[name])
        values = f"(SELECT code, value AS __a{index} FROM {domain}) AS v"
        values_of_cells = self._sandbox.arrays(
            f"SELECT code, min(code) OVER (PARTITION BY {', '.join(told)}) AS first "
            f"FROM {' '.join([values, *joins])} ORDER BY code"
        )
        return np.unique(values_of_cells["first"], return_inverse=True)[1].astype(np.int64)

    def _lookups(self, core: Core) -> Iterator[tuple[Relation, tuple[str, str, str]]]:
        """Return relations of which each value of a column has at most one row.

        With each comes the column, the equality by which it is joined, and the side of that which
        is the relation's.
        """
        equalities = [node for _, node in implied_equalities(core.conjuncts).values()]
        for relation in core.relations:
            if relation.kind != "inner":
                continue
            prefix = f"__r{relation.number}_"
            sides = [
                (one.unnest(), other, node)
                for node in equalities
                if isinstance(node, exp.EQ)
                for one, other in ((node.this, node.expression), (node.expression, node.this))
            ]
            for one, other, node in sides:
                names = [part.name for part in other.find_all(exp.Column)]
                keyed = names and all(name.startswith(prefix) for name in names)
                if not isinstance(one, exp.Column) or one.name not in self._places or not keyed:
                    continue
                if not other.find(exp.Query) and self._is_unique(relation, render(other)):
                    yield relation, (one.name, render(node), render(other))
                    break

    def _is_unique(self, relation: Relation, key: str) -> bool:
        query = f"SELECT count({key}) = count(DISTINCT {key}) FROM {relation.table}"
        return bool(self._sandbox.rows(query)[0][0])


def _is_plain(domain: Domain) -> bool:
    """Whether each cell of a domain is a value that SQL sees, whatever other values there are."""
    coarse = domain.coarse or domain.instant
    return not coarse and domain.other is None and domain.type not in {"ENUM", "BOOLEAN"}


def _expressions(core: Core) -> Iterator[BoundExpr]:
    """Return all expressions of a core."""
    yield from (*core.keys, *core.conjuncts, *core.by_row, *core.derived)
    for relation in core.relations:
        yield from relation.on
    for statistic in core.statistics:
        yield from expressions(statistic)


def _parts(node: Expr, own: set[str]) -> Iterator[Expr]:
    """Return the largest parts of an expression that depend on some columns alone."""
    names = {part.name for part in node.find_all(exp.Column)}
    if not names & own:
        return
    # WHEN … THEN … is no value: what comes after it depends on its condition.
    branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
    if names <= own and isinstance(node, exp.Condition) and not branch:
        yield node
        return
    for child in node.iter_expressions():
        yield from _parts(child, own)


# ── Merge cells that no query of a script tells apart ────────────────────────────────────────────
#
# A condition such as `age >= 18` asks for two cells of `age` and not for a hundred. With the cells
# that every matrix treats alike merged to one, the same answers follow from smaller matrices: plans
# are found sooner, more of them are optimal over the whole domain, and what was too large to be
# written out may no longer be. A row still lies in one cell, so nothing changes for its protection.


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The classes into which the cells of each column fall."""

    of: Mapping[str, Ints]
    """Column → the class of every cell, for columns of which some cells are merged. Classes are
    numbered in the order of their first cells."""
    sizes: Mapping[str, int]
    """Column → the number of its cells, or classes."""
    _first: dict[str, Ints] = field(default_factory=dict)

    @classmethod
    def of_blocks(
        cls,
        blocks: Iterable[LoweredBlock],
        sizes: Mapping[str, int],
        split: Mapping[str, Ints] = MappingProxyType({}),
    ) -> Classes:
        """Find the classes for all blocks of a script, at least as fine as those of `split`."""
        found = {name: refined(np.zeros_like(of), of) for name, of in split.items()}
        for block in blocks:
            for axis, name in enumerate(block.attributes):
                known = found.get(name, np.zeros(sizes[name], dtype=np.int64))
                if known.max(initial=0) + 1 < len(known):  # else all cells are told apart already
                    found[name] = refined(known, _signatures(block, axis, sizes))
        merged = {name: of for name, of in found.items() if of.max() + 1 < len(of)}
        left = {
            name: int(merged[name].max()) + 1 if name in merged else n for name, n in sizes.items()
        }
        return cls(MappingProxyType(merged), MappingProxyType(left))

    def merge(self, block: LoweredBlock, sizes: Mapping[str, int]) -> LoweredBlock:
        """Return a block over classes in place of cells."""
        if not any(name in self.of for name in block.attributes):
            return block
        if block.runs is not None and len(block.attributes) == 1:
            return block.with_rows(self._merged_runs(block.runs, block.attributes[0]))
        entries = block.entries()
        cells = np.unravel_index(entries.cell, [sizes[name] for name in block.attributes])
        # Cells of a class have equal entries, so those of the first cell of each are kept.
        kept = np.ones(len(entries.cell), dtype=np.bool_)
        places = []
        for name, at in zip(block.attributes, cells, strict=True):
            if name in self.of:
                kept &= self._firsts(name)[self.of[name][at]] == at
                at = self.of[name][at]
            places.append(at)
        shape = [self.sizes[name] for name in block.attributes]
        cell = np.ravel_multi_index([at[kept] for at in places], shape)
        count = int(np.prod(shape, dtype=object))
        row, weight = entries.row[kept], entries.weight[kept]
        return block.with_rows(of_entries(entries.rows, count, row, cell, weight))

    def _merged_runs(self, runs: Runs, name: str) -> Intervals:
        """Bound runs by classes: those with an earlier first cell come before a run."""
        (low, high), cells = runs, len(self.of[name])
        before = np.zeros(cells + 1, dtype=np.int64)
        before[self._firsts(name) + 1] = 1
        before = before.cumsum()
        count = self.sizes[name]
        around = high > cells
        after = before[np.where(around, high - cells, high)] + count * around
        return Intervals(count, before[low], after)

    def _firsts(self, name: str) -> Ints:
        """Return the first cell of every class."""
        if name not in self._first:
            self._first[name] = np.unique(self.of[name], return_index=True)[1]
        return self._first[name]


def _signatures(block: LoweredBlock, axis: int, sizes: Mapping[str, int]) -> Ints:
    """Return numbers for the values of one column: equal only if the matrix treats them alike."""
    runs = block.runs
    if runs is not None and len(block.attributes) == 1:
        return _segments(runs, block.rows.cells)
    shape = [sizes[name] for name in block.attributes]
    if runs is not None and (runs[1] - runs[0]).sum() > MAX_ENTRIES:
        return np.arange(shape[axis])
    entries = block.entries()
    at = np.unravel_index(entries.cell, shape)
    rest = np.ravel_multi_index(
        [np.zeros_like(at[i]) if i == axis else at[i] for i in range(len(shape))], shape
    )
    return _equal_slices(at[axis], _keys(entries, rest), entries.weight, shape[axis])


def _segments(runs: Runs, cells: int) -> Ints:
    """Return numbers for the stretches of cells between the ends of runs; one for all in none.

    Two adjacent cells are told apart if and only if a run begins or ends between them, and cells
    in no run are all alike. A run that goes around ends at `high - cells`.
    """
    low, high = runs
    cuts = np.zeros(cells + 1, dtype=np.int64)
    cuts[low] = 1
    cuts[np.where(high > cells, high - cells, high)] = 1
    steps = np.bincount(low, minlength=2 * cells + 1)
    steps -= np.bincount(high, minlength=2 * cells + 1)
    counted = steps.cumsum()
    inside = counted[:cells] + counted[cells : 2 * cells]
    return np.where(inside > 0, cuts[:cells].cumsum(), -1) + 1


def _keys(entries: Sparse, rest: Ints) -> Ints:
    """Return numbers for the places of entries apart from the column that is looked at."""
    return np.asarray(entries.row * entries.cells + rest)


def _equal_slices(at: Ints, key: Ints, weight: Array, size: int) -> Ints:
    """Return numbers for the slices of a matrix, so that only equal ones have equal numbers.

    Keys ascend within a slice, because entries do, and those of a slice have one value of the
    column that is looked at. Slices are compared with the one before them among those of the same
    length and hash: a collision of hashes only splits a class.
    """
    # Bring the entries of each slice together: slice v has those from starts[v] on.
    narrow = at.astype(np.uint16) if size <= 1 << 16 else at  # which is sorted by its digits
    order = np.argsort(narrow, kind="stable")
    at, key, weight = at[order], key[order], weight[order]
    lengths = np.bincount(at, minlength=size)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    # Hash each entry by its place and the bits of its weight (the constants are those of Fibonacci
    # hashing and of splitmix64), and each slice by the sum of its entries' hashes.
    bits = weight.view(np.uint64) ^ (key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = np.zeros(size, dtype=np.uint64)
    np.add.at(hashes, at, mixed ^ (mixed >> np.uint64(32)))
    # Slices that may be equal are now side by side; they are compared in full.
    ranked = np.lexsort((hashes, lengths))
    same = np.zeros(size, dtype=np.bool_)
    alike = (np.diff(hashes[ranked]) == 0) & (np.diff(lengths[ranked]) == 0)
    one, other = ranked[:-1][alike], ranked[1:][alike]
    same[other] = _slices_equal(one, other, starts, lengths, key, weight)
    # A slice that equals the one before it has its number, any other the next one.
    numbers = np.empty(size, dtype=np.int64)
    numbers[ranked] = np.cumsum(~same[ranked])
    return numbers


def _slices_equal(
    one: Ints, other: Ints, starts: Ints, lengths: Ints, key: Ints, weight: Array
) -> NDArray[np.bool_]:
    """Compare slices pair by pair, entry by entry."""
    count = lengths[one]
    pair = np.repeat(np.arange(len(one)), count)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    a, b = starts[one][pair] + within, starts[other][pair] + within
    differ = (key[a] != key[b]) | (weight[a] != weight[b])
    return np.asarray(np.bincount(pair, weights=differ, minlength=len(one)) == 0)
