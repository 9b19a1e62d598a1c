"""Bounds that nobody knows beforehand: found for a charge, declared, kept and told of."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.release import found_bounds
from dpsql.release.found_bounds import LIKELY, SURE, FoundBounds, bins_of, statement
from dpsql.schema.sequences import type_range

BUDGET = dpsql.Budget(rho=Fraction(1, 100))
MUCH = dpsql.Budget(rho=10**6)
TYPES = ["TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT", "UBIGINT",
         "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL(3,2)", "DECIMAL(9,2)", "DECIMAL(18,0)"]  # fmt: skip


@pytest.fixture
def con(monkeypatch):
    """Rows; an empty bin beside others is taken for one with rows once in 10^9, and not in 100."""
    monkeypatch.setattr(found_bounds, "LIKELY", 1e-9)
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE sales AS SELECT i, 5 + i % 90 AS price, -(i % 50) / 2.0 AS change,
            CASE WHEN i % 7 = 0 THEN 'nan'::DOUBLE WHEN i % 7 = 1 THEN NULL ELSE i % 30 END AS odd,
            'a' AS name, i % 10 AS known FROM range(20000) t (i);
        INSERT INTO sales VALUES (20000, 1e9::INTEGER, 1e15, 'inf', 'a', 1);
    """)
    return con


# ── Bins ─────────────────────────────────────────────────────────────────────────────────────────


def ends(type_):
    if type_ in {"DOUBLE", "FLOAT"}:
        return [0.0, 0.5, -0.5, 1.0, -1.0, 1e30, -1e30, 3.75, -3.75, math.inf, -math.inf]
    if type_.startswith("DECIMAL"):
        top = {"DECIMAL(3,2)": "9.99", "DECIMAL(9,2)": "9999999.99", "DECIMAL(18,0)": "9" * 18}
        return ["0", "1", "-1", "2", "-2", top[type_], f"-{top[type_]}"]
    low, high = (-(2**100), 2**100) if type_ == "HUGEINT" else type_range(type_)
    near = [n + d for k in range(64) for n in (2**k, -(2**k)) for d in (-1, 0, 1)]
    return [n for n in [0, low, high, low + 1, high - 1, *near] if low <= n <= high]


@pytest.mark.parametrize("type_", TYPES)
def test_each_number_is_in_the_bin_that_holds_it(type_):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (x {type_})")
    values = ends(type_)
    listed = ", ".join(f"('{value}')" for value in values)
    con.execute(f"INSERT INTO t SELECT v::{type_} FROM (VALUES {listed}) s (v)")
    case = statement("t", "x", type_).partition(" AS bin,")[0]
    bins = {b.number: b for b in bins_of(type_)}
    assert len(bins) == len(bins_of(type_)) <= 130
    last = max(b.high for b in bins.values()), min(b.low for b in bins.values())
    for value, number in con.execute(f"{case}, x FROM t").fetchall():
        value, number = number, value
        if isinstance(value, float) and math.isinf(value):
            assert number is None
            continue
        inside = min(max(Fraction(value), last[1]), last[0])
        assert bins[number].low <= inside <= bins[number].high


@pytest.mark.parametrize("type_", TYPES)
def test_bins_are_in_order_and_leave_nothing_between_them(type_):
    bins = bins_of(type_)
    numbers = [b.number for b in bins]
    assert numbers == sorted(set(numbers))
    for one, other in pairwise(bins):
        assert one.low <= one.high <= other.low
        assert other.low - one.high <= 1


def counts(found):
    names = ["bin", "n", "n_variance"]
    return pl.DataFrame(found, schema=dict(zip(names, [pl.Int64, *[pl.Float64] * 2], strict=True)),
                        orient="row")  # fmt: skip


@pytest.mark.parametrize("type_", ["BIGINT", "TINYINT", "DOUBLE"])
def test_a_bin_without_rows_is_taken_for_one_with_some_as_rarely_as_is_said(type_):
    """By the union bound: each of m with the probability SURE / m, and one beside others LIKELY."""
    bins = bins_of(type_)
    border = NormalDist().inv_cdf(1 - SURE / len(bins))
    for over, expected in ((-1e-9, False), (1e-9, True)):
        frame = counts([(b.number, 3 * (border + over), 9.0) for b in bins])
        assert FoundBounds.of("t", "x", type_, frame, ()).any is expected
    likely = NormalDist().inv_cdf(1 - LIKELY)
    for over, high in ((-1e-9, 3), (1e-9, 7)):
        frame = counts([(2, 99.0, 1.0), (3, likely + over, 1.0), (5, 3.0, 1.0)])
        assert FoundBounds.of("t", "x", "INTEGER", frame, ()).high == high


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        ([], 0, 1),
        ([(0, 1e6, 1.0)], 0, 1),
        ([(3, 1e6, 1.0), (7, 1e6, 1.0), (9, 2.0, 1.0)], 4, 127),
        ([(-3, 1e6, 1.0), (2, 1e6, 1.0)], -4, 3),
        ([(-3, 1e6, 1.0)], -4, -2),
        ([(None, 1e6, 1.0), (1, 1e6, 1.0)], 1, 2),
    ],
)
def test_the_outermost_bins_that_pass_are_the_ends(found, low, high):
    bounds = FoundBounds.of("t", "x", "INTEGER", counts(found), ())
    assert (bounds.low, bounds.high) == (low, high)
    assert bounds.any == any(number is not None for number, _, _ in found)
    assert bounds.bounds.low < bounds.bounds.high


