"""COUNT(DISTINCT unit): DuckDB's own numbers at a huge budget, and what a neighbor changes."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import SqlError, UndeterminedError
from tests.helpers.inserted import insert
from tests.release.test_private_joins import filled as filled_shop
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent
from tests.session.test_several_tables import units as units_of_shop

HUGE = dpsql.Budget(rho=10**9)
BUDGET = dpsql.Budget(rho=Fraction(1, 2))
PURE = dpsql.Budget(epsilon=1, delta=0)
BUDGET_EACH = dpsql.Budget(rho=10**8)
COLUMNS = "id INTEGER, m INTEGER NOT NULL CHECK (m BETWEEN 1 AND 6), kind VARCHAR, price DOUBLE"
KINDS = {"kind": dpsql.Domain.labels(["a", "b", "c"]), "price": dpsql.Domain.number(0, 100)}


def rows_of(rng, units=60):
    """Units with no, few or many rows, and rows without a unit."""
    return [
        (unit, rng.randint(1, 6), rng.choice("aabcq"), rng.choice([None, rng.uniform(0, 100)]))
        for unit in [*range(units), None]
        for _ in range(rng.choice([0, 1, 2, 40]))
    ]


def filled(rows):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE visits ({COLUMNS})").fetchall()
    con.execute("CREATE TABLE seasons (month INTEGER, season VARCHAR)").fetchall()
    insert(con, "seasons", [(m, s) for m in range(1, 7) for s in ("x", "yz"[m > 3])])
    insert(con, "visits", rows)
    return con


def schema(max_rows=3, **more):
    return dpsql.Schema({"visits": KINDS}, units={"visits": dpsql.Unit("id", max_rows, **more)})


STATEMENTS = {
    "all": "SELECT COUNT(DISTINCT id) AS n FROM visits",
    "months": "SELECT m, COUNT(DISTINCT id) AS n FROM visits GROUP BY m",
    "where": "SELECT m > 2 AS late, COUNT(DISTINCT id) AS n FROM visits "
    "WHERE price < 30 GROUP BY 1",
    "domain": "SELECT kind, COUNT(DISTINCT id) AS n FROM visits WHERE kind IN ('a', 'b', 'c') "
    "GROUP BY kind",
    "filter": "SELECT m, COUNT(DISTINCT id) FILTER (WHERE price > 50) AS n, "
    "COUNT(DISTINCT id) AS every FROM visits GROUP BY m",
    "both": "SELECT m, kind, COUNT(DISTINCT id) AS n FROM visits WHERE kind IN ('a', 'b') "
    "GROUP BY ALL",
    "joined": "SELECT season, COUNT(DISTINCT id) AS n FROM visits JOIN seasons ON m = month "
    "GROUP BY season",
    "sets": "SELECT m, COUNT(DISTINCT id) AS n FROM visits GROUP BY ROLLUP (m)",
    "coupled": "SELECT COUNT(DISTINCT v.id) AS n FROM visits AS v WHERE m % 2 = 0 OR v.kind = 'a'",
    "twice": "SELECT COUNT(DISTINCT id) AS n, COUNT(DISTINCT (id)) AS again FROM visits",
    "inner": "SELECT early, COUNT(DISTINCT who) AS n FROM "
    "(SELECT id AS who, m < 4 AS early FROM visits WHERE price > 20) GROUP BY early",
    "computed": "SELECT COUNT(DISTINCT id) FILTER (WHERE m = 1) - COUNT(DISTINCT id) AS n "
    "FROM visits",
}


@pytest.fixture(scope="module")
def con():
    return filled(rows_of(random.Random(3)))  # noqa: S311


@pytest.mark.parametrize("name", STATEMENTS)
def test_units_are_counted_as_the_database_counts_them(con, name):
    """All of their rows have a say, although three of each would be kept."""
    sql = STATEMENTS[name]
    session = dpsql.Session(con, schema=schema(3, max_groups=99), public=["seasons"])
    release = session.query(sql, budget=HUGE)
    shown = [c for c in release.columns if not c.endswith("_variance")]
    found = sorted(release.select(shown).rows(), key=str)
    true = sql.replace("FROM visits", "FROM (SELECT * FROM main.visits WHERE kind <> 'q')")
    true = con.execute(true if "kind" in sql else sql).fetchall()
    assert [tuple(map(_rounded, row)) for row in found] == sorted(true, key=str)


def _rounded(value):
    return round(value) if isinstance(value, float) else value


def test_a_unit_counts_in_as_many_groups_as_it_has_rows_that_count(con):
    """Unless `max_groups` says in how many."""
    total = {}
    for most in (1, 2, 3, 6, None):
        unit = {} if most is None else {"max_groups": most}
        session = dpsql.Session(con, schema=schema(3, **unit))
        total[most] = round(session.query(STATEMENTS["months"], budget=HUGE)["n"].sum())
    months = con.execute(
        "SELECT count(DISTINCT m) FROM visits WHERE id IS NOT NULL GROUP BY id"
    ).fetchall()
    for most in (1, 2, 3, 6):
        assert total[most] == sum(min(of, most) for (of,) in months)
    assert total[None] == total[3]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "most"), [("querysmasher", 2), ("querysmasher", 9), ("hdmm", 1), ("laplace", 2)]
)
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(kind, most):
    rng = random.Random(most)  # noqa: S311
    rows = rows_of(rng)
    names = rng.sample(sorted(STATEMENTS.keys() - {"joined"}), 3)
    script = {name: STATEMENTS[name] for name in names}
    script["rows"] = (
        "SELECT m, COUNT(*) AS n, SUM(price) AS s, COUNT(DISTINCT id) AS u FROM visits "
    )
    script["rows"] += "GROUP BY m"
    asked = {"script": script, "schema": schema(3, max_groups=most)}
    how = {"budget": PURE if kind == "laplace" else BUDGET, "mechanism": kind}
    whole = recorded(filled(rows), asked, **how)
    units = [u for marginal in whole.counts for u in marginal if u.startswith("units ")]
    assert units
    for unit in rng.sample(sorted({row[0] for row in rows if row[0] is not None}), 2):
        fewer = recorded(filled([row for row in rows if row[0] != unit]), asked, **how)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)
        for marginal, array in whole.counts.items():
            change = array - fewer.counts[marginal]
            if any(name in units for name in marginal):
                assert set(change.ravel().tolist()) <= {0, 1}
                assert change.sum() <= most


def test_a_unit_can_cost_all_that_is_charged():
    """So it can't be less. It is not the one in all groups: their total is known less well."""
    spends = []
    for groups in range(1, 7):
        con = filled([(7, m, "a", 1.0) for m in range(1, groups + 1) for _ in range(9)])
        asked = {"script": {"q": STATEMENTS["months"]}, "schema": schema(9)}
        pair = [recorded(one, asked, budget=BUDGET) for one in (con, filled([]))]
        spends.append(spent(*pair))
    assert max(spends) == charged(pair[0]) > spends[-1]


