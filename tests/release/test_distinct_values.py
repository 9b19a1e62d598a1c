"""COUNT(DISTINCT x) of other columns: DuckDB's numbers, flows, and what one unit changes."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import product
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines import distinct
from dpsql.engines.base import Counted
from dpsql.errors import (
    ExecutionError,
    InternalError,
    SqlError,
    UndeterminedError,
    UnsupportedSqlError,
)
from dpsql.measurement import measure
from dpsql.measurement.measure import _check_sums as check_sums
from dpsql.measurement.measure import _check_units as check_units
from dpsql.schema.names import quoted_name
from tests.helpers.inserted import insert
from tests.helpers.seeded import SeededBits
from tests.helpers.typed import Asked, conversations
from tests.release.test_distinct_units import BUDGET, HUGE, PURE, _rounded
from tests.release.test_private_joins import filled as filled_shop
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

COLUMNS = (
    "id INTEGER, m INTEGER NOT NULL CHECK (m BETWEEN 1 AND 3), kind VARCHAR, code VARCHAR, "
    "nr INTEGER, price DOUBLE, day DATE"
)
KINDS = {"kind": dpsql.Domain.labels(["a", "b"], nullable=True)}
MANY = 200
"""As large a bound as no unit reaches here."""


def rows_of(rng, units=40):
    """Units with no, few or many rows, and rows without a unit."""
    return [
        (
            unit,
            rng.randint(1, 3),
            rng.choice(["a", "b", None, "q"]),
            rng.choice([None, "", "x", "X", "é", f"c{rng.randint(1, 60)}"]),
            rng.choice([None, rng.randint(-30, 30)]),
            rng.choice([None, 0.0, -0.0, float("nan"), rng.randint(1, 9) / 4]),
            rng.choice([None, f"2020-01-{rng.randint(10, 30)}"]),
        )
        for unit in [*range(units), None]
        for _ in range(rng.choice([0, 1, 3, 20]))
    ]


def filled(rows):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE visits ({COLUMNS})").fetchall()
    con.execute("CREATE TABLE seasons (month INTEGER, season VARCHAR)").fetchall()
    insert(con, "seasons", [(m, s) for m in range(1, 4) for s in ("x", "yz"[m > 1])])
    insert(con, "visits", rows)
    return con


def schema(max_rows=None, **more):
    return dpsql.Schema({"visits": KINDS}, units={"visits": dpsql.Unit("id", max_rows, **more)})


ROWS = dpsql.Schema({"visits": KINDS})
STATEMENTS = {
    "text": "SELECT COUNT(DISTINCT code) AS n FROM visits",
    "number": "SELECT m, COUNT(DISTINCT nr) AS n FROM visits GROUP BY m",
    "double": "SELECT COUNT(DISTINCT price) AS n FROM visits",
    "day": "SELECT m, COUNT(DISTINCT day) AS n FROM visits GROUP BY m",
    "approx": "SELECT APPROX_COUNT_DISTINCT(nr) AS n, COUNT(DISTINCT nr) AS same FROM visits",
    "domain": "SELECT COUNT(DISTINCT kind) AS n FROM visits",
    "group": "SELECT kind, COUNT(DISTINCT nr) AS n FROM visits GROUP BY kind",
    "computed": "SELECT COUNT(DISTINCT nr % 7) AS n, COUNT(DISTINCT upper(code)) AS u FROM visits",
    "case": "SELECT m, COUNT(DISTINCT CASE WHEN nr > 3 THEN code END) AS n FROM visits GROUP BY m",
    "where": "SELECT COUNT(DISTINCT nr) AS n FROM visits WHERE price > 1 AND m < 3",
    "filter": "SELECT m, COUNT(DISTINCT nr) FILTER (WHERE kind = 'a') AS n, COUNT(*) AS rows "
    "FROM visits GROUP BY m",
    "joined": "SELECT season, COUNT(DISTINCT nr) AS n FROM visits JOIN seasons ON m = month "
    "GROUP BY season",
    "sets": "SELECT m, COUNT(DISTINCT code) AS n FROM visits GROUP BY ROLLUP (m)",
    "inner": "SELECT early, COUNT(DISTINCT what) AS n FROM "
    "(SELECT nr AS what, m < 2 AS early FROM visits WHERE day > '2020-01-15') GROUP BY early",
    "having": "SELECT m, COUNT(DISTINCT nr) AS n FROM visits GROUP BY m HAVING n > 1",
    "both": "SELECT m, kind, COUNT(DISTINCT code) AS n FROM visits GROUP BY ALL",
}


@pytest.fixture(scope="module")
def con():
    return filled(rows_of(random.Random(3)))  # noqa: S311


def shown(release):
    names = [c for c in release.columns if not c.endswith("_variance")]
    return sorted((tuple(map(_rounded, row)) for row in release.select(names).rows()), key=str)


def in_duckdb(con, sql, *, of_units):
    """Return what DuckDB says, of rows in which what is no value of a domain is NULL."""
    where = "id IS NOT NULL" if of_units else "true"
    kind = "CASE WHEN kind IN ('a', 'b') THEN kind END AS kind"
    rows = f"(SELECT * REPLACE ({kind}) FROM main.visits WHERE {where})"
    exact = sql.replace("APPROX_COUNT_DISTINCT(nr)", "COUNT(DISTINCT nr)")
    found = con.execute(exact.replace("FROM visits", f"FROM {rows} AS visits")).fetchall()
    return sorted(found, key=str)


@pytest.mark.parametrize("name", STATEMENTS)
def test_values_of_rows_are_counted_as_the_database_counts_them(con, name):
    """Each row is a unit of its own: nothing is left out."""
    release = dpsql.Session(con, schema=ROWS, public=["seasons"]).query(
        STATEMENTS[name], budget=HUGE
    )
    assert shown(release) == in_duckdb(con, STATEMENTS[name], of_units=False)


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("unit", [{"max_values": MANY}, {"max_rows": MANY}])
def test_values_of_units_are_all_covered_where_the_bound_is_large(con, name, unit):
    unit = {"max_rows": MANY, **unit}
    session = dpsql.Session(con, schema=schema(**unit), public=["seasons"])
    release = session.query(STATEMENTS[name], budget=HUGE)
    assert shown(release) == in_duckdb(con, STATEMENTS[name], of_units=True)


# ── Small bounds: what units cover ──────────────────────────────────────────────────────────────


def best(pairs, most):
    """Return the most values that can be covered, by trying all choices."""
    values = sorted({v for _, v in pairs})
    choices = [[None, *(u for u, of in pairs if of == value)] for value in values]
    return max(
        sum(one is not None for one in chosen)
        for chosen in product(*choices)
        if all(chosen.count(u) <= most for u in {u for u, _ in pairs})
    )


@pytest.mark.parametrize("seed", range(6))
def test_as_many_values_are_counted_as_units_can_cover(seed):
    rng = random.Random(seed)  # noqa: S311
    pairs = [(u, m, nr) for u in range(4) for m in (1, 2) for nr in range(5) if rng.random() < 0.35]
    most = rng.randint(1, 3)
    rows = [(u, m, "a", "x", nr, 1.0, None) for u, m, nr in pairs for _ in range(rng.randint(1, 3))]
    session = dpsql.Session(filled(rows), schema=schema(max_values=most))
    frame = session.query(STATEMENTS["number"], budget=HUGE)
    found = [round(n) for n in frame["n"]]
    groups = [{(u, nr) for u, of, nr in pairs if of == m} for m in (1, 2, 3)]
    assert found == [best(of, most) if of else 0 for of in groups]


def test_a_unit_counts_in_as_many_groups_as_it_may():
    rows = [(1, m, "a", "x", nr, 1.0, None) for m in (1, 2, 3) for nr in range(9)]
    for groups, most in ((1, 2), (2, 4), (3, 9), (None, 5)):
        bounds = {"max_values": most} | ({"max_groups": groups} if groups else {})
        session = dpsql.Session(filled(rows), schema=schema(**bounds))
        found = session.query(STATEMENTS["number"], budget=HUGE)["n"]
        assert sorted(round(n) for n in found)[-(groups or 3) :] == [most] * (groups or 3)
        assert round(found.sum()) == most * (groups or 3)


def test_without_a_bound_on_values_rows_bound_them():
    """Those of all groups together, so that three groups need no more noise than one."""
    rows = [(1, m, "a", "x", nr, 1.0, None) for m in (1, 2, 3) for nr in range(9)]
    session = dpsql.Session(filled(rows), schema=schema(4))
    assert round(session.query(STATEMENTS["number"], budget=HUGE)["n"].sum()) == 4
    session = dpsql.Session(filled(rows), schema=schema(4))
    plans = {name: session.plan(STATEMENTS[name], budget=BUDGET) for name in ("number", "text")}
    assert plans["number"].rmse == pytest.approx(plans["text"].rmse) == pytest.approx(4.0)


def test_values_of_a_unit_that_are_looked_at_are_bounded(monkeypatch):
    """By a public number, whatever rows there are; those in other units are still found there."""
    monkeypatch.setattr("dpsql.rel.distinct.FEWEST_KEPT", 100)
    rows = [(u, 1, "a", "x", nr, 1.0, None) for u in (1, 2) for nr in range(300)]
    session = dpsql.Session(filled(rows), schema=schema(max_values=2))
    sizes = []

    def look(found):
        sizes.extend(len(values) for values in found["v"].to_pylist())
        return distinct.values_of(found)

    monkeypatch.setattr("dpsql.engines.duckdb.distinct.values_of", look)
    assert round(session.query(STATEMENTS["number"], budget=HUGE)["n"][0]) == 4
    assert sizes == [100, 100]


# ── What one unit changes ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("querysmasher", {"max_values": 2, "max_rows": 3}),
        ("querysmasher", {"max_values": 3, "max_groups": 2, "max_rows": 4}),
        ("querysmasher", {"max_rows": 5}),
        ("hdmm", {"max_values": 4, "max_groups": 1, "max_rows": 2}),
        ("laplace", {"max_values": 2, "max_groups": 2, "max_rows": 2}),
        ("laplace", {"max_rows": 3}),
    ],
)
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(kind, bounds):
    rng = random.Random(len(str(bounds)))  # noqa: S311
    rows = rows_of(rng, 15)
    names = rng.sample(sorted(STATEMENTS.keys() - {"joined"}), 4)
    script = {name: STATEMENTS[name] for name in ["number", *names]}
    asked = {"script": script, "schema": schema(**bounds)}
    how = {"budget": PURE if kind == "laplace" else BUDGET, "mechanism": kind}
    whole = recorded(filled(rows), asked, **how)
    counted = [m for m in whole.counts if any(name.startswith("values ") for name in m)]
    assert counted
    for unit in rng.sample(sorted({row[0] for row in rows if row[0] is not None}), 3):
        fewer = recorded(filled([row for row in rows if row[0] != unit]), asked, **how)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)
        for marginal in counted:
            (name,) = (name for name in marginal if name in whole.units)
            change, each = (
                whole.counts[marginal] - fewer.counts[marginal],
                whole.bounds.get(name, 1),
            )
            assert 0 <= change.min() <= change.max() <= each
            assert change.sum() <= each * whole.units[name]


@pytest.mark.parametrize("name", ["number", "text", "joined"])
def test_a_row_that_is_a_unit_changes_as_little_as_is_charged(name):
    rng = random.Random(9)  # noqa: S311
    rows = rows_of(rng, 12)
    asked = {"script": {name: STATEMENTS[name].replace("seasons", "main.seasons")}, "schema": ROWS}
    if name == "joined":
        asked["script"] = {name: "SELECT COUNT(DISTINCT code) AS n FROM visits WHERE m > 1"}
    whole = recorded(filled(rows), asked, budget=BUDGET)
    for i in range(0, len(rows), 9):
        fewer = recorded(filled([*rows[:i], *rows[i + 1 :]]), asked, budget=BUDGET)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)


@pytest.mark.parametrize("bounds", [{"max_values": 3, "max_groups": 2}, {"max_rows": 3}])
def test_a_unit_can_cost_all_that_is_charged(bounds):
    """So it can't be less, for some of the numbers of groups that it may be in."""
    spends = []
    for groups in range(1, 4):
        rows = [(7, m, "a", "x", nr, 1.0, None) for m in range(1, groups + 1) for nr in range(5)]
        asked = {"script": {"q": STATEMENTS["number"]}, "schema": schema(**bounds)}
        pair = [recorded(filled(of), asked, budget=BUDGET) for of in (rows, [])]
        spends.append(spent(*pair))
    assert max(spends) == charged(pair[0])


