"""Keys that only the owner knows: of tables without FOREIGN KEYs, and of several columns."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError
from tests.helpers.inserted import insert
from tests.release.test_private_joins import HUGE, answers
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, recorded_in, spent

TABLES = """
    CREATE TABLE customers (
        id INTEGER,
        region VARCHAR CHECK (region IN ('n', 's', 'e')),
        balance INTEGER CHECK (balance BETWEEN -100 AND 1000),
        note VARCHAR
    );
    CREATE TABLE orders (
        shop INTEGER,
        nr BIGINT,
        customer_id BIGINT,
        status VARCHAR CHECK (status IN ('o', 'f')),
        price INTEGER CHECK (price BETWEEN 0 AND 500)
    );
    CREATE TABLE items (
        shop SMALLINT,
        order_nr INTEGER,
        qty INTEGER CHECK (qty BETWEEN 1 AND 9)
    );
"""
NAMES = ("customers", "orders", "items")
REFERENCES = {
    "orders.customer_id": "customers.id",
    "items.shop, items.order_nr": "orders.shop, orders.nr",
}
BOUNDS = {"customers": 1, "orders": 6, "items": 12}
STATEMENTS = (
    "SELECT c.region, o.status, COUNT(*) AS n, SUM(o.price) AS p FROM orders o "
    "JOIN customers c ON o.customer_id = c.id GROUP BY ALL",
    "SELECT c.region, COUNT(*) AS n, SUM(c.balance) AS b FROM orders o "
    "LEFT JOIN customers c ON c.id = o.customer_id GROUP BY ALL",
    "SELECT o.status, SUM(i.qty) AS n FROM items i JOIN orders o "
    "ON i.shop = o.shop AND i.order_nr = o.nr GROUP BY ALL",
    "SELECT c.region, c.note = 'a' AS a, COUNT(*) AS n, SUM(i.qty * o.price) AS v FROM items i "
    "JOIN orders o ON i.shop = o.shop AND o.nr = i.order_nr "
    "JOIN customers c ON o.customer_id = c.id GROUP BY ALL",
    "SELECT region, COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM orders o "
    "WHERE o.customer_id = c.id AND o.price > 7) GROUP BY ALL",
)


def declared(**more):
    return dpsql.Unit("customers", BOUNDS, references=REFERENCES | more)


def shop(seed=1, customers=25, without=None, clean=False):
    """Fill tables that nothing keeps in order: keys of nobody, and the same for several."""
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute(TABLES)
    rows = {name: [] for name in NAMES}
    number = 0
    for id_ in [*range(customers), None, -1]:
        known = id_ is not None and id_ >= 0
        own = {name: [] for name in NAMES}
        for _ in range(1 if clean or rng.random() < 0.8 else rng.choice([0, 2, 3])):
            row = (id_, rng.choice("nse"), rng.choice([None, rng.randint(-100, 1000)]))
            own["customers"] += [(*row, rng.choice(["a", "b"]))] if known else []
        for _ in range(rng.choice([0, 1, 2, 5])):
            number += 1
            nr = number if clean or rng.random() < 0.7 else rng.randrange(max(1, number))
            key = (number % 3, nr)
            row = (*key, id_, rng.choice(["o", "f", None]), rng.choice([None, 7, 300, 500]))
            own["orders"].append(row)
        if id_ != without or without is None:
            rows = {name: [*rows[name], *own[name]] for name in rows}
    rng = random.Random(seed + 1000)  # noqa: S311
    places = [(number % 3, number) for number in range(number)]
    rows["items"] = [(*rng.choice(places), rng.randint(1, 9)) for _ in range(4 * customers)]
    for name, found in rows.items():
        insert(con, name, found)
    return con


@pytest.mark.parametrize("sql", STATEMENTS)
def test_it_is_what_duckdb_says_where_keys_are_keys(sql):
    con = shop(clean=True, customers=10)
    bounds = {"customers": 1, "orders": 20, "items": 40}
    session = dpsql.Session(con, unit=dpsql.Unit("customers", bounds, references=REFERENCES))
    con.execute("DELETE FROM orders WHERE customer_id IS NULL OR customer_id < 0")
    con.execute("DELETE FROM items WHERE (shop, order_nr) NOT IN (SELECT shop, nr FROM orders)")
    found, true = answers(session, sql), con.sql(sql).pl()
    keys = [name for name in true.columns if name not in {"n", "p", "b", "v"}]
    expected = {tuple(row[k] for k in keys): row for row in true.rows(named=True)}
    met = 0
    for row in found.rows(named=True):
        of = expected.get(tuple(row[k] for k in keys))
        met += of is not None
        assert of is not None or abs(row["n"]) < 0.1, row
        for name in [] if of is None else set(of) - set(keys):
            assert (row[name] or 0) == pytest.approx(float(of[name] or 0), rel=1e-3, abs=0.35), row
    assert met == len(expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_a_unit_changes_what_it_costs_at_most(seed):
    """Whatever rows have the keys: several, of one unit or more, or none.

    With a unit go its rows in the tables that have its id. Items of orders of several units stay:
    they are the others' as well.
    """
    rng = random.Random(seed)  # noqa: S311
    bounds = {"customers": rng.choice([1, 2]), "orders": rng.choice([1, 3]), "items": 4}
    units = dict.fromkeys(NAMES, dpsql.Unit("customers", bounds))
    asked = {
        "schema": dpsql.Schema({}, units=units, references=REFERENCES),
        "script": {"one": STATEMENTS[seed % len(STATEMENTS)]},
    }
    how = {"budget": dpsql.Budget(rho=Fraction(1, 2))}
    whole = recorded(shop(seed), asked, **how)
    fewer = recorded(shop(seed, without=seed % 7), asked, **how)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)


def counts(con, sql, unit, **how):
    session = dpsql.Session(con, unit=unit, **how)
    frame = session.query(sql, budget=HUGE)
    names = [name for name in frame.columns if not name.endswith("_variance")]
    return {
        tuple(v if isinstance(v, str | None) else round(v) for v in row)
        for row in frame.select(names).rows()
    }


def small():
    con = duckdb.connect()
    con.execute(TABLES)
    con.execute("INSERT INTO customers VALUES (1, 'n', 5, 'a'), (2, 's', 6, 'b'), (2, 'e', 7, 'c')")
    con.execute("INSERT INTO orders VALUES (0, 7, 1, 'o', 1), (0, 7, 2, 'f', 2), (0, 8, 2, 'f', 3)")
    con.execute("INSERT INTO items VALUES (0, 7, 1), (0, 8, 2), (0, 9, 3)")
    return con


def test_what_a_key_of_several_rows_means():
    """A unit that has a key twice has no row by it; an item of two units' orders is of both."""
    regions = (
        "SELECT region, COUNT(*) AS n FROM orders LEFT JOIN customers "
        "ON customer_id = id GROUP BY 1"
    )
    assert counts(small(), regions, declared()) == {("n", 1), ("s", 0), ("e", 0), (None, 2)}
    orders = (
        "SELECT status, COUNT(*) AS n FROM items JOIN orders ON items.shop = orders.shop "
        "AND order_nr = nr GROUP BY 1"
    )
    assert counts(small(), orders, declared()) == {("o", 1), ("f", 2), (None, 0)}
    assert counts(small(), "SELECT COUNT(*) AS n FROM items", declared()) == {(3,)}