# ── beside others ──────────────────────────────────────────────────────────────────────────


def test_units_of_joined_tables():
    con = filled_shop()
    unit = {"items": "orders.customer_id", "orders": "customer_id", "customers": "customers"}
    units = {name: dpsql.Unit(key, 9, max_groups=50) for name, key in unit.items()}
    session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
    script = {
        "orders": "SELECT status, COUNT(DISTINCT customer_id) AS n FROM orders "
        "WHERE status IS NOT NULL GROUP BY status",
        "joined": "SELECT c.region, COUNT(DISTINCT c.id) AS n FROM orders o "
        "JOIN customers c ON o.customer_id = c.id GROUP BY c.region",
        "items": "SELECT qty, COUNT(DISTINCT o.customer_id) AS n FROM items i "
        "JOIN orders o ON i.order_id = o.id GROUP BY qty",
        "far": "SELECT COUNT(DISTINCT c.id) AS n FROM items i JOIN orders o ON i.order_id = o.id "
        "JOIN customers c ON c.id = o.customer_id WHERE c.region = 'n'",
        "exists": "SELECT COUNT(DISTINCT o.customer_id) AS n FROM orders o "
        "WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id AND i.qty > 3)",
        "customers": "SELECT region, COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM customers "
        "GROUP BY region",
    }
    release = session.release(script, budget=dpsql.Budget(rho=10**11))
    for name, sql in script.items():
        frame = release[name]
        shown = frame.select([c for c in frame.columns if not c.endswith("_variance")]).rows()
        found = sorted((tuple(map(_rounded, row)) for row in shown if _rounded(row[-1])), key=str)
        assert found == sorted(con.execute(sql).fetchall(), key=str), name


