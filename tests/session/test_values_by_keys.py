"""Values by the keys of a correlated subquery: released first, and written as a CASE."""

from __future__ import annotations

import random
from functools import cache

import duckdb
import pytest
import sqlglot
from sqlglot import exp

import dpsql
from dpsql.sql.binding.expressions import render
from dpsql.sql.binding.released import keyed_value
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import check_alike, recorded_in, spent

MUCH = dpsql.Budget(rho=10**12)
GIVEN = {
    "unit": dpsql.Unit("c.id", max_rows={"c": 1, "o": 9}),
    "public": ["towns"],
    "schema": {"o": {"price": dpsql.Domain.number(0, 10**4)}},
}
TABLES = """
    CREATE TABLE c (id INTEGER PRIMARY KEY, town VARCHAR NOT NULL CHECK (town IN ('x', 'y')),
        age INTEGER CHECK (age BETWEEN 0 AND 99), code VARCHAR CHECK (code IN ('1', '01', 'x')),
        ok BOOLEAN, kind ENUM('x', 'q'));
    CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
        price INTEGER NOT NULL, day DATE NOT NULL
        CHECK (day BETWEEN DATE '2020-01-01' AND DATE '2020-12-31'));
    CREATE TABLE towns AS SELECT * FROM (VALUES ('x', 5), ('y', 50)) t (town, size);
"""


def rows(seed, people=60, orders=200):
    rng = random.Random(seed)  # noqa: S311
    ages, codes = [None, *range(20, 60)], [None, "1", "01", "x"]
    kinds, boolean = [None, "x", "q"], [None, True, False]
    persons = [
        (i, rng.choice("xy"), *map(rng.choice, (ages, codes, boolean, kinds)))
        for i in range(people)
    ]
    return persons, [
        (i, rng.randrange(people), rng.randrange(10**4), f"2020-{rng.randint(1, 12)}-17")
        for i in range(orders if people else 0)
    ]


def fill(con, persons, orders):
    con.execute("DELETE FROM o; DELETE FROM c").fetchall()
    insert(con, "c", persons)
    insert(con, "o", orders)


def connect(seed=1, **sizes):
    con = duckdb.connect()
    con.execute(TABLES).fetchall()
    fill(con, *rows(seed, **sizes))
    return con


@cache
def shared():
    return connect()


ASKED = [
    "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(age) + 0.01 FROM c d "
    "WHERE d.town = c.town)",
    "SELECT COUNT(*) AS n FROM o WHERE month(day) * 3 > (SELECT COUNT(*) FROM o p JOIN c ON "
    "p.cid = c.id WHERE month(p.day) = month(o.day) AND town = 'x')",
    "SELECT town, COUNT(*) AS n FROM c JOIN towns USING (town) WHERE age < (SELECT 2 * MAX(d.age) "
    "- 70 FROM c d WHERE (c.age % 7) = (d.age % 7) AND d.age > 40 AND towns.town = d.town) "
    "GROUP BY town ORDER BY town",
    "SELECT SUM(age) AS n FROM c AS answers WHERE age * 2 <> (SELECT -COUNT(*) + 70 AS value "
    "FROM c WHERE answers.age = age) AND age > (SELECT MIN(age) FROM c WHERE town = answers.town)",
    "SELECT COUNT(*) AS n FROM o WHERE price > (SELECT AVG(price) FROM o p JOIN c ON p.cid = c.id "
    "WHERE c.town = (CASE WHEN o.price % 2 = 0 THEN 'x' ELSE 'y' END))",
    "WITH r AS (SELECT age, town FROM c WHERE age < 50) SELECT COUNT(*) AS n FROM r "
    "WHERE age >= (SELECT AVG(s.age) FROM r s WHERE s.town = r.town) + 0.01",
    # no row has the key, or none that is read: NULL, or 0
    "SELECT COUNT(*) AS n FROM c WHERE (age < (SELECT SUM(d.age) FROM c d WHERE d.town = c.town "
    "AND d.age > 90)) IS NULL",
    "SELECT COUNT(*) AS n FROM c WHERE (age < (SELECT AVG(d.age) FILTER (WHERE d.age > 58) FROM c "
    "d WHERE d.code = c.code)) IS NULL",
    "SELECT COUNT(*) AS n FROM c WHERE age > 30 + (SELECT COUNT(d.age) FROM c d WHERE "
    "d.age = c.age AND d.code = 'x') - 0.5",
    "SELECT COUNT(*) AS n FROM c WHERE id > (SELECT AVG(d.id) FILTER (WHERE d.ok) FROM c d "
    "WHERE d.kind = c.code)",
    # its own column of a name that is one outside, too
    "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT AVG(d.a) + 0.01 FROM c AS d(i, t, a, town) "
    "WHERE d.t = town)",
]  # fmt: skip
IDS = {"c": {"id": dpsql.Domain.number(0, 100)}}


