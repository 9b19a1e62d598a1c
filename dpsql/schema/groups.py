"""The combinations of values that exist: groups that SQL shall return, declared by the data owner.

Without a declaration the answer has a row for each combination that the domains leave possible,
30 February too. A declaration takes rows out of answers and never changes what is counted. It is
public and fixed before the data is looked at, so that it is post-processing.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import product
from typing import Any

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import INTEGER_TYPES, Domain
from dpsql.schema.names import folded
from dpsql.schema.sequences import shown

CALENDAR = "calendar"
MAX_GROUPS = 1_000_000
_HINT = (
    'for example groups={"flights": [(("month", "day"), "calendar"), (("carrier", "origin"), '
    "frame)]}."
)
_LEAP = 2000


@dataclass(frozen=True, slots=True)
class Groups:
    """The combinations of values of some columns that exist."""

    columns: tuple[str, ...]
    of: str | tuple[tuple[str, ...], ...]
    """`calendar`; the name of a public table that has these columns; or all combinations, as
    texts in the order of the columns."""

    def __post_init__(self) -> None:
        if not self.columns or len({folded(name) for name in self.columns}) < len(self.columns):
            raise SchemaError("Groups name one column or several, each once.", hint=_HINT)
        if not self.of:
            raise SchemaError("No combination of values exists.", hint=_HINT)
        if not isinstance(self.of, str) and len(self.of) > MAX_GROUPS:
            raise SchemaError(
                f"There are more than {MAX_GROUPS:,} combinations.", hint="declare fewer columns."
            )
        if self.of == CALENDAR and len(self.columns) not in {2, 3}:
            raise SchemaError(
                "A calendar needs the columns of month and day, or of year, month and day.",
                hint=_HINT,
            )

    @classmethod
    def read(cls, entry: object) -> Groups:
        """Read columns, and where the combinations are: `(("month", "day"), "calendar")`.

        In place of the text may stand a Polars frame that has the columns, or a list of rows.

        Raises:
            SchemaError: it is something else.
        """
        if isinstance(entry, Groups):
            return entry
        if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
            raise SchemaError(f"{shown(entry)} is not a declaration of groups.", hint=_HINT)
        columns, of = entry
        listed = isinstance(columns, Sequence) and not isinstance(columns, str)
        if not listed or not all(isinstance(name, str) and name for name in columns):
            raise SchemaError(f"{shown(columns)} does not name columns.", hint=_HINT)
        return cls(tuple(columns), of if isinstance(of, str) else _rows(tuple(columns), of))

    def resolved(self, table: str, domains: Mapping[str, Domain]) -> Groups:
        """Give the columns the names that they have in a table.

        Raises:
            SchemaError: the table has no such column, or it has no domain.
        """
        known = {folded(name): name for name in domains}
        for name in self.columns:
            if folded(name) not in known:
                raise SchemaError(
                    f"Groups of {printable(table)} are declared by {printable(name)}, which is not "
                    "a column with a domain.",
                    hint="declare its domain, or leave the groups out.",
                )
        groups = Groups(tuple(known[folded(name)] for name in self.columns), self.of)
        if self.of == CALENDAR:
            for name in groups.columns:
                if domains[name].type not in INTEGER_TYPES:
                    raise SchemaError(
                        f"The column {printable(name)} of a calendar is not of whole numbers.",
                        hint="a column of dates needs no calendar: it has only days that exist.",
                    )
        return groups

    def listed(self, domains: Mapping[str, Domain]) -> tuple[tuple[str, ...], ...]:
        """Write all combinations out as texts, unless they are in a public table.

        Raises:
            SchemaError: there are too many.
        """
        if self.of != CALENDAR:
            return self.of if isinstance(self.of, tuple) else ()
        *years, months, days = (domains[name].values for name in self.columns)
        if len(years) == 1 and len(years[0]) > MAX_GROUPS // 366:
            raise SchemaError("The calendar has too many years.", hint="declare fewer years.")
        # A month and a day exist together if they do in a leap year.
        chosen = product(years[0] if years else [_LEAP], range(1, 13))
        lengths = {(y, m): _days(int(str(y)), m) for y, m in chosen}
        allowed = set(map(int, map(str, months))), set(map(int, map(str, days)))
        return tuple(
            (*((str(y),) if years else ()), str(m), str(d))
            for (y, m), length in lengths.items()
            for d in range(1, length + 1)
            if m in allowed[0] and d in allowed[1]
        )


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1] if 1 <= year <= 9999 else 0


def _rows(columns: tuple[str, ...], of: Any) -> tuple[tuple[str, ...], ...]:
    """Read combinations from a frame or a list, as texts."""
    if hasattr(of, "columns") and hasattr(of, "select") and hasattr(of, "rows"):
        of = of.select(columns_in(columns, map(str, of.columns), "The frame of groups")).rows()
    if not isinstance(of, Sequence) or isinstance(of, str):
        raise SchemaError(f"{shown(of)} holds no combinations of values.", hint=_HINT)
    rows: list[tuple[str, ...]] = []
    for row in of:
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != len(columns):
            raise SchemaError(
                f"{shown(row)} is not a combination of {len(columns)} values.", hint=_HINT
            )
        if None not in row:  # groups of NULL may exist whatever is listed
            rows.append(tuple(map(_text, row)))
    return tuple(dict.fromkeys(rows))


def columns_in(wanted: Sequence[str], given: Iterable[str], what: str) -> list[str]:
    """Return the columns of a frame or a table that are meant; SQL ignores case.

    Raises:
        SchemaError: it has no such column.
    """
    known = {folded(name): name for name in given}
    for name in wanted:
        if folded(name) not in known:
            raise SchemaError(
                f"{what} has no column {printable(name)}.",
                hint=f"its columns are {printable(', '.join(known.values()))}.",
            )
    return [known[folded(name)] for name in wanted]


def _text(value: object) -> str:
    """Write a value so that DuckDB reads it back in the type of its column."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, (int, float, date)):
        return str(value)
    raise SchemaError(f"{shown(value)} is not a value of a column.", hint=_HINT)
