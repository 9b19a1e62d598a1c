"""Random predicates, over the whole domain, against DuckDB."""

import itertools

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.schema import Domain
from tests.sql import reference
from tests.sql.people import fill

DOMAINS = {
    "a": Domain("INTEGER", range(-3, 5), nullable=True),
    "b": Domain("INTEGER", (1, 2, 5)),
    "e": Domain("ENUM", ("small", "big", "medium"), nullable=True),
    "v": Domain("VARCHAR", ("x", "big", "Ä", "o'x"), nullable=True),
    "f": Domain("BOOLEAN", (False, True), nullable=True),
}

numbers = st.one_of(
    st.integers(-6, 6).map(str),
    st.sampled_from(["0.5", "1.25", "-2.75", "2.0", "5.", ".5", "NULL"]),
)
literals = st.one_of(
    st.integers(0, 6).map(str), st.sampled_from(["0.5", "1.25", "2.0", "12345678901234567890"])
)
arithmetic = st.recursive(
    st.one_of(st.sampled_from(["a", "b"]), literals),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(st.sampled_from(["2", "0.5", "-3"]), inner).map(lambda t: f"{t[0]} * {t[1]}"),
        inner.map(lambda t: f"ABS({t})"),
        inner.map(lambda t: f"-({t})"),
    ),
    max_leaves=4,
)
compare = st.sampled_from(
    ["=", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
)
order = st.sampled_from(["<", "<=", ">", ">="])
labels = {"e": ["'small'", "'big'", "'medium'"], "v": ["'x'", "'big'", "'Ä'", "'o''x'"]}
strings = st.sampled_from(["'big'", "'m'", "''", "'zz'", "'Z'", "'é'", "NULL"])


def listed(column, values):
    items = st.lists(values, min_size=1, max_size=4).map(", ".join)
    return st.tuples(st.sampled_from(["IN", "NOT IN"]), items).map(
        lambda t: f"{column} {t[0]} ({t[1]})"
    )


atoms = st.one_of(
    st.tuples(arithmetic, compare, arithmetic).map(" ".join),
    st.tuples(st.sampled_from("ab"), compare, numbers).map(" ".join),
    st.tuples(numbers, compare, st.sampled_from("ab")).map(" ".join),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["", "NOT "]), numbers, numbers).map(
        lambda t: f"{t[0]} {t[1]}BETWEEN {t[2]} AND {t[3]}"
    ),
    listed("a", numbers),
    listed("e", st.sampled_from([*labels["e"], "NULL"])),
    listed("v", st.sampled_from([*labels["v"], "NULL"])),
    st.tuples(st.sampled_from("ev"), order, strings).map(" ".join),
    st.tuples(strings, order, st.sampled_from("ev")).map(" ".join),
    st.tuples(st.sampled_from("ev"), strings, strings).map(
        lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}"
    ),
    st.sampled_from(
        ["e = 'big'", "'x' <> v", "v IS DISTINCT FROM 'big'", "e IS NOT DISTINCT FROM v"]
    ),
    st.sampled_from(["e = v", "e < v", "v >= e", "e <> e", "v BETWEEN e AND 'x'"]),
    st.sampled_from(
        ["f", "TRUE", "FALSE", "f = FALSE", "f IS NOT TRUE", "f <= TRUE", "f IN (TRUE)"]
    ),
    st.tuples(st.sampled_from("abevf"), st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    st.just("NULL"),
)
predicates = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({' '.join(t)})"),
        inner.map(lambda p: f"NOT ({p})"),
        inner.map(lambda p: f"({p}) IS NOT FALSE"),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def con():
    """Every joint cell of the domains, once each."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (a INTEGER, b INTEGER, e ENUM ('small', 'big', 'medium'), "
        "v VARCHAR, f BOOLEAN)"
    ).fetchall()
    cells = itertools.product(*([*d.values, *[None] * d.nullable] for d in DOMAINS.values()))
    fill(con, "t", list(cells))
    return con


@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(predicate=predicates)
def test_random_predicates(con, predicate):
    """Every joint cell is in the table once: the answer shows which cells are counted."""
    sql = f"SELECT COUNT(*) AS n FROM t WHERE {predicate}"
    session = dpsql.Session(con, schema=dpsql.Schema({"t": DOMAINS}))
    assert reference.differences(con, sql, session) == []


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("x > 9007199254740992", 3),
        ("x = 9007199254740993.0", 1),
        ("0.1 * x + 0.2 * x = 0.3 * x", 4),
        ("x::HUGEINT * 9223372036854775807 > 83076749736557242047480742012780544", 3),
        ("x < 9999999999999999999999999999999999999 - 1", 4),
    ],
)
def test_numbers_are_exact_where_floats_are_not(condition, count):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x BIGINT NOT NULL)").fetchall()
    con.execute(f"INSERT INTO t SELECT range FROM range({2**53}, {2**53 + 4})").fetchall()
    schema = dpsql.Schema({"t": {"x": Domain("BIGINT", range(2**53, 2**53 + 4))}})
    sql = f"SELECT COUNT(*) AS n FROM t WHERE {condition}"
    release = dpsql.Session(con, schema=schema).release(sql, budget=reference.PRECISE)
    assert round(release["query"]["n"][0]) == count
