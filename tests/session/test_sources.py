"""A session asks its data by the protocol of a source alone: another engine needs nothing else."""

from collections import Counter

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.engines import data_source
from dpsql.engines.base import Engine
from dpsql.engines.source import DataSource
from dpsql.schema.facts import Catalog
from tests.helpers.inserted import insert

HUGE = dpsql.Budget(rho=10**12)
UNIT = dpsql.Unit("customers", {"customers": 1, "orders": 40, "customers, orders": 40})
PUBLIC = ["bands"]


def names_of(protocol):
    """What a protocol has, and those that it is made of."""
    parts = [vars(one) for one in protocol.__mro__]
    names = {name for own in parts for name in (*own, *own.get("__annotations__", ()))}
    return {name for name in names if name[0] != "_"}


class Only:
    """What a protocol has of an object, and nothing else; notes what was asked."""

    def __init__(self, protocol, of, asked, **replaced):
        self._names = names_of(protocol)
        self._of, self._asked, self._replaced = of, asked, replaced

    def __getattr__(self, name):
        if name not in self._names:
            raise AttributeError(f"the protocol has no {name}")
        self._asked.add(name)
        found = self._replaced.get(name)
        return getattr(self._of, name) if found is None else found


@pytest.fixture
def asked(monkeypatch):
    """Sessions over sources, catalogs and engines that have what their protocols have."""
    found = set()

    def only(given, version=None):
        source = data_source(given, version)
        replaced = {
            "catalog": Only(Catalog, source.catalog, found),
            "engine": lambda on_step=None: Only(Engine, source.engine(on_step), found),
        }
        return Only(DataSource, source, found, **replaced)

    monkeypatch.setattr("dpsql.session.session.data_source", only)
    monkeypatch.setattr("dpsql.api.data_source", only)
    return found


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY, vip BOOLEAN NOT NULL);
        CREATE TABLE orders (
            customer_id INTEGER REFERENCES customers (id),
            amount INTEGER NOT NULL CHECK (amount BETWEEN 0 AND 9),
            note VARCHAR
        );
        CREATE VIEW large AS SELECT customer_id, amount FROM orders WHERE amount > 4;
        CREATE TABLE bands (amount INTEGER, band VARCHAR);
    """)
    insert(con, "customers", [(i, i % 3 == 0) for i in range(30)])
    insert(con, "orders", [(i % 30 if i % 11 else None, i % 10, None) for i in range(300)])
    insert(con, "bands", [(i, "low" if i < 5 else "high") for i in range(10)])
    return con


def test_all_that_sessions_do_is_asked_by_the_protocols(con, asked, tmp_path):
    session = dpsql.Session(con, unit=UNIT, public=PUBLIC, ledger=tmp_path / "x.ledger")
    joined = "SELECT band, COUNT(*) AS n FROM orders JOIN bands USING (amount) GROUP BY band"
    release = session.release(
        {
            "vips": "SELECT COUNT(*) AS n FROM customers WHERE vip",
            "bands": joined,
            "pairs": "SELECT vip, COUNT(*) AS n FROM customers c JOIN orders o "
            "ON c.id = o.customer_id GROUP BY vip",
        },
        budget=HUGE,
    )
    counted = dict(release["bands"].select("band", "n").rows())
    true = con.execute(
        "SELECT band, COUNT(*) FROM orders JOIN bands USING (amount) WHERE customer_id IS NOT NULL "
        "GROUP BY band"
    )
    assert {band: round(n) for band, n in counted.items()} == dict(true.fetchall())
    assert round(release["vips"]["n"][0]) == 10
    assert session.rows_per_unit("orders", budget=HUGE, up_to=20)["units"].sum() > 29
    assert round(session.rows_without_unit("orders", budget=HUGE)["rows"][0]) == 28
    assert session.query(joined, budget=0).height == 2
    with pytest.raises(dpsql.SqlError), session:
        session.query("SELECT COUNT(*) AS n FROM nowhere", budget=HUGE)
    with pytest.raises(dpsql.DpsqlError, match="customer_id"):
        session.query("SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY 1", budget=HUGE)
    with pytest.raises(dpsql.SqlError):
        session.query("SELECT SUM(note) AS n FROM orders", budget=HUGE)
    assert asked >= names_of(DataSource) - {"interrupt"}
    assert asked >= {"catalog", "describe", "snapshot", "prepared", "keys"}


def test_views_are_asked_by_it(con, asked):
    sql = "SELECT COUNT(*) AS n FROM large"
    n = dpsql.query(con, sql, budget=HUGE, unit="customer_id", max_rows=40)["n"][0]
    ((true,),) = con.execute(f"{sql} WHERE customer_id IS NOT NULL").fetchall()
    assert round(n) == true
    assert "describe" in asked


def test_rows_that_meet_are_asked_by_it(con, asked):
    met = "SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.customer_id = b.customer_id"
    unit = dpsql.Unit("customers", {"orders": 40, "orders, orders": 400})
    n = dpsql.query(con, met, budget=HUGE, unit=unit)["n"][0]
    ((true,),) = con.execute(met).fetchall()
    assert round(n) == true


def test_what_a_protocol_lacks_is_not_there():
    only = Only(DataSource, data_source(duckdb.connect()), set())
    with pytest.raises(AttributeError, match="no con"):
        _ = only.con
    assert only.identity().file is None


def test_public_tables_that_are_too_large_are_not_read(con):
    source = data_source(con)
    assert source.public_rows(["bands"], 9) is None
    frame = source.public_rows(["bands"], 10)
    assert isinstance(frame, pl.DataFrame)
    assert frame.height == 10
    with pytest.raises(dpsql.SchemaError, match="can't be read"):
        source.public_rows(["nowhere"], 10)


def test_a_script_has_one_catalog_that_tells_nothing_twice(con):
    ran = Counter()

    class Watched:
        def __getattr__(self, name):
            return getattr(con, name)

        def execute(self, sql, *given):
            ran[sql, str(given)] += 1
            return con.execute(sql, *given)

    session = dpsql.Session(Watched(), unit=UNIT)
    ran.clear()
    joined = "SELECT vip, COUNT(*) AS n FROM orders JOIN customers ON customer_id = id GROUP BY vip"
    session.plan({"a": joined, "b": "SELECT COUNT(*) AS n FROM customers"}, budget=HUGE)
    read = [n for (sql, _), n in ran.items() if "duckdb_constraints" in sql]
    assert read == [1]  # the CHECKs of both tables, and the keys of their schema
