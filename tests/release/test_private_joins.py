"""Joins of private tables: rows with the columns of the rows of their unit that they refer to."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import (
    LedgerError,
    SchemaError,
    SqlError,
    StaleSchemaError,
    UnsupportedSqlError,
)
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=Fraction(10**13))
TABLES = """
    CREATE TABLE customers (
        id INTEGER PRIMARY KEY,
        region VARCHAR NOT NULL CHECK (region IN ('n', 's', 'e')),
        balance INTEGER CHECK (balance BETWEEN -100 AND 1000),
        vip BOOLEAN,
        note VARCHAR
    );
    CREATE TABLE addresses (
        id INTEGER PRIMARY KEY,
        customer_id INTEGER REFERENCES customers (id),
        city VARCHAR NOT NULL CHECK (city IN ('a', 'b'))
    );
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY,
        customer_id INTEGER REFERENCES customers (id),
        address_id INTEGER REFERENCES addresses (id),
        status VARCHAR CHECK (status IN ('o', 'f', 'p')),
        price INTEGER CHECK (price BETWEEN 0 AND 500),
        region VARCHAR CHECK (region IN ('n', 'x'))
    );
    CREATE TABLE items (
        order_id INTEGER NOT NULL REFERENCES orders (id),
        qty INTEGER CHECK (qty BETWEEN 1 AND 9)
    );
    CREATE TABLE stores (id INTEGER PRIMARY KEY, city VARCHAR CHECK (city IN ('a', 'b')));
    CREATE TABLE regions (code VARCHAR, name VARCHAR);
    INSERT INTO regions VALUES ('n', 'North'), ('s', 'South'), ('e', 'East');
"""


def units(orders=20, items=50):
    """Declare whose the rows are: an order's customer, also where it goes to another's address."""
    unit = dpsql.Unit
    found = {"customers": unit("customers", 1), "addresses": unit("customers", 9)}
    found |= {"orders": unit("customer_id", orders), "items": unit("orders.customer_id", items)}
    return dpsql.Schema({}, units=found)


NAMES = ("customers", "addresses", "orders", "items")


def shop(con, seed=1, customers=30, apart=None, without=None):
    """Fill the tables: some customers have no order, some orders no customer and no status.

    Some orders go to addresses of other customers, but none to those of the one `apart`: as long
    as there is one, the database doesn't let that customer go.
    """
    rng = random.Random(seed)  # noqa: S311
    for name in reversed(NAMES):
        con.execute(f"DELETE FROM {name}")
    orders, own_places = 0, set() if apart is None else {apart, customers + apart}
    rows = {name: [] for name in NAMES}
    for id_ in [*range(customers), None]:
        region, balance = rng.choice("nse"), rng.choice([None, rng.randint(-100, 1000)])
        owner = (id_, region, balance, rng.choice([None, True, False]), rng.choice(["a", "b", ""]))
        own = {name: [] for name in NAMES}
        own["customers"] = [] if id_ is None else [owner]
        for place in (id_, None if id_ is None else customers + id_):
            own["addresses"] += [] if place is None else [(place, id_, rng.choice("ab"))]
        for _ in range(rng.choice([0, 1, 2, 7])):
            orders += 1
            status, price = rng.choice(["o", "f", "p", None]), rng.choice([None, 7, 300, 500])
            place = rng.choice([None, id_, id_, rng.randrange(2 * customers)])
            place = None if place in own_places and id_ != apart else place
            own["orders"].append((orders, id_, place, status, price, rng.choice(["n", "x"])))
            own["items"] += [(orders, rng.randint(1, 9)) for _ in range(rng.choice([0, 1, 4]))]
        if id_ is None or id_ != without:
            rows = {name: [*rows[name], *own[name]] for name in rows}
    for name, found in rows.items():
        insert(con, name, found)


def filled():
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con)
    return con


@pytest.fixture
def con():
    return filled()


@pytest.fixture
def session(con):
    return dpsql.Session(con, schema=units(), public=["regions"])


def owned(con):
    """A copy without the rows that belong to nobody: those don't count."""
    other = duckdb.connect()
    other.execute(TABLES)
    for name in NAMES:
        insert(other, name, con.execute(f"SELECT * FROM {name}").fetchall())
    other.execute(
        "DELETE FROM items WHERE order_id IN (SELECT id FROM orders WHERE customer_id IS NULL)"
    )
    other.execute("DELETE FROM orders WHERE customer_id IS NULL")
    return other


