"""Queries with one group for each row: joined with it, or counted themselves."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError, SqlError, UnsupportedSqlError
from tests.helpers.inserted import insert
from tests.release.test_private_joins import (
    HUGE,
    answers,
    check_without_one,
    con,
    session,
)
from tests.release.test_rows_of_units import check_equal

__all__ = ["con", "session"]

GROUPS = (
    "(SELECT customer_id, COUNT(*) AS n, MAX(price) AS m, SUM(price) AS p FROM orders "
    "GROUP BY customer_id)"
)
ON = "ON p.customer_id = c.id"


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (1, f"SELECT region, COUNT(*) FROM customers c LEFT JOIN {GROUPS} p {ON} WHERE p.n > 1 "
            "GROUP BY region"),
        (1, f"SELECT LEAST(COALESCE(p.n, 0), 5) AS k, COUNT(*) FROM customers c LEFT JOIN {GROUPS} "
            f"p {ON} GROUP BY 1"),
        (1, f"SELECT LEAST(n, 5) AS k, COUNT(*) FROM customers c LEFT JOIN {GROUPS} p {ON} "
            "GROUP BY 1"),
        (1, f"SELECT region, COUNT(*) FROM customers c LEFT JOIN {GROUPS} p {ON} AND p.m > 7 AND "
            "vip WHERE p.customer_id IS NULL GROUP BY 1"),
        (1, f"SELECT p.n > 2 OR p.p > 500 AS k, COUNT(*) FROM customers c JOIN {GROUPS} p {ON} "
            "GROUP BY 1"),
        (1, f"SELECT region, COUNT(*) FROM customers c, {GROUPS} p WHERE p.customer_id = c.id AND "
            "m > 7 GROUP BY 1"),
        (1, f"WITH p AS {GROUPS} SELECT region, COUNT(*) FROM customers c JOIN p {ON} AND p.n > 1 "
            "GROUP BY 1"),
        (1, f"WITH p(a, b) AS {GROUPS} SELECT region, COUNT(*) FROM customers c SEMI JOIN p "
            "ON a = c.id AND b > 1 GROUP BY 1"),
        (1, f"WITH p(a, b) AS {GROUPS} SELECT region, COUNT(*) FROM customers c ANTI JOIN p "
            "ON a = c.id AND b > 1 GROUP BY 1"),
        (1, f"SELECT region, COUNT(*) FROM {GROUPS} p JOIN customers c {ON} GROUP BY 1"),
        (1, f"SELECT LEAST(n, 5) AS k, COUNT(*) FROM {GROUPS} GROUP BY 1"),
        (1, f"WITH p AS {GROUPS} SELECT LEAST(n, 5) AS k, COUNT(*) FROM p WHERE m > 7 GROUP BY 1"),
        (1, "SELECT r, COUNT(*) FROM (SELECT c.region r, c.id, COUNT(*) AS n FROM orders o JOIN "
            "customers c ON o.customer_id = c.id WHERE price > 7 GROUP BY ALL HAVING COUNT(*) > 1) "
            "GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o LEFT JOIN (SELECT customer_id, COUNT(*) n FROM "
            "addresses WHERE city = 'a' GROUP BY customer_id) a USING (customer_id) WHERE a.n IS "
            "NULL GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM (SELECT DISTINCT customer_id FROM orders WHERE status = 'f')"),
        (1, "SELECT region, COUNT(*) FROM customers c JOIN (SELECT DISTINCT customer_id FROM "
            "orders WHERE status = 'f') x ON x.customer_id = c.id GROUP BY 1"),
        (1, "SELECT LEAST(a.n, 3) x, COUNT(*) FROM (SELECT customer_id, COUNT(*) n FROM orders "
            "GROUP BY 1) a JOIN (SELECT customer_id, COUNT(*) n FROM addresses GROUP BY 1) b ON "
            "a.customer_id = b.customer_id WHERE b.n > 0 GROUP BY 1"),
        (1, "SELECT q, COUNT(*) FROM (SELECT o.customer_id, GREATEST(LEAST(SUM(i.qty), 9), 0) q "
            "FROM items i JOIN orders o ON i.order_id = o.id GROUP BY o.customer_id) GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o JOIN (SELECT order_id, SUM(qty) AS q FROM items "
            "GROUP BY order_id HAVING q > 9) i ON i.order_id = o.id GROUP BY 1"),
        (1, "SELECT x.region, COUNT(*) FROM customers x JOIN (SELECT c.id, c.vip, COUNT(*) n FROM "
            "orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.id, c.vip) p ON p.id = "
            "x.id WHERE p.vip GROUP BY 1"),
        (1, "SELECT name, COUNT(*) FROM customers c JOIN regions g ON g.code = c.region LEFT JOIN "
            f"{GROUPS} p {ON} WHERE p.n > 1 OR g.name = 'North' AND p.n IS NULL GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o WHERE o.id IN (SELECT order_id FROM items GROUP "
            "BY order_id HAVING SUM(qty) > 9) GROUP BY 1"),
        (1, "SELECT region, COUNT(*) FROM customers c WHERE c.id NOT IN (SELECT customer_id FROM "
            "orders GROUP BY 1 HAVING COUNT(*) > 1) GROUP BY 1"),
        (1, "SELECT region, COUNT(*) FROM customers c WHERE c.id NOT IN (SELECT DISTINCT "
            "customer_id FROM orders) GROUP BY 1"),
        # Sums of sums are those of rows, whatever the groups.
        (1, "SELECT status, SUM(p) FROM (SELECT customer_id, status, SUM(price) AS p FROM orders "
            "WHERE price > 0 GROUP BY ALL) GROUP BY status"),
        (1, "SELECT status AS s, SUM(n) FROM (SELECT customer_id, status, COUNT(*) AS n FROM "
            "orders GROUP BY 1, 2) x WHERE x.status <> 'f' GROUP BY s ORDER BY s"),
        (0, f"SELECT SUM(LEAST(n, 20)), AVG(LEAST(n, 20)) FROM {GROUPS}"),
    ],
)  # fmt: skip
def test_it_is_what_duckdb_says(con, session, keys, sql):
    check_equal(con, session, sql, keys)


OF_ONE = "(?s)must say that both rows are of one unit.*p.customer_id = [co]"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (f"customers c JOIN {GROUPS} p ON TRUE", OF_ONE),
        (f"customers c JOIN {GROUPS} p ON p.customer_id <> c.id", OF_ONE),
        (f"customers c JOIN {GROUPS} p ON p.n = c.id", OF_ONE),
        (f"customers c JOIN {GROUPS} p ON p.customer_id = c.balance", OF_ONE),
        (f"customers c JOIN {GROUPS} p ON p.customer_id = c.id + 0", OF_ONE),
        (f"customers c JOIN {GROUPS} p ON p.customer_id = c.id OR c.vip", OF_ONE),
        (f"orders o JOIN {GROUPS} p ON p.customer_id = o.id", OF_ONE),
        (f"customers c FULL JOIN {GROUPS} p ON p.n = c.id", OF_ONE),
        ("customers c JOIN (SELECT id, COUNT(*) n FROM stores GROUP BY 1) p ON p.id = c.id",
         "Noisy answers|group"),
        ("customers c JOIN (SELECT customer_id, COUNT(*) n FROM orders GROUP BY ROLLUP "
         f"(customer_id)) p {ON}", "Noisy answers"),
        (f"customers c JOIN (SELECT customer_id, ANY_VALUE(price) n FROM orders GROUP BY 1) p {ON} "
         "AND p.n > 7", "can't be computed"),
        (f"customers c JOIN (SELECT customer_id, price + 1 n FROM orders GROUP BY 1) p {ON} AND "
         "p.n > 1", "price stands outside of aggregates, and is not grouped by"),
        (f"customers c JOIN (SELECT customer_id, COUNT(*) n FROM orders GROUP BY 1 LIMIT 3) p {ON}",
         "LIMIT of single rows"),
        ("customers c JOIN (SELECT customer_id, row_number() OVER () n FROM orders GROUP BY 1) p "
         f"{ON} AND p.n > 3", "window over single rows"),
        ("customers c JOIN (SELECT o.customer_id, COUNT(*) n FROM orders o, addresses a GROUP BY "
         f"1) p {ON}", "join of private|Noisy answers"),
        ("(SELECT SUM(n) OVER () AS s FROM (SELECT customer_id, status, COUNT(*) n FROM orders "
         "GROUP BY 1, 2)) WHERE s > 3", "no public domain|window"),
        ("(SELECT SUM(n) AS s, price FROM (SELECT customer_id, status, COUNT(*) n FROM orders "
         "GROUP BY 1, 2) GROUP BY price)", "no public domain|not|price"),
    ],
)  # fmt: skip
def test_others_are_refused_before_the_charge(session, sql, said):
    with pytest.raises((UnsupportedSqlError, SqlError, SchemaError), match=said):
        session.query(f"SELECT COUNT(*) FROM {sql}", budget=dpsql.Budget(rho=1))
    assert not session.history.height


BY_STATUS = "(SELECT customer_id, status, COUNT(*) n FROM orders GROUP BY 1, 2)"


@pytest.mark.parametrize(
    "sql",
    [
        f"customers c RIGHT JOIN {GROUPS} p {ON}",
        f"customers c RIGHT JOIN {GROUPS} p {ON} AND c.vip WHERE c.id IS NULL",
        f"{GROUPS} p LEFT JOIN customers c {ON}",
        f"{GROUPS} p RIGHT JOIN customers c {ON}",
        f"{GROUPS} p RIGHT JOIN customers c {ON} WHERE p.n IS NULL",
        f"customers c JOIN {BY_STATUS} p {ON}",
        f"customers c LEFT JOIN {BY_STATUS} p {ON} AND p.n > 1",
        f"customers c JOIN (SELECT customer_id, price AS n FROM orders GROUP BY 1, 2) p {ON}",
        BY_STATUS,
        f"{BY_STATUS} WHERE n > 1",
    ],
)
def test_groups_that_a_row_has_several_of_are_what_duckdb_says(con, session, sql):
    check_equal(con, session, f"SELECT COUNT(*) FROM {sql}", 0)


def test_groups_that_are_listed_stay_answers():
    """As ever, where ids have a domain: their counts are noisy, and a query is around them."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE visits (room INTEGER NOT NULL CHECK (room BETWEEN 1 AND 3), person INTEGER)"
    )
    con.execute("INSERT INTO visits SELECT i % 3 + 1, i FROM range(9) t(i)")
    session = dpsql.Session(con, unit=dpsql.Unit("room", 5))
    sql = "WITH n AS (SELECT room, COUNT(*) AS n FROM visits GROUP BY room) SELECT MAX(n) FROM n"
    assert session.query(sql, budget=HUGE).item(0, 0) == pytest.approx(3, abs=0.1)


