"""Units whose rows are spread out: no more than a limit agree in some columns."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema.document import write_toml
from dpsql.schema.stored import table_from_json, table_to_json
from tests.helpers.described import describe_table
from tests.helpers.inserted import insert
from tests.helpers.redrawn import Redrawn
from tests.release.test_private_joins import HUGE, TABLES, shop, units
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
FLIGHTS = """
    CREATE TABLE flights (
        plane INTEGER, month INTEGER CHECK (month BETWEEN 1 AND 6),
        carrier VARCHAR CHECK (carrier IN ('a', 'b', 'c')),
        delay INTEGER CHECK (delay BETWEEN 0 AND 50)
    )
"""
BY_MONTH = "SELECT month, COUNT(*) AS n FROM flights GROUP BY month"
BOTH = "SELECT month, carrier, COUNT(*) AS n, SUM(delay) AS d FROM flights GROUP BY ALL"
SCRIPTS = (
    {"a": BY_MONTH},
    {"a": BOTH},
    {"a": BY_MONTH, "b": "SELECT carrier, AVG(delay) AS d FROM flights GROUP BY 1"},
    {"a": "SELECT COUNT(*) AS n FROM flights", "b": BOTH},
    {"a": "SELECT month <= 3 AS early, COUNT(*) AS n FROM flights GROUP BY 1"},
    {"a": "SELECT carrier, SUM(delay) AS d FROM flights WHERE month > 2 GROUP BY 1", "b": BY_MONTH},
    {"a": "SELECT COUNT(*) AS n FROM flights WHERE month = 3"},
    {"a": "SELECT COUNT(*) FILTER (WHERE month IN (2, 5)) AS n, "
          "SUM(delay) FILTER (WHERE month = 1) AS d FROM flights"},
    {"a": "SELECT carrier, SUM(CASE WHEN month = 3 THEN delay END) AS d FROM flights GROUP BY 1",
     "b": "SELECT COUNT(*) AS n FROM flights WHERE month < 3 AND carrier = 'a'"},
    {"a": "SELECT COUNT(*) AS n FROM flights WHERE month = 3",
     "b": "SELECT COUNT(*) AS n FROM flights"},
    {"a": "SELECT month, carrier, COUNT(*) AS n FROM flights GROUP BY CUBE (month, carrier)"},
    {"a": "SELECT month, SUM(COUNT(*)) OVER (ORDER BY month) AS n FROM flights GROUP BY month",
     "b": "SELECT carrier, COUNT(*) AS n FROM flights WHERE month > 3 GROUP BY carrier"},
)  # fmt: skip
LIMITS = (
    {"month": 1},
    {"month": 3},
    {"month, carrier": 1},
    {"month": 3, "carrier, month": 2},
    {"carrier": 5},
)


def fill(con, seed, without=None):
    """Give some planes few flights, and others many, often in one month."""
    rng, rows = random.Random(seed), []  # noqa: S311
    for plane in [*range(8), None]:
        usual = rng.randint(1, 6)
        own = [
            (
                plane,
                rng.choice([usual, usual, usual, rng.randint(1, 6), None]),
                rng.choice(["a", "a", "b", "c", None]),
                rng.choice([0, 7, 50, 50, None]),
            )
            for _ in range(rng.choice([1, 4, 15, 40]))
        ]
        rows += [] if plane == without and plane is not None else own
    con.execute("DELETE FROM flights")
    insert(con, "flights", rows)


def session(con, per, rows=12, **how):
    return dpsql.Session(con, unit=dpsql.Unit("plane", rows, max_rows_per=per), **how)


def session_schema(per, rows=12):
    return dpsql.Schema({}, units={"flights": dpsql.Unit("plane", rows, max_rows_per=per)})


def flights(seed=1):
    con = duckdb.connect()
    con.execute(FLIGHTS)
    fill(con, seed)
    return con


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mechanism", ["querysmasher", "gaussian", "laplace"])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_unit_changes_what_it_costs_at_most(script, limits, mechanism):
    con = duckdb.connect()
    con.execute(FLIGHTS)
    unit = dpsql.Unit("plane", 12, max_rows_per=limits)
    asked = {"script": script, "schema": dpsql.Schema({}, units={"flights": unit})}
    budget = dpsql.Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    for gone in range(2):
        fill(con, gone)
        whole = recorded(con, asked, budget=budget, mechanism=mechanism)
        fill(con, gone, without=gone)
        fewer = recorded(con, asked, budget=budget, mechanism=mechanism)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)
        # Of a month alone some have no rows.
        assert spent(whole, fewer) > 0 or script in SCRIPTS[6:]


ONE_MONTH = {
    "WHERE": "SELECT COUNT(*) AS n FROM flights WHERE month = 3",
    "IN": "SELECT COUNT(*) AS n FROM flights WHERE month IN (3)",
    "FILTER": "SELECT COUNT(*) FILTER (WHERE month = 3) AS n FROM flights",
    "COUNT_IF": "SELECT COUNT_IF(month = 3) AS n FROM flights",
    "CASE": "SELECT SUM(CASE WHEN month = 3 THEN 1 ELSE 0 END) AS n FROM flights",
    "arithmetic": "SELECT COUNT(*) AS n FROM flights WHERE month * 2 - 1 = 5",
    "BETWEEN": "SELECT COUNT(*) AS n FROM flights WHERE month > 2 AND month < 4",
}


@pytest.mark.parametrize("sql", ONE_MONTH.values(), ids=ONE_MONTH)
def test_one_value_costs_what_a_unit_may_have_of_it(sql):
    """Not what it may have in all, however the value is told: 4 rows of 12, and no group more."""
    con = flights()
    asked = {"script": {"a": sql}, "schema": session_schema({"month": 4})}
    whole = recorded(con, asked, budget=BUDGET)
    plan = session(con, {"month": 4}).plan({"a": sql}, budget=BUDGET)
    assert plan.rmse**2 == pytest.approx(4**2, rel=1e-6)
    con.execute("DELETE FROM flights WHERE plane = 0")
    fewer = recorded(con, asked, budget=BUDGET)
    con.execute("INSERT INTO flights SELECT 0, 1 + i % 6, 'a', 50 FROM range(60) r(i)")
    more = recorded(con, asked, budget=BUDGET)
    for one, other in ((whole, fewer), (fewer, more), (more, fewer)):
        assert spent(one, other) <= charged(one)
    # Ten rows in each month, of which four are kept before twelve of all are: two in each.
    con.execute("DELETE FROM flights WHERE plane = 0 AND month <> 3")
    assert spent(recorded(con, asked, budget=BUDGET), fewer) == pytest.approx(charged(fewer))


def test_with_laplace_noise_too_one_value_costs_what_a_unit_may_have_of_it():
    """By sums of magnitudes: no less for counts by month, to which a unit may add all its rows."""
    con, sql = flights(), ONE_MONTH["WHERE"]
    how = {"budget": dpsql.Budget(epsilon=1, delta=0), "mechanism": "laplace"}
    asked = {"script": {"a": sql}, "schema": session_schema({"month": 4})}
    limited, free = session(con, {"month": 4}), session(con, {})
    assert limited.plan({"a": sql}, **how).rmse == pytest.approx(4 * 2**0.5, rel=1e-3)
    plain = free.plan({"a": BY_MONTH}, **how).rmse
    assert limited.plan({"a": BY_MONTH}, **how).rmse == pytest.approx(plain)
    con.execute("DELETE FROM flights WHERE plane = 0")
    fewer = recorded(con, asked, **how)
    con.execute("INSERT INTO flights SELECT 0, 3, 'a', 50 FROM range(60) r(i)")
    more = recorded(con, asked, **how)
    for one, other in ((fewer, more), (more, fewer)):
        assert spent(one, other) == pytest.approx(charged(one))


@pytest.mark.statistical
@pytest.mark.parametrize("limit", [1, 4])
def test_noise_is_what_is_charged_for_one_month_and_for_each(limit):
    """Drawn noise has the stated variance, and that is the least that the charge allows.

    One month costs what a unit may have of it; six and NULL have room for up to 12 rows of a unit,
    of which `limit` may be in one: the largest change is √(12·limit). Of 200 draws a variance is
    off by a half by chance in one of 10⁶ tests (five standard errors).
    """
    changes = {ONE_MONTH["WHERE"]: limit**2, BY_MONTH: min(12, 7 * limit) * limit}
    con, draws = flights(), 200
    for sql, change in changes.items():
        declared = {"unit": dpsql.Unit("plane", 12, max_rows_per={"month": limit})}
        redrawn = Redrawn.of(con, {"a": sql}, declared, budget=BUDGET)
        frames = [release["a"] for release in redrawn.draws(draws, seed=limit)]
        errors = np.array([frame["n"] for frame in frames]) - redrawn.exact()["a"]["n"].to_numpy()
        stated = frames[0]["n_variance"].to_numpy()
        assert float(BUDGET.mu_squared) * stated == pytest.approx(change, rel=0.1)
        assert np.abs(np.square(errors).mean(axis=0) / stated - 1).max() < 5 * (2 / draws) ** 0.5


def test_a_sum_to_which_no_row_adds_is_planned():
    """Nothing is measured for it, and nothing is shared among nothing."""
    con = flights()
    con.execute("ALTER TABLE flights ADD x DOUBLE")
    schema = dpsql.Schema(
        {"flights": {"x": dpsql.Domain.number(0, 1)}}, units=session_schema({"month": 4}).units
    )
    sql = "SELECT COUNT(*) AS n, SUM(x) FILTER (WHERE month = 2) AS s FROM flights "
    found = dpsql.query(con, sql + "WHERE month IS NULL", budget=BUDGET, schema=schema)
    assert found["s"].to_list() == [0]


def test_groups_by_months_share_what_a_unit_has():
    """The bound is that of all ways in which rows may lie, and a plan makes the best of it.

    `parts` of a script by months and carriers, and by months, are planned for one month each.
    """
    con = flights()
    script = {"a": "SELECT month, carrier, COUNT(*) AS n FROM flights GROUP BY ALL", "b": BY_MONTH}
    alike, apart = (
        session(con, per).plan(script, budget=BUDGET).rmse for per in ({}, {"month": 1})
    )
    alone = session(con, {}, rows=1).plan(script, budget=BUDGET).rmse
    assert apart < alike / 2.3
    assert apart <= alone * 12**0.5 * 1.001


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_so_does_one_with_rows_in_several_tables(seed):
    con = duckdb.connect()
    con.execute(TABLES)
    unit = dpsql.Unit("customer_id", 6, max_rows_per={"orders.status": 2})
    asked = {
        "script": {
            "a": "SELECT status, COUNT(*) AS n, SUM(price) AS p FROM orders GROUP BY 1",
            "b": "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1",
            "c": "SELECT c.region, status, COUNT(*) AS n FROM orders o JOIN customers c "
            "ON o.customer_id = c.id GROUP BY ALL",
        },
        "schema": dpsql.Schema({}, units={**units().units, "orders": unit}),
    }
    shop(con, seed, customers=12, apart=seed)
    whole = recorded(con, asked, budget=BUDGET)
    assert {(*s.attributes, s.share) for s in whole.certified.spreads} == {
        ("orders.status", Fraction(1, 3))
    }
    shop(con, seed, customers=12, apart=seed, without=seed)
    fewer = recorded(con, asked, budget=BUDGET)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)


def test_all_of_the_budget_is_used_and_errors_are_smaller():
    con = flights()
    plain = session(con, {}).plan({"a": BY_MONTH, "b": BOTH}, budget=BUDGET)
    apart = session(con, {"month": 2}).plan({"a": BY_MONTH, "b": BOTH}, budget=BUDGET)
    both = session(con, {"month": 2, "month, carrier": 1}).plan({"a": BOTH}, budget=BUDGET)
    assert apart.privacy_cost <= BUDGET.mu_squared < apart.privacy_cost * (1 + Fraction(1, 10**6))
    assert apart.rmse < plain.rmse * 0.7
    assert both.rmse < session(con, {"month": 2}).plan({"a": BOTH}, budget=BUDGET).rmse
    assert apart.gap > 0  # a loose bound, but one
    assert apart.avoidable < 1e-3


def test_no_mechanism_does_better_than_bounds_of_others():
    """Also of those that pay as if all rows of a unit agreed; others pay less for such spaces."""
    script = {"a": BY_MONTH, "b": "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY 1"}
    con, names = flights(), ["querysmasher", "residualplanner", "fourier", "hdmm", "gaussian"]
    found = session(con, {"month": 2}).compare(script, budget=BUDGET, mechanisms=names).frame
    assert found["lower_bound"].max() <= found["rmse"].min()
    plain = session(con, {}).compare(script, budget=BUDGET, mechanisms=names).frame
    cheaper = {"querysmasher", "querysmasher (uniform)", "residualplanner", "fourier"}
    for name, before in plain.select("mechanism", "rmse").iter_rows():
        (now,) = found.filter(found["mechanism"] == name)["rmse"]
        assert now < before * 0.8 if name in cheaper else now == pytest.approx(before)


def test_shares_of_the_budget_are_the_best_there_are():
    """√E_A·κ_A: as if errors were as much smaller, of which allocation is proved in its room."""
    con = flights()
    script = {"a": BY_MONTH, "b": "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY 1"}
    plan = session(con, {"month": 2}).plan(script, budget=BUDGET, residuals="uniform")
    slopes = []
    for block in plan.planned:
        cost = block.strategy.cost(plan.certified.spreads)
        slopes.append(block.error / float(cost))
    assert max(slopes) == pytest.approx(min(slopes), rel=1e-3)


def test_what_counts_cells_together_pays_for_what_may_lie_there():
    """Two months are one cell of it: twice as many of a unit's rows may lie in each of three.

    There are two of no month, where a count may be as exact for less: of z = 2/7, 2/7, 2/7 and 1/7
    of 12 rows, (3·√(2/7·1/3) + √(1/7·1/6))²·12² = 168 is the error of all four.
    """
    con = flights()
    sql = {"a": "SELECT (month - 1) // 2 AS pair, COUNT(*) AS n FROM flights GROUP BY 1"}
    plain, apart = (session(con, per).plan(sql, budget=BUDGET) for per in ({}, {"month": 2}))
    assert plain.rmse == pytest.approx(12)
    assert apart.rmse == pytest.approx((168 / 4) ** 0.5)


def test_answers_are_those_of_the_rows_that_are_kept():
    con = flights()
    found = session(con, {"month": 3}, rows=1000).query(BY_MONTH, budget=HUGE)
    true = con.sql(
        "SELECT month, SUM(LEAST(n, 3)) FROM (SELECT plane, month, COUNT(*) AS n FROM flights "
        "WHERE plane IS NOT NULL GROUP BY ALL) GROUP BY month"
    ).fetchall()
    assert {month: round(n) for month, n, _ in found.rows()} == {m: int(n) for m, n in true}


def test_other_limits_are_other_rows(tmp_path):
    """What was measured of rows that were kept in another way answers nothing."""
    con = flights()
    place = {"ledger": tmp_path / "kept.ledger", "vintage": "2026"}
    session(con, {"month": 3}, **place).query(BY_MONTH, budget=BUDGET)
    session(con, {"month": 3}, **place).query(BY_MONTH, budget=0)
    for per in ({}, {"month": 2}, {"month": 3, "carrier": 4}):
        with pytest.raises(StaleSchemaError):
            session(con, per, **place).query(BY_MONTH, budget=0)


@pytest.mark.parametrize("first", ["month, COUNT(*) AS n", "carrier, SUM(km) AS s"])
def test_what_was_measured_before_is_built_on(first, tmp_path):
    """Also where rows are added up, of which what isn't known is measured as if nothing were."""
    con = duckdb.connect()
    con.execute(FLIGHTS.replace("delay", "km").replace("50", "500000"))
    place = {"ledger": tmp_path / "kept.ledger", "vintage": "2026"}
    asked = f"SELECT {first} FROM flights GROUP BY 1"
    session(con, {"month": 2}, **place).query(asked, budget=BUDGET)
    for sql in (BY_MONTH, BOTH.replace("delay", "km"), BY_MONTH.replace("COUNT(*)", "SUM(km)")):
        plan = session(con, {"month": 2}, **place).plan({"a": sql}, budget=BUDGET)
        alone = session(con, {"month": 2}).plan({"a": sql}, budget=BUDGET)
        assert plan.given is not None
        assert plan.certified.spreads == alone.certified.spreads != ()
        assert plan.privacy_cost <= BUDGET.mu_squared < plan.privacy_cost * (1 + Fraction(1, 10**4))
        assert plan.rmse <= alone.rmse * (1 + 1e-9)
        assert plan.gap > 0  # a loose bound, but one


