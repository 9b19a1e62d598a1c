"""UNION ALL of rows of several private tables: answers that are added up over them."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.errors import SqlError
from dpsql.measurement import measure as measuring
from tests.helpers.inserted import insert
from tests.helpers.seeded import SeededBits
from tests.release import test_private_joins
from tests.release.test_private_joins import TABLES, shop
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent
from tests.session.test_one_statement import moved, plain

HUGE = dpsql.Budget(rho=Fraction(10**14))
BUDGET = dpsql.Budget(rho=Fraction(1, 2))
VISITS = """
    CREATE TABLE visits (
        id INTEGER PRIMARY KEY,
        customer_id INTEGER REFERENCES customers (id),
        kind VARCHAR CHECK (kind IN ('n', 's', 'x')),
        minutes INTEGER CHECK (minutes BETWEEN 0 AND 90),
        cost DECIMAL(6, 2) CHECK (cost BETWEEN 0 AND 20),
        day DATE CHECK (day BETWEEN DATE '2024-01-01' AND DATE '2024-01-20'),
        note VARCHAR
    );
"""


def filled(seed=1, customers=30, without=None):
    """The shop with visits, some of which are nobody's."""
    con = duckdb.connect()
    con.execute(TABLES + VISITS)
    shop(con, seed, customers, apart=0, without=without)
    rng, rows = random.Random(seed), []  # noqa: S311
    for number in range(4 * customers):
        who = rng.choice([None, *range(customers)])
        row = (rng.choice(["n", "s", "x", None]), rng.choice([None, 3, 20, 90]))
        row += (rng.choice([None, "1.50", "19.25"]), f"2024-01-{rng.randint(1, 20):02}")
        row += (rng.choice(["a", "b", None]),)
        rows += [] if who == without and who is not None else [(number, who, *row)]
    insert(con, "visits", rows)
    return con


def schema(**bounds):
    unit = test_private_joins.units().units
    return dpsql.Schema({}, units={**unit, "visits": dpsql.Unit("customer_id", 30)} | bounds)


@pytest.fixture(scope="module")
def con():
    return filled()


@pytest.fixture
def session(con):
    return dpsql.Session(con, schema=schema(), public=["regions"])


def owned(con):
    """A copy without the rows that belong to nobody."""
    other = duckdb.connect()
    other.execute(TABLES + VISITS)
    for name in (*test_private_joins.NAMES, "visits"):
        insert(other, name, con.execute(f"SELECT * FROM {name}").fetchall())
    other.execute(
        "DELETE FROM items WHERE order_id IN (SELECT id FROM orders WHERE customer_id IS NULL)"
    )
    other.execute("DELETE FROM orders WHERE customer_id IS NULL")
    other.execute("DELETE FROM visits WHERE customer_id IS NULL")
    return other


BOTH = """(SELECT 'order' AS kind, price AS x, region AS r, customer_id AS who FROM orders
    UNION ALL SELECT 'visit', minutes, kind, customer_id FROM visits) AS b"""
