"""Sums and counts of rows that no cells tell apart: statistics over measures."""

from __future__ import annotations

import duckdb
import pytest

from dpsql import Budget, Domain, Schema, Session, plan
from dpsql.errors import (
    ResourceLimitError,
    SchemaError,
    SqlError,
    SqlSchemaError,
    UnsupportedSqlError,
)

HUGE = Budget(rho=1e14)
BUDGET = Budget(rho=0.5)
SCHEMA = Schema(
    {
        "t": {
            "k": Domain.integers(0, 2),
            "price": Domain.number(0, 1000),
            "x": Domain.number(0, 10),
        }
    }
)
_ROWS = """
    SELECT (i % 3)::INTEGER AS k, (((i * 7919) % 100000) / 100)::DECIMAL(9, 2) AS price,
        CASE WHEN i % 11 > 0 THEN ((i * 104729) % 9973) / 997.3 END AS x,
        ['red', 'green', NULL][1 + i % 3] AS color
    FROM range(3000) s(i)
"""


_REGRESSIONS = "SLOPE", "INTERCEPT", "R2", "COUNT", "AVGX", "AVGY", "SXX", "SYY", "SXY"


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS {_ROWS}")
    yield con
    con.close()


def answer(con, sql, budget=HUGE):
    return Session(con, schema=SCHEMA).query(sql, budget=budget)


@pytest.mark.parametrize(
    ("statistic", "said"),
    [
        ("SUM(x * 1e160)", "too large"),
        ("AVG(price * 1e300)", "too large"),
        ("VAR_POP(x * 1e120)", "too large"),
        ("SUM(x * 1e-160)", "too small"),
        ("AVG(x * 1e-200)", "too small"),
        ("STDDEV(x * 1e-120)", "too small"),
    ],
)
def test_what_floats_cannot_hold_once_it_is_squared_is_refused(con, statistic, said):
    with pytest.raises(UnsupportedSqlError, match=said) as found:
        plan(con, f"SELECT {statistic} AS v FROM t", budget=BUDGET, schema=SCHEMA)
    assert found.value.span is not None


@pytest.mark.parametrize("scale", ["1e25", "1e-25"])
def test_sums_in_any_unit_share_the_budget_with_counts_as_in_another(con, scale):
    """One count and one sum: each has less than twice the variance it had alone, as they share."""
    sql = "SELECT COUNT(*) AS n, SUM(x * {}) AS v FROM t"
    found, same = (answer(con, sql.format(s), BUDGET).row(0, named=True) for s in (scale, "1"))
    assert found["n_variance"] == pytest.approx(same["n_variance"], rel=1e-3)
    assert same["n_variance"] < 1.75
    assert found["v_variance"] == pytest.approx(same["v_variance"] * float(scale) ** 2, rel=1e-3)
    assert same["v_variance"] < 1.75 * 10**2


def test_counts_under_a_condition_and_sums_around_a_middle_are_measured_apart(con):
    """Both add up the constant 1 where a color is there; the second is taken off before."""
    found = answer(con, "SELECT COUNT(color) AS n, AVG(1 + 0 * x) AS one FROM t WHERE color > 'a'")
    assert found["n"][0] == pytest.approx(2000, abs=1e-3)
    assert found["one"][0] == pytest.approx(1, abs=1e-5)


def test_an_average_of_constants_beside_a_count_of_them(con):
    sql = "SELECT COUNT(*) AS n, AVG(1) AS one FROM t WHERE color = 'red'"
    assert answer(con, sql).row(0)[::2] == pytest.approx((1000, 1), abs=1e-3)


@pytest.mark.parametrize(
    "counted", ["COUNT(*) AS n FROM t WHERE {}", "COUNT(*) FILTER (WHERE {}) AS n FROM t"]
)
@pytest.mark.parametrize("wrong", ["color = 5", "lower(color) > 7"])
def test_a_condition_of_the_wrong_types_is_shown_where_it_stands(con, counted, wrong):
    sql = f"SELECT {counted.format(wrong)}"
    with pytest.raises(UnsupportedSqlError, match="one type on rows") as found:
        plan(con, sql, budget=BUDGET, schema=SCHEMA)
    assert sql[found.value.span.start : found.value.span.end] == wrong


@pytest.mark.parametrize("pattern", ["[", "a{2,1}", "(?P<"])
def test_a_pattern_that_is_none_is_refused_before_the_charge(con, pattern):
    sql = f"SELECT COUNT(*) AS n FROM t WHERE regexp_matches(color, '{pattern}')"
    with pytest.raises(SqlError) as found:
        plan(con, sql, budget=BUDGET, schema=SCHEMA)
    assert found.value.span is not None


