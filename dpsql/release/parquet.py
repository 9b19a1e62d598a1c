"""Parquet files from strangers, read into frames.

They are read by Arrow. Polars' own reader ends the whole process when a file claims to need more
memory than there is. A small file may hold very many equal values, so what it says to hold is
compared with what is expected before any of it is read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MAX_VALUES = 1 << 27
"""The most values, of lists one by one, that are read where the number of rows isn't known."""


def read_parquet(content: bytes, columns: Collection[str], rows: int | None = None) -> pl.DataFrame:
    """Read a Parquet file.

    Args:
        content: the file.
        columns: the names that its columns must have, those and no others if `rows` is None.
        rows: how many it must have, of plain values.

    Raises:
        ValueError: it is damaged, is not Parquet, or holds something other than is expected.
    """
    import pyarrow as pa  # slow to import, and needed for what was kept only
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if not _is_expected(file, columns, rows):
            raise ValueError
        table = file.read(use_threads=False)
        table.validate(full=True)
        frame = pl.from_arrow(table)
    except (
        pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError,
        pl.exceptions.PolarsError, pl.exceptions.PanicException,
    ):  # fmt: skip
        raise ValueError("not a Parquet file that can be read") from None
    if not isinstance(frame, pl.DataFrame):
        raise ValueError("not a table")
    return frame


def _is_expected(file: ParquetFile, columns: Collection[str], rows: int | None) -> bool:
    """Compare the footer of a file with what is expected of it."""
    names: list[str] = file.schema_arrow.names
    footer = file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    counted: int = sum(group.num_rows for group in groups)
    values: int = sum(g.column(i).num_values for g in groups for i in range(g.num_columns))
    if rows is None:
        plain = names == list(columns) and counted == int(footer.num_rows)
        return plain and values <= MAX_VALUES
    return set(columns) <= set(names) and counted == rows and values <= rows * len(names)
