"""Counts of many blocks by one pass over the rows: cells are found by DuckDB, and counted by NumPy.

A statement for each block reads the rows again each time. Where that is dear, as of Parquet files
or of texts that are looked up in lists, one statement gives the cells of all columns that are
needed, as small integers in batches, and each batch is counted in all blocks. What is in memory is
a batch and the counts.

Guarantees:
    1. A row changes one count of a block by one at most, and nothing else. *Proof.* A row of the
       statement's source gives one row of the result: it has no join, no aggregate, no DISTINCT and
       no LIMIT, and the SQL of cells is that of `columns.py`, which never fails. Each row of a
       batch has one key in a block: `OnePass.run` counts batches by `np.bincount`, once for each
       block, and adds up. Rows without a cell of one of the block's columns have the key after the
       last; that is cut off, with whatever is beyond it. So it is, whatever the database returned.
       Sums are int64, of counts of which each is less than 2^31. ∎
    2. The counts are those of a statement for each block (`engine.scan`): cells are by the same SQL
       (`CodedColumn`), classes of cells by the same lists, and rows without a cell in one column
       are left out of the blocks that have it, and of no others.
    3. Which rows of a unit count is decided before: the source is then `relations.kept_rows`.
    4. Which way is taken follows from `in_one_pass`, and this from what is public alone: types of
       columns, sizes of domains, blocks, and whether rows come from files. It makes a difference to
       the time and to no count. Progress is DuckDB's own, as a share of what it reads: when one
       hears of it is what a clock tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.arrow import numbers
from dpsql.engines.base import Counts, Marginal, Words
from dpsql.engines.duckdb.catalog import check_bound
from dpsql.engines.duckdb.coding import Coding, with_cells
from dpsql.engines.duckdb.columns import Parameters, source_of, whole
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.schema.names import unused

if TYPE_CHECKING:
    import duckdb
    from pyarrow import RecordBatch

BATCH = 100_000
"""Rows that are counted at once: what is made of them stays in a processor's cache."""
MOST_CELLS = 2**17
"""Blocks with more cells are counted by GROUP BY: these counts would be gone through each time."""
_TYPES: tuple[tuple[int, str, type[np.unsignedinteger[Any]]], ...] = (
    (2**7, "TINYINT", np.uint8),
    (2**15, "SMALLINT", np.uint16),
    (2**31, "INTEGER", np.uint32),
)
"""Cells are of the first type that has all their numbers and -1, and are read without its sign, so
that -1 is larger than them all."""
Codes = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PassedColumn:
    """A column of the result: the cell of each row in one attribute."""

    cells: int
    classes: Codes | None
    """The class of each cell, if some are counted together."""

    @property
    def type(self) -> tuple[str, type[np.unsignedinteger[Any]]]:
        """DuckDB's type of the codes, and NumPy's."""
        return next((sql, read) for most, sql, read in _TYPES if self.cells < most)

    def read(self, found: Codes) -> tuple[Codes, NDArray[np.bool_] | None]:
        """Return classes of cells, and which rows have none, if there are any."""
        codes: Codes = found.view(self.type[1])
        lost = codes >= self.cells
        if self.classes is not None:
            codes = self.classes.take(codes, mode="clip")
        return codes, lost if lost.any() else None


@dataclass(frozen=True, slots=True)
class PassedBlock:
    """A block, and where the cells of its attributes are in the result."""

    places: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        """The number of its cells."""
        return math.prod(self.shape)

    def count(
        self, rows: int, codes: Sequence[Codes], lost: Sequence[NDArray[np.bool_] | None]
    ) -> Counts:
        """Count a batch; of rows that are lost in another column, one has any code there."""
        small = self.cells < 2**16
        keys: Codes = np.zeros(rows, dtype=np.uint16 if small else np.int64)
        for place, size in zip(self.places, self.shape, strict=True):
            keys *= keys.dtype.type(size)
            keys += codes[place]
        for place in self.places:
            if (gone := lost[place]) is not None:
                keys[gone] = self.cells
        return np.bincount(keys, minlength=self.cells)[: self.cells]


