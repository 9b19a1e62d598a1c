"""Public tables in subqueries over rows of the same unit: they are constants of conditions."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.errors import DpsqlError, SqlError
from dpsql.sql.algebra import public_values
from tests.release.test_private_joins import HUGE, check_without_one, con, session
from tests.release.test_rows_of_units import check_equal

__all__ = ["con", "session"]

STATES = """WITH states (id, state, since, weight, open) AS (VALUES
    (1, 'o', DATE '2020-01-01', 7.00, true), (2, 'f', DATE '2021-01-01', 0.50, false),
    (3, 'p', DATE '2022-02-02', 300.00, true), (4, NULL, DATE '2022-02-02', -2.50, NULL)),
    steps (state_id, step) AS (VALUES (1, 'x'), (1, 'x'), (2, 'y'), (NULL, 'y')) """
COUNTED = STATES + "SELECT region, COUNT(*) AS n FROM customers c WHERE "
BY_REGION = " GROUP BY region"
OF = "FROM orders o WHERE o.customer_id = c.id"
JOINED = "FROM orders o JOIN states s ON o.status = s.state WHERE o.customer_id = c.id"


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "condition",
    [
        f"EXISTS (SELECT 1 {JOINED} AND open)",
        f"NOT EXISTS (SELECT 1 {JOINED} AND s.open AND o.price > 7)",
        "EXISTS (SELECT * FROM orders o, states, steps WHERE o.customer_id = c.id AND "
        "status = state AND states.id = state_id AND step = 'y')",
        "EXISTS (SELECT * FROM states AS s, orders o WHERE s.state = o.status AND "
        "year(since) = 2020 AND c.id = o.customer_id)",
        f"EXISTS (SELECT 1 {OF} AND o.status IN (SELECT state FROM states WHERE weight > 1))",
        f"EXISTS (SELECT 1 {OF} AND o.status NOT IN (SELECT state FROM states WHERE id = 2))",
        f"EXISTS (SELECT 1 {OF} AND o.status NOT IN (SELECT state FROM states))",
        f"EXISTS (SELECT 1 {OF} AND o.status IN (SELECT state FROM states WHERE id > 9))",
        f"EXISTS (SELECT 1 {OF} AND o.price > (SELECT MAX(weight) - 1 FROM states))",
        f"EXISTS (SELECT 1 {OF} AND o.price > (SELECT weight FROM states WHERE id = 9))",
        f"EXISTS (SELECT 1 {OF} AND EXISTS (SELECT 1 FROM steps WHERE step = 'y'))",
        f"EXISTS (SELECT 1 {OF} AND EXISTS (SELECT 1 FROM steps WHERE step = 'z'))",
        f"EXISTS (SELECT 1 {OF} AND EXISTS (SELECT 1 FROM states s WHERE s.state = o.status AND "
        "s.open))",
        f"EXISTS (SELECT 1 {OF} AND NOT EXISTS (SELECT 1 FROM states s WHERE s.state = o.status))",
        "EXISTS (SELECT 1 FROM orders o, steps WHERE o.customer_id = c.id AND step = 'y')",
        "EXISTS (SELECT 1 FROM orders o, steps WHERE o.customer_id = c.id AND step = 'z')",
        "EXISTS (SELECT 1 FROM orders o JOIN (SELECT state AS status FROM states WHERE open) s "
        "USING (status) WHERE o.customer_id = c.id)",
        "c.id IN (SELECT o.customer_id FROM orders o, states WHERE state = status AND open)",
        f"(SELECT COUNT(*) {JOINED} AND open) > 1",
        f"(SELECT SUM(o.price) {JOINED} AND weight > 1) > 300",
        f"(SELECT MAX(o.price) {JOINED} AND weight > 1) > 300",
        "(SELECT COUNT(DISTINCT o.price) FROM orders o, states, steps WHERE o.customer_id = c.id "
        "AND status = state AND states.id = state_id AND step = 'x') > 1",
        f"EXISTS (SELECT 1 {JOINED} AND open AND EXISTS (SELECT 1 FROM items i JOIN steps t ON "
        "t.state_id = i.qty WHERE i.order_id = o.id AND t.step = 'x'))",
        f"EXISTS (SELECT 1 {JOINED} AND o.price > c.balance AND open)",
    ],
)
def test_it_is_what_duckdb_says(con, session, condition):
    check_equal(con, session, COUNTED + condition + BY_REGION, 1)


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT 1 FROM orders o, states s WHERE o.customer_id = c.id AND o.price > weight)",
        f"EXISTS (SELECT 1 {JOINED} AND o.price > s.weight)",
        f"NOT EXISTS (SELECT 1 {JOINED} AND o.price > s.weight)",
        f"EXISTS (SELECT 1 {JOINED} AND s.id = c.id)",
        f"EXISTS (SELECT 1 {JOINED} AND s.id IN (SELECT state_id FROM steps))",
        "EXISTS (SELECT 1 FROM orders o LEFT JOIN states s ON o.status = s.state WHERE "
        "o.customer_id = c.id)",
        "EXISTS (SELECT 1 FROM orders o LEFT JOIN states s ON o.status = s.state WHERE "
        "o.customer_id = c.id AND s.open IS NULL)",
        f"(SELECT SUM(s.weight) {JOINED}) > 1",
        "(SELECT COUNT(*) FROM orders o, states, steps WHERE o.customer_id = c.id AND status = "
        "state AND states.id = state_id) > 1",
        "(SELECT COUNT(*) FROM orders o LEFT JOIN steps ON o.price = state_id + 6 WHERE "
        "o.customer_id = c.id) > 3",
        "(SELECT COUNT(*) FROM orders o, steps WHERE o.customer_id = c.id) > 4",
    ],
)
def test_what_public_rows_say_of_each_row_is_what_duckdb_says(con, session, condition):
    check_equal(con, session, COUNTED + condition + BY_REGION, 1)


@pytest.mark.parametrize(
    ("keys", "query"),
    [
        (2, "SELECT region, LEAST(n, 3) AS k, COUNT(*) AS m FROM customers c JOIN (SELECT "
        "customer_id, COUNT(*) AS n FROM orders JOIN states ON status = state WHERE open GROUP BY "
        "customer_id) p ON p.customer_id = c.id GROUP BY ALL"),
        (1, "SELECT LEAST(n, 3) AS k, COUNT(*) AS m FROM (SELECT customer_id, COUNT(*) AS n FROM "
        "orders JOIN states ON status = state WHERE open GROUP BY customer_id) GROUP BY 1"),
    ],
)  # fmt: skip
def test_groups_of_rows_may_be_of_rows_that_public_ones_choose(con, session, keys, query):
    check_equal(con, session, STATES + query, keys)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("EXISTS (SELECT 1 FROM states s LEFT JOIN orders o ON o.status = s.state WHERE "
         "o.customer_id = c.id)", "public table are kept"),
        ("EXISTS (SELECT 1 FROM orders o JOIN states s ON o.status = s.state)",
         "from the rows of all units, so the rows of one could decide which rows of others count. "
         "limit it to rows of the same unit, WHERE o.customer_id = c.id"),
        (f"EXISTS (SELECT 1 {OF} AND o.price > (SELECT weight FROM states s WHERE s.state = "
         "o.status))", "columns of its own tables only"),
        (f"EXISTS (SELECT 1 {OF} AND o.price > (SELECT weight FROM states))", "public tables: "),
        (f"EXISTS (SELECT 1 {OF} AND o.price IN (SELECT id FROM states UNION ALL SELECT price "
         "FROM orders))", "with anything else"),
        (f"EXISTS (SELECT 1 {OF} AND o.price IN (SELECT i FROM range(5000) t(i)))", "2,000 public"),
    ],
)  # fmt: skip
def test_others_are_refused_before_the_charge(session, condition, said):
    with pytest.raises(SqlError) as refused:
        session.query(COUNTED + condition + BY_REGION, budget=dpsql.Budget(rho=1))
    assert said in f"{refused.value.message} {refused.value.hint}"
    assert not session.history.height


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "value",
    [
        "true", "-3", "9223372036854775807", "1.25", "2.5::DOUBLE", "'it''s'", "DATE '2020-02-29'",
        "TIMESTAMP '2020-02-29 12:30:15.25'", "'a'::VARCHAR", "NULL::INTEGER", "12::UTINYINT",
    ],
)  # fmt: skip
def test_values_of_every_type_are_constants(con, session, value):
    """Each is compared with itself, in a condition on rows."""
    sql = f"""SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {OF}
        AND (SELECT x FROM (SELECT {value} AS x)) IN (SELECT {value}))"""
    check_equal(con, session, sql, 0)


def test_a_list_has_a_limit_that_lets_all_of_it_run(con, session):
    """As many values as may be are a condition that rows take."""
    most = public_values.MOST_VALUES
    sql = f"""SELECT region, COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {OF} AND
        o.price IN (SELECT i FROM range(7, {7 + most}) AS t(i))) GROUP BY region"""
    check_equal(con, session, sql, 1)


def test_it_is_the_same_column_in_whatever_order_public_rows_come(session):
    """What was measured answers the same question, also where the list was made in another way."""
    values = "SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {} AND o.status IN {})"
    first = values.format(OF, "(SELECT * FROM (VALUES ('f'), ('o'), ('f')))")
    again = values.format(OF, "(SELECT x FROM (VALUES ('o'), ('f')) t(x))")
    other = values.format(OF, "(SELECT x FROM (VALUES ('o'), ('p')) t(x))")
    before = session.query(first, budget=HUGE)
    assert session.query(again, budget=0)["n"].to_list() == before["n"].to_list()
    with pytest.raises(DpsqlError):
        session.query(other, budget=0)


SCRIPTS = [
    {"a": f"{STATES} SELECT region, EXISTS (SELECT 1 {JOINED} AND open) AS e, COUNT(*) AS n FROM "
          "customers c GROUP BY ALL"},
    {"a": f"{STATES} SELECT status, COUNT(*) AS n FROM orders o WHERE NOT EXISTS (SELECT 1 FROM "
          "items i, states s WHERE i.order_id = o.id AND i.qty = s.id AND s.open) GROUP BY 1",
     "b": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1"},
    {"a": f"{STATES} SELECT LEAST(n, 3) AS k, COUNT(*) AS m FROM (SELECT customer_id, COUNT(*) AS "
          "n FROM orders JOIN states ON status = state WHERE open GROUP BY customer_id) GROUP BY "
          "1"},
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])
