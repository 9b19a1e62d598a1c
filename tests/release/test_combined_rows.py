"""Rows of several private tables that meet within their unit: pairs, and tables with themselves."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import LedgerError, SqlError, StaleSchemaError
from dpsql.request import Request, named
from tests.release.test_private_joins import HUGE, TABLES, owned, removed_one, shop, units

BOUNDS = {
    "orders": 20,
    "addresses": 9,
    "addresses, orders": 60,
    "orders, orders": 60,
    "items, orders": 400,
    "orders, orders, addresses": 100,
}


def declared(pairs=True, **bounds):
    """Declare whose the rows are, and how many pairs count."""
    known = {name: rows for name, rows in BOUNDS.items() if pairs or "," not in name}
    unit = dpsql.Unit("customer_id", known | bounds)
    return dpsql.Schema({}, units={**units().units, "orders": unit, "addresses": unit})


def small():
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con, 4, 12)
    return con


BY_CITY = (
    "SELECT a.city, o.status, COUNT(*) AS n FROM orders o JOIN addresses a "
    "ON o.customer_id = a.customer_id GROUP BY ALL"
)
STATEMENTS = (
    BY_CITY,
    "SELECT a.city, SUM(o.price) AS p FROM orders o, addresses a "
    "WHERE a.customer_id = o.customer_id AND o.status = 'f' GROUP BY 1",
    "SELECT c.region, a.city, COUNT(*) AS n FROM addresses a JOIN orders o USING (customer_id) "
    "JOIN customers c ON c.id = o.customer_id WHERE c.vip GROUP BY ALL",
    "SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.customer_id = b.customer_id",
    "SELECT b.status, COUNT(*) AS n FROM orders a JOIN orders b ON a.customer_id = b.customer_id "
    "AND a.price < b.price GROUP BY 1",
    "SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.customer_id = b.customer_id "
    "AND a.status = b.status",
    "WITH late AS (SELECT customer_id AS who, price FROM orders WHERE status <> 'p') "
    "SELECT a.city, SUM(price) AS p FROM late JOIN addresses a ON who = a.customer_id GROUP BY 1",
    "WITH r AS (SELECT c.id AS t, o.price AS p FROM orders o JOIN customers c "
    "ON o.customer_id = c.id) SELECT COUNT(*) AS n, SUM(a.p + b.p) AS p FROM r a "
    "JOIN r b ON a.t = b.t",
    "SELECT name, COUNT(*) AS n FROM orders o JOIN addresses a ON o.customer_id = a.customer_id "
    "JOIN regions g ON g.code = o.region GROUP BY 1",
    "SELECT x.city, COUNT(*) AS n FROM (SELECT o.customer_id AS who, a.city FROM orders o "
    "JOIN addresses a ON o.customer_id = a.customer_id) AS x "
    "JOIN orders p ON p.customer_id = x.who GROUP BY 1",
)
UNITS = (
    "SELECT a.city, COUNT(DISTINCT o.customer_id) AS n FROM orders o JOIN addresses a "
    "ON o.customer_id = a.customer_id GROUP BY 1",
    "SELECT o.status, COUNT(DISTINCT a.customer_id) AS n FROM orders o, addresses a "
    "WHERE o.customer_id = a.customer_id AND o.price > 7 AND a.city = 'a' GROUP BY 1",
    "SELECT c.vip, COUNT(DISTINCT c.id) AS n FROM addresses a JOIN orders o USING (customer_id) "
    "JOIN customers c ON c.id = o.customer_id GROUP BY 1",
    "SELECT COUNT(DISTINCT a.customer_id) AS n, COUNT(DISTINCT b.customer_id) FILTER "
    "(WHERE a.status = 'f') AS p FROM orders a JOIN orders b ON a.customer_id = b.customer_id "
    "AND a.price < b.price",
    "SELECT x.city, COUNT(DISTINCT who) AS n FROM (SELECT o.customer_id AS who, a.city "
    "FROM orders o JOIN addresses a ON o.customer_id = a.customer_id) AS x "
    "JOIN orders p ON p.customer_id = x.who AND p.status = 'f' GROUP BY 1",
)
"""Of which nothing has to say how many pairs count: each unit is one."""
AS_RELATIONS = (
    "SELECT COUNT(*) AS n FROM orders o LEFT JOIN addresses a ON o.customer_id = a.customer_id",
    "SELECT a.city, COUNT(*) AS n FROM orders o LEFT JOIN addresses a "
    "ON o.customer_id = a.customer_id AND a.city = 'a' AND o.price > 7 GROUP BY 1",
    "SELECT COUNT(*) AS n FROM orders o JOIN addresses a ON o.customer_id = a.customer_id "
    "WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id)",
)
WITHOUT_PUBLIC = [sql for sql in STATEMENTS if "regions" not in sql]


def answered(session, sql):
    frame = session.query(sql, budget=HUGE)
    names = [name for name in frame.columns if not name.endswith("_variance")]
    return frame.select(names)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sql", [*STATEMENTS, *UNITS, *AS_RELATIONS])
def test_it_is_what_duckdb_says(sql):
    con = small()
    check_same(con, dpsql.Session(con, schema=declared(sql not in UNITS), public=["regions"]), sql)


def check_same(con, session, sql):
    """Check that an answer is DuckDB's; groups without rows may stand besides."""
    found, true = answered(session, sql), owned(con).sql(sql).pl()
    keys = [name for name in true.columns if name not in {"n", "p"}]
    expected = {tuple(row[k] for k in keys): row for row in true.rows(named=True)}
    met = 0
    for row in found.rows(named=True):
        of = expected.get(tuple(row[k] for k in keys), {})
        met += bool(of)
        for name in set(row) - set(keys):
            assert (row[name] or 0) == pytest.approx(float(of.get(name) or 0), rel=1e-3, abs=0.2)
    assert met == len(expected)


