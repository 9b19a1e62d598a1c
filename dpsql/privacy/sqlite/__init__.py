"""Ledgers in SQLite files, or in memory."""

from dpsql.privacy.sqlite.check import exported
from dpsql.privacy.sqlite.store import SqliteStore
from dpsql.privacy.sqlite.tables import MAX_CONTENT, close_for_good, create_file

__all__ = ["MAX_CONTENT", "SqliteStore", "close_for_good", "create_file", "exported"]