def test_texts_are_told_apart_byte_by_byte_whatever_the_collation():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (id VARCHAR COLLATE NOCASE, sex VARCHAR CHECK (sex IN ('f', 'm')))"
    )
    con.execute("CREATE TABLE visits (nr VARCHAR COLLATE NOCASE, person VARCHAR COLLATE NOCASE)")
    con.execute("CREATE TABLE notes (visit VARCHAR COLLATE NOCASE)")
    con.execute("INSERT INTO people VALUES ('a', 'f'), ('A', 'm')")
    con.execute("INSERT INTO visits VALUES ('x', 'a'), ('x', 'A'), ('X', 'a')")
    con.execute("INSERT INTO notes VALUES ('x'), ('X')")
    references = {"visits.person": "people.id", "notes.visit": "visits.nr"}
    unit = dpsql.Unit("people", {"visits": 3, "notes": 3}, references=references)
    by_sex = (
        "SELECT sex, COUNT(*) AS n FROM notes JOIN visits ON visit = nr "
        "JOIN people ON person = id GROUP BY 1"
    )
    schema = dpsql.Schema({"people": {"sex": dpsql.Domain.labels(["f", "m"], nullable=True)}})
    assert counts(con, by_sex, unit, schema=schema) == {("f", 2), ("m", 1), (None, 0)}