def test_what_was_measured_answers_the_same_question_again(con, tmp_path):
    session = dpsql.Session(con, schema=schema(6))
    script = {name: STATEMENTS[name] for name in ("months", "all")}
    first = session.release(script, budget=BUDGET)
    second = session.release(script, budget=BUDGET)
    assert second["months"]["n_variance"][0] == pytest.approx(first["months"]["n_variance"][0] / 2)
    first.save(tmp_path / "saved")
    read = dpsql.Release.load(tmp_path / "saved")
    again = read.query("SELECT m AS month, COUNT(DISTINCT id) AS number FROM visits GROUP BY 1")
    assert again["number"].to_list() == pytest.approx(first["months"]["n"].to_list())
    with pytest.raises(UndeterminedError, match="COUNT"):
        read.query("SELECT COUNT(DISTINCT id) AS n FROM visits WHERE m = 1")


def test_rows_and_units_share_one_plan(con):
    session = dpsql.Session(con, schema=schema(6))
    sql = "SELECT m, COUNT(*) AS n, COUNT(DISTINCT id) AS u FROM visits GROUP BY m"
    frame = session.query(sql, budget=BUDGET)
    assert frame["n_variance"][0] > 10 * frame["u_variance"][0]
    plan = session.plan(sql, budget=BUDGET)
    assert "groups x COUNT(DISTINCT id): units" in plan.explain()
    ratio = "SELECT m, COUNT(*) / COUNT(DISTINCT id) AS each FROM visits GROUP BY m"
    assert session.query(ratio, budget=BUDGET)["each_variance"].is_not_null().all()
    assumed = session.plan(sql, budget=BUDGET, assume={"rows": 600})
    assert assumed.expected_answers["typical"].to_list() == [100.0, 100.0]


@pytest.mark.parametrize(
    ("sql", "match"),
    [
        ("SELECT COUNT(DISTINCT (id, m)) FROM visits", "."),
        ("SELECT COUNT(DISTINCT id, m) FROM visits", "DISTINCT in an aggregate"),
        ("SELECT SUM(DISTINCT id) FROM visits", "DISTINCT in an aggregate"),
        ("SELECT m, SUM(COUNT(DISTINCT id)) OVER (ORDER BY m) FROM visits GROUP BY m", "added up"),
    ],
)
def test_other_distinct_values_are_refused(con, sql, match):
    with pytest.raises(SqlError, match=match):
        dpsql.Session(con, schema=schema()).query(sql, budget=BUDGET)


def test_without_a_unit_values_are_counted(con):
    declared = dpsql.Schema({"visits": KINDS})
    found = dpsql.Session(con, schema=declared).query(STATEMENTS["all"], budget=HUGE)["n"][0]
    assert [(round(found),)] == con.execute("SELECT count(DISTINCT id) FROM visits").fetchall()


