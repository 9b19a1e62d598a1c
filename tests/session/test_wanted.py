"""Releases that find the values of columns first: what is asked, charged, refused and kept."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from functools import partial
from unittest.mock import patch

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.measurement.keys import ToldKey
from dpsql.release import folder
from dpsql.session import answer as answering
from dpsql.session import keys as finding
from dpsql.session import session as sessions
from tests.helpers.charging import charged
from tests.helpers.persons import check_found_alike, persons

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
KEYS = dpsql.Keys()
TABLES = """
    CREATE TABLE c (id INTEGER PRIMARY KEY, city VARCHAR NOT NULL);
    CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id), item VARCHAR,
        size SMALLINT, day DATE, moment TIMESTAMP, price INTEGER,
        kind VARCHAR NOT NULL CHECK (kind IN ('p', 'q')));
    INSERT INTO c SELECT i, 'town ' || (i % 4) FROM range(1200) t (i);
    INSERT INTO o SELECT i, i % 1200, 'item ' || (i % 5), i % 3, DATE '2024-01-01' + (i % 2)::INT,
        TIMESTAMP '2024-01-01 10:00:00' + to_days((i % 2)::INT), i % 100, ['p', 'q'][i % 2 + 1]
    FROM range(3000) t (i);
    INSERT INTO o VALUES (9999, 7, 'rare', NULL, NULL, NULL, NULL, 'p');
