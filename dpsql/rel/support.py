"""The support of a measure: the cells of an attribute in which rows add something to its sums.

Trusted core. A row without a value adds nothing to sums of a column. Where the rows that have one
are counted besides, an attribute tells both apart; so no row pays for all that is measured: those
that have no value pay for no sum (`measurement.worst_row`).

Guarantees:
    1. A `Support` of the measure m, with some cells of the attribute a, is said of rows that were
       counted: each row that adds another number than 0 to sums of m, and that is in a cell of a,
       is in one of these.
    2. `supports_of` says so only of a measure that is a column by itself, and of a key of the same
       column that is there in just the values that its `Presence` lists.
       *Proof.* Let c be the column. A row of which c is NULL, or its DOUBLE NaN, adds nothing
       (`rows.measure`). If c is neither, it has one of the values that the `Presence` lists
       (`rows.key`), so that it is in the class of the cell of one of them. Both are computed of
       what is stored of the same row. Nothing in it can fail and be NULL in the one and not in the
       other, as it would be where an expression is computed in two types. ∎
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.rows.expression import RowColumn, canonical
from dpsql.rows.key import RowKey
from dpsql.rows.measure import RowMeasure
from dpsql.schema import Table


@dataclass(frozen=True, slots=True)
class Support:
    """The cells of an attribute outside of which no row adds anything to sums of a measure."""

    measure: str
    attribute: str
    cells: tuple[bool, ...]
    """For each cell, as it is counted, whether rows in it may add something; it is so of one."""

    def __post_init__(self) -> None:
        if not any(self.cells) or any(type(cell) is not bool for cell in self.cells):
            raise InternalError("a measure that no row adds anything to has no support")

    def implies(self, other: Support) -> bool:
        """Whether the other says no more of the same."""
        same = self.measure, self.attribute, len(self.cells)
        return same == (other.measure, other.attribute, len(other.cells)) and all(
            theirs or not ours for ours, theirs in zip(self.cells, other.cells, strict=True)
        )

    def renamed(self, name: Callable[[str], str]) -> Support:
        """Say it in other names of the measure and of the attribute."""
        return replace(self, measure=name(self.measure), attribute=name(self.attribute))


def supports_of(
    table: Table,
    measures: Mapping[str, RowMeasure],
    keys: Mapping[str, RowKey],
    merged: Mapping[str, Ints],
) -> tuple[Support, ...]:
    """Say of which measures of a table some attributes tell where rows add nothing.

    Args:
        table: whose rows are counted. It has a domain for each of the keys.
        measures: measure → what a row adds.
        keys: attribute → how it is computed of a row.
        merged: attributes of which some cells are counted together: the class of each cell.
    """
    supports = list[Support]()
    read = {name: _column_of(of) for name, of in measures.items()}
    columns = {name: column for name, column in read.items() if column is not None}
    for attribute, key in sorted(keys.items()):
        told = key.presence
        among = [name for name, column in columns.items() if key.columns == {column}]
        if told is None or not among:
            continue
        there = [value in told.values for value in key.domain.values]
        rest = table.cells(attribute) - len(there)  # of NULL, and of rows without another cell
        cells = _together([*there, *[False] * rest], merged.get(attribute))
        if any(cells) and not all(cells):
            same = (
                name for name in sorted(among) if told.of == canonical(RowColumn(columns[name]))
            )
            supports += (Support(name, attribute, cells) for name in same)
    return tuple(supports)


def _column_of(measure: RowMeasure) -> str | None:
    """Return the column that is added up by itself; None if anything is made of it."""
    names = [name for name in measure.columns if measure.there == canonical(RowColumn(name))]
    return names[0] if len(measure.columns) == len(names) == 1 else None


def _together(cells: list[bool], classes: Ints | None) -> tuple[bool, ...]:
    """Return for each class of cells whether one of them is so."""
    if classes is None:
        return tuple(cells)
    counted = [False] * (max(classes.tolist(), default=-1) + 1)
    for cell, of in zip(cells, classes.tolist(), strict=True):
        counted[of] = counted[of] or cell
    return tuple(counted)
