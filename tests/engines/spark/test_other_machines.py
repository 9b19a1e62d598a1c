"""A server of Spark Connect whose files aren't those of its clients, as on another machine.

It runs with a folder in the place of one of ours, so that it finds other files by the same names.
"""

from __future__ import annotations

import os
import shutil

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.spark.engine import SparkCounting
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import ExecutionError, LedgerError, SchemaError, StaleSchemaError
from dpsql.privacy import begin_named
from dpsql.schema import Domain, Schema
from dpsql.session.data import PrivateData
from tests.engines.spark.test_sources import COLUMNS, ROWS, counted, described, folder
from tests.helpers import clusters
from tests.helpers import spark as sparks

deltalake = pytest.importorskip("deltalake")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not clusters.can_mount(), reason="needs the right to mount a folder"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
HUGE = dpsql.Budget(rho=10**9)
SEX = {"sex": Domain.labels(["F", "M"])}
LONG, FURTHER = pytest.mark.long, ("none", "the same")
ONE = pa.table({"sex": ["M"]})


class Machines:
    """What is here and there, by the same names."""

    def __init__(self, base, session=None):
        self.here, self.there, self.session = base / "here", base / "there", session
        self.here.mkdir()
        self.there.mkdir()

    def copy(self, name):
        """Let the server have what is here, as old as it is."""
        shutil.copytree(self.here / name, self.there / name)

    def source(self, name, kind="parquet", domains=COLUMNS):
        """Describe a table by the server."""
        source, path = SparkSource(self.session), str(self.here / name)
        return source, described(source, kind, path, schema=Schema({f"{kind}.{path}": domains}))


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    base = tmp_path_factory.mktemp("machines")
    found = Machines(base)
    with (
        clusters.server(base / "server", here=found.here, there=found.there) as (_, port),
        sparks.connected(port) as found.session,
    ):
        yield found


@pytest.fixture
def account(address):
    begin_named("hr.people", address)
    return {"ledger": address, "dataset": "hr.people"}


def asked(machines, name, account, domains=SEX):
    path = machines.here / name
    session = dpsql.Session(machines.session, schema={f"parquet.{path}": domains}, **account)
    return session, f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex ORDER BY sex'


def own_session(path, ledger):
    """Ask the folder of this machine, by DuckDB, in an account in a file."""
    con = duckdb.connect()
    con.execute(f"CREATE VIEW people AS SELECT sex FROM read_parquet('{path}/*.parquet')")
    return dpsql.Session(con, schema={"people": SEX}, ledger=ledger)


@pytest.mark.postgres
@pytest.mark.parametrize("ours", ["others", *(pytest.param(o, marks=LONG) for o in FURTHER)])
def test_rows_are_those_that_the_server_finds(machines, account, tmp_path, ours):
    """They are charged in the account that the session names, and in no other besides.

    That of other rows here is theirs alone; that of the same rows is one, by the server or not.
    """
    name, count = f"people {ours}", "SELECT COUNT(*) AS n FROM people"
    here = machines.here / name
    folder(machines.there / name, ROWS, ROWS.slice(3))
    if ours == "others":
        folder(here, ONE)
        before = own_session(here, tmp_path / "own.ledger")
        before.query(count, budget=HUGE)
    elif ours == "the same":
        shutil.copytree(machines.there / name, here)
    source, table = machines.source(name)
    assert counted(source, table)["sex",].tolist() == [19, 9, 9]
    assert source.stored_state(table).roots == ((here,) if ours == "the same" else ())
    with pytest.raises(LedgerError, match="several machines"):
        asked(machines, name, {"ledger": tmp_path / "beside.ledger"})
    assert not (tmp_path / "beside.ledger").exists()
    session, sql = asked(machines, name, account)
    assert session.query(sql, budget=HUGE)["n"].round().to_list() == [19, 9]
    assert session.history["state"].to_list() == ["delivered"]
    assert session.ledger.spent == HUGE.mu_squared
    if ours == "others":
        assert before.history.height == 1
    if ours == "the same":
        with pytest.raises(LedgerError, match="PostgreSQL"):
            own_session(here, tmp_path / "own.ledger").query(count, budget=HUGE)


