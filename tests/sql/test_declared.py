"""Bounds of expressions that the owner declares: found by what they mean, and clamped to."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql import Domain, Schema
from dpsql.errors import SchemaError

PRECISE = dpsql.Budget(rho=10**12)
BUDGET = dpsql.Budget(rho=1)
PRODUCT = "price * (1 - discount)"
COLUMNS = {"discount": Domain.number(0, 1)}


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE sales (
            k BOOLEAN NOT NULL, price DOUBLE CHECK (price BETWEEN 0 AND 200000),
            discount DECIMAL(4,2), tax DECIMAL(4,2) CHECK (tax BETWEEN 0 AND 0.1),
            note VARCHAR, "group by ""x"" -- '" DOUBLE, nothing DOUBLE
        );
        INSERT INTO sales SELECT i % 2 = 0, i * 150, (i % 7) / 20, 0.05, 'a', i, NULL
        FROM range(1000) t(i);
    """).fetchall()
    return con


def schema(**expressions) -> Schema:
    return Schema({"sales": COLUMNS}, expressions={"sales": expressions} if expressions else None)


def error_of(con, expression: str, declared: Schema | None = None) -> float:
    """Return the expected standard error of a sum."""
    sql = f"SELECT k, SUM({expression}) AS v FROM sales s GROUP BY k"
    plan = dpsql.plan(con, sql, budget=BUDGET, schema=declared or schema(**{PRODUCT: (0, 50_000)}))
    return plan.expected_error()["rmse"][0]


@pytest.mark.parametrize(
    "expression",
    [
        PRODUCT,
        "(1-discount)*price",
        's."PRICE" * (1 - s.Discount)',
        "CASE WHEN k THEN price * (1 - discount) ELSE 0 END",
        "CASE WHEN note LIKE 'a%' THEN price * (1 - discount) END",
    ],
)
def test_an_expression_is_known_by_what_it_means(con, expression):
    assert error_of(con, expression) < 0.3 * error_of(con, expression, schema())


@pytest.mark.parametrize(
    "expression", ["price", "price * (2 - discount)", "price - price * discount"]
)
def test_others_keep_the_bounds_that_follow_from_their_columns(con, expression):
    assert error_of(con, expression) == error_of(con, expression, schema())


def test_parts_and_wholes_take_part_in_interval_arithmetic(con):
    whole = "price * (1 - discount) * (1 + tax)"
    assert error_of(con, whole) == pytest.approx(1.1 * error_of(con, PRODUCT), rel=0.01)
    narrow = schema(**{PRODUCT: (0, 50_000), whole: ("0", 1000)})
    assert error_of(con, whole, narrow) == pytest.approx(error_of(con, PRODUCT) / 50, rel=0.05)
    wide = schema(**{PRODUCT: (-(10**6), 10**6)})  # says less than the columns do
    assert error_of(con, PRODUCT, wide) == error_of(con, PRODUCT, schema())


def test_values_beyond_count_as_the_nearer_bound(con):
    sql = f"SELECT k, SUM({PRODUCT}) AS v, AVG({PRODUCT}) AS a FROM sales GROUP BY k ORDER BY k"
    declared = schema(**{PRODUCT: (1_000, 50_000)})
    found = dpsql.query(con, sql, budget=PRECISE, schema=declared)
    clamped = sql.replace(PRODUCT, f"least(greatest({PRODUCT}, 1000), 50000)")
    for row, exact in zip(
        found[["k", "v", "a"]].rows(), con.execute(clamped).fetchall(), strict=True
    ):
        assert row == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("random() * price", "RANDOM"),
        ("price * CURRENT_DATE", "CURRENT_DATE"),
        ("upper(note)", "needs a number"),
        ("regexp_matches(note, '[')::INTEGER", "missing ]"),
        ("hash(price)", "HASH"),
        ("price * 1", "No value lies between its bounds"),
        ("getvariable('x') + price", "GETVARIABLE"),
        ("price + ?", "parameter"),
    ],
)
def test_what_can_not_run_on_rows_is_refused_before_anything_is_planned(con, text, says):
    with pytest.raises(SchemaError) as error:
        error_of(con, "tax", schema(**{text: (-5, -1)}))
    assert error.value.message.startswith(f"The schema bounds {text} in sales: ")
    assert says in error.value.message
    assert error.value.hint


