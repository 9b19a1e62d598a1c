"""The purpose of a charge: digests of what is asked, of which data, for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.answers.sources import identity_of
from dpsql.errors import SchemaError
from dpsql.hints import option
from dpsql.privacy import Purpose
from dpsql.privacy.purpose import EACH_ROW, ChargedTable
from dpsql.request import Request, digest
from dpsql.schema import Table
from dpsql.schema.grain import origins
from dpsql.schema.units import ResolvedUnit

MAX_VINTAGE = 200
NO_PLAN = "00"
"""In place of a plan's digest, before there is one."""


@dataclass(frozen=True, slots=True)
class DataState:
    """The state of the rows: measurements of different states are never put together."""

    vintage: str
    """The owner's name for them."""
    database: str = ""
    """Which database they are in, where several share a ledger; see `dpsql.privacy.data_id`."""

    view: str = ""
    """Which of the rows of a stored table they are, and how they are described; empty for all."""

    @property
    def digest(self) -> str:
        """A hash; of the vintage alone for a database that its ledger stands beside."""
        if self.view:
            return digest([self.vintage, self.database, self.view])
        return digest([self.vintage, self.database] if self.database else self.vintage)

    def of(self, table: Table) -> DataState:
        """Return the state of the rows that a table has, which may be a view."""
        made = [] if table.origin is None else [table.origin.digest]
        states = [*made, table.fingerprint] if made else []
        others = sorted({origin.digest for origin in origins(table)} - {*made})
        return replace(self, view=digest([*states, *others])) if states or others else self


def purpose(request: Request, tables: Sequence[ChargedTable], plan: str = NO_PLAN) -> Purpose:
    """Return what a charge is for, in digests. The order of tables makes no difference."""
    (first, *others) = sorted(tables)
    return Purpose(plan, request.digest, *first, tuple(others))


def charged_table(table: Table, state: DataState) -> ChargedTable:
    """Return what of a table a charge is for, in digests.

    A view is charged for as the stored table below it, under any name: that is bound to one unit
    and one description, whichever view is asked. What was measured of the view is of other rows
    and columns, so it is told apart by their state.

    Args:
        table: the table.
        state: which of its rows.
    """
    stored = table.stored
    return ChargedTable(
        table=identity_of(table),
        schema=stored.fingerprint,
        unit=EACH_ROW if stored.unit is None else digest(_unit(stored.unit)),
        vintage=state.of(table).digest,
    )


def without_bound(charged: ChargedTable, table: Table) -> ChargedTable:
    """Return what a charge for a table would be for if nothing said how many of its rows count."""
    stored = table.stored
    if stored.unit is None:
        return charged
    bare = replace(stored, unit=replace(stored.unit, max_rows=None, limits=()))
    return charged._replace(schema=bare.fingerprint)


def _unit(unit: ResolvedUnit) -> object:
    """Say whose rows are protected together.

    How many count is not part of that: amounts for 3 rows of a person and for 5 are both amounts
    for a person, and add up.
    """
    joins = [[j.column, list(j.path[1:]), j.key, *map(list, j.further)] for j in unit.joins]
    return [unit.column, joins, *map(list, unit.further)]


def check_vintage(vintage: str) -> None:
    """Refuse a vintage that is not a short printable text.

    Raises:
        SchemaError: it isn't.
    """
    text = isinstance(vintage, str) and len(vintage) <= MAX_VINTAGE
    if not text or not (vintage.isprintable() or not vintage):
        raise SchemaError(
            "A vintage is a short text that names a state of the data.",
            hint="for example " + option("vintage", "2026-Q4") + ".",
        )