def test_rows_of_other_units_never_meet():
    """That they are of one unit has to be said."""
    con = small()
    session = dpsql.Session(con, schema=declared())
    sql = "SELECT COUNT(*) AS n FROM orders o, addresses a WHERE o.price = a.id"
    with pytest.raises(SqlError, match="must say that both rows are of one unit") as refused:
        session.query(sql, budget=HUGE)
    assert session.ledger.spent == 0
    equal = refused.value.hint.removeprefix("say so: ").rstrip(".")
    ((n,),) = answered(session, f"{sql} AND {equal}").rows()
    ((true,),) = (
        owned(con)
        .sql(
            "SELECT COUNT(*) FROM orders o JOIN addresses a ON o.price = a.id "
            "AND o.customer_id = a.customer_id"
        )
        .fetchall()
    )
    assert round(n) == true


@pytest.mark.parametrize("name", ["u_unit", "U_UNIT"])
def test_no_column_of_another_table_stands_in_for_the_unit(name):
    """Here the address of an order has a column of that name, and may be another customer's."""
    con = small()
    con.execute(f"ALTER TABLE addresses ADD COLUMN {name} INTEGER")
    con.execute(f"UPDATE addresses SET {name} = 1 - customer_id")
    session = dpsql.Session(con, schema=declared())
    pairs = (
        "SELECT a.city, COUNT(*) AS n FROM orders o JOIN addresses a ON o.address_id = a.id{} "
        "JOIN orders p ON p.customer_id = o.customer_id GROUP BY 1"
    )
    found = answered(session, pairs.format(""))
    true = con.sql(pairs.format(" AND o.customer_id = a.customer_id")).fetchall()
    assert {city: round(n) for city, n in found.rows() if round(n)} == dict(true)


