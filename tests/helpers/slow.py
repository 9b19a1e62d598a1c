"""Tests that take long: `tests/slow.txt` lists them, and only `python -m tests --slow` runs them.

It runs a fifth of them, another one each day: `--part 2` is the second. Slow cases of one test are
dealt to the parts in turn, beginning with one that its name decides, so that a change of some tests
moves no others.

The list is measured, never guessed:

    python -m pytest -n 2 -m "not long" --cpu=cpu.jsonl
    python -m tests.helpers.slow cpu.jsonl

A case is slow above `LIMIT`, or above `DOOR` where each case is a door of its own (`dear.py`). Of
each test one case stays, the one that takes longest of those up to `ALONE`: the quickest may be one
that is refused, and sees nothing. Where all take longer, the test is slow as a whole, but for the
quickest case of one in `dear.py`. Where what is made for several tests takes long, these have the
marker themselves.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.dear import DEAR, DOORS

LIMIT = 0.05
ALONE = 0.4
DOOR = 1.0
"""CPU seconds. What is listed stays until it takes half of them: no two runs take the same."""

PARTS = 5
"""Days in which each slow test has run once."""

FILE = Path(__file__).parents[1] / "slow.txt"
MISSING: pytest.StashKey[list[str]] = pytest.StashKey()
"""What is listed and is none of the tests, in files of which there are tests."""
LEFT_OUT: pytest.StashKey[set[str]] = pytest.StashKey()
"""Long and slow cases of which no tests were made."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("slow", "slow tests")
    group.addoption(
        "--part",
        metavar="NUMBER",
        type=int,
        choices=range(1, PARTS + 1),
        help=f"of the slow tests, run one of {PARTS} parts; all if not given",
    )


@cache
def listed() -> frozenset[str]:
    return frozenset(FILE.read_text(encoding="utf-8").splitlines())


def mark(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Mark those that are listed, but for samples that were others when the list was measured.

    Those of another part than is asked for are long.
    """
    names, found, files, dealt = listed(), set(), set(), Counter[str]()
    part = config.getoption("--part")
    for item in items:
        files.add(item.nodeid.partition("::")[0])
        if item.nodeid in names:
            found.add(item.nodeid)
            if item.get_closest_marker("long"):
                continue
            test = item.nodeid.partition("[")[0]
            item.add_marker("slow" if part in (None, part_of(test, dealt[test])) else "long")
            dealt[test] += 1
    unknown = names - found - config.stash.get(LEFT_OUT, set())
    config.stash[MISSING] = sorted(name for name in unknown if name.partition("::")[0] in files)


def part_of(test: str, number: int) -> int:
    """Return the part of a slow case: its number among those of its test."""
    return (zlib.crc32(test.encode()) + number) % PARTS + 1


def slow(seconds: Mapping[str, float], before: frozenset[str]) -> list[str]:
    """Return those tests that are slow, where these were so before."""
    cases = defaultdict(list)
    for test in sorted(seconds, key=seconds.__getitem__):
        cases[test.partition("[")[0]].append(test)
    return sorted(
        test
        for name, tests in cases.items()
        for kept in [_kept(name, tests, seconds, before)]
        for limit in [DOOR if name in DOORS else LIMIT]
        for test in tests
        if test != kept and seconds[test] > limit / (2 if test in before else 1)
    )


def _kept(
    name: str, tests: list[str], seconds: Mapping[str, float], before: frozenset[str]
) -> str | None:
    """Return the case that runs by default in any case: the one that did before, if one did."""

    def rank(test: str) -> tuple[bool, float]:
        return seconds[test] > LIMIT and test not in before, seconds[test]

    quickest = tests[0] if name in DEAR else None
    return max((test for test in tests if seconds[test] <= ALONE), key=rank, default=quickest)


def main() -> None:
    """Write the list anew: tests of which there are no seconds stay in it if they were."""
    seconds: dict[str, float] = {}
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        report = json.loads(line)
        if report["phase"] == "call":
            seconds[report["test"]] = report["cpu"]
    before = listed()
    names = {*slow(seconds, before), *(before - seconds.keys())}
    FILE.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")


if __name__ == "__main__":
    main()
