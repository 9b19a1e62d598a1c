"""Several private tables of Spark: planned, charged and counted as on DuckDB."""

from __future__ import annotations

import random

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines.spark import engine
from dpsql.engines.spark.catalog import SparkCatalog
from dpsql.errors import DpsqlError, LedgerError, SchemaError, StaleSchemaError
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import (
    check_equal_counts,
    check_same_frames,
    recorded_in,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BUDGET = dpsql.Budget(rho=0.1)
HUGE = dpsql.Budget(rho=10**12)
TABLES = {
    "customers": "id INTEGER, region VARCHAR, balance DOUBLE",
    "orders": "id BIGINT, customer_id INTEGER, status VARCHAR, price INTEGER, d DOUBLE",
    "items": "order_id BIGINT, qty INTEGER, kind VARCHAR",
}
DOMAINS = {
    "customers": {
        "region": dpsql.Domain.labels(["n", "s", "é"], nullable=True),
        "balance": dpsql.Domain.bins([-100, 0, 10, 100], outside="clamp"),
    },
    "orders": {
        "status": dpsql.Domain.labels(["o", "f"], nullable=True),
        "price": dpsql.Domain.integers(0, 50, outside="clamp"),
    },
    "items": {"qty": dpsql.Domain.integers(1, 9), "kind": dpsql.Domain.labels(["x", "X"])},
}
OVER = "OVER (PARTITION BY customer_id ORDER BY price DESC, status NULLS FIRST)"
SCRIPT = {
    "joined": "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c "
    "ON o.customer_id = c.id GROUP BY 1",
    "left": "SELECT o.status, c.region = 'n' AS here, SUM(o.price) AS p FROM orders o "
    "LEFT JOIN customers c ON o.customer_id = c.id GROUP BY 1, 2",
    "two_steps": "SELECT i.kind, c.region, COUNT(*) AS n FROM items i "
    "JOIN orders o ON i.order_id = o.id JOIN customers c ON o.customer_id = c.id GROUP BY 1, 2",
    "how_many": "SELECT LEAST((SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id), 4) AS k, "
    "COUNT(*) AS n FROM customers c GROUP BY 1",
    "without": "SELECT region, COUNT(*) AS n FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.price > c.balance) GROUP BY 1",
    "sums": "SELECT (SELECT AVG(i.qty) FROM items i WHERE i.order_id = o.id) > 4 AS k, "
    "COUNT(*) AS n FROM orders o GROUP BY 1",
    "least": "SELECT (SELECT MIN(i.kind) FROM items i WHERE i.order_id = o.id) = 'X' AS k, "
    "COUNT(*) AS n FROM orders o GROUP BY 1",
    "places": f"SELECT LEAST(w, 3) AS k, COUNT(*) AS n FROM (SELECT row_number() {OVER} AS w "
    "FROM orders) GROUP BY 1",
    "before": f"SELECT w > price AS k, COUNT(*) AS n FROM (SELECT price, lag(price, 1, -5) {OVER} "
    "AS w FROM orders) GROUP BY 1",
    "running": "SELECT w > 60 AS k, COUNT(*) AS n FROM (SELECT SUM(price) OVER (PARTITION BY "
    "customer_id ORDER BY d, price ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS w FROM orders) "
    "GROUP BY 1",
    "first": f"SELECT status, COUNT(*) AS n FROM (SELECT * FROM orders QUALIFY row_number() {OVER} "
    "= 1) GROUP BY 1",
    "distinct": "SELECT status, COUNT(*) AS n FROM (SELECT DISTINCT ON (customer_id) * FROM orders "
    "ORDER BY customer_id, price) GROUP BY 1",
    "values": "SELECT LEAST(w, 3) AS k, COUNT(*) AS n FROM (SELECT COUNT(DISTINCT status) OVER "
    "(PARTITION BY customer_id, price > 7) AS w FROM orders) GROUP BY 1",
    "doubles": "SELECT LEAST(w, 6) AS k, COUNT(*) AS n FROM (SELECT COUNT(DISTINCT d) "
    "FILTER (WHERE status = 'o') OVER (PARTITION BY customer_id) AS w FROM orders) GROUP BY 1",
    "pairs": "SELECT i.kind, o.status, COUNT(*) AS n FROM items i JOIN orders p "
    "ON i.order_id = p.id JOIN orders o ON o.customer_id = p.customer_id GROUP BY 1, 2",
    "with_themselves": "SELECT SUM(a.price) AS p, COUNT(*) AS n FROM orders a JOIN orders b "
    "ON a.customer_id = b.customer_id AND a.status = b.status WHERE a.price < b.price",
    "below": "SELECT of, k, COUNT(*) AS n, SUM(v) AS v FROM (SELECT 'order' AS of, status = 'o' "
    "AS k, price AS v FROM orders UNION ALL SELECT 'item', kind = 'x', qty FROM items "
    "WHERE qty > 2) AS q GROUP BY 1, 2",
    "units": "SELECT status, price > 7 AS k, COUNT(DISTINCT customer_id) AS n FROM orders "
    "GROUP BY 1, 2",
    "units_joined": "SELECT c.region, COUNT(DISTINCT o.customer_id) FILTER (WHERE o.price > 7) "
    "AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY 1",
}

RELATED = {
    "least_of_each": "WITH f AS (SELECT customer_id AS k, MIN(price) AS p FROM orders GROUP BY 1) "
    "SELECT o.status, COUNT(*) AS n FROM orders o JOIN f ON f.k = o.customer_id WHERE o.price "
    "> f.p GROUP BY 1",
    "groups": "SELECT status, k, COUNT(*) AS n FROM (SELECT customer_id, status, COUNT(*) AS k "
    "FROM orders GROUP BY ALL) GROUP BY ALL",
    "on_windows": f"WITH a AS (SELECT *, row_number() {OVER} AS w FROM orders), b AS (SELECT *, "
    "MAX(price) OVER (PARTITION BY customer_id) AS m FROM a WHERE w <= 3) "
    "SELECT status, COUNT(*) AS n FROM b WHERE price = m GROUP BY 1",
    "left_groups": "SELECT c.region, COUNT(g.k) AS n FROM customers c LEFT JOIN (SELECT "
    "customer_id, COUNT(*) AS k FROM orders GROUP BY 1 HAVING COUNT(*) > 1) g "
    "ON g.customer_id = c.id GROUP BY 1",
    "united": "WITH u AS (SELECT customer_id, price FROM orders WHERE status = 'o' UNION ALL "
    "SELECT customer_id, price // 2 FROM orders), g AS (SELECT customer_id, SUM(price) AS s "
    "FROM u GROUP BY 1) SELECT s > 60 AS k, COUNT(*) AS n FROM g GROUP BY 1",
    "looked_up": "SELECT city, COUNT(*) AS n FROM (SELECT DISTINCT o.customer_id, v.city FROM "
    "orders o JOIN (VALUES ('o', 'x'), ('f', 'y')) v(state, city) ON v.state = o.status) "
    "GROUP BY 1",
    "meeting": "SELECT LEAST(k, 9) AS k, COUNT(*) AS n FROM (SELECT a.customer_id, COUNT(*) AS k "
    "FROM orders a JOIN orders b ON a.customer_id = b.customer_id AND a.price < b.price "
    "GROUP BY 1) GROUP BY 1",
}
"""Statements of rows that are made of rows."""


def rows(seed=1, customers=40, without=None):
    """Make rows: keys that several rows have or none, ties, NULLs, odd doubles, odd texts."""
    rng = random.Random(seed)  # noqa: S311
    found, orders = {name: [] for name in TABLES}, 0
    odd = [None, 0.0, -0.0, float("nan"), float("inf"), 7.5, -3.0]
    for id_ in [*range(customers), 3, None]:
        own = {name: [] for name in TABLES}
        own["customers"].append((id_, rng.choice(["n", "s", "é", "N", None]), rng.choice(odd)))
        for _ in range(rng.choice([0, 1, 2, 9])):
            orders += rng.choice([1, 1, 1, 0])
            status, price = rng.choice(["o", "f", None]), rng.choice([7, 7, 30, None, 99])
            own["orders"].append((orders, id_, status, price, rng.choice(odd)))
            count = rng.choice([0, 1, 3])
            own["items"] += [(orders, rng.randint(0, 9), rng.choice("xX")) for _ in range(count)]
        if id_ is None or id_ != without:
            found = {name: found[name] + own[name] for name in found}
    return found


def filled(**how):
    con = duckdb.connect()
    for name, listed in rows(**how).items():
        con.execute(f"CREATE TABLE {name} ({TABLES[name]})").fetchall()
        insert(con, name, listed)
    return con


def schema(named):
    """Declare domains, units and references, of tables that are called so or so."""
    c, o, i = (named[name] for name in TABLES)
    pairs = {f"{i}, {o}": 7, f"{o}, {o}": 6}
    units = {c: dpsql.Unit("id", 1), o: dpsql.Unit("customer_id", {o: 3, **pairs})}
    units[i] = dpsql.Unit(f"{o}.customer_id", 5)
    references = {f"{o}.customer_id": f"{c}.id", f"{i}.order_id": f"{o}.id"}
    domains = {named[name]: of for name, of in DOMAINS.items()}
    return dpsql.Schema(domains, units=units, references=references)


def in_folders(con, folder):
    """Store the tables in folders, and say what Spark calls them."""
    named = {}
    for name in TABLES:
        place = folder / name
        place.mkdir(parents=True)
        con.execute(f"COPY {name} TO '{place}/0.parquet'").fetchall()
        named[name] = f"parquet.{place}"
    return named


def asked(script, named):
    found = {}
    for of, sql in script.items():
        for name, place in named.items():
            sql = sql.replace(f"FROM {name}", f"FROM {quoted(place)}")
            sql = sql.replace(f"JOIN {name}", f"JOIN {quoted(place)}")
        found[of] = sql
    return found


def quoted(place):
    kind, _, path = place.partition(".")
    return f'{kind}."{path}"'


@pytest.fixture(scope="module")
def con():
    return filled()


@pytest.fixture
def both(spark, con, tmp_path):
    named = in_folders(con, tmp_path)
    here = dpsql.Session(spark, schema=schema(named), ledger=tmp_path / "shop.ledger")
    there = dpsql.Session(con, schema=schema({name: name for name in TABLES}))
    return here, there, named


def check_same(both, script):
    """Release a script here and there: plans and exact integers are the same."""
    here, there, named = both
    one = recorded_in(here, asked(script, named), budget=BUDGET)
    other = recorded_in(there, script, budget=BUDGET)
    check_equal_counts(one, other)
    check_same_frames(one, other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCRIPT)
def test_integers_are_those_of_duckdb(both, name):
    check_same(both, {name: SCRIPT[name]})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", RELATED)
def test_rows_made_of_rows_are_those_of_duckdb(both, name):
    check_same(both, {name: RELATED[name]})


def test_one_release_of_all_is_that_of_duckdb(both):
    check_same(both, SCRIPT)


def test_rows_that_meet_are_not_held_in_memory(both, spark, con, tmp_path):
    """Spark held those of small files there: a unit could have more of them than there is room."""
    started = spark.sparkContext._jsc.sc().conf()
    started.set("spark.sql.maxBroadcastTableSize", "1")
    named = both[2]
    try:
        here = dpsql.Session(spark, schema=schema(named), ledger=tmp_path / "shop.ledger")
        check_same((here, *both[1:]), {name: SCRIPT[name] for name in ("joined", "pairs", "least")})
    finally:
        started.remove("spark.sql.maxBroadcastTableSize")


REFUSED = {
    "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c ON o.price = c.id "
    "GROUP BY 1": "",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_counted_is_refused_before_the_charge(both, sql):
    here, _, named = both
    with pytest.raises(DpsqlError) as caught:
        here.query(asked({"q": sql}, named)["q"], budget=BUDGET)
    assert REFUSED[sql] in str(caught.value)
    assert caught.value.hint
    assert here.history.height == 0


def test_tables_on_the_way_may_have_columns_of_our_names(spark, tmp_path):
    """Parts are of items, those of orders, and these say whose they are."""
    con = filled()
    con.execute("ALTER TABLE items ADD COLUMN nr BIGINT").fetchall()
    con.execute("UPDATE items SET nr = rowid").fetchall()
    for name in ("u_k0_0", "u_k1_0", "u_r0", "u_id0"):
        con.execute(f"ALTER TABLE items ADD COLUMN {name} BIGINT DEFAULT 3").fetchall()
    con.execute("CREATE TABLE parts AS SELECT nr, CAST(nr % 5 AS INTEGER) AS size FROM items")
    named = in_folders(con, tmp_path)
    named["parts"] = f"parquet.{tmp_path}/parts"
    (tmp_path / "parts").mkdir()
    con.execute(f"COPY parts TO '{tmp_path}/parts/0.parquet'").fetchall()

    def told(names):
        parts, known = names["parts"], schema(names)
        references = {f"{parts}.nr": f"{names['items']}.nr", **known.references}
        units = {parts: dpsql.Unit(f"{names['orders']}.customer_id", 5), **known.units}
        domains = {parts: {"size": dpsql.Domain.integers(0, 4)}, **known}
        return dpsql.Schema(domains, units=units, references=references)

    here = dpsql.Session(spark, schema=told(named), ledger=tmp_path / "shop.ledger")
    there = dpsql.Session(con, schema=told({name: name for name in named}))
    check_same((here, there, named), {"q": "SELECT size, COUNT(*) AS n FROM parts GROUP BY 1"})


def test_tables_on_the_way_are_looked_at_again(both, con, tmp_path, monkeypatch):
    """Nothing else says whose items are: new orders would make them others'."""
    here, _, named = both
    kept = engine.kept_rows

    def written_meanwhile(*args):
        con.execute(f"COPY orders TO '{tmp_path}/orders/1.parquet'").fetchall()
        return kept(*args)

    monkeypatch.setattr(engine, "kept_rows", written_meanwhile)
    sql = asked({"q": "SELECT qty, COUNT(*) AS n FROM items GROUP BY 1"}, named)["q"]
    with pytest.raises(StaleSchemaError):
        here.query(sql, budget=BUDGET)
    assert "delivered" not in here.history["state"].to_list()


def test_all_tables_that_are_read_have_one_account(both, spark, tmp_path):
    """Customers are looked at for orders: nobody may look at them in a second account."""
    here, _, named = both
    here.query(asked(SCRIPT, named)["joined"], budget=BUDGET)
    other = dpsql.Session(spark, schema=schema(named), ledger=tmp_path / "other.ledger")
    with pytest.raises(LedgerError):
        other.query(f"SELECT COUNT(*) AS n FROM {quoted(named['customers'])}", budget=BUDGET)


def test_pairs_have_the_account_of_their_tables(both, con, spark, tmp_path):
    """Nobody may count pairs in a second account, or of files that came meanwhile."""
    here, _, named = both
    sql = asked(SCRIPT, named)["with_themselves"]
    here.query(sql, budget=BUDGET)
    other = dpsql.Session(spark, schema=schema(named), ledger=tmp_path / "other.ledger")
    for each in (sql, f"SELECT COUNT(*) AS n FROM {quoted(named['orders'])}"):
        with pytest.raises(LedgerError):
            other.query(each, budget=BUDGET)
    assert other.history.height == 0
    assert_frame_equal(here.query(sql, budget=0), here.query(sql, budget=0))
    con.execute(f"COPY orders TO '{tmp_path}/orders/1.parquet'").fetchall()
    with pytest.raises(DpsqlError):
        here.query(sql, budget=0)


def test_files_of_pairs_are_looked_at_again(both, con, tmp_path, monkeypatch):
    here, _, named = both
    kept = engine.kept_rows

    def written_meanwhile(*args):
        con.execute(f"COPY items TO '{tmp_path}/items/1.parquet'").fetchall()
        return kept(*args)

    monkeypatch.setattr(engine, "kept_rows", written_meanwhile)
    with pytest.raises(StaleSchemaError):
        here.query(asked(SCRIPT, named)["pairs"], budget=BUDGET)
    assert "delivered" not in here.history["state"].to_list()


def test_pairs_that_nothing_bounds_have_a_bound_by_their_tables(both, spark, tmp_path):
    here, _, named = both
    o = named["orders"]
    pairs = f"SELECT COUNT(*) AS n FROM {quoted(o)} a JOIN {quoted(o)} b "
    pairs += "ON a.customer_id = b.customer_id JOIN {} c ON c.customer_id = a.customer_id"
    listed = ", ".join([o.partition(".")[2]] * 3)
    notes = " ".join(here.plan(pairs.format(quoted(o)), budget=BUDGET).notes)
    assert f'as "{listed}" in max_rows' in notes
    known = schema(named)
    unit = known.units[o]
    units = {**known.units, o: dpsql.Unit(unit.key, {**unit.max_rows, listed: 5})}
    again = dpsql.Schema(dict(known), units=units, references=known.references)
    session = dpsql.Session(spark, schema=again, ledger=tmp_path / "shop.ledger")
    assert not session.plan(pairs.format(quoted(o)), budget=BUDGET).notes
    session.query(pairs.format(quoted(o)), budget=BUDGET)
    assert session.history.height == 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tables", ["customers", "orders", "items", "orders, orders"])
def test_how_many_rows_units_have_is_what_duckdb_says(both, tables):
    here, there, named = both
    known = ", ".join(named[name] for name in tables.split(", "))
    one = here.rows_per_unit(known, budget=HUGE, up_to=9)
    other = there.rows_per_unit(tables, budget=HUGE, up_to=9)
    assert one["units"].sum() > 1
    assert_frame_equal(one, other, abs_tol=0.01)


def test_how_many_units_are_cut_is_what_duckdb_says(both):
    here, there, named = both
    script = {
        "orders": SCRIPT["pairs"],
        "items": "SELECT kind, COUNT(*) AS n FROM items GROUP BY 1",
    }
    one = here.release(asked(script, named), budget=HUGE, report_cut=True)
    other = there.release(script, budget=HUGE, report_cut=True)
    assert len(one) == len(other) > len(script)
    for ours, theirs in zip(one.values(), other.values(), strict=True):
        assert_frame_equal(ours, theirs, abs_tol=0.01, check_row_order=False)


def test_rows_that_belong_to_nobody_are_counted_where_they_say_so_themselves(both, con):
    here, there, named = both
    (n,) = con.execute("SELECT COUNT(*) FROM orders WHERE customer_id IS NULL").fetchone()
    answer = here.rows_without_unit(named["orders"], budget=HUGE)
    assert_frame_equal(answer, there.rows_without_unit("orders", budget=HUGE), abs_tol=0.01)
    assert round(answer["rows"][0]) == n
    with pytest.raises(SchemaError, match="doesn't enforce"):
        here.rows_without_unit(named["items"], budget=HUGE)


def test_catalogs_are_listed_once_at_a_look(both, spark, monkeypatch):
    """What one lists takes long where there are many tables, and each name is looked up."""
    here, _, named = both
    listed, tables = [], SparkCatalog._tables
    monkeypatch.setattr(
        SparkCatalog, "_tables", lambda self, schema: listed.append(schema) or tables(self, schema)
    )
    here.query(asked(SCRIPT, named)["two_steps"], budget=BUDGET)
    looks = 2  # to plan, and once more before the charge
    assert 0 < len(listed) <= looks * len(spark.catalog.listDatabases())
