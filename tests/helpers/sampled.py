"""Large sets of cases: a sample of them in each run of the tests, all of them with `-m long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def sampled(cases: Iterable[Any], count: int) -> list[ParameterSet]:
    """Take `count` cases at equal distances, the same ones in every run; the others are long.

    A test with several such parameters runs by default where each of them is in its sample.
    """
    given = [*cases]
    kept = {index * len(given) // count for index in range(count)}
    long = (pytest.mark.long,)
    return [_parameters(case, () if i in kept else long) for i, case in enumerate(given)]


def _parameters(case: Any, marks: tuple[Any, ...]) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return case._replace(marks=(*case.marks, *marks))
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=marks)
