"""Bounds that WHERE and FILTER say: less noise, the same answers, and no row that adds more.

What a row adds is brought between the bounds whatever it holds, so privacy doesn't rest on rows
meeting the conditions. Answers do: a row that meets them must keep its value.
"""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql import Domain, Schema, Unit
from tests.helpers.inserted import insert
from tests.release.test_private_joins import HUGE
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

BUDGET = dpsql.Budget(rho=0.5)
CREATE = """
    CREATE TABLE t (
        p INTEGER, g VARCHAR NOT NULL CHECK (g IN ('a', 'b')), x DOUBLE, d DECIMAL(9, 2),
        i INTEGER, wide INTEGER NOT NULL CHECK (wide BETWEEN -1000 AND 60000)
    )
"""
BOUNDS = {"x": Domain.number(-1000, 1000), "d": Domain.number(-1000, 1000)}
CONDITIONS = {
    "{} BETWEEN 10 AND 150": (10, 150),
    "{} >= 10 AND {} <= 150": (10, 150),
    "150 >= {} AND 10 <= {}": (10, 150),
    "{} IN (10, 150, 40)": (10, 150),
    "{} = 20 OR ({} >= 30 AND {} <= 40)": (20, 40),
    "{} BETWEEN -150 AND 40 AND g = 'a'": (-150, 40),
    "({} BETWEEN 10 AND 90) AND ({} BETWEEN 50 AND 150)": (50, 90),
    "{} = 40": (40, 41),
}
OTHERS = ("NOT ({} < 10)", "{} <> 10", "{} BETWEEN 10 AND 150 OR g = 'a'", "{} IS NOT NULL")
ODD = tuple(map(float, ("nan", "inf", "-inf", "1e300", "-1e300", "1e-300")))
NUMBERS = (0, 10, 10.5, 20, 40, 89, 150, 151, -150, -151, 1000, -1000, None, *ODD)


def rows(persons):
    """Return rows with each of the numbers, as far as the types have them."""
    exact = [v if v is None or abs(v) <= 1000 else None for v in NUMBERS]
    return [
        (p, "ab"[n % 2], v, e, None if e is None else int(e), 0 if e is None else int(e))
        for p in persons
        for n, (v, e) in enumerate(zip(NUMBERS, exact, strict=True))
    ]


def connect(persons=(0, 1)):
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    insert(con, "t", rows(persons))
    return con


def schema(most=None):
    units = {} if most is None else {"t": Unit("p", most)}
    return Schema({"t": BOUNDS}, units=units)


def statements(column, condition):
    said = condition.replace("{}", column)
    yield f"SELECT {{}}({column}) AS v FROM t WHERE {said}"
    yield f"SELECT {{}}({column}) FILTER (WHERE {said}) AS v, COUNT(*) AS n FROM t"
    yield f"SELECT g, {{}}({column}) AS v FROM t WHERE {said} GROUP BY g"


CASES = [(c, of) for c in ("x", "d", "wide") for of in CONDITIONS]
PARTS = 7
"""Of the rows that are added one by one."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("column", "condition"), CASES)
def test_a_sum_has_the_noise_of_what_its_condition_leaves(column, condition):
    """As if it was written around the column, in each of the places of a condition."""
    con = connect()
    low, high = CONDITIONS[condition]
    session = dpsql.Session(con, schema=schema())
    for sql in statements(column, condition):
        around = f"least(greatest({column}, {low}), {high})"
        plain, clamped = (
            sql.format("SUM"),
            sql.format("SUM").replace(f"SUM({column})", f"SUM({around})"),
        )
        ours, theirs = (session.plan({"a": one}, budget=BUDGET).rmse for one in (plain, clamped))
        assert ours == pytest.approx(theirs, rel=0.02)


@pytest.mark.sampled(5)  # of five conditions: eight would be of two
@pytest.mark.parametrize(
    ("column", "condition"), [(c, of) for c in ("x", "d", "i", "wide") for of in CONDITIONS]
)
def test_answers_are_those_of_the_rows_that_meet_it(column, condition):
    """Also of a column that nothing else bounds. ±∞, NaN and NULL meet no such condition."""
    con = connect()
    session = dpsql.Session(con, schema=schema())
    for statement in statements(column, condition):
        for name in ("SUM", "AVG", "VAR_POP", "COUNT"):
            sql = statement.format(name)
            found = session.query(sql, budget=dpsql.Budget(rho=10**12))
            names = con.execute(sql).description
            exact = sorted(con.execute(sql).fetchall(), key=str)
            ours = sorted(found.select(name for name, *_ in names).rows(), key=str)
            if "GROUP BY" in sql:  # the domain has groups that no row is in
                groups = {group for group, _ in exact}
                empty = [value for group, value in ours if group not in groups]
                assert name in {"AVG", "VAR_POP"} or all(abs(n) < 0.02 for n in empty)
                ours = [row for row in ours if row[0] in groups]
            for one, other in zip(ours, exact, strict=True):
                numbers = [
                    (a, float(b)) for a, b in zip(one, other, strict=True)
                    if not isinstance(b, str) and b is not None
                ]  # fmt: skip
                assert all(a == pytest.approx(b, abs=0.02) for a, b in numbers), sql


@pytest.mark.sampled(9)  # all parts, and nine conditions
@pytest.mark.parametrize(("column", "condition"), [*CASES, *(("x", of) for of in OTHERS)])
@pytest.mark.parametrize("part", [*range(PARTS), None], ids=str)
def test_no_row_changes_more_than_it_costs(column, condition, part):
    """Whatever it holds, and whether or not it meets the condition, in both directions.

    Of a part of the rows each alone, or of all as one unit that counts as three.
    """
    most = 3 if part is None else None
    script = {
        f"s{n}": sql.format(name)
        for n, sql in enumerate(statements(column, condition))
        for name in ("SUM", "VAR_POP")
    }
    asked = {"script": script, "schema": schema(most)}
    con = connect()
    whole = recorded(con, asked, budget=BUDGET)
    added = rows([7])
    for row in [None] if part is None else added[part::PARTS]:
        insert(con, "t", [row] if row is not None else added)
        more = recorded(con, asked, budget=BUDGET)
        check_alike(whole, more)
        assert spent(whole, more) <= charged(whole)
        con.execute("DELETE FROM t WHERE p = 7").fetchall()


def test_a_column_that_nothing_else_bounds_may_be_bounded_by_where():
    con = connect()
    sql = "SELECT SUM(i) AS v FROM t WHERE i BETWEEN 0 AND 200"
    assert dpsql.query(con, sql, budget=HUGE)["v"][0] == pytest.approx(
        con.execute(sql).fetchall()[0][0], abs=0.01
    )
    with pytest.raises(dpsql.DpsqlError, match="no public bounds"):
        dpsql.query(con, "SELECT SUM(i) AS v FROM t WHERE i >= 0", budget=HUGE)
