"""Tables that another connection alters while a call is at work.

A call looks at the catalog before its first charge, on the snapshot of each charge, and after it.
Whatever is altered before one of these, a charge is for what its snapshot has, or nothing is
charged.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb import catalog
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.errors import DpsqlError
from dpsql.privacy import Ledger
from dpsql.session.data import PrivateData

BUDGET, KEYS = dpsql.Budget(rho=0.5), dpsql.Keys(delta="1e-9")
BOTH = "SELECT city, COUNT(*) AS n, SUM(price) AS p FROM people GROUP BY city"
WANTED = {"budget": BUDGET, "keys": KEYS, "bounds": dpsql.Bounds()}
VALUE = "SELECT COUNT(*) AS n FROM people WHERE age > (SELECT AVG(age) FROM people)"
CALLS = {
    "query": (
        2,
        1,
        lambda s: s.query("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", budget=BUDGET),
    ),
    "view": (
        2,
        1,
        lambda s: s.query("SELECT sex, COUNT(*) AS n FROM adults GROUP BY sex", budget=BUDGET),
    ),
    "keys and bounds": (6, 3, lambda s: s.query(BOTH, **WANTED)),
    "value": (4, 2, lambda s: s.query(VALUE, budget=BUDGET)),
    "find keys": (3, 1, lambda s: s.find_keys("people", "city", budget=BUDGET, keys=KEYS)),
    "find bounds": (3, 1, lambda s: s.find_bounds("people", "price", budget=BUDGET)),
}
"""Call → how often it looks at the catalog, how often it charges, and the call."""
CHANGES = {
    "column": "ALTER TABLE people ADD COLUMN more INTEGER",
    "domain": "CREATE OR REPLACE TABLE people AS FROM people",
    "type": "ALTER TABLE people ALTER city TYPE BLOB",
    "name": "ALTER TABLE people RENAME TO persons; CREATE VIEW people AS FROM persons",
    "view": "CREATE OR REPLACE VIEW adults AS FROM people WHERE age > 2",
    "comment": "COMMENT ON TABLE people IS 'dpsql: unit = \"id\", max_rows = 2'",
    "none": "DROP VIEW adults; DROP TABLE people",
}
SNAPSHOTS = 3
"""How often a snapshot is entered for a charge: once for all, and within it by what counts."""
CASES = [
    (call, change, moment)
    for call, (looks, charges, _) in CALLS.items()
    for change in CHANGES
    for moment in range(looks + SNAPSHOTS * charges)
]


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE people (id INTEGER, sex VARCHAR CHECK (sex IN ('f', 'm')),
            age INTEGER CHECK (age BETWEEN 0 AND 9), city VARCHAR, price INTEGER);
        CREATE VIEW adults AS FROM people WHERE age > 1;
        INSERT INTO people
        SELECT i, 'f', i % 9, 'town ' || (i % 2), i % 90 FROM range(900) t (i);
    """)
    return con


@pytest.fixture
def moments(monkeypatch):
    """Do what a test says at each look at the catalog, and when each snapshot begins."""
    told, asked, begun = [], catalog.fetch, DuckDBEngine.snapshot

    def fetch(con, sql, parameters=()):
        if sql == catalog._HERE:  # which each look begins with
            for one in told:
                one("look")
        return asked(con, sql, parameters)

    def snapshot(engine):
        for one in told:
            one("snapshot")
        return begun(engine)

    monkeypatch.setattr(catalog, "fetch", fetch)
    monkeypatch.setattr(DuckDBEngine, "snapshot", snapshot)
    return told


@pytest.mark.parametrize("name", CALLS)
def test_so_often_a_call_looks(con, moments, name):
    seen, (looks, charges, call) = [], CALLS[name]
    session = dpsql.Session(con)
    moments.append(seen.append)
    call(session)
    assert Counter(seen) == {"look": looks, "snapshot": SNAPSHOTS * charges}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "change", "moment"), CASES)
def test_each_charge_is_for_what_is_there(con, moments, monkeypatch, name, change, moment):
    session, other = dpsql.Session(con), con.cursor()
    verified, charges, seen = [], [], []
    verify, charge = PrivateData.verify, Ledger.charge

    def at(what):
        if len(seen) == moment:
            other.execute(CHANGES[change])
        seen.append(what)

    def verifies(data, *tables):
        verify(data, *tables)
        verified[:] = [(data.declared, table) for table in tables]

    def charged(*given, **how):
        for declared, table in verified:
            with DuckDBSource(con).catalog.held():
                now = DuckDBSource(con).describe(table.path, declared.schema, declared.unit)
            assert now.fingerprint == table.fingerprint
        charges.append(len(verified))
        return charge(*given, **how)

    moments.append(at)
    monkeypatch.setattr(PrivateData, "verify", verifies)
    monkeypatch.setattr(Ledger, "charge", charged)
    with suppress(DpsqlError):
        CALLS[name][2](session)
    assert len(session.ledger.entries()) == len(charges)
    assert all(charges)