def equal(con, sql, found):
    """Check that an answer is DuckDB's, or between those for values that are a little off.

    These are what is within « »; sums of no rows are 0.
    """
    plain = without_marks(sql)
    given = [plain, *(sql.replace("«", "(").replace("»", f" + {d})") for d in (-0.02, 0.02))]
    exact = [told(con.sql(one).fetchall()) for one in given]
    ours = told(found.select(n for n in found.columns if not n.endswith("_variance")).rows())
    for key in {*ours, *(key for some in exact for key in some)}:
        known = [some.get(key, 0) for some in exact]
        assert min(known) - 0.1 <= ours.get(key, 0) <= max(known) + 0.1, (sql, key, ours, exact)


def without_marks(sql):
    return sql.replace("«", "").replace("»", "")


def told(answer):
    return {row[:-1]: float(row[-1] or 0) for row in answer}


BESIDE = [
    "SELECT c.town, COUNT(*) AS n FROM c GROUP BY c.town HAVING AVG(c.age) > (SELECT "
    "AVG(d.age) - 1 FROM c d WHERE d.town = c.town)",
    "SELECT c.town, (SELECT COUNT(*) FROM c d WHERE d.town = c.town AND d.age > 40) * 1.0 / "
    "COUNT(*) AS n FROM c GROUP BY c.town",
    "SELECT COUNT(*) AS n FROM c WHERE age > ANY (SELECT AVG(d.age) FROM c d WHERE d.town = "
    "c.town)",
    "SELECT COUNT(*) AS n FROM c WHERE age > ALL (SELECT AVG(d.age) FROM c d WHERE d.town = "
    "c.town)",
    "SELECT t.town, 1 AS n FROM towns t WHERE (SELECT COUNT(*) FROM c WHERE c.town = t.town) "
    "> 29.5",
    "SELECT c.town, 1 AS n FROM c GROUP BY c.town ORDER BY (SELECT AVG(d.age) FROM c d WHERE "
    "d.town = c.town)",
]


@pytest.mark.parametrize("sql", BESIDE, ids=range(len(BESIDE)))
def test_a_value_by_keys_stands_beside_answers_and_after_any(sql):
    equal(shared(), sql, dpsql.Session(shared(), **GIVEN).query(sql, budget=MUCH))


def test_what_is_no_value_by_keys_beside_answers_is_told_so():
    sql = (
        "SELECT town, (SELECT ANY_VALUE(d.age) FROM c d WHERE d.town = c.town) FROM c GROUP BY town"
    )
    with pytest.raises(dpsql.SqlError, match="c stands outside of this subquery") as refused:
        dpsql.Session(shared(), **GIVEN).query(sql, budget=MUCH)
    assert "compare with its columns by =" in refused.value.hint


@pytest.mark.parametrize("sql", ASKED, ids=range(len(ASKED)))
def test_rows_are_compared_with_values_of_all_rows_that_have_their_key(sql):
    given = {**GIVEN, "schema": {**GIVEN["schema"], **(IDS if "d.id" in sql else {})}}
    equal(shared(), sql, dpsql.Session(shared(), **given).query(sql, budget=MUCH))


