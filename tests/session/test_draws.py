"""Quantiles that are drawn: what is asked, charged, refused and kept."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from unittest.mock import patch

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBRanking
from dpsql.engines.ranked import by_group
from dpsql.measurement import quantiles
from dpsql.release import folder
from dpsql.session import data as declaring
from dpsql.session import draws as drawing
from tests.helpers.seeded import SeededBits

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
MUCH = dpsql.Budget(rho=10**6)
ROWS = """
    SELECT i, ['a', 'b', 'c'][1 + i % 3] AS car, (i * 7919) % 1009 - 60 AS delay,
        exp((i * 31 % 1000) / 200.0)::DOUBLE AS price,
        ((i * 37) % 4000 / 100.0)::DECIMAL(9, 2) AS tip,
        DATE '2020-01-01' + (i * 13 % 700)::INTEGER AS day, 'x' || (i % 10) AS word,
        TIMESTAMP '2021-05-01' + to_microseconds(i * 1234567) AS at, i % 400 AS person,
        CASE WHEN i % 4 > 0 THEN i % 97 END AS partly, (i % 50)::TINYINT AS small
    FROM range(6000) t (i)
"""
SCHEMA = {"f": {"car": dpsql.Domain.labels(["a", "b", "c"])}}
MEDIAN = "SELECT MEDIAN(delay) AS q FROM f"


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(f"CREATE TABLE f AS {ROWS}").fetchall()
    con.execute("""
        CREATE TABLE c (id INTEGER PRIMARY KEY, town VARCHAR NOT NULL CHECK (town IN ('x', 'y')));
        CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
            price INTEGER, item VARCHAR);
        INSERT INTO c SELECT i, ['x', 'y'][1 + i % 2] FROM range(800) t (i);
        INSERT INTO o SELECT i, i % 800, i * 577 % 5000, 'item ' || (i % 5) FROM range(4000) t (i);
        CREATE TABLE towns AS
        SELECT * FROM (VALUES ('x', 'north'), ('y', 'south')) t (town, region);
    """).fetchall()
    return con


def session(con, **given):
    return dpsql.Session(con, schema=SCHEMA, **given)


def of_units(con, **given):
    return dpsql.Session(con, unit=dpsql.Unit("c.id", max_rows={"o": 5}), public=["towns"], **given)


def charged(session):
    entries = session.ledger.entries()
    return sum((e.mu_squared for e in entries), Fraction(0)) / 2


# ── With a large budget, what is drawn is what DuckDB computes ───────────────────────────────────

ASKED = [
    "SELECT QUANTILE_DISC(delay, 0.5) AS q FROM f",
    "SELECT car, QUANTILE_DISC(delay, 0.25) AS q FROM f GROUP BY car ORDER BY car",
    "SELECT car, QUANTILE_DISC(price, 0.9) AS q FROM f GROUP BY car ORDER BY car",
    "SELECT car, QUANTILE_DISC(tip, 0.1) AS q FROM f GROUP BY car ORDER BY car",
    "SELECT QUANTILE_DISC(day, 0.75) AS q FROM f",
    "SELECT QUANTILE_DISC(f.at, 0.33) AS q FROM f",
    "SELECT QUANTILE_DISC(partly, 0.5) AS q FROM f",
    "SELECT QUANTILE_DISC(delay, 0.5) FILTER (WHERE price > 3) AS q FROM f",
    "SELECT car, QUANTILE_DISC(delay, 0.7) AS q FROM f WHERE car <> 'b' GROUP BY car ORDER BY car",
    "SELECT QUANTILE_DISC(delay, 0.5) AS q FROM f WHERE word = 'x3' AND day > DATE '2020-06-01'",
    "SELECT QUANTILE_DISC(delay * 2 + small, 0.4) AS q FROM f",
    "SELECT QUANTILE_DISC(CASE WHEN car = 'a' THEN delay END, 0.6) AS q FROM f",
    "SELECT car, QUANTILE_DISC(price, 0.5) AS q FROM f GROUP BY ROLLUP (car) "
    "ORDER BY car NULLS LAST",
    "SELECT PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY delay) AS q FROM f",
    "SELECT car, QUANTILE_DISC(delay, 0.5) + 1 AS q FROM f GROUP BY car ORDER BY car",
    "SELECT MAX(q) AS q FROM (SELECT car, QUANTILE_DISC(delay, 0.5) AS q FROM f GROUP BY car)",
    "WITH few AS (SELECT delay AS d FROM f WHERE partly < 50) "
    "SELECT QUANTILE_DISC(d, 0.5) AS q FROM few",
]  # fmt: skip
OF_UNITS = [
    "SELECT QUANTILE_DISC(price, 0.5) AS q FROM o",
    "SELECT c.town, QUANTILE_DISC(o.price, 0.5) AS q FROM o JOIN c ON o.cid = c.id "
    "GROUP BY c.town ORDER BY 1",
    "SELECT r.region, QUANTILE_DISC(o.price, 0.9) AS q FROM o JOIN c ON o.cid = c.id "
    "JOIN towns r ON r.town = c.town GROUP BY r.region ORDER BY 1",
    "SELECT QUANTILE_DISC(s, 0.5) AS q FROM (SELECT cid, SUM(price) AS s FROM o GROUP BY cid)",
]  # fmt: skip


@pytest.mark.parametrize("sql", ASKED)
def test_what_is_drawn_is_the_quantile(con, sql):
    check_drawn(con, sql, session(con).query(sql, budget=MUCH))


def check_drawn(con, sql, found):
    """Check that values are quantiles: from one of the rows up to that of the next one."""
    more = re.sub(r"(?<=[(, ])0\.\d+", lambda of: str(float(of[0]) + 0.002), sql)
    first, last = (con.sql(each).pl()["q"] for each in (sql, more))
    assert found["q"].null_count() == 0
    if first.dtype.is_numeric():
        first, last, found = (of.cast(pl.Float64) for of in (first, last, found["q"]))
        assert (first - 1e-9 <= found).all()
        assert (found <= last + 1e-9).all()
    else:
        assert found["q"].is_between(first, last).all()


@pytest.mark.parametrize("sql", OF_UNITS)
def test_it_is_of_rows_of_units(con, sql):
    check_drawn(con, sql, of_units(con).query(sql, budget=dpsql.Budget(rho=10**9)))


@pytest.mark.parametrize("most", [1, 3])
def test_as_many_rows_of_a_unit_count_as_may(con, most):
    """Of those with all the large values, only so many count."""
    con.execute("""
        CREATE TABLE few AS SELECT i AS person, 10 AS x FROM range(300) t (i)
        UNION ALL SELECT 1000 + i % 20, 90 FROM range(2000) t (i)
    """).fetchall()
    asked = dpsql.Session(con, unit="person", max_rows=most)
    assert asked.query("SELECT MEDIAN(x) AS q FROM few", budget=MUCH)["q"][0] == 10
    assert con.sql("SELECT MEDIAN(x) FROM few").fetchall() == [(90,)]


def test_a_median_may_lie_between_two_values(con):
    con.execute("CREATE TABLE two AS SELECT * FROM (VALUES (10), (20)) t (x)").fetchall()
    (found,) = dpsql.query(con, "SELECT MEDIAN(x) AS q FROM two", budget=MUCH)["q"]
    assert 10 <= found <= 20


def test_nan_is_left_out_and_infinite_values_are_at_the_ends(con):
    con.execute("""
        CREATE TABLE odd AS SELECT unnest(['nan', 'inf', '-inf', '1', '2', '3', NULL])::DOUBLE AS x
    """).fetchall()
    assert dpsql.query(con, "SELECT QUANTILE_DISC(x, 0.5) AS q FROM odd", budget=MUCH)["q"][0] == 2
    assert dpsql.query(con, "SELECT QUANTILE_DISC(x, 0.3) AS q FROM odd", budget=MUCH)["q"][0] == 1


def test_prices_are_told_as_they_are_stored(con):
    con.execute("CREATE TABLE p AS SELECT (i % 3 + 18) + 0.99 AS d FROM range(900) t (i)")
    con.execute("CREATE TABLE q AS SELECT d::DOUBLE AS d, 2459000 + d::DOUBLE / 50 AS day FROM p")
    bounds = {"d": dpsql.Domain.number(0, 10**5), "day": dpsql.Domain.number(2459000, 2459001)}
    sql = "SELECT QUANTILE_DISC(d, 0.5) AS q, QUANTILE_DISC(day, 0.5) AS at FROM q"
    for schema in ({}, {"q": bounds}):
        (found,) = dpsql.query(con, sql, budget=MUCH, schema=schema).to_dicts()
        assert found["q"] == 19.99
        # Between bounds that are so near, single precision would leave a few values.
        assert (found["at"] == 2459000 + 19.99 / 50) == bool(schema)
        assert abs(found["at"] - 2459000.4) < 0.15


@pytest.mark.parametrize(
    "value", ["'infinity'::DATE", "'-infinity'::TIMESTAMP", "'290309-12-22 (BC)'::DATE"]
)
def test_no_row_makes_a_statement_fail(con, value):
    con.execute(f"CREATE TABLE odd AS SELECT {value} AS x FROM range(50)").fetchall()
    sql = "SELECT QUANTILE_DISC(x, 0.5) AS q FROM odd"
    assert dpsql.query(con, sql, budget=MUCH)["q"].len() == 1


# ── Declared columns ─────────────────────────────────────────────────────────────────────────────


def test_quantiles_of_few_declared_values_are_planned_as_before(con):
    schema = {"f": {"delay": dpsql.Domain.integers(-60, 1000)}}
    release = dpsql.query(con, [MEDIAN], budget=BUDGET, schema=schema)
    assert not release.facts.drawn
    assert release["query_1"]["q_lower"][0] is not None


@pytest.mark.parametrize("sql", [MEDIAN, "SELECT QUANTILE_DISC(delay, 0.3) AS q FROM f"])
@pytest.mark.parametrize("size", [1000, 10**5, 5 * 10**7])
def test_those_of_many_declared_values_are_drawn(con, sql, size):
    schema = {"f": {"delay": dpsql.Domain.integers(-60, size)}}
    release = dpsql.query(con, [sql], budget=MUCH, schema=schema)
    assert bool(release.facts.drawn) == (size > 2500)
    check_drawn(con, sql, release["query_1"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT QUANTILE_DISC(i, 0.31) AS q FROM f WHERE i BETWEEN 0 AND 5000",
        "SELECT QUANTILE_DISC(i, 0.31) AS q FROM f WHERE i BETWEEN 0 AND 5000 AND car = 'a'",
        "SELECT QUANTILE_DISC(i % 3000, 0.31) AS q FROM f WHERE word = 'x3'",
        "SELECT QUANTILE_DISC(d, 0.31) AS q FROM (SELECT DATE '2000-01-01' + i::INTEGER AS d "
        "FROM f WHERE i BETWEEN 0 AND 5000)",
    ],
)
def test_those_of_many_values_that_conditions_tell_are_drawn(con, sql):
    """Keys stand in the place of the value then, of which nobody reads anything in the rows."""
    release = session(con).release(sql, budget=MUCH)
    assert release.facts.drawn
    check_drawn(con, sql, release["query"])


def test_drawn_quantiles_may_be_asked_for(con):
    schema = {"f": {"delay": dpsql.Domain.integers(-60, 1000)}}
    given = {"budget": MUCH, "schema": schema, "quantiles": dpsql.Quantiles(always=True)}
    release = dpsql.query(con, [MEDIAN], **given)
    assert len(release.facts.drawn) == 1
    assert release["query_1"]["q"][0] == con.sql(MEDIAN).fetchall()[0][0]
    assert release["query_1"]["q_lower"][0] is None


def test_values_outside_of_a_domain_are_left_out(con):
    sql = "SELECT QUANTILE_DISC(delay, 0.5) AS q FROM f"
    of = "SELECT QUANTILE_DISC(delay, 0.5) AS q FROM f WHERE delay BETWEEN 0 AND 90000"
    for outside in ("drop", "null"):
        domain = dpsql.Domain.integers(0, 90000, outside=outside, nullable=outside == "null")
        found = dpsql.query(con, sql, budget=MUCH, schema={"f": {"delay": domain}})
        assert found["q"][0] == con.sql(of).fetchall()[0][0]


EXTREMES = [
    "SELECT MAX(delay) AS q FROM f",
    "SELECT MIN(price) AS q FROM f",
    "SELECT car, MAX(day) AS q FROM f GROUP BY car ORDER BY car",
    "SELECT MIN(f.at) AS q FROM f WHERE word = 'x3'",
    "SELECT car, MAX(delay) FILTER (WHERE price > 3) - 1 AS q FROM f GROUP BY car ORDER BY car",
    "SELECT strftime(MAX(day), '%Y') AS q FROM f",
    "SELECT MAX(q) AS q FROM (SELECT person, SUM(delay) AS q FROM f GROUP BY person)",
]


@pytest.mark.parametrize("sql", EXTREMES)
def test_the_least_and_the_largest_value_are_drawn(con, sql):
    asked = dpsql.Session(con, schema=SCHEMA, unit="person", max_rows=20)
    found = asked.query(sql, budget=dpsql.Budget(rho=10**9))["q"]
    exact = con.sql(sql).pl()["q"].cast(found.dtype)
    assert found.to_list() == exact.to_list()


@pytest.mark.parametrize("end", [0, 1])
def test_they_are_as_far_from_the_end_as_is_said(con, end):
    """Not beyond all rows, but so many rows from the last of them that chance can't decide."""
    release = session(con).release(
        f"SELECT {['MIN', 'MAX'][end]}(price) AS q FROM f", budget=BUDGET
    )
    (one,) = release.facts.drawn
    (beyond,) = con.execute(
        f"SELECT COUNT(*) FROM f WHERE price {'<>'[end]} {release['query']['q'][0]}"
    ).fetchall()[0]
    said = quantiles.rows_missed(one)
    assert said / 2 < beyond < 2 * said
    assert f"about {said:.2g} rows off, if a group has more than some" in release.summary()


