"""What a workload refuses: sizes, as numbers alone show them, and weights."""

from __future__ import annotations

from dpsql.errors import ResourceLimitError, WorkloadError
from dpsql.workload.factors import MAX_CELLS

MAX_ANSWERS = 2**62
"""Answers of one workload. Of one family, up to `MAX_CELLS` can be held at once."""


def check_cells(label: str, count: int) -> None:
    """Refuse a marginal with too many cells."""
    if count > MAX_CELLS:
        raise ResourceLimitError(
            f"{label!r} has {count:,} cells of its marginal; the limit is {MAX_CELLS:,}.",
            hint="use fewer attributes, or coarser domains.",
        )


def check_answers(label: str, count: int) -> None:
    """Refuse too many answers of one workload."""
    if count > MAX_ANSWERS:
        raise ResourceLimitError(
            f"With {label!r} there are {count:,} answers; the limit is {MAX_ANSWERS:,}.",
            hint="ask for fewer ranges at once.",
        )


def check_weight(weight: float) -> float:
    """Return a weight as a float.

    Raises:
        WorkloadError: it is no positive finite number, or out of range.
    """
    message = f"The weight {weight!r} is not a positive finite number."
    hint = "weights between 1e-9 and 1e9 say how much a family matters."
    if isinstance(weight, (bool, str, bytes, complex)):
        raise WorkloadError(message, hint=hint)
    try:
        value = float(weight)
    except (TypeError, ValueError):
        raise WorkloadError(message, hint=hint) from None
    if not 1e-9 <= value <= 1e9:
        raise WorkloadError(message, hint=hint)
    return value