def answers(session, sql, budget=HUGE):
    frame = session.query(sql, budget=budget)
    return frame.select([name for name in frame.columns if not name.endswith("_variance")])


def check_equal(con, session, sql):
    """Compare with DuckDB: a group that it hasn't is one without rows."""
    found, true = answers(session, sql), owned(con).sql(sql).pl()
    assert found.columns == true.columns
    keys = [n for n, t in true.schema.items() if not t.is_numeric() and not t.is_decimal()]
    expected = {tuple(row[: len(keys)]): row[len(keys) :] for row in true.rows()}
    counted = 0
    for row in found.rows():
        values = expected.get(tuple(row[: len(keys)]))
        if values is None:
            assert abs(row[len(keys)]) < 0.1, row
            continue
        counted += 1
        for ours, theirs in zip(row[len(keys) :], values, strict=True):
            assert (theirs is None and abs(ours) < 0.1) or ours == pytest.approx(
                float(theirs), rel=1e-4, abs=0.1
            ), row
    assert counted == len(expected)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c.region, o.status, COUNT(*) AS n, SUM(o.price) AS p FROM orders o "
        "JOIN customers c ON o.customer_id = c.id GROUP BY ALL",
        "SELECT c.region, COUNT(*) AS n, SUM(c.balance) AS b FROM orders o "
        "LEFT JOIN customers c ON c.id = o.customer_id GROUP BY c.region",
        "SELECT c.region, SUM(qty) AS n FROM items i, orders o, customers c "
        "WHERE i.order_id = o.id AND (o.customer_id = c.id) AND status = 'f' GROUP BY 1",
        "SELECT o.region, c.region AS lives, COUNT(*) AS n FROM customers AS c "
        "JOIN orders AS o ON o.customer_id = c.id AND c.vip GROUP BY ALL",
        "SELECT note = 'a' AS a, COUNT(*) AS n FROM orders "
        "JOIN customers ON customer_id = customers.id WHERE price >= 7 GROUP BY 1",
        "SELECT status, COUNT(*) AS n FROM orders o SEMI JOIN customers c ON o.customer_id = c.id "
        "GROUP BY 1",
        "SELECT status, COUNT(*) AS n FROM items JOIN orders ON order_id = orders.id GROUP BY 1",
        "SELECT c.vip, SUM(i.qty * c.balance) AS v FROM items i JOIN orders o ON i.order_id = o.id "
        "JOIN customers c ON o.customer_id = c.id GROUP BY 1",
        "WITH rich AS (SELECT id, region AS r FROM customers WHERE balance > 300), "
        "late AS (SELECT customer_id AS cid, price FROM orders WHERE status <> 'p') "
        "SELECT r, COUNT(*) AS n, SUM(price) AS p FROM late JOIN rich ON rich.id = late.cid "
        "GROUP BY r",
        "SELECT x.r, COUNT(*) AS n FROM items JOIN (SELECT o.id AS oid, c.region AS r FROM orders "
        "o JOIN customers c ON o.customer_id = c.id WHERE price > 7) AS x ON order_id = x.oid "
        "GROUP BY 1",
        "SELECT name, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
        "JOIN regions g ON g.code = c.region GROUP BY 1",
        "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE o.price > c.balance) AS m FROM orders o "
        "JOIN customers c ON o.customer_id = c.id",
        "SELECT region, COUNT(*) AS n FROM customers GROUP BY region",
    ],
)  # fmt: skip
def test_it_is_what_duckdb_says(con, session, sql):
    check_equal(con, session, sql)


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_a_row_of_another_unit_is_none(con, session, kind):
    """The way over addresses is not that to the unit: the unit must be the same, too."""
    shown = "" if kind in {"SEMI JOIN", "ANTI JOIN"} else "city, "
    sql = (
        f"SELECT {shown}status, COUNT(*) AS n FROM orders o {kind} addresses a "
        "ON o.address_id = a.id{more} GROUP BY ALL"
    )
    true = owned(con).sql(sql.format(more=" AND o.customer_id = a.customer_id")).pl()
    expected = {tuple(row[:-1]): row[-1] for row in true.rows()}
    found = {tuple(row[:-1]): row[-1] for row in answers(session, sql.format(more="")).rows()}
    assert {keys: n for keys, n in found.items() if n > 0.5} == pytest.approx(expected, abs=0.01)
    assert kind == "LEFT JOIN" or not any(keys[0] is None for keys in found if len(keys) > 1)


