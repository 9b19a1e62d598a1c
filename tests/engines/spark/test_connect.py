"""Sessions of Spark Connect: what classic ones count, and what comes of a server elsewhere."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines.spark import engine as engines
from dpsql.engines.spark import sessions
from dpsql.engines.spark.engine import SparkEngine
from dpsql.engines.spark.sessions import PINNED, own_session
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import ExecutionError, LedgerError, SchemaError, StaleSchemaError
from dpsql.privacy import begin_named, bind_table
from dpsql.schema import Domain, Schema, Unit
from tests.engines.spark import test_several_tables as several
from tests.engines.spark.conftest import OneFile, ctrl_c_while_counting
from tests.engines.spark.test_columns import hostile  # noqa: F401
from tests.engines.spark.test_sources import COLUMNS, ROWS, counted, described, folder
from tests.helpers import spark as sparks

deltalake = pytest.importorskip("deltalake")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.1)
SEX = {"sex": Domain.labels(["F", "M"])}


@pytest.fixture
def people(tmp_path):
    """A folder, its schema, and a statement."""
    path = folder(tmp_path / "people", ROWS, ROWS.slice(3))
    sql = f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex'
    return path, {f"parquet.{path}": COLUMNS}, sql


@pytest.fixture
def account(address):
    """The keywords of a session whose account is on a server."""
    begin_named("hr.people", address)
    return {"ledger": address, "dataset": "hr.people"}


@pytest.mark.parametrize("way", ["workers", pytest.param("sql", marks=pytest.mark.long)])
def test_every_value_has_the_cell_that_it_has_in_duckdb(connected, hostile, way):  # noqa: F811
    path, table, wanted, expected = hostile
    some = wanted if way == "workers" else wanted[::9]
    counting = SparkEngine(OneFile(connected, path), partials=way).prepared(table, some)
    counting.check()
    found = counting.run()
    for marginal in some:
        np.testing.assert_array_equal(found[marginal], expected[marginal], err_msg=str(marginal))


def test_tables_and_folders_are_counted_as_by_classic_sessions(spark, connected, tmp_path):
    path = folder(tmp_path / "rows", ROWS, ROWS.slice(3))
    spark.sql("DROP TABLE IF EXISTS connected")
    spark.read.parquet(str(path)).write.saveAsTable("connected")
    connected.range(3).createOrReplaceTempView("connected")
    connected.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        for name, unit in ((("parquet", str(path)), None), (("connected",), Unit("id", 2))):
            found = []
            for session in (spark, connected):
                source = SparkSource(session)
                table = source.describe(name, Schema({".".join(name): COLUMNS}), unit)
                found.append(counted(source, table))
            assert all((found[0][m] == found[1][m]).all() for m in found[0])
            assert found[1][()] == (37 if unit is None else 14)
        assert connected.table("connected").count() == 3
        assert connected.conf.get("spark.sql.session.timeZone") == "America/Los_Angeles"
        session = own_session(connected)
        assert {name: session.conf.get(name) for name in PINNED} == PINNED
    finally:
        connected.catalog.dropTempView("connected")
        connected.conf.unset("spark.sql.session.timeZone")
        spark.sql("DROP TABLE IF EXISTS connected")


def test_a_version_of_a_delta_table_is_counted(connected, tmp_path):
    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, ROWS)
    source = SparkSource(connected)
    table = described(source, "delta", path)
    deltalake.write_deltalake(path, ROWS, mode="append")
    assert counted(source, table)[()] == 20  # as it was when it was described
    for version, rows in ((None, 40), ("0", 20)):
        source = SparkSource(connected, version=version)
        assert counted(source, described(source, "delta", path))[()] == rows


def test_files_that_change_meanwhile_give_no_counts(connected, people):
    path, schema, _ = people
    source = SparkSource(connected)
    table = described(source, "parquet", str(path), schema=Schema(schema))
    engine = source.engine()
    with engine.snapshot():
        counting = engine.prepared(table, [("sex",)])
        counting.check()
        pq.write_table(ROWS, path / "late.parquet")
        with pytest.raises(StaleSchemaError):
            counting.run()


def test_of_a_server_elsewhere_less_is_known(connected, tmp_path, monkeypatch):
    """Its files may have the paths of other files here, which are as long, say, but not as old."""
    times = pa.table({"sex": ["F", "M"], "t": pa.array([0, 1], pa.timestamp("us"))})
    path, delta = folder(tmp_path / "rows", times), str(tmp_path / "delta")
    deltalake.write_deltalake(delta, times)
    seen = sessions._seen
    monkeypatch.setattr(sessions, "_seen", lambda path: seen(path)._replace(written=0))
    source = SparkSource(connected)
    table = described(source, "parquet", str(path), schema=Schema({f"parquet.{path}": SEX}))
    assert counted(source, table, [()])[()] == 2
    assert source.stored_state(table).roots == ()
    domains = {"t": Domain.dates("1970-01-01", "1970-12-31", "month")}
    with pytest.raises(SchemaError, match="elsewhere"):
        described(source, "parquet", str(path), schema=Schema({f"parquet.{path}": domains}))
    with pytest.raises(SchemaError, match="another table") as caught:
        described(source, "delta", delta, schema=Schema({f"delta.{delta}": SEX}))
    assert "s3://" in caught.value.hint


def test_a_file_is_no_account(connected, people, tmp_path):
    with pytest.raises(LedgerError, match="several machines") as caught:
        dpsql.Session(connected, schema=people[1], ledger=tmp_path / "people.ledger")
    assert "dataset=" in caught.value.hint


FEW = ("joined", "running", "units_joined")


@pytest.mark.postgres
@pytest.mark.parametrize("names", [FEW, pytest.param((*several.SCRIPT,), marks=pytest.mark.long)])
def test_a_script_over_several_tables_has_the_answers_of_duckdb(
    connected, account, tmp_path, names
):
    """With the same noise, answers are the same only if plans and integers are."""
    con = several.filled()
    named = several.in_folders(con, tmp_path)
    here = dpsql.Session(connected, schema=several.schema(named), **account)
    there = dpsql.Session(con, schema=several.schema({name: name for name in several.TABLES}))
    several.check_same((here, there, named), {n: several.SCRIPT[n] for n in names})
    assert here.history["state"].to_list() == ["delivered"]


@pytest.mark.postgres
def test_tables_have_the_account_that_they_have_in_classic_sessions(
    spark, connected, people, account, tmp_path
):
    _, schema, sql = people
    named = {"schema": schema, "vintage": "2026", **account}
    first = dpsql.Session(connected, **named).query(sql, budget=BUDGET)
    again = dpsql.Session(spark, **named).query(sql, budget=0)
    assert_frame_equal(first, again)
    beside = dpsql.Session(spark, schema=schema, ledger=tmp_path / "beside.ledger")
    with pytest.raises(LedgerError, match="PostgreSQL"):
        beside.query(sql, budget=BUDGET)
    delta = str(tmp_path / "delta")
    deltalake.write_deltalake(delta, ROWS)
    session = dpsql.Session(connected, schema={f"delta.{delta}": SEX}, **account)
    asked = f'SELECT COUNT(*) AS n FROM delta."{delta}"'
    with pytest.raises(LedgerError, match="isn't bound"):
        session.query(asked, budget=BUDGET)
    bind_table(deltalake.DeltaTable(delta).metadata().id, account["ledger"], "hr.people")
    assert session.query(asked, budget=BUDGET).height == 1


@pytest.mark.postgres
def test_ctrl_c_ends_the_job_and_keeps_the_charge(spark, connected, people, account, monkeypatch):
    squares = "transform(sequence(1, 100000 + CAST(`sex` IS NULL AS INT)), x -> x * x % 7)"
    slow = f"CAST(array_max(transform(sequence(1, 99), y -> array_max({squares}))) AS BIGINT)"
    monkeypatch.setattr("dpsql.engines.spark.coding.code_of", lambda *_, **__: slow)
    _, schema, sql = people
    session = dpsql.Session(connected, schema=schema, **account)
    with ctrl_c_while_counting(spark, monkeypatch), pytest.raises(KeyboardInterrupt):
        session.query(sql, budget=BUDGET)
    assert session.history["state"].to_list() == ["charged"]
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


@pytest.mark.postgres
def test_a_failure_after_the_charge_tells_nothing(connected, people, account, monkeypatch, capfd):
    failing = "CAST(system.builtin.raise_error(CONCAT('row ', CAST(`sex` AS STRING))) AS BIGINT)"
    monkeypatch.setattr("dpsql.engines.spark.coding.code_of", lambda *_, **__: failing)
    _, schema, sql = people
    session = dpsql.Session(connected, schema=schema, **account)
    capfd.readouterr()
    with pytest.raises(ExecutionError) as caught:
        session.query(sql, budget=BUDGET)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    shown = capfd.readouterr()
    assert "row " not in shown.err + shown.out + str(caught.value)
    assert session.history["state"].to_list() == ["failed"]


class Wire:
    """What is between a client and a server, until it is cut."""

    def __init__(self, to):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port, self.to, self.ends = self.server.getsockname()[1], to, []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one, other = self.server.accept()[0], socket.create_connection(self.to)
                self.ends += [one, other]
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, one, other):
        with contextlib.suppress(OSError):
            while content := one.recv(2**16):
                other.sendall(content)

    def cut(self):
        for end in (self.server, *self.ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.mark.postgres
def test_a_server_that_goes_away_after_the_charge_leaves_it_charged(
    spark, connected, people, account, monkeypatch
):
    monkeypatch.setattr(sessions, "RETRIES", 1)
    _, schema, sql = people
    wire, run = Wire(("127.0.0.1", sparks.port(spark))), engines.SparkCounting.run

    def cut(counting):
        wire.cut()
        return run(counting)

    with sparks.connected(wire.port) as far:
        session = dpsql.Session(far, schema=schema, **account)
        monkeypatch.setattr(engines.SparkCounting, "run", cut)
        with pytest.raises(ExecutionError) as caught:
            session.query(sql, budget=BUDGET)
        monkeypatch.setattr(engines.SparkCounting, "run", run)
        assert caught.value.__context__ is None
        assert session.history["state"].to_list() == ["failed"]
        with pytest.raises(SchemaError, match="can't be used") as caught:
            dpsql.Session(far, schema=schema, **account)
        assert caught.value.hint
        far.client.set_retry_policies([])
    again = dpsql.Session(connected, schema=schema, **account)
    assert again.query(sql, budget=BUDGET).height == 2
    assert again.history["state"].to_list() == ["delivered"]  # it was paid for then
    assert again.ledger.spent == BUDGET.mu_squared


ALONE = """
import os, signal, sys
from pyspark.sql import SparkSession
import dpsql
from dpsql.engines.spark import engine, sessions
from dpsql.errors import ExecutionError

