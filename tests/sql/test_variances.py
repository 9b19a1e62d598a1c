"""Stated variances against those of the mechanism, found by moving each measurement a little.

A release is a function of independent measurements. Whatever a statement computes, to first order
the variance of a value is Σ (∂value/∂measurement)² · variance of the measurement. The derivatives
are taken here numerically, by whole releases: nothing of how variances are computed is used.
"""

import random

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.measurement import measure as measuring
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.release import Before, from_plan
from dpsql.release.assembly import facts_of
from dpsql.request import Request
from dpsql.session import planning
from tests.helpers.seeded import SeededBits
from tests.oracle import every_space
from tests.sql.people import fill

CREATE = """
    CREATE TABLE t (
        a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 2),
        b BOOLEAN NOT NULL,
        h INTEGER CHECK (h BETWEEN 0 AND 2),
        x DOUBLE,
        y DECIMAL(6, 2)
    )
"""
SCHEMA = dpsql.Schema({"t": {"x": dpsql.Domain.number(0, 4), "y": dpsql.Domain.number(-1, 9)}})
"""Beside the constraints: x and y are added up row by row."""
LINEAR = {
    "plain": "SELECT a, COUNT(*) AS n, SUM(h) AS s FROM t GROUP BY a",
    "arithmetic": "SELECT a, 2 * COUNT(*) - SUM(h) / 4 + 7 AS x, -COUNT(h) AS m FROM t GROUP BY a",
    "filters": "SELECT a, COUNT(*) FILTER (WHERE b) - COUNT_IF(NOT b) AS d FROM t GROUP BY a",
    "sorted": "SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY n DESC LIMIT 2",
    "having": "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b HAVING COUNT(*) > 250",
    "running": "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a",
    "partition": "SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY b) - COUNT(*) AS n FROM t "
    "GROUP BY a, b",
    "moving": "SELECT a, AVG(COUNT(*)) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) "
    "AS n FROM t GROUP BY a",
    "after having": "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a "
    "HAVING COUNT(*) > 1",
    "change": "SELECT a, COUNT(*) - lag(COUNT(*)) OVER (ORDER BY a) AS d FROM t GROUP BY a",
    "rollup": "SELECT a, b, COUNT(*) AS n FROM t GROUP BY ROLLUP (a, b)",
    "rolled up outside": "SELECT a, SUM(n) AS n, AVG(n) AS m FROM "
    "(SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b) GROUP BY ROLLUP (a)",
    "sums of sums": "SELECT SUM(n) AS n, SUM(n) FILTER (WHERE b) AS k, SUM(CASE WHEN a > 1 THEN n "
    "ELSE -n END) AS d FROM (SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b)",
    "union": "SELECT 'all' AS who, COUNT(*) AS n FROM t UNION ALL SELECT 'b', COUNT(*) FROM t "
    "WHERE b UNION ALL SELECT 'h', SUM(h) FROM t",
    "joined": "WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a), y AS (SELECT a, COUNT(*) AS "
    "n FROM t WHERE b GROUP BY a) SELECT a, x.n - 2 * y.n AS d FROM x JOIN y USING (a)",
    "self joined": "WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a) "
    "SELECT p.a, p.n + 3 * q.n AS s FROM x p JOIN x q ON p.a = q.a + 1",
    "less the mean": "SELECT a, COUNT(*) - (SELECT COUNT(*) FROM t) / 4 AS d FROM t GROUP BY a",
    "outer window": "SELECT a, n - AVG(n) OVER () AS d, SUM(n) OVER (ORDER BY a) AS c FROM "
    "(SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    "named window": "SELECT a, SUM(n) OVER w AS c FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) "
    "WINDOW w AS (ORDER BY a DESC)",
    "public weights": "SELECT SUM(n * v.w) AS s FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) q "
    "JOIN (VALUES (0, 1.5), (1, -2), (2, 4)) v(a, w) ON q.a = v.a",
    "cast": "SELECT COUNT(*)::DOUBLE / 3 AS x FROM t",
    "chosen by a key": "SELECT a, CASE WHEN a > 1 THEN COUNT(*) ELSE SUM(h) END AS x FROM t "
    "GROUP BY a",
    "first": "SELECT FIRST(n ORDER BY a DESC) - LAST(n ORDER BY a DESC) AS d, SUM(n ORDER BY n) "
    "AS s, AVG(n ORDER BY a) AS m, FIRST(n ORDER BY a) FILTER (WHERE a > 0) AS f "
    "FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    "same name inside": "SELECT a, COUNT(*) AS n, (SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM t "
    "GROUP BY b) q) AS m FROM t GROUP BY a",
    "public of a key": "SELECT a, COUNT(*) * (SELECT MAX(w) FROM (VALUES (0, 2), (1, 3)) v(k, w) "
    "WHERE v.k <= t.a) AS n FROM t GROUP BY a",
    "qualified": "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b "
    "QUALIFY row_number() OVER (PARTITION BY a ORDER BY COUNT(*)) = 1",
}
SMOOTH = {
    "average": "SELECT a, AVG(h) AS m, AVG(h * h) AS q FROM t GROUP BY a",
    "variances": "SELECT b, VAR_POP(h) AS v, VAR_SAMP(h) AS w, STDDEV(h) AS s FROM t GROUP BY b",
    "share": "SELECT a, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM t GROUP BY a",
    "share inside": "SELECT a, b, COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY a) AS s FROM t "
    "GROUP BY a, b",
    "share by subquery": "SELECT a, 100 * COUNT(*) / (SELECT COUNT(*) FROM t) AS s FROM t "
    "GROUP BY a",
    "cumulative share": "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) / SUM(COUNT(*)) OVER () AS s "
    "FROM t GROUP BY a",
    "rates": "SELECT a, COUNT(*) FILTER (WHERE b) / COUNT(*) AS r FROM t GROUP BY a",
    "ratio of answers": "WITH x AS (SELECT a, COUNT(*) AS n FROM t GROUP BY a), y AS (SELECT a, "
    "COUNT(*) AS n FROM t WHERE b GROUP BY a) SELECT a, y.n / x.n AS r FROM x JOIN y USING (a)",
    "product": "SELECT a, COUNT(*) * SUM(h) AS p FROM t GROUP BY a",
    "functions": "SELECT a, sqrt(COUNT(*)) AS r, ln(COUNT(*)) AS l, exp(AVG(h)) AS e, "
    "pow(COUNT(*), 1.5) AS p, abs(COUNT(*) - 1e5) AS d FROM t GROUP BY a",
    "guards": "SELECT a, COALESCE(SUM(h) / NULLIF(COUNT(*), 0), 0) AS m, greatest(COUNT(*), 0) "
    "AS g, CASE WHEN COUNT(*) > 5 THEN AVG(h) ELSE 0 END AS c FROM t GROUP BY a",
    "outer average": "SELECT AVG(m) AS m FROM (SELECT a, AVG(h) AS m FROM t GROUP BY a)",
    "outer share": "SELECT a, n / SUM(n) OVER () AS s FROM (SELECT a, COUNT(*) AS n FROM t "
    "GROUP BY a)",
    "covariance": "SELECT AVG(a * h) - AVG(a) * AVG(h) AS c FROM t WHERE h IS NOT NULL",
    "regressions": "SELECT b, CORR(a, h) AS c, REGR_SLOPE(h, a) AS s, REGR_R2(a, h) AS r, "
    "COVAR_SAMP(a, h) AS v FROM t GROUP BY b",
    "of rows": "SELECT b, AVG(x) AS m, STDDEV(y) AS s, SUM(x * y) AS p FROM t GROUP BY b",
    "covariances of rows": "SELECT b, COVAR_POP(x, y) AS c, CORR(x, y) AS r, COVAR_SAMP(x, a) AS m "
    "FROM t GROUP BY b",
    "regressions of rows": "SELECT REGR_INTERCEPT(y, x) AS i, REGR_R2(y, x) AS r, REGR_SXX(y, x) "
    "AS s, REGR_AVGX(y, x) AS m FROM t WHERE y > 0",
    "rolled up": "SELECT a, AVG(h) AS m FROM t GROUP BY ROLLUP (a)",
    "rolled up share": "SELECT a, b, n / SUM(n) OVER (PARTITION BY a) AS s FROM "
    "(SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b)",
    "nested": "WITH x AS (SELECT a, AVG(h) AS m FROM t GROUP BY a), y AS (SELECT a, m * m AS q "
    "FROM x) SELECT SUM(q) / (SELECT COUNT(*) FROM t) AS r FROM y",
}


