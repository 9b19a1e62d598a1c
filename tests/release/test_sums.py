"""Sums, averages and variances of bounded numbers, which are added up around their middle."""

from __future__ import annotations

from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.session import answer

ROWS = """
    SELECT i % 4 AS k, (20 + i * 37 % 10001 / 100.0)::DECIMAL(10, 2) AS x,
        CASE WHEN i % 7 > 0 THEN (i * 53 % 5001 / 100.0)::DECIMAL(10, 2) END AS y,
        CASE WHEN i % 11 > 0 THEN i * 29 % 3001 / 1000.0 - 1 END AS z,
        500000 + i * 7919 % 500000 AS i
    FROM range(3000) AS r(i)
"""
BOUNDS = {"x": (0, 120), "y": (0, 50), "z": (-1, 2), "i": (500_000, 1_000_000)}
EXPRESSIONS = ("x", "y", "z", "i", "-x", "x + i", "x * 2 - y", "x * z", "x * x")
FUNCTIONS = ("SUM", "AVG", "VAR_POP", "STDDEV_SAMP")


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3), x DECIMAL(10, 2) NOT NULL, "
        "y DECIMAL(10, 2), z DOUBLE, i INTEGER NOT NULL)"
    )
    con.execute(f"INSERT INTO t {ROWS}")
    return con


def session(con, rho, bounds=BOUNDS):
    numbers = {name: dpsql.Domain.number(*ends) for name, ends in bounds.items()}
    return dpsql.Session(con, schema={"t": numbers}, budget=dpsql.Budget(rho=rho))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("where", "group"),
    [("", False), ("WHERE k > 0", True), ("WHERE x > 50", True), ("WHERE y IS NOT NULL", False)],
)
def test_they_are_those_of_the_rows_at_a_huge_budget(con, where, group):
    items = [f"{function}({e})" for function in FUNCTIONS for e in EXPRESSIONS]
    items += ["COUNT(*)", "SUM(x) FILTER (WHERE k = 1 OR y > 3)", "SUM(x) / COUNT(y)"]
    named = ", ".join(f"{item} AS c{place}" for place, item in enumerate(items))
    sql = f"SELECT {'k, ' if group else ''}{named} FROM t {where} {'GROUP BY k' if group else ''}"
    answers = session(con, 1e13).query(sql, budget=dpsql.Budget(rho=1e13))
    exact = pl.from_arrow(con.sql(sql).to_arrow_table())
    if group:
        answers = exact.select("k").join(answers, on="k", how="left", maintain_order="left")
    for place, item in enumerate(items):
        ours, theirs = (frame[f"c{place}"].cast(pl.Float64) for frame in (answers, exact))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=item)


def errors(con, sql):
    plan = session(con, 1).plan(sql, budget=dpsql.Budget(rho=1))
    return dict(plan.expected_error().select("statement", "rmse").iter_rows())


def test_sums_and_averages_of_one_expression_share_what_is_measured(con):
    alone = errors(con, "SELECT k, AVG(x) AS a, COUNT(*) AS n FROM t GROUP BY k")
    both = errors(con, "SELECT k, AVG(x) AS a, SUM(x) AS s, COUNT(*) AS n FROM t GROUP BY k")
    assert both["query"] < 1.1 * alone["query"]
    assert both["query: AVG(x) x COUNT"] < 1.1 * alone["query: AVG(x) x COUNT"]


def test_sums_averages_and_counts_of_a_column_with_nulls_share_what_is_measured(con):
    """It is measured once, and the count of its values is that which puts the middle back.

    By Σ M√E: the weights are 1/50² for the sum, 1/25² for that around the middle, and of two equal
    counts 1 for that which is shown and 1/3 for that of the average; so sums have √(1/4 + 1) parts
    and counts √(1/4 + 1 + 1/3).
    """
    sql = "SELECT k, SUM(y) AS s, AVG(y) AS a, COUNT(y) AS n FROM t GROUP BY k"
    plan = session(con, 1).plan(sql, budget=dpsql.Budget(rho=0.5))
    assert len(plan.parts) == 2
    roots = np.sqrt([1 / 4 + 1, 1 / 4 + 1 + 1 / 3])
    counts = (1 / roots[1]) * roots.sum()
    found = dict(plan.expected_error().select("statement", "rmse").iter_rows())
    assert found["query"] ** 2 == pytest.approx(counts, rel=1e-3)
    sums = 25**2 * roots.sum() / roots[0]
    assert found["query: AVG(y) x COUNT"] ** 2 == pytest.approx(sums, rel=1e-3)
    assert found["query: SUM(y)"] ** 2 == pytest.approx(sums + 25**2 * counts, rel=1e-3)


