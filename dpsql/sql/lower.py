"""Bound statement → matrices: which cells of which columns each answer counts.

Conditions that share columns, and the keys among those columns, form one component, which becomes
one block of the statement's Kronecker products. All other keys are blocks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ResourceLimitError, SqlError
from dpsql.schema import Domain, Table
from dpsql.sql.bind import BoundKey, BoundStatement, BoundValue, Running
from dpsql.sql.evaluate import Evaluator, check_cells
from dpsql.sql.terms import Condition
from dpsql.workload import Factor, Identity, Matrix, Prefix, Suffix
from dpsql.workload.queries import MAX_ENTRIES

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LoweredBlock:
    """One component: its columns, the groups that it can have, and what they count."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    """The columns that tell the groups; both in the order of the schema."""
    mask: Mask | None
    """For each joint cell of `columns`, whether WHERE keeps it; None if all of them."""
    rows: int
    codes: tuple[Codes, ...]
    """For each key, its code in every row."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredStatement:
    """The blocks of a statement, and the factors of each of its value columns."""

    blocks: tuple[LoweredBlock, ...]
    factors: tuple[tuple[Factor, ...], ...]

    @property
    def entries(self) -> int:
        """The number of coefficients that are written out."""
        masked = (block.rows * block.mask.size for block in self.blocks if block.mask is not None)
        return sum(masked) * len(set(map(id, self.factors)))


def lower(bound: BoundStatement, table: Table, evaluator: Evaluator) -> LoweredStatement:
    """Turn a statement into matrices over the public domain.

    Raises:
        SqlError: WHERE rules out every group for any possible row.
        ResourceLimitError: a joint domain or a matrix is too large.
    """
    blocks = _blocks(bound, table, evaluator)
    values = [output for output in bound.outputs if isinstance(output, BoundValue)]
    factors = {
        running: tuple(_factor(block, running, table) for block in blocks)
        for running in dict.fromkeys(value.running for value in values)
    }
    return LoweredStatement(blocks, tuple(factors[value.running] for value in values))


def block_of_key(lowered: LoweredStatement, key: BoundKey) -> tuple[int, Codes]:
    """Return the block that holds a key, and the key's codes along its rows."""
    for index, block in enumerate(lowered.blocks):
        if key.column in block.keys:
            return index, block.codes[block.keys.index(key.column)]
    raise KeyError(key.column)


def _blocks(bound: BoundStatement, table: Table, evaluator: Evaluator) -> tuple[LoweredBlock, ...]:
    masks: dict[tuple[str, ...], Mask] = {}
    for columns, conditions in _components(bound, table).items():
        domains = {name: table.columns[name] for name in columns}
        mask = evaluator.mask(conditions, domains, bound.sql)
        if not mask.any() and not bound.keys and table.columns:
            return (_nothing(columns or tuple(table.columns), table),)
        if not mask.any():
            raise SqlError(
                "WHERE is not true for any possible row, so there is no group to return.",
                sql=bound.sql,
                span=bound.where,
                hint="are the conditions contradictory, beyond the columns' domains, or do they "
                "compare with NULL? That is written IS NULL.",
            )
        if not mask.all():
            masks[columns] = mask
    inside = {column: columns for columns in masks for column in columns}
    groups = dict.fromkeys([inside.get(key, (key,)) for key in bound.keys] + list(masks))
    return tuple(_block(columns, masks.get(columns), bound.keys, table) for columns in groups)


def _nothing(columns: Sequence[str], table: Table) -> LoweredBlock:
    """Count no row at all: a single row of zeros, over the smallest of some columns."""
    smallest = min(columns, key=lambda name: table.columns[name].size)
    mask = np.zeros(table.columns[smallest].size, dtype=np.bool_)
    return LoweredBlock((smallest,), (), mask, 1, ())


def _components(bound: BoundStatement, table: Table) -> dict[tuple[str, ...], list[Condition]]:
    """Group the conditions that share columns; the columns are in the order of the schema."""
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in bound.conditions:
        touching = [group for group in groups if group[0] & condition.columns]
        merged = (set(condition.columns), [condition])
        for columns, conditions in touching:
            merged[0].update(columns)
            merged[1].extend(conditions)
        groups = [group for group in groups if group not in touching] + [merged]
    found: dict[tuple[str, ...], list[Condition]] = {}
    for columns, conditions in groups:
        ordered = tuple(name for name in table.columns if name in columns)
        found.setdefault(ordered, []).extend(conditions)
    return found


