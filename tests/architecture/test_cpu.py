"""Tests that take long are known, and others are noticed by those who ask for it."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, partial
from types import SimpleNamespace

import pytest

from tests.architecture.test_structure import ROOT
from tests.helpers.cpu import Measured
from tests.helpers.dear import DEAR, DOORS
from tests.helpers.slow import FILE, MISSING, PARTS, listed, mark, slow


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_dear_and_slow_tests_exist(request):
    for test in DEAR.keys() | DOORS | {test.partition("[")[0] for test in listed()}:
        file, *names = test.split("::")
        for name in names:
            assert re.search(rf"^ *(class|def) {name}\b", text_of(file), re.MULTILINE), test
    missing = request.config.stash[MISSING]
    assert not missing, "a case has another name now, or none: change its line in tests/slow.txt"


def test_slow_tests_are_sorted():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert lines == sorted({*lines})
    assert not DEAR.keys() & {*lines}


@pytest.mark.parametrize(
    ("seconds", "before", "expected"),
    [
        ({"t[1]": 0.02, "t[2]": 0.04, "t[3]": 0.2, "t[4]": 0.3, "t[5]": 0.5}, (), ["t[3]", "t[5]"]),
        ({"t[1]": 0.25, "t[2]": 0.3, "t[3]": 0.35}, ("t[1]", "t[3]"), ["t[1]", "t[3]"]),
        ({"t[1]": 0.04, "t[2]": 0.04, "t[3]": 0.02, "t[4]": 0.3}, ("t[2]", "t[3]"), ["t[2]"]),
        ({"t[1]": 0.5, "t[2]": 0.6}, (), ["t[1]", "t[2]"]),
        ({"t": 0.35, "u": 0.45, "v": 0.25}, ("v",), ["u"]),
        ({f"{next(iter(DEAR))}[{i}]": i for i in (8.0, 9.0)}, (), [f"{next(iter(DEAR))}[9.0]"]),
        ({f"{min(DOORS)}[{i}]": i for i in (0.3, 0.9, 1.2)}, (), [f"{min(DOORS)}[1.2]"]),
    ],
)
def test_a_case_of_each_test_runs_by_default_unless_all_are_dear(seconds, before, expected):
    assert slow(seconds, frozenset(before)) == expected


def test_each_slow_test_is_in_one_part_and_no_others_change_which():
    names = sorted(listed())
    parts = [_marked(names, part) for part in range(1, PARTS + 1)]
    assert sorted(name for part in parts for name in part) == names
    assert _marked(names, None) == names
    sizes = [Counter(name.partition("[")[0] for name in part) for part in parts]
    for test in {name.partition("[")[0] for name in names}:
        counts = [size[test] for size in sizes]
        assert max(counts) - min(counts) <= 1, test
    fewer = [name for name in names if "/session/" not in name]
    for number, part in enumerate(parts, 1):
        assert _marked(fewer, number) == [name for name in part if "/session/" not in name]


def _marked(names: list[str], part: int | None) -> list[str]:
    """Return those that would run, if all of some tests were slow."""
    items = [Item(name) for name in names]
    mark(SimpleNamespace(getoption=lambda _: part, stash={}), items)
    return [item.nodeid for item in items if item.marks == ["slow"]]


class Item:
    """A test, as far as marks go."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid, self.marks = nodeid, list[str]()

    def get_closest_marker(self, mark: str) -> bool:
        return mark in self.marks

    def add_marker(self, mark: str) -> None:
        self.marks.append(mark)


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