def test_what_refers_to_units_by_another_way_does_not_count_them():
    """Orders have addresses of customers, and these needn't be those whose orders they are.

    So an address of another customer is not met, of which a plan tells.
    """
    con = filled_shop()
    session = dpsql.Session(con, schema=units_of_shop())
    own = "SELECT COUNT(DISTINCT a.customer_id) AS n FROM orders o "
    own += "JOIN addresses a ON o.address_id = a.id"
    met = con.execute(f"{own} WHERE o.customer_id = a.customer_id").fetchall()[0][0]
    exact = dpsql.Budget(rho=10**12)
    assert session.query(own, budget=exact)["n"][0] == pytest.approx(met, abs=1e-3)
    assert any("address_id" in note for note in session.plan(own, budget=BUDGET).notes)
    for column in ("o.address_id", "o.id"):
        sql = f"SELECT COUNT(DISTINCT {column}) AS n FROM orders o "
        sql += "JOIN addresses a ON o.address_id = a.id"
        assert any("is a lower bound" in note for note in session.plan(sql, budget=BUDGET).notes)
    assert np.isfinite(session.query(sql.replace("o.id)", "o.customer_id)"), budget=BUDGET)["n"][0])


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", 10**7])
def test_a_bound_on_groups_is_a_whole_number(most):
    with pytest.raises(dpsql.DpsqlError, match="max_groups can't be"):
        dpsql.Unit("id", max_rows=3, max_groups=most)


def test_the_bound_on_groups_may_stand_in_a_file_or_a_comment(con, tmp_path):
    declared = "[visits]\nunit = 'id'\nmax_rows = 3\nmax_groups = 2\n"
    (tmp_path / "schema.toml").write_text(declared)
    read = dpsql.Schema.load(tmp_path / "schema.toml")
    assert read.units == {"visits": dpsql.Unit("id", 3, max_groups=2)}
    assert repr(read.units["visits"]) == "Unit(key='id', max_rows=3, max_groups=2)"
    other = filled([(1, m, "a", 1.0) for m in range(1, 7)])
    noted = 'dpsql: {"unit": "id", "max_rows": 3, "max_groups": 5}'
    other.execute(f"COMMENT ON TABLE visits IS '{noted}'").fetchall()
    counted = {}
    for name, schema_ in (("file", read), ("comment", None)):
        session = dpsql.Session(other, schema=schema_, budget=HUGE)
        counted[name] = round(session.query(STATEMENTS["months"], budget=BUDGET_EACH)["n"].sum())
    assert counted == {"file": 2, "comment": 5}


def test_a_bound_on_groups_says_nothing_of_rows(con, tmp_path):
    """What was measured of rows before is used on, and a saved release has the bound."""
    sql = "SELECT m, COUNT(*) AS n FROM visits GROUP BY m"
    session, variances = dpsql.Session(con, schema=schema(3)), []
    for most in (1, 4):
        session = session.redeclared(schema=schema(3, max_groups=most))
        release = session.release({"q": sql, "u": STATEMENTS["months"]}, budget=BUDGET)
        variances.append(release["q"]["n_variance"][0])
        release.save(tmp_path / str(most))
        document = (tmp_path / str(most) / "release.json").read_text()
        assert json.loads(document)["table"]["unit"]["max_groups"] == most
        assert dpsql.Release.load(tmp_path / str(most)).query(STATEMENTS["months"]).height == 6
    assert variances[1] < variances[0]


def test_the_bound_on_groups_may_stand_beside_the_unit(con):
    other = filled([(1, m, "a", 1.0) for m in range(1, 7)])
    asked = {"budget": BUDGET_EACH, "unit": "id", "max_rows": 3, "max_groups": 2}
    assert round(dpsql.query(other, STATEMENTS["months"], **asked)["n"].sum()) == 2
    with pytest.raises(dpsql.SchemaError, match="has no bound on groups beside it") as refused:
        dpsql.Session(con, unit=dpsql.Unit("id", 3), max_groups=2)
    made = eval(refused.value.hint.removeprefix("pass ").removesuffix("."), {"dpsql": dpsql})  # noqa: S307
    assert made.max_groups == 5
    with pytest.raises(dpsql.SchemaError, match="A limit on the rows of a unit needs the column"):
        dpsql.Session(con, max_groups=2)
    with pytest.raises(dpsql.SchemaError, match="max_groups can't be 0"):
        dpsql.Session(con, unit="id", max_rows=3, max_groups=0)
