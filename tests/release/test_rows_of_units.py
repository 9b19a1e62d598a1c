"""Subqueries over rows of the same unit: whether there are some, how many, sums and extremes."""

from __future__ import annotations

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import LedgerError, SchemaError, SqlError, StaleSchemaError, UnsupportedSqlError
from tests.helpers.inserted import insert
from tests.release.test_private_joins import (
    HUGE,
    STAFF,
    TABLES,
    answers,
    check_without_one,
    con,
    owned,
    session,
    shop,
    units,
)

__all__ = ["con", "session"]

LEFT = "customers c LEFT JOIN orders o ON o.customer_id = c.id"
ORDERS = "FROM orders o WHERE o.customer_id = c.id"


def check_equal(con, session, sql, keys):
    """Compare with DuckDB: a group that it hasn't is one without rows."""
    found = {row[:keys]: row[keys:] for row in answers(session, sql).rows()}
    for row in owned(con).execute(sql).fetchall():
        ours = found.pop(row[:keys])
        for mine, theirs in zip(ours, row[keys:], strict=True):
            assert mine == pytest.approx(float(theirs), rel=1e-4, abs=0.1), row
    assert all(abs(row[0]) < 0.1 for row in found.values()), found


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (1, f"SELECT region, COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {ORDERS} AND "
            "o.price > 7) GROUP BY region"),
        (1, "SELECT region, COUNT(*) AS n FROM customers c WHERE NOT EXISTS (FROM orders o WHERE "
            "c.id = o.customer_id AND (status = 'f' OR price IS NULL)) GROUP BY region"),
        (1, f"SELECT EXISTS (SELECT * {ORDERS}) AS e, COUNT(*) AS n, SUM(balance) AS b "
            "FROM customers c GROUP BY e"),
        (2, f"SELECT (EXISTS (SELECT * {ORDERS})) AS e, (LEAST((SELECT COUNT(*) {ORDERS}), 3)) AS "
            "n, COUNT(*) AS m FROM customers c GROUP BY e, n"),
        (1, f"SELECT LEAST((SELECT COUNT(*) {ORDERS}), 5) AS n, COUNT(*) FROM customers c "
            "GROUP BY 1"),
        (2, f"SELECT n, region, COUNT(*) FROM (SELECT LEAST((SELECT COUNT(status) {ORDERS}), 3) "
            "AS n, region FROM customers c WHERE vip) GROUP BY ALL"),
        (0, f"SELECT SUM(LEAST((SELECT COUNT(*) {ORDERS}), 20)) AS n, AVG(LEAST((SELECT COUNT(*) "
            f"{ORDERS}), 20)) AS a FROM customers c"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE (SELECT COUNT(*) {ORDERS}) >= 2"),
        (0, f"SELECT COUNT(*) FILTER (WHERE EXISTS (SELECT 1 {ORDERS})) AS n FROM customers c"),
        (1, f"SELECT (SELECT SUM(price) {ORDERS}) > 300 AS big, COUNT(*) FROM customers c "
            "GROUP BY 1"),
        (1, f"SELECT (SELECT MAX(price) - MIN(price) {ORDERS}) > 7 AS big, COUNT(*) FROM "
            "customers c GROUP BY 1"),
        (0, f"SELECT COUNT(*) AS n, SUM((SELECT SUM(price / 3) {ORDERS})) AS s FROM customers c "
            f"WHERE (SELECT AVG(price / 7) {ORDERS}) > 20 OR (SELECT MIN(price / 3) {ORDERS}) > 3"),
        (1, f"SELECT region, COUNT(*) FROM customers c WHERE (SELECT SUM(price / 3.0 * price) "
            f"{ORDERS}) > 7000 AND (SELECT MAX(sqrt(price)) {ORDERS}) > 17 GROUP BY 1"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE balance < (SELECT SUM(price) FILTER (WHERE "
            f"status = 'f') - 10 * COUNT(*) {ORDERS})"),
        (0, "SELECT COUNT(*) FROM customers c WHERE c.id IN (SELECT customer_id FROM orders WHERE "
            "status = 'f')"),
        (0, "SELECT COUNT(*) FROM customers c WHERE c.id NOT IN (SELECT customer_id FROM orders)"),
        (1, "SELECT status, COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE "
            "i.order_id = o.id AND qty > 5) AND o.price > 7 GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM items i JOIN orders o ON "
            "i.order_id = o.id WHERE o.customer_id = c.id AND qty > 5 AND o.status = 'f')"),
        (1, "SELECT (SELECT MAX(price) FROM orders x WHERE x.customer_id = o.customer_id) = "
            "o.price AS top, COUNT(*) FROM orders o GROUP BY 1"),
        (1, "SELECT c.region, COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id "
            "WHERE EXISTS (SELECT 1 FROM addresses a WHERE a.customer_id = c.id AND city = 'a') "
            "GROUP BY 1"),
        (1, "WITH late AS (SELECT customer_id AS cid FROM orders WHERE status = 'p'), rich AS "
            "(SELECT id AS own, region FROM customers WHERE balance > 100) SELECT region, COUNT(*) "
            "FROM rich WHERE EXISTS (FROM late WHERE cid = own) GROUP BY 1"),
        (1, "SELECT name, COUNT(*) FROM customers c JOIN regions g ON g.code = c.region WHERE "
            f"EXISTS (SELECT 1 {ORDERS}) GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE "
            "o.customer_id = c.id AND c.vip AND c.note LIKE 'a%')"),
        (1, "SELECT status, COUNT(*) FROM orders o SEMI JOIN customers c ON o.customer_id = c.id "
            "AND c.vip GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o ANTI JOIN customers c ON o.customer_id = c.id "
            "AND c.vip WHERE price > 7 GROUP BY 1"),
        (1, "SELECT region, COUNT(*) FROM (SELECT region FROM customers c ANTI JOIN orders o ON "
            "o.customer_id = c.id WHERE vip) GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id SEMI "
            "JOIN items i ON i.order_id = o.id AND qty > 3 WHERE c.region = 'n' GROUP BY 1"),
        (1, "SELECT n, COUNT(*) FROM (SELECT c.id, LEAST(COUNT(o.id), 5) AS n FROM customers c "
            "LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id) GROUP BY 1"),
        (1, "SELECT LEAST(n, 3), COUNT(*) FROM (SELECT c.id, COUNT(*) n FROM customers c LEFT JOIN "
            "orders o ON o.customer_id = c.id AND o.status <> 'f' GROUP BY c.id) GROUP BY 1"),
        (1, "WITH x AS (SELECT c.id, c.region AS r, COUNT(*) n, SUM(price) AS p FROM customers c "
            "JOIN orders o ON o.customer_id = c.id WHERE c.vip AND o.price > 7 GROUP BY 1, 2) "
            "SELECT r, COUNT(*), COUNT(*) FILTER (WHERE p > 500) FROM x WHERE n > 1 GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM items i WHERE (SELECT COUNT(*) FROM items j WHERE j.order_id = "
            "i.order_id) > 1"),
        # Of the row that it is for, and of others of its unit.
        (0, f"SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 {ORDERS} AND o.price > "
            "c.balance)"),
        (1, "SELECT status, COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE "
            "p.customer_id = o.customer_id AND p.id <> o.id AND p.status = o.status) GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM orders p WHERE "
            "p.customer_id = o.customer_id AND p.price > o.price) GROUP BY 1"),
        (1, "SELECT LEAST((SELECT COUNT(*) FROM orders p WHERE p.customer_id = o.customer_id AND "
            "p.id < o.id), 4) AS k, COUNT(*) FROM orders o GROUP BY 1"),
        (1, "SELECT c.region, COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id "
            "WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id AND i.qty * 100 > "
            "c.balance) GROUP BY 1"),
        (1, "SELECT n, COUNT(*) FROM (SELECT c.id, LEAST(COUNT(o.price), 3) AS n FROM customers c "
            "LEFT JOIN orders o ON o.customer_id = c.id AND o.price > c.balance GROUP BY c.id) "
            "GROUP BY 1"),
        (1, f"SELECT (SELECT AVG(price) {ORDERS}) > 250 AS a, COUNT(*) FROM customers c GROUP "
            "BY 1"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE (SELECT BOOL_AND(price > 7) {ORDERS})"),
        (1, f"SELECT (SELECT BOOL_OR(status = 'f') {ORDERS}) AS f, COUNT(*) FROM customers c GROUP "
            "BY 1"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE (SELECT MIN(status) {ORDERS}) = 'f' OR "
            f"(SELECT MAX(status) {ORDERS}) = 'f'"),
        (1, f"SELECT LEAST((SELECT COUNT(DISTINCT status) {ORDERS}), 3) AS n, COUNT(*) FROM "
            "customers c GROUP BY 1"),
        # In each other.
        (0, f"SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 {ORDERS} AND EXISTS (SELECT "
            "1 FROM items i WHERE i.order_id = o.id AND qty > 5))"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 {ORDERS} AND NOT EXISTS "
            "(SELECT 1 FROM items i WHERE i.order_id = o.id AND qty * 50 < o.price))"),
        (0, f"SELECT COUNT(*) FROM customers c WHERE (SELECT SUM(price) {ORDERS} AND (SELECT "
            "COUNT(*) FROM items i WHERE i.order_id = o.id) > 1) > 300"),
        (0, "WITH late AS (SELECT customer_id FROM orders o WHERE EXISTS (SELECT 1 FROM items i "
            "WHERE i.order_id = o.id AND qty > 4)) SELECT COUNT(*) FROM customers c WHERE EXISTS "
            "(FROM late WHERE customer_id = c.id)"),
        (0, "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE "
            "p.customer_id = o.customer_id AND p.price > o.price AND EXISTS (SELECT 1 FROM orders "
            "q WHERE q.customer_id = p.customer_id AND q.price > p.price))"),
    ],
)  # fmt: skip
def test_it_is_what_duckdb_says(con, session, keys, sql):
    check_equal(con, session, sql, keys)


def test_rows_of_other_units_are_left_out(con, session):
    """An order may go to another customer's address: it is not one of the order's unit."""
    sql = (
        "SELECT COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM addresses a WHERE "
        "a.id = o.address_id{})"
    )
    ((true,),) = owned(con).execute(sql.format(" AND a.customer_id = o.customer_id")).fetchall()
    ((more,),) = owned(con).execute(sql.format("")).fetchall()
    assert more > true
    assert answers(session, sql.format(""))["n"][0] == pytest.approx(true, abs=0.1)


@pytest.mark.parametrize("name", ["u_unit", "U_UNIT", "uu_unit", "k0", "v"])
def test_no_column_is_taken_for_the_ids_of_units(name):
    """Nor one of what the rows that are looked into refer to."""
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con)
    sql = (
        "SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM orders o JOIN addresses "
        "a ON o.address_id = a.id WHERE o.customer_id = c.id AND city = 'a' {})"
    )
    own = sql.format("AND a.customer_id = o.customer_id")
    ((expected,),) = con.execute(own).fetchall()
    con.execute(f"ALTER TABLE addresses ADD COLUMN {name} INTEGER")
    referring = "FROM orders o WHERE o.address_id = addresses.id"
    con.execute(f"UPDATE addresses SET {name} = o.customer_id {referring}")
    found = answers(dpsql.Session(con, schema=units()), sql.format(""))
    assert found["n"][0] == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("EXISTS (SELECT 1 FROM orders o)", "from the rows of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id)", "of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.region = c.region)", "of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.customer_id <> c.id)", "of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id OR c.vip)", "of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE NOT (o.customer_id = c.id))", "of all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id + 0)", "of all units"),
        (f"EXISTS (SELECT 1 {ORDERS} AND o.price > g.code)", "not a table after FROM"),
        (f"EXISTS (SELECT 1 {ORDERS} AND o.price > n)", "no column n"),
        (f"EXISTS (SELECT 1 {ORDERS} LIMIT 1)", "LIMIT or WITH has the same rows whatever row"),
        (f"EXISTS (SELECT COUNT(*) {ORDERS})", "(?s)always true.*leave the aggregate out"),
        (f"EXISTS (SELECT status {ORDERS} GROUP BY 1)", "has the same rows whatever row it is for"),
        (f"EXISTS (SELECT 1 {ORDERS} UNION ALL SELECT 1 {ORDERS})", "columns from outside"),
        ("EXISTS (SELECT 1 FROM regions g LEFT JOIN orders o ON o.customer_id = c.id)",
         "public table are kept"),
        ("EXISTS (SELECT 1 FROM regions g WHERE EXISTS (SELECT 1 FROM orders o))", "all units"),
        ("EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND EXISTS (SELECT 1 FROM "
         "items i WHERE i.order_id = o.id AND i.qty > c.balance))", "not a table after"),
        (f"EXISTS (SELECT 1 {ORDERS} AND EXISTS (SELECT 1 FROM items i WHERE i.qty > 3))",
         "(?s)of all units.* WHERE i.order_id = o.id"),
        (f"EXISTS (SELECT 1 {ORDERS} AND EXISTS (SELECT 1 FROM addresses a WHERE a.city = 'a'))",
         "(?s)of all units.* WHERE a.customer_id = o.customer_id"),
        ("EXISTS (SELECT 1 FROM orders o, items i WHERE o.customer_id = c.id)", "join of private"),
        ("EXISTS (SELECT 1 FROM orders o, orders p WHERE o.customer_id = c.id AND p.customer_id = "
         "c.id)", "join of private"),
        ("EXISTS (SELECT 1 FROM stores s WHERE s.id = c.id)", "(?s)private rows.*public tables in"),
        ("c.id IN (SELECT o.id FROM orders o)", "of all units"),
        ("balance IN (SELECT o.price FROM orders o)", "of all units"),
        (f"(SELECT ANY_VALUE(o.price) {ORDERS}) > 7", "can't be computed"),
        (f"(SELECT FIRST(o.price) {ORDERS}) > 7", "can't be computed|not allowed|not supported"),
        (f"(SELECT MODE(o.price) {ORDERS}) > 7", "can't be computed|not supported"),
        (f"(SELECT ARG_MIN(o.price, o.id) {ORDERS}) > 7", "can't be computed|not supported"),
        (f"(SELECT STRING_AGG(o.status, ',') {ORDERS}) = 'f'", "can't be computed|not supported"),
        (f"(SELECT AVG(o.id::DOUBLE) {ORDERS}) > 7", "can't be added up.*no public bounds"),
        (f"(SELECT BOOL_OR(o.price) {ORDERS})", "BOOL_OR of INTEGER within a unit"),
        (f"(SELECT SUM(o.id / 3.0::DOUBLE) {ORDERS}) > 7", "can't be added up.*no public bounds"),
        (f"(SELECT SUM(o.price::DECIMAL(38, 2)) {ORDERS}) > 7", "SUM of DECIMAL"),
        (f"(SELECT SUM(DISTINCT o.price) {ORDERS}) > 1", "DISTINCT in this aggregate"),
        (f"(SELECT COUNT(DISTINCT (o.status, o.price)) {ORDERS}) > 1", "not|can't"),
        (f"(SELECT o.price {ORDERS}) > 7", "may return several rows for one"),
        (f"(SELECT row_number() OVER (ORDER BY o.id) {ORDERS}) > 7", "can't be computed"),
        (f"(SELECT COUNT(*) OVER () {ORDERS}) > 7", "can't be computed"),
        (f"(SELECT MIN(o.rowid) {ORDERS}) > 7", "singles out rows"),
        (f"(SELECT MIN(random() * o.price) {ORDERS}) > 7", "random|not allowed"),
    ],
)  # fmt: skip
def test_others_are_refused_before_the_charge(session, sql, said):
    with pytest.raises((UnsupportedSqlError, SqlError), match=said):
        session.query(f"SELECT COUNT(*) FROM customers c WHERE {sql}", budget=dpsql.Budget(rho=1))
    assert not session.history.height


