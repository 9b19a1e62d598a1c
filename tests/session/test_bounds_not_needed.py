"""Rows that are looked into need no bound, nor do units that are counted: only counted rows do."""

import json

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import InternalError, LedgerError, StaleSchemaError
from tests.helpers.described import describe_table
from tests.helpers.inserted import insert

HUGE = dpsql.Budget(rho=10**12)
SMALL = dpsql.Budget(rho=1)
LOOKED_INTO = {
    "exists": """
        SELECT vip, COUNT(*) AS n FROM customers c
        WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND paid) GROUP BY vip
    """,
    "not exists": """
        SELECT vip, COUNT(*) AS n FROM customers c
        WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND paid) GROUP BY vip
    """,
    "anti": "SELECT vip, COUNT(*) AS n FROM customers c ANTI JOIN orders o "
    "ON o.customer_id = c.id GROUP BY vip",
    "per unit": """
        SELECT LEAST((SELECT COUNT(*) FROM orders o WHERE o.customer_id = c.id), 9) AS vip,
            COUNT(*) AS n FROM customers c GROUP BY 1
    """,
    "two away": """
        SELECT vip, COUNT(*) AS n FROM customers c WHERE EXISTS (
            SELECT 1 FROM items i JOIN orders o ON i.order_id = o.id
            WHERE o.customer_id = c.id AND gift
        ) GROUP BY vip
    """,
    "groups": """
        SELECT LEAST(k, 9) AS vip, COUNT(*) AS n FROM customers c
        LEFT JOIN (SELECT customer_id, COUNT(*) AS k FROM orders GROUP BY customer_id) p
        ON p.customer_id = c.id GROUP BY 1
    """,
    "units": "SELECT paid AS vip, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY paid",
}
COUNTED = {
    "orders": "SELECT paid, COUNT(*) AS n FROM orders GROUP BY paid",
    "sum": "SELECT SUM(price) AS n FROM orders",
    "joined": "SELECT vip, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id "
    "GROUP BY vip",
    "both": "SELECT COUNT(*) AS n, COUNT(DISTINCT customer_id) AS c FROM orders",
    "units above a floor": "SELECT paid, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY paid"
    " HAVING COUNT(*) > 3",
    "median": "SELECT MEDIAN(price) AS n FROM orders",
}


