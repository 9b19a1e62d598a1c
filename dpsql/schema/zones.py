"""Time zones, as the DuckDB that reads the rows knows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpsql.errors import SchemaError
from dpsql.schema.domain import Domain
from dpsql.schema.fetching import fetch
from dpsql.schema.names import closest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NAMES = "SELECT name FROM system.main.pg_timezone_names()"
_CLOCK = """
    SELECT system.main."timezone"(?, '2024-07-01 12:00:00+00'::TIMESTAMPTZ)::VARCHAR
"""


def check_zones(con: DuckDBPyConnection, domains: Iterable[Domain]) -> None:
    """Refuse what would read a clock otherwise than is declared.

    DuckDB tells the clock of a zone by the calendar of the session, which is a setting: in the
    Ethiopian one a year has thirteen months. Its own zone makes no difference.

    Raises:
        SchemaError: DuckDB knows no such zone, or shows it by another calendar.
    """
    for zone in sorted({domain.zone for domain in domains if domain.zone is not None}):
        names = [name for (name,) in fetch(con, _NAMES)]
        if zone not in names:
            raise SchemaError(f"DuckDB knows no time zone {zone}.", hint=closest(zone, names))
        ((clock,),) = fetch(con, _CLOCK, [zone])
        if not clock.startswith(("2024-06-30", "2024-07-0")):
            raise SchemaError(
                "The connection's calendar is not the Gregorian one, by which days are declared.",
                hint="SET Calendar = 'gregorian';",
            )