# ── Sessions ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("type_", ["DOUBLE", "FLOAT"])
@pytest.mark.parametrize("many", [100, 5])
def test_rows_that_are_infinite_tell_no_bounds(con, type_, many):
    """However many there are; in sums they count as the nearer bound, as with declared ones."""
    con.execute(f"""
        CREATE TABLE odd AS
        SELECT CASE i % {many} WHEN 0 THEN 'inf' WHEN 1 THEN '-inf'
            WHEN 2 THEN 'nan' ELSE (i // 100 % 50)::VARCHAR END::{type_} AS x
        FROM range(30000) t (i)
    """)
    session = dpsql.Session(con)
    found = session.find_bounds("odd", "x", budget=dpsql.Budget(rho=1))
    assert (found.low, found.high) == (0, 64)
    least = con.sql("SELECT SUM(greatest(least(x, 64), 0)) FROM odd WHERE NOT isnan(x)").fetchall()
    total = session.query("SELECT SUM(x) AS s FROM odd", budget=MUCH)["s"][0]
    assert total == pytest.approx(least[0][0], abs=10)


def test_found_bounds_are_those_of_the_same_session(con):
    session = dpsql.Session(con)
    asked = "SELECT SUM(price) AS s FROM sales"
    with pytest.raises(dpsql.SchemaError, match="no public bounds") as caught:
        session.query(asked, budget=MUCH)
    assert caught.value.hint.startswith("pass bounds=dpsql.Bounds()")
    found = session.find_bounds("sales", "price", budget=BUDGET)
    assert (found.low, found.high) == (4, 127)
    (total,) = con.execute("SELECT SUM(LEAST(price, 127)) FROM sales").fetchone()
    assert session.query(asked, budget=MUCH)["s"][0] == pytest.approx(total, abs=5)
    assert session.history["state"].to_list() == ["delivered"] * 2


@pytest.mark.parametrize(("column", "low", "high"), [("change", -32, 1), ("odd", 0, 32)])
def test_numbers_of_all_kinds(con, column, low, high):
    found = dpsql.Session(con).find_bounds("sales", column, budget=BUDGET)
    assert (found.low, found.high) == (low, high)


def test_asked_again_they_are_the_same_and_free(con):
    session = dpsql.Session(con)
    first = session.find_bounds("SALES", "Price", budget=BUDGET)
    assert session.find_bounds("sales", "price", budget=0) == first
    assert session.history.height == 1
    with pytest.raises(dpsql.errors.UndeterminedError):
        session.find_bounds("sales", "change", budget=0)


def test_units_are_bounded_as_in_any_release(con):
    session = dpsql.Session(con, unit="i", max_rows=3)
    session.find_bounds("sales", "price", budget=BUDGET)
    assert session.ledger.entries()[0].mu_squared == BUDGET.mu_squared
    with pytest.raises(dpsql.SchemaError, match="how many rows"):
        dpsql.Session(con, unit="i").find_bounds("sales", "price", budget=BUDGET)


def test_a_release_tells_of_its_bounds(con, tmp_path):
    session = dpsql.Session(con)
    session.find_bounds("sales", "change", budget=BUDGET)
    asked = {"s": "SELECT SUM(change) AS s FROM sales"}
    release = session.release(asked, budget=BUDGET, out=tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    for one in (release, loaded):
        (bounded,) = one.facts.bounded
        assert (bounded.column, bounded.low, bounded.high) == ("change", "-32", "1")
        assert [c.seq for c in bounded.charges] == [session.ledger.entries()[0].seq]
        assert "bounds found" in one.summary()


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        ("sales", "name", "bounds are found of numbers"),
        ("sales", "nothing", "no column"),
        ("nothing", "price", "no table"),
        ("sales", "known", "has public bounds already"),
        ("sales", "i", "has public bounds already"),
    ],
)
def test_it_is_refused_before_anything_is_charged(con, table, column, said):
    declared = {"known": dpsql.Domain.integers(0, 9), "i": dpsql.Domain.number(0, 10)}
    session = dpsql.Session(con, schema={"sales": declared})
    with pytest.raises(dpsql.errors.DpsqlError, match=said) as caught:
        session.find_bounds(table, column, budget=BUDGET)
    assert caught.value.hint
    assert not session.history.height