def test_of_few_rows_they_are_not_told(con):
    sql = "SELECT car, MIN(delay) AS q FROM f WHERE price < 1.01 GROUP BY car"
    found = session(con).query(sql, budget=BUDGET)
    assert found["q"].null_count() == 3
    assert found["q_lower"].to_list() == [-(2**63)] * 3


@pytest.mark.parametrize("p", ["0.25", "0.5", "0.75"])
def test_a_quantile_is_the_value_of_a_row_where_a_whole_number_of_rows_is_below(con, p):
    con.execute("CREATE TABLE gaps AS SELECT 1000 * range AS x FROM range(400)").fetchall()
    sql = f"SELECT QUANTILE_DISC(x, {p}) AS q FROM gaps"
    found = dpsql.query(con, sql, budget=MUCH)["q"][0]
    assert found == con.sql(sql).fetchall()[0][0]


# ── What is charged ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", [None, dpsql.Quantiles(0.3)])
@pytest.mark.parametrize("beside", ["", ", COUNT(*) AS n"])
def test_parts_of_the_budget_add_up_to_it(con, given, beside):
    asked = session(con)
    budget = dpsql.Budget(rho=0.02)
    asked_for = f"MEDIAN(delay) AS q, QUANTILE_DISC(price, 0.9) AS p{beside}"
    sql = f"SELECT car, {asked_for} FROM f GROUP BY car"
    release = asked.release(sql, budget=budget, quantiles=given)
    assert charged(asked) == Fraction(2, 100)
    share = Fraction(3, 10) if given else Fraction(1, 2) if beside else Fraction(9, 10)
    assert [one.charge.mu_squared / 2 for one in release.facts.drawn] == 2 * [share / 100]
    for one in release.facts.drawn:
        cost = quantiles.selection_cost(one.epsilon)
        assert one.charge.mu_squared * Fraction(999, 1000) < cost <= one.charge.mu_squared


