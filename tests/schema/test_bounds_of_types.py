"""Bounds of columns whose values are multiples of something: the outermost values between them."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql import Domain, Schema
from dpsql.errors import SchemaError

PRECISE = dpsql.Budget(rho=10**12)
DIGITS = {"INTEGER": 1, "SMALLINT": 1, "HUGEINT": 1, "DECIMAL(9,1)": 10, "DECIMAL(20,2)": 100}
BOUNDS = [("0.5", "9.5"), ("-0.5", "9.25"), ("-3.75", "-0.25"), ("0", "9")]
EXPRESSIONS = ["SUM(y)", "AVG(y)", "VAR_POP(y)", "SUM(y + 1)", "AVG(y * 1.5)", "COVAR_POP(y, k)"]


@pytest.fixture(scope="module", params=DIGITS)
def con(request):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (y {request.param}, k INTEGER CHECK (k BETWEEN 0 AND 3))")
    con.execute("INSERT INTO t SELECT (i % 40) / 2.0 - 5, i % 4 FROM range(400) r(i)")
    return con, DIGITS[request.param]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_all_that_is_computed_is_of_the_same_values(con, low, high):
    con, digits = con
    ends = Fraction(low), Fraction(high)
    least, most = math.ceil(ends[0] * digits) / digits, math.floor(ends[1] * digits) / digits
    items = ", ".join(f"{text} AS v{i}" for i, text in enumerate(EXPRESSIONS))
    schema = Schema({"t": {"y": Domain.number(low, high)}})
    found = dpsql.query(con, f"SELECT {items} FROM t", budget=PRECISE, schema=schema)
    clamped = f"(SELECT least(greatest(y, {least}), {most}) AS y, k FROM t)"
    exact = con.execute(f"SELECT {items} FROM {clamped}").fetchone()
    assert [found[f"v{i}"][0] for i in range(len(EXPRESSIONS))] == pytest.approx(
        [float(value) for value in exact], rel=1e-5, abs=1e-3
    )


@pytest.mark.parametrize(("low", "high"), [("0.5", "0.75"), ("0.5", "1.5")])
def test_bounds_without_two_values_between_them_are_refused(low, high):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (y INTEGER)")
    schema = Schema({"t": {"y": Domain.number(low, high)}})
    with pytest.raises(SchemaError, match="no two values of its type INTEGER") as error:
        dpsql.plan(con, "SELECT SUM(y) FROM t", budget=PRECISE, schema=schema)
    assert "multiples of 1" in error.value.hint


def test_bounds_of_expressions_are_values_of_these():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (y INTEGER)")
    con.execute("INSERT INTO t SELECT i % 20 FROM range(400) r(i)")
    sql = "SELECT SUM(y * 2 + 0) AS s, AVG(y * 2 + 0) AS a FROM t"
    expressions = {"t": {"y * 2 + 0": ("0.5", "9.5")}}
    schema = Schema({"t": {"y": Domain.number(0, 100)}}, expressions=expressions)
    found = dpsql.query(con, sql, budget=PRECISE, schema=schema)
    exact = con.execute(sql.replace("y * 2 + 0", "least(greatest(y * 2, 1), 9)")).fetchone()
    assert found["s"][0] == pytest.approx(exact[0], abs=0.01)
    assert found["a"][0] == pytest.approx(exact[1], abs=0.01)