def test_noise_is_as_wide_as_is_said():
    """The mean of 400 squares is within 0.75 and 1.3 but for one in 2,000 seeds."""
    con = filled([(1, 1, "a", "x", 5, 1.0, None)])
    unit = dpsql.Unit("id", max_values=4, max_groups=1)
    columns = {"nr": dpsql.Domain.integers(0, 399)}
    session = dpsql.Session(con, schema=dpsql.Schema({"visits": columns}, units={"visits": unit}))
    sql = "SELECT nr, COUNT(DISTINCT code) AS n FROM visits GROUP BY nr"
    frame = session.query(sql, budget=BUDGET)
    assert frame["n_variance"].to_numpy() == pytest.approx(16.0)
    errors = frame["n"].to_numpy() - (frame["nr"].to_numpy() == 5)
    assert 0.75 < np.mean(errors**2) / 16 < 1.3


# ── Faults ──────────────────────────────────────────────────────────────────────────────────────


def test_a_flow_that_is_not_the_largest_is_never_told(con):
    """The charge stands, as rows were looked at; nothing is said of them."""
    session = dpsql.Session(con, schema=schema(max_values=2), budget=dpsql.Budget(rho=5))
    right = distinct.taken

    def wrong(edges, sizes, capacity):
        found = right(edges, sizes, capacity)
        found.by[np.flatnonzero(found.by != -1)[0]] = -1
        return found

    with patch.object(distinct, "taken", wrong), pytest.raises(ExecutionError) as refused:
        session.query(STATEMENTS["text"], budget=BUDGET)
    assert not any(char.isdigit() for char in refused.value.message.replace("2^", ""))
    assert session.ledger.spent == 1


