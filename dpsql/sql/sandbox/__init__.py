"""The sandbox: a DuckDB of our own, which holds public things only."""

from dpsql.sql.sandbox.database import (
    MAX_SECONDS,
    NotListedError,
    Refusal,
    Sandbox,
    SandboxError,
    SandboxLimitError,
    column_type,
)

__all__ = [
    "MAX_SECONDS",
    "NotListedError",
    "Refusal",
    "Sandbox",
    "SandboxError",
    "SandboxLimitError",
    "column_type",
]
