"""Privacy units: declared, read from comments, found along FOREIGN KEYs, or refused."""

from __future__ import annotations

import json
import re

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema, Unit
from dpsql.schema.names import apart
from dpsql.schema.units import KeyStep
from tests.helpers.described import check_declared, read_table, verify_unchanged

SHOP = """
    CREATE TABLE customers (id VARCHAR PRIMARY KEY, number INTEGER UNIQUE, size DOUBLE);
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, customer_id VARCHAR REFERENCES customers(id), sent BOOLEAN
    );
    CREATE TABLE items (
        order_id INTEGER REFERENCES orders(id), "odd ""name" BOOLEAN, price DECIMAL(5,2),
        g INTEGER GENERATED ALWAYS AS (order_id), tags VARCHAR[], weight DOUBLE
    );
"""


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(SHOP).fetchall()
    return con


def resolved(con, key, table="items", max_rows=2, references=None):
    return read_table(con, (table,), unit=Unit(key, max_rows, references=references or {})).unit


class TestFound:
    def test_a_column_of_the_table(self, con):
        unit = resolved(con, "ORDER_ID")
        assert (unit.name, unit.column, unit.type, unit.joins) == (
            "order_id",
            "order_id",
            "INTEGER",
            (),
        )
        assert resolved(con, "items.order_id") == unit
        assert resolved(con, 'odd "name').type == "BOOLEAN"

    def test_a_column_with_an_odd_name(self, con):
        con.execute('CREATE TABLE t ("a.b ""c" INTEGER)').fetchall()
        assert resolved(con, 'a.b "c', "t").column == 'a.b "c'
        assert resolved(con, 't.a.b "c', "t").column == 'a.b "c'

    @pytest.mark.parametrize("key", ["orders", "Orders.ID"])
    def test_a_referenced_key_is_the_referencing_column(self, con, key):
        unit = resolved(con, key)
        assert (unit.name, unit.column, unit.joins) == ("orders.id", "order_id", ())

    @pytest.mark.parametrize("key", ["customers", "customers.id"])
    def test_two_steps(self, con, key):
        unit = resolved(con, key)
        assert unit.joins == (KeyStep("order_id", ("memory", "main", "orders"), "id", "INTEGER"),)
        assert (unit.name, unit.column, unit.type) == ("customers.id", "customer_id", "VARCHAR")
        assert read_table(con, ("items",), unit=Unit(key, 2)).neighbours == (
            "add or remove one customers.id with all of its rows, of which at most 2 are kept; "
            "its rows are found in items by items.order_id → orders.customer_id → customers"
        )

    def test_a_column_that_is_no_key(self, con):
        unit = resolved(con, "customers.number")
        assert [join.path[-1] for join in unit.joins] == ["orders", "customers"]
        assert (unit.name, unit.column) == ("customers.number", "number")

    def test_a_column_that_is_the_key_to_the_table_of_its_name(self, con):
        con.execute("CREATE TABLE parts (orders INTEGER REFERENCES orders(id))").fetchall()
        assert resolved(con, "orders", "parts").column == "orders"

    def test_a_column_of_the_name_of_a_table_to_which_another_key_leads(self, con):
        """The row belongs to one unit by the column, and to another by the table."""
        con.execute(
            "CREATE TABLE parts (orders INTEGER REFERENCES orders(id), o INTEGER REFERENCES "
            "orders(id))"
        ).fetchall()
        said = {"parts.o": "orders.id"}
        for references in ({}, said):
            with pytest.raises(SchemaError, match="may mean the table orders or the column"):
                resolved(con, "orders", "parts", references=references)
        assert resolved(con, "parts.orders", "parts").column == "orders"
        assert resolved(con, "parts.o", "parts").column == "o"
        assert resolved(con, "orders.id", "parts", references=said).column == "o"

    def test_the_shortest_way(self, con):
        """As in OMOP and MIMIC, where tables refer to persons, and to visits of persons."""
        con.execute("""
            CREATE TABLE bills (o INTEGER REFERENCES orders(id), c VARCHAR REFERENCES
                customers(id)); CREATE TABLE lines (i INTEGER)
        """).fetchall()
        unit = resolved(con, "customers", "bills")
        assert (unit.name, unit.column, unit.joins) == ("customers.id", "c", ())
        assert unit.way("bills") == "bills.c → customers"
        assert resolved(con, "orders.customer_id", "bills").way("bills") == (
            "bills.o → orders.customer_id → customers"
        )

    def test_a_key_of_a_unique_column(self, con):
        con.execute("CREATE TABLE calls (n INTEGER REFERENCES customers(number))").fetchall()
        assert resolved(con, "customers", "calls").name == "customers.number"
        unit = resolved(con, "customers.id", "calls")
        assert unit.joins[0].key == "number"

    def test_a_table_that_references_itself(self, con):
        con.execute(
            "CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES staff(id))"
        )
        con.execute("CREATE TABLE shifts (who INTEGER REFERENCES staff(id))").fetchall()
        assert resolved(con, "staff", "shifts").column == "who"
        assert resolved(con, "staff.boss", "shifts").column == "boss"
        assert resolved(con, "boss", "staff").column == "boss"

    def test_another_schema(self, con):
        con.execute("CREATE SCHEMA s; CREATE TABLE s.orders (id BIGINT PRIMARY KEY)").fetchall()
        con.execute("CREATE TABLE s.items (o BIGINT REFERENCES s.orders(id))").fetchall()
        unit = read_table(con, ("s", "items"), unit=Unit("orders", 1)).unit
        assert unit.type == "BIGINT"


