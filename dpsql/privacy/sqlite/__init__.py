"""Ledgers in SQLite files, or in memory."""

from dpsql.privacy.sqlite.store import SqliteStore
from dpsql.privacy.sqlite.tables import MAX_CONTENT, create_file

__all__ = ["MAX_CONTENT", "SqliteStore", "create_file"]