def test_a_sum_of_a_column_with_nulls_is_as_good_alone_and_better_beside_counts(con):
    alone = errors(con, "SELECT k, SUM(y) AS s FROM t GROUP BY k")["query: SUM(y)"]
    assert alone == pytest.approx(50 / np.sqrt(2), rel=1e-3)
    beside = errors(con, "SELECT k, SUM(y) AS s, COUNT(*) AS n FROM t GROUP BY k")
    assert beside["query: SUM(y)"] < 0.85 * 50
    assert beside["query"] < 0.95


@pytest.mark.parametrize(
    "item",
    [
        "SUM(y) FILTER (WHERE x > 50)",
        "SUM(y) FILTER (WHERE k > 1 AND z > 0)",
        "SUM(SUM(y)) OVER (ORDER BY k)",
        "AVG(SUM(y)) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "SUM(y) FILTER (WHERE NOT y IS NULL) / COUNT(y)",
        "SUM(CASE WHEN x > 50 THEN y END)",
        "SUM(CASE WHEN x > 50 THEN y ELSE 3 END)",
    ],
)
def test_the_middle_is_put_back_for_rows_with_a_value(con, item):
    sql = f"SELECT k, {item} AS s, COUNT(*) AS n FROM t WHERE i > 600000 GROUP BY ROLLUP(k)"
    if "OVER" in item:
        sql = sql.replace("ROLLUP(k)", "k")
    answers = session(con, 1e13).query(sql, budget=dpsql.Budget(rho=1e13)).sort("k")
    exact = pl.from_arrow(con.sql(sql).to_arrow_table()).sort("k")
    np.testing.assert_allclose(
        answers["s"].fill_null(0), exact["s"].cast(pl.Float64).fill_null(0), rtol=1e-6, atol=1e-6
    )


def test_a_product_of_numbers_that_are_there_counts_in_all_rows(con):
    """So its average shares the counts with COUNT(*)."""
    counts = errors(con, "SELECT k, AVG(x * x) AS a FROM t GROUP BY k")["query"]
    with_rows = errors(con, "SELECT k, AVG(x * x) AS a, COUNT(*) AS n FROM t GROUP BY k")["query"]
    assert with_rows == pytest.approx(counts, rel=0.2)
    nullable = errors(con, "SELECT k, AVG(y * y) AS a, COUNT(*) AS n FROM t GROUP BY k")["query"]
    assert nullable > 1.05 * with_rows


@pytest.mark.parametrize(
    ("items", "errors"),
    [
        ("SUM(x) AS s", [120]),  # as it is added up from zero
        ("SUM(y) AS s", [50]),
        ("SUM(z) AS s", [2]),
        # With shares as the cube roots of 1/4, of the sum, and of 1 + 1/4, of counts.
        ("COUNT(*) AS n, SUM(x) AS s", [1.585, 188.4]),
        ("AVG(x) AS a, SUM(x) AS s", None),
    ],
)
def test_sums_with_laplace_noise_are_never_worse_than_added_up_from_zero(con, items, errors):
    budget = dpsql.Budget(epsilon=1, delta=0)
    sql = f"SELECT k, {items} FROM t GROUP BY k"
    plan = session(con, 1).plan(sql, budget=budget, mechanism="laplace")
    found = plan.expected_error()["rmse"].to_numpy() / np.sqrt(2)
    if errors is not None:
        np.testing.assert_allclose(found, errors, rtol=1e-2)
    huge = dpsql.Budget(epsilon=1000, delta=0)
    answers = session(con, 10**12).query(sql, budget=huge, mechanism="laplace")
    exact = pl.from_arrow(con.sql(sql + " ORDER BY k").to_arrow_table())
    assert answers["s"].to_list() == pytest.approx(exact["s"].cast(pl.Float64).to_list(), rel=1e-2)