class TestRefused:
    @pytest.mark.parametrize(
        ("key", "message", "hint"),
        [
            ("person", "has no column person", "known names"),
            ("costumers", "no column costumers", "did you mean customers"),
            ("customers.nobody", "no column", ""),
            ("items", "is the table itself", "name the column"),
            ("g", "GENERATED", "integer"),
            ("tags", r"VARCHAR\[\]", "integer"),
            ("weight", "DOUBLE", "integer"),
            ("customers.size", "DOUBLE", "integer"),
            ("other", "No FOREIGN KEY leads from items to other", ""),
            ("other.a", "No FOREIGN KEY leads", ""),
            ("a_view", "No FOREIGN KEY leads", ""),
        ],
    )
    def test_not_found(self, con, key, message, hint):
        con.execute(
            "CREATE TABLE other (a INTEGER); CREATE VIEW a_view AS SELECT 1 AS x"
        ).fetchall()
        with pytest.raises(SchemaError, match=message) as caught:
            resolved(con, key)
        assert hint in caught.value.hint

    def taken(self, con, key, table, references=None):
        """Type the hints that say which way is meant, and return the unit that is found."""
        references = references or {}
        with pytest.raises(SchemaError, match="Several ways") as caught:
            read_table(con, (table,), unit=Unit(key, 2, references=references))
        (text,) = re.findall(r"references=({.*})", caught.value.hint)
        return Unit(key, 2, references=json.loads(text))

    def test_several_ways(self, con):
        con.execute("CREATE TABLE trips (a VARCHAR REFERENCES customers(id), b VARCHAR REFERENCES "
                    "customers(id))").fetchall()  # fmt: skip
        unit = self.taken(con, "customers", "trips")
        assert read_table(con, ("trips",), unit=unit).unit.column == "a"
        other = {"trips.b": "customers.id"}
        assert read_table(con, ("trips",), unit=Unit("customers", 2, other)).unit.column == "b"
        both = Unit("customers", 2, other | unit.references)
        with pytest.raises(SchemaError, match=r"trips\.a and trips\.b") as caught:
            read_table(con, ("trips",), unit=both)
        assert "leave one of them out" in caught.value.hint

    def test_several_ways_further_on(self, con):
        """The hint holds for each table of a session, and others are asked for one by one."""
        con.execute("""
            CREATE TABLE boxes (id INTEGER PRIMARY KEY, a VARCHAR REFERENCES customers(id),
                b VARCHAR REFERENCES customers(id));
            CREATE TABLE things (box INTEGER REFERENCES boxes(id));
            CREATE TABLE trips (a VARCHAR REFERENCES customers(id), b VARCHAR REFERENCES
                customers(id));
        """).fetchall()
        unit = self.taken(con, "customers", "things")
        unit = self.taken(con, "customers", "trips", unit.references)
        ways = {name: read_table(con, (name,), unit=unit).unit.way(name) for name in (
            "things", "boxes", "trips", "items")}  # fmt: skip
        assert ways == {
            "things": "things.box → boxes.a → customers",
            "boxes": "boxes.a → customers",
            "trips": "trips.a → customers",
            "items": "items.order_id → orders.customer_id → customers",
        }

    def test_a_diamond(self, con):
        con.execute("""
            CREATE TABLE left_ (id INTEGER PRIMARY KEY, o INTEGER REFERENCES orders(id));
            CREATE TABLE right_ (id INTEGER PRIMARY KEY, o INTEGER REFERENCES orders(id));
            CREATE TABLE tip (l INTEGER REFERENCES left_(id), r INTEGER REFERENCES right_(id));
        """).fetchall()
        for key in ("orders", "customers"):
            unit = read_table(con, ("tip",), unit=self.taken(con, key, "tip")).unit
            assert unit.way("tip").startswith("tip.l → left_.o → ")
        assert resolved(con, "left_.o", "tip").name == "left_.o"
        with pytest.raises(SchemaError, match="No FOREIGN KEY leads from items to left_") as caught:
            resolved(con, "left_.o", "items")
        assert 'unit="orders.id"' in caught.value.hint

    def test_keys_of_several_columns(self, con):
        con.execute("""
            CREATE TABLE seats (a INTEGER, b INTEGER, owner INTEGER, PRIMARY KEY (a, b));
            CREATE TABLE rides (a INTEGER, b INTEGER, FOREIGN KEY (a, b) REFERENCES seats(a, b));
        """).fetchall()
        unit = resolved(con, "seats.owner", "rides")
        assert (unit.name, unit.joins[0].columns) == ("seats.owner", ("a", "b"))
        unit = resolved(con, "seats", "rides")
        assert (unit.columns, unit.joins) == ((("a", "INTEGER"), ("b", "INTEGER")), ())
        with pytest.raises(SchemaError, match="no column"):
            resolved(con, "a, c", "rides")

    def test_what_one_column_of_a_key_says_alone(self, con):
        """Units stay what they were before keys of several columns were followed."""
        con.execute("""
            CREATE TABLE people (id INTEGER PRIMARY KEY);
            CREATE TABLE homes (
                person INTEGER REFERENCES people (id), nr INTEGER, PRIMARY KEY (person, nr)
            );
            CREATE TABLE moves (
                person INTEGER REFERENCES people (id), home INTEGER,
                FOREIGN KEY (person, home) REFERENCES homes (person, nr)
            );
        """).fetchall()
        assert resolved(con, "people", "moves").column == "person"

    def test_a_way_through_a_double(self, con):
        """The zeros are equal and may be two keys, so that a row would have two parents."""
        con.execute("""
            CREATE TABLE points (x DOUBLE PRIMARY KEY, owner INTEGER);
            CREATE TABLE visits (x DOUBLE REFERENCES points(x));
        """).fetchall()
        with pytest.raises(SchemaError, match="DOUBLE"):
            resolved(con, "points.owner", "visits")


