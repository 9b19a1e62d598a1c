"""Adjusted answers where a table of all joint cells would be too large: one for each marginal.

Each attribute set that is asked has a table of its own, see `reconstruction.cellwise`. So cells of
single statements count, and not those of all columns that measurements connect.

Where measurements don't determine the cells of a set, but something was measured of it, its table
is the one that fits best what was measured over its attributes, see `adjust`: conditions and sums
may be all that is asked of a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.errors import InternalError, ResourceLimitError, printable
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.planner.reconstruction.cellwise import CellwiseTables, Unbiased
from dpsql.planner.reconstruction.entropy import Attributes
from dpsql.release.adjust import Observation, components_of, fit_table
from dpsql.release.marginals import Marginal
from dpsql.sql.compiled import Script
from dpsql.workload.workload import UnitTable

MAX_CELLS = 1 << 24
"""Of the table of a statement: 128 MiB, and a dozen of its size while it is made."""
MAX_COLUMNS = 12
"""Of a statement: each table is made with those of all subsets of its attributes."""
AGREE = "sums agree with all tables of one column, and nearly with those of several"
REASON = f"biased: of a table of the columns of this statement alone; {AGREE}"
"""What is promised of such columns."""


@dataclass(frozen=True, slots=True, eq=False)
class AskedMarginals:
    """The tables that are asked, and what is known of them."""

    sets: tuple[Attributes, ...]
    """In domain order."""
    unbiased: Unbiased
    measured: frozenset[frozenset[str]]
    """The attribute sets over which something was measured, or will be."""

    @classmethod
    def of(
        cls,
        sets: Collection[Collection[str]],
        unbiased: Unbiased,
        measured: Collection[Collection[str]],
    ) -> AskedMarginals:
        """Bring the attributes of each set in order."""
        ordered = {tuple(a for a in unbiased.sizes if a in own) for own in sets}
        return cls(tuple(sorted(ordered, key=len)), unbiased, frozenset(map(frozenset, measured)))

    def check(self) -> None:
        """Refuse tables that are too large; reads no measurement.

        Raises:
            ResourceLimitError: one of them is.
        """
        for own in self.sets:
            cells = math.prod(self.unbiased.sizes[a] for a in own)
            if cells > MAX_CELLS:
                raise _too_large(own, f"{cells:,} joint cells", f"{MAX_CELLS:,}")
            if len(own) > MAX_COLUMNS:
                raise _too_large(own, f"{len(own)} columns", f"{MAX_COLUMNS}")
            if self.fits_directly(own):
                components_of(self.inside(own), self.unbiased.sizes)

    def inside(self, own: Attributes) -> list[tuple[str, ...]]:
        """Return the sets over which something was measured that are inside of another one."""
        return [tuple(space) for space in self.measured if space and space <= frozenset(own)]

    def fits_directly(self, own: Attributes) -> bool:
        """Whether something was measured of a set that doesn't determine all cells there."""
        sizes = self.unbiased.sizes
        spaces = (tuple(a for a in sizes if a in space) for space in self.inside(own))
        return any(not self.unbiased.determined(space) for space in spaces)


class MarginalTables:
    """Makes the tables that are asked.

    Args:
        asked: which these are.
        observations: reads all that was measured of the table.
    """

    def __init__(
        self, asked: AskedMarginals, observations: Callable[[], Sequence[Observation]]
    ) -> None:
        self._asked, self._observations = asked, observations
        self._tables = CellwiseTables(asked.unbiased, asked.sets)
        self._direct = {own for own in asked.sets if asked.fits_directly(own)}

    def marginal(self, names: Attributes) -> Array:
        """Return the table over some attributes, in any order."""
        own = tuple(a for a in self._asked.unbiased.sizes if a in names)
        table = self._directly(own) if own in self._direct else self._tables.table(own)
        return np.ascontiguousarray(table.transpose([own.index(a) for a in names]))

    def _directly(self, own: Attributes) -> Array:
        inside = [o for o in self._observations() if set(o.names) <= set(own)]
        sizes = {a: self._asked.unbiased.sizes[a] for a in own}
        return fit_table(inside, sizes, nonnegative=True, integers=False).marginal(own)


def by_table(parts: Sequence[tuple[UnitTable | None, Marginal]]) -> Marginal:
    """Make marginals of the only table, or of several, each with the axis of its counts."""

    def marginal(names: Attributes) -> Array:
        for of, own in parts:
            if of is None:
                return own(names)
            if of.name in names:
                inside = (of.own(name) for name in names)
                found = own(tuple(name for name in inside if name is not None))
                return np.expand_dims(found, names.index(of.name))
        raise InternalError("a marginal was asked for of none of the tables")

    return marginal


def unbiased_tables(
    script: Script, reconstruction: Reconstruction, marginal: Marginal
) -> list[tuple[UnitTable | None, Script, Unbiased]]:
    """Return what is known of the tables of a script: of the only one, or of several each."""
    tables = script.apart or ((None, script),)
    domain = script.workload.domain
    return [
        (of, own, Unbiased(own.workload.domain, domain, reconstruction, marginal, of))
        for of, own in tables
    ]


def asked_of(script: Script) -> list[frozenset[str]]:
    """Return the attribute sets that are asked of one table."""
    return [family.attributes for family in script.workload.families]


def _too_large(own: Attributes, what: str, most: str) -> ResourceLimitError:
    return ResourceLimitError(
        f"A statement over {printable(', '.join(own))} has {what}, more than the {most} of which a "
        "table without negative numbers is made.",
        hint="leave " + option("nonnegative") + " out, or ask for fewer columns at a time.",
    )
