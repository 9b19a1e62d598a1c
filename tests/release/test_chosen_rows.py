"""Rows that a statement chooses, so many of each unit: all of them count, with so little noise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.errors import LedgerError, SchemaError, SqlError, UnboundedError, UndeterminedError
from dpsql.rel.related import related_rows
from dpsql.request import Request, named
from dpsql.schema.names import quoted_name
from dpsql.schema.stored import table_from_json, table_to_json
from tests.release.test_private_joins import (
    HUGE,
    TABLES,
    answers,
    check_without_one,
    con,
    owned,
    shop,
    units,
)
from tests.release.test_rows_of_units import check_equal
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

__all__ = ["con"]

OF = "PARTITION BY customer_id"
LINE = f"OVER ({OF} ORDER BY id)"
PLACE = f"row_number() {LINE}"
FIRST = f"SELECT * FROM orders QUALIFY {PLACE} = 1"
ONE = dpsql.Budget(rho=1)


def placed(condition, inner="orders"):
    """Choose rows by their places, from outside."""
    return f"SELECT * FROM (SELECT *, {PLACE} AS k FROM {inner}) WHERE {condition}"


def total(source):
    return f"SELECT COUNT(*) AS n FROM ({source})"


def by_status(source):
    return f"SELECT status, COUNT(*) AS n, SUM(price) AS p FROM ({source}) GROUP BY 1"


@pytest.fixture
def session(con):
    """Two orders of a customer count, who may have seven."""
    return dpsql.Session(con, schema=units(orders=2, items=2), public=["regions"])


def table_of(session, sql):
    """Return the table whose rows a statement counts."""
    return session._data.declared.compile(Request(named(sql), HUGE)).table


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (1, by_status(FIRST)),
        (1, by_status(placed("k <= 2"))),
        (1, by_status(placed("k < 3 AND price > 7"))),
        (1, by_status(placed("1 = k"))),
        (1, by_status(placed("k BETWEEN 3 AND 4"))),
        (1, by_status(placed("k > 1 AND 3 >= k"))),
        (1, by_status(placed("k IN (2, 1)"))),
        (1, by_status(placed("k IN (1, 2) AND status IS NOT NULL"))),
        (1, by_status(f"SELECT * FROM orders WHERE price > 7 QUALIFY {PLACE} <= 2")),
        (1, by_status(placed("k = 1", "(SELECT * FROM orders WHERE status <> 'f')"))),
        (1, by_status(placed("k = 1", f"({placed('k > 1')})"))),
        (1, by_status("SELECT DISTINCT ON (customer_id) * FROM orders ORDER BY customer_id, id")),
        (1, by_status(f"SELECT * FROM orders QUALIFY {PLACE} = 1 AND lag(price) {LINE} IS NULL")),
        (1, f"WITH x AS ({FIRST}) SELECT status, COUNT(*) AS n, AVG(price) AS p FROM x GROUP BY 1"),
        (1, f"SELECT c.region, COUNT(*) AS n FROM ({FIRST}) o JOIN customers c ON o.customer_id = "
            "c.id GROUP BY 1"),
        (1, "SELECT region, COUNT(*) FROM (SELECT c.region, row_number() OVER (PARTITION BY c.id "
            "ORDER BY o.id) AS k FROM orders o JOIN customers c ON o.customer_id = c.id WHERE "
            "c.vip) WHERE k = 1 GROUP BY 1"),
        (1, f"SELECT name, COUNT(*) FROM ({FIRST}) o JOIN regions g ON g.code = o.region GROUP "
            "BY 1"),
        (1, f"SELECT name, COUNT(DISTINCT customer_id) FROM ({FIRST}) o, regions g GROUP BY 1"),
        (1, f"SELECT status, COUNT(DISTINCT customer_id) AS c, COUNT(*) AS n FROM ({FIRST}) GROUP "
            "BY 1"),
        (1, f"SELECT EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id AND qty > 4) AS e, "
            f"COUNT(*) FROM ({FIRST}) o GROUP BY 1"),
        (1, "SELECT LEAST(k, 2) AS k, COUNT(*) FROM (SELECT *, "
            f"{PLACE} AS k FROM orders) WHERE k <= 2 GROUP BY 1"),
        (1, "SELECT big, COUNT(*) FROM (SELECT MAX(price) OVER (PARTITION BY customer_id) > 300 "
            f"AS big, {PLACE} AS k FROM orders) WHERE k = 1 GROUP BY 1"),
        (1, "SELECT qty > 4 AS q, COUNT(*) FROM (SELECT i.qty, row_number() OVER (PARTITION BY "
            "o.customer_id ORDER BY i.qty DESC) AS k FROM items i JOIN orders o ON i.order_id = "
            "o.id) WHERE k <= 2 GROUP BY 1"),
        (1, f"SELECT status, COUNT(*) FROM (SELECT status FROM orders QUALIFY {PLACE} = 1 UNION "
            f"ALL SELECT 'none' FROM customers WHERE vip) GROUP BY 1"),
        (0, f"SELECT COUNT(*), SUM(price), MEDIAN(price) FROM ({FIRST}) WHERE price IS NOT NULL"),
        (0, f"SELECT COUNT(*) FROM ({FIRST}) a JOIN customers c ON a.customer_id = c.id WHERE "
            "a.price > c.balance"),
    ],
)  # fmt: skip
def test_it_is_what_duckdb_says_though_fewer_rows_count(con, session, keys, sql):
    check_equal(con, session, sql, keys)


@pytest.mark.parametrize(
    ("rows", "source"),
    [
        (1, FIRST),
        (1, placed("k = 3")),
        (4, placed("k BETWEEN 2 AND 5")),
        (4, placed("k >= 2 AND k < 6 AND k <> 3")),
        (7, placed("k IN (1, 7)")),
        (2, placed("(k <= 5 AND k <= 2)")),
        (3, f"SELECT * FROM orders QUALIFY {PLACE} <= 5 AND row_number() OVER ({OF} ORDER BY "
            "price, id) <= 3"),
        # The statuses are three and NULL.
        (4, f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, status) = 1"),
        (8, f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, status) <= 2"),
        (4, f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, status = 'f') = 1"),
        (4, "SELECT DISTINCT ON (customer_id, status) * FROM orders"),
        # A customer has one region, however many there are.
        (1, "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id QUALIFY "
            "row_number() OVER (PARTITION BY c.id, c.region, c.note) = 1"),
        # None of these bounds the rows of a customer.
        (None, placed("k = 1 OR price > 7")),
        (None, placed("NOT k > 1")),
        (None, placed("k > 1")),
        (None, placed("k <> 1")),
        (None, placed("k <= 0")),
        (None, placed("k <= price")),
        (None, placed("k = 1.5")),
        (None, placed("k + 0 = 1")),
        (None, placed("(k = 1) IS NOT TRUE")),
        (None, placed("COALESCE(k = 1, true)")),
        (None, placed("CASE WHEN price > 7 THEN k = 1 ELSE true END")),
        (None, placed("k IN (1, price)")),
        (None, f"SELECT * FROM orders QUALIFY rank() {LINE} = 1"),
        (None, f"SELECT * FROM orders QUALIFY dense_rank() {LINE} <= 2"),
        (None, f"SELECT * FROM orders QUALIFY ntile(4) {LINE} = 1"),
        (None, f"SELECT * FROM orders QUALIFY COUNT(*) {LINE} = 1"),
        (None, f"SELECT * FROM orders QUALIFY lag(price) {LINE} IS NULL"),
    ],
)  # fmt: skip
def test_what_bounds_the_rows_of_a_unit_and_what_does_not(con, rows, source):
    session = dpsql.Session(con, schema=units(orders=20))
    found = table_of(session, total(source))
    check_equal(con, session, total(source), 0)
    if rows is None:
        assert (found.path[-1], found.unit_rows) == ("orders", 20)
    else:
        assert max(kept_by_unit(con, found).values()) <= rows
        assert found.unit_rows == rows
        assert related_rows(found) is not None


def kept_by_unit(con, table, *others):
    """Return how many rows are kept of each customer, and of each value of other columns."""
    parameters, known = Parameters(), [*table.columns, *table.undeclared]
    names = [
        next(one for one in known if one == name or one.endswith(f".{name}"))
        for name in ("customer_id", *others)
    ]
    listed = ", ".join(map(quoted_name, names))
    sql = f"SELECT {listed} FROM ({kept_rows(table, names, parameters)})"
    return Counter(con.execute(sql, parameters.values).fetchall())


OF_ANY_NUMBER = [
    f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, id) = 1",
    f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, id // 9) = 1",
    "SELECT DISTINCT ON (customer_id, address_id) * FROM orders ORDER BY price, id",
    "SELECT DISTINCT customer_id, address_id FROM orders",
    "SELECT qty FROM items QUALIFY row_number() OVER (PARTITION BY order_id) = 1",
    "SELECT i.qty FROM items i JOIN orders o ON i.order_id = o.id QUALIFY row_number() "
    "OVER (PARTITION BY o.id, o.customer_id) = 1",
]


@pytest.mark.parametrize("source", OF_ANY_NUMBER)
def test_of_rows_with_places_beside_what_has_any_value_max_rows_count(con, source):
    session = dpsql.Session(con, schema=units(orders=5, items=5))
    table = table_of(session, total(source))
    assert table.unit_rows == 5
    loose = dpsql.Schema({}, units={"orders": dpsql.Unit("customer_id")})
    if "items" not in source:
        with pytest.raises(SqlError, match="how many rows"):
            dpsql.Session(con, schema=loose).query(total(source), budget=ONE)
    if "SELECT qty" not in source:  # whose rows have no column of the customer
        assert 1 < max(kept_by_unit(con, table).values()) <= 5
    few = dpsql.Session(con, schema=units(orders=20, items=50))
    check_equal(con, few, total(source), 0)


@pytest.mark.parametrize("source", OF_ANY_NUMBER)
def test_where_more_are_chosen_than_count_it_is_chosen_ones_that_count(con, source):
    """So that others take no room."""
    session = dpsql.Session(con, schema=units(orders=2, items=2))
    customer = "(SELECT customer_id FROM orders WHERE orders.id = items.order_id) AS customer_id"
    shown = source.replace("i.qty", "o.customer_id").replace("SELECT qty", f"SELECT {customer}")
    true = owned(con).execute(
        "SELECT SUM(LEAST(n, 2)) FROM (SELECT COUNT(*) AS n FROM "
        f"({shown}) WHERE customer_id IS NOT NULL GROUP BY customer_id)"
    )
    assert round(answers(session, total(source))["n"][0]) == true.fetchone()[0]


@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (0, "SELECT COUNT(*) FROM (SELECT DISTINCT customer_id, status FROM orders)"),
        (1, "SELECT status, COUNT(*) FROM (SELECT DISTINCT customer_id, status FROM orders) GROUP "
            "BY 1"),
        (1, "SELECT s, COUNT(*) FROM (SELECT status AS s, customer_id AS c FROM orders WHERE "
            "price > 7 GROUP BY customer_id, status) GROUP BY 1"),
        (1, "WITH x AS (SELECT DISTINCT customer_id, status, region FROM orders) SELECT region, "
            "COUNT(*) FROM x WHERE status = 'f' GROUP BY 1"),
        (1, "SELECT region, COUNT(*) FROM (SELECT DISTINCT c.id, c.region, o.status FROM orders o "
            "JOIN customers c ON o.customer_id = c.id) GROUP BY 1"),
        (1, "SELECT name, COUNT(*) FROM (SELECT DISTINCT customer_id, region FROM orders) o JOIN "
            "regions g ON g.code = o.region GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM (SELECT DISTINCT customer_id, address_id FROM orders)"),
        (0, "SELECT COUNT(*) FROM (SELECT DISTINCT customer_id FROM orders)"),
    ],
)  # fmt: skip
def test_what_differs_in_a_unit_is_counted(con, keys, sql):
    session = dpsql.Session(con, schema=units(orders=12), public=["regions"])
    check_equal(con, session, sql, keys)


def test_of_what_differs_each_has_one_row(con):
    """So rows of a unit lie in cells of their own, and cost as much less."""
    session = dpsql.Session(con, schema=units(orders=20))
    sql = "SELECT status, COUNT(*) AS n FROM (SELECT DISTINCT customer_id, status FROM orders) "
    table = table_of(session, sql + "GROUP BY 1")
    assert max(kept_by_unit(con, table, "status").values()) == 1
    assert (table.unit_rows, table.unit.limits) == (4, ((("status",), 1),))
    error = session.plan(sql + "GROUP BY 1", budget=ONE).expected_error()["rmse"][0]
    assert error == pytest.approx((4 / 2) ** 0.5, rel=0.01)


def test_what_differs_in_a_unit_has_a_domain_in_a_query_of_its_own(con, session):
    for other in ("SELECT status, COUNT(*) FROM orders GROUP BY customer_id, status",
                  "SELECT DISTINCT status, customer_id FROM orders"):  # fmt: skip
        with pytest.raises(SqlError, match="no public domain"):
            session.query(other, budget=ONE)


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_so_many_are_kept_whatever_the_condition_lets_through(con, bound):
    """The bound doesn't rest on what was found out about the condition."""
    session = dpsql.Session(con, schema=units(orders=20))
    table = table_of(session, total(placed("k <= 6")))
    fewer = replace(table, unit=replace(table.unit, max_rows=bound))
    kept = kept_by_unit(con, fewer)
    assert max(kept.values()) == bound
    orders = Counter(owned(con).execute("SELECT customer_id FROM orders").fetchall())
    assert kept == {customer: min(n, bound) for customer, n in orders.items()}