@pytest.mark.parametrize("bound", [1, 3, 10_000])
def test_so_many_pairs_of_a_unit_count_at_most(bound):
    """They are kept when they have met: by units, whatever else is asked."""
    con = small()
    pairs = owned(con).sql(
        "SELECT COUNT(*) FROM orders o JOIN addresses a ON o.customer_id = a.customer_id "
        "GROUP BY o.customer_id"
    )
    expected = sum(min(bound, n) for (n,) in pairs.fetchall())
    session = dpsql.Session(con, schema=declared(**{"addresses, orders": bound}))
    sql = "SELECT COUNT(*) AS n FROM orders o JOIN addresses a ON o.customer_id = a.customer_id"
    release = session.release(sql, budget=dpsql.Budget(rho=Fraction(10**14)))
    assert round(release["query"]["n"][0]) == expected
    assert release.neighbours == (
        "add or remove one customers.id with all of its rows, of which at most "
        f"{f'{bound:,} are' if bound > 1 else '1 is'} kept; its rows are found in addresses by "
        "addresses.customer_id → customers, in orders by orders.customer_id → customers"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(60))
def test_a_unit_changes_what_it_costs_at_most(seed):
    rng = random.Random(seed)  # noqa: S311
    bounds = {name: rng.choice([1, 2, 5]) for name in BOUNDS}
    script = {"q": WITHOUT_PUBLIC[seed % 9]}
    removed_one(rng, seed, {"script": script, "schema": declared(**bounds)})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(300))
def test_a_unit_whose_pairs_are_looked_at_counts_once(seed):
    """However many pairs it has, it adds one to each group, or nothing."""
    rng = random.Random(seed)  # noqa: S311
    script = {"q0": rng.sample(UNITS, 1)[0]}
    schema = declared(pairs=rng.random() < 0.3)
    whole, fewer = removed_one(rng, seed, {"script": script, "schema": schema})
    for marginal, array in whole.counts.items():
        change = array - fewer.counts[marginal]
        assert set(change.ravel().tolist()) <= {0, 1}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sql", WITHOUT_PUBLIC)
def test_as_many_pairs_count_as_the_bounds_of_the_tables_multiply_to(sql):
    con = small()
    session = dpsql.Session(con, schema=declared(pairs=False))
    plan = session.plan(sql, budget=HUGE)
    assert plan.contributions in {20 * 9, 20 * 20, 20 * 20 * 9}
    assert f"at most {plan.contributions:,} rows of a unit count where" in " ".join(plan.notes)
    check_same(con, session, sql)


def test_a_declared_bound_goes_before_the_product():
    for bounds, most in (({}, 180), ({"addresses, orders": 7}, 7), ({"addresses": 2}, 40)):
        session = dpsql.Session(small(), schema=declared(pairs=False, **bounds))
        plan = session.plan(STATEMENTS[1], budget=HUGE)
        assert plan.contributions == most
        assert bool(plan.notes) == (most != 7)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_a_unit_changes_what_the_product_costs_at_most(seed):
    rng = random.Random(seed)  # noqa: S311
    bounds = {name: rng.choice([1, 2, 3]) for name in BOUNDS if "," not in name}
    script = {"q": WITHOUT_PUBLIC[seed % 9]}
    removed_one(rng, seed, {"script": script, "schema": declared(pairs=False, **bounds)})


@pytest.mark.parametrize("orders", [None, 1_000_000])
def test_rows_that_meet_need_a_bound_where_the_tables_have_none_or_too_large_ones(orders):
    schema = declared(pairs=False)
    unit = dpsql.Unit("customer_id", {"addresses": 9} | ({"orders": orders} if orders else {}))
    units_ = {**schema.units, "orders": unit, "addresses": unit}
    session = dpsql.Session(small(), schema=dpsql.Schema({}, units=units_))
    sql = UNITS[0].replace(" AS n", " AS n, COUNT(*) AS pairs")
    with pytest.raises(SqlError, match="Nothing says how many rows of a unit count") as refused:
        session.plan(sql, budget=HUGE)
    assert 'max_rows={"addresses, orders": 20' in refused.value.hint
    assert session.ledger.spent == 0


