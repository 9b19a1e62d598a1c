"""Time zones, as the database that reads the rows knows them."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.errors import SchemaError
from dpsql.schema.domain import Domain
from dpsql.schema.facts import Catalog
from dpsql.schema.names import closest


def check_zones(catalog: Catalog, domains: Iterable[Domain]) -> None:
    """Refuse what would read a clock otherwise than is declared.

    The calendar may be a setting of the session: in the Ethiopian one a year has thirteen months.

    Raises:
        SchemaError: the database knows no such zone, or shows it by another calendar.
    """
    for zone in sorted({domain.zone for domain in domains if domain.zone is not None}):
        names = catalog.zones()
        if zone not in names:
            raise SchemaError(
                f"{catalog.system} knows no time zone {zone}.", hint=closest(zone, names)
            )
        if not catalog.is_gregorian(zone):
            raise SchemaError(
                "The connection's calendar is not the Gregorian one, in which days are declared.",
                hint="SET Calendar = 'gregorian';",
            )
