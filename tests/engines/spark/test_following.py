"""Progress of jobs, by Spark's own status."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import dpsql
from dpsql.engines.spark import jobs
from tests.engines.spark.test_sources import ROWS, folder

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.1)


class Stage(NamedTuple):
    num_completed_tasks: int
    num_tasks: int


class Server:
    """What calls handlers, as sessions of Spark Connect do."""

    def __init__(self):
        self.handlers = []

    def registerProgressHandler(self, handler):  # noqa: N802 (as Spark calls it)
        self.handlers.append(handler)

    def removeProgressHandler(self, handler):  # noqa: N802 (as Spark calls it)
        self.handlers.remove(handler)

    def tells(self, operation, *stages):
        told = [Stage(*tasks) for tasks in stages]
        for handler in self.handlers:
            handler(stages=told, inflight_tasks=1, operation_id=operation, done=False)


@pytest.fixture
def asked(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "SHOWN_EVERY", 0.01)
    path = folder(tmp_path / "people", *[ROWS] * 4)
    schema = {f"parquet.{path}": {"sex": dpsql.Domain.labels(["F", "M"])}}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "people.ledger")
    return session, f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex'


def test_tasks_are_told_as_they_are_done(spark, monkeypatch):
    monkeypatch.setattr(jobs, "SHOWN_EVERY", 0.01)
    steps = []
    slow = "array_max(transform(sequence(1, 1000000 + CAST(id AS INT)), x -> x % 7)) AS x"
    with jobs.followed(spark, lambda *step: steps.append(step)):
        spark.range(0, 8, 1, 8).selectExpr(slow).groupBy("x").count().toArrow()
    assert all(0 <= done <= of for done, of in steps)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert any(0 < done < of for done, of in steps)
    assert steps[-1][0] == steps[-1][1] > 8
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_what_a_listener_raises_ends_the_work(spark, monkeypatch):
    monkeypatch.setattr(jobs, "SHOWN_EVERY", 0.001)

    def hear(done, of):
        raise ValueError(f"{done} of {of}")

    with pytest.raises(ValueError, match="of"), jobs.followed(spark, hear):
        spark.range(0, 8, 1, 8).groupBy("id").count().toArrow()
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_a_release_tells_how_far_counting_is(asked):
    told = []
    session, sql = asked
    session.query(sql, budget=BUDGET, progress=lambda *step: told.append(step))
    steps = [(done, of) for phase, done, of in told if phase == "counting"]
    assert steps[-1][0] == steps[-1][1] > 1


def test_a_server_tells_it_too(connected):
    steps = []
    with jobs.followed(connected, lambda *step: steps.append(step)):
        connected.range(0, 8, 1, 8).groupBy("id").count().toArrow()
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1]


def test_tasks_of_all_jobs_of_a_server_are_added_up(monkeypatch):
    """A server tells them every two seconds, so that short jobs have nothing to tell."""
    server, steps = Server(), []
    monkeypatch.setattr(jobs, "is_connected", lambda session: True)
    with jobs.followed(server, lambda *step: steps.append(step)):
        server.tells("one", (1, 4))
        server.tells("one", (4, 4), (0, 2))
        server.tells("one", (4, 4), (0, 2))
        server.tells("one", (4, 4), (2, 2))
        server.tells("two")
        server.tells("two", (3, 5))
    assert steps == [(1, 4), (4, 6), (6, 6), (9, 11), (11, 11)]
    assert server.handlers == []


def test_the_group_of_the_caller_stays(spark, asked):
    session, sql = asked
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "mine")
    try:
        session.query(sql, budget=BUDGET, progress=lambda *_: None)
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_where_nothing_is_told_there_is_no_progress_and_an_answer(asked, monkeypatch):
    monkeypatch.setattr(jobs, "_tasks", lambda *_: (0, 0))
    told = []
    session, sql = asked
    assert session.query(sql, budget=BUDGET, progress=lambda *s: told.append(s)).height == 2
    assert [step for step in told if step[0] == "counting"][-1] == ("counting", 1, 1)
