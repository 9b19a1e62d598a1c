"""Joins with public tables by equality: looked up, whatever their size, and as DuckDB joins."""

import random

import duckdb
import pytest

import dpsql
from tests.helpers.calls import measured_memory
from tests.helpers.inserted import insert
from tests.sql.reference import differences

ROWS = 100_000
BUDGET = dpsql.Budget(rho=1)
FEW_BYTES = 2**28
"""A hundredth of what 10^5 · 50,000 pairs would take; here about a tenth of it is used."""
COLUMNS = {
    "k": dpsql.Domain.integers(0, 9, nullable=True),
    "t": dpsql.Domain.labels(["a", "b", "c"], nullable=True),
    "v": dpsql.Domain.integers(0, 3),
    "free": dpsql.Domain.number(0, 1),
}
GROUPED = """
    d.w, COUNT(*) AS n, SUM(d.m) AS s FROM facts f JOIN dim d ON f.k = d.k
    t, COUNT(*) AS n, SUM(d.m) AS s FROM facts JOIN dim d USING (k, t)
    d.w, f.v, COUNT(*) AS n FROM facts f, dim d WHERE d.k = f.k AND d.t = f.t
    d.w, COUNT(*) AS n, COUNT(d.m) AS c FROM facts f LEFT JOIN dim d ON f.k = d.k
    d.w, COUNT(*) AS n FROM facts f LEFT JOIN dim d ON f.k = d.k AND d.m > f.v
    v, COUNT(*) AS n FROM facts f SEMI JOIN dim d ON f.k = d.k AND d.m > f.v
    v, COUNT(*) AS n FROM facts f ANTI JOIN dim d ON f.k = d.k
    v, COUNT(*) AS n FROM facts WHERE k IN (SELECT k FROM dim WHERE m > 1)
    u, COUNT(*) AS n FROM facts f JOIN dim d ON f.k = d.k JOIN sub s ON s.w = d.w
    u, COUNT(*) AS n FROM facts f, sub s, dim d WHERE s.w = d.w AND f.k = d.k
    u, COUNT(*) AS n FROM facts f LEFT JOIN dim d ON f.k = d.k LEFT JOIN sub s ON s.w = d.w
    a.w, COUNT(*) AS n FROM facts f JOIN dim a ON f.k = a.k JOIN dim b ON f.k = b.k AND a.m = b.m
    d.w, COUNT(f.v) AS n, SUM(f.v) AS s FROM facts f RIGHT JOIN dim d ON f.k = d.k
    d.w, COUNT(f.v) AS n, COUNT(*) FILTER (WHERE v > 1) FROM dim d LEFT JOIN facts f ON f.k = d.k
    d.w, COUNT(f.v) AS n, SUM(f.v) AS s FROM dim d FULL JOIN facts f ON f.k = d.k AND f.v > d.m
    d.w, COUNT(f.v) AS n FROM facts f FULL JOIN dim d ON f.k = d.k
    d.w, COUNT(*) AS n FROM dim d RIGHT JOIN facts f ON f.k = d.k
    d.k, COUNT(v) AS n FROM dim d LEFT JOIN facts USING (k)
    w, t, COUNT(v) AS n FROM facts RIGHT JOIN dim USING (k, t)
    u, COUNT(f.v) AS n FROM dim d LEFT JOIN facts f ON f.k = d.k JOIN sub s ON s.w = d.w
    u, COUNT(v) AS n FROM dim d LEFT JOIN facts f ON f.k = d.k LEFT JOIN sub s USING (w) WHERE m > 1
    d.w, COUNT(*) AS n FROM dim d LEFT JOIN facts f ON f.k = d.k WHERE f.v > 1
    d.w, SUM(free) AS s, COUNT(free) AS n FROM dim d LEFT JOIN facts f ON f.k = d.k
"""
COUNTED = """
    facts f LEFT JOIN dim d ON f.k = d.k JOIN sub s ON s.w = d.w OR d.w IS NULL
    facts f LEFT JOIN dim d ON f.k = d.k JOIN sub s ON s.w = coalesce(d.w, 0)
    facts f, dim d WHERE (f.k = d.k AND d.m < 2 AND v = 1) OR (d.k = f.k AND f.t = d.t AND v > 1)
    facts f JOIN dim d ON f.k IS NOT DISTINCT FROM d.k
    facts f JOIN dim d ON f.k + f.v = d.k
    facts f JOIN dim d ON f.k = d.k + d.w
    facts f WHERE EXISTS (SELECT 1 FROM dim d WHERE d.k = f.k AND d.m > f.v)
    facts f WHERE NOT EXISTS (SELECT * FROM dim WHERE dim.k = f.k AND dim.t = f.t)
    facts f WHERE EXISTS (SELECT 1 FROM dim d JOIN sub s ON s.w = f.v WHERE d.k = f.k)
    facts f WHERE v < (SELECT MAX(m) FROM dim d WHERE d.k = f.k)
    facts f WHERE (SELECT COUNT(*) FROM dim WHERE dim.k > f.k) > 3
    facts f WHERE v IN (SELECT m FROM dim WHERE dim.k = f.k)
    facts f WHERE v NOT IN (SELECT m FROM dim WHERE dim.k = f.k)
    facts f WHERE v > 1 OR EXISTS (SELECT 1 FROM dim d WHERE d.k IS NOT DISTINCT FROM f.k)
    facts f WHERE EXISTS (SELECT 1 FROM (SELECT k + v AS n FROM dim) x WHERE x.n = f.k)
    facts WHERE EXISTS (SELECT 1 FROM dim d WHERE EXISTS (SELECT 1 FROM sub WHERE w = v AND k = 3))
    facts f JOIN dim d ON f.k = d.k WHERE EXISTS (SELECT 1 FROM sub s WHERE s.w = d.w AND v > 0)
    (SELECT k + 1 AS up, v FROM facts) f WHERE EXISTS (SELECT 1 FROM dim d WHERE d.k = up)
"""
ADDED_UP = """
    SUM((SELECT MIN(m) FROM dim d WHERE d.k = f.k)) AS s FROM facts f
    v, AVG((SELECT MAX(m) FROM dim d WHERE d.k = f.k AND d.t = f.t)) AS s FROM facts f
    v, COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM dim d WHERE d.k = f.k)) AS n FROM facts f
    EXISTS (SELECT 1 FROM dim d WHERE d.k = f.k AND d.m > 1) AS e, COUNT(*) AS n FROM facts f
    v, (SELECT MAX(m) FROM dim d WHERE d.k = f.k) AS m, COUNT(*) AS n FROM facts f
"""


