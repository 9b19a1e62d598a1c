"""When a count is given up that nobody is there to run."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

from dpsql.engines.interrupts import EndedStatementError
from dpsql.engines.spark import jobs
from dpsql.engines.spark.jobs import ended_apart

LOOKS = 9


class Session:
    """A classic session of a cluster, whose jobs end when they are interrupted."""

    def __init__(self, master, executors):
        self.looks, self.ended = threading.Semaphore(0), threading.Event()
        status = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(size=self._size))
        self.executors, self.interruptAll = executors, self.ended.set
        self.sparkContext = SimpleNamespace(
            master=master, _jsc=SimpleNamespace(sc=lambda: status)
        )  # fmt: skip

    def _size(self):
        self.looks.release()
        return self.executors + 1  # the driver is one of them


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(jobs, "ASKED_EVERY", 0.01)
    monkeypatch.setattr(jobs, "SECONDS", 0.03)


@pytest.fixture
def place():
    """A port at which a master answers until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def url(listening):
    return f"spark://127.0.0.1:{listening.getsockname()[1]}"


def test_without_executors_and_a_master_jobs_end(place):
    session = Session(url(place), 0)
    place.close()
    with jobs.given_up(session):
        assert session.ended.wait(60)


@pytest.mark.parametrize("executors", [0, 1])
def test_as_long_as_one_of_them_is_there_jobs_go_on(place, executors):
    session = Session(url(place), executors)
    if executors:
        place.close()
    with jobs.given_up(session):
        for _ in range(LOOKS):
            assert session.looks.acquire(timeout=60)
    assert not session.ended.is_set()


def test_executors_that_come_back_begin_a_new_wait(monkeypatch):
    session, times = Session("spark://a:1", 0), iter([0, 20, 59, 61, 100, 120, 121, 999])
    found = iter([0, 0, 1, 0, 0, 0])  # one is there at 61
    monkeypatch.setattr(jobs, "SECONDS", 60)
    monkeypatch.setattr(jobs, "_executors", lambda _: next(found))
    monkeypatch.setattr(jobs, "_answers", lambda _: False)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with jobs.given_up(session):
        assert session.ended.wait(60)
    assert next(times) == 999


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_other_managers_are_left_alone(master, monkeypatch):
    watched = []
    monkeypatch.setattr(jobs, "_watch", lambda *given: watched.append(given))
    with jobs.given_up(Session(master, 0)):
        pass
    assert not watched
    with jobs.given_up(Session("spark://a:1", 0)):
        pass
    assert watched


def test_all_masters_are_asked():
    assert jobs.masters_of("spark://a:1,b:2,c") == [("a", 1), ("b", 2), ("c", 7077)]
    assert jobs.masters_of("local-cluster[2,1,512]") == []


class Thrown:
    """An error of Java, by what Spark calls it; None if it is none of Spark's."""

    def __init__(self, condition, cause=None):
        self.condition, self.cause = condition, cause

    def getCondition(self):  # noqa: N802
        if self.condition is None:
            raise AttributeError
        return self.condition

    def getCause(self):  # noqa: N802
        return self.cause


class CapturedError(Exception):
    def __init__(self, origin):
        super().__init__("600 rows")
        self._origin = origin


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (CapturedError(Thrown(None, Thrown("SPARK_JOB_CANCELLED"))), True),
        (CapturedError(Thrown("OPERATION_CANCELED")), True),
        (CapturedError(Thrown("DIVIDE_BY_ZERO")), False),
        (CapturedError(None), False),
        (OSError("SPARK_JOB_CANCELLED"), False),
    ],
)
def test_a_job_that_somebody_has_cancelled_is_told_from_one_that_failed(error, ended):
    """By what Spark calls the error, and those that it comes of; never by its text."""
    with pytest.raises(EndedStatementError if ended else type(error)) as caught, ended_apart():
        raise error
    assert not ended or (str(caught.value), caught.value.__suppress_context__) == ("", True)


def test_a_job_that_is_given_up_has_failed(place):
    """The library has cancelled it, and nobody who chose the moment."""
    session = Session(url(place), 0)
    place.close()

    def job():
        session.ended.wait(60)
        raise CapturedError(Thrown("SPARK_JOB_CANCELLED"))

    with pytest.raises(ConnectionError), ended_apart(), jobs.given_up(session):
        job()
