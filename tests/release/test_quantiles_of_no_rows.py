"""Quantiles of groups without rows: NULL, as in SQL, where noise excludes that there is one."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.helpers.random_queries import seeded
from tests.helpers.redrawn import Redrawn

KINDS = [
    "MIN({})",
    "MAX({})",
    "MEDIAN({})",
    *(f"QUANTILE_DISC({{}}, {p})" for p in (0.1, 0.5, 0.9)),
    *(f"QUANTILE_CONT({{}}, {p})" for p in (0.1, 0.9)),
]
DOMAINS = {"x": "BETWEEN 3 AND 40", "two": "IN (1, 2)"}


def filled(seed):
    """Return rows of which some of the groups have one, some have several and some have none."""
    rng, con = seeded(seed), duckdb.connect()
    columns = ", ".join(f"{name} INTEGER CHECK ({name} {of})" for name, of in DOMAINS.items())
    con.execute(f"CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 7), {columns})")
    rows = []
    for g in range(8):
        for _ in range(rng.choice([0, 0, 1, 2, 9])):
            null = rng.random() < 0.2
            rows.append((g, None if null else rng.randint(3, 40), None if null else 2))
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", rows or [(0, None, None)])
    return con


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_there_is_none_where_there_are_no_rows(kind, seed):
    con = filled(seed)
    listed = ", ".join(f"{kind.format(name)} AS {name}" for name in DOMAINS)
    sql = f"SELECT g, {listed} FROM t GROUP BY g"
    release = dpsql.Session(con).release(sql, budget=dpsql.Budget(rho=10**12))["query"]
    found = {row[0]: row[1:] for row in release.select("g", *DOMAINS).rows()}
    exact = {row[0]: row[1:] for row in con.execute(sql).fetchall()}
    assert found == {g: pytest.approx(exact.get(g, (None, None)), abs=0.01) for g in range(8)}


@pytest.mark.parametrize("kind", KINDS)
def test_their_intervals_say_nothing_and_hold_what_there_is(kind):
    """At this budget noise excludes a row nearly always where there is none, and seldom else."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 399), x INTEGER "
                "NOT NULL CHECK (x BETWEEN 3 AND 9))")  # fmt: skip
    con.execute("INSERT INTO t SELECT 2 * range, 3 + range % 7 FROM range(200)")
    sql = f"SELECT g, {kind.format('x')} AS q FROM t GROUP BY g"
    budget = dpsql.Budget(rho=20)
    (release,) = Redrawn.of(con, {"query": sql}, budget=budget).draws(1, seed=5)
    missed = invented = 0
    for g, q, low, high in release["query"].select("g", "q", "q_lower", "q_upper").rows():
        assert q is not None or (low, high) == (3, 9)
        invented += g % 2 == 1 and q is not None
        missed += g % 2 == 0 and not low <= 3 + g // 2 % 7 <= high
    assert missed <= 20
    assert invented <= 20