def statements():
    grouped = [f"SELECT {line} GROUP BY ALL" for line in (GROUPED + ADDED_UP).split("\n") if line]
    return grouped + [f"SELECT COUNT(*) AS n FROM {line}" for line in COUNTED.split("\n") if line]


def connect(seed):
    """Make private rows, and public ones with duplicates, NULL keys and keys that no row has."""
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute("CREATE TABLE facts (k INTEGER, t VARCHAR, v INTEGER, free DOUBLE)").fetchall()
    con.execute("CREATE TABLE dim (k INTEGER, t VARCHAR, w INTEGER, m INTEGER)").fetchall()
    con.execute("CREATE TABLE sub (w INTEGER, u VARCHAR)").fetchall()

    def maybe(value):
        return None if rng.random() < 0.15 else value

    facts = [
        (maybe(rng.randint(0, 9)), maybe(rng.choice("abc")), rng.randint(0, 3), i % 3 / 2)
        for i in range(500)
    ]
    dim = [
        (maybe(rng.randint(-2, 12)), maybe(rng.choice("abx")), maybe(rng.randint(0, 3)), i % 5)
        for i in range(rng.randint(1, 25))
    ]
    sub = [(maybe(rng.randint(0, 3)), rng.choice("xyz")) for _ in range(rng.randint(1, 8))]
    insert(con, "facts", facts)
    insert(con, "dim", dim)
    insert(con, "sub", sub)
    return con


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sql", statements())
def test_joins_are_those_of_duckdb(sql, seed):
    con = connect(seed)
    session = dpsql.Session(con, schema=dpsql.Schema({"facts": COLUMNS}), public=["dim", "sub"])
    try:
        assert not differences(con, sql, session)
    except dpsql.SqlError as error:  # by chance no row can have the same key
        assert error.message.endswith("so there is no group to return.")  # noqa: PT017


UNDECLARED = """
    d.w, COUNT(*) AS n, SUM(d.m) AS s FROM facts f JOIN dim d ON f.k = d.k
    d.m, COUNT(*) AS n FROM facts JOIN dim d USING (k, t)
    d.w, f.v, COUNT(*) AS n FROM facts f, dim d WHERE d.k = f.k AND d.t = f.t
    d.w, COUNT(*) AS n, COUNT(d.m) AS c FROM facts f LEFT JOIN dim d ON f.k = d.k
    d.w, COUNT(*) AS n FROM facts f LEFT JOIN dim d ON f.k = d.k AND d.m > f.v
    v, COUNT(*) AS n FROM facts f SEMI JOIN dim d ON f.k = d.k AND d.m > f.v
    v, COUNT(*) AS n FROM facts f ANTI JOIN dim d ON f.k = d.k
    v, COUNT(*) AS n FROM facts WHERE k IN (SELECT k FROM dim WHERE m > 1)
    v, COUNT(*) AS n FROM facts f, dim d WHERE f.k = d.k AND (v = 1 OR f.t = d.t) AND f.k < 5
    u, COUNT(*) AS n FROM facts f JOIN dim d ON f.k = d.k JOIN sub s ON s.w = d.w
    w, COUNT(v) AS n FROM dim d LEFT JOIN facts f ON f.k = d.k
    w, SUM(free) AS s FROM facts f JOIN dim d ON f.t = d.t AND f.k = d.k + 1
"""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("line", [line for line in UNDECLARED.split("\n") if line])
def test_keys_without_a_domain_have_the_values_of_the_public_table(line, seed):
    con = connect(seed)
    columns = {name: COLUMNS[name] for name in ("v", "free")}
    session = dpsql.Session(con, schema=dpsql.Schema({"facts": columns}), public=["dim", "sub"])
    try:
        assert not differences(con, f"SELECT {line} GROUP BY ALL", session)
    except dpsql.SqlError as error:
        assert error.message.endswith("so there is no group to return.")  # noqa: PT017