def visits(rows):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE visits (person VARCHAR, ward VARCHAR NOT NULL CHECK (ward IN ('a', 'b')), "
        "days INTEGER CHECK (days BETWEEN 0 AND 9)); CREATE TABLE wards (ward VARCHAR, big BOOLEAN)"
    )
    con.execute("INSERT INTO wards VALUES ('a', true), ('b', false)")
    insert(con, "visits", rows)
    return con


ONE_EACH = [("x", "a", 1), ("y", "b", 2), ("z", "b", None), (None, "a", 3)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ward, COUNT(d) AS n FROM (SELECT person, ANY_VALUE(ward) AS ward, MAX(days) AS d "
         "FROM visits GROUP BY person) GROUP BY 1 ORDER BY 1", [1, 1]),
        ("SELECT ward, SUM(n) AS n FROM (SELECT person, ward, COUNT(days) AS n FROM visits GROUP "
         "BY ALL HAVING COUNT(*) > 0) GROUP BY 1 ORDER BY 1", [1, 1]),
        ("SELECT big, COUNT(*) AS n FROM (SELECT person, MIN(big) AS big FROM visits v JOIN wards "
         "w ON v.ward = w.ward GROUP BY person) GROUP BY 1 ORDER BY 1", [2, 1]),
    ],
)  # fmt: skip
def test_of_one_row_a_group_has_the_values(sql, expected):
    session = dpsql.Session(visits(ONE_EACH), unit="person", max_rows=1, public=["wards"])
    assert [round(n) for n in answers(session, sql)["n"]] == expected


