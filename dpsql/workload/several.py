"""Several tables in one workload, whose rows are of the same privacy units.

    orders.status    the column `status` of the table `orders`
    orders           an axis of one cell, along which the rows of `orders` are counted

Statements over one table ask nothing of another, and columns of two tables may have one name. So
what is asked of each table has names and an axis of its own, as what is added up has: a table is
planned as a measure is, to which every row adds 1 (see `planner.mechanisms.measures`). And a unit
is one record then, which has up to k rows in the table: its errors are divided by k, in the total
that a plan makes small, as those of sums are by the largest value of a row. Otherwise the table
with the largest k would have nearly all of the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.schema.names import as_sql
from dpsql.workload.factors import Measure
from dpsql.workload.workload import Block, Family, Workload


@dataclass(frozen=True, slots=True)
class UnitTable:
    """One of several tables, as attributes of a workload name it."""

    name: str
    """Also the axis of its counts. No other table has it, nor does any attribute begin with it and
    a dot that is of another table; see `named`."""
    rows: int
    """How many rows of one unit count at most."""

    def attribute(self, own: str) -> str:
        """Return what a column of the table, or a measure, is called among several tables."""
        return f"{self.name}.{own}"

    def own(self, attribute: str) -> str | None:
        """Return what an attribute is called in the table; None if it is of another one."""
        before, own = attribute[: len(self.name) + 1], attribute[len(self.name) + 1 :]
        return own if before == f"{self.name}." else None

    def renamed(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the domain of a workload over the table, with the axis of its counts."""
        return {**{self.attribute(name): n for name, n in sizes.items()}, self.name: 1}

    def family(self, family: Family) -> Family:
        """Return a family of queries over the table as one among several tables.

        Counts get the axis of the table's counts, as their last block; sums have one of their own.
        What is restored to sums is counts, so it gets that axis, too.
        """
        blocks = tuple(map(self._block, family.blocks))
        present = None
        if family.present is not None:
            present = self.family(family.present)
        elif family.center:
            kept = (self._counts if b.bound is not None else b for b in blocks)
            present = replace(family, blocks=tuple(kept))
        if family.measure is None:
            blocks = (*blocks, self._counts)
        return replace(family, blocks=blocks, present=present)

    def _block(self, block: Block) -> Block:
        names = tuple(map(self.attribute, block.attributes))
        if block.of_units:  # it says itself in how many groups a unit is, whatever rows it has
            return replace(block, attributes=names)
        return replace(block, attributes=names, rows=1 if block.bound is None else self.rows)

    @property
    def _counts(self) -> Block:
        """The block of the table's counts."""
        one = Measure(1).bind(1)
        return Block((self.name,), (1,), one, bound=1, rows=self.rows, of_rows=True)


def named(tables: Iterable[str]) -> tuple[str, ...]:
    """Name tables so that no two attributes of different tables have one name.

    A name is written as SQL has it: bare, or in quotes if there are dots or spaces in it. So the
    first dot outside of quotes ends it. Of tables that are called alike (in two schemas) the second
    has its number behind it, after a space.
    """
    found: list[str] = []
    for table in map(as_sql, tables):
        numbered = (table if n == 1 else f"{table} {n}" for n in range(1, len(found) + 2))
        found.append(next(name for name in numbered if name not in found))
    return tuple(found)


def over_all(
    parts: Sequence[tuple[UnitTable, Workload]], weights: Sequence[Sequence[float]]
) -> Workload:
    """Put workloads over single tables together.

    Args:
        parts: each table, and what is asked of it.
        weights: those of its families, for each table.
    """
    domain: dict[str, int] = {}
    for table, workload in parts:
        domain |= table.renamed(workload.domain)
    return Workload.of(domain, _families(parts, weights))


def _families(
    parts: Sequence[tuple[UnitTable, Workload]], weights: Sequence[Sequence[float]]
) -> Iterator[Family]:
    for (table, workload), own in zip(parts, weights, strict=True):
        for family, weight in zip(workload.families, own, strict=True):
            yield replace(table.family(family), weight=weight / table.rows**2)
