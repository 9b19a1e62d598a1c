"""Large sets of cases: a sample of them in each run, all of them with `-m "long or not long"`."""

from __future__ import annotations

import gc
from collections import defaultdict

import pytest

gc.disable()  # until the tests are collected: a third of that was looking for garbage in vain


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark most cases of a test marked `sampled(n)` as long.

    The n that are left are at equal distances, and so the same in every run.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        mark = found[0].get_closest_marker("sampled")
        (count,) = mark.args if mark else (len(found),)
        kept = {index * len(found) // count for index in range(count)}
        for index, item in enumerate(found):
            if index not in kept:
                item.add_marker("long")


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among the tests themselves."""
    gc.freeze()
    gc.enable()