"""
ROWS = "SELECT i, 'town ' || (i % 4) AS city, i % 100 AS price FROM range(2000) t (i)"


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(TABLES)
    con.execute(f"CREATE TABLE plain AS {ROWS}")
    return con


def of_units(con, **given):
    return dpsql.Session(con, unit=dpsql.Unit("c", max_rows={"c": 1, "o": 4}), **given)


# ── What is asked ────────────────────────────────────────────────────────────────────────────────

ASKED = {
    "texts": ("SELECT city AS k, COUNT(*) AS n FROM plain GROUP BY k", 5),
    "of rows that are referred to": (
        "SELECT c.city AS k, COUNT(*) AS n FROM o JOIN c ON o.cid = c.id GROUP BY k", 5),
    "of units": ("SELECT item AS k, COUNT(DISTINCT cid) AS n FROM o GROUP BY k", 7),
    "numbers": ("SELECT size AS k, COUNT(*) AS n FROM o GROUP BY k", 4),
    "days": ("SELECT day AS k, COUNT(*) AS n FROM o GROUP BY k", 3),
    "times": ("SELECT moment::DATE AS k, COUNT(*) AS n FROM o GROUP BY k", 3),
    "computed": ("SELECT upper(item) AS k, COUNT(*) AS n FROM o GROUP BY k", 7),
    "in a query": (
        "SELECT k, COUNT(*) AS n FROM (SELECT item AS k, kind FROM o WHERE kind = 'p') GROUP BY k",
        7),
    "with sums": ("SELECT item AS k, COUNT(*) AS n FROM o WHERE kind = 'p' GROUP BY ALL", 7),
    "two": ("SELECT item || size::VARCHAR AS k, COUNT(*) AS n FROM o GROUP BY k", 22),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_values_are_found_and_groups_are_counted(con, name):
    sql, _ = ASKED[name]
    of = of_units(con) if " o" in sql else dpsql.Session(con)
    with pytest.raises(dpsql.SchemaError, match="no public domain"):
        of.query(sql, budget=BUDGET)
    budget = dpsql.Budget(rho=10**9)
    frame = of.query(sql, budget=budget, keys=dpsql.Keys(delta="1e-9"))
    true = dict(con.execute(sql).fetchall())
    found = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n)}
    frequent = {k: n for k, n in true.items() if n > 1 and k is not None}
    assert {k: found[k] for k in frequent} == frequent
    assert sum(found.values()) == sum(true.values()) or "DISTINCT" in sql or name == "two"
    assert of.history["state"].to_list() == ["delivered"] * of.history.height


def test_one_line_is_enough_for_a_file_of_which_nothing_is_declared(tmp_path):
    path = tmp_path / "people.csv"
    duckdb.connect().sql(ROWS).pl().with_columns(
        pl.lit("x").alias(f"more {i}") for i in range(17)
    ).write_csv(path)
    sql = "SELECT city, COUNT(*) AS n FROM people GROUP BY city"
    frame = dpsql.query(path, sql, budget=BUDGET, keys=KEYS)
    assert {f"town {i}" for i in range(4)} <= set(frame["city"])


def declared_in_a_file(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text('[plain.columns]\ncity = { keys = true, other = "elsewhere" }\n', "utf-8")
    return path


@pytest.mark.parametrize("way", ["python", "file", "comment"])
def test_columns_are_declared_by_the_owner(con, tmp_path, way):
    schema = {"plain": {"city": dpsql.Domain.keys(other="elsewhere")}}
    if way == "file":
        schema = declared_in_a_file(tmp_path)
    if way == "comment":
        schema = None
        said = '{"keys": true, "other": "elsewhere"}'
        con.execute(f"COMMENT ON COLUMN plain.city IS 'dpsql: {said}'")
    sql = "SELECT city, COUNT(*) AS n FROM plain GROUP BY city"
    session = dpsql.Session(con, schema=schema)
    release = session.release({"by city": sql}, budget=BUDGET)
    assert "elsewhere" in release["by city"]["city"].to_list()
    assert release.found_keys("plain", "city").keys == tuple(f"town {i}" for i in range(4))
    assert session.query(sql, budget=0).height == release["by city"].height


# ── What is charged ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("statements", "share"),
    [
        (["SELECT city, COUNT(*) AS n FROM plain GROUP BY city"], Fraction(1, 2)),
        (["SELECT city, COUNT(*) AS n FROM plain GROUP BY city", "SELECT COUNT(*) AS n FROM plain"],
         Fraction(1, 5)),
    ],
)  # fmt: skip
def test_all_of_the_budget_is_charged_and_no_more(con, statements, share):
    session = dpsql.Session(con)
    session.release(statements, budget=BUDGET, keys=KEYS)
    rho, delta = charged(session)
    aside = BUDGET.setting_aside(BUDGET.delta / 10)
    assert rho == aside.rho
    assert delta == aside.key_delta
    assert session.ledger.entries()[0].mu_squared == aside.mu_squared * share


@pytest.mark.parametrize("name", ASKED)
def test_what_only_counts_by_keys_spends_half_on_them_rows_and_units_alike(con, name):
    sql, _ = ASKED[name]
    of = of_units(con) if " o" in sql else dpsql.Session(con)
    aside = BUDGET.setting_aside(BUDGET.delta / 10)
    rest = of.plan({name: sql}, budget=BUDGET, keys=KEYS).budget
    assert float(rest.mu_squared / aside.mu_squared) == pytest.approx(1 / 2, rel=1e-9)


def test_several_columns_share_what_finds_keys(con):
    session = of_units(con)
    asked = [f"SELECT {key}, COUNT(*) AS n FROM o GROUP BY ALL" for key in ("item", "day")]
    session.release(asked, budget=BUDGET, keys=dpsql.Keys(0.4))
    aside = BUDGET.setting_aside(BUDGET.delta / 10)
    first, second, _ = session.ledger.entries()
    assert first.mu_squared == second.mu_squared == aside.mu_squared / 5
    assert charged(session) == (aside.rho, aside.key_delta)


def test_a_total_with_delta_set_aside_pays_for_it(con):
    con.execute("ALTER TABLE plain ADD COLUMN kind VARCHAR; UPDATE plain SET kind = 'k' || i % 3")
    session = dpsql.Session(con, budget=BUDGET, key_delta=1e-10)
    sql = "SELECT city, COUNT(*) AS n FROM plain GROUP BY city"
    session.query(sql, budget=dpsql.Budget(epsilon=0.5, delta=1e-9), keys=KEYS)
    before = charged(session)
    other = "SELECT kind, COUNT(*) AS n FROM plain GROUP BY kind"
    with pytest.raises(dpsql.errors.BudgetError, match="Not enough budget"):
        session.query(other, budget=dpsql.Budget(epsilon=0.9, delta=1e-9), keys=KEYS)
    assert charged(session) == before
    session.query(other, budget=dpsql.Budget(rho=session.remaining), keys=KEYS)
    assert session.remaining == 0


def test_what_was_found_before_is_free(con):
    session = dpsql.Session(con)
    sql = "SELECT city, COUNT(*) AS n FROM plain GROUP BY city"
    with pytest.raises(dpsql.errors.BudgetError, match=r"No values of plain\.city"):
        session.query(sql, budget=0, keys=KEYS)
    session.find_keys("plain", "city", budget=BUDGET)
    session.query(sql, budget=dpsql.Budget(rho=1), keys=KEYS)
    assert session.ledger.entries()[-1].mu_squared == 2
    assert session.history.height == 2


def test_errors_beforehand_are_those_after(con):
    sql = "SELECT city, COUNT(*) AS n FROM plain GROUP BY city"
    schema = {"plain": {"city": dpsql.Domain.keys()}}
    session = dpsql.Session(con, schema=schema)
    plan = session.plan(sql, budget=BUDGET, assume={"plain.city": 4})
    assert not session.history.height
    assert plan.notes[-2].startswith("values of plain.city are found first, for ρ = 0.00")
    release = session.release([sql], budget=BUDGET)
    assert plan.rmse == pytest.approx(release.plan.rmse, rel=1e-9)
    alone = dpsql.plan(con, sql, budget=BUDGET, schema=schema, assume={"plain.city": 4})
    assert alone.rmse == pytest.approx(plan.rmse, rel=1e-9)
    many = dpsql.plan(con, sql, budget=BUDGET, schema=schema)
    assert "for 100 of them" in many.notes[-2]


# ── What is refused, before anything is charged ──────────────────────────────────────────────────

BY_CITY = "SELECT city, COUNT(*) AS n FROM plain GROUP BY city"
REFUSED = {
    "no keys": (BY_CITY, {}, "no public domain"),
    "no delta": (BY_CITY, {"budget": dpsql.Budget(rho=1), "keys": KEYS}, "need a δ"),
    "pure": (BY_CITY, {"budget": dpsql.Budget(epsilon=1, delta=0), "keys": KEYS}, "need a δ"),
    "all of it": (BY_CITY, {"keys": dpsql.Keys(1)}, "leaves nothing"),
    "no rule": (BY_CITY, {"keys": 0.5}, r"keys is a dpsql\.Keys"),
    "too few units": (BY_CITY, {"keys": dpsql.Keys(at_least=20)}, "can't be found"),
    "something else": (
        "SELECT city, SUM(price) AS s FROM plain GROUP BY 1", {"keys": KEYS}, "no public bounds"),
    "other types": (
        "SELECT p.v, COUNT(*) FROM (SELECT price::DOUBLE AS v FROM plain) p GROUP BY v",
        {"keys": KEYS, "budget": dpsql.Budget(epsilon=1, delta=0)}, "need a δ"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_is_charged(con, name):
    sql, given, said = REFUSED[name]
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.DpsqlError, match=said) as caught:
        session.query(sql, **{"budget": BUDGET, **given})
    assert caught.value.hint
    assert not session.history.height


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"targets": {"n": 5}, "at_most": dpsql.Budget(rho=1)}, "for a part of a budget"),
        ({"budget": BUDGET, "assume": {"plain.city": 4}}, "Assumed rows are for targets"),
    ],
)
def test_a_release_is_refused_without_a_budget_to_take_a_part_of(con, given, said):
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.BudgetError, match=said):
        session.release({"n": BY_CITY}, keys=KEYS, **given)
    assert not session.history.height


@pytest.mark.parametrize("many", [0, 1.5, 10**9, True])
def test_a_number_of_keys_that_cannot_be_is_refused(con, many):
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.DpsqlError, match=r"assumed|rows"):
        session.plan(BY_CITY, budget=BUDGET, keys=KEYS, assume={"plain.city": many})


def test_no_number_found_is_said_and_nothing_else_is_charged(con):
    session = dpsql.Session(con)
    sql = "SELECT i, COUNT(*) AS n FROM plain GROUP BY i"
    for height in (1, 1):
        with pytest.raises(dpsql.SchemaError, match="No value of i was found") as caught:
            session.query(sql, budget=BUDGET, keys=KEYS)
        assert "larger budget" in caught.value.hint
        assert session.history.height == height


# ── Between both steps ───────────────────────────────────────────────────────────────────────────


def test_keys_stay_where_the_second_step_fails(con):
    session = dpsql.Session(con)

    def fail(data, request):
        if data.declared.found:
            raise KeyboardInterrupt
        return real(data, request)

    real = sessions.answer
    with patch.object(sessions, "answer", fail), pytest.raises(KeyboardInterrupt):
        session.query(BY_CITY, budget=BUDGET, keys=KEYS)
    assert session.history.height == 1
    (paid,) = session.ledger.entries()
    session.query(BY_CITY, budget=dpsql.Budget(rho=1), keys=KEYS)
    assert [e.mu_squared for e in session.ledger.entries()] == [paid.mu_squared, 2]


def test_a_release_tells_of_its_keys_wherever_it_is_read(con, tmp_path):
    session = dpsql.Session(con)
    release = session.release({"n": BY_CITY}, budget=BUDGET, keys=KEYS, out=tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    for one in (release, loaded):
        found = one.found_keys("PLAIN", "City")
        assert found.keys == tuple(f"town {i}" for i in range(4))
        assert found.request == session.ledger.entries()[0].request
        assert found.domain == one.facts.table.columns["city"]
        assert "keys found" in one.summary()
        with pytest.raises(dpsql.SchemaError, match="No values of"):
            one.found_keys("plain", "price")
    promise = release.report(tmp_path / "r.html").read_text("utf-8")
    assert "plain.city" in promise
    later = session.release({"n": "SELECT COUNT(*) AS n FROM plain"}, budget=BUDGET)
    assert later.facts.found == tuple(one.without_scores for one in release.facts.found)


# ── Neighbours ───────────────────────────────────────────────────────────────────────────────────


def people(seed, without=None):
    """Make rows of persons, of whom one may be left out, with a city that nobody else has."""
    rng = random.Random(seed)  # noqa: S311
    rows = [(rng.randrange(12), rng.choice("abcde"), rng.randrange(4)) for _ in range(60)]
    rows += [(without if without is not None else 3, "his own", 1)]
    return persons("city VARCHAR", rows, without)


@pytest.mark.parametrize("seed", range(12))
def test_neighbours_that_find_the_same_differ_by_what_is_charged(seed):
    """And all else, what is planned and what it is called, depends on the keys that were told."""
    rng = random.Random(seed)  # noqa: S311
    told = [ToldKey(0, -9, key) for key in rng.sample([b"a", b"b", b"c", b"none has it"], 3)]
    script = {"n": "SELECT city, COUNT(*) AS n FROM t WHERE x > 0 GROUP BY city",
              "m": "SELECT x, COUNT(*) AS n FROM t GROUP BY x"}  # fmt: skip

    def tell(charged, scores, step):
        for _ in scores.run():
            pass
        return tuple(told)

    sessions = [dpsql.Session(people(seed, one), unit="p", max_rows=4) for one in (None, 3)]
    telling = partial(patch.object, finding, "find_keys", tell)
    check_found_alike(sessions, script, telling, budget=BUDGET, keys=KEYS)


# ── What a hostile reader found ──────────────────────────────────────────────────────────────────

TWO = "SELECT city, kind, COUNT(*) AS n FROM plain GROUP BY ALL"
GIVEN = {
    "plain": BUDGET,
    "aside": BUDGET.setting_aside(1e-10),
    "rho": dpsql.Budget(rho=Fraction(1, 10)),
    "rho aside": dpsql.Budget(rho=Fraction(1, 10)).setting_aside(1e-10),
}
RULES = [
    dpsql.Keys(),
    dpsql.Keys(Fraction(1, 3)),
    dpsql.Keys(delta="5e-11"),
    dpsql.Keys(delta="9e-10"),
    dpsql.Keys(Fraction(1, 7), delta="1.9e-9"),
    dpsql.Keys(at_least=600),
]


@pytest.mark.parametrize("total", [None, "plain", "rho aside"])
@pytest.mark.parametrize("name", GIVEN)
def test_no_more_is_charged_than_the_budget_states(con, name, total):
    """Of whatever form it is, however many columns share it, and with an account's total."""
    con.execute("ALTER TABLE plain ADD COLUMN kind VARCHAR; UPDATE plain SET kind = 'k' || i % 3")
    answered = 0
    for keys in RULES:
        session = dpsql.Session(con)
        if total is not None:
            session = dpsql.Session(con, budget=GIVEN[total], key_delta=1e-10)
        budget = GIVEN[name]
        try:
            session.query(TWO, budget=budget, keys=keys)
        except dpsql.errors.BudgetError:
            assert not session.history.height
            continue
        answered += 1
        rho, delta = charged(session)
        stated = session.ledger.understood(budget)
        if stated.delta is not None and not stated.key_delta:
            stated = stated.setting_aside(delta)
            assert delta < budget.delta
        assert rho <= stated.rho
        assert rho == pytest.approx(stated.rho, rel=1e-9)
        assert delta <= (stated.key_delta or keys.delta or session.ledger.total_delta)
    assert answered or total == "plain"


