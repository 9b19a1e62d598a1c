"""Budgets, conversions between ρ, μ and (ε, δ), and the ledger that remembers what was spent."""

from dpsql.privacy.budget import Budget
from dpsql.privacy.history import Entry
from dpsql.privacy.ledger import Ledger
from dpsql.privacy.place import data_id, join, join_database, ledger_path, open_ledger
from dpsql.privacy.purpose import Purpose, Receipt
from dpsql.privacy.store import Audit

__all__ = [
    "Audit",
    "Budget",
    "Entry",
    "Ledger",
    "Purpose",
    "Receipt",
    "data_id",
    "join",
    "join_database",
    "ledger_path",
    "open_ledger",
]