def test_rows_of_nobody_are_not_chosen(con, session):
    """In DuckDB's own partitions they are those of one more customer."""
    ((n,),) = answers(session, total(FIRST)).rows()
    assert round(n) == len(kept_by_unit(con, table_of(session, total(FIRST))))
    assert round(n) == con.execute(total(FIRST)).fetchone()[0] - 1


def test_of_rows_that_tie_so_many_are_chosen_as_there_are_places(con, session):
    sql = total(f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY status) <= 2")
    check_equal(con, session, sql, 0)


def test_the_noise_is_that_of_the_chosen_rows(con):
    """Whatever the table's bound is: 3 rows of a customer in place of 20."""
    session = dpsql.Session(con, schema=units(orders=20))
    sql = {"all": by_status("SELECT * FROM orders"), "three": by_status(placed("k <= 3"))}
    errors = {
        name: session.plan({name: one}, budget=ONE).expected_error()["rmse"].to_list()
        for name, one in sql.items()
    }
    for mine, theirs in zip(errors["three"], errors["all"], strict=True):
        assert mine == pytest.approx(theirs * 3 / 20, rel=1e-3)
    few = dpsql.Session(con, schema=units(orders=3))
    other = few.plan({"all": sql["all"]}, budget=ONE).expected_error()["rmse"].to_list()
    assert errors["three"] == pytest.approx(other, rel=1e-6)
    count = session.release(total(placed("k <= 3")), budget=ONE)["query"]
    assert count["n_variance"][0] == pytest.approx(9 / 2, rel=0.01)


