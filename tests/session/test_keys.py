"""Keys that expressions tell, from SQL to releases: right, used again, and kept apart."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError, SqlSchemaError, StaleSchemaError, UndeterminedError

BUDGET, HUGE = dpsql.Budget(rho=0.5), dpsql.Budget(rho=1e12)
SCHEMA = {
    "t": {
        "k": dpsql.Domain.integers(0, 3),
        "price": dpsql.Domain.number(0, 1000),
        "x": dpsql.Domain.number(0, 10),
    }
}
ROWS = """
    SELECT setseed(0.5);
    CREATE TABLE t AS SELECT i AS id, i % 700 AS person, (random() * 3)::INTEGER AS k,
        (random() * 1000)::DECIMAL(9,2) AS price,
        CASE WHEN random() < 0.1 THEN NULL WHEN random() < 0.05 THEN 'nan' ELSE random() * 10 END
            ::DOUBLE AS x,
        ['Anna', 'Bob', 'Zoë', 'Al%', NULL][1 + (random() * 4)::INTEGER] AS s,
        TIMESTAMP '2020-01-01' + INTERVAL 1 SECOND * (random() * 3e7)::INTEGER AS ts,
        (random() * 100)::INTEGER AS "K"" LIKE"
    FROM range(3000) AS r(i);
    ALTER TABLE t ALTER id SET NOT NULL;
    CREATE TABLE shifts AS SELECT * FROM (VALUES (0, 8, 'night'), (8, 16, 'day'), (16, 24, 'late'))
        AS v(begins, ends, shift);