class TestDeclared:
    def test_in_the_schema_in_any_case(self, con):
        schema = Schema({}, units={"ITEMS": Unit("order_id", 3)})
        assert read_table(con, ("items",), schema).unit.max_rows == 3
        assert read_table(con, ("orders",), schema).unit is None
        assert repr(schema).endswith("units={'ITEMS': Unit(key='order_id', max_rows=3)})")

    def test_as_an_argument_too(self, con):
        schema = Schema({}, units={"items": Unit("order_id", 3)})
        assert read_table(con, ("items",), schema, Unit("order_id", 3)).unit.max_rows == 3
        with pytest.raises(SchemaError, match="another privacy unit") as caught:
            read_table(con, ("items",), schema, Unit("order_id", 4))
        assert "max_rows=3" in caught.value.hint

    def test_in_a_comment(self, con):
        con.execute("""COMMENT ON TABLE items IS 'dpsql: {"unit": "customers", "max_rows": 5}'""")
        assert read_table(con, ("items",)).unit.name == "customers.id"
        schema = Schema({}, units={"items": Unit("order_id", 3)})
        assert read_table(con, ("items",), schema).unit.max_rows == 3
        assert read_table(con, ("items",), None, Unit("order_id", 1)).unit.max_rows == 1
        con.execute("COMMENT ON TABLE items IS 'All items of dpsql: {'").fetchall()
        assert read_table(con, ("items",)).unit is None

    @pytest.mark.parametrize(
        "comment",
        [
            "dpsql:", "dpsql: 3", "dpsql: {", 'dpsql: {"max_rows": 3}', " dpsql: []",
            'dpsql: {"unit": "order_id", "max_rows": 1.5}',
            'dpsql: {"unit": 5, "max_rows": 1}', 'dpsql: {"unit": "order_id", "max_rows": true}',
            'dpsql: {"each_row": 1}', 'dpsql: {"each_row": true, "max_rows": 1}',
            'dpsql: {"unit": "order_id", "max_rows": 1, "more": 1}', "dpsql: " + "[" * 100_000,
        ],
    )  # fmt: skip
    def test_a_comment_that_is_not_understood_is_an_error(self, con, comment):
        con.execute("COMMENT ON TABLE items IS '" + comment.replace("'", "''") + "'").fetchall()
        with pytest.raises(SchemaError) as caught:
            read_table(con, ("items",))
        assert caught.value.hint

    def test_twice(self, con):
        schema = Schema({}, units={"items": Unit("order_id", 3), "Items": Unit("order_id", 3)})
        with pytest.raises(SchemaError, match="twice"):
            read_table(con, ("items",), schema)

    def test_for_a_table_that_does_not_exist(self, con):
        with pytest.raises(SchemaError, match="no table itms"):
            check_declared(con, Schema({}, units={"itms": Unit("order_id", 3)}))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Unit("", 1),
            lambda: Unit(3, 1),
            lambda: Unit("a", 0),
            lambda: Unit("a", -1),
            lambda: Unit("a", 1.0),
            lambda: Unit("a", True),
            lambda: Unit("a", 10**7),
            lambda: Schema({}, units={"t": "a"}),
            lambda: Schema({}, units={3: Unit("a", 1)}),
            lambda: Schema({}, units=[Unit("a", 1)]),
            lambda: dpsql.Session(duckdb.connect(), max_rows=1),
            lambda: dpsql.Session(duckdb.connect(), unit="a", max_rows=0),
        ],
    )
    def test_malformed(self, make):
        with pytest.raises(SchemaError) as caught:
            make()
        assert caught.value.hint


