"""Synthetic rows are near what a release says, have the types of the table, and reach no row."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from itertools import combinations

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import (
    ArgumentError,
    ReleaseFormatError,
    ResourceLimitError,
    SchemaError,
    UndeterminedError,
)
from dpsql.measurement import measure
from tests.helpers.inserted import insert
from tests.helpers.seeded import SeededBits
from tests.release.adult import CATEGORIES
from tests.release.adult import connect as adult
from tests.release.saved import SCHEMA, SCRIPT, connect

HUGE = dpsql.Budget(rho=1e6)
"""With it noise is far below one row."""


def pairs_of(table: str, columns) -> dict[str, str]:
    """All pairs of columns."""
    return {
        f"{a} {b}": f'SELECT "{a}", "{b}", COUNT(*) AS n FROM {table} GROUP BY "{a}", "{b}"'
        for a, b in combinations(columns, 2)
    }


def one_table(sql: str, rows=(), **options) -> dpsql.Session:
    con = duckdb.connect()
    con.execute(sql)
    insert(con, "t", rows)
    return dpsql.Session(con, **options)


def counts(frame: pl.DataFrame, *columns: str) -> dict[tuple[object, ...], int]:
    return {row[:-1]: row[-1] for row in frame.group_by(columns).len().rows()}


@pytest.fixture(scope="module")
def types():
    return dpsql.Session(connect(), schema=SCHEMA).release(SCRIPT, budget=HUGE)


# ── what rows are ──────────────────────────────────────────────────────────────────────────────


def test_rows_have_the_types_of_the_table_in_its_order(types):
    rows = types.synthetic(seed=1)
    assert rows.schema == {
        "sex": pl.Enum(["F", "M", 'it\'s "x", ü']),
        "born": pl.Date(),
        "height": pl.Decimal(4, 1),
        "member": pl.Boolean(),
        "town": pl.String(),
        "age": pl.Int32(),
    }
    assert rows.height == 200


def test_pairs_that_were_measured_are_those_of_the_table(types):
    """The tree has them all, so counts differ by rounding: one for each of up to two steps."""
    rows = types.synthetic(seed=1)
    real = connect().sql("SELECT * FROM people").pl()
    for pair in (("sex", "member"), ("born", "height"), ("member", "age")):
        made, true = counts(rows, *pair), counts(real, *pair)
        assert max(abs(made.get(k, 0) - true.get(k, 0)) for k in made | true) <= 3, pair


def test_columns_that_nothing_connects_are_independent():
    session = one_table(
        "CREATE TABLE t (a BOOLEAN NOT NULL, b BOOLEAN NOT NULL)",
        [(i < 500, i < 500) for i in range(1000)],
    )
    script = {n: f"SELECT {n}, COUNT(*) AS n FROM t GROUP BY {n}" for n in "ab"}
    release = session.release(script, budget=HUGE)
    rows = release.synthetic(seed=5)
    assert all(abs(n - 250) < 60 for n in counts(rows, "a", "b").values())  # 8 standard errors
    notes = release.synthetic_quality(rows)["note"].to_list()
    assert len(notes) == 2
    assert all(note.startswith("independent") for note in notes)


def test_three_columns_that_depend_on_each_other_in_pairs():
    """A chain a → b → c: the tree has all of it."""
    given = [(i % 8, i % 8 // 2, i % 8 // 4) for i in range(800)]
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 7), "
        "b INT NOT NULL CHECK (b BETWEEN 0 AND 3), c INT NOT NULL CHECK (c BETWEEN 0 AND 1))",
        given,
    )
    script = {k: v for k, v in pairs_of("t", "abc").items() if k != "a c"}
    rows = session.release(script, budget=HUGE).synthetic(seed=2)
    wrong = rows.filter((pl.col("b") != pl.col("a") // 2) | (pl.col("c") != pl.col("b") // 2))
    assert wrong.height <= 8
    assert all(abs(n - 100) <= 2 for n in counts(rows, "a").values())


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_few_columns(columns):
    session = one_table(
        "CREATE TABLE t (a BOOLEAN NOT NULL, b BOOLEAN NOT NULL, c BOOLEAN NOT NULL)",
        [(i % 2 == 0, i % 3 == 0, i % 5 == 0) for i in range(300)],
    )
    names = ", ".join("abc"[:columns])
    release = session.release(f"SELECT {names}, COUNT(*) AS n FROM t GROUP BY {names}", budget=HUGE)
    rows = release.synthetic(seed=1)
    assert rows.columns == list("abc"[:columns])
    assert rows.height == 300
    true = counts(
        pl.DataFrame(
            [(i % 2 == 0, i % 3 == 0, i % 5 == 0) for i in range(300)],
            schema=list("abc"),
            orient="row",
        ),
        *"abc"[:columns],
    )
    made = counts(rows, *"abc"[:columns])
    assert max(abs(made.get(k, 0) - true.get(k, 0)) for k in made | true) <= 3


def test_values_within_cells():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            week DATE NOT NULL, clock TIMESTAMP NOT NULL, hour TIMESTAMP NOT NULL,
            zoned TIMESTAMP WITH TIME ZONE NOT NULL, whole INTEGER NOT NULL, real DOUBLE NOT NULL,
            single FLOAT NOT NULL, exact DECIMAL(9, 2) NOT NULL, step DOUBLE NOT NULL,
            few INTEGER NOT NULL, town VARCHAR)
    """)
    con.execute("""
        INSERT INTO t SELECT '2024-01-03', '2024-02-29 13:00', '2024-01-01 05:30',
            '2024-03-31 00:30:00+00', 7, 0.3, 0.3, 12.34, 0.5, 3, 'x' FROM range(400)
    """)
    domains = {
        "week": dpsql.Domain.dates("2024-01-01", "2024-01-14", "week", outside="clamp"),
        "clock": dpsql.Domain.dates("2024-01-01", "2024-12-31", "month", outside="clamp"),
        "hour": dpsql.Domain.dates("2024-01-01", "2024-01-01", "hour", outside="clamp"),
        "zoned": dpsql.Domain.dates(
            "2024-03-31", "2024-04-01", "day", zone="Europe/Berlin", outside="clamp"
        ),
        "whole": dpsql.Domain.bins([0, 5, 10.5], outside="clamp"),
        "real": dpsql.Domain.bins([0, 0.25, 1], outside="clamp"),
        "single": dpsql.Domain.bins([0, 0.25, 0.3000001, 1], outside="clamp"),
        "exact": dpsql.Domain.bins([0, 12.335, 12.355], outside="clamp"),
        "step": dpsql.Domain.decimals("0", "1", "0.25", outside="clamp"),
        "few": dpsql.Domain.integers(0, 9, outside="clamp"),
        "town": dpsql.Domain.labels(["a", "b", "rest"], other="rest", nullable=True),
    }
    session = dpsql.Session(con, schema=dpsql.Schema({"t": domains}))
    script = {n: f"SELECT {n}, COUNT(*) AS n FROM t GROUP BY {n}" for n in domains if n != "few"}
    script["few"] = "SELECT COUNT(*) AS n FROM t WHERE few < 5"  # told apart: below 5, and above
    release = session.release(script, budget=HUGE)
    rows = release.synthetic(rows=2000, seed=9)
    assert rows["week"].dtype == pl.Date
    main = {name: rows.filter(pl.col(name).is_not_null()) for name in domains}
    assert set(main["week"]["week"].unique()) >= {date(2024, 1, d) for d in range(1, 8)}
    assert rows["clock"].is_between(datetime(2024, 2, 1), datetime(2024, 3, 1)).mean() > 0.99
    assert rows["clock"].n_unique() > 1900
    assert rows["hour"].is_between(datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 6)).mean() > 0.99
    assert rows["zoned"].dtype == pl.Datetime("us", "Europe/Berlin")
    assert not rows["zoned"].is_null().any()
    assert (rows["zoned"].dt.date() == date(2024, 3, 31)).mean() > 0.99
    assert rows["whole"].dtype == pl.Int32
    assert set(rows["whole"].unique()) >= {5, 6, 7, 8, 9, 10}
    assert rows["whole"].is_between(5, 10).mean() > 0.99
    assert rows["real"].is_between(0.25, 1).mean() > 0.99
    assert rows["single"].dtype == pl.Float32
    assert rows["single"].is_between(0.25, 0.3000001).mean() > 0.99
    assert rows["exact"].dtype == pl.Decimal(9, 2)
    assert rows["exact"].is_in([Decimal("12.34"), Decimal("12.35")]).mean() > 0.99
    assert (rows["step"] == 0.5).mean() > 0.99
    assert set(rows["few"].unique()) >= {0, 1, 2, 3, 4}
    assert max(counts(rows, "few").values()) < 450  # evenly: 400 each
    assert (rows["town"] == "rest").mean() > 0.99
    quality = release.synthetic_quality(rows)
    assert quality["tv_to_fitted"].max() < 0.01