def test_rows_of_units_are_paid_for_together(con):
    asked = dpsql.Session(con, unit="person", max_rows=20)
    (one,) = asked.release(MEDIAN, budget=BUDGET).facts.drawn
    cost = 400 * quantiles.selection_cost(one.epsilon)
    assert one.charge.mu_squared * Fraction(999, 1000) < cost <= one.charge.mu_squared


def test_pure_budgets_are_divided(con):
    asked = session(con)
    release = asked.release(MEDIAN, budget=dpsql.Budget(epsilon=1, delta=0), mechanism="laplace")
    (one,) = release.facts.drawn
    assert one.epsilon == Fraction(9, 10)
    assert release.facts.laplace
    amounts = [dpsql.Budget(epsilon=of, delta=0).mu_squared for of in (0.9, 0.1)]
    assert [entry.mu_squared for entry in asked.ledger.entries()] == amounts


@pytest.mark.parametrize("most", [1, 5, 20])
@pytest.mark.parametrize("epsilon", [0.1, 20, 100, 500])
def test_large_pure_budgets_pay_for_units(con, most, epsilon):
    """The μ² of a pure ε grows more slowly than ε²."""
    asked = dpsql.Session(con, schema=SCHEMA, unit="person", max_rows=most)
    sql = "SELECT car, MEDIAN(delay) AS q FROM f GROUP BY car"
    budget = dpsql.Budget(epsilon=epsilon, delta=0)
    (one,) = asked.release(sql, budget=budget, mechanism="laplace").facts.drawn
    assert one.epsilon * most <= Fraction(str(epsilon)) * Fraction(9, 10)