def test_a_unit_changes_as_much_as_is_charged_and_no_more():
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con, 3, customers=8, apart=5)
    con.execute("DELETE FROM items; DELETE FROM orders WHERE customer_id = 5")
    con.execute("INSERT INTO orders SELECT 100 + i, 5, NULL, 'f', 7, 'n' FROM range(9) AS t(i)")
    asked = {"script": {"a": total(placed("k <= 4"))}, "schema": units(orders=20)}
    whole = recorded(con, asked, budget=ONE)
    con.execute("DELETE FROM orders WHERE customer_id = 5")
    fewer = recorded(con, asked, budget=ONE)
    check_alike(whole, fewer)
    assert whole.certified.contributions == 4
    assert spent(whole, fewer) == charged(whole)


SCRIPTS = [
    {"a": by_status(FIRST)},
    {"a": by_status(placed("k <= 2")), "b": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1"},
    {"a": by_status(f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY price) <= 3"),
     "b": by_status(f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, status) = 1"),
     "c": f"SELECT region, COUNT(DISTINCT customer_id) AS n FROM ({FIRST}) GROUP BY 1",
     "d": "SELECT region, COUNT(*) AS n FROM (SELECT DISTINCT customer_id, region FROM orders) "
          "GROUP BY 1",
     "e": "SELECT COUNT(*) AS n FROM (SELECT DISTINCT customer_id, address_id FROM orders)"},
    {"a": "SELECT city, COUNT(*) AS n FROM (SELECT city, row_number() OVER (PARTITION BY "
          "o.customer_id ORDER BY price DESC) AS k FROM orders o LEFT JOIN addresses a ON "
          "o.address_id = a.id) WHERE k <= 2 GROUP BY 1"},
    {"a": "SELECT e, COUNT(*) AS n FROM (SELECT EXISTS (SELECT 1 FROM items i WHERE i.order_id = "
          f"o.id AND qty > 4) AS e, {PLACE} AS k FROM orders o WHERE price > 7) WHERE k = 1 GROUP "
          "BY 1",
     "b": "SELECT qty, COUNT(*) AS n FROM (SELECT qty FROM items i JOIN orders o ON i.order_id = "
          "o.id QUALIFY row_number() OVER (PARTITION BY o.customer_id ORDER BY qty) <= 2) GROUP "
          "BY 1"},
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(80))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])