@pytest.mark.parametrize(("said", "match"), [("bounds", "add more"), ("units", "more groups")])
def test_counts_in_which_a_unit_may_change_more_than_is_paid_for_are_refused(con, said, match):
    """Engines say what they kept to, of what was counted and of nothing that was planned."""
    session = dpsql.Session(con, schema=schema(max_values=2, max_groups=2))
    plan = session.plan(STATEMENTS["number"], budget=BUDGET)
    ((block,),) = (plan.certified.blocks,)
    (space,) = block.spaces
    name = next(name for name in space if "groups" not in name)
    counted = {"bounds": {name: 2}, "units": {name: 2}}
    check_sums(plan.certified, Counted({}, 1, **counted))
    check_units(plan.certified, counted["units"])
    counted[said] = {name: 3}
    check, told = {
        "bounds": (check_sums, Counted({}, 1, **counted)),
        "units": (check_units, counted["units"]),
    }[said]
    with pytest.raises(InternalError, match=match):
        check(plan.certified, told)
    with pytest.raises(InternalError, match="paid for as sums"):
        check_sums(plan.certified, Counted({}, 1, units=counted["units"]))


# ── Beside others, and read again ───────────────────────────────────────────────────────────────


def test_what_was_measured_answers_the_same_question_again(con, tmp_path):
    session = dpsql.Session(con, schema=schema(max_values=3))
    script = {name: STATEMENTS[name] for name in ("number", "text")}
    first = session.release(script, budget=BUDGET)
    free = session.query(STATEMENTS["number"], budget=0)
    assert free["n"].to_list() == pytest.approx(first["number"]["n"].to_list())
    second = session.release(script, budget=BUDGET)
    assert second["text"]["n_variance"][0] == pytest.approx(first["text"]["n_variance"][0] / 2)
    first.save(tmp_path / "saved")
    read = dpsql.Release.load(tmp_path / "saved")
    again = read.query("SELECT m AS month, COUNT(DISTINCT nr) AS number FROM visits GROUP BY 1")
    assert again["number"].to_list() == pytest.approx(first["number"]["n"].to_list())
    variances = first["number"]["n_variance"].to_list()
    assert again["number_variance"].to_list() == pytest.approx(variances)
    with pytest.raises(UndeterminedError, match="COUNT"):
        read.query("SELECT COUNT(DISTINCT nr) AS n FROM visits")