def test_rows_without_a_value_of_the_domain_are_null():
    session = one_table(
        "CREATE TABLE t (a INTEGER)",
        [(1,)] * 60 + [(7,)] * 40,
        schema=dpsql.Schema({"t": {"a": dpsql.Domain.integers(0, 3)}}),
    )
    release = session.release("SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=HUGE)
    rows = release.synthetic(seed=1)
    assert counts(rows, "a") == {(1,): 60, (None,): 40}
    assert release.synthetic_quality(rows)["tv_to_fitted"].max() < 0.01


def test_conditions_say_something_of_pairs():
    """Only what a WHERE asks was measured of the pair; the rest follows from single columns."""
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 3), "
        "b INT NOT NULL CHECK (b BETWEEN 0 AND 4))",
        [(i % 4, 2 if i % 4 == 1 else i % 5) for i in range(2000)],
    )
    script = {
        "a": "SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "b": "SELECT b, COUNT(*) AS n FROM t GROUP BY b",
        "some": "SELECT b, COUNT(*) AS n FROM t WHERE a = 1 GROUP BY b",
    }
    rows = session.release(script, budget=HUGE).synthetic(seed=3)
    made = counts(rows.filter(pl.col("a") == 1), "b")
    assert made[(2,)] > 480
    assert sum(n for key, n in made.items() if key != (2,)) < 20