def test_using_names_a_column_once():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (person INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex IN "
        "('f', 'm'))); CREATE TABLE visits (person INTEGER REFERENCES people (person), day INTEGER "
        "CHECK (day BETWEEN 1 AND 3)); INSERT INTO people VALUES (1, 'f'), (2, 'm'); "
        "INSERT INTO visits VALUES (1, 1), (1, 2), (2, 3), (NULL, 1);"
    )
    unit = dpsql.Unit("people", max_rows={"visits": 5})
    session = dpsql.Session(con, unit=unit)
    for sql in (
        "SELECT sex, COUNT(*) AS n FROM visits JOIN people USING (person) GROUP BY 1 ORDER BY 1",
        "SELECT sex, COUNT(*) AS n FROM people JOIN visits USING (person) GROUP BY 1 ORDER BY 1",
    ):
        assert [round(n) for n in answers(session, sql)["n"]] == [2, 1]
    # The unit may be the column itself, too.
    own = dpsql.Session(con, unit="person", max_rows=5)
    assert [round(n) for n in answers(own, sql)["n"]] == [2, 1]


def test_statements_about_one_table_are_planned_together(session):
    script = {
        "plain": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "joined": "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c ON "
        "o.customer_id = c.id GROUP BY 1",
    }
    release = session.release(script, budget=dpsql.Budget(rho=1))
    assert release["plain"].columns == ["status", "n", "n_variance"]
    assert release["joined"].columns == ["region", "n", "n_variance"]
    both = (
        "SELECT o.status, c.region, COUNT(*) AS n FROM orders o JOIN customers c ON "
        "o.customer_id = c.id GROUP BY ALL"
    )
    session.query(both, budget=dpsql.Budget(rho=1))
    # What was measured answers what is asked later, without a join and with one.
    for sql in script.values():
        session.query(sql, budget=0)


def test_a_saved_release_answers_more(session, tmp_path):
    sql = (
        "SELECT c.region, o.status, COUNT(*) AS n FROM orders o JOIN customers c ON "
        "o.customer_id = c.id GROUP BY ALL"
    )
    release = session.release({"both": sql}, budget=dpsql.Budget(rho=1))
    release.save(tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out")
    more = (
        "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
        "WHERE o.status = 'f' GROUP BY ALL ORDER BY 1"
    )
    frame = loaded.query(more)
    wanted = release["both"].filter(pl.col("status") == "f").sort("region")
    assert frame["n"].to_list() == pytest.approx(wanted["n"].to_list())
    with pytest.raises(SchemaError, match="no table customers"):
        loaded.query("SELECT region, COUNT(*) FROM customers GROUP BY 1")


MEET = "how many rows of a unit count where rows of"
OF_ONE = (
    "(?s)must say that both rows are of one unit.*"
    "say so: (o.customer_id = c.id|c.id = o.customer_id)"
)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM orders o, customers c", "join of private tables"),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c ON o.id = c.id",
            OF_ONE,
        ),
        ("SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer_id <> c.id", "join of"),
        ("SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer_id >= c.id", "join of"),
        ("SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer_id + 0 = c.id", "join of"),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c ON o.region = c.region",
            OF_ONE,
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id OR c.vip",
            "join of private",
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c ON NOT (o.customer_id = c.id)",
            "join of private",
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN customers c "
            "ON (o.customer_id = c.id AND c.vip) OR c.region = 'n'",
            "join of private",
        ),
        (
            "SELECT COUNT(*) FROM items i JOIN customers c ON i.order_id = c.id",
            "JOIN orders ON i.order_id = orders.id",
        ),
        (
            "SELECT COUNT(*) FROM orders o ANTI JOIN customers c ON o.customer_id = c.id OR c.vip",
            OF_ONE,
        ),
        (
            "SELECT COUNT(*) FROM customers c SEMI JOIN orders o ON o.region = c.region",
            OF_ONE,
        ),
        ("SELECT COUNT(*) FROM orders o POSITIONAL JOIN customers c", "POSITIONAL"),
        ("SELECT COUNT(*) FROM orders o NATURAL JOIN customers c", "NATURAL"),
        ("SELECT COUNT(*) FROM orders o JOIN stores s ON o.id = s.id", "rows of the same units"),
    ],
)  # fmt: skip
def test_other_joins_are_refused_before_the_charge(session, sql, said):
    with pytest.raises((UnsupportedSqlError, SchemaError), match=f"(?i){said}"):
        session.query(sql, budget=dpsql.Budget(rho=1))
    assert not session.history.height


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.id = b.id",
        "SELECT COUNT(*) AS n FROM customers a JOIN customers b ON a.id = b.id",
        "SELECT d.region, c.vip, COUNT(*) AS n FROM orders o JOIN customers c "
        "ON o.customer_id = c.id JOIN customers d ON o.customer_id = d.id GROUP BY ALL",
        "SELECT o.status, COUNT(*) AS n, COUNT(o.id) AS o FROM customers c "
        "LEFT JOIN orders o ON o.customer_id = c.id GROUP BY 1",
        "SELECT COUNT(*) AS n FROM orders o RIGHT JOIN customers c ON o.customer_id = c.id",
        "SELECT c.vip, COUNT(*) AS n FROM orders o LEFT JOIN customers c "
        "ON o.customer_id = c.id AND c.vip GROUP BY 1",
        "SELECT COUNT(*) AS n, COUNT(c.id) AS c FROM orders o "
        "LEFT JOIN (SELECT id FROM customers WHERE vip) c ON o.customer_id = c.id",
        "SELECT COUNT(*) AS n FROM orders o FULL JOIN customers c ON o.customer_id = c.id",
    ],
)
def test_joins_that_are_relations_are_counted_as_duckdb_does(con, session, sql):
    check_equal(con, session, sql)