def test_statements_are_compiled_once_before_a_draw_and_once_after(con):
    with patch.object(declaring, "compile_script", wraps=declaring.compile_script) as compiled:
        session(con).query(MEDIAN, budget=MUCH)
    assert compiled.call_count == 2


def test_the_same_is_drawn_once(con):
    asked = session(con)
    sql = "SELECT car, MEDIAN(delay) AS q FROM f GROUP BY car"
    first = asked.query(sql, budget=dpsql.Budget(rho=0.02))
    before = charged(asked)
    assert asked.query(sql, budget=0)["q"].to_list() == first["q"].to_list()
    assert (
        asked.query(sql.replace("MEDIAN(delay)", "QUANTILE_CONT(delay, 0.5)"), budget=0)[
            "q"
        ].to_list()
        == first["q"].to_list()
    )
    assert charged(asked) == before
    more = asked.release(sql, budget=dpsql.Budget(rho=0.02))
    assert more["query"]["q"].to_list() == first["q"].to_list()
    assert charged(asked) == before + Fraction(2, 100)  # all of it for the numbers of rows
    asked.query(sql, budget=dpsql.Budget(rho=0.02), reuse=False)
    assert len({one.request for one in asked.ledger.entries()}) == 5


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT QUANTILE_DISC(delay, 0.4) AS q FROM f",
        "SELECT MEDIAN(delay + 0) AS q FROM f",
        "SELECT car, MEDIAN(delay) AS q FROM f GROUP BY car",
        "SELECT MEDIAN(delay) AS q FROM f WHERE price > 2",
        "SELECT MEDIAN(price) AS q FROM f",
    ],
)
def test_another_question_is_not_free(con, sql):
    asked = session(con)
    asked.query(MEDIAN, budget=dpsql.Budget(rho=0.02))
    with pytest.raises(dpsql.UndeterminedError, match="wasn't drawn before"):
        asked.query(sql, budget=0)


def test_another_cut_is_another_question(con):
    """Conditions on a column without a domain are told by cells of a line, whose numbers repeat."""
    asked = session(con)
    asked.query("SELECT MEDIAN(delay) AS q FROM f WHERE price > 20", budget=BUDGET)
    for other in ("price > 90", "price < 20", "price >= 20.5"):
        with pytest.raises(dpsql.UndeterminedError):
            asked.query(f"SELECT MEDIAN(delay) AS q FROM f WHERE {other}", budget=0)