@pytest.mark.parametrize("ours", ["none", "others", "the same"])
def test_times_are_read_only_where_files_are_here(machines, ours):
    name, days = f"times {ours}", Domain.dates("1970-01-01", "1970-12-31", "month")
    times = pa.table({"t": pa.array([0, 1], pa.timestamp("us"))})
    folder(machines.there / name, times)
    if ours == "others":
        folder(machines.here / name, times.slice(1))
    elif ours == "the same":
        shutil.copytree(machines.there / name, machines.here / name)
        source, table = machines.source(name, domains={"t": days})
        assert counted(source, table, [()])[()] == 2
        return
    with pytest.raises(SchemaError, match="elsewhere"):
        machines.source(name, domains={"t": days})


@pytest.mark.postgres
@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["charged", "planned"])
@pytest.mark.parametrize("whose", ["there", "here"])
def test_files_that_change_give_no_counts(machines, account, monkeypatch, whose, moment):
    """On this machine or the server's, where both have the same; before the charge or after."""
    name = f"changed {whose} {moment}"
    folder(machines.there / name, ROWS)
    shutil.copytree(machines.there / name, machines.here / name)
    session, sql = asked(machines, name, account)
    of, what = (SparkCounting, "run") if moment == "charged" else (PrivateData, "verify")
    real = getattr(of, what)

    def after_a_change(*given):
        pq.write_table(ROWS, getattr(machines, whose) / name / "0.parquet")
        return real(*given)

    monkeypatch.setattr(of, what, after_a_change)
    with pytest.raises(ExecutionError if moment == "charged" else StaleSchemaError):
        session.query(sql, budget=HUGE)
    assert session.history["state"].to_list() == ["failed"] * (moment == "charged")


def test_files_elsewhere_that_change_give_no_counts(machines):
    folder(machines.there / "late", ROWS)
    source, table = machines.source("late")
    engine = source.engine()
    with engine.snapshot():
        counting = engine.prepared(table, [("sex",)])
        counting.check()
        pq.write_table(ROWS, machines.there / "late" / "1.parquet")
        with pytest.raises(StaleSchemaError):
            counting.run()


def test_a_table_with_versions_is_the_same_here_and_there_or_refused(machines):
    for name in ("same", "other", "gone"):
        deltalake.write_deltalake(str(machines.here / name), ROWS)
    shutil.copytree(machines.here / "same", machines.there / "same")
    deltalake.write_deltalake(str(machines.there / "alone"), ROWS)
    shutil.copytree(machines.here / "other", machines.there / "other")
    for path in (machines.there / "other").glob("*.parquet"):
        pq.write_table(pa.concat_tables([ROWS, ROWS]), path)
    source, table = machines.source("same", "delta")
    assert counted(source, table)[()] == 20
    for name, message in (("other", "another table"), ("gone", "listed"), ("alone", "alone")):
        with pytest.raises(SchemaError, match=message) as caught:
            machines.source(name, "delta")
        assert caught.value.hint


LOGS = {
    "delta": ("_delta_log", "00000000000000000000.json"),
    "hudi": (".hoodie", "hoodie.properties"),
    "iceberg": ("metadata", "00000-a.metadata.json"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("at", ["in it", "above it", "far above it", "below it", "far below it"])
def test_a_folder_elsewhere_is_no_part_of_a_table_with_versions(machines, log, at):
    """Not all of its files are rows of the table, and only its log says which."""
    top = f"{log} {at}"
    asked_, table, files = {
        "in it": ("", "", ""), "above it": ("sex=F", "", "sex=F"),
        "far above it": ("data/sex=F", "", "data/sex=F"), "below it": ("", "t", "t"),
        "far below it": ("", "s/t", "s/t/data"),
    }[at]  # fmt: skip
    folder(machines.there / top / files, ROWS)
    asked_of = os.path.join(top, asked_).rstrip("/")
    counted(*machines.source(asked_of))
    name, file = LOGS[log]
    place = machines.there / top / table / name
    place.mkdir(parents=True)
    (place / file).write_text("{}")
    if log == "iceberg" and asked_of == top and at == "in it":
        return  # its metadata are among the files, which are no Parquet
    with pytest.raises(SchemaError, match="a table with versions") as caught:
        machines.source(asked_of)
    shown = str(machines.here / top / table).rstrip("/")
    assert log == "hudi" or f'FROM {log}."{shown}"' in caught.value.hint
