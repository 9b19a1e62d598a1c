"""What changes while a statement is planned, before anything is charged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpsql.planner.mechanisms import querysmasher


def change_while_planning(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Call something each time a plan was made."""
    real = querysmasher.plan

    def plan_and_change(*args, **kwargs):
        planned = real(*args, **kwargs)
        change()
        return planned

    monkeypatch.setattr(querysmasher, "plan", plan_and_change)