OF_ONE = ("must say that both rows are of one unit", "say so: o.customer_id = a.customer_id.")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM orders o, addresses a", OF_ONE),
        ("SELECT COUNT(*) FROM orders o, addresses a WHERE o.id < a.id", OF_ONE),
        (
            "SELECT COUNT(*) FROM items i JOIN addresses a ON i.qty = a.id",
            ("both rows are of one unit", "JOIN orders ON i.order_id = orders.id"),
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN stores s ON o.id = s.id",
            "no FOREIGN KEYs say",
        ),
        (
            "SELECT COUNT(*) FROM orders o JOIN other.orders s ON o.customer_id = s.store",
            "rows of the same units",
        ),
        (
            "SELECT a.customer_id, COUNT(*) FROM orders o JOIN addresses a "
            "ON o.customer_id = a.customer_id GROUP BY 1",
            "no public domain",
        ),
    ],
)
def test_other_joins_are_refused_before_the_charge(sql, said):
    con = small()
    con.execute("CREATE SCHEMA other; CREATE TABLE other.orders (store INTEGER)")
    others = {
        "stores": dpsql.Unit("id", 1),
        "other.orders": dpsql.Unit("store", {"other.orders": 1, "orders, orders": 9}),
    }
    schema = dpsql.Schema({}, units=dict(declared().units) | others)
    session = dpsql.Session(con, schema=schema)
    with pytest.raises(dpsql.DpsqlError) as caught:
        session.query(sql, budget=HUGE)
    for part in (said,) if isinstance(said, str) else said:
        assert part in str(caught.value)
    assert session.ledger.spent == 0


def test_the_hint_works_when_typed():
    con = duckdb.connect()
    con.execute("CREATE TABLE a (id INTEGER, x BOOLEAN); INSERT INTO a VALUES (1, true)")
    sql = "SELECT l.x, COUNT(*) AS n FROM a l JOIN a r ON l.id = r.id GROUP BY 1"
    with pytest.raises(SqlError) as caught:
        dpsql.query(con, sql, budget=HUGE, unit="id", max_rows={"b": 3})
    assert 'more are left out: max_rows={"a, a": 20, "b": 3}' in caught.value.hint
    frame = dpsql.query(con, sql, budget=HUGE, unit="id", max_rows={"a, a": 20, "b": 3})
    assert [round(n) for n in frame["n"]] == [0, 1, 0]


def test_tables_and_their_pairs_in_one_release(tmp_path):
    con = small()
    session = dpsql.Session(con, schema=declared(), ledger=tmp_path / "kept.ledger")
    script = {
        "pairs": BY_CITY,
        "orders": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "again": BY_CITY.replace(" GROUP BY", " AND o.price > 7 GROUP BY"),
    }
    release = session.release(script, budget=HUGE)
    assert [round(n) for n in release["pairs"]["n"]] == [
        round(n) for n in answered(dpsql.Session(con, schema=declared()), BY_CITY)["n"]
    ]
    free = session.release({"pairs": BY_CITY}, budget=0)
    assert [round(n) for n in free["pairs"]["n"]] == [round(n) for n in release["pairs"]["n"]]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sql", WITHOUT_PUBLIC)
def test_a_release_answers_more_about_its_pairs(sql, tmp_path):
    session = dpsql.Session(small(), schema=declared())
    release = session.release(sql, budget=HUGE)
    release.save(tmp_path / "saved")
    for one in (release, dpsql.Release.load(tmp_path / "saved")):
        assert one.query(sql).sort(pl.all()).equals(release["query"].sort(pl.all()))


