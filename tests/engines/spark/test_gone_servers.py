"""Servers of Spark Connect that go away between a charge and its counts, or come back as others."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

import psutil
import pytest

import dpsql
from dpsql.engines.spark.engine import SparkCounting
from dpsql.errors import ExecutionError
from dpsql.privacy import begin_named
from tests.engines.spark.test_sources import COLUMNS, ROWS, folder
from tests.helpers import clusters
from tests.helpers import spark as sparks

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]
HUGE = dpsql.Budget(rho=10**9)
SETTLED = 600
"""Seconds after which what doesn't end is taken for what never does."""


@contextmanager
def ends_within(seconds):
    """Fail where something hangs."""

    def fail(*_):
        raise TimeoutError(f"it takes more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def kill(process):
    process.kill()


def freeze(process):
    """As where a machine has no power: nothing answers, and nothing says that it's off."""
    process.suspend()


@pytest.fixture
def asked(tmp_path, address):
    """Where rows are, and how a session on them is opened."""
    begin_named("hr.people", address)
    path = folder(tmp_path / "rows", ROWS, ROWS.slice(3))
    sql = f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex ORDER BY sex'

    def opened(spark):
        schema = {f"parquet.{path}": COLUMNS}
        return dpsql.Session(spark, schema=schema, ledger=address, dataset="hr.people"), sql

    return opened


def check_charged(session, sql):
    with ends_within(SETTLED), pytest.raises(ExecutionError) as caught:
        session.query(sql, budget=HUGE)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert session.history["state"].to_list() == ["failed"]
    assert session.ledger.spent == HUGE.mu_squared


@pytest.mark.parametrize("go", [kill, freeze])
@pytest.mark.parametrize("moment", ["before the job", "while it runs"])
def test_a_server_that_goes_away_leaves_the_charge(tmp_path, asked, monkeypatch, go, moment):
    run = SparkCounting.run
    slow = "CAST(reflect('java.lang.Thread', 'sleep', 1000L) IS NULL AS BIGINT)"
    monkeypatch.setattr("dpsql.engines.spark.coding.code_of", lambda *_, **__: slow)
    with clusters.server(tmp_path / "server") as (process, port), sparks.connected(port) as far:
        session, sql = asked(far)

        def gone(counting):
            late = threading.Timer(0 if moment == "before the job" else 3, go, [process])
            late.start()
            if moment == "before the job":
                late.join()
            return run(counting)

        monkeypatch.setattr(SparkCounting, "run", gone)
        check_charged(session, sql)
        far.client.set_retry_policies([])
        psutil.Process(process.pid).kill()


def test_a_server_that_was_started_anew_counts_nothing(tmp_path, asked, monkeypatch):
    """It knows nothing of our session's settings, by which a value might have another cell."""
    run, port = SparkCounting.run, clusters.free_port()
    with (
        clusters.server(tmp_path / "server", port=port) as (process, _),
        clusters.started(tmp_path / "again") as again,
        sparks.connected(port) as far,
    ):
        session, sql = asked(far)

        def anew(counting):
            process.kill()
            process.wait()
            again.start("server", clusters.serving(tmp_path / "again", "local[1]", port))
            again.listens("server", port)
            return run(counting)

        with monkeypatch.context() as patched:
            patched.setattr(SparkCounting, "run", anew)
            check_charged(session, sql)
        with sparks.connected(port) as other:
            answer = asked(other)[0].query(sql, budget=HUGE)
        assert answer["n"].round().to_list() == [19, 9]
        far.client.set_retry_policies([])
