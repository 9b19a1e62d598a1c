"""Snapshots of Iceberg tables in Spark: the files of one, once, in one account."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.errors import LedgerError, SchemaError, StaleSchemaError, UndeterminedError
from dpsql.privacy import begin_named, bind_table
from dpsql.session.data import PrivateData

pytest.importorskip("pyiceberg.catalog.sql")

from tests.helpers.iceberg import catalog_in, last_of, people, place_of, with_entry

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
HUGE = dpsql.Budget(rho=10**9)
DOMAINS = {"sex": dpsql.Domain.labels(["F", "M"]), "age": dpsql.Domain.integers(0, 19)}


@pytest.fixture
def table(tmp_path):
    made = catalog_in(tmp_path / "lake").create_table("hr.people", schema=people().schema)
    made.append(people())
    return made


def session_on(spark, place, ledger, **options):
    """Return a session on a table, and a statement that counts its rows."""
    schema = {f"iceberg.{place}": DOMAINS}
    session = dpsql.Session(spark, schema=schema, ledger=ledger, **options)
    return session, f'SELECT sex, COUNT(*) AS n FROM iceberg."{place}" GROUP BY sex'


def rows_of(answer):
    return {sex: round(n) for sex, n in answer.select("sex", "n").iter_rows()}


def test_the_snapshot_that_is_named_is_counted(spark, table, tmp_path):
    before = last_of(table)
    table.append(people(8))
    ledger = tmp_path / "a.ledger"
    last, sql = session_on(spark, table.metadata_location, ledger)
    assert rows_of(last.query(sql, budget=HUGE)) == {"F": 14, "M": 7}
    first, sql = session_on(spark, place_of(table), ledger, version=before)
    assert rows_of(first.query(sql, budget=HUGE)) == {"F": 10, "M": 5}
    table.overwrite(people(4))
    again, sql = session_on(spark, table.metadata_location, ledger)
    with pytest.raises(UndeterminedError):
        again.query(sql, budget=0)
    assert rows_of(again.query(sql, budget=HUGE)) == {"F": 2, "M": 1}
    assert rows_of(first.query(session_on(spark, place_of(table), ledger)[1], budget=0)) == {
        "F": 10, "M": 5,
    }  # fmt: skip


def test_snapshots_are_one_state_where_the_owner_names_a_vintage(spark, table, tmp_path):
    place, before = place_of(table), last_of(table)
    session, sql = session_on(spark, place, tmp_path / "a.ledger", version=before, vintage="2026")
    answer = session.query(sql, budget=HUGE)
    table.append(people(8))
    options = {"version": last_of(table), "vintage": "2026"}
    again, sql = session_on(spark, place, tmp_path / "a.ledger", **options)
    assert rows_of(again.query(sql, budget=0)) == rows_of(answer)


def test_a_table_has_one_account_however_it_is_named(spark, table, tmp_path):
    place, version = place_of(table), last_of(table)
    session, sql = session_on(spark, place, tmp_path / "a.ledger", version=version)
    session.query(sql, budget=HUGE)
    for name in (place, f"file://{place}", table.metadata_location):
        other, sql = session_on(spark, name, tmp_path / "b.ledger", version=version)
        with pytest.raises(LedgerError):
            other.query(sql, budget=HUGE)
        assert other.history.height == 0
    (folder,) = {str(path.parent) for path in Path(place).glob("data/*.parquet")}
    with pytest.raises(SchemaError, match="table with versions") as caught:
        dpsql.Session(
            spark, schema={f"parquet.{folder}": DOMAINS}, ledger=tmp_path / "b.ledger"
        ).query(f'SELECT COUNT(*) AS n FROM parquet."{folder}"', budget=HUGE)
    assert f'iceberg."{place}"' in caught.value.hint


def test_rows_that_are_deleted_beside_the_files_are_refused_before_the_charge(
    spark, table, tmp_path
):
    place = with_entry(table, 1, file_path=f"file://{place_of(table)}/data/d.parquet")
    session, sql = session_on(spark, place, tmp_path / "a.ledger")
    with pytest.raises(SchemaError, match="merge-on-read"):
        session.query(sql, budget=HUGE)
    assert session.history.height == 0


def test_files_that_were_written_again_or_are_gone_are_refused_before_the_charge(
    spark, table, tmp_path, monkeypatch
):
    session, sql = session_on(spark, table.metadata_location, tmp_path / "a.ledger")
    (file,) = Path(place_of(table)).glob("data/*.parquet")
    verify = PrivateData.verify

    def late(self, *tables):
        file.write_bytes(file.read_bytes())
        verify(self, *tables)

    monkeypatch.setattr(PrivateData, "verify", late)
    with pytest.raises(StaleSchemaError):
        session.query(sql, budget=HUGE)
    monkeypatch.undo()
    again, sql = session_on(spark, table.metadata_location, tmp_path / "a.ledger")
    file.unlink()
    with pytest.raises(SchemaError, match="not as the Iceberg table says") as caught:
        again.query(sql, budget=HUGE)
    assert caught.value.hint
    assert again.history.height == 0


@pytest.mark.postgres
def test_a_table_is_bound_by_its_uuid_and_counted_by_spark_connect(connected, table, address):
    begin_named("hr.people", address)
    account = {"ledger": address, "dataset": "hr.people"}
    session, sql = session_on(connected, table.metadata_location, **account)
    with pytest.raises(LedgerError, match="isn't bound") as caught:
        session.query(sql, budget=HUGE)
    uid = str(table.metadata.table_uuid)
    assert f"bind --table {uid}" in caught.value.hint
    bind_table(uid, address, "hr.people")
    assert rows_of(session.query(sql, budget=HUGE)) == {"F": 10, "M": 5}