def test_the_statement_with_values_by_keys_is_grouped_by_what_is_compared():
    sql = (
        "SELECT 1 FROM c WHERE a > (SELECT -SUM(x) FROM d JOIN e ON d.i = e.i WHERE y = c.b AND z)"
    )
    root = sqlglot.parse_one(sql, dialect="duckdb")
    (node,) = root.find_all(exp.Subquery)
    outside = {id(column) for column in node.find_all(exp.Column) if column.table == "c"}
    found = keyed_value(node, outside, root)
    assert f"SELECT * FROM ({render(found.query)})" == (
        'SELECT * FROM (SELECT -SUM("x") AS "value", "y" AS "key" FROM "d" JOIN "e" '
        'ON "d"."i" = "e"."i" WHERE "z" GROUP BY "y" HAVING COUNT("x") > 0.5)'
    )
    assert found.told == (('"c"."b"',), None)


NO_VALUE_FOR_EACH_KEY = {
    "less": "(SELECT AVG(d.age) FROM c d WHERE d.age < c.age)",
    "coalesce": "(SELECT COALESCE(SUM(d.age), 0) FROM c d WHERE d.town = c.town)",
    "or": "(SELECT AVG(d.age) FROM c d WHERE d.town = c.town OR d.town = 'x')",
    "both sides": "(SELECT AVG(d.age + c.age) FROM c d WHERE d.town = c.town)",
    "limit": "(SELECT AVG(d.age) FROM c d WHERE d.town = c.town LIMIT 1)",
    "no domain": "(SELECT AVG(d.age) FROM c d WHERE d.id + 0 = c.id)",
    "no aggregate of the list": "(SELECT COUNT_IF(d.ok) FROM c d WHERE d.town = c.town)",
    "NULL of one row": "(SELECT STDDEV(d.age) FROM c d WHERE d.town = c.town)",
    "choice": "(SELECT ANY_VALUE(d.age) FROM c d WHERE d.town = c.town)",
    "by 0": "(SELECT COUNT(*) / COUNT(d.age) FROM c d WHERE d.code = c.code)",
    "text and number": "(SELECT AVG(d.age) FROM c d WHERE d.code = c.age)",
    "number and text": "(SELECT AVG(d.age) FROM c d WHERE d.age = c.code)",
    "floats": "(SELECT AVG(d.age) FROM c d WHERE d.age / 7 = c.age / 7)",
    "a constant": "(SELECT AVG(d.age) FROM c d WHERE d.code = '1' AND d.age > c.age)",
}


@pytest.mark.parametrize("name", NO_VALUE_FOR_EACH_KEY)
def test_what_is_no_value_for_each_key_is_refused_before_the_charge(name):
    session = dpsql.Session(shared(), **GIVEN)
    with pytest.raises(dpsql.SqlError):
        session.query(
            f"SELECT COUNT(*) FROM c WHERE age > {NO_VALUE_FOR_EACH_KEY[name]}", budget=MUCH
        )
    assert not session.history.height


@pytest.mark.parametrize("sql", ["SELECT SUM(age - {}) FROM c", "SELECT {} AS v FROM c"])
def test_a_value_by_keys_is_only_compared(sql):
    value = "(SELECT AVG(d.age) FROM c d WHERE d.town = c.town)"
    session = dpsql.Session(shared(), **GIVEN)
    with pytest.raises(dpsql.SqlError):
        session.query(sql.format(value), budget=MUCH)
    assert not session.history.height


def test_what_was_measured_answers_it_again_for_nothing():
    session = dpsql.Session(connect(), **GIVEN)
    first = session.query(ASKED[0], budget=MUCH)["n"][0]
    assert session.query(ASKED[0], budget=0)["n"][0] == pytest.approx(first, abs=0.1)
    assert session.history.height == 2


# ── Random statements ────────────────────────────────────────────────────────────────────────────