@pytest.mark.parametrize(
    ("references", "message", "hint"),
    [
        ({"orders.customer_id": "customers.idd"}, "no column of a table", "customers.id"),
        ({"order.customer_id": "customers.id"}, "no column of a table", "orders.customer_id"),
        ({"orders.customer_id": "customers.note"}, "BIGINT and VARCHAR", "CAST"),
        ({"orders.customer_id": "orders.shop, orders.nr"}, "as many columns", "same columns"),
        ({"orders.shop, orders.shop": "orders.shop, orders.nr"}, "a column twice", ""),
        ({"orders.shop, items.shop": "orders.shop, orders.nr"}, "no column of a table", ""),
        ({"orders.customer_id": 1}, "is not a mapping", "customers.id"),
        (["orders.customer_id"], "is not a mapping", "customers.id"),
        ({"": "customers.id"}, "is not a mapping", "customers.id"),
    ],
)
def test_references_that_say_nothing(references, message, hint):
    given = {"unit": "customer_id", "max_rows": {"orders": 3}, "references": references}
    with pytest.raises(SchemaError, match=message) as caught:
        dpsql.plan(small(), "SELECT COUNT(*) AS n FROM orders", budget=HUGE, **given)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    "more",
    [
        {"customers.balance": "orders.nr"},
        {"customers.balance": "items.order_nr"},
        {"customers.balance, customers.id": "orders.shop, orders.nr"},
    ],
)
def test_no_row_leads_to_several_of_the_units(more):
    """Whichever table is asked, and wherever it is declared."""
    with pytest.raises(SchemaError, match=r"several of them|Several ways"):
        dpsql.Session(small(), unit=declared(**more)).plan(STATEMENTS[0], budget=HUGE)
    con = small()
    own = ", ".join(f'"{column}": "{of}"' for column, of in more.items())
    own = own.replace("customers.", "")
    con.execute('COMMENT ON TABLE customers IS \'dpsql: {"references": {' + own + "}}'")
    with pytest.raises(SchemaError, match=r"several of them|Several ways"):
        dpsql.Session(con, unit=declared()).plan(STATEMENTS[0], budget=HUGE)


def test_no_row_leads_to_another_of_the_units():
    own = declared(**{"customers.balance": "customers.id"})
    with pytest.raises(SchemaError, match="from customers to customers"):
        dpsql.Session(small(), unit=own).plan(STATEMENTS[0], budget=HUGE)


def test_a_comment_that_names_no_column():
    con = small()
    con.execute("""COMMENT ON TABLE items IS 'dpsql: {"references": {"nr": "orders.nr"}}'""")
    with pytest.raises(SchemaError, match=r"names items\.nr, which is no column"):
        dpsql.Session(con, unit=declared()).plan(STATEMENTS[0], budget=HUGE)


def test_two_ways_are_told_apart_by_their_column():
    con = small()
    con.execute("ALTER TABLE orders ADD COLUMN referrer BIGINT")
    both = declared(**{"orders.referrer": "customers.id"})
    with pytest.raises(SchemaError, match="Several ways"):
        dpsql.Session(con, unit=both).plan("SELECT COUNT(*) AS n FROM orders", budget=HUGE)


def test_where_they_are_declared():
    """In a call, in a schema, in its file, in comments: each says the same."""
    sql = (
        "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c "
        "ON o.customer_id = c.id GROUP BY 1"
    )
    expected = counts(small(), sql, declared())
    beside = {"unit": "customers", "max_rows": BOUNDS, "references": REFERENCES}
    found = dpsql.Session(small(), **beside).query(sql, budget=HUGE)
    assert {(region, round(n)) for region, n, *_ in found.rows()} == expected
    units = dict.fromkeys(NAMES, dpsql.Unit("customers", BOUNDS))
    schema = dpsql.Schema({}, units=units, references=REFERENCES)
    assert counts(small(), sql, None, schema=schema) == expected
    con = small()
    for name, refers in (("orders", '"customer_id": "customers.id"'), ("customers", "")):
        text = f'{{"unit": "customers", "max_rows": {BOUNDS[name]}, "references": {{{refers}}}}}'
        con.execute(f"COMMENT ON TABLE {name} IS 'dpsql: {text}'")
    assert counts(con, sql, None) == expected


def test_a_schema_file_declares_them(tmp_path):
    file = tmp_path / "schema.toml"
    file.write_text("""
        [customers]
        unit = "customers"
        max_rows = 1
        [orders]
        unit = "customers"
        max_rows = 6
        references = { customer_id = "customers.id" }
        [items]
        unit = "customers"
        max_rows = 12
        references = { "shop, order_nr" = "orders.shop, orders.nr" }
    """)
    schema = dpsql.Schema.load(file)
    assert dict(schema.references) == REFERENCES
    sql = STATEMENTS[2]
    assert counts(small(), sql, None, schema=schema) == counts(small(), sql, declared())
    file.write_text("[orders]\nreferences = 3")
    with pytest.raises(SchemaError, match="references map columns"):
        dpsql.Schema.load(file)