@pytest.mark.parametrize(
    "inner",
    [
        f"SELECT c.id, COUNT(o.id) AS n FROM {LEFT} WHERE o.price > 7 GROUP BY c.id",
        f"SELECT c.id, COUNT(o.id) AS n FROM {LEFT} GROUP BY c.id, o.status",
        # A customer without orders has a row of NULLs, which these count.
        f"SELECT c.id, COUNT(*) FILTER (o.id IS NULL) AS n FROM {LEFT} GROUP BY c.id",
        f"SELECT c.id, COUNT(COALESCE(o.price, 0)) AS n FROM {LEFT} GROUP BY c.id",
        f"SELECT c.id, COUNT(o.id IS NULL) AS n FROM {LEFT} GROUP BY c.id",
        f"SELECT c.id, COUNT(c.note) AS n FROM {LEFT} GROUP BY c.id",
        f"SELECT c.id, COUNT(COALESCE(c.note, '')) AS n FROM {LEFT} GROUP BY c.id",
    ],
)
def test_groups_of_rows_with_and_without_others_are_what_duckdb_says(con, session, inner):
    check_equal(con, session, f"SELECT LEAST(n, 5), COUNT(*) FROM ({inner}) GROUP BY 1", 1)


def test_public_rows_may_be_compared_with_those_of_the_unit(con, session):
    joined = "orders o JOIN (SELECT 'n' AS code) g ON g.code > o.region"
    sql = f"SELECT COUNT(*) FROM customers c WHERE {{}} (SELECT 1 FROM {joined} WHERE "
    for exists in ("EXISTS", "NOT EXISTS"):
        check_equal(con, session, sql.format(exists) + "o.customer_id = c.id)", 0)
        later = sql.format(exists).replace("'n'", "'z'")
        check_equal(con, session, later + "o.customer_id = c.id)", 0)


