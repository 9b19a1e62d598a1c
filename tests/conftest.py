"""Which tests run: samples of large sets of cases, what is quick, what has the server it needs."""

from __future__ import annotations

import gc
import importlib
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers import browser, cpu, postgres, slow
from tests.helpers import spark as sparks

settings.register_profile("alike", derandomize=True, deadline=None)
settings.load_profile("alike")  # the same examples in every run

gc.disable()  # until the tests are collected: a third of that was looking for garbage in vain

ROOT = Path(__file__).parents[1]
NEEDED = "DPSQL_TESTS_NEED_"
"""With a name behind it, as below, CI sets this, so that nothing is left out there."""
SYSTEMS = {"postgres": postgres, "spark": sparks, "browser": browser}


def _missing() -> dict[str, str]:
    """Marker → why tests with it are left out."""
    return {name: of.MISSING for name, of in SYSTEMS.items() if not of.is_there()}


def pytest_addoption(parser: pytest.Parser) -> None:
    cpu.add_options(parser)
    slow.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """End at once where a system is needed and can't be run."""
    config.add_cleanup(gc.unfreeze)  # the first is the last: see `pytest_collection_finish`
    cpu.measured(config)
    for name, reason in _missing().items():
        if os.environ.get(NEEDED + name.upper()):
            raise pytest.UsageError(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _missing().values():
        terminalreporter.write_line(reason)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several processes, have each compile a part of the tests first, for all of them.

    Where nothing is compiled, as in CI, all of them would do the same, at the same time: that took
    each longer than anything else that it does before the first test.
    """
    config = session.config
    if not hasattr(config, "workerinput"):
        return
    number, count = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
    files = sorted(file for of in config.args for file in Path(of).rglob("test_*.py"))
    for file in files[number::count]:
        # What can't be imported is imported again, and told of, when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(
                ".".join(file.absolute().relative_to(ROOT).with_suffix("").parts)
            )


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no cases that are long, or slow, where none of them is asked for: most of all are."""
    yield
    asked, calls = metafunc.config.getoption("markexpr").split(" and "), metafunc._calls
    if "not long" not in asked or any(" or " in part for part in asked):
        return
    if any("::" in argument for argument in metafunc.config.args):
        return  # a case that was named is left out, and isn't unknown
    test, listed = metafunc.definition, slow.listed() if "not slow" in asked else frozenset()
    unasked = {name for name in ("long", "slow") if f"not {name}" in asked}
    sample = test.get_closest_marker("sampled")
    kept = frozenset(range(len(calls))) if sample is None else _kept(len(calls), *sample.args)
    if any(map(test.get_closest_marker, unasked)):
        kept = frozenset()
    made, left_out = [], metafunc.config.stash.setdefault(slow.LEFT_OUT, set())
    for index, call in enumerate(calls):
        name = f"{test.nodeid}[{call.id}]"
        if index not in kept or name in listed or any(mark.name in unasked for mark in call.marks):
            left_out.add(name)
        else:
            made.append(call)
    calls[:] = made or calls[:1]  # left out later: with none, the test would seem to have no cases


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _sample(items)
    slow.mark(config, items)
    missing = _missing()
    apart = {item for item in items if any(map(item.get_closest_marker, missing))}
    if apart:
        config.hook.pytest_deselected(items=[*apart])
        items[:] = [item for item in items if item not in apart]
    # Of several processes the first begins with the first tests, and others take from the last: so
    # one of them starts a Spark, which takes longer than most tests.
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def _sample(items: list[pytest.Item]) -> None:
    """Mark most cases of a test marked `sampled(n)` as long.

    The n that are left are at equal distances, and so the same in every run.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        mark = found[0].get_closest_marker("sampled")
        kept = _kept(len(found), *(mark.args if mark else (len(found),)))
        for index, item in enumerate(found):
            if index not in kept:
                item.add_marker("long")


def _kept(cases: int, count: int) -> frozenset[int]:
    """Return which of some cases are a sample of so many."""
    return frozenset(index * cases // count for index in range(count))


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among the tests themselves, until the process ends.

    Then they are let go of: Polars would name all that is still there. But not before Pytest has
    looked for garbage for the last time, which took seconds among all of them.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Postgres]:
    with postgres.server() as found:
        yield found


@pytest.fixture
def address(server: postgres.Postgres) -> str:
    """The address of a database without ledgers."""
    server.query("DROP SCHEMA IF EXISTS dpsql CASCADE")
    return server.address()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One small Spark for all tests of a process: most of them take less time than it to start."""
    with sparks.session(tmp_path_factory.mktemp("spark")) as found:
        yield found


@pytest.fixture(scope="session")
def connected(spark: Any) -> Iterator[Any]:
    """A session of Spark Connect, of the same Spark."""
    with sparks.connected(sparks.port(spark)) as found:
        yield found
