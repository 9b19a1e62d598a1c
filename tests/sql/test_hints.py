"""Hints: what they say for what newcomers try, and that they work when typed."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import SqlError, SqlSchemaError
from dpsql.sql.text.script import split_script

BUDGET = dpsql.Budget(rho=1)


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE lfs (sex ENUM('F', 'M') NOT NULL, age INTEGER CHECK (age BETWEEN 0 AND 99),"
        ' "Household Size" INTEGER CHECK ("Household Size" IS NULL OR "Household Size" <= 9 AND'
        ' "Household Size" > 0), interview DATE, "Body Weight" INTEGER, code VARCHAR CHECK'
        " (code IN ('a', 'b') OR code IS NULL), income DOUBLE, person INTEGER, note VARCHAR)"
    ).fetchall()
    con.execute("CREATE TABLE regions (code VARCHAR, region VARCHAR)").fetchall()
    con.execute("INSERT INTO regions VALUES ('a', 'north'), ('b', 'south')").fetchall()
    return con


def refusal(con, sql) -> dpsql.DpsqlError:
    with pytest.raises(dpsql.DpsqlError) as error:
        dpsql.plan(con, sql, budget=BUDGET)
    return error.value


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT MIN(age, 3) FROM lfs", "aggregate MIN ", "take one value, MIN(age) or MAX(age)"),
        ("SELECT MODE(code) FROM lfs", "aggregate MODE ", "SELECT code, COUNT(*)"),
        ("SELECT STRING_AGG(code, ',') FROM lfs", "STRING_AGG", "SELECT code, COUNT(*)"),
        (
            'SELECT ARG_MAX("Household Size", age) FROM lfs',
            "ARG_MAX",
            'SELECT "Household Size", COUNT(*) … GROUP BY "Household Size"',
        ),
        ("SELECT * FROM lfs LIMIT 5", "single rows", "COUNT(*)"),
        ("SELECT sex, age FROM lfs", "grouped", "GROUP BY sex, age"),
        ("SELECT sex, COUNT(*) FROM lfs", "grouped", "GROUP BY sex"),
        ("SELECT sex, COUNT(*) FROM lfs WHERE COUNT(*) > 3 GROUP BY sex", "", "HAVING"),
        ("SELECT SUM(COUNT(*)) FROM lfs GROUP BY sex", "", "SELECT SUM(n) AS m FROM (SELECT sex"),
        ("SELECT AVG(income) FROM lfs", "income", "dpsql.Domain.number(0, 200000)"),
        ("SELECT income, COUNT(*) FROM lfs GROUP BY 1", "income", "dpsql.Domain.decimals"),
        ("SELECT interview, COUNT(*) FROM lfs GROUP BY interview", "", "dpsql.Domain.dates"),
        ("SELECT COUNT(*) FROM lfs WHERE interview > CURRENT_DATE", "CURRENT_DATE", "its value"),
        ("SELECT region, COUNT(*) FROM lfs JOIN regions USING (code) GROUP BY 1", "", "public="),
        ("SELECT COUNT(*) FROM lfs JOIN regoins USING (code)", "no table regoins", "regions"),
        (
            "SELECT COUNT(*) FROM lfs a JOIN lfs b USING (age)",
            "counted many times",
            "of another row",
        ),
        ("SELECT COUNT(*) FROM lfs WHERE age IN (SELECT age FROM lfs)", "", "HAVING"),
        ('SELECT COUNT(*) FROM lfs WHERE sex = "F"', "no column F", "'F'"),
        ("SELECT COUNT(*) FROM lfs WHERE sex = M", "no column M", "'M'"),
        ("SELECT COUNT(*) FROM lfs WHERE sex = 'f'", "not a value of sex", "'F'"),
        ("SELECT COUNT(*) FROM lfs WHERE [sex] = 'F'", "brackets", "write sex in place of [sex]"),
        ("SELECT COUNT(*) FROM lfs WHERE household_size > 2", "", '"Household Size"'),
        ('SELECT "body weight", COUNT(*) FROM lfs GROUP BY 1', "", 'CHECK ("Body Weight" BETWEEN'),
        ("SELECT COUNT(*) FROM lfs WHERE age = ?", "parameter", "the value itself"),
        ("SELECT AVG(age) AS a, SUM(age) AS a FROM lfs", "Two columns", "for example a_2"),
        ("SELECT MEDIAN(sex) FROM lfs", "", "QUANTILE_DISC"),
        ("SELECT COUNT(*) FROM lfs TABLESAMPLE 10%", "Sampling", "noise already protects"),
    ],
)
def test_hints_for_what_newcomers_try(con, sql, message, hint):
    error = refusal(con, sql)
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT QUANTILE_DISC(age, 0.01), QUANTILE_DISC(age, 0.99) FROM lfs",
        "SELECT age, COUNT(*) FROM lfs GROUP BY age",
        "SELECT AVG(n) FROM (SELECT sex, COUNT(*) AS n FROM lfs GROUP BY sex)",
        "SELECT age // 10, COUNT(*) FROM lfs GROUP BY age // 10",
        "SELECT CASE WHEN age < 25 THEN 1 END AS g, COUNT(*) FROM lfs GROUP BY g",
        "SELECT sex, COUNT(*) AS n FROM lfs GROUP BY sex HAVING n > 3 ORDER BY n LIMIT 10",
        "SELECT 100.0 * COUNT_IF(age > 17) / COUNT(*) AS adults FROM lfs",
        "SELECT AVG(age * age) - AVG(age) * AVG(age) AS c FROM lfs",
        "SELECT a.n / b.n AS r FROM (SELECT sex, COUNT(*) AS n FROM lfs GROUP BY sex) a "
        "JOIN (SELECT sex, COUNT(*) AS n FROM lfs GROUP BY sex) b USING (sex)",
        "SELECT region, COUNT(*) FROM lfs JOIN regions USING (code) GROUP BY region",
        "SELECT i, COUNT(*) FROM lfs JOIN generate_series(1, 9) g(i) ON age > i GROUP BY i",
        "SELECT code, COUNT(*) FROM lfs GROUP BY code "
        "QUALIFY row_number() OVER (ORDER BY COUNT(*)) <= 10",
        "SELECT /*+ weight(5) */ COUNT(*) FROM lfs",
        "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM lfs GROUP BY age",
        "SELECT sex, age, COUNT(*) FROM lfs GROUP BY ROLLUP (sex, age)",
    ],
)
def test_what_hints_say_can_be_typed(con, sql):
    session = dpsql.Session(con, public=["regions"])
    assert session.plan(sql, budget=BUDGET).workload.count > 0


def test_a_check_may_allow_null_in_words(con):
    for column, cells in (("Household Size", 10), ("code", 3)):
        sql = f'SELECT "{column}", COUNT(*) AS n FROM lfs GROUP BY "{column}"'
        assert dpsql.plan(con, sql, budget=BUDGET).workload.count == cells


def test_the_hint_for_a_view_works_when_typed():
    con = duckdb.connect()
    con.execute("CREATE VIEW people AS SELECT 'F' AS sex, 30 AS \"Full Age\"").fetchall()
    error = refusal(con, "SELECT sex, COUNT(*) FROM people GROUP BY sex")
    assert 'domains of its columns sex, "Full Age":' in error.hint
    con.execute(error.hint[error.hint.index("CREATE TABLE") :]).fetchall()
    schema = {"people_stored": {"sex": dpsql.Domain.labels(["F", "M"])}}
    sql = "SELECT sex, COUNT(*) FROM people_stored GROUP BY sex"
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema).workload.count >= 2


def test_the_hint_for_a_table_of_another_schema_works_when_typed():
    con = duckdb.connect()
    con.execute("CREATE SCHEMA stage; CREATE TABLE stage.people (big BOOLEAN)").fetchall()
    error = refusal(con, "SELECT big, COUNT(*) FROM people GROUP BY big")
    assert error.hint == "write stage.people."
    sql = "SELECT big, COUNT(*) FROM stage.people GROUP BY big"
    assert dpsql.plan(con, sql, budget=BUDGET).workload.count == 3


def test_the_hint_for_times_with_a_zone_works_when_typed():
    con = duckdb.connect()
    con.execute("CREATE TABLE people (seen TIMESTAMPTZ)").fetchall()
    days = dpsql.Domain.dates("2026-01-01", "2026-01-31")
    sql = "SELECT seen, COUNT(*) FROM people GROUP BY seen"
    hint = refusal(con, sql).hint
    schema = eval(hint[hint.index("dpsql.Schema") : -1])  # noqa: S307
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema).workload.count >= 365
    with pytest.raises(dpsql.SchemaError, match="TIME ZONE") as error:
        dpsql.plan(con, sql, budget=BUDGET, schema={"people": {"seen": days}})
    assert 'zone="Europe/Berlin"' in error.value.hint
    days = dpsql.Domain.dates("2026-01-01", "2026-01-31", zone="Europe/Berlin")
    plan = dpsql.plan(con, sql, budget=BUDGET, schema={"people": {"seen": days}})
    assert plan.workload.count >= 31


def test_the_hint_for_no_table_says_how_to_make_one():
    error = refusal(duckdb.connect(), "SELECT COUNT(*) FROM people")
    assert "CREATE TABLE … AS FROM" in error.hint


def test_a_series_of_a_public_table_gives_labels():
    faa = pl.Series("faa", ["ATL", "BOS"])
    assert dpsql.Domain.labels(faa) == dpsql.Domain.labels(["ATL", "BOS"])
    assert dpsql.Domain.labels(faa.to_pandas(), nullable=True).size == 3
    with pytest.raises(dpsql.SchemaError, match="another type"):
        dpsql.Domain.labels(pl.Series([1, 2]))


@pytest.mark.parametrize("item", [
    "MAX(floor(age / 10) * 10)", "QUANTILE_CONT(floor(age / 10) * 10, 0.25)",
    "MIN(extract(year FROM DATE '2020-01-01') * 2 + age)", "MEDIAN((age + 1) * 2)",
    "SUM(ceil((age + 1) / 7) * 2)", "MAX(length(trim(substring(code, 1, 1)) || 'x') * 2)",
])  # fmt: skip
def test_a_column_without_a_name_is_called_as_it_is_written(con, item):
    frame = dpsql.query(con, f"SELECT {item} FROM lfs", budget=BUDGET)
    assert frame.columns[0] == item


def test_an_error_in_a_script_names_the_statement(con):
    broken = "SELECT sex, COUNT(*)\nFROM lfs\nWHERE x > 3 GROUP BY sex"
    script = f"SELECT COUNT(*) FROM lfs;\n-- name: second\n{broken}"
    error = refusal(con, dict(split_script(script)))
    assert error.statement == "second"
    assert "second, line 3: WHERE x > 3" in str(error)


@pytest.mark.parametrize("statements", [5, None, {"a": 5}, [5]])
def test_statements_of_the_wrong_type(con, statements):
    with pytest.raises(dpsql.SqlError) as error:
        dpsql.Session(con).release(statements, budget=BUDGET)
    assert error.value.hint


def test_wrong_schemas_are_refused_at_once(con):
    with pytest.raises(dpsql.SchemaError):
        dpsql.Session(con, schema=5)
    with pytest.raises(dpsql.SchemaError, match="order") as error:
        dpsql.Domain.labels({"b", "a"})
    assert "sorted" in error.value.hint


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT AVG(income) FROM lfs", "income"),
        ("SELECT sex, SUM(income / (1 + person)) FROM lfs GROUP BY sex", "income and person"),
        ('SELECT SUM("Body Weight" * age) FROM lfs', '"Body Weight"'),
        (
            'SELECT SUM("Body Weight" * person * income) FROM lfs',
            '"Body Weight", income and person',
        ),
    ],
)
def test_the_bounds_that_a_hint_proposes_can_be_typed(con, sql, names):
    error = refusal(con, sql)
    assert isinstance(error, SqlSchemaError)
    assert f" {names} ha" in error.message
    found, _, declared = error.hint.partition("; or pass schema=")
    schema = eval(declared.removesuffix("."), {"dpsql": dpsql})  # noqa: S307
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema).workload.count > 0
    assert found == "pass bounds=dpsql.Bounds(), and a fifth of the budget finds them"
    assert dpsql.plan(con, sql, budget=BUDGET, bounds=dpsql.Bounds()).workload.count > 0


ROWS = """
    (SELECT sex, note AS s, note, income, person, try_cast(note AS TINYINT) AS noted FROM lfs) AS c