@pytest.mark.parametrize(
    "condition",
    [
        "NOT (f.k = d.k)",
        "f.k = d.k OR f.k IS NOT DISTINCT FROM d.w",
        "f.k < d.k",
        "f.k + 1 BETWEEN d.k AND d.w",
        "f.k NOT IN (SELECT k FROM dim WHERE k > 1)",
        "f.t <> d.t AND NOT EXISTS (SELECT 1 FROM sub WHERE sub.w = f.k)",
    ],
)
def test_a_key_without_a_domain_is_compared_with_public_values_in_any_way(condition):
    con, columns = connect(0), {name: COLUMNS[name] for name in ("v", "free")}
    session = dpsql.Session(con, schema=dpsql.Schema({"facts": columns}), public=["dim", "sub"])
    sql = f"SELECT COUNT(*) AS n FROM facts f, dim d WHERE {condition}"
    assert not differences(con, sql, session)


@pytest.mark.parametrize("condition", ["f.k = d.t::INT", "f.t = d.k", "f.k * d.k > 3", "f.t < d.t"])
def test_what_more_is_asked_of_such_a_key_needs_its_domain(condition):
    columns = {name: COLUMNS[name] for name in ("v", "free")}
    session = dpsql.Session(
        connect(0), schema=dpsql.Schema({"facts": columns}), public=["dim", "sub"]
    )
    with pytest.raises(dpsql.SqlError):
        session.plan(f"SELECT COUNT(*) FROM facts f, dim d WHERE {condition}", budget=BUDGET)


def test_a_sum_over_no_public_row_is_zero():
    con = connect(0)
    session = dpsql.Session(con, schema=dpsql.Schema({"facts": COLUMNS}), public=["dim", "sub"])
    sql = "SELECT SUM((SELECT MAX(m) FROM dim WHERE m > 9 AND dim.k = f.k)) AS s FROM facts f"
    assert not differences(con, sql, session)


