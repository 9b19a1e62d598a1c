"""Differentially private SQL, planned jointly and certified before anything is spent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpsql import polars_namespace as polars_namespace  # registers `df.dp`

if TYPE_CHECKING:
    from dpsql.api import compare, plan, query, read_script
    from dpsql.errors import (
        AccuracyError,
        ArgumentError,
        BudgetError,
        DpsqlError,
        ExecutionError,
        InternalError,
        LedgerError,
        MechanismError,
        PlotError,
        ReleaseFormatError,
        ResourceLimitError,
        SchemaError,
        SqlError,
        StaleSchemaError,
        UndeterminedError,
        WorkloadError,
    )
    from dpsql.planner.comparison import Comparison
    from dpsql.planner.plans.plan import Plan
    from dpsql.privacy import Budget
    from dpsql.privacy.finding import Bounds, Keys, Quantiles
    from dpsql.release import Release
    from dpsql.schema import EACH_ROW, Domain, Schema, Unit
    from dpsql.session import Session

__all__ = [
    "EACH_ROW",
    "AccuracyError",
    "ArgumentError",
    "Bounds",
    "Budget",
    "BudgetError",
    "Comparison",
    "Domain",
    "DpsqlError",
    "ExecutionError",
    "InternalError",
    "Keys",
    "LedgerError",
    "MechanismError",
    "Plan",
    "PlotError",
    "Quantiles",
    "Release",
    "ReleaseFormatError",
    "ResourceLimitError",
    "Schema",
    "SchemaError",
    "Session",
    "SqlError",
    "StaleSchemaError",
    "UndeterminedError",
    "Unit",
    "WorkloadError",
    "compare",
    "plan",
    "query",
    "read_script",
]

_ROOMS = {
    "Bounds": "privacy.finding",
    "Budget": "privacy",
    "Comparison": "planner.comparison",
    "Domain": "schema",
    "EACH_ROW": "schema",
    "Keys": "privacy.finding",
    "Plan": "planner.plans.plan",
    "Quantiles": "privacy.finding",
    "Release": "release",
    "Schema": "schema",
    "Session": "session",
    "Unit": "schema",
    "compare": "api",
    "plan": "api",
    "query": "api",
    "read_script": "api",
}
"""Public name → where it lives; the others are errors."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that the command line starts fast."""
    if name == "__version__":
        return import_module("importlib.metadata").version("dpsql")
    if name not in __all__:
        raise AttributeError(f"module 'dpsql' has no attribute {name!r}")
    room = import_module(f"dpsql.{_ROOMS.get(name, 'errors')}")
    value = globals()[name] = getattr(room, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """Add the magics `%dpsql` and `%%dpsql`: `%load_ext dpsql`."""
    import_module("dpsql.notebook").load_ipython_extension(ipython)