@pytest.fixture(scope="module")
def con():
    rng = random.Random(3)  # noqa: S311
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    rows = [
        (
            rng.choice((0, 1, 1, 2, 2)),
            rng.random() < 0.4,
            rng.choice((0, 1, 1, 2, None)),
            rng.choice((None, rng.uniform(0, 4), rng.uniform(1, 2))),
            round(rng.uniform(-1, 9), 2),
        )
        for _ in range(3000)
    ]
    fill(con, "t", rows)
    return con


def released(con, sql, monkeypatch):
    """Release a statement; return its script, its plan and the measurements too."""
    found = {}

    def keep(script, plan, facts, measured, sources, content=None):
        found.update(script=script, plan=plan, facts=facts, measured=measured)
        return from_plan(script, plan, facts, measured, sources, content)

    monkeypatch.setattr(planning, "from_plan", keep)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(5))
    session = dpsql.Session(con, schema=SCHEMA)
    release = session.release(sql, budget=dpsql.Budget(rho=1))
    return release, found["script"], found["plan"], found["measured"]


def values_at(script, plan, values, names):
    measured = NoisyMeasurements(plan.certified, values)
    facts = facts_of(script, plan, Before(), Request())
    frame = from_plan(script, plan, facts, measured, (), b"")["query"]
    return frame.select(names).cast(float).to_numpy()


