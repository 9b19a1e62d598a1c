"""What a charge is for: digests of what is asked, of which data, for whom."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.errors import SchemaError
from dpsql.hints import option
from dpsql.privacy import Purpose
from dpsql.privacy.purpose import EACH_ROW
from dpsql.request import Request, digest
from dpsql.schema import Table
from dpsql.schema.units import ResolvedUnit

MAX_VINTAGE = 200
NO_PLAN = "00"
"""In place of a plan's digest, before there is one."""


@dataclass(frozen=True, slots=True)
class DataState:
    """Which rows there are: measurements of different states are never put together."""

    vintage: str
    """The owner's name for them."""
    database: str = ""
    """Which database they are in, where several share a ledger; see `dpsql.privacy.data_id`."""

    @property
    def digest(self) -> str:
        """A hash; of the vintage alone for a database that its ledger stands beside."""
        return digest([self.vintage, self.database] if self.database else self.vintage)


def purpose(request: Request, table: Table, state: DataState, plan: str = NO_PLAN) -> Purpose:
    """Return what a charge is for, in digests.

    Args:
        request: what is asked.
        table: of which table.
        state: of which state of its rows.
        plan: the digest of the plan.
    """
    path = [part.lower() for part in (table.path or (table.name,))]
    return Purpose(
        plan=plan,
        script=request.digest,
        # The first part is the database, which is named as its file is; that may be moved.
        table=digest(path[1:] or path),
        schema=table.fingerprint,
        unit=EACH_ROW if table.unit is None else digest(_unit(table.unit)),
        vintage=state.digest,
    )


def _unit(unit: ResolvedUnit) -> object:
    """Say whose rows are protected together.

    How many count is not part of that: amounts for 3 rows of a person and for 5 are both amounts
    for a person, and add up.
    """
    return [unit.column, [[j.column, list(j.path[1:]), j.key] for j in unit.joins]]


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