@dataclass(frozen=True, slots=True)
class OnePass:
    """One statement that gives the cells of all rows, and the blocks that are counted of them."""

    sql: str
    parameters: tuple[Any, ...]
    columns: tuple[PassedColumn, ...]
    blocks: Mapping[Marginal, PassedBlock]

    @property
    def steps(self) -> int:
        """The number of steps of progress: as many as there are statements otherwise."""
        return len(self.blocks)

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement and its parameters; see `fetching.check_bound`."""
        check_bound(con, self.sql, self.parameters)

    def run(
        self, con: duckdb.DuckDBPyConnection, on_step: Callable[[int], None]
    ) -> tuple[dict[Marginal, Counts], dict[Marginal, Words]]:
        """Run the statement; return the rows of each cell, by block, and no sums.

        Args:
            con: the connection.
            on_step: called with the number of steps that are done, and not with the last.
        """
        sums = {m: np.zeros(block.cells, dtype=np.int64) for m, block in self.blocks.items()}
        told = 0
        # By `execute` all rows would be fetched before the first is read.
        reader = con.sql(self.sql, params=list(self.parameters)).to_arrow_reader(BATCH)
        try:
            for batch in reader:
                if not batch.num_rows:
                    continue
                self._add(batch, sums)
                share = con.query_progress() / 100  # negative if DuckDB doesn't know
                for step in range(told + 1, min(int(share * self.steps), self.steps - 1) + 1):
                    on_step(step)
                    told = step
        finally:
            with suppress(Exception):  # another statement ends it, too
                reader.close()
        return {m: sums[m].reshape(block.shape) for m, block in self.blocks.items()}, {}

    def _add(self, batch: RecordBatch, sums: Mapping[Marginal, Counts]) -> None:
        """Count a batch in all blocks."""
        pairs = [
            column.read(numbers(values, column.type[1]))
            for column, values in zip(self.columns, batch.columns, strict=True)
        ]
        codes, lost = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for marginal, block in self.blocks.items():
            sums[marginal] += block.count(batch.num_rows, codes, lost)


def one_pass(coding: Coding, blocks: Sequence[Marginal]) -> OnePass:
    """Build the statement for some blocks.

    Args:
        coding: how rows get their cells.
        blocks: what is counted.
    """
    table, parameters = coding.table, Parameters()
    names = [name for name in table.columns if any(name in block for block in blocks)]
    prefix = unused([*table.columns, *table.undeclared])
    if table.unit is None:
        source = source_of(table)
    else:
        source = f"({kept_rows(table, coding.read(names, ()), parameters)})"
    columns = tuple(_column(coding, name) for name in names)
    cells = with_cells(source, coding, names, [], prefix, parameters)
    shown = (_narrow(f"{prefix}c{i}", column.type[0]) for i, column in enumerate(columns))
    return OnePass(
        f"SELECT {', '.join(shown)} FROM ({cells})",
        tuple(parameters.values),
        columns,
        {
            block: PassedBlock(tuple(map(names.index, block)), tuple(map(coding.size, block)))
            for block in blocks
        },
    )


def _narrow(cell: str, type_: str) -> str:
    """Write a cell in a small type; one that isn't of that type would be none."""
    return f"coalesce(TRY_CAST({cell} AS {type_}), {whole(-1, type_)}) AS {cell}"


def _column(coding: Coding, name: str) -> PassedColumn:
    classes = coding.merged.get(name)
    if classes is not None:
        classes = classes.astype(np.min_scalar_type(int(classes.max(initial=0))))
    return PassedColumn(coding.table.cells(name), classes)


# ── what is cheaper ────────────────────────────────────────────────────────────────────────

_READ = {
    "number": 0.0,
    "text": 4.0,
    "number in a file": 3.5,
    "text in a file": 24.0,
    "derived": 10.0,
}
"""Nanoseconds of a processor that it takes to read a column of a row and to find its cell. For
stored numbers they are part of what grouping takes."""
_FETCHED = 6.0
"""To hand the cell over to NumPy."""
_COUNTED, _KEYED = 2.0, 0.2
"""To count a row in a block; for each of its columns besides."""
_CLASSED = 2.5
"""To have a row find its class in a column, where that is grouped by."""
_GROUPED, _GROUPED_KEPT = 5.5, 20.0
"""To group a row; where rows were stored first, because units have some of them left out."""


def in_one_pass(coding: Coding, blocks: Sequence[Marginal]) -> tuple[Marginal, ...]:
    """Choose the blocks that are counted by one pass: all that fit, or none; whichever is cheaper.

    Rows that count of units are found once either way.
    """
    fitting = [block for block in blocks if _fits(coding, block)]
    cost = {name: reading_cost(coding, name) for block in fitting for name in block}
    stored = coding.table.unit is not None and len(blocks) > 1
    grouped = _GROUPED_KEPT if stored else _GROUPED
    apart = 0.0
    for block in fitting:
        apart += grouped + sum(cost[name] for name in block)
        apart += _CLASSED * len(coding.grouping(block).classed)
    once = sum(cost.values()) + _FETCHED * len(cost)
    once += sum(_COUNTED + _KEYED * len(block) for block in fitting)
    return tuple(fitting) if cost and once < apart else ()


def reading_cost(coding: Coding, name: str) -> float:
    """Say what it takes to read a column of a row, and to find its cell."""
    if name in coding.keys:
        return _READ["derived"]
    kind = "text" if coding.table.columns[name].type == "VARCHAR" else "number"
    origin = coding.table.origin
    return _READ[f"{kind} in a file" if origin is not None and origin.roots else kind]


def _fits(coding: Coding, block: Marginal) -> bool:
    """Whether a block is small enough."""
    cells = math.prod(map(coding.size, block))
    widest = max((coding.table.cells(name) for name in block), default=0)
    return cells <= MOST_CELLS and widest < _TYPES[-1][0]
