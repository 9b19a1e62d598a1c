"""Intervals and values of what is rounded, or lies between limits, are what they must be.

The sums of group b lie on the edges of their steps, so that a rounding goes either way.
"""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.answers import frames
from dpsql.answers.noise import Quotient
from tests.helpers.redrawn import Redrawn

ROUNDED = (
    "AVG(x) - round(AVG(x), 1)",
    "round(SUM(x), -1) / COUNT(*)",
    "SUM(x) / round(SUM(y), -1)",
    "round(SUM(x), -1) / round(SUM(y), -1)",
    "round(SUM(x), -1) - 2 * floor(SUM(y) / 10) + 1",
    "CAST(SUM(x) / 10 AS INTEGER) + AVG(x)",
    "ceil(10 * round(AVG(y), 1)) - floor(SUM(x) / 10)",
    "abs(round(SUM(x) - 505, -1))",
    "CASE WHEN g = 'b' THEN round(SUM(x), -1) + COUNT(*) ELSE AVG(y) END",
    "SUM(round(SUM(x), -1)) OVER () - SUM(x)",
)
CURVED = ("sqrt(round(SUM(x), -1)) + COUNT(*)", "round(SUM(x), -1) * round(AVG(y), 1)")
CERTAIN = 1 - 1e-9


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        """
        CREATE TABLE t (g VARCHAR NOT NULL CHECK (g IN ('a', 'b')),
            x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 20),
            y INTEGER NOT NULL CHECK (y BETWEEN -5 AND 5));
        INSERT INTO t SELECT 'b', CASE WHEN i = 0 THEN 15 ELSE 10 END, 2 + i % 2
            FROM range(50) r(i);
        INSERT INTO t SELECT 'a', i % 21, i % 7 - 1 FROM range(90) r(i)
        """
    ).fetchall()
    return con


def test_steps_of_roundings_on_the_way_are_held(con):
    forms = ", ".join(f"{form} AS v{i}" for i, form in enumerate(ROUNDED + CURVED))
    sql = f"SELECT g, {forms} FROM t GROUP BY g"
    script = {"asked": sql, "again": f"WITH w AS ({sql}) SELECT g, v1 - floor(v0) AS v1 FROM w"}
    truth = {}
    for name, asked in script.items():
        found = con.execute(asked)
        columns = [column for column, *_ in found.description]
        truth[name] = {row[0]: dict(zip(columns, row, strict=True)) for row in found.fetchall()}
    plan = Redrawn.of(con, script, budget=dpsql.Budget(rho=1e6), confidence=CERTAIN)
    values: dict[str, set[float]] = {}
    for release in plan.draws(3):
        for asked, v in [("asked", f"v{i}") for i in range(len(ROUNDED))] + [("again", "v1")]:
            for row in release[asked].iter_rows(named=True):
                lower, value, upper = (row[v + end] for end in ("_lower", "", "_upper"))
                exact = truth[asked][row["g"]][v]
                assert lower - 1e-9 <= exact <= upper + 1e-9, (asked, v, row["g"])
                assert lower <= value <= upper < lower + 50, (asked, v, row["g"])
                values.setdefault(v, set()).add(round(value, 3))
        curved = [f"v{len(ROUNDED) + i}{end}" for i in (0, 1) for end in ("_lower", "_variance")]
        assert release["asked"][curved].null_count().row(0) == (2, 2, 2, 2)
    # The noise does change steps: else nothing would have been tried.
    assert all(len(values[v]) > 2 for v in ("v1", "v4", "v8"))


@pytest.mark.parametrize("seed", range(40))
def test_quotients_with_steps_hold_all_that_noise_and_steps_allow(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, [10.0, 5.0])
    v_x, v_y = 10 ** rng.uniform(-6, 1, 2)
    v_xy = rng.uniform(-1, 1) * np.sqrt(v_x * v_y)
    a, b = rng.choice([0.0, 1.0], 2) * 10 ** rng.uniform(-4, 0, 2)
    given = (np.array([float(n)]) for n in (x, y, v_x, v_y, v_xy, np.nan, np.nan, a, b))
    interval = Quotient(*given).interval(2.0)
    v = x / y + np.outer([1e-3, 0.1, 1, 10, 100], np.linspace(-1, 1, 2001)).ravel()
    noise = 2 * np.sqrt(np.maximum(v_x - 2 * v * v_xy + v * v * v_y, 0))
    held = v[np.abs(x - v * y) <= noise + a + np.abs(v) * b]
    assert interval.lower[0] <= held.min(initial=x / y) + 1e-9
    assert held.max(initial=x / y) <= interval.upper[0] + 1e-9


LIMITS = {
    "AVG(x)": (0, 200),
    "VAR_POP(x)": (0, 10_000),
    "COVAR_POP(x, y)": (-500, 500),
    "COVAR_SAMP(y, x)": (-1_000, 1_000),
    "CORR(x, y)": (-1, 1),
    "REGR_R2(y, x)": (0, 1),
    "REGR_AVGY(y, x)": (-5, 5),
    "COUNT(*) FILTER (WHERE x > 20) / COUNT(*)": (0, 1),
}


