"""Tables are described by facts, whoever tells them: here a catalog without a database."""

from dataclasses import dataclass, field

import duckdb
import pytest

from dpsql.engines import data_source
from dpsql.errors import SchemaError, UnboundedError
from dpsql.schema import Domain, Schema, Unit
from dpsql.schema.catalog import read_table, unbounded
from dpsql.schema.facts import (
    Catalog,
    Database,
    NamedTable,
    SchemaPath,
    StoredColumn,
    StoredKey,
    StoredKeys,
    StoredTable,
    StoredView,
    TableComment,
)
from dpsql.schema.keys import check_references
from dpsql.schema.lookup import current_database, find, find_view, meant, table_names

HERE = SchemaPath("hr", "public")


def column(name, type_, *, nullable=True, generated=False, comment=None):
    return StoredColumn(name, type_, nullable, generated, comment)


@dataclass
class Told(Catalog):
    """A catalog that says what it is told to say."""

    tables: dict[str, StoredTable]
    stored_keys: tuple[StoredKey, ...] = ()
    views: tuple[StoredView, ...] = ()
    databases: dict[str, Database] = field(default_factory=lambda: {"hr": Database("hr", None)})
    gregorian: bool = True
    system = "Somewhere"

    def current(self):
        return HERE

    def database(self, name):
        return self.databases.get(name)

    def tables_named(self, name):
        return [NamedTable((*HERE, n), False) for n in self.tables if n.lower() == name.lower()]

    def views_named(self, name):
        return [view for view in self.views if view.path[-1].lower() == name.lower()]

    def table_names(self):
        return [(HERE.schema, name) for name in self.tables]

    def view_names(self):
        return [view.path[1:] for view in self.views]

    def columns(self, path):
        found = self.tables.get(path[-1])
        return list(found.columns) if found is not None else []

    def table(self, path):
        return self.tables.get(path[-1])

    def keys(self, path):
        columns = {
            name: {c.name: "" if c.generated else c.type for c in table.columns}
            for name, table in self.tables.items()
        }
        return StoredKeys(columns, self.stored_keys)

    def schemas(self):
        return [HERE]

    def comments(self, text):
        return [
            TableComment((*HERE, name), table.comment)
            for name, table in self.tables.items()
            if table.comment is not None and text in table.comment
        ]

    def zones(self):
        return ["Europe/Vienna"]

    def is_gregorian(self, zone):
        return self.gregorian

    def copying(self, relation, name):
        return f"KEEP {relation} AS {name};"


CUSTOMERS = StoredTable((column("id", "BIGINT", nullable=False), column("vip", "BOOLEAN")), None)
ORDERS = StoredTable(
    (
        column("customer", "BIGINT"),
        column("size", "ENUM('s', 'm')", nullable=False),
        column("amount", "INTEGER", comment='dpsql: {"number": [0, 500]}'),
        column("day", "DATE"),
        column("code", "VARCHAR"),
        column("luck", "BOOLEAN", generated=True),
    ),
    'dpsql: {"unit": "customers", "max_rows": 3}',
    ("(day BETWEEN '2026-01-01' AND '2026-01-31')", "(code IN ('a', 'b'))"),
)
KEYS = (
    StoredKey("customers", "PRIMARY KEY", ("ID",)),
    StoredKey("orders", "FOREIGN KEY", ("Customer",), "CUSTOMERS", ("id",)),
)


def told(**changed):
    return Told({"customers": CUSTOMERS, "orders": ORDERS}, KEYS, **changed)


def test_a_table_is_what_the_facts_say():
    table = read_table(told(), ("Orders",))
    assert table.path == ("hr", "public", "orders")
    assert {name: domain.size for name, domain in table.columns.items()} == {
        "size": 2,
        "day": 32,
        "code": 3,
    }
    assert table.columns["day"].nullable
    assert not table.columns["size"].nullable
    assert table.bounds == {"amount": Domain.number(0, 500)}
    assert set(table.undeclared) == {"customer", "amount", "luck"}
    assert (table.unit.name, table.unit.column) == ("customers.id", "customer")
    assert table.contributions == 3
    assert table.file is None


def test_texts_that_pass_for_equal_are_not_known_by_checks():
    orders = ORDERS._replace(collated=frozenset({"code"}))
    table = read_table(Told({"customers": CUSTOMERS, "orders": orders}, KEYS), ("orders",))
    assert "code" not in table.columns