def test_what_was_measured_with_another_bound_is_another_number(con):
    session = dpsql.Session(con, schema=schema(max_values=3))
    session.query(STATEMENTS["text"], budget=BUDGET)
    session = session.redeclared(schema=schema(max_values=4))
    with pytest.raises(UndeterminedError):
        session.query(STATEMENTS["text"], budget=0)


def test_rows_units_and_values_share_one_plan(con):
    session = dpsql.Session(con, schema=schema(6, max_values=2))
    sql = "SELECT m, COUNT(*) AS n, COUNT(DISTINCT id) AS u, COUNT(DISTINCT nr) AS v FROM visits "
    plan = session.plan(sql + "GROUP BY m", budget=BUDGET)
    assert "groups x COUNT(DISTINCT id): units" in plan.explain()
    assert "groups x COUNT(DISTINCT nr): units" in plan.explain()
    assert plan.certified.privacy_cost <= 1
    frame = session.query(sql + "GROUP BY m", budget=BUDGET)
    assert frame["n_variance"][0] > frame["v_variance"][0] > frame["u_variance"][0]
    ratio = "SELECT m, COUNT(*) / COUNT(DISTINCT nr) AS each FROM visits GROUP BY m"
    assert session.query(ratio, budget=BUDGET)["each_variance"].is_not_null().all()