AGGREGATES = [
    "AVG(d.age)", "MAX(d.age)", "MIN(d.age)", "QUANTILE_DISC(d.age, 0.4)", "COUNT(*)",
    "COUNT(d.age)", "SUM(d.age) / COUNT(*)", "1.2 * AVG(d.age)", "SUM(d.age)",
    "COUNT(DISTINCT d.town)", "VAR_POP(d.age)", "AVG(d.age) FILTER (WHERE d.ok)",
    "COUNT(*) FILTER (WHERE d.ok)", "-COUNT(*) + 70", "MAX(d.age) - COUNT(*)",
    "MAX(CASE WHEN d.ok THEN d.age END)", "AVG(CASE WHEN d.ok THEN d.age ELSE 0 END)",
    "COUNT_IF(d.ok)", "COUNT(*) / COUNT(d.age)", "COALESCE(SUM(d.age), 0)", "MEDIAN(d.age)",
]  # fmt: skip
KEYS = [
    "d.town = c.town", "d.age % 5 = c.age % 5", "c.age = d.age", "(c.age < 33) = (d.age > 40)",
    "c.code = d.code", "d.ok = c.ok", "c.kind = d.kind", "c.town = d.code", "c.age = d.code",
    "d.code = c.age", "c.ok = (d.age > 30)", "upper(c.town) = upper(d.town)", "d.code = '1'",
    "c.code = '1'", "c.age + 1 = d.age", "d.kind = c.town",
]  # fmt: skip
CONDITIONS = ["d.age < 50", "d.town = 'x'", "d.ok", "d.age > 90", "d.code <> 'x'"]


def statement(rng):
    """Return a statement that compares rows with a value by keys, which is between « and »."""
    said = [*rng.sample(KEYS, rng.choice([1, 1, 2])), *rng.sample(CONDITIONS, rng.choice([0, 1]))]
    value = f"«(SELECT {rng.choice(AGGREGATES)} FROM c d WHERE {' AND '.join(said)})»"
    value = rng.choice(["{}", "{}", "{} + 0.01", "2 * {}", "-{} + 100"]).format(value)
    compared, sign = rng.choice(["c.age", "c.age * 2", "c.id"]), rng.choice(["<", "<=", "<>", ">"])
    one = rng.choice([f"{compared} {sign} {value}", f"{compared} BETWEEN {value} AND 55"])
    return rng.choice([
        f"SELECT COUNT(*) AS n FROM c WHERE {one}",
        f"SELECT COUNT(*) AS n FROM c WHERE ({one}) IS NOT TRUE",
        f"SELECT COUNT(*) AS n FROM c WHERE ({one}) IS NULL",
        f"SELECT town, COUNT(*) AS n FROM c WHERE NOT ({one}) GROUP BY town",
        f"SELECT COUNT(*) FILTER (WHERE {one}) AS n FROM c",
        f"SELECT SUM(c.age) AS n FROM c WHERE {one}",
        f"WITH c AS (SELECT * FROM c WHERE id < 40) SELECT COUNT(*) AS n FROM c WHERE {one}",
        f"SELECT COUNT(*) AS n FROM c JOIN towns t ON t.town = c.town WHERE {one} AND size > 9",
    ])  # fmt: skip


def seeds(few, all_):
    return [n if n < few else pytest.param(n, marks=pytest.mark.long) for n in range(all_)]


def ask(con, sql, **how):
    """Return the answer; None if it is refused, which is before anything is charged."""
    session = dpsql.Session(con, **GIVEN)
    try:
        return session.query(without_marks(sql), **how)
    except dpsql.SqlError:
        assert not session.history.height, sql
        return None


@pytest.mark.parametrize("seed", seeds(12, 300))
def test_random_comparisons_are_as_in_duckdb_or_refused_before_the_charge(seed):
    sql, con = statement(random.Random(seed)), connect(seed % 3)  # noqa: S311
    found = ask(con, sql, budget=MUCH)
    if found is not None:
        equal(con, sql, found)