@pytest.mark.parametrize("saved", [False, True])
def test_a_release_of_tables_and_pairs_answers_more_about_both(saved, tmp_path):
    session = dpsql.Session(small(), schema=declared())
    by_status = "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1"
    release = session.release({"pairs": BY_CITY, "orders": by_status}, budget=HUGE)
    if saved:
        release.save(tmp_path / "saved")
        release = dpsql.Release.load(tmp_path / "saved")
    cities = (
        "SELECT city, COUNT(*) AS n FROM addresses x JOIN orders USING (customer_id) GROUP BY 1"
    )
    found = dict(release.query(cities).select("city", "n").rows())
    pairs = release["pairs"]
    assert found == pytest.approx(dict(pairs.group_by("city").agg(pl.col("n").sum()).rows()))
    assert release.query(by_status)["n"].sum() == pytest.approx(release["orders"]["n"].sum())
    for other in ("o.id = a.id AND o.customer_id = a.customer_id", "o.address_id = a.id"):
        with pytest.raises(dpsql.DpsqlError, match=r"have these rows|no table|too little"):
            release.query(f"SELECT COUNT(*) FROM orders o JOIN addresses a ON {other}")


def test_other_rows_that_meet_are_told_apart():
    """By what is equal, and by how many count: they are other rows, so nothing is free."""
    con = small()
    session = dpsql.Session(con, schema=declared())
    session.query(BY_CITY, budget=HUGE)
    other = BY_CITY.replace("a.customer_id G", "a.customer_id AND o.address_id = a.id G")
    by_other = BY_CITY.replace("a.customer_id G", "a.customer_id AND o.id = a.id G")
    for sql in (other, by_other):
        with pytest.raises(dpsql.DpsqlError, match=r"Nothing|don't say"):
            session.query(sql, budget=0)
    fewer = session.redeclared(schema=declared(**{"addresses, orders": 2}))
    with pytest.raises(StaleSchemaError):
        fewer.query(BY_CITY, budget=HUGE)


OTHERS = (
    BY_CITY.replace("a.customer_id G", "a.customer_id AND o.id = a.id G"),
    BY_CITY.replace("a.customer_id G", "a.customer_id AND o.address_id = a.id G"),
    BY_CITY.replace("a.customer_id G", "a.customer_id AND o.price > 7 AND a.id = o.id G"),
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(30))
def test_other_rows_that_meet_are_charged_beside_them(seed):
    """One script asks both: each is measured by itself, and a unit changes both."""
    rng = random.Random(seed)  # noqa: S311
    bounds = {name: rng.choice([1, 2, 5]) for name in BOUNDS}
    script = {"a": BY_CITY, "b": OTHERS[seed % len(OTHERS)]}
    removed_one(rng, seed, {"script": script, "schema": declared(**bounds)})


@pytest.mark.parametrize("sql", OTHERS)
def test_other_rows_that_meet_are_counted_as_duckdb_does(sql):
    session = dpsql.Session(small(), schema=declared())
    release = session.release({"a": BY_CITY, "b": sql}, budget=HUGE)
    true = {row[:2]: row[2] for row in owned(small()).execute(sql).fetchall()}
    found = {(city, status): round(n) for city, status, n, _ in release["b"].rows()}
    assert {key: n for key, n in found.items() if n} == true
    assert sum(release["a"]["n"]) > sum(true.values())


def test_tables_that_meet_are_bound_to_their_units(tmp_path):
    """What is told of pairs is told of both: none may be asked as if it were of others."""
    con = small()
    session = dpsql.Session(con, schema=declared(), ledger=tmp_path / "kept.ledger")
    session.query(BY_CITY, budget=HUGE)
    for name in ("orders", "addresses"):
        other = session.redeclared(unit=dpsql.Unit("id", 1))
        with pytest.raises(LedgerError, match="Another unit was protected"):
            other.query(f"SELECT COUNT(*) AS n FROM {name}", budget=HUGE)


def test_a_table_that_is_altered_makes_a_plan_stale():
    con = small()
    session = dpsql.Session(con, schema=declared())
    asked = session._data.declared.compile(Request(named(BY_CITY), HUGE))
    session._data.verify(asked.table)
    con.execute("ALTER TABLE addresses ADD COLUMN more BOOLEAN")
    with pytest.raises(StaleSchemaError, match="addresses was altered"):
        session._data.verify(asked.table)