def test_a_group_of_one_row_may_meet_several():
    con = visits(ONE_EACH)
    con.execute("INSERT INTO wards VALUES ('a', false)")
    session = dpsql.Session(con, unit="person", max_rows=1, public=["wards"])
    groups = (
        "SELECT {} AS n FROM (SELECT person, MIN(days) AS d FROM visits v JOIN wards w ON v.ward = "
        "w.ward GROUP BY person)"
    )
    assert round(session.query(groups.format("SUM(d)"), budget=HUGE)["n"][0]) == 3
    assert round(session.query(groups.format("COUNT(*)"), budget=HUGE)["n"][0]) == 3


def test_a_unit_may_be_a_column_without_a_table():
    rows = [("x", "a", 1), ("x", "b", 2), ("x", "a", 2), ("y", "b", 1), (None, "a", 1)]
    session = dpsql.Session(visits(rows), unit="person", max_rows=5)
    sql = (
        "SELECT ward, COUNT(*) AS n FROM visits v JOIN (SELECT person, COUNT(*) AS n FROM visits "
        "GROUP BY person) p ON p.person = v.person WHERE p.n > 1 GROUP BY 1 ORDER BY 1"
    )
    assert [round(n) for n in answers(session, sql)["n"]] == [2, 1]
    sql = (
        "SELECT COUNT(*) AS n FROM visits v WHERE person IN (SELECT person FROM visits WHERE "
        "days = 2)"
    )
    assert round(answers(session, sql)["n"][0]) == 3


SCRIPTS = [
    {"a": f"SELECT region, LEAST(COALESCE(p.n, 0), 4) AS n, COUNT(*) AS m FROM customers c LEFT "
          f"JOIN {GROUPS} p {ON} GROUP BY ALL"},
    {"a": f"SELECT LEAST(n, 4) AS n, COUNT(*) AS m FROM {GROUPS} GROUP BY 1",
     "b": "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1"},
    {"a": "SELECT status, COUNT(*) AS n FROM orders o LEFT JOIN (SELECT order_id, SUM(qty) AS q, "
          "COUNT(*) n FROM items GROUP BY order_id HAVING n > 1) i ON i.order_id = o.id WHERE "
          "i.q > 4 OR i.q IS NULL GROUP BY 1"},
    {"a": "SELECT a.city, COUNT(*) AS n FROM (SELECT o.address_id, COUNT(*) n FROM orders o GROUP "
          "BY 1) p JOIN addresses a ON a.id = p.address_id WHERE p.n > 1 GROUP BY 1"},
    {"a": "SELECT COUNT(*) AS n FROM (SELECT address_id, MAX(price) AS m FROM orders GROUP BY 1) "
          "WHERE m > 7"},
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])
