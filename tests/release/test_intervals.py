"""Intervals hold the truth as often as they say, in small groups too.

`tests.benchmarks.coverage` has the whole table; here is a little of it, with fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.answers.noise import Quotient
from dpsql.sql.computing.fractions import fraction_of
from dpsql.sql.text.parse import parse_statement
from tests.benchmarks import coverage


@pytest.fixture(scope="module")
def con():
    return coverage.groups()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize(
    "name", ["DISC(age, .5)", "CONT(age, .1)", "DISC(hours, .25)", "DISC(hours, .9)"]
)
def test_quantiles_of_small_groups_are_held(con, name, epsilon):
    found = coverage.measured(con, coverage.STATEMENTS[name], epsilon, 30)
    # 90 intervals for each size; 0.88 is three standard errors below 0.95.
    assert min(entry.coverage for entry in found) >= 0.88
    assert sum(entry.coverage for entry in found) / 4 >= 0.95


def test_quantiles_of_large_groups_are_known_well(con):
    found = coverage.measured(con, coverage.STATEMENTS["DISC(age, .5)"], 1.0, 10)
    assert found[-1].width <= 3


def test_quantiles_without_noise_are_their_own_interval(con):
    sql = "SELECT g, MEDIAN(age) AS v, QUANTILE_DISC(hours, 0.25) AS w FROM t GROUP BY g"
    frame = dpsql.query(con, sql, budget=dpsql.Budget(rho=1e9)).sort("g")
    _, medians, quarters = zip(*sorted(con.execute(sql).fetchall()), strict=True)
    assert frame["v"].to_list() == pytest.approx(medians, abs=0.01)
    assert frame["w"].to_list() == list(quarters)
    assert (frame["w_lower"] == frame["w"]).all()
    assert (frame["w_upper"] == frame["w"]).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("value", ["MIN(age)", "MAX(hours)", "MIN(hours)", "MAX(age)"])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_least_and_the_largest_value_are_held(con, value, epsilon):
    """Of 4 times 30 intervals of 95 %, with half of the probability on each side, 90 % hold it."""
    sql = f"SELECT g, {value} AS v FROM t GROUP BY g"
    exact = dict(con.execute(sql).fetchall())
    held = []
    for _ in range(10):
        frame = dpsql.query(con, sql, budget=dpsql.Budget(epsilon=epsilon, delta=1e-9))
        rows = frame.select("g", "v_lower", "v", "v_upper").rows()
        assert all(value is None or low <= value <= high for _, low, value, high in rows)
        held += [low <= exact[g] <= high for g, low, _, high in rows if g in exact]
    assert sum(held) >= 0.9 * len(held)


def test_extremes_are_read_off_from_the_rows_outwards():
    """Noise alone reaches a row soon among the many values before and after all rows."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER CHECK (x BETWEEN 0 AND 200))").fetchall()
    con.execute("INSERT INTO t SELECT 80 + i % 41 FROM range(41000) r(i)").fetchall()
    sql = "SELECT MIN(x) AS a, MAX(x) AS b, QUANTILE_DISC(x, 0) AS c FROM t"
    frames = [dpsql.query(con, sql, budget=dpsql.Budget(rho=0.01)) for _ in range(9)]
    found = pl.concat(frames)
    assert 78 <= found["a"].median() <= 82  # seldom, noise of more than 2 standard errors decides
    assert 118 <= found["b"].median() <= 122
    assert (found["a"] == found["c"]).all()
    assert (found["a_lower"] < 50).all()
    assert (found["b_upper"] > 150).all()


@pytest.mark.parametrize("value", ["QUANTILE_CONT(age, 0.9)", "QUANTILE_DISC(age, 0.9)"])
def test_a_quantile_is_inside_its_interval(con, value):
    sql = f"SELECT g, {value} AS v FROM t GROUP BY g"
    for epsilon in (0.01, 1.0, 100.0):
        budget = dpsql.Budget(epsilon=epsilon, delta=1e-9)
        frame = dpsql.query(con, sql, budget=budget)
        assert (frame["v_lower"] <= frame["v"]).all()
        assert (frame["v"] <= frame["v_upper"]).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize(
    "name", ["AVG(age)", "STDDEV(age)", "percent", "sqrt(COUNT(*))", "AVG by rich"]
)
def test_quotients_and_roots_of_small_groups_are_held(con, name, epsilon):
    found = coverage.measured(con, coverage.STATEMENTS[name], epsilon, 30)
    assert min(entry.coverage for entry in found) >= 0.88