NUMBERS = (
    f"SELECT (SELECT COUNT(*) {ORDERS}) AS n, COUNT(*) AS m FROM customers c GROUP BY 1",
    f"SELECT SUM((SELECT COUNT(*) {ORDERS})) AS n FROM customers c",
)


@pytest.mark.parametrize("sql", NUMBERS)
@pytest.mark.parametrize("most", [20, 2])
def test_a_number_of_rows_is_at_most_as_many_as_count(con, sql, most):
    """Of a unit with more, two rows count here: so it counts as one with two."""
    session = dpsql.Session(con, schema=units(orders=most))
    cut = sql.replace(f"(SELECT COUNT(*) {ORDERS})", f"LEAST((SELECT COUNT(*) {ORDERS}), {most})")
    keys = sql.count("GROUP BY")
    found = {row[:keys]: row[keys] for row in answers(session, sql).rows()}
    for row in owned(con).execute(cut).fetchall():
        assert found.pop(row[:keys]) == pytest.approx(float(row[keys]), rel=1e-4, abs=0.1)
    assert all(abs(value) < 0.1 for value in found.values())


def test_what_is_computed_of_a_units_rows_has_the_bounds_of_these(con, session):
    """No other than those that DuckDB's own numbers keep to, so that none is cut."""
    for computed in ("MIN(price)", "MAX(price)", "AVG(price)", "SUM(price)", "SUM(10 - price)",
                     "COUNT(DISTINCT status)", "MAX(price) - MIN(price)"):  # fmt: skip
        sql = f"SELECT c.region, SUM((SELECT {computed} {ORDERS})) AS n FROM customers c GROUP BY 1"
        check_equal(con, session, sql, 1)


