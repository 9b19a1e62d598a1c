"""Ledgers in PostgreSQL, which several machines share. Importing this doesn't need psycopg."""

from dpsql.privacy.postgres.connection import is_address
from dpsql.privacy.postgres.ledgers import bind, bring_up, create, find, find_bound, take_over
from dpsql.privacy.postgres.store import PostgresStore
from dpsql.privacy.postgres.tables import GRANTS

__all__ = [
    "GRANTS",
    "PostgresStore",
    "bind",
    "bring_up",
    "create",
    "find",
    "find_bound",
    "is_address",
    "take_over",
]