def beside(rng):
    """Return a statement with a value by keys beside answers, or for each row of a public table."""
    said = [
        rng.choice(KEYS[:1] + KEYS[7:8] + KEYS[11:12]),
        *rng.sample(CONDITIONS, rng.choice([0, 1])),
    ]
    value = f"(SELECT {rng.choice(AGGREGATES)} FROM c d WHERE {' AND '.join(said)})"
    return rng.choice([
        f"SELECT c.town, COUNT(*) AS k, {value} AS n FROM c GROUP BY c.town",
        f"SELECT c.town, MAX(c.age) - {value} AS n FROM c GROUP BY c.town",
        f"SELECT c.town, {value} AS n FROM towns c",
        f"SELECT c.town, CASE WHEN {value} IS NULL THEN 1 ELSE 2 END AS n FROM c GROUP BY c.town",
    ])  # fmt: skip


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_random_values_beside_answers_are_as_in_duckdb_or_refused(seed):
    sql, con = beside(random.Random(seed)), connect(seed % 3)  # noqa: S311
    found = ask(con, sql, budget=MUCH)
    if found is None:
        return
    exact = dict(con.sql(f"SELECT town, n FROM ({sql})").fetchall())
    assert found.height == len(exact)
    for town, n in found.select("town", "n").rows():
        known = exact[town]
        assert (n is None) == (known is None), (sql, n, known)
        assert known is None or abs(n - float(known)) < 0.1, (sql, n, known)


@pytest.mark.parametrize("seed", seeds(8, 150))
def test_whatever_noise_makes_of_values_by_keys_can_be_asked_with(seed):
    """Noise makes numbers long and negative and leaves keys out; no error may come of that."""
    rng = random.Random(seed)  # noqa: S311
    sizes = rng.choice([{}, {"people": 2, "orders": 2}, {"people": 0}])
    for rho in (1e-9, 1e-3):
        ask(connect(seed % 3, **sizes), statement(rng), budget=dpsql.Budget(rho=rho))


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_neighbors_differ_by_no_more_than_both_charges(seed):
    """Everything that is seen is a function of what was measured, also what is asked then."""
    rng = random.Random(seed)  # noqa: S311
    sql = without_marks(statement(rng))
    persons, orders = rows(seed, people=12, orders=0)
    con = connect(seed, people=0)

    def record(some):
        fill(con, some, orders)
        session = dpsql.Session(con, **GIVEN)
        found = recorded_in(session, {"a": sql}, budget=dpsql.Budget(rho=0.5))
        return found, sum(entry.mu_squared for entry in session.ledger.entries())

    try:
        whole, charge = record(persons)
    except dpsql.SqlError:
        return
    changed = (99, *rows(seed + 1, people=1, orders=0)[0][0][1:])
    for other in (persons[1:], persons[:-1], [*persons, changed]):
        replayed, again = record(other)
        check_alike(whole, replayed)
        assert spent(whole, replayed) <= charge == again <= 1  # less, if no row can meet it


MERGED = {
    "other": dpsql.Domain.labels(["p", "q", "(other)"], other="(other)"),
    "ends": dpsql.Domain.integers(5, 20, outside="clamp"),
    "coarse": dpsql.Domain.dates("2020-01-01", "2020-12-31", grain="month"),
}


