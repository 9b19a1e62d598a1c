"""The same script over the same rows: the same plans, the same integers, and Ctrl-C in both."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.engines.spark.conftest import ctrl_c_while_counting
from tests.engines.spark.test_session import ROWS, SCHEMA, SCRIPT
from tests.release.test_sums_of_neighbors import (
    check_equal_counts,
    check_same_frames,
    recorded_in,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.1)


@pytest.fixture
def both(spark, tmp_path):
    """Make sessions over the same rows: of a table of DuckDB, and of a folder of files."""
    con, folder = duckdb.connect(), tmp_path / "people"
    folder.mkdir()
    con.execute(f"CREATE TABLE people AS {ROWS}").fetchall()
    con.execute(f"COPY people TO '{folder}/0.parquet'").fetchall()
    name = f'parquet."{folder}"'
    schema = {f"parquet.{folder}": SCHEMA["people"]}
    spark_session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "people.ledger")
    script = {of: sql.replace("people", name) for of, sql in SCRIPT.items()}
    return (dpsql.Session(con, schema=SCHEMA), SCRIPT), (spark_session, script)


def test_plans_and_integers_are_those_of_duckdb(both):
    plans = [session.plan(script, budget=BUDGET) for session, script in both]
    assert plans[0].rmse == plans[1].rmse
    there, here = (recorded_in(session, script, budget=BUDGET) for session, script in both)
    assert there.certified.digest == here.certified.digest
    check_equal_counts(there, here)
    check_same_frames(there, here)


def test_ctrl_c_ends_the_job_and_keeps_the_charge(both, spark, monkeypatch):
    squares = "transform(sequence(1, 100000 + CAST(`sex` IS NULL AS INT)), x -> x * x % 7)"
    slow = f"CAST(array_max({squares}) % 2 AS BIGINT)"  # some minutes for all rows
    monkeypatch.setattr("dpsql.engines.spark.coding.code_of", lambda *_, **__: slow)
    _, (session, script) = both
    with ctrl_c_while_counting(spark, monkeypatch), pytest.raises(KeyboardInterrupt):
        session.query(script["by_sex"], budget=BUDGET)
    assert session.history["state"].to_list() == ["charged"]
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