@pytest.mark.parametrize("sql", NUMBERS)
def test_where_nobody_says_how_many_rows_count_a_number_of_them_has_no_public_bounds(con, sql):
    schema = dpsql.Schema({}, units={**units().units, "orders": dpsql.Unit("customer_id")})
    session = dpsql.Session(con, schema=schema)
    with pytest.raises(SchemaError, match="no public") as caught:
        session.query(sql, budget=HUGE)
    assert "least(" in caught.value.hint.lower()
    assert " of orders" not in str(caught.value)
    assert not session.history.height


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (f"SELECT o.customer_id, COUNT(o.id) AS n FROM {LEFT} GROUP BY 1", "LEFT join"),
        (f"SELECT c.id, COUNT(o.id) AS n FROM {LEFT} GROUP BY ROLLUP (c.id)",
         "of customers has no public"),
        (f"SELECT c.id, COUNT(o.id) AS n FROM {LEFT} GROUP BY c.id LIMIT 3", "LIMIT of single"),
        (f"SELECT c.id, ANY_VALUE(o.price) AS n FROM {LEFT} GROUP BY c.id", "can't be computed"),
        ("SELECT c.id, COUNT(o.id) AS n FROM customers c LEFT JOIN orders o ON o.region = c.region "
         "GROUP BY c.id", "(?s)must say that both rows are of one unit.*o.customer_id = c.id"),
    ],
)  # fmt: skip
def test_other_groups_are_refused_before_the_charge(session, inner, said):
    with pytest.raises(SqlError, match=said):
        session.query(f"SELECT LEAST(n, 5), COUNT(*) FROM ({inner}) GROUP BY 1", budget=HUGE)
    assert not session.history.height


