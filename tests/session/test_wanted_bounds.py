"""Releases that find bounds of numbers first: what is asked, charged, refused and kept."""

from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction
from functools import partial
from unittest.mock import patch

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.hints import remedies_of
from dpsql.release import found_bounds
from dpsql.release.found_bounds import FoundBounds
from dpsql.session import answer as answering
from dpsql.session import bounds as finding
from tests.helpers.charging import charged
from tests.helpers.persons import check_found_alike, persons

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
BOUNDS = dpsql.Bounds()
MUCH = dpsql.Budget(rho=10**12)
SALES = """
    SELECT i, 'town ' || (i % 4) AS city, 1 + i % 100 AS price, (i % 50 - 20) / 4.0 AS change,
        (i % 7)::DECIMAL(9, 2) AS weight, CASE WHEN i % 3 > 0 THEN i % 9 END AS partly
    FROM range(2000) t (i)
"""
PRICES = "SELECT SUM(price) AS s FROM sales"
OF = {"price": PRICES, "ln(price)": "SELECT SUM(LN(Price)) AS s FROM sales AS t"}
"""A column, and an expression of whose column bounds are not enough → its sum."""


@pytest.fixture
def con(monkeypatch):
    """Rows; an empty bin beside others is taken for one with rows once in 10^9, and not in 100."""
    monkeypatch.setattr(found_bounds, "LIKELY", 1e-9)
    con = duckdb.connect()
    con.execute(f"CREATE TABLE sales AS {SALES}")
    con.execute("""
        CREATE TABLE c (id INTEGER PRIMARY KEY, income DOUBLE);
        CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
            price INTEGER, item VARCHAR);
        INSERT INTO c SELECT i, i % 800 FROM range(1200) t (i);
        INSERT INTO o SELECT i, i % 1200, i % 100, 'item ' || (i % 5) FROM range(3000) t (i);
    """)
    return con


def of_units(con, **given):
    return dpsql.Session(con, unit=dpsql.Unit("c.id", max_rows={"o": 4}), **given)


# ── What is asked ────────────────────────────────────────────────────────────────────────────────