def _block(
    columns: tuple[str, ...], mask: Mask | None, keys: Sequence[str], table: Table
) -> LoweredBlock:
    inner = tuple(name for name in columns if name in keys)
    if mask is None:  # a single key, all of its values
        size = check_cells({name: table.columns[name] for name in columns})
        codes = np.arange(size, dtype=np.int64)
        return LoweredBlock(columns, inner, None, len(codes), (codes,))
    if not inner:
        return LoweredBlock(columns, inner, mask, 1, ())
    others = tuple(axis for axis, name in enumerate(columns) if name not in inner)
    possible = mask.any(axis=others)
    at = tuple(axis.astype(np.int64) for axis in np.nonzero(possible))
    return LoweredBlock(columns, inner, mask, len(at[0]), at)


def _factor(block: LoweredBlock, running: Running | None, table: Table) -> Factor:
    key = running.key if running is not None and running.key in block.keys else None
    ranks = _ranks(table.columns[key], running) if key is not None and running else None
    if block.mask is None:
        return Identity() if ranks is None else _running_factor(ranks)
    counts = _counts(block, table)
    if ranks is not None and key is not None:
        counts = _accumulate(counts, block, block.keys.index(key), ranks, table)
    return Matrix(counts)


def _counts(block: LoweredBlock, table: Table) -> NDArray[np.float64]:
    """Return the matrix whose row for a group has a one at each cell that it counts."""
    domains = {name: table.columns[name] for name in block.columns}
    cells = check_cells(domains)
    _check_entries(block.rows, cells, block.columns)
    kept = np.ones(0, dtype=np.bool_) if block.mask is None else block.mask
    counts = np.zeros((block.rows, cells))
    if not block.keys:
        counts[0] = kept.ravel()
        return counts
    at = np.nonzero(kept)
    shape = tuple(domains[name].size for name in block.keys)
    row_of = np.full(shape, -1, dtype=np.int64)
    row_of[block.codes] = np.arange(block.rows)
    axes = [block.columns.index(name) for name in block.keys]
    counts[row_of[tuple(at[axis] for axis in axes)], np.ravel_multi_index(at, kept.shape)] = 1.0
    return counts


def _accumulate(
    counts: NDArray[np.float64], block: LoweredBlock, key: int, ranks: Codes, table: Table
) -> NDArray[np.float64]:
    """Sum the rows of each partition from the first in order to the current one."""
    position = ranks[block.codes[key]]
    rest = [code for i, code in enumerate(block.codes) if i != key]
    sizes = [table.columns[name].size for i, name in enumerate(block.keys) if i != key]
    partition = np.ravel_multi_index(tuple(rest), tuple(sizes)) if rest else 0 * position
    order = np.lexsort((position, partition))
    starts = np.flatnonzero(np.diff(partition[order], prepend=-1))
    summed = np.empty_like(counts)
    for rows in np.split(order, starts[1:]):
        summed[rows] = np.cumsum(counts[rows], axis=0)
    return summed


def _ranks(domain: Domain, running: Running | None) -> Codes:
    """Return the position of every cell in the window's order, as DuckDB sorts the column."""
    descending = running is not None and running.descending
    nulls_first = running is not None and running.nulls_first
    values = domain.values
    codes = list(range(len(values)))
    if not isinstance(values, range) and domain.type != "ENUM":
        # Strings sort by code point, which is how DuckDB sorts their bytes.
        codes.sort(key=lambda code: values[code])
    if descending:
        codes.reverse()
    if domain.nullable:
        codes.insert(0 if nulls_first else len(codes), len(values))
    ranks = np.empty(domain.size, dtype=np.int64)
    ranks[codes] = np.arange(domain.size)
    return ranks


def _running_factor(ranks: Codes) -> Factor:
    up = np.arange(len(ranks))
    if np.array_equal(ranks, up):
        return Prefix()
    if np.array_equal(ranks, up[::-1]):
        return Suffix()
    _check_entries(len(ranks), len(ranks), ("the running key",))
    return Matrix(ranks[None, :] <= ranks[:, None])


def _check_entries(rows: int, cells: int, columns: Sequence[str]) -> None:
    if rows * cells > MAX_ENTRIES:
        raise ResourceLimitError(
            f"The groups and conditions over {', '.join(columns)} need a matrix of "
            f"{rows:,} x {cells:,} entries, more than {MAX_ENTRIES:,}.",
            hint="group by coarser columns, or by fewer of those in the condition.",
        )


def block_shape(lowered: LoweredStatement) -> tuple[int, ...]:
    """Return the number of rows along each block."""
    return tuple(block.rows for block in lowered.blocks)