def test_all_and_chosen_rows_are_planned_together(con):
    session = dpsql.Session(con, schema=units(orders=20))
    script = {
        "all": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "first": f"SELECT status, COUNT(*) AS n FROM ({FIRST}) GROUP BY 1",
        "big": f"SELECT COUNT(*) AS n FROM ({FIRST}) WHERE price > 7",
        "last": f"SELECT COUNT(*) AS n FROM orders QUALIFY row_number() OVER ({OF} ORDER BY id "
        "DESC) = 1",
    }
    script["last"] = total(
        f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY id DESC) = 1"
    )
    plan = session.plan(script, budget=ONE)
    assert plan.neighbours == (
        "add or remove one customers.id with all of its rows, of which at most 20 of orders, "
        "1 of chosen orders and 1 of chosen orders are kept; its rows are found in "
        "orders by orders.customer_id → customers"
    )
    tables = session._data.declared.compile(Request(tuple(script.items()), ONE)).tables
    assert [table.contributions for table in tables] == [20, 1, 1]
    errors = dict(plan.expected_error().select("statement", "rmse").rows())
    assert errors["all"] > 10 * errors["first"]
    release = session.release(script, budget=HUGE)
    for name, sql in script.items():
        true = sorted(owned(con).execute(sql).fetchall(), key=str)
        found = release[name].select(pl_names(release[name])).rows()
        assert [row[-1] for row in sorted(found, key=str)] == pytest.approx(
            [row[-1] for row in true], abs=0.1
        )