STATEMENTS = {
    "kinds": f"SELECT kind, COUNT(*) AS n, SUM(x) AS s FROM {BOTH} GROUP BY kind",
    "total": f"SELECT COUNT(*) AS n, COUNT(x) AS m, SUM(x) AS s FROM {BOTH}",
    "groups of one": f"SELECT r, COUNT(*) AS n FROM {BOTH} GROUP BY r",
    "averages": f"SELECT r, COUNT(x) AS n, AVG(x) AS a FROM {BOTH} WHERE r IS NOT NULL GROUP BY r",
    "spreads": f"SELECT COUNT(*) AS n, STDDEV_SAMP(x) AS d, VAR_POP(x) AS v FROM {BOTH}",
    "filters": f"""SELECT r, COUNT(*) AS n, COUNT(*) FILTER (WHERE kind = 'order') AS o,
        SUM(CASE WHEN kind = 'visit' THEN x ELSE 0 END) AS v, COUNT_IF(x > 10) AS m
        FROM {BOTH} GROUP BY r""",
    "where": f"SELECT r, COUNT(*) AS n FROM {BOTH} WHERE kind = 'visit' AND x > 3 GROUP BY r",
    "where one can't be": f"SELECT r, COUNT(*) AS n, AVG(x) AS a FROM {BOTH} WHERE x > 90 "
    "AND r IN ('n', 'x') GROUP BY r",
    "a group of one": f"SELECT r, COUNT(*) AS n FROM {BOTH} WHERE r = 's' GROUP BY r",
    "having": f"SELECT r, COUNT(*) AS n FROM {BOTH} GROUP BY r HAVING COUNT(*) > 50",
    "window": f"""SELECT r, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY r) AS c,
        RANK() OVER (ORDER BY COUNT(*) DESC) AS p FROM {BOTH} WHERE r IS NOT NULL GROUP BY r""",
    "rollup": f"""SELECT kind, r, COUNT(*) AS n, GROUPING(kind) AS g FROM {BOTH}
        WHERE r IN ('n', 'x') GROUP BY ROLLUP (kind, r)""",
    "sets": f"""SELECT kind, r, COUNT(*) AS n, GROUPING(kind, r) AS g FROM {BOTH}
        WHERE r IS NOT NULL AND x > 3 GROUP BY GROUPING SETS ((kind), (r), ())""",
    "expressions": f"""SELECT upper(kind) || '!' AS k, r = 'n' AS north, COUNT(*) AS n FROM {BOTH}
        WHERE r IS NOT NULL GROUP BY ALL""",
    "joined": f"SELECT name, COUNT(*) AS n FROM {BOTH} JOIN regions ON code = r GROUP BY name",
    "joined left": f"SELECT name, COUNT(*) AS n FROM {BOTH} LEFT JOIN regions ON code = r "
    "GROUP BY name",
    "private join": f"""SELECT c.region, kind, COUNT(*) AS n, SUM(x) AS s FROM {BOTH}
        JOIN customers c ON c.id = b.who GROUP BY ALL""",
    "private comma": f"""SELECT c.vip, COUNT(*) AS n FROM customers c, {BOTH}
        WHERE c.id = who AND x < c.balance GROUP BY 1""",
    "semi": f"SELECT kind, COUNT(*) AS n FROM {BOTH} SEMI JOIN customers c ON c.id = who "
    "GROUP BY 1",
    "exists": f"""SELECT kind, COUNT(*) AS n FROM {BOTH} WHERE EXISTS (SELECT 1 FROM addresses a
        WHERE a.customer_id = b.who AND city = 'a') GROUP BY 1""",
    "levels": f"""WITH near AS (SELECT kind AS k, x * 2 AS y, r FROM {BOTH} WHERE r <> 'x'),
        far (a, b) AS (SELECT k, y FROM near WHERE y > 6)
        SELECT a, COUNT(*) AS n, SUM(b) AS s FROM far GROUP BY a""",
    "three": """WITH o AS (SELECT 'o' AS k, customer_id, price FROM orders),
        w (kk, who, x) AS (SELECT * FROM o UNION ALL SELECT 'v', customer_id, minutes FROM visits
            UNION ALL SELECT 'c', id, balance FROM customers)
        SELECT kk, COUNT(*) AS n, SUM(x) AS s FROM (SELECT * FROM w WHERE who > 10) GROUP BY kk""",
    "one twice": """SELECT kind, COUNT(*) AS n, SUM(x) AS s FROM (
        SELECT 'cheap' AS kind, price AS x FROM orders WHERE price < 100
        UNION ALL SELECT 'visit', minutes FROM visits
        UNION ALL SELECT 'any', price FROM orders) GROUP BY kind""",
    "one joined": """SELECT k, COUNT(*) AS n FROM (SELECT status AS k FROM orders WHERE status > 'f'
        UNION ALL SELECT c.region FROM orders o JOIN customers c ON o.customer_id = c.id
        UNION ALL SELECT name FROM customers JOIN regions ON region = code) GROUP BY k""",
    "grains": """SELECT kind, SUM(x) AS s FROM (SELECT 'item' AS kind, qty * 2 AS x
        FROM items i JOIN orders o ON i.order_id = o.id WHERE o.status = 'f'
        UNION ALL SELECT 'visit', cost FROM visits) GROUP BY kind""",
    "nested": """SELECT k, COUNT(*) AS n FROM (SELECT * FROM (
        SELECT 'o' AS k, price AS x FROM orders
        UNION ALL SELECT 'v', minutes FROM visits) WHERE x > 3
        UNION ALL SELECT 'c', balance FROM customers) WHERE x < 300 GROUP BY k""",
    "types": """SELECT a, COUNT(*) AS n FROM (SELECT day AS a FROM visits UNION ALL
        SELECT 7 FROM orders UNION ALL SELECT region FROM customers) WHERE a <> '2024-01-05'
        GROUP BY a""",
    "dates": """SELECT date_trunc('week', d) AS w, COUNT(*) AS n FROM (SELECT day AS d FROM visits
        UNION ALL SELECT NULL FROM orders UNION ALL SELECT TIMESTAMP '2024-01-03 10:00:00'
        FROM customers) WHERE d < '2024-01-15' GROUP BY 1""",
    "by row": """SELECT a, COUNT(*) AS n FROM (SELECT note = 'a' AS a FROM visits
        UNION ALL SELECT note = 'b' FROM customers) WHERE a GROUP BY a""",
    "decimals": """SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a FROM (SELECT cost AS x FROM visits
        UNION ALL SELECT price FROM orders)""",
    "regression": """SELECT COUNT(*) AS n, CORR(a, b) AS c, REGR_SLOPE(a, b) AS d FROM (
        SELECT price AS a, id % 7 AS b FROM orders UNION ALL SELECT minutes, id % 5 FROM visits)""",
    "around": f"""SELECT MAX(n) AS m, SUM(n) AS s FROM (SELECT r, COUNT(*) AS n FROM {BOTH}
        WHERE r IS NOT NULL GROUP BY r)""",
    "both sides": """SELECT a.k, COUNT(*) AS n FROM (SELECT 'o' AS k, customer_id AS who FROM orders
        UNION ALL SELECT 'v', customer_id FROM visits) AS a
        JOIN (SELECT id AS i, vip FROM customers) AS c ON c.i = a.who WHERE vip GROUP BY a.k""",
    "unit exists": f"""SELECT region, COUNT(*) AS n FROM customers c WHERE EXISTS (
        SELECT 1 FROM {BOTH} WHERE b.who = c.id AND x > 90) GROUP BY 1""",
    "unit not exists": f"""SELECT region, COUNT(*) AS n FROM customers c WHERE NOT EXISTS (
        SELECT 1 FROM {BOTH} WHERE who = c.id AND r = 's') GROUP BY region""",
    "unit in": f"SELECT region, COUNT(*) AS n FROM customers c WHERE id IN (SELECT who FROM {BOTH} "
    "WHERE x > 300 AND who IS NOT NULL) GROUP BY region",
    "unit counts": f"""SELECT LEAST((SELECT COUNT(*) FROM {BOTH} WHERE who = c.id), 9) AS k,
        COUNT(*) AS n FROM customers c GROUP BY 1""",
    "unit sums": f"""SELECT region, SUM(GREATEST(LEAST((SELECT SUM(x) FROM {BOTH}
        WHERE who = c.id AND x > 10), 900), 0)) AS s FROM customers c GROUP BY region""",
    "unit least": f"""SELECT (SELECT MAX(x) FROM {BOTH} WHERE who = c.id) >= 300 AS k,
        (SELECT MIN(x) FROM {BOTH} WHERE who = c.id) < 5 AS l, COUNT(*) AS n
        FROM customers c GROUP BY ALL""",
}  # fmt: skip


