"""Releases that find values of expressions of a row: what is found, charged, refused and kept."""

from __future__ import annotations

import duckdb
import pytest

import dpsql

LARGE = dpsql.Budget(rho=10**9)
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
KEYS = dpsql.Keys(delta="1e-9")


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT i AS id, i % 400 AS person, 'Town ' || (i % 4) AS city,
            lpad((i % 1500)::VARCHAR, 4, '0') AS zip, ['x', 'y'][i % 2 + 1] AS kind,
            DATE '2015-01-01' + (i % 1500)::INTEGER AS day, (i % 1500)::INTEGER AS n, i / 3 AS x,
            TIMESTAMP '2015-01-01 10:00:00' + to_days((i % 1500)::INTEGER) AS moment
        FROM range(3000) r (i)
    """)
    return con


ASKED = [
    "upper(city)",
    "substr(zip, 1, 2)",
    "year(day)",
    "date_trunc('month', day)",
    "date_trunc('quarter', moment)",
    "strftime(day, '%Y-%m')",
    "CAST(n // 100 AS VARCHAR)",
    "n // 100",
    "floor(x / 100)",
    "round(x, -2)",
    "city || kind",
    "coalesce(city, 'none')",
    "CASE WHEN n > 700 THEN city ELSE 'few' END",
    "year(day) * 100 + month(day)",
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("key", ASKED)
def test_values_of_expressions_are_found_and_groups_are_counted(con, key, unit):
    sql = f"SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY 1"
    session = dpsql.Session(con) if unit is None else dpsql.Session(con, unit=unit, max_rows=8)
    with pytest.raises(dpsql.SchemaError, match="no public domain") as refused:
        session.query(sql, budget=BUDGET)
    assert "keys=dpsql.Keys()" in str(refused.value.hint)
    release = session.release({"a": sql}, budget=LARGE, keys=KEYS)
    frame = release["a"].select("k", "n").rows()
    assert {k: round(n) for k, n in frame if round(n)} == dict(con.execute(sql).fetchall())
    (found,) = release.facts.found
    assert len(found.computed.keys) == len({k for k, _ in frame} - {"(other)", None})
    assert session.history["state"].to_list() == ["delivered"] * 2


def test_what_is_computed_is_found_where_no_value_of_its_column_would_be(con):
    session = dpsql.Session(con)
    sql = "SELECT substr(zip, 1, 1) AS k, COUNT(*) AS n FROM t GROUP BY 1"
    release = session.release({"a": sql}, budget=BUDGET, keys=dpsql.Keys())
    assert set(release["a"]["k"]) == {"0", "1", "(other)", None}
    assert release.found_keys("t", "substring(zip, 1, 1)").keys == ("0", "1")
    assert session.find_keys("t", "zip", budget=LARGE, keys=dpsql.Keys(0.001, delta="1e-9"))


def test_they_are_kept_and_asked_for_by_other_ways_of_writing(con, tmp_path):
    con.execute(f"ATTACH '{tmp_path / 'f.db'}' AS f; CREATE TABLE f.t AS FROM t; USE f")
    session = dpsql.Session(con)
    sql = "SELECT upper(city) AS k, COUNT(*) AS n FROM t GROUP BY 1"
    release = session.release({"a": sql}, budget=BUDGET, keys=dpsql.Keys())
    assert session.release({"a": sql}, budget=0)["a"].equals(release["a"])
    again = session.find_keys("t", "UPPER( t.city )", budget=0)
    assert again.keys == release.found_keys("t", "upper(city)").keys
    assert session.history.height == 2
    release.save(tmp_path / "saved")
    saved = dpsql.Release.load(tmp_path / "saved", ledger=session.ledger)
    assert saved["a"].equals(release["a"])
    assert saved.found_keys("t", "upper(city)").keys == again.keys
    other = dpsql.Session(con)
    known = other.release({"a": sql}, budget=dpsql.Budget(rho=0.001), keys=dpsql.Keys())
    assert known.found_keys("t", "upper(city)").keys == again.keys
    assert session.history.height == 3


def test_counts_take_scores_along(con):
    session = dpsql.Session(con)
    sql = "SELECT upper(city) AS k, COUNT(*) AS n FROM t GROUP BY 1"
    plan = session.plan(sql, budget=BUDGET, keys=dpsql.Keys())
    assert "noisy numbers" in plan.notes[-1]
    frame = session.query(sql, budget=BUDGET, keys=dpsql.Keys())
    (of_keys,) = set(frame.filter(frame["k"].str.starts_with("TOWN"))["n_variance"].round(3))
    (other,) = frame.filter(frame["k"] == "(other)")["n_variance"]
    assert of_keys < 0.51 * other


def test_what_is_assumed_has_the_name_that_the_plan_says(con):
    sql = "SELECT substr(zip, 1, 2) AS k, COUNT(*) AS n FROM t GROUP BY 1"
    session = dpsql.Session(con)
    few, many = (
        session.plan(sql, budget=BUDGET, keys=dpsql.Keys(), assume={"t.substring(zip, 1, 2)": n})
        for n in (3, 30)
    )
    assert 'assume={"t.substring(zip, 1, 2)": 2500}' in few.notes[0]
    assert [s["rows"].sum() for s in (few.expected_error(), many.expected_error())] == [5, 32]


def test_where_a_column_is_found_too_its_expressions_follow_from_it(con):
    asked = [
        f"SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY 1" for key in ("upper(city)", "city")
    ]
    for statements in (asked, asked[::-1]):
        fresh = duckdb.connect()
        fresh.register("rows", con.sql("SELECT city FROM t").pl())
        fresh.execute("CREATE TABLE t AS FROM rows")
        session = dpsql.Session(fresh)
        release = session.release(statements, budget=LARGE, keys=KEYS)
        assert [found.label for found in release.facts.found] == ["city"]
        counts = [sorted(frame["n"].round()) for frame in release.values()]
        assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "key", ["CAST(n * 100 AS SMALLINT)", "CAST(zip AS TINYINT)", "CAST(city AS DATE)"]
)
def test_what_fails_for_some_rows_is_null_and_fails_nothing(con, key):
    sql = f"SELECT {key} AS k, COUNT(*) AS n FROM t GROUP BY 1"
    session = dpsql.Session(con)
    true = dict(con.execute(sql.replace(key, f"TRY({key})")).fetchall())
    if set(true) == {None}:
        with pytest.raises(dpsql.SchemaError, match="was found"):
            session.query(sql, budget=LARGE, keys=KEYS)
        return
    frame = session.query(sql, budget=LARGE, keys=KEYS)
    found = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n)}
    assert found == {k: n for k, n in true.items() if n}


def test_the_column_of_units_tells_nothing_by_what_is_computed_of_it(con):
    con.execute("ALTER TABLE t ALTER person TYPE VARCHAR")
    session = dpsql.Session(con, unit="person", max_rows=8)
    with pytest.raises(dpsql.SchemaError, match="person"):
        session.query(
            "SELECT upper(person) AS k, COUNT(*) AS n FROM t GROUP BY 1", budget=BUDGET, keys=KEYS
        )
    assert session.history.is_empty()


@pytest.mark.parametrize(
    "text", ["upper(nothing)", "n > 3", "n +", "COUNT(*)", "hour(moment)", "(SELECT 1)", "1 + 1",
             "1 AS k, COUNT(*) AS z FROM t GROUP BY 1; --", "x / 3", "(city", "city) AS k, (city"],
)  # fmt: skip
def test_what_is_no_expression_with_unknown_values_is_refused_for_nothing(con, text):
    session = dpsql.Session(con)
    with pytest.raises(dpsql.DpsqlError):
        session.find_keys("t", text, budget=BUDGET)
    assert session.history.is_empty()


@pytest.mark.parametrize("part", range(3))
def test_columns_called_like_expressions_are_columns(part):
    """Whatever a column is called, it isn't taken for an expression that was found before."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 'a' || (i % 3) AS city FROM range(900) r (i)")
    sql = "SELECT upper(city) AS k, COUNT(*) AS n FROM t GROUP BY 1"
    found = dpsql.Session(con).release({"a": sql}, budget=LARGE, keys=KEYS).facts.found[0]
    called = ["upper(city)", found.column.partition(" found in ")[0], found.column][part]
    name = '"' + called.replace('"', '""') + '"'
    con.execute(f"CREATE OR REPLACE TABLE t AS SELECT city, 'b' AS {name} FROM t")
    session = dpsql.Session(con, accept_schema=True)
    assert session.find_keys("t", called, budget=LARGE, keys=KEYS).keys == ("b",)
    if part == 0:
        assert session.query(sql, budget=LARGE, keys=KEYS).height == 5
