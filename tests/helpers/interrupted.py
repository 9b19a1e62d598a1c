"""Releases that are lost when they have been measured and kept, and not been handed out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from dpsql.errors import ExecutionError
from dpsql.release import Release
from dpsql.session import planning


class Lost(BaseException):
    """The process ended."""


@contextmanager
def interrupted(
    measured: type[planning.MeasuredPlan | planning.MeasuredRounds] = planning.MeasuredPlan,
) -> Iterator[list[Release]]:
    """Lose what is asked in the block, as if the process had ended; note what that would be."""
    made, real = list[Release](), measured.release

    def lose(self, receipt):  # type: ignore[no-untyped-def]
        made.append(real(self, receipt))
        raise Lost

    with patch.object(measured, "release", lose), pytest.raises((Lost, ExecutionError)):
        yield made