def keyed(frame):
    """Keys → values of the rows of an answer: all from the first number on are values."""
    names = list(frame.columns)
    first = next(i for i, name in enumerate(names) if name in {"n", "s", "m"})
    return {row[:first]: row[first:] for row in frame.rows()}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", STATEMENTS)
def test_it_is_what_duckdb_says(con, session, name):
    """A group that DuckDB hasn't is one without rows."""
    sql = STATEMENTS[name]
    frame, true = plain(session.query(sql, budget=HUGE)), owned(con).sql(sql).pl()
    assert frame.columns == true.columns
    found, expected = keyed(frame), keyed(true)
    assert found.keys() >= expected.keys()
    assert expected
    for key, values in found.items():
        if key not in expected:
            assert abs(values[0]) < 0.01
            continue
        for ours, theirs in zip(values, expected[key], strict=True):
            assert (ours or 0) == pytest.approx(float(theirs or 0), rel=1e-3, abs=0.05), key


def test_groups_that_no_table_has_are_not_there(session):
    found = session.query(STATEMENTS["a group of one"], budget=HUGE)
    assert found["r"].to_list() == ["s"]
    found = session.query(STATEMENTS["where one can't be"], budget=HUGE)
    assert sorted(found["r"]) == ["n", "x"]
    unknown = f"SELECT r, COUNT(*) AS n FROM {BOTH} WHERE r = 'q' GROUP BY r"
    assert session.query(unknown, budget=HUGE).height == 0