def first_order_variances(script, plan, measured, names):
    """Return Σ (∂value/∂measurement)² · variance for every cell of the named columns."""
    base = {space: y.astype(float) for space, y in measured.values.items()}
    total = 0.0
    for block, space in every_space(plan.certified.blocks):
        noise = block.law.variance
        key, step = frozenset(space), 0.003 * noise**0.5
        unit = float(block.law.unit)  # of the integers that are kept
        for index in range(base[key].size):
            ends = []
            for sign in (1, -1):
                moved = dict(base)
                moved[key] = base[key].copy()
                moved[key].flat[index] += sign * step / unit
                ends.append(values_at(script, plan, moved, names))
            total = total + ((ends[0] - ends[1]) / (2 * step)) ** 2 * noise
    return total


def check(con, sql, monkeypatch, kind, rtol):
    release, script, plan, measured = released(con, sql, monkeypatch)
    described = release.columns("query").rows()
    names = [name for name, role, *_ in described if role == "value"]
    assert names
    assert {given for _, role, given, _ in described if role == "value"} <= kind
    frame = release["query"]
    stated = frame.select(f"{name}_variance" for name in names).to_numpy().astype(float)
    values = frame.select(names).cast(float).to_numpy()
    expected = first_order_variances(script, plan, measured, names)
    known = ~np.isnan(values)
    assert known.any()
    assert not np.isnan(stated[known]).any()
    np.testing.assert_allclose(stated[known], expected[known], rtol=rtol)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LINEAR)
def test_linear(con, name, monkeypatch):
    check(con, LINEAR[name], monkeypatch, {"exact"}, 1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(con, name, monkeypatch):
    check(con, SMOOTH[name], monkeypatch, {"approximate", "exact"}, 1e-3)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT a, MAX(COUNT(*)) OVER () AS m FROM t GROUP BY a", "MAX"),
        ("SELECT a, rank() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY a", "RANK"),
        ("SELECT a, COUNT(*) > 5 AS big FROM t GROUP BY a", ""),
        ("SELECT DISTINCT COUNT(*) AS n FROM t GROUP BY a", "DISTINCT"),
        ("SELECT COUNT(*) AS n FROM t UNION SELECT SUM(h) FROM t", ""),
        ("SELECT a, sin(COUNT(*)) AS n FROM t GROUP BY a", "SIN"),
        ("SELECT MIN(n) AS n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)", "MIN"),
        ("SELECT COUNT(*)::VARCHAR AS n FROM t", "cast"),
    ],
)
def test_no_variance_is_stated_where_none_is_known(con, sql, reason):
    release = dpsql.Session(con).release(sql, budget=dpsql.Budget(rho=1))
    ((name, _, kind, why),) = [row for row in release.columns("query").rows() if row[1] == "value"]
    assert kind == "none"
    assert reason in why
    assert release["query"][f"{name}_variance"].null_count() == release["query"].height


COUNTS = "WITH c AS (SELECT a AS k, COUNT(*) AS n FROM t GROUP BY a)"