def test_units_that_refer_to_each_other_have_no_rows_of_theirs():
    con = duckdb.connect()
    con.execute(STAFF.format(", boss INTEGER REFERENCES staff (id)"))
    session = dpsql.Session(con, unit=dpsql.Unit("staff", max_rows={"pays": 3}))
    sql = "SELECT COUNT(*) FROM staff s WHERE EXISTS (SELECT 1 FROM pays p WHERE p.staff_id = s.id)"
    with pytest.raises(SchemaError, match="to other rows of it"):
        session.query(sql, budget=HUGE)


def test_a_table_that_is_looked_into_may_not_be_altered_meanwhile(con, session):
    from dpsql.request import Request, named

    sql = f"SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {ORDERS})"
    asked = session._data.declared.compile(Request(named(sql), HUGE))
    session._data.verify(asked.table)
    con.execute("ALTER TABLE orders ADD COLUMN more INTEGER")
    with pytest.raises(StaleSchemaError, match="altered"):
        session._data.verify(asked.table)


def test_a_table_that_is_looked_into_keeps_its_unit(con, tmp_path):
    """What is asked of addresses of customers is not a promise for houses, and the other way."""
    con.execute("ALTER TABLE addresses ADD COLUMN house INTEGER")
    sql = "SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM addresses a WHERE "
    sql += "a.customer_id = c.id AND a.city = 'a')"
    small, ledger = dpsql.Budget(rho=1), tmp_path / "x.ledger"
    dpsql.Session(con, schema=units(), ledger=ledger).query(sql, budget=small)
    houses = dpsql.Session(con, unit=dpsql.Unit("house", 3), ledger=ledger)
    with pytest.raises(LedgerError, match="Another unit"):
        houses.query("SELECT city, COUNT(*) AS n FROM addresses GROUP BY 1", budget=small)