def shop():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY, vip BOOLEAN NOT NULL);
        CREATE TABLE orders (
            id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            paid BOOLEAN NOT NULL, price INTEGER NOT NULL CHECK (price BETWEEN 0 AND 9)
        );
        CREATE TABLE items (order_id INTEGER REFERENCES orders (id), gift BOOLEAN NOT NULL);
    """)
    insert(con, "customers", [(i, i % 3 == 0) for i in range(30)])
    orders = [(i, i % 20 if i % 7 else 3, i % 4 == 0, i % 10) for i in range(200)]
    insert(con, "orders", [*orders, (900, None, True, 1)])
    insert(con, "items", [(i % 200, i % 9 == 0) for i in range(300)])
    return con


def none_of_orders(con, **options):
    return dpsql.Session(con, unit="customers", max_rows={"customers": 1}, **options)


def answered(session, sql):
    frame = session.query(sql, budget=HUGE)
    found = {row["vip"]: round(row["n"]) for row in frame.iter_rows(named=True)}
    return {key: n for key, n in found.items() if n}


@pytest.mark.parametrize("sql", LOOKED_INTO.values(), ids=LOOKED_INTO)
def test_what_is_looked_into_needs_no_bound(sql):
    con = shop()
    true = dict(con.execute(f"SELECT vip, n FROM ({sql})").fetchall())
    assert answered(none_of_orders(con), sql) == true
    alone = dpsql.Session(con, unit="customers")
    assert answered(alone, sql) == true


@pytest.mark.parametrize("sql", COUNTED.values(), ids=COUNTED)
def test_what_is_counted_does(sql):
    con = shop()
    session = none_of_orders(con)
    for ask in (session.plan, session.release, session.compare):
        with pytest.raises(dpsql.SchemaError, match="how many rows of a unit count in orders") as e:
            ask(sql, budget=SMALL)
    assert session.history.is_empty()
    assert 'max_rows={"customers": 1, "orders": 10}' in e.value.hint
    bounds, _ = json.JSONDecoder().raw_decode(e.value.hint.partition("max_rows=")[2])
    assert session.redeclared(unit="customers", max_rows=bounds).plan(sql, budget=SMALL)


def test_a_statement_of_several_is_named():
    session = none_of_orders(shop())
    with pytest.raises(dpsql.SchemaError) as refused:
        session.plan({"a": LOOKED_INTO["exists"], "b": COUNTED["orders"]}, budget=SMALL)
    assert refused.value.statement == "b"


def test_parents_need_none():
    con = shop()
    session = dpsql.Session(con, unit="customers", max_rows={"items": 400})
    sql = "SELECT paid AS vip, COUNT(*) AS n FROM items JOIN orders o ON order_id = o.id GROUP BY 1"
    wanted = sql.replace("GROUP BY", "WHERE o.customer_id IS NOT NULL GROUP BY")
    true = dict(con.execute(f"SELECT vip, n FROM ({wanted})").fetchall())
    assert answered(session, sql) == true


def test_units_by_groups_have_no_bound_either():
    """Without one a unit counts in as many groups as there are."""
    con = shop()
    sql = "SELECT price AS vip, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY price"
    true = dict(con.execute(f"SELECT vip, n FROM ({sql})").fetchall())
    assert answered(none_of_orders(con), sql) == true


def test_an_engine_counts_no_rows_that_nothing_bounds():
    """Whatever was planned: the last guard is where rows are read."""
    con = shop()
    table = describe_table(con, ("orders",), None, dpsql.Unit("customers"))
    assert not table.is_bounded
    engine = DuckDBEngine(con)
    for marginal in ((), ("paid",)):
        with pytest.raises(InternalError, match="nothing bounds"):
            engine.prepared(table, [marginal])
    assert engine.prepared(describe_table(con, ("orders",)), [("paid",)])


def test_saved_releases_say_so(tmp_path):
    session = none_of_orders(shop())
    release = session.release(LOOKED_INTO["units"], budget=SMALL)
    assert "a unit with all of its rows" in release.summary()
    assert release.neighbours.startswith("add or remove one customers.id with all of its rows")
    release.save(tmp_path / "saved")
    again = dpsql.Release.load(tmp_path / "saved")
    assert_frame_equal(again.query(LOOKED_INTO["units"]), release["query"])
    with pytest.raises(dpsql.SchemaError, match="how many rows of a unit count in orders"):
        again.query(COUNTED["orders"])


class TestAccounts:
    """A table has one unit in an account, and one description; a bound comes and goes."""

    COUNT = COUNTED["orders"]
    LOOK = LOOKED_INTO["exists"]

    def bounded(self, session, rows=10, **options):
        return session.redeclared(unit="customers", max_rows={"orders": rows}, **options)

    def unbounded(self, session, **options):
        return session.redeclared(unit="customers", max_rows={"customers": 1}, **options)

    def test_looked_into_and_then_counted(self):
        session = none_of_orders(shop())
        session.query(self.LOOK, budget=SMALL)
        self.bounded(session).query(self.COUNT, budget=SMALL)
        with pytest.raises(StaleSchemaError):  # as ever: which rows count has changed
            self.bounded(session, 11).query(self.COUNT, budget=SMALL)
        assert session.history.height == 2

    def test_counted_and_then_looked_into(self):
        session = self.bounded(none_of_orders(shop()))
        session.query(self.COUNT, budget=SMALL)
        self.unbounded(session).query(self.LOOK, budget=SMALL)
        self.bounded(session, 11).query(self.LOOK, budget=dpsql.Budget(rho=2), reuse=False)
        self.bounded(session).query(self.COUNT, budget=SMALL, reuse=False)
        assert session.history.height == 4

    def test_limits_make_no_difference_either(self):
        session = none_of_orders(shop())
        for limits in ({"paid": 2}, {"paid": 3}, {}):
            unit = dpsql.Unit("customers", {"orders": 9}, max_rows_per={
                f"orders.{name}": rows for name, rows in limits.items()
            })  # fmt: skip
            session.redeclared(unit=unit).query(self.LOOK, budget=SMALL, reuse=False)
        assert session.history.height == 3

    def test_units_counted_and_then_rows(self):
        session = none_of_orders(shop())
        session.query(LOOKED_INTO["units"], budget=SMALL)
        self.bounded(session).query(self.COUNT, budget=SMALL)
        self.unbounded(session).query(self.LOOK, budget=SMALL)

    def test_another_unit_is_refused_as_ever(self):
        con = shop()
        session = none_of_orders(con)
        session.query(self.LOOK, budget=SMALL)
        other = session.redeclared(unit="id", max_rows={"orders": 3})
        with pytest.raises(LedgerError, match="Another unit was protected"):
            other.query(self.COUNT, budget=SMALL)
        with pytest.raises(LedgerError, match="Another unit was protected"):
            session.redeclared().query(self.COUNT, budget=SMALL)

    def test_other_columns_are_refused_as_ever(self):
        con = shop()
        session = none_of_orders(con)
        session.query(self.LOOK, budget=SMALL)
        con.execute("DROP TABLE items")
        con.execute("ALTER TABLE orders ADD COLUMN late BOOLEAN")
        with pytest.raises(StaleSchemaError):
            self.bounded(session).query(self.COUNT, budget=SMALL)
        with pytest.raises(StaleSchemaError, match="Rows refer to rows of orders"):
            session.query(self.LOOK, budget=dpsql.Budget(rho=2), reuse=False)

    def test_over_files(self, tmp_path):
        """In another process nothing is known but the ledger."""
        path = tmp_path / "shop.duckdb"
        with duckdb.connect(path) as con:
            con.execute("""
                CREATE TABLE customers (id INTEGER PRIMARY KEY, vip BOOLEAN NOT NULL);
                CREATE TABLE orders (customer_id INTEGER REFERENCES customers (id), paid BOOLEAN);
            """)
        for bounds, sql in (
            ({"customers": 1}, self.LOOK), ({"orders": 9}, self.COUNT), ({"orders": 9}, self.LOOK),
            ({"customers": 1}, self.LOOK),
        ):  # fmt: skip
            with duckdb.connect(path) as con:
                session = dpsql.Session(con, unit="customers", max_rows=bounds)
                session.query(sql, budget=SMALL, reuse=False)
        with duckdb.connect(path) as con:
            assert dpsql.Session(con).history.height == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("WHERE levenshtein(o.note, 'x') > 1", "levenshtein can't run on rows"),
        ("GROUP BY o.note", "has no public domain"),
    ],
)
def test_a_bound_of_rows_that_meet_is_asked_for_last(more, said):
    """Nobody gives one for a statement that is refused for another reason all the same."""
    con = duckdb.connect()
    con.execute("CREATE TABLE orders (customer INTEGER, day INTEGER, note VARCHAR)").fetchall()
    met = "SELECT COUNT(*) AS n FROM orders o JOIN orders p ON o.customer = p.customer "
    session = dpsql.Session(con, unit="customer", max_rows={"others": 3})
    with pytest.raises(dpsql.SqlError, match=said):
        session.plan(met + more, budget=SMALL)
    with pytest.raises(dpsql.SchemaError, match="how many rows of a unit count where") as refused:
        session.plan(met, budget=SMALL)
    assert 'max_rows={"orders, orders": 20, "others": 3}' in (refused.value.hint or "")


def test_rows_that_meet_in_a_subquery_need_no_bound_of_theirs():
    """They say of an order whether there are some, however many there are."""
    con = duckdb.connect()
    con.execute("CREATE TABLE orders (customer INTEGER, day INTEGER, note VARCHAR)").fetchall()
    con.execute("INSERT INTO orders SELECT i % 5, i, '' FROM range(12) r(i)")
    inner = "SELECT 1 FROM orders p JOIN orders q ON p.customer = q.customer"
    met = f"{inner} WHERE p.customer = o.customer AND p.day < q.day - 5"
    sql = f"SELECT COUNT(*) AS n FROM orders o WHERE EXISTS ({met})"
    bounds = {"orders": 3}
    session = dpsql.Session(con, unit="customer", max_rows=bounds)
    found = session.query(sql, budget=dpsql.Budget(rho=10**12))["n"][0]
    assert [round(found)] == list(con.execute(sql).fetchone())
    sql = f"SELECT COUNT(DISTINCT o.customer) AS n FROM orders o WHERE EXISTS ({inner})"
    with pytest.raises(dpsql.SqlError):
        dpsql.Session(con, unit="customer", max_rows=bounds).plan(sql, budget=SMALL)