def test_the_same_quantile_is_free_in_other_scripts(con):
    """Whatever cells the statements beside it tell apart."""
    schema = {
        "f": {"car": dpsql.Domain.labels(["a", "b", "c"]), "i": dpsql.Domain.integers(0, 5999)}
    }
    asked = dpsql.Session(con, schema=schema)
    sql = "SELECT MEDIAN(delay) AS q FROM f WHERE i < 3000"
    beside = "SELECT car, COUNT(*) AS n FROM f WHERE i BETWEEN 1000 AND 4500 GROUP BY car"
    first = asked.release({"one": sql, "two": beside}, budget=BUDGET)
    assert asked.query(sql, budget=0)["q"].to_list() == first["one"]["q"].to_list()
    again = asked.release({"two": beside, "one": sql}, budget=0)
    assert again["one"]["q"].to_list() == first["one"]["q"].to_list()


def test_rows_that_changed_are_asked_anew(con, tmp_path):
    file = tmp_path / "rows.duckdb"
    with duckdb.connect(str(file)) as own:
        own.execute("CREATE TABLE t AS SELECT i AS x FROM range(1000) t (i)").fetchall()
        one = dpsql.Session(own, vintage="1", budget=dpsql.Budget(rho=1))
        one.query("SELECT MEDIAN(x) AS q FROM t", budget=dpsql.Budget(rho=0.1))
        one.close()
        same = dpsql.Session(own, vintage="1")
        assert same.query("SELECT MEDIAN(x) AS q FROM t", budget=0).height == 1
        same.close()
        other = dpsql.Session(own, vintage="2")
        with pytest.raises(dpsql.UndeterminedError):
            other.query("SELECT MEDIAN(x) AS q FROM t", budget=0)
        other.close()