def test_shares_of_values_are_not_cut_to_one(con):
    """Two lower bounds by flows, of which neither is a part of the other."""
    session = dpsql.Session(con, schema=schema(max_values=1))
    sql = "SELECT COUNT(DISTINCT nr) FILTER (WHERE m = 1) / COUNT(DISTINCT nr) AS s FROM visits"
    budget = dpsql.Budget(rho=Fraction(1, 10**4))
    with patch.object(measure, "fresh_bits", lambda: SeededBits(1)):
        frame = session.release(sql, budget=budget, confidence=0.95)["query"]
    assert frame["s_upper"][0] is None or frame["s_upper"][0] > 1


def test_values_of_several_tables_and_of_joined_rows():
    con = filled_shop()
    unit = dpsql.Unit("customers", 50, max_values=50)
    session = dpsql.Session(con, unit=unit)
    script = {
        "orders": "SELECT COUNT(DISTINCT status) AS n FROM orders WHERE status IS NOT NULL",
        "items": "SELECT COUNT(DISTINCT qty) AS n FROM items",
        "joined": "SELECT COUNT(DISTINCT c.region) AS n FROM orders o "
        "JOIN customers c ON o.customer_id = c.id",
        "pairs": "SELECT COUNT(DISTINCT i.qty) AS n FROM orders o "
        "JOIN items i ON i.order_id = o.id WHERE o.status IS NOT NULL",
        "ids": "SELECT COUNT(DISTINCT order_id) AS n FROM items",
    }
    release = session.release(script, budget=dpsql.Budget(rho=10**11))
    for name, sql in script.items():
        sql = sql.replace(
            "FROM items",
            "FROM (SELECT * FROM items WHERE order_id IN (SELECT id "
            "FROM orders WHERE customer_id IS NOT NULL))",
        ).replace(
            "FROM orders WHERE status", "FROM orders WHERE customer_id IS NOT NULL AND status"
        )
        assert round(release[name]["n"][0]) == con.execute(sql).fetchall()[0][0], name


# ── What is said ────────────────────────────────────────────────────────────────────────────────


def test_lower_bounds_are_said_to_be_such(con):
    session = dpsql.Session(con, schema=schema(5, max_values=2, max_groups=1))
    sql = "SELECT m, COUNT(DISTINCT nr) AS n, COUNT(DISTINCT id) AS u FROM visits GROUP BY m"
    said = (
        "COUNT(DISTINCT nr) is a lower bound: one id counts for at most 2 values in each group, "
        "and in at most 1 group"
    )
    assert any(said in note for note in session.plan(sql, budget=BUDGET).notes)
    release = session.release(sql, budget=BUDGET)
    notes = dict(release.columns("query").select("column", "reason").rows())
    assert notes == {"m": None, "n": said, "u": None}
    session = session.redeclared(schema=schema(5))
    (note,) = session.release(sql, budget=BUDGET).columns("query")["reason"].drop_nulls()
    assert note.endswith("at most 5 values in all groups together")
    (note,) = session.release(STATEMENTS["text"], budget=BUDGET).columns("query")["reason"]
    assert note.endswith("one id counts for at most 5 values")


def test_values_of_rows_are_exact_but_protect_rows_alone(con):
    session = dpsql.Session(con, schema=ROWS)
    (note,) = session.release(STATEMENTS["text"], budget=BUDGET).columns("query")["reason"]
    assert note.startswith("COUNT(DISTINCT code) is of rows that are each protected alone: ")
    (note,) = session.release(STATEMENTS["domain"], budget=BUDGET).columns("query")["reason"]
    assert note is None


