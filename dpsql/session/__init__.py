"""Sessions: a schema, an engine and a ledger around one connection."""

from dpsql.session.declared import Declared, Statements, compile_statements
from dpsql.session.session import Session

__all__ = ["Declared", "Session", "Statements", "compile_statements"]