def test_what_was_not_counted_is_left_out_and_said():
    session = one_table(
        'CREATE TABLE t (a BOOLEAN NOT NULL, "b; DROP" BOOLEAN NOT NULL, c INTEGER, '
        '"<script>" BOOLEAN NOT NULL)',
        [(True, False, 5, True)] * 50,
    )
    release = session.release(
        'SELECT a, "<script>", COUNT(*) AS n FROM t GROUP BY a, "<script>"', budget=HUGE
    )
    rows = release.synthetic(seed=1)
    assert rows.columns == ["a", "<script>"]
    quality = release.synthetic_quality(rows)
    told = {tuple(c): note for c, note in quality.select("columns", "note").rows() if note}
    assert told.keys() == {("b; DROP",), ("c",)}
    assert "not counted" in told["b; DROP",]
    assert "no domain" in told["c",]


# ── by which mechanisms, from where ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "mechanism", ["querysmasher", "residualplanner", "hdmm", "aim", "gaussian", "pairs"]
)
def test_any_mechanism(mechanism):
    given = [(i % 4, i % 4 // 2, i % 7 == 0) for i in range(1000)]
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 3), "
        "b INT NOT NULL CHECK (b BETWEEN 0 AND 1), c BOOLEAN NOT NULL)",
        given,
    )
    release = session.release(
        pairs_of("t", "abc"), budget=dpsql.Budget(rho=100), mechanism=mechanism
    )
    rows = release.synthetic(seed=4)
    assert abs(rows.height - 1000) <= 10
    assert (rows["b"] == rows["a"] // 2).mean() > 0.97
    assert release.synthetic_quality(rows)["tv_to_fitted"].max() < 0.02


def test_laplace_noise():
    session = one_table("CREATE TABLE t (a BOOLEAN NOT NULL)", [(True,)] * 70 + [(False,)] * 30)
    budget = dpsql.Budget(epsilon=1000, delta=0)
    sql = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    rows = session.release(sql, budget=budget, mechanism="laplace").synthetic()
    assert counts(rows, "a") == {(True,): 70, (False,): 30}


def test_several_releases_are_used_together():
    session = one_table(
        "CREATE TABLE t (a BOOLEAN NOT NULL, b BOOLEAN NOT NULL)",
        [(i % 2 == 0,) * 2 for i in range(400)],
    )
    session.release("SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=HUGE)
    release = session.release("SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b", budget=HUGE)
    assert counts(release.synthetic(seed=1), "a", "b") == {(True, True): 200, (False, False): 200}


def test_loaded_releases_make_the_same_rows(types, tmp_path):
    types.save(tmp_path / "saved")
    loaded = dpsql.Release.load(tmp_path / "saved")
    rows = types.synthetic(300, updates=2, seed=7)
    assert_frame_equal(loaded.synthetic(300, updates=2, seed=7), rows)
    assert_frame_equal(loaded.synthetic_quality(rows), types.synthetic_quality(rows))


def test_it_costs_nothing_and_asks_no_row():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT true AS a")
    session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
    release = session.release(
        "SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=dpsql.Budget(rho=0.5)
    )
    left = session.ledger.remaining
    con.close()
    release.synthetic_quality(release.synthetic(10, updates=1))
    assert session.ledger.remaining == left


def test_seeds_repeat_rows_and_others_are_others(types):
    rows = types.synthetic(seed=-3)
    assert_frame_equal(rows, types.synthetic(seed=-3))
    assert not rows.equals(types.synthetic(seed=3))
    assert not types.synthetic().equals(types.synthetic())


# ── several relations ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shop():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY, vip BOOLEAN NOT NULL);
        CREATE TABLE orders (customer_id INTEGER NOT NULL REFERENCES customers(id),
            paid BOOLEAN NOT NULL);
        INSERT INTO customers SELECT i, i % 4 = 0 FROM range(400) AS t(i);
        INSERT INTO orders SELECT i % 400, i % 4 = 0 FROM range(800) AS t(i);
    """)
    unit = dpsql.Unit("customers", {"customers": 1, "orders": 5})
    return dpsql.Session(con, unit=unit).release(
        {
            "customers": "SELECT vip, COUNT(*) AS n FROM customers GROUP BY vip",
            "orders": "SELECT c.vip, o.paid, COUNT(*) AS n FROM orders AS o "
            "JOIN customers AS c ON o.customer_id = c.id GROUP BY c.vip, o.paid",
        },
        budget=HUGE,
    )


def test_rows_of_each_relation(shop):
    customers = shop.synthetic(seed=1, table="customers")
    assert counts(customers, "vip") == {(True,): 100, (False,): 300}
    orders = shop.synthetic(seed=1, table="orders")
    assert orders.columns == ["paid", "customer_id.vip"]
    assert counts(orders, "customer_id.vip", "paid") == {(True, True): 200, (False, False): 600}
    assert shop.synthetic_quality(orders, table="orders")["tv_to_fitted"].max() < 0.01


def test_rows_of_each_relation_by_aim():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE units (id INTEGER PRIMARY KEY);
        CREATE TABLE a (id INTEGER REFERENCES units(id), x BOOLEAN NOT NULL, y BOOLEAN NOT NULL);
        CREATE TABLE b (id INTEGER REFERENCES units(id), x BOOLEAN NOT NULL, y BOOLEAN NOT NULL);
        INSERT INTO units SELECT i FROM range(1000) AS t(i);
        INSERT INTO a SELECT i, i % 2 = 0, i % 2 = 0 FROM range(1000) AS t(i);
        INSERT INTO b SELECT i, i % 2 = 0, i % 2 = 1 FROM range(500) AS t(i);
    """)
    release = dpsql.Session(con, unit=dpsql.Unit("units", {"a": 1, "b": 1})).release(
        {t: f"SELECT x, y, COUNT(*) AS n FROM {t} GROUP BY x, y" for t in "ab"},
        budget=dpsql.Budget(rho=100),
        mechanism="aim",
    )
    for table, rows, equal in (("a", 1000, True), ("b", 500, False)):
        made = release.synthetic(seed=1, table=table)
        assert made.height == pytest.approx(rows, abs=10)
        assert ((made["x"] == made["y"]) == equal).mean() > 0.98


def test_of_several_relations_one_is_named(shop):
    with pytest.raises(ArgumentError, match="several tables") as caught:
        shop.synthetic()
    assert "table=" in caught.value.hint
    with pytest.raises(SchemaError, match="no table order") as caught:
        shop.synthetic(table="order")
    assert "orders" in caught.value.hint
    with pytest.raises(ArgumentError, match="name of a table"):
        shop.synthetic(table=3)


def test_bounded_rows_are_those_that_count():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 10 AS id, true AS a FROM range(100) AS s(i)")
    session = dpsql.Session(con, unit="id", max_rows=3)
    release = session.release("SELECT a, COUNT(*) AS n FROM t GROUP BY a", budget=HUGE)
    assert release.synthetic().height == 30


# ── bad input ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [-1, 1.5, True, "10"])
def test_wrong_numbers_of_rows(types, rows):
    with pytest.raises(ArgumentError, match="rows is a whole number"):
        types.synthetic(rows)
    with pytest.raises(ArgumentError, match="updates is a whole number"):
        types.synthetic(updates=rows)


def test_too_many(types):
    with pytest.raises(ResourceLimitError, match="rows is 10,000,000,000,000") as caught:
        types.synthetic(10**13)
    assert "rows=" in caught.value.hint
    with pytest.raises(ResourceLimitError, match="updates"):
        types.synthetic(updates=10**6)


@pytest.mark.parametrize("seed", [1.0, "1", True])
def test_wrong_seeds(types, seed):
    with pytest.raises(ArgumentError, match="seed is a whole number"):
        types.synthetic(seed=seed)


def test_no_rows_and_one(types):
    assert types.synthetic(0, seed=1).schema == types.synthetic(1, seed=1).schema
    assert types.synthetic(0).height == 0
    with pytest.raises(ArgumentError, match="no rows"):
        types.synthetic_quality(types.synthetic(0))


def test_without_a_count_of_rows():
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 3))", [(i % 4,) for i in range(100)]
    )
    release = session.release("SELECT COUNT(*) AS n FROM t WHERE a = 1", budget=HUGE)
    with pytest.raises(UndeterminedError, match="how many rows of t") as caught:
        release.synthetic(10)
    assert "COUNT(*)" in caught.value.hint