MADE = {
    "left join": "SELECT c.city AS k, COUNT(o.id) AS n FROM c LEFT JOIN o ON o.cid = c.id "
    "GROUP BY k",
    "chosen": "SELECT item AS k, COUNT(*) AS n FROM (SELECT * FROM o QUALIFY row_number() OVER "
    "(PARTITION BY cid ORDER BY id) = 1) GROUP BY k",
    "parent": "SELECT c.city AS k, COUNT(*) AS n FROM o JOIN c ON o.cid = c.id GROUP BY k",
    "union": "SELECT k, COUNT(*) AS n FROM (SELECT cid, item AS k FROM o UNION ALL "
    "SELECT id, city FROM c) GROUP BY k",
}


@pytest.mark.parametrize("name", MADE)
def test_releases_of_all_kinds_of_rows_tell_of_the_keys_they_rest_on(con, name, tmp_path):
    session = of_units(con)
    release = session.release([MADE[name]], budget=BUDGET, keys=dpsql.Keys(0.8), out=tmp_path / "r")
    paid = [e for e in session.ledger.entries() if e.delta]
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    for one in (release, loaded):
        assert {found.charge.seq for found in one.facts.found} == {e.seq for e in paid}
        for found in one.facts.found:
            keys = one.found_keys(found.path[-1], found.column)
            assert len(keys) == {"city": 4, "item": 5}[found.column]