REFUSED = {
    "targets": ({"targets": {"query": 5.0}}, dpsql.BudgetError, "part of a budget"),
    "no rule": ({"budget": BUDGET, "quantiles": 0.5}, dpsql.ArgumentError, "dpsql.Quantiles"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cant_be_meant_is_refused_before_the_charge(con, name):
    given, error, said = REFUSED[name]
    asked = session(con, budget=dpsql.Budget(rho=1))
    with pytest.raises(error, match=said):
        asked.release(MEDIAN, **given)
    assert not charged(asked)


@pytest.mark.parametrize("name", ["keys", "bounds", "quantiles"])
@pytest.mark.parametrize("given", [True, 0.5, "half"])
def test_rules_are_refused_wherever_they_are_no_rules(con, name, given):
    sql = "SELECT word, SUM(delay) AS s FROM f GROUP BY word"
    for ask in (dpsql.query, dpsql.plan):
        with pytest.raises(dpsql.ArgumentError, match=f"{name} is a dpsql.{name.capitalize()}"):
            ask(con, sql, budget=BUDGET, **{name: given})


@pytest.mark.parametrize("share", [0, 1, -0.1, 2, True, "x", float("nan")])
def test_shares_are_parts(share):
    with pytest.raises(dpsql.ArgumentError):
        dpsql.Quantiles(share)


def test_all_is_refused_together_before_anything_is_drawn(con):
    asked = session(con)
    with pytest.raises(dpsql.SchemaError):
        asked.query("SELECT MEDIAN(delay) AS q, SUM(price) AS s FROM f", budget=BUDGET)
    poor = session(duckdb_copy(con), budget=dpsql.Budget(rho=0.001))
    with pytest.raises(dpsql.BudgetError):
        poor.query(MEDIAN, budget=BUDGET)
    assert not charged(asked)
    assert not charged(poor)


def duckdb_copy(con):
    other = duckdb.connect()
    rows = con.sql("FROM f").pl()  # noqa: F841, DuckDB reads it by its name
    other.execute("CREATE TABLE f AS FROM rows").fetchall()
    return other


REPEATED = {
    "a public join": "SELECT MEDIAN(f.delay) AS q FROM f JOIN tags ON f.car = tags.car",
    "rows twice": "SELECT MEDIAN(d) AS q FROM "
    "(SELECT delay AS d FROM f UNION ALL SELECT delay FROM f)",
}


@pytest.mark.parametrize("name", REPEATED)
def test_rows_that_are_several_are_refused(con, name):
    con.execute("CREATE TABLE tags (car VARCHAR, tag INTEGER)").fetchall()
    con.execute("INSERT INTO tags VALUES ('a', 1), ('a', 2), ('b', 3)").fetchall()
    asked = session(con, public=["tags"])
    with pytest.raises(dpsql.DpsqlError) as refused:
        asked.query(REPEATED[name], budget=BUDGET)
    assert refused.value.hint
    assert not charged(asked)


@pytest.mark.parametrize("type_", ["DECIMAL(38, 30)", "DECIMAL(38, 18)", "DECIMAL(25, 7)"])
def test_decimals_of_too_many_digits_are_refused_beforehand(con, type_):
    con.execute(
        f"CREATE TABLE fine AS SELECT (i / 10)::{type_} AS z FROM range(90) t(i)"
    ).fetchall()
    for ask in (session(con).plan, session(con).query):
        with pytest.raises(dpsql.SchemaError):
            ask("SELECT MEDIAN(z) AS q FROM fine", budget=BUDGET)


def test_wide_decimals_keep_their_digits_before_the_point(con):
    con.execute("CREATE TABLE wide AS SELECT (i * 10**9)::DECIMAL(38, 6) AS z FROM range(9) t(i)")
    sql = "SELECT QUANTILE_DISC(z, 0.5) AS q FROM wide"
    assert dpsql.query(con, sql, budget=MUCH)["q"][0] == 4 * 10**9


@pytest.mark.parametrize("p", ["2e-36", "1e-300", "0.3333333333333333", "0.1234567890123456"])
@pytest.mark.parametrize("rows", [340, 341, 342])
def test_no_number_of_rows_makes_a_draw_fail(con, p, rows):
    """Where a database multiplied by a large denominator, one row more could have been too many."""
    con.execute(f"CREATE TABLE n AS SELECT i AS x FROM range({rows}) t (i)").fetchall()
    sql = f"SELECT QUANTILE_DISC(x, {p}) AS q FROM n"
    assert dpsql.query(con, sql, budget=BUDGET).height == 1


MOVED = {
    "hours": ("at", dpsql.Domain.dates("2021-01-01", "2023-12-31", grain="hour", nullable=True)),
    "steps": ("price", dpsql.Domain.decimals("0", "200", step="0.5", nullable=True)),
    "bins": ("price", dpsql.Domain.bins([0, 50, 100, 200], nullable=True)),
}


@pytest.mark.parametrize("name", MOVED)
def test_values_that_count_as_others_of_a_domain_are_not_drawn(con, name):
    """SQL sees the nearest ones: a draw among those that are stored would be of others."""
    column, domain = MOVED[name]
    given = {"budget": BUDGET, "schema": {"f": {column: domain}}}
    given["quantiles"] = dpsql.Quantiles(always=True)
    sql = f"SELECT QUANTILE_DISC(f.{column}, 0.5) AS q FROM f"
    try:
        release = dpsql.query(con, [sql], **given)
    except dpsql.ResourceLimitError:
        assert domain.size > 2500
    else:
        assert not release.facts.drawn


# ── What plans and releases say ──────────────────────────────────────────────────────────────────


def test_plans_say_how_far_off_it_will_be(con):
    asked = session(con)
    for plan in (
        asked.plan(MEDIAN, budget=BUDGET),
        dpsql.plan(con, MEDIAN, budget=BUDGET, schema=SCHEMA),
    ):
        (note,) = (note for note in plan.notes if "drawn" in note)
        assert re.search(r"about 3\.\d rows off, if a group has more than some \d+ rows", note)
        assert plan.budget.mu_squared == BUDGET.mu_squared / 10
    assert not charged(asked)


def test_what_plans_say_is_what_releases_say(con):
    asked = session(con)
    (note,) = (n for n in asked.plan(MEDIAN, budget=BUDGET).notes if "drawn" in n)
    release = asked.release(MEDIAN, budget=BUDGET)
    (one,) = release.facts.drawn
    said = f"about {quantiles.rows_missed(one):.2g} rows off"
    assert said in note
    assert said in release.summary()
    assert release.summary().count("quantiles drawn") == 1


def test_releases_say_what_they_cost_in_all(con, tmp_path):
    asked = session(con)
    release = asked.release(MEDIAN, budget=dpsql.Budget(rho=0.5))
    (line,) = (line for line in release.summary().splitlines() if " in all " in line)
    said = re.search(r"ρ = ([\d.]+); μ = ", line)[1]
    assert 0 <= float(said) - float(asked.ledger.spent / 2) < 1e-6
    assert "(as asked)" not in release.summary()
    assert f"ρ = {said}; μ = " in release.report(tmp_path / "r.html").read_text("utf-8")
    sql, budget = "SELECT COUNT(*) AS n FROM f", dpsql.Budget(rho=0.1)
    alone = session(con).release(sql, budget=budget)
    assert "in all" not in alone.summary()
    assert "ρ = 0.1 (as asked)" in alone.summary()


def test_releases_are_saved_with_what_was_drawn(con, tmp_path):
    asked = session(con)
    sql = "SELECT car, MEDIAN(delay) AS q, COUNT(*) AS n FROM f GROUP BY car"
    release = asked.release({"cars": sql}, budget=BUDGET)
    release.save(tmp_path / "r")
    again = dpsql.Release.load(tmp_path / "r", ledger=asked.ledger)
    assert again["cars"].equals(release["cars"])
    assert again.facts.drawn == release.facts.drawn
    assert again.marks("cars").equals(release.marks("cars"))
    assert again.query(sql)["q"].to_list() == release["cars"]["q"].to_list()
    other = "SELECT car, MEDIAN(delay) - 1 AS q FROM f GROUP BY car"
    assert again.query(other)["q"].to_list() == [q - 1 for q in release["cars"]["q"]]
    for unknown in ("SELECT MEDIAN(delay) AS q FROM f", sql.replace("delay", "price")):
        with pytest.raises(dpsql.UndeterminedError):
            again.query(unknown)


def forge(path, field, value):
    """Write another value of what a folder says of a quantile, with its checksum."""
    file = path / "release.json"
    document = json.loads(file.read_text())
    del document["sha256"]
    document["drawn_quantiles"][0][field] = value
    file.write_text(folder.as_json({**document, "sha256": folder._digest(document)}))


FORGED = {
    "places": [7], "epsilon": "1/7", "name": "x", "probability": "1/3", "high": 9, "label": "AVG",
    "at": [["other", 0, 0, 0]], "path": ["x"], "type": "BLOB", "low": -(10**40),
}  # fmt: skip
IMPOSSIBLE = {"places": [10**40], "epsilon": "0/1", "probability": "7/2", "label": "a\nb"}


@pytest.mark.parametrize("field", IMPOSSIBLE)
def test_what_cant_have_been_drawn_is_refused(con, tmp_path, field):
    session(con).release(MEDIAN, budget=BUDGET).save(tmp_path / "r")
    forge(tmp_path / "r", field, IMPOSSIBLE[field])
    with pytest.raises(dpsql.ReleaseFormatError):
        dpsql.Release.load(tmp_path / "r")


@pytest.mark.parametrize("field", FORGED)
def test_what_a_folder_says_of_draws_is_what_the_ledger_has(con, tmp_path, field):
    asked = session(con)
    asked.release(MEDIAN, budget=BUDGET).save(tmp_path / "r")
    forge(tmp_path / "r", field, FORGED[field])
    with pytest.raises((dpsql.LedgerError, dpsql.ReleaseFormatError)):
        dpsql.Release.load(tmp_path / "r", ledger=asked.ledger)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT car, QUANTILE_DISC(delay, 0.9) AS q FROM f GROUP BY car",
        "SELECT car, MEDIAN(delay) FILTER (WHERE car <> 'a') AS q FROM f GROUP BY car",
        "SELECT car, MEDIAN(delay) AS q FROM f WHERE price > 2 GROUP BY car",
        "SELECT car, MEDIAN(i) AS q FROM f GROUP BY car",
    ],
)
def test_a_release_answers_no_other_quantile_at_the_same_place(con, sql):
    """Its own statement has the name by which others are asked."""
    own = "SELECT car, MEDIAN(delay) AS q FROM f GROUP BY car"
    release = session(con).release(own, budget=BUDGET)
    with pytest.raises(dpsql.UndeterminedError):
        release.query(sql)
    assert release.query(own)["q"].to_list() == release["query"]["q"].to_list()