"""
STATEMENTS = [
    "SELECT EXTRACT(hour FROM ts) AS h, COUNT(*) AS n FROM t GROUP BY 1",
    "SELECT dayname(ts) AS d, month(ts) > 6 AS late, COUNT(*) AS n FROM t GROUP BY ALL",
    "SELECT CASE WHEN price < 10 THEN 'cheap' ELSE 'dear' END AS c, COUNT(*) AS n, AVG(price) AS p "
    "FROM t GROUP BY c",
    "SELECT k, COUNT(*) AS n FROM t WHERE s LIKE 'A%' GROUP BY k",
    "SELECT k, COUNT(*) AS n, COUNT(x) AS m, AVG(price) AS a FROM t WHERE s LIKE '%n%' AND x > 3 "
    "AND k < 3 GROUP BY k",
    "SELECT COUNT(*) AS n FROM t WHERE s ILIKE 'aL%' OR s IS NULL",
    "SELECT COUNT(*) AS n FROM t WHERE regexp_matches(s, '^[A-C]') AND NOT isnan(x)",
    "SELECT COUNT(*) AS n FROM t WHERE NOT (x > 3)",
    "SELECT COUNT(*) AS n FROM t WHERE s IN ('Anna', 'Al%') OR k = 2",
    "SELECT least(greatest(floor(price / 100), 0), 9) AS b, COUNT(*) AS n FROM t GROUP BY ALL",
    "SELECT MEDIAN(least(greatest(floor(price / 10), 0), 99)) AS m, "
    "QUANTILE_DISC(hour(ts), 0.25) AS q FROM t",
    "SELECT floor(price / 100) AS b, COUNT(*) AS n, AVG(price) AS p FROM t GROUP BY b",
    "SELECT k, floor(price / 250) * 250 AS b, COUNT(*) AS n FROM t WHERE s LIKE 'A%' GROUP BY ALL",
    "SELECT round(price, -2) AS b, COUNT(*) AS n FROM t GROUP BY b",
    "SELECT (price / 100)::INTEGER AS b, COUNT(*) FILTER (s = 'Bob') AS n FROM t GROUP BY b",
    "SELECT ceil(price * x / 1000) AS b, COUNT(*) AS n FROM t WHERE NOT isnan(x) GROUP BY b",
    "SELECT floor(price / 100) AS b, COUNT(*) AS n FROM t WHERE floor(price / 100) IN (3, 4) "
    "GROUP BY b",
    "SELECT MEDIAN(floor(price / 10)) AS m, MAX(ceil(x / 10)) FILTER (NOT isnan(x)) AS q FROM t",
    "SELECT COUNT(*) AS n FROM t WHERE s || '-' || k = 'Anna-2' OR ts || '' LIKE '2020-02-0%'",
    "SELECT s || k AS v, COUNT(*) AS n FROM t WHERE s IN ('Anna', 'Bob') GROUP BY v",
    "SELECT dayname(ts) || '!' AS v, COUNT(*) FILTER (price || '' LIKE '%.05') AS n FROM t "
    "GROUP BY v",
    "SELECT x IS NULL AS m, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY x IS NULL) AS r FROM t "
    "GROUP BY 1",
    "SELECT hour(ts) AS h, COUNT(*) AS n, LAG(COUNT(*)) OVER (ORDER BY hour(ts)) AS b FROM t "
    "GROUP BY h",
    "SELECT COUNT(*) FILTER (s = 'Anna') AS a, COUNT(*) FILTER (s = 'Bob' AND price > 500) AS b, "
    "COUNT(*) AS n, SUM(price) FILTER (x > 5) AS p FROM t",
    "SELECT CASE WHEN x > 5 THEN 0.5 WHEN x > 2 THEN 1.25 END AS v, COUNT(*) AS n FROM t "
    "GROUP BY 1",
    "SELECT CASE WHEN x > 5 THEN DATE '2020-01-01' ELSE DATE '2021-01-01' END AS v, COUNT(*) AS n "
    "FROM t GROUP BY 1",
    "SELECT CASE s WHEN 'Anna' THEN 1 WHEN 'Bob' THEN 2 ELSE 0 END AS v, COUNT(*) AS n FROM t "
    "GROUP BY 1",
    "SELECT CASE WHEN x > 5 THEN k ELSE -k END AS v, COUNT(*) AS n FROM t GROUP BY 1",
    "SELECT lower(CASE WHEN s = 'Anna' THEN 'A' ELSE 'B' END) AS l, k, COUNT(*) AS n FROM t "
    "GROUP BY ALL",
    "SELECT (k > 1) = (x > 5) AS e, COUNT(*) AS n FROM t GROUP BY 1",
    "SELECT hour(ts) < 12 AS am, k, COUNT(*) AS n FROM t GROUP BY CUBE (am, k)",
    "SELECT month(ts) AS m, COUNT(*) AS n FROM t GROUP BY m HAVING COUNT(*) > 200",
    "SELECT hour(ts) AS h, hour(ts) // 6 AS q, COUNT(*) AS n FROM t GROUP BY h",
    "SELECT shift, COUNT(*) AS n FROM t JOIN shifts ON hour(ts) >= begins AND hour(ts) < ends "
    "GROUP BY shift",
    "SELECT h, COUNT(*) AS n FROM (SELECT hour(ts) AS h, price FROM t WHERE s LIKE 'A%') "
    "WHERE price > 10 GROUP BY h",
    "SELECT id % 2 = 0 AS even, COUNT(*) AS n FROM t GROUP BY even",
    "SELECT s, COUNT(*) AS n FROM t WHERE s IN ('Bob', 'Anna', 'nobody', NULL) GROUP BY s",
    "SELECT s, k, COUNT(*) AS n, AVG(price) AS p FROM t WHERE s IN ('Anna', 'Bob') AND k < 2 AND "
    "x > 3 GROUP BY ALL",
    "SELECT year(ts) AS y, COUNT(*) AS n FROM t WHERE year(ts) BETWEEN 2019 AND 2020 GROUP BY y",
    "SELECT upper(s) AS u, COUNT(*) AS n FROM t WHERE s IN ('Anna', 'Bob') GROUP BY u",
    "SELECT id AS i, COUNT(*) AS n FROM t WHERE id IN (3, -1, 2999, 3000) GROUP BY i",
    "SELECT x AS v, COUNT(*) AS n FROM t WHERE x IN (0.5, 1) GROUP BY v",
    "SELECT s, COUNT(*) AS n FROM t WHERE 'Anna' = s AND s LIKE '%n%' GROUP BY ROLLUP (s)",
    "SELECT MEDIAN(year(ts)) AS m FROM t WHERE year(ts) IN (2019, 2020)",
    "SELECT left(s, 1) AS l, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY left(s, 1)) AS m FROM t "
    "WHERE left(s, 1) IN ('A', 'B', 'Z') GROUP BY l",
    "SELECT s, COUNT(*) AS n, COUNT(*) FILTER (s = 'Bob') AS m FROM t WHERE s IN "
    "('Anna', 'Bob') GROUP BY s",
    'SELECT "K"" LIKE" > 50 AS v, COUNT(*) AS n FROM t GROUP BY v',
]


@pytest.fixture
def con(tmp_path):
    con = duckdb.connect(tmp_path / "rows.duckdb")
    con.execute(ROWS).fetchall()
    return con


def session(con, **options):
    return dpsql.Session(con, schema=SCHEMA, public=["shifts"], **options)


def plain(rows):
    """Rows in any order, values as text, numbers rounded; without groups that have no row."""

    def value(v):
        return (
            f"{round(float(v), 2) + 0:.2f}"
            if not isinstance(v, str | bool | type(None)) and (hasattr(v, "__float__"))
            else str(v)
        )

    return sorted(tuple(map(value, row)) for row in rows)


def answered(frame, columns):
    kept = frame.select(columns)
    if "n" in columns and len(columns) > 1:
        kept = kept.filter(frame["n"].round() != 0)
    return kept.rows()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("sql", STATEMENTS)
def test_answers_are_those_of_duckdb(con, sql):
    found = con.sql(sql)
    columns, rows = found.columns, found.fetchall()
    frame = session(con).query(sql, budget=HUGE)
    assert plain(answered(frame, columns)) == plain(rows)


def test_a_condition_is_planned_like_one_on_a_declared_column(con):
    """Counts stay counts: of all joint cells those are measured that are asked for."""
    of_rows = session(con).plan("SELECT k, COUNT(*) AS n FROM t WHERE s LIKE 'A%' AND x > 3 "
                                "GROUP BY k", budget=BUDGET)  # fmt: skip
    plain_ = session(con).plan("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=BUDGET)
    assert of_rows.rmse == pytest.approx(plain_.rmse, rel=1e-3)


def test_what_was_measured_answers_again(con):
    asked = session(con)
    asked.query("SELECT hour(ts) AS h, k, COUNT(*) AS n FROM t GROUP BY ALL", budget=BUDGET)
    free = asked.query("SELECT hour(ts) AS h, COUNT(*) AS n FROM t GROUP BY 1", budget=0)
    assert free.height == 25
    assert asked.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=0).height == 4
    # What another key says is taken along, too: of the rows, all keys say the same.
    before = asked.plan("SELECT s LIKE 'A%' AS a, COUNT(*) AS n FROM t GROUP BY 1", budget=BUDGET)
    asked.query("SELECT x > 3 AS a, COUNT(*) AS n FROM t GROUP BY 1", budget=BUDGET)
    after = asked.plan("SELECT COUNT(*) AS n FROM t", budget=BUDGET)
    assert after.rmse < before.rmse


def test_conditions_are_the_same_in_any_order(con):
    asked = session(con)
    asked.query("SELECT COUNT(*) AS n FROM t WHERE x > 3 AND s LIKE 'A%'", budget=BUDGET)
    asked.query("SELECT COUNT(*) AS n FROM t WHERE s LIKE 'A%' AND x > 3", budget=0)


def test_values_that_a_condition_lists_are_the_groups(con):
    """Those, in their order, and no others: also where no row has them."""
    sql = "SELECT s, COUNT(*) AS n FROM t WHERE s IN ('Zoë', 'nobody', 'Anna') GROUP BY s"
    asked = session(con)
    frame = asked.query(sql, budget=BUDGET)
    assert frame["s"].to_list() == ["Zoë", "nobody", "Anna"]
    assert asked.query(sql.replace("AS n", "AS m"), budget=0).height == 3
    with pytest.raises(UndeterminedError):
        asked.query(sql.replace("nobody", "Bob"), budget=0)


@pytest.mark.parametrize("other", [
    "x > 4", "x >= 3", "price > 3", "x > 3 AND k > 0 AND s LIKE 'A%'", "s LIKE 'a%'", "x > 3.01",
    "x > 3 OR s LIKE 'A%'", "NOT x > 3",
])  # fmt: skip
def test_another_key_is_not_taken_for_it(con, other):
    asked = session(con)
    asked.query("SELECT COUNT(*) AS n FROM t WHERE x > 3", budget=BUDGET)
    asked.query("SELECT COUNT(*) AS n FROM t WHERE s LIKE 'A%'", budget=BUDGET)
    with pytest.raises(UndeterminedError):
        asked.query(f"SELECT COUNT(*) AS n FROM t WHERE {other}", budget=0)


def test_a_column_of_another_type_makes_another_key(con):
    sql = "SELECT COUNT(*) AS n FROM t WHERE s > '1'"
    asked = session(con)
    asked.query(sql, budget=BUDGET)
    con.execute("UPDATE t SET s = 7; ALTER TABLE t ALTER s TYPE INTEGER").fetchall()
    again = session(con, accept_schema=True)
    with pytest.raises((UndeterminedError, StaleSchemaError)):
        again.query(sql, budget=0)


def test_a_key_that_is_forgotten_does_no_harm(con):
    """Measurements of it are used for all else, also under another description."""
    asked = session(con)
    asked.query("SELECT k, hour(ts) AS h, COUNT(*) AS n FROM t GROUP BY ALL", budget=BUDGET)
    wider = {"t": {**SCHEMA["t"], "id": dpsql.Domain.integers(0, 10, outside="clamp")}}
    other = dpsql.Session(con, schema=wider, accept_schema=True)
    assert other.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=0).height == 4
    free = other.query("SELECT hour(ts) AS h, COUNT(*) AS n FROM t GROUP BY 1", budget=0)
    assert free.height == 25


def test_releases_are_saved_and_loaded(con, tmp_path):
    release = session(con).release({
        "hours": "SELECT hour(ts) AS h, CASE WHEN s LIKE 'A%' THEN 'a' ELSE 'b' END AS c, "
                 "COUNT(*) AS n FROM t GROUP BY ALL",
        "even": "SELECT k, COUNT(*) AS n FROM t WHERE id % 2 = 0 GROUP BY k",
        "mean": "SELECT AVG(price) AS p, COUNT(*) AS n FROM t WHERE x > 3",
    }, budget=BUDGET)  # fmt: skip
    release.save(tmp_path / "kept")
    loaded = dpsql.Release.load(tmp_path / "kept")
    for name in ("hours", "even", "mean"):
        assert loaded[name].equals(release[name])
    sql = "SELECT hour(ts) AS h, COUNT(*) AS n FROM t GROUP BY 1"
    assert loaded.query(sql).equals(release.query(sql))
    loaded.query("SELECT COUNT(*) AS n FROM t WHERE id % 2 = 0")
    with pytest.raises(SqlError):
        loaded.query('SELECT "date_part(VARCHAR \'hour\', ""ts"")", COUNT(*) FROM t GROUP BY 1')
    loaded.save(tmp_path / "again")
    assert dpsql.Release.load(tmp_path / "again").query(sql).equals(loaded.query(sql))


def test_units_are_protected_with_keys(con):
    unit = dpsql.Unit("person", max_rows=5)
    sql = "SELECT hour(ts) AS h, COUNT(*) AS n FROM t WHERE s LIKE 'A%' GROUP BY 1"
    asked = dpsql.Session(con, schema=SCHEMA, unit=unit)
    frame = asked.query(sql, budget=HUGE)
    found = con.execute(sql).fetchall()
    assert plain(answered(frame, ["h", "n"])) == plain(found)
    assert asked.query("SELECT COUNT(*) AS n FROM t WHERE s LIKE 'A%'", budget=0)["n"].round()[0] \
        == sum(n for _, n in found)  # fmt: skip


def test_many_cells_leave_a_condition_to_a_measure(con):
    wide = {"t": {"id": dpsql.Domain.integers(0, 399_999)}}
    asked = dpsql.Session(con, schema=wide)
    plan = asked.plan("SELECT id, COUNT(*) AS n FROM t WHERE s = 'Anna' GROUP BY id", budget=BUDGET)
    assert "id x COUNT(*) WHERE s = 'Anna'" in plan.explain()


def test_rows_outside_of_the_bounds_lie_in_the_first_and_the_last_bucket(con):
    """And those of NaN with NULL: as they add nothing to a sum."""
    con.execute("""
        DELETE FROM t WHERE id > 6;
        UPDATE t SET x = (['2', '-7', '99', '-inf', 'nan', NULL, '2'])[id + 1]::DOUBLE
    """).fetchall()
    sql = "SELECT floor(x / 5) AS b, COUNT(*) AS n FROM t GROUP BY b"
    frame = session(con).query(sql, budget=HUGE)
    assert frame.select("b", "n").with_columns(frame["n"].round()).rows() == [
        (0, 4), (1, 0), (2, 1), (None, 2)]  # fmt: skip


def test_a_number_has_as_few_buckets_as_it_can(con):
    def groups(key):
        sql = f"SELECT {key} AS b, COUNT(*) AS n FROM t GROUP BY b"
        return session(con).query(sql, budget=BUDGET)["b"].to_list()

    assert groups("(floor(price / 500) * 500)::INTEGER") == [0, 500, 1000, None]
    assert groups("floor(floor(price) / 500)") == [0, 1, 2, None]
    assert groups("-round(price, -3)") == [0, -1000, None]


@pytest.mark.parametrize(("sql", "marked"), [
    ("SELECT s, COUNT(*) AS n FROM t GROUP BY s", "s"),
    ("SELECT year(ts) AS y, COUNT(*) AS n FROM t GROUP BY y", "ts"),
    ("SELECT upper(s) AS u, COUNT(*) AS n FROM t GROUP BY ALL", "s"),
    ("SELECT floor(id / 7) AS f, COUNT(*) AS n FROM t GROUP BY ALL", "id"),
    ("SELECT floor(price * 100) AS f, COUNT(*) AS n FROM t GROUP BY ALL", "price"),
    ("SELECT sqrt(price) AS f, COUNT(*) AS n FROM t GROUP BY ALL", "price"),
    ("SELECT s, COUNT(*) AS n FROM t WHERE s IN ('a', 'b') OR k = 1 GROUP BY s", "s"),
    ("SELECT s, COUNT(*) AS n FROM t WHERE s NOT IN ('a', 'b') GROUP BY s", "s"),
    ("SELECT s, COUNT(*) AS n FROM t WHERE s IN (1, 2) GROUP BY s", "s"),
    ("SELECT x, COUNT(*) AS n FROM t WHERE x BETWEEN 0 AND 3 GROUP BY x", "x"),
    ("SELECT id, COUNT(*) AS n FROM t WHERE id BETWEEN 0 AND 9999 GROUP BY id", "id"),
    ("SELECT COUNT(*) AS n FROM t JOIN shifts ON s < shift", "s"),
])  # fmt: skip
def test_what_has_no_known_values_is_refused(con, sql, marked):
    with pytest.raises(SqlSchemaError, match="no public domain") as caught:
        session(con).plan(sql, budget=BUDGET)
    assert caught.value.sql[caught.value.span.start : caught.value.span.end] == marked


@pytest.mark.parametrize("sql", [
    "SELECT price, COUNT(*) AS n FROM t GROUP BY ALL",
    "SELECT x AS v, k, COUNT(*) AS n FROM t GROUP BY ALL",
])  # fmt: skip
def test_a_column_with_bounds_is_rounded_as_the_hint_says(con, sql):
    with pytest.raises(SqlSchemaError) as caught:
        session(con).plan(sql, budget=BUDGET)
    rounded = caught.value.hint.partition("values: ")[2].partition(";")[0]
    span = caught.value.span
    typed = sql[: span.start] + rounded + sql[span.end :]
    frame = session(con).query(typed, budget=HUGE)
    assert 1 <= frame.height <= 500


def test_a_column_of_the_name_of_a_key_is_not_taken_for_it(con):
    sql = "SELECT COUNT(*) AS n FROM t WHERE x > 3"
    (name,) = (m for m in session(con).plan(sql, budget=BUDGET).marginals for m in m)
    con.execute(f"""ALTER TABLE t ADD COLUMN "{name.replace('"', '""')}" BOOLEAN""").fetchall()
    plan = session(con).plan(sql, budget=BUDGET)
    assert name not in str(plan.explain()).replace("sum of", "")