@pytest.mark.parametrize("name", ["person", "Person id", 'a "b"', "select", "x.y"])
def test_without_a_unit_it_is_said_who_is_not_protected_and_how_to(name):
    """What the note says to pass is typed: then units are counted."""
    con = duckdb.connect()
    column = quoted_name(name)
    con.execute(f"CREATE TABLE t ({column} INTEGER)")
    sql = f"SELECT COUNT(DISTINCT {column}) AS n FROM t"
    (note,) = dpsql.plan(con, sql, budget=BUDGET).notes
    said, _, typed = note.partition(" pass ")
    assert "without unit=, each row is hidden, and not each person who has several" in said
    given = eval(f"dict({typed})", {})  # noqa: S307
    plan = dpsql.plan(con, sql, budget=BUDGET, **given)
    assert plan.neighbours != dpsql.plan(con, sql, budget=BUDGET).neighbours
    assert not any("protected alone" in one for one in plan.notes)


# ── What is refused ─────────────────────────────────────────────────────────────────────────────


def test_a_bound_is_needed_and_the_hint_for_it_works(con):
    session = dpsql.Session(con, unit="id")
    with pytest.raises(UnsupportedSqlError, match="Nothing says how many") as refused:
        session.plan(STATEMENTS["text"], budget=BUDGET)
    assert refused.value.hint == "give a bound: max_values=5."
    assert dpsql.plan(
        con, STATEMENTS["text"], budget=BUDGET, unit="id", max_values=5
    ).rmse == pytest.approx(5)


@pytest.mark.parametrize(
    ("sql", "match"),
    [
        ("SELECT COUNT(DISTINCT nr, m) FROM visits", "DISTINCT in an aggregate"),
        ("SELECT SUM(DISTINCT nr) FROM visits", "DISTINCT in an aggregate"),
        ("SELECT COUNT(DISTINCT season) FROM visits JOIN seasons ON m = month", "public ones"),
        ("SELECT COUNT(DISTINCT (SELECT max(month) FROM seasons)) FROM visits", "public ones"),
        ("SELECT m, SUM(COUNT(DISTINCT nr)) OVER (ORDER BY m) FROM visits GROUP BY m", "added up"),
        ("SELECT COUNT(DISTINCT CASE WHEN nr > 3 THEN id END + 1) OVER () FROM visits", "."),
    ],
)
def test_other_distinct_values_are_refused(con, sql, match):
    session = dpsql.Session(con, schema=schema(max_values=3), public=["seasons"])
    with pytest.raises(SqlError, match=match):
        session.query(sql, budget=BUDGET)


@pytest.mark.parametrize("called", ["COUNT(DISTINCT nr)", "APPROX_COUNT_DISTINCT(nr)"])
def test_values_across_union_all_are_those_of_units(called):
    """Rows of nobody are protected table by table, and their values can't be added up."""
    con = filled([(1, 1, "a", "x", nr, 1.0, None) for nr in range(9)])
    con.execute("CREATE TABLE more AS SELECT * REPLACE (nr + 5 AS nr) FROM visits").fetchall()
    units = {name: dpsql.Unit("id", max_values=30) for name in ("visits", "more")}
    session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
    sql = f"SELECT {called} AS n FROM (SELECT nr FROM visits UNION ALL SELECT nr FROM more)"
    assert round(session.query(sql, budget=HUGE)["n"][0]) == 14
    with pytest.raises(dpsql.DpsqlError):
        dpsql.Session(con).query(sql, budget=BUDGET)


# ── The bound ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", 10**7])
def test_a_bound_on_values_is_a_whole_number(most):
    with pytest.raises(dpsql.DpsqlError, match="max_values can't be"):
        dpsql.Unit("id", max_values=most)


def test_the_bound_on_values_may_stand_in_a_file_or_a_comment(tmp_path):
    (tmp_path / "schema.toml").write_text("[visits]\nunit = 'id'\nmax_values = 2\n")
    read = dpsql.Schema.load(tmp_path / "schema.toml")
    assert read.units == {"visits": dpsql.Unit("id", max_values=2)}
    assert repr(read.units["visits"]) == "Unit(key='id', max_rows=None, max_values=2)"
    con = filled([(1, 1, "a", "x", nr, 1.0, None) for nr in range(9)])
    noted = 'dpsql: {"unit": "id", "max_rows": 3, "max_values": 5}'
    con.execute(f"COMMENT ON TABLE visits IS '{noted}'").fetchall()
    counted = {}
    for name, schema_ in (("file", read), ("comment", None)):
        session = dpsql.Session(con, schema=schema_, budget=HUGE)
        frame = session.query(
            "SELECT COUNT(DISTINCT nr) AS n FROM visits", budget=dpsql.Budget(rho=10**8)
        )
        counted[name] = round(frame["n"][0])
    assert counted == {"file": 2, "comment": 5}