def test_without_columns():
    session = one_table("CREATE TABLE t (a BOOLEAN)", [(True,)] * 5)
    release = session.release("SELECT COUNT(*) AS n FROM t", budget=HUGE)
    with pytest.raises(SchemaError, match="nothing about the columns of t"):
        release.synthetic(10)


def test_rows_that_are_none_of_the_table(types):
    rows = types.synthetic(seed=1)
    with pytest.raises(ArgumentError, match="Polars frame"):
        types.synthetic_quality(rows.to_dict())
    with pytest.raises(SchemaError, match="no column town"):
        types.synthetic_quality(rows.drop("town"))
    with pytest.raises(SchemaError, match="not of its domain"):
        types.synthetic_quality(rows.with_columns(age=pl.lit(99)))
    with pytest.raises(SchemaError, match="age"):
        types.synthetic_quality(rows.with_columns(age=pl.lit("many")))


def test_pairs_of_a_million_cells():
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 999), "
        "b INT NOT NULL CHECK (b BETWEEN 0 AND 999))",
        [(i, 999 - i) for i in range(1000)] * 3,
    )
    release = session.release(pairs_of("t", "ab"), budget=HUGE)
    rows = release.synthetic(seed=1)
    assert (rows["a"] + rows["b"] == 999).mean() > 0.95


