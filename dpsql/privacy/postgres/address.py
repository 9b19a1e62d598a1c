"""Addresses of ledgers in PostgreSQL: which texts are some, and what is never in one.

`postgresql://host:5432/database`, as libpq has it, or `service=name`; what it doesn't say is taken
from the environment (PGHOST, PGSERVICE, …). A password is in neither: libpq finds it in PGPASSWORD,
in a password file or in a service file. So no address is a secret.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from dpsql.errors import LedgerError
from dpsql.privacy.refusals import EXAMPLE

if TYPE_CHECKING:
    from types import ModuleType

_ADDRESS = re.compile(r"postgres(ql)?://|service=")
_SECRET = frozenset({"password", "sslpassword", "oauth_client_secret"})


def is_address(given: Path | str | None) -> TypeGuard[str]:
    """Tell whether a ledger is given by its address, and not by its file."""
    return isinstance(given, str) and _ADDRESS.match(given) is not None


def driver() -> ModuleType:
    """Import psycopg.

    Raises:
        LedgerError: it is not installed.
    """
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "A ledger in PostgreSQL needs psycopg, which is not installed.",
            hint='pip install "dpsql[postgres]"',
        ) from None
    return psycopg


def parameters(address: str) -> dict[str, Any]:
    """Read an address.

    Raises:
        LedgerError: it is malformed, or has a password; what it says is not repeated.
    """
    psycopg = driver()
    try:
        found: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        found = {}
        malformed = True
    else:
        malformed = False
    if malformed:
        raise LedgerError(
            "The ledger's address is malformed.",
            hint=f'for example ledger="{EXAMPLE}", or ledger="service=accounts".',
        )
    if not _SECRET.isdisjoint(found):
        raise LedgerError(
            "The ledger's address has a password, which would be seen wherever it is shown.",
            hint="put the password into ~/.pgpass or into a service file, or into the environment "
            "as PGPASSWORD, and leave it out of the address.",
        )
    return found