if __name__ == "__main__":
    path, address = sys.argv[1:]
    sessions.RETRIES = 1
    builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    schema = {f"parquet.{path}": {"sex": dpsql.Domain.labels(["F", "M"])}}
    session = dpsql.Session(spark, schema=schema, ledger=address, dataset="hr.people")
    asked = f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex'
    answer = session.query(asked, budget=dpsql.Budget(rho=10**6))
    print(sorted(round(n) for n in answer["n"]))
    run = engine.SparkCounting.run

    def killed(counting):
        from pyspark import SparkContext
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        return run(counting)

    engine.SparkCounting.run = killed
    try:
        session.query(asked + " HAVING n > 0", budget=dpsql.Budget(rho=10**7))
    except ExecutionError:
        print(session.history["state"].to_list())
    sys.stdout.flush()
    os._exit(0)  # of its own, Spark would wait for the server
"""


@pytest.mark.long
@pytest.mark.postgres
def test_a_process_may_have_sessions_of_connect_alone(people, account, tmp_path):
    """As users begin: by Spark's own builder, and a server of its own, which is killed.

    Such a server has Spark's usual port; no other is looked for.
    """
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    done = subprocess.run(
        [sys.executable, script, str(people[0]), account["ledger"]],
        check=True, capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[9, 19]", "['delivered', 'charged']"]