@pytest.fixture(scope="module")
def pooled():
    """Columns of which a cell stands for several values: a row has what is stored."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE m (id INTEGER PRIMARY KEY, other VARCHAR, ends INTEGER, coarse DATE, "
        "a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 99), "
        "level ENUM('lo', 'hi', 'mid') NOT NULL, k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3), "
        "b BIGINT NOT NULL CHECK (b BETWEEN 0 AND 1000000000000))"
    ).fetchall()
    con.execute(
        "INSERT INTO m SELECT i, ['p', 'q', 'z' || i % 5][1 + i % 3], i % 40, "
        "DATE '2020-01-01' + i::INTEGER, i % 100, ['lo', 'hi', 'mid'][1 + i % 3], i % 4, "
        "i * 9292490054 "
        "FROM range(100) t (i)"
    ).fetchall()
    return con


@pytest.mark.parametrize("key", [*MERGED, "upper(other)"])
@pytest.mark.parametrize("value", ["AVG(d.a)", "COUNT(*)"])
def test_a_cell_of_several_values_is_no_key(pooled, key, value):
    """The value of a cell is of all of them: answers were off by half."""
    session = dpsql.Session(pooled, schema={"m": MERGED})
    ours, theirs = (
        key.replace(name, f"{t}.{name}") for t in "dm" for name in MERGED if name in key
    )
    asked = (
        f"SELECT COUNT(*) AS n FROM m WHERE a > (SELECT {value} FROM m d WHERE {ours} = {theirs})"
    )
    with pytest.raises(dpsql.SqlError):
        session.query(asked, budget=MUCH)
    assert not session.history.height


def test_found_keys_are_no_keys_of_values(pooled):
    session = dpsql.Session(pooled, schema={"m": {"a": MERGED["ends"]}})
    session.find_keys("m", "other", budget=dpsql.Budget(epsilon=50, delta=1e-2))
    before = session.history.height
    with pytest.raises(dpsql.SqlError):
        session.query(
            "SELECT COUNT(*) AS n FROM m WHERE a > (SELECT AVG(d.a) FROM m d "
            "WHERE d.other = m.other)",
            budget=MUCH,
        )
    assert session.history.height == before


LEVELS = [
    ("level {} (SELECT MIN(d.level) FROM m d)", "(SELECT MIN(d.level) FROM m d) {} level"),
    (
        "level {} (SELECT MIN(d.level) FROM m d WHERE d.k = m.k)",
        "(SELECT MIN(d.level) FROM m d WHERE d.k = m.k) {} level",
    ),
]


@pytest.mark.parametrize("ways", LEVELS, ids=["of all", "by keys"])
@pytest.mark.parametrize("operator", ["=", "<>", "!=", "<", "<=", ">", ">="])
def test_an_enum_is_compared_as_itself_or_not_at_all(pooled, ways, operator):
    """As a text 'hi' is less than 'lo', and it isn't as a level."""
    for way in ways:
        session = dpsql.Session(pooled)
        asked = f"SELECT COUNT(*) AS n FROM m WHERE {way.format(operator)}"
        try:
            n = session.query(asked, budget=MUCH)["n"].item()
        except dpsql.SqlError:
            assert operator[0] in "<>"
            assert operator != "<>"
            assert not session.history.height
        else:
            assert n == pytest.approx(pooled.execute(asked).fetchone()[0], abs=0.1)


@pytest.mark.parametrize("times", ["10000000000", "2000000000000000000", "-3 + 1"])
def test_arithmetic_with_whole_numbers_has_room(pooled, times):
    """DuckDB itself has none for these products in 64 bits; a charge must not end in an error."""
    session = dpsql.Session(pooled)
    largest = "(SELECT MAX(d.b) FROM m d WHERE d.k = m.k)"
    asked = f"SELECT COUNT(*) AS n FROM m WHERE a > {largest} * {times}"
    n = session.query(asked, budget=MUCH)["n"].item()
    assert n == pytest.approx(0 if times[0] != "-" else 100, abs=0.1)


@pytest.mark.parametrize("rho", [4e-12, 6e-12, 1e-11, 3e-11])
def test_each_value_is_looked_at_before_any_is_charged(rho):
    """The second of these needs more than the first."""
    session = dpsql.Session(shared(), **GIVEN)
    asked = (
        "SELECT COUNT(*) AS n FROM c WHERE age > (SELECT COUNT(*) FROM c d WHERE d.town = c.town) "
        "AND age > (SELECT VAR_POP(d.age) + AVG(d.age) + SUM(d.age) FROM c d WHERE d.town = c.town "
        "AND d.ok = c.ok)"
    )
    try:
        session.query(asked, budget=dpsql.Budget(rho=rho))
    except dpsql.BudgetError:
        assert not session.history.height


@pytest.mark.parametrize("item", ["COUNT(*) AS n", "COUNT(*) AS n, 1 AS one"])
def test_a_row_without_a_table_has_no_keys(item):
    """It has no columns that could be compared: a text without FROM was no refusal but a crash."""
    asked = f"SELECT {item} WHERE (SELECT COUNT(*) FROM c d WHERE d.town = c.town) > 3"
    with pytest.raises(dpsql.SqlError):
        dpsql.Session(shared(), **GIVEN).query(asked, budget=MUCH)
