"""Sessions: a schema, an engine and a ledger around one connection."""

from dpsql.session.session import Session, answered

__all__ = ["Session", "answered"]