def test_a_column_of_two_tables_is_ambiguous(session):
    join = "FROM orders o JOIN customers c ON o.customer_id = c.id"
    with pytest.raises(SqlError, match="ambiguous") as caught:
        session.query(f"SELECT region, COUNT(*) {join} GROUP BY 1", budget=HUGE)
    assert "o.region" in caught.value.hint
    with pytest.raises(SqlError, match="no column price in customers"):
        session.query(f"SELECT c.price, COUNT(*) {join} GROUP BY 1", budget=HUGE)
    with pytest.raises(SqlError, match="x is not a table"):
        session.query(f"SELECT x.price, COUNT(*) {join} GROUP BY 1", budget=HUGE)
    with pytest.raises(SqlError, match="column note of customers has no public domain"):
        session.query(f"SELECT c.note, COUNT(*) {join} GROUP BY 1", budget=HUGE)


def test_a_parent_without_the_foreign_key_is_none(con):
    con.execute("CREATE TABLE loose (customer_id INTEGER, n INTEGER CHECK (n BETWEEN 0 AND 1))")
    session = dpsql.Session(con, unit=dpsql.Unit("customers", max_rows={"loose": 2}))
    with pytest.raises(SchemaError, match="No FOREIGN KEY leads from loose to customers"):
        session.query(
            "SELECT COUNT(*) FROM loose l JOIN customers c ON l.customer_id = c.id", budget=HUGE
        )


def test_a_parent_that_is_altered_makes_a_plan_stale(con, session):
    sql = (
        "SELECT c.region, COUNT(*) FROM orders o JOIN customers c ON o.customer_id = c.id "
        "GROUP BY 1"
    )
    asked = session._data.declared.compile(_request(sql))
    con.execute("ALTER TABLE customers ADD COLUMN more INTEGER")
    with pytest.raises(StaleSchemaError, match="altered"):
        session._data.verify(asked.table)


def _request(sql):
    from dpsql.request import Request, named

    return Request(named(sql), HUGE)