def test_values_are_listed_for_nothing(session):
    found = session.query(f"SELECT DISTINCT kind, r FROM {BOTH} ORDER BY ALL", budget=0)
    orders = [("order", "n"), ("order", "x"), ("order", None)]
    assert found.rows() == [*orders, *(("visit", r) for r in ("n", "s", "x", None))]


def test_a_union_of_one_table_names_what_it_shows(session):
    """A column is that of the queries, and not one of the table that is called alike."""
    named = "(SELECT id AS customer_id FROM orders UNION ALL SELECT id FROM orders) AS o"
    with pytest.raises(SqlError, match="is not customer_id"):
        session.query(f"SELECT COUNT(DISTINCT customer_id) AS n FROM {named}", budget=HUGE)
    own = named.replace("id AS customer_id", "customer_id").replace(
        "SELECT id", "SELECT customer_id"
    )
    found = session.query(f"SELECT COUNT(DISTINCT customer_id) AS n FROM {own}", budget=HUGE)
    orders = session.query("SELECT COUNT(DISTINCT customer_id) AS n FROM orders", budget=HUGE)
    assert round(found["n"][0]) == round(orders["n"][0])


def test_windows_stand_in_the_queries(con, session):
    sql = """SELECT kind, COUNT(*) AS n FROM (
        SELECT 'order' AS kind, row_number() OVER (PARTITION BY customer_id ORDER BY id) AS p
        FROM orders UNION ALL SELECT 'visit',
        row_number() OVER (PARTITION BY customer_id ORDER BY day, id) FROM visits)
        WHERE p <= 2 GROUP BY kind ORDER BY kind"""
    found = plain(session.query(sql, budget=HUGE)).rows()
    assert [(k, round(n)) for k, n in found] == owned(con).execute(sql).fetchall()


def test_a_table_that_adds_nothing_is_planned_after_others():
    """Something was measured of it before, and nothing is asked of it now."""
    session = dpsql.Session(filled(), schema=schema())
    session.query(STATEMENTS["kinds"], budget=BUDGET)
    found = session.query(STATEMENTS["where one can't be"], budget=HUGE)
    assert sorted(found["r"]) == ["n", "x"]


# ── errors ─────────────────────────────────────────────────────────────────────────────────

MEASURED = {
    "kinds": STATEMENTS["kinds"] + " ORDER BY 1",
    "groups": STATEMENTS["groups of one"] + " ORDER BY 1",
    "filters": STATEMENTS["filters"] + " ORDER BY 1",
    "twice": STATEMENTS["one twice"] + " ORDER BY 1",
    "joined": STATEMENTS["private join"] + " ORDER BY ALL",
    "summed": f"SELECT r, SUM(COUNT(*)) OVER (ORDER BY r) AS c FROM {BOTH} GROUP BY r ORDER BY r",
}
SMOOTH = {
    "averages": STATEMENTS["averages"] + " ORDER BY 1",
    "spreads": STATEMENTS["spreads"],
    "regression": STATEMENTS["regression"],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("script", "budget"), [(MEASURED, BUDGET), (SMOOTH, HUGE)])