def test_larger_pairs_are_left_aside_and_said():
    session = one_table(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 1023), "
        "b INT NOT NULL CHECK (b BETWEEN 0 AND 1024))",
        [(1, 1)] * 100,
    )
    release = session.release(pairs_of("t", "ab"), budget=HUGE)
    rows = release.synthetic(seed=1)
    told = release.synthetic_quality(rows).filter(pl.col("note").str.contains("too many"))
    assert told["columns"].to_list() == [["a", "b"]]


# ── Adult ──────────────────────────────────────────────────────────────────────────────────────


def test_adult_is_near_the_truth(monkeypatch):
    """Five columns at ε = 1, with a fixed seed of the noise; independent columns have 0.11."""
    monkeypatch.setattr(measure, "fresh_bits", lambda: SeededBits(3))
    con = adult()
    release = dpsql.Session(con).release(
        pairs_of("adult", CATEGORIES),
        budget=dpsql.Budget(epsilon=1, delta=1e-9),
        weights="marginal",
    )
    real = con.sql("SELECT * FROM adult").pl()

    def distance(rows: pl.DataFrame) -> float:
        found = []
        for pair in combinations(CATEGORIES, 2):
            made, true = counts(rows, *pair), counts(real, *pair)
            found.append(
                sum(
                    abs(made.get(k, 0) / rows.height - true.get(k, 0) / real.height)
                    for k in made | true
                )
            )
        return float(np.mean(found))

    plain = release.synthetic(seed=1)
    assert distance(plain) < 0.025
    assert distance(release.synthetic(seed=1, updates=5)) < distance(plain)
    said = release.synthetic_quality(plain).filter(pl.col("columns").list.len() == 2)
    assert 0.3 < said["tv_estimated"].mean() * 2 / distance(plain) < 3


def test_forged_measurements_are_refused(types, monkeypatch):
    from dpsql.release.relations import ReleasedRelation

    def forged(*_):
        raise ValueError

    monkeypatch.setattr(ReleasedRelation, "of", forged)
    other = types.with_facts(types.facts)
    with pytest.raises(ReleaseFormatError, match="can't be read"):
        other.synthetic()