def test_keys_of_several_columns_of_the_catalog():
    """FOREIGN KEYs of several columns, and units that are told apart by several."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE shops (chain INTEGER, nr INTEGER, size VARCHAR CHECK (size IN ('s', 'l')),
            PRIMARY KEY (chain, nr));
        CREATE TABLE sales (shop INTEGER, chain INTEGER, price INTEGER CHECK (price < 10),
            FOREIGN KEY (chain, shop) REFERENCES shops (chain, nr));
        INSERT INTO shops VALUES (1, 1, 's'), (1, 2, 'l'), (2, 1, 'l');
        INSERT INTO sales VALUES (1, 1, 1), (1, 2, 2), (2, 1, 3), (2, 1, 4), (NULL, 1, 5),
            (2, 1, 6);
    """)
    unit = dpsql.Unit("shops", {"sales": 2})
    joined = (
        "SELECT size, COUNT(*) AS n FROM sales s JOIN shops p "
        "ON p.nr = s.shop AND s.chain = p.chain GROUP BY 1"
    )
    assert counts(con, joined, unit) == {("s", 1), ("l", 3), (None, 0)}
    assert counts(con, "SELECT size, COUNT(*) AS n FROM shops GROUP BY 1", unit) == {
        ("s", 1),
        ("l", 2),
        (None, 0),
    }
    assert counts(con, "SELECT COUNT(*) AS n FROM sales", dpsql.Unit("chain, shop", 1)) == {(3,)}
    both = {"a": joined, "b": "SELECT size, COUNT(*) AS n FROM shops GROUP BY 1"}
    session = dpsql.Session(con, unit=unit)
    release = session.release(both, budget=HUGE)
    assert release.neighbours.startswith("add or remove one shops.chain, shops.nr with")
    with pytest.raises(dpsql.DpsqlError, match="Another unit was protected"):
        session.redeclared(unit="chain", max_rows=2).release(
            "SELECT COUNT(*) AS n FROM sales", budget=HUGE
        )
    half = "SELECT size, COUNT(*) AS n FROM sales s JOIN shops p ON p.nr = s.shop GROUP BY 1"
    for bounds in ({"sales": 2}, {"sales": 2, "sales, shops": 5}):
        with pytest.raises(dpsql.DpsqlError, match="must say that both rows are of one unit"):
            dpsql.Session(con, unit=dpsql.Unit("shops", bounds)).plan(half, budget=HUGE)


def test_a_folder_is_read_as_it_was_written(tmp_path):
    """It tells what its tables refer to, of keys of several columns and of declared ones."""
    session = dpsql.Session(small(), unit=declared())
    by_status = (
        "SELECT o.status, COUNT(*) AS n FROM items i JOIN orders o ON i.shop = o.shop "
        "AND i.order_nr = o.nr GROUP BY 1"
    )
    release = session.release(by_status, budget=HUGE)
    release.save(tmp_path / "kept")
    kept = dpsql.Release.load(tmp_path / "kept")
    assert kept.neighbours == release.neighbours
    again = kept.query(by_status.replace(" GROUP BY", " WHERE o.status = 'o' GROUP BY"))
    assert [round(n) for n in again["n"]] == [1]


def viewed(folder=None):
    """The same rows as views: of the tables, or of Parquet files in a folder."""
    con = small()
    con.execute("CREATE SCHEMA seen")
    for name in NAMES:
        source = f"main.{name}"
        if folder is not None:
            place = folder / name
            place.mkdir()
            con.execute(f"COPY {name} TO '{place}/part.parquet'")
            source = f"read_parquet('{place}/*.parquet')"
        con.execute(f"CREATE VIEW seen.{name} AS SELECT * FROM {source}")
    con.execute("USE seen")
    return con


DOMAINS = {
    "customers": {"region": dpsql.Domain.labels(["n", "s", "e"], nullable=True)},
    "orders": {"status": dpsql.Domain.labels(["o", "f"], nullable=True)},
    "items": {"qty": dpsql.Domain.integers(1, 9, nullable=True)},
}
OF_VIEWS = {"orders.customer_id": "customers.id"}


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("sql", [STATEMENTS[1].replace(", SUM(c.balance) AS b", ""), STATEMENTS[4]])
def test_views_are_joined_as_tables_are(tmp_path, files, sql):
    con = viewed(tmp_path if files else None)
    unit = dpsql.Unit("customers", BOUNDS, references=OF_VIEWS)
    more = {"ledger": tmp_path / "all.ledger"} if files else {}
    found = counts(con, sql, unit, schema=DOMAINS, **more)
    assert found == counts(small(), sql, declared())


