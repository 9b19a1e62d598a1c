"""Values of all units' rows that statements compare rows with: each is released first."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache

import duckdb
import pytest

import dpsql
from dpsql.session import values

MUCH = dpsql.Budget(rho=10**12)
UNITS = {"unit": dpsql.Unit("c.id", max_rows={"c": 1, "o": 9}), "public": ["towns"]}


def connect(seed=1):
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE c (id INTEGER PRIMARY KEY, town VARCHAR NOT NULL CHECK (town IN ('x', 'y')),
            age INTEGER CHECK (age BETWEEN 0 AND 99));
        CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
            price INTEGER NOT NULL, day DATE NOT NULL);
        CREATE TABLE towns AS SELECT * FROM (VALUES ('x', 5), ('y', 50)) t (town, size);
    """).fetchall()
    people = [(i, rng.choice("xy"), rng.choice([None, *range(20, 60)])) for i in range(60)]
    con.executemany("INSERT INTO c VALUES (?, ?, ?)", people)
    orders = [
        (i, rng.randrange(60), rng.randrange(10**6), f"2020-{rng.randint(1, 12)}-17")
        for i in range(200)
    ]
    con.executemany("INSERT INTO o VALUES (?, ?, ?, ?)", orders)
    return con


@cache
def shared():
    return connect()


ASKED = [
    "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(age) FROM c)",
    "SELECT town, COUNT(*) AS n FROM c WHERE age = (SELECT MAX(age) FROM c) GROUP BY town",
    "SELECT COUNT(*) AS n FROM o WHERE price < (SELECT QUANTILE_DISC(price, 0.3) FROM o)",
    "SELECT COUNT(*) AS n FROM o WHERE day = (SELECT MIN(day) FROM o WHERE price > 1000)",
    "SELECT COUNT(*) AS n FROM c JOIN o ON o.cid = c.id WHERE c.age > (SELECT AVG(age) FROM c) "
    "AND day < (SELECT MAX(day) FROM o)",
    "SELECT age > (SELECT AVG(age) FROM c) AS old, COUNT(*) AS n FROM c GROUP BY old ORDER BY n",
    "SELECT SUM(age - (SELECT MIN(age) FROM c)) AS n FROM c",
    "SELECT COUNT(*) FILTER (WHERE age < (SELECT MEDIAN(age) - 1 FROM c)) AS n FROM c",
    "WITH r AS (SELECT * FROM c WHERE town = 'x') SELECT COUNT(*) AS n FROM r "
    "WHERE age > (SELECT AVG(age) + 0.001 FROM r)",
    "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(age) FROM c "
    "WHERE age > (SELECT AVG(age) FROM c))",
    "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(age) FROM c JOIN towns t "
    "ON t.town = c.town WHERE size > 9)",
    "SELECT COUNT(*) AS n FROM c WHERE 200 < (SELECT COUNT(*) + 0.5 FROM o)",
    "SELECT COUNT(*) AS n FROM c WHERE (SELECT COUNT(*) FROM o WHERE o.cid = c.id) > "
    "(SELECT AVG(m) FROM (SELECT cid, COUNT(*) AS m FROM o GROUP BY cid))",
    "SELECT COUNT(*) AS n FROM c, (SELECT AVG(age) AS mean FROM c) WHERE age > mean",
    "WITH a AS (SELECT AVG(age) AS mean, MAX(age) AS most FROM c) SELECT c.town, COUNT(*) AS n "
    "FROM c CROSS JOIN a AS b WHERE age BETWEEN b.mean AND b.most - 1 GROUP BY c.town",
    "SELECT COUNT(*) AS n FROM c JOIN (SELECT town, AVG(age) FROM c GROUP BY town) AS a(town, m) "
    "ON c.town = a.town AND age > m",
    "WITH a AS (SELECT town, COUNT(*) AS m FROM c GROUP BY town) SELECT town, "
    "COUNT(*) / MAX(m) AS n FROM c JOIN a USING (town) WHERE age > 40 GROUP BY town ORDER BY town",
    "SELECT COUNT(*) AS n FROM c LEFT JOIN (SELECT town FROM c GROUP BY town "
    "HAVING COUNT(*) > 1000) AS a ON a.town = c.town WHERE a.town IS NULL",
    "WITH a AS (SELECT town FROM c GROUP BY town ORDER BY COUNT(*) DESC LIMIT 1) "
    "SELECT COUNT(*) AS n FROM c WHERE town IN (SELECT town FROM a)",
    "SELECT COUNT(*) AS n FROM c WHERE town IN (SELECT town FROM c GROUP BY town ORDER BY COUNT(*) "
    "DESC LIMIT 2)",
    "SELECT COUNT(*) AS n FROM c WHERE age NOT IN (SELECT age FROM c GROUP BY ALL HAVING "
    "COUNT(*) > 2.5 AND age < 40)",
    "SELECT COUNT(*) AS n FROM o WHERE day IN (SELECT MAX(day) FROM o WHERE price > 1000)",
    "SELECT COUNT(*) AS n FROM c WHERE age NOT IN (SELECT MIN(age) FROM c)",
    "SELECT COUNT(*) AS n FROM o WHERE month(day) IN (SELECT month(day) FROM o GROUP BY 1 "
    "HAVING COUNT(*) > 17.5)",
    "SELECT COUNT(*) AS n FROM o JOIN c ON o.cid = c.id WHERE town NOT IN (SELECT d.town FROM o p "
    "JOIN c d ON p.cid = d.id GROUP BY d.town ORDER BY COUNT(*) DESC LIMIT 1)",
    "SELECT SUM((age - mean) * (age - mean)) AS n FROM c, (SELECT AVG(age) AS mean FROM c) AS a",
    "SELECT COUNT(*) AS n FROM c WHERE age / 7 = (SELECT MAX(age / 7) FROM c)",
    "SELECT COUNT(*) AS n FROM c JOIN (SELECT age / 3 AS k, COUNT(*) AS m FROM c GROUP BY k) AS q "
    "ON q.k = c.age / 3",
    "SELECT COUNT(*) AS n FROM c WHERE age IN (SELECT MAX(size) FROM towns) IS NULL",
    "SELECT COUNT(*) AS n FROM c WHERE (age IN (SELECT MAX(size) FROM towns)) IS NOT TRUE",
    "SELECT COUNT(*) AS n FROM c WHERE age IN (SELECT MAX(size) FROM towns) = FALSE",
    "SELECT COUNT(*) AS n FROM c WHERE age IN (SELECT MAX(size) OVER () FROM towns)",
]  # fmt: skip