def test_a_release_is_read_and_asked_anew(tmp_path):
    con = flights()
    release = session(con, {"month": 3}).release({"a": BOTH}, budget=BUDGET)
    release.save(tmp_path / "saved")
    found = dpsql.Release.load(tmp_path / "saved")
    assert found.query(BY_MONTH).equals(release.query(BY_MONTH))


def test_a_forged_limit_is_of_no_column():
    unit = dpsql.Unit("plane", 12, max_rows_per={"month": 3})
    table = describe_table(flights(), ("flights",), None, unit)
    document = table_to_json(table)
    assert table_from_json(document) == table
    for limit in ([["delai"], 3], [["month"], 0], [[], 3]):
        document["unit"]["limits"] = [limit]
        with pytest.raises(SchemaError, match="damaged"):
            table_from_json(document)


DECLARED = {
    "schema file": '[flights]\nunit = "plane"\nmax_rows = 12\nmax_rows_per = { month = 3 }\n',
    "comment": 'dpsql: {"unit": "plane", "max_rows": 12, "max_rows_per": {"month": 3}}',
}


@pytest.mark.parametrize("how", DECLARED)
def test_it_is_declared_wherever_units_are(how, tmp_path):
    con = flights()
    schema = None
    if how == "comment":
        con.execute(f"COMMENT ON TABLE flights IS '{DECLARED[how]}'")
    else:
        (tmp_path / "schema.toml").write_text(DECLARED[how])
        schema = dpsql.Schema.load(tmp_path / "schema.toml")
    plan = dpsql.Session(con, schema=schema).plan({"a": BY_MONTH}, budget=BUDGET)
    assert plan.rmse == session(con, {"month": 3}).plan({"a": BY_MONTH}, budget=BUDGET).rmse
    table = describe_table(con, ("flights",), schema)
    assert "max_rows_per = { month = 3 }" in write_toml([table])


