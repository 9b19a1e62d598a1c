"""Counts that Python workers make of a part of the rows: codes in, sums by cell out. Trusted.

Guarantees:
    A row adds 1 to one cell of each block, or to none, whatever its codes are.

    *Proof.* Its key in a block is a mixed-radix number of digits that are below their radix: a code
    that isn't from 0 to before the number of codes takes the row out of the block, and the class of
    one that is lies below the number of classes. So the key is one of the block's own cells, of
    which `offset` makes numbers that no other block has. A row is in one batch, and a batch in one
    chunk. ∎

Workers have NumPy and PyArrow, and not this library: what is made here is sent to them as it is,
and names nothing else. Sums come back as rows of the job, which Spark takes once for each part,
however often it was begun: of what workers leave behind otherwise, accumulators for example, a
part that was begun twice is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import Counts

if TYPE_CHECKING:
    import pyarrow as pa

KEY, COUNT = "key", "n"
"""The columns of what comes back: the number of a cell among those of all blocks, and its rows."""
SCHEMA = f"{KEY} BIGINT, {COUNT} BIGINT"
MOST_DENSE = 2**22
"""Cells of all blocks together that a worker holds at once: 32 MB."""
_ROWS = 100_000
"""Rows that are counted at a time, so that they are more than the cells of a block."""

Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True, slots=True)
class CodedAxis:
    """An attribute of a block: where its code is, how many there are, and classes of them."""

    place: str
    codes: int
    classes: Counts | None = None

    @property
    def size(self) -> int:
        """The number of classes, or of codes."""
        return self.codes if self.classes is None else int(self.classes.max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class CodedBlock:
    """The cells that are counted together: their axes, and the number of the first cell."""

    axes: tuple[CodedAxis, ...]
    cells: int
    offset: int

    def holds(self, keys: Counts) -> NDArray[np.bool_]:
        """Mark the numbers that are cells of this block."""
        return (keys >= self.offset) & (keys < self.offset + self.cells)


def partial_counts(blocks: Sequence[CodedBlock]) -> Batches:
    """Return what counts codes, of which -1 is that of a value without a cell."""
    plan = [
        ([(a.place, a.codes, a.size, a.classes) for a in b.axes], b.cells, b.offset) for b in blocks
    ]
    dense = sum(b.cells for b in blocks) <= MOST_DENSE
    total_cells, rows_at_once = (blocks[-1].offset + blocks[-1].cells if dense else 0), _ROWS
    key_name, count_name = KEY, COUNT

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy
        import pyarrow

        total = numpy.zeros(total_cells, dtype=numpy.int64)

        def rows_of(keys: Counts, counts: Counts) -> pa.RecordBatch:
            arrays = [pyarrow.array(keys, "int64"), pyarrow.array(counts, "int64")]
            return pyarrow.RecordBatch.from_arrays(arrays, [key_name, count_name])

        def numbers(column: pa.Array) -> Counts:
            # Arrow's own way to NumPy would import pandas first, wherever it is installed.
            column = column.cast("int64").fill_null(-1)
            lies = column.buffers()[1]
            return numpy.frombuffer(lies, numpy.int64, len(column), 8 * column.offset)

        def chunks() -> Iterator[list[pa.RecordBatch]]:
            held: list[pa.RecordBatch] = []
            rows = 0
            for batch in batches:
                if batch.num_rows:
                    held.append(batch)
                rows += batch.num_rows
                if rows >= rows_at_once:
                    yield held
                    held, rows = [], 0
            if held:
                yield held

        for held in chunks():
            rows = sum(batch.num_rows for batch in held)
            codes = {
                name: numpy.concatenate([numbers(batch.column(name)) for batch in held])
                for name in held[0].schema.names
            }
            for axes, cells, offset in plan:
                keys = numpy.zeros(rows, dtype=numpy.int64)
                inside = numpy.ones(rows, dtype=bool)
                for place, known, size, classes in axes:
                    code = codes[place]
                    here = (code >= 0) & (code < known)
                    inside &= here
                    code = numpy.where(here, code, 0)
                    keys = keys * size + (code if classes is None else classes[code])
                keys = keys if inside.all() else keys[inside]
                if dense:
                    total[offset : offset + cells] += numpy.bincount(keys, minlength=cells)
                else:
                    distinct, counts = numpy.unique(keys, return_counts=True)
                    yield rows_of(distinct + offset, counts)
        if dense:
            distinct = numpy.flatnonzero(total)
            yield rows_of(distinct, total[distinct])

    return count


def attempts(count: Batches) -> Batches:
    """Return what counts a part, and tells how often it was begun in vain, in place of counts."""
    key_name, count_name = KEY, COUNT

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy
        import pyarrow
        from pyspark import TaskContext

        for _ in count(batches):  # a worker that can't count fails here, or before
            pass
        context = TaskContext.get()
        begun = numpy.array([0 if context is None else context.attemptNumber()])
        arrays = [pyarrow.array([0], "int64"), pyarrow.array(begun, "int64")]
        yield pyarrow.RecordBatch.from_arrays(arrays, [key_name, count_name])

    return tell


def split(blocks: Sequence[CodedBlock], keys: Counts, rows: Counts) -> list[tuple[Counts, Counts]]:
    """Return the keys of each block, and what was counted for them."""
    parts = []
    for block in blocks:
        here = block.holds(keys)
        parts.append((keys[here] - block.offset, rows[here].astype(np.int64)))
    return parts