def test_intervals_are_inside_of_what_is_possible(con):
    sql = (
        "SELECT g, AVG(age) AS mean, VAR_POP(age) AS spread, STDDEV(age) AS deviation, "
        "round(100.0 * COUNT_IF(rich) / NULLIF(COUNT(*), 0), 1) AS percent, "
        "AVG(age) FILTER (WHERE rich) - AVG(hours) AS difference FROM t GROUP BY g"
    )
    budget = dpsql.Budget(epsilon=0.05, delta=1e-9)
    frame = dpsql.query(con, sql, budget=budget, confidence=0.95)
    most = {"mean": (16, 100), "spread": (0, 42**2), "deviation": (0, 2**0.5 * 42)}
    most |= {"percent": (0, 100), "difference": (16 - 99, 100 - 1)}
    for name, (least, largest) in most.items():
        lower, upper = frame[f"{name}_lower"], frame[f"{name}_upper"]
        assert lower.min() >= least
        assert upper.max() <= largest + 1e-9
        assert (lower < upper).all()


def test_a_deviation_that_is_null_has_an_interval_and_a_note(con):
    sql = "SELECT g, STDDEV(age) AS s, STDDEV(age) / AVG(age) AS v FROM t GROUP BY g"
    budget = dpsql.Budget(epsilon=0.05, delta=1e-9)
    release = dpsql.Session(con).release(sql, budget=budget, confidence=0.95)
    frame = release["query"]
    assert frame["s_variance"].null_count() >= frame["s"].null_count() > 0
    assert frame["s_lower"].null_count() == frame["s_upper"].null_count() == 0
    notes = dict(release.columns("query").select("column", "reason").rows())
    assert "NULL if noise" in notes["s"]
    assert "approximate" in notes["v"]


@pytest.mark.parametrize("name", ["AVG(age)", "VAR_POP(age)", "share of all"])
def test_without_much_noise_intervals_are_those_of_the_delta_method(con, name):
    sql = coverage.STATEMENTS[name]
    frame = dpsql.query(con, sql, budget=dpsql.Budget(rho=1e5), confidence=0.95)
    for value, variance, lower, upper in frame.drop("g").rows():
        around = 1.959964 * variance**0.5
        assert lower == pytest.approx(value - around, abs=0.02 * around)
        assert upper == pytest.approx(value + around, abs=0.02 * around)


class TestQuotients:
    """Fieller's test, against draws of two Gaussians."""

    @pytest.mark.parametrize("bottom", [-3.0, 1e-9, 0.7, 2.0, 30.0])
    @pytest.mark.parametrize("top", [0.0, 1.0, -8.0])
    def test_the_true_quotient_is_held_as_often_as_it_says(self, top, bottom):
        draws = 20_000
        rng = np.random.default_rng(7)
        x, y = rng.multivariate_normal([top, bottom], [[2.0, 0.6], [0.6, 1.0]], draws).T
        nothing, known = np.full(draws, np.nan), [np.full(draws, v) for v in (2.0, 1.0, 0.6)]
        interval = Quotient(x, y, *known, nothing, nothing).interval(1.959964)
        held = np.mean((interval.lower <= top / bottom) & (top / bottom <= interval.upper))
        error = 3 * (0.0475 / draws) ** 0.5
        assert held >= 0.95 - error
        if bottom == 30.0:  # else some intervals reach over what a test excludes
            assert held <= 0.95 + error

    def one(self, *numbers: float) -> tuple[float, float]:
        found = Quotient(*(np.array([number]) for number in numbers)).interval(2.0)
        return float(found.lower[0]), float(found.upper[0])

    def test_a_divisor_that_may_be_zero_says_little(self):
        nothing = float("nan")
        assert self.one(1.0, 1.0, 1.0, 1.0, 0.0, nothing, nothing) == (-np.inf, np.inf)
        assert self.one(1.0, 1.0, 1.0, 1.0, 0.0, -5.0, 7.0) == (-5.0, 7.0)

    def test_what_is_possible_can_tell_the_side(self):
        # x/y <= −1 or x/y >= 1, about: y may be on either side of 0.
        lower, upper = self.one(10.0, 0.5, 1.0, 1.0, 0.0, 0.0, 100.0)
        assert 3 < lower < 5
        assert upper == 100.0
        lower, upper = self.one(10.0, 0.5, 1.0, 1.0, 0.0, -100.0, 0.0)
        assert lower == -100.0
        assert -8 < upper < -3

    def test_an_impossible_interval_becomes_none_of_length_zero(self):
        lower, upper = self.one(-10.0, 10.0, 0.01, 0.01, 0.0, 0.0, 1.0)
        assert lower == 0.0
        assert 0 < upper < 0.1

    def test_nothing_is_known_of_what_is_null(self):
        assert all(map(np.isnan, self.one(float("nan"), 1.0, 1.0, 1.0, 0.0, 0.0, 1.0)))