def test_groups_in_another_order_are_no_others(con):
    domains = {"car": dpsql.Domain.labels(["a", "b", "c"]), "small": dpsql.Domain.integers(0, 49)}
    asked = dpsql.Session(con, schema={"f": domains})
    sql = "SELECT car, small % 2 AS odd, MEDIAN(i) AS q FROM f GROUP BY car, odd"
    release = asked.release(sql, budget=MUCH)
    with pytest.raises(dpsql.UndeterminedError):
        release.query("SELECT small % 2 AS odd, car, MEDIAN(i) AS q FROM f GROUP BY odd, car")


def test_a_release_tells_no_more_than_it_was_charged(con):
    asked = session(con)
    release = asked.release(MEDIAN, budget=dpsql.Budget(rho=0.02))
    rested = sum(one.mu_squared for one in release.facts.charges_before)
    assert (rested + release.facts.receipt.mu_squared) / 2 == Fraction(2, 100)


def test_few_rows_have_no_quantile(con):
    sql = "SELECT MEDIAN(delay) AS q, COUNT(*) AS n FROM f WHERE price < 1.01"
    release = session(con).release(sql, budget=dpsql.Budget(rho=0.001))
    assert release["query"]["q"].to_list() == [None]
    assert release.marks("query")["q"].to_list() == ["noise"]
    assert release["query"]["q_lower"][0] == -(2.0**63)


# ── What goes wrong ──────────────────────────────────────────────────────────────────────────────


def failing(*_):
    raise RuntimeError("a row says 'secret'")


def test_a_failure_tells_nothing_and_pays_for_the_next(con):
    asked = session(con, budget=dpsql.Budget(rho=0.04))
    budget = dpsql.Budget(rho=0.02)
    with patch.object(DuckDBRanking, "run", failing), pytest.raises(dpsql.ExecutionError) as told:
        asked.query(MEDIAN, budget=budget)
    assert "secret" not in str(told.value)
    assert told.value.__context__ is None
    spent = charged(asked)
    assert spent == Fraction(18, 1000)
    assert asked.query(MEDIAN, budget=budget).height == 1
    assert charged(asked) == Fraction(2, 100)