def test_a_plan_says_that_rows_are_chosen(con):
    session = dpsql.Session(con, schema=units(orders=20))
    note = "of orders only those rows count that a window chooses, at most 1 of each unit"
    assert session.plan(total(FIRST), budget=ONE).notes == (note,)


def pl_names(frame):
    return [name for name in frame.columns if not name.endswith("_variance")]


def test_rows_that_are_chosen_need_no_other_bound(con):
    schema = dpsql.Schema({}, units={**units().units, "orders": dpsql.Unit("customer_id")})
    session = dpsql.Session(con, schema=schema)
    with pytest.raises(SqlError, match="how many rows") as caught:
        session.query(total("SELECT * FROM orders"), budget=ONE)
    assert not isinstance(caught.value, UnboundedError)
    for bad in (f"SELECT * FROM orders QUALIFY rank() {LINE} = 1", placed("k = 1 OR price > 7")):
        with pytest.raises(SqlError, match="how many rows"):
            session.query(total(bad), budget=ONE)
    assert not session.history.height
    check_equal(con, session, by_status(FIRST), 1)
    check_equal(con, session, total(placed("k <= 5")), 0)
    # What is over all rows of the table is refused beside it as well.
    with pytest.raises(SqlError, match="how many rows") as caught:
        session.release({"a": total(FIRST), "b": total("FROM orders")}, budget=ONE)
    assert caught.value.statement == "b"


OTHERS = [
    placed("k = 2"),
    placed("k <= 2"),
    f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY id DESC) = 1",
    f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY price) = 1",
    f"SELECT * FROM orders WHERE price > 7 QUALIFY {PLACE} = 1",
    f"SELECT * FROM orders QUALIFY row_number() OVER ({OF}, status ORDER BY id) = 1",
    "SELECT * FROM orders",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("other", OTHERS)
def test_measurements_of_other_rows_are_not_used(session, tmp_path, other):
    sql, asked = "SELECT COUNT(*) AS n FROM ({})", by_status(FIRST)
    release = session.release({"a": asked}, budget=ONE)
    again = sql.format(FIRST) + " WHERE status = 'f'"
    value = session.query(again, budget=0)["n"][0]
    with pytest.raises(UndeterminedError):
        session.query(sql.format(other), budget=0)
    release.save(tmp_path / "out")
    for known in (release, dpsql.Release.load(tmp_path / "out")):
        assert known.query(again)["n"][0] == pytest.approx(value)
        with pytest.raises(SchemaError, match=r"have these rows: chosen orders|no table orders"):
            known.query(sql.format(other))


@pytest.mark.parametrize("condition", ["k < 2", "k <= 1", "1 = k"])
def test_rows_that_are_chosen_otherwise_are_the_same(session, condition):
    release = session.release({"a": by_status(FIRST)}, budget=ONE)
    value = release["a"].filter(pl.col("status") == "f")["n"][0]
    for source in (FIRST, placed(condition)):
        again = f"SELECT COUNT(*) AS n FROM ({source}) WHERE status = 'f'"
        assert session.query(again, budget=0)["n"][0] == pytest.approx(value)