def equal(con, sql, found):
    exact = con.sql(sql).pl()
    found = found.filter(found["n"].round() != 0) if found.height > exact.height else found
    for name in exact.columns:
        ours, theirs = found[name].to_list(), exact[name].to_list()
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            exactly = other is None or isinstance(other, bool | str)
            assert one == (other if exactly else pytest.approx(float(other), abs=0.1))


@pytest.mark.parametrize("sql", ASKED)
def test_what_is_compared_with_a_value_of_all_rows_is_answered(sql):
    given = UNITS if "o." in sql or "FROM o" in sql else {"public": ["towns"]}
    equal(shared(), sql, dpsql.Session(shared(), **given).query(sql, budget=MUCH))


AGGREGATES = ["AVG(age) + 0.01", "MAX(age)", "MIN(age)", "QUANTILE_DISC(age, 0.4)", "COUNT(age)"]


@pytest.mark.parametrize("seed", range(3))
def test_random_comparisons_are_answered(seed):
    con, rng = connect(seed + 10), random.Random(seed)  # noqa: S311
    asked = {}
    for i in range(4):
        where = ["", " WHERE town = 'x'", " WHERE age < 50"]
        subquery = f"(SELECT {rng.choice(AGGREGATES)} FROM c{rng.choice(where)})"
        compared = f"age {rng.choice(['<', '<=', '=', '<>', '>='])} {subquery}"
        more = rng.choice(["", " AND town = 'y'", " OR age > 55"])
        asked[f"q{i}"] = rng.choice([
            f"SELECT COUNT(*) AS n FROM c WHERE {compared}{more}",
            f"SELECT COUNT(*) FILTER (WHERE {compared}) AS n, SUM(age) AS s FROM c",
            f"SELECT town, COUNT(*) AS n FROM c WHERE NOT ({compared}) GROUP BY town ORDER BY town",
        ])  # fmt: skip
    release = dpsql.Session(con, **UNITS).release(asked, budget=MUCH)
    for name, sql in asked.items():
        equal(con, sql, release[name])


@pytest.mark.parametrize(
    "subquery",
    [
        "(SELECT AVG(age) FROM c d WHERE d.age < c.age)",
        "(SELECT AVG(d.age + c.age) FROM c d WHERE d.town = c.town)",
        "(SELECT AVG(age) FROM c d WHERE d.town = c.town LIMIT 1)",
        "(SELECT AVG(age) FROM c d WHERE d.id + 0 = c.id)",
    ],
)
def test_values_for_each_row_are_refused(subquery):
    session = dpsql.Session(shared(), **UNITS)
    with pytest.raises(dpsql.SqlError) as refused:
        session.query(f"SELECT COUNT(*) FROM c WHERE age > {subquery}", budget=MUCH)
    assert "release it first" not in refused.value.hint
    assert not session.history.height


