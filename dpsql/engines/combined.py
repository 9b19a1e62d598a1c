"""DuckDB's SQL for rows that are made of rows of several private tables. Trusted.

Guarantees:
    A row is made of rows of one unit, which is in the column `unit`.

    *Proof.* Each side is a query for rows with the ids of their units, with one row for each
    (row, u) (`parents.py`), and what a row has is a function of the rows of u. Sides are joined
    where these ids are equal, bytes for texts, whatever else must be equal: so what is made for u
    is a function of the rows of u alone. Adding or removing another unit adds or removes what is
    made for that unit, and changes nothing else. ∎ Of these rows at most k for each unit are kept
    when they have been made (`bounded.py`), in an order of all columns of all sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dpsql.engines.bounded import unit_name
from dpsql.engines.lines import identity, readable
from dpsql.engines.parents import rows_of_units
from dpsql.errors import InternalError
from dpsql.schema import Table
from dpsql.schema.combined import UNIT, RowCombination
from dpsql.schema.grain import origins, stored_type
from dpsql.schema.names import quoted_name
from dpsql.schema.table import Origin, Parent
from dpsql.schema.units import ResolvedUnit


class MadeOfTables(ABC):
    """Where rows come from that are made of those of private tables: of the files of these."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The private tables that it is made of."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of the files that are read."""
        return tuple(sorted({root for origin in self._origins for root in origin.roots}))

    @property
    def state(self) -> str:
        """Which files there are, and when they were written."""
        return "".join(origin.state for origin in self._origins)

    def check_unchanged(self) -> None:
        """Check that the files are as they were."""
        for origin in self._origins:
            origin.check_unchanged()

    @property
    def _origins(self) -> Sequence[Origin]:
        return [origin for table in self.tables for origin in origins(table)]


@dataclass(frozen=True)
class CombinedRows(MadeOfTables):
    """Where the rows of a combination come from.

    Args:
        combination: which rows meet.
        base: what is charged for.
    """

    combination: RowCombination
    base: Table

    @cached_property
    def sql(self) -> str:
        """What stands after FROM."""
        sources = self.combination.sources
        unit = unit_name(*sources)
        shown, joined = [f"s0.{unit} AS {UNIT}"], ""
        for number, (prefix, table) in enumerate(
            zip(self.combination.prefixes, sources, strict=True)
        ):
            read = list(dict.fromkeys([*_read(table), *self._compared(number)]))
            shown += [f"s{number}.{quoted_name(n)} AS {quoted_name(prefix + n)}" for n in read]
            rows = f"({rows_of_units(table, read, unit)}) AS s{number}"
            same = [f"s0.{unit} = s{number}.{unit}", *self._equalities(number)]
            joined += f" JOIN {rows} ON {' AND '.join(same)}" if number else rows
        return f"(SELECT {', '.join(shown)} FROM {joined})"

    def _compared(self, number: int) -> Iterator[str]:
        """Return the columns of one of the tables that are equal to others'."""
        for pair in sorted(map(sorted, self.combination.equal)):
            yield from (name for of, name in pair if of == number)

    def _equalities(self, number: int) -> Iterator[str]:
        """Write what is equal in one of the tables and in those before it."""
        for pair in sorted(map(sorted, self.combination.equal)):
            if max(of for of, _ in pair) == number:
                sides = (
                    identity(
                        f"s{of}.{quoted_name(name)}",
                        stored_type(self.combination.sources[of], name),
                    )
                    for of, name in pair
                )
                yield " = ".join(sides)

    @property
    def digest(self) -> str:
        """A hash of what is scanned."""
        return self.combination.digest

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private tables that it is made of."""
        return self.combination.sources

    @property
    def sides(self) -> tuple[Parent, ...]:
        """What its columns are of."""
        return self.combination.sides


def combined_rows(combination: RowCombination, root: str, rows: int) -> Table:
    """Describe a combination as a table.

    Args:
        combination: which rows meet.
        root: the table and the columns of the ids of their units.
        rows: how many rows of a unit count.
    """
    found = carried(combination.sources[0], root, rows)
    base = combination.base(replace(found, column=root))
    return combination.table(found, CombinedRows(combination, base))


def carried(table: Table, root: str, rows: int) -> ResolvedUnit:
    """Return the unit of what is made of a table's rows: its id is in the column `unit`."""
    unit = table.unit
    if unit is None:
        raise InternalError("rows of nobody are put together")
    type_ = "BLOB" if unit.type == "VARCHAR" else unit.type  # texts are compared as bytes
    return ResolvedUnit(root, UNIT, "STRUCT" if unit.further else type_, (), rows)


def _read(table: Table) -> Iterator[str]:
    """Return the columns that have a domain, or that expressions of rows can read."""
    yield from table.columns
    yield from (name for name, _ in readable(table))
