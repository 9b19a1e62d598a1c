"""What `dpsql schema` proposes: units and references, by keys, names and types alone."""

import duckdb
import pytest

import dpsql
from dpsql.schema import Schema
from dpsql.schema.declarations import parse_toml
from dpsql.schema.document import TODO, Proposal, write_toml
from tests.helpers.described import describe_table, proposed, table_names
from tests.helpers.inserted import insert

SHOP = """
    CREATE TABLE regions (id INTEGER PRIMARY KEY);
    CREATE TABLE customers (
        id INTEGER PRIMARY KEY, region_id INTEGER REFERENCES regions (id), vip BOOLEAN NOT NULL
    );
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id), paid BOOLEAN NOT NULL
    );
    CREATE TABLE items (order_id INTEGER REFERENCES orders (id), gift BOOLEAN NOT NULL);
    CREATE TABLE suppliers (id INTEGER PRIMARY KEY, region_id INTEGER REFERENCES regions (id));
"""


def described(con, declared=None, *, views=False):
    return [describe_table(con, name, declared) for name in table_names(con, views=views)]


def found(con, **options):
    tables = described(con, **options)
    return {path[-1]: each for path, each in proposed(con, tables).items()}


def uncommented(con, **options):
    """Return the schema that a file declares of which all drafts are taken."""
    tables = described(con, **options)
    text = write_toml(tables, proposed(con, tables)).replace(TODO, "")
    read = parse_toml(text)
    return Schema(read.tables, units=read.units, references=read.references)


@pytest.fixture
def con():
    return duckdb.connect()


def test_the_root_is_a_table_of_persons_to_which_others_lead(con):
    con.execute(SHOP)
    each = found(con)
    assert each["customers"] == Proposal(
        "customers", "customers", leading=("items", "orders"), references={}
    )
    assert each["orders"] == Proposal("customers", "customers")
    assert each["items"] == Proposal("customers", "customers")
    assert each["regions"] == each["suppliers"] == Proposal(root="customers")


def test_what_is_drafted_holds_as_typed(con):
    con.execute(SHOP)
    insert(con, "customers", [(1, None, True), (2, None, False)])
    insert(con, "orders", [(i, 1 + i % 2, i % 3 == 0) for i in range(9)])
    declared = uncommented(con)
    assert set(declared.units) == {"customers", "orders", "items", "regions", "suppliers"}
    assert declared.units["regions"] is dpsql.EACH_ROW
    for table in described(con, declared):
        assert table.each_row == (table.name in {"regions", "suppliers"})
    session = dpsql.Session(con, schema=declared)
    sql = """
        SELECT vip, COUNT(*) AS n FROM orders JOIN customers ON customer_id = customers.id
        GROUP BY vip
    """
    assert "3 are kept" in session.plan(sql, budget=dpsql.Budget(rho=1)).neighbours
    frame = session.query(sql, budget=dpsql.Budget(rho=10**12))
    assert sorted(round(n) for n in frame["n"]) == [3, 3]


def test_nothing_depends_on_rows(con):
    con.execute(SHOP)
    empty = write_toml(described(con), proposed(con, described(con)))
    insert(con, "customers", [(i, None, True) for i in range(100)])
    insert(con, "orders", [(i, 7, True) for i in range(1000)])
    assert write_toml(described(con), proposed(con, described(con))) == empty
    assert '# TODO unit = "customers"  # to protect each with its rows in items, orders' in empty
    assert "# TODO max_rows = 1  # each is one row here" in empty
    assert (
        "# TODO max_rows = 3  # how many rows of each are counted; to choose: dpsql rows" in empty
    )
    assert "# TODO each_row = true  # if its rows belong to nobody in customers" in empty


def test_without_persons_the_root_is_where_most_lead(con):
    con.execute("""
        CREATE TABLE makers (code VARCHAR PRIMARY KEY);
        CREATE TABLE planes (tail VARCHAR PRIMARY KEY);
        CREATE TABLE flights (nr INTEGER PRIMARY KEY, tail VARCHAR REFERENCES planes (tail));
        CREATE TABLE delays (nr INTEGER REFERENCES flights (nr), maker VARCHAR
            REFERENCES makers (code));
    """)
    each = found(con)
    assert {proposal.root for proposal in each.values()} == {"planes"}
    assert each["delays"].unit == each["flights"].unit == "planes"
    assert each["makers"].unit == ""
    assert uncommented(con).units["delays"] == dpsql.Unit("planes", 3)


