"""Files and ledgers that change while a session plans, charges and counts: what then is answered.

What is answered is what was planned, a version as it was then; else nothing is, before the charge
or after it.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.spark.engine import SparkCounting
from dpsql.engines.spark.source import PinnedTables
from dpsql.errors import ExecutionError, LedgerError, SchemaError, StaleSchemaError
from dpsql.privacy import begin_named
from dpsql.session.data import PrivateData
from tests.helpers import postgres

deltalake = pytest.importorskip("deltalake")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
HUGE = dpsql.Budget(rho=10**9)
ROWS = pa.table({"sex": ["F", "M", "F", None]})
OTHERS = pa.table({"sex": ["M"] * 7})
DOMAINS = {"sex": dpsql.Domain.labels(["F", "M"])}


def append(path):
    pq.write_table(OTHERS, path / "late.parquet")


def begin_to_compact(path):
    """Write the new file, and leave the old ones for later: each row is there twice."""
    pq.write_table(pa.concat_tables([ROWS, ROWS]), path / "compacted.parquet")


def compact(path):
    begin_to_compact(path)
    os.remove(path / "0.parquet")
    os.remove(path / "1.parquet")


def overwrite(path):
    """Write others under the same name, as large and at the same time as the file before."""
    before, size = os.stat(path / "0.parquet"), (path / "0.parquet").stat().st_size
    pq.write_table(pa.table({"sex": ["M", "F", "M", None]}), path / "0.parquet")
    assert (path / "0.parquet").stat().st_size == size
    os.utime(path / "0.parquet", ns=(before.st_atime_ns, before.st_mtime_ns))


def append_version(path):
    deltalake.write_deltalake(str(path), OTHERS, mode="append")


def compact_version(path):
    deltalake.DeltaTable(str(path)).optimize.compact()


def overwrite_version(path):
    deltalake.write_deltalake(str(path), OTHERS, mode="overwrite")


def vacuum(path):
    """Overwrite a table, and remove the files of all versions but the new one."""
    overwrite_version(path)
    table = deltalake.DeltaTable(str(path))
    removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert removed


FOLDER = (append, begin_to_compact, compact, overwrite)
VERSIONS = (append_version, compact_version, overwrite_version, vacuum)
MOMENTS = {
    "before the charge": (PrivateData, "verify"),
    "before the job": (SparkCounting, "run"),
    "before the last look": (PinnedTables, "check_unchanged"),
}
REPEATED = {
    append_version: ("before the job", "before the last look"),
    compact_version: ("before the charge", "before the last look"),
    overwrite_version: ("before the job",),
    begin_to_compact: ("before the charge", "before the last look"),
}
"""Moments that are long: a version stays as it was at any, and a file more is one by any name."""
CASES = [
    pytest.param(
        change,
        moment,
        id=f"{change.__name__}-{moment}",
        marks=[pytest.mark.long] if moment in REPEATED.get(change, ()) else [],
    )
    for moment in MOMENTS
    for change in (*FOLDER, *VERSIONS)
]


def made(spark, tmp_path, change, **how):
    """Make a table of two files, which can be changed so, and a session."""
    path, kind = tmp_path / "rows", "parquet" if change in FOLDER else "delta"
    path.mkdir()
    for i in range(2):
        if kind == "delta":
            deltalake.write_deltalake(str(path), ROWS, mode="append")
        else:
            pq.write_table(ROWS, path / f"{i}.parquet")
    schema = {f"{kind}.{path}": DOMAINS}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "rows.ledger", **how)
    sql = f'SELECT sex, COUNT(*) AS n FROM {kind}."{path}" GROUP BY sex ORDER BY sex'
    return path, session, sql


def asked(session, sql):
    return session.query(sql, budget=HUGE)["n"].round().to_list()


@pytest.mark.parametrize(("change", "moment"), CASES)
def test_what_is_written_meanwhile(spark, tmp_path, monkeypatch, change, moment):
    path, session, sql = made(spark, tmp_path, change)
    of, name = MOMENTS[moment]
    real = getattr(of, name)

    def after_a_change(*given):
        monkeypatch.undo()
        change(path)
        return real(*given)

    monkeypatch.setattr(of, name, after_a_change)
    first = moment == "before the charge"
    gone = change is vacuum and moment != "before the last look"
    if change in VERSIONS and not gone:
        assert asked(session, sql) == [4, 2]
        assert session.history["state"].to_list() == ["delivered"]
        return
    # Of a version whose files were removed after the charge nothing is counted.
    with pytest.raises((StaleSchemaError, SchemaError) if first else ExecutionError) as caught:
        asked(session, sql)
    assert not first or caught.value.hint
    assert session.history["state"].to_list() == ([] if first else ["failed"])
    assert str(path) not in str(caught.value) or first


def test_a_version_that_was_vacuumed_is_refused_before_the_charge(spark, tmp_path):
    path, session, sql = made(spark, tmp_path, vacuum, version=0)
    assert asked(session, sql) == [2, 1]
    vacuum(path)
    with pytest.raises(SchemaError) as caught:
        session.query(sql, budget=HUGE, reuse=False)
    assert caught.value.hint
    assert session.history["state"].to_list() == ["delivered"]


# ── The ledger's server ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def others():
    """A server that may be stopped: nobody else has an account there."""
    with postgres.server() as found:
        yield found


@pytest.mark.postgres
@pytest.mark.parametrize("fails", [False, True], ids=["counted", "and counting fails"])
def test_a_server_that_is_gone_while_rows_are_counted(spark, tmp_path, monkeypatch, others, fails):
    """It was paid for and is handed out, if it is counted; the charge is there in either case."""
    name = f"people of {tmp_path.name}"
    begin_named(name, others.address())
    schema, script = stored(tmp_path)
    session = dpsql.Session(spark, schema=schema, ledger=others.address(), dataset=name)
    run = SparkCounting.run

    def run_without(counting):
        others.stop("immediate")
        if fails:
            os.remove(tmp_path / "rows" / "0.parquet")
        return run(counting)

    with monkeypatch.context() as patched:
        patched.setattr(SparkCounting, "run", run_without)
        try:
            if fails:
                with pytest.raises(ExecutionError):
                    session.query(script, budget=HUGE)
            else:
                assert asked(session, script) == [2, 1]
        finally:
            others.start()
    time.sleep(1.1)  # then a connection is asked before it is used
    assert session.history["state"].to_list() == ["charged"]
    assert session.ledger.spent == HUGE.mu_squared


@pytest.mark.postgres
def test_a_server_that_is_gone_before_the_charge(spark, tmp_path, monkeypatch, others):
    name = f"people of {tmp_path.name}"
    begin_named(name, others.address())
    schema, script = stored(tmp_path)
    session = dpsql.Session(spark, schema=schema, ledger=others.address(), dataset=name)
    session.plan({"q": script}, budget=HUGE)
    verify, ran = PrivateData.verify, []

    def verify_without(*given):
        others.stop("immediate")
        return verify(*given)

    with monkeypatch.context() as patched:
        patched.setattr(SparkCounting, "run", lambda counting: ran.append(counting))
        patched.setattr(PrivateData, "verify", verify_without)
        try:
            with pytest.raises(LedgerError) as caught:
                session.query(script, budget=HUGE)
        finally:
            others.start()
    assert caught.value.hint
    assert not ran
    assert session.history.height == 0
    assert asked(session, script) == [2, 1]


def stored(tmp_path):
    """Write a folder of one file, and return what is declared of it and a statement."""
    path = tmp_path / "rows"
    path.mkdir()
    pq.write_table(ROWS, path / "0.parquet")
    sql = f'SELECT sex, COUNT(*) AS n FROM parquet."{path}" GROUP BY sex ORDER BY sex'
    return {f"parquet.{path}": DOMAINS}, sql