@pytest.mark.parametrize("items", ["SUM(x) AS s", "COUNT(*) AS n, SUM(y) AS s"])
def test_sums_with_laplace_noise_answer_free_questions_of_them(con, tmp_path, items):
    """Whether or not they were added up from zero: around their middle they would need a count."""
    asked, budget = session(con, 1000), dpsql.Budget(epsilon=1, delta=0)
    sql = f"SELECT k, {items} FROM t GROUP BY k"
    paid = asked.release({"sums": sql}, budget=budget, mechanism="laplace")
    paid.save(tmp_path / "kept")
    total = sql.replace("k, ", "").replace(" GROUP BY k", "")
    for text, expected in (
        (sql, paid["sums"]),
        (total, paid["sums"].drop("k").sum()),
        (total + " WHERE k < 2", paid["sums"].filter(pl.col("k") < 2).drop("k").sum()),
    ):
        for frame in (
            asked.query(text, budget=0),
            paid.query(text),
            dpsql.Release.load(tmp_path / "kept").query(text),
        ):
            np.testing.assert_allclose(frame.to_numpy(), expected.to_numpy(), rtol=1e-9)
    for free in (lambda sql: asked.query(sql, budget=0), paid.query):
        with pytest.raises(dpsql.UndeterminedError, match="too little was measured"):
            free("SELECT SUM(z) AS s FROM t")


def test_values_beyond_the_bounds_count_as_the_nearer_one(con):
    """Also where rows that add nothing add zero, which isn't between the bounds."""
    sql = (
        "SELECT SUM(x) AS a, SUM(x) FILTER (WHERE y > 3) AS b, SUM(y) AS c, AVG(x) AS d, "
        "SUM(-x) FILTER (WHERE y > 3) AS e, VAR_POP(y) AS f FROM t"
    )
    bounds = {"x": (60, 80), "y": (10, 20)}
    answers = session(con, 1e13, bounds).query(sql, budget=dpsql.Budget(rho=1e13))
    for name, (low, high) in bounds.items():
        inside = f"least(greatest({name}, {low}), {high})"
        within = f"(CASE WHEN {name} IS NOT NULL THEN {inside} END)"
        for function in ("SUM", "AVG", "VAR_POP"):
            sql = sql.replace(f"{function}({name})", f"{function}({within})")
        sql = sql.replace(f"SUM(-{name})", f"SUM(-{within})")
    (exact,) = con.sql(sql).fetchall()
    np.testing.assert_allclose(
        answers.select("a", "b", "c", "d", "e", "f").row(0), np.array(exact, dtype=float), rtol=1e-6
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mechanism", ["gaussian", "hdmm", "fourier", "querysmasher"])
@pytest.mark.parametrize("more", ["", ", COUNT(*) AS n, AVG(x) AS a"])
def test_what_one_mechanism_measured_of_sums_answers_again(mechanism, more):
    """For free, and for a call whose first answer was never handed out: x has NULLs, too."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (g INTEGER CHECK (g BETWEEN 0 AND 2), x DOUBLE)")
    con.execute("INSERT INTO t SELECT i % 3, nullif(i, 7) FROM range(100) AS r(i)")
    schema = dpsql.Schema({"t": {"x": dpsql.Domain.number(0, 100)}})
    sql = f"SELECT g, SUM(x) AS s{more} FROM t GROUP BY g ORDER BY g"
    asked = {"budget": dpsql.Budget(rho=10), "mechanism": mechanism}
    session = dpsql.Session(con, schema=schema)
    killed = patch.object(answer, "_handed_out", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        session.query(sql, **asked)
    spent = session.ledger.spent
    first = session.query(sql, **asked)
    assert session.ledger.spent == spent
    free = session.query(sql, budget=0)
    assert_frame_equal(free, first)
