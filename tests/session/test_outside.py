"""Declared domains without constraints: rows outside are in a cell that no answer shows."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.errors import UndeterminedError
from dpsql.release.measurements import decode
from dpsql.sql.frontend import compile_script
from tests.helpers.described import read_table

D = dpsql.Domain
COLUMNS = {
    "origin": D.labels(["EWR", "JFK", "LGA"]),
    "carrier": D.labels(["AA", "UA"], nullable=True, outside="drop"),
    "month": D.integers(1, 12),
    "delay": D.integers(-5, 20),
}
EXACT, BUDGET = dpsql.Budget(rho=10**12), dpsql.Budget(rho=0.01)
BOTH = "SELECT origin, carrier, COUNT(*) AS n FROM flights GROUP BY origin, carrier"
ORIGINS = "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin"
CARRIERS = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier"
MONTHS = "SELECT month, COUNT(*) AS n FROM flights GROUP BY month"
TOTAL = "SELECT COUNT(*) AS n FROM flights"
ROWS = """
    CREATE TABLE flights AS SELECT
        ['EWR', 'JFK', 'LGA', 'BOS', NULL][1 + i % 5] AS origin,
        ['AA', 'UA', NULL, 'B6'][1 + i % 4] AS carrier,
        i % 14 AS month, i % 29 - 6 AS delay, i % 2 AS gate
    FROM range(2000) AS t(i)