def test_a_failure_of_one_of_several_pays_for_the_next(con):
    asked, budget, runs = session(con), dpsql.Budget(rho=0.02), []
    sql = "SELECT MEDIAN(delay) AS q, QUANTILE_DISC(price, 0.9) AS p FROM f"

    def second(self, window):
        runs.append(window)
        return failing() if len(runs) == 2 else run(self, window)

    run = DuckDBRanking.run
    with patch.object(DuckDBRanking, "run", second), pytest.raises(dpsql.ExecutionError):
        asked.query(sql, budget=budget)
    assert charged(asked) == Fraction(18, 1000)
    asked.query(sql, budget=budget)
    assert charged(asked) == Fraction(18, 1000) + Fraction(11, 1000)  # what it took for known parts


def test_a_failure_after_noise_is_not_free(con):
    asked = session(con, budget=dpsql.Budget(rho=0.02))
    with patch.object(drawing.KeptQuantiles, "of", failing), pytest.raises(dpsql.ExecutionError):
        asked.query(MEDIAN, budget=dpsql.Budget(rho=0.01))
    asked.query(MEDIAN, budget=dpsql.Budget(rho=0.01))
    assert charged(asked) == Fraction(19, 1000)


def test_a_call_that_died_between_is_paid_once(con):
    asked = session(con)
    from dpsql.session import answer as answering

    with patch.object(answering, "_charge", failing), pytest.raises(RuntimeError):
        asked.query(MEDIAN, budget=dpsql.Budget(rho=0.02))
    assert charged(asked) == Fraction(18, 1000)
    asked.release(MEDIAN, budget=dpsql.Budget(rho=0.002))
    assert charged(asked) == Fraction(2, 100)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_stays_one_and_says_nothing(con, kind):
    def run(*_):
        raise kind("secret")

    asked = session(con)
    with patch.object(DuckDBRanking, "run", run), pytest.raises(kind) as told:
        asked.query(MEDIAN, budget=BUDGET)
    assert "secret" not in str(told.value)


def test_neighbours_are_as_near_as_is_charged(con):
    """One unit's rows change the scores of all draws within what was paid for."""
    seen = []

    def noted(charged, ranking, *_):
        found = ranking.run([charged.certified.window])
        seen.append((charged.certified, found))
        return [[0] * charged.certified.groups]

    sql = "SELECT car, MEDIAN(delay) AS q FROM f GROUP BY ROLLUP (car)"
    for without in (None, 7):
        other = duckdb_copy(con)
        other.execute("DELETE FROM f WHERE person = ?", [without]).fetchall()
        asked = dpsql.Session(other, schema=SCHEMA, unit="person", max_rows=4)
        with patch.object(drawing, "draw_quantiles", noted):
            asked.query(sql, budget=BUDGET)
    assert len(seen) == 4
    for (plan, before), (_, after) in zip(seen[:2], seen[2:], strict=True):
        ranges = [
            widest(*(quantiles.stretches(plan, of, by_group(of)(group)) for of in (before, after)))
            for group in range(plan.groups)
        ]
        assert 0 < sum(ranges) <= 4 * quantiles.score_range(plan.probability)


def widest(one, other):
    """Within which range two scores differ, along a line."""

    def at(line, place):
        each = zip(line.first, line.lengths, line.scores, strict=True)
        return next(score for first, length, score in each if first <= place < first + length)

    cut = (zip(line.first, line.lengths, strict=True) for line in (one, other))
    begun = {first for each in cut for first, length in each if length}
    apart = [at(other, place) - at(one, place) for place in begun]
    return max(apart) - min(apart)


def test_draws_are_exact_draws(con):
    """The same words of random bits draw the same, whatever cells statements have in common."""
    asked, found = session(con), []
    with patch.object(quantiles, "fresh_bits", lambda: SeededBits(4)):
        for sql in (
            MEDIAN,
            "SELECT MEDIAN(delay) AS q, COUNT(*) FILTER (WHERE car = 'a') AS n FROM f",
        ):
            found += asked.query(sql, budget=dpsql.Budget(rho=10), reuse=False)["q"].to_list()
    assert found[0] == pytest.approx(found[1], abs=3)


def test_what_is_determined_by_the_days_of_times_is_drawn():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE v AS SELECT TIMESTAMP '2010-01-01 03:00' + to_days((i * 37 % 2000)::INT) AS a,
            CASE WHEN i % 7 > 0 THEN a + to_hours((i % 300)::INT) END AS b FROM range(501) t (i)
    """).fetchall()
    days = dpsql.Domain.dates("2010-01-01", "2017-12-31", nullable=True)
    session = dpsql.Session(con, schema={"v": {"a": days, "b": days}})
    sql = (
        "SELECT QUANTILE_DISC(date_diff('day', a, b), 0.5) AS q, MAX(b::DATE - a::DATE) AS m FROM v"
    )
    assert session.query(sql, budget=MUCH)["q", "m"].row(0) == con.execute(sql).fetchone()
    with pytest.raises(dpsql.SqlError, match="known by its day only"):
        session.query("SELECT MEDIAN(a + to_days(3)) FROM v", budget=MUCH)
