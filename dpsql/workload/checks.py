"""What a workload refuses: sizes, as numbers alone show them, and weights."""

from __future__ import annotations

import math
import os

from dpsql.errors import ArgumentError, ResourceLimitError, WorkloadError, shown
from dpsql.hints import Hint
from dpsql.workload.factors import MAX_CELLS

MAX_ANSWERS = 2**62
"""Answers of one workload. Of one family, up to `MAX_CELLS` can be held at once."""
MAX_SUM = 2**27
"""Cells of all marginals of a request, if the data owner doesn't say otherwise: 16 bytes each."""
VARIABLE = "DPSQL_MAX_CELLS"
"""Says otherwise, in the environment: how many fit is a matter of the computer, not of a call."""


def check_sum(cells: int) -> None:
    """Refuse marginals that have too many cells together: all of them are counted and held.

    Raises:
        ResourceLimitError: they have; nothing is charged then.
        ArgumentError: what the environment says is no number of cells.
    """
    most = _most_cells()
    if cells > most:
        raise ResourceLimitError(
            f"The marginals that are asked have {cells:,} cells together; the limit is {most:,}.",
            hint="ask for fewer or coarser groups at once. Or, with "
            f"{math.ceil(cells * 16 / 1e9):,} GB of memory for them, "
            + Hint(
                f'raise it before you ask: os.environ["{VARIABLE}"] = "{cells}".',
                f"raise it in front of the command: {VARIABLE}={cells} dpsql …",
                f"raise it before you ask: %env {VARIABLE}={cells}",
            ),
        )


def _most_cells() -> int:
    said = os.environ.get(VARIABLE, str(MAX_SUM))
    if not (said.isascii() and said.isdigit() and 0 < len(said) < 19):
        raise ArgumentError(
            f"{VARIABLE} in the environment is no number of cells: {shown(said)}.",
            hint=f"for example {VARIABLE}={MAX_SUM}.",
        )
    return int(said)


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
