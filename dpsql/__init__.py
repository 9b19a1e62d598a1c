"""Differentially private SQL, planned jointly and certified before anything is spent."""

from dpsql.api import plan, query, read_script
from dpsql.errors import (
    BudgetError,
    DpsqlError,
    ExecutionError,
    InternalError,
    LedgerError,
    ResourceLimitError,
    SchemaError,
    SqlError,
    StaleSchemaError,
    WorkloadError,
)
from dpsql.planner.plan import Plan
from dpsql.privacy import Budget
from dpsql.release import Release
from dpsql.schema import Domain, Schema, Unit
from dpsql.session import Session

__all__ = [
    "Budget",
    "BudgetError",
    "Domain",
    "DpsqlError",
    "ExecutionError",
    "InternalError",
    "LedgerError",
    "Plan",
    "Release",
    "ResourceLimitError",
    "Schema",
    "SchemaError",
    "Session",
    "SqlError",
    "StaleSchemaError",
    "Unit",
    "WorkloadError",
    "plan",
    "query",
    "read_script",
]