def test_of_a_table_that_was_only_looked_into_no_description_is_known(con, session):
    sql = f"SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 {ORDERS})"
    session.query(sql, budget=dpsql.Budget(rho=1))
    con.execute("ALTER TABLE orders ADD COLUMN more INTEGER")
    with pytest.raises(StaleSchemaError, match=r"rows of orders\. The schema") as caught:
        session.query(sql, budget=dpsql.Budget(rho=1))
    assert "now and not then" not in str(caught.value)


def test_measurements_answer_what_is_asked_again(session):
    sql = (
        f"SELECT region, EXISTS (SELECT 1 {ORDERS}) AS e, COUNT(*) AS n FROM customers c "
        "GROUP BY ALL"
    )
    before = session.query(sql, budget=dpsql.Budget(rho=1))
    again = session.query(
        "SELECT r.region, COUNT(*) AS n FROM customers AS r WHERE EXISTS (SELECT 2 FROM orders AS "
        "x WHERE r.id = x.customer_id) GROUP BY 1 ORDER BY 1",
        budget=0,
    )
    wanted = before.filter(before["e"]).sort("region")
    assert again["n"].to_list() == pytest.approx(wanted["n"].to_list())
    with pytest.raises(dpsql.errors.DpsqlError):
        session.query(sql.replace("c.id", "c.id AND o.price > 7"), budget=0)


