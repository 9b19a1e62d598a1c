"""Random sums of rows at a huge budget, against what DuckDB answers."""

from __future__ import annotations

import math
import random

import duckdb
import pytest

from dpsql import Budget, Session
from dpsql.errors import DpsqlError
from tests.helpers.random_sums import RandomSums, connect, fill, schema
from tests.rows.tools import benign

HUGE = Budget(rho=1e14)
ROWS = 80


@pytest.fixture(scope="module")
def con():
    con = connect()
    rows = benign(ROWS, 3)
    for row in rows:  # those whose keys are in the domain
        row["a"] = None if row["a"] is None else str(int(row["a"]) % 5 - 2)
    fill(con, [(n, row) for n, row in enumerate(rows)])
    return con


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(800))
def test_sums_are_those_of_duckdb(con, seed):
    """But where DuckDB stops at a row: there it counts as NULL."""
    made = RandomSums(10_000 + seed)
    value, largest = made.value()
    key = random.Random(seed).choice(["e", "o", "a", "1"])  # noqa: S311
    sql = f"SELECT {key} AS k, {value} AS v FROM r WHERE {key} IS NOT NULL GROUP BY 1"
    if key == "1":
        sql = f"SELECT {value} AS v FROM r"
    try:
        found = Session(con, schema=schema(None)).query(sql, budget=HUGE)
    except DpsqlError as error:
        assert error.hint is not None  # noqa: PT017 - some expressions are refused
        return
    try:
        exact = con.execute(sql).fetchall()
    except duckdb.Error:
        return
    answers = {None: found["v"][0]} if key == "1" else dict(found.select("k", "v").iter_rows())
    for *keys, expected in exact:
        answer = answers[keys[0] if keys else None]
        # Steps are 2^-28 of the bounds, and noise is less: one row at a bound would move far more.
        # Of no rows a mean is of noise alone.
        if expected is not None:
            assert math.isclose(answer, expected, rel_tol=1e-5, abs_tol=1e-5 * largest * ROWS), sql


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(600))
def test_groups_of_keys_are_those_of_duckdb(con, seed):
    """Groups without rows aside, which are there as their values are known."""
    made = RandomSums(20_000 + seed)
    where = f" WHERE {made.key()} IS NOT NULL" if seed % 3 == 0 else ""
    sql = f"SELECT {made.key()} AS k, COUNT(*) AS n FROM r{where} GROUP BY k"
    # Beside a DECIMAL of 38 digits without any after the point, DuckDB rounds 2.5 up.
    sql = sql.replace("round(w)", "w")
    try:
        found = Session(con, schema=schema(None)).query(sql, budget=HUGE)
    except DpsqlError as error:
        assert error.hint is not None  # noqa: PT017
        return
    try:
        exact = con.execute(sql).fetchall()
    except duckdb.Error:
        return
    answers = {key: n for key, n in found.select("k", "n").iter_rows() if round(n)}
    assert answers == pytest.approx(dict(exact), abs=0.1), sql
