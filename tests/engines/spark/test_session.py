"""Sessions on Spark: planned, charged, counted and answered as on DuckDB."""

from __future__ import annotations

import contextlib
import io

import duckdb
import numpy as np
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import DpsqlError, ExecutionError, LedgerError

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
    "SELECT SUM(id) FROM people": "Spark",
    "SELECT COUNT(*) FROM people WHERE id % 2 = 1": "Spark",
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


def test_a_ledger_must_be_named(people):
    with pytest.raises(LedgerError, match="beside tables of Spark") as caught:
        dpsql.Session(people, schema=SCHEMA)
    assert "ledger=" in str(caught.value)


def test_a_failure_after_the_charge_tells_nothing(people, session, monkeypatch, capfd):
    from dpsql.engines.spark import engine

    failing = "CAST(system.builtin.raise_error(CONCAT('row ', CAST(`age` AS STRING))) AS BIGINT)"
    monkeypatch.setattr(engine, "code_of", lambda *_, **__: failing)
    capfd.readouterr()
    logged = io.StringIO()
    with contextlib.redirect_stderr(logged), pytest.raises(ExecutionError) as caught:
        session.query("SELECT age, COUNT(*) FROM people GROUP BY age", budget=HUGE)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    shown = capfd.readouterr()
    assert "row " not in shown.err + shown.out + logged.getvalue() + str(caught.value)
    assert session.history["state"].to_list() == ["charged"]


@pytest.mark.postgres
def test_an_account_on_a_server_is_known_by_the_name_of_the_data_set(people, address):
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