def test_a_saved_release_answers_the_same_again(session, tmp_path):
    sql = f"SELECT EXISTS (SELECT 1 {ORDERS}) AS e, COUNT(*) AS n FROM customers c GROUP BY e"
    release = session.release({"e": sql}, budget=dpsql.Budget(rho=1))
    release.save(tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out")
    assert loaded["e"]["e"].to_list() == [False, True]
    loaded.query("SELECT COUNT(*) FROM customers")
    assert_frame_equal(loaded.query(sql), release["e"], check_row_order=False)
    with pytest.raises(SchemaError, match="no table items"):
        loaded.query(sql.replace("orders o", "items o").replace("o.customer_id", "o.order_id"))


SCRIPTS = [
    {"a": "SELECT status, COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE "
          "p.customer_id = o.customer_id AND p.price > o.price AND p.status <> o.status) GROUP "
          "BY 1",
     "b": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1"},
    {"a": "SELECT COUNT(*) AS n FROM items i WHERE NOT EXISTS (SELECT 1 FROM items j WHERE "
          "j.order_id = i.order_id AND j.qty > i.qty)"},
    {"a": f"SELECT region, LEAST((SELECT COUNT(*) {ORDERS} AND EXISTS (SELECT 1 FROM items i WHERE "
          "i.order_id = o.id AND i.qty * 50 > o.price)), 3) AS n, COUNT(*) AS m FROM customers c "
          "GROUP BY ALL"},
    {"a": "SELECT a.city, COUNT(*) AS n FROM orders o JOIN addresses a ON o.address_id = a.id "
          "WHERE EXISTS (SELECT 1 FROM addresses b WHERE b.customer_id = o.customer_id AND b.city "
          "<> a.city) GROUP BY 1"},
    {"a": f"SELECT region, LEAST((SELECT COUNT(*) {ORDERS}), 4) AS n, COUNT(*) AS m FROM customers "
          "c GROUP BY ALL"},
    {"a": "SELECT status, COUNT(*) AS n, SUM(price) AS p FROM orders o WHERE EXISTS (SELECT 1 FROM "
          "items i WHERE i.order_id = o.id AND qty > 4) GROUP BY 1",
     "b": "SELECT COUNT(*) AS n FROM orders"},
    {"a": f"SELECT n, COUNT(*) AS c FROM (SELECT c.id, LEAST(COUNT(o.price), 3) AS n FROM {LEFT} "
          "GROUP BY c.id) GROUP BY 1",
     "b": "SELECT region, COUNT(*) AS c FROM customers c ANTI JOIN orders o ON o.customer_id = "
          "c.id AND status = 'f' GROUP BY 1"},
    {"a": "SELECT COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM addresses a WHERE a.id = "
          "o.address_id AND city = 'a')"},
    {"a": "SELECT c.region, SUM(GREATEST(LEAST((SELECT SUM(price) FROM orders x WHERE "
          "x.customer_id = c.id), 900), 0)) AS s FROM orders o JOIN customers c ON o.customer_id = "
          "c.id GROUP BY 1"},
    {"a": "SELECT qty > 4 AS q, COUNT(*) AS n FROM items i JOIN orders o ON i.order_id = o.id "
          "WHERE (SELECT COUNT(*) FROM addresses a WHERE a.customer_id = o.customer_id AND city = "
          "'b') = 1 GROUP BY 1"},
    {"a": f"SELECT region, COUNT(*) AS n FROM customers c WHERE (SELECT SUM(price / 3) {ORDERS}) > "
          "170 GROUP BY 1",
     "b": f"SELECT SUM(LEAST((SELECT AVG(price / 7) {ORDERS}), 70)) AS s FROM customers c WHERE "
          f"(SELECT MAX(price / 3) - MIN(sqrt(price)) {ORDERS}) > 0"},
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(100))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])