"""
INSIDE = {
    "origin": "origin IN ('EWR', 'JFK', 'LGA')",
    "carrier": "(carrier IN ('AA', 'UA') OR carrier IS NULL)",
    "month": "month BETWEEN 1 AND 12",
    "delay": "delay BETWEEN -5 AND 20",
}
"""What a row must meet to be counted where a SELECT names the column."""
QUERIES = {
    BOTH: ["origin", "carrier"],
    ORIGINS: ["origin"],
    TOTAL: [],
    "SELECT COUNT(*) AS n FROM flights WHERE month < 4": ["month"],
    "SELECT COUNT(*) AS n FROM flights WHERE month < 4 OR origin = 'JFK'": ["month", "origin"],
    "SELECT COUNT(*) AS n FROM flights WHERE delay > -99": ["delay"],
    "SELECT month // 4 AS q, COUNT(*) AS n FROM flights GROUP BY q ORDER BY q": ["month"],
    "SELECT origin, SUM(delay) AS s, COUNT(*) AS n, AVG(delay) AS m FROM flights WHERE month <> 7 "
    "GROUP BY origin": ["origin", "delay", "month"],
    "SELECT month, SUM(COUNT(*)) OVER (ORDER BY month) AS n FROM flights GROUP BY month": ["month"],
    "SELECT origin, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM flights GROUP BY origin": [
        "origin"
    ],
    "SELECT month, origin, COUNT(*) AS n FROM flights GROUP BY ROLLUP (month, origin) "
    "ORDER BY month NULLS LAST, origin NULLS LAST": ["month", "origin"],
    "SELECT SUM(3) AS n FROM flights": [],
}


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(tmp_path / "flights.duckdb")
    con.execute(ROWS).fetchall()
    return con


def session(con, columns=None, **options):
    return dpsql.Session(con, schema=dpsql.Schema({"flights": columns or COLUMNS}), **options)


def truth(con, sql, named):
    """Let DuckDB answer over the rows that have a value of the domain in what is named."""
    rows = " AND ".join(INSIDE[name] for name in named) or "true"
    return con.sql(sql.replace("FROM flights", f"FROM (FROM flights WHERE {rows}) AS flights")).pl()


@pytest.mark.parametrize("sql", QUERIES)
def test_a_select_counts_the_rows_with_values_in_what_it_names(con, sql):
    frame = session(con).query(sql, budget=EXACT)
    found = frame.select(c for c in frame.columns if not c.endswith("_variance"))
    expected = truth(con, sql, QUERIES[sql])
    keys = [c for c in expected.columns if c in {"origin", "carrier", "month", "q"}]
    assert found.height >= expected.height
    joined = (
        expected.join(found, on=keys, nulls_equal=True)
        if keys
        else found.hstack(expected.rename({c: f"{c}_right" for c in expected.columns}))
    )
    assert joined.height == expected.height
    for name in set(expected.columns) - set(keys):
        one, other = (joined[c].cast(pl.Float64).to_numpy() for c in (name, f"{name}_right"))
        np.testing.assert_allclose(one, other, atol=0.02)


def test_statements_over_other_columns_are_free_and_combined(con):
    flights = session(con)
    first = flights.release(BOTH, budget=BUDGET)
    assert first["query"].height == 9
    assert first.facts.guards == {"query": ("carrier", "origin")}
    for sql in (ORIGINS, CARRIERS, TOTAL):
        free = flights.query(sql, budget=0)
        assert free.equals(first.query(sql))
    alone = flights.plan(ORIGINS, budget=BUDGET, reuse=False).variances[0].max()
    both = flights.query(ORIGINS, budget=BUDGET)["n_variance"].max()
    known = first.query(ORIGINS)["n_variance"].max()
    assert both == pytest.approx(1 / (1 / alone + 1 / known), rel=0.01)
    flights.query(MONTHS, budget=BUDGET)
    twelve = flights.query(TOTAL, budget=0)["n_variance"].item()
    assert twelve < first.query(TOTAL)["n_variance"].item()


def test_an_average_tells_how_many_rows_there_are(con):
    flights = session(con)
    flights.query("SELECT origin, AVG(delay) AS m FROM flights GROUP BY origin", budget=EXACT)
    frame = flights.query(ORIGINS, budget=0)
    assert [round(n) for n in frame["n"]] == truth(con, ORIGINS, ["origin"]).sort("origin")[
        "n"
    ].to_list()


def test_the_last_cell_costs_nothing_and_is_not_shown(con):
    for sql in (BOTH, ORIGINS):
        plan = session(con).plan(sql, budget=dpsql.Budget(rho=0.5), reuse=False)
        (row,) = plan.expected_error().rows()
        assert row[1:] == pytest.approx((9 if sql == BOTH else 3, 1.0, 1.0))


def test_columns_that_the_database_constrains_have_no_such_cell(con):
    con.execute("CREATE TABLE t (m INTEGER NOT NULL CHECK (m BETWEEN 1 AND 12))").fetchall()
    table = read_table(con, ("t",))
    assert table.cells("m") == 12
    (family,) = compile_script(
        [("q", "SELECT m, COUNT(*) FROM t GROUP BY m")], lambda _: table
    ).workload.families
    assert family.shown is family
    declared = read_table(con, ("t",), dpsql.Schema({"t": {"m": D.integers(1, 12)}}))
    assert declared.cells("m") == 13


def test_a_domain_more_keeps_what_was_measured(con):
    session(con).query(BOTH, budget=BUDGET)
    more = session(con, {**COLUMNS, "gate": D.integers(0, 1)})
    assert more.query(ORIGINS, budget=0).height == 3
    gates = "SELECT gate, origin, COUNT(*) AS n FROM flights GROUP BY gate, origin"
    more.query(gates, budget=BUDGET)
    less = more.query(ORIGINS, budget=0)["n_variance"].max()
    assert (
        less
        < session(con, {**COLUMNS, "gate": D.integers(0, 1)})
        .plan(ORIGINS, budget=BUDGET, reuse=False)
        .variances[0]
        .max()
        * 3
    )
    release = more.release(ORIGINS, budget=0)
    assert len(release.facts.earlier) == 2


def test_a_changed_domain_is_named_and_sets_its_own_measurements_aside(con):
    first = session(con)
    first.query(BOTH, budget=BUDGET)
    first.query(MONTHS, budget=BUDGET)
    changed = {**COLUMNS, "month": D.integers(0, 13)}
    with pytest.raises(dpsql.StaleSchemaError, match=r"Other domains: month\."):
        session(con, changed).query(ORIGINS, budget=0)
    accepted = session(con, changed, accept_schema=True)
    assert accepted.query(ORIGINS, budget=0).height == 3
    with pytest.raises(UndeterminedError):
        accepted.query(MONTHS, budget=0)
    accepted.query(ORIGINS, budget=BUDGET)
    with pytest.raises(dpsql.StaleSchemaError, match="Other domains: month"):
        first.query(MONTHS, budget=0)
    again = session(con, accept_schema=True)
    assert again.query(MONTHS, budget=0).height == 12


def test_with_units_every_domain_decides_which_rows_count(con):
    options = {"unit": "gate", "max_rows": 3}
    session(con, **options).query(ORIGINS, budget=BUDGET)
    columns = {**COLUMNS, "month": D.integers(0, 13)}
    with pytest.raises(dpsql.StaleSchemaError, match="Other domains: month"):
        session(con, columns, **options).query(ORIGINS, budget=0)
    accepted = session(con, columns, accept_schema=True, **options)
    with pytest.raises(UndeterminedError):
        accepted.query(ORIGINS, budget=0)


def test_what_is_kept_says_how_the_table_was_described(con):
    flights = session(con)
    release = flights.release(ORIGINS, budget=BUDGET)
    (entry,) = flights.ledger.entries()
    (source,) = decode(flights.ledger.content(entry))
    assert source.described == release.facts.table.described
    assert set(source.described) == {*COLUMNS, "gate"}
    assert source.described["gate"] == ""


def test_a_release_keeps_which_rows_count(con, tmp_path):
    release = session(con).release({"both": BOTH, "all": TOTAL}, budget=BUDGET)
    release.save(tmp_path / "out")
    read = dpsql.Release.load(tmp_path / "out")
    assert read.facts.guards == {"both": ("carrier", "origin")}
    assert "both: a SELECT that names carrier, origin counts only rows" in " ".join(
        read.summary().split()
    )
    assert read.query(ORIGINS).equals(release.query(ORIGINS))
