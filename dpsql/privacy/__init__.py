"""Budgets, conversions between ρ, μ and (ε, δ), and the ledger that remembers what was spent."""

from dpsql.privacy.budget import Budget
from dpsql.privacy.history import Entry
from dpsql.privacy.ledger import Ledger, Receipt

__all__ = ["Budget", "Entry", "Ledger", "Receipt"]