SCRIPTS = [
    {
        "a": "SELECT city, o.status, COUNT(*) AS n FROM orders o JOIN addresses a ON "
        "o.address_id = a.id GROUP BY ALL",
        "b": "SELECT COUNT(*) AS n FROM orders o ANTI JOIN addresses a ON o.address_id = a.id",
    },
    {
        "a": "SELECT city, SUM(qty) AS q FROM items i JOIN orders o ON i.order_id = o.id "
        "LEFT JOIN addresses a ON o.address_id = a.id GROUP BY ALL",
    },
    {
        "a": "SELECT c.region, o.status, COUNT(*) AS n, SUM(o.price) AS p FROM orders o JOIN "
        "customers c ON o.customer_id = c.id GROUP BY ALL"
    },
    {
        "a": "SELECT c.vip, SUM(i.qty * c.balance) AS v, COUNT(*) AS n FROM items i JOIN orders o "
        "ON i.order_id = o.id JOIN customers c ON o.customer_id = c.id WHERE o.price > 7 GROUP BY 1"
    },
    {
        "a": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "b": "SELECT c.note LIKE 'a%' AS x, AVG(c.balance) AS b FROM orders o LEFT JOIN customers "
        "c ON o.customer_id = c.id GROUP BY 1",
    },
    {
        "a": "SELECT o.price > c.balance AS more, COUNT(*) AS n FROM orders o JOIN customers c ON "
        "o.customer_id = c.id GROUP BY 1"
    },
    {
        "a": "SELECT COUNT(*) AS n FROM orders WHERE status = 'o'",
        "b": "SELECT COUNT(*) AS n FROM customers WHERE vip",
        "c": "SELECT COUNT(*) AS n FROM items",
    },
    {
        "a": "SELECT region, COUNT(*) AS n FROM customers WHERE NOT vip GROUP BY region",
        "b": "SELECT COUNT(*) AS n, SUM(price) AS p FROM orders WHERE status <> 'o'",
    },
]


COMPARED = SCRIPTS[-2:]
"""Scripts in which rows under conditions are compared."""


def check_without_one(seed, script):
    """Remove one customer, where units have bounds of their own."""
    rng = random.Random(seed)  # noqa: S311
    schema = units(rng.choice([1, 2, 5]), rng.choice([1, 3]))
    removed_one(rng, seed, {"script": script, "schema": schema})


def removed_one(rng, seed, asked):
    """Remove one customer with all rows: all else stays, and that is paid for.

    Returns both runs, with the customer and without.
    """
    con = duckdb.connect()
    con.execute(TABLES)
    how = {"budget": dpsql.Budget(rho=Fraction(1, 2))}
    gone = rng.randrange(12)
    shop(con, seed, customers=12, apart=gone)
    whole = recorded(con, asked, **how)
    shop(con, seed, customers=12, apart=gone, without=gone)
    fewer = recorded(con, asked, **how)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)
    return whole, fewer


def test_plans_say_where_rows_of_other_units_are_not_met(session):
    """DuckDB has more rows there: orders that go to an address of somebody else."""
    city = (
        "SELECT city, COUNT(*) AS n FROM orders o JOIN addresses a ON address_id = a.id GROUP BY 1"
    )
    within = """SELECT COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM orders o
        JOIN addresses a ON address_id = a.id WHERE o.customer_id = c.id AND city = 'a')"""
    said = {
        city: "if address_id of a row of orders leads to a row of addresses that ",
        within: "rows are joined, grouped and numbered by orders.address_id within each unit",
    }
    for sql, words in said.items():
        plan = session.plan({"q": sql}, budget=HUGE)
        (note,) = plan.notes
        assert note.startswith(words)
        assert f"note: {note}" in plan.explain()
    own = "SELECT region, COUNT(*) AS n FROM items JOIN orders ON order_id = orders.id GROUP BY 1"
    assert session.plan({"q": own}, budget=HUGE).notes == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(80))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])


@pytest.mark.parametrize("script", COMPARED)
@pytest.mark.parametrize("seed", range(4))
def test_neighbors_differ_by_what_is_charged_where_some_rows_are_compared(seed, script):
    asked = {"script": script, "schema": units(2, 3)}
    whole, _ = removed_one(random.Random(seed), seed, asked)  # noqa: S311
    assert any(any(one.conditions) for one in whole.certified.differences)


STAFF = """
    CREATE TABLE staff (id INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex IN ('f', 'm')){});
    CREATE TABLE pays (staff_id INTEGER REFERENCES staff (id));
"""
PAID = "SELECT sex, COUNT(*) AS n FROM pays JOIN staff ON staff_id = staff.id GROUP BY 1"
BY_STAFF = dpsql.Unit("staff", max_rows={"pays": 3, "teams": 3})