def test_variances_are_those_of_the_noise(session, script, budget):
    """Σ d², if an answer moves by d with a noisy integer that moves by its standard deviation."""
    release, found = moved(session, script, budget)
    for name in script:
        columns = [c for c in release[name].columns if f"{c}_variance" in release[name].columns]
        assert columns
        for column in columns:
            moves = [
                other[name][column].to_numpy() - base[name][column].to_numpy()
                for base, other in found
            ]
            claimed = release[name][f"{column}_variance"].to_numpy()
            np.testing.assert_allclose(claimed, sum(d**2 for d in moves), rtol=2e-3, err_msg=name)


def test_each_table_has_its_own_bound(session):
    plan = session.plan(STATEMENTS["kinds"], budget=BUDGET)
    assert "at most 20 of orders and 30 of visits" in plan.neighbours
    assert plan.contributions == 1
    release = session.release(STATEMENTS["kinds"], budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared == release.receipt.mu_squared


def test_what_was_measured_of_tables_alone_answers_it(session):
    script = {
        "o": "SELECT region AS r, COUNT(*) AS n FROM orders GROUP BY 1 ORDER BY 1",
        "v": "SELECT kind AS r, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1",
    }
    release = session.release(script, budget=BUDGET)
    free = session.query(STATEMENTS["groups of one"], budget=0)
    apart = [dict(release[name].select("r", "n_variance").rows()) for name in script]
    for r, variance in free.select("r", "n_variance").rows():
        own = [of[r] for of in apart if r in of]
        if len(own) == 1:
            assert variance == pytest.approx(own[0], rel=1e-6)
        else:  # their totals were compared, so that the answers have something in common
            assert sum(own) < variance < 1.2 * sum(own)


def test_a_release_answers_it_later(session, tmp_path):
    release = session.release(MEASURED, budget=HUGE, out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r")
    for name, sql in MEASURED.items():
        found = loaded.query(sql)
        for column in plain(found).columns:
            np.testing.assert_array_equal(
                found[column].is_null(), release[name][column].is_null(), err_msg=name
            )
        assert float(plain(found)[:, -1].sum()) == pytest.approx(
            float(release[name][plain(found).columns[-1]].sum()), rel=1e-3
        )


def test_groups_below_noise_are_left_out_by_their_sums(monkeypatch):
    """Neither of the tables may tell a group from noise, where both together do."""
    bits = SeededBits(4)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    session = dpsql.Session(filled(), schema=schema())
    sql = STATEMENTS["groups of one"]
    few = session.query(sql, budget=dpsql.Budget(rho=4), groups_above=3)
    full = session.query(sql, budget=0)
    good = {r for r, n, variance in full.rows() if n >= 3 * variance**0.5}
    assert set(few["r"]) == good
    assert 0 < len(good) < full.height


def test_groups_that_exist_are_known_of_each_table(con):
    """Of orders there are some regions alone, and of visits others."""
    known = pl.DataFrame({"status": ["o", "f"], "region": ["n", "n"]})
    declared = dpsql.Schema(
        {}, units=schema().units, groups={"orders": [(("status", "region"), "g")]}
    )
    sql = """SELECT s, r, COUNT(*) AS n FROM (SELECT status AS s, region AS r FROM orders
        UNION ALL SELECT 'v', kind FROM visits)
        WHERE s IS NOT NULL AND r IS NOT NULL GROUP BY ALL"""
    session = dpsql.Session(con, schema=declared, public={"g": known})
    found = session.query(sql, budget=HUGE).select("s", "r").rows()
    assert set(found) == {("o", "n"), ("f", "n"), ("v", "n"), ("v", "s"), ("v", "x")}


# ── neighbors ──────────────────────────────────────────────────────────────────────────────

REPLAYED = {
    name: STATEMENTS[name]
    for name in (
        "kinds", "filters", "where", "rollup", "private join", "exists", "three", "one twice",
        "one joined", "grains", "nested", "types", "decimals", "by row", "unit not exists",
        "unit counts", "unit sums",
    )
    if "regions" not in STATEMENTS[name]
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mechanism", ["querysmasher", "laplace", "hdmm"])
@pytest.mark.parametrize("seed", range(3))
def test_a_unit_changes_no_more_than_is_charged(seed, mechanism):
    """With all of its rows, and without it: what else is seen is the same."""
    rng = random.Random(f"{seed} {mechanism}")  # noqa: S311
    quick = {"where", "rollup", "exists"}  # HDMM takes long to plan for values of columns
    names = rng.sample(sorted(quick if mechanism == "hdmm" else REPLAYED), 2)
    bounds = {
        "orders": dpsql.Unit("customer_id", rng.randint(1, 8)),
        "visits": dpsql.Unit("customer_id", rng.randint(1, 8)),
    }
    asked = {"script": {name: REPLAYED[name] for name in names}, "schema": schema(**bounds)}
    budget = dpsql.Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    how = {"budget": budget, "mechanism": mechanism}
    whole = recorded(filled(seed, 12), asked, **how)
    fewer = recorded(filled(seed, 12, without=0), asked, **how)
    check_alike(whole, fewer)
    assert 0 < spent(whole, fewer) <= charged(whole)


@pytest.mark.parametrize("name", ["unit counts", "unit sums", "unit not exists"])
def test_what_is_looked_for_in_several_tables_is_of_the_unit(name):
    """One customer is one more row, whatever others have."""
    asked = {"script": {name: STATEMENTS[name]}, "schema": schema()}
    whole = recorded(filled(7, 12), asked, budget=BUDGET)
    fewer = recorded(filled(7, 12, without=0), asked, budget=BUDGET)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)
    counts = [marginal for marginal in whole.counts if not set(marginal) & set(whole.bounds)]
    assert counts
    for marginal in counts:
        change = whole.counts[marginal].astype(object) - fewer.counts[marginal].astype(object)
        assert np.abs(change).sum() == 1


PLACED = "row_number() OVER (PARTITION BY who ORDER BY x NULLS LAST, kind)"
AS_RELATIONS = {
    "median": f"SELECT MEDIAN(x) AS m FROM {BOTH} WHERE x IS NOT NULL",
    "largest": f"SELECT kind, MAX(x) AS m, MIN(x) AS l FROM {BOTH} GROUP BY 1",
    "quantile": f"SELECT QUANTILE_CONT(x, 0.3) AS m FROM {BOTH}",
    "a constant": "SELECT COUNT(*) AS n FROM (SELECT 'a' AS k, customer_id FROM orders UNION ALL "
    "SELECT 'a', customer_id FROM visits) b GROUP BY k",
    "units": f"SELECT COUNT(DISTINCT who) AS n FROM {BOTH}",
    "values": f"SELECT COUNT(DISTINCT x) AS n FROM {BOTH}",
    "units of some": f"SELECT COUNT(DISTINCT who) FILTER (WHERE x > 3) AS n FROM {BOTH}",
    "first": f"SELECT kind, COUNT(*) AS n FROM (SELECT *, {PLACED} AS p FROM {BOTH}) AS w "
    "WHERE p = 1 GROUP BY 1",
    "chosen": f"SELECT kind, COUNT(*) AS n FROM (SELECT * FROM {BOTH} QUALIFY {PLACED} <= 2) AS w "
    "GROUP BY 1",
}


@pytest.mark.parametrize("name", AS_RELATIONS)
def test_rows_of_several_tables_as_relations_are_what_duckdb_says(con, session, name):
    sql = AS_RELATIONS[name]
    true = owned(con).sql(sql).pl()
    frame = session.query(sql, budget=HUGE).select(true.columns)
    keys = int(true.columns[0] == "kind")
    found = {row[:keys]: row[keys:] for row in frame.rows()}
    assert len(found) == true.height
    for row in true.rows():
        assert found[row[:keys]] == pytest.approx(tuple(map(float, row[keys:])), abs=0.1)


# ── refusals ───────────────────────────────────────────────────────────────────────────────

REFUSED = {
    f"SELECT code, COUNT(*) AS n FROM regions LEFT JOIN {BOTH} ON r = code GROUP BY 1": (
        "LEFT join", "use JOIN"),
    f"SELECT code, COUNT(*) AS n FROM {BOTH} RIGHT JOIN regions ON r = code GROUP BY 1": (
        "RIGHT join", "use JOIN"),
    f"SELECT code, COUNT(*) AS n FROM {BOTH} FULL JOIN regions ON r = code GROUP BY 1": (
        "FULL join", "use JOIN"),
    "SELECT COUNT(*) AS n FROM (SELECT price FROM orders UNION SELECT minutes FROM visits) AS b": (
        "UNION of single rows", "UNION ALL"),
    "SELECT COUNT(*) AS n FROM (SELECT price FROM orders UNION ALL SELECT id, id FROM visits) b": (
        "different numbers of columns", "as many"),
    "SELECT COUNT(*) AS n FROM (SELECT price FROM orders UNION ALL SELECT 1) b": (
        "with anything else", "count in each query"),
    f"SELECT LEAST((SELECT AVG(x) FROM {BOTH} WHERE who = c.id), 5) AS a, COUNT(*) AS n "
    "FROM customers c GROUP BY 1": (
        "computed from other rows of a unit has no public domain", "floor("),
    f"SELECT LEAST((SELECT SUM(x) / COUNT(x) FROM {BOTH} WHERE who = c.id), 5) AS a, COUNT(*) AS n "
    "FROM customers c GROUP BY 1": ("has no public domain", "floor("),
    f"SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM {BOTH} WHERE x > 3)": (
        "from the rows of all units", "of the same unit, WHERE b.who = c.id"),
    f"SELECT kind, x FROM {BOTH}": ("not grouped by", "COUNT(*)"),
    f"SELECT * FROM {BOTH}": ("SELECT *", "COUNT(*)"),
    f"SELECT r, COUNT(*) AS n FROM {BOTH} WHERE kind = 'vsit' GROUP BY r": (
        "No possible row meets the conditions", "UNION ALL"),
    "SELECT x, COUNT(*) AS n FROM (SELECT 'a' AS k, price AS x FROM orders UNION ALL SELECT 'a', "
    "minutes FROM visits) b GROUP BY k": ("not grouped by", "GROUP BY x"),
    "SELECT k, COUNT(*) AS n FROM (SELECT note AS k FROM visits UNION ALL SELECT status FROM "
    "orders) b GROUP BY k": ("note", "CHECK"),
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(con, sql):
    session = dpsql.Session(con, schema=schema(), public=["regions"])
    message, hint = REFUSED[sql]
    with pytest.raises(SqlError) as caught:
        session.query(sql, budget=BUDGET)
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert session.ledger.spent == 0


def test_tables_of_other_units_are_refused(con):
    other = schema(visits=dpsql.Unit("id", 1))
    session = dpsql.Session(con, schema=other)
    with pytest.raises(dpsql.DpsqlError) as caught:
        session.query(STATEMENTS["kinds"], budget=BUDGET)
    assert caught.value.hint
    assert session.ledger.spent == 0


def test_so_many_queries_are_put_together():
    con = duckdb.connect()
    con.execute("CREATE TABLE a (u INTEGER, x INTEGER); CREATE TABLE b (u INTEGER, x INTEGER);")
    unit = dpsql.Unit("u", 1)
    session = dpsql.Session(con, schema=dpsql.Schema({}, units={"a": unit, "b": unit}))
    several = " UNION ALL ".join(
        f"SELECT x + {i} AS y, u FROM {'ab'[i % 2]} JOIN (SELECT 1 AS one) AS o ON one = 1"
        for i in range(40)
    )
    with pytest.raises(dpsql.DpsqlError):
        session.query(f"SELECT COUNT(*) AS n FROM ({several}) AS s", budget=BUDGET)