def test_a_view_has_limits_of_its_own_columns():
    con = flights()
    con.execute("CREATE VIEW late AS SELECT plane AS tail, month AS m FROM flights WHERE delay > 5")
    schema = dpsql.Schema(
        {"late": {"m": dpsql.Domain.integers(1, 6)}},
        units={"late": dpsql.Unit("tail", 12, max_rows_per={"m": 2})},
    )
    sql = "SELECT m, COUNT(*) AS n FROM late GROUP BY m"
    found = dpsql.Session(con, schema=schema).query(sql, budget=HUGE)
    true = con.sql(
        "SELECT m, SUM(LEAST(n, 2)) FROM (SELECT tail, m, COUNT(*) AS n FROM late WHERE tail IS "
        "NOT NULL AND m IS NOT NULL GROUP BY ALL) GROUP BY m"
    ).fetchall()
    assert {m: round(n) for m, n, _ in found.rows() if m is not None} == {
        m: int(n) for m, n in true
    }


@pytest.mark.parametrize(
    ("shown", "apart"),
    [
        ("plane, month AS m, delay", {"m"}),
        ("plane, carrier AS month, month AS m, delay", {"m"}),
        ("plane, month % 2 AS month, delay", set()),
        ("plane, delay", set()),
    ],
)
def test_a_view_keeps_the_limits_of_columns_that_it_shows(shown, apart):
    """Whatever these are called there: a column of another name is no other column's limit."""
    con = flights()
    con.execute(f"CREATE VIEW late AS SELECT {shown} FROM flights")
    con.execute(f"COMMENT ON TABLE flights IS '{DECLARED['comment']}'")
    sql = f"SELECT {''.join(apart) or 'delay'}, COUNT(*) AS n FROM late GROUP BY 1"
    plan = dpsql.Session(con).plan({"a": sql}, budget=BUDGET)
    assert {name for spread in plan.certified.spreads for name in spread.attributes} == apart
    most = con.sql("SELECT SUM(LEAST(n, 12)) FROM (SELECT COUNT(*) AS n FROM late GROUP BY plane)")
    found = dpsql.Session(con).query(sql, budget=HUGE)
    assert 0 < round(found["n"].sum()) <= most.fetchall()[0][0]


