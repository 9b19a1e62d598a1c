"""In which line the rows of a unit stand: SQL for an order of all that tells them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.rows.typed import call

_FLOATS = frozenset({"FLOAT", "DOUBLE"})


def identity(column: str, type_: str) -> str:
    """Return what tells ids apart: the bytes of a text."""
    return call("encode", column) if type_ == "VARCHAR" else column


def place_in_line(order: Sequence[str], unit: str) -> str:
    """Write the place of a row among those of its unit, from 1.

    Args:
        order: what they are sorted by.
        unit: the unit's id.
    """
    by = f" ORDER BY {in_order(order)}" if order else ""
    return f"{call('row_number')} OVER (PARTITION BY {unit}{by})"


def in_order(keys: Sequence[str]) -> str:
    """Write what follows ORDER BY: from the least to the largest, whatever the connection's way."""
    return ", ".join(f"{key} ASC NULLS FIRST" for key in keys)


def told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    if "VARCHAR" in types:
        yield call("encode", f"{column}::VARCHAR")
    else:
        yield column
    if not _FLOATS.isdisjoint(types):
        yield call("signbit", f"{column}::DOUBLE")