@pytest.fixture
def listed():
    """Texts of different frequencies, two public lists of them, and numbers that may be missing."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i < 100 THEN 'a' WHEN i < 300 THEN 'b' WHEN i < 600 "
        "THEN 'c' ELSE 'd' END AS s, i % 3 AS k, CASE WHEN i % 7 > 0 THEN i % 5 END::DECIMAL(9,1) "
        "AS d, i % 4 AS w, ['nan', '1'][1 + i % 2] AS l FROM range(1000) AS r(i)"
    )
    con.execute("CREATE TABLE p1 AS FROM (VALUES ('a', 'x'), ('b', 'y')) AS v(code, label)")
    con.execute("CREATE TABLE p2 AS FROM (VALUES ('c', 'u'), ('d', 'v')) AS v(code, label)")
    return con


@pytest.mark.parametrize("unit", [None, "k"])
def test_two_lists_in_which_one_column_is_looked_up_are_kept_apart(listed, unit):
    asked = dpsql.Session(listed, public=["p1", "p2"], unit=unit, max_rows=unit and 1000)
    joined = "SELECT label, COUNT(*) AS n FROM t JOIN {} ON s = code GROUP BY label ORDER BY label"
    both = "SELECT {} FROM t".format(
        ", ".join(
            f"COUNT(*) FILTER (WHERE s IN (SELECT code FROM {p})) AS {p}" for p in ("p1", "p2")
        )
    )
    release = asked.release(
        {"p1": joined.format("p1"), "p2": joined.format("p2"), "both": both}, budget=HUGE
    )
    assert release["p1"]["n"].round().to_list() == [100, 200]
    assert release["p2"]["n"].round().to_list() == [300, 400]
    assert release["both"].select("p1", "p2").row(0) == pytest.approx((300, 700), abs=0.1)


@pytest.mark.parametrize("condition", [
    "NOT (isnan(d::DOUBLE) OR w > 2)",
    "NOT (d IS NULL OR isnan(d::DOUBLE))",
    "NOT (d IS NULL OR isnan(d::DOUBLE) OR w > 2)",
    "isnan(CAST(l AS DOUBLE)) OR w > 2",
    "(isnan(d::DOUBLE) OR w > 2) IS NULL",
])  # fmt: skip
@pytest.mark.parametrize("labels", [False, True])
def test_nan_is_asked_for_where_it_makes_a_difference(listed, condition, labels):
    schema = {"t": {"l": dpsql.Domain.labels(["nan", "1"])}} if labels else {}
    sql = f"SELECT COUNT(*) AS n, SUM(least(w, 3)) FILTER (WHERE {condition}) AS s FROM t"
    sql = f"{sql} WHERE {condition}".replace("least(w, 3)", "least(greatest(w, 0), 3)")
    answers = dpsql.Session(listed, schema=schema).query(sql, budget=HUGE)
    ((n, s),) = listed.execute(sql).fetchall()
    assert answers.select("n", "s").row(0) == pytest.approx((n, s), abs=0.1)


def test_what_is_too_large_to_be_compared_is_in_the_cell_for_null():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (h HUGEINT NOT NULL)")
    con.execute("INSERT INTO t VALUES (1), (2), (170141183460469231731687303715884105727)")
    sql = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE h > 1.5) AS m FROM t"
    answers = dpsql.Session(con).query(sql, budget=HUGE)
    assert answers.select("n", "m").row(0) == pytest.approx((3, 1), abs=0.01)


@pytest.mark.parametrize("name", ["i", "v", "x", "_i", "I"])
@pytest.mark.parametrize("filled", ["", "NOT NULL"])
def test_a_column_of_any_name_lies_on_its_line(name, filled):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t ({name} INTEGER {filled})").fetchall()
    con.execute("INSERT INTO t SELECT range FROM range(100)").fetchall()
    data = dpsql.Session(con, schema={"t": {}}, budget=dpsql.Budget(rho=10**13))
    sql = f"SELECT COUNT(*) AS n FROM t WHERE {name} > 7 AND {name} <= 50"
    assert data.query(sql, budget=dpsql.Budget(rho=10**12))["n"][0] == pytest.approx(43, abs=1e-3)
