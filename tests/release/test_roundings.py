"""Values that are rounded after the noise: how far they are from the table's own rounded values."""

import warnings

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answers.noise import rounded
from dpsql.errors import SqlError
from dpsql.measurement import measure as measuring
from tests.helpers.seeded import SeededBits

ITEMS = {
    "tenths": "ROUND(AVG(v), 1)",
    "scaled": "-100 * ROUND(AVG(v) / 100, 3) + 7",
    "tens": "COUNT(*) // 10 * 10",
    "above": "ceil(COUNT(*) / 7)",
    "decimal": "AVG(v)::DECIMAL(9, 1)",
    "whole": "CAST(SUM(v) / 6 AS BIGINT)",
    "twice": "CAST(ROUND(AVG(v)) AS INTEGER)",
    "finer": "ROUND(CAST(COUNT(*) / 20 AS INTEGER) / 4, 2)",
    "root": "ROUND(sqrt(COUNT(*)), 1)",
}


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 799), "
        "v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 20))"
    )
    con.execute(
        "INSERT INTO t SELECT i % 800, (i * 7919) % (5 + i % 16) "
        "FROM range(160000) r(i) WHERE i % 800 > i // 200"
    )
    return con


@pytest.mark.statistical
def test_mean_squares_are_the_variances_that_are_stated(con, monkeypatch):
    """Over some 700 groups: within 5 standard errors, which the noise of seed 3 doesn't leave.

    Without what rounding adds or takes, tens and tenths would be off by more than half.
    """
    bits = SeededBits(3)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    items = ", ".join(f"{item} AS {name}" for name, item in ITEMS.items())
    sql = f"SELECT g, {items} FROM t GROUP BY g HAVING COUNT(*) > 20"
    frame = dpsql.query(con, sql, budget=dpsql.Budget(rho=1))
    true = {row[0]: row[1:] for row in con.execute(sql.replace("> 20", "> 0")).fetchall()}
    assert frame.height > 500
    for i, name in enumerate(ITEMS):
        squares = np.array(
            [(float(v) - float(true[g][i])) ** 2 for g, v in frame.select("g", name).iter_rows()]
        )
        stated = frame[f"{name}_variance"].to_numpy()
        assert stated.min() >= 0
        error = squares.std() / len(squares) ** 0.5
        assert abs(squares.mean() - stated.mean()) < 5 * error, name


@pytest.mark.parametrize("deviation", [1e-3, 0.2, 0.99, 1.01, 4])
def test_what_noise_does_to_a_rounded_value(deviation):
    """By a million draws for each value; the largest mean square has a standard error of 0.2 %."""
    rng = np.random.default_rng(11)
    values = np.array([-2.5001, -0.2, 0.0, 0.4999, 7.3, 1e6 + 0.5])
    moved = np.round(values) - np.round(values - rng.normal(0, deviation, (1_000_000, 1)))
    stated = rounded(values, np.full(len(values), deviation**2))
    assert stated == pytest.approx((moved**2).mean(axis=0), rel=0.02, abs=2e-4)


def test_on_average_a_little_noise_moves_few_values_by_a_step():
    values = np.linspace(-0.5, 0.5, 100_001)
    for deviation in (0.01, 0.1):
        stated = rounded(values, np.full(len(values), deviation**2)).mean()
        assert stated == pytest.approx((2 / np.pi) ** 0.5 * deviation, rel=1e-3)
    assert rounded(values, np.full(len(values), 9.0)).mean() == pytest.approx(9 + 1 / 6)


def test_what_is_not_known_stays_so():
    found = rounded(np.array([np.nan, 0.2, 0.2]), np.array([1.0, np.nan, 0.0]))
    assert np.isnan(found[:2]).all()
    assert found[2] == 0


