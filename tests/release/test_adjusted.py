"""Adjusted columns: beside the unbiased ones, consistent, and marked as biased."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.measurement import measure as measuring
from tests.helpers.seeded import SeededBits

BUDGET = dpsql.Budget(rho=0.002)
SCRIPT = {
    "cells": "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age",
    "by_sex": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "running": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS up_to FROM people GROUP BY age",
    "by_area": "SELECT area, COUNT(*) AS n FROM people GROUP BY area",
    "total": "SELECT COUNT(*) AS n FROM people",
}


@pytest.fixture
def session(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(7))
    con = duckdb.connect(tmp_path / "people.duckdb")
    con.execute("CREATE TYPE sex AS ENUM ('f', 'm')").fetchall()
    con.execute(
        "CREATE TABLE people (sex sex NOT NULL, age INT NOT NULL CHECK (age BETWEEN 0 AND 19),"
        " area INT NOT NULL CHECK (area BETWEEN 1 AND 4))"
    ).fetchall()
    con.execute(
        "INSERT INTO people SELECT CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END, (i * i) % 11,"
        " 1 + i % 3 FROM range(400) t(i)"
    ).fetchall()
    yield dpsql.Session(con)
    con.close()


def sums(frame: pl.DataFrame, column: str) -> float:
    return float(frame[column].sum())


@pytest.mark.parametrize("kind", ["nonnegative", "integers", "both"])
def test_adjusted_answers_agree_and_the_unbiased_stay(session, kind):
    wishes = {"nonnegative": kind != "integers", "integers": kind != "nonnegative"}
    plain = session.release(SCRIPT, budget=BUDGET, out=None)
    release = session.release(SCRIPT, budget=0, confidence=0.9, **wishes)
    assert sums(plain["cells"], "n") == pytest.approx(sums(release["cells"], "n"))
    assert release["cells"]["n"].min() < 0
    for name, value in (("cells", "n"), ("by_sex", "n"), ("running", "up_to"), ("total", "n")):
        frame = release[name]
        at = frame.columns.index(f"{value}_adjusted")
        assert frame.columns[at - 1] == f"{value}_upper"
        adjusted = frame[f"{value}_adjusted"]
        if kind != "integers":
            assert adjusted.min() >= 0
        if kind != "nonnegative":
            assert (adjusted == adjusted.round()).all()
    total = release["total"]["n_adjusted"][0]
    for name in ("cells", "by_sex", "by_area"):
        assert sums(release[name], "n_adjusted") == pytest.approx(total)
    cells = release["cells"].group_by("sex", maintain_order=True).agg(pl.col("n_adjusted").sum())
    assert cells["n_adjusted"].to_list() == pytest.approx(release["by_sex"]["n_adjusted"].to_list())
    ages = release["cells"].group_by("age").agg(pl.col("n_adjusted").sum()).sort("age")
    assert ages["n_adjusted"].cum_sum().to_list() == pytest.approx(
        release["running"]["up_to_adjusted"].to_list()
    )


def test_what_is_biased_is_marked_so(session):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    rows = release.columns("by_sex").filter(pl.col("role") == "adjusted")
    assert rows["column"].to_list() == ["n_adjusted"]
    assert "biased" in rows["reason"][0]
    unbiased = "none that makes answers biased"
    assert unbiased not in release.summary()
    assert unbiased in session.release(SCRIPT, budget=0).summary()


def test_computed_statements_have_adjusted_values_by_key(session):
    script = {
        "large": "SELECT age, COUNT(*) AS n FROM people GROUP BY age HAVING COUNT(*) > 20",
        "share": "SELECT AVG(age) AS mean FROM people",
        "no_keys": "SELECT COUNT(*) AS n FROM people GROUP BY age ORDER BY n DESC LIMIT 3",
    }
    release = session.release(script, budget=dpsql.Budget(rho=10), nonnegative=True)
    large = release["large"]
    assert large.height > 5
    assert (large["n_adjusted"] - large["n"]).abs().max() < 3
    assert release["share"]["mean_adjusted"][0] == pytest.approx(release["share"]["mean"][0], 0.1)
    assert release["no_keys"].columns == ["n", "n_variance"]
    assert release.columns("no_keys")["role"].to_list() == ["value"]


def test_batches_have_the_same_columns(session):
    release = session.release(SCRIPT, budget=BUDGET, integers=True, nonnegative=True)
    pieces = pl.concat(release.batches("cells", rows=7))
    assert pieces.columns == release["cells"].columns
    assert pieces["n_adjusted"].to_list() == release["cells"]["n_adjusted"].to_list()


def test_what_cannot_be_adjusted_is_refused_before_the_charge(tmp_path):
    con = duckdb.connect()
    columns = ", ".join(f"c{i} INT NOT NULL CHECK (c{i} BETWEEN 0 AND 199)" for i in range(4))
    con.execute(f"CREATE TABLE t ({columns})").fetchall()
    session = dpsql.Session(con)
    script = {
        f"q{i}": f"SELECT c{i}, c{i + 1}, COUNT(*) AS n FROM t GROUP BY ALL" for i in range(3)
    }
    with pytest.raises(dpsql.ResourceLimitError, match="joint cells") as error:
        session.release(script, budget=BUDGET, integers=True)
    assert "nonnegative= alone" in error.value.hint
    clash = "SELECT c0, COUNT(*) AS n, COUNT(*) + 1 AS n_adjusted FROM t GROUP BY c0"
    with pytest.raises(dpsql.SqlError, match="adjusted"):
        session.release(clash, budget=BUDGET, integers=True)
    assert session.ledger.spent == 0
    con.close()
