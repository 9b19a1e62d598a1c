"""The example of several private tables: what it releases is about what there is."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import dpsql
from examples import shop

BOUNDS = {"customers": 1, "orders": 60, "items": 200}
"""With which no row is left out."""


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as con:
        shop.load(con)
        yield con


def test_it_runs(capsys):
    shop.main()
    printed = capsys.readouterr().out
    assert "of which at most 1 of customers" in printed
    for name in shop.SCRIPT:
        assert f"\n{name} shape" in printed


def test_answers_are_those_of_the_tables(con):
    unit = dpsql.Unit("customers", max_rows=BOUNDS)
    session = dpsql.Session(con, unit=unit, public=["products"])
    release = session.release(shop.SCRIPT, budget=dpsql.Budget(rho=10**13))
    for name, sql in shop.SCRIPT.items():
        true = con.sql(sql).pl()
        values = [column for column in ("n", "paid") if column in true.columns]
        keys = [column for column in true.columns if column not in values]
        text = [pl.col(key).cast(pl.String) for key in keys]
        found = release[name].with_columns(text)
        both = true.with_columns(text).join(found, on=keys, suffix="_found")
        assert both.height == true.height
        for value in values:
            exact = both[value].cast(pl.Float64).to_list()
            assert both[f"{value}_found"].to_list() == pytest.approx(exact, rel=1e-4)