def test_the_charge_that_is_told_is_the_one_that_paid_for_the_keys_at_hand(con):
    one, other = dpsql.Session(con), dpsql.Session(con)
    found = one.find_keys("plain", "city", budget=BUDGET)
    other._account, other._data = one._account, one._data
    other.find_keys("plain", "city", budget=dpsql.Budget(rho=1), keys=dpsql.Keys(delta="1e-4"),
                    refresh=True)  # fmt: skip
    release = one.release([BY_CITY], budget=dpsql.Budget(rho=1))
    assert release.found_keys("plain", "city").request == found.request
    assert release.found_keys("plain", "city").rule == found.rule


TIMES = [
    "moment < TIMESTAMP '2024-01-02 12:00'",
    "moment > TIMESTAMP '2024-01-01 09:00'",
    "hour(moment) = 10",
    "moment <> TIMESTAMP '2024-01-02 10:00'",
    "moment + INTERVAL 15 HOUR > TIMESTAMP '2024-01-02'",
    "moment::DATE = DATE '2024-01-02'",
]


@pytest.mark.parametrize("condition", TIMES)
@pytest.mark.parametrize("form", ["WHERE {}", "FILTER"])
def test_times_of_found_days_are_those_that_are_stored(con, condition, form):
    where = form.format(condition) if "{}" in form else ""
    counted = "COUNT(*)" if where else f"COUNT(*) FILTER (WHERE {condition})"
    sql = f"SELECT moment::DATE AS k, {counted} AS n FROM o {where} GROUP BY k"
    session = of_units(con)
    session.find_keys("o", "moment", budget=BUDGET)
    frame = session.query(sql, budget=dpsql.Budget(rho=10**9))
    true = {k: n for k, n in con.execute(sql).fetchall() if n and k is not None}
    found = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n) and k is not None}
    assert found == true


