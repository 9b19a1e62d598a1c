"""The line of a relation: rows that tie in it are the same, and have one place in all windows."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from dpsql.engines.duckdb.relations import DuckDBRelations
from dpsql.rel.facts import Known
from dpsql.rel.keys import meets_one
from dpsql.rel.nodes import Agg, Bound, Group, GroupJoin, Join, Project, Scan, Window
from dpsql.rows.expression import RowCall, RowColumn, RowConstant
from dpsql.rows.windows import WindowCall, WindowOrder
from dpsql.schema.grain import stored_type
from tests.rel.random_relations import Shop

SHOP, ROWS = Shop("INTEGER"), 60_000
NUMBER = WindowCall("row_number")


def scan(prefix, name="visits"):
    return Scan(SHOP.source(name), prefix)


def backwards(column):
    return WindowCall("row_number", order=(WindowOrder(RowColumn(column), True, False),))


def paired():
    """Return pairs of numbered rows with rows of which nothing is read."""
    joined = Join(Window(scan("v."), (("a", NUMBER),)), scan("n.", "customers"), None)
    return Window(Window(joined, (("b", NUMBER),)), (("c", backwards("a")),))


UNPLACED = {
    "no columns": lambda: Window(
        Window(Project(scan("v."), ()), (("a", NUMBER),)), (("b", NUMBER),)
    ),
    "none that are read": lambda: Window(Window(scan("v."), (("a", NUMBER),)), (("b", NUMBER),)),
    "windows of one node": lambda: Window(scan("v."), (("a", NUMBER), ("b", NUMBER))),
}


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect(config={"threads": 4})
    for name in ("visits", "customers"):
        table = SHOP.source(name).table
        columns = {column: stored_type(table, column) for column in table.listed}
        con.execute(f"CREATE TABLE {name} ({', '.join(f'{n} {t}' for n, t in columns.items())})")
    con.execute(f"INSERT INTO visits (customer_id) SELECT range % 3 FROM range({ROWS})")
    con.execute("INSERT INTO customers (id) SELECT range FROM range(3)")
    return con


@pytest.mark.parametrize("case", UNPLACED)
def test_equal_rows_have_one_place_in_all_windows(con, case):
    query = DuckDBRelations().query(UNPLACED[case](), ["a", "b"])
    a, b = query.columns["a"], query.columns["b"]
    found = con.execute(f"SELECT count(*), count(*) FILTER ({a} <> {b}) FROM ({query.sql})")
    assert found.fetchone() == (ROWS, 0)


def test_pairs_with_rows_of_which_nothing_is_read_have_places_of_their_own(con):
    query = DuckDBRelations().query(paired(), ["a", "b", "c"])
    assert query.sql.count("row_number") == 5  # three windows, and twice the places of rows


def test_rows_that_only_what_they_refer_to_tells_apart_stand_in_line_by_that():
    """The key has no domain, and nothing but a column along it is read."""
    of = Scan(SHOP.source("items"), "i.", ((SHOP.source("orders"), "o."),))
    found = set()
    for order in ("id", "-id", "hash(id)"):
        con = duckdb.connect()
        con.execute("CREATE TABLE orders (id INTEGER, customer_id INTEGER, price INTEGER)")
        con.execute("CREATE TABLE items (order_id INTEGER, qty SMALLINT, txt VARCHAR)")
        rows = f"SELECT range AS id, range % 9, range // 9 FROM range(200) ORDER BY {order}"
        con.execute(f"INSERT INTO orders {rows}")
        con.execute("INSERT INTO items SELECT id, 1, NULL FROM orders")
        query = DuckDBRelations().query(Bound(of, 2), ["o.price"])
        found.add(tuple(sorted(con.execute(query.sql).fetchall())))
    assert len(found) == 1


def test_pairs_stand_in_the_same_line_whatever_is_read_of_them():
    """Rows that tie in the columns with a domain are told apart after the domains of both sides."""
    customers, items = scan("c.", "customers"), scan("i.", "items")
    con = duckdb.connect()
    con.execute("CREATE TABLE customers (id INTEGER, region VARCHAR, born INTEGER)")
    con.execute("CREATE TABLE orders (id INTEGER, customer_id INTEGER)")
    con.execute("CREATE TABLE items (order_id INTEGER, qty SMALLINT, txt VARCHAR)")
    con.execute("INSERT INTO customers SELECT 1, range, 1 FROM range(8)")
    con.execute("INSERT INTO orders VALUES (1, 1)")
    con.execute("INSERT INTO items SELECT 1, range % 4, range FROM range(8)")
    for sides in ((customers, items), (items, customers)):
        found = set()
        for more in ([], ["c.region"], ["i.txt"], ["c.region", "i.txt"]):
            query = DuckDBRelations().query(Bound(Join(*sides, None), 5), ["i.qty", *more])
            rows = con.execute(f"SELECT {query.columns['i.qty']} FROM ({query.sql})").fetchall()
            found.add(tuple(sorted(rows)))
        assert len(found) == 1


def test_what_is_joined_by_may_be_what_is_looked_at():
    on = RowCall("=", (RowColumn("v.day"), RowColumn("n.born")))
    counted = ("n", Agg("count", None, on))
    joined = GroupJoin(scan("v."), scan("n.", "customers"), on, (counted,))
    assert "row_number" in DuckDBRelations().query(joined, ["n"]).sql


TIMES = (
    "INTEGER", "BIGINT", "VARCHAR", "DATE", "TIMESTAMP", "DECIMAL(6,2)", "BOOLEAN", "UUID", "BLOB",
)  # fmt: skip
READ_OTHERWISE = ("DOUBLE", "FLOAT", "TIMESTAMP_S", "TIMESTAMP_MS", "TIME")


@pytest.mark.parametrize("type_", [*TIMES, *READ_OTHERWISE])
def test_a_key_join_is_by_values_that_are_equal_only_if_they_are_the_same(type_):
    source = SHOP.source("orders")
    unique = replace(
        source,
        table=replace(source.table, undeclared={**source.table.undeclared, "nr": type_}),
        unique=frozenset({frozenset({"nr"})}),
    )
    on = RowCall("=", (RowColumn("a.nr"), RowColumn("b.nr")))
    joined = Join(Scan(unique, "a."), Scan(unique, "b."), on)
    assert meets_one(joined, Known()) == (type_ in TIMES)


def test_a_key_join_has_the_whole_key_of_the_other_side():
    keyed = Group(scan("v."), (("day", RowColumn("v.day")), ("ok", RowColumn("v.ok"))))
    day = RowCall("=", (RowColumn("w.day"), RowColumn("day")))
    both = RowCall("and", (day, RowCall("=", (RowColumn("w.ok"), RowColumn("ok")))))
    own = RowCall("and", (day, RowCall("=", (RowColumn("ok"), RowConstant("BOOLEAN", "true")))))
    assert meets_one(Join(scan("w."), keyed, both), Known())
    for on in (day, own, None):
        assert not meets_one(Join(scan("w."), keyed, on), Known())