def test_units_by_texts_are_the_same_byte_by_byte():
    con = duckdb.connect()
    text = "VARCHAR COLLATE NOCASE"
    con.execute(f"CREATE TABLE a (id {text}, x BOOLEAN); CREATE TABLE b (id {text}, y BOOLEAN)")
    con.execute("INSERT INTO a VALUES ('k', true), ('K', true), (NULL, true)")
    con.execute("INSERT INTO b VALUES ('k', true), ('K', false), ('K', false), (NULL, true)")
    unit = dpsql.Unit("id", {"a": 1, "b": 9, "a, b": 9}, references={"b.id": "a.id"})
    sql = "SELECT x, y, COUNT(*) AS n FROM a JOIN b ON a.x IS NOT NULL AND a.x = b.y{} GROUP BY ALL"
    session = dpsql.Session(con, unit=unit)
    with pytest.raises(SqlError, match="must say that both rows are of one unit") as refused:
        session.query(sql.format(""), budget=HUGE)
    assert refused.value.hint == "say so: b.id = a.id."
    frame = answered(session, sql.format(" AND b.id = a.id"))
    assert {row[:2]: round(row[2]) for row in frame.rows() if round(row[2])} == {(True, True): 1}


def test_rows_of_another_database_are_charged_for_in_its_account(tmp_path):
    """Pairs have no file of their own: those of their tables count."""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as own:
        own.execute(TABLES)
        shop(own, 4, 12)
    unit = dpsql.Unit(
        "customer_id", {"shop.main.orders": 20, "shop.main.orders, shop.main.orders": 60}
    )
    pairs = (
        "SELECT COUNT(*) AS n FROM shop.main.orders a JOIN shop.main.orders b USING (customer_id)"
    )
    shared, ask = tmp_path / "all.ledger", {"budget": dpsql.Budget(rho=1)}
    for name in ("first", "second"):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as con:
            con.execute(f"ATTACH '{tmp_path}/shop.duckdb' AS shop")
            if name == "first":
                dpsql.Session(con, unit=unit, ledger=shared).query(pairs, **ask)
            else:
                with pytest.raises(LedgerError, match="account"):
                    dpsql.Session(con, unit=unit).query(pairs, **ask)
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as own:
        assert dpsql.Session(own).ledger.spent == ask["budget"].mu_squared


class TestBoundsOfPairs:
    """They may stand wherever a unit does."""

    SQL = "SELECT COUNT(*) AS n FROM orders o JOIN addresses a ON o.customer_id = a.customer_id"

    @pytest.fixture
    def con(self):
        con = duckdb.connect()
        con.execute("""
            CREATE TABLE customers (id INTEGER PRIMARY KEY);
            CREATE TABLE orders (customer_id INTEGER REFERENCES customers (id));
            CREATE TABLE addresses (customer_id INTEGER REFERENCES customers (id));
        """)
        return con

    def plan_bound(self, session):
        return session.plan(self.SQL, budget=dpsql.Budget(rho=1)).contributions

    def test_in_a_schema_file(self, con, tmp_path):
        file = tmp_path / "schema.toml"
        file.write_text(
            '[orders]\nunit = "customer_id"\nmax_rows = { orders = 5, "orders, addresses" = 33 }\n'
            '[addresses]\nunit = "customer_id"\nmax_rows = 9\n'
            '[customers]\nunit = "id"\nmax_rows = 1\n'
        )
        session = dpsql.Session(con, schema=dpsql.Schema.load(file))
        assert self.plan_bound(session) == 33

    def test_in_a_comment(self, con):
        for table, rows in (
            ("orders", '{"orders": 5, "addresses, orders": 34}'), ("addresses", 9), ("customers", 1)
        ):  # fmt: skip
            said = f'dpsql: {{"unit": "customers", "max_rows": {rows}}}'
            con.execute(f"COMMENT ON TABLE {table} IS '{said}'").fetchall()
        assert self.plan_bound(dpsql.Session(con)) == 34
        both = {"orders": 5, "orders,addresses": 35}
        unit = dpsql.Unit("customers", both)
        over = dpsql.Schema({}, units={"orders": unit})
        assert self.plan_bound(dpsql.Session(con, schema=over)) == 35

    def test_beside_the_unit(self, con):
        bounds = {"orders": 5, "addresses": 9, "orders, addresses": 36}
        session = dpsql.Session(con, unit="customers", max_rows=bounds)
        assert self.plan_bound(session) == 36

    def test_two_of_them(self, con):
        units = {
            name: dpsql.Unit("customer_id", {name: 5, "orders, addresses": rows})
            for name, rows in (("orders", 7), ("addresses", 8))
        } | {"customers": dpsql.Unit("id", 1)}
        session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
        several = "Several bounds are declared where rows of addresses, orders meet"
        with pytest.raises(SqlError, match=several) as refused:
            self.plan_bound(session)
        assert "declare one of them, or the same for all tables" in refused.value.hint
        units["addresses"] = dpsql.Unit("customer_id", {"addresses": 5, "addresses,orders": 7})
        session = session.redeclared(schema=dpsql.Schema({}, units=units))
        assert self.plan_bound(session) == 7