@pytest.fixture(scope="module")
def large():
    """Facts that name one of 10^5 things, which are of 10^3 kinds, which are of 3 classes."""
    con = duckdb.connect()
    for statement in (
        "CREATE TABLE things AS "
        f"SELECT range AS k, range % 1000 AS kind, range % 7 AS m FROM range({ROWS})",
        "CREATE TABLE kinds AS SELECT i AS kind, 'c' || i % 3 AS class FROM range(1000) t(i)",
        f"CREATE TABLE skewed AS SELECT least(i, 50000) AS k, i % 7 AS m FROM range({ROWS}) t(i)",
        f"CREATE TABLE facts AS SELECT (i * 7919) % {ROWS} AS k, i % 9 AS v FROM range(5000) t(i)",
    ):
        con.execute(statement).fetchall()
    columns = {"k": dpsql.Domain.integers(0, ROWS - 1), "v": dpsql.Domain.integers(0, 8)}
    schema = dpsql.Schema({"facts": columns})
    return con, dpsql.Session(con, schema=schema, public=["things", "kinds", "skewed"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT class, COUNT(*) AS n FROM facts f JOIN things t ON f.k = t.k "
        "JOIN kinds s ON s.kind = t.kind WHERE v > 2 GROUP BY class",
        "SELECT class, COUNT(*) AS n, SUM(m) AS s FROM kinds s, things t, facts f "
        "WHERE f.k = t.k AND t.kind = s.kind GROUP BY class",
        "SELECT COUNT(*) AS n FROM facts f, things t "
        "WHERE (f.k = t.k AND m = 1 AND v = 1) OR (f.k = t.k AND m = 2)",
        "SELECT v, COUNT(*) AS n FROM facts f "
        "WHERE EXISTS (SELECT 1 FROM things t WHERE t.k = f.k AND t.m = 3) GROUP BY v",
        "SELECT SUM((SELECT m FROM things t WHERE t.k = f.k)) AS s FROM facts f",
        # At most 10^5 · 50,000 pairs by the most frequent key, and 10^5 if they are counted.
        "SELECT s.m, COUNT(*) AS n FROM facts f JOIN skewed s ON f.k = s.k GROUP BY s.m",
        # Only the m of its thing is asked of k.
        "SELECT COUNT(*) AS n FROM facts f JOIN things t ON f.k = t.k JOIN skewed s ON s.m = t.m",
    ],
)
def test_tables_of_many_rows_are_looked_up(large, sql):
    con, session = large
    with measured_memory() as memory:
        session.plan(sql, budget=BUDGET)
    assert memory.peak < FEW_BYTES
    assert not differences(con, sql, session)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT COUNT(*) AS n FROM facts f JOIN things t ON f.k < t.k", "join t ON equal columns"),
        (
            "SELECT COUNT(*) FROM facts f JOIN things t ON f.k = t.k "
            "JOIN skewed s ON s.m = t.m AND s.k <> f.k",
            "fewer rows have the same keys",
        ),
        (
            "SELECT COUNT(*) FROM facts f JOIN skewed a ON f.v = a.m JOIN skewed b ON a.k = b.k",
            "fewer rows have the same keys",
        ),
        (
            "SELECT COUNT(*) AS n FROM facts f, things t WHERE f.k = t.k AND m = 1 OR f.v = t.m",
            "join t ON equal columns",
        ),
        (
            "SELECT COUNT(*) FROM facts f WHERE EXISTS (SELECT 1 FROM things t WHERE t.k > f.k)",
            "make a column of the subquery equal to one outside it",
        ),
        (
            "SELECT SUM((SELECT MAX(m) FROM things WHERE f.k < 9 OR things.k = f.k)) FROM facts f",
            "make a column of the subquery equal to one outside it",
        ),
    ],
)
def test_too_many_pairs_are_refused_before_they_are_made(large, sql, hint):
    _, session = large
    refused = pytest.raises(dpsql.ResourceLimitError, match=r"look at|looks at")
    with measured_memory() as memory, refused as caught:
        session.plan(sql, budget=BUDGET)
    assert hint in caught.value.hint
    assert memory.peak < FEW_BYTES


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT COUNT(*) FROM facts f JOIN dim d ON f.v = d.m AND f.k = d.t + 1", "f.k = d.t + 1"),
        ("SELECT COUNT(*) FROM facts f LEFT JOIN dim d ON f.k = d.t + 1", "f.k = d.t + 1"),
        ("SELECT COUNT(*) FROM facts f JOIN dim d ON f.k = d.k AND d.t::INT > 1", "d.t::INT > 1"),
    ],
)
def test_a_join_that_fails_is_shown(sql, text):
    con = connect(1)
    session = dpsql.Session(con, schema=dpsql.Schema({"facts": COLUMNS}), public=["dim", "sub"])
    with pytest.raises(dpsql.SqlError, match="DuckDB can't compute this") as caught:
        session.plan(sql, budget=BUDGET)
    assert text in sql[caught.value.span.start : caught.value.span.end]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("h.day = t.came::DATE", None),
        ("month(h.day) = month(t.came)", None),
        ("h.hour = t.came", None),
        ("h.low > t.real", None),
        ("h.low > 5 AND t.real >= 10", None),
        ("h.low > 5 AND t.real >= 15", None),
        ("h.day = t.month", None),
        ("h.low + t.real > 15", "real is known by ranges only: it can just be compared"),
    ],
)
def test_subqueries_compare_what_is_stored(condition, message):
    con = duckdb.connect()
    for statement in (
        "CREATE TABLE t AS SELECT TIMESTAMP '2020-01-01' + INTERVAL (i * 7) HOUR AS came, "
        "(i % 20)::DOUBLE AS real, DATE '2020-01-01' + (i % 90)::INT AS month FROM range(300) t(i)",
        "CREATE TABLE h AS SELECT DATE '2020-01-01' + (i * 7)::INT AS day, "
        "TIMESTAMP '2020-01-03 05:00' + INTERVAL (i) DAY AS hour, i * 10.0 AS low "
        "FROM range(9) x(i)",
    ):
        con.execute(statement).fetchall()
    columns = {
        "came": dpsql.Domain.dates("2020-01-01", "2020-04-30"),
        "real": dpsql.Domain.bins([0, 10, 20]),
        "month": dpsql.Domain.dates("2020-01-01", "2020-04-30", "month"),
    }
    session = dpsql.Session(con, schema=dpsql.Schema({"t": columns}), public="h")
    sql = f"SELECT COUNT(*) AS n FROM t WHERE EXISTS (SELECT 1 FROM h WHERE {condition})"
    if message is None:
        assert not differences(con, sql, session)
        return
    with pytest.raises(dpsql.SqlError, match=message):
        session.plan(sql, budget=BUDGET)