@pytest.mark.parametrize(
    ("union", "measured"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
def test_intervals_are_cut_to_what_is_possible(union, measured):
    con = duckdb.connect()
    column = "" if measured else "CHECK ({0} BETWEEN {1} AND {2})"
    made = "CREATE TABLE {} (person INTEGER NOT NULL REFERENCES person, x INTEGER NOT NULL {}, {})"
    con.execute("CREATE TABLE person (id INTEGER PRIMARY KEY); INSERT INTO person FROM range(9)")
    for name, most in (("t", 100 if union else 200), ("u", 200)):
        x, y = column.format("x", 0, most), "y INTEGER NOT NULL " + column.format("y", -5, 5)
        con.execute(made.format(name, x, y))
        con.execute(f"INSERT INTO {name} SELECT i, 7 * i, i % 3 FROM range(9) r(i)")
    bounds = {
        name: {"x": dpsql.Domain.number(0, most), "y": dpsql.Domain.number(-5, 5)}
        for name, most in (("t", 100 if union else 200), ("u", 200))
    }
    rows = "(SELECT x, y FROM t UNION ALL SELECT x, y FROM u)" if union else "t"
    listed = ", ".join(f"{form} AS v{i}" for i, form in enumerate(LIMITS))
    schema = dpsql.Schema(bounds if measured else {})
    session = dpsql.Session(con, schema=schema, unit=dpsql.Unit("person", max_rows=2))
    script = {"a": f"SELECT {listed} FROM {rows}"}
    release = session.release(script, budget=dpsql.Budget(rho=1e-6), confidence=0.95)
    row, reached = release["a"].row(0, named=True), 0
    for i, (form, (least, largest)) in enumerate(LIMITS.items()):
        lower, upper = row[f"v{i}_lower"], row[f"v{i}_upper"]
        assert least - 1e-9 <= lower <= upper <= largest + 1e-9, form
        reached += (lower, upper) == pytest.approx((least, largest))
        if row[f"v{i}"] is not None:
            assert least - 1e-9 <= row[f"v{i}"] <= largest + 1e-9, form
    assert reached >= 2, "so much noise excludes nothing, but for one in twenty times"


SHOWN = {
    "AVG(x)": (0, 20),
    "100.0 * COUNT(*) FILTER (WHERE x > 9) / COUNT(*)": (0, 100),
    "1 - COUNT(*) FILTER (WHERE x > 9) / COUNT(*)": (0, 1),
    "CAST(AVG(y) AS INTEGER)": (-5, 5),
    "CAST(AVG(x) AS DECIMAL(18, 2))": (0, 20),
    "AVG(x) - AVG(y)": (-5, 25),
    "VAR_POP(y)": (0, 25),
    "CORR(x, y)": (-1, 1),
    "SUM(x)": (-np.inf, np.inf),
    "COUNT(*)": (-np.inf, np.inf),
    "REGR_SLOPE(x, y)": (-np.inf, np.inf),
}


def test_what_is_impossible_is_shown_as_the_nearest_that_is_possible(con, monkeypatch):
    """And nothing else is changed: counts and sums are what they are, and so are all variances."""
    listed = ", ".join(f"{form} AS v{i}" for i, form in enumerate(SHOWN))
    sql = {"a": f"SELECT g, {listed} FROM t GROUP BY g"}
    plan = Redrawn.of(con, sql, budget=dpsql.Budget(rho=1e-4), confidence=0.95)
    shown = [release["a"] for release in plan.draws(2)]
    monkeypatch.setattr(frames, "_clipped", lambda post, i, result: result.to_series(i))
    plain = [release["a"] for release in plan.draws(2)]
    for one, other in zip(shown, plain, strict=True):
        values = [f"v{i}" for i in range(len(SHOWN))]
        assert one.drop(values).equals(other.drop(values))
        assert one.schema == other.schema
        for name, limits in zip(values, SHOWN.values(), strict=True):
            nearest = other[name].cast(pl.Float64).clip(*limits)
            assert one[name].cast(pl.Float64).to_list() == pytest.approx(nearest.to_list()), name
    assert sum(one.equals(other) for one, other in zip(shown, plain, strict=True)) == 0


def test_a_median_that_may_be_anything_is_null():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (g VARCHAR NOT NULL CHECK (g IN ('all', 'none')), "
        "x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 99), b BOOLEAN NOT NULL);"
        "INSERT INTO t SELECT 'all', i % 50, i % 2 = 0 FROM range(5000) r(i)"
    ).fetchall()
    sql = "SELECT g, MEDIAN(x) AS m, MEDIAN(x) + 1 AS n, MAX(b) AS b FROM t GROUP BY g"
    plan = Redrawn.of(con, {"a": sql}, budget=dpsql.Budget(rho=0.01))
    at_an_end, ends = [], []
    for release in plan.draws(5):
        known, none = release["a"].sort("g").iter_rows(named=True)
        assert abs(known["m"] - 24.5) < 10
        assert none["m"] is None or 0 < none["m"] < 99
        ends.append(none["b"])
        if none["m"] is None:
            assert (none["m_lower"], none["m_upper"]) == (0, 99)
            at_an_end.append(none["n"])
        else:
            assert none["n"] == none["m"] + 1
    # Where noise leaves no rows at all, nothing is known of either.
    assert {1.0, 100.0} >= set(at_an_end) - {None} != set(), "what is computed of it is as it was"
    assert set(ends) - {None}, "each of two values is an end"
