"""Sessions on Spark: planned, charged, counted and answered as on DuckDB."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import (
    DpsqlError,
    ExecutionError,
    LedgerError,
    SchemaError,
    StaleSchemaError,
    UndeterminedError,
)
from dpsql.session.data import PrivateData

deltalake = pytest.importorskip("deltalake")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SCHEMA = {
    "people": {
        "sex": dpsql.Domain.labels(["F", "M"]),
        "age": dpsql.Domain.integers(0, 99),
        "id": dpsql.Domain.number(0, 10_000),
        "day": dpsql.Domain.dates("2024-01-01", "2024-12-31", "month", nullable=True),
    }
}
SCRIPT = {
    "by_sex": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "by_age": "SELECT age // 10 AS decade, sex, COUNT(*) AS n FROM people GROUP BY 1, 2",
    "months": "SELECT month(day) AS m, COUNT(*) AS n FROM people WHERE sex = 'F' GROUP BY 1",
}
ROWS = """
    SELECT (range // 3)::BIGINT AS id, ['F', 'M', 'x', NULL][1 + range % 4] AS sex,
        (range * 7 % 110)::INTEGER AS age, DATE '2023-12-15' + (range % 400)::INTEGER AS day
    FROM range(20000)
"""
HUGE = dpsql.Budget(rho=10**9)


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE people AS {ROWS}").fetchall()
    return con


@pytest.fixture(scope="module")
def people(spark, con, tmp_path_factory):
    path = tmp_path_factory.mktemp("people") / "rows.parquet"
    con.execute(f"COPY people TO '{path}'").fetchall()
    spark.sql("DROP TABLE IF EXISTS people")
    spark.read.option("inferTimestampNTZ.enabled", True).parquet(str(path)).write.saveAsTable(
        "people"
    )
    yield spark
    spark.sql("DROP TABLE IF EXISTS people")


@pytest.fixture(autouse=True)
def without_account(people):
    """Let each test begin an account: the one before has left a pointer beside the table."""
    yield
    warehouse = people.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    Path(warehouse, "people.ledger").unlink(missing_ok=True)


@pytest.fixture
def session(people, tmp_path):
    return dpsql.Session(people, schema=SCHEMA, ledger=tmp_path / "people.ledger")


@pytest.mark.parametrize("unit", [{}, {"unit": "id", "max_rows": 2}], ids=["rows", "units"])
def test_a_script_has_the_answers_that_duckdb_gives(people, con, tmp_path, unit):
    ledger = tmp_path / "people.ledger"
    session = dpsql.Session(people, schema=SCHEMA, ledger=ledger, **unit)
    expected = dpsql.Session(con, schema=SCHEMA, **unit).release(SCRIPT, budget=HUGE)
    release = session.release(SCRIPT, budget=HUGE)
    for name in SCRIPT:
        found, wanted = release[name], expected[name]
        keys = [column for column in found.columns if column not in {"n", "n_variance"}]
        joined = found.join(wanted, on=keys, nulls_equal=True, validate="1:1")
        assert joined.height == found.height == wanted.height
        np.testing.assert_allclose(joined["n"], joined["n_right"], atol=0.01)
    assert session.history["state"].to_list() == ["delivered"]


def test_what_was_measured_answers_more(session):
    session.release(SCRIPT, budget=HUGE)
    again = session.query("SELECT COUNT(*) AS n FROM people WHERE sex = 'M'", budget=0)
    assert abs(again["n"][0] - 5000) < 0.01
    assert session.history.height == 1


REFUSED = {
    "SELECT COUNT(*) FROM people WHERE pow(id, 2) = 9": "Spark doesn't compute pow",
    "SELECT COUNT(*) FROM nobody": "nobody",
    "SELECT id, COUNT(*) FROM people GROUP BY id": "domain",
    "SELECT a.sex, COUNT(*) FROM people AS a JOIN people AS b ON a.id = b.id GROUP BY a.sex": "",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_counted_is_refused_before_the_charge(session, sql):
    with pytest.raises(DpsqlError) as caught:
        session.query(sql, budget=HUGE)
    assert REFUSED[sql] in str(caught.value)
    assert session.history.height == 0


def test_sums_and_conditions_on_what_has_no_domain_are_exact(session, con):
    asked = """
        SELECT sex, COUNT(*) AS n, SUM(CAST(id AS INT) % 7) AS s FROM people
        WHERE CAST(id AS INT) % 2 = 1 GROUP BY sex
    """
    found = session.query(asked, budget=HUGE).sort("sex")
    wanted = con.sql(f"SELECT * FROM ({asked}) WHERE sex IN ('F', 'M') ORDER BY sex").pl()
    found = found.filter(found["sex"].is_in(["F", "M"]))
    for name in ("n", "s"):
        np.testing.assert_allclose(found[name], wanted[name].cast(float), atol=0.05)


def test_a_ledger_must_be_named(people):
    with pytest.raises(LedgerError, match="beside Spark's tables") as caught:
        dpsql.Session(people, schema=SCHEMA)
    assert "ledger=" in str(caught.value)


def test_a_table_has_one_account(people, session, tmp_path):
    session.query("SELECT COUNT(*) AS n FROM people", budget=HUGE)
    other = dpsql.Session(people, schema=SCHEMA, ledger=tmp_path / "other.ledger")
    with pytest.raises(LedgerError, match="have their account in") as caught:
        other.query("SELECT COUNT(*) AS n FROM people", budget=HUGE)
    assert str(tmp_path / "people.ledger") in caught.value.hint
    assert other.history.height == 0


def delta_session(spark, tmp_path, **options):
    path = str(tmp_path / "delta")
    schema = {f"delta.{path}": {"sex": dpsql.Domain.labels(["F", "M"])}}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "delta.ledger", **options)
    return session, f'SELECT COUNT(*) AS n FROM delta."{path}"'


def test_each_version_has_measurements_of_its_own(spark, tmp_path):
    rows = pa.table({"sex": ["F", "M", "F", None]})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    session, sql = delta_session(spark, tmp_path)
    assert round(session.query(sql, budget=HUGE)["n"][0]) == 4
    again, _ = delta_session(spark, tmp_path)
    assert round(again.query(sql, budget=0)["n"][0]) == 4
    deltalake.write_deltalake(str(tmp_path / "delta"), rows, mode="append")
    for one in (session, again):
        with pytest.raises(UndeterminedError):
            one.query(sql, budget=0)
    assert round(session.query(sql, budget=HUGE)["n"][0]) == 8


@pytest.mark.parametrize("name", ["0.parquet", "1.parquet"], ids=["written again", "appended"])
def test_files_that_changed_have_measurements_of_their_own(spark, tmp_path, name):
    """A folder has no version: that its files are others is seen from themselves."""
    rows, folder = pa.table({"sex": ["F", "M", "F", None]}), tmp_path / "folder"
    folder.mkdir()
    pq.write_table(rows, folder / "0.parquet")
    schema = {f"parquet.{folder}": {"sex": dpsql.Domain.labels(["F", "M"])}}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "a.ledger")
    sql = f'SELECT COUNT(*) AS n FROM parquet."{folder}"'
    assert round(session.query(sql, budget=HUGE)["n"][0]) == 4
    assert round(session.query(sql, budget=0)["n"][0]) == 4
    pq.write_table(pa.concat_tables([rows, rows]), folder / name)
    with pytest.raises(UndeterminedError):
        session.query(sql, budget=0)


def test_a_vintage_that_the_owner_names_goes_before_versions(spark, tmp_path):
    rows = pa.table({"sex": ["F", "M", "F", None]})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    session, sql = delta_session(spark, tmp_path, vintage="2026")
    session.query(sql, budget=HUGE)
    deltalake.write_deltalake(str(tmp_path / "delta"), rows, mode="append")
    again, _ = delta_session(spark, tmp_path, vintage="2026")
    assert round(again.query(sql, budget=0)["n"][0]) == 4
    other, _ = delta_session(spark, tmp_path, vintage="2027")
    with pytest.raises(UndeterminedError):
        other.query(sql, budget=0)


def test_what_is_written_between_plan_and_charge_is_not_charged_for(spark, tmp_path, monkeypatch):
    """A version is counted as it was planned; a folder has none, and must be asked again."""
    rows = pa.table({"sex": ["F", "M", "F", None]})
    delta, folder = tmp_path / "delta", tmp_path / "folder"
    deltalake.write_deltalake(str(delta), rows)
    folder.mkdir()
    pq.write_table(rows, folder / "0.parquet")
    domains = {"sex": dpsql.Domain.labels(["F", "M"])}
    schema = {f"delta.{delta}": domains, f"parquet.{folder}": domains}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "a.ledger")
    verify = PrivateData.verify

    def late(self, *tables):
        deltalake.write_deltalake(str(delta), rows, mode="append")
        pq.write_table(rows, folder / "1.parquet")
        verify(self, *tables)

    monkeypatch.setattr(PrivateData, "verify", late)
    n = session.query(f'SELECT COUNT(*) AS n FROM delta."{delta}"', budget=HUGE)["n"][0]
    assert round(n) == 4
    with pytest.raises(StaleSchemaError):
        session.query(f'SELECT COUNT(*) AS n FROM parquet."{folder}"', budget=HUGE)
    assert session.history.height == 1


def test_a_version_whose_files_are_gone_is_refused_before_the_charge(spark, tmp_path):
    rows = pa.table({"sex": ["F", "M", "F", None]})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    session, sql = delta_session(spark, tmp_path)
    for file in (tmp_path / "delta").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SchemaError, match="can't be listed"):
        session.query(sql, budget=HUGE)
    assert session.history.height == 0


def test_a_failure_after_the_charge_tells_nothing(people, session, monkeypatch, capfd):
    from dpsql.engines.spark import coding

    failing = "CAST(system.builtin.raise_error(CONCAT('row ', CAST(`age` AS STRING))) AS BIGINT)"
    monkeypatch.setattr(coding, "code_of", lambda *_, **__: failing)
    capfd.readouterr()
    logged = io.StringIO()
    with contextlib.redirect_stderr(logged), pytest.raises(ExecutionError) as caught:
        session.query("SELECT age, COUNT(*) FROM people GROUP BY age", budget=HUGE)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    shown = capfd.readouterr()
    assert "row " not in shown.err + shown.out + logged.getvalue() + str(caught.value)
    assert session.history["state"].to_list() == ["failed"]


@pytest.mark.postgres
def test_an_account_on_a_server_is_known_by_the_name_of_the_data_set(people, tmp_path, address):
    from dpsql.privacy import begin_named

    with pytest.raises(LedgerError, match="dataset=") as caught:
        dpsql.Session(people, schema=SCHEMA, ledger=address)
    assert "hr.people" in str(caught.value.hint)
    begin_named("hr.people", address)
    named = {"schema": SCHEMA, "ledger": address, "dataset": "hr.people", "vintage": "2026"}
    release = dpsql.Session(people, **named).release(SCRIPT, budget=HUGE)
    session = dpsql.Session(people, **named)
    for name, answer in session.release(SCRIPT, budget=0).items():
        assert_frame_equal(answer, release[name])
    assert session.ledger.spent == HUGE.mu_squared
    beside = dpsql.Session(people, schema=SCHEMA, ledger=tmp_path / "beside.ledger")
    with pytest.raises(LedgerError, match="PostgreSQL"):
        beside.query(SCRIPT["by_sex"], budget=HUGE)
    assert beside.history.height == 0


@pytest.mark.postgres
def test_a_table_with_an_id_is_bound_once(spark, tmp_path, address):
    """A table that nobody bound, one that was made anew, and one that is bound elsewhere."""
    from dpsql.privacy import begin_named, bind_table

    rows = pa.table({"sex": ["F", "M", "F", None]})
    path = str(tmp_path / "delta")
    schema = {f"delta.{path}": {"sex": dpsql.Domain.labels(["F", "M"])}}
    sql = f'SELECT COUNT(*) AS n FROM delta."{path}"'
    deltalake.write_deltalake(path, rows)
    for name in ("people", "others"):
        begin_named(name, address)
    people, others = (
        dpsql.Session(spark, schema=schema, ledger=address, dataset=name)
        for name in ("people", "others")
    )

    def refused(session):
        id_ = deltalake.DeltaTable(path).metadata().id
        with pytest.raises(LedgerError, match="isn't bound") as caught:
            session.query(sql, budget=HUGE)
        assert f"bind --table {id_}" in caught.value.hint
        return id_

    bind_table(refused(people), address, "people")
    assert round(people.query(sql, budget=HUGE)["n"][0]) == 4
    bound = refused(others)
    with pytest.raises(LedgerError, match="another ledger"):
        bind_table(bound, address, "others")
    deltalake.write_deltalake(path, rows, mode="append")
    assert round(people.query(sql, budget=HUGE)["n"][0]) == 8
    shutil.rmtree(path)
    deltalake.write_deltalake(path, rows)
    refused(people)
    assert people.history.height == 2
    assert others.history.height == 0


def test_a_version_is_the_one_that_was_named(spark, tmp_path):
    rows = pa.table({"sex": ["F", "M", "F", None]})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    deltalake.write_deltalake(str(tmp_path / "delta"), rows, mode="append")
    for version, n in ((0, 4), ("1", 8), (None, 8)):
        session, sql = delta_session(spark, tmp_path, version=version)
        assert round(session.query(sql, budget=HUGE)["n"][0]) == n
    for version in (9, "x", True, 1.5):
        with pytest.raises(SchemaError):
            delta_session(spark, tmp_path, version=version)[0].query(sql, budget=HUGE)
    with pytest.raises(SchemaError, match="no versions"):
        dpsql.Session(duckdb.connect(), version=0)


def test_a_file_is_no_account_for_several_machines(people, tmp_path, monkeypatch):
    monkeypatch.setattr("dpsql.engines.spark.source.is_here_alone", lambda session: False)
    with pytest.raises(LedgerError, match="several machines") as caught:
        dpsql.Session(people, schema=SCHEMA, ledger=tmp_path / "people.ledger")
    assert "dataset=" in str(caught.value.hint)


@pytest.mark.parametrize("place", ["file://{}", "FILE:{}", "file://localhost{}"])
def test_a_delta_table_has_one_account_however_its_place_is_spelled(spark, tmp_path, place):
    path = tmp_path / "delta"
    deltalake.write_deltalake(str(path), pa.table({"sex": ["F", "M", "F", None]}))

    def asked(place, ledger):
        schema = {f"delta.{place}": {"sex": dpsql.Domain.labels(["F", "M"])}}
        session = dpsql.Session(spark, schema=schema, ledger=tmp_path / ledger)
        return round(
            session.query(f'SELECT COUNT(*) AS n FROM delta."{place}"', budget=HUGE)["n"][0]
        )

    assert asked(str(path), "first.ledger") == 4
    assert asked(place.format(path), "first.ledger") == 4
    with pytest.raises(LedgerError, match="another one"):
        asked(place.format(path), "second.ledger")
