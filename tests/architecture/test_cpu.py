"""Tests that take long are known, and others are noticed by those who ask for it."""

from __future__ import annotations

import ast
from functools import partial
from types import SimpleNamespace

import pytest

from tests.architecture.test_structure import ROOT, tree_of
from tests.helpers.cpu import Measured
from tests.helpers.dear import DEAR


def names_of(node: ast.AST, before: str = "") -> set[str]:
    """Return the names of all tests in a module, those in classes with these before."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found |= names_of(child, f"{before}{child.name}::")
        elif isinstance(child, ast.FunctionDef):
            found.add(before + child.name)
    return found


def test_dear_tests_exist():
    for test in DEAR:
        file, _, name = test.partition("::")
        assert name in names_of(tree_of(ROOT / file)), test


@pytest.mark.parametrize(
    ("name", "limit", "marks", "outcome"),
    [
        ("tests/test_any.py::test_it[1]", 0.5, (), "failed"),
        ("tests/test_any.py::test_it[1]", 2.0, (), "passed"),
        ("tests/test_any.py::test_it[1]", None, (), "passed"),
        ("tests/test_any.py::test_it[1]", 0.5, ("long",), "passed"),
        (f"{next(iter(DEAR))}[1]", 0.5, (), "passed"),
    ],
)
def test_one_above_the_limit_fails(name, limit, marks, outcome):
    item = SimpleNamespace(nodeid=name, get_closest_marker=lambda mark: mark in marks)
    making = Measured(limit, partial(next, iter((10.0, 11.0)))).pytest_runtest_makereport(item)
    next(making)
    with pytest.raises(StopIteration) as ended:
        making.send(SimpleNamespace(when="call", passed=True, outcome="passed"))
    assert ended.value.value.cpu == 1.0
    assert ended.value.value.outcome == outcome