"""


@pytest.mark.parametrize(
    "text",
    [
        "date_diff('day', interview, DATE '2026-01-01')",
        "income / person",
        'lfs."person" * income',
        "TRY_CAST(note AS INTEGER)",
        "CAST(lfs.note AS DECIMAL(9, 2)) + income",
        "noted",
        "CAST(c.s AS DOUBLE) * c.noted",
    ],
)
def test_where_bounds_of_columns_are_not_enough_those_of_the_expression_are_proposed(con, text):
    """Also where it is of columns that a statement calls otherwise."""
    columns = {"income": dpsql.Domain.number(-5, 9), "person": dpsql.Domain.number(0, 9)}
    if text.startswith("lfs"):
        text, columns = f"1 / ({text})", columns
    rows = "lfs" if "lfs" in text or "interview" in text else ROWS
    sql = f"SELECT sex, AVG({text}) FROM {rows} GROUP BY sex"
    schema = dpsql.Schema({"lfs": columns})
    with pytest.raises(dpsql.DpsqlError) as raised:
        dpsql.plan(con, sql, budget=BUDGET, schema=schema)
    error = raised.value
    assert "no public bounds follow" in error.message
    finding, _, written = error.hint.partition("; or write them: ")
    assert finding == "pass bounds=dpsql.Bounds(), and a fifth of the budget finds them"
    bounds = dpsql.Bounds()
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema, bounds=bounds).workload.count > 0
    written, _, declared = written.partition("; or declare them: ")
    limited = written.partition(", where NULL")[0]
    proposed = sql.replace(f"({text})", f"({limited})")
    assert dpsql.plan(con, proposed, budget=BUDGET, schema=schema).workload.count > 0
    code = declared.removeprefix("pass schema=").removesuffix(".")
    found = eval(code, {"dpsql": dpsql})  # noqa: S307
    schema = dpsql.Schema({"lfs": columns}, expressions=found.expressions)
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema).workload.count > 0


def test_numbers_that_are_stored_as_texts_have_bounds_as_an_expression(con):
    sql = "SELECT SUM(TRY_CAST(note AS DOUBLE)) AS s FROM lfs"
    schema = dpsql.Schema({"lfs": {"note": dpsql.Domain.number()}})
    with pytest.raises(dpsql.SchemaError) as raised:
        dpsql.plan(con, sql, budget=BUDGET, schema=schema)
    _, _, given = raised.value.hint.partition("expressions: ")
    schema = dpsql.Schema({}, expressions={"lfs": eval(given.removesuffix("."))})  # noqa: S307
    assert dpsql.plan(con, sql, budget=BUDGET, schema=schema).workload.count > 0


def test_by_the_column_of_units_they_are_counted(con):
    unit = dpsql.Unit("person", max_rows=3)
    with pytest.raises(dpsql.DpsqlError) as error:
        dpsql.plan(
            con, "SELECT person, COUNT(*) FROM lfs GROUP BY person", budget=BUDGET, unit=unit
        )
    assert "COUNT(DISTINCT person)" in error.value.hint
    typed = error.value.hint.partition("count them by their number of rows: ")[2].rstrip(".")
    for sql in (typed, "SELECT COUNT(DISTINCT person) FROM lfs"):
        assert dpsql.plan(con, sql, budget=BUDGET, unit=unit).rmse > 0


def test_a_column_that_is_never_null_is_null_where_no_row_is_met():
    """COUNT of it passes over rows that LEFT JOIN keeps, as it does in DuckDB."""
    con = duckdb.connect()
    con.execute("CREATE TABLE reps AS SELECT i AS rep, 'r' || i AS name FROM range(3) t(i)")
    con.execute(
        "CREATE TABLE sales (id INTEGER NOT NULL, rep INTEGER NOT NULL CHECK (rep BETWEEN 0 AND 2))"
    )
    con.execute("INSERT INTO sales VALUES (1, 0), (2, 0), (3, 1)")
    sql = "SELECT name, COUNT(id) AS n FROM reps LEFT JOIN sales USING (rep) GROUP BY name"
    session = dpsql.Session(con, public=["reps"])
    frame = session.query(sql, budget=dpsql.Budget(rho=10**12)).sort("name")
    assert [round(n) for n in frame["n"]] == [2, 1, 0]


def test_groups_of_a_unit_that_nobody_can_list_are_counted():
    con = duckdb.connect()
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)").fetchall()
    con.execute("CREATE TABLE stay (stay INTEGER PRIMARY KEY, id INTEGER REFERENCES people(id))")
    con.execute(
        "CREATE TABLE ev (id INTEGER REFERENCES people(id), stay INTEGER REFERENCES stay(stay),"
        " seen TIMESTAMP)"
    )
    bounds = {"people": 1, "stay": 3, "ev": 9}
    session = dpsql.Session(con, unit=dpsql.Unit("people.id", bounds))
    groups = "SELECT stay, seen, COUNT(*) AS h FROM ev GROUP BY stay, seen"
    con.execute("INSERT INTO people FROM range(4)").fetchall()
    con.execute("INSERT INTO stay SELECT i, i // 2 FROM range(8) r(i)").fetchall()
    moments = "TIMESTAMP '2024-01-01' + INTERVAL (i % 3) HOURS"
    rows = f"SELECT i % 8 // 2, i % 8, {moments} FROM range(30) r(i)"
    con.execute(f"INSERT INTO ev {rows}").fetchall()
    statement = f"WITH a AS ({groups}) SELECT COUNT(stay) AS n FROM a"
    found = session.query(statement, budget=dpsql.Budget(rho=10**12))["n"][0]
    assert found == pytest.approx(con.execute(statement).fetchall()[0][0], abs=1e-3)


SHOP = """
    CREATE TABLE customers (id INTEGER PRIMARY KEY, region VARCHAR CHECK (region IN ('a', 'b')));
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL
        REFERENCES customers (id));
    CREATE TABLE items (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders (id),
        kind VARCHAR CHECK (kind IN ('x', 'y')));
    INSERT INTO customers VALUES (1, 'a'), (2, 'b');
    INSERT INTO orders VALUES (10, 1), (11, 1), (12, 2);
    INSERT INTO items VALUES (100, 10, 'x'), (101, 10, 'x'), (102, 11, 'y'), (103, 12, 'x');
"""


def hint_in_shop(sql):
    con = duckdb.connect()
    con.execute(SHOP).fetchall()
    session = dpsql.Session(con, unit=dpsql.Unit("customers", max_rows={"orders": 3, "items": 9}))
    with pytest.raises(SqlError) as error:
        session.query(sql, budget=dpsql.Budget(rho=1e12))
    return session, error.value.hint


def test_ids_of_rows_are_counted_as_other_values_are():
    con = duckdb.connect()
    con.execute(SHOP).fetchall()
    session = dpsql.Session(con, unit=dpsql.Unit("customers", max_rows={"orders": 3, "items": 9}))
    for sql in (
        "SELECT COUNT(DISTINCT id) AS n FROM orders",
        "SELECT kind, COUNT(DISTINCT order_id) AS n FROM items GROUP BY kind",
    ):
        assert any("lower bound" in note for note in session.plan(sql, budget=BUDGET).notes)