ASKED = {
    "a sum": PRICES,
    "an average": "SELECT AVG(change) AS s FROM sales",
    "decimals": "SELECT SUM(weight) AS s FROM sales",
    "NULLs": "SELECT SUM(partly) AS s FROM sales",
    "a deviation": "SELECT STDDEV_POP(price) AS s FROM sales",
    "of two columns": "SELECT SUM(price * change) AS s FROM sales",
    "of a text": "SELECT SUM(CAST(length(city) AS DOUBLE)) AS s FROM sales",
    "stored as texts": "SELECT SUM(TRY_CAST(substr(city, 6) AS DOUBLE)) AS s FROM sales",
    "of a logarithm": "SELECT SUM(ln(price)) AS s FROM sales",
    "of a quotient": "SELECT AVG(price / (change + 10)) AS s FROM sales",
    "where": "SELECT SUM(price) AS s FROM sales WHERE change > 2",
    "in a query": "SELECT SUM(p) AS s FROM (SELECT price + 1 AS p FROM sales WHERE i > 9)",
    "two aggregates": "SELECT SUM(price) + SUM(change) AS s FROM sales",
    "of units": "SELECT SUM(price) AS s FROM o",
    "referred to": "SELECT SUM(c.income) AS s FROM o JOIN c ON o.cid = c.id",
    "of both": "SELECT SUM(c.income * o.price) AS s FROM o JOIN c ON o.cid = c.id",
    "counted from NULL": "SELECT AVG(COALESCE(partly, 0)) AS s FROM sales",
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_bounds_are_found_and_numbers_are_added_up(con, name):
    sql = ASKED[name]
    session = of_units(con) if " o" in sql else dpsql.Session(con)
    with pytest.raises(dpsql.SchemaError, match="no public bounds") as caught:
        session.query(sql, budget=MUCH)
    assert caught.value.hint.startswith("pass bounds=dpsql.Bounds()")
    (true,) = con.execute(sql).fetchone()
    found = session.query(sql, budget=MUCH, bounds=BOUNDS)["s"][0]
    assert found == pytest.approx(float(true), rel=1e-3)
    assert session.history["state"].to_list() == ["delivered"] * session.history.height


def test_sums_of_what_units_add_up_to_are_limited_as_the_hint_says(con):
    session = of_units(con)
    sql = "SELECT SUM(t) AS s FROM (SELECT cid, SUM(price) AS t FROM o GROUP BY cid)"
    with pytest.raises(dpsql.SchemaError, match="no public bounds") as caught:
        session.query(sql, budget=MUCH, bounds=BOUNDS)
    limited = re.search(r"greatest\(0, least\(t, 1000\)\)", caught.value.hint).group()
    found = session.query(sql.replace("SUM(t)", f"SUM({limited})"), budget=MUCH)["s"][0]
    (true,) = con.execute(sql).fetchone()
    assert found == pytest.approx(true, rel=1e-3)


def test_one_script_is_run_again_in_every_session(tmp_path):
    path = tmp_path / "sales.duckdb"
    with duckdb.connect(path) as con:
        con.execute(f"CREATE TABLE sales AS {SALES}")
    for day in range(3):
        with dpsql.Session(path) as session:
            session.query(f"SELECT SUM(price) AS s FROM sales WHERE i > {day}",
                          budget=BUDGET, bounds=BOUNDS)  # fmt: skip
            assert session.history.height == day + 2  # bounds are paid once
    with dpsql.Session(path) as session:
        found = session.find_bounds("sales", "price", budget=0)
    schema = {"sales": {"price": found.bounds}}
    with dpsql.Session(path, schema=schema) as session:
        assert session.query(PRICES, budget=BUDGET).height == 1


def test_keys_and_bounds_are_found_for_one_statement(con):
    session = of_units(con)
    sql = "SELECT item, SUM(price) AS s FROM o GROUP BY item ORDER BY item"
    keys = dpsql.Keys(delta="1e-9")
    assert len(session.plan(sql, budget=MUCH, keys=keys, bounds=BOUNDS).notes) == 2
    frame = session.query(sql, budget=MUCH, keys=keys, bounds=BOUNDS)
    found = [(item, round(s)) for item, s in frame.select("item", "s").rows() if round(s)]
    assert found == [(item, int(s)) for item, s in con.execute(sql).fetchall()]
    assert charged(session) == (MUCH.rho, Fraction(1, 10**9))


def declared(con, tmp_path, way):
    if way == "python":
        return {"sales": {"price": dpsql.Domain.number()}}
    if way == "file":
        path = tmp_path / "schema.toml"
        path.write_text("[sales.columns]\nprice = { number = true }\n", "utf-8")
        return path
    con.execute("""COMMENT ON COLUMN sales.price IS 'dpsql: {"number": true}'""")
    return None


@pytest.mark.parametrize("way", ["python", "file", "comment"])
def test_columns_are_declared_by_the_owner(con, tmp_path, way):
    session = dpsql.Session(con, schema=declared(con, tmp_path, way))
    release = session.release({"s": PRICES}, budget=dpsql.Budget(rho=100))
    (bounded,) = release.facts.bounded
    assert (bounded.column, bounded.low, bounded.high) == ("price", "1", "127")
    assert session.query(PRICES, budget=0)["s"].to_list() == release["s"]["s"].to_list()
    assert charged(session) == (100, 0)


@pytest.mark.parametrize("column", ["price", "amount"])
def test_numbers_of_a_file_are_declared_and_their_bounds_found(tmp_path, column):
    """In a CSV all is text but what is declared."""
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().rename({"price": column}).write_csv(path)
    schema = {"sales": {column: dpsql.Domain.number()}}
    sql = f"SELECT AVG({column}) AS a FROM sales"
    assert dpsql.query(path, sql, budget=BUDGET, schema=schema)["a"][0] == pytest.approx(50, abs=9)


def test_numbers_of_a_file_of_which_nothing_is_declared_are_added_up_in_one_line(tmp_path):
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().write_csv(path)
    sql = "SELECT SUM(price) AS s FROM sales"
    with pytest.raises(dpsql.SqlError, match="needs a number on rows, not VARCHAR") as caught:
        dpsql.query(path, sql, budget=BUDGET)
    (cast,) = re.findall(r"CAST\(price AS DOUBLE\)", caught.value.hint)
    found = dpsql.query(path, sql.replace("price", cast), budget=MUCH, bounds=BOUNDS)
    assert found["s"][0] == pytest.approx(101_000, rel=1e-3)


@pytest.mark.parametrize(
    "asked",
    ["SUM(price)", "AVG(price / 2)", "SUM(price * change)", "SUM(abs(price) + 1)",
     "COUNT_IF(price > 60)", "SUM(CASE WHEN city = 'town 1' THEN price END)", "STDDEV(price)"],
)  # fmt: skip
def test_texts_of_a_file_that_have_to_be_numbers_are_declared_so_in_one_line(tmp_path, asked):
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().write_csv(path)
    sql = f"SELECT {asked} AS s FROM sales"
    session = dpsql.Session(path)
    with pytest.raises(dpsql.SqlError, match="VARCHAR") as caught:
        session.query(sql, budget=BUDGET)
    (typed, *_) = remedies_of(caught.value.hint)
    given = eval(f"dict({typed.text})", {"dpsql": dpsql})  # noqa: S307
    ((truth,),) = duckdb.connect().sql(sql.replace("sales", f"'{path}'")).fetchall()
    found = dpsql.query(path, sql, budget=MUCH, **given)["s"][0]
    assert found == pytest.approx(float(truth), rel=2e-2)
    as_text = "SELECT COUNT(*) FILTER (WHERE price < 'a') AS n FROM sales"  # in that session
    assert session.query(as_text, budget=MUCH)["n"][0] == pytest.approx(2000, abs=1)


@pytest.mark.parametrize(
    "asked",
    ["MEDIAN(price)", "quantile_disc( (price), 0.5)",
     "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY price)"],
)  # fmt: skip
def test_quantiles_of_texts_of_a_file_are_of_numbers_in_one_line(tmp_path, asked):
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().write_csv(path)
    sql = f"SELECT {asked} AS q FROM sales"
    with pytest.raises(dpsql.SchemaError, match="no public domain") as caught:
        dpsql.query(path, sql, budget=BUDGET)
    assert "keys=dpsql.Keys()" in caught.value.hint
    (typed, *_) = remedies_of(caught.value.hint)
    assert typed.text == 'schema=dpsql.Schema({"sales": {"price": dpsql.Domain.number()}})'
    given = eval(f"dict({typed.text})", {"dpsql": dpsql})  # noqa: S307
    ((truth,),) = duckdb.connect().sql(f"SELECT MEDIAN(price) FROM '{path}'").fetchall()
    found = dpsql.query(path, sql, budget=MUCH, **given)["q"][0]
    assert found == pytest.approx(float(truth), abs=1)


@pytest.mark.parametrize("asked", ["MAX(price) AS m", "price, COUNT(*) AS n"])
def test_what_texts_have_as_they_are_is_found(tmp_path, asked):
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().write_csv(path)
    by = " GROUP BY price" if asked[0] == "p" else ""
    with pytest.raises(dpsql.SchemaError) as caught:
        dpsql.query(path, f"SELECT {asked} FROM sales{by}", budget=BUDGET)
    assert caught.value.hint.startswith("pass keys=dpsql.Keys()")


@pytest.mark.parametrize("asked", ["COUNT_IF(year(city) = 2024)", "SUM(year(price))"])
def test_what_is_no_number_either_is_not_declared_as_one(tmp_path, asked):
    path = tmp_path / "sales.csv"
    duckdb.connect().sql(SALES).pl().write_csv(path)
    with pytest.raises(dpsql.SqlError) as caught:
        dpsql.query(path, f"SELECT {asked} AS s FROM sales", budget=BUDGET)
    assert "Domain.number" not in caught.value.hint


def test_frames_and_one_call_are_asked_alike(con):
    frame = con.sql(SALES).pl()
    sql = "SELECT AVG(price) AS a FROM self"
    assert frame.dp.sql(sql, budget=BUDGET, bounds=BOUNDS)["a"][0] == pytest.approx(50, abs=9)


# ── What is charged ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "budget",
    [
        BUDGET,
        BUDGET.setting_aside(1e-10),
        dpsql.Budget(rho=Fraction(1, 7)),
        dpsql.Budget(mu=Fraction(2, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [None, Fraction(1, 3)])
def test_all_of_the_budget_is_charged_and_no_more(con, budget, share):
    session = dpsql.Session(con)
    rule = BOUNDS if share is None else dpsql.Bounds(share)
    session.release([PRICES, "SELECT SUM(change) AS s FROM sales"], budget=budget, bounds=rule)
    first, second, _ = session.ledger.entries()
    assert first.mu_squared == second.mu_squared
    assert 2 * first.mu_squared == pytest.approx(float(budget.mu_squared * (share or 1 / 5)))
    assert budget.rho - Fraction(1, 10**25) < charged(session)[0] <= budget.rho


def test_pure_epsilon_is_divided_by_itself(con):
    session = dpsql.Session(con)
    pure = dpsql.Budget(epsilon=2, delta=0)
    release = session.release([PRICES], budget=pure, mechanism="laplace", bounds=BOUNDS)
    assert release.facts.laplace
    parts = [dpsql.Budget(epsilon=Fraction(of), delta=0) for of in ("0.4", "1.6")]
    paid = [entry.mu_squared for entry in session.ledger.entries()]
    assert paid == pytest.approx([float(part.mu_squared) for part in parts])
    assert charged(session)[0] <= pure.rho
    found = session.find_bounds("sales", "change", budget=pure)
    assert found.any


@pytest.mark.parametrize("column", OF)
def test_what_was_found_before_is_free(con, column):
    session, sql = dpsql.Session(con), OF[column]
    with pytest.raises(dpsql.errors.BudgetError, match=r"No bounds of sales\.") as caught:
        session.query(sql, budget=0, bounds=BOUNDS)
    assert column in caught.value.message.lower()
    session.find_bounds("sales", column.upper(), budget=BUDGET)
    session.query(sql, budget=BUDGET, bounds=BOUNDS)
    assert charged(session)[0] == 2 * BUDGET.rho
    other = session.redeclared()
    other.query(f"{sql} WHERE i > 5", budget=BUDGET, bounds=BOUNDS)
    assert charged(session)[0] == 3 * BUDGET.rho


@pytest.mark.parametrize("keys", [None, dpsql.Keys()])
@pytest.mark.parametrize("column", OF)
def test_a_call_that_died_after_it_was_paid_is_paid_once(con, keys, column):
    session = dpsql.Session(con)
    sql = f"SELECT city, SUM({column}) AS s FROM sales GROUP BY city" if keys else OF[column]
    handed_out, seen = answering._handed_out, []

    def die(data, release, request):
        seen.append(release)
        if len(seen) == 2:  # the bounds are handed out first
            raise KeyboardInterrupt
        return handed_out(data, release, request)

    with patch.object(answering, "_handed_out", die), pytest.raises(KeyboardInterrupt):
        session.query(sql, budget=BUDGET, keys=keys, bounds=BOUNDS)
    paid = charged(session)
    session.query(sql, budget=BUDGET, keys=keys, bounds=BOUNDS)
    assert charged(session) == paid
    assert {*session.history["state"]} == {"delivered"}


def test_errors_beforehand_are_those_after(con):
    session = dpsql.Session(con)
    plan = session.plan(PRICES, budget=BUDGET, bounds=BOUNDS, assume={"sales.price": 127})
    assert not session.history.height
    assert plan.notes[-1].startswith("bounds of sales.price are found first, for ρ = 0.003")
    alone = dpsql.plan(con, PRICES, budget=BUDGET, bounds=BOUNDS, assume={"SALES.Price": 127})
    release = session.release([PRICES], budget=BUDGET, bounds=BOUNDS)
    assert plan.rmse == pytest.approx(release.plan.rmse, rel=0.01)  # from 0 in place of 1
    assert alone.rmse == pytest.approx(plan.rmse, rel=1e-9)


# ── What is refused, before anything is charged ──────────────────────────────────────────────────

REFUSED = {
    "no bounds": (PRICES, {}, "no public bounds"),
    "no rule": (PRICES, {"bounds": 0.2}, r"bounds is a dpsql\.Bounds"),
    "texts": ("SELECT SUM(city) AS s FROM sales", {}, "city"),
    "to group by": (
        "SELECT price, COUNT(*) AS n FROM sales GROUP BY price", {}, "no public domain"),
    "something else": (
        "SELECT city, SUM(price) AS s FROM sales GROUP BY city", {}, "no public domain"),
    "no number": (PRICES, {"assume": {"sales.price": 0}}, "Assumed|assumed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_is_charged(con, name):
    sql, given, said = REFUSED[name]
    session = dpsql.Session(con)
    ask = session.plan if "assume" in given else session.query
    bounds = {} if name == "no bounds" else {"bounds": BOUNDS}
    with pytest.raises(dpsql.errors.DpsqlError, match=said) as caught:
        ask(sql, **{"budget": BUDGET, **bounds, **given})
    assert caught.value.hint
    assert not session.history.height


def test_targets_leave_nothing_to_take_a_part_of(con):
    session = dpsql.Session(con)
    with pytest.raises(
        dpsql.errors.BudgetError, match=r"bounds of sales\.price are found for a part"
    ):
        session.release({"s": PRICES}, targets={"s": 9}, at_most=dpsql.Budget(rho=1), bounds=BOUNDS)
    assert not session.history.height


def test_rows_without_a_bound_are_refused_with_a_place_of_their_own(con):
    session = dpsql.Session(con, unit="cid")
    with pytest.raises(dpsql.SchemaError, match="how many rows of a unit count in o") as caught:
        session.query("SELECT SUM(price) AS s FROM o", budget=BUDGET, bounds=BOUNDS)
    assert "CASE" not in str(caught.value)
    with pytest.raises(dpsql.SchemaError, match="how many rows of a unit") as caught:
        session.find_bounds("o", "price", budget=BUDGET)
    assert "CASE" not in str(caught.value)
    assert not session.history.height


@pytest.mark.parametrize("share", [0, 1, -1, "a", True, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(dpsql.ArgumentError, match="share is a number above 0"):
        dpsql.Bounds(share)


EXPRESSIONS = {
    "price + 1": r"follow from those of price.*find_bounds\(\"sales\", \"price\", budget=…\)",
    "upper(city)": "needs a number",
    "nothing + 1": "no column nothing",
    "SUM(price)": "",
    "price) AS s, SUM(change": "follow from those of",
    "(SELECT 1) + price": "",
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_that_have_no_bounds_of_their_own_are_refused(con, text):
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.DpsqlError, match=f"(?s){EXPRESSIONS[text]}") as caught:
        session.find_bounds("sales", text, budget=BUDGET)
    assert caught.value.hint
    assert not session.history.height


def test_what_has_bounds_needs_no_others(con):
    schema = dpsql.Schema({}, expressions={"sales": {"price * i": [0, 9]}})
    session = dpsql.Session(con, schema=schema)
    with pytest.raises(dpsql.SchemaError, match=r"price\*i in sales has public bounds already"):
        session.find_bounds("sales", "price*i", budget=BUDGET)
    assert session.find_bounds("sales", "change * i", budget=MUCH).low == -(2**14)
    assert session.find_bounds("sales", "change*i", budget=0).column == "change * i"


def test_of_rows_of_two_tables_no_bounds_are_found_together(con):
    sql = "SELECT SUM(ln(c.income + o.price)) AS s FROM o JOIN c ON o.cid = c.id"
    session = of_units(con)
    with pytest.raises(dpsql.errors.SqlError, match="no public bounds follow") as caught:
        session.query(sql, budget=MUCH, bounds=BOUNDS)
    assert caught.value.hint.startswith("write them: ")
    assert not session.history.height


# ── Tables and names ─────────────────────────────────────────────────────────────────────────────


def test_tables_of_one_name_in_two_schemas_are_two(con):
    con.execute("CREATE SCHEMA s; CREATE TABLE s.sales AS SELECT price * 64 AS price FROM sales")
    session = dpsql.Session(con)
    assert session.find_bounds("s.sales", "price", budget=MUCH).high == 8191
    assert session.find_bounds("sales", "price", budget=MUCH).high == 127
    frame = dpsql.Session(con).query(
        "SELECT SUM(price) AS s FROM s.sales", budget=MUCH, bounds=BOUNDS
    )
    (true,) = con.execute("SELECT SUM(price) FROM s.sales").fetchone()
    assert frame["s"][0] == pytest.approx(true, rel=1e-3)


def test_names_with_spaces_are_names(con):
    con.execute('CREATE TABLE "my sales" AS SELECT price AS "the price" FROM sales')
    assert dpsql.Session(con).find_bounds("my sales", "the price", budget=MUCH).high == 127
    sql = 'SELECT AVG("the price") AS a FROM "my sales"'
    frame = dpsql.Session(con).query(sql, budget=MUCH, bounds=BOUNDS)
    assert frame["a"][0] == pytest.approx(50.5, rel=1e-3)


# ── Neighbours ───────────────────────────────────────────────────────────────────────────────────


def people(seed, without=None):
    """Make rows of persons, of whom one may be left out, who alone has large numbers."""
    rng = random.Random(seed)  # noqa: S311
    rows = [(rng.randrange(12), rng.randrange(90), rng.randrange(4)) for _ in range(60)]
    rows += [(3, 10**6, 1), (3, -(10**4), 2)]
    return persons("v INTEGER", rows, without)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ends", [(0, 127), (-(2**14), 2**20)])
@pytest.mark.parametrize("of", ["v", "sqrt(v + 20000)"])
def test_neighbours_that_find_the_same_differ_by_what_is_charged(seed, ends, of):
    """Bins and sums together, given bounds that were read off noisy counts."""
    script = {
        "s": f"SELECT x, SUM({of}) AS s FROM t GROUP BY x",
        "a": f"SELECT AVG({of}) AS a FROM t",
    }

    def told(table, column, type_, counts, charges, *, laplace=False):
        assert counts.height
        return FoundBounds(table, column, Fraction(ends[0]), Fraction(ends[1]), True, charges)

    sessions = [dpsql.Session(people(seed, one), unit="p", max_rows=4) for one in (None, 3)]
    telling = partial(patch.object, finding.FoundBounds, "of", told)
    paid = check_found_alike(sessions, script, telling, budget=BUDGET, bounds=BOUNDS)
    assert paid == (BUDGET.rho, 0)


LEARNED = {
    "values": "SELECT item, COUNT(*) AS n FROM o GROUP BY item",
    "bounds": "SELECT SUM(price) AS s FROM o",
    "neither": "SELECT COUNT(*) AS n FROM c",
}


@pytest.mark.parametrize("names", [
    names for n in (1, 2, 3) for names in itertools.combinations(LEARNED, n)
])  # fmt: skip
def test_a_release_says_what_is_declared_and_what_was_found(con, tmp_path, names):
    """On every page: the release's own, that of its folder, and the report."""
    session = of_units(con)
    script = {name: LEARNED[name] for name in names}
    asked = {"keys": dpsql.Keys(0.2), "bounds": BOUNDS, "out": tmp_path / "out"}
    release = session.release(script, budget=BUDGET, **asked)
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    columns = {"values": "o.item", "bounds": "o.price"}
    found = [f"{name} of {columns[name]}" for name in names if name in columns]
    words = "declared by the data owner, not learned"
    if found:
        and_ = " and ".join(found)
        words = f"{and_} were found in the rows, and charged; all others are {words}"
    for one in (release, loaded):
        assert f" domains {words} " in " ".join(one.summary().split())
    assert words in release.report(tmp_path / "r.html").read_text("utf-8")


@pytest.mark.parametrize("column", OF)
def test_a_release_tells_of_its_bounds(con, tmp_path, column):
    session = dpsql.Session(con)
    out = tmp_path / "out"
    release = session.release({"s": OF[column]}, budget=BUDGET, bounds=BOUNDS, out=out)
    loaded = dpsql.Release.load(out, ledger=session.ledger)
    for one in (release, loaded):
        (bounded,) = one.facts.bounded
        assert bounded.column.lower() == column
        assert bounded.charge.mu_squared == session.ledger.entries()[0].mu_squared
        assert "bounds found" in one.summary()
        assert pl.DataFrame(one["s"]).height == 1