APPLIED: dict[str, Callable[[float, float], float]] = {
    "plus": lambda x, number: x + number,
    "times": lambda x, number: x * number,
    "sqrt": lambda x, _: x**0.5,
    "ln": lambda x, _: float(np.log(x)),
    "exp": lambda x, _: float(np.exp(x)),
    "round": lambda x, digits: round(x, int(digits)),
    "greatest": max,
    "least": min,
}


@pytest.mark.parametrize(
    "item",
    [
        "(__c0 + __s0 / __s1)",
        "100.0 * __s0 / __s1",
        "round(100 * (__s0 / NULLIF(__s1, 0)) - 3, 2)",
        "((__s2 - __s0 * __s0 / __s1) / (__s1 - 1))",
        "CASE WHEN (__s2 - __s0 * __s0 / __s1) / __s1 >= 0 "
        "THEN sqrt((__s2 - __s0 * __s0 / __s1) / __s1) END",
        "__s0 / __s1 - __s2 / __s3",
        "__s0 / __s1 + __s2 / __s1",
        "__s0 / (__s1 / __s2)",
        "__s2 / __k0 / __s1",
        "1 / __s1",
        "ln(__s2) / 2",
        "exp(-__s0 / __s2)",
        "greatest(least(__s0 / __s1, 0.4), 0.1)",
        "CAST(__s2 / __s1 AS DOUBLE)",
        "2 - __s0 / __s1",
    ],
)
def test_a_fraction_is_what_it_was(item):
    fraction = fraction_of(parse_statement(f"SELECT {item} AS v FROM t").query.expressions[0], {})
    assert fraction is not None
    top, bottom, _, _ = (part.sql("duckdb") for part in fraction.columns())
    rows = "(VALUES (3.5, 7.0, 90.0, 11.0, 0.5, 2), (1.2, 6.0, 50.0, 9.0, 4.0, 5)) "
    rows += "AS t(__s0, __s1, __s2, __s3, __c0, __k0)"
    columns = ", ".join(f"{name}::DOUBLE AS {name}" for name in ("__s0", "__s1", "__s2", "__s3"))
    query = (
        f"SELECT ({item})::DOUBLE, {top}, {bottom} FROM (SELECT {columns}, __c0, __k0 FROM {rows})"
    )
    for value, x, y in duckdb.connect().execute(query).fetchall():
        found = x / y
        for step in fraction.steps:
            found = APPLIED[step.name](found, step.number)
        assert found == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("item", ["__s0 + 2 * __s1", "__s0 * __s1", "__k0 / 2", "__s0 / 4"])
def test_what_divides_by_nothing_noisy_is_no_fraction(item):
    query = parse_statement(f"SELECT {item} AS v FROM t").query
    assert fraction_of(query.expressions[0], {}) is None


@pytest.mark.long
@pytest.mark.parametrize("name", coverage.STATEMENTS)
def test_the_table_of_coverage(con, name):
    for epsilon in coverage.EPSILONS:
        found = coverage.measured(con, coverage.STATEMENTS[name], epsilon, 100)
        # 300 intervals, some of them of the same noise.
        assert min(entry.coverage for entry in found) >= 0.91