def test_tables_of_one_name_in_two_schemas_are_two(con):
    con.execute("CREATE SCHEMA s; CREATE TABLE s.plain AS SELECT 'z' || i % 3 AS city FROM plain")
    session = dpsql.Session(con)
    assert session.find_keys("s.plain", "city", budget=BUDGET).keys == ("z0", "z1", "z2")
    with pytest.raises(dpsql.SchemaError, match="no public domain"):
        session.query(BY_CITY, budget=BUDGET)
    other = dpsql.Session(con)
    frame = other.query(
        "SELECT city, COUNT(*) AS n FROM s.plain GROUP BY 1", budget=BUDGET, keys=KEYS
    )
    assert {"z0", "z1", "z2"} <= {*frame["city"]}
    assert "town 1" in other.query(BY_CITY, budget=BUDGET, keys=KEYS)["city"].to_list()


def test_a_call_that_died_after_it_was_paid_is_paid_once(con):
    session = dpsql.Session(con)
    died = patch.object(answering, "_handed_out", side_effect=KeyboardInterrupt)
    with died, pytest.raises(KeyboardInterrupt):
        session.query(BY_CITY, budget=BUDGET, keys=KEYS)
    paid = charged(session)
    session.query(BY_CITY, budget=BUDGET, keys=KEYS)
    assert charged(session) == paid
    assert session.history["state"].to_list() == ["delivered"] * 2