def test_the_bound_on_values_may_stand_beside_the_unit(con):
    asked = {"budget": dpsql.Budget(rho=10**8), "unit": "id", "max_values": 2}
    other = filled([(1, 1, "a", "x", nr, 1.0, None) for nr in range(9)])
    assert round(dpsql.query(other, STATEMENTS["number"], **asked)["n"].sum()) == 2
    with pytest.raises(dpsql.SchemaError, match="has no bound on values beside it") as refused:
        dpsql.Session(con, unit=dpsql.Unit("id", 3), max_values=2)
    made = eval(refused.value.hint.removeprefix("pass ").removesuffix("."), {"dpsql": dpsql})  # noqa: S307
    assert made.max_values == 5
    with pytest.raises(dpsql.SchemaError, match="A limit on the rows of a unit needs the column"):
        dpsql.Session(con, max_values=2)


def test_a_bound_on_values_says_nothing_of_rows(con, tmp_path):
    """What was measured of rows before is used on, and a saved release has the bound."""
    sql = "SELECT m, COUNT(*) AS n FROM visits GROUP BY m"
    session, variances = dpsql.Session(con, schema=schema(3)), []
    for most in (1, 4):
        session = session.redeclared(schema=schema(3, max_values=most))
        release = session.release({"q": sql, "v": STATEMENTS["number"]}, budget=BUDGET)
        variances.append(release["q"]["n_variance"][0])
        release.save(tmp_path / str(most))
        document = (tmp_path / str(most) / "release.json").read_text()
        assert json.loads(document)["table"]["unit"]["max_values"] == most
        assert dpsql.Release.load(tmp_path / str(most)).query(STATEMENTS["number"]).height == 3
    assert variances[1] < variances[0]


PLACES = "(SELECT {} AS e FROM items UNION ALL SELECT {} FROM items) AS u"
WHOSE = [
    (f"SELECT COUNT(DISTINCT e) AS n FROM {PLACES.format(one, other)}", one != other)
    for one in ("kind", "code", "upper(kind)")
    for other in ("kind", "code")
] + [
    ("SELECT COUNT(DISTINCT price + at) AS n FROM items, (VALUES (1), (2)) AS v (at)", True),
    ("SELECT COUNT(DISTINCT kind || at) AS n FROM items JOIN (VALUES ('a')) AS v (at) ON kind < at",
     True),
    ("SELECT COUNT(DISTINCT at) AS n FROM items, (VALUES (1), (2)) AS v (at)", None),
    ("SELECT COUNT(DISTINCT at + at) AS n FROM items, (VALUES (1), (2)) AS v (at)", None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "differs"), WHOSE)
def test_values_that_are_not_of_the_row_alone_are_refused_as_such(sql, differs):
    """True where they differ with what a row goes with, None where no private column is in them."""
    con = duckdb.connect()
    con.execute("CREATE TABLE items (p INTEGER, kind VARCHAR, code VARCHAR, price DOUBLE)")
    session = dpsql.Session(con, unit="p", max_values=3)
    if differs is False:
        assert session.plan(sql, budget=BUDGET).rmse > 0
        return
    with pytest.raises(UnsupportedSqlError) as refused:
        session.plan(sql, budget=BUDGET)
    said = "these are of public ones" if differs is None else "follows from the row alone"
    assert said in refused.value.message


@pytest.mark.parametrize("sql", [
    sql for sql, differs in WHOSE if differs is None or (differs and "UNION ALL" in sql)
])  # fmt: skip
def test_what_is_typed_in_place_of_them_is_answered(sql):
    """With the next hints, for values that nobody knows."""
    con = duckdb.connect()
    con.execute("CREATE TABLE items (p INTEGER, kind VARCHAR, code VARCHAR, price DOUBLE)")

    def refused(asked):
        unit = {"unit": "p", "max_rows": 3, "max_values": 3}
        try:
            dpsql.plan(con, asked.sql, budget=BUDGET, **unit, **asked.arguments)
        except dpsql.DpsqlError as error:
            return error
        return None

    ends = [steps[-1].refusal for steps in conversations(Asked(sql), refused)]
    assert None in ends, ends