def test_keys_that_the_facts_lack_lead_nowhere():
    with pytest.raises(SchemaError, match="No FOREIGN KEY leads from orders to customers"):
        read_table(Told({"customers": CUSTOMERS, "orders": ORDERS}), ("orders",))
    unit = Unit("customers", 3, references={"orders.customer": "customers.id"})
    catalog = Told({"customers": CUSTOMERS, "orders": ORDERS._replace(comment=None)})
    assert read_table(catalog, ("orders",), unit=unit).unit.column == "customer"
    check_references(catalog, None, unit)
    with pytest.raises(SchemaError, match="no column of a table"):
        check_references(catalog, None, Unit("x", references={"orders.nobody": "customers.id"}))


def test_names_mean_what_the_facts_list():
    view = StoredView((*HERE, "latest"), "CREATE VIEW …", None)
    catalog = told(views=(view,))
    assert table_names(catalog) == [("customers",), ("orders",)]
    assert table_names(catalog, views=True) == [("latest",)]
    assert meant(catalog, "orders") == ("orders",)
    assert find_view(catalog, ("LATEST",)) == view
    with pytest.raises(SchemaError, match="There is no table ordres") as caught:
        find(catalog, ("ordres",))
    assert caught.value.hint == "did you mean orders?"
    with pytest.raises(SchemaError) as caught:
        find(catalog, ("x",))
    assert "KEEP x AS x_stored;" in caught.value.hint


def test_errors_call_the_system_by_its_name():
    with pytest.raises(SchemaError, match="is not Somewhere's own"):
        current_database(told(databases={}))
    zone = Schema({"orders": {"day": Domain.dates("2026-01-01", "2026-01-31", zone="Mars/Base")}})
    stamped = ORDERS._replace(columns=(column("day", "TIMESTAMP WITH TIME ZONE"),), checks=())
    catalog = Told({"orders": stamped._replace(comment=None)})
    with pytest.raises(SchemaError, match="Somewhere knows no time zone Mars/Base"):
        read_table(catalog, ("orders",), zone)


def test_whose_calendar_is_another_one_is_refused():
    day = Domain.dates("2026-01-01", "2026-01-31", zone="Europe/Vienna")
    stamped = StoredTable((column("day", "TIMESTAMP WITH TIME ZONE"),), None)
    schema = Schema({"orders": {"day": day}})
    assert (
        read_table(Told({"orders": stamped}), ("orders",), schema).columns["day"].zone == day.zone
    )
    with pytest.raises(SchemaError, match="not the Gregorian one"):
        read_table(Told({"orders": stamped}, gregorian=False), ("orders",), schema)


def test_a_table_of_another_database_is_in_its_file(tmp_path):
    file = tmp_path / "other.duckdb"
    file.touch()

    class Elsewhere(Told):
        def current(self):
            return SchemaPath("mine", "public")

    catalog = Elsewhere({"customers": CUSTOMERS}, databases={"hr": Database("hr", file)})
    assert read_table(catalog, ("hr", "public", "customers")).file == file
    catalog.databases = {}
    with pytest.raises(SchemaError, match="not Somewhere's own") as caught:
        read_table(catalog, ("hr", "public", "customers"))
    assert caught.value.hint.endswith("KEEP hr.public.customers AS customers_stored;")


def test_what_is_not_bounded_is_said_of_facts_too():
    table = read_table(told(), ("orders",))
    assert isinstance(unbounded(told(), table, None, None), UnboundedError)


def test_facts_of_duckdb_describe_the_same_table():
    """Whoever tells the same facts has the same table, with the same fingerprint."""
    con = duckdb.connect()
    con.execute("""
        CREATE SCHEMA public;
        CREATE TABLE public.customers (id BIGINT PRIMARY KEY, vip BOOLEAN);
        CREATE TABLE public.orders (
            customer BIGINT REFERENCES public.customers (id), size ENUM('s', 'm') NOT NULL,
            amount INTEGER, day DATE CHECK (day BETWEEN '2026-01-01' AND '2026-01-31'),
            code VARCHAR CHECK (code IN ('a', 'b')), luck BOOLEAN AS (random() < 0.5)
        );
        COMMENT ON TABLE public.orders IS 'dpsql: {"unit": "customers", "max_rows": 3}';
        COMMENT ON COLUMN public.orders.amount IS 'dpsql: {"number": [0, 500]}';
    """)
    stored = data_source(con).describe(("public", "orders"))
    described = read_table(told(), ("orders",))
    assert stored.columns == described.columns
    assert stored.bounds == described.bounds
    assert stored.undeclared == described.undeclared
    assert stored.unit.columns == described.unit.columns