@pytest.mark.parametrize(
    "more",
    [
        ", boss INTEGER REFERENCES staff (id)",
        ", a INTEGER, b INTEGER, UNIQUE (a, b), FOREIGN KEY (a, b) REFERENCES staff (a, b)",
    ],
)
def test_units_that_refer_to_each_other_are_not_joined(more):
    """What leads to an employee leads to the manager as well: whose is it?"""
    con = duckdb.connect()
    con.execute(STAFF.format(more))
    session = dpsql.Session(con, unit=BY_STAFF)
    with pytest.raises(SqlError, match="from staff to staff") as caught:
        session.query(PAID, budget=HUGE)
    assert "^" in str(caught.value)
    assert not session.history.height
    assert session.query("SELECT COUNT(*) AS n FROM pays", budget=HUGE)["n"][0] < 0.5


@pytest.mark.parametrize("lead", ["", " REFERENCES boards (id)"])
def test_tables_that_units_refer_to_may_lead_on(lead):
    """The units' own table may refer to others, but for those that lead back to it."""
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE boards (id INTEGER PRIMARY KEY); CREATE TABLE teams (id INTEGER PRIMARY "
        f"KEY, lead INTEGER{lead});" + STAFF.format(", team INTEGER REFERENCES teams (id)")
    )
    con.execute("INSERT INTO staff VALUES (1, 'f', NULL); INSERT INTO pays VALUES (1);")
    frame = dpsql.Session(con, unit=BY_STAFF).query(PAID + " ORDER BY 1", budget=HUGE)
    assert [round(n) for n in frame["n"]] == [1, 0]


def test_of_several_ways_the_shortest_is_taken(con):
    """Orders lead to customers by themselves, and by the addresses that they go to."""
    bounds = {"orders": 20, "items": 50, "addresses": 9}
    session = dpsql.Session(con, unit=dpsql.Unit("customers", max_rows=bounds))
    sql = (
        "SELECT c.region, COUNT(*) AS n FROM items i JOIN orders o ON i.order_id = o.id "
        "JOIN customers c ON o.customer_id = c.id GROUP BY 1 ORDER BY 1"
    )
    true = con.sql(sql).fetchall()
    found = answers(session, sql).select("region", "n").rows()
    assert [(region, round(n)) for region, n in found] == true
    assert session.plan(sql, budget=HUGE).neighbours == (
        "add or remove one customers.id with all of its rows, of which at most 50 are kept; "
        "its rows are found in items by items.order_id → orders.customer_id → customers"
    )


def test_tables_on_the_way_must_be_of_the_same_units(con):
    """Else removing a unit with its orders would take the items of others with them."""
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, sex BOOLEAN)")
    con.execute(
        "CREATE TABLE sales (id INTEGER PRIMARY KEY, buyer INTEGER REFERENCES people (id), "
        "seller INTEGER REFERENCES people (id)); "
        "CREATE TABLE lines (sale INTEGER REFERENCES sales (id), n INTEGER)"
    )
    sql = "SELECT COUNT(*) AS n FROM lines l JOIN sales s ON l.sale = s.id WHERE s.buyer > 3"
    of = {"people": dpsql.Unit("people", 1), "lines": dpsql.Unit("sales.buyer", 3)}
    for way in ("buyer", "seller"):
        units_ = of | {"sales": dpsql.Unit(way, 2)}
        session = dpsql.Session(con, schema=dpsql.Schema({}, units=units_))
        if way == "buyer":
            session.query(sql, budget=HUGE)
            continue
        with pytest.raises(SchemaError, match="has other units, or none"):
            session.query(sql, budget=HUGE)


def test_columns_may_be_called_as_the_library_calls_its_own(con):
    """Here a parent has a column `u_unit`, which is not the unit that it is met by."""
    con.execute("ALTER TABLE addresses ADD COLUMN u_unit INTEGER")
    con.execute("UPDATE addresses SET u_unit = 1 - customer_id")
    session = dpsql.Session(con, schema=units())
    sql = (
        "SELECT city, COUNT(*) AS n FROM orders o JOIN addresses a ON o.address_id = a.id{} "
        "GROUP BY 1 ORDER BY 1"
    )
    true = con.sql(sql.format(" AND o.customer_id = a.customer_id")).fetchall()
    found = session.query(sql.format(""), budget=HUGE)
    assert [round(n) for n in found["n"]] == [n for _, n in true]