class TestTables:
    def test_neighbours(self, con):
        con.execute("CREATE TABLE visits (person_id INTEGER)").fetchall()
        assert read_table(con, ("visits",)).neighbours == "add or remove one row of visits"
        for k, kept in ((1, "1 is"), (3, "3 are"), (1000, "1,000 are")):
            table = read_table(con, ("visits",), unit=Unit("person_id", k))
            assert table.contributions == k
            assert table.neighbours == (
                f"add or remove one person_id with all of its rows, of which at most {kept} kept; "
                "its rows are found in visits by visits.person_id"
            )

    @pytest.mark.parametrize("key", ["ä", "Ä"])
    def test_letters_beyond_ascii_are_told_apart_by_their_case(self, con, key):
        """DuckDB keeps Ä and ä apart: rows of one person must not be bounded by the other."""
        con.execute('CREATE TABLE t ("Ä" INTEGER, "ä" INTEGER, a BOOLEAN)')
        assert resolved(con, key, "t").column == key
        con.execute('ALTER TABLE customers ADD COLUMN "Ä" INTEGER')
        con.execute('ALTER TABLE customers ADD COLUMN "ä" INTEGER')
        assert resolved(con, f"customers.{key}").column == key

    def test_columns_that_differ_in_case_only_are_refused(self):
        with pytest.raises(SchemaError, match="columns a and A of t differ") as caught:
            apart("t", ["Ä", "a", "ä", "A"])
        assert caught.value.hint == "rename one of them: ALTER TABLE t RENAME A TO A_2;"

    def test_the_unit_is_in_the_fingerprint(self, con):
        keys = ["order_id", "customers.id", "orders.sent", "customers.number"]
        con.execute("ALTER TABLE items ADD COLUMN p INTEGER").fetchall()
        units = [
            None,
            Unit("p", 1),
            Unit("p", 2),
            *(Unit(k, 1) for k in keys if k != "orders.sent"),
        ]
        prints = {read_table(con, ("items",), unit=unit).fingerprint for unit in units}
        assert len(prints) == len(units)

    @pytest.mark.parametrize(
        "change",
        [
            "DROP TABLE items; CREATE TABLE items (order_id INTEGER, w DOUBLE)",
            """COMMENT ON TABLE items IS 'dpsql: {"unit": "customers", "max_rows": 2}'""",
            """COMMENT ON TABLE items IS 'dpsql: {"unit": "orders", "max_rows": 3}'""",
            "COMMENT ON TABLE items IS 'dpsql:'",
            "COMMENT ON TABLE items IS NULL",
        ],
    )
    def test_a_change_makes_the_schema_stale(self, con, change):
        con.execute("""COMMENT ON TABLE items IS 'dpsql: {"unit": "customers", "max_rows": 3}'""")
        table = read_table(con, ("items",))
        verify_unchanged(con, table)
        con.execute(change).fetchall()
        with pytest.raises(StaleSchemaError):
            verify_unchanged(con, table)

    def test_the_unit_column_may_have_a_domain(self, con):
        schema = Schema({"items": {"order_id": Domain.integers(0, 9)}})
        table = read_table(con, ("items",), schema, Unit("order_id", 1))
        assert "order_id" in table.columns
