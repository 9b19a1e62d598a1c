"""Parquet files from strangers, read into frames.

They are read by Arrow. Polars' own reader ends the whole process when a file claims to need more
memory than there is.
"""

from __future__ import annotations

import polars as pl


def read_parquet(content: bytes) -> pl.DataFrame:
    """Read a Parquet file.

    Raises:
        ValueError: it is damaged, or was none.
    """
    import pyarrow as pa  # slow to import, and needed for what was kept only
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
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