def test_a_value_at_the_edge_says_that_it_may_have_been_the_other_one(con, monkeypatch):
    """The group's average is 2.5 exactly: half of all noise makes it 2.

    A tenth of all noise is so large that less is said than is asserted: not that of seed 5.
    """
    bits = SeededBits(5)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    con.execute("CREATE TABLE e (v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9))")
    con.execute("INSERT INTO e SELECT 2 + i % 2 FROM range(1000) r(i)")
    sql = "SELECT ROUND(AVG(v)) AS m, AVG(v) AS v FROM e"
    row = dpsql.query(con, sql, budget=dpsql.Budget(rho=100)).row(0, named=True)
    assert row["m"] in (2, 3)
    assert row["v_variance"] < 1e-3
    assert 0.1 < row["m_variance"] <= 0.51


def test_roots_of_rounded_values_have_an_interval_and_no_variance(con):
    """What a step of what is rounded makes of them is known by its ends alone."""
    sql = "SELECT sqrt(ROUND(COUNT(*), 1)) AS r, COUNT(*) AS n FROM t"
    row = dpsql.query(con, sql, budget=dpsql.Budget(rho=1), confidence=0.9).row(0, named=True)
    assert row["r_variance"] is None
    assert row["r_lower"] == pytest.approx(row["n_lower"] ** 0.5, abs=1e-3)
    assert row["r_upper"] == pytest.approx(row["n_upper"] ** 0.5, abs=1e-3)


@pytest.mark.parametrize("digits", [-400, -310, -200, 200, 310, 400])
def test_values_are_answered_however_coarse_they_are(con, digits):
    """Where steps are no numbers, the variance is that of what is rounded, or nothing is said."""
    sql = f"SELECT ROUND(AVG(v), {digits}) AS m FROM t"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = dpsql.Session(con)
        release = session.release(sql, budget=dpsql.Budget(rho=100), confidence=0.9)
    row = release["query"].row(0, named=True)
    assert row["m"] == 0 if digits < 0 else 5 < row["m"] < 7
    assert row["m_variance"] is None or 0 <= row["m_variance"] < 1


MARGIN = "price * (1 - discount) - cost * amount"


def test_extremes_of_what_is_computed_are_read_off_where_it_is_rounded():
    """Of four columns with bounds alone: more values than any list has, and 2,201 in hundreds."""
    con = duckdb.connect()
    con.execute("CREATE TABLE s (price DOUBLE, discount DOUBLE, cost INTEGER, amount INTEGER)")
    con.execute(
        "INSERT INTO s SELECT (i * 7919) % 100000, (i % 11) / 100, i % 900, i % 50 "
        "FROM range(20000) r(i)"
    )
    number = dpsql.Domain.number
    bounds = {"price": number(0, 100_000), "discount": number(0, "0.1")}
    bounds |= {"cost": number(0, 1000), "amount": number(0, 50)}
    session = dpsql.Session(con, schema=dpsql.Schema({"s": bounds}))
    huge = dpsql.Budget(rho=10**9)
    with pytest.raises(SqlError, match="no public domain") as error:
        session.query(f"SELECT {MARGIN} AS m, COUNT(*) AS n FROM s GROUP BY m", budget=huge)
    assert "as in round(price - cost, -2)" in error.value.hint
    drawn = session.release(f"SELECT MAX({MARGIN}) AS m FROM s", budget=huge)
    assert drawn.facts.drawn
    assert drawn["query"]["m"][0] == con.sql(f"SELECT MAX({MARGIN}) FROM s").fetchall()[0][0]
    asked = [
        f"{of} AS {name}"
        for name, of in (
            ("most", f"MAX(round({MARGIN}, -2))"),
            ("least", f"MIN(round({MARGIN}, -2))"),
            ("middle", f"QUANTILE_DISC(100 * floor(({MARGIN}) / 100), 0.5)"),
        )
    ]
    sql = f"SELECT {', '.join(asked)} FROM s"
    found = session.query(sql, budget=huge).select("most", "least", "middle").row(0)
    assert [float(v) for v in found] == [float(v) for v in con.execute(sql).fetchone()]