def test_a_column_named_like_a_measure_is_refused(con):
    name = next(iter(_measures(con, "SELECT SUM(price) AS v FROM t")))
    other = duckdb.connect()
    quoted = '"' + name.replace('"', '""') + '"'
    other.execute(f"CREATE TABLE t AS SELECT 1 AS {quoted}, 2.50::DECIMAL(9, 2) AS price")
    schema = Schema({"t": {name: Domain.integers(0, 3), "price": Domain.number(0, 1000)}})
    sql = f"SELECT {quoted}, SUM(price) AS v FROM t GROUP BY 1"
    with pytest.raises(UnsupportedSqlError, match="that dpsql uses itself"):
        plan(other, sql, budget=BUDGET, schema=schema)


def _measures(con, sql):
    found = plan(con, sql, budget=BUDGET, schema=SCHEMA)
    return [f.measure.attributes[0] for f in found.workload.families if f.measure is not None]


PAIRS = ("CORR", "COVAR_POP", "COVAR_SAMP", *(f"REGR_{name}" for name in _REGRESSIONS))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("pair", "rest"),
    [
        ("price, x", ""),
        ("x, price - 50 * x", "FILTER (WHERE color = 'red' OR x > 5)"),
        ("k, x", ""),
        ("x, k", "FILTER (WHERE price < 800)"),
        ("CASE WHEN color IS NOT NULL THEN price END, k", ""),
    ],
)
def test_statistics_of_two_expressions_are_those_of_duckdb(con, pair, rest):
    """Over the rows in which both are present; of a column with cells, and one without, too."""
    columns = ", ".join(f"{name}({pair}) {rest} AS {name}" for name in PAIRS)
    key = "" if "k" in pair else "k, "
    sql = f"SELECT {key}{columns} FROM t" + (" GROUP BY k ORDER BY k" if key else "")
    exact = con.execute(sql)
    names, rows = [name for name, *_ in exact.description], exact.fetchall()
    found = answer(con, sql).select(names).rows()
    for ours, theirs in zip(found, rows, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_a_correlation_below_the_noise_is_null_or_has_no_variance(con):
    found = answer(con, "SELECT CORR(x, price) AS c FROM t WHERE price < 0", Budget(rho=1e-3))
    assert found["c"].dtype.is_float()
    assert found["c_variance"].null_count() == 1


@pytest.mark.parametrize("options", [{"nonnegative": True}, {"integers": True}])
def test_adjusted_columns_are_refused_beside_sums_of_rows(con, options):
    session = Session(con, schema=SCHEMA)
    before = session.ledger.spent
    sql = "SELECT k, COUNT(*) AS n, SUM(price) AS v FROM t GROUP BY k"
    with pytest.raises(UnsupportedSqlError, match="table of counts") as found:
        session.release({"sales": sql}, budget=BUDGET, **options)
    assert found.value.statement == "sales"
    assert session.ledger.spent == before


def test_adjusted_counts_rest_on_what_counts_of_releases_with_sums(con):
    # Many rows are outside the domain: were there none, their noisy count could be negative.
    schema = Schema({"t": {**SCHEMA["t"], "k": Domain.integers(0, 1)}})
    session = Session(con, schema=schema, accept_schema=True)
    both = "SELECT k, COUNT(*) AS n, SUM(price) AS v FROM t GROUP BY k"
    session.release({"sales": both}, budget=BUDGET)
    counts = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    found = session.release({"counts": counts}, budget=0, nonnegative=True)["counts"]
    assert found["n_adjusted"].to_list() == pytest.approx(found["n"].to_list(), abs=20)


def test_rows_without_a_value_are_not_among_those_that_are_no_nan(con):
    """NOT isnan(NULL) is not true."""
    found = answer(con, "SELECT COUNT(*) AS n, AVG(x) AS v FROM t WHERE NOT isnan(x)").row(0)
    exact = con.execute("SELECT count(*), avg(x) FROM t WHERE NOT isnan(x)").fetchone()
    assert exact[0] < 3000
    assert found[::2] == pytest.approx(exact, rel=1e-6)


def test_what_passes_the_digits_of_its_type_is_added_up_and_counted():
    """DuckDB computes p * p * p with 18 digits, of which six are after the point, and stops."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT (50000 + 10 * i)::DECIMAL(9, 2) AS p FROM range(1000) r(i)"
    )
    con.execute("INSERT INTO t SELECT NULL FROM range(500)")
    with pytest.raises(duckdb.Error):
        con.execute("SELECT sum(p * p * p) FROM t").fetchall()
    schema = Schema({"t": {"p": Domain.number(0, 100_000)}})
    sql = "SELECT AVG(p * p * p) AS mean, COUNT(p * p * p) AS n, SUM(p * p * p) AS v FROM t"
    found = Session(con, schema=schema).query(sql, budget=HUGE).row(0)[::2]
    exact = con.execute("SELECT avg(x), count(x), sum(x) FROM (SELECT p::DOUBLE ** 3 AS x FROM t)")
    assert found == pytest.approx(exact.fetchone(), rel=1e-6)


def test_bounds_are_refused_for_a_type_that_expressions_cannot_read():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 7::UHUGEINT AS u")
    with pytest.raises(SchemaError, match="has the type UHUGEINT"):
        Session(con, schema=Schema({"t": {"u": Domain.number(0, 10)}})).plan(
            "SELECT SUM(u) AS v FROM t", budget=BUDGET
        )


@pytest.mark.parametrize("mechanism", ["querysmasher", "hdmm", "laplace"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(x) AS v, COUNT(*) AS n, SUM(x * x) AS s FROM t WHERE NULL",
        "SELECT SUM(x) FILTER (WHERE false) AS v, COUNT(*) AS n FROM t",
        "SELECT 0 * SUM(x) AS v, SUM(x * x) AS w FROM t",
    ],
)
def test_sums_that_are_known_to_be_nothing_leave_the_budget_to_others(con, sql, mechanism):
    budget = Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    found = Session(con, schema=SCHEMA).query(sql, budget=budget, mechanism=mechanism)
    assert found["v"][0] == 0
    assert found["v_variance"][0] == 0


FINE = Schema(
    {
        "sales": {
            "k": Domain.integers(0, 2),
            "cents": Domain.integers(0, 5_600_000),
            "price": Domain.decimals(0, 900, "0.01", nullable=True, outside="clamp"),
            "coarse": Domain.decimals(0, 90_000, 2),
            "weight": Domain.bins([0, 10.5, 20, 100], nullable=True),
            "discount": Domain.decimals(0, "0.10", "0.01"),
        }
    }
)


@pytest.fixture(scope="module")
def sales():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE sales AS SELECT (i % 3)::INTEGER AS k,
            ((i * 99991) % 5600001)::BIGINT AS cents,
            CASE WHEN i % 5 > 0 THEN (((i * 31) % 90001) / 100)::DECIMAL(9, 2) END AS price,
            (2 * (i * 17 % 45001))::INTEGER AS coarse,
            CASE WHEN i % 7 > 0 THEN (i % 1000) / 10 END::DOUBLE AS weight,
            ((i % 11) / 100)::DECIMAL(4, 2) AS discount
        FROM range(4000) s(i)
    """)
    yield con
    con.close()