def test_what_was_measured_before_is_used_for_the_same_rows(con):
    session = dpsql.Session(con, schema=units(orders=20))
    # Without a sum of prices, whose joint cells with the status are 1,600.
    sql = {"a": f"SELECT status, COUNT(*) AS n FROM ({FIRST}) GROUP BY 1"}
    one = session.release(sql, budget=ONE)["a"]["n_variance"][0]
    assert session.release(sql, budget=ONE)["a"]["n_variance"][0] < 0.6 * one
    both = {**sql, "b": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1"}
    assert session.release(both, budget=ONE)["a"]["n_variance"][0] < 0.5 * one


def test_a_folder_with_several_relations_answers_more(con, tmp_path):
    session = dpsql.Session(con, schema=units(orders=20), public=["regions"])
    script = {
        "all": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "first": f"SELECT c.region, status, COUNT(*) AS n, SUM(price) AS p FROM ({FIRST}) o JOIN "
        "customers c ON o.customer_id = c.id GROUP BY ALL",
        "customers": "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1",
    }
    release = session.release(script, budget=ONE)
    release.save(tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out")
    for name, sql in script.items():
        for known in (release, loaded):
            for mine, theirs in zip(known.query(sql).rows(), release[name].rows(), strict=True):
                assert mine == pytest.approx(theirs)
    assert loaded.neighbours == release.neighbours
    region = f"SELECT c.region, COUNT(*) AS n FROM ({FIRST}) o JOIN customers c ON o.customer_id "
    region += "= c.id WHERE o.status = 'f' GROUP BY 1"
    assert loaded.query(region).height == 3
    with pytest.raises((SchemaError, UndeterminedError)):
        loaded.query(region.replace("= 1)", "= 2)"))


@pytest.mark.parametrize("source", [FIRST, placed("k <= 9")])
def test_which_rows_were_chosen_is_kept(session, source):
    table = table_of(session, by_status(source)).without_keys
    document = table_to_json(table)
    read = table_from_json(document)
    assert read.origin.digest == table.origin.digest
    assert (read.path, read.unit) == (table.path, table.unit)
    assert table_to_json(read) == document
    for key, value in (("digest", 0), ("base", None)):
        with pytest.raises(SchemaError, match="damaged"):
            table_from_json({**document, "below": {**document["below"], key: value}})


CHOSEN = {"path": ["memory", "main", "orders"], "window": "row_number", "first": 1, "last": 2}


def test_chosen_rows_of_former_releases_are_read(session):
    """They had a column with places, and knew which of these were chosen."""
    document = table_to_json(table_of(session, by_status("SELECT * FROM orders")).without_keys)
    document |= {"path": ["memory", "main", "orders 0123456789abcdef"]}
    chosen = {**CHOSEN, "unit": document["unit"], "rows": 2}
    read = table_from_json({**document, "chosen": chosen})
    assert table_to_json(read)["chosen"] == chosen
    assert read.stored.path == read.path
    for key, value in (("first", 0), ("last", 0), ("rows", 0), ("path", list("abcd"))):
        with pytest.raises(SchemaError, match="damaged"):
            table_from_json({**document, "chosen": {**chosen, key: value}})
    with pytest.raises(SchemaError, match="damaged"):
        table_from_json({**document, "chosen": chosen, "unit": None})


def test_all_chosen_rows_count_so_none_are_reported_as_cut(con):
    session = dpsql.Session(con, schema=units(orders=2))
    with pytest.raises(SchemaError, match="No rows are left out here"):
        session.release({"a": total(FIRST)}, budget=HUGE, report_cut=True)
    each = {"a": total("SELECT DISTINCT customer_id, status FROM orders")}
    with pytest.raises(SchemaError, match="No rows are left out here"):
        dpsql.Session(con, schema=units(orders=9)).release(each, budget=HUGE, report_cut=True)


def test_of_chosen_rows_those_are_reported_that_do_not_count(con):
    session = dpsql.Session(con, schema=units(orders=2))
    many = "SELECT COUNT(*) FROM (SELECT 1 FROM orders GROUP BY customer_id HAVING COUNT(*) > 2)"
    ((true,),) = owned(con).execute(many).fetchall()
    # Of six that are chosen two count.
    found = session.release({"a": total(placed("k <= 6"))}, budget=HUGE, report_cut=True)
    assert round(found["units_cut"]["units_cut"][0]) == true
    # Two choices are two relations, whose units are counted each.
    last = f"SELECT * FROM orders QUALIFY row_number() OVER ({OF} ORDER BY id DESC) <= 6"
    both = {"a": total(placed("k <= 6")), "b": total(last)}
    several = session.release(both, budget=HUGE, report_cut=True)
    cut = [name for name in several if "cut" in name]
    assert [round(several[name]["units_cut"][0]) for name in cut] == [true, true]
    kept = owned(con).execute("SELECT SUM(LEAST(n, 2)) FROM (SELECT COUNT(*) AS n FROM orders "
                              "GROUP BY customer_id)").fetchone()[0]  # fmt: skip
    assert round(found["a"]["n"][0]) == kept


def test_where_all_chosen_rows_count_others_are_reported_alone(con):
    session = dpsql.Session(con, schema=units(orders=2))
    found = session.release(
        {"a": total(FIRST), "b": total("FROM orders")}, budget=HUGE, report_cut=True
    )
    many = "SELECT COUNT(*) FROM (SELECT 1 FROM orders GROUP BY customer_id HAVING COUNT(*) > 2)"
    ((true,),) = owned(con).execute(many).fetchall()
    assert round(found["units_cut"]["units_cut"][0]) == true


def test_units_are_reported_of_which_limits_cut_chosen_rows(con):
    unit = dpsql.Unit("customer_id", 9, max_rows_per={"region": 1})
    limited = dpsql.Session(con, schema=dpsql.Schema({}, units={"orders": unit}))
    found = limited.release({"a": total(placed("k <= 4"))}, budget=HUGE, report_cut=True)
    many = f"SELECT customer_id FROM ({placed('k <= 4')}) GROUP BY customer_id, region HAVING "
    many = f"SELECT COUNT(DISTINCT customer_id) FROM ({many} COUNT(*) > 1)"
    ((true,),) = owned(con).execute(many).fetchall()
    assert round(found["units_cut"]["units_cut"][0]) == true


def test_the_table_itself_is_bound_to_its_unit_too(con):
    session = dpsql.Session(con, schema=units(orders=2))
    session.query(total(FIRST), budget=ONE)
    other = session.redeclared(unit=dpsql.Unit("address_id", 2))
    with pytest.raises(LedgerError, match="unit"):
        other.query(total("SELECT status FROM orders"), budget=ONE)
    # Of the table itself all else may be asked, in any order.
    session.query(total("SELECT * FROM orders"), budget=ONE)
    session.query(total(FIRST), budget=ONE)
    more = session.redeclared(schema=units(orders=3))
    more.query(total(FIRST), budget=ONE)
    spent = session.history["rho"].sum() if "rho" in session.history.columns else None
    assert spent is None or spent >= 4


def test_where_another_number_of_chosen_rows_counts_they_are_other_rows(con):
    """So they are measured anew, and what was measured before is none of them."""
    asked = total(placed("k <= 9"))
    session = dpsql.Session(con, schema=units(orders=2))
    session.query(asked, budget=ONE)
    more = session.redeclared(schema=units(orders=3))
    with pytest.raises(UndeterminedError):
        more.query(asked, budget=0)
    more.query(asked, budget=ONE)
    assert session.history.height == 2


def test_a_column_that_is_altered_makes_a_plan_stale(con, session):
    table = table_of(session, by_status(FIRST))
    session._data.verify(table)
    con.execute("ALTER TABLE orders ADD COLUMN more INTEGER")
    with pytest.raises(dpsql.StaleSchemaError, match="orders was altered"):
        session._data.verify(table)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("rows", [9, None])
def test_limits_for_rows_that_agree_are_kept_to(con, limit, rows):
    """Also where nothing else bounds the rows of a unit than that a statement chooses some."""
    unit = dpsql.Unit("customer_id", rows, max_rows_per={"status": limit})
    session = dpsql.Session(con, schema=dpsql.Schema({}, units={"orders": unit}))
    table = table_of(session, by_status(placed("k <= 4")))
    kept = kept_by_unit(con, table, "status")
    assert max(kept_by_unit(con, table).values()) <= 4
    assert max(kept.values()) == limit


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_neighbors_differ_by_what_is_charged_where_only_limits_are_declared(seed):
    con = duckdb.connect()
    con.execute(TABLES)
    unit = dpsql.Unit("customer_id", max_rows_per={"status": 1})
    script = {"a": by_status(placed("k <= 4")), "b": total(placed("k <= 4"))}
    asked = {"script": script, "schema": dpsql.Schema({}, units={"orders": unit})}
    shop(con, seed, customers=12, apart=seed)
    whole = recorded(con, asked, budget=ONE)
    shop(con, seed, customers=12, apart=seed, without=seed)
    fewer = recorded(con, asked, budget=ONE)
    check_alike(whole, fewer)
    assert 0 < spent(whole, fewer) <= charged(whole)
    assert {s.share for s in whole.certified.spreads} == {Fraction(1, 4)}


def test_chosen_rows_by_other_limits_are_other_rows_of_the_same_table(con):
    sql, limits = total(placed("k <= 4")), ({}, {"status": 2}, {"status": 1})
    counted, session = [], dpsql.Session(con)
    for per in limits:
        unit = dpsql.Unit("customer_id", max_rows_per=per)
        declared = {"schema": dpsql.Schema({}, units={"orders": unit})}
        session = session.redeclared(**declared)
        with pytest.raises(UndeterminedError):
            session.query(sql, budget=0)
        counted.append(round(session.query(sql, budget=HUGE)["n"][0]))
    by = "SELECT customer_id, status, COUNT(*) AS n FROM ({}) GROUP BY ALL"
    for found, most in zip(counted, (4, 2, 1), strict=True):
        kept = f"SELECT SUM(LEAST(n, {most})) FROM ({by.format(placed('k <= 4'))})"
        assert owned(con).execute(kept).fetchall() == [(found,)]


def test_pairs_of_rows_are_chosen_too(con, tmp_path):
    bounds = {"orders": 20, "addresses": 9, "addresses, orders": 60}
    unit = dpsql.Unit("customer_id", bounds)
    schema = dpsql.Schema({}, units={**units().units, "orders": unit, "addresses": unit})
    session = dpsql.Session(con, schema=schema)
    sql = (
        "SELECT city, COUNT(*) AS n FROM (SELECT city, row_number() OVER (PARTITION BY {} ORDER BY "
        "o.id, a.id) AS k FROM orders o JOIN addresses a ON o.customer_id = a.customer_id) WHERE "
        "k <= 2 GROUP BY 1"
    )
    script = {name: sql.format(f"{name}.customer_id") for name in "oa"}
    assert table_of(session, script["o"]).contributions == 2
    release = session.release({**script, "q": by_status(FIRST)}, budget=HUGE)
    true = dict(owned(con).execute(script["o"]).fetchall())
    for name in script:
        assert dict(release[name].select("city", "n").rows()) == pytest.approx(true, abs=0.1)
    release.save(tmp_path / "out")
    for known in (release, dpsql.Release.load(tmp_path / "out")):
        for one in script.values():
            rows = known.query(one).select("city", "n").rows()
            assert dict(rows) == pytest.approx(true, abs=0.1)
        with pytest.raises(SchemaError):
            known.query(script["o"].replace("<= 2", "<= 3"))


def test_views_have_chosen_rows_too(con):
    con.execute("CREATE VIEW late AS SELECT * FROM orders WHERE status <> 'p'")
    session = dpsql.Session(con, schema=dpsql.Schema({}, units={"late": units().units["orders"]}))
    sql = by_status(FIRST.replace("orders", "late"))
    found = table_of(session, sql)
    assert found.unit_rows == 1
    assert set(kept_by_unit(con, found).values()) == {1}
    other = owned(con)
    other.execute("CREATE VIEW late AS SELECT * FROM orders WHERE status <> 'p'")
    for status, n, _ in answers(session, sql).rows():
        true = other.execute(f"SELECT COUNT(*) FROM ({FIRST.replace('orders', 'late')}) WHERE "
                             "status IS NOT DISTINCT FROM ?", [status]).fetchone()[0]  # fmt: skip
        assert round(n) == true


def test_ids_may_be_of_several_columns(con):
    con.execute("CREATE TABLE v (a INTEGER, b VARCHAR, n INTEGER CHECK (n BETWEEN 0 AND 3))")
    con.execute("INSERT INTO v SELECT i % 3, i % 2, i % 4 FROM range(40) AS t(i)")
    pairs = dpsql.Session(con, unit="a, b", max_rows=5)
    for keys in ("a, b", "b, a"):
        sql = total(f"SELECT * FROM v QUALIFY row_number() OVER (PARTITION BY {keys}) = 1")
        assert table_of(pairs, sql).contributions == 1
        assert round(answers(pairs, sql)["n"][0]) == 6
    with pytest.raises(SqlError, match="single rows"):
        pairs.query(sql.replace("PARTITION BY b, a", "PARTITION BY a"), budget=ONE)