def test_tables_of_one_name_are_not_the_same():
    """Of two schemas, or of two databases: nothing says that their units are the same."""
    con = duckdb.connect()
    for schema in ("a", "b"):
        con.execute(f"CREATE SCHEMA {schema}").fetchall()
        con.execute(f"CREATE TABLE {schema}.t (id INTEGER, other INTEGER)").fetchall()
    both = {"a.t": 3, "b.t": 3, "a.t, b.t": 9}
    units = {"a.t": dpsql.Unit("id", both), "b.t": dpsql.Unit("other", both)}
    session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
    said = r"This is over memory\.b\.t, but what comes first is over memory\.a\.t"
    with pytest.raises(SqlError, match=said):
        session.query("SELECT COUNT(*) FROM a.t x JOIN b.t y ON x.id = y.other", budget=HUGE)
    assert session.ledger.spent == 0


@pytest.mark.parametrize(
    ("second", "source"),
    [
        ("a 2", 'a p JOIN a q ON p.id = q.id JOIN "a 2" r ON r.id = p.id'),
        ("a.b", 'a p JOIN "a.b" q ON p.id = q.id JOIN a r ON r.id = p.id'),
    ],
)
def test_columns_are_told_apart_whatever_tables_are_called(second, source):
    con = duckdb.connect()
    con.execute("CREATE TABLE ids (id INTEGER PRIMARY KEY)").fetchall()
    con.execute("INSERT INTO ids VALUES (1), (2)").fetchall()
    for name, first in (("a", 0), (second, 2)):
        columns = ("x", "b.x", "B.id")
        declared = ", ".join(f'"{c}" INTEGER CHECK ("{c}" BETWEEN 0 AND 5)' for c in columns)
        con.execute(f'CREATE TABLE "{name}" (id INTEGER REFERENCES ids (id), {declared})')
        rows = ((i % 2 + 1, first + i % 3, (i + first) % 4, i % 6) for i in range(6))
        con.executemany(f'INSERT INTO "{name}" VALUES (?, ?, ?, ?)', list(rows)).fetchall()
    bounds = {"ids": 1, "a": 9, second: 9, f"a, a, {second}": 99}
    sql = f'SELECT p.x, q.x AS y, r."b.x" AS z, COUNT(*) AS n FROM {source} GROUP BY ALL'
    session = dpsql.Session(con, unit=dpsql.Unit("ids", bounds))
    found = [(*row[:3], round(row[3])) for row in answered(session, sql).rows() if round(row[3])]
    assert sorted(found) == sorted(con.sql(sql).fetchall())