MEASURED = {
    "SELECT k, SUM(cents) AS s FROM sales GROUP BY k": 1,
    "SELECT SUM(price * (1 - discount)) AS s FROM sales WHERE discount > 0.02": 1,
    "SELECT AVG(cents * discount) AS m, COUNT(*) AS n FROM sales": 1,
    "SELECT k, AVG(weight) AS m, STDDEV(weight) AS s FROM sales GROUP BY k": 2,
    "SELECT CORR(cents, price) AS r FROM sales": 5,
    "SELECT VAR_POP(coarse) AS v, AVG(price) AS p FROM sales WHERE k > 0": 3,
}
"""Statements, and how many measures they add up that are not counts."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sql", MEASURED)
def test_columns_of_too_many_cells_are_added_up_row_by_row(sales, sql):
    found = plan(sales, sql, budget=BUDGET, schema=FINE)
    families = found.workload.families
    assert (
        len({f.measure.attributes for f in families if f.measure and f.measure.bound > 1})
        == (MEASURED[sql])
    )
    order = " ORDER BY k" if "GROUP BY" in sql else ""
    exact = sales.execute(sql + order).fetchall()
    ours = Session(sales, schema=FINE).query(sql, budget=HUGE)
    values = [name for name in ours.columns if not name.endswith("_variance")]
    for mine, theirs in zip(ours.select(values).rows(), exact, strict=True):
        assert mine == pytest.approx([float(v) for v in theirs], rel=1e-5)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(discount) AS m, SUM(k * discount) AS s FROM sales",
        "SELECT k, CORR(k, discount) AS r FROM sales GROUP BY k",
        "SELECT SUM(length(k::VARCHAR)) AS s FROM sales",
    ],
)
def test_few_cells_are_counted_as_ever(sales, sql):
    found = plan(sales, sql, budget=BUDGET, schema=FINE)
    assert all(family.measure is None for family in found.workload.families)


@pytest.mark.parametrize("top", [200_000, 200])
def test_values_between_those_of_a_grid_are_added_up_as_they_are(sales, top):
    """Many cells or few: the grid says which groups there are, and between what values lie."""
    grid = Domain.decimals(0, top, 5, outside="clamp")
    schema = Schema({"sales": {"coarse": grid}})
    found = Session(sales, schema=schema).query(
        "SELECT SUM(coarse) AS s, AVG(coarse) AS m FROM sales WHERE coarse > 7", budget=HUGE
    )
    inside = f"least(coarse, {top})"
    asked = f"SELECT SUM({inside}), AVG({inside}) FROM sales WHERE coarse > 7"
    assert found.select("s", "m").row(0) == pytest.approx(sales.execute(asked).fetchone(), rel=1e-6)


def test_conditions_need_no_cells_where_rows_of_many_groups_are_added_up_under_another(monkeypatch):
    """By 2,001 x 1,201 groups, four of them made 38 million cells of 2.4 million."""
    monkeypatch.setattr("dpsql.sql.lowering.derive.MOST_CELLS", 10)
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE hits AS SELECT i % 5 AS k, "
        "CASE WHEN i % 7 > 0 THEN i // 60 % 8 END AS region, "
        "['a', 'b', 'c', NULL][1 + i % 4] AS kind, i % 3 AS hash, i % 90 AS price "
        "FROM range(4000) s(i)"
    )
    known = {"k": Domain.integers(0, 4), "region": Domain.integers(1, 6)}
    labels = {"kind": Domain.labels(["a", "b", "z"], nullable=True)}
    schema = Schema({"hits": {**known, **labels, "price": Domain.number(0, 100)}})
    sql = (
        "SELECT k, COUNT(*) AS n, SUM(price) AS total, AVG(price) AS mean FROM hits "
        "WHERE hash = 1 AND {} GROUP BY k ORDER BY k"
    )
    for conditions, over in [
        ("region = 3 AND kind IN ('a', 'b')", {"k"}),
        ("region IN (2, 3, NULL)", {"k"}),
        ("region BETWEEN 2 AND 4 AND region % 2 = 0", {"k", "region"}),
        ("region = 3 AND (kind = 'a' OR kind = 'b')", {"k", "kind"}),
    ]:
        asked = sql.format(conditions)
        planned = plan(con, asked, budget=HUGE, schema=schema)
        axes = {name for f in planned.workload.families for name in f.attributes}
        assert {name for name in axes if not name.startswith("sum of ")} == over
        found = Session(con, schema=schema).query(asked, budget=HUGE)
        for row, exact in zip(found.rows(named=True), con.execute(asked).fetchall(), strict=True):
            assert [row[c] for c in ("k", "n", "total", "mean")] == pytest.approx(exact, abs=0.01)


def test_sums_by_many_groups_are_measured_in_wide_integers(monkeypatch):
    """Products of a row's bound with a strategy's entries had more than 31 bits: refused."""
    where = "dpsql.planner.strategies.rounding."
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE paid AS SELECT (i % 40)::INTEGER AS a, (i // 40)::INTEGER AS b, "
        "i * 10007 % 30000000 AS cents FROM range(1600) s(i)"
    )
    keys = {"a": Domain.integers(0, 39), "b": Domain.integers(0, 39)}
    schema = Schema({"paid": {**keys, "cents": Domain.number(0, 30_000_000)}})
    sql = "SELECT a, b, SUM(cents) AS cents FROM paid GROUP BY a, b ORDER BY a, b"
    monkeypatch.setattr(where + "WIDE_MEASUREMENTS", 10)
    found = Session(con, schema=schema).query(sql, budget=HUGE)
    expected = [cents for *_, cents in con.execute(sql).fetchall()]
    assert found["cents"].to_list() == pytest.approx(expected, abs=30)
    monkeypatch.setattr(where + "MOST_WIDE_MEASUREMENTS", 10)
    with pytest.raises(ResourceLimitError, match="coefficients too large"):
        plan(con, sql, budget=HUGE, schema=schema)


def test_a_plan_and_a_release_call_sums_as_people_do(con):
    sql = "SELECT k, SUM(price * (1 - x)) AS v, STDDEV(x) AS s FROM t WHERE price > 3 GROUP BY k"
    release = Session(con, schema=SCHEMA).release(sql, budget=BUDGET)
    explained = release.plan.explain()
    assert "k x (price cut at 3.01) x SUM(price * (1 - x))" in explained
    assert "SUM((x - 5) * (x - 5))" in explained
    assert "sum of" not in explained
    notes = release.facts.notes["query"]
    assert (
        "SUM(price * (1 - x)) is of values from -9000 to 1000, each rounded to a multiple of "
        "1.53e-05"
    ) in notes
    assert any(note.startswith("SUM(x) is of values from 0 to 10,") for note in notes)
    assert " ".join(release.summary().split()).count("each rounded to a multiple of") == 3


def test_booleans_are_zero_or_one():
    """Whatever the type to which they are cast could hold."""
    con = duckdb.connect()
    rows = "SELECT CASE WHEN i % 3 > 0 THEN i % 2 = 0 END AS f FROM range(99) r(i)"
    con.execute(f"CREATE TABLE t AS {rows}")
    sql = "SELECT SUM(f::INTEGER) AS v, AVG(f::BIGINT) AS m FROM t WHERE f OR NOT f"
    found = Session(con, schema=Schema({"t": {}})).query(sql, budget=HUGE)
    assert found["v"][0] == pytest.approx(33, abs=1e-3)
    assert found["m"][0] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("SUM(x)", 0),
        ("COUNT(x)", 0),
        ("SUM(x * d)", 0),
        ("COUNT_IF(x > 1)", 0),
        ("SUM(COALESCE(x, 1))", 300),
        ("AVG(x)", None),
        ("AVG(i) FILTER (WHERE i > 3)", None),
        ("STDDEV(d)", None),
        ("CORR(x, d)", None),
        ("REGR_SLOPE(x, i)", None),
    ],
)
def test_columns_of_sums_that_are_null_everywhere(statistic, expected):
    """Nothing tells before the charge; a sum of nothing is 0, a ratio of nothing is noise."""
    schema = Schema({"t": {"x": Domain.number(0, 10), "d": Domain.number(-5, 5)}})
    schema = Schema({"t": {**schema["t"], "i": Domain.number(0, 9)}})
    sql = f"SELECT k, {statistic} AS v FROM t GROUP BY k ORDER BY k"
    plans = []
    for value in ("NULL", "1"):
        with duckdb.connect() as con:
            con.execute("CREATE TABLE t (k INTEGER CHECK (k < 3 AND k >= 0), x DOUBLE, i INTEGER)")
            con.execute("ALTER TABLE t ADD COLUMN d DECIMAL(9, 2)")
            con.execute(
                f"INSERT INTO t SELECT i % 3, {value}, {value}, {value} FROM range(900) r(i)"
            )
            plans.append(plan(con, sql, budget=BUDGET, schema=schema).expected_error().rows())
            if value == "NULL":
                found = Session(con, schema=schema).query(sql, budget=HUGE)
    assert plans[0] == plans[1]
    assert found.columns == ["k", "v", "v_variance"]
    if expected is not None:
        assert found["v"].to_list()[:3] == pytest.approx([expected] * 3, abs=1e-3)


@pytest.mark.parametrize("sql", ["SUM(x::INT)", "AVG(x::TINYINT)", "SUM(CAST(x AS BIGINT) + 1)"])
def test_a_cast_bounds_nothing_that_has_no_bounds(sql):
    """The ends of its type would be bounds with enormous noise."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i::DOUBLE AS x FROM range(9) r(i)")
    with pytest.raises(SqlSchemaError, match="column x has no public bounds") as found:
        Session(con, schema=Schema({"t": {}})).query(f"SELECT {sql} AS v FROM t", budget=HUGE)
    assert "Domain.number" in found.value.hint
    known = Schema({"t": {"x": Domain.number(0, 100)}})
    Session(con, schema=known).query(f"SELECT {sql} AS v FROM t", budget=HUGE)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) AS v FROM t WHERE false", 0), ("SELECT COUNT(*) AS v FROM t", 9),
        ("SELECT SUM(2) AS v FROM t WHERE 1 = 1", 18), ("SELECT SUM(1) AS v FROM t WHERE 1 = 0", 0),
        ("SELECT COUNT(*) AS v FROM t, p", 45),
        ("SELECT COUNT(*) AS v FROM t WHERE EXISTS (SELECT * FROM p WHERE i > 9)", 0),
    ],
)  # fmt: skip
def test_a_table_without_domains_has_one_cell(sql, expected):
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i::DOUBLE AS x FROM range(9) r(i)")
    con.execute("CREATE TABLE p AS SELECT i FROM range(5) r(i)")
    session = Session(con, schema=Schema({"t": {}}), public=["p"])
    assert session.query(sql, budget=HUGE)["v"][0] == pytest.approx(expected, abs=1e-2)