def test_a_column_with_the_name_of_a_parents_column_stays_its_own():
    con = duckdb.connect()
    con.execute(
        STAFF.format("") + "CREATE TABLE trips (staff_id INTEGER REFERENCES staff (id), "
        "\"staff_id.sex\" VARCHAR NOT NULL CHECK (\"staff_id.sex\" IN ('f', 'm')));"
        "INSERT INTO staff VALUES (1, 'f'); INSERT INTO trips VALUES (1, 'm'), (1, 'm');"
    )
    session = dpsql.Session(con, unit=dpsql.Unit("staff", max_rows={"trips": 1}))
    own = 'SELECT "staff_id.sex" AS s, COUNT(*) AS n FROM trips GROUP BY 1 ORDER BY 1'
    assert [round(n) for n in session.query(own, budget=HUGE)["n"]] == [0, 1]
    met = {sex: round(n) for sex, n in answers(session, PAID.replace("pays", "trips")).rows()}
    assert met == {"f": 1, "m": 0}


OF_PUBLIC = (
    "SELECT {}, COUNT(*) AS n FROM orders o {} JOIN (SELECT c.id, g.name FROM customers c "
    "CROSS JOIN regions g) x ON o.customer_id = x.id GROUP BY 1"
)


@pytest.mark.parametrize("kind", ["SEMI", "ANTI"])
def test_a_row_stays_one_where_queries_join_public_tables(con, session, kind):
    sql = OF_PUBLIC.format("status", kind)
    true = dict(owned(con).execute(sql.replace("regions g", "range(3) g (name)")).fetchall())
    found = {status: round(n) for status, n in answers(session, sql).rows()}
    assert {status: n for status, n in found.items() if n} == true


def test_a_row_becomes_several_where_queries_join_public_tables(con, session):
    sql = OF_PUBLIC.format("name", "LEFT")
    plan = session.plan(sql, budget=HUGE)
    assert (
        plan.contributions
        == 3 * session.plan("SELECT COUNT(*) FROM orders", budget=HUGE).contributions
    )
    true = dict(owned(con).execute(sql).fetchall())
    found = {name: round(n) for name, n in answers(session, sql).rows()}
    assert {name: n for name, n in found.items() if n} == true