ITEMS = [
    "SELECT COUNT(*) AS n FROM c, (SELECT AVG(age) AS m, COUNT(*) AS k FROM c) AS a "
    "WHERE age > m OR age < k",
    "SELECT COUNT(*) AS n FROM o, (SELECT AVG(age) AS m FROM c) AS a WHERE price > m",
    "SELECT COUNT(*) AS n FROM c JOIN (SELECT age AS e, AVG(id) AS m, COUNT(*) AS k FROM c "
    "WHERE id < 9 GROUP BY age) AS a ON c.age = a.e AND id > m",
    "SELECT COUNT(*) AS n FROM c WHERE age IN (SELECT age FROM c GROUP BY age HAVING COUNT(*) > 0)",
]


@pytest.mark.parametrize("sql", ITEMS)
def test_whatever_was_released_can_be_asked_with(sql):
    """Noise makes numbers long and negative, and chooses groups; no error may come of that."""
    schema = {"c": {"id": dpsql.Domain.number(0, 100)}}
    for budget in (1e-7, 1e-3, 1e6):
        for _ in range(2):
            session = dpsql.Session(shared(), public=["towns"], schema=schema)
            try:
                assert session.query(sql, budget=dpsql.Budget(rho=budget)).height == 1
            except dpsql.SqlError:
                assert not session.history.height


def test_a_query_within_that_has_the_name_is_not_the_one_around():
    inner = "WITH a AS (SELECT town, 5.0 * COUNT(*) AS m FROM c GROUP BY town) SELECT c.age FROM c "
    inner += "JOIN a ON a.town = c.town WHERE age > a.m"
    outer = "WITH a AS (SELECT town, AVG(age) AS m FROM c GROUP BY town) "
    session = dpsql.Session(shared(), public=["towns"])
    with pytest.raises(dpsql.SqlError, match="joined"):
        session.query(f"{outer}SELECT COUNT(*) AS n FROM ({inner})", budget=MUCH)
    assert not session.history.height


def test_more_groups_than_can_be_written_are_refused_before_the_charge(monkeypatch):
    monkeypatch.setattr(values, "MOST_VALUES", 90)
    session = dpsql.Session(shared(), public=["towns"])
    with pytest.raises(dpsql.SqlError):
        session.query(ITEMS[2], budget=MUCH)
    assert not session.history.height


OLD = ASKED[0]


def charges(session):
    return [entry.mu_squared / 2 for entry in session.ledger.entries()]


def test_parts_of_the_budget_add_up_to_it():
    session = dpsql.Session(shared(), **UNITS)
    two = f"{OLD} AND age < (SELECT AVG(age) + 9 FROM c)"
    session.release(two, budget=dpsql.Budget(rho=0.5))
    assert charges(session) == [Fraction(1, 20), Fraction(1, 20), Fraction(2, 5)]
    pure = dpsql.Session(connect(), **UNITS)
    pure.release(OLD, budget=dpsql.Budget(epsilon=1, delta=0), mechanism="laplace")
    amounts = [
        dpsql.Budget(epsilon=of, delta=0).mu_squared / 2 for of in (Fraction(1, 5), Fraction(4, 5))
    ]
    assert charges(pure) == amounts


def test_what_is_measured_is_what_the_statement_with_the_value_asks():
    session = dpsql.Session(shared(), **UNITS)
    first = session.query("SELECT (SELECT AVG(age) FROM c) AS value", budget=MUCH)["value"][0]
    release = session.release(OLD, budget=dpsql.Budget(rho=1))
    written = release.facts.statements["query"]
    before, value = written.removesuffix(")").split("> (")
    assert OLD.startswith(before)
    assert float(value) == pytest.approx(first, abs=0.01)
    again = session.release(written, budget=dpsql.Budget(rho=1))
    assert again.plan.binding == release.plan.binding
    assert written == again.facts.statements["query"]


def test_what_was_measured_answers_it_again_for_nothing():
    session = dpsql.Session(shared(), **UNITS)
    first = session.query(OLD, budget=MUCH)["n"][0]
    assert session.query(OLD, budget=0)["n"][0] == pytest.approx(first, abs=0.1)
    with pytest.raises(dpsql.UndeterminedError):
        dpsql.Session(connect(), **UNITS).query(OLD, budget=0)