def test_one_call_after_the_other_on_a_file(tmp_path):
    path = tmp_path / "plain.duckdb"
    with duckdb.connect(path) as con:
        con.execute(f"CREATE TABLE plain AS SELECT *, 'k' || i % 3 AS kind, i % 2 = 0 AS half "
                    f"FROM ({ROWS})")  # fmt: skip
    asked = [(BY_CITY, KEYS), ("SELECT half, COUNT(*) AS n FROM plain GROUP BY half", None),
             ("SELECT kind, COUNT(*) AS n FROM plain GROUP BY kind", KEYS), (TWO, KEYS),
             (BY_CITY, None)]  # fmt: skip
    schema = {"plain": {"city": dpsql.Domain.keys()}}
    for sql, keys in asked:
        assert dpsql.query(path, sql, budget=BUDGET, keys=keys, schema=schema).height
    for vintage in ("", "next"):
        session = dpsql.Session(path, vintage=vintage)
        assert session.query(BY_CITY, budget=BUDGET, keys=KEYS).height


def test_tables_of_units_may_have_been_asked_before(con):
    session = of_units(con)
    session.query("SELECT kind, COUNT(*) AS n FROM o GROUP BY kind", budget=BUDGET)
    for column in ("item", "day"):
        sql = f"SELECT {column}, COUNT(*) AS n FROM o GROUP BY {column}"
        assert session.plan(sql, budget=BUDGET, keys=KEYS).rmse > 0
        assert session.query(sql, budget=BUDGET, keys=KEYS).height > 2
    other = session.redeclared(unit=dpsql.Unit("c", max_rows={"c": 1, "o": 5}))
    with pytest.raises(dpsql.errors.StaleSchemaError):  # as ever: which rows count has changed
        other.query("SELECT kind, COUNT(*) AS n FROM o GROUP BY kind", budget=BUDGET)


@pytest.mark.parametrize("other", ["key 3", "key 99", "town 1", ""])
def test_any_label_stands_for_others(con, other):
    if not other:
        with pytest.raises(dpsql.SchemaError, match="label for other texts"):
            dpsql.Domain.keys(other=other)
        return
    session = dpsql.Session(con, schema={"plain": {"city": dpsql.Domain.keys(other=other)}})
    assert session.plan(BY_CITY, budget=BUDGET).rmse > 0
    assert other in session.query(BY_CITY, budget=BUDGET)["city"].to_list()


@pytest.mark.parametrize("many", [float("nan"), float("inf"), "a", None, []])
def test_what_is_no_number_of_keys_is_refused_as_ever(con, many):
    with pytest.raises(dpsql.errors.DpsqlError):
        dpsql.plan(con, BY_CITY, budget=BUDGET, keys=KEYS, assume={"PLAIN.City": many})


CHANGES = {
    "no rounds": lambda found: found.update(rounds=[]),
    "too many": lambda found: found["rounds"][0].update(most=10**6),
    "no unit": lambda found: found["rounds"][0].update(least=0),
    "nothing paid": lambda found: found["rounds"][0].update(mu_squared="0"),
    "more than paid": lambda found: found["rounds"][0].update(mu_squared="1"),
    "all of delta": lambda found: found["rounds"][0].update(delta="1/2"),
    "no path": lambda found: found.update(path=[]),
    "another table": lambda found: found.update(path=["memory", "main", "o"]),
}
OTHERS = {
    "column": lambda found: found.update(column="i"),
    "rule": lambda found: found["rounds"][0].update(least=5),
    "charge": lambda found: found["charge"].update(request="ab" * 16),
}