def test_of_several_ways_one_is_named_and_the_others_told(con):
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (
            id INTEGER PRIMARY KEY, buyer INTEGER REFERENCES customers (id),
            referrer INTEGER REFERENCES customers (id)
        );
        CREATE TABLE items (of_order INTEGER REFERENCES orders (id));
    """)
    each = found(con)
    assert each["orders"] == Proposal("buyer", "customers", ("referrer",))
    assert each["items"] == Proposal("orders.buyer", "customers", ("orders.referrer",))
    declared = uncommented(con)
    assert [table.unit.name for table in described(con, declared)] == [
        "id", "orders.buyer", "buyer",
    ]  # fmt: skip


def test_declared_units_are_not_proposed_again(con):
    con.execute(SHOP)
    con.execute("""COMMENT ON TABLE orders IS 'dpsql: {"unit": "customers", "max_rows": 7}'""")
    con.execute("""COMMENT ON TABLE regions IS 'dpsql: {"each_row": true}'""")
    each = found(con)
    assert not {"orders", "regions"} & each.keys()
    assert each["items"].unit == "customers"
    text = write_toml(described(con), proposed(con, described(con)))
    assert "max_rows = 7" in text
    assert text.count("each_row = true") == 2


class TestReferences:
    def test_views_of_files(self, con, tmp_path):
        for name, columns in (
            ("customers", "i AS id, i % 2 = 0 AS vip"),
            ("orders", "i AS id, i % 10 AS customer_id, i % 3 = 0 AS paid"),
            ("items", "i AS nr, i % 10 AS order_id"),
        ):
            file = tmp_path / f"{name}.parquet"
            con.execute(f"COPY (SELECT {columns} FROM range(40) AS t(i)) TO '{file}'")
            con.execute(f"CREATE VIEW {name} AS FROM '{file}'")
        each = found(con, views=True)
        assert each["orders"].references == {"customer_id": "customers.id"}
        assert each["items"].references == {"order_id": "orders.id"}
        assert each["orders"].unit == each["customers"].unit == "customers"
        assert each["items"].unit == ""  # whose a row of a view is can't be seen through another
        declared = uncommented(con, views=True)
        assert declared.references["orders.customer_id"] == "customers.id"
        units = {table.name: table.unit for table in described(con, declared, views=True)}
        assert units["orders"].column == "customer_id"
        assert units["customers"].column == "id"

    def test_tables_without_keys(self, con):
        con.execute("""
            CREATE TABLE customers (id INTEGER, customer_nr INTEGER);
            CREATE TABLE Categories (key VARCHAR);
            CREATE TABLE orders (
                customerId INTEGER, "customer_nr" BIGINT, category_key VARCHAR, box_id INTEGER,
                status_id INTEGER, region_id INTEGER
            );
            CREATE TABLE boxes (id INTEGER);
            CREATE TABLE statuses (id DOUBLE);
            CREATE TABLE regions (id VARCHAR);
        """)
        assert found(con)["orders"].references == {
            "customerId": "customers.id",
            "customer_nr": "customers.customer_nr",
            "category_key": "Categories.key",
            "box_id": "boxes.id",
        }

    def test_the_name_of_a_primary_key(self, con):
        con.execute("""
            CREATE TABLE planes (tailnum VARCHAR PRIMARY KEY, id INTEGER UNIQUE);
            CREATE TABLE flights (tailnum VARCHAR, id INTEGER);
            CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR);
        """)
        each = found(con)
        assert each["flights"].references == {"tailnum": "planes.tailnum"}
        assert each["flights"].unit == each["planes"].unit == "planes"
        assert not each["notes"].references

    def test_known_keys_are_not_proposed(self, con):
        con.execute(SHOP)
        con.execute("CREATE TABLE visits (customer_id INTEGER, order_id INTEGER)")
        known = '{"references": {"customer_id": "customers.id"}}'
        con.execute(f"COMMENT ON TABLE visits IS 'dpsql: {known}'")
        each = found(con)
        assert each["visits"].references == {"order_id": "orders.id"}
        assert not any(e.references for name, e in each.items() if name != "visits")

    def test_names_that_a_reference_can_not_say(self, con):
        con.execute("""
            CREATE TABLE "odd.customers" (id INTEGER);
            CREATE TABLE customers ("i,d" INTEGER);
            CREATE TABLE orders ("customer_i,d" INTEGER, "odd.customer_id" INTEGER);
        """)
        assert not any(each.references for each in found(con).values())
        uncommented(con)

    def test_several_tables_that_may_be_meant(self, con):
        con.execute("""
            CREATE TABLE customer (id INTEGER);
            CREATE TABLE customers (id INTEGER);
            CREATE TABLE orders (customer_id INTEGER);
        """)
        assert "orders" not in found(con)


def test_other_schemas_are_apart(con):
    con.execute(SHOP)
    con.execute("CREATE SCHEMA stage; CREATE TABLE stage.visits (customer_id INTEGER)")
    each = found(con)
    assert "visits" not in each
    con.execute("CREATE TABLE stage.customers (id INTEGER PRIMARY KEY)")
    each = found(con)
    assert each["visits"].references == {"customer_id": "customers.id"}
    declared = uncommented(con)
    assert declared.units["stage.visits"] == dpsql.Unit("customers", 3)
    described(con, declared)


def test_rows_that_lead_to_persons_by_a_view_alone_are_not_said_to_be_nobodys(con, tmp_path):
    con.execute(f"COPY (SELECT 1 AS stay_id, 1 AS patient_id) TO '{tmp_path}/stays.parquet'")
    con.execute(f"""
        CREATE TABLE patients (patient_id INTEGER);
        CREATE VIEW stays AS FROM read_parquet('{tmp_path}/stays.parquet');
        CREATE TABLE codes (stay_id INTEGER, code VARCHAR);
    """)
    tables = [describe_table(con, (name,)) for name in ("codes", "patients", "stays")]
    each = {path[-1]: one for path, one in proposed(con, tables).items()}
    assert (each["codes"].unit, each["codes"].lacking) == ("", "patient_id")
    assert each["stays"].unit == "patients"
    text = write_toml(tables, proposed(con, tables))
    assert "each_row" not in text
    assert f"{TODO}# its rows are of rows of patients, by another file" in text
    assert "codes" not in uncommented(con).units