REFUSED = {
    "of a row": "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(d.age) FROM c d "
    "WHERE d.town < c.town)",
    "of rows": "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT age FROM c)",
    "several": "SELECT COUNT(*) AS n FROM c WHERE town IN (SELECT town FROM c)",
    "too many": "SELECT COUNT(*) AS n FROM c WHERE " + " OR ".join(
        f"age > (SELECT AVG(age) + {i} FROM c)" for i in range(values.MOST + 1)
    ),
    "the rest": "SELECT SUM(price) AS s FROM o WHERE price > (SELECT MEDIAN(price) FROM o) "
    "AND id > 3",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_charged_for_what_is_refused(name):
    session = dpsql.Session(shared(), **UNITS)
    with pytest.raises(dpsql.DpsqlError):
        session.release(REFUSED[name], budget=dpsql.Budget(rho=1))
    assert not charges(session)


def test_more_values_than_a_statement_holds_are_refused_with_their_number():
    session = dpsql.Session(shared(), **UNITS)
    sql = "SELECT town, age, COUNT(*) AS k, COUNT(*) + 1 AS m FROM c GROUP BY town, age"
    sql = f"SELECT COUNT(*) AS n FROM c JOIN ({sql}) AS a USING (town, age) WHERE c.age > k"
    with pytest.raises(
        dpsql.SqlError, match=r"At most 600 values .* this may have 8\d\d"
    ) as caught:
        session.release(sql, budget=dpsql.Budget(rho=1))
    assert "public=" in caught.value.hint
    assert not charges(session)


WRONG = [
    ("SELECT note, COUNT(*) FROM c WHERE age > {} GROUP BY note", "note"),
    ("SELECT COUNT(*) FROM c WHERE age > {} AND town > 3", "town > 3"),
    ("SELECT COUNT(*) FROM c WHERE town = {}", "{}"),
    ("SELECT SUM(id * {}) FROM c", "id * {}"),
    ("SELECT COUNT(*) FROM c, {} AS a WHERE note > a.mean", "note"),
]


@pytest.mark.parametrize("subquery", ["(SELECT AVG(age) AS mean FROM c)"])
@pytest.mark.parametrize(("sql", "marked"), WRONG)
def test_refusals_mark_what_was_asked_and_show_no_value(sql, marked, subquery):
    asked, marked = sql.format(subquery), marked.format(subquery)
    with pytest.raises(dpsql.SqlError) as refused:
        dpsql.Session(shared(), **UNITS).release(asked, budget=dpsql.Budget(rho=1))
    error = refused.value
    assert error.sql == asked
    assert asked[error.span.start : error.span.end] == marked
    shown = f"{error.message} {error.hint}"
    assert "VALUES" not in shown
    assert not [digits for digits in ("49.5", "(49", "__") if digits in shown]


def test_targets_have_no_part_of_a_budget():
    session = dpsql.Session(shared(), **UNITS)
    with pytest.raises(dpsql.BudgetError, match="a part of a budget"):
        session.release(OLD, targets={"query": 5.0}, at_most=dpsql.Budget(rho=1))
    assert not charges(session)


def test_a_value_that_is_not_told_ends_the_release_before_the_rest_is_charged():
    session = dpsql.Session(shared(), **UNITS)
    sql = "SELECT COUNT(*) AS n FROM o WHERE price > (SELECT MAX(price) FROM o)"
    with pytest.raises(dpsql.UndeterminedError, match="too few rows"):
        session.query(sql, budget=dpsql.Budget(epsilon=1, delta=1e-9))
    assert len(charges(session)) == 2  # what was drawn, and the number of rows that it is of


def test_plans_say_what_is_released_first():
    session = dpsql.Session(shared(), **UNITS)
    plan = session.plan(OLD, budget=dpsql.Budget(rho=1))
    (note,) = (note for note in plan.notes if "released first" in note)
    assert "(SELECT AVG(age) FROM c)" in note
    assert "ρ = 0.2 of the budget" in note
    assert plan.budget.mu_squared == Fraction(16, 10)


def test_a_release_tells_the_values_on_which_it_rests(tmp_path):
    """By what they were charged, and what that is in all; also in a folder."""
    con = duckdb.connect()
    con.execute("CREATE TABLE loan AS SELECT (i % 100)::INTEGER AS amount FROM range(20000) r (i)")
    session = dpsql.Session(con, schema={"loan": {"amount": dpsql.Domain.integers(0, 99)}})
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    sql = "SELECT COUNT(*) AS n FROM loan WHERE amount > (SELECT AVG(amount) FROM loan)"
    release = session.release({"a": sql}, budget=budget)
    (value,) = release.facts.valued
    assert [charge.seq for charge in value.charges] == [session.ledger.entries()[0].seq]
    assert value.value in release.facts.statements["a"]
    text = " ".join(release.summary().split())
    assert "released first SELECT (SELECT AVG(amount) FROM loan) AS value" in text
    assert "in all ρ = 0.0165575; μ = 0.181975; ε = 1 at δ = 1e-9" in text
    release.save(tmp_path / "saved")
    saved = dpsql.Release.load(tmp_path / "saved", ledger=session.ledger)
    assert saved.facts.valued == release.facts.valued
    assert saved["a"].equals(release["a"])
    again = session.release({"a": sql}, budget=0)
    assert again["a"].equals(release["a"])
    assert {*value.charges} <= {*again.facts.valued[0].charges}