def test_the_same_expression_twice_is_refused(con):
    with pytest.raises(SchemaError, match="declared twice"):
        error_of(con, "tax", schema(**{PRODUCT: (0, 1), "(1 - DISCOUNT) * price": (0, 2)}))


def test_columns_of_odd_names_can_be_bounded_and_added_up(con):
    name = '"group by ""x"" -- \'"'
    declared = Schema(
        {"sales": {'group by "x" -- \'': Domain.number(0, 1000)}},
        expressions={"sales": {f"{name} / 2": (0, 400)}},
    )
    sql = f"SELECT SUM({name}) AS v, SUM({name} / 2) AS h FROM sales"
    found = dpsql.query(con, sql, budget=PRECISE, schema=declared, accept_schema=True)
    assert found["v"][0] == pytest.approx(sum(range(1000)), rel=1e-6)
    assert found["h"][0] == pytest.approx(sum(min(i / 2, 400) for i in range(1000)), rel=1e-6)


def test_a_column_that_is_null_everywhere_adds_nothing(con):
    declared = Schema({"sales": {"nothing": Domain.number(5, 10)}})
    sql = "SELECT SUM(nothing) AS v, AVG(nothing) AS a, COUNT(nothing) AS n FROM sales"
    release = dpsql.Session(con, schema=declared, accept_schema=True).release(sql, budget=PRECISE)
    assert release["query"]["v"][0] == pytest.approx(0, abs=0.01)
    assert release["query"]["n"][0] == pytest.approx(0, abs=0.01)


def test_a_release_that_was_saved_knows_them(con, tmp_path):
    declared = schema(**{PRODUCT: (0, 50_000)})
    sql = f"SELECT k, SUM({PRODUCT}) AS v FROM sales GROUP BY k"
    session = dpsql.Session(con, schema=declared, accept_schema=True)
    release = session.release({"sums": sql}, budget=BUDGET)
    release.save(tmp_path / "out")
    again = dpsql.Release.load(tmp_path / "out")
    assert again.query(sql)["v"].to_list() == release["sums"]["v"].to_list()


def test_a_release_that_was_saved_knows_which_columns_are_never_null(tmp_path):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x DOUBLE NOT NULL CHECK (x BETWEEN 0 AND 9), s VARCHAR NOT NULL)")
    con.execute("INSERT INTO t SELECT i % 9, 'a' FROM range(100) r(i)").fetchall()
    sql = "SELECT AVG(x) AS a, COUNT(s) AS n FROM t"
    release = dpsql.Session(con).release({"both": sql}, budget=BUDGET)
    release.save(tmp_path / "out")
    again = dpsql.Release.load(tmp_path / "out").query(sql)
    assert again["a"].to_list() == release["both"]["a"].to_list()
    assert again["n"].to_list() == release["both"]["n"].to_list()


@pytest.mark.parametrize("low", [-5, 0, 5])
def test_nan_adds_nothing_and_infinity_as_much_as_the_bounds(low):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x DOUBLE, y INTEGER)").fetchall()
    con.execute("INSERT INTO t VALUES ('nan', 1), (NULL, 1), ('inf', 1), ('-inf', 1), (7, 1)")
    declared = Schema({"t": {"x": Domain.number(low, 10), "y": Domain.integers(0, 1)}})
    sql = "SELECT SUM(x) AS s, AVG(x) AS a, SUM(CASE WHEN y = 1 THEN x END) AS c FROM t"
    found = dpsql.query(con, sql, budget=PRECISE, schema=declared)[["s", "a", "c"]].row(0)
    total = low + 10 + 7
    assert found == pytest.approx((total, total / 3, total), abs=1e-3)
