"""Quotients of columns: bounded where the divisor is not zero, else refused with what to type."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.rows.divisors import around_zero, not_zero
from dpsql.rows.expression import RowColumn
from dpsql.rows.read import read_expression
from dpsql.sql.sandbox.database import Sandbox
from tests.helpers.typed import Asked, conversations

PRECISE = dpsql.Budget(rho=10**12)
BOUNDED = [
    "x / NULLIF(d, 0)",
    "x / NULLIF(n, 0)",
    "100.0 * x / NULLIF(n, 0)",
    "x / NULLIF(d - 25, 0)",
    "TRY_CAST(x AS DOUBLE) / NULLIF(d, 0)",
    "ROUND(x / NULLIF(d, 0), 2)",
    "x / (d + 0.5)",
    "x / GREATEST(d, 1)",
    "x // NULLIF(n, 0)",
    "CASE WHEN d > 0 THEN x / d END",
    "CASE WHEN d <> 0 AND x > 1 THEN x / d END",
    "CASE WHEN d = 0 OR d IS NULL THEN 0 ELSE x / d END",
    "CASE WHEN d = 0 THEN 0 WHEN d > 10 THEN 1 ELSE x / d END",
]
UNBOUNDED = ["x / n", "e / x", "1 / x", "x / NULLIF(z, 0)", "CASE WHEN d >= 0 THEN x / d END"]


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            x DECIMAL(9,2) NOT NULL CHECK (x BETWEEN 0 AND 100),
            d DECIMAL(9,2) CHECK (d BETWEEN 0 AND 50),
            e DECIMAL(9,2) NOT NULL CHECK (e BETWEEN 1 AND 20),
            n INTEGER NOT NULL CHECK (n BETWEEN 0 AND 5),
            z DOUBLE NOT NULL CHECK (z BETWEEN -5 AND 5)
        );
        INSERT INTO t SELECT (i * 37 % 10000) / 100.0,
            CASE WHEN i % 7 = 0 THEN NULL ELSE (i * 13 % 5000) / 100.0 END,
            1 + (i * 3 % 1900) / 100.0, i % 6, -5 + (i % 101) * 0.1 FROM range(1000) t(i)
    """)
    return con


@pytest.mark.parametrize("value", BOUNDED)
def test_quotients_have_bounds_where_the_divisor_is_not_zero(con, value):
    sql = f"SELECT SUM({value}) AS s, AVG({value}) AS a, VAR_POP({value}) AS v FROM t"
    (found,) = dpsql.query(con, sql, budget=PRECISE).select("s", "a", "v").rows()
    exact = con.execute(sql).fetchone()
    assert found == pytest.approx(tuple(map(float, exact)), rel=1e-3, abs=0.05)


@pytest.mark.parametrize("where", ["d <> 0", "d > 0", "0 < d AND x > 5", "NOT (d = 0)"])
def test_where_says_that_a_divisor_is_not_zero(con, where):
    sql = f"SELECT SUM(x / d) AS s FROM t WHERE {where}"
    found, exact = dpsql.query(con, sql, budget=PRECISE)["s"][0], con.execute(sql).fetchone()[0]
    assert found == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("value", [BOUNDED[0], BOUNDED[9], "x / e"])
def test_medians_of_too_many_joint_cells_are_drawn(con, value):
    sql = f"SELECT MEDIAN({value}) AS m FROM t"
    found, exact = dpsql.query(con, sql, budget=PRECISE)["m"][0], con.execute(sql).fetchone()[0]
    assert found == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("function", ["SUM", "AVG", "VAR_POP"])
@pytest.mark.parametrize("value", UNBOUNDED)
def test_what_a_refusal_says_leads_to_an_answer_when_it_is_typed(con, value, function):
    def refused(asked: Asked) -> DpsqlError | None:
        given = {name: value for name, value in asked.arguments.items() if name == "schema"}
        try:
            dpsql.plan(con, asked.sql, budget=PRECISE, **given)
        except DpsqlError as error:
            return error
        return None

    first = Asked(f"SELECT {function}({value}) AS v FROM t")
    assert refused(first) is not None
    talks = list(conversations(first, refused))
    assert talks
    assert all(talk[-1].refusal is None for talk in talks)


def test_conditions_say_of_what_is_compared_that_it_is_not_zero():
    sandbox, x, y = Sandbox(), RowColumn("x"), RowColumn("y")
    for text, where_true, where_not in [
        ("x = 0", [], [x]),
        ("x <> 0.0", [x], []),
        ("0 < CAST(x AS DOUBLE)", [x], []),
        ("x <= 0", [], []),
        ("x > 0 AND y <> 0", [x, y], []),
        ("x = 0 OR y = 0", [], [x, y]),
        ("NOT (x = 0 OR y > 0)", [x], []),
        ("x <> 1", [], []),
    ]:
        condition = read_expression(sandbox.tree(text))
        assert not_zero(condition, holds=True) == frozenset(where_true), text
        assert not_zero(condition, holds=False) == frozenset(where_not), text


def test_multiples_of_a_unit_lie_on_both_sides_of_zero():
    unit = Fraction(1, 100)
    assert around_zero((Fraction(0), Fraction(5)), unit) == [(unit, Fraction(5))]
    assert around_zero((Fraction(-5), Fraction(0)), unit) == [(Fraction(-5), -unit)]
    assert around_zero((Fraction(-5), Fraction(5)), unit) == [
        (Fraction(-5), -unit),
        (unit, Fraction(5)),
    ]
    assert around_zero((None, None), unit) == [(None, -unit), (unit, None)]
    assert around_zero((Fraction(2), Fraction(3)), unit) == [(Fraction(2), Fraction(3))]
    assert around_zero((Fraction(0), Fraction(0)), unit) == []
