"""CPU seconds of each test: `--cpu FILE` writes them, `--cpu-limit` fails tests that take more.

A processor that is slower, or busy, needs more of them, so CI runs nothing with a limit: it is for
those who write tests. Those that may take more are slow (`slow.py`), or in `dear.py` with a reason.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.dear import DEAR


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("cpu", "CPU seconds of tests")
    group.addoption("--cpu", metavar="FILE", help="write the CPU seconds of each test to FILE")
    group.addoption(
        "--cpu-limit",
        metavar="SECONDS",
        type=float,
        help="fail default tests that take more, but dear ones",
    )


def measured(config: pytest.Config) -> None:
    """Measure, if one of the options says so."""
    path, limit = config.getoption("--cpu"), config.getoption("--cpu-limit")
    if path or limit is not None:
        config.pluginmanager.register(Measured(limit))
    if path and not hasattr(config, "workerinput"):  # of several processes, the one that reports
        config.pluginmanager.register(Written(Path(path)))


class Measured:
    """Tells each report what its phase took, and fails a test above the limit.

    What is made for several tests is set up before the first of them: that is not counted as its.
    """

    def __init__(self, limit: float | None, clock: Callable[[], float] | None = None) -> None:
        self.limit = limit
        self._clock = used if clock is None else clock
        self._before = self._clock()

    def pytest_runtest_logstart(self) -> None:
        self._before = self._clock()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        now = self._clock()
        report.cpu, self._before = now - self._before, now
        if report.when == "call" and report.passed and self._is_above(item, report.cpu):
            report.outcome = "failed"
            report.longrepr = f"took {report.cpu:.2f} CPU seconds: make it smaller, or a dear one"
        return report

    def _is_above(self, item: pytest.Item, seconds: float) -> bool:
        if self.limit is None or seconds <= self.limit:
            return False
        if item.get_closest_marker("long") or item.get_closest_marker("slow"):
            return False
        return item.nodeid.partition("[")[0] not in DEAR


class Written:
    """Writes a line of JSON for each phase of each test."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "cpu"):  # of a process that has died, whose test has failed
            return
        line = {
            "test": report.nodeid,
            "phase": report.when,
            "cpu": round(report.cpu, 4),
            "clock": round(report.duration, 4),
            "worker": getattr(report, "worker_id", ""),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def used() -> float:
    """Return the CPU seconds of this process, and of those that it or they have started.

    Linux tells of those that still run: elsewhere they count when they have ended.
    """
    ended = sum(
        taken.ru_utime + taken.ru_stime
        for taken in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return ended + sum(map(_of, _children(os.getpid())))


def _of(process: int) -> float:
    """Return the CPU seconds of a process that runs, with those that it started."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_of, _children(process)))


def _children(process: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, file.read_text().split())
        except OSError:  # a thread that has just ended
            continue
    return found
