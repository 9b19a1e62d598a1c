"""Budgets, conversions between ρ, μ and (ε, δ), and the ledger that remembers what was spent."""

from dpsql.privacy.budget import Budget
from dpsql.privacy.history import Entry
from dpsql.privacy.ledger import Ledger
from dpsql.privacy.place import (
    begin,
    begin_named,
    bind,
    bind_named,
    bind_table,
    data_id,
    is_begun,
    join,
    join_database,
    join_stored,
    ledger_path,
    move,
    open_ledger,
    uid_of,
)
from dpsql.privacy.postgres import GRANTS, is_address
from dpsql.privacy.purpose import Purpose, Receipt
from dpsql.privacy.store import Audit

__all__ = [
    "GRANTS",
    "Audit",
    "Budget",
    "Entry",
    "Ledger",
    "Purpose",
    "Receipt",
    "begin",
    "begin_named",
    "bind",
    "bind_named",
    "bind_table",
    "data_id",
    "is_address",
    "is_begun",
    "join",
    "join_database",
    "join_stored",
    "ledger_path",
    "move",
    "open_ledger",
    "uid_of",
]