@pytest.mark.parametrize(
    ("of", "subquery"),
    [
        ("orders o", "FROM orders p WHERE p.status = o.status AND p.id <> o.id"),
        ("orders o", "FROM addresses a WHERE a.city = 'a'"),
        ("customers c", "FROM orders WHERE price > 7"),
        ("orders", "FROM customers c WHERE c.vip"),
    ],
)
def test_hints_name_the_columns_that_tell_the_unit(con, session, of, subquery):
    sql = f"SELECT COUNT(*) AS n FROM {of} WHERE EXISTS (SELECT 1 {subquery}"
    with pytest.raises(UnsupportedSqlError, match="from the rows of all units") as error:
        session.query(f"{sql})", budget=HUGE)
    equal = error.value.hint.removeprefix("limit it to rows of the same unit, WHERE ").rstrip(".")
    found = session.query(f"{sql} AND {equal})", budget=HUGE)
    ((expected,),) = owned(con).execute(f"{sql} AND {equal})").fetchall()
    assert found["n"][0] == pytest.approx(expected, abs=0.1)
    assert expected > 0


def test_noisy_answers_are_joined_as_a_public_table_of_them_is(con, session):
    """What is chosen by counts of all customers is released first, and public then."""
    chosen = "SELECT region, COUNT(*) AS n FROM customers GROUP BY region HAVING COUNT(*) > 9.5"
    sql = "SELECT COUNT(*) AS k FROM customers c JOIN {} q ON q.region = c.region"
    frame = session.query(chosen, budget=HUGE)
    again = dpsql.Session(con, schema=units(), public={"chosen": frame})
    ((expected,),) = con.execute(sql.format(f"({chosen})")).fetchall()
    assert again.query(sql.format("chosen"), budget=HUGE)["k"][0] == pytest.approx(expected, 0.01)
    (at_once,) = dpsql.query(con, sql.format(f"({chosen})"), budget=HUGE, schema=units())["k"]
    assert at_once == pytest.approx(expected, 0.01)


@pytest.mark.parametrize("extra", ["", ", COUNT(DISTINCT level) AS many"])
@pytest.mark.parametrize("level", ["low", "high"])
def test_labels_of_an_enum_are_in_its_order(level, extra):
    """Which isn't that of the alphabet."""
    con = duckdb.connect()
    con.execute("CREATE TYPE level AS ENUM ('low', 'middle', 'high')").fetchall()
    con.execute("CREATE TABLE stays (person INTEGER, level level)").fetchall()
    insert(con, "stays", [(i % 7, ["low", "high", "middle", None][i % 4]) for i in range(15)])
    for least in ("MIN", "MAX"):
        sql = f"SELECT COUNT(*) AS n FROM (SELECT person, {least}(level) AS m{extra} FROM stays "
        sql += f"GROUP BY person) WHERE m = '{level}'"
        unit = dpsql.Unit("person", max_rows=3)
        found = dpsql.query(con, sql, budget=HUGE, unit=unit)["n"][0]
        assert found == pytest.approx(con.execute(sql).fetchall()[0][0], abs=0.1)