@pytest.mark.parametrize(
    "item",
    [
        "EXISTS (SELECT 1 FROM c WHERE n > 3)",
        "NOT EXISTS (SELECT 1 FROM c WHERE c.n > 3 AND c.k = x)",
        "EXISTS (SELECT 1 FROM (SELECT k, n > 5 AS b FROM c) WHERE b)",
        "EXISTS (SELECT k FROM c GROUP BY k HAVING SUM(n) > 4)",
        "EXISTS (SELECT k FROM c QUALIFY row_number() OVER (ORDER BY n) > 9)",
        "EXISTS (SELECT 1 FROM (VALUES (3)) v(y) WHERE y IN (SELECT k FROM c WHERE n > 4))",
        "EXISTS (SELECT COUNT(*) FROM t HAVING COUNT(*) > 5)",
        "2 IN (SELECT k FROM c WHERE n > 9)",
        "3 IN (SELECT n FROM c)",
        "CASE WHEN EXISTS (SELECT 1 FROM c WHERE n > 5) THEN 1 ELSE 0 END",
        "(SELECT k FROM c ORDER BY n DESC LIMIT 1)",
    ],
)
@pytest.mark.parametrize("of", ["FROM t GROUP BY a", "FROM (VALUES (1), (2)) v(x)"])
def test_what_noise_decides_is_no_key(con, item, of):
    key = "a AS x, " if "t" in of.split() else "x, "
    sql = f"{COUNTS} SELECT {key}{item} AS e {of}"
    release = dpsql.Session(con).release(sql, budget=dpsql.Budget(rho=1))
    assert release.columns("query").rows()[1][:3] == ("e", "value", "none")


@pytest.mark.parametrize(
    "item",
    [
        "EXISTS (SELECT n FROM c)",
        "EXISTS (SELECT 1 FROM c WHERE k > 2)",
        "EXISTS (SELECT * FROM (VALUES (3)) v(y) WHERE y > 4)",
        "2 IN (SELECT k FROM c)",
    ],
)
def test_what_no_noise_decides_is_as_public_as_keys(con, item):
    sql = f"{COUNTS} SELECT a, COUNT(*) AS m, {item} AS e FROM t GROUP BY a"
    release = dpsql.Session(con).release(sql, budget=dpsql.Budget(rho=1))
    assert release.columns("query").rows()[2][:2] == ("e", "key")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM (VALUES (1, 2)) v(x, y)",
        "SELECT AVG(x) AS m FROM (VALUES (1), (3)) v(x)",
        "SELECT x, rank() OVER (ORDER BY x) AS r FROM generate_series(1, 3) g(x)",
    ],
)
def test_what_is_public_has_no_variance(con, sql):
    session = dpsql.Session(con)
    script = {"counts": "SELECT a, COUNT(*) AS n FROM t GROUP BY a", "public": sql}
    release = session.release(script, budget=dpsql.Budget(rho=1))
    assert release["public"].rows() == con.execute(sql).fetchall()
    assert set(release.columns("public")["role"]) == {"key"}


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [5, pytest.param(12, marks=pytest.mark.long)])
def test_intervals_of_quantiles_hold_the_quantiles(monkeypatch, runs):
    """At a budget at which they are wide: the share that holds is at least what is said.

    Less four standard errors, as if each group told something once: 5 runs see a share below 0.78,
    12 runs one below 0.82.
    """
    con, rng = duckdb.connect(), random.Random(4)  # noqa: S311
    con.execute(
        "CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 19), v INTEGER NOT NULL "
        "CHECK (v BETWEEN 0 AND 30))"
    ).fetchall()
    rows = [(rng.randrange(20), min(30, int(rng.expovariate(0.1)))) for _ in range(4000)]
    fill(con, "t", rows)
    sql = (
        "SELECT g, MEDIAN(v) AS m, QUANTILE_DISC(v, 0.25) AS q, QUANTILE_CONT(v, 0.9) AS p "
        "FROM t GROUP BY g"
    )
    exact = {g: rest for g, *rest in con.execute(sql).fetchall()}
    bits = SeededBits(20261122)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    held, widths = [], []
    session = dpsql.Session(con)
    plan_budget = dpsql.Budget(rho=0.02)
    for _ in range(runs):
        frame = session.release(sql, budget=plan_budget, confidence=0.9)["query"]
        for row in frame.iter_rows(named=True):
            for name, value in zip("mqp", exact[row["g"]], strict=True):
                held.append(row[f"{name}_lower"] <= value <= row[f"{name}_upper"])
                widths.append(row[f"{name}_upper"] - row[f"{name}_lower"])
    assert np.mean(widths) > 1
    assert np.mean(np.array(widths) < 29) > 0.5
    assert np.mean(held) > 0.9 - 4 * (0.9 * 0.1 / (runs * 20)) ** 0.5
