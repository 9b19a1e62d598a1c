"""Names of columns that the library adds to rows."""

from __future__ import annotations

from collections.abc import Iterable


def unused(columns: Iterable[str]) -> str:
    """Return a beginning that no column has."""
    prefix, taken = "u_", [name.lower() for name in columns]
    while any(name.startswith(prefix) for name in taken):
        prefix = "u" + prefix
    return prefix