def test_rows_that_refer_by_texts_with_a_collation_are_told_apart():
    """Their order must not be left to the scan: 'a' and 'A' are two orders."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY); CREATE TABLE orders (id VARCHAR COLLATE "
        "NOCASE PRIMARY KEY, person INTEGER REFERENCES people (id), paid BOOLEAN NOT NULL); "
        "CREATE TABLE items (order_id VARCHAR COLLATE NOCASE NOT NULL REFERENCES orders (id))"
    )
    con.execute("INSERT INTO people SELECT i FROM range(50) t(i)")
    con.execute(
        "INSERT INTO orders SELECT chr((97 + (i % 4 // 2) - 32 * (i % 2))::INT) || i // 4, i // 4, "
        "i % 2 = 0 FROM range(200) t(i)"
    )
    unit = dpsql.Unit("people", max_rows={"orders": 9, "items": 1})
    sql = "SELECT paid, COUNT(*) AS n FROM items JOIN orders ON order_id = orders.id GROUP BY 1"
    found = set()
    for order in ("id", "id DESC", "encode(id)", "hash(id)"):
        con.execute("DELETE FROM items")
        con.execute(f"INSERT INTO items SELECT id FROM orders ORDER BY {order}")
        frame = dpsql.Session(con, unit=unit).query(sql + " ORDER BY 1", budget=HUGE)
        found.add(tuple(round(n) for n in frame["n"]))
    assert len(found) == 1
    assert sum(found.pop()) == 50


PLACES = "SELECT city, COUNT(*) AS n FROM addresses GROUP BY 1"
SENT = "SELECT city, COUNT(*) AS n FROM orders o JOIN addresses a ON o.address_id = a.id GROUP BY 1"
SMALL = dpsql.Budget(rho=1)


@pytest.mark.parametrize(
    ("other", "said"),
    [(dpsql.Unit("house", 3), "Another unit"), (dpsql.EACH_ROW, "Another unit")],
)
def test_a_table_that_is_referred_to_keeps_its_unit(con, session, tmp_path, other, said):
    """What is asked of addresses from orders is not a promise for houses, and the other way."""
    con.execute("ALTER TABLE addresses ADD COLUMN house INTEGER")
    rows = dpsql.Session(con, unit=other, ledger=tmp_path / "first.ledger")
    rows.query(PLACES, budget=SMALL)
    by_customer = dpsql.Session(con, schema=units(), ledger=tmp_path / "first.ledger")
    with pytest.raises(LedgerError, match=f"refer to rows of addresses. {said}"):
        by_customer.query(SENT, budget=SMALL)
    assert by_customer.history.height == 1
    # What doesn't ask for addresses is another matter.
    by_customer.query(
        "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
        "GROUP BY 1",
        budget=SMALL,
    )
    second = {"ledger": tmp_path / "second.ledger"}
    by_customer = dpsql.Session(con, schema=units(), **second)
    by_customer.query(SENT, budget=SMALL)
    by_customer.query(PLACES, budget=SMALL)
    with pytest.raises(LedgerError, match=said):
        dpsql.Session(con, unit=other, **second).query(PLACES, budget=SMALL)


def test_a_table_that_is_referred_to_keeps_its_description(con, tmp_path):
    ledger = {"ledger": tmp_path / "x.ledger"}
    dpsql.Session(con, schema=units(), **ledger).query(SENT, budget=SMALL)
    con.execute("ALTER TABLE addresses ADD COLUMN more INTEGER")
    with pytest.raises(StaleSchemaError, match="refer to rows of addresses"):
        dpsql.Session(con, schema=units(), **ledger).query(SENT, budget=SMALL)
    accepted = dpsql.Session(con, schema=units(), accept_schema=True, **ledger)
    accepted.query(SENT, budget=SMALL)


def test_foreign_keys_may_be_typed_in_other_letters():
    """DuckDB keeps their names as they were typed; a manager is a manager all the same."""
    con = duckdb.connect()
    con.execute(
        'CREATE TABLE "Staff" ("Id" INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex IN '
        "('f', 'm')), boss INTEGER); INSERT INTO staff VALUES (1, 'f', 1);"
        'CREATE TABLE pays ("Staff_ID" INTEGER, FOREIGN KEY (staff_id) REFERENCES STAFF (ID));'
        "INSERT INTO pays VALUES (1), (1);"
    )
    unit = dpsql.Unit("staff", max_rows={"pays": 3})
    frame = dpsql.Session(con, unit=unit).query(PAID + " ORDER BY 1", budget=HUGE)
    assert [round(n) for n in frame["n"]] == [2, 0]
    con.execute(
        "DROP TABLE pays; DROP TABLE staff; CREATE TABLE Staff (id INTEGER PRIMARY KEY, sex "
        "BOOLEAN, boss INTEGER REFERENCES STAFF (ID)); CREATE TABLE pays (staff_id INTEGER "
        "REFERENCES staff (id))"
    )
    with pytest.raises(SchemaError, match="from Staff to Staff"):
        dpsql.Session(con, unit=unit).query(PAID, budget=HUGE)


def test_using_says_nothing_of_what_is_joined_later():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (person INTEGER PRIMARY KEY, sex BOOLEAN); CREATE TABLE orders "
        "(id INTEGER PRIMARY KEY, person INTEGER REFERENCES people (person)); CREATE TABLE items "
        "(order_id INTEGER REFERENCES orders (id), person INTEGER REFERENCES people (person))"
    )
    own = {"people": dpsql.Unit("person", 1), "orders": dpsql.Unit("person", 3)}
    schema = dpsql.Schema({}, units=own | {"items": dpsql.Unit("orders.person", 9)})
    session = dpsql.Session(con, schema=schema)
    sql = (
        "SELECT sex, COUNT(*) FROM items i JOIN orders o USING (person){} WHERE i.order_id = o.id "
        "GROUP BY 1"
    )
    session.query(sql.format(" JOIN people p USING (person)"), budget=HUGE)
    with pytest.raises(UnsupportedSqlError, match="join of private tables"):
        session.query(sql.format(", people p"), budget=HUGE)