def test_two_views_in_one_release(tmp_path):
    con = viewed(tmp_path)
    unit = dpsql.Unit("customers", BOUNDS, references=OF_VIEWS)
    session = dpsql.Session(con, unit=unit, schema=DOMAINS, ledger=tmp_path / "all.ledger")
    script = {
        "a": "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1",
        "b": "SELECT region, COUNT(*) AS n FROM orders JOIN customers ON id = customer_id GROUP BY "
        "1",
    }
    release = session.release(script, budget=HUGE)
    n, *others = (round(n) for n in release["a"]["n"])
    assert (n, sum(others)) == (1, 1)  # of the two rows with one id, one counts
    assert [round(n) for n in release["b"]["n"]] == [1, 0, 0, 0]
    again = session.release(script, budget=0)
    assert again["b"].equals(release["b"])


def test_files_that_change_are_told_apart(tmp_path):
    """Those of the table that is counted, and those of tables that it refers to."""
    con = viewed(tmp_path)
    unit = dpsql.Unit("customers", BOUNDS, references=OF_VIEWS)
    session = dpsql.Session(con, unit=unit, schema=DOMAINS, ledger=tmp_path / "all.ledger")
    session.query(STATEMENTS[4], budget=HUGE)
    assert session.query(STATEMENTS[4], budget=0).height
    con.execute(f"COPY main.orders TO '{tmp_path}/orders/more.parquet'")
    with pytest.raises(dpsql.DpsqlError, match=r"don't say what is asked|Nothing was measured"):
        session.query(STATEMENTS[4], budget=0)


def test_a_view_that_is_redefined_has_other_rows():
    con = viewed()
    unit = dpsql.Unit("customers", BOUNDS, references=OF_VIEWS)
    session = dpsql.Session(con, unit=unit, schema=DOMAINS)
    session.query(STATEMENTS[4], budget=HUGE)
    con.execute("CREATE OR REPLACE VIEW orders AS SELECT * FROM main.orders WHERE price > 100")
    with pytest.raises(dpsql.DpsqlError, match=r"don't say what is asked|Nothing was measured"):
        session.query(STATEMENTS[4], budget=0)


BY_REGION = "SELECT region, COUNT(*) AS n FROM {} GROUP BY 1"
OF_BOTH = {
    "alone": [BY_REGION.format(name) for name in ("customers", "others")],
    "three": [BY_REGION.format(name) for name in ("customers", "others", "more")],
    "met": [
        BY_REGION.format("others"),
        "SELECT c.region, COUNT(*) AS n FROM customers c JOIN orders o ON o.customer_id = c.id "
        "GROUP BY 1",
    ],
}


@pytest.mark.parametrize("unit", [1, 2, 3])
@pytest.mark.parametrize("script", OF_BOTH.values(), ids=OF_BOTH)
def test_views_of_one_table_are_charged_for_each(script, unit):
    """A row is seen by all of them, so that its unit changes what is counted of each."""
    runs = []
    for gone in (None, unit):
        con = viewed()
        con.execute("INSERT INTO main.customers SELECT 3, 'n', i, '' FROM range(5) r(i)")
        con.execute("CREATE VIEW others AS FROM main.customers")
        con.execute("CREATE VIEW more AS FROM main.customers")
        con.execute("DELETE FROM main.customers WHERE id = ?", [gone])
        con.execute("DELETE FROM main.orders WHERE customer_id = ?", [gone])
        references = OF_VIEWS | {f"{name}.id": "customers.id" for name in ("others", "more")}
        bounds = {"customers": 1, "orders": 6, "others": 2, "more": 2}
        session = dpsql.Session(
            con,
            unit=dpsql.Unit("customers", bounds, references=references),
            schema=DOMAINS | dict.fromkeys(("others", "more"), DOMAINS["customers"]),
        )
        named = {f"q{number}": sql for number, sql in enumerate(script)}
        runs.append(recorded_in(session, named, budget=dpsql.Budget(rho=Fraction(1, 2))))
    check_alike(*runs)
    assert 0 < spent(*runs) <= charged(runs[0])


def test_the_unit_of_a_view_is_a_column_of_it():
    unit = dpsql.Unit("customers", BOUNDS, references=REFERENCES)
    with pytest.raises(SchemaError, match="is in another table, orders") as caught:
        dpsql.plan(viewed(), "SELECT COUNT(*) AS n FROM items", budget=HUGE, unit=unit)
    assert "CREATE TABLE" in str(caught.value.hint)
