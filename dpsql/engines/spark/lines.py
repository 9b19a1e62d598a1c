"""In which line the rows of a unit stand: an order of all that tells them apart. Trusted.

Guarantees:
    What the row in a place has, of all that is read of it, follows from the rows that agree with it
    in `by`: from them all together, not from how they are stored or spread, nor from which task
    runs twice. Nothing fails.

    *Proof.* Rows are numbered within `by` by an order of every column that is read
    (`line_columns`), but for the unit's ids, in which they agree. It is enough that two rows which
    the order takes for equal have equal values of each: they then take each other's places without
    a trace. By type: texts are sorted as bytes, which equal themselves alone. Integers, decimals of
    one scale, days, times and booleans are equal only if they are the same. So are doubles, but
    that -0.0 equals 0.0, for which their signs come after them; and that all NaN are one, as they
    are to each function that is written here and are shown as one text. NULL is equal to NULL, and
    comes first. Casts are to bytes, to DOUBLE from FLOAT, and from there to text: all are total. ∎
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpsql.engines.lines import line_columns
from dpsql.engines.spark.sql.text import call, constant, identity, quoted, whole
from dpsql.schema import Table

FLOATS = frozenset({"FLOAT", "DOUBLE"})


def line_order(table: Table, names: Iterable[str]) -> list[str]:
    """Write what a unit's rows are sorted by: two that agree in all of it are the same row.

    Args:
        table: the table, with what is stored in it alone.
        names: the columns that are read.
    """
    found = line_columns(table, names).items()
    return [key for name, types in found for key in told_apart(quoted(name), *types)]


def place_in_line(order: Sequence[str], by: Sequence[str]) -> str:
    """Write the place of a row among those that agree in some columns, from 1."""
    line = ", ".join(least_first(order)) or f"{whole(0)} ASC"
    place = f"{call('row_number')} OVER (PARTITION BY {', '.join(by)} ORDER BY {line})"
    return f"CAST({place} AS BIGINT)"


def least_first(keys: Iterable[str]) -> Iterator[str]:
    """Write keys of an order from the least one on, NULL before all others."""
    return (f"{key} ASC NULLS FIRST" for key in keys)


def told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    yield identity(column, "VARCHAR" if "VARCHAR" in types else "")
    if not FLOATS.isdisjoint(types):
        text = f"CAST(CAST({column} AS DOUBLE) AS STRING)"
        yield call("startswith", text, constant("-", "STRING"))
