"""In which line the rows of a unit stand: an order of all that tells them apart. Trusted.

Guarantees:
    What the row in a place has, of all that is read of it, follows from the rows that agree with it
    in `by`: from them all together, not from how they are stored or spread, nor from which task
    runs twice. Nothing fails.

    *Proof.* Rows are numbered within `by` by the line of a relation: columns in which rows of a
    unit agree only if they are the same in all that is read (`engines/relations.py`). It is enough
    that two rows which the order takes for equal have equal values of each: they then take each
    other's places without a trace. By type: texts are sorted as bytes, which equal themselves
    alone. Integers, decimals of one scale, days, times and booleans are equal only if they are the
    same. So are doubles, but that -0.0 equals 0.0, for which their signs come after them; and that
    all NaN are one, as they are to each function that is written here and are shown as one text.
    NULL is equal to NULL, and comes first. Casts are to bytes, to DOUBLE from FLOAT, and from there
    to text: all are total. ∎
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpsql.engines.spark.sql.text import call, constant, identity, whole

FLOATS = frozenset({"FLOAT", "DOUBLE"})


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


def key_of(column: str, type_: str) -> str:
    """Write what tells values apart, and can be read as the value."""
    if type_ in FLOATS:
        return f"CAST(CAST({column} AS DOUBLE) AS STRING)"
    return identity(column, type_)


def value_of(key: str, type_: str) -> str:
    """Write the value that a key stands for."""
    if type_ == "VARCHAR":
        return f"CAST({key} AS STRING)"
    return f"CAST({key} AS {type_})" if type_ in FLOATS else key
