"""Tests that take long are known, and others are noticed by those who ask for it."""

from __future__ import annotations

import ast
from functools import partial
from types import SimpleNamespace

import pytest

from tests.architecture.test_structure import ROOT, tree_of
from tests.helpers.cpu import Measured
from tests.helpers.dear import DEAR, DOORS
from tests.helpers.slow import FILE, MISSING, listed, slow


def names_of(node: ast.AST, before: str = "") -> set[str]:
    """Return the names of all tests in a module, those in classes with these before."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found |= names_of(child, f"{before}{child.name}::")
        elif isinstance(child, ast.FunctionDef):
            found.add(before + child.name)
    return found


def test_dear_and_slow_tests_exist(request):
    for test in DEAR.keys() | DOORS | {test.partition("[")[0] for test in listed()}:
        file, _, name = test.partition("::")
        assert name in names_of(tree_of(ROOT / file)), test
    missing = request.config.stash[MISSING]
    assert not missing, "a case has another name now, or none: change its line in tests/slow.txt"


def test_slow_tests_are_sorted():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert lines == sorted({*lines})
    assert not DEAR.keys() & {*lines}


@pytest.mark.parametrize(
    ("seconds", "before", "expected"),
    [
        ({"t[1]": 0.05, "t[2]": 0.1, "t[3]": 0.5, "t[4]": 0.6, "t[5]": 1.1}, (), ["t[3]", "t[5]"]),
        ({"t[1]": 0.6, "t[2]": 0.7, "t[3]": 0.8}, ("t[1]", "t[3]"), ["t[1]", "t[3]"]),
        ({"t[1]": 0.08, "t[2]": 0.08, "t[3]": 0.05, "t[4]": 0.8}, ("t[2]", "t[3]"), ["t[2]"]),
        ({"t[1]": 1.2, "t[2]": 1.3}, (), ["t[1]", "t[2]"]),
        ({"t": 0.9, "u": 1.1, "v": 0.6}, ("v",), ["u"]),
        ({f"{next(iter(DEAR))}[{i}]": i for i in (8.0, 9.0)}, (), [f"{next(iter(DEAR))}[9.0]"]),
        ({f"{min(DOORS)}[{i}]": i for i in (0.3, 0.9, 1.2)}, (), [f"{min(DOORS)}[1.2]"]),
    ],
)
def test_a_case_of_each_test_runs_by_default_unless_all_are_dear(seconds, before, expected):
    assert slow(seconds, frozenset(before)) == expected


@pytest.mark.parametrize(
    ("name", "limit", "marks", "outcome"),
    [
        ("tests/test_any.py::test_it[1]", 0.5, (), "failed"),
        ("tests/test_any.py::test_it[1]", 2.0, (), "passed"),
        ("tests/test_any.py::test_it[1]", None, (), "passed"),
        ("tests/test_any.py::test_it[1]", 0.5, ("long",), "passed"),
        ("tests/test_any.py::test_it[1]", 0.5, ("slow",), "passed"),
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
