"""CPU seconds of each test: `--cpu FILE` writes them, `--cpu-limit` fails tests that take more.

A processor that is slower, or busy, needs more of them, so nothing that must pass is run with a
limit: it is for those who write tests.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

DEAR: dict[str, str] = {}
"""Tests, without their cases, that may take more than a limit, and the reason why."""


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("cpu", "CPU seconds of tests")
    group.addoption("--cpu", metavar="FILE", help="write the CPU seconds of each test to FILE")
    group.addoption(
        "--cpu-limit",
        metavar="SECONDS",
        type=float,
        help="fail tests that take more, but dear ones",
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

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._before = used()

    def pytest_runtest_logstart(self) -> None:
        self._before = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        now = used()
        report.cpu, self._before = now - self._before, now
        name = item.nodeid.partition("[")[0]
        if (
            self.limit is not None
            and report.when == "call"
            and report.passed
            and report.cpu > self.limit
            and name not in DEAR
        ):
            report.outcome = "failed"
            report.longrepr = f"took {report.cpu:.2f} CPU seconds: make it smaller, or a dear one"
        return report


class Written:
    """Writes a line of JSON for each phase of each test."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        line = {
            "test": report.nodeid,
            "phase": report.when,
            "cpu": round(report.cpu, 4),
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