@pytest.mark.parametrize("what", [*CHANGES, *OTHERS])
def test_a_folder_that_says_otherwise_is_refused(con, tmp_path, what):
    session = dpsql.Session(con)
    session.release([BY_CITY], budget=BUDGET, keys=KEYS, out=tmp_path / "r")
    path = tmp_path / "r" / "release.json"
    document = json.loads(path.read_text("utf-8"))
    del document["sha256"]
    ({**CHANGES, **OTHERS}[what])(document["found_keys"][0])
    path.write_text(folder.as_json({**document, "sha256": folder._digest(document)}), "utf-8")
    ledger = session.ledger if what in OTHERS else None
    with pytest.raises((dpsql.errors.ReleaseFormatError, dpsql.errors.LedgerError)):
        dpsql.Release.load(tmp_path / "r", ledger=ledger)


def test_keys_are_free_where_no_delta_is_left_for_others(con):
    session = dpsql.Session(con, budget=dpsql.Budget(rho=10), key_delta=1e-10)
    session.find_keys("plain", "city", budget=dpsql.Budget(rho=5), keys=dpsql.Keys(delta="1e-10"))
    assert session.remaining_delta == 0
    other = session.redeclared()
    assert other.query(BY_CITY, budget=dpsql.Budget(rho=1), keys=KEYS).height == 6
    with pytest.raises(dpsql.errors.BudgetError, match="δ"):
        other.query("SELECT price, COUNT(*) AS n FROM plain GROUP BY price",
                    budget=dpsql.Budget(rho=1), keys=KEYS)  # fmt: skip


CONDITIONS = {
    "size": ["size > 1", "size BETWEEN 1 AND 2", "size + 1 = 2", "size IN (1, 2) OR size = 0"],
    "day": ["day >= DATE '2024-01-02'", "year(day) = 2024", "month(day) = 1", "day < '2024-01-02'",
            "day > DATE '2023-12-31' AND day <> DATE '2024-01-01'"],
    "price": ["price > 90", "price * 2 < 20"],
    "item": ["item > 'item 2'", "item LIKE 'item%'", "item IN ('item 1', 'item 2')"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "condition"), [(name, one) for name, listed in CONDITIONS.items() for one in listed]
)
def test_conditions_on_values_that_nobody_knows_are_no_obstacle(con, column, condition):
    sql = f"SELECT {column} AS k, COUNT(*) AS n FROM o WHERE {condition} GROUP BY k"
    session = of_units(con)
    budget = dpsql.Budget(rho=10**6)
    frame = session.query(sql, budget=budget, keys=dpsql.Keys(delta="1e-9"))
    true = {k: n for k, n in con.execute(sql).fetchall() if n > 1}
    found = dict(frame.select("k", "n").rows())
    assert all(found[k] == pytest.approx(n, abs=1) for k, n in true.items())


# ── Files whose columns are texts until something is declared ────────────────────────────────────

REFUSED_OF_TEXTS = [
    "SUM(price) AS n",
    "AVG(price / 2) AS n",
    "COUNT(*) FILTER (WHERE price > 3) AS n",
    "COUNT_IF(year(day) = 2024) AS n",
]


@pytest.mark.parametrize("what", REFUSED_OF_TEXTS)
@pytest.mark.parametrize("keys", ["", "city", "city, item"])
@pytest.mark.parametrize("found", [False, True])
def test_a_refusal_tells_how_types_are_declared_also_where_keys_are_assumed(
    tmp_path, what, keys, found
):
    """Whether or not something was assumed or found before, nothing is declared by the owner."""
    rows = "".join(f"town {i % 3},item {i % 2},{i % 9},2024-01-0{1 + i % 9}\n" for i in range(3000))
    (tmp_path / "sales.csv").write_text("city,item,price,day\n" + rows)
    session = dpsql.Session({"sales": tmp_path / "sales.csv"})
    if found:
        session.find_keys("sales", "city", budget=BUDGET)
    sql = f"SELECT {what} FROM sales" + f" GROUP BY {keys}" * bool(keys)
    for ask in (session.plan, session.query):
        with pytest.raises(dpsql.SqlError) as refused:
            ask(sql, budget=BUDGET, keys=KEYS, bounds=dpsql.Bounds())
        assert "Nothing is declared of sales, whose columns are texts" in refused.value.hint
        assert "> schema.toml drafts it" in refused.value.hint
    assert len(session.ledger.entries()) == found