@pytest.mark.parametrize(
    ("per", "said"),
    [
        ({"mnth": 3}, "did you mean month"),
        ({"plane": 3}, "no column with a domain"),
        ({"month": 12}, "no more than 12 rows"),
        ({"month": 0}, "can't be 0"),
        ({"month": True}, "can't be True"),
        ({"": 3}, "not a mapping of columns"),
        ([("month", 3)], "not a mapping of columns"),
        ({"flights.month, planes.carrier": 3}, "several tables"),
        ({"month": 3, "flihgts.carrier": 2}, "no table flihgts"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(per, said):
    con = flights()
    with pytest.raises(SchemaError) as caught:
        session(con, per).plan({"a": BY_MONTH}, budget=BUDGET)
    assert said in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("rows", [{"a": 1, "b": 9}, {"b": 9}])
def test_several_tables_need_a_name_before_the_column(rows):
    """Also where one has a bound: the units' own table, which is joined, has other columns."""
    with pytest.raises(SchemaError, match="doesn't say in which table"):
        dpsql.Unit("a", rows, max_rows_per={"month": 3})


@pytest.mark.parametrize("before", [{}, {"month": 3}])
def test_the_account_takes_limits_that_come_with_the_bound(tmp_path, before):
    con = flights()
    place = {"ledger": tmp_path / "kept.ledger", "vintage": "2026"}
    units = "SELECT COUNT(DISTINCT plane) AS n FROM flights"
    session(con, before, rows=None, **place).query(units, budget=BUDGET)
    found = session(con, {"month": 3}, **place)
    found.query(BY_MONTH, budget=BUDGET)
    assert found.ledger.spent == 2 * BUDGET.mu_squared


def test_other_limits_that_are_accepted_are_paid_for_and_stand_alone(tmp_path):
    con = flights()
    place = {"ledger": tmp_path / "kept.ledger", "vintage": "2026"}
    session(con, {"month": 3}, **place).query(BY_MONTH, budget=BUDGET)
    found = session(con, {"month": 2}, accept_schema=True, **place)
    assert found.plan({"a": BY_MONTH}, budget=BUDGET).given is None
    found.query(BY_MONTH, budget=BUDGET)
    assert found.ledger.spent == 2 * BUDGET.mu_squared
    (measured,) = found.plan({"a": BY_MONTH}, budget=BUDGET).given.measured
    assert measured
